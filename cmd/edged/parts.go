package main

import (
	"context"
	"log/slog"
	"math/bits"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers"
	"edged/drivers/memory"
	"edged/drivers/modbus"
	"edged/drivers/serial"
	"edged/drivers/tag"
	"edged/uaserver"
	"edged/uaserver/address"
	"edged/uaserver/channel"
	"edged/uaserver/tagspace"
)

// autoMemory is what `limits.memory: auto` stands for, in bytes: what queues, kept messages and connections may take
// together.
const autoMemory = 512 << 20

// accountParts is into how many parts the memory is cut; each account gets some of them.
const accountParts = 4

// namedAccount is the budget of one purpose.
type namedAccount struct {
	name string
	*tag.Budget
}

// account makes the budget of a purpose, so many accountParts of the site's memory.
func (g *gateway) account(name string, parts int64) *tag.Budget {
	memory := g.site.Server.Limits.Memory
	if memory == 0 {
		memory = autoMemory
	}
	b := &tag.Budget{Limit: memory * parts / accountParts}
	g.accounts = append(g.accounts, namedAccount{name, b})
	return b
}

// field is the field side of a site, as the fleet is given it.
type field struct {
	drivers.Config
	lines   []busSettings
	units   []deviceSettings // their tags have the Refs of Config.Table
	links   map[string]lineLinks
	devices map[string]drivers.DeviceConfig
	diff    fieldDiff // to the field before it
}

// fieldDiff is how two field sides differ. A device whose bus changed has changed too.
type fieldDiff struct{ buses, devices names }

func (d *fieldDiff) none() bool { return d.buses.none() && d.devices.none() }

// newField makes the buses of a site and the drivers of its devices. What was before and has the same settings is
// taken over as it is; was is nil at the start. The site's devices lose their tags to their drivers.
func newField(s *site, table *tag.Table, sink tag.Sink, log *slog.Logger, was *field) (*field, error) {
	if was == nil {
		was = &field{}
	}
	f := &field{
		Config: drivers.Config{Table: table, Sink: sink, Log: log}, lines: s.Buses, units: s.Devices,
		links: make(map[string]lineLinks, len(s.Buses)), devices: make(map[string]drivers.DeviceConfig, len(s.Devices)),
	}
	buses := make(map[string]*busSettings, len(was.lines))
	for i := range was.lines {
		buses[was.lines[i].Name] = &was.lines[i]
	}
	kept := make(map[string]bool, len(s.Buses))
	for i := range s.Buses {
		b := &s.Buses[i]
		before := buses[b.Name]
		kept[b.Name] = before != nil && reflect.DeepEqual(before, b)
		if f.links[b.Name] = was.links[b.Name]; !kept[b.Name] {
			f.links[b.Name] = newLinks(b)
			f.diff.buses.note(b.Name, before != nil)
		}
		bus := drivers.BusConfig{Name: b.Name, Retries: b.Retries, WriteRetries: b.WriteRetries}
		bus.Links = f.links[b.Name].all()
		f.Buses = append(f.Buses, bus)
		delete(buses, b.Name)
	}
	f.diff.buses.removed = removedFrom(buses)
	kept[""] = true // a device without a line
	keeper, _ := sink.(interface{ Commit(context.Context) error })
	devices := make(map[string]*deviceSettings, len(was.units))
	for i := range was.units {
		devices[was.units[i].Name] = &was.units[i]
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		before := devices[d.Name]
		c := was.devices[d.Name]
		if before == nil || !kept[d.Bus] || !before.same(d) {
			var err error
			if c, err = newDevice(d, f.links[d.Bus]); err != nil {
				return nil, err
			}
			if m, ok := c.Immediate.(*memory.Device); ok && keeper != nil {
				m.KeepBy(keeper.Commit)
			}
			f.diff.devices.note(d.Name, before != nil)
		}
		*d = d.withoutTags()
		f.devices[d.Name] = c
		f.Devices = append(f.Devices, c)
		delete(devices, d.Name)
	}
	f.diff.devices.removed = removedFrom(devices)
	return f, nil
}

// lineLinks are the links of a bus, one a lane, as its drivers know them.
type lineLinks struct {
	modbus []*modbus.Link
	serial []*serial.Link
}

// all are the links as the bus knows them.
func (l lineLinks) all() []drivers.Link {
	var out []drivers.Link
	for _, one := range l.modbus {
		out = append(out, one)
	}
	for _, one := range l.serial {
		out = append(out, one)
	}
	return out
}

// newLinks makes the links of a bus, one a transaction that it may have in flight. They share one connection.
func newLinks(b *busSettings) lineLinks {
	if b.Address.Instruments() {
		c := serial.Links(b.Address)
		c.Timeout, c.Turnaround, c.Echo = b.Timeout, b.Turnaround, b.Echo
		return lineLinks{serial: []*serial.Link{serial.NewLink(c)}}
	}
	c := modbus.Links(b.Address)
	c.Timeout, c.Turnaround, c.Broadcast, c.Echo = b.Timeout, b.Turnaround, b.Broadcast, b.Echo
	if b.lanes() == 1 {
		return lineLinks{modbus: []*modbus.Link{modbus.NewLink(c)}}
	}
	c.Open = modbus.NewShared(c.Open)
	var links []*modbus.Link
	for range b.lanes() {
		links = append(links, modbus.NewLink(c))
	}
	return lineLinks{modbus: links}
}

// newDevice makes the driver of a device.
func newDevice(d *deviceSettings, links lineLinks) (drivers.DeviceConfig, error) {
	c := drivers.DeviceConfig{Name: d.Name, Bus: d.Bus}
	switch {
	case d.Modbus != nil:
		device, err := modbus.New(*d.Modbus, links.modbus...)
		if err != nil {
			return c, err
		}
		c.Driver, c.Hold = device, device.Hold()
		return c, nil
	case d.Serial != nil:
		device, err := serial.New(*d.Serial, links.serial...)
		if err != nil {
			return c, err
		}
		c.Driver, c.Hold = device, device.Hold()
		return c, nil
	}
	device, err := memory.New(d.Name, d.Memory)
	if err != nil {
		return c, err
	}
	c.Immediate = device
	return c, nil
}

// bind gives the tags of the devices their Refs of a table that knows them all.
func (s *site) bind(table *tag.Table) {
	for i := range s.Devices {
		d := &s.Devices[i]
		for j := range d.Memory {
			d.Memory[j].Ref, _ = table.Lookup(d.Name + "." + d.Memory[j].Name)
		}
		if c := d.Serial; c != nil {
			for j := range c.Tags {
				c.Tags[j].Ref, _ = table.Lookup(d.Name + "." + c.Tags[j].Name)
			}
		}
		if d.Modbus == nil {
			continue
		}
		for j := range d.Modbus.Tags {
			d.Modbus.Tags[j].Ref, _ = table.Lookup(d.Name + "." + d.Modbus.Tags[j].Name)
		}
	}
}

// objects are the devices as clients see them.
func (s *site) objects() []tagspace.Device {
	out := make([]tagspace.Device, len(s.Devices))
	for i, d := range s.Devices {
		out[i] = tagspace.Device{Name: d.Name}
	}
	return out
}

// deviceState is how a device is, for whoever reads its state nodes.
func (g *gateway) deviceState(name string) tagspace.DeviceState {
	d, ok := g.fleet.Device(name)
	if !ok {
		return tagspace.DeviceState{}
	}
	s := tagspace.DeviceState{
		State: int32(d.State), LastGood: d.LastGood, Requests: d.Requests, Errors: d.Errors, LastError: d.LastError, Latency: d.Latency,
	}
	s.Manufacturer, s.Model, s.SoftwareRevision = d.Identity.Manufacturer, d.Identity.Model, d.Identity.SoftwareRevision
	if d.Bus == "" { // it lives in the gateway
		b := buildOf()
		s.Manufacturer, s.Model, s.SoftwareRevision = b.Manufacturer, driverMemory, b.Version
	}
	return s
}

var securityModes = map[string]ua.MessageSecurityMode{
	modeSign: ua.MessageSecurityModeSign, modeSignAndEncrypt: ua.MessageSecurityModeSignAndEncrypt,
}

// policies are the site's security policies, each in its modes; None has the one mode None.
func (s *site) policies() []channel.Policy {
	var out []channel.Policy
	for _, name := range s.Server.Security.Policies {
		p := channel.Policy{URI: ua.FormatSecurityPolicyURI(name)}
		if name == policyNone {
			p.Modes = []ua.MessageSecurityMode{ua.MessageSecurityModeNone}
		} else {
			for _, m := range s.Server.Security.Modes {
				p.Modes = append(p.Modes, securityModes[m])
			}
		}
		out = append(out, p)
	}
	return out
}

// anonymous is what a client without a user may do.
func (s *site) anonymous() address.Rights {
	switch s.Server.Security.Anonymous {
	case anonymousRead:
		return mayLook.With(address.Anonymous)
	case anonymousWrite:
		return (mayLook | address.MayWrite | address.MayCall).With(address.Anonymous)
	}
	return 0
}

// roleRights are what each role may do with nodes that no pattern concerns.
func (s *site) roleRights() (r address.RoleRights) {
	r[bits.TrailingZeros8(uint8(address.Anonymous))] = s.anonymous()
	for _, one := range roleNames {
		r[bits.TrailingZeros8(uint8(one.role))] = one.rights
	}
	return r
}

// userFile is who may log in with a user; nil: nobody.
func (s *site) userFile(log *slog.Logger) *userFile {
	path := s.usersFile()
	if path == "" {
		return nil
	}
	return newUserFile(path, log)
}

// asUsers keeps a nil from becoming an interface that is none.
func asUsers(u *userFile) uaserver.Users {
	if u == nil {
		return nil
	}
	return u
}

func channelLimits(l *limitSettings) channel.Limits {
	return channel.Limits{Connections: l.Connections}
}

// buildOf is what ServerStatus says about the program.
func buildOf() uaserver.Build {
	b := uaserver.Build{ProductURI: "urn:edged", Manufacturer: "edged", Product: "edged", Version: version, Number: revision()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				b.Date, _ = time.Parse(time.RFC3339, s.Value) // zero where the build does not know
			}
		}
	}
	return b
}
