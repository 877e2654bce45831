package drivers

import (
	"context"
	"log/slog"
	"time"

	"edged/drivers/tag"
)

// BusConfig is one line and how it is used.
type BusConfig struct {
	Name         string
	Links        []Link        // one a lane; at least one
	Retries      int           // how often a read that got no proper answer is repeated
	WriteRetries int           // how often a write that got no proper answer is repeated; such a write may happen twice
	OpenTimeout  time.Duration // bound of one Link.Open; 0: 5 s
}

// DeviceConfig joins a device to its bus.
type DeviceConfig struct {
	Name      string
	Bus       string    // name of its bus; empty with Immediate
	Driver    Driver    // or
	Immediate Immediate // a device without a line
	// Hold keeps a tag's last good value, as uncertain, this long after the device fell silent.
	Hold map[tag.Ref]time.Duration
}

// Config is the whole field side.
type Config struct {
	Buses   []BusConfig
	Devices []DeviceConfig
	Table   *tag.Table
	Sink    tag.Sink
	Log     *slog.Logger // nil: slog.Default
	Pulse   tag.Pulse    // nil: nobody listens
}

// Fleet is all buses and devices. It implements tag.Field.
type Fleet struct{}

// NewFleet builds the buses. It starts nothing.
func NewFleet(cfg Config) (*Fleet, error) { return nil, nil }

// Run works until ctx ends, and returns when every bus has stopped and closed its links.
func (f *Fleet) Run(ctx context.Context) error { return nil }

// Execute implements tag.Field.
func (f *Fleet) Execute(ctx context.Context, cmds []tag.Command) {}

// Refresh implements tag.Field.
func (f *Fleet) Refresh(ctx context.Context, refs []tag.Ref) tag.Status { return tag.Good }

// Operate implements tag.Field.
func (f *Fleet) Operate(ctx context.Context, device string, op tag.Op) tag.Status { return tag.Good }

// Devices returns a snapshot of every device, in the order of the configuration.
func (f *Fleet) Devices() []DeviceStats { return nil }

// Device returns a snapshot of one device.
func (f *Fleet) Device(name string) (DeviceStats, bool) { return DeviceStats{}, false }

// Buses returns a snapshot of every bus, in the order of the configuration.
func (f *Fleet) Buses() []BusStats { return nil }
