package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers"
	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/event"
	"edged/uaserver/wire"
)

// lookEvery is how often the gateway looks for what has happened to its devices, lines, store and certificate. What comes
// and goes within it is one event, with a count where there is one.
const lookEvery = time.Second

// Severities of the gateway's events (Part 5, 6.4.2: 1 is the least, 1000 a catastrophe).
const (
	severityNews    = 100
	severityCaution = 400
	severityWarning = 600
	severityFailure = 800
)

// happenings raises the events of the gateway: it compares what there is with what there was. Owned by its goroutine.
type happenings struct {
	g       *gateway
	states  map[string]drivers.State
	off     map[string]bool // devices that are off scan
	overrun map[string]uint64
	fault   string // of the store
	full    bool
	warned  int // days of the certificate that were told last
	begun   bool
}

// happen looks until ctx ends.
func (g *gateway) happen(ctx context.Context) {
	h := &happenings{g: g, states: map[string]drivers.State{}, off: map[string]bool{}, overrun: map[string]uint64{}, warned: 1 << 30}
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		h.look()
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// look raises what is new since the last look; at the first, everything is as it was.
func (h *happenings) look() {
	for _, d := range h.g.fleet.Devices() {
		h.device(&d)
	}
	for _, b := range h.g.fleet.Buses() {
		h.bus(&b)
	}
	h.store()
	h.certificate()
	h.begun = true
}

// raise raises an event of a node of the plant; an empty name is the Server's.
func (g *gateway) raise(typ uint32, device string, severity uint16, fields []event.Field, format string, args ...any) {
	e := &event.Event{Type: event.Type(typ), Severity: severity, Message: fmt.Sprintf(format, args...), Fields: fields}
	if device != "" {
		e.Source = g.space.Find(wire.TextID(address.NamespacePlant, device))
	}
	g.server.Events().Raise(e)
}

// device tells that a device went, came back or fails in part, and that it was taken off scan.
func (h *happenings) device(d *drivers.DeviceStats) {
	was, known := h.states[d.Name]
	h.states[d.Name] = d.State
	off := h.off[d.Name]
	h.off[d.Name] = d.Disabled
	if !known {
		return
	}
	if off != d.Disabled {
		what := "on scan again"
		if d.Disabled {
			what = "off scan: its tags are BadOutOfService"
		}
		h.g.raise(id.SystemEventType, d.Name, severityCaution, nil, "%s: %s", d.Name, what)
		return
	}
	if was == d.State || d.Disabled {
		return
	}
	switch d.State {
	case drivers.Offline:
		h.g.raise(id.DeviceFailureEventType, d.Name, severityFailure, nil, "%s: offline: %s (%d errors in %d requests)", d.Name, d.LastError, d.Errors, d.Requests)
	case drivers.Degraded:
		h.g.raise(id.DeviceFailureEventType, d.Name, severityWarning, nil, "%s: degraded: %s", d.Name, d.LastError)
	default:
		h.g.raise(id.SystemEventType, d.Name, severityNews, nil, "%s: online", d.Name)
	}
}

// bus tells how many scans a line left out.
func (h *happenings) bus(b *drivers.BusStats) {
	was, known := h.overrun[b.Name]
	h.overrun[b.Name] = b.Overruns
	if known && b.Overruns > was {
		h.g.raise(id.SystemEventType, "", severityWarning, nil, "bus %s: overrun: %d scans were left out because the ones before had not ended (utilization %.0f %%)",
			b.Name, b.Overruns-was, 100*b.Utilization)
	}
}

// store tells that the disk is full or faulty, and that it is well again.
func (h *happenings) store() {
	st := h.g.recorder.stats()
	fault := ""
	if st.Fault != nil {
		fault = st.Fault.Error()
	}
	switch {
	case st.Full && !h.full:
		h.g.raise(id.SystemEventType, "", severityFailure, nil, "store full: history is stopped for lack of space")
	case h.full && !st.Full:
		h.g.raise(id.SystemEventType, "", severityNews, nil, "store: history goes on")
	case fault != h.fault && fault != "":
		h.g.raise(id.SystemEventType, "", severityFailure, nil, "store: nothing is kept: %s", fault)
	case fault != h.fault:
		h.g.raise(id.SystemEventType, "", severityNews, nil, "store: the disk takes what is to be kept again")
	}
	h.full, h.fault = st.Full, fault
}

// certificate tells that the gateway's own ends soon: 60, 30 and 7 days ahead, as the log does.
func (h *happenings) certificate() {
	days := h.g.own.Own().DaysLeft(time.Now())
	for _, at := range []int{60, 30, 7} {
		if days <= at && h.warned > at {
			h.warned = at
			h.g.raise(id.SystemEventType, "", severityWarning, nil, "the gateway's certificate ends in %d days: edged certs renew", days)
		}
	}
	if days > 60 {
		h.warned = 1 << 30
	}
}

// Verbs of a ModelChangeStructureDataType (Part 5, 12.16).
const (
	verbAdded             = 0x01
	verbDeleted           = 0x02
	verbReferencesChanged = 0x04 | 0x08
)

// maxChanges is how many changes one event lists; of more it tells that the whole plant has changed.
const maxChanges = 1000

// tellReload raises what a reload has changed in the address space (Part 5, 6.4.32 and 6.4.33).
func (g *gateway) tellReload(devices *names) {
	typ := wire.NumericID(0, id.BaseObjectType)
	var model, semantics []byte
	n, m := 0, 0
	add := func(list []string, verb byte) {
		for _, name := range list {
			node := wire.TextID(address.NamespacePlant, name)
			b := wire.AppendNodeID(wire.AppendNodeID(nil, node), typ)
			if verb == verbReferencesChanged {
				semantics = append(semantics, wire.StructureValue(id.SemanticChangeStructureDataType_Encoding_DefaultBinary, b).Bytes()[1:]...)
				m++
			}
			model = append(model, wire.StructureValue(id.ModelChangeStructureDataType_Encoding_DefaultBinary, append(b, verb)).Bytes()[1:]...)
			n++
		}
	}
	add(devices.added, verbAdded)
	add(devices.removed, verbDeleted)
	add(devices.changed, verbReferencesChanged)
	if n > maxChanges {
		b := wire.AppendNodeID(wire.AppendNodeID(nil, wire.TextID(address.NamespacePlant, "Devices")), wire.NumericID(0, id.FolderType))
		model, n = wire.StructureValue(id.ModelChangeStructureDataType_Encoding_DefaultBinary, append(b, verbReferencesChanged)).Bytes()[1:], 1
		m = 0
	}
	list := func(body []byte, n int) []event.Field {
		return []event.Field{{Path: "Changes", Value: tag.OfRaw(append(wire.AppendUint32([]byte{0x80 | 22}, uint32(n)), body...))}}
	}
	if n > 0 {
		g.raise(id.GeneralModelChangeEventType, "", severityNews, list(model, n), "configuration changed: devices %s", devices)
	}
	if m > 0 {
		g.raise(id.SemanticChangeEventType, "", severityNews, list(semantics, m), "configuration changed: the meaning of values of %d devices may be another", m)
	}
}

// gatewayMethods are the methods of the gateway's object.
type gatewayMethods struct{ g *gateway }

const (
	methodReload = iota + 1
	methodRaise
)

// maxRaised is how many events one RaiseEvent raises at most.
const maxRaised = 1_000_000

// addGatewayMethods adds the object `gateway` with its methods: Reload, and RaiseEvent where the site allows it.
func addGatewayMethods(g *gateway) error {
	m := &gatewayMethods{g}
	object := wire.TextID(address.NamespaceApplication, "gateway")
	c := address.Change{Add: []*address.Node{{ID: object, BrowseName: "gateway", Attributes: &address.Attributes{
		Class: ua.NodeClassObject, BrowseNS: address.NamespaceApplication, More: &address.More{Description: "What can be done with the gateway itself."},
	}}}}
	c = linked(c, wire.NumericID(0, id.Server_VendorServerInfo), object, id.BaseObjectType)
	add := func(token uint32, name, description string, inputs ...argument) {
		n := &address.Node{
			ID: wire.TextID(address.NamespaceApplication, "gateway.$"+name), BrowseName: name, Token: token, Attributes: &address.Attributes{
				Class: ua.NodeClassMethod, BrowseNS: address.NamespaceApplication, More: &address.More{Description: description}, Executable: true, Manager: m,
			},
		}
		c.Add = append(c.Add, n)
		c.References = append(c.References, address.Reference{Source: object, Type: wire.NumericID(0, id.HasComponent), Target: n.ID})
		if len(inputs) == 0 {
			return
		}
		p := &address.Node{
			ID: wire.TextID(address.NamespaceApplication, n.ID.Str+".InputArguments"), BrowseName: "InputArguments", Attributes: &address.Attributes{
				Class: ua.NodeClassVariable, DataType: wire.NumericID(0, id.Argument), Rank: 1, Access: ua.AccessLevelTypeCurrentRead,
				More: &address.More{Dims: []uint32{uint32(len(inputs))}}, Value: arguments(inputs),
			},
		}
		c.Add = append(c.Add, p)
		c.References = append(c.References, address.Reference{Source: n.ID, Type: wire.NumericID(0, id.HasProperty), Target: p.ID},
			address.Reference{Source: p.ID, Type: wire.NumericID(0, id.HasTypeDefinition), Target: wire.NumericID(0, id.PropertyType)})
	}
	add(methodReload, "Reload", "Reads the site file again, as SIGHUP does.")
	if g.site.Server.RaiseEvents {
		add(methodRaise, "RaiseEvent", "Raises events, as a load test does; it returns when all of them have been taken.",
			argument{"Count", id.UInt32, "How many events, at most 1,000,000."}, argument{"Severity", id.UInt16, "Severity of each, 1 to 1000."})
	}
	return g.space.Apply(c)
}

// argument is an input of a method.
type argument struct {
	name        string
	dataType    uint32
	description string
}

// arguments is the value of InputArguments (Part 3, 8.6).
func arguments(list []argument) tag.Value {
	b := wire.AppendUint32([]byte{0x80 | 22}, uint32(len(list)))
	for _, a := range list {
		var at int
		b, at = wire.BeginExtension(b, id.Argument_Encoding_DefaultBinary)
		b = wire.AppendNodeID(wire.AppendString(b, a.name), wire.NumericID(0, a.dataType))
		b = wire.AppendUint32(b, 0xFFFFFFFF) // ValueRank: scalar
		b = wire.AppendNull(b)               // ArrayDimensions
		b = wire.EndExtension(wire.AppendLocalizedText(b, "en", a.description), at)
	}
	return tag.OfRaw(b)
}

// Waits reports that a method may take its time.
func (*gatewayMethods) Waits(*address.Node) bool { return true }

// Call implements address.Caller.
func (m *gatewayMethods) Call(ctx context.Context, calls []address.CallItem) {
	for i := range calls {
		it := &calls[i]
		switch it.Method.Token {
		case methodReload:
			it.Status = tag.BadNotSupported // no site file is followed
			if m.g.hangup != nil {
				select {
				case m.g.again <- struct{}{}:
				default: // it is about to be read
				}
				it.Status = tag.Good
			}
		case methodRaise:
			it.Status = m.raise(ctx, it)
		}
	}
}

// raise raises events as fast as they are taken, until ctx ends.
func (m *gatewayMethods) raise(ctx context.Context, it *address.CallItem) tag.Status {
	count, severity := it.Inputs[0].Bits(), it.Inputs[1].Bits()
	it.InputStatus = []tag.Status{tag.Good, tag.Good}
	if count > maxRaised {
		it.InputStatus[0] = tag.BadOutOfRange
	}
	if severity < 1 || severity > 1000 {
		it.InputStatus[1] = tag.BadOutOfRange
	}
	if it.InputStatus[0] != tag.Good || it.InputStatus[1] != tag.Good {
		return tag.Status(ua.StatusBadInvalidArgument)
	}
	it.InputStatus = nil
	batch := make([]*event.Event, 0, 256)
	for left := int(count); left > 0; left -= len(batch) {
		if ctx.Err() != nil {
			return tag.BadTimeout
		}
		batch = batch[:0]
		all := make([]event.Event, min(left, cap(batch)))
		for i := range all {
			all[i] = event.Event{Type: event.Type(id.BaseEventType), Severity: uint16(severity), Message: "raised by RaiseEvent"}
			batch = append(batch, &all[i])
		}
		m.g.server.Events().RaiseAll(batch)
	}
	return tag.Good
}

// Read, Write and Series implement address.NodeManager: a method has no value.
func (*gatewayMethods) Read(context.Context, []address.ReadItem)   {}
func (*gatewayMethods) Write(context.Context, []address.WriteItem) {}
func (*gatewayMethods) Series(n *address.Node) (_ *address.Series) { return nil }
