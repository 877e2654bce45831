package uaserver

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/uatest"
	"edged/uaserver/wire"
)

// testLog is a history in memory.
type testLog struct {
	mu      sync.Mutex
	samples map[tag.Ref][]tag.Sample // by time
	fail    error
	reads   int
}

func (l *testLog) Oldest() tag.Time { return second(-7) }

func (l *testLog) Read(ref tag.Ref, from, to time.Time, after []byte, limit int, dst []tag.Sample) ([]tag.Sample, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if l.fail != nil {
		return dst, nil, l.fail
	}
	a, b := tag.TimeOf(from), tag.TimeOf(to)
	var found []tag.Sample
	for _, v := range l.samples[ref] {
		switch {
		case from.After(to):
			if v.At <= a && (v.At > b || to.IsZero()) {
				found = append(found, v)
			}
		case v.At >= a && (v.At < b || v.At == a && a == b):
			found = append(found, v)
		}
	}
	if from.After(to) {
		slices.Reverse(found)
	}
	skip := 0
	if after != nil {
		skip = int(binary.LittleEndian.Uint32(after))
	}
	found = found[skip:]
	if len(found) > limit {
		return append(dst, found[:limit]...), binary.LittleEndian.AppendUint32(nil, uint32(skip+limit)), nil
	}
	return append(dst, found...), nil, nil
}

var historyDefs = []tag.Def{
	{Device: "boiler", Name: "level", Kind: tag.Float64, Access: tag.Readable, History: true},
	{Device: "boiler", Name: "text", Kind: tag.String, Access: tag.Readable, History: true},
	{Device: "boiler", Name: "curve", Kind: tag.Int16, Len: 4, Access: tag.Readable, History: true},
	{Device: "boiler", Name: "forgotten", Kind: tag.Float64, Access: tag.Readable},
}

// second is a time of the day that the rows are about.
func second(n int) tag.Time {
	return tag.TimeOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second))
}

// withHistory has level at 10, 20, 30 (twice), 40 (Bad) and 50 s.
func withHistory(t testing.TB, change func(*Config)) *fixture {
	f := startWith(t, historyDefs, change)
	level := f.ref(t, "boiler.level")
	put := func(at int, value float64) {
		f.past.samples[level] = append(f.past.samples[level], tag.Sample{Ref: level, Value: tag.Of(value), At: second(at)})
	}
	put(10, 1)
	put(20, 2)
	put(30, 3)
	put(30, 3.5)
	f.past.samples[level] = append(f.past.samples[level], tag.Sample{Ref: level, Status: tag.BadNoCommunication, At: second(40)})
	put(50, 5)
	return f
}

func extension(v any) *ua.ExtensionObject { return ua.NewExtensionObject(v) }

func (p *peer) history(details any, nodes ...*ua.HistoryReadValueID) *ua.HistoryReadResponse {
	p.t.Helper()
	return must[*ua.HistoryReadResponse](p, &ua.HistoryReadRequest{HistoryReadDetails: extension(details), NodesToRead: nodes})
}

func historyOf(name string) *ua.HistoryReadValueID {
	return &ua.HistoryReadValueID{NodeID: plantID(name), DataEncoding: &ua.QualifiedName{}}
}

// historyText is values as rows have them: seconds, and the value or the name of the status.
func historyText(r *ua.HistoryReadResult) string {
	var out []string
	if r.HistoryData != nil && r.HistoryData.Value != nil {
		for _, v := range r.HistoryData.Value.(*ua.HistoryData).DataValues {
			at := tag.TimeOf(v.SourceTimestamp).Sub(second(0)).Seconds()
			text := fmt.Sprintf("%g=", at)
			if v.Value != nil && v.Value.Value() != nil {
				text += fmt.Sprint(v.Value.Value())
			}
			if v.Status != 0 {
				text += fmt.Sprintf("/%08X", uint32(v.Status))
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, " ")
}

// TestReadRaw: Part 11, 6.4.3, by the rows of its rules of time bounds.
func TestReadRaw(t *testing.T) {
	const bad40, no = "40=/80310000", "/80D70000"
	f := withHistory(t, nil)
	p := f.login(t)
	for _, row := range []struct {
		name       string
		start, end int // -1: not given
		number     uint32
		bounds     bool
		want       string
	}{
		{"the end is not included", 10, 30, 0, false, "10=1 20=2"},
		{"all of one time", 30, 30, 0, false, "30=3 30=3.5"},
		{"an outage is a value", 30, 60, 0, false, "30=3 30=3.5 " + bad40 + " 50=5"},
		{"backward", 50, 20, 0, false, "50=5 " + bad40 + " 30=3.5 30=3"},
		{"from a start", 20, -1, 2, false, "20=2 30=3"},
		{"from a start, more than there is", 30, -1, 9, false, "30=3 30=3.5 " + bad40 + " 50=5"},
		{"back from an end", -1, 40, 2, false, bad40 + " 30=3.5"},
		{"bounds are there", 10, 20, 0, true, "10=1 20=2"},
		{"bounds between values", 15, 25, 0, true, "10=1 20=2 30=3"},
		{"no bounds", 5, 60, 0, true, "5=" + no + " 10=1 20=2 30=3 30=3.5 " + bad40 + " 50=5 60=" + no},
		{"bounds backward", 45, 15, 0, true, "50=5 " + bad40 + " 30=3.5 30=3 20=2 10=1"},
		{"the bound of an open end", 45, -1, 9, true, bad40 + " 50=5 51=" + no},
		{"the bound of an open beginning", -1, 15, 9, true, "20=2 10=1 9=" + no},
		{"the bound counts", 15, -1, 1, true, "10=1"},
		{"nothing", 60, 70, 0, false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := &ua.ReadRawModifiedDetails{NumValuesPerNode: row.number, ReturnBounds: row.bounds}
			if row.start >= 0 {
				d.StartTime = second(row.start).Time()
			}
			if row.end >= 0 {
				d.EndTime = second(row.end).Time()
			}
			r := p.history(d, historyOf("boiler.level")).Results[0]
			if got := historyText(r); got != row.want || len(r.ContinuationPoint) > 0 {
				t.Errorf("%s %x, want %s", got, r.ContinuationPoint, row.want)
			}
			if want := ua.StatusCode(goodNoData); (r.StatusCode == want) != (row.want == "") {
				t.Errorf("status %v", r.StatusCode)
			}
			// The same one value an answer, as far as it is not the number that ends it.
			if row.number > 0 || row.want == "" {
				return
			}
			d.NumValuesPerNode = 1
			n := historyOf("boiler.level")
			var parts []string
			for range 20 {
				r = p.history(d, n).Results[0]
				if text := historyText(r); text != "" {
					parts = append(parts, text)
				}
				if n.ContinuationPoint = r.ContinuationPoint; len(r.ContinuationPoint) == 0 {
					break
				}
			}
			if got := strings.Join(parts, " "); got != row.want {
				t.Errorf("in pieces: %s, want %s", got, row.want)
			}
		})
	}
}

// TestReadAtTime: Part 11, 6.4.5, and Part 13, 3.1.8 and 3.1.9.
func TestReadAtTime(t *testing.T) {
	f := withHistory(t, nil)
	p := f.login(t)
	times := []time.Time{second(5).Time(), second(10).Time(), second(12).Time(), second(30).Time(), second(35).Time(),
		second(40).Time(), second(45).Time(), second(55).Time(), second(12).Time(), time.Now().Add(time.Hour)}
	for simple, want := range map[bool]string{
		false: "5=/809B0000 10=1 12=1/00000402 30=3.5 35=3.5/00000402 40=/80310000 45=3.5/40A40402 55=5/00000402 12=1/00000402",
		true:  "5=/809B0000 10=1 12=1/00000402 30=3.5 35=3.5/00000402 40=/80310000 45=/809B0000 55=5/00000402 12=1/00000402",
	} {
		r := p.history(&ua.ReadAtTimeDetails{ReqTimes: times, UseSimpleBounds: simple}, historyOf("boiler.level")).Results[0]
		got, future, _ := strings.Cut(historyText(r), " "+fmt.Sprintf("%g", tag.TimeOf(times[9]).Sub(second(0)).Seconds())+"=")
		if got != want || future != "5/40A40402" {
			t.Errorf("simple %v: %s and %s, want %s", simple, got, future, want)
		}
	}
	r := p.history(&ua.ReadAtTimeDetails{}, historyOf("boiler.level")).Results[0]
	if r.StatusCode != ua.StatusCode(goodNoData) {
		t.Errorf("no times: %v", r.StatusCode)
	}
}

// TestReadAtTimeLooksFarBack: the last good value is found behind more bad ones than one page has, and times that follow
// each other are found in one page.
func TestReadAtTimeLooksFarBack(t *testing.T) {
	f := withHistory(t, nil)
	level := f.ref(t, "boiler.level")
	for i := range 200 {
		f.past.samples[level] = append(f.past.samples[level], tag.Sample{Ref: level, Status: tag.BadNoCommunication, At: second(100 + i)})
	}
	p := f.login(t)
	d := &ua.ReadAtTimeDetails{}
	for i := range 50 {
		d.ReqTimes = append(d.ReqTimes, second(250).Add(time.Duration(i)*time.Millisecond+500*time.Millisecond).Time())
	}
	r := p.history(d, historyOf("boiler.level")).Results[0]
	if got := strings.Fields(historyText(r)); len(got) != 50 || got[0] != "250.5=5/40A40402" {
		t.Errorf("%d values, the first %s", len(got), got[0])
	}
	if f.past.reads > 10 {
		t.Errorf("%d reads", f.past.reads)
	}
}

// TestHistoryRefusals: the codes of Part 11, 6.4, and Part 4, 5.11.3.
func TestHistoryRefusals(t *testing.T) {
	f := withHistory(t, func(c *Config) { c.Limits.HistoryNodes = 20 })
	p := f.login(t)
	raw := &ua.ReadRawModifiedDetails{StartTime: second(0).Time(), EndTime: second(60).Time()}
	with := func(change func(*ua.HistoryReadValueID)) *ua.HistoryReadValueID {
		n := historyOf("boiler.level")
		change(n)
		return n
	}
	for _, row := range []struct {
		name    string
		details any
		node    *ua.HistoryReadValueID
		want    uint32
	}{
		{"unknown", raw, historyOf("boiler.nothing"), 0x80340000},
		{"no history", raw, historyOf("boiler.forgotten"), 0x80720000},
		{"no variable", raw, historyOf("boiler"), 0x80720000},
		{"its property", raw, &ua.HistoryReadValueID{NodeID: ua.NewNumericNodeID(0, id.Server_ServerStatus_State), DataEncoding: &ua.QualifiedName{}}, 0x80720000},
		{"modified values", &ua.ReadRawModifiedDetails{IsReadModified: true, StartTime: second(0).Time(), EndTime: second(60).Time()}, historyOf("boiler.level"), 0x80720000},
		{"a start alone", &ua.ReadRawModifiedDetails{StartTime: second(0).Time()}, historyOf("boiler.level"), 0x80710000},
		{"a number alone", &ua.ReadRawModifiedDetails{NumValuesPerNode: 3}, historyOf("boiler.level"), 0x80710000},
		{"aggregates", &ua.ReadProcessedDetails{AggregateConfiguration: &ua.AggregateConfiguration{}}, historyOf("boiler.level"), 0x80720000},
		{"aggregates of nothing", &ua.ReadProcessedDetails{AggregateConfiguration: &ua.AggregateConfiguration{}}, historyOf("boiler.nothing"), 0x80340000},
		{"events", &ua.ReadEventDetails{Filter: &ua.EventFilter{WhereClause: &ua.ContentFilter{}}}, historyOf("boiler"), 0x80720000},
		{"a range that is none", raw, with(func(n *ua.HistoryReadValueID) { n.IndexRange = "3:1" }), 0x80360000},
		{"an encoding that is none", raw, with(func(n *ua.HistoryReadValueID) { n.DataEncoding = &ua.QualifiedName{Name: "Morse"} }), 0x80380000},
		{"JSON", raw, with(func(n *ua.HistoryReadValueID) { n.DataEncoding = &ua.QualifiedName{Name: "Default JSON"} }), 0x80390000},
		{"a point that is none", raw, with(func(n *ua.HistoryReadValueID) { n.ContinuationPoint = make([]byte, 16) }), 0x804A0000},
	} {
		if r := p.history(row.details, row.node).Results[0]; r.StatusCode != ua.StatusCode(row.want) {
			t.Errorf("%s: %v", row.name, r.StatusCode)
		}
	}
	f.past.fail = fmt.Errorf("no such disk")
	if r := p.history(raw, historyOf("boiler.level")).Results[0]; r.StatusCode != ua.StatusBadResourceUnavailable {
		t.Errorf("a disk that fails: %v", r.StatusCode)
	}
	f.past.fail = nil
	for _, row := range []struct {
		name string
		req  *ua.HistoryReadRequest
		want uint32
	}{
		{"nothing", &ua.HistoryReadRequest{HistoryReadDetails: extension(raw)}, 0x800F0000},
		{"too many", &ua.HistoryReadRequest{HistoryReadDetails: extension(raw), NodesToRead: slices.Repeat([]*ua.HistoryReadValueID{historyOf("boiler.level")}, 21)}, 0x80100000},
		{"no times", &ua.HistoryReadRequest{HistoryReadDetails: extension(raw), TimestampsToReturn: 3, NodesToRead: []*ua.HistoryReadValueID{historyOf("boiler.level")}}, 0x802B0000},
		{"no details", &ua.HistoryReadRequest{NodesToRead: []*ua.HistoryReadValueID{historyOf("boiler.level")}}, 0x80710000},
	} {
		if _, code := p.call(row.req); code != ua.StatusCode(row.want) {
			t.Errorf("%s: %v", row.name, code)
		}
	}
	r := must[*ua.HistoryReadResponse](p, &ua.HistoryReadRequest{HistoryReadDetails: extension(raw), TimestampsToReturn: ua.TimestampsToReturnServer,
		NodesToRead: []*ua.HistoryReadValueID{historyOf("boiler.level")}})
	if r.Results[0].StatusCode != ua.StatusCode(badTimestampUnsupported) {
		t.Errorf("server times: %v", r.Results[0].StatusCode)
	}
}

// TestHistoryRights: who may not read a value may not read what it was (Part 3, 8.57, HistoryRead).
func TestHistoryRights(t *testing.T) {
	f := withHistory(t, func(c *Config) { c.Anonymous = address.MayBrowse })
	p := f.login(t)
	raw := &ua.ReadRawModifiedDetails{StartTime: second(0).Time(), EndTime: second(60).Time()}
	if r := p.history(raw, historyOf("boiler.level")).Results[0]; r.StatusCode != ua.StatusBadUserAccessDenied {
		t.Errorf("%v", r.StatusCode)
	}
}

// TestHistoryContinuation: Part 4, 7.9: points end, are released, and give way to those of later requests.
func TestHistoryContinuation(t *testing.T) {
	f := withHistory(t, func(c *Config) { c.Limits.HistoryContinuations = 2 })
	p := f.login(t)
	one := &ua.ReadRawModifiedDetails{StartTime: second(0).Time(), EndTime: second(60).Time(), NumValuesPerNode: 1}
	again := func(point []byte) *ua.HistoryReadResult {
		n := historyOf("boiler.level")
		n.ContinuationPoint = point
		return p.history(one, n).Results[0]
	}
	first := p.history(one, historyOf("boiler.level")).Results[0].ContinuationPoint
	if r := again(first); historyText(r) != "20=2" {
		t.Errorf("the second value: %s", historyText(r))
	}
	if r := again(first); r.StatusCode != ua.StatusBadContinuationPointInvalid {
		t.Errorf("a point that was used: %v", r.StatusCode)
	}
	r := p.history(one, historyOf("boiler.level"), historyOf("boiler.level"), historyOf("boiler.level"))
	if r.Results[1].StatusCode != ua.StatusGood || r.Results[2].StatusCode != ua.StatusBadNoContinuationPoints {
		t.Errorf("three at once: %v %v", r.Results[1].StatusCode, r.Results[2].StatusCode)
	}
	n := historyOf("boiler.level")
	n.ContinuationPoint = r.Results[0].ContinuationPoint
	released := must[*ua.HistoryReadResponse](p, &ua.HistoryReadRequest{HistoryReadDetails: extension(one), ReleaseContinuationPoints: true,
		NodesToRead: []*ua.HistoryReadValueID{n, n}})
	if released.Results[0].StatusCode != ua.StatusGood || released.Results[1].StatusCode != ua.StatusBadContinuationPointInvalid {
		t.Errorf("released: %v, again %v", released.Results[0].StatusCode, released.Results[1].StatusCode)
	}
	other := f.login(t)
	n.ContinuationPoint = r.Results[1].ContinuationPoint
	if r := other.history(one, n).Results[0]; r.StatusCode != ua.StatusBadContinuationPointInvalid {
		t.Errorf("another session's point: %v", r.StatusCode)
	}
	if r := again(n.ContinuationPoint); historyText(r) != "20=2" {
		t.Errorf("its own: %s", historyText(r))
	}
}

// TestHistoryOfTextsAndArrays: an answer is cut to what the client takes, whatever the size of the values, and an
// IndexRange cuts each of them.
func TestHistoryOfTextsAndArrays(t *testing.T) {
	f := withHistory(t, nil)
	text, curve := f.ref(t, "boiler.text"), f.ref(t, "boiler.curve")
	for i := range 300 {
		f.past.samples[text] = append(f.past.samples[text], tag.Sample{Ref: text, Value: tag.Of(strings.Repeat("x", i*i%5000)), At: second(i)})
	}
	f.past.samples[curve] = []tag.Sample{{Ref: curve, Value: tag.OfSlice([]int16{1, 2, 3, 4}), At: second(1)}, {Ref: curve, Value: tag.OfSlice([]int16{5}), At: second(2)}}
	p := f.dial(t, func(o *uatest.Options) { o.MaxSize = 64 << 10 })
	p.create()
	must[*ua.ActivateSessionResponse](p, activateRequest(anonymous()))
	raw := &ua.ReadRawModifiedDetails{StartTime: second(0).Time(), EndTime: second(400).Time()}
	n, got, answers := historyOf("boiler.text"), 0, 0
	for {
		r := p.history(raw, n).Results[0]
		for _, v := range r.HistoryData.Value.(*ua.HistoryData).DataValues {
			if len(v.Value.Value().(string)) != got*got%5000 {
				t.Fatalf("value %d has %d characters", got, len(v.Value.Value().(string)))
			}
			got++
		}
		answers++
		if n.ContinuationPoint = r.ContinuationPoint; len(r.ContinuationPoint) == 0 {
			break
		}
	}
	if got != 300 || answers < 10 {
		t.Errorf("%d values in %d answers", got, answers)
	}
	ranged := historyOf("boiler.curve")
	ranged.IndexRange = "1:2"
	if got := historyText(p.history(raw, ranged).Results[0]); got != "1=[2 3] 2=/80370000" {
		t.Errorf("a range: %s", got)
	}
}

// TestHistoricalNodes: what Part 11, 5.2 and 5.4 has a client find.
func TestHistoricalNodes(t *testing.T) {
	f := withHistory(t, nil)
	p := f.login(t)
	read := func(node *ua.NodeID, a ua.AttributeID) any {
		v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{{NodeID: node, AttributeID: a, DataEncoding: &ua.QualifiedName{}}}})[0]
		if v.Status != ua.StatusGood {
			t.Errorf("%s: %v", node, v.Status)
			return nil
		}
		return v.Value.Value()
	}
	for name, want := range map[string]bool{"boiler.level": true, "boiler.forgotten": false} {
		if got := read(plantID(name), ua.AttributeIDHistorizing); got != want {
			t.Errorf("%s: Historizing %v", name, got)
		}
		if got := read(plantID(name), ua.AttributeIDUserAccessLevel).(uint8)&4 != 0; got != want {
			t.Errorf("%s: HistoryRead %v", name, got)
		}
	}
	refs := must[*ua.BrowseResponse](p, &ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, NodesToBrowse: []*ua.BrowseDescription{{
		NodeID: plantID("boiler.level"), ReferenceTypeID: ua.NewNumericNodeID(0, id.HasHistoricalConfiguration), ResultMask: 63,
	}}}).Results[0].References
	if len(refs) != 1 || refs[0].BrowseName.Name != "HA Configuration" {
		t.Fatalf("HasHistoricalConfiguration: %v", refs)
	}
	for name, want := range map[string]any{
		"Stepped": true, "StartOfArchive": second(-7).Time(), "StartOfOnlineArchive": second(-7).Time(), "AggregateConfiguration.TreatUncertainAsBad": false,
	} {
		if got := read(ua.NewStringNodeID(2, "$history."+name), ua.AttributeIDValue); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := read(ua.NewNumericNodeID(0, id.HistoryServerCapabilities_AccessHistoryDataCapability), ua.AttributeIDValue); got != true {
		t.Errorf("AccessHistoryDataCapability %v", got)
	}
	if got := read(ua.NewNumericNodeID(0, id.HistoryServerCapabilities_ServerTimestampSupported), ua.AttributeIDValue); got != false {
		t.Errorf("ServerTimestampSupported %v", got)
	}
}

// TestHistoryWaitsApart: a disk that stands still does not keep the connection from answering.
func TestHistoryWaitsApart(t *testing.T) {
	f := withHistory(t, nil)
	p := f.login(t)
	f.past.mu.Lock()
	raw := &ua.ReadRawModifiedDetails{StartTime: second(0).Time(), EndTime: second(60).Time()}
	p.post(&ua.HistoryReadRequest{HistoryReadDetails: extension(raw), NodesToRead: []*ua.HistoryReadValueID{historyOf("boiler.level")}})
	if v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.level"))}})[0]; v.Status != ua.StatusGood {
		t.Errorf("Read meanwhile: %v", v.Status)
	}
	f.past.mu.Unlock()
	m, err := p.Receive()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := uatest.Decode(m.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := historyText(answer.(*ua.HistoryReadResponse).Results[0]); !strings.HasPrefix(got, "10=1 20=2") {
		t.Errorf("the history: %s", got)
	}
}

// ramp is a history of one tag without an end: a value a second.
type ramp struct{ testLog }

func (r *ramp) ReadHistory(_ context.Context, q address.HistoryQuery) (page address.HistoryPage, _ error) {
	for range q.Limit {
		q.Room = append(q.Room, tag.Sample{Value: tag.Of(1.5), At: second(1)})
	}
	return address.HistoryPage{Samples: q.Room, Next: []byte{1}}, nil
}

// BenchmarkHistoryEncode is what a sample costs between the store and the socket.
func BenchmarkHistoryEncode(b *testing.B) {
	it := historyItem{history: &ramp{}, raw: rawRead{from: 1, to: 2}}
	h := &historyReading{s: &Server{cfg: Config{Limits: Limits{HistoryContinuations: 10}}}, client: &client{}}
	var page []tag.Sample
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		h.results = h.results[:0]
		h.request++
		page = h.readItem(b.Context(), &it, 700<<10, page)
		r := wire.NewReader(h.results[4+4+pointSize+4+1+4:])
		n += int(r.Uint32())
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "samples/s")
}
