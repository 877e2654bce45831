package main

import (
	"context"
	"strings"
	"testing"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers"
	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/event"
	"edged/uaserver/wire"
)

const everybodyMay = address.MayBrowse | address.MayRead | address.MayWrite | address.MayCall | address.MayAudit

// watchMessages watches the events of a node of a gateway: what is appended is their Message, and their Changes.
func watchMessages(t *testing.T, g *gateway, node wire.NodeID) func() []string {
	t.Helper()
	of := func(name string) *ua.SimpleAttributeOperand {
		return &ua.SimpleAttributeOperand{
			TypeDefinitionID: ua.NewNumericNodeID(0, id.BaseEventType), BrowsePath: []*ua.QualifiedName{{Name: name}}, AttributeID: ua.AttributeIDValue,
		}
	}
	body, err := ua.Encode(&ua.EventFilter{SelectClauses: []*ua.SimpleAttributeOperand{of("Message"), of("Changes")}, WhereClause: &ua.ContentFilter{}})
	if err != nil {
		t.Fatal(err)
	}
	f, res := event.Parse(g.space, body)
	if f == nil {
		t.Fatal(res)
	}
	n := g.space.Find(node)
	if n == nil || n.EventNotifier != 1 {
		t.Fatalf("%s is no notifier", node)
	}
	tap := g.server.Events().Watch(n, everybodyMay, f, 10_000, false)
	t.Cleanup(tap.Close)
	return func() (texts []string) {
		g.server.Events().Settle()
		got, _ := tap.Peek(nil, 10_000)
		tap.Advance(len(got))
		for _, b := range got {
			var list ua.EventFieldList
			if _, err := ua.Decode(append([]byte{0, 0, 0, 0}, b...), &list); err != nil {
				t.Fatal(err)
			}
			text := list.EventFields[0].LocalizedText().Text
			if x, ok := list.EventFields[1].Value().([]*ua.ExtensionObject); ok {
				for _, c := range x {
					switch c := c.Value.(type) {
					case *ua.ModelChangeStructureDataType:
						text += " | " + c.Affected.String() + " " + string('0'+rune(c.Verb))
					case *ua.SemanticChangeStructureDataType:
						text += " | " + c.Affected.String()
					default:
						t.Errorf("a change is %T", c)
					}
				}
			}
			texts = append(texts, text)
		}
		return texts
	}
}

// same compares texts by their beginnings.
func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := range want {
		ok = ok && strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("got %q, want %q", got, want)
	}
}

const plantSite = `
buses:
  - {name: line1, url: "tcp://127.0.0.1:1", timeout: 50ms}
devices:
  - {name: boiler, bus: line1, driver: modbus, unit: 1, poll: 1s, tags: [{name: t, address: "holding:0", type: uint16}]}
  - {name: scratch, driver: memory, tags: [{name: m, type: int32, value: 0}]}
`

// TestHappenings is what the gateway raises, and which nodes report it.
func TestHappenings(t *testing.T) {
	g, _ := startSite(t, siteHead+plantSite)
	eventually(t, "listening", func() bool { return g.opcua != nil && g.server.State() == ua.ServerStateRunning })
	server := watchMessages(t, g, wire.NumericID(0, id.Server))
	boiler := watchMessages(t, g, wire.TextID(2, "boiler"))
	scratch := watchMessages(t, g, wire.TextID(2, "scratch"))
	h := &happenings{g: g, states: map[string]drivers.State{}, off: map[string]bool{}, overrun: map[string]uint64{}}
	dev := func(s drivers.State, off bool) *drivers.DeviceStats {
		return &drivers.DeviceStats{Name: "boiler", State: s, Disabled: off, LastError: "read holding 0+1: mute", Errors: 3, Requests: 9}
	}
	h.device(dev(drivers.Online, false)) // as it was found
	h.device(dev(drivers.Online, false))
	h.device(dev(drivers.Offline, false))
	h.device(dev(drivers.Degraded, false))
	h.device(dev(drivers.Online, false))
	h.device(dev(drivers.Online, true))
	h.device(dev(drivers.Offline, true))
	h.device(dev(drivers.Offline, false))
	h.bus(&drivers.BusStats{Name: "line1", Overruns: 5})
	h.bus(&drivers.BusStats{Name: "line1", Overruns: 5})
	h.bus(&drivers.BusStats{Name: "line1", Overruns: 1005})
	want := []string{"boiler: offline: read holding 0+1: mute (3 errors in 9 requests)", "boiler: degraded", "boiler: online", "boiler: off scan", "boiler: on scan"}
	same(t, boiler(), want...)
	same(t, server(), append(want, "bus line1: overrun: 1000 scans")...)
	same(t, scratch())
	g.tellReload(&names{added: []string{"new"}, removed: []string{"old"}, changed: []string{"boiler"}})
	same(t, server(), "configuration changed: devices 1 added, 1 removed, 1 changed (+new -old ~boiler) | ns=2;s=new 1 | ns=2;s=old 2 | ns=2;s=boiler <",
		"configuration changed: the meaning of values of 1 devices may be another | ns=2;s=boiler")
}

// TestGatewayMethods is what can be called on devices and on the gateway.
func TestGatewayMethods(t *testing.T) {
	head := strings.Replace(siteHead, "server: {", "server: {raise_events: true, ", 1)
	g, _ := startSite(t, head+plantSite)
	call := func(object, method wire.NodeID, rights address.Rights, inputs ...tag.Value) address.CallItem {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		calls := []address.CallItem{{Object: g.space.Find(object), Method: g.space.Find(method), Inputs: inputs}}
		g.space.Call(ctx, rights, calls)
		return calls[0]
	}
	boiler, gw := wire.TextID(2, "boiler"), wire.TextID(1, "gateway")
	raise := wire.TextID(1, "gateway.$RaiseEvent")
	one, big := tag.Of(uint32(1)), tag.Of(uint16(1001))
	eventually(t, "the line", func() bool { return g.fleet.Buses()[0].LastError != "" })
	for _, row := range []struct {
		name           string
		object, method wire.NodeID
		rights         address.Rights
		inputs         []tag.Value
		want           ua.StatusCode
	}{
		{"ResetCounters", boiler, wire.TextID(2, "boiler.$ResetCounters"), everybodyMay, nil, ua.StatusOK},
		{"another device's", boiler, wire.TextID(2, "scratch.$Poll"), everybodyMay, nil, ua.StatusBadMethodInvalid},
		{"too many arguments", boiler, wire.TextID(2, "boiler.$Poll"), everybodyMay, []tag.Value{one}, ua.StatusBadTooManyArguments},
		{"no right", boiler, wire.TextID(2, "boiler.$Disable"), everybodyMay &^ address.MayCall, nil, ua.StatusBadUserAccessDenied},
		{"no line to switch off", wire.TextID(2, "scratch"), wire.TextID(2, "scratch.$Disable"), everybodyMay, nil, ua.StatusBadNotSupported},
		{"Poll of a memory device", wire.TextID(2, "scratch"), wire.TextID(2, "scratch.$Poll"), everybodyMay, nil, ua.StatusOK},
		{"RaiseEvent without arguments", gw, raise, everybodyMay, nil, ua.StatusBadArgumentsMissing},
		{"RaiseEvent with a wrong type", gw, raise, everybodyMay, []tag.Value{one, tag.Of("x")}, ua.StatusBadInvalidArgument},
		{"RaiseEvent beyond 1000", gw, raise, everybodyMay, []tag.Value{one, big}, ua.StatusBadInvalidArgument},
		{"Reload without a file", gw, wire.TextID(1, "gateway.$Reload"), everybodyMay, nil, ua.StatusBadNotSupported},
	} {
		if got := call(row.object, row.method, row.rights, row.inputs...); ua.StatusCode(got.Status) != row.want {
			t.Errorf("%s: %v, want %v", row.name, got.Status, row.want)
		}
	}
	if got := call(gw, raise, everybodyMay, one, big); len(got.InputStatus) != 2 || got.InputStatus[0] != tag.Good || got.InputStatus[1] != tag.BadOutOfRange {
		t.Errorf("InputArgumentResults %v", got.InputStatus)
	}
	server := watchMessages(t, g, wire.NumericID(0, id.Server))
	if got := call(gw, raise, everybodyMay, tag.Of(uint32(5000)), tag.Of(uint16(500))); got.Status != tag.Good {
		t.Errorf("RaiseEvent: %v", got.Status)
	}
	n := 0
	for _, text := range server() {
		if text == "raised by RaiseEvent" {
			n++
		}
	}
	if n != 5000 {
		t.Errorf("%d events", n)
	}
	value := func() tag.Status {
		ref, _ := g.Table().Lookup("boiler.t")
		v, _, _ := g.tags.Last(ref)
		return v.Status
	}
	if got := call(boiler, wire.TextID(2, "boiler.$Disable"), everybodyMay); got.Status != tag.Good {
		t.Fatal(got.Status)
	}
	eventually(t, "BadOutOfService", func() bool { return value() == tag.Status(ua.StatusBadOutOfService) })
	if got := call(boiler, wire.TextID(2, "boiler.$Enable"), everybodyMay); got.Status != tag.Good {
		t.Fatal(got.Status)
	}
	eventually(t, "on scan again", func() bool { d, _ := g.fleet.Device("boiler"); return !d.Disabled })
}

// TestRaiseEventIsOff is a site that does not allow it.
func TestRaiseEventIsOff(t *testing.T) {
	g, _ := startSite(t, siteHead+plantSite)
	if g.space.Find(wire.TextID(1, "gateway.$RaiseEvent")) != nil {
		t.Error("RaiseEvent is there")
	}
}
