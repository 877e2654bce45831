package tagspace

import (
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// DeviceState is how a device is and what it did.
type DeviceState struct {
	State     int32 // 0 offline, 1 online, 2 degraded
	LastGood  tag.Time
	Requests  uint64
	Errors    uint64
	LastError string        // with the raw code
	Latency   time.Duration // of the last answered request
}

// stateNodes are the variables of each device's state, by field number in a node's Token.
var stateNodes = [...]struct {
	name     string
	dataType uint32 // 0: the plant's own enumeration
	value    func(d *DeviceState) tag.Value
}{
	{"$state", 0, func(d *DeviceState) tag.Value { return tag.Of(d.State) }},
	{"$lastGood", id.UtcTime, func(d *DeviceState) tag.Value { return tag.Of(d.LastGood) }},
	{"$requests", id.UInt64, func(d *DeviceState) tag.Value { return tag.Of(d.Requests) }},
	{"$errors", id.UInt64, func(d *DeviceState) tag.Value { return tag.Of(d.Errors) }},
	{"$lastError", id.String, func(d *DeviceState) tag.Value { return tag.Of(d.LastError) }},
	{"$latency", id.Duration, func(d *DeviceState) tag.Value {
		return tag.Of(float64(d.Latency) / float64(time.Millisecond)) // Duration is in ms (Part 3, 8.13)
	}},
}

// stateNames are the names of DeviceState.State.
var stateNames = []string{"offline", "online", "degraded"}

var (
	stateTypeID   = wire.TextID(plant, "$DeviceState")
	stateNamesID  = wire.TextID(plant, "$DeviceState.$EnumStrings")
	enumerationID = wire.NumericID(0, id.Enumeration)
)

// stateType adds the data type of $state, with its names (Part 3, 5.8.3 and 8.40).
func (b *builder) stateType() {
	fields := wire.AppendUint32(nil, uint32(len(stateNames)))
	texts := wire.AppendUint32([]byte{0x80 | 21}, uint32(len(stateNames)))
	for i, name := range stateNames {
		fields = wire.AppendUint64(fields, uint64(i))
		fields = wire.AppendLocalizedText(fields, "", name)
		fields = wire.AppendLocalizedText(fields, "", "")
		fields = wire.AppendString(fields, name)
		texts = wire.AppendLocalizedText(texts, "", name)
	}
	b.nodes = append(b.nodes, &address.Node{
		ID: stateTypeID, Class: ua.NodeClassDataType, BrowseNS: plant, BrowseName: "DeviceState",
		Value: structure(id.EnumDefinition_Encoding_DefaultBinary, fields),
	})
	b.link(enumerationID, id.HasSubtype, stateTypeID)
	b.node(&address.Node{
		ID: stateNamesID, Class: ua.NodeClassVariable, BrowseName: "EnumStrings",
		DataType: wire.NumericID(0, id.LocalizedText), Rank: 1, Dims: []uint32{uint32(len(stateNames))},
		Access: ua.AccessLevelTypeCurrentRead, Value: tag.OfRaw(texts),
	}, stateTypeID, id.HasProperty, id.PropertyType)
}

// state adds the state nodes of a device with that number.
func (b *builder) state(device uint32, name string, parent wire.NodeID) {
	for field, st := range stateNodes {
		dataType := wire.NumericID(0, st.dataType)
		if st.dataType == 0 {
			dataType = stateTypeID
		}
		b.node(&address.Node{
			ID: wire.TextID(plant, name+"."+st.name), Class: ua.NodeClassVariable, BrowseNS: plant, BrowseName: st.name,
			DataType: dataType, Rank: -1, Access: ua.AccessLevelTypeCurrentRead,
			Manager: b.s, Token: device<<8 | uint32(field),
		}, parent, id.HasComponent, id.BaseDataVariableType)
	}
}

// readState answers an item of a state node.
func (s *Space) readState(it *address.ReadItem) {
	now := tag.Now()
	device, field := it.Node.Token>>8, it.Node.Token&0xFF
	if int(device) >= len(s.devices) || int(field) >= len(stateNodes) {
		it.Result.Status, it.Result.Server = tag.BadNodeIDUnknown, now
		return
	}
	st := s.cfg.State(s.devices[device])
	it.Result.Value = stateNodes[field].value(&st)
	it.Result.Source, it.Result.Server = now, now
}
