package bench

import (
	"math/rand/v2"
	"time"

	"github.com/gopcua/opcua/id"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// workload is a load with its numbers.
type workload struct {
	name     string
	help     string
	sessions int
	security string
	pause    time.Duration // after each answer
	warmup   time.Duration
	duration time.Duration
	rounds   int
	groups   []group // nodes
	request  int     // nodes in one request
	make     func(c *conn, nodes []node) *request
	writer   time.Duration // pause of one more session, which writes all nodes; 0: there is none
	watch    *watching     // nil: it has no subscriptions
	gate     string        // what PASS means; "": there is no gate
}

// theAnswer is what harness-write100 writes.
const theAnswer = 42

// scalars are the nodes of load-read.
var scalars = []group{
	{kind: tag.Int16, count: 100}, {kind: tag.Int32, count: 100}, {kind: tag.Int64, count: 100},
	{kind: tag.Uint16, count: 100}, {kind: tag.Uint32, count: 100}, {kind: tag.Uint64, count: 100},
}

// harness is what the harness-* workloads have in common: closed loop, one request in flight.
func harness(name, help string, nodes int, make func(c *conn, nodes []node) *request) workload {
	return workload{
		name: name, help: help, sessions: 20, security: SecurityNone, warmup: 6 * time.Second, duration: 12 * time.Second, rounds: 3,
		groups: []group{{kind: tag.Int32, count: 1000}}, request: nodes, make: make,
	}
}

var workloads = []workload{
	harness("harness-read1", "20 sessions read 1 value each", 1, makeRead),
	harness("harness-read100", "20 sessions read 100 values at a time", 100, makeRead),
	encrypted(harness("harness-read100-encrypt", "the same, signed and encrypted", 100, makeRead)),
	harness("harness-write100", "20 sessions write 100 values at a time", 100, makeWrite),
	harness("harness-browse", "20 sessions browse the Server object", 0, makeBrowse),
	{
		name: "load-read", help: "50 sessions read all of 600 values, one writes them", sessions: 50,
		security: SecurityBasic256Sha256, pause: 10 * time.Millisecond, duration: time.Minute, rounds: 1,
		groups: scalars, request: 600, make: makeRead, writer: 15 * time.Millisecond, gate: "0 errors",
	},
	{
		name: "load-sessions", help: "10,000 sessions (--sessions) with one subscription and one item each, all on one value",
		sessions: 10_000, security: SecurityBasic256Sha256, duration: time.Minute, rounds: 1,
		groups: []group{{kind: tag.Int32, count: 1}}, gate: "all connect, and each receives up to the last value",
		watch: &watching{
			subscriptions: 1, items: 1, publishing: time.Second, queue: 1, requests: 1, mover: byPeriod, pause: 500 * time.Millisecond,
			judge: judgeSessions,
		},
	},
	loadSubscribe("load-subscribe", "450,000 items on 600 values, which change every 150 ms", 1, judgeNearly,
		"more than 99 % arrive, and what is missing was overwritten in a queue of one, as the ledger counts it"),
	loadSubscribe("load-subscribe-queued", "the same with queue 10", 10, judgeAll, "all arrive, without an Overflow bit"),
	{
		name: "load-events", help: "750 items watch the events of the Server object: 10,000 a second, 2,000 where they are encrypted",
		sessions: 50, security: SecurityNone, duration: 30 * time.Second, rounds: 1, groups: []group{{kind: tag.Int32, count: 1}},
		gate: "all events arrive at all items, the last ones within 2 s",
		watch: &watching{
			subscriptions: 15, items: 1, publishing: 100 * time.Millisecond, queue: 10_000, requests: 20, mover: byServer, events: true,
			judge: judgeEvents,
		},
	},
	{
		name: "harness-sub", help: "10,000 items on 1,000 values, which change twice in a publishing interval", sessions: 20,
		security: SecurityNone, duration: 12 * time.Second, rounds: 3, groups: []group{{kind: tag.Int32, count: 1000}},
		gate: "all arrive that the queue holds",
		watch: &watching{
			subscriptions: 5, items: 100, publishing: 100 * time.Millisecond, queue: 1, requests: 10, mover: byPeriod,
			pause: 50 * time.Millisecond, judge: judgeHeld,
		},
	},
	{
		name: "harness-counters", help: "1,000 counters (--count) that step every 10 ms, published every second", sessions: 1,
		security: SecurityNone, duration: 12 * time.Second, rounds: 3,
		groups: []group{{kind: tag.Uint64, count: 1000, wave: "{kind: counter, every: 10ms}"}},
		gate:   "every change of every counter arrives",
		watch: &watching{
			subscriptions: 1, items: 1000, publishing: time.Second, queue: 200, requests: 5, mover: byServer,
			pause: 10 * time.Millisecond, judge: judgeAll,
		},
	},
	twoWay("two-way", "20,000 texts change at the server and 20,000 at the client, each once a second", time.Minute),
	twoWay("two-way-soak", "the same for 15 minutes, then both sides hold the same", 15*time.Minute),
}

// loadSubscribe is the load of 450,000 items.
func loadSubscribe(name, help string, queue uint32, judge func(*watched) string, gate string) workload {
	return workload{
		name: name, help: help, sessions: 50, security: SecurityBasic256Sha256, duration: time.Minute, rounds: 1, groups: scalars, gate: gate,
		watch: &watching{
			subscriptions: 15, items: 600, publishing: 100 * time.Millisecond, queue: queue, requests: 15,
			mover: byPause, pause: 150 * time.Millisecond, judge: judge,
		},
	}
}

// twoWay is a client that receives and writes at the same time.
func twoWay(name, help string, d time.Duration) workload {
	return workload{
		name: name, help: help, sessions: 1, security: SecurityNone, warmup: 10 * time.Second, duration: d, rounds: 1,
		gate: "all arrive, both ways",
		watch: &watching{
			publishing: 50 * time.Millisecond, sampling: -1, queue: 1, requests: 41, mover: byServer, pause: time.Second, each: true,
			twoWay: true, judge: judgeTwoWay,
		},
	}
}

func encrypted(w workload) workload {
	w.security = SecurityBasic256Sha256
	return w
}

func workloadOf(name string) (workload, bool) {
	for _, w := range workloads {
		if w.name == name {
			return w, true
		}
	}
	return workload{}, false
}

// Fields are the names of the workloads in which a gateway polls and this process is the plant.
func Fields() []string {
	var names []string
	for _, f := range fieldHelps {
		names = append(names, f.name)
	}
	return names
}

// Workloads are the names of all others.
func Workloads() []string {
	names := make([]string, len(workloads))
	for i, w := range workloads {
		names[i] = w.name
	}
	return names
}

// Help is a line about each workload, for the command line.
func Help() string {
	var s string
	for i, w := range workloads {
		if i > 0 {
			s += "; "
		}
		s += w.name + ": " + w.help
	}
	for _, f := range fieldHelps {
		s += "; " + f.name + ": " + f.help
	}
	return s + "."
}

func makeRead(c *conn, nodes []node) *request { return readRequest(c.session, ids(nodes)) }

func makeWrite(c *conn, nodes []node) *request {
	return writeRequest(c.session, ids(nodes), kinds(nodes), theAnswer)
}

func makeBrowse(c *conn, _ []node) *request {
	return browseRequest(c.session, wire.NumericID(0, id.Server))
}

func ids(nodes []node) []wire.NodeID {
	out := make([]wire.NodeID, len(nodes))
	for i, n := range nodes {
		out[i] = n.id
	}
	return out
}

func kinds(nodes []node) []tag.Kind {
	out := make([]tag.Kind, len(nodes))
	for i, n := range nodes {
		out[i] = n.kind
	}
	return out
}

// randomRequests is how many requests a session makes ahead of nodes at random: with 20 sessions and 100 nodes in each,
// 100,000 picks.
const randomRequests = 50

// requests are those that session i sends in turn. Sessions share the nodes out: each takes those behind its
// predecessor's.
func (b *bench) requests(c *conn, i int) []*request {
	n := b.load.request
	pick := make([]node, n)
	if !b.cfg.Random {
		for k := range pick {
			pick[k] = b.nodes[(i*n+k)%len(b.nodes)]
		}
		return []*request{b.load.make(c, pick)}
	}
	// The same for each run, so that servers get the same load.
	random := rand.New(rand.NewPCG(1, uint64(i)))
	all := make([]*request, randomRequests)
	for r := range all {
		for k := range pick {
			pick[k] = b.nodes[random.IntN(len(b.nodes))]
		}
		all[r] = b.load.make(c, pick)
	}
	return all
}
