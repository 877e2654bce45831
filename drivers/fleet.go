package drivers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
type Fleet struct {
	cfg     Config
	buses   []*bus
	devices []*device
	byName  map[string]*device
	routes  []*device // by Ref-1; nil: no tag of a device
}

var (
	_ tag.Field     = (*Fleet)(nil)
	_ tag.Submitter = (*Fleet)(nil)
)

// NewFleet builds the buses. It starts nothing.
func NewFleet(cfg Config) (*Fleet, error) {
	if cfg.Table == nil || cfg.Sink == nil {
		return nil, errors.New("a fleet needs a table and a sink")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	f := &Fleet{cfg: cfg, byName: map[string]*device{}, routes: make([]*device, cfg.Table.Slots())}
	buses := map[string]*bus{}
	for _, bc := range cfg.Buses {
		if buses[bc.Name] != nil {
			return nil, fmt.Errorf("bus %s is defined twice", bc.Name)
		}
		b, err := newBus(bc, &f.cfg)
		if err != nil {
			return nil, err
		}
		buses[bc.Name] = b
		f.buses = append(f.buses, b)
	}
	for _, dc := range cfg.Devices {
		if err := f.add(dc, buses[dc.Bus]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Fleet) add(cfg DeviceConfig, b *bus) error {
	switch {
	case f.byName[cfg.Name] != nil:
		return fmt.Errorf("device %s is defined twice", cfg.Name)
	case (cfg.Driver == nil) == (cfg.Immediate == nil):
		return fmt.Errorf("device %s needs one driver", cfg.Name)
	case cfg.Driver != nil && b == nil:
		return fmt.Errorf("device %s is on bus %q, which is not defined", cfg.Name, cfg.Bus)
	}
	d := newDevice(cfg, f.cfg.Table)
	if cfg.Driver != nil {
		b.add(d)
	}
	f.byName[cfg.Name] = d
	f.devices = append(f.devices, d)
	for _, ref := range d.tags() {
		if ref == 0 || int(ref) > len(f.routes) {
			return fmt.Errorf("device %s has tag %d, which is not in the table", cfg.Name, ref)
		}
		f.routes[ref-1] = d
	}
	return nil
}

// Run works until ctx ends, and returns when every bus has stopped and closed its links.
func (f *Fleet) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, b := range f.buses {
		wg.Go(func() { b.run(ctx) })
	}
	for _, d := range f.devices {
		if d.cfg.Immediate != nil {
			wg.Go(func() { d.cfg.Immediate.Run(ctx, f.cfg.Sink) })
		}
	}
	wg.Wait()
	return nil
}

// route is the device of a tag, or nil.
func (f *Fleet) route(ref tag.Ref) *device {
	if ref == 0 || int(ref) > len(f.routes) {
		return nil
	}
	return f.routes[ref-1]
}

// part is what one lane, or one device without a line, has of a batch.
type part struct {
	lane    *lane
	direct  *device
	indices []int // into the batch
	job     *job
}

// Execute implements tag.Field. Commands of one line are carried out in their order; lines work at the same time.
func (f *Fleet) Execute(ctx context.Context, cmds []tag.Command) {
	if d := f.onlyDirect(cmds); d != nil {
		d.cfg.Immediate.Execute(cmds, f.cfg.Sink)
		d.stats.executed(len(cmds))
		return
	}
	f.Submit(ctx, cmds)()
}

// Submit implements tag.Submitter. What needs no line is carried out at once.
func (f *Fleet) Submit(ctx context.Context, cmds []tag.Command) (wait func()) {
	var parts []part
	for i := range cmds {
		d := f.route(cmds[i].Ref)
		if d == nil {
			cmds[i].Status = tag.BadNodeIDUnknown
			continue
		}
		p := partOf(&parts, d)
		p.indices = append(p.indices, i)
		if d.lane == nil {
			continue
		}
		if p.job == nil {
			p.job = &job{done: make(chan struct{})}
		}
		p.job.cmds = append(p.job.cmds, cmds[i])
		p.job.devices = append(p.job.devices, d)
		p.job.state = append(p.job.state, waiting)
	}
	for i := range parts {
		parts[i].start(cmds, f.cfg.Sink)
	}
	return func() {
		for i := range parts {
			parts[i].wait(ctx, cmds)
		}
	}
}

// onlyDirect is the device without a line that all commands are for, or nil: the common case, done without copies.
func (f *Fleet) onlyDirect(cmds []tag.Command) *device {
	if len(cmds) == 0 {
		return nil
	}
	d := f.route(cmds[0].Ref)
	if d == nil || d.lane != nil {
		return nil
	}
	for i := range cmds[1:] {
		if f.route(cmds[i+1].Ref) != d {
			return nil
		}
	}
	return d
}

func partOf(parts *[]part, d *device) *part {
	var direct *device
	if d.lane == nil {
		direct = d
	}
	for i := len(*parts) - 1; i >= 0; i-- {
		if p := &(*parts)[i]; p.lane == d.lane && p.direct == direct {
			return p
		}
	}
	*parts = append(*parts, part{lane: d.lane, direct: direct})
	return &(*parts)[len(*parts)-1]
}

// start queues the part, or carries it out if it needs no line.
func (p *part) start(cmds []tag.Command, sink tag.Sink) {
	if p.direct != nil {
		own := make([]tag.Command, len(p.indices))
		for i, at := range p.indices {
			own[i] = cmds[at]
		}
		p.direct.cfg.Immediate.Execute(own, sink)
		p.direct.stats.executed(len(own))
		for i, at := range p.indices {
			cmds[at].Status = own[i].Status
		}
		return
	}
	status := p.lane.queue.put(p.job)
	if status == tag.Good {
		return
	}
	if status == tag.BadShutdown {
		status = tag.BadNoCommunication // never sent
	}
	for _, at := range p.indices {
		cmds[at].Status = status
	}
	p.job = nil
}

// wait brings the statuses. What waits when ctx ends is dropped and never executed.
func (p *part) wait(ctx context.Context, cmds []tag.Command) {
	if p.job == nil {
		return
	}
	select {
	case <-p.job.done:
		for i, at := range p.indices {
			cmds[at].Status = p.job.cmds[i].Status
		}
	case <-ctx.Done():
		statuses, unknown := p.lane.queue.abandon(p.job)
		for i, at := range p.indices {
			cmds[at].Status = statuses[i]
		}
		for _, i := range unknown {
			p.lane.tell(p.job.devices[i], p.job.cmds[i].Ref, tag.BadTimeout, context.Cause(ctx))
		}
	}
}

// Refresh implements tag.Field. Readers that ask for the same line at the same time share its exchanges.
func (f *Fleet) Refresh(ctx context.Context, refs []tag.Ref) tag.Status {
	byDevice := map[*device][]tag.Ref{}
	var order []*device
	for _, ref := range refs {
		d := f.route(ref)
		if d == nil || !d.readable(ref) {
			continue
		}
		if byDevice[d] == nil {
			order = append(order, d)
		}
		byDevice[d] = append(byDevice[d], ref)
	}
	var jobs []*job
	for _, d := range order {
		if d.lane == nil {
			d.cfg.Immediate.Refresh(byDevice[d], f.cfg.Sink)
			continue
		}
		j, status := d.lane.queue.join(d, byDevice[d])
		if status != tag.Good {
			return status
		}
		jobs = append(jobs, j)
	}
	for _, j := range jobs {
		select {
		case <-j.done:
		case <-ctx.Done():
			return tag.BadTimeout
		}
	}
	return tag.Good
}

// Operate implements tag.Field.
func (f *Fleet) Operate(ctx context.Context, name string, op tag.Op) tag.Status {
	d := f.byName[name]
	if d == nil {
		return tag.BadNodeIDUnknown
	}
	switch op {
	case tag.ResetCounters:
		d.stats.reset()
		return tag.Good
	case tag.Poll:
		return f.Refresh(ctx, d.tags())
	case tag.Enable, tag.Disable:
		return d.switched(ctx, op == tag.Enable)
	}
	return tag.BadNotSupported
}

// switched has the device's lane switch it on or off.
func (d *device) switched(ctx context.Context, on bool) tag.Status {
	if d.lane == nil {
		return tag.BadNotSupported
	}
	j := &job{done: make(chan struct{}), operate: func() { d.lane.enable(d, on) }}
	if status := d.lane.queue.put(j); status != tag.Good {
		return status
	}
	select {
	case <-j.done:
		return tag.Good
	case <-ctx.Done():
		return tag.BadTimeout
	}
}

// Devices returns a snapshot of every device, in the order of the configuration.
func (f *Fleet) Devices() []DeviceStats {
	out := make([]DeviceStats, len(f.devices))
	for i, d := range f.devices {
		out[i] = d.stats.snapshot()
	}
	return out
}

// Device returns a snapshot of one device.
func (f *Fleet) Device(name string) (DeviceStats, bool) {
	d := f.byName[name]
	if d == nil {
		return DeviceStats{}, false
	}
	return d.stats.snapshot(), true
}

// Buses returns a snapshot of every bus, in the order of the configuration.
func (f *Fleet) Buses() []BusStats {
	out := make([]BusStats, len(f.buses))
	for i, b := range f.buses {
		out[i] = b.snapshot()
	}
	return out
}
