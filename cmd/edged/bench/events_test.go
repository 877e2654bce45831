package bench

import (
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// eventList is an EventNotificationList as gopcua's types make it.
func eventList(t *testing.T, fields int, handles ...uint32) []byte {
	t.Helper()
	list := &ua.EventNotificationList{}
	for _, h := range handles {
		v := []*ua.Variant{
			ua.MustVariant([]byte("0123456789abcdef")), ua.MustVariant(ua.NewNumericNodeID(0, id.BaseEventType)), ua.MustVariant(ua.NewNumericNodeID(0, id.Server)),
			ua.MustVariant("Server"), ua.MustVariant(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)), ua.MustVariant(ua.NewLocalizedText("x")), ua.MustVariant(uint16(500)),
		}
		list.Events = append(list.Events, &ua.EventFieldList{ClientHandle: h, EventFields: v[:fields]})
	}
	b, err := ua.Encode(list)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEventsOf is what load-events sees of a list of events.
func TestEventsOf(t *testing.T) {
	whole := eventList(t, 7, 3, 3, 3)
	for _, check := range []bool{false, true} {
		n, handle, at, err := eventsOf(whole, check)
		if n != 3 || handle != 3 || at != tag.TimeOf(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)) || err != nil {
			t.Errorf("%d events of %d at %v, %v", n, handle, at, err)
		}
	}
	for n := range whole {
		if _, _, _, err := eventsOf(whole[:n], true); err == nil {
			t.Fatalf("%d of %d bytes are a list", n, len(whole))
		}
	}
	if _, _, _, err := eventsOf(eventList(t, 7, 1, 2), true); err == nil {
		t.Error("two items in one list")
	}
	if _, _, _, err := eventsOf(eventList(t, 6, 1), false); err == nil {
		t.Error("an event with six fields")
	}
}

// TestAppendEventFilter decodes the filter with gopcua's decoder.
func TestAppendEventFilter(t *testing.T) {
	r := wire.NewReader(appendEventFilter(nil))
	x := r.Extension()
	var f ua.EventFilter
	if _, err := ua.Decode(x.Body, &f); err != nil || !x.Is(id.EventFilter_Encoding_DefaultBinary) || len(f.SelectClauses) != 7 || len(f.WhereClause.Elements) != 0 {
		t.Fatalf("%+v, %v", f, err)
	}
	for i, c := range f.SelectClauses {
		if c.BrowsePath[0].Name != eventFields[i] || c.AttributeID != ua.AttributeIDValue || c.TypeDefinitionID.IntID() != id.BaseEventType {
			t.Errorf("%d: %+v", i, c)
		}
	}
}

// TestJudgeEvents is the gate of load-events.
func TestJudgeEvents(t *testing.T) {
	good := watched{expected: 10, received: 10, drain: time.Second}
	if s := judgeEvents(&good); s != "" {
		t.Error(s)
	}
	for name, change := range map[string]func(r *watched){
		"missing": func(r *watched) { r.received = 9 }, "late": func(r *watched) { r.drain = 3 * time.Second },
		"an item behind": func(r *watched) { r.behind = 1 }, "ledger": func(r *watched) { r.own, r.final.unaccounted = true, 1 },
	} {
		r := good
		if change(&r); judgeEvents(&r) == "" {
			t.Errorf("%s passes", name)
		}
	}
}
