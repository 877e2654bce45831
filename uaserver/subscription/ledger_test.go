package subscription

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

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
		if st.Sent != 3 || st.Messages.Sent != 2 || st.Items != 1 || int(st.Messages.Held) != 2 || st.Latency.Sum != ms(40) {
			t.Fatalf("%+v", st)
		}
		if st.Latency.Buckets[5] != 1 { // up to 50 ms
			t.Fatalf("%v", st.Latency.Buckets)
		}
	})
	t.Run("the identities tell a slip", func(t *testing.T) {
		good := Counts{New: 19, Unchanged: 2, Filtered: 1, SampledOut: 1, Queued: 15, Overwritten: 1, Overflowed: 2, Disabled: 1,
			Deleted: 1, Expired: 1, Sent: 6, Waiting: 3}
		kept := Messages{Sent: 4, Acknowledged: 1, Evicted: 1, Abandoned: 1, Held: 1,
			SentIn: 14, AcknowledgedIn: 5, EvictedIn: 4, AbandonedIn: 3, HeldIn: 2}
		if n := good.Unaccounted() + kept.Unaccounted(); n != 0 {
			t.Fatalf("off by %d", n)
		}
		for i, slip := range []func(n *Counts, m *Messages){
			func(n *Counts, _ *Messages) { n.New++ }, func(n *Counts, _ *Messages) { n.Unchanged-- },
			func(n *Counts, _ *Messages) { n.Sent++ }, func(n *Counts, _ *Messages) { n.Waiting-- },
			func(n *Counts, _ *Messages) { n.Expired++ }, func(_ *Counts, m *Messages) { m.Evicted++ },
			func(_ *Counts, m *Messages) { m.HeldIn-- }, func(_ *Counts, m *Messages) { m.AcknowledgedIn++ },
		} {
			n, m := good, kept
			if slip(&n, &m); n.Unaccounted()+m.Unaccounted() != 1 {
				t.Errorf("slip %d is off by %d", i, n.Unaccounted()+m.Unaccounted())
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
