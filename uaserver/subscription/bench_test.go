//go:build unix

package subscription

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// null takes answers as a connection does, and forgets them.
type null struct {
	buf   []byte
	bytes int
	acks  []Ack
}

func (n *null) Respond(_ uint32, r *Response) bool {
	n.buf = r.AppendTo(n.buf[:0])
	n.bytes += len(n.buf)
	if len(r.held) > 0 {
		n.acks = append(n.acks, Ack{r.sub, r.held[len(r.held)-1].sequence})
	}
	return true
}

// load is clients with Subscriptions that are published by hand: its engine's clock does nothing.
type load struct {
	engine  *Engine
	vars    []*variable
	clients []*Client
	senders []*null
	subs    [][]*Subscription
	tick    int64
}

func newLoad(tb testing.TB, clients, subs, items int, queue uint32) *load {
	l := &load{engine: New(Config{Space: space{}, Shards: 1, Subscriptions: 100_000})}
	tb.Cleanup(func() {
		if n := l.engine.Stats().Unaccounted; n != 0 {
			tb.Errorf("the ledger is off by %d", n)
		}
		l.engine.Close()
	})
	r := newRigFor(l.engine)
	for range items {
		v := r.variable(0)
		v.set(0)
		l.vars = append(l.vars, v)
	}
	reqs := make([]ItemRequest, items)
	results := make([]ItemResult, items)
	for range clients {
		c := l.engine.NewClient()
		l.clients = append(l.clients, c)
		l.senders = append(l.senders, &null{})
		var list []*Subscription
		for range subs {
			var id uint32
			c.CreateSubscription(Parameters{Publishing: 3_600_000}, true, func(n uint32, _ Parameters) { id = n })
			for i := range reqs {
				reqs[i] = plainItem(l.vars[i], queue)
				reqs[i].Handle = uint32(i)
			}
			if code := c.CreateItems(context.Background(), id, ua.TimestampsToReturnBoth, everyRight, reqs, results, func() {}); code != ua.StatusGood {
				tb.Fatal(code)
			}
			list = append(list, c.subs.find(id))
		}
		l.subs = append(l.subs, list)
	}
	return l
}

// change moves every variable n times.
func (l *load) change(n int) {
	for range n {
		l.tick++
		at := tag.Now()
		for _, v := range l.vars {
			v.series.Append(tag.Sample{Value: tag.Of(l.tick), At: at})
		}
	}
}

// publish has every Subscription publish once.
func (l *load) publish() {
	for i, c := range l.clients {
		n := l.senders[i]
		acks := n.acks
		for range l.subs[i] {
			c.Publish(Request{Sender: n}, acks)
			acks = nil
		}
		n.acks = n.acks[:0]
		c.mu.Lock()
		for _, s := range l.subs[i] {
			s.step(onTimer, 0)
		}
		c.mu.Unlock()
	}
}

// TestNotificationsDoNotAllocate: in steady state neither a change nor a notification allocates.
func TestNotificationsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools")
	}
	for _, queue := range []uint32{1, 10} {
		l := newLoad(t, 2, 3, 100, queue)
		for range 20 {
			l.change(3)
			l.publish()
		}
		if n := testing.AllocsPerRun(50, func() {
			l.change(3)
			l.publish()
		}); n != 0 {
			t.Errorf("queue %d: %v allocations for 6 messages", queue, n)
		}
	}
}

// cpuTime is what the process has used of the processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFanOut publishes to 450,000 items: 50 clients of 15 Subscriptions of 600 items, as load-subscribe has them.
// It counts all between a change and the connection's buffer: cursors, state machine, encoding, retransmission,
// acknowledgement, and the copy into the buffer.
func BenchmarkFanOut(b *testing.B) {
	for _, queue := range []uint32{1, 10} {
		b.Run(fmt.Sprintf("queue=%d", queue), func(b *testing.B) {
			l := newLoad(b, 50, 15, 600, queue)
			changes := 1
			if queue > 1 {
				changes = 3
			}
			for range 3 {
				l.change(changes)
				l.publish()
			}
			before := l.engine.Stats().Sent
			var m, n runtime.MemStats
			runtime.ReadMemStats(&m)
			cpu := cpuTime()
			b.ResetTimer()
			for range b.N {
				l.change(changes)
				l.publish()
			}
			b.StopTimer()
			cpu = cpuTime() - cpu
			runtime.ReadMemStats(&n)
			sent := float64(l.engine.Stats().Sent - before)
			b.ReportMetric(float64(cpu.Nanoseconds())/sent, "cpu-ns/notification")
			b.ReportMetric(float64(n.Mallocs-m.Mallocs)/sent, "allocs/notification")
			b.ReportMetric(sent/float64(b.N), "notifications/op")
		})
	}
}

// BenchmarkIdle is a tick of a Subscription of 600 items that did not change.
func BenchmarkIdle(b *testing.B) {
	l := newLoad(b, 1, 1, 600, 10)
	l.publish()
	l.publish()
	s := l.subs[0][0]
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		s.client.mu.Lock()
		s.lifetime, s.keepAlive = 100, 100
		s.step(onTimer, 0)
		s.client.mu.Unlock()
	}
}

// BenchmarkCreateItem makes items in calls of 1,000.
func BenchmarkCreateItem(b *testing.B) {
	e := New(Config{Space: space{}, Shards: 1, Items: 1 << 30, Subscriptions: 1 << 30})
	defer e.Close()
	r := newRigFor(e)
	const batch = 1000
	reqs := make([]ItemRequest, batch)
	results := make([]ItemResult, batch)
	for i := range reqs {
		v := r.variable(0)
		v.set(0)
		reqs[i] = plainItem(v, 10)
	}
	c := e.NewClient()
	var id uint32
	var m, n runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		if i%(10*batch) == 0 {
			c.CreateSubscription(Parameters{Publishing: 3_600_000}, true, func(n uint32, _ Parameters) { id = n })
		}
		c.CreateItems(context.Background(), id, ua.TimestampsToReturnBoth, everyRight, reqs[:min(batch, b.N-i)], results, func() {})
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&n)
	b.ReportMetric(float64(n.HeapAlloc-m.HeapAlloc)/float64(b.N), "heap-B/item")
}

// BenchmarkCreateItems makes 600 items in one call in an engine that has 1,000 or 450,000 already, all on the same 600
// variables as those of load-subscribe are, and deletes them. Each call is timed by itself, and the median and the
// fastest tenth are told: what a busy machine or a collection adds is not the engine's.
func BenchmarkCreateItems(b *testing.B) {
	const batch = 600
	for _, others := range []int{1_000, 450_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			l := newLoad(b, max(1, others/(15*batch)), min(15, others/batch+1), min(batch, others/2), 10)
			reqs := make([]ItemRequest, batch)
			results := make([]ItemResult, batch)
			for i := range reqs {
				reqs[i] = plainItem(l.vars[i%len(l.vars)], 10)
			}
			c := l.engine.NewClient()
			took := make([]time.Duration, 0, b.N)
			for range b.N {
				var id uint32
				c.CreateSubscription(Parameters{Publishing: 3_600_000}, true, func(n uint32, _ Parameters) { id = n })
				start := time.Now()
				c.CreateItems(context.Background(), id, ua.TimestampsToReturnBoth, everyRight, reqs, results, func() {})
				took = append(took, time.Since(start))
				c.DeleteSubscriptions([]uint32{id}, make([]ua.StatusCode, 1), func() {})
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/batch, "median-ns/item")
			b.ReportMetric(float64(took[len(took)/10].Nanoseconds())/batch, "p10-ns/item")
			b.ReportMetric(float64(l.engine.items.Load()), "others")
		})
	}
}

// BenchmarkChange appends a change to variables that 50 clients watch with 15 Subscriptions each: none of them is
// touched.
func BenchmarkChange(b *testing.B) {
	l := newLoad(b, 50, 15, 600, 10)
	l.change(10) // the rings have grown
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += 600 {
		l.change(1)
	}
}

// BenchmarkScrape adds up the figures of 45,000 items.
func BenchmarkScrape(b *testing.B) {
	l := newLoad(b, 5, 15, 600, 10)
	b.ResetTimer()
	for range b.N {
		l.engine.Stats()
	}
}

// TestItemSize: the memory of 450,000 items is mostly this.
func TestItemSize(t *testing.T) {
	if n := sizeOfItem; n != 24 {
		t.Errorf("an item is %d bytes, want 24", n)
	}
}

func BenchmarkAppendNotification(b *testing.B) {
	s := tag.Sample{Value: tag.Of(12.5), At: tag.TimeOf(time.Now())}
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for range b.N {
		buf = appendNotification(buf[:0], 1, &s, s.At, bothTimes)
	}
}

// BenchmarkReport reads the ledger of 450,000 items: at rest, and after all of them lost something.
func BenchmarkReport(b *testing.B) {
	l := newLoad(b, 50, 15, 600, 2)
	for _, losses := range []bool{false, true} {
		b.Run(fmt.Sprintf("losses=%v", losses), func(b *testing.B) {
			if losses {
				l.change(5)
			}
			l.publish()
			b.ReportAllocs()
			for b.Loop() {
				if r := l.engine.Report(100); r.Unaccounted != 0 {
					b.Fatalf("off by %d", r.Unaccounted)
				}
			}
		})
	}
}
