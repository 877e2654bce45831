package tagspace

import (
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// properties are what a variable of Part 8 may have. Their nodes are made when somebody looks, so that a tag costs the
// same with all of them as with none; their Token is 1 + the place in this table.
var properties = [...]struct {
	name        string
	dataType    uint32
	rank        int32
	description string
	meaning     bool // its change is one of the value's semantics (Part 8, 5.3)
	has         func(d *tag.Tag) bool
	value       func(d *tag.Tag) tag.Value // nil: of the tag's last reading
}{
	{"EURange", id.Range, -1, "Range of the value in normal operation, and the limits of a write.", true, hasRange,
		func(d *tag.Tag) tag.Value { return rangeValue(d.Low, d.High) }},
	{"InstrumentRange", id.Range, -1, "Range of the values that the instrument can give.", true, hasInstrument,
		func(d *tag.Tag) tag.Value { return rangeValue(d.Instrument.Low, d.Instrument.High) }},
	{"EngineeringUnits", id.EUInformation, -1, "Unit of the value.", true, hasUnit,
		func(d *tag.Tag) tag.Value {
			return structure(id.EUInformation_Encoding_DefaultBinary, appendUnit(nil, d.Unit))
		}},
	{"Definition", id.String, -1, "How the value comes about: the address in the device, and the scaling.", false, hasDefinition,
		func(d *tag.Tag) tag.Value { return tag.Of(d.Definition()) }},
	{"ValuePrecision", id.Double, -1, "Places behind the point that are worth showing.", false, hasPrecision,
		func(d *tag.Tag) tag.Value { return tag.Of(float64(d.Decimals) - 1) }},
	{"TrueState", id.LocalizedText, -1, "What the value true means.", true, twoState,
		func(d *tag.Tag) tag.Value { return stateText(d, 1) }},
	{"FalseState", id.LocalizedText, -1, "What the value false means.", true, twoState,
		func(d *tag.Tag) tag.Value { return stateText(d, 0) }},
	{"EnumValues", id.EnumValueType, 1, "What each value means.", true, multiState, enumValues},
	{"ValueAsText", id.LocalizedText, -1, "What the current value means.", false, multiState, nil},
}

func hasRange(d *tag.Tag) bool      { return d.HasRange && analog(d) }
func hasInstrument(d *tag.Tag) bool { return d.Instrument != tag.Span{} && analog(d) }
func hasUnit(d *tag.Tag) bool       { return d.Unit != "" && analog(d) }
func hasDefinition(d *tag.Tag) bool { return d.Definition() != "" }
func hasPrecision(d *tag.Tag) bool {
	return d.Decimals > 0 && (d.Kind == tag.Float32 || d.Kind == tag.Float64)
}

// analog reports whether a tag's value is a quantity: a number whose values have no texts.
func analog(d *tag.Tag) bool { return d.Kind.Number() && !multiState(d) }

func twoState(d *tag.Tag) bool { return d.States != "" && d.Len == 0 && d.Kind == tag.Bool }

func multiState(d *tag.Tag) bool {
	return d.States != "" && d.Len == 0 && d.Kind >= tag.Int8 && d.Kind <= tag.Uint64
}

// sameMeaning reports whether two tags of one type have the same of all properties that say what a value means.
func sameMeaning(a, b *tag.Tag) bool {
	if a.Same(b) {
		return true
	}
	for i := range properties {
		p := &properties[i]
		if !p.meaning {
			continue
		}
		if has := p.has(a); has != p.has(b) || has && !p.value(a).Equal(p.value(b)) {
			return false
		}
	}
	return true
}

// Properties implements address.Propertied.
func (s *Space) Properties(owner *address.Node) []*address.Node {
	sl := s.slot(owner.Ref)
	if sl.def == nil || owner.Token != 0 {
		return nil
	}
	var out []*address.Node
	for i := range properties {
		p := &properties[i]
		if !p.has(sl.def) {
			continue
		}
		attributes := &s.properties[i]
		if owner.Permissions != (address.Permissions{}) {
			own := *attributes
			own.Permissions, attributes = owner.Permissions, &own
		}
		// The id cannot meet a tag's: no part of a tag's name begins with $.
		out = append(out, &address.Node{
			ID: wire.TextID(plant, owner.ID.Str+address.PropertyMark+p.name), BrowseName: p.name,
			Attributes: attributes, Ref: owner.Ref, Token: uint32(1 + i),
		})
	}
	return out
}

// propertyAttributes are those of every property of a kind.
func (s *Space) propertyAttributes() (out [len(properties)]address.Attributes) {
	for i, p := range properties {
		out[i] = address.Attributes{
			Class: ua.NodeClassVariable, More: described(p.description), DataType: wire.NumericID(0, p.dataType), Rank: p.rank,
			Access: ua.AccessLevelTypeCurrentRead, Manager: s,
		}
	}
	return out
}

// readProperty answers an item of a tag's property.
func (s *Space) readProperty(it *address.ReadItem, sl slot, now tag.Time) {
	i := int(it.Node.Token) - 1
	if i >= len(properties) || !properties[i].has(sl.def) { // what the site does not give any longer
		it.Result.Status, it.Result.Server = tag.BadNodeIDUnknown, now
		return
	}
	it.Result.Source, it.Result.Server = s.born, now
	if value := properties[i].value; value != nil {
		it.Result.Value = value(sl.def)
		return
	}
	last, verified, _ := sl.series.Last()
	it.Result.Status, it.Result.Source, it.Result.Server = last.Status, last.At, verified
	if sl.def.Memory {
		it.Result.Server = now
	}
	if n, ok := last.Value.Int(); ok {
		it.Result.Value = stateText(sl.def, n)
	}
}

// structure is a Variant with an ExtensionObject (Part 6, 5.2.2.15).
func structure(encoding uint32, body []byte) tag.Value {
	return tag.OfRaw(appendStructure([]byte{22}, encoding, body))
}

func appendStructure(dst []byte, encoding uint32, body []byte) []byte {
	return wire.AppendByteString(append(wire.AppendNodeID(dst, wire.NumericID(0, encoding)), 1), body)
}

func rangeValue(low, high float64) tag.Value {
	return structure(id.Range_Encoding_DefaultBinary, wire.AppendFloat64(wire.AppendFloat64(nil, low), high))
}

// stateText is the text of a value, empty if it has none.
func stateText(d *tag.Tag, value int64) tag.Value {
	text, _ := d.States.Text(value)
	return tag.OfRaw(wire.AppendLocalizedText([]byte{21}, "", text))
}

// enumValues is an array of EnumValueType (Part 3, 8.40).
func enumValues(d *tag.Tag) tag.Value {
	n := uint32(0)
	var list, body []byte
	for value, text := range d.States.All() {
		body = wire.AppendUint64(body[:0], uint64(value))
		body = wire.AppendLocalizedText(body, "", text)
		body = wire.AppendLocalizedText(body, "", "")
		list = appendStructure(list, id.EnumValueType_Encoding_DefaultBinary, body)
		n++
	}
	return tag.OfRaw(append(wire.AppendUint32([]byte{0x80 | 22}, n), list...))
}
