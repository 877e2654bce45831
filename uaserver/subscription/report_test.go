package subscription

import (
	"strings"
	"testing"
	"time"

	"edged/drivers/tag"
)

// TestReport: the ledger by client and by tag, as people read it.
func TestReport(t *testing.T) {
	bubble(t, "by client and tag", func(t *testing.T) {
		r := newRig(t, Config{})
		fast, calm := r.variable(0), r.variable(0)
		fast.node.ID.Type, fast.node.ID.Str = 1, "boiler.temperature"
		calm.set(1)
		c, d := r.client(), r.client()
		c.SetName("scada-2")
		c.SetSession(7)
		d.SetName("historian")
		d.SetSession(8)
		sub := c.subscribe(Parameters{Publishing: 1000})
		c.monitor(sub, plainItem(fast, 3), plainItem(calm, 3))
		d.monitor(d.subscribe(Parameters{Publishing: 1000}), plainItem(fast, 20))
		c.publish(100)
		d.publish(100)
		sleep(ms(50))
		for i := range 100 {
			fast.set(int64(i))
			sleep(ms(200))
		}
		got := r.engine.Report(10)
		if got.Unaccounted != 0 || got.Short != 1 || len(got.Clients) != 2 || len(got.Tags) != 1 || len(got.Away) != 0 || len(got.Advice) != 1 {
			t.Fatalf("%+v", got)
		}
		for _, row := range []struct{ got, want string }{
			{got.Clients[0].String(), "historian (session 8): 1 subscriptions, 1 items, 0 too short, 80 Publish requests; " +
				"new 100 = unchanged 0 + filtered 0 + sampled out 0 + queued 100; queued = sent 100 + waiting 0 + " +
				"overwritten 0 + overflowed 0 + out of memory 0 + disabled 0 + deleted 0 + expired 0; " +
				"sent = acknowledged 0 + evicted 0 + abandoned 0 + held 100; unaccounted 0"},
			{got.Clients[1].String(), "scada-2 (session 7): 1 subscriptions, 2 items, 1 too short, 80 Publish requests; " +
				"new 101 = unchanged 0 + filtered 0 + sampled out 0 + queued 101; queued = sent 61 + waiting 0 + " +
				"overwritten 0 + overflowed 40 + out of memory 0 + disabled 0 + deleted 0 + expired 0; " +
				"sent = acknowledged 0 + evicted 0 + abandoned 0 + held 61; unaccounted 0"},
			{got.Tags[0].String(), "boiler.temperature: lost 40, evicted 0; 1 items, 1 too short; changes 5/s: queue 6 holds it; " +
				"new 100 = unchanged 0 + filtered 0 + sampled out 0 + queued 100; queued = sent 60 + waiting 0 + " +
				"overwritten 0 + overflowed 40 + out of memory 0 + disabled 0 + deleted 0 + expired 0"},
		} {
			if row.got != row.want {
				t.Errorf("got  %s\nwant %s", row.got, row.want)
			}
		}
		c.Close(false)
		if got := r.engine.Report(0); got.Clients[1].Session != 0 || !strings.Contains(got.Clients[1].String(), "session ended") || got.More != 1 {
			t.Errorf("%+v", got.Clients[1])
		}
	})
}

// TestTimeToLoss: for a client that is away it is known when it will lose something, before it does.
func TestTimeToLoss(t *testing.T) {
	bubble(t, "queue, then lifetime", func(t *testing.T) {
		r := newRig(t, Config{})
		v, one := r.variable(0), r.variable(0)
		c := r.client()
		c.SetName("scada-2")
		sub := c.subscribe(Parameters{Publishing: 1000, KeepAlive: 10, Lifetime: 100})
		c.monitor(sub, plainItem(v, 50), plainItem(one, 1))
		c.publish(11)
		change := func(n int) { // 4 a second
			for i := range n {
				v.set(int64(i))
				one.set(int64(i))
				sleep(ms(250))
			}
		}
		sleep(ms(50))
		change(40)
		if got := r.engine.Report(0).Away; len(got) != 0 {
			t.Fatalf("a client that publishes is away: %v", got)
		}
		change(16)
		got := r.engine.Report(0).Away // the last request was used at 11 s: 12 wait, at 4 a second there is room for 38 more
		if len(got) != 1 || got[0].By != "queue" || got[0].Left != ms(9500) || got[0].Node != &v.node {
			t.Fatalf("%+v", got)
		}
		if want := "no Publish request for 14.1 s, the queue of ns=2;i=0 is full in 9.5 s"; !strings.HasSuffix(got[0].String(), want) {
			t.Errorf("got %s, want %s", &got[0], want)
		}
		before := r.engine.Stats().Overflowed
		change(38)
		if n := r.engine.Stats().Overflowed - before; n != 0 {
			t.Fatalf("%d lost before the time", n)
		}
		change(1)
		if n := r.engine.Stats().Overflowed - before; n != 1 {
			t.Fatalf("%d lost when the time is over", n)
		}
		if got := r.engine.Report(0).Away; got[0].Left != 0 || !strings.HasSuffix(got[0].String(), "loses values of ns=2;i=0") {
			t.Fatalf("%v", &got[0])
		}
	})
	bubble(t, "lifetime", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.series.Append(tag.Sample{Value: tag.Of(int64(1))})
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 1000, KeepAlive: 10, Lifetime: 100})
		c.monitor(sub, plainItem(v, 50))
		c.publish(1)
		sleep(ms(1500))
		c.Close(false)
		got := r.engine.Report(0).Away
		if len(got) != 1 || got[0].By != "lifetime" || !strings.HasSuffix(got[0].String(), "ends in 99.5 s with its lifetime") {
			t.Fatalf("%+v", got)
		}
		sleep(got[0].Left - time.Millisecond)
		if n := r.engine.Stats().Subscriptions; n != 1 {
			t.Fatal("ended before the time")
		}
		sleep(2 * time.Millisecond)
		if n := r.engine.Stats().Subscriptions; n != 0 {
			t.Fatal("lives on after the time")
		}
	})
}
