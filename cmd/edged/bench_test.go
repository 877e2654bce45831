package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/cmd/edged/bench"
)

// runBench carries out a bench command; the gateway that it starts is this test's binary.
func runBench(t *testing.T, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	t.Setenv(asProgram, "1")
	var out, errs bytes.Buffer
	exit = execute(t.Context(), append([]string{"bench"}, args...), &out, &errs)
	return exit, out.String(), errs.String()
}

// lastLine is the median of a run with --json.
func lastLine(t *testing.T, out string) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var v map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &v); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return v
}

// benchColumns are columns that each line has: some that are above 0, and some that may be 0, such as CPU time.
var benchColumns = map[bool][2][]string{
	false: {
		{"rate", "p50_us", "p99.9_us", "max_us", "rss_MiB"},
		{"errors", "cpu_us/op", "client_us/op", "alloc_B/op", "gc", "gc_pause_ms"},
	},
	true: {
		{"expected", "received", "notif/s", "avg_ms", "max_ms", "rss_MiB", "cpu_us/notif"},
		{"errors", "overwritten", "behind", "overflow", "ledger", "unaccounted", "drain_s", "client_us/notif", "alloc_B/notif", "gc", "gc_pause_ms"},
	},
}

// Every workload against a gateway of its own, which is gone with its files afterwards. Those with subscriptions also
// with values that the gateway polls.
func TestBench(t *testing.T) {
	type row struct {
		name string
		args []string
	}
	var rows []row
	for _, name := range bench.Workloads() {
		args := []string{"--sessions", "2"}
		// On a machine that is busy with other tests too, and no more than the account has for all items.
		if strings.HasPrefix(name, "load-subscribe") || strings.HasPrefix(name, "two-way") {
			args = append(args, "--queue", "100")
		} else if name == "harness-counters" {
			args = append(args, "--queue", "1000")
		}
		rows = append(rows, row{name, args})
		if name == "load-subscribe-queued" || name == "harness-counters" {
			rows = append(rows, row{name, slices.Concat(args, []string{"--field", "modbus"})})
		}
		if name == "load-subscribe-queued" || name == "load-sessions" {
			rows = append(rows, row{name, slices.Concat(args, []string{"--security", "None"})})
		}
	}
	for _, row := range rows {
		t.Run(strings.Join(append(row.args, row.name), " "), func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			duration := "300ms"
			if row.name == "harness-counters" { // which publishes every second
				duration = "1200ms"
			}
			args := append([]string{row.name, "--scale", "0.02", "--duration", duration, "--rounds", "1", "--json"}, row.args...)
			exit, out, errs := runBench(t, args...)
			if exit != exitDone {
				t.Fatalf("exit %d: %s\n%s", exit, errs, out)
			}
			v := lastLine(t, out)
			sessions := 2.0
			if strings.HasPrefix(row.name, "two-way") {
				sessions = 1
			}
			if v["workload"] != row.name || v["round"] != "median" || v["errors"] != 0.0 || v["sessions"] != sessions || v["scale"] != 0.02 {
				t.Errorf("%v", v)
			}
			_, watches := v["expected"]
			for i, columns := range benchColumns[watches] {
				for _, column := range columns {
					if n, ok := v[column].(float64); !ok || n < 0 || i == 0 && n == 0 {
						t.Errorf("%s is %v", column, v[column])
					}
				}
			}
			if (v["verdict"] == "PASS") != (watches || row.name == "load-read") {
				t.Errorf("verdict %v", v["verdict"])
			}
			if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

// The field workloads poll a plant in this process; on a busy machine they may miss their limits, but never a scan's value.
func TestBenchOfTheField(t *testing.T) {
	for name, columns := range map[string][]string{
		"field-rtu": {"baud", "cycles", "ideal_ms", "mean_ms", "p50_ms"},
		"field-tcp": {"scans/s", "values/s", "rss_MiB", "off_p99_ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			exit, out, errs := runBench(t, name, "--duration", "600ms", "--warmup", "700ms", "--json")
			v := lastLine(t, out)
			if v["workload"] != name || (v["verdict"] == "PASS") != (exit == exitDone) && name == "field-tcp" {
				t.Errorf("exit %d: %v %s", exit, v, errs)
			}
			for _, column := range columns {
				if n, ok := v[column].(float64); !ok || n <= 0 {
					t.Errorf("%s is %v", column, v[column])
				}
			}
			if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
	if len(bench.Fields()) != 2 {
		t.Error("a field workload has no row here")
	}
}

const benchSite = siteHead + `
devices:
  - name: scratch
    driver: memory
    tags:
      - {name: "m{n}", repeat: 200, type: int32, access: readwrite}
      - {name: "r{n}", repeat: 200, type: int32}
`

// Another server is loaded by its URL, and what is wrong with its answers is told.
func TestBenchOfAnotherServer(t *testing.T) {
	g, _ := startSite(t, benchSite)
	url := endpointUp(t, g)
	quick := []string{"--url", url, "--duration", "200ms", "--warmup", "0s", "--sessions", "2", "--rounds", "2"}
	rows := []struct {
		name string
		args []string
		exit int
		out  string
		errs string
	}{
		{"its nodes", []string{"harness-read100", "--nodes", "ns=2;s=scratch.m%d", "--count", "200"}, exitDone, "median", ""},
		{"encrypted by another policy", []string{"harness-read1", "--nodes", "ns=2;s=scratch.m%d", "--count", "200", "--security", "Aes256_Sha256_RsaPss"}, exitDone, "Aes256_Sha256_RsaPss", ""},
		{"encrypted", []string{"harness-read1", "--nodes", "ns=2;s=scratch.m%d", "--count", "200", "--security", "Basic256Sha256"}, exitDone, "Basic256Sha256", ""},
		{"at random", []string{"harness-read100", "--nodes", "ns=2;s=scratch.m%d", "--count", "200", "--random"}, exitDone, "at random", ""},
		{"nodes that do not exist", []string{"harness-read100", "--nodes", "ns=2;s=scratch.m%d", "--base", "150"}, exitFailed, "", "are these the server's nodes?"},
		{"nodes that cannot be written", []string{"harness-write100", "--nodes", "ns=2;s=scratch.r%d", "--count", "200"}, exitFailed, "", "100 of 100 results are bad"},
		{"values of another type", []string{"harness-write100", "--nodes", "ns=2;s=scratch.m%d", "--count", "200", "--type", "UInt64"}, exitFailed, "", "100 of 100 results are bad"},
		{"a type that is no number", []string{"harness-write100", "--nodes", "ns=2;s=scratch.m%d", "--type", "string"}, exitUsage, "", "whole numbers"},
		{"no nodes", []string{"harness-read1"}, exitUsage, "", "nodes is missing"},
		{"no such workload", []string{"harness-nothing"}, exitUsage, "", "harness-read100-encrypt"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			exit, out, errs := runBench(t, append(row.args, quick...)...)
			if exit != row.exit || !strings.Contains(out, row.out) || !strings.Contains(errs, row.errs) {
				t.Errorf("exit %d, want %d; stdout:\n%s\nstderr:\n%s", exit, row.exit, out, errs)
			}
		})
	}
	t.Run("a server that is away", func(t *testing.T) {
		exit, _, errs := runBench(t, "harness-browse", "--url", "opc.tcp://127.0.0.1:1")
		if exit != exitFailed || !strings.Contains(errs, "refused") {
			t.Errorf("exit %d: %s", exit, errs)
		}
	})
}

// The first signal ends a run at once, and its gateway with it.
func TestBenchIsInterrupted(t *testing.T) {
	t.Setenv(asProgram, "1")
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs logBook // the run never waits for who reads
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, []string{"bench", "harness-read1", "--duration", "100ms", "--warmup", "0s", "--rounds", "1000", "--sessions", "1"}, &out, &errs)
	}()
	eventually(t, "the first round", func() bool { return out.count("\n") > 0 || len(ended) > 0 })
	cancel()
	select {
	case exit := <-ended:
		if exit != exitFailed || errs.count("canceled") == 0 {
			t.Errorf("exit %d: %s", exit, &errs)
		}
	case <-time.After(patience):
		t.Fatalf("the run does not end: %s%s", &out, &errs)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
