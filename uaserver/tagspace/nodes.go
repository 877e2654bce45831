package tagspace

import (
	"strings"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// plant is the namespace of tags and devices.
const plant = address.NamespacePlant

// devicesID is the folder of all devices.
var devicesID = wire.TextID(plant, "Devices")

// builder collects the nodes of a plant. Ids are made of names alone, so that no change of the site moves one.
type builder struct {
	s     *Space
	nodes []*address.Node
	refs  []address.Reference
	made  map[string]wire.NodeID // devices and folders, by full name
}

func newBuilder(s *Space) *builder {
	b := &builder{s: s, made: map[string]wire.NodeID{}}
	b.object(devicesID, "Devices", "", wire.NumericID(0, id.ObjectsFolder), id.Organizes, id.FolderType)
	if s.cfg.State != nil {
		b.stateType()
	}
	for _, d := range s.cfg.Devices {
		b.device(d.Name, d.Description)
	}
	return b
}

// add makes all that was collected visible at once.
func (b *builder) add() error { return b.s.cfg.Address.Add(b.nodes, b.refs) }

func (b *builder) link(from wire.NodeID, kind uint32, to wire.NodeID) {
	b.refs = append(b.refs, address.Reference{Source: from, Type: wire.NumericID(0, kind), Target: to})
}

// node adds a node below a parent, with its type.
func (b *builder) node(n *address.Node, parent wire.NodeID, kind, definition uint32) {
	b.nodes = append(b.nodes, n)
	b.link(parent, kind, n.ID)
	b.link(n.ID, id.HasTypeDefinition, wire.NumericID(0, definition))
}

func (b *builder) object(node wire.NodeID, name, description string, parent wire.NodeID, kind, definition uint32) {
	b.node(&address.Node{
		ID: node, Class: ua.NodeClassObject, BrowseNS: plant, BrowseName: name, Description: description,
	}, parent, kind, definition)
}

// device returns the object of a device, which it makes at the first call.
func (b *builder) device(name, description string) wire.NodeID {
	if node, ok := b.made[name]; ok {
		return node
	}
	node := wire.TextID(plant, name)
	b.made[name] = node
	b.object(node, name, description, devicesID, id.Organizes, id.BaseObjectType)
	if b.s.cfg.State != nil {
		b.state(uint32(len(b.s.devices)), name, node)
	}
	b.s.devices = append(b.s.devices, name)
	return node
}

// parent returns the object or folder that a tag belongs to: each dot in a tag's name makes a folder.
func (b *builder) parent(def *tag.Def) (node wire.NodeID, name string) {
	node = b.device(def.Device, "")
	name = def.Name
	full := def.Device
	for {
		folder, rest, more := strings.Cut(name, ".")
		if !more {
			return node, name
		}
		full += "." + folder
		at, ok := b.made[full]
		if !ok {
			at = wire.TextID(plant, full)
			b.made[full] = at
			b.object(at, folder, "", node, id.HasComponent, id.FolderType)
		}
		node, name = at, rest
	}
}

// tag adds the variable of a tag and returns it.
func (b *builder) tag(ref tag.Ref, def *tag.Def) *address.Node {
	parent, name := b.parent(def)
	n := &address.Node{
		ID: wire.TextID(plant, def.FullName()), Class: ua.NodeClassVariable, BrowseNS: plant, BrowseName: name,
		Description: def.Description, DataType: wire.NumericID(0, uint32(def.Kind)), Rank: -1,
		Access: accessLevel(def), MinSampling: float64(def.Poll) / float64(time.Millisecond),
		Manager: b.s, Ref: ref,
	}
	if def.Len > 0 {
		n.Rank, n.Dims = 1, []uint32{uint32(def.Len)}
	}
	analog := def.Kind.Number()
	b.node(n, parent, id.HasComponent, variableType(def, analog))
	if analog && def.HasRange {
		b.property(n, "EURange", id.Range, structure(id.Range_Encoding_DefaultBinary,
			wire.AppendFloat64(wire.AppendFloat64(nil, def.Low), def.High)))
	}
	if analog && def.Unit != "" {
		b.property(n, "EngineeringUnits", id.EUInformation,
			structure(id.EUInformation_Encoding_DefaultBinary, appendUnit(nil, def.Unit)))
	}
	if def.Definition != "" {
		b.property(n, "Definition", id.String, tag.Of(def.Definition))
	}
	return n
}

// variableType is the DataAccess type that has what the site gives of a tag (Part 8, 5.3.2).
func variableType(def *tag.Def, analog bool) uint32 {
	switch {
	case analog && def.HasRange && def.Unit != "":
		return id.AnalogUnitRangeType
	case analog && def.HasRange:
		return id.AnalogItemType
	case analog && def.Unit != "":
		return id.AnalogUnitType
	}
	return id.DataItemType
}

// accessLevel is a tag's AccessLevel (Part 3, 8.57). A tag that can only be written reads back what was last written.
func accessLevel(def *tag.Def) ua.AccessLevelType {
	level := ua.AccessLevelTypeCurrentRead
	if def.Access&tag.Writable != 0 {
		level |= ua.AccessLevelTypeCurrentWrite
		if def.Memory {
			level |= ua.AccessLevelTypeStatusWrite | ua.AccessLevelTypeTimestampWrite
		}
	}
	return level
}

// property adds a property of the standard's. Its id cannot meet a tag's: no tag's name begins with $.
func (b *builder) property(of *address.Node, name string, dataType uint32, value tag.Value) {
	b.node(&address.Node{
		ID: wire.TextID(plant, of.ID.Str+".$"+name), Class: ua.NodeClassVariable, BrowseName: name,
		DataType: wire.NumericID(0, dataType), Rank: -1, Access: ua.AccessLevelTypeCurrentRead, Value: value,
	}, of.ID, id.HasProperty, id.PropertyType)
}

// structure is a Variant with an ExtensionObject (Part 6, 5.2.2.15).
func structure(encoding uint32, body []byte) tag.Value {
	b := wire.AppendNodeID([]byte{22}, wire.NumericID(0, encoding))
	return tag.OfRaw(wire.AppendByteString(append(b, 1), body))
}

const unitsURI = "http://www.opcfoundation.org/UA/units/un/cefact" // Part 8, 5.6.4.3

// appendUnit appends an EUInformation (Part 8, 5.6.4.3).
func appendUnit(dst []byte, unit string) []byte {
	dst = wire.AppendString(dst, unitsURI)
	dst = wire.AppendUint32(dst, uint32(unitID(unit)))
	dst = wire.AppendLocalizedText(dst, "", unit)
	return wire.AppendLocalizedText(dst, "", unit)
}

// unitID is the number that Part 8 makes of a unit's UNECE code: its characters as bytes, the last one lowest; -1
// where there is no code.
func unitID(unit string) int32 {
	code, ok := uneceCodes[unit]
	if !ok {
		return -1
	}
	n := int32(0)
	for i := range len(code) {
		n = n<<8 | int32(code[i])
	}
	return n
}

// uneceCodes are the codes of UNECE Recommendation 20 for units as people write them.
var uneceCodes = map[string]string{
	"%": "P1", "‰": "NX", "ppm": "59", "°C": "CEL", "°F": "FAH", "K": "KEL",
	"Pa": "PAL", "hPa": "A97", "kPa": "KPA", "MPa": "MPA", "bar": "BAR", "mbar": "MBR", "psi": "PS",
	"V": "VLT", "mV": "2Z", "kV": "KVT", "A": "AMP", "mA": "4K", "Ω": "OHM", "Hz": "HTZ", "kHz": "KHZ",
	"W": "WTT", "kW": "KWT", "MW": "MAW", "Wh": "WHR", "kWh": "KWH", "MWh": "MWH", "J": "JOU", "kJ": "KJO",
	"VA": "D46", "kVA": "KVA", "var": "D44", "kvar": "KVR",
	"m": "MTR", "mm": "MMT", "cm": "CMT", "km": "KMT", "µm": "4H", "m²": "MTK", "m³": "MTQ", "l": "LTR", "ml": "MLT",
	"g": "GRM", "kg": "KGM", "t": "TNE", "N": "NEW", "Nm": "NU",
	"s": "SEC", "ms": "C26", "min": "MIN", "h": "HUR", "d": "DAY",
	"m/s": "MTS", "km/h": "KMH", "m³/h": "MQH", "m³/s": "MQS", "l/min": "L2", "kg/h": "E93", "kg/s": "KGS",
	"rpm": "RPM", "1/min": "RPM", "°": "DD", "rad": "C81", "lx": "LUX", "dB": "2N",
}
