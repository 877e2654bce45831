package drivers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
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
	cfg   Config // Sink, Log and Pulse alone; the rest is in now and table
	now   atomic.Pointer[layout]
	table atomic.Pointer[tag.Table]

	mu    sync.Mutex      // guards all below; held for a whole Apply
	ctx   context.Context // of Run; nil before
	ended bool
	work  sync.WaitGroup // added to before ended
}

// layout is one arrangement of buses and devices. It is immutable, and replaced by Apply as a whole.
type layout struct {
	buses   []*bus
	lines   map[string]*bus // by name
	members map[*lane][]*device
	budgets map[*bus]Budget
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
	f := &Fleet{cfg: Config{Sink: cfg.Sink, Log: cfg.Log, Pulse: cfg.Pulse}}
	f.now.Store(&layout{})
	next, err := f.arrange(&cfg)
	if err != nil {
		return nil, err
	}
	(&Change{fleet: f, table: cfg.Table, was: f.now.Load(), next: next}).Apply()
	return f, nil
}

// Run works until ctx ends, and returns when every bus has stopped and closed its links.
func (f *Fleet) Run(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	l := f.now.Load()
	for _, b := range l.buses {
		f.start(b)
	}
	for _, d := range l.devices {
		f.startDirect(d)
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.work.Wait()
	return nil
}

// start begins the work of a bus if the fleet works. Call it with mu held.
func (f *Fleet) start(b *bus) {
	if f.ctx == nil || f.ended {
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	b.cancel, b.done = cancel, make(chan struct{})
	for _, l := range b.lanes {
		l.queue.open()
	}
	f.work.Go(func() {
		defer close(b.done)
		defer cancel()
		b.run(ctx)
	})
}

// startDirect begins the work of a device without a line, if it is one and the fleet works. Call it with mu held.
func (f *Fleet) startDirect(d *device) {
	if d.cfg.Immediate == nil || f.ctx == nil || f.ended {
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	d.cancel, d.done = cancel, make(chan struct{})
	f.work.Go(func() {
		defer close(d.done)
		defer cancel()
		d.cfg.Immediate.Run(ctx, f.cfg.Sink)
	})
}

// route is the device of a tag, or nil.
func (l *layout) route(ref tag.Ref) *device {
	if ref == 0 || int(ref) > len(l.routes) {
		return nil
	}
	return l.routes[ref-1]
}

// part is what one lane, or one device without a line, has of a batch.
type part struct {
	lane    *lane
	direct  *device
	indices []int // into the batch
	job     *job
	done    []tag.Command // by direct, which may have yet to keep them
}

// Execute implements tag.Field. Commands of one line are carried out in their order; lines work at the same time.
func (f *Fleet) Execute(ctx context.Context, cmds []tag.Command) {
	if d := f.now.Load().onlyDirect(cmds); d != nil {
		d.cfg.Immediate.Execute(cmds, f.cfg.Sink)
		d.stats.executed(len(cmds))
		if k, ok := d.cfg.Immediate.(Keeper); ok {
			k.Keep(ctx, cmds)
		}
		return
	}
	f.Submit(ctx, cmds)()
}

// Submit implements tag.Submitter. What needs no line is carried out at once.
func (f *Fleet) Submit(ctx context.Context, cmds []tag.Command) (wait func()) {
	l := f.now.Load()
	var parts []part
	for i := range cmds {
		d := l.route(cmds[i].Ref)
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
func (l *layout) onlyDirect(cmds []tag.Command) *device {
	if len(cmds) == 0 {
		return nil
	}
	d := l.route(cmds[0].Ref)
	if d == nil || d.lane != nil {
		return nil
	}
	for i := range cmds[1:] {
		if l.route(cmds[i+1].Ref) != d {
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
		p.done = own
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
	if p.direct != nil {
		if k, ok := p.direct.cfg.Immediate.(Keeper); ok {
			k.Keep(ctx, p.done)
			for i, at := range p.indices {
				cmds[at].Status = p.done[i].Status
			}
		}
		return
	}
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
			d := p.job.devices[i]
			d.writes.failed(p.lane.bus.log, d, p.job.cmds[i].Ref, tag.BadTimeout, context.Cause(ctx))
		}
	}
}

// Refresh implements tag.Field. Readers that ask for the same line at the same time share its exchanges.
func (f *Fleet) Refresh(ctx context.Context, refs []tag.Ref) tag.Status {
	l := f.now.Load()
	byDevice := map[*device][]tag.Ref{}
	var order []*device
	for _, ref := range refs {
		d := l.route(ref)
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
	d := f.now.Load().byName[name]
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
	devices := f.now.Load().devices
	out := make([]DeviceStats, len(devices))
	for i, d := range devices {
		out[i] = d.stats.snapshot()
	}
	return out
}

// Device returns a snapshot of one device.
func (f *Fleet) Device(name string) (DeviceStats, bool) {
	d := f.now.Load().byName[name]
	if d == nil {
		return DeviceStats{}, false
	}
	return d.stats.snapshot(), true
}

// Buses returns a snapshot of every bus, in the order of the configuration.
func (f *Fleet) Buses() []BusStats {
	now := f.now.Load()
	out := make([]BusStats, len(now.buses))
	for i, b := range now.buses {
		out[i] = b.snapshot()
		out[i].Predicted = now.budgets[b]
	}
	return out
}
