package tagspace

import (
	"math"
	"slices"
	"testing"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// decoded is a value as gopcua's codec reads it.
func decoded(t *testing.T, v tag.Value) any {
	t.Helper()
	var got ua.Variant
	if _, err := got.Decode(wire.AppendVariant(nil, v)); err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	switch x := got.Value().(type) {
	case *ua.ExtensionObject:
		return x.Value
	case *ua.LocalizedText:
		return x.Text
	}
	return got.Value()
}

var discrete = []tag.Def{
	{Device: "d", Name: "valve", Kind: tag.Bool, Access: tag.Readable, States: tag.States("").With(0, "closed").With(1, "open")},
	{Device: "d", Name: "mode", Kind: tag.Int16, Access: tag.Readable | tag.Writable, HasRange: true, Low: 0, High: 9, Unit: "m",
		States: tag.States("").With(0, "off").With(1, "heating").With(-2, "fault")},
	{Device: "d", Name: "level", Kind: tag.Float32, Access: tag.Readable, Instrument: tag.Span{Low: -1, High: 9}, Decimals: 3, Unit: "m3/h",
		HasRange: true, Low: 0, High: 5, How: said("input:4")},
	{Device: "d", Name: "whole", Kind: tag.Int32, Access: tag.Readable, Decimals: 1},
	{Device: "d", Name: "text", Kind: tag.String, Access: tag.Readable, HasRange: true, Low: 0, High: 1, Unit: "m"},
	{Device: "d", Name: "flag", Kind: tag.Bool, Access: tag.Readable},
}

func TestTypesOfPart8(t *testing.T) {
	p := newPlantOf(t, discrete)
	for name, want := range map[string]struct {
		definition string
		properties []string
	}{
		"d.valve": {"TwoStateDiscreteType", []string{"TrueState", "FalseState"}},
		"d.mode":  {"MultiStateValueDiscreteType", []string{"EnumValues", "ValueAsText"}},
		"d.level": {"AnalogUnitRangeType", []string{"EURange", "InstrumentRange", "EngineeringUnits", "Definition", "ValuePrecision"}},
		"d.whole": {"DataItemType", nil},
		"d.text":  {"DataItemType", nil},
		"d.flag":  {"DataItemType", nil},
	} {
		n := p.node(t, name)
		var has []string
		p.space.References(n, func(kind *address.Node, inverse bool, target *address.Node) bool {
			if kind.ID == wire.NumericID(0, id.HasProperty) && !inverse {
				has = append(has, target.BrowseName)
				if target.BrowseNS != 0 || target.TypeDefinition().ID != wire.NumericID(0, id.PropertyType) || target.Description() == "" {
					t.Errorf("%s: %+v", target.ID, target)
				}
				if again := p.space.Find(target.ID); again == nil || again.BrowseName != target.BrowseName {
					t.Errorf("%s is not found", target.ID)
				}
			}
			return true
		})
		if got := n.TypeDefinition().BrowseName; got != want.definition || !slices.Equal(has, want.properties) {
			t.Errorf("%s: %s %v, want %s %v", name, got, has, want.definition, want.properties)
		}
	}
	for _, name := range []string{"d.level.$TrueState", "d.level.$", "d.level.$euRange", "d.$EURange", "e.level.$EURange", "d.level.$EURange.$EURange"} {
		if n := p.space.Find(wire.TextID(plant, name)); n != nil {
			t.Errorf("%s is found: %+v", name, n)
		}
	}
}

func TestPropertyValues(t *testing.T) {
	p := newPlantOf(t, discrete)
	for name, want := range map[string]any{
		"d.valve.$TrueState": "open", "d.valve.$FalseState": "closed",
		"d.level.$Definition": "input:4", "d.level.$ValuePrecision": 2.0,
	} {
		v := p.read(t, name, "")
		if got := decoded(t, v.Value); got != want || v.Status != tag.Good || v.Source == 0 || v.Server == 0 {
			t.Errorf("%s: %v %v, want %v", name, got, v, want)
		}
	}
	for name, want := range map[string]ua.Range{"d.level.$EURange": {Low: 0, High: 5}, "d.level.$InstrumentRange": {Low: -1, High: 9}} {
		if got, ok := decoded(t, p.read(t, name, "").Value).(*ua.Range); !ok || *got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	list, ok := decoded(t, p.read(t, "d.mode.$EnumValues", "").Value).([]*ua.ExtensionObject)
	if !ok || len(list) != 3 {
		t.Fatalf("EnumValues: %v", list)
	}
	for i, want := range []ua.EnumValueType{{Value: 0}, {Value: 1}, {Value: -2}} {
		got, ok := list[i].Value.(*ua.EnumValueType)
		if !ok || got.Value != want.Value || got.DisplayName.Text != []string{"off", "heating", "fault"}[i] {
			t.Errorf("EnumValues %d: %+v", i, list[i].Value)
		}
	}
	if v := p.read(t, "d.mode.$EnumValues", "1:2"); v.Status != tag.Good {
		t.Errorf("a part of EnumValues: %v", v)
	}
	if s := p.Series(p.node(t, "d.level.$EURange")); s != nil {
		t.Error("a property has a series")
	}
}

func TestValueAsText(t *testing.T) {
	p := newPlantOf(t, discrete)
	if v := p.read(t, "d.mode.$ValueAsText", ""); v.Status != tag.BadWaitingForInitialData || !v.Value.IsNull() {
		t.Errorf("before the first reading: %v", v)
	}
	ref := p.ref(t, "d.mode")
	for _, row := range []struct {
		value int16
		want  string
	}{{1, "heating"}, {-2, "fault"}, {7, ""}, {0, "off"}} {
		p.Publish([]tag.Sample{{Ref: ref, Value: tag.Of(row.value), At: 50}})
		v := p.read(t, "d.mode.$ValueAsText", "")
		if got := decoded(t, v.Value); got != row.want || v.Status != tag.Good || v.Source != 50 {
			t.Errorf("%d: %q %v, want %q", row.value, got, v, row.want)
		}
	}
	p.Publish([]tag.Sample{{Ref: ref, Status: tag.BadNoCommunication, At: 60}})
	if v := p.read(t, "d.mode.$ValueAsText", ""); v.Status != tag.BadNoCommunication || !v.Value.IsNull() {
		t.Errorf("of a mute device: %v", v)
	}
}

func TestUnits(t *testing.T) {
	for _, row := range []struct {
		text string
		id   int32
		name string
	}{
		{"°C", 4408652, "°C"}, {"C", 4408652, "°C"}, {"degC", 4408652, "°C"}, {"K", 4932940, "K"}, {"°F", 4604232, "°F"},
		{"%", 20529, "%"}, {"bar", 4342098, "bar"}, {"mbar", 5063250, "mbar"}, {"Pa", 5259596, "Pa"}, {"kPa", 4935745, "kPa"},
		{"MPa", 5066817, "MPa"}, {"psi", 20563, "lbf/in²"}, {"V", 5655636, "V"}, {"mV", 12890, "mV"}, {"A", 4279632, "A"},
		{"mA", 13387, "mA"}, {"W", 5723220, "W"}, {"kW", 4937556, "kW"}, {"kWh", 4937544, "kW·h"}, {"MWh", 5068616, "MW·h"},
		{"Hz", 4740186, "Hz"}, {"rpm", 5394509, "r/min"}, {"1/min", 5394509, "r/min"}, {"m", 5067858, "m"}, {"mm", 5066068, "mm"},
		{"cm", 4410708, "cm"}, {"km", 4934996, "km"}, {"m/s", 5067859, "m/s"}, {"m³", 5067857, "m³"}, {"m3", 5067857, "m³"},
		{"m^3", 5067857, "m³"}, {"l", 5002322, "l"}, {"L", 5002322, "l"}, {"l/min", 19506, "l/min"}, {"m³/h", 5067080, "m³/h"},
		{"m3/h", 5067080, "m³/h"}, {"kg", 4933453, "kg"}, {"g", 4674125, "g"}, {"t", 5525061, "t"}, {"kg/h", 4536627, "kg/h"},
		{"s", 5457219, "s"}, {"min", 5065038, "min"}, {"h", 4740434, "h"}, {"d", 4473177, "d"}, {"Nm", 20053, "N·m"},
		{"N", 5129559, "N"}, {"kN", 4338743, "kN"}, {"pH", 5321520, "pH"}, {"dB", 12878, "dB"}, {"lx", 5002584, "lx"},
		{"ppm", 13625, "ppm"}, {"\u03bcm", 13384, "µm"}, {"\u00b5S/cm", 4666418, "µS/cm"}, {"uS/cm", 4666418, "µS/cm"},
		{"k\u2126", 4338745, "kΩ"}, {"kvar", 4937298, "kvar"},
		{"furlong", -1, "furlong"}, {"MM", -1, "MM"}, {"", -1, ""},
	} {
		body := appendUnit(nil, row.text)
		var got ua.EUInformation
		if _, err := ua.Decode(body, &got); err != nil {
			t.Fatalf("%q: %v", row.text, err)
		}
		if got.UnitID != row.id || got.DisplayName.Text != row.name || got.NamespaceURI != "http://www.opcfoundation.org/UA/units/un/cefact" {
			t.Errorf("%q: %d %q, want %d %q", row.text, got.UnitID, got.DisplayName.Text, row.id, row.name)
		}
	}
}

func TestNoUnitIsWrittenAsAnother(t *testing.T) {
	ways, codes := 0, map[string]bool{}
	for i := range units {
		u := &units[i]
		if len(u.code) == 0 || len(u.code) > 3 || u.name == "" || u.description == "" || codes[u.code] {
			t.Errorf("unit %+v", u)
		}
		codes[u.code] = true
		if unitOf(u.name) != u {
			t.Errorf("%s is %+v", u.name, unitOf(u.name))
		}
		ways++
	}
	if ways > len(unitTexts) {
		t.Errorf("%d units by %d texts", ways, len(unitTexts))
	}
}

func TestWriteOfAState(t *testing.T) {
	p := newPlantOf(t, discrete)
	n := p.node(t, "d.mode")
	for value, want := range map[int16]tag.Status{0: tag.Good, 1: tag.Good, 5: tag.BadOutOfRange, -2: tag.BadOutOfRange, math.MaxInt16: tag.BadOutOfRange} {
		items := []address.WriteItem{{Node: n, Attribute: ua.AttributeIDValue, Value: wire.DataValue{Value: tag.Of(value)}}}
		p.space.Write(t.Context(), address.MayWrite, items)
		if items[0].Status != want { // -2 has a text, and is outside of the range
			t.Errorf("%d: %v, want %v", value, items[0].Status, want)
		}
	}
}

// TestPropertiesFollowTheSite keeps the nodes that a client found while the site changes, as its MonitoredItems do.
func TestPropertiesFollowTheSite(t *testing.T) {
	p := newPlantOf(t, discrete)
	flow, mode := p.node(t, "d.level.$EngineeringUnits"), p.node(t, "d.mode.$ValueAsText")
	read := func(n *address.Node) wire.DataValue {
		items := []address.ReadItem{{Node: n, Attribute: ua.AttributeIDValue}}
		p.space.Read(t.Context(), address.MayRead, items)
		return items[0].Result
	}
	apply := func(change func(defs []tag.Def) []tag.Def) {
		t.Helper()
		table, _, err := p.table.Apply(change(slices.Clone(discrete)))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Apply(table, nil); err != nil {
			t.Fatal(err)
		}
		p.table = table
	}
	apply(func(defs []tag.Def) []tag.Def {
		defs[2].Unit, defs[2].HasRange = "kg", false
		return defs
	})
	if u, ok := decoded(t, read(flow).Value).(*ua.EUInformation); !ok || u.DisplayName.Text != "kg" {
		t.Errorf("after another unit: %+v", u)
	}
	if n := p.node(t, "d.level"); n.TypeDefinition().BrowseName != "AnalogUnitType" {
		t.Errorf("a level without a range is of type %s", n.TypeDefinition().BrowseName)
	}
	if n := p.space.Find(wire.TextID(plant, "d.level.$EURange")); n != nil {
		t.Error("the range is still there")
	}
	apply(func(defs []tag.Def) []tag.Def {
		defs[2].Unit = ""
		return append(defs[:1], defs[2:]...) // without mode
	})
	for _, n := range []*address.Node{flow, mode} {
		if v := read(n); v.Status != tag.BadNodeIDUnknown || !v.Value.IsNull() {
			t.Errorf("%s that is gone: %v", n.ID, v)
		}
	}
	apply(func(defs []tag.Def) []tag.Def { return defs })
	if v := read(mode); v.Status != tag.BadWaitingForInitialData {
		t.Errorf("%s that returned: %v", mode.ID, v)
	}
	if v := read(flow); v.Status != tag.Good {
		t.Errorf("%s that returned: %v", flow.ID, v)
	}
}
