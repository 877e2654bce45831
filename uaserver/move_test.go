package uaserver

import (
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/uatest"
)

// post sends a request without waiting for its answer.
func (p *peer) post(req ua.Request) uint32 {
	p.t.Helper()
	req.SetHeader(p.header())
	body, err := uatest.Encode(req)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.Send(p.number, body); err != nil {
		p.t.Fatal(err)
	}
	return p.number
}

// subscribe makes a subscription of 10 ms, which lives for three keep-alives, with one item on a tag and a queue of 100.
func (p *peer) subscribe(name string, keepAlive uint32) uint32 {
	p.t.Helper()
	sub := must[*ua.CreateSubscriptionResponse](p, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: 10, RequestedMaxKeepAliveCount: keepAlive, PublishingEnabled: true,
	}).SubscriptionID
	r := must[*ua.CreateMonitoredItemsResponse](p, &ua.CreateMonitoredItemsRequest{
		SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth,
		ItemsToCreate: []*ua.MonitoredItemCreateRequest{{
			ItemToMonitor: value(plantID(name)), MonitoringMode: ua.MonitoringModeReporting,
			RequestedParameters: &ua.MonitoringParameters{ClientHandle: 1, QueueSize: 100, DiscardOldest: true, Filter: ua.NewExtensionObject(nil)},
		}},
	})
	if r.Results[0].StatusCode != ua.StatusGood || r.Results[0].RevisedQueueSize != 100 {
		p.t.Fatalf("item: %+v", r.Results[0])
	}
	return sub
}

// values are those of a Publish response's data changes.
func values(r *ua.PublishResponse) (out []uint32) {
	for _, x := range r.NotificationMessage.NotificationData {
		if d, ok := x.Value.(*ua.DataChangeNotification); ok {
			for _, it := range d.MonitoredItems {
				out = append(out, it.Value.Value.Value().(uint32))
			}
		}
	}
	return out
}

func (f *fixture) count(t *testing.T, from, to uint32) {
	for i := from; i <= to; i++ {
		f.tags.Publish([]tag.Sample{{Ref: f.ref(t, "boiler.counter"), Value: tag.Of(i), At: tag.Now()}})
	}
}

// TestSessionMoves cuts a client's link and lets it come back: nothing that the queue holds is lost, and Publish
// requests of the link that is gone take nothing with them.
func TestSessionMoves(t *testing.T) {
	f := start(t, nil)
	a := f.login(t)
	a.subscribe("boiler.counter", 3000)
	first := must[*ua.PublishResponse](a, &ua.PublishRequest{})
	if v := values(first); len(v) != 1 || v[0] != 0 {
		t.Fatalf("initial value: %v", v)
	}
	a.post(&ua.PublishRequest{})
	a.post(&ua.PublishRequest{})
	waitFor(t, "the Publish requests to wait", func() bool { return f.engine.Stats().Requests == 2 })
	a.Close()
	waitFor(t, "the Publish requests of the dead link to go", func() bool { return f.engine.Stats().Requests == 0 })
	f.count(t, 1, 20)

	b := f.dial(t, nil)
	b.token = a.token
	if _, code := b.call(&ua.PublishRequest{}); code != ua.StatusBadSecureChannelIDInvalid {
		t.Errorf("before ActivateSession: %v", code)
	}
	must[*ua.ActivateSessionResponse](b, activateRequest(anonymous()))
	next := uint32(1)
	ack := []*ua.SubscriptionAcknowledgement{{SubscriptionID: first.SubscriptionID, SequenceNumber: first.NotificationMessage.SequenceNumber}}
	for next <= 20 {
		r := must[*ua.PublishResponse](b, &ua.PublishRequest{SubscriptionAcknowledgements: ack})
		if len(ack) > 0 && (len(r.Results) != 1 || r.Results[0] != ua.StatusGood) {
			t.Errorf("B6 acknowledgement: %v", r.Results)
		}
		ack = nil
		for _, v := range values(r) {
			if v != next {
				t.Fatalf("got %d, want %d", v, next)
			}
			next++
		}
	}
	// A second move while the old link lives: its waiting requests go to nobody.
	b.post(&ua.PublishRequest{})
	waitFor(t, "the Publish request to wait", func() bool { return f.engine.Stats().Requests == 1 })
	c := f.dial(t, nil)
	c.token = b.token
	must[*ua.ActivateSessionResponse](c, activateRequest(anonymous()))
	if n := f.engine.Stats().Requests; n != 0 {
		t.Errorf("%d requests of the old channel wait", n)
	}
	f.count(t, 21, 21)
	if v := values(must[*ua.PublishResponse](c, &ua.PublishRequest{})); len(v) != 1 || v[0] != 21 {
		t.Errorf("after the second move: %v", v)
	}
	if n := f.engine.Stats().Unaccounted; n != 0 {
		t.Errorf("%d notifications are unaccounted for", n)
	}
	// Closing answers what is outstanding.
	waiting := c.post(&ua.PublishRequest{})
	closing := c.post(&ua.CloseSessionRequest{DeleteSubscriptions: true})
	for _, want := range []struct {
		id   uint32
		code ua.StatusCode
	}{{waiting, ua.StatusBadSessionClosed}, {closing, ua.StatusGood}} {
		m, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		v, _ := uatest.Decode(m.Body)
		if m.ID != want.id || v.(ua.Response).Header().ServiceResult != want.code {
			t.Errorf("B15: request %d answered %T", m.ID, v)
		}
	}
	if st := f.engine.Stats(); st.Subscriptions != 0 {
		t.Errorf("%d subscriptions are left", st.Subscriptions)
	}
}

// TestVanishingClients is G2 in small: clients that subscribe and vanish leave nothing behind.
func TestVanishingClients(t *testing.T) {
	f := start(t, func(c *Config) {
		c.Limits.MinSession, c.Limits.MaxSession = 100*time.Millisecond, 100*time.Millisecond
	})
	for range 20 {
		p := f.login(t)
		p.subscribe("boiler.counter", 10)
		p.post(&ua.PublishRequest{})
		p.Close()
	}
	waitFor(t, "sessions and subscriptions to end", func() bool {
		st := f.engine.Stats()
		return f.Stats().Sessions.Current == 0 && st.Subscriptions == 0 && st.Items == 0 && st.Requests == 0
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.bound) != 0 {
		t.Errorf("%d channels are remembered", len(f.bound))
	}
}

// waitFor polls what real sockets and clocks bring about.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
