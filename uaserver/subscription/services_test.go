package subscription

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

func TestRevise(t *testing.T) {
	const big = math.MaxUint32
	rows := []struct {
		publishing          float64
		lifetime, keepAlive uint32
		want                Parameters
	}{
		{100, 30, 10, Parameters{Publishing: 100, Lifetime: 30, KeepAlive: 10}},
		{100, 5, 10, Parameters{Publishing: 100, Lifetime: 30, KeepAlive: 10}},
		{0, 0, 0, Parameters{Publishing: 10, Lifetime: 30, KeepAlive: 10}},
		{0.2, 100, 10, Parameters{Publishing: 10, Lifetime: 100, KeepAlive: 10}},
		{-5, 100, 10, Parameters{Publishing: 10, Lifetime: 100, KeepAlive: 10}},
		{math.NaN(), 100, 10, Parameters{Publishing: 10, Lifetime: 100, KeepAlive: 10}},
		{math.Inf(-1), 100, 10, Parameters{Publishing: 10, Lifetime: 100, KeepAlive: 10}},
		{math.Inf(1), 100, 10, Parameters{Publishing: 3_600_000, Lifetime: 24, KeepAlive: 1}},
		{1e18, 3, 1, Parameters{Publishing: 3_600_000, Lifetime: 3, KeepAlive: 1}},
		{1000, big, big, Parameters{Publishing: 1000, Lifetime: 86400, KeepAlive: 3600}},
		{10, big, big, Parameters{Publishing: 10, Lifetime: 8_640_000, KeepAlive: 360_000}},
		{250.5, 30, 10, Parameters{Publishing: 250.5, Lifetime: 30, KeepAlive: 10}},
	}
	e := &Engine{}
	e.cfg.defaults()
	for _, row := range rows {
		p := Parameters{Publishing: row.publishing, Lifetime: row.lifetime, KeepAlive: row.keepAlive}
		if e.revise(&p); p != row.want {
			t.Errorf("%v, %d, %d becomes %+v, want %+v", row.publishing, row.lifetime, row.keepAlive, p, row.want)
		}
	}
}

func TestLimits(t *testing.T) {
	bubble(t, "BadTooManySubscriptions", func(t *testing.T) {
		c := newRig(t, Config{Subscriptions: 2}).client()
		a := c.subscribe(Parameters{})
		c.subscribe(Parameters{})
		create := func() ua.StatusCode {
			return c.CreateSubscription(Parameters{}, true, func(uint32, Parameters) {})
		}
		if code := create(); code != ua.StatusBadTooManySubscriptions {
			t.Fatalf("the third: %v", code)
		}
		c.DeleteSubscriptions([]uint32{a}, make([]ua.StatusCode, 1), func() {})
		if code := create(); code != ua.StatusGood {
			t.Fatalf("after a deletion: %v", code)
		}
	})
	bubble(t, "G2 Subscriptions of sessions that ended give way", func(t *testing.T) {
		r := newRig(t, Config{Subscriptions: 3})
		gone, c := r.client(), r.client()
		long := gone.subscribe(Parameters{Lifetime: 1_000_000})
		gone.subscribe(Parameters{Lifetime: 1000})
		gone.monitor(long, plainItem(r.variable(0), 10))
		c.subscribe(Parameters{})
		create := func() ua.StatusCode {
			return c.CreateSubscription(Parameters{}, true, func(uint32, Parameters) {})
		}
		if code := create(); code != ua.StatusBadTooManySubscriptions {
			t.Fatalf("its session lives: %v", code)
		}
		gone.Close(false)
		if code := create(); code != ua.StatusGood {
			t.Fatalf("its session has ended: %v", code)
		}
		if st := r.engine.Stats(); st.Items != 1 {
			t.Fatal("the one that lives longest went first")
		}
		if code := create(); code != ua.StatusGood {
			t.Fatalf("the second: %v", code)
		}
		if code := create(); code != ua.StatusBadTooManySubscriptions {
			t.Fatalf("those of sessions that live stay: %v", code)
		}
	})
	bubble(t, "G2 many clients come back at once", func(t *testing.T) {
		r := newRig(t, Config{Subscriptions: 400})
		gone := r.client()
		for range 400 {
			gone.subscribe(Parameters{})
		}
		gone.Close(false)
		var refused atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				c := r.client()
				for range 50 {
					if c.CreateSubscription(Parameters{}, true, func(uint32, Parameters) {}) != ua.StatusGood {
						refused.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := refused.Load(); n > 0 {
			t.Fatalf("%d of 400 were refused", n)
		}
	})
	bubble(t, "G1 items of their own queue that the account has no room for", func(t *testing.T) {
		budget := &tag.Budget{Limit: 2 * ownBytes}
		r := newRig(t, Config{Account: budget})
		c := r.client()
		sub := c.subscribe(Parameters{})
		item := plainItem(r.variable(0), 1)
		item.Oldest, item.Range = false, "0:1"
		got := c.monitor(sub, item, item, item, plainItem(r.vars[0], 1))
		if got[0].Status != ua.StatusGood || got[1].Status != ua.StatusGood ||
			got[2].Status != ua.StatusBadTooManyMonitoredItems || got[3].Status != ua.StatusGood {
			t.Fatalf("%+v", got)
		}
		c.DeleteItems(sub, []uint32{got[0].ID}, make([]ua.StatusCode, 1))
		if got := c.monitor(sub, item); got[0].Status != ua.StatusGood {
			t.Fatalf("after a deletion: %+v", got)
		}
		c.Close(true)
		if n := budget.Used(); n != 0 {
			t.Fatalf("%d bytes stay charged", n)
		}
	})
	bubble(t, "BadTooManyMonitoredItems", func(t *testing.T) {
		r := newRig(t, Config{Items: 3})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		var got []ua.StatusCode
		results := c.monitor(sub, plainItem(v, 1), plainItem(v, 1), plainItem(v, 1), plainItem(v, 1))
		for _, x := range results {
			got = append(got, x.Status)
		}
		if want := []ua.StatusCode{0, 0, 0, ua.StatusBadTooManyMonitoredItems}; !slices.Equal(got, want) {
			t.Fatalf("%v", got)
		}
		c.DeleteItems(sub, []uint32{results[1].ID}, make([]ua.StatusCode, 1))
		if x := c.monitor(sub, plainItem(v, 1))[0]; x.Status != ua.StatusGood || x.ID == results[1].ID {
			t.Fatalf("after a deletion: %+v; a deleted item's id must not come back at once", x)
		}
	})
	bubble(t, "B13 ids cannot be guessed", func(t *testing.T) {
		seen := map[string]bool{}
		for range 8 {
			c := newRig(t, Config{}).client()
			seen[fmt.Sprint(c.subscribe(Parameters{})>>8)] = true
		}
		if len(seen) < 7 {
			t.Fatalf("ids of eight engines: %v", seen)
		}
	})
	bubble(t, "a foreign Subscription is out of reach", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		owner, other := r.client(), r.client()
		sub := owner.subscribe(Parameters{})
		item := owner.monitor(sub, plainItem(v, 1))[0].ID
		bad := ua.StatusBadSubscriptionIDInvalid
		results := make([]ua.StatusCode, 1)
		if other.DeleteSubscriptions([]uint32{sub}, results, func() {}); results[0] != bad {
			t.Errorf("delete: %v", results[0])
		}
		if _, code := other.ModifySubscription(sub, Parameters{}); code != bad {
			t.Errorf("modify: %v", code)
		}
		if code := other.DeleteItems(sub, []uint32{item}, results); code != bad {
			t.Errorf("delete items: %v", code)
		}
		if code := other.CreateItems(t.Context(), sub, 0, everyRight, []ItemRequest{plainItem(v, 1)}, make([]ItemResult, 1), nil); code != bad {
			t.Errorf("create items: %v", code)
		}
		if code := other.Republish(sub, 1, nil); code != bad {
			t.Errorf("republish: %v", code)
		}
	})
}
