package subscription

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

func TestLossIsTold(t *testing.T) {
	bubble(t, "one line an item a minute, with advice", func(t *testing.T) {
		var out bytes.Buffer
		r := newRig(t, Config{Log: slog.New(slog.NewTextHandler(&out, nil)), Shards: 1})
		v, w := r.variable(0), r.variable(0)
		c := r.client()
		c.SetName("scada-2")
		sub := c.subscribe(Parameters{Publishing: 1000, Lifetime: 10_000})
		c.monitor(sub, plainItem(v, 3), plainItem(w, 1))
		c.publish(100)
		time.Sleep(ms(50))  // no change at a tick
		for i := range 95 { // 5 changes a second
			if i == 90 {
				time.Sleep(20 * time.Second) // the minute is over, and a quiet time
			}
			for range 5 {
				v.set(int64(i))
				w.set(int64(i))
				time.Sleep(ms(150))
			}
			time.Sleep(ms(250))
		}
		sleep(2 * time.Second)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("%d lines in two minutes:\n%s", len(lines), out.String())
		}
		for i, lost := range []string{"lost=2 ", "lost=120 "} { // the first interval, then the sixty after it
			for _, want := range []string{"scada-2", v.node.ID.String(), lost, "queue=3", "queue size of 5"} {
				if !strings.Contains(lines[i], want) {
					t.Errorf("%q is missing in %s", want, lines[i])
				}
			}
		}
		st := r.engine.Stats()
		if st.Overflowed == 0 || st.Coalesced == 0 {
			t.Fatalf("%+v", st)
		}
	})
	bubble(t, "H5 many items do not flood the log", func(t *testing.T) {
		var out bytes.Buffer
		r := newRig(t, Config{Log: slog.New(slog.NewTextHandler(&out, nil)), Shards: 1})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{Lifetime: 100_000})
		var reqs []ItemRequest
		for range 500 {
			reqs = append(reqs, plainItem(v, 2))
		}
		c.monitor(sub, reqs...)
		c.publish(100)
		for i := range 90 {
			v.set(1, 2, 3, int64(i))
			sleep(time.Second)
			c.publish(len(c.take()))
		}
		v.set(1, 2, 3)
		sleep(time.Second)
		if n := strings.Count(out.String(), "\n"); n < 20 || n > 45 {
			t.Fatalf("%d lines in 90 s", n)
		}
		if !strings.Contains(out.String(), "more items") {
			t.Fatal("the silent ones are not counted")
		}
	})
}

func TestStats(t *testing.T) {
	bubble(t, "counts and latency", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(0)
		time.Sleep(time.Hour) // an initial value of any age is no latency
		c := r.client()
		a := c.subscribe(Parameters{Publishing: 100})
		c.subscribe(Parameters{Publishing: 250})
		c.monitor(a, plainItem(v, 10))
		c.publish(8)
		sleep(ms(160))
		v.set(1, 2)
		sleep(ms(100))
		if n, created, intervals := r.engine.Counts(); n != 2 || created != 2 || intervals != 2 {
			t.Fatalf("%d, %d, %d", n, created, intervals)
		}
		st := r.engine.Stats()
		if st.Sent != 3 || st.Messages != 2 || st.Items != 1 || st.Held != 2 || st.Latency.Sum != ms(40) {
			t.Fatalf("%+v", st)
		}
		if st.Latency.Buckets[5] != 1 { // up to 50 ms
			t.Fatalf("%v", st.Latency.Buckets)
		}
	})
	t.Run("the identities tell a slip", func(t *testing.T) {
		good := ledger{looked: 9, filtered: 1, sampledOut: 1, queued: 7, sent: 3, overflowed: 1, coalesced: 1, dropped: 1,
			passed: 9, messages: 4, acknowledged: 1, evicted: 1, abandoned: 1}
		if n := good.balance(9, 1, 1); n != 0 {
			t.Fatalf("off by %d", n)
		}
		for i, slip := range []func(l *ledger){func(l *ledger) { l.sent++ }, func(l *ledger) { l.looked++ },
			func(l *ledger) { l.passed-- }, func(l *ledger) { l.evicted++ }} {
			l := good
			if slip(&l); l.balance(9, 1, 1) != 1 {
				t.Errorf("slip %d is off by %d", i, l.balance(9, 1, 1))
			}
		}
	})
}

// TestWalkedInTime: an item that looks at every change is woken long before its publishing tick.
func TestWalkedInTime(t *testing.T) {
	r := newRig(t, Config{})
	v := r.variable(0)
	c := r.client()
	sub := c.subscribe(Parameters{Publishing: 400})
	item := plainItem(v, 10_000)
	dataFilter(&item, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 0.5)
	c.monitor(sub, item)
	c.publish(20)
	const changes = 5000
	for i := range changes {
		v.set(int64(i))
		if i%100 == 99 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if st := r.engine.Stats(); st.Sent+st.Overflowed == changes {
			if st.Overflowed > 0 && testing.Verbose() {
				t.Logf("%d lost on a busy machine", st.Overflowed)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("sent %d and lost %d of %d", r.engine.Stats().Sent, r.engine.Stats().Overflowed, changes)
}

// TestConcurrently runs everything against everything in real time, for the race detector; the ledger is checked at
// the end.
func TestConcurrently(t *testing.T) {
	r := newRig(t, Config{MinPublishing: time.Millisecond, Items: 2000, Held: 10})
	vars := make([]*variable, 20)
	for i := range vars {
		if i%5 == 4 {
			vars[i] = r.live()
			vars[i].live.Value = tag.Of(int64(i))
		} else {
			vars[i] = r.variable(0)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for w := range 2 {
		all.Go(func() {
			for n := int64(0); ctx.Err() == nil; n++ {
				if v := vars[(int(n)*2+w)%len(vars)]; v.series != nil {
					v.set(n)
				}
				if n%64 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for k := range 4 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(k), 9))
			c := r.client()
			defer c.Close(k%2 == 0)
			for ctx.Err() == nil {
				exercise(c, rnd, vars)
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			if st := r.engine.Stats(); st.Unaccounted != 0 {
				t.Errorf("the ledger is off by %d while all is moving", st.Unaccounted)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	all.Wait()
}

// exercise makes a Subscription, uses every service on it, and leaves or deletes it.
func exercise(c *tester, rnd *rand.Rand, vars []*variable) {
	sub := c.subscribe(Parameters{Publishing: 1, Notifications: uint32(rnd.IntN(20))})
	var ids []uint32
	for range 20 {
		item := plainItem(vars[rnd.IntN(len(vars))], uint32(1+rnd.IntN(20)))
		item.Oldest = rnd.IntN(2) == 0
		item.Sampling = float64(rnd.IntN(3) * 10)
		if rnd.IntN(3) == 0 {
			dataFilter(&item, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, float64(rnd.IntN(5)))
		}
		for _, x := range c.monitor(sub, item) {
			ids = append(ids, x.ID)
		}
	}
	results := make([]ua.StatusCode, len(ids))
	for i := range 10 {
		c.publish(2, Ack{sub, uint32(rnd.IntN(30))})
		id := ids[rnd.IntN(len(ids))]
		switch i % 5 {
		case 0:
			c.SetMode(sub, ua.MonitoringMode(rnd.IntN(3)), []uint32{id}, results)
		case 1:
			m := ModifyRequest{ID: id, Handle: id, Sampling: float64(rnd.IntN(3) * 10), Queue: uint32(rnd.IntN(30)), Oldest: rnd.IntN(2) == 0}
			c.ModifyItems(sub, ua.TimestampsToReturnServer, []ModifyRequest{m}, make([]ItemResult, 1), func() {})
		case 2:
			c.Republish(sub, uint32(rnd.IntN(30)), func([]byte) {})
		case 3:
			c.DeleteItems(sub, []uint32{id}, results)
		case 4:
			c.ModifySubscription(sub, Parameters{Publishing: 2})
			c.SetPublishing([]uint32{sub}, rnd.IntN(4) > 0, results)
		}
		time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
	}
	c.Detach(c)
	if rnd.IntN(4) > 0 {
		c.DeleteSubscriptions([]uint32{sub}, results, func() {})
	} else {
		c.Close(true)
		c.Client = c.rig.engine.NewClient()
	}
}
