package bench

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

const handle = 77

func responseHeader() *ua.ResponseHeader {
	return &ua.ResponseHeader{Timestamp: time.Now(), RequestHandle: handle}
}

func good(v any) *ua.DataValue {
	return &ua.DataValue{
		EncodingMask: ua.DataValueValue | ua.DataValueSourceTimestamp | ua.DataValueServerTimestamp, Value: ua.MustVariant(v),
		SourceTimestamp: time.Now(), ServerTimestamp: time.Now(),
	}
}

func withStatus(code ua.StatusCode) *ua.DataValue {
	return &ua.DataValue{EncodingMask: ua.DataValueStatusCode | ua.DataValueServerTimestamp, Status: code, ServerTimestamp: time.Now()}
}

func read(values ...*ua.DataValue) *ua.ReadResponse {
	return &ua.ReadResponse{ResponseHeader: responseHeader(), Results: values}
}

func written(codes ...ua.StatusCode) *ua.WriteResponse {
	return &ua.WriteResponse{ResponseHeader: responseHeader(), Results: codes}
}

func reference() *ua.ReferenceDescription {
	return &ua.ReferenceDescription{
		ReferenceTypeID: ua.NewNumericNodeID(0, id.Organizes), IsForward: true,
		NodeID:     &ua.ExpandedNodeID{NodeID: ua.NewStringNodeID(2, "boiler")},
		BrowseName: &ua.QualifiedName{NamespaceIndex: 2, Name: "boiler"}, DisplayName: ua.NewLocalizedText("boiler"),
		NodeClass: ua.NodeClassObject, TypeDefinition: ua.NewTwoByteExpandedNodeID(58),
	}
}

func browsed(results ...*ua.BrowseResult) *ua.BrowseResponse {
	return &ua.BrowseResponse{ResponseHeader: responseHeader(), Results: results}
}

// questions are requests by the type of their responses; one item each.
func questions(items int) map[string]*request {
	session := wire.NumericID(1, 5)
	nodes := make([]wire.NodeID, items)
	r, w, b := readRequest(session, nodes), writeRequest(session, nodes, make([]tag.Kind, items), 0), browseRequest(session, wire.NodeID{})
	return map[string]*request{"read": r, "write": w, "browse": b}
}

func TestScan(t *testing.T) {
	changed := func(resp ua.Response, change func(*ua.ResponseHeader)) ua.Response {
		change(resp.Header())
		return resp
	}
	rows := []struct {
		name  string
		kind  string
		items int
		resp  ua.Response
		bad   int
		want  string // of the error; "" is none
	}{
		{"values of every size", "read", 13, read(good(true), good(int8(-1)), good(uint8(1)), good(int16(-2)), good(uint16(2)), good(int32(-3)),
			good(uint32(3)), good(int64(-4)), good(uint64(4)), good(float32(5)), good(6.0), good(time.Now()), good(ua.StatusBad)), 0, ""},
		{"values without a fixed size", "read", 4, read(good("text"), good([]byte{1, 2}), good([]int32{1, 2, 3}), good(ua.NewLocalizedText("x"))), 0, ""},
		{"B1 picoseconds", "read", 1, read(&ua.DataValue{EncodingMask: 0x3F, Value: ua.MustVariant(int32(1)), SourcePicoseconds: 1, ServerPicoseconds: 2}), 0, ""},
		{"7.39 Uncertain is not Good", "read", 2, read(good(int32(1)), &ua.DataValue{EncodingMask: 3, Value: ua.MustVariant(int32(1)), Status: ua.StatusUncertain}), 1, "1 of 2 results"},
		{"7.39 GoodClamped is Good", "read", 1, read(&ua.DataValue{EncodingMask: 3, Value: ua.MustVariant(int32(1)), Status: ua.StatusGoodClamped}), 0, ""},
		{"unknown nodes", "read", 3, read(withStatus(ua.StatusBadNodeIDUnknown), good(int32(1)), withStatus(ua.StatusBadNodeIDUnknown)), 2, "2 of 3 results are bad, the first with The node id refers"},
		{"a value is missing", "read", 1, read(&ua.DataValue{}), 1, "1 of 1 results are bad, the first with No data exists"},
		{"a result is missing", "read", 2, read(good(int32(1))), 0, "1 results for 2 items"},
		{"diagnostics that nobody asked for", "read", 1, &ua.ReadResponse{ResponseHeader: responseHeader(), Results: []*ua.DataValue{good(int32(1))},
			DiagnosticInfos: []*ua.DiagnosticInfo{{EncodingMask: ua.DiagnosticInfoSymbolicID, SymbolicID: 1}}}, 0, ""},
		{"7.34 a string table", "read", 1, changed(read(good(int32(1))), func(h *ua.ResponseHeader) { h.StringTable = []string{"a", "bc"} }), 0, ""},
		{"7.34 service diagnostics", "read", 1, changed(read(good(int32(1))), func(h *ua.ResponseHeader) {
			h.ServiceDiagnostics = &ua.DiagnosticInfo{EncodingMask: ua.DiagnosticInfoAdditionalInfo, AdditionalInfo: "more"}
		}), 0, ""},
		{"the answer to another request", "read", 1, changed(read(good(int32(1))), func(h *ua.ResponseHeader) { h.RequestHandle++ }), 0, "the answer to request 78, not to 77"},
		{"a response of another service", "read", 1, written(ua.StatusOK), 0, "an answer of type i=676, not i=634"},
		{"7.35 a ServiceFault", "read", 1, &ua.ServiceFault{ResponseHeader: &ua.ResponseHeader{RequestHandle: handle, ServiceResult: ua.StatusBadTooManyOperations}}, 0, "StatusBadTooManyOperations"},
		{"writes", "write", 2, written(ua.StatusOK, ua.StatusGoodCompletesAsynchronously), 0, ""},
		{"a write is refused", "write", 2, written(ua.StatusOK, ua.StatusBadTypeMismatch), 1, "1 of 2 results are bad, the first with The value supplied"},
		{"no result of a write", "write", 2, written(), 0, "0 results for 2 items"},
		{"references", "browse", 1, browsed(&ua.BrowseResult{References: []*ua.ReferenceDescription{reference(), reference()}}), 0, ""},
		{"no references", "browse", 1, browsed(&ua.BrowseResult{}), 1, "1 of 1 results are bad"},
		{"a continuation point", "browse", 1, browsed(&ua.BrowseResult{ContinuationPoint: []byte{1}, References: []*ua.ReferenceDescription{reference()}}), 1, "1 of 1 results are bad"},
		{"a node that cannot be browsed", "browse", 1, browsed(&ua.BrowseResult{StatusCode: ua.StatusBadNodeIDUnknown}), 1, "StatusBadNodeIDUnknown"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			q := questions(row.items)[row.kind]
			v := q.check(wire.AppendMessage(nil, row.resp), handle)
			if v.bad != row.bad {
				t.Errorf("%d bad results, want %d", v.bad, row.bad)
			}
			switch err := v.err(q); {
			case row.want == "" && err != nil:
				t.Errorf("error %v", err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}

// What is cut off, or goes on, is noticed wherever it happens.
func TestScanOfBrokenAnswers(t *testing.T) {
	whole := map[string]ua.Response{
		"read":   read(good(int32(1)), good("text"), withStatus(ua.StatusBadNodeIDUnknown)),
		"write":  written(ua.StatusOK, ua.StatusBad, ua.StatusOK),
		"browse": browsed(&ua.BrowseResult{References: []*ua.ReferenceDescription{reference()}}),
	}
	for name, q := range questions(3) {
		b := wire.AppendMessage(nil, whole[name])
		for n := range b {
			if v := q.check(b[:n:n], handle); !errors.Is(v.fault, errCut) {
				t.Errorf("%s: %d of %d bytes: %+v", name, n, len(b), v)
			}
		}
		if v := q.check(append(b, 0), handle); !errors.Is(v.fault, errCut) {
			t.Errorf("%s: a byte too many: %+v", name, v)
		}
	}
}

// FuzzScan compares the scan with the decoder: what one reads, the other reads, and they see the same statuses.
func FuzzScan(f *testing.F) {
	for _, resp := range []ua.Response{
		read(good(int32(1)), good([]string{"a", "b"}), withStatus(ua.StatusBad)), written(ua.StatusOK, ua.StatusBad),
		browsed(&ua.BrowseResult{References: []*ua.ReferenceDescription{reference()}}),
	} {
		f.Add(wire.AppendMessage(nil, resp))
	}
	all := questions(3)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := wire.NewReader(b)
		kind := r.NodeID()
		v, err := wire.DecodeMessage(kind.Num, &r)
		canonical := err == nil && r.Offset() == len(b) && len(b) > 4 && b[0] == 1 && b[1] == 0
		for _, q := range all {
			got := q.check(b, handle)
			if !canonical || kind.Num != q.answer {
				continue
			}
			bad, total, head := decoded(v)
			if head.RequestHandle != handle || head.ServiceResult&severe != 0 {
				if got.fault == nil {
					t.Errorf("%x: the header is wrong, and the scan says %+v", b, got)
				}
				continue
			}
			if got.fault != nil || got.bad != bad || got.items != total {
				t.Errorf("%x: scanned %+v, decoded %d bad of %d", b, got, bad, total)
			}
		}
	})
}

// decoded counts the results of a decoded response as a scan does.
func decoded(v any) (bad, total int, head *ua.ResponseHeader) {
	count := func(wrong bool) {
		if total++; wrong {
			bad++
		}
	}
	switch v := v.(type) {
	case *ua.ReadResponse:
		for _, d := range v.Results {
			count(d.EncodingMask&hasValue == 0 || d.Status&severe != 0)
		}
		head = v.ResponseHeader
	case *ua.WriteResponse:
		for _, c := range v.Results {
			count(c&severe != 0)
		}
		head = v.ResponseHeader
	case *ua.BrowseResponse:
		for _, r := range v.Results {
			count(r.StatusCode&severe != 0 || len(r.References) == 0 || len(r.ContinuationPoint) > 0)
		}
		head = v.ResponseHeader
	}
	return bad, total, head
}

// The client must not be what is measured: a scan allocates nothing.
func TestScanAllocatesNothing(t *testing.T) {
	for name, q := range questions(100) {
		b := answerTo(name, 100)
		if name == "browse" {
			q.items = 1
		}
		if v := q.check(b, handle); v.err(q) != nil {
			t.Fatal(v.err(q))
		}
		if n := testing.AllocsPerRun(100, func() { q.check(b, handle) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func answerTo(name string, items int) []byte {
	switch name {
	case "read":
		resp := read()
		for i := range items {
			resp.Results = append(resp.Results, good(int32(i)))
		}
		return wire.AppendMessage(nil, resp)
	case "write":
		return wire.AppendMessage(nil, written(make([]ua.StatusCode, items)...))
	}
	result := &ua.BrowseResult{}
	for range 12 {
		result.References = append(result.References, reference())
	}
	return wire.AppendMessage(nil, browsed(result))
}

func BenchmarkScan(b *testing.B) {
	for name, q := range questions(100) {
		b.Run(name, func(b *testing.B) {
			answer := answerTo(name, 100)
			b.ReportAllocs()
			for b.Loop() {
				q.check(answer, handle)
			}
		})
	}
}
