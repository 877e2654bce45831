package bench

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"edged/drivers/sim"
	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// What makes each workload fail.
func TestVerdicts(t *testing.T) {
	good := func() *watched {
		r := &watched{watching: &watching{queue: 1, objects: 1000}, own: true, writes: 10, items: 100, expected: 1100, received: 1100, fewest: 11, nodeLow: 11}
		return r
	}
	rows := []struct {
		name   string
		judge  func(*watched) string
		change func(r *watched)
		want   string
	}{
		{"all", judgeAll, func(r *watched) {}, ""},
		{"one is missing", judgeAll, func(r *watched) { r.received-- }, "1099 of 1100"},
		{"Overflow", judgeAll, func(r *watched) { r.overflow = 2 }, "2 notifications with the Overflow bit"},
		{"errors", judgeAll, func(r *watched) { r.errors, r.first = 3, errors.New("cut") }, "3 errors, the first: cut"},
		{"a last value", judgeAll, func(r *watched) { r.behind = 4 }, "4 items have not received their last value"},
		{"a ledger that is off", judgeAll, func(r *watched) { r.final.unaccounted = 1 }, "cannot account for 1 "},
		{"another server has no ledger", judgeAll, func(r *watched) { r.own, r.final.unaccounted = false, math.NaN() }, ""},
		{"nearly all, and told", judgeNearly, func(r *watched) { r.received -= 10; r.final.discarded = 10 }, ""},
		{"not told", judgeNearly, func(r *watched) { r.received -= 10; r.final.discarded = 9 }, "10 notifications are missing and the ledger counts 9"},
		{"not nearly all", judgeNearly, func(r *watched) { r.received -= 11; r.final.discarded = 11 }, "1089 of 1100"},
		{"a node that got little", judgeNearly, func(r *watched) { r.nodeLow = 9 }, "9 notifications of a node after 10 writes"},
		{"half, by a queue of one", judgeHeld, func(r *watched) { r.received = 600; r.final.discarded = 500 }, ""},
		{"half, and not told", judgeHeld, func(r *watched) { r.received = 600 }, "500 notifications are missing"},
		{"half, by a longer queue", judgeHeld, func(r *watched) { r.queue = 2; r.received = 600; r.final.discarded = 500 }, "600 of 1100"},
		{"every session", judgeSessions, func(r *watched) {}, ""},
		{"a session that hears nothing", judgeSessions, func(r *watched) { r.fewest = 1 }, "nothing but its initial value"},
		{"both ways", judgeTwoWay, func(r *watched) { r.writes = 1100 }, ""},
		{"too few there", judgeTwoWay, func(r *watched) { r.writes = 900 }, "900 of 1100 arrived at the server"},
		{"too few here", judgeTwoWay, func(r *watched) { r.writes, r.received = 1100, 900 }, "900 of 1100 arrived at the client"},
		{"too few in a quick look", judgeTwoWay, func(r *watched) { r.scaled, r.writes, r.received = true, 900, 900 }, ""},
		{"nothing in a quick look", judgeTwoWay, func(r *watched) { r.scaled, r.writes = true, 0 }, "0 of 1100 arrived at the server"},
		{"left out", judgeTwoWay, func(r *watched) { r.writes, r.lost = 1100, 1 }, "1 values were left out"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := good()
			row.change(r)
			if got := row.judge(r); got != row.want && (row.want == "" || !strings.Contains(got, row.want)) {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}

// The simulated device's log of answers tells what there was to deliver: what polling left out is no loss.
func TestPlant(t *testing.T) {
	b := &bench{cfg: Config{Workload: "load-subscribe", Field: FieldModbus}}
	if err := b.plan(); err != nil {
		t.Fatal(err)
	}
	p, err := b.newPlant()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if site := siteOf(b, p); !strings.Contains(site, `{name: "int64_{n}", repeat: 100, type: int64, address: "holding:300"}`) ||
		!strings.Contains(site, "poll: 15ms") || !strings.Contains(site, p.sim.Lines()[0].URL()) {
		t.Errorf("site file:\n%s", site)
	}
	// Registers 0 to 3 are Int16, 100 to 103 are two Int32.
	for _, regs := range [][]uint16{{10, 20, 30, 40}, {10, 21, 30, 40}, {11, 23, 30, 40}, {12, 24, 30, 40}} {
		p.answer(answerOf(0, regs))
	}
	p.mark()
	p.answer(answerOf(100, []uint16{1, 5, 1, 6}))
	p.answer(answerOf(101, []uint16{9, 1, 7})) // the first is cut in half
	p.answer(answerOf(100, []uint16{1, 6, 1, 7}))

	k := &crew{b: b}
	s := subscriberOf(b.load.watch, 600)
	copy(s.nodes, b.nodes)
	s.items[0] = seen{10, 12, 3}                 // all
	s.items[1] = seen{20, 24, 3}                 // told 20, 21, 23, 24
	s.items[2] = seen{30, 30, 1}                 // has not moved
	s.items[3] = seen{40, 39, 1}                 // behind
	s.items[100] = seen{1<<16 + 5, 1<<16 + 6, 2} // all
	s.items[101] = seen{1<<16 + 6, 1<<16 + 7, 2} // all
	k.subs = []*subscriber{s}
	r := &watched{watching: b.load.watch}
	p.judge(k, r)
	if r.expected != 3+4+1+0+2+2 || r.received != 12 || r.lost != 1 || r.behind != 1 {
		t.Errorf("expected %d, received %d, lost %d, behind %d", r.expected, r.received, r.lost, r.behind)
	}
}

func siteOf(b *bench, p *plant) string {
	b.plant = p
	defer func() { b.plant = nil }()
	return b.site(false)
}

// answerOf is a device's answer to a read of holding registers.
func answerOf(address int, regs []uint16) *sim.Answer {
	a := &sim.Answer{Bank: sim.Holding, Address: address, Count: len(regs)}
	for _, r := range regs {
		a.Data = append(a.Data, byte(r>>8), byte(r))
	}
	return a
}

// A gateway of its own gets the limits that a workload needs beyond the usual ones, and keeps its values still when told.
func TestSites(t *testing.T) {
	rows := []struct {
		cfg     Config
		has     []string
		without string
	}{
		{Config{Workload: "load-subscribe"}, []string{`"uint64_{n}", repeat: 100, type: uint64, access: readwrite}`}, "limits"},
		{Config{Workload: "load-sessions"}, []string{"limits: {sessions: 10011, connections: 10021, subscriptions: 10010}"}, "wave"},
		{Config{Workload: "harness-counters"}, []string{"wave: {kind: counter, every: 10ms}, access: readwrite}"}, "limits"},
		{Config{Workload: "two-way"}, []string{
			`"first49_{n}", repeat: 400, type: string, wave: {kind: text, every: 1s, phase: 980ms}, value: "0"`, `"last_{n}", repeat: 20000, type: string, value: "0"`,
		}, "limits"},
	}
	for _, row := range rows {
		b := &bench{cfg: row.cfg}
		if err := b.plan(); err != nil {
			t.Fatal(err)
		}
		site := b.site(false)
		for _, want := range row.has {
			if !strings.Contains(site, want) {
				t.Errorf("%s: no %s in\n%s", row.cfg.Workload, want, site)
			}
		}
		if strings.Contains(site, row.without) {
			t.Errorf("%s: %s in\n%s", row.cfg.Workload, row.without, site)
		}
		if strings.Contains(b.site(true), "wave") {
			t.Errorf("%s: waves when still", row.cfg.Workload)
		}
	}
}

// The client of two-way gathers its texts: one of each group a step, none of them twice in a request.
func TestGather(t *testing.T) {
	w := &watching{twoWay: true, pause: time.Second}
	c := &conn{sock: newSocket(&memory{}), peer: &peer{mode: 1}, body: bufferSize}
	nodes := make([]node, 200)
	for i := range nodes {
		nodes[i] = node{wire.NumericID(1, uint32(1000+i)), tag.String}
	}
	x := newWriter(c, w, nodes)
	x.sendGathered([]changed{{0, time.Now()}, {51, time.Now()}}) // the connection ends: the request is what counts
	if x.err == nil || x.one.items != 4 {
		t.Fatalf("%d values, %v", x.one.items, x.err)
	}
	for i, want := range []uint32{1, 1, 1, 1, 0} {
		if x.last[i] != want {
			t.Errorf("value %d is %d, want %d", i, x.last[i], want)
		}
	}
	r := wire.NewReader(x.one.body)
	kind := r.NodeID()
	if v, err := wire.DecodeMessage(kind.Num, &r); err != nil {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestEach(t *testing.T) {
	sum := make([]int, 100)
	if err := each(t.Context(), 100, 7, func(i int) error { sum[i]++; return nil }); err != nil {
		t.Error(err)
	}
	for i, n := range sum {
		if n != 1 {
			t.Errorf("%d was done %d times", i, n)
		}
	}
	broken := errors.New("broken")
	if err := each(t.Context(), 100, 7, func(i int) error { return broken }); !errors.Is(err, broken) || !strings.Contains(err.Error(), "session ") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if err := each(ctx, 5, 2, func(int) error { return nil }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestBetween(t *testing.T) {
	list := []uint32{3, 5, 6, 9}
	for _, row := range []struct {
		low, high uint32
		want      int
	}{{3, 9, 4}, {4, 8, 2}, {9, 9, 1}, {10, 20, 0}, {0, 2, 0}} {
		if got := between(list, row.low, row.high); got != row.want {
			t.Errorf("%d to %d: %d, want %d", row.low, row.high, got, row.want)
		}
	}
}

// Costs of the first and the last tenth show whether they grow.
func TestGauge(t *testing.T) {
	g := gauge{n: 100, probe: &probe{}}
	g.begin()
	for range 100 {
		g.done(1)
	}
	g.end()
	if g.made != 100 || g.earlyN != 10 || g.lateN != 90 || !(g.rate() > 0) || !math.IsNaN(g.cpu()) || !math.IsNaN(g.memory()) {
		t.Errorf("made %d, early %d, late %d, rate %v, cpu %v", g.made, g.earlyN, g.lateN, g.rate(), g.cpu())
	}
}

func TestDescriptors(t *testing.T) {
	if err := descriptors(1); err != nil {
		t.Error(err)
	}
	if err := descriptors(1 << 40); err == nil || !strings.Contains(err.Error(), "--sessions") {
		t.Error(err)
	}
}
