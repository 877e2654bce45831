package subscription

import (
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// TestRaise is `queue: auto`: sizes above one become what the rate needs, the size that is told is the one kept, and a rate
// that rises later gets no more than that.
func TestRaise(t *testing.T) {
	slow := func(i *ItemRequest) { i.Sampling = 250 }
	rows := []struct {
		name string
		off  bool
		min  float64 // MinimumSamplingInterval
		rate int     // changes a second before the item is made
		ask  uint32
		item func(i *ItemRequest)
		want uint32
	}{
		{"asked: as it was asked for", true, 100, 0, 2, nil, 2},
		{"a queue of one stays one", false, 100, 0, 1, nil, 1},
		{"polled every 100 ms, published every 2 s", false, 100, 0, 2, nil, 21},
		{"more than is needed stays", false, 100, 0, 50, nil, 50},
		{"sampled every 250 ms", false, 100, 0, 2, slow, 9},
		{"discard newest", false, 100, 0, 2, func(i *ItemRequest) { i.Oldest = false }, 21},
		{"no poll: twice the rate that was measured", false, 0, 5, 2, nil, 21},
		{"no poll, no change: as it was asked for", false, 0, 0, 3, nil, 3},
		{"bounded by limits.queue", false, 10, 0, 2, nil, 100},
	}
	for _, row := range rows {
		bubble(t, row.name, func(t *testing.T) {
			r := newRig(t, Config{Raise: !row.off, Queue: 100})
			v := r.variable(row.min)
			for i := range 10 * row.rate {
				v.set(int64(i))
				time.Sleep(time.Second / time.Duration(row.rate))
			}
			c := r.client()
			sub := c.subscribe(Parameters{Publishing: 2000})
			item := plainItem(v, row.ask)
			if row.item != nil {
				row.item(&item)
			}
			got := c.monitor(sub, item)[0]
			if got.Status != ua.StatusGood || got.Queue != row.want {
				t.Fatalf("granted %d, want %d", got.Queue, row.want)
			}
			if item.Sampling != 0 {
				return
			}
			c.publish(2)
			sleep(ms(2000))
			c.take()
			for i := range int(row.want) + 3 { // what is told is what is kept, and no more
				v.set(int64(i))
			}
			sleep(ms(2000))
			if n := len(values(c.take()...)); n != int(row.want) {
				t.Fatalf("%d are kept, promised %d", n, row.want)
			}
			if row.want > 1 && c.advised().Kind != "queue" {
				t.Fatalf("%+v", c.advised())
			}
		})
	}
	bubble(t, "without room the size that was asked for is kept", func(t *testing.T) {
		const slot = 40 // what address charges for a place
		r := newRig(t, Config{Raise: true, Account: &tag.Budget{Limit: ownBytes + 40*entryBytes}})
		r.block = address.NewBlock(&tag.Budget{Limit: 20 * slot})
		v := r.variable(100)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 10_000})
		plain, newest := plainItem(v, 15), plainItem(v, 15) // 101 are needed
		newest.Oldest = false
		d := r.client() // each may have half of what is left
		got := append(c.monitor(sub, plain), d.monitor(d.subscribe(Parameters{Publishing: 10_000}), newest)...)
		if got[0].Queue < 15 || got[0].Queue > 21 || got[1].Queue < 15 || got[1].Queue > 21 {
			t.Fatalf("granted %d and %d of 15", got[0].Queue, got[1].Queue)
		}
	})
	bubble(t, "ModifyMonitoredItems decides anew, ModifySubscription does not", func(t *testing.T) {
		r := newRig(t, Config{Raise: true})
		v := r.variable(100)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 1000})
		item := c.monitor(sub, plainItem(v, 2))[0]
		c.ModifySubscription(sub, Parameters{Publishing: 5000})
		results := make([]ItemResult, 1)
		c.Client.mu.Lock()
		s := c.subs.find(sub)
		if n := s.settings.list[s.items[0].set].queue; n != 11 || item.Queue != 11 {
			t.Errorf("promised %d, kept %d, want 11", item.Queue, n)
		}
		c.Client.mu.Unlock()
		c.ModifyItems(sub, ua.TimestampsToReturnBoth, []ModifyRequest{{ID: item.ID, Queue: 2, Oldest: true}}, results, func() {})
		if results[0].Queue != 51 {
			t.Errorf("modified: %d, want 51", results[0].Queue)
		}
	})
}

// TestRate: the rate of an item is that of the last span that was measured, or of the one at hand if that is more.
func TestRate(t *testing.T) {
	bubble(t, "rises, falls, filtered", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 1000, Lifetime: 10_000})
		filtered := plainItem(v, 5)
		dataFilter(&filtered, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 1.5)
		c.monitor(sub, plainItem(v, 5), filtered)
		n := int64(0)
		run := func(seconds, rate int) (plain, own float64) {
			for range seconds * rate {
				n++
				v.set(n)
				sleep(time.Second / time.Duration(rate))
			}
			c.Client.mu.Lock()
			defer c.Client.mu.Unlock()
			s := c.subs.find(sub)
			return s.rate(0, r.engine.now()), s.rate(1, r.engine.now())
		}
		near := func(got, want float64) bool { return got > 0.85*want && got < 1.15*want }
		for _, row := range []struct{ seconds, rate int }{{15, 4}, {25, 20}, {30, 2}} {
			if plain, own := run(row.seconds, row.rate); !near(plain, float64(row.rate)) || !near(own, float64(row.rate)/2) {
				t.Errorf("%d changes a second: measured %v, and %v behind a filter that lets every second one through", row.rate, plain, own)
			}
		}
	})
}
