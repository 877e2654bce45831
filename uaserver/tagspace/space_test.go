package tagspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
	"go.uber.org/goleak"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// said is a Definer that says one thing.
type said string

func (s said) Definition(uint32) string { return string(s) }

var defs = []tag.Def{
	{Device: "boiler", Name: "temperature", Kind: tag.Float32, Access: tag.Readable, Unit: "°C", HasRange: true, Low: 0, High: 150,
		Description: "of the water", How: said("holding:0"), Poll: 100 * time.Millisecond},
	{Device: "boiler", Name: "setpoint", Kind: tag.Float64, Access: tag.Readable | tag.Writable, HasRange: true, Low: 0, High: 120},
	{Device: "boiler", Name: "code", Kind: tag.Int16, Access: tag.Readable | tag.Writable},
	{Device: "boiler", Name: "zone.1.level", Kind: tag.Uint16, Access: tag.Readable, Unit: "furlong"},
	{Device: "boiler", Name: "zone.2.level", Kind: tag.Uint16, Access: tag.Readable},
	{Device: "boiler", Name: "curve", Kind: tag.Int16, Len: 5, Access: tag.Readable | tag.Writable, HasRange: true, Low: -10, High: 10},
	{Device: "boiler", Name: "reset", Kind: tag.Bool, Access: tag.Writable},
	{Device: "boiler", Name: "program", Kind: tag.Uint8, Len: 4, Access: tag.Writable},
	{Device: "boiler", Name: "label", Kind: tag.String, Access: tag.Readable | tag.Writable},
	{Device: "scratch", Name: "m0", Kind: tag.Float64, Access: tag.Readable | tag.Writable, Memory: true},
}

// field is a field side that does what it is told: commands get a status, and readable tags a confirming reading.
type field struct {
	mu       sync.Mutex
	sink     tag.Sink
	refuse   tag.Status // of every command, if not Good
	executed [][]tag.Command
	readings int
	block    chan struct{} // Refresh waits for it, if not nil
	table    *tag.Table
	values   map[tag.Ref]tag.Value
}

func (f *field) Execute(_ context.Context, cmds []tag.Command) {
	f.mu.Lock()
	f.executed = append(f.executed, slices.Clone(cmds))
	refuse := f.refuse
	f.mu.Unlock()
	for i := range cmds {
		c := &cmds[i]
		if c.Status = refuse; refuse != tag.Good || f.table.Tag(c.Ref).Access&tag.Readable == 0 {
			continue
		}
		v := tag.Sample{Ref: c.Ref, Value: c.Value, Status: c.Put, At: c.At}
		if v.At == 0 {
			v.At = tag.Now()
		}
		if !c.Part {
			f.sink.Publish([]tag.Sample{v})
		}
	}
}

func (f *field) Refresh(ctx context.Context, refs []tag.Ref) tag.Status {
	f.mu.Lock()
	f.readings++
	block := f.block
	f.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return tag.BadTimeout
		}
	}
	for _, ref := range refs {
		f.sink.Publish([]tag.Sample{{Ref: ref, Value: f.values[ref], At: tag.Now()}})
	}
	return tag.Good
}

func (f *field) Operate(context.Context, string, tag.Op) tag.Status { return tag.BadNotSupported }

type plantT struct {
	*Space
	space *address.Space
	table *tag.Table
	field *field
}

func newPlant(t testing.TB) *plantT {
	t.Helper()
	return newPlantOf(t, defs)
}

func newPlantOf(t testing.TB, defs []tag.Def) *plantT {
	t.Helper()
	space, err := address.New("urn:test")
	if err != nil {
		t.Fatal(err)
	}
	table, err := tag.NewTable(defs)
	if err != nil {
		t.Fatal(err)
	}
	state := func(device string) DeviceState {
		return DeviceState{State: 2, Requests: 7, Errors: 3, LastError: device + ": mute", Latency: 1500 * time.Microsecond, LastGood: 42, Model: "M1"}
	}
	s, err := New(Config{Table: table, Address: space, State: state, Devices: []Device{{Name: "scratch", Description: "memory"}}})
	if err != nil {
		t.Fatal(err)
	}
	f := &field{sink: s, table: table, values: map[tag.Ref]tag.Value{}}
	s.Join(f)
	t.Cleanup(s.Close)
	return &plantT{s, space, table, f}
}

func (p *plantT) node(t testing.TB, name string) *address.Node {
	t.Helper()
	n := p.space.Find(wire.TextID(address.NamespacePlant, name))
	if n == nil {
		t.Fatalf("no node %s", name)
	}
	return n
}

func (p *plantT) read(t testing.TB, name, rng string) wire.DataValue {
	t.Helper()
	items := []address.ReadItem{{Node: p.node(t, name), Attribute: ua.AttributeIDValue, Range: rng}}
	p.space.Read(context.Background(), address.MayRead, items)
	return items[0].Result
}

func (p *plantT) ref(t testing.TB, name string) tag.Ref {
	t.Helper()
	ref, ok := p.table.Lookup(name)
	if !ok {
		t.Fatalf("no tag %s", name)
	}
	return ref
}

// tree lists what is below a node by hierarchical references, indented, with types.
func (p *plantT) tree(n *address.Node, depth int, out *[]string) {
	p.space.References(n, func(kind *address.Node, inverse bool, target *address.Node) bool {
		if inverse || !p.space.IsSubtype(kind.ID, wire.NumericID(0, id.HierarchicalReferences)) {
			return true
		}
		line := fmt.Sprintf("%s%s %s %s", strings.Repeat(" ", depth), kind.BrowseName, target.ID, target.BrowseName)
		if d := target.TypeDefinition(); d != nil {
			line += " " + d.BrowseName
		}
		*out = append(*out, line)
		p.tree(target, depth+1, out)
		return true
	})
}

func TestNodes(t *testing.T) {
	p := newPlant(t)
	var lines []string
	p.tree(p.node(t, "Devices"), 0, &lines)
	const states = ` HasProperty ns=2;s=DEV.$NodeVersion NodeVersion PropertyType
 HasComponent ns=2;s=DEV.$id $id BaseObjectType
  HasProperty ns=2;s=DEV.$id.Manufacturer Manufacturer PropertyType
  HasProperty ns=2;s=DEV.$id.Model Model PropertyType
  HasProperty ns=2;s=DEV.$id.SoftwareRevision SoftwareRevision PropertyType
 HasComponent ns=2;s=DEV.$state $state BaseDataVariableType
 HasComponent ns=2;s=DEV.$lastGood $lastGood BaseDataVariableType
 HasComponent ns=2;s=DEV.$requests $requests BaseDataVariableType
 HasComponent ns=2;s=DEV.$errors $errors BaseDataVariableType
 HasComponent ns=2;s=DEV.$lastError $lastError BaseDataVariableType
 HasComponent ns=2;s=DEV.$latency $latency BaseDataVariableType
 HasComponent ns=2;s=DEV.$Poll $Poll
 HasComponent ns=2;s=DEV.$ResetCounters $ResetCounters
 HasComponent ns=2;s=DEV.$Disable $Disable
 HasComponent ns=2;s=DEV.$Enable $Enable
`
	want := `HasProperty ns=2;s=Devices.$NodeVersion NodeVersion PropertyType
Organizes ns=2;s=scratch scratch BaseObjectType
` + strings.ReplaceAll(states, "DEV", "scratch") + ` HasComponent ns=2;s=scratch.m0 m0 DataItemType
Organizes ns=2;s=boiler boiler BaseObjectType
` + strings.ReplaceAll(states, "DEV", "boiler") + ` HasComponent ns=2;s=boiler.temperature temperature AnalogUnitRangeType
  HasProperty ns=2;s=boiler.temperature.$EURange EURange PropertyType
  HasProperty ns=2;s=boiler.temperature.$EngineeringUnits EngineeringUnits PropertyType
  HasProperty ns=2;s=boiler.temperature.$Definition Definition PropertyType
 HasComponent ns=2;s=boiler.setpoint setpoint AnalogItemType
  HasProperty ns=2;s=boiler.setpoint.$EURange EURange PropertyType
 HasComponent ns=2;s=boiler.code code DataItemType
 HasComponent ns=2;s=boiler.zone zone FolderType
  HasComponent ns=2;s=boiler.zone.1 1 FolderType
   HasComponent ns=2;s=boiler.zone.1.level level AnalogUnitType
    HasProperty ns=2;s=boiler.zone.1.level.$EngineeringUnits EngineeringUnits PropertyType
  HasComponent ns=2;s=boiler.zone.2 2 FolderType
   HasComponent ns=2;s=boiler.zone.2.level level DataItemType
 HasComponent ns=2;s=boiler.curve curve AnalogItemType
  HasProperty ns=2;s=boiler.curve.$EURange EURange PropertyType
 HasComponent ns=2;s=boiler.reset reset DataItemType
 HasComponent ns=2;s=boiler.program program DataItemType
 HasComponent ns=2;s=boiler.label label DataItemType`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("tree:\n%s\nwant:\n%s", got, want)
	}
	n := p.node(t, "boiler.curve")
	if n.Rank != 1 || len(n.Dims()) != 1 || n.Dims()[0] != 5 || n.DataType != wire.NumericID(0, id.Int16) {
		t.Errorf("curve: rank %d, dimensions %v, type %s", n.Rank, n.Dims(), n.DataType)
	}
	if n := p.node(t, "boiler.temperature"); n.MinSampling != 100 || n.Description() != "of the water" || n.Access != ua.AccessLevelTypeCurrentRead {
		t.Errorf("temperature: %+v", n)
	}
	units := p.read(t, "boiler.temperature.$EngineeringUnits", "").Value.Bytes()
	if !strings.Contains(string(units), "°C") || !strings.Contains(string(units), string(wire.AppendUint32(nil, 4408652))) {
		t.Errorf("EngineeringUnits %x", units)
	}
}

func TestDeviceState(t *testing.T) {
	p := newPlant(t)
	for name, want := range map[string]tag.Value{
		"boiler.$state": tag.Of(int32(2)), "boiler.$lastGood": tag.Of(tag.Time(42)), "boiler.$requests": tag.Of(uint64(7)),
		"boiler.$errors": tag.Of(uint64(3)), "boiler.$lastError": tag.Of("boiler: mute"), "boiler.$latency": tag.Of(1.5),
		"scratch.$lastError": tag.Of("scratch: mute"), "boiler.$id.Model": tag.Of("M1"),
	} {
		if v := p.read(t, name, ""); !v.Value.Equal(want) || v.Status != tag.Good || v.Source == 0 {
			t.Errorf("%s: %v %v, want %v", name, v.Value, v.Status, want)
		}
	}
	if v := p.read(t, "boiler.$id.Manufacturer", ""); v.Status != tag.BadWaitingForInitialData || !v.Value.IsNull() || v.Server == 0 {
		t.Errorf("a manufacturer that is not known: %v", v)
	}
	n := p.node(t, "boiler.$state")
	if !p.space.IsSubtype(n.DataType, wire.NumericID(0, id.Enumeration)) {
		t.Errorf("$state has the type %s, which is no enumeration", n.DataType)
	}
	if v := p.read(t, "$DeviceState.$EnumStrings", "1"); !strings.Contains(string(v.Value.Bytes()), "online") {
		t.Errorf("EnumStrings: %v", v)
	}
	if p.Series(n) != nil {
		t.Error("a state node has a series")
	}
}

func TestPublish(t *testing.T) {
	p := newPlant(t)
	ref := p.ref(t, "boiler.temperature")
	series := p.Series(p.node(t, "boiler.temperature"))
	if series == nil {
		t.Fatal("no series")
	}
	v := p.read(t, "boiler.temperature", "")
	if v.Status != tag.BadWaitingForInitialData || !v.Value.IsNull() || v.Source == 0 {
		t.Errorf("before any answer: %+v", v)
	}
	steps := []struct {
		name           string
		status         tag.Status
		value          float32
		at             tag.Time
		source, server tag.Time
		null           bool
	}{
		{"first", tag.Good, 20, 100, 100, 100, false},
		{"7.11.3 unchanged keeps the SourceTimestamp", tag.Good, 20, 200, 100, 200, false},
		{"changed", tag.Good, 21, 300, 300, 300, false},
		{"D12 an outage has no value", tag.BadNoCommunication, 21, 400, 400, 400, true},
		{"still out", tag.BadNoCommunication, 21, 500, 400, 500, true},
		{"back with the same value", tag.Good, 21, 600, 600, 600, false},
		{"held", tag.UncertainNoCommunicationLastUsableValue, 21, 700, 700, 700, false},
	}
	for _, st := range steps {
		p.Publish([]tag.Sample{{Ref: ref, Status: st.status, Value: tag.Of(st.value), At: st.at}, {Ref: 9999}, {Ref: 0}})
		v := p.read(t, "boiler.temperature", "")
		if v.Status != st.status || v.Source != st.source || v.Server != st.server || v.Value.IsNull() != st.null {
			t.Errorf("%s: %+v", st.name, v)
		}
		if !st.null && !v.Value.Equal(tag.Of(st.value)) {
			t.Errorf("%s: value %v", st.name, v.Value)
		}
	}
	if last, verified, ok := p.Last(ref); !ok || last.At != 700 || verified != 700 {
		t.Errorf("last %v %v", last, verified)
	}
	if _, _, ok := p.Last(9999); ok {
		t.Error("a tag that is not there has a value")
	}
}

func TestReadRange(t *testing.T) {
	p := newPlant(t)
	p.Publish([]tag.Sample{{Ref: p.ref(t, "boiler.curve"), Value: tag.OfSlice([]int16{1, 2, 3, 4, 5}), At: 1}})
	for _, row := range []struct {
		rng    string
		want   []int16
		status tag.Status
	}{
		{"", []int16{1, 2, 3, 4, 5}, tag.Good},
		{"2", []int16{3}, tag.Good},
		{"2:4", []int16{3, 4, 5}, tag.Good},
		{"9", nil, tag.BadIndexRangeNoData},
		{"x", nil, tag.BadIndexRangeInvalid},
		{"3:1", nil, tag.BadIndexRangeInvalid},
	} {
		v := p.read(t, "boiler.curve", row.rng)
		got, _ := tag.Slice[int16](v.Value)
		if v.Status != row.status || !slices.Equal(got, row.want) {
			t.Errorf("A12 %q: %v %v", row.rng, got, v.Status)
		}
	}
	if v := p.read(t, "boiler.temperature", "1"); v.Status != tag.BadWaitingForInitialData {
		t.Errorf("a range of what is not there: %v", v.Status)
	}
}

func TestWrite(t *testing.T) {
	p := newPlant(t)
	const everything = address.MayRead | address.MayWrite
	rows := []struct {
		name   string
		tag    string
		rng    string
		value  wire.DataValue
		rights address.Rights
		want   tag.Status
	}{
		{"A11 exact type", "boiler.code", "", wire.DataValue{Value: tag.Of(int16(5))}, everything, tag.Good},
		{"A11 Int32 to Int16", "boiler.code", "", wire.DataValue{Value: tag.Of(int32(5))}, everything, tag.BadTypeMismatch},
		{"A11 Int32 70000", "boiler.code", "", wire.DataValue{Value: tag.Of(int32(70000))}, everything, tag.BadTypeMismatch},
		{"A11 text", "boiler.code", "", wire.DataValue{Value: tag.Of("5")}, everything, tag.BadTypeMismatch},
		{"A11 array", "boiler.code", "", wire.DataValue{Value: tag.OfSlice([]int16{5})}, everything, tag.BadTypeMismatch},
		{"null", "boiler.code", "", wire.DataValue{}, everything, tag.BadTypeMismatch},
		{"A10 read only", "boiler.temperature", "", wire.DataValue{Value: tag.Of(float32(5))}, everything, tag.BadNotWritable},
		{"A10 wrong user", "boiler.code", "", wire.DataValue{Value: tag.Of(int16(5))}, address.MayRead, tag.BadUserAccessDenied},
		{"A10 a SourceTimestamp", "boiler.code", "", wire.DataValue{Value: tag.Of(int16(5)), Source: 5}, everything, tag.BadWriteNotSupported},
		{"A10 a status", "boiler.code", "", wire.DataValue{Value: tag.Of(int16(5)), Status: tag.BadOutOfRange}, everything, tag.BadWriteNotSupported},
		{"A10 a ServerTimestamp", "scratch.m0", "", wire.DataValue{Value: tag.Of(5.0), Server: 5}, everything, tag.BadWriteNotSupported},
		{"above the range", "boiler.setpoint", "", wire.DataValue{Value: tag.Of(121.0)}, everything, tag.BadOutOfRange},
		{"on the limit", "boiler.setpoint", "", wire.DataValue{Value: tag.Of(120.0)}, everything, tag.Good},
		{"A12 whole array", "boiler.curve", "", wire.DataValue{Value: tag.OfSlice([]int16{1, 2, 3, 4, 5})}, everything, tag.Good},
		{"A12 a shorter array", "boiler.curve", "", wire.DataValue{Value: tag.OfSlice([]int16{1})}, everything, tag.BadTypeMismatch},
		{"A12 an element out of range", "boiler.curve", "", wire.DataValue{Value: tag.OfSlice([]int16{1, 2, 3, 4, 11})}, everything, tag.BadOutOfRange},
		{"A12 one element", "boiler.curve", "1", wire.DataValue{Value: tag.OfSlice([]int16{9})}, everything, tag.Good},
		{"A12 beyond the end", "boiler.curve", "5", wire.DataValue{Value: tag.OfSlice([]int16{9})}, everything, tag.BadIndexRangeNoData},
		{"A12 nonsense", "boiler.curve", "1:", wire.DataValue{Value: tag.OfSlice([]int16{9})}, everything, tag.BadIndexRangeInvalid},
		{"A12 length", "boiler.curve", "1:2", wire.DataValue{Value: tag.OfSlice([]int16{9})}, everything, badIndexRangeDataMismatch},
		{"A12 a scalar for an element", "boiler.curve", "1", wire.DataValue{Value: tag.Of(int16(9))}, everything, tag.BadTypeMismatch},
		{"A12 range of a scalar", "boiler.code", "1", wire.DataValue{Value: tag.OfSlice([]int16{9})}, everything, tag.BadIndexRangeNoData},
		{"range of a text", "boiler.label", "1", wire.DataValue{Value: tag.Of("x")}, everything, tag.BadWriteNotSupported},
		{"5.10.4 ByteString to Byte array", "boiler.program", "", wire.DataValue{Value: tag.OfBytes([]byte{1, 2, 3, 4})}, everything, tag.Good},
		{"state node", "boiler.$errors", "", wire.DataValue{Value: tag.Of(uint64(0))}, everything, tag.BadNotWritable},
	}
	for _, row := range rows {
		p.field.executed = nil
		items := []address.WriteItem{{Node: p.node(t, row.tag), Attribute: ua.AttributeIDValue, Range: row.rng, Value: row.value}}
		p.space.Write(context.Background(), row.rights, items)
		if items[0].Status != row.want {
			t.Errorf("%s: %v, want %v", row.name, items[0].Status, row.want)
		}
		if n := len(p.field.executed); n != 0 && row.want != tag.Good || n != 1 && row.want == tag.Good {
			t.Errorf("%s: %d batches reached the field", row.name, n)
		}
		if row.rng != "" && row.want == tag.Good {
			if c := p.field.executed[0][0]; !c.Part || c.From != 1 || c.Value.Len() != 1 {
				t.Errorf("%s: %+v", row.name, c)
			}
		}
	}
}

func TestWriteBatch(t *testing.T) {
	p := newPlant(t)
	item := func(name string, v tag.Value) address.WriteItem {
		return address.WriteItem{Node: p.node(t, name), Attribute: ua.AttributeIDValue, Value: wire.DataValue{Value: v}}
	}
	items := []address.WriteItem{
		item("boiler.code", tag.Of(int16(1))), item("boiler.setpoint", tag.Of(200.0)), item("boiler.reset", tag.Of(true)),
	}
	write := func() []tag.Status {
		p.space.Write(context.Background(), address.MayWrite, items)
		return []tag.Status{items[0].Status, items[1].Status, items[2].Status}
	}
	if got := write(); !slices.Equal(got, []tag.Status{tag.Good, tag.BadOutOfRange, tag.Good}) {
		t.Errorf("statuses %v", got)
	}
	if len(p.field.executed) != 1 || len(p.field.executed[0]) != 2 {
		t.Errorf("the good ones go in one batch: %v", p.field.executed)
	}
	p.field.refuse = tag.BadTimeout
	if got := write(); !slices.Equal(got, []tag.Status{tag.BadTimeout, tag.BadOutOfRange, tag.BadTimeout}) {
		t.Errorf("statuses %v", got)
	}
	p.Join(nil)
	if got := write(); got[0] != tag.BadNoCommunication {
		t.Errorf("without a field side: %v", got)
	}
}

func TestWriteOnly(t *testing.T) {
	p := newPlant(t)
	write := func(name, rng string, v tag.Value) tag.Status {
		items := []address.WriteItem{{Node: p.node(t, name), Attribute: ua.AttributeIDValue, Range: rng, Value: wire.DataValue{Value: v}}}
		p.space.Write(context.Background(), address.MayWrite, items)
		return items[0].Status
	}
	if v := p.read(t, "boiler.reset", ""); v.Status != tag.BadWaitingForInitialData {
		t.Errorf("before it was written: %v", v.Status)
	}
	write("boiler.reset", "", tag.Of(true))
	if v := p.read(t, "boiler.reset", ""); !v.Value.Equal(tag.Of(true)) || v.Status != tag.Good {
		t.Errorf("I7 reads back what was written: %+v", v)
	}
	p.field.refuse = tag.BadTimeout
	write("boiler.reset", "", tag.Of(false))
	if v := p.read(t, "boiler.reset", ""); !v.Value.Equal(tag.Of(true)) {
		t.Errorf("a write that failed is not kept: %+v", v)
	}
	p.field.refuse = tag.Good
	write("boiler.program", "1", tag.OfSlice([]uint8{9}))
	if v := p.read(t, "boiler.program", ""); v.Status != tag.BadWaitingForInitialData {
		t.Errorf("one element says nothing of the others: %+v", v)
	}
	write("boiler.program", "", tag.OfSlice([]uint8{1, 2, 3, 4}))
	write("boiler.program", "1:2", tag.OfSlice([]uint8{8, 9}))
	if v := p.read(t, "boiler.program", ""); !v.Value.Equal(tag.OfSlice([]uint8{1, 8, 9, 4})) {
		t.Errorf("elements replaced: %v", v.Value)
	}
}

func TestMemoryTag(t *testing.T) {
	p := newPlant(t)
	items := []address.WriteItem{{Node: p.node(t, "scratch.m0"), Attribute: ua.AttributeIDValue,
		Value: wire.DataValue{Value: tag.Of(1.0), Status: tag.UncertainNoCommunicationLastUsableValue, Source: 77}}}
	p.space.Write(context.Background(), address.MayWrite, items)
	if items[0].Status != tag.Good {
		t.Fatal(items[0].Status)
	}
	v := p.read(t, "scratch.m0", "")
	if v.Status != tag.UncertainNoCommunicationLastUsableValue || v.Source != 77 || v.Server <= 77 {
		t.Errorf("%+v", v)
	}
	if p.Waits(p.node(t, "scratch.m0")) || !p.Waits(p.node(t, "boiler.code")) || p.Waits(p.node(t, "boiler.$errors")) {
		t.Error("only a device is waited for")
	}
}

func TestHotPathAllocations(t *testing.T) {
	p := newPlant(t)
	ref := p.ref(t, "boiler.temperature")
	items := make([]address.ReadItem, 100)
	for i := range items {
		items[i] = address.ReadItem{Node: p.node(t, "boiler.temperature"), Attribute: ua.AttributeIDValue}
	}
	batch := []tag.Sample{{Ref: ref, Value: tag.Of(float32(1)), At: 1}}
	i := float32(0)
	if n := testing.AllocsPerRun(100, func() {
		p.space.Read(context.Background(), address.MayRead, items)
	}); n != 0 {
		t.Errorf("a read of 100 values allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		i++
		batch[0].Value, batch[0].At = tag.Of(i), tag.Time(i)
		p.Publish(batch)
	}); n != 0 {
		t.Errorf("a change allocates %v times", n)
	}
}

func BenchmarkPublishUnchanged(b *testing.B) {
	p := newPlant(b)
	batch := []tag.Sample{{Ref: p.ref(b, "boiler.temperature"), Value: tag.Of(float32(1)), At: 1}}
	b.ReportAllocs()
	for b.Loop() {
		p.Publish(batch)
	}
}

func BenchmarkRead100(b *testing.B) {
	p := newPlant(b)
	items := make([]address.ReadItem, 100)
	for i := range items {
		items[i] = address.ReadItem{Node: p.node(b, "boiler.temperature"), Attribute: ua.AttributeIDValue}
	}
	b.ReportAllocs()
	for b.Loop() {
		p.space.Read(context.Background(), address.MayRead, items)
	}
}

// TestPartsOfTexts of Part 4, 7.27: a memory tag's text is edited when the write is carried out, not when it came.
func TestPartsOfTexts(t *testing.T) {
	p := newPlantOf(t, []tag.Def{
		{Device: "scratch", Name: "note", Kind: tag.String, Access: tag.Readable | tag.Writable, Memory: true},
		{Device: "scratch", Name: "notes", Kind: tag.String, Len: 3, Access: tag.Readable | tag.Writable, Memory: true},
	})
	for _, row := range []struct {
		tag, rng  string
		part, old tag.Value
		want      tag.Value
		st        tag.Status
	}{
		{"scratch.note", "1:2", tag.Of("XY"), tag.Of("abcd"), tag.Of("aXYd"), tag.Good},
		{"scratch.note", "9", tag.Of("X"), tag.Of("abcd"), tag.Value{}, tag.BadIndexRangeNoData},
		{"scratch.note", "1:2", tag.Of("X"), tag.Of("abcd"), tag.Value{}, badIndexRangeDataMismatch},
		{"scratch.notes", "1,0", tag.OfSlice([]string{"X"}), tag.OfSlice([]string{"a", "bc", "d"}), tag.OfSlice([]string{"a", "Xc", "d"}), tag.Good},
	} {
		p.field.executed = nil
		items := []address.WriteItem{{Node: p.node(t, row.tag), Attribute: ua.AttributeIDValue, Range: row.rng, Value: wire.DataValue{Value: row.part}}}
		p.space.Write(context.Background(), address.MayRead|address.MayWrite, items)
		if len(p.field.executed) != 1 || p.field.executed[0][0].Edit == nil {
			t.Fatalf("%s %s: %v, %v", row.tag, row.rng, items[0].Status, p.field.executed)
		}
		if got, st := p.field.executed[0][0].Edit(row.old); st != row.st || !got.Equal(row.want) {
			t.Errorf("%s %s: %v, %v", row.tag, row.rng, got, st)
		}
	}
}
