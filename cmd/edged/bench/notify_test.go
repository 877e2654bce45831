package bench

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// publishResponse is what a server sends.
func publishResponse(sub, sequence uint32, data ...any) []byte {
	m := &ua.NotificationMessage{SequenceNumber: sequence, PublishTime: time.Now()}
	for _, d := range data {
		m.NotificationData = append(m.NotificationData, ua.NewExtensionObject(d))
	}
	return wire.AppendMessage(nil, &ua.PublishResponse{
		ResponseHeader: &ua.ResponseHeader{}, SubscriptionID: sub, AvailableSequenceNumbers: []uint32{sequence, sequence + 1},
		NotificationMessage: m, Results: []ua.StatusCode{ua.StatusOK},
	})
}

func changes(items ...*ua.MonitoredItemNotification) *ua.DataChangeNotification {
	return &ua.DataChangeNotification{MonitoredItems: items}
}

func item(handle uint32, v any, status ua.StatusCode, source time.Time) *ua.MonitoredItemNotification {
	d := &ua.DataValue{Status: status, SourceTimestamp: source, ServerTimestamp: source}
	if v != nil {
		d.Value = ua.MustVariant(v)
		d.EncodingMask |= ua.DataValueValue
	}
	if status != 0 {
		d.EncodingMask |= ua.DataValueStatusCode
	}
	if !source.IsZero() {
		d.EncodingMask |= ua.DataValueSourceTimestamp | ua.DataValueServerTimestamp
	}
	return &ua.MonitoredItemNotification{ClientHandle: handle, Value: d}
}

// noticesOf scans a whole answer as run does.
func noticesOf(b []byte) (p published, all []notice, err error) {
	b, code, err := answered(b, id.PublishResponse_Encoding_DefaultBinary)
	if err != nil || code != 0 {
		return p, nil, errors.Join(err, code)
	}
	if p, err = parsePublished(b); err == nil {
		err = p.each(nil, func(n *notice) { all = append(all, *n) })
	}
	return p, all, err
}

// Part 4, 5.14.5 and 7.25: what a scan sees of an answer that gopcua's types make.
func TestNotices(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	source := tag.TimeOf(at)
	rows := []struct {
		name string
		item *ua.MonitoredItemNotification
		want notice
	}{
		{"Int16", item(1, int16(-2), 0, at), notice{handle: 1, known: true, number: 0xFFFE, source: source}},
		{"UInt16", item(2, uint16(7), 0, at), notice{handle: 2, known: true, number: 7, source: source}},
		{"Int32", item(3, int32(70_000), 0, at), notice{handle: 3, known: true, number: 70_000, source: source}},
		{"UInt64", item(4, uint64(1)<<32+5, 0, time.Time{}), notice{handle: 4, known: true, number: 5}},
		{"decimal text", item(5, "1234", 0, at), notice{handle: 5, known: true, number: 1234, source: source}},
		{"Overflow", item(6, int32(1), overflow, at), notice{handle: 6, known: true, number: 1, code: overflow, source: source}},
		{"a bad value", item(7, nil, ua.StatusBadNoCommunication, at), notice{handle: 7, code: ua.StatusBadNoCommunication, source: source}},
	}
	var items []*ua.MonitoredItemNotification
	for _, row := range rows {
		items = append(items, row.item)
	}
	p, all, err := noticesOf(publishResponse(9, 3, changes(items[:2]...), changes(items[2:]...)))
	if err != nil || p.sub != 9 || p.sequence != 3 || p.keepAlive || len(all) != len(rows) {
		t.Fatalf("%+v, %d notifications, %v", p, len(all), err)
	}
	for i, row := range rows {
		if all[i] != row.want {
			t.Errorf("%s: %+v, want %+v", row.name, all[i], row.want)
		}
	}
	for _, text := range []string{"", "12x"} {
		if _, all, err := noticesOf(publishResponse(9, 3, changes(item(0, text, 0, at)))); err != nil || len(all) != 1 || all[0].known {
			t.Errorf("%q is taken for a number: %+v, %v", text, all, err)
		}
	}
}

func TestNoticesThatAreNone(t *testing.T) {
	if p, all, err := noticesOf(publishResponse(1, 4)); err != nil || !p.keepAlive || len(all) != 0 {
		t.Errorf("a keep-alive: %+v, %v", p, err)
	}
	_, _, err := noticesOf(publishResponse(1, 4, &ua.StatusChangeNotification{Status: ua.StatusBadTimeout, DiagnosticInfo: &ua.DiagnosticInfo{}}))
	if !errors.Is(err, ua.StatusBadTimeout) || !strings.Contains(err.Error(), "subscription 1 has ended") {
		t.Errorf("the end of a subscription: %v", err)
	}
	_, _, err = noticesOf(publishResponse(1, 4, &ua.Range{}))
	if err == nil || !strings.Contains(err.Error(), "a notification of type") {
		t.Errorf("no notification: %v", err)
	}
	whole := publishResponse(1, 4, changes(item(1, int32(5), 0, time.Time{})))
	for n := range whole {
		// The results and what follows them are not looked at.
		if _, all, err := noticesOf(whole[:n]); err == nil && len(all) != 1 {
			t.Errorf("cut to %d bytes: %d notifications", n, len(all))
		}
	}
}

// FuzzNotices: no answer of a server makes the scan fail otherwise than by an error, or read beyond its end.
func FuzzNotices(f *testing.F) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Add(publishResponse(1, 2))
	f.Add(publishResponse(1, 2, changes(item(1, int32(5), 0, at), item(2, "77", overflow, at), item(3, nil, ua.StatusBadTimeout, at))))
	f.Add(publishResponse(1, 2, changes(item(1, []int16{1, 2}, 0, at)), &ua.StatusChangeNotification{Status: ua.StatusBadTimeout, DiagnosticInfo: &ua.DiagnosticInfo{}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, all, _ := noticesOf(b); len(all)*leastNotice > len(b) {
			t.Errorf("%d notifications in %d bytes", len(all), len(b))
		}
	})
}

// subscriberOf is a session without a connection, with so many items.
func subscriberOf(w *watching, items int) *subscriber {
	return newSubscriber(&conn{sock: newSocket(&memory{}), peer: &peer{mode: ua.MessageSecurityModeNone}, body: bufferSize},
		w, make([]node, items), &tally{}, new(atomic.Bool))
}

// What is left out between two numbers was overwritten; what is said twice, or carries Overflow, is told.
func TestCount(t *testing.T) {
	s := subscriberOf(&watching{}, 3)
	for i, row := range []struct {
		item *ua.MonitoredItemNotification
		want string
	}{
		{item(0, uint16(65534), 0, time.Now()), ""},
		{item(0, uint16(65535), 0, time.Now()), ""},
		{item(0, uint16(1), overflow, time.Now()), ""}, // 0 was overwritten
		{item(1, uint16(4), 0, time.Now()), ""},
		{item(1, uint16(4), 0, time.Now()), ""},
		{item(1, uint16(9), 0, time.Now()), ""}, // 5 to 8 were
		{item(2, nil, ua.StatusBadWaitingForInitialData, time.Now()), ""},
		{item(2, nil, ua.StatusBadNoCommunication, time.Now()), "of no item"},
		{item(3, uint16(1), 0, time.Now()), "of no item"},
	} {
		err := s.take(publishResponse(1, uint32(i+1), changes(row.item)), time.Now())
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("row %d: %v, want %q", i, err, row.want)
		}
	}
	tl := s.tally
	if tl.received.Load() != 6 || tl.lost.Load() != 5 || tl.again.Load() != 1 || tl.overflow.Load() != 1 || tl.begun.Load() != 2 {
		t.Errorf("received %d, lost %d, again %d, overflow %d, begun %d", tl.received.Load(), tl.lost.Load(), tl.again.Load(), tl.overflow.Load(), tl.begun.Load())
	}
	if want := (seen{first: 65534, last: 1, count: 3}); s.items[0] != want {
		t.Errorf("item 0: %+v, want %+v", s.items[0], want)
	}
}

// A Publish request acknowledges the message that it answers; keep-alives and faults have none.
func TestAcknowledgements(t *testing.T) {
	s := subscriberOf(&watching{}, 1)
	fault := wire.AppendResponseHeader(nil, id.ServiceFault_Encoding_DefaultBinary, 1, ua.StatusBadTimeout, tag.Now())
	for _, row := range []struct {
		name   string
		answer []byte
		want   []ua.SubscriptionAcknowledgement
		bad    bool
	}{
		{"a message", publishResponse(7, 3, changes(item(0, int32(1), 0, time.Now()))), []ua.SubscriptionAcknowledgement{{SubscriptionID: 7, SequenceNumber: 3}}, false},
		{"a keep-alive", publishResponse(7, 4), nil, false},
		{"a time-out", fault, nil, true},
	} {
		s.c.out = nil
		if err := s.take(row.answer, time.Now()); (err != nil) != row.bad {
			t.Errorf("%s: %v", row.name, err)
		}
		r := wire.NewReader(s.c.out[24:])
		kind := r.NodeID()
		v, err := wire.DecodeMessage(kind.Num, &r)
		q, ok := v.(*ua.PublishRequest)
		if err != nil || !ok || len(q.SubscriptionAcknowledgements) != len(row.want) || q.RequestHeader.TimeoutHint != 0 {
			t.Errorf("%s: %+v, %v", row.name, v, err)
			continue
		}
		for i, a := range q.SubscriptionAcknowledgements {
			if *a != row.want[i] {
				t.Errorf("%s: acknowledges %+v", row.name, *a)
			}
		}
	}
}

// Ten million notifications a second are scanned without allocating.
func TestTakeDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := subscriberOf(&watching{}, 600)
	var items []*ua.MonitoredItemNotification
	for i := range 600 {
		items = append(items, item(uint32(i), int32(i), 0, time.Now()))
	}
	b := publishResponse(1, 1, changes(items...))
	if n := testing.AllocsPerRun(20, func() { s.take(b, time.Now()); s.c.out = s.c.out[:0] }); n > 2 {
		t.Errorf("%v allocations for a message of 600", n)
	}
}

func BenchmarkTake600(b *testing.B) {
	s := subscriberOf(&watching{}, 600)
	var items []*ua.MonitoredItemNotification
	for i := range 600 {
		items = append(items, item(uint32(i), int32(i), 0, time.Now()))
	}
	m := publishResponse(1, 1, changes(items...))
	b.ReportAllocs()
	for range b.N {
		s.take(m, time.Now())
		s.c.out = s.c.out[:0]
	}
}
