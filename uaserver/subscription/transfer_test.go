package subscription

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// signed is an anonymous owner who may transfer.
var signed = Owner{Application: "urn:client", Signed: true}

// owned is a client of that owner.
func (r *rig) owned(o Owner) *tester {
	c := r.client()
	c.SetOwner(o)
	c.SetRights(everyRight)
	return c
}

// transfer takes one Subscription over.
func (c *tester) transfer(sub uint32, initial bool) TransferResult {
	c.Helper()
	results := make([]TransferResult, 1)
	if code := c.Transfer([]uint32{sub}, initial, results, func() {
		c.mu.Lock()
		c.order = append(c.order, "transferred")
		c.mu.Unlock()
	}); code != ua.StatusGood {
		c.Fatalf("TransferSubscriptions: %v", code)
	}
	return results[0]
}

// statusChange is the status of a message with a StatusChangeNotification, or 0.
func (m *received) statusChange() ua.StatusCode {
	if m.resp == nil || len(m.resp.NotificationMessage.NotificationData) != 1 {
		return 0
	}
	if x, ok := m.resp.NotificationMessage.NotificationData[0].Value.(*ua.StatusChangeNotification); ok {
		return x.Status
	}
	return 0
}

func TestTransfer(t *testing.T) {
	// Both clients' shards take part: the first client belongs to one, the second to the other.
	bubble(t, "5.14.7 a transfer keeps the queues, the messages and the sequence", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		a, b := r.owned(signed), r.owned(signed)
		sub := a.subscribe(Parameters{})
		item := a.monitor(sub, plainItem(v, 10))[0].ID
		v.set(1)
		a.publish(1)
		sleep(ms(100))
		a.wantValues(a.take(), 1)
		v.set(2, 3)
		a.publish(3)
		res := b.transfer(sub, false)
		if res.Status != ua.StatusGood || !slices.Equal(res.Available, []uint32{1}) {
			t.Fatalf("%+v", res)
		}
		got := a.take()
		if len(got) != 3 || got[0].statusChange() != ua.StatusGoodSubscriptionTransferred || got[0].resp.SubscriptionID != sub ||
			got[1].status != ua.StatusBadNoSubscription || got[2].status != ua.StatusBadNoSubscription {
			t.Fatalf("the old session is told %+v", got)
		}
		b.publish(2)
		sleep(ms(100))
		m := b.one()
		b.wantValues([]received{m}, 2, 3)
		if n := m.resp.NotificationMessage.SequenceNumber; n != 2 {
			t.Fatalf("message %d follows 1", n)
		}
		if code := b.Republish(sub, 1, func([]byte) {}); code != ua.StatusGood {
			t.Fatalf("the message before the transfer: %v", code)
		}
		for name, code := range map[string]ua.StatusCode{
			"Republish":   a.Republish(sub, 1, nil),
			"DeleteItems": a.DeleteItems(sub, []uint32{item}, make([]ua.StatusCode, 1)),
		} {
			if code != ua.StatusBadSubscriptionIDInvalid {
				t.Errorf("%s of the old session: %v", name, code)
			}
		}
		v.set(4)
		sleep(ms(100))
		b.wantValues(b.take(), 4)
		if d := r.engine.Diagnostics(nil); d[0].TransferRequests != 1 || d[0].ToSame != 1 || d[0].ToOther != 0 {
			t.Fatalf("%+v", d)
		}
	})
	bubble(t, "5.14.7.1 who may", func(t *testing.T) {
		anna, app := Owner{User: "anna", Application: "urn:client"}, "urn:client"
		for _, row := range []struct {
			name     string
			from, to Owner
			want     ua.StatusCode
		}{
			{"same user", anna, Owner{User: "anna", Application: "urn:other", Signed: true}, ua.StatusGood},
			{"another user", anna, Owner{User: "bert", Application: app}, ua.StatusBadUserAccessDenied},
			{"a user's by nobody", anna, signed, ua.StatusBadUserAccessDenied},
			{"nobody's by a user", signed, anna, ua.StatusBadUserAccessDenied},
			{"anonymous, same application, signed", signed, signed, ua.StatusGood},
			{"anonymous, another application", signed, Owner{Application: "urn:other", Signed: true}, ua.StatusBadUserAccessDenied},
			{"anonymous, the new one not signed", signed, Owner{Application: app}, ua.StatusBadUserAccessDenied},
			{"anonymous, the old one not signed", Owner{Application: app}, signed, ua.StatusBadUserAccessDenied},
		} {
			r := newRig(t, Config{})
			v := r.variable(0)
			v.set(1)
			a, b := r.owned(row.from), r.owned(row.to)
			sub := a.subscribe(Parameters{})
			a.monitor(sub, plainItem(v, 1))
			if got := b.transfer(sub, false); got.Status != row.want {
				t.Errorf("%s: %v, want %v", row.name, got.Status, row.want)
			}
			owner := a
			if row.want == ua.StatusGood {
				owner = b
			}
			owner.publish(1)
			sleep(ms(100))
			owner.wantValues(owner.take(), 1)
		}
	})
	bubble(t, "5.14.7.4 foreign, own and unknown ids; B13 ids are no small numbers", func(t *testing.T) {
		r := newRig(t, Config{})
		a, b := r.owned(signed), r.owned(signed)
		sub, own := a.subscribe(Parameters{}), b.subscribe(Parameters{})
		results := make([]TransferResult, 5)
		b.Transfer([]uint32{1, own, sub, sub, sub ^ own}, false, results, func() {})
		want := []ua.StatusCode{ua.StatusBadSubscriptionIDInvalid, ua.StatusBadNothingToDo, ua.StatusGood, ua.StatusBadNothingToDo, ua.StatusBadSubscriptionIDInvalid}
		for i := range want {
			if results[i].Status != want[i] {
				t.Errorf("result %d: %v, want %v", i, results[i].Status, want[i])
			}
		}
		b.Close(true)
		if code := b.Transfer([]uint32{sub}, false, results, nil); code != ua.StatusBadSessionClosed {
			t.Errorf("into a closed session: %v", code)
		}
	})
	bubble(t, "5.14.7.2 sendInitialValues", func(t *testing.T) {
		for _, initial := range []bool{false, true} {
			r := newRig(t, Config{})
			plain, banded, queued, silent, polled := r.variable(0), r.variable(0), r.variable(0), r.variable(0), r.live()
			a, b := r.owned(signed), r.owned(signed)
			sub := a.subscribe(Parameters{})
			polled.live.Value = tag.Of(int64(50))
			deadband := plainItem(banded, 10)
			dataFilter(&deadband, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 5)
			sampled := plainItem(silent, 10)
			sampled.Mode = ua.MonitoringModeSampling
			for i, x := range []*variable{plain, banded, queued, silent} {
				x.set(int64(10 * (i + 1)))
			}
			a.monitor(sub, plainItem(plain, 10), deadband, plainItem(queued, 10), sampled, plainItem(polled, 1))
			a.publish(1)
			sleep(ms(100))
			a.wantValues(a.take(), 10, 20, 30, 50)
			banded.set(22) // within the deadband
			queued.set(31, 32)
			if res := b.transfer(sub, initial); res.Status != ua.StatusGood {
				t.Fatal(res)
			}
			b.publish(2)
			sleep(ms(100))
			want := []int64{31, 32}
			if initial {
				want = []int64{10, 20, 31, 32, 50}
			}
			got := b.take()
			b.wantValues(got, want...)
			if f := flagged(got...); f != nil {
				t.Errorf("Overflow on %v", f)
			}
		}
	})
	bubble(t, "the session has ended, its Subscription is taken over", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		a := r.owned(signed)
		sub := a.subscribe(Parameters{Lifetime: 100})
		a.monitor(sub, plainItem(v, 100))
		a.Close(false)
		for i := range 50 {
			v.set(int64(i))
			time.Sleep(ms(100))
		}
		b := r.owned(signed)
		if res := b.transfer(sub, false); res.Status != ua.StatusGood {
			t.Fatal(res)
		}
		if n := len(r.engine.clients); n != 1 {
			t.Errorf("%d clients stay", n)
		}
		b.publish(1)
		got := b.take() // it was late: no tick is waited for
		if len(values(got...)) != 50 {
			t.Fatalf("%v", values(got...))
		}
		if b.order[0] != "transferred" || b.order[1] != "publish" {
			t.Errorf("in the order %v", b.order)
		}
		if _, code := b.ModifySubscription(sub, Parameters{Publishing: 50}); code != ua.StatusGood {
			t.Errorf("modify: %v", code)
		}
	})
	bubble(t, "G2 what was taken over gives way to nobody", func(t *testing.T) {
		r := newRig(t, Config{Subscriptions: 1})
		a, b := r.owned(signed), r.owned(signed)
		sub := a.subscribe(Parameters{})
		a.Close(false)
		b.transfer(sub, false)
		create := func() ua.StatusCode {
			return r.client().CreateSubscription(Parameters{}, true, func(uint32, Parameters) {})
		}
		if code := create(); code != ua.StatusBadTooManySubscriptions {
			t.Errorf("beside it: %v", code)
		}
		b.Close(false)
		if code := create(); code != ua.StatusGood {
			t.Errorf("when its session has ended: %v", code)
		}
	})
	bubble(t, "waiting Publish requests are used after the response", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(1)
		a, b := r.owned(signed), r.owned(signed)
		sub := a.subscribe(Parameters{})
		a.monitor(sub, plainItem(v, 1))
		b.subscribe(Parameters{Publishing: 100_000})
		b.publish(1)
		sleep(ms(150)) // a has no Publish request: late
		b.transfer(sub, false)
		b.wantValues([]received{b.one()}, 1)
		if !slices.Equal(b.order, []string{"transferred", "publish"}) {
			t.Errorf("in the order %v", b.order)
		}
	})
	bubble(t, "the notice waits for a Publish request, and no longer than there is one to come", func(t *testing.T) {
		r := newRig(t, Config{})
		a, b := r.owned(signed), r.owned(signed)
		sub := a.subscribe(Parameters{})
		b.transfer(sub, true)
		a.publish(2)
		got := a.take()
		if len(got) != 2 || got[0].statusChange() != ua.StatusGoodSubscriptionTransferred || got[1].status != ua.StatusBadNoSubscription {
			t.Fatalf("%+v", got)
		}
	})
	bubble(t, "a value that is being read meanwhile", func(t *testing.T) {
		r := newRig(t, Config{MinPolling: ms(10)})
		v := r.live()
		v.live.Value = tag.Of(int64(1))
		v.gate = make(chan struct{})
		a, b := r.owned(signed), r.owned(signed)
		sub := a.subscribe(Parameters{})
		item := plainItem(v, 10)
		item.Sampling = 10
		go func() { v.gate <- struct{}{} }()
		a.monitor(sub, item)
		v.live.Value = tag.Of(int64(2))
		sleep(ms(15)) // the shard waits for the value
		if res := b.transfer(sub, false); res.Status != ua.StatusGood {
			t.Fatal(res)
		}
		close(v.gate)
		b.publish(1)
		sleep(ms(100))
		b.wantValues(b.take(), 1, 2)
	})
}

// TestTransfersAtOnce has two clients take the same Subscriptions from each other while values change and are published.
func TestTransfersAtOnce(t *testing.T) {
	r := newRig(t, Config{Shards: 4, MinPublishing: time.Millisecond, MinPolling: time.Millisecond})
	v, p := r.variable(0), r.live()
	clients := []*Client{}
	for range 4 {
		c := r.engine.NewClient()
		c.SetOwner(signed)
		c.SetRights(everyRight)
		clients = append(clients, c)
	}
	var subs []uint32
	for _, c := range clients {
		c.CreateSubscription(Parameters{Publishing: 1, KeepAlive: 1000}, true, func(id uint32, _ Parameters) { subs = append(subs, id) })
		items := []ItemRequest{plainItem(v, 10), plainItem(v, 10), plainItem(p, 1)}
		items[1].Oldest, items[2].Sampling = false, 1
		c.CreateItems(t.Context(), subs[len(subs)-1], ua.TimestampsToReturnBoth, everyRight, items, make([]ItemResult, 3), func() {})
	}
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			results := make([]TransferResult, len(subs))
			for range 200 {
				c.Transfer(subs, true, results, func() {})
				c.Publish(Request{Sender: deaf{}}, nil)
				for _, id := range subs {
					c.Resend(id)
					c.Items(id, 10)
				}
			}
		})
	}
	all.Go(func() {
		for i := range 20_000 {
			v.set(int64(i))
		}
	})
	all.Wait()
	if st := r.engine.Stats(); st.Subscriptions != 4 || st.Items != 12 || st.Unaccounted != 0 {
		t.Fatalf("%+v", st)
	}
}

// TestMethods has what the methods of the Server object do (Part 5, 9.1 and 9.2).
func TestMethods(t *testing.T) {
	bubble(t, "ResendData", func(t *testing.T) {
		r := newRig(t, Config{})
		v, w := r.variable(0), r.variable(0)
		c, other := r.client(), r.client()
		sub := c.subscribe(Parameters{})
		disabled := plainItem(v, 1)
		disabled.Mode = ua.MonitoringModeDisabled
		c.monitor(sub, plainItem(v, 1), plainItem(w, 1), disabled)
		v.set(1)
		c.publish(4)
		sleep(ms(100))
		c.wantValues(c.take(), 1)
		for id, want := range map[uint32]ua.StatusCode{sub: ua.StatusGood, sub + 1: ua.StatusBadSubscriptionIDInvalid} {
			if code := c.Resend(id); code != want {
				t.Errorf("Resend: %v, want %v", code, want)
			}
		}
		if code := other.Resend(sub); code != ua.StatusBadUserAccessDenied {
			t.Errorf("of another session: %v", code)
		}
		sleep(ms(100))
		c.wantValues(c.take(), 1) // w has none
		sleep(ms(300))
		c.wantValues(c.take())
		c.Resend(sub)
		v.set(2) // overwrites in a queue of one
		sleep(ms(100))
		c.wantValues(c.take(), 2)
	})
	bubble(t, "GetMonitoredItems", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c, other := r.client(), r.client()
		sub := c.subscribe(Parameters{})
		made := c.monitor(sub, plainItem(v, 1), plainItem(v, 2), plainItem(v, 3))
		c.DeleteItems(sub, []uint32{made[1].ID}, make([]ua.StatusCode, 1))
		ids, handles, code := c.Items(sub, 2)
		if code != ua.StatusGood || !slices.Equal(ids, []uint32{made[0].ID, made[2].ID}) || !slices.Equal(handles, []uint32{1, 3}) {
			t.Fatalf("%v, %v, %v", ids, handles, code)
		}
		if _, _, code := c.Items(sub, 1); code != ua.StatusBadResponseTooLarge {
			t.Errorf("more than fit: %v", code)
		}
		if _, _, code := c.Items(sub+1, 9); code != ua.StatusBadSubscriptionIDInvalid {
			t.Errorf("unknown: %v", code)
		}
		if _, _, code := other.Items(sub, 9); code != ua.StatusBadUserAccessDenied {
			t.Errorf("of another session: %v", code)
		}
	})
}
