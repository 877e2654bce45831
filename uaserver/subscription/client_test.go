package subscription

import (
	"slices"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

func TestRequests(t *testing.T) {
	bubble(t, "B9 too many Publish requests: the oldest is answered", func(t *testing.T) {
		r := newRig(t, Config{Requests: 128})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{KeepAlive: 1000, Lifetime: 10000})
		c.monitor(sub, plainItem(v, 10))
		c.publish(300)
		got := c.take()
		if len(got) != 172 {
			t.Fatalf("%d answers, want 172", len(got))
		}
		for i, m := range got {
			if m.request != uint32(i+1) || m.status != ua.StatusBadTooManyPublishRequests {
				t.Fatalf("answer %d: request %d, %v", i, m.request, m.status)
			}
		}
		sleep(ms(150))
		c.take()
		v.set(7)
		sleep(ms(100))
		if m := c.one(); m.request != 174 {
			t.Fatalf("request %d was used, want the oldest", m.request)
		} else {
			c.wantValues([]received{m}, 7)
		}
		c.DeleteSubscriptions([]uint32{sub}, make([]ua.StatusCode, 1), func() {})
		if n := len(c.take()); n != 126 {
			t.Fatalf("%d of the waiting requests were answered", n)
		}
	})
	bubble(t, "7.33 TimeoutHint", func(t *testing.T) {
		c := newRig(t, Config{}).client()
		c.subscribe(Parameters{Publishing: 100_000, Lifetime: 1000})
		c.Publish(Request{Sender: c, ID: 1, Handle: 1001, Timeout: 3 * time.Second}, nil)
		c.Publish(Request{Sender: c, ID: 2, Handle: 1002}, nil)
		c.Publish(Request{Sender: c, ID: 3, Handle: 1003, Timeout: time.Second}, nil)
		sleep(ms(3000))
		got := c.take()
		if len(got) != 2 || got[0].request != 3 || got[0].after != time.Second || got[1].request != 1 || got[1].after != 3*time.Second {
			t.Fatalf("timed out: %+v", got)
		}
		for _, m := range got {
			if m.status != ua.StatusBadTimeout {
				t.Fatalf("status %v", m.status)
			}
		}
	})
	bubble(t, "5.7.5 Cancel", func(t *testing.T) {
		c := newRig(t, Config{}).client()
		c.subscribe(Parameters{Publishing: 100_000})
		c.publish(3)
		if n := c.Cancel(1002); n != 1 {
			t.Fatalf("cancelled %d", n)
		}
		if m := c.one(); m.request != 2 || m.status != ua.StatusBadRequestCancelledByClient {
			t.Fatalf("%+v", m)
		}
	})
	bubble(t, "a lost channel's Publish requests are given up, the Subscription serves the next channel", func(t *testing.T) {
		for _, told := range []bool{true, false} {
			r := newRig(t, Config{})
			v := r.variable(0)
			v.set(1)
			c := r.client()
			sub := c.subscribe(Parameters{})
			c.monitor(sub, plainItem(v, 10))
			c.publish(3)
			c.mu.Lock()
			c.gone = true
			c.mu.Unlock()
			if told {
				c.Detach(c)
			}
			other := &tester{rig: r, Client: c.Client, start: time.Now()}
			other.publish(1)
			sleep(ms(100))
			other.wantValues(other.take(), 1)
			v.set(2)
			sleep(ms(100))
			other.publish(1)
			other.wantValues(other.take(), 2)
			if n := r.engine.Stats().Requests; n != 0 {
				t.Fatalf("%d requests stay", n)
			}
		}
	})
}

func TestEnd(t *testing.T) {
	bubble(t, "B15 the last Subscription is deleted", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(1)
		c := r.client()
		c.publish(1)
		if m := c.one(); m.status != ua.StatusBadNoSubscription {
			t.Fatalf("without any: %v", m.status)
		}
		a, b := c.subscribe(Parameters{}), c.subscribe(Parameters{})
		c.publish(5)
		results := make([]ua.StatusCode, 3)
		c.DeleteSubscriptions([]uint32{a, a, 12345}, results, func() {})
		if want := []ua.StatusCode{ua.StatusGood, ua.StatusBadSubscriptionIDInvalid, ua.StatusBadSubscriptionIDInvalid}; !slices.Equal(results, want) {
			t.Fatalf("results %v", results)
		}
		if got := c.take(); len(got) != 0 {
			t.Fatalf("%d answers while one Subscription lives", len(got))
		}
		replied := false
		c.DeleteSubscriptions([]uint32{b}, results[:1], func() { replied = len(c.got) == 0 })
		got := c.take()
		if len(got) != 5 || !replied {
			t.Fatalf("%d answers, the response first: %v", len(got), replied)
		}
		for _, m := range got {
			if m.status != ua.StatusBadNoSubscription {
				t.Fatalf("status %v", m.status)
			}
		}
		sleep(70 * time.Second)
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 1))
		c.publish(1)
		sleep(ms(100))
		c.wantValues(c.take(), 1)
	})
	bubble(t, "B15 the session is closed", func(t *testing.T) {
		for _, deleted := range []bool{true, false} {
			r := newRig(t, Config{})
			c := r.client()
			c.subscribe(Parameters{Publishing: 1000, KeepAlive: 5, Lifetime: 20})
			c.publish(5)
			c.Close(deleted)
			got := c.take()
			if len(got) != 5 || got[4].status != ua.StatusBadSessionClosed {
				t.Fatalf("answers %+v", got)
			}
			if n := r.engine.Stats().Subscriptions; n == 0 != deleted {
				t.Fatalf("delete %v leaves %d", deleted, n)
			}
			sleep(19900 * time.Millisecond)
			if n := r.engine.Stats().Subscriptions; n == 0 != deleted {
				t.Fatalf("delete %v leaves %d before the lifetime is over", deleted, n)
			}
			sleep(200 * time.Millisecond)
			if n := r.engine.Stats().Subscriptions; n != 0 {
				t.Fatal("it lives on after its lifetime")
			}
			c.publish(1)
			if m := c.one(); m.status != ua.StatusBadSessionClosed {
				t.Fatalf("status %v", m.status)
			}
		}
	})
	bubble(t, "B14 lifetime", func(t *testing.T) {
		r := newRig(t, Config{})
		c := r.client()
		dies := c.subscribe(Parameters{Publishing: 100, KeepAlive: 3, Lifetime: 10})
		other := c.subscribe(Parameters{Publishing: 100, KeepAlive: 3, Lifetime: 100})
		sleep(ms(950))
		if n := r.engine.Stats().Subscriptions; n != 2 {
			t.Fatal("dead before its lifetime is over")
		}
		sleep(ms(100))
		if n := r.engine.Stats().Subscriptions; n != 1 {
			t.Fatal("alive after its lifetime")
		}
		c.publish(1)
		m := c.one()
		x, ok := m.resp.NotificationMessage.NotificationData[0].Value.(*ua.StatusChangeNotification)
		if !ok || x.Status != ua.StatusBadTimeout || m.resp.SubscriptionID != dies || m.resp.NotificationMessage.SequenceNumber != 1 {
			t.Fatalf("told %+v", m.resp)
		}
		if _, code := c.ModifySubscription(dies, Parameters{}); code != ua.StatusBadSubscriptionIDInvalid {
			t.Fatalf("a dead Subscription answers %v", code)
		}
		sleep(ms(10000))
		c.publish(1)
		if m := c.one(); m.status != ua.StatusBadNoSubscription {
			t.Fatalf("with none alive: %v (%d)", m.status, other)
		}
	})
	bubble(t, "5.14.1.1 each service of the Subscription renews its lifetime", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 100, KeepAlive: 3, Lifetime: 10})
		item := c.monitor(sub, plainItem(v, 1))[0].ID
		services := []func(){
			func() { c.ModifySubscription(sub, Parameters{Publishing: 100, KeepAlive: 3, Lifetime: 10}) },
			func() { c.SetPublishing([]uint32{sub}, true, make([]ua.StatusCode, 1)) },
			func() { c.Republish(sub, 1, nil) },
			func() { c.monitor(sub, plainItem(v, 1)) },
			func() { c.ModifyItems(sub, 0, []ModifyRequest{{ID: item}}, make([]ItemResult, 1), func() {}) },
			func() { c.SetMode(sub, ua.MonitoringModeReporting, []uint32{item}, make([]ua.StatusCode, 1)) },
			func() { c.DeleteItems(sub, []uint32{item}, make([]ua.StatusCode, 1)) },
		}
		for _, call := range services {
			sleep(ms(900))
			call()
		}
		sleep(ms(900))
		if r.engine.Stats().Subscriptions != 1 {
			t.Fatal("it died although it was used")
		}
	})
}

func TestRepublish(t *testing.T) {
	republish := func(c *tester, sub, n uint32) (values []int64, code ua.StatusCode) {
		code = c.Republish(sub, n, func(message []byte) {
			m := new(ua.NotificationMessage)
			if _, err := ua.Decode(message, m); err != nil || m.SequenceNumber != n {
				c.Fatalf("republished %d: %v", m.SequenceNumber, err)
			}
			for _, i := range m.NotificationData[0].Value.(*ua.DataChangeNotification).MonitoredItems {
				values = append(values, i.Value.Value.Value().(int64))
			}
		})
		return values, code
	}
	bubble(t, "B10 republish", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 1))
		c.publish(3)
		for i := range 3 {
			v.set(int64(10 + i))
			sleep(ms(100))
		}
		c.publish(1, Ack{sub, 2})
		for n, want := range map[uint32]int64{1: 10, 3: 12} {
			if got, code := republish(c, sub, n); code != ua.StatusGood || len(got) != 1 || got[0] != want {
				t.Fatalf("message %d: %v, %v", n, got, code)
			}
		}
		for _, n := range []uint32{0, 2, 4} {
			if _, code := republish(c, sub, n); code != ua.StatusBadMessageNotAvailable {
				t.Fatalf("message %d: %v", n, code)
			}
		}
		if _, code := republish(c, sub+1, 1); code != ua.StatusBadSubscriptionIDInvalid {
			t.Fatalf("a foreign id: %v", code)
		}
		if st := r.engine.Stats(); st.Messages.Republished != 2 || st.Messages.Acknowledged != 1 || int(st.Messages.Held) != 2 {
			t.Fatalf("%+v", st)
		}
	})
	bubble(t, "B10 a client that never acknowledges", func(t *testing.T) {
		r := newRig(t, Config{Held: 20})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 10})
		c.monitor(sub, plainItem(v, 1))
		time.Sleep(ms(5)) // between two ticks
		for i := range 10_000 {
			v.set(int64(i))
			c.Publish(Request{Sender: deaf{}}, nil)
			time.Sleep(ms(10))
		}
		st := r.engine.Stats()
		if int(st.Messages.Held) != 20 || st.Messages.EvictedIn != 10_000-20 || st.HeldBytes > 20*512 {
			t.Fatalf("%+v", st)
		}
		if _, code := republish(c, sub, 9981); code != ua.StatusGood {
			t.Fatalf("the newest 20 are there: %v", code)
		}
		if _, code := republish(c, sub, 9980); code != ua.StatusBadMessageNotAvailable {
			t.Fatalf("older ones are not: %v", code)
		}
	})
	bubble(t, "B10 what others' items reserve takes nothing from what is kept", func(t *testing.T) {
		queues := &tag.Budget{Limit: 20 * entryBytes}
		r := newRig(t, Config{Account: &tag.Budget{Limit: 6*ownBytes + 1000}, Queues: queues})
		v := r.variable(0)
		greedy := plainItem(v, 1000)
		greedy.Oldest = false
		g := r.client()
		g.monitor(g.subscribe(Parameters{}), greedy, greedy, greedy, greedy, greedy, greedy)
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 1))
		v.set(1)
		c.publish(1)
		sleep(ms(100))
		if m := c.one(); len(m.resp.AvailableSequenceNumbers) != 1 {
			t.Fatalf("available: %v", m.resp.AvailableSequenceNumbers)
		}
		if _, code := republish(c, sub, 1); code != ua.StatusGood {
			t.Fatalf("Republish: %v", code)
		}
		g.Close(true)
		if n := queues.Used(); n != 0 {
			t.Fatalf("%d bytes stay charged", n)
		}
	})
	bubble(t, "B10 the account bounds what is kept", func(t *testing.T) {
		budget := &tag.Budget{Limit: 1000}
		r := newRig(t, Config{Account: budget})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 1))
		for i := range 50 {
			v.set(int64(i))
			c.publish(1)
			sleep(ms(100))
		}
		if got := c.take(); len(values(got...)) != 50 {
			t.Fatalf("%d values", len(values(got...)))
		}
		if st := r.engine.Stats(); int(st.Messages.Held) == 0 || int(st.Messages.Held) > 10 || budget.Used() > 1000 || st.Messages.Sent != 50 {
			t.Fatalf("%+v with %d bytes", st, budget.Used())
		}
	})
}
