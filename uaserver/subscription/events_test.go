package subscription

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	events "edged/uaserver/event"
	"edged/uaserver/wire"
)

// eventRig is a rig with a Hub, whose memory is checked too.
type eventRig struct {
	*rig
	hub *events.Hub
}

func newEventRig(t *testing.T, cfg Config) *eventRig {
	t.Helper()
	space, err := address.New("urn:test")
	if err != nil {
		t.Fatal(err)
	}
	budget := &tag.Budget{}
	r := &eventRig{hub: events.New(space, budget, nil)}
	t.Cleanup(func() {
		r.hub.Close()
		if n := budget.Used(); n != 0 {
			t.Errorf("%d bytes of events stay charged", n)
		}
	})
	cfg.Events = r.hub
	r.rig = newRig(t, cfg) // is cleaned up before the Hub
	return r
}

var eventServer = &address.Node{ID: wire.NumericID(0, id.Server), Attributes: &address.Attributes{Class: ua.NodeClassObject, EventNotifier: 1}}

// eventFilter selects Severity and EventType of events at least that severe.
func eventFilter(t *testing.T, least uint16) []byte {
	t.Helper()
	of := func(name string) *ua.SimpleAttributeOperand {
		return &ua.SimpleAttributeOperand{
			TypeDefinitionID: ua.NewNumericNodeID(0, id.BaseEventType), BrowsePath: []*ua.QualifiedName{{Name: name}}, AttributeID: ua.AttributeIDValue,
		}
	}
	f := &ua.EventFilter{SelectClauses: []*ua.SimpleAttributeOperand{of("Severity"), of("EventType")}, WhereClause: &ua.ContentFilter{}}
	if least > 0 {
		f.WhereClause.Elements = []*ua.ContentFilterElement{{FilterOperator: ua.FilterOperatorGreaterThanOrEqual, FilterOperands: []*ua.ExtensionObject{
			ua.NewExtensionObject(of("Severity")), ua.NewExtensionObject(&ua.LiteralOperand{Value: ua.MustVariant(least)}),
		}}}
	}
	b, err := ua.Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (r *eventRig) item(queue uint32, oldest bool, least uint16) ItemRequest {
	return ItemRequest{
		Node: eventServer, Attribute: ua.AttributeIDEventNotifier, Mode: ua.MonitoringModeReporting, Queue: queue, Oldest: oldest,
		FilterType: wire.NumericID(0, id.EventFilter_Encoding_DefaultBinary), Filter: eventFilter(r.T, least),
	}
}

// raise raises events with the severities from, from+1 and so on up to to.
func (r *eventRig) raise(from, to int) {
	for i := from; i <= to; i++ {
		r.hub.Raise(&events.Event{Type: events.Type(id.BaseEventType), Severity: uint16(i)})
	}
	synctest.Wait()
}

// severities are those of the events in messages, by client handle; an overflow event is 0.
func severities(handle uint32, got ...received) (out []int) {
	for i := range got {
		if got[i].resp == nil {
			continue
		}
		for _, x := range got[i].resp.NotificationMessage.NotificationData {
			list, ok := x.Value.(*ua.EventNotificationList)
			if !ok {
				continue
			}
			for _, e := range list.Events {
				if e.ClientHandle != handle {
					continue
				}
				n, _ := e.EventFields[0].Value().(uint16)
				if e.EventFields[1].NodeID().IntID() == id.EventQueueOverflowEventType {
					n = 0
				}
				out = append(out, int(n))
			}
		}
	}
	return out
}

func want(t *testing.T, what string, got, want []int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestEventQueues is Part 4, 5.13.1.5 and 7.21: queue sizes and discard policies, the overflow event at its end, past the
// where clause, and to the Subscription alone that lost something.
func TestEventQueues(t *testing.T) {
	for _, row := range []struct {
		queue, granted uint32
		oldest         bool
		raised         int
		want           []int
	}{
		{1, 1, true, 1, []int{101}}, {1, 1, true, 5, []int{0, 105}}, {1, 1, false, 5, []int{105, 0}},
		{2, 2, true, 5, []int{0, 104, 105}}, {2, 2, false, 5, []int{101, 105, 0}},
		{3, 3, true, 3, []int{101, 102, 103}}, {3, 3, false, 3, []int{101, 102, 103}},
		{3, 3, true, 300, []int{0, 398, 399, 400}}, {3, 3, false, 300, []int{101, 102, 400, 0}},
		{0, 20, true, 3, []int{101, 102, 103}}, {50, 20, false, 3, []int{101, 102, 103}},
	} {
		bubble(t, fmt.Sprintf("queue %d, oldest %v, %d events", row.queue, row.oldest, row.raised), func(t *testing.T) {
			r := newEventRig(t, Config{Queue: 20})
			c, other := r.client(), r.client()
			res := c.monitor(c.subscribe(Parameters{}), r.item(row.queue, row.oldest, 100))
			if res[0].Status != ua.StatusGood || res[0].Queue != row.granted {
				t.Fatalf("%+v", res[0])
			}
			other.monitor(other.subscribe(Parameters{}), r.item(20, true, 999))
			c.publish(2)
			other.publish(1)
			r.raise(1, 3) // what the where clause leaves out takes no place
			r.raise(101, 100+row.raised)
			sleep(ms(100))
			want(t, "events", severities(1, c.take()...), row.want)
			if got := other.take(); len(severities(1, got...)) != 0 {
				t.Error("another subscription is told")
			}
			c.publish(2)
			r.raise(501, 501)
			sleep(ms(100))
			want(t, "afterwards", severities(1, c.take()...), []int{501})
		})
	}
}

// TestEventItems is event items in all that a Subscription does.
func TestEventItems(t *testing.T) {
	bubble(t, "events and data in one message", func(t *testing.T) {
		r := newEventRig(t, Config{})
		v := r.variable(0)
		v.set(1)
		c := r.client()
		c.monitor(c.subscribe(Parameters{}), r.item(10, true, 0), plainItem(v, 10))
		r.raise(1, 2)
		c.publish(1)
		sleep(ms(100))
		got := c.one()
		want(t, "events", severities(1, got), []int{1, 2})
		c.wantValues([]received{got}, 1)
	})
	bubble(t, "MaxNotificationsPerPublish: neither starves the other", func(t *testing.T) {
		r := newEventRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		c.monitor(c.subscribe(Parameters{Notifications: 3}), r.item(100, true, 0), plainItem(v, 100))
		for i := range 20 {
			v.set(int64(i))
		}
		r.raise(1, 20)
		c.publish(4)
		sleep(ms(100))
		got := c.take()
		if len(got) != 4 || len(severities(1, got...)) != 6 || len(values(got...)) != 6 || !got[0].resp.MoreNotifications {
			t.Errorf("%d messages, events %v, values %v", len(got), severities(1, got...), values(got...))
		}
		c.publish(20)
		sleep(ms(100))
		rest := append(got, c.take()...)
		if len(severities(1, rest...)) != 20 || len(values(rest...)) != 20 {
			t.Errorf("events %v, values %v", severities(1, rest...), values(rest...))
		}
	})
	bubble(t, "a message has a bound in bytes", func(t *testing.T) {
		r := newEventRig(t, Config{Message: 600})
		c := r.client()
		c.monitor(c.subscribe(Parameters{}), r.item(100, true, 0))
		r.raise(1, 100)
		c.publish(60)
		sleep(ms(100))
		got := c.take()
		for i := range got {
			if got[i].bytes > 600 {
				t.Errorf("%d bytes", got[i].bytes)
			}
		}
		if n := severities(1, got...); len(n) != 100 || n[0] != 1 || n[99] != 100 {
			t.Errorf("%v", n)
		}
	})
	bubble(t, "SetMonitoringMode", func(t *testing.T) {
		r := newEventRig(t, Config{})
		c := r.client()
		sub := c.subscribe(Parameters{})
		res := c.monitor(sub, r.item(10, true, 0))
		mode := func(m ua.MonitoringMode) { c.SetMode(sub, m, []uint32{res[0].ID}, make([]ua.StatusCode, 1)) }
		r.raise(1, 2)
		mode(ua.MonitoringModeDisabled)
		r.raise(3, 4)
		mode(ua.MonitoringModeSampling)
		r.raise(5, 6)
		c.publish(2)
		sleep(ms(100))
		if got := c.take(); len(severities(1, got...)) != 0 {
			t.Errorf("not reporting: %v", severities(1, got...))
		}
		mode(ua.MonitoringModeReporting)
		c.publish(2)
		sleep(ms(100))
		want(t, "what was sampled", severities(1, c.take()...), []int{5, 6})
		if st := r.engine.Stats(); st.Disabled != 2 || st.Unaccounted != 0 {
			t.Errorf("%+v", st.Counts)
		}
	})
	bubble(t, "ModifyMonitoredItems", func(t *testing.T) {
		r := newEventRig(t, Config{})
		c := r.client()
		sub := c.subscribe(Parameters{})
		res := c.monitor(sub, r.item(10, true, 0))
		r.raise(1, 6)
		modify := func(queue uint32, least uint16) ItemResult {
			i := r.item(queue, true, least)
			out := make([]ItemResult, 1)
			c.ModifyItems(sub, ua.TimestampsToReturnBoth, []ModifyRequest{{ID: res[0].ID, Handle: 9, FilterType: i.FilterType, Filter: i.Filter, Queue: queue, Oldest: true}}, out, func() {})
			return out[0]
		}
		if m := modify(3, 0); m.Status != ua.StatusGood || m.Queue != 3 {
			t.Fatalf("%+v", m)
		}
		c.publish(2)
		sleep(ms(100))
		want(t, "the last three", severities(9, c.take()...), []int{0, 4, 5, 6})
		if m := modify(5, 100); m.Status != ua.StatusGood {
			t.Fatalf("%+v", m)
		}
		r.raise(99, 101)
		c.publish(2)
		sleep(ms(100))
		want(t, "another filter", severities(9, c.take()...), []int{100, 101})
		if n := r.hub.Stats().Feeds; n != 1 {
			t.Errorf("%d feeds", n)
		}
	})
	bubble(t, "Republish and eviction", func(t *testing.T) {
		r := newEventRig(t, Config{Held: 2})
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, r.item(10, true, 0))
		for i := range 4 {
			c.publish(1)
			r.raise(i+1, i+1)
			sleep(ms(100))
		}
		c.take()
		var m ua.NotificationMessage
		if code := c.Republish(sub, 4, func(b []byte) { _, _ = ua.Decode(b, &m) }); code != ua.StatusGood || len(m.NotificationData) != 1 {
			t.Fatalf("%v %v", code, m)
		}
		if list := m.NotificationData[0].Value.(*ua.EventNotificationList); list.Events[0].EventFields[0].Value() != uint16(4) {
			t.Errorf("%v", list)
		}
		if st := r.engine.Stats(); st.Messages.Evicted != 2 || st.Messages.EvictedIn != 2 {
			t.Errorf("%+v", st.Messages)
		}
	})
	bubble(t, "TransferSubscriptions", func(t *testing.T) {
		r := newEventRig(t, Config{})
		c, to := r.client(), r.client()
		c.SetOwner(Owner{User: "anna"})
		to.SetOwner(Owner{User: "anna"})
		sub := c.subscribe(Parameters{})
		c.monitor(sub, r.item(10, true, 0))
		to.SetRights(everyRight)
		r.raise(1, 2)
		if code := to.Transfer([]uint32{sub}, true, make([]TransferResult, 1), func() {}); code != ua.StatusGood {
			t.Fatal(code)
		}
		r.raise(3, 3)
		to.publish(1)
		sleep(ms(100))
		want(t, "after the transfer", severities(1, to.take()...), []int{1, 2, 3})
	})
	bubble(t, "rights", func(t *testing.T) {
		r := newEventRig(t, Config{})
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, r.item(10, true, 0))
		audit := func(n uint16) {
			r.hub.Raise(&events.Event{Type: events.Type(id.AuditEventType), Severity: n, Audit: true})
		}
		audit(1)
		c.SetRights(everyRight | address.MayAudit)
		audit(2)
		synctest.Wait()
		c.SetRights(everyRight)
		audit(3)
		synctest.Wait()
		c.SetRights(everyRight | address.MayAudit)
		audit(4)
		synctest.Wait()
		c.publish(1)
		sleep(ms(100))
		want(t, "what an admin sees", severities(1, c.take()...), []int{4})
	})
	bubble(t, "triggering", func(t *testing.T) {
		r := newEventRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		data := plainItem(v, 10)
		data.Mode = ua.MonitoringModeSampling
		res := c.monitor(sub, r.item(10, true, 0), data)
		one := make([]ua.StatusCode, 1)
		c.SetTriggering(sub, res[0].ID, nil, []uint32{res[1].ID}, nil, one)
		v.set(7)
		c.publish(3)
		sleep(ms(100))
		c.take()
		r.raise(1, 1)
		sleep(ms(100))
		got := c.take()
		want(t, "event", severities(1, got...), []int{1})
		c.wantValues(got, 7)
	})
	bubble(t, "deleted with its subscription", func(t *testing.T) {
		r := newEventRig(t, Config{})
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, r.item(10, true, 0), r.item(2, false, 0))
		r.raise(1, 30)
		c.DeleteSubscriptions([]uint32{sub}, make([]ua.StatusCode, 1), func() {})
		if st := r.engine.Stats(); st.Deleted != 10+1+2+1 || st.Overflowed != 20+28 || st.Unaccounted != 0 {
			t.Errorf("%+v", st.Counts)
		}
		if n := r.hub.Stats().Feeds; n != 0 {
			t.Errorf("%d feeds stay", n)
		}
	})
}

// TestEventItemsRefused is what an event item may not be.
func TestEventItemsRefused(t *testing.T) {
	bubble(t, "rows", func(t *testing.T) {
		r := newEventRig(t, Config{})
		c := r.client()
		sub := c.subscribe(Parameters{})
		quiet := &address.Node{ID: wire.TextID(2, "quiet"), Attributes: &address.Attributes{Class: ua.NodeClassObject}}
		for _, row := range []struct {
			name   string
			change func(i *ItemRequest)
			want   ua.StatusCode
		}{
			{"good", func(*ItemRequest) {}, ua.StatusGood},
			{"no notifier", func(i *ItemRequest) { i.Node = quiet }, ua.StatusBadNotSupported},
			{"no filter", func(i *ItemRequest) { i.FilterType, i.Filter = wire.NodeID{}, nil }, ua.StatusBadEventFilterInvalid},
			{"data change filter", func(i *ItemRequest) { dataFilter(i, 1, 0, 0) }, ua.StatusBadFilterNotAllowed},
			{"half a filter", func(i *ItemRequest) { i.Filter = i.Filter[:9] }, ua.StatusBadMonitoredItemFilterInvalid},
			{"unknown filter", func(i *ItemRequest) { i.FilterType = wire.NumericID(2, 7) }, ua.StatusBadMonitoredItemFilterInvalid},
			{"no such mode", func(i *ItemRequest) { i.Mode = 3 }, ua.StatusBadMonitoringModeInvalid},
			{"a range", func(i *ItemRequest) { i.Range = "1" }, ua.StatusBadIndexRangeInvalid},
		} {
			i := r.item(1, true, 0)
			row.change(&i)
			if res := c.monitor(sub, i); res[0].Status != row.want {
				t.Errorf("%s: %v, want %v", row.name, res[0].Status, row.want)
			}
		}
	})
}
