package tagspace

import (
	"strconv"
	"strings"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// DeviceState is how a device is, what it did and what it says of itself.
type DeviceState struct {
	State     int32 // 0 offline, 1 online, 2 degraded
	LastGood  tag.Time
	Requests  uint64
	Errors    uint64
	LastError string        // with the raw code
	Latency   time.Duration // of the last answered request

	// What the device says of itself; empty as long as it is not known.
	Manufacturer, Model, SoftwareRevision string
}

// stateNodes are the variables of each device's state and identification, by field number in a node's Token.
var stateNodes = [...]struct {
	name        string
	dataType    uint32 // 0: the plant's own enumeration
	description string
	value       func(d *DeviceState) tag.Value // null: not known
}{
	{"$state", 0, "How the device is: 0 offline, 1 online, 2 degraded.", func(d *DeviceState) tag.Value { return tag.Of(d.State) }},
	{"$lastGood", id.UtcTime, "When the device last answered.", func(d *DeviceState) tag.Value { return tag.Of(d.LastGood) }},
	{"$requests", id.UInt64, "Requests to the device.", func(d *DeviceState) tag.Value { return tag.Of(d.Requests) }},
	{"$errors", id.UInt64, "Requests that failed.", func(d *DeviceState) tag.Value { return tag.Of(d.Errors) }},
	{"$lastError", id.String, "Last failure, with the raw code.", func(d *DeviceState) tag.Value { return tag.Of(d.LastError) }},
	{"$latency", id.Duration, "How long the last answered request took, in milliseconds.", func(d *DeviceState) tag.Value {
		return tag.Of(float64(d.Latency) / float64(time.Millisecond)) // Duration is in ms (Part 3, 8.13)
	}},
	{identification + ".Manufacturer", id.String, "Who made the device.", func(d *DeviceState) tag.Value { return known(d.Manufacturer) }},
	{identification + ".Model", id.String, "Model of the device.", func(d *DeviceState) tag.Value { return known(d.Model) }},
	{identification + ".SoftwareRevision", id.String, "Version of the device's software.", func(d *DeviceState) tag.Value { return known(d.SoftwareRevision) }},
}

// identification is the object of a device that holds what the device says of itself.
const identification = "$id"

func known(text string) tag.Value {
	if text == "" {
		return tag.Value{}
	}
	return tag.Of(text)
}

// stateNames are the names of DeviceState.State.
var stateNames = []string{"offline", "online", "degraded"}

var (
	stateTypeID   = wire.TextID(plant, "$DeviceState")
	stateNamesID  = wire.TextID(plant, "$DeviceState.$EnumStrings")
	enumerationID = wire.NumericID(0, id.Enumeration)
)

// stateType adds the data type of $state, with its names (Part 3, 5.8.3 and 8.40).
func (p *part) stateType() {
	fields := wire.AppendUint32(nil, uint32(len(stateNames)))
	texts := wire.AppendUint32([]byte{0x80 | 21}, uint32(len(stateNames)))
	for i, name := range stateNames {
		fields = wire.AppendUint64(fields, uint64(i))
		fields = wire.AppendLocalizedText(fields, "", name)
		fields = wire.AppendLocalizedText(fields, "", "")
		fields = wire.AppendString(fields, name)
		texts = wire.AppendLocalizedText(texts, "", name)
	}
	p.nodes = append(p.nodes, &address.Node{
		ID: stateTypeID, BrowseName: "DeviceState", Attributes: &address.Attributes{
			Class: ua.NodeClassDataType, BrowseNS: plant, More: described("How a device is."),
			Value: structure(id.EnumDefinition_Encoding_DefaultBinary, fields),
		},
	})
	p.link(enumerationID, id.HasSubtype, stateTypeID)
	p.node(&address.Node{
		ID: stateNamesID, BrowseName: "EnumStrings", Attributes: &address.Attributes{
			Class: ua.NodeClassVariable, DataType: wire.NumericID(0, id.LocalizedText), Rank: 1,
			More: &address.More{Dims: []uint32{uint32(len(stateNames))}}, Access: ua.AccessLevelTypeCurrentRead, Value: tag.OfRaw(texts),
		},
	}, stateTypeID, id.HasProperty, id.PropertyType)
}

// state adds the state and identification nodes of a device with that number.
func (p *part) state(s *Space, device uint32, name string, parent wire.NodeID) {
	about := wire.TextID(plant, name+"."+identification)
	p.object(about, identification, "What the device says of itself.", parent, id.HasComponent, id.BaseObjectType)
	for field, st := range stateNodes {
		n := &address.Node{
			ID: wire.TextID(plant, name+"."+st.name), BrowseName: st.name, Token: device<<8 | uint32(field), Attributes: &address.Attributes{
				Class: ua.NodeClassVariable, BrowseNS: plant, More: described(st.description),
				DataType: wire.NumericID(0, st.dataType), Rank: -1, Access: ua.AccessLevelTypeCurrentRead, Manager: s,
			},
		}
		if st.dataType == 0 {
			n.DataType = stateTypeID
		}
		if own, ok := strings.CutPrefix(st.name, identification+"."); ok {
			n.BrowseName = own
			p.node(n, about, id.HasProperty, id.PropertyType)
			continue
		}
		p.node(n, parent, id.HasComponent, id.BaseDataVariableType)
	}
}

// versionField is the field number, in a Token, of the NodeVersion of a device or of the folder of all devices.
const versionField = 0xFF

// rootNumber is the number of the folder of all devices, among those of the devices.
const rootNumber = 0

// version adds the NodeVersion of a node (Part 3, 5.5.1), another text after each change of the references below it.
func (p *part) version(s *Space, number uint32, of wire.NodeID) {
	p.node(&address.Node{
		ID: wire.TextID(plant, of.Str+address.PropertyMark+"NodeVersion"), BrowseName: "NodeVersion",
		Token: number<<8 | versionField, Attributes: &address.Attributes{
			Class: ua.NodeClassVariable, More: described("Another text after each change below this node."),
			DataType: wire.NumericID(0, id.String), Rank: -1, Access: ua.AccessLevelTypeCurrentRead, Manager: s,
		},
	}, of, id.HasProperty, id.PropertyType)
}

// readVersion answers an item of a NodeVersion.
func readVersion(it *address.ReadItem, changed, now tag.Time) {
	it.Result.Value = tag.Of(strconv.FormatInt(int64(changed), 10))
	it.Result.Source, it.Result.Server = changed, now
}

// readState answers an item of a state or identification node. What is not known is waited for.
func (s *Space) readState(it *address.ReadItem, now tag.Time) {
	device, field := it.Node.Token>>8, it.Node.Token&0xFF
	v := s.now.Load()
	devices := v.devices
	switch {
	case int(device) >= len(devices) || devices[device] == "":
		it.Result.Status, it.Result.Server = tag.BadNodeIDUnknown, now
		return
	case field == versionField:
		readVersion(it, v.changed[device], now)
		return
	case int(field) >= len(stateNodes):
		it.Result.Status, it.Result.Server = tag.BadNodeIDUnknown, now
		return
	}
	st := s.cfg.State(devices[device])
	it.Result.Value = stateNodes[field].value(&st)
	it.Result.Source, it.Result.Server = now, now
	if it.Result.Value.IsNull() {
		it.Result.Status = tag.BadWaitingForInitialData
	}
}
