package bench

import (
	"errors"
	"strings"
	"testing"
	"time"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// The numbers of the load tests that these workloads are taken from.
func TestWorkloads(t *testing.T) {
	rows := []struct {
		name     string
		sessions int
		security string
		warmup   time.Duration
		duration time.Duration
		rounds   int
		nodes    int
		items    int
		gate     bool
	}{
		{"harness-read1", 20, SecurityNone, 6 * time.Second, 12 * time.Second, 3, 1000, 1, false},
		{"harness-read100", 20, SecurityNone, 6 * time.Second, 12 * time.Second, 3, 1000, 100, false},
		{"harness-read100-encrypt", 20, SecurityBasic256Sha256, 6 * time.Second, 12 * time.Second, 3, 1000, 100, false},
		{"harness-write100", 20, SecurityNone, 6 * time.Second, 12 * time.Second, 3, 1000, 100, false},
		{"harness-browse", 20, SecurityNone, 6 * time.Second, 12 * time.Second, 3, 1000, 1, false},
		{"load-read", 50, SecurityBasic256Sha256, 0, time.Minute, 1, 600, 600, true},
		{"load-sessions", 10_000, SecurityBasic256Sha256, 0, time.Minute, 1, 1, 1, true},
		{"load-subscribe", 50, SecurityBasic256Sha256, 0, time.Minute, 1, 600, 9000, true},
		{"load-subscribe-queued", 50, SecurityBasic256Sha256, 0, time.Minute, 1, 600, 9000, true},
		{"load-events", 50, SecurityNone, 0, 30 * time.Second, 1, 1, 15, true},
		{"harness-sub", 20, SecurityNone, 0, 12 * time.Second, 3, 1000, 500, true},
		{"harness-counters", 1, SecurityNone, 0, 12 * time.Second, 3, 1000, 1000, true},
		{"two-way", 1, SecurityNone, 10 * time.Second, time.Minute, 1, 40_000, 40_000, true},
		{"two-way-soak", 1, SecurityNone, 10 * time.Second, 15 * time.Minute, 1, 40_000, 40_000, true},
	}
	if len(rows) != len(Workloads()) {
		t.Errorf("workloads %v", Workloads())
	}
	for _, row := range rows {
		b := &bench{cfg: Config{Workload: row.name}}
		if err := b.plan(); err != nil {
			t.Fatal(err)
		}
		c := &b.cfg
		if c.Sessions != row.sessions || c.Security != row.security || c.Warmup != row.warmup || c.Duration != row.duration ||
			c.Rounds != row.rounds || len(b.nodes) != row.nodes || (b.load.gate != "") != row.gate {
			t.Errorf("%s: %+v, %d nodes, gate %q", row.name, c, len(b.nodes), b.load.gate)
		}
		if b.load.watch != nil {
			if n := len(b.items(0)); n != row.items {
				t.Errorf("%s: %d items in a session, want %d", row.name, n, row.items)
			}
		} else if q := b.requests(&conn{}, 0)[0]; q.items != row.items {
			t.Errorf("%s: %d items in a request, want %d", row.name, q.items, row.items)
		}
		if !strings.Contains(Help(), row.name) {
			t.Errorf("%s is not in the help", row.name)
		}
	}
}

// load-read reads 100 of each kind.
func TestScalars(t *testing.T) {
	b := &bench{cfg: Config{Workload: "load-read"}}
	if err := b.plan(); err != nil {
		t.Fatal(err)
	}
	n := map[tag.Kind]int{}
	seen := map[wire.NodeID]bool{}
	for _, node := range b.nodes {
		n[node.kind]++
		seen[node.id] = true
	}
	for _, k := range []tag.Kind{tag.Int16, tag.Int32, tag.Int64, tag.Uint16, tag.Uint32, tag.Uint64} {
		if n[k] != 100 {
			t.Errorf("%d nodes of %v", n[k], k)
		}
	}
	if len(seen) != 600 {
		t.Errorf("%d different nodes", len(seen))
	}
}

func TestPlan(t *testing.T) {
	rows := []struct {
		name  string
		cfg   Config
		wrong string
		check func(b *bench) bool
	}{
		{"no such workload", Config{Workload: "load-nothing"}, "there is no workload", nil},
		{"scale", Config{Workload: "load-read", Scale: 0.1}, "", func(b *bench) bool {
			return b.cfg.Sessions == 5 && b.cfg.Duration == 6*time.Second && len(b.nodes) == 600 && strings.Contains(b.heading(), "SCALED by 0.1")
		}},
		{"scale leaves a session", Config{Workload: "harness-read1", Scale: 0.001}, "", func(b *bench) bool { return b.cfg.Sessions == 1 }},
		{"scale below 0", Config{Workload: "harness-read1", Scale: -1}, "scale -1", nil},
		{"what is given is not scaled", Config{Workload: "harness-read1", Scale: 0.1, Sessions: 3, Duration: time.Second, Warmup: -1, Rounds: 2}, "",
			func(b *bench) bool {
				return b.cfg.Sessions == 3 && b.cfg.Duration == time.Second && b.cfg.Warmup == 0 && b.cfg.Rounds == 2
			}},
		{"other nodes", Config{Workload: "harness-read100", URL: "opc.tcp://127.0.0.1:1", Nodes: "ns=1;i=%d", Base: 1000, Count: 200, Kind: tag.Uint32}, "",
			func(b *bench) bool {
				return len(b.nodes) == 200 && b.nodes[0] == node{wire.NumericID(1, 1000), tag.Uint32} && b.nodes[199].id == wire.NumericID(1, 1199)
			}},
		{"other nodes of load-read", Config{Workload: "load-read", URL: "opc.tcp://127.0.0.1:1", Nodes: "ns=2;s=m%d"}, "",
			func(b *bench) bool {
				return b.nodes[599] == node{wire.TextID(2, "m599"), tag.Uint64} && b.nodes[100] == node{wire.TextID(2, "m100"), tag.Int32}
			}},
		{"no nodes", Config{Workload: "harness-read1", URL: "opc.tcp://127.0.0.1:1"}, "nodes is missing", nil},
		{"browse needs none", Config{Workload: "harness-browse", URL: "opc.tcp://127.0.0.1:1"}, "", func(b *bench) bool { return true }},
		{"a pattern without a number", Config{Workload: "harness-read1", URL: "x", Nodes: "ns=1;i=7"}, "holds %d once", nil},
		{"a pattern that is no node id", Config{Workload: "harness-read1", URL: "x", Nodes: "ns=x;q=%d"}, "nodes: ns=x;q=0", nil},
		{"too few nodes", Config{Workload: "harness-read100", Count: 99}, "needs 100 nodes", nil},
		{"a policy that is not known", Config{Workload: "harness-read1", Security: "Basic256"}, `security "Basic256"`, nil},
		{"nodes of a gateway of its own", Config{Workload: "harness-read1", Nodes: "ns=1;i=%d"}, "give its url", nil},
		{"a queue of its own", Config{Workload: "harness-sub", Queue: 2}, "", func(b *bench) bool { return b.load.watch.queue == 2 }},
		{"the workload's queue stays", Config{Workload: "harness-sub"}, "", func(b *bench) bool { return b.load.watch.queue == 1 }},
		{"fewer counters", Config{Workload: "harness-counters", Count: 7}, "", func(b *bench) bool { return len(b.items(0)) == 7 && len(b.nodes) == 7 }},
		{"texts are shared out among 41 subscriptions", Config{Workload: "two-way"}, "", func(b *bench) bool {
			w := b.load.watch
			return w.subscriptions == 41 && w.items <= 1000 && b.nodes[20_000].id == wire.TextID(2, "load.last_0") && b.nodes[400].id == wire.TextID(2, "load.first1_0")
		}},
		{"fewer texts", Config{Workload: "two-way", Scale: 0.01}, "", func(b *bench) bool { return len(b.nodes) == 400 && b.cfg.Sessions == 1 }},
		{"texts of another server", Config{Workload: "two-way", URL: "x", Nodes: "ns=1;i=%d", Count: 100}, "", func(b *bench) bool {
			return len(b.nodes) == 200 && b.nodes[199].id == wire.NumericID(1, 199)
		}},
		{"a field of another server", Config{Workload: "harness-sub", URL: "x", Nodes: "ns=1;i=%d", Field: FieldModbus}, "leave the url out", nil},
		{"a field of texts", Config{Workload: "two-way", Field: FieldModbus}, "leave the field out", nil},
		{"another field", Config{Workload: "harness-sub", Field: "profinet"}, "there is modbus", nil},
		{"a queue without subscriptions", Config{Workload: "harness-read1", Queue: 2}, "for subscriptions", nil},
		{"a queue below 0", Config{Workload: "harness-sub", Queue: -1}, "queue -1", nil},
		{"less than nothing", Config{Workload: "harness-read1", Rounds: -1}, "are positive", nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b := &bench{cfg: row.cfg}
			err := b.plan()
			switch {
			case row.wrong == "" && err != nil:
				t.Error(err)
			case row.wrong == "" && !row.check(b):
				t.Errorf("%+v with %d nodes", b.cfg, len(b.nodes))
			case row.wrong != "" && (!errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), row.wrong)):
				t.Errorf("error %v, want %q", err, row.wrong)
			}
		})
	}
}

// Sessions share the nodes out, at random or in turn, the same in each run.
func TestRequests(t *testing.T) {
	b := &bench{cfg: Config{Workload: "harness-read100", Count: 250}}
	if err := b.plan(); err != nil {
		t.Fatal(err)
	}
	first := func(q *request) wire.NodeID {
		r := wire.NewReader(q.body)
		r.NodeID()
		r.RequestHeader()
		v := r.ReadRequest()
		var n wire.ReadValueID
		v.Next(&n)
		return n.Node
	}
	for i, want := range []string{"load.int32_0", "load.int32_100", "load.int32_200", "load.int32_50"} {
		if got := first(b.requests(&conn{}, i)[0]); got != wire.TextID(2, want) {
			t.Errorf("session %d begins with %v, want %s", i, got, want)
		}
	}
	b.cfg.Random = true
	one, again, two := b.requests(&conn{}, 0), b.requests(&conn{}, 0), b.requests(&conn{}, 1)
	same := 0
	for i := range one {
		if first(one[i]) != first(again[i]) {
			t.Fatal("another run reads other nodes")
		}
		if first(one[i]) == first(two[i]) {
			same++
		}
	}
	if len(one) != randomRequests || same > randomRequests/5 {
		t.Errorf("%d of %d requests of two sessions begin alike", same, len(one))
	}
}
