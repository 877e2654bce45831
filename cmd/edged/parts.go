package main

import (
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers"
	"edged/drivers/memory"
	"edged/drivers/modbus"
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

// newFleet makes the buses of a site and the drivers of its devices.
func newFleet(s *site, table *tag.Table, sink tag.Sink, log *slog.Logger) (*drivers.Fleet, error) {
	cfg := drivers.Config{Table: table, Sink: sink, Log: log}
	links := map[string]*modbus.Link{}
	for _, b := range s.Buses {
		c := modbus.Links(b.Address)
		c.Timeout, c.Turnaround, c.Broadcast, c.Echo = b.Timeout, b.Turnaround, b.Broadcast, b.Echo
		link := modbus.NewLink(c)
		links[b.Name] = link
		cfg.Buses = append(cfg.Buses, drivers.BusConfig{
			Name: b.Name, Links: []drivers.Link{link}, Retries: b.Retries, WriteRetries: b.WriteRetries,
		})
	}
	for _, d := range s.Devices {
		c := drivers.DeviceConfig{Name: d.Name, Bus: d.Bus}
		if d.Modbus != nil {
			device, err := modbus.New(*d.Modbus, links[d.Bus])
			if err != nil {
				return nil, err
			}
			c.Driver, c.Hold = device, device.Hold()
		} else {
			device, err := memory.New(d.Name, d.Memory)
			if err != nil {
				return nil, err
			}
			c.Immediate = device
		}
		cfg.Devices = append(cfg.Devices, c)
	}
	return drivers.NewFleet(cfg)
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
	return tagspace.DeviceState{
		State: int32(d.State), LastGood: d.LastGood, Requests: d.Requests, Errors: d.Errors, LastError: d.LastError, Latency: d.Latency,
	}
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
		return address.MayBrowse | address.MayRead
	case anonymousWrite:
		return address.MayBrowse | address.MayRead | address.MayWrite | address.MayCall
	}
	return 0
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
