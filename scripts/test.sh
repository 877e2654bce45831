#!/bin/sh
# Runs every suite, and goes on after one that fails. A suite whose tools are missing is left out and named at the end;
# with CI=true that is a failure.
set -u
cd "$(dirname "$0")/.." || exit 1
GO=${GO:-go}

passed=0 failed=0 skipped=0 report=

suite() { # NAME COMMAND...
    name=$1
    shift
    echo "=== $name"
    began=$(date +%s)
    if "$@"; then
        passed=$((passed + 1)) verdict=ok
    else
        failed=$((failed + 1)) verdict=FAILED
    fi
    report="$report
$(printf '%-11s %s (%d s)' "$verdict" "$name" "$(($(date +%s) - began))")"
}

left_out() { # NAME REASON
    echo "=== $1: left out: $2"
    skipped=$((skipped + 1))
    report="$report
$(printf '%-11s %s: %s' 'left out' "$1" "$2")"
}

have() { command -v "$1" >/dev/null 2>&1; }

# Notices of others' code must cover what is linked into the program.
notices() {
    $GO version -m bin/edged | awk '$1 == "dep" { print $2 }' | while read -r module; do
        grep -q "^  $module " NOTICE || echo "NOTICE does not name $module"
    done | tee build/notices
    [ ! -s build/notices ]
}

# The program for the gateway's board is one static file: it names no loader and no library.
arm64_static() {
    make -s build-arm64 &&
        readelf -h bin/edged-arm64 | grep -q AArch64 &&
        ! readelf -lW bin/edged-arm64 | grep -qE 'INTERP|DYNAMIC'
}

arm64_tests() {
    CGO_ENABLED=0 GOARCH=arm64 $GO test -count=1 -timeout 10m -exec qemu-aarch64-static \
        ./uaserver/wire ./drivers/modbus ./uaserver/subscription &&
        qemu-aarch64-static bin/edged-arm64 version
}

mkdir -p build
sh scripts/setup.sh
suite build make -s build
suite lint make -s lint
suite generate make -s generate-check
suite 'go test' $GO test -timeout 10m ./...
if have gcc; then
    suite race env CGO_ENABLED=1 $GO test -race -timeout 15m ./...
else
    left_out race 'gcc is missing'
fi
suite notices notices
suite 'arm64 build' arm64_static
if have qemu-aarch64-static; then
    suite 'arm64 tests' arm64_tests
else
    left_out 'arm64 tests' 'qemu-user-static is missing'
fi
lacking=
have gcc || lacking="$lacking gcc"
have socat || lacking="$lacking socat"
have node || lacking="$lacking node"
[ -e /usr/include/modbus/modbus.h ] || lacking="$lacking libmodbus-dev"
[ -e scripts/interop/node_modules/node-opcua-client ] || lacking="$lacking node-opcua"
[ -e scripts/interop/node_modules/modbus-serial ] || lacking="$lacking modbus-serial"
if [ -z "$lacking" ]; then
    suite 'interop: libmodbus, modbus-serial, node-opcua' make -s interop
else
    left_out 'interop: libmodbus, modbus-serial, node-opcua' "missing:$lacking"
fi

echo "=== summary$report"
[ "${CI:-}" = true ] && failed=$((failed + skipped))
echo "suites: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
