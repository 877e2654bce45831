package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"edged/cmd/edged/dashboard"
	"edged/drivers"
	"edged/drivers/tag"
	"edged/uaserver/subscription"
)

// The gateway is what its web side shows: it implements dashboard.Source.
var _ dashboard.Source = (*gateway)(nil)

// Gateway implements dashboard.Source.
func (g *gateway) Gateway() dashboard.Gateway {
	return dashboard.Gateway{
		Name: g.site.Server.Name, Version: version, State: strings.TrimPrefix(g.server.State().String(), "ServerState"),
		Endpoint: g.endpoint(), Since: g.since, Site: g.siteState(),
		CertificateEnd: g.own.Own().Certificate().NotAfter,
	}
}

// endpoint is the URL that a client on this network uses.
func (g *gateway) endpoint() string { return "opc.tcp://" + g.opcua.place() }

// Ready implements dashboard.Source.
func (g *gateway) Ready() error {
	if state := g.Gateway().State; state != "Running" {
		return errors.New("the gateway is in state " + state)
	}
	return g.opcua.err()
}

// Table implements dashboard.Source.
func (g *gateway) Table() *tag.Table { return g.config.Load().table }

// Last implements dashboard.Source.
func (g *gateway) Last(ref tag.Ref) (v tag.Sample, verified tag.Time, ok bool) {
	return g.tags.Last(ref)
}

// Devices implements dashboard.Source.
func (g *gateway) Devices() []dashboard.Device {
	stats := g.fleet.Devices()
	out := make([]dashboard.Device, len(stats))
	kinds := drivers.FaultNames()
	silent := map[string]float64{}
	for _, b := range g.fleet.Buses() {
		for _, d := range b.Predicted.Devices {
			silent[d.Device] = d.Silent
		}
	}
	for i, d := range stats {
		out[i] = dashboard.Device{
			Name: d.Name, Bus: d.Bus, State: d.State.String(), LastGood: d.LastGood, LastError: d.LastError,
			Latency: d.Latency, Requests: d.Requests, Samples: d.Samples, Lost: d.Lost.Seconds(), PredictedSilent: silent[d.Name],
		}
		for kind, n := range d.Faults {
			out[i].Errors = append(out[i].Errors, dashboard.Count{Kind: kinds[kind], N: n})
		}
	}
	return out
}

// Buses implements dashboard.Source.
func (g *gateway) Buses() []dashboard.Bus {
	stats := g.fleet.Buses()
	out := make([]dashboard.Bus, len(stats))
	for i, b := range stats {
		out[i] = dashboard.Bus{
			Name: b.Name, Up: b.Up, Utilization: b.Utilization, Cycle: b.Cycle.Seconds(), Wait: b.Wait.Seconds(),
			PredictedUtilization: b.Predicted.Load, PredictedCycle: b.Predicted.Cycle.Seconds(), PredictedWait: b.Predicted.Wait.Seconds(),
			Overruns: b.Overruns, Commands: b.Commands,
			Poll: dashboard.Histogram{
				Bounds: seconds(drivers.PollBounds()), N: slices.Clone(b.Polls[:]), Sum: b.PollTime.Seconds(),
			},
		}
	}
	return out
}

func seconds(bounds []time.Duration) []float64 {
	out := make([]float64, len(bounds))
	for i, b := range bounds {
		out[i] = b.Seconds()
	}
	return out
}

// Clients implements dashboard.Source.
func (g *gateway) Clients() dashboard.Clients {
	s := g.server.Stats()
	e := g.server.Engine().Report(0)
	c := dashboard.Clients{
		Sessions: s.Sessions.Current, Subscriptions: e.Subscriptions, MonitoredItems: e.Items,
		New: e.New, Sent: e.Sent, Waiting: e.Waiting,
		Discarded: []dashboard.Count{
			{Kind: "overflow", N: e.Overflowed}, {Kind: "memory", N: e.Exhausted}, {Kind: "coalesced", N: e.Overwritten}, {Kind: "retransmission", N: e.Messages.EvictedIn},
			{Kind: "lifetime", N: e.Expired}, {Kind: "disabled", N: e.Disabled}, {Kind: "deleted", N: e.Deleted},
		},
		Messages: []dashboard.Count{
			{Kind: "acknowledged", N: e.Messages.Acknowledged}, {Kind: "evicted", N: e.Messages.Evicted},
			{Kind: "abandoned", N: e.Messages.Abandoned}, {Kind: "held", N: e.Messages.Held},
		},
		Republished: e.Messages.Republished, Unaccounted: e.Unaccounted, Short: e.Short,
		Latency: dashboard.Histogram{
			Bounds: subscription.LatencyBounds[:], N: slices.Clone(e.Latency.Buckets[:]), Sum: e.Latency.Sum.Seconds(),
		},
	}
	for _, a := range e.Advice {
		c.Advice = append(c.Advice, dashboard.Advice(a))
	}
	for i := range e.Away {
		a := &e.Away[i]
		c.Away = append(c.Away, dashboard.Away{Client: a.Client, Left: a.Left, Text: a.String()})
	}
	for name, n := range s.Requests {
		c.Requests = append(c.Requests, dashboard.Count{Kind: name, N: n})
	}
	slices.SortFunc(c.Requests, func(a, b dashboard.Count) int { return strings.Compare(a.Kind, b.Kind) })
	return c
}

// Accounts implements dashboard.Source.
func (g *gateway) Accounts() []dashboard.Account {
	out := make([]dashboard.Account, len(g.accounts))
	for i, a := range g.accounts {
		out[i] = dashboard.Account{Name: a.name, Used: a.Used(), Limit: a.Limit}
	}
	return out
}
