package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/cmd/edged/dashboard"
	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// busNodes are the buses as clients see them: below VendorServerInfo (Part 5, 6.3.1) an object for each, whose variables
// are named as the metrics are. It is their NodeManager.
type busNodes struct {
	space   *address.Space
	buses   func() []dashboard.Bus
	devices func() []dashboard.Device

	mu    sync.Mutex // guards the fields below
	rows  []busRow   // by Token - 1 of the nodes; a row is never given to another node
	shown map[string]busShown
	// snap is what the nodes say, taken when the first of them is read and kept for snapLife: a client reads many at once.
	snap   map[string]dashboard.Bus
	units  map[string]dashboard.Device
	snapAt time.Time
}

// snapLife is how long a snapshot of the buses answers for.
const snapLife = 50 * time.Millisecond

// busRow is what one variable shows.
type busRow struct {
	bus, device string // device: "" for the bus itself
	metric      int    // of busMetrics or unitMetrics
}

// busShown is the nodes of one bus.
type busShown struct {
	devices []string
	nodes   []wire.NodeID
}

// busMetrics are a bus's variables.
var busMetrics = []struct {
	name, description string
	value             func(b *dashboard.Bus) float64
}{
	{"edged_bus_up", "1 while the line can be reached.", func(b *dashboard.Bus) float64 { return truth(b.Up) }},
	{"edged_bus_utilization", "Share of the last 10 to 20 s with an exchange in flight.", func(b *dashboard.Bus) float64 { return b.Utilization }},
	{"edged_bus_predicted_utilization", "The same if every device answers at once.", func(b *dashboard.Bus) float64 { return b.PredictedUtilization }},
	{"edged_bus_cycle_seconds", "How long each request of the line once takes, of the last 10 to 20 s.", func(b *dashboard.Bus) float64 { return b.Cycle }},
	{"edged_bus_predicted_cycle_seconds", "The same if every device answers at once.", func(b *dashboard.Bus) float64 { return b.PredictedCycle }},
	{"edged_bus_write_wait_seconds", "The longest that a write waited for the line, of the last 10 to 20 s.", func(b *dashboard.Bus) float64 { return b.Wait }},
	{"edged_bus_predicted_write_wait_seconds", "The same if every device answers at once.", func(b *dashboard.Bus) float64 { return b.PredictedWait }},
	{"edged_bus_overruns_total", "Scans left out because the line was too slow for them.", func(b *dashboard.Bus) float64 { return float64(b.Overruns) }},
	{"edged_bus_commands_total", "Exchanges that clients asked for.", func(b *dashboard.Bus) float64 { return float64(b.Commands) }},
}

// unitMetrics are the variables of a bus for each of its devices.
var unitMetrics = []struct {
	name, description string
	value             func(d *dashboard.Device) float64
}{
	{"edged_device_lost_seconds_total", "Time that the line has lost waiting for answers of this device that did not come or were none.", func(d *dashboard.Device) float64 { return d.Lost }},
	{"edged_device_predicted_silent_share", "Share of the line's time that this device costs the others in the long run when it is silent.", func(d *dashboard.Device) float64 { return d.PredictedSilent }},
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// apply makes the nodes fit the buses and devices that there are.
func (n *busNodes) apply() error {
	units := map[string][]string{}
	for _, d := range n.devices() {
		units[d.Bus] = append(units[d.Bus], d.Name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.snap = nil
	var c address.Change
	if n.shown == nil {
		n.shown = map[string]busShown{}
		c = n.object(wire.TextID(address.NamespaceApplication, "buses"), "buses", wire.NumericID(0, id.Server_VendorServerInfo), c)
	}
	next := map[string]busShown{}
	for _, b := range n.buses() {
		was, known := n.shown[b.Name]
		if known && slices.Equal(was.devices, units[b.Name]) {
			next[b.Name] = was
			continue
		}
		c.Remove = append(c.Remove, was.nodes...)
		from := len(c.Add)
		c = n.bus(b.Name, units[b.Name], c)
		shown := busShown{devices: units[b.Name]}
		for _, node := range c.Add[from:] {
			shown.nodes = append(shown.nodes, node.ID)
		}
		next[b.Name] = shown
	}
	for name, was := range n.shown {
		if _, stays := next[name]; !stays {
			c.Remove = append(c.Remove, was.nodes...)
		}
	}
	if err := n.space.Apply(c); err != nil {
		return err
	}
	n.shown = next
	return nil
}

// bus adds the nodes of one bus to a change.
func (n *busNodes) bus(name string, units []string, c address.Change) address.Change {
	node := wire.TextID(address.NamespaceApplication, "buses/"+name)
	c = n.object(node, name, wire.TextID(address.NamespaceApplication, "buses"), c)
	for i, m := range busMetrics {
		c = n.variable(node, m.name, m.description, busRow{bus: name, metric: i}, c)
	}
	for _, unit := range units {
		for i, m := range unitMetrics {
			c = n.variable(node, m.name+"."+unit, m.description, busRow{bus: name, device: unit, metric: i}, c)
		}
	}
	return c
}

func (n *busNodes) object(node wire.NodeID, name string, parent wire.NodeID, c address.Change) address.Change {
	c.Add = append(c.Add, &address.Node{ID: node, BrowseName: name, Attributes: &address.Attributes{
		Class: ua.NodeClassObject, BrowseNS: address.NamespaceApplication,
	}})
	return linked(c, parent, node, id.BaseObjectType)
}

func (n *busNodes) variable(parent wire.NodeID, name, description string, row busRow, c address.Change) address.Change {
	n.rows = append(n.rows, row)
	v := &address.Node{
		ID: wire.TextID(address.NamespaceApplication, parent.Str+"."+name), BrowseName: name, Token: uint32(len(n.rows)),
		Attributes: &address.Attributes{
			Class: ua.NodeClassVariable, BrowseNS: address.NamespaceApplication, More: &address.More{Description: description},
			DataType: wire.NumericID(0, id.Double), Rank: -1, Access: ua.AccessLevelTypeCurrentRead, Manager: n,
		},
	}
	c.Add = append(c.Add, v)
	return linked(c, parent, v.ID, id.BaseDataVariableType)
}

func linked(c address.Change, parent, node wire.NodeID, kind uint32) address.Change {
	c.References = append(c.References,
		address.Reference{Source: parent, Type: wire.NumericID(0, id.HasComponent), Target: node},
		address.Reference{Source: node, Type: wire.NumericID(0, id.HasTypeDefinition), Target: wire.NumericID(0, kind)})
	return c
}

// Read implements address.NodeManager.
func (n *busNodes) Read(_ context.Context, items []address.ReadItem) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	now := tag.Now()
	for i := range items {
		r := &items[i].Result
		if r.Status.IsBad() {
			continue
		}
		r.Source, r.Server = now, now
		value, ok := n.value(int(items[i].Node.Token) - 1)
		switch {
		case !ok:
			r.Status = tag.BadNodeIDUnknown // it went a moment ago
		case items[i].Range != "": // of a number there are no parts (Part 4, 7.27)
			r.Status = tag.BadIndexRangeNoData
		default:
			r.Value = tag.Of(value)
		}
	}
}

// look takes a snapshot unless there is a fresh one. Call it with mu held.
func (n *busNodes) look() {
	if n.snap != nil && time.Since(n.snapAt) < snapLife {
		return
	}
	n.snap, n.units, n.snapAt = map[string]dashboard.Bus{}, map[string]dashboard.Device{}, time.Now()
	for _, b := range n.buses() {
		n.snap[b.Name] = b
	}
	for _, d := range n.devices() {
		n.units[d.Name] = d
	}
}

// value is what a variable shows. Call it with mu held.
func (n *busNodes) value(row int) (float64, bool) {
	if row < 0 || row >= len(n.rows) {
		return 0, false
	}
	r := &n.rows[row]
	if r.device != "" {
		d, ok := n.units[r.device]
		return unitMetrics[r.metric].value(&d), ok
	}
	b, ok := n.snap[r.bus]
	return busMetrics[r.metric].value(&b), ok
}

// Write implements address.NodeManager: nothing of a bus can be written.
func (n *busNodes) Write(_ context.Context, items []address.WriteItem) {
	for i := range items {
		items[i].Status = tag.BadNotWritable
	}
}

// Series implements address.NodeManager.
func (n *busNodes) Series(*address.Node) *address.Series { return nil }
