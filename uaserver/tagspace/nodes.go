package tagspace

import (
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

// part is the nodes of one device, or of the folder of all devices, with the references to and from them: what a
// Change adds. It depends on the device and its tags alone.
type part struct {
	nodes []*address.Node
	refs  []address.Reference
	tags  []*address.Node // those of nodes that are tags, in the order in which the tags were given
}

// entry is a tag that a part is to show.
type entry struct {
	ref tag.Ref
	def *tag.Tag
}

func (p *part) link(from wire.NodeID, kind uint32, to wire.NodeID) {
	p.refs = append(p.refs, address.Reference{Source: from, Type: wire.NumericID(0, kind), Target: to})
}

// node adds a node below a parent, with its type.
func (p *part) node(n *address.Node, parent wire.NodeID, kind, definition uint32) {
	p.nodes = append(p.nodes, n)
	p.link(parent, kind, n.ID)
	p.link(n.ID, id.HasTypeDefinition, wire.NumericID(0, definition))
}

// described is More of a node with a description.
func described(text string) *address.More {
	if text == "" {
		return nil
	}
	return &address.More{Description: text}
}

func (p *part) object(node wire.NodeID, name, description string, parent wire.NodeID, kind, definition uint32) {
	p.node(&address.Node{
		ID: node, BrowseName: name, Attributes: &address.Attributes{
			Class: ua.NodeClassObject, BrowseNS: plant, More: described(description),
		},
	}, parent, kind, definition)
}

// root is the nodes that are there without any device.
func (s *Space) root() (p part) {
	p.object(devicesID, "Devices", "The devices of the plant.", wire.NumericID(0, id.ObjectsFolder), id.Organizes, id.FolderType)
	p.version(s, rootNumber, devicesID)
	if s.cfg.Log != nil {
		p.history(s)
	}
	if s.cfg.State != nil {
		p.stateType()
	}
	return p
}

// device is the object of a device with its tags. number is the device's in the Token of its state nodes.
func (s *Space) device(d Device, number uint32, tags []entry, permit permit) (p part) {
	node := wire.TextID(plant, d.Name)
	p.object(node, d.Name, d.Description, devicesID, id.Organizes, id.BaseObjectType)
	p.nodes[len(p.nodes)-1].EventNotifier = 1 // SubscribeToEvents
	p.link(wire.NumericID(0, id.Server), id.HasNotifier, node)
	p.version(s, number, node)
	if s.cfg.State != nil {
		p.state(s, number, d.Name, node)
		p.methods(s, number, d.Name, node)
	}
	folders := map[string]wire.NodeID{}
	p.tags = make([]*address.Node, len(tags))
	shared := kinds{}
	for i, t := range tags {
		parent, name := p.parent(node, t.def.Name(), folders)
		p.tags[i] = shared.variable(s, t, name, permit)
		p.node(p.tags[i], parent, id.HasComponent, variableType(t.def))
		if s.keeps(t.def.Def) {
			p.link(p.tags[i].ID, id.HasHistoricalConfiguration, historyID)
		}
	}
	for _, n := range p.nodes {
		if n.Ref == 0 { // a tag's are there, and are not its alone
			n.Permissions = permit.of(n.ID.Str)
		}
	}
	return p
}

// parent returns the object or folder that a tag belongs to: each dot in a tag's name makes a folder.
func (p *part) parent(device wire.NodeID, name string, folders map[string]wire.NodeID) (node wire.NodeID, rest string) {
	node = device
	from := 0
	for end := range len(name) {
		if name[end] != '.' {
			continue
		}
		at, ok := folders[name[:end]]
		if !ok {
			at = wire.TextID(plant, device.Str+"."+name[:end])
			folders[name[:end]] = at
			p.object(at, name[from:end], "", node, id.HasComponent, id.FolderType)
		}
		node, from = at, end+1
	}
	return node, name[from:]
}

// kind is what tags have alike whose nodes have the same attributes.
type kind struct {
	def         *tag.Def
	permissions address.Permissions
}

// kinds are the attributes of the tags of a device, each of them once.
type kinds map[kind]*address.Attributes

// variable is the node of a tag.
func (k kinds) variable(s *Space, t entry, name string, permit permit) *address.Node {
	full := t.def.FullName()
	of := kind{t.def.Def, permit.of(full)}
	if k[of] == nil {
		k[of] = of.attributes(s)
	}
	return &address.Node{
		ID: wire.TextID(plant, full), BrowseName: full[len(full)-len(name):], Attributes: k[of], Ref: t.ref,
	}
}

func (k *kind) attributes(s *Space) *address.Attributes {
	def := k.def
	a := &address.Attributes{
		Class: ua.NodeClassVariable, BrowseNS: plant, More: described(def.Description),
		DataType: wire.NumericID(0, uint32(def.Kind)), Rank: -1, Access: accessLevel(def), Permissions: k.permissions,
		MinSampling: float64(def.Poll) / float64(time.Millisecond), Manager: s,
	}
	if s.keeps(def) {
		a.Historizing = true
		a.Access |= ua.AccessLevelTypeHistoryRead
	}
	if def.Len > 0 {
		a.Rank, a.More = 1, &address.More{Description: def.Description, Dims: []uint32{uint32(def.Len)}}
	}
	return a
}

// permit tells who may do what with the node of a name; nil: the rights of each client do.
type permit func(name string) address.Permissions

func (p permit) of(name string) (all address.Permissions) {
	if p != nil {
		all = p(name)
	}
	return all
}

// variableType is the DataAccess type that has what the site gives of a tag (Part 8, 5.3.2 and 5.3.3).
func variableType(def *tag.Tag) uint32 {
	switch {
	case twoState(def):
		return id.TwoStateDiscreteType
	case multiState(def):
		return id.MultiStateValueDiscreteType
	case hasRange(def) && hasUnit(def):
		return id.AnalogUnitRangeType
	case hasRange(def):
		return id.AnalogItemType
	case hasUnit(def):
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

// group is a device with its tags.
type group struct {
	Device
	tags []entry
}

// byDevice sorts the tags of a table by device: those of devices in their order, then the others.
func byDevice(table *tag.Table, devices []Device) []group {
	groups := make([]group, len(devices), len(devices)+1)
	index := make(map[string]int, len(devices))
	for i, d := range devices {
		groups[i].Device, index[d.Name] = d, i
	}
	for ref, def := range table.All() {
		i, ok := index[def.Device]
		if !ok {
			i = len(groups)
			index[def.Device] = i
			groups = append(groups, group{Device: Device{Name: def.Device}})
		}
		groups[i].tags = append(groups[i].tags, entry{ref, def})
	}
	return groups
}
