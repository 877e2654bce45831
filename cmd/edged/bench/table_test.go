package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// rounds are two rounds of a server that is known, or not.
func rounds(known bool) []*result {
	all := []*result{{seconds: 2, values: 600, errors: 1, first: errors.New("x")}, {seconds: 2, values: 600, errors: 2}}
	for i, r := range all {
		for k := range 1000 {
			r.reads.add(time.Duration(k+1) * time.Microsecond)
		}
		r.aside = 1000
		r.before.client, r.after.client = 1, 1.02
		if known {
			r.before.cpu, r.after.cpu = 1, 1.1+0.1*float64(i)
			r.after.rss, r.after.alloc, r.after.gc, r.after.pause = 10<<20, 4000, 3, 0.0015
		} else {
			nan := math.NaN()
			r.after = sample{cpu: nan, client: 1.02, rss: nan, alloc: nan, gc: nan, pause: nan}
		}
	}
	return all
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	tb := &table[*result]{out: &out, columns: columns, heading: "load-read: two rounds"}
	for i, r := range rounds(true) {
		tb.row(string(rune('1'+i)), r)
	}
	tb.end("FAIL", "0 errors")
	const want = `load-read: two rounds
round        rate values/s writes/s   errors   p50_us   p90_us   p99_us p99.9_us   max_us cpu_us/op client_us/op alloc_B/op  rss_MiB       gc gc_pause_ms
1             500   300000    500.0        1      504      893      991      991     1000     50.00        10.00        2.0     10.0        3        1.50
2             500   300000    500.0        2      504      893      991      991     1000    100.00        10.00        2.0     10.0        3        1.50
median        500   300000    500.0        3      504      893      991      991     1000     75.00        10.00        2.0     10.0        3        1.50
FAIL (0 errors)
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// For scripts: an object a line, its keys the columns, null for what is not known.
func TestTableForScripts(t *testing.T) {
	var out bytes.Buffer
	tb := &table[*result]{out: &out, columns: columns, json: true, facts: []fact{{"workload", "load-read"}, {"scale", 0.1}}}
	for i, r := range rounds(false) {
		tb.row(string(rune('1'+i)), r)
	}
	tb.end("PASS", "0 errors")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3:\n%s", len(lines), out.String())
	}
	for i, line := range lines {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		for _, c := range columns {
			if _, ok := v[c.name]; !ok {
				t.Errorf("line %d: no %s", i+1, c.name)
			}
		}
		if v["workload"] != "load-read" || v["scale"] != 0.1 || v["rate"] != 500.0 || v["cpu_us/op"] != nil || v["client_us/op"] != 10.0 {
			t.Errorf("line %d: %s", i+1, line)
		}
		if verdict := v["verdict"]; (i == 2) != (verdict == "PASS") {
			t.Errorf("line %d: verdict %v", i+1, verdict)
		}
	}
}

func TestMedian(t *testing.T) {
	nan := math.NaN()
	rows := []struct {
		all  []float64
		want float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, nan, 2, 3}, 2.5}, {[]float64{7}, 7}, {[]float64{nan}, nan}, {nil, nan}}
	for _, row := range rows {
		if got := median(row.all); got != row.want && !(math.IsNaN(got) && math.IsNaN(row.want)) {
			t.Errorf("%v: %v, want %v", row.all, got, row.want)
		}
	}
}
