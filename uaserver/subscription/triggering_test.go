package subscription

import (
	"slices"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// trigger links items.
func (c *tester) trigger(sub, item uint32, remove, add []uint32) (removed, added []ua.StatusCode) {
	c.Helper()
	removed, added = make([]ua.StatusCode, len(remove)), make([]ua.StatusCode, len(add))
	if code := c.SetTriggering(sub, item, remove, add, removed, added); code != ua.StatusGood {
		c.Fatalf("SetTriggering: %v", code)
	}
	return removed, added
}

func modeItem(v *variable, queue uint32, mode ua.MonitoringMode) ItemRequest {
	r := plainItem(v, queue)
	r.Mode = mode
	return r
}

func TestTriggering(t *testing.T) {
	const disabled, sampling, reporting = ua.MonitoringModeDisabled, ua.MonitoringModeSampling, ua.MonitoringModeReporting
	banded := func(r ItemRequest) ItemRequest { // has a queue of its own
		dataFilter(&r, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 0.5)
		return r
	}
	plain := func(r ItemRequest) ItemRequest { return r }
	// What is reported of a trigger that changes from 1 to 2, and of an item to report with 10, 11, 12 queued.
	rows := []struct {
		name        string
		item, other ua.MonitoringMode
		want        []int64
	}{
		{"(1) the triggering item samples: it is not reported", sampling, sampling, []int64{10, 11, 12}},
		{"(2) the triggering item reports: it is", reporting, sampling, []int64{2, 10, 11, 12}},
		{"(3) the triggering item is disabled: it does not trigger", disabled, sampling, nil},
		{"(5) the item to report reports anyhow", sampling, reporting, []int64{10, 11, 12}},
		{"(6) the item to report is disabled", reporting, disabled, []int64{2}},
	}
	for _, kind := range []func(ItemRequest) ItemRequest{plain, banded} {
		for _, row := range rows {
			bubble(t, "5.13.1.6 "+row.name, func(t *testing.T) {
				r := newRig(t, Config{})
				a, b := r.variable(0), r.variable(0)
				a.set(1)
				c := r.client()
				sub := c.subscribe(Parameters{KeepAlive: 100})
				made := c.monitor(sub, kind(modeItem(a, 10, reporting)), kind(modeItem(b, 10, row.other)))
				c.publish(4)
				sleep(ms(100))
				c.wantValues(c.take(), 1)
				c.SetMode(sub, row.item, []uint32{made[0].ID}, make([]ua.StatusCode, 1))
				c.trigger(sub, made[0].ID, nil, []uint32{made[1].ID})
				if row.other != reporting {
					b.set(10, 11)
					sleep(ms(100))
					c.wantValues(c.take()) // (7) no change of the triggering item since the link
					b.set(12)
				} else {
					b.set(10, 11, 12)
				}
				a.set(2)
				sleep(ms(100))
				c.wantValues(c.take(), row.want...)
				b.set(13)
				sleep(ms(100))
				if row.other == reporting {
					c.wantValues(c.take(), 13)
				} else {
					c.wantValues(c.take()) // it waits for the next
				}
			})
		}
	}
	bubble(t, "a message that has no room for all of it", func(t *testing.T) {
		r := newRig(t, Config{})
		a, b := r.variable(0), r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{Notifications: 2})
		made := c.monitor(sub, plainItem(a, 1), modeItem(b, 10, sampling))
		c.trigger(sub, made[0].ID, nil, []uint32{made[1].ID})
		b.set(10, 11, 12)
		a.set(1)
		c.publish(1)
		sleep(ms(100))
		c.wantValues(c.take(), 1, 10)
		c.publish(1)
		c.wantValues(c.take(), 11, 12)
	})
	bubble(t, "without a Publish request the trigger is not forgotten", func(t *testing.T) {
		r := newRig(t, Config{})
		a, b := r.variable(0), r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		made := c.monitor(sub, modeItem(a, 1, sampling), modeItem(b, 10, sampling))
		c.trigger(sub, made[0].ID, nil, []uint32{made[1].ID})
		b.set(10)
		a.set(1)
		sleep(ms(500))
		c.publish(1)
		c.wantValues(c.take(), 10)
	})
	bubble(t, "a triggering item with a deadband triggers beyond it", func(t *testing.T) {
		r := newRig(t, Config{})
		a, b := r.variable(0), r.variable(0)
		a.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{KeepAlive: 100})
		item := modeItem(a, 1, sampling)
		dataFilter(&item, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 5)
		made := c.monitor(sub, item, modeItem(b, 10, sampling))
		c.trigger(sub, made[0].ID, nil, []uint32{made[1].ID})
		c.publish(3)
		sleep(ms(100))
		c.take()
		b.set(10)
		a.set(4)
		sleep(ms(100))
		c.wantValues(c.take())
		a.set(6)
		sleep(ms(100))
		c.wantValues(c.take(), 10)
	})
	bubble(t, "enabling a triggering item gives an initial value, which triggers", func(t *testing.T) {
		r := newRig(t, Config{})
		a, b := r.variable(0), r.variable(0)
		a.set(1)
		b.set(10)
		c := r.client()
		sub := c.subscribe(Parameters{KeepAlive: 100})
		made := c.monitor(sub, modeItem(a, 1, disabled), modeItem(b, 10, sampling))
		c.trigger(sub, made[0].ID, nil, []uint32{made[1].ID})
		c.publish(2)
		sleep(ms(100))
		c.take()
		c.SetMode(sub, sampling, []uint32{made[0].ID}, make([]ua.StatusCode, 1))
		sleep(ms(100))
		c.wantValues(c.take(), 10)
	})
	bubble(t, "a triggering item that gets a queue of its own triggers as before", func(t *testing.T) {
		r := newRig(t, Config{})
		a, b := r.variable(0), r.variable(0)
		a.set(1, 2, 3)
		b.set(10)
		c := r.client()
		sub := c.subscribe(Parameters{KeepAlive: 100})
		made := c.monitor(sub, modeItem(a, 1, sampling), modeItem(b, 10, sampling))
		c.trigger(sub, made[0].ID, nil, []uint32{made[1].ID})
		c.publish(3)
		sleep(ms(100))
		c.take()
		own := ModifyRequest{ID: made[0].ID, Queue: 3}
		c.ModifyItems(sub, ua.TimestampsToReturnBoth, []ModifyRequest{own}, make([]ItemResult, 1), func() {})
		sleep(ms(100))
		c.wantValues(c.take())
		a.set(4)
		sleep(ms(100))
		c.wantValues(c.take(), 10)
	})
	bubble(t, "5.13.5 results", func(t *testing.T) {
		budget := &tag.Budget{}
		r := newRig(t, Config{Account: budget})
		a, b := r.variable(0), r.variable(0)
		c := r.client()
		sub, foreign := c.subscribe(Parameters{}), c.subscribe(Parameters{})
		made := c.monitor(sub, plainItem(a, 1), modeItem(b, 10, sampling), modeItem(b, 10, sampling))
		first, second, third := made[0].ID, made[1].ID, made[2].ID
		silent := plainItem(r.variable(0), 1)
		other := c.monitor(foreign, silent, silent, silent, silent)[3].ID
		good, bad := ua.StatusGood, ua.StatusBadMonitoredItemIDInvalid
		for _, row := range []struct {
			name           string
			remove, add    []uint32
			removed, added []ua.StatusCode
		}{
			{"add, twice, unknown, of another Subscription", nil, []uint32{second, second, 0, 77, other}, nil, []ua.StatusCode{good, good, bad, bad, bad}},
			{"remove what is not linked", []uint32{third, 77}, nil, []ua.StatusCode{bad, bad}, nil},
			{"removed before it is added", []uint32{second}, []uint32{second, third}, []ua.StatusCode{good}, []ua.StatusCode{good, good}},
			{"remove both", []uint32{second, third, second}, nil, []ua.StatusCode{good, good, bad}, nil},
		} {
			removed, added := c.trigger(sub, first, row.remove, row.add)
			if !slices.Equal(removed, row.removed) || !slices.Equal(added, row.added) {
				t.Errorf("%s: %v, %v", row.name, removed, added)
			}
		}
		if n := budget.Used(); n != 0 {
			t.Errorf("%d bytes stay charged", n)
		}
		if code := c.SetTriggering(sub, 77, nil, []uint32{second}, nil, make([]ua.StatusCode, 1)); code != bad {
			t.Errorf("unknown triggering item: %v", code)
		}
		if code := c.SetTriggering(sub+1, first, nil, nil, nil, nil); code != ua.StatusBadSubscriptionIDInvalid {
			t.Errorf("unknown Subscription: %v", code)
		}
		// An item that goes takes its links with it.
		c.trigger(sub, first, nil, []uint32{second, third})
		c.DeleteItems(sub, []uint32{second}, make([]ua.StatusCode, 1))
		a.set(1)
		b.set(10)
		c.publish(3)
		sleep(ms(100))
		c.wantValues(c.take(), 1, 10)
		if removed, _ := c.trigger(sub, first, []uint32{second}, nil); removed[0] != bad {
			t.Errorf("a link to a deleted item: %v", removed)
		}
		c.DeleteItems(sub, []uint32{first}, make([]ua.StatusCode, 1))
		if n := budget.Used() - budgetOf(r); n != 0 {
			t.Errorf("%d bytes stay charged for links", n)
		}
	})
	bubble(t, "links are bounded by the account", func(t *testing.T) {
		r := newRig(t, Config{Account: &tag.Budget{Limit: 2 * linkBytes}})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		made := c.monitor(sub, plainItem(v, 1), plainItem(v, 1), plainItem(v, 1))
		_, added := c.trigger(sub, made[0].ID, nil, []uint32{made[0].ID, made[1].ID, made[2].ID})
		if added[1] != ua.StatusGood || added[2] != ua.StatusBadOutOfMemory {
			t.Fatalf("%v", added)
		}
	})
}

// budgetOf is what the messages that are kept, and the spare buffers, are charged.
func budgetOf(r *rig) (n int64) {
	for c := range r.engine.clients {
		for _, b := range c.spare {
			n += int64(cap(b))
		}
	}
	return n + int64(r.engine.Stats().HeldBytes)
}
