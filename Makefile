# `make run` shows the gateway with a simulated plant; `make test` brings what the tests need and runs them all.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
FUZZTIME ?= 20s
BENCH   ?= .

LDFLAGS = -s -w -X main.version=$(VERSION)

.PHONY: all build build-arm64 run test race fuzz bench gates soak field-day loss-hour lint generate generate-check interop cover clean

all: build

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/edged ./cmd/edged

# For the gateway's board: one static file.
build-arm64:
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/edged-arm64 ./cmd/edged

run: build
	./bin/edged demo

test:
	sh scripts/test.sh

race:
	CGO_ENABLED=1 $(GO) test -race ./...

# Each fuzz target of each package for FUZZTIME; finds land in the package's testdata, to be committed.
fuzz:
	@set -e; for p in $$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "=== $$p $$f"; \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; \
		done; \
	done

bench:
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

# Every workload with a gate, without and with encryption, from memory and from the field, for GATE_TIME each.
GATE_TIME ?= 60s
gates: build
	@failed=0; \
	gate() { echo "$$ edged bench $$*"; ./bin/edged bench "$$@" || failed=1; echo; }; \
	for w in load-sessions load-subscribe load-subscribe-queued harness-sub harness-counters; do \
		for s in None Basic256Sha256; do \
			gate $$w --security $$s --rounds 1 --duration $(GATE_TIME); \
			gate $$w --security $$s --rounds 1 --duration $(GATE_TIME) --field modbus; \
		done; \
	done; \
	gate harness-sub --queue 2 --rounds 1 --duration $(GATE_TIME); \
	gate load-events --rounds 1 --duration $(GATE_TIME); \
	gate load-events --security Basic256Sha256 --rounds 1 --duration $(GATE_TIME); \
	gate two-way --duration $(GATE_TIME); \
	exit $$failed

# A minute of 1,000 counters over Modbus and OPC UA: each change counted, in order, with the processor time it took.
soak:
	EDGED_LONG=1 $(GO) test -v -count=1 -run TestNothingIsLost ./cmd/edged

# 24 hours of a simulated field with random faults, over each transport: no value but what a device said, in its order.
field-day:
	EDGED_LONG=1 $(GO) test -v -count=1 -timeout 30m -run ADayOfTheField ./drivers/sim

lint:
	@unformatted=$$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags interop ./scripts/...
	$(GO) tool staticcheck ./...
	@sh scripts/vulnerabilities.sh

generate:
	$(GO) generate ./...

# What is generated must be what is committed: generating again changes no file.
generate-check:
	@before=$$(sh scripts/treesum.sh); $(MAKE) -s generate; \
	if [ "$$before" != "$$(sh scripts/treesum.sh)" ]; then \
		echo "make generate changed the tree: commit its output"; git status --short; exit 1; fi

interop: build
	$(GO) test -tags interop -count=1 -timeout 10m ./scripts/interop

# An hour of a plant with random faults, ten times as fast: what the devices said against what node-opcua heard, and
# against the ledger.
loss-hour: build
	EDGED_LONG=1 $(GO) test -tags interop -count=1 -v -timeout 20m -run TestLossFromOutside ./scripts/interop

cover:
	@mkdir -p build
	$(GO) test -coverprofile build/cover.out ./...
	$(GO) tool cover -func build/cover.out | tail -n 1

clean:
	rm -rf bin build scripts/interop/node_modules
