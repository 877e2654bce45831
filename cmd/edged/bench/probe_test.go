package bench

import (
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	rows := []struct {
		stat string
		want float64
	}{
		{"17 (edged) S 1 17 17 0 -1 4194560 900 0 0 0 250 50 0 0 20 0 9 0 100 1000 200", 3},
		{"17 (a) b (c) S 1 17 17 0 -1 4194560 900 0 0 0 7 3 0 0 20 0 9 0 100 1000 200", 0.1},
		{"17 (edged) S 1 17", math.NaN()},
		{"", math.NaN()},
		{"17 (edged) S 1 17 17 0 -1 4194560 900 0 0 0 x 50 0 0 20", math.NaN()},
	}
	for _, row := range rows {
		if got := parseStat([]byte(row.stat)); got != row.want && !(math.IsNaN(got) && math.IsNaN(row.want)) {
			t.Errorf("%q: %v seconds, want %v", row.stat, got, row.want)
		}
	}
}

func TestListening(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:12F2 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0000000000000000 100 0 0 10 0
   1: 0100007F:12F2 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0000000000000000 100 0 0 10 0
   2: 00000000000000000000000001000000:12F2 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0 0 10 0
   3: 0100007F:12F3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 444 1 0000000000000000 100 0 0 10 0
   4: short
`
	if got := listening(table, 0x12F2); !slices.Equal(got, []string{"111", "333"}) {
		t.Errorf("inodes %v", got)
	}
}

// This process is looked at as a server would be.
func TestProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pid := listenerOf(l.Addr().(*net.TCPAddr).Port)
	if pid != os.Getpid() {
		t.Fatalf("process %d listens, want %d", pid, os.Getpid())
	}
	c := Config{URL: "opc.tcp://" + l.Addr().String()}
	if c.pid() != pid {
		t.Errorf("process %d at %s", c.pid(), c.URL)
	}
	for _, url := range []string{"opc.tcp://192.0.2.1:4840", "opc.tcp://example.test:4840", "://"} {
		if c := (Config{URL: url}); c.pid() != 0 {
			t.Errorf("%s: process %d of another machine", url, c.pid())
		}
	}
	if c := (Config{URL: "opc.tcp://192.0.2.1:4840", PID: 5}); c.pid() != 5 {
		t.Errorf("process %d, want the one given", c.pid())
	}
	var before, after sample
	before.process(pid)
	for end := time.Now().Add(patience); after.cpu-before.cpu < 2.0/clockTick; after.process(pid) {
		if time.Now().After(end) {
			t.Fatalf("the CPU time stays %v", after.cpu)
		}
		for i := range 1 << 20 {
			before.gc += float64(i)
		}
	}
	if after.client-before.client < 1.0/clockTick || !(after.rss > 1<<16) {
		t.Errorf("client %v s after %v s, %v bytes", after.client, before.client, after.rss)
	}
	before.process(0)
	if !math.IsNaN(before.cpu) || !math.IsNaN(before.rss) {
		t.Errorf("an unknown process has %v s and %v bytes", before.cpu, before.rss)
	}
}

// What fetching the metrics costs the server does not count.
func TestMetrics(t *testing.T) {
	allocated := 1000
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		allocated += 50
		w.Write([]byte(strings.ReplaceAll(`# HELP go_memstats_alloc_bytes_total bytes
go_memstats_alloc_bytes_total ALLOC
go_gc_duration_seconds{quantile="0"} 1e-05
go_gc_duration_seconds_sum 0.25
go_gc_duration_seconds_count 4
`, "ALLOC", strconv.Itoa(allocated))))
	}))
	defer s.Close()
	p := probe{metrics: s.URL}
	first := p.at(t.Context(), time.Now(), true)
	last := p.at(t.Context(), time.Now(), false)
	if first.alloc != 1150 || last.alloc != 1150 {
		t.Errorf("%v and %v bytes, want 1150: nothing but three fetches happened", first.alloc, last.alloc)
	}
	if last.gc != 4 || last.pause != 0.25 {
		t.Errorf("%v collections of %v s", last.gc, last.pause)
	}
	var none sample
	for _, url := range []string{"", "http://127.0.0.1:1/metrics", "::"} {
		if none.fetched(t.Context(), url); !math.IsNaN(none.alloc) || !math.IsNaN(none.gc) {
			t.Errorf("%q: %+v", url, none)
		}
	}
}
