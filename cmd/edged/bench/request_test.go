package bench

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// message decodes a request's template by the codec of the server.
func message(t *testing.T, q *request) ua.Request {
	t.Helper()
	r := wire.NewReader(q.body)
	kind := r.NodeID()
	v, err := wire.DecodeMessage(kind.Num, &r)
	if err != nil {
		t.Fatal(err)
	}
	if r.Offset() != len(q.body) {
		t.Fatalf("%d of %d bytes were read", r.Offset(), len(q.body))
	}
	return v.(ua.Request)
}

// plain compares what the messages say, not how gopcua keeps it.
var plain = cmp.Options{
	cmp.Comparer(func(a, b *ua.NodeID) bool { return wire.FromUA(a) == wire.FromUA(b) }),
	cmp.Comparer(func(a, b *ua.Variant) bool { return cmp.Equal(a.Value(), b.Value()) }),
	cmp.Comparer(func(a, b *ua.QualifiedName) bool { return a == nil || b == nil || *a == *b }),
}

func TestTemplates(t *testing.T) {
	session := wire.TextID(1, "a token")
	nodes := []node{{wire.NumericID(1, 1000), tag.Int32}, {wire.TextID(2, "load.uint64_0"), tag.Uint64}}
	rows := []struct {
		name string
		q    *request
		want func(h *ua.RequestHeader) ua.Request
	}{
		{"5.11.2 Read", readRequest(session, ids(nodes)), func(h *ua.RequestHeader) ua.Request {
			m := &ua.ReadRequest{RequestHeader: h, TimestampsToReturn: ua.TimestampsToReturnBoth}
			for _, n := range nodes {
				m.NodesToRead = append(m.NodesToRead, &ua.ReadValueID{NodeID: wire.ToUA(n.id), AttributeID: ua.AttributeIDValue})
			}
			return m
		}},
		{"5.11.4 Write", writeRequest(session, ids(nodes), kinds(nodes), theAnswer), func(h *ua.RequestHeader) ua.Request {
			m := &ua.WriteRequest{RequestHeader: h}
			for i, n := range nodes {
				m.NodesToWrite = append(m.NodesToWrite, &ua.WriteValue{NodeID: wire.ToUA(n.id), AttributeID: ua.AttributeIDValue,
					Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant([]any{int32(42), uint64(42)}[i])}})
			}
			return m
		}},
		{"5.9.2 Browse", browseRequest(session, wire.NumericID(0, id.Server)), func(h *ua.RequestHeader) ua.Request {
			return &ua.BrowseRequest{RequestHeader: h, View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0), Timestamp: tag.Time(0).Time()},
				NodesToBrowse: []*ua.BrowseDescription{{
					NodeID: ua.NewNumericNodeID(0, id.Server), BrowseDirection: ua.BrowseDirectionForward,
					ReferenceTypeID: ua.NewTwoByteNodeID(id.HierarchicalReferences), IncludeSubtypes: true, ResultMask: 63,
				}}}
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := message(t, row.q)
			h := got.Header()
			if wire.FromUA(h.AuthenticationToken) != session || h.TimeoutHint != uint32(patience.Milliseconds()) {
				t.Errorf("header %+v", h)
			}
			if diff := cmp.Diff(row.want(h), got, plain); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What changes from one sending to the next is set in place, and nothing beside it.
func TestTemplatesArePatched(t *testing.T) {
	all := []node{
		{wire.NumericID(1, 1), tag.Int16}, {wire.NumericID(1, 2), tag.Uint16}, {wire.NumericID(1, 3), tag.Int32},
		{wire.NumericID(1, 4), tag.Uint32}, {wire.NumericID(1, 5), tag.Int64}, {wire.NumericID(1, 6), tag.Uint64},
	}
	q := writeRequest(wire.NumericID(0, 1), ids(all), kinds(all), 0)
	server := &memory{}
	c := &conn{sock: newSocket(server), peer: &peer{mode: ua.MessageSecurityModeNone}, body: bufferSize}
	now := time.Now()
	for number := uint16(1); number <= 300; number += 299 {
		q.setValues(number)
		handle, err := c.post(q, now)
		if err != nil {
			t.Fatal(err)
		}
		got := message(t, q).(*ua.WriteRequest)
		if h := got.RequestHeader; h.RequestHandle != handle || tag.TimeOf(h.Timestamp) != tag.TimeOf(now) {
			t.Errorf("handle %d at %v, want %d at %v", h.RequestHandle, h.Timestamp, handle, now)
		}
		want := []any{int16(number), number, int32(number), uint32(number), int64(number), uint64(number)}
		for i, w := range got.NodesToWrite {
			if v := w.Value.Value.Value(); v != want[i] {
				t.Errorf("%v: %v (%T), want %v (%T)", all[i].kind, v, v, want[i], want[i])
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { c.post(q, now); server.out = server.out[:0] }); n != 0 {
		t.Errorf("%v allocations for each request", n)
	}
}
