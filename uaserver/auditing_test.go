package uaserver

import (
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/uaserver/address"
	"edged/uaserver/event"
	"edged/uaserver/wire"
)

// eventItem watches a node's events with those fields.
func eventItem(n *ua.NodeID, handle uint32, fields ...string) *ua.MonitoredItemCreateRequest {
	f := &ua.EventFilter{WhereClause: &ua.ContentFilter{}}
	for _, name := range fields {
		f.SelectClauses = append(f.SelectClauses, &ua.SimpleAttributeOperand{
			TypeDefinitionID: ua.NewNumericNodeID(0, id.BaseEventType), BrowsePath: []*ua.QualifiedName{{Name: name}}, AttributeID: ua.AttributeIDValue,
		})
	}
	m := itemRequest(n, handle, 100)
	m.ItemToMonitor.AttributeID = ua.AttributeIDEventNotifier
	m.RequestedParameters.Filter = ua.NewExtensionObject(f)
	return m
}

// eventsIn are the fields of the events in a response.
func eventsIn(r *ua.PublishResponse) (out [][]*ua.Variant) {
	for _, x := range r.NotificationMessage.NotificationData {
		if list, ok := x.Value.(*ua.EventNotificationList); ok {
			for _, e := range list.Events {
				out = append(out, e.EventFields)
			}
		}
	}
	return out
}

// TestAuditEvents is Part 4, 6.5: an admin on an encrypted channel hears who did what, others do not.
func TestAuditEvents(t *testing.T) {
	f := guarded(t, nil)
	f.publishAll()
	boss := f.dial(t, f.secured(t))
	if code := f.signIn(boss, func() any { return f.nameToken(boss, "boss", "admin's") }, nil); code != ua.StatusGood {
		t.Fatal(code)
	}
	plain, code := f.try(t, "boss", "admin's", nil) // sees nothing: the channel is not encrypted
	if code != ua.StatusGood {
		t.Fatal(code)
	}
	watch := func(p *peer) {
		item := eventItem(ua.NewNumericNodeID(0, id.Server), 1, "EventType", "SourceNode", "OldValue", "NewValue", "ClientUserId", "Status", "Message", "MethodId")
		if r := must[*ua.CreateMonitoredItemsResponse](p, createItems(p.subscription(), item)).Results[0]; r.StatusCode != ua.StatusGood {
			t.Fatal(r.StatusCode)
		}
	}
	watch(boss)
	watch(plain)
	if _, code := f.try(t, "anna", "wrong", nil); code == ua.StatusGood {
		t.Fatal("a guess")
	}
	anna, code := f.try(t, "anna", "open sesame", nil)
	if code != ua.StatusGood {
		t.Fatal(code)
	}
	if _, code := anna.call(writeOf("boiler.code", int16(7))); code != ua.StatusGood {
		t.Fatal(code)
	}
	boss.callOne(ua.NewNumericNodeID(0, id.Server), ua.NewNumericNodeID(0, id.Server_GetMonitoredItems), uint32(1))
	f.events.Raise(&event.Event{Type: event.Type(id.SystemEventType), Severity: 1, Message: "last"})
	collect := func(p *peer) (out [][]*ua.Variant) {
		p.patient()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			p.post(publishRequest())
			out = append(out, eventsIn(p.published())...)
			if n := len(out); n > 0 && out[n-1][6].LocalizedText() != nil && out[n-1][6].LocalizedText().Text == "last" {
				return out
			}
		}
		t.Fatal("the last event did not come")
		return nil
	}
	count := map[uint32]int{}
	for _, v := range collect(boss) {
		typ := v[0].NodeID().IntID()
		count[typ]++
		switch typ {
		case id.AuditWriteUpdateEventType:
			if v[1].NodeID().String() != "ns=2;s=boiler.code" || v[3].Value() != int16(7) || v[4].String() != "anna" {
				t.Errorf("AuditWriteUpdateEventType: %v", v)
			}
		case id.AuditActivateSessionEventType:
			if v[4].String() != "anna" {
				t.Errorf("AuditActivateSessionEventType: %v", v)
			}
			if !v[5].Bool() {
				count[0]++
			}
		case id.AuditUpdateMethodEventType:
			if v[7].NodeID().IntID() != id.Server_GetMonitoredItems || v[5].Bool() {
				t.Errorf("AuditUpdateMethodEventType: %v", v)
			}
		}
	}
	for typ, want := range map[uint32]int{
		id.AuditOpenSecureChannelEventType: 2, id.AuditCreateSessionEventType: 2, id.AuditActivateSessionEventType: 2, 0: 1, id.AuditWriteUpdateEventType: 1, id.AuditUpdateMethodEventType: 1, id.SystemEventType: 1,
	} {
		if count[typ] != want {
			t.Errorf("i=%d: %d events, want %d", typ, count[typ], want)
		}
	}
	if got := collect(plain); len(got) != 1 {
		t.Errorf("on a channel without encryption: %d events", len(got))
	}
}

// TestManyAudits is a thousand writes a second: a hundred of them are told one by one, the others with one event.
func TestManyAudits(t *testing.T) {
	f := start(t, nil)
	a := &auditor{hub: f.events}
	if n := a.take(50); n != 0 {
		t.Fatalf("nobody watches, and %d events are made", n)
	}
	hub := event.New(f.space, nil, nil)
	defer hub.Close()
	body, err := ua.Encode(eventItem(ua.NewNumericNodeID(0, id.Server), 1, "Message").RequestedParameters.Filter.Value)
	if err != nil {
		t.Fatal(err)
	}
	filter, res := event.Parse(f.space, body)
	if filter == nil {
		t.Fatal(res)
	}
	tap := hub.Watch(f.space.Find(wire.NumericID(0, id.Server)), mayLook|address.MayAudit, filter, 10, false)
	defer tap.Close()
	a = &auditor{hub: hub}
	if n := a.take(1000); n != maxAudits {
		t.Errorf("%d are told one by one", n)
	}
	if n := a.take(10); n != 0 {
		t.Errorf("%d more are", n)
	}
	a.stop()
	a.sum()
	hub.Settle()
	if got, _ := tap.Peek(nil, 10); len(got) != 1 || !strings.Contains(string(got[0]), "910 more") {
		t.Errorf("%q", got)
	}
}
