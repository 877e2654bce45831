package subscription

import (
	"testing"
	"time"
	"unsafe"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// of are the counts of the n-th item of a Subscription, from 1.
func (c *tester) of(sub uint32, n int) Counts {
	c.Client.mu.Lock()
	defer c.Client.mu.Unlock()
	s := c.subs.find(sub)
	s.walk()
	return s.counts(uint32(n - 1))
}

// TestCounts: what happened to the samples of one item, whatever became of them.
func TestCounts(t *testing.T) {
	deadband := func(v *variable) ItemRequest {
		item := plainItem(v, 3)
		dataFilter(&item, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 5)
		return item
	}
	slow := func(v *variable) ItemRequest {
		item := plainItem(v, 3)
		item.Sampling = 60
		return item
	}
	rows := []struct {
		name string
		item func(v *variable) ItemRequest
		live bool // the value has no Series
		do   func(c *tester, v *variable, sub uint32, id uint32)
		want Counts
	}{
		{"waits", func(v *variable) ItemRequest { return plainItem(v, 3) }, false,
			func(c *tester, v *variable, sub, id uint32) { v.set(1, 2) },
			Counts{New: 3, Queued: 3, Waiting: 3}},
		{"is lost before anybody takes what is left", func(v *variable) ItemRequest { return plainItem(v, 3) }, false,
			func(c *tester, v *variable, sub, id uint32) { v.set(1, 2, 3, 4) },
			Counts{New: 5, Queued: 5, Waiting: 3, Overflowed: 2}},
		{"is overwritten", func(v *variable) ItemRequest { return plainItem(v, 1) }, false,
			func(c *tester, v *variable, sub, id uint32) { v.set(1, 2, 3, 4) },
			Counts{New: 5, Queued: 5, Waiting: 1, Overwritten: 4}},
		{"is sent", func(v *variable) ItemRequest { return plainItem(v, 3) }, false,
			func(c *tester, v *variable, sub, id uint32) {
				v.set(1, 2, 3, 4)
				c.publish(1)
				sleep(ms(110))
				v.set(5)
			},
			Counts{New: 6, Queued: 6, Sent: 3, Overflowed: 2, Waiting: 1}},
		{"goes with Disabled, and the initial value is new again", func(v *variable) ItemRequest { return plainItem(v, 3) }, false,
			func(c *tester, v *variable, sub, id uint32) {
				v.set(1, 2, 3, 4)
				c.SetMode(sub, ua.MonitoringModeDisabled, []uint32{id}, make([]ua.StatusCode, 1))
				v.set(5, 6, 7)
				c.SetMode(sub, ua.MonitoringModeReporting, []uint32{id}, make([]ua.StatusCode, 1))
			},
			Counts{New: 6, Queued: 6, Disabled: 3, Overflowed: 2, Waiting: 1}},
		{"is filtered", deadband, false,
			func(c *tester, v *variable, sub, id uint32) { v.set(1, 2, 6, 6, 7, 12) },
			Counts{New: 7, Unchanged: 1, Filtered: 3, Queued: 3, Waiting: 3}},
		{"is lost behind a filter", deadband, false,
			func(c *tester, v *variable, sub, id uint32) { v.set(10, 20, 30, 40) },
			Counts{New: 5, Queued: 5, Overflowed: 2, Waiting: 3}},
		{"is sampled out", slow, false,
			func(c *tester, v *variable, sub, id uint32) {
				sleep(ms(10))
				v.set(1, 2, 3)
				sleep(ms(60))
				v.set(4, 5)
				sleep(ms(60))
			},
			Counts{New: 6, SampledOut: 3, Queued: 3, Waiting: 3}},
		{"is unchanged when it is read", func(v *variable) ItemRequest { return plainItem(v, 3) }, true,
			func(c *tester, v *variable, sub, id uint32) { sleep(ms(350)) },
			Counts{New: 4, Unchanged: 3, Queued: 1, Waiting: 1}},
		{"is modified: a filter from now on", func(v *variable) ItemRequest { return plainItem(v, 5) }, false,
			func(c *tester, v *variable, sub, id uint32) {
				c.publish(1)
				sleep(ms(110))
				v.set(10, 20, 30)
				var x ItemRequest
				dataFilter(&x, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 5)
				c.ModifyItems(sub, ua.TimestampsToReturnBoth, []ModifyRequest{{ID: id, Handle: 1, Queue: 2, Oldest: true,
					FilterType: x.FilterType, Filter: x.Filter}}, make([]ItemResult, 1), func() {})
				v.set(31, 40)
			},
			Counts{New: 6, Filtered: 1, Queued: 5, Sent: 1, Overflowed: 2, Waiting: 2}},
	}
	for _, row := range rows {
		bubble(t, row.name, func(t *testing.T) {
			r := newRig(t, Config{})
			v := r.live()
			if !row.live {
				v = r.variable(0)
				v.set(0)
			}
			v.live = wire.DataValue{Value: tag.Of(int64(0))}
			c := r.client()
			sub := c.subscribe(Parameters{Lifetime: 10_000})
			id := c.monitor(sub, row.item(v))[0].ID
			row.do(c, v, sub, id)
			if got := c.of(sub, 1); got != row.want {
				t.Fatalf("got  %+v\nwant %+v", got, row.want)
			}
			if st := r.engine.Stats(); st.Counts != row.want || st.Unaccounted != 0 {
				t.Fatalf("the engine counts %+v, off by %d", st.Counts, st.Unaccounted)
			}
			// What waits goes with the item, and the counters stay.
			want := row.want
			want.Deleted, want.Waiting = want.Waiting, 0
			c.DeleteItems(sub, []uint32{id}, make([]ua.StatusCode, 1))
			if st := r.engine.Stats(); st.Counts != want || st.Unaccounted != 0 {
				t.Fatalf("deleted: %+v, want %+v, off by %d", st.Counts, want, st.Unaccounted)
			}
			c.Close(true)
			if st := r.engine.Stats(); st.Counts != want || st.Unaccounted != 0 {
				t.Fatalf("closed: %+v, want %+v, off by %d", st.Counts, want, st.Unaccounted)
			}
		})
	}
	bubble(t, "a lifetime ends", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		c.monitor(c.subscribe(Parameters{KeepAlive: 1, Lifetime: 3}), plainItem(v, 3))
		v.set(1, 2, 3, 4)
		sleep(time.Second)
		if st := r.engine.Stats(); st.Counts != (Counts{New: 4, Queued: 4, Overflowed: 1, Expired: 3}) || st.Unaccounted != 0 {
			t.Fatalf("%+v", st)
		}
	})
}

// TestMessagesAreCounted: each message, and each notification in it, is acknowledged, evicted, abandoned or held; what was
// evicted is known by item.
func TestMessagesAreCounted(t *testing.T) {
	bubble(t, "acknowledged, evicted, held, abandoned", func(t *testing.T) {
		r := newRig(t, Config{Held: 4})
		a, b := r.variable(0), r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(a, 10), plainItem(b, 10), plainItem(a, 10))
		c.publish(20)
		for range 10 {
			a.set(1, 2)
			b.set(1)
			sleep(ms(100))
		}
		c.publish(1, Ack{sub, 9}, Ack{sub, 1})
		c.Republish(sub, 8, func([]byte) {})
		want := Messages{Sent: 10, SentIn: 50, Acknowledged: 1, AcknowledgedIn: 5, Evicted: 6, EvictedIn: 30, Held: 3, HeldIn: 15, Republished: 1}
		if st := r.engine.Stats(); st.Messages != want || st.Unaccounted != 0 {
			t.Fatalf("got %+v, off by %d", st.Messages, st.Unaccounted)
		}
		c.Client.mu.Lock()
		for slot, n := range []uint64{12, 6, 12} {
			if got := c.subs.find(sub).tolls[slot].evicted; got != n {
				t.Errorf("item %d: %d evicted, want %d", slot+1, got, n)
			}
		}
		c.Client.mu.Unlock()
		c.DeleteSubscriptions([]uint32{sub}, make([]ua.StatusCode, 1), func() {})
		want.Abandoned, want.AbandonedIn, want.Held, want.HeldIn = 3, 15, 0, 0
		if st := r.engine.Stats(); st.Messages != want || st.Unaccounted != 0 {
			t.Fatalf("deleted: %+v, off by %d", st.Messages, st.Unaccounted)
		}
	})
}

// TestLedgerIsSmall: what the ledger keeps of an item, and of one that loses, with the item itself (the 0.1 KiB).
func TestLedgerIsSmall(t *testing.T) {
	if n := sizeOfItem + unsafe.Sizeof(path{}); n > 40 {
		t.Errorf("an item takes %d bytes", n)
	}
	if n := sizeOfItem + unsafe.Sizeof(path{}) + unsafe.Sizeof(toll{}); n > 72 {
		t.Errorf("one that loses takes %d bytes", n)
	}
	if n := unsafe.Sizeof(own{}) + unsafe.Sizeof(entry{}); n > ownBytes {
		t.Errorf("an item with a queue of its own takes %d bytes, charged are %d", n, ownBytes)
	}
}
