package uaserver

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/session"
	"edged/uaserver/uatest"
	"edged/uaserver/wire"
)

func idOf(name string) wire.NodeID { return wire.TextID(address.NamespacePlant, name) }

func TestReadServiceResults(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Nodes = 10 })
	p := f.login(t)
	nodes := func(n int) (out []*ua.ReadValueID) {
		for range n {
			out = append(out, value(plantID("boiler.code")))
		}
		return out
	}
	for _, row := range []struct {
		name string
		req  ua.ReadRequest
		want ua.StatusCode
	}{
		{"A5 nothing", ua.ReadRequest{}, ua.StatusBadNothingToDo},
		{"A5 the limit", ua.ReadRequest{NodesToRead: nodes(10)}, ua.StatusGood},
		{"A5 one more", ua.ReadRequest{NodesToRead: nodes(11)}, ua.StatusBadTooManyOperations},
		{"A8 negative maxAge", ua.ReadRequest{NodesToRead: nodes(1), MaxAge: -1}, ua.StatusBadMaxAgeInvalid},
		{"A8 maxAge is no number", ua.ReadRequest{NodesToRead: nodes(1), MaxAge: math.NaN()}, ua.StatusBadMaxAgeInvalid},
		{"A8 timestamps", ua.ReadRequest{NodesToRead: nodes(1), TimestampsToReturn: 4}, ua.StatusBadTimestampsToReturnInvalid},
	} {
		if _, code := p.call(&row.req); code != row.want {
			t.Errorf("%s: %v, want %v", row.name, code, row.want)
		}
	}
	limits := map[uint32]uint32{
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead:                          10,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerWrite:                         10,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerBrowse:                        10,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRegisterNodes:                 10,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerTranslateBrowsePathsToNodeIDs: 10,
		id.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall:                 10_000,
	}
	for node, want := range limits {
		v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(ua.NewNumericNodeID(0, node))}})[0]
		if v.Status != ua.StatusGood || v.Value.Value() != want {
			t.Errorf("A5 i=%d: %v %v, want %d", node, v.Status, v.Value, want)
		}
	}
}

func TestReadItemStatuses(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	item := func(name string, change func(*ua.ReadValueID)) *ua.ReadValueID {
		v := value(plantID(name))
		change(v)
		return v
	}
	encoding := func(ns uint16, name string) func(*ua.ReadValueID) {
		return func(v *ua.ReadValueID) { v.DataEncoding = &ua.QualifiedName{NamespaceIndex: ns, Name: name} }
	}
	index := func(r string) func(*ua.ReadValueID) { return func(v *ua.ReadValueID) { v.IndexRange = r } }
	attribute := func(a ua.AttributeID) func(*ua.ReadValueID) { return func(v *ua.ReadValueID) { v.AttributeID = a } }
	rows := []struct {
		name string
		item *ua.ReadValueID
		want ua.StatusCode
	}{
		{"good", value(plantID("boiler.code")), ua.StatusGood},
		{"A8 dead device", value(plantID("dead.level")), ua.StatusBadNoCommunication},
		{"A8 unknown node", value(plantID("nobody")), ua.StatusBadNodeIDUnknown},
		{"A6 value of an object", value(plantID("boiler")), ua.StatusBadAttributeIDInvalid},
		{"A6 event notifier of a variable", item("boiler.code", attribute(ua.AttributeIDEventNotifier)), ua.StatusBadAttributeIDInvalid},
		{"A6 attribute 99", item("boiler.code", attribute(99)), ua.StatusBadAttributeIDInvalid},
		{"default encoding", item("boiler.code", encoding(0, "Default Binary")), ua.StatusGood},
		{"XML", item("boiler.code", encoding(0, "Default XML")), ua.StatusBadDataEncodingUnsupported},
		{"nonsense encoding", item("boiler.code", encoding(0, "Default Nonsense")), ua.StatusBadDataEncodingInvalid},
		{"another namespace's encoding", item("boiler.code", encoding(1, "Default Binary")), ua.StatusBadDataEncodingInvalid},
		{"encoding of a name", item("boiler.code", func(v *ua.ReadValueID) {
			v.AttributeID = ua.AttributeIDBrowseName
			encoding(0, "Default Binary")(v)
		}), ua.StatusBadDataEncodingInvalid},
		{"A12 range", item("boiler.curve", index("2:4")), ua.StatusGood},
		{"A12 outside", item("boiler.curve", index("7")), ua.StatusBadIndexRangeNoData},
		{"A12 nonsense", item("boiler.curve", index("a")), ua.StatusBadIndexRangeInvalid},
		{"A12 of a scalar", item("boiler.code", index("0")), ua.StatusBadIndexRangeNoData},
	}
	req := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth}
	for _, row := range rows {
		req.NodesToRead = append(req.NodesToRead, row.item)
	}
	for i, v := range p.read(req) {
		if v.Status != rows[i].want {
			t.Errorf("%s: %v, want %v", rows[i].name, v.Status, rows[i].want)
		}
	}
}

func TestDataValueShape(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	name := value(plantID("boiler.code"))
	name.AttributeID = ua.AttributeIDBrowseName
	for _, row := range []struct {
		stamps         ua.TimestampsToReturn
		source, server bool
	}{
		{ua.TimestampsToReturnSource, true, false}, {ua.TimestampsToReturnServer, false, true},
		{ua.TimestampsToReturnBoth, true, true}, {ua.TimestampsToReturnNeither, false, false},
	} {
		req := &ua.ReadRequest{TimestampsToReturn: row.stamps, NodesToRead: []*ua.ReadValueID{
			value(plantID("boiler.code")), value(plantID("dead.level")), value(plantID("nobody")), name,
		}}
		for i, v := range p.read(req) {
			source := row.source && i != 3 // 7.11.3: only a Value has one
			if v.Has(ua.DataValueSourceTimestamp) != source || v.Has(ua.DataValueServerTimestamp) != row.server {
				t.Errorf("A8 %v item %d: mask %x", row.stamps, i, v.EncodingMask)
			}
			if bad := i == 1 || i == 2; bad == v.Has(ua.DataValueValue) || bad != v.Has(ua.DataValueStatusCode) {
				t.Errorf("A8 %v item %d: mask %x", row.stamps, i, v.EncodingMask)
			}
		}
	}
}

func TestEveryAttributeOfEveryClass(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	has := map[string]string{
		"ns=2;s=boiler":       "1 2 3 4 5 6 7 12",
		"ns=2;s=boiler.code":  "1 2 3 4 5 6 7 13 14 15 17 18 19 20 27",
		"ns=2;s=boiler.curve": "1 2 3 4 5 6 7 13 14 15 16 17 18 19 20 27",
	}
	for node, want := range has {
		n := ua.MustParseNodeID(node)
		req := &ua.ReadRequest{}
		for a := ua.AttributeID(1); a <= 27; a++ {
			req.NodesToRead = append(req.NodesToRead, &ua.ReadValueID{NodeID: n, AttributeID: a, DataEncoding: &ua.QualifiedName{}})
		}
		got := ""
		for i, v := range p.read(req) {
			switch v.Status {
			case ua.StatusGood:
				got += fmt.Sprint(" ", i+1)
			case ua.StatusBadAttributeIDInvalid:
			default:
				t.Errorf("A6 %s attribute %d: %v", node, i+1, v.Status)
			}
		}
		if got != " "+want {
			t.Errorf("A6 %s has the attributes%s, want %s", node, got, want)
		}
	}
}

func TestMaxAge(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	ref := f.ref(t, "boiler.counter")
	old := tag.Now().Add(-10 * time.Second)
	f.tags.Publish([]tag.Sample{{Ref: ref, Value: tag.Of(uint32(5)), At: old}})
	f.field.mu.Lock()
	f.field.values[ref] = tag.Of(uint32(6))
	f.field.mu.Unlock()
	read := func(age float64) any {
		v := p.read(&ua.ReadRequest{MaxAge: age, TimestampsToReturn: ua.TimestampsToReturnBoth, NodesToRead: []*ua.ReadValueID{
			value(plantID("boiler.counter")), value(plantID("scratch.m000")), value(plantID("nobody")),
		}})
		if v[1].Status != ua.StatusGood || v[2].Status != ua.StatusBadNodeIDUnknown {
			t.Errorf("the others: %v %v", v[1].Status, v[2].Status)
		}
		return v[0].Value.Value()
	}
	if got := read(60_000); got != uint32(5) {
		t.Errorf("maxAge 60 s: %v, want what memory has", got)
	}
	if got := read(2000); got != uint32(6) {
		t.Errorf("maxAge 2 s: %v, want what the device has", got)
	}
	if got := read(0); got != uint32(6) {
		t.Errorf("maxAge 0: %v", got)
	}
	if f.field.readings != 1 {
		t.Errorf("%d readings of the device, want one", f.field.readings)
	}
}

func TestWriteStatuses(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Nodes = 40 })
	p := f.login(t)
	item := func(name string, v any, change func(*ua.WriteValue)) *ua.WriteValue {
		w := writeOf(name, v).NodesToWrite[0]
		if change != nil {
			change(w)
		}
		return w
	}
	index := func(r string) func(*ua.WriteValue) { return func(w *ua.WriteValue) { w.IndexRange = r } }
	mask := func(m byte) func(*ua.WriteValue) {
		return func(w *ua.WriteValue) {
			w.Value.EncodingMask |= m
			w.Value.SourceTimestamp, w.Value.ServerTimestamp, w.Value.Status = time.Now(), time.Now(), ua.StatusBadOutOfRange
		}
	}
	rows := []struct {
		name  string
		item  *ua.WriteValue
		want  ua.StatusCode
		wrote bool
	}{
		{"A11 Int16", item("boiler.code", int16(5), nil), ua.StatusGood, true},
		{"A11 Int32 5", item("boiler.code", int32(5), nil), ua.StatusBadTypeMismatch, false},
		{"A11 Int32 70000", item("boiler.code", int32(70000), nil), ua.StatusBadTypeMismatch, false},
		{"A11 text", item("boiler.code", "5", nil), ua.StatusBadTypeMismatch, false},
		{"A11 array", item("boiler.code", []int16{5}, nil), ua.StatusBadTypeMismatch, false},
		{"A11 out of range", item("boiler.setpoint", 121.0, nil), ua.StatusBadOutOfRange, false},
		{"A10 read only", item("boiler.temperature", float32(5), nil), ua.StatusBadNotWritable, false},
		{"A10 source timestamp", item("boiler.code", int16(5), mask(ua.DataValueSourceTimestamp)), ua.StatusBadWriteNotSupported, false},
		{"A10 status", item("boiler.code", int16(5), mask(ua.DataValueStatusCode)), ua.StatusBadWriteNotSupported, false},
		{"memory tag with both", item("scratch.m001", 5.0, mask(ua.DataValueStatusCode|ua.DataValueSourceTimestamp)), ua.StatusGood, true},
		{"server timestamp", item("scratch.m002", 5.0, mask(ua.DataValueServerTimestamp)), ua.StatusBadWriteNotSupported, false},
		{"A12 one element", item("boiler.curve", []int16{9}, index("1")), ua.StatusGood, true},
		{"A12 outside", item("boiler.curve", []int16{9}, index("5")), ua.StatusBadIndexRangeNoData, false},
		{"A12 nonsense", item("boiler.curve", []int16{9}, index("x")), ua.StatusBadIndexRangeInvalid, false},
		{"unknown node", item("nobody", int16(5), nil), ua.StatusBadNodeIDUnknown, false},
		{"an object", item("boiler", int16(5), nil), ua.StatusBadAttributeIDInvalid, false},
		{"another attribute", item("boiler.code", "x", func(w *ua.WriteValue) { w.AttributeID = ua.AttributeIDBrowseName }), ua.StatusBadNotWritable, false},
		{"attribute 99", item("boiler.code", "x", func(w *ua.WriteValue) { w.AttributeID = 99 }), ua.StatusBadAttributeIDInvalid, false},
		{"the clock", item("", time.Now(), func(w *ua.WriteValue) { w.NodeID = ua.NewNumericNodeID(0, 2258) }), ua.StatusBadNotWritable, false},
	}
	wrote := 0
	req := &ua.WriteRequest{}
	for _, row := range rows {
		req.NodesToWrite = append(req.NodesToWrite, row.item)
		if row.wrote {
			wrote++
		}
	}
	for i, code := range must[*ua.WriteResponse](p, req).Results {
		if code != rows[i].want {
			t.Errorf("%s: %v, want %v", rows[i].name, code, rows[i].want)
		}
	}
	if log := f.field.commands(); len(log) != wrote {
		t.Errorf("A11 %d commands reached the field, want %d", len(log), wrote)
	}
	v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.curve")), value(plantID("boiler.code"))}})
	if got := fmt.Sprint(v[0].Value.Value()); got != "[1 9 3 4 5]" {
		t.Errorf("A12 only that element changes: %s", got)
	}
	if v[1].Value.Value() != int16(5) {
		t.Errorf("a Read after a Good write: %v", v[1].Value)
	}
	for _, row := range []struct {
		name string
		n    int
		want ua.StatusCode
	}{{"A5 nothing", 0, ua.StatusBadNothingToDo}, {"A5 one more", 41, ua.StatusBadTooManyOperations}} {
		req := &ua.WriteRequest{}
		for range row.n {
			req.NodesToWrite = append(req.NodesToWrite, rows[0].item)
		}
		if _, code := p.call(req); code != row.want {
			t.Errorf("%s: %v, want %v", row.name, code, row.want)
		}
	}
}

func TestReadOnlyUser(t *testing.T) {
	f := start(t, func(c *Config) { c.Anonymous = address.MayBrowse | address.MayRead })
	p := f.login(t)
	if r := must[*ua.WriteResponse](p, writeOf("boiler.code", int16(5))); r.Results[0] != ua.StatusBadUserAccessDenied {
		t.Errorf("A10 wrong user: %v", r.Results[0])
	}
	levels := func(a ua.AttributeID) any {
		v := value(plantID("boiler.code"))
		v.AttributeID = a
		return p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{v}})[0].Value.Value()
	}
	if all, own := levels(ua.AttributeIDAccessLevel), levels(ua.AttributeIDUserAccessLevel); all != uint8(3) || own != uint8(1) {
		t.Errorf("A10 AccessLevel %v, UserAccessLevel %v", all, own)
	}
}

func TestTooLargeResponse(t *testing.T) {
	f := start(t, nil)
	p := f.dial(t, func(o *uatest.Options) { o.Receive, o.MaxSize = 8192, 16384 })
	p.create()
	must[*ua.ActivateSessionResponse](p, activateRequest(anonymous()))
	req := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth}
	for i := range 2000 {
		req.NodesToRead = append(req.NodesToRead, value(plantID("scratch."+testDefs[6+i%500].Name)))
	}
	if _, code := p.call(req); code != ua.StatusBadResponseTooLarge {
		t.Errorf("A4: %v", code)
	}
	p.read(&ua.ReadRequest{NodesToRead: req.NodesToRead[:1]})
	r := must[*ua.BrowseResponse](p, browseRequest(0, browseOf(plantID("scratch")))).Results[0]
	got, pages := len(r.References), 1
	for ; r.ContinuationPoint != nil; pages++ {
		r = must[*ua.BrowseNextResponse](p, nextRequest(false, r.ContinuationPoint)).Results[0]
		got += len(r.References)
	}
	if got != 512 || pages < 2 || pages > 10 {
		t.Errorf("A3 %d references in %d answers that the client can take", got, pages)
	}
}

func TestAnswerThatIsTooLargeIsNotMade(t *testing.T) {
	r := &reading{most: 1000, items: make([]address.ReadItem, 10_000)}
	for i := range r.items {
		r.items[i].Result = wire.DataValue{Value: tag.OfBytes(make([]byte, 800))}
	}
	if n := len(r.AppendTo(nil)); n <= r.most || n > 3*r.most {
		t.Errorf("%d bytes were made for a client that takes %d", n, r.most)
	}
}

// hotCall is a Read of 100 tags as it comes out of a connection.
func hotCall(t testing.TB, f *fixture) (*call, []byte) {
	t.Helper()
	req := &ua.ReadRequest{RequestHeader: (&peer{token: ua.NewTwoByteNodeID(0)}).header(), TimestampsToReturn: ua.TimestampsToReturnBoth}
	for i := range 100 {
		req.NodesToRead = append(req.NodesToRead, value(plantID("scratch."+testDefs[6+i].Name)))
	}
	body, err := uatest.Encode(req)
	if err != nil {
		t.Fatal(err)
	}
	cl := &client{Session: &session.Session{}}
	cl.rights.Store(uint32(address.MayRead | address.MayBrowse | address.MayWrite))
	return &call{s: f.Server, client: cl}, body[4:] // behind the type id
}

func TestReadAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool forgets under the race detector")
	}
	f := start(t, nil)
	c, body := hotCall(t, f)
	buf := make([]byte, 0, 64<<10)
	run := func() {
		c.body = wire.NewReader(body)
		c.header = c.body.RequestHeader()
		r, code := f.beginRead(c)
		if code != ua.StatusGood || len(r.items) != 100 || r.stale() != nil {
			t.Fatal(code)
		}
		buf = r.AppendTo(buf[:0])
		r.free()
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("a Read of 100 nodes allocates %v times", n)
	}
	body = registered(t, f, c)
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("a Read of 100 registered nodes allocates %v times", n)
	}
}

func BenchmarkRead100(b *testing.B) {
	f := start(b, nil)
	c, body := hotCall(b, f)
	buf := make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		c.body = wire.NewReader(body)
		c.header = c.body.RequestHeader()
		r, _ := f.beginRead(c)
		r.stale()
		buf = r.AppendTo(buf[:0])
		r.free()
	}
}

// registered is a Read of the same 100 tags by the numbers that RegisterNodes gave for them.
func registered(t testing.TB, f *fixture, c *call) []byte {
	t.Helper()
	ids := make([]*ua.NodeID, 100)
	for i := range ids {
		ids[i] = plantID("scratch." + testDefs[6+i].Name)
	}
	resp, code := f.registerNodes(c, &ua.RegisterNodesRequest{NodesToRegister: ids})
	if code != ua.StatusGood {
		t.Fatal(code)
	}
	req := &ua.ReadRequest{RequestHeader: (&peer{token: ua.NewTwoByteNodeID(0)}).header(), TimestampsToReturn: ua.TimestampsToReturnBoth}
	for _, n := range resp.(*ua.RegisterNodesResponse).RegisteredNodeIDs {
		req.NodesToRead = append(req.NodesToRead, value(n))
	}
	body, err := uatest.Encode(req)
	if err != nil {
		t.Fatal(err)
	}
	return body[4:]
}

// BenchmarkRead100Registered is BenchmarkRead100 by aliases, which are to be faster.
func BenchmarkRead100Registered(b *testing.B) {
	f := start(b, nil)
	c, _ := hotCall(b, f)
	body := registered(b, f, c)
	buf := make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		c.body = wire.NewReader(body)
		c.header = c.body.RequestHeader()
		r, _ := f.beginRead(c)
		r.stale()
		buf = r.AppendTo(buf[:0])
		r.free()
	}
}

// quietField takes every command and remembers none.
type quietField struct{ sink tag.Sink }

func (f *quietField) Execute(_ context.Context, cmds []tag.Command) {
	var batch [1]tag.Sample
	for i := range cmds {
		batch[0] = tag.Sample{Ref: cmds[i].Ref, Value: cmds[i].Value, At: 1}
		f.sink.Publish(batch[:])
	}
}

func (f *quietField) Refresh(context.Context, []tag.Ref) tag.Status      { return tag.Good }
func (f *quietField) Operate(context.Context, string, tag.Op) tag.Status { return tag.Good }

// hotWrite is a Write of 100 numbers as it comes out of a connection.
func hotWrite(t testing.TB) []byte {
	t.Helper()
	req := &ua.WriteRequest{RequestHeader: (&peer{token: ua.NewTwoByteNodeID(0)}).header()}
	for i := range 100 {
		req.NodesToWrite = append(req.NodesToWrite, writeOf("scratch."+testDefs[6+i].Name, 42.0).NodesToWrite[0])
	}
	body, err := uatest.Encode(req)
	if err != nil {
		t.Fatal(err)
	}
	return body[4:] // behind the type id
}

func writeHot(t testing.TB, f *fixture, c *call, body, buf []byte) []byte {
	c.body = wire.NewReader(body)
	c.header = c.body.RequestHeader()
	w, waits, code := f.beginWrite(c)
	if code != ua.StatusGood || waits || len(w.items) != 100 {
		t.Fatal(code, waits)
	}
	f.space.Write(context.Background(), c.client.may(), w.items)
	if w.items[99].Status != tag.Good {
		t.Fatal(w.items[99].Status)
	}
	buf = w.AppendTo(buf[:0])
	w.free()
	return buf
}

func TestWriteAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool forgets under the race detector")
	}
	f := start(t, nil)
	f.tags.Join(&quietField{f.tags})
	c, _ := hotCall(t, f)
	body, buf := hotWrite(t), make([]byte, 0, 64<<10)
	if n := testing.AllocsPerRun(100, func() { buf = writeHot(t, f, c, body, buf) }); n > 100 { // the field's own batches
		t.Errorf("a Write of 100 numbers allocates %v times", n)
	}
}

func BenchmarkWrite100(b *testing.B) {
	f := start(b, nil)
	f.tags.Join(&quietField{f.tags})
	c, _ := hotCall(b, f)
	body, buf := hotWrite(b), make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		buf = writeHot(b, f, c, body, buf)
	}
}

func TestReadsBeyondTheLimitAreServedFromMemory(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.WaitingAll = 1 })
	p := f.login(t)
	f.tags.Publish([]tag.Sample{{Ref: f.ref(t, "boiler.counter"), Value: tag.Of(uint32(5)), At: tag.Now().Add(-time.Minute)}})
	f.nWait.Add(1) // as if a request waited
	defer f.nWait.Add(-1)
	v := p.read(&ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnServer, NodesToRead: []*ua.ReadValueID{value(plantID("boiler.counter"))}})[0]
	if v.Value.Value() != uint32(5) || time.Since(v.ServerTimestamp) < 50*time.Second || f.field.readings != 0 {
		t.Errorf("%v of %v, %d readings", v.Value, v.ServerTimestamp, f.field.readings)
	}
	if _, code := p.call(writeOf("boiler.code", int16(1))); code != statusBadServerTooBusy {
		t.Errorf("a write: %v", code)
	}
}

func TestServerObject(t *testing.T) {
	f := start(t, func(c *Config) { c.Subscription.Queue = 77 })
	p := f.login(t)
	for node, want := range map[uint32]any{
		id.Server_ServerArray: []string{appURI}, id.Server_NamespaceArray: []string{address.URIOfUA, appURI, address.URIOfPlant},
		id.Server_ServiceLevel: uint8(255), id.Server_Auditing: false, id.Server_ServerStatus_BuildInfo_ProductName: "edged",
		id.Server_ServerCapabilities_MaxBrowseContinuationPoints: uint16(50), id.Server_ServerCapabilities_MinSupportedSampleRate: 0.0,
		id.Server_ServerCapabilities_MaxMonitoredItemsQueueSize: uint32(77), id.Server_ServerCapabilities_MaxSessions: uint32(100),
		id.Server_ServerCapabilities_LocaleIDArray: []string{"en"}, id.Server_ServerDiagnostics_EnabledFlag: true,
		id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CurrentSessionCount: uint32(1),
	} {
		v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(ua.NewNumericNodeID(0, node))}})[0]
		if v.Status != ua.StatusGood || fmt.Sprint(v.Value.Value()) != fmt.Sprint(want) {
			t.Errorf("i=%d: %v %v, want %v", node, v.Status, v.Value, want)
		}
	}
	v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{
		value(ua.NewNumericNodeID(0, id.Server_ServerStatus)), value(ua.NewNumericNodeID(0, id.Server_ServerDiagnostics_ServerDiagnosticsSummary)),
		value(ua.NewNumericNodeID(0, id.Server_ServerStatus_CurrentTime)), value(ua.NewNumericNodeID(0, id.Server_ServerStatus_BuildInfo)),
	}})
	status := v[0].Value.Value().(*ua.ExtensionObject).Value.(*ua.ServerStatusDataType)
	if status.State != ua.ServerStateRunning || status.BuildInfo.ProductName != "edged" || time.Since(status.StartTime) > time.Minute || time.Since(status.CurrentTime) > time.Minute {
		t.Errorf("ServerStatus %+v", status)
	}
	if sum := v[1].Value.Value().(*ua.ExtensionObject).Value.(*ua.ServerDiagnosticsSummaryDataType); sum.CurrentSessionCount != 1 || sum.CumulatedSessionCount != 1 {
		t.Errorf("summary %+v", sum)
	}
	if at := v[2].Value.Value().(time.Time); time.Since(at) > time.Minute {
		t.Errorf("CurrentTime %v", at)
	}
	if b := v[3].Value.Value().(*ua.ExtensionObject).Value.(*ua.BuildInfo); b.SoftwareVersion != "0" {
		t.Errorf("BuildInfo %+v", b)
	}
}
