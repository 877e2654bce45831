package drivers

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"edged/drivers/tag"
)

// drainLimit is how long a bus that goes may take for the exchange in flight before its link is closed under it.
const drainLimit = 2 * time.Second

// Successor is a device without a line that goes on from what the one before it holds. The fleet calls Succeed when
// the old one's Run has ended and before its own begins; commands may still come to the old one for a moment.
type Successor interface {
	Succeed(old Immediate)
}

// Change is another configuration that was found right and has yet to be applied.
type Change struct {
	fleet     *Fleet
	table     *tag.Table
	was, next *layout
}

// Prepare checks another configuration against the one that is applied. A bus is kept when its name, settings and
// Links are those of the one before, and a device when its name and driver are and its bus is kept: whoever calls gives
// the same Links and drivers for what does not change. Sink, Log and Pulse stay those of NewFleet. Changes are made
// one at a time.
func (f *Fleet) Prepare(next Config) (*Change, error) {
	l, err := f.arrange(&next)
	if err != nil {
		return nil, err
	}
	return &Change{fleet: f, table: next.Table, was: f.now.Load(), next: l}, nil
}

// Apply is Prepare and Change.Apply.
func (f *Fleet) Apply(next Config) error {
	c, err := f.Prepare(next)
	if err == nil {
		c.Apply()
	}
	return err
}

// Apply goes over to the configuration while the fleet works. What is kept sees nothing of it: links, scans and
// counters go on. A changed device is replaced between two exchanges of its line, on the grid of its scans, with its
// counters; what goes has stopped, and its sockets are closed, before anything new opens one. Commands that wait are
// answered: BadNodeIdUnknown where the device goes, BadNoCommunication where it is replaced or its bus goes. Apply
// returns when all this is done, which takes as long as the exchanges in flight.
func (c *Change) Apply() {
	f := c.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.Store(c.table)
	c.leave()
	f.now.Store(c.next)
	c.enter()
}

// leave ends the buses and devices that go, all at a time.
func (c *Change) leave() {
	var all sync.WaitGroup
	defer all.Wait()
	for _, b := range c.was.buses {
		if c.next.lines[b.cfg.Name] != b {
			all.Go(b.end)
			continue
		}
		for _, l := range b.lanes {
			stay, changed := c.staying(l)
			if changed {
				all.Go(func() { <-l.queue.between(func() { c.part(l, stay) }) })
			}
		}
	}
	for _, d := range c.was.devices {
		if d.cfg.Immediate != nil && c.next.byName[d.cfg.Name] == nil {
			all.Go(d.end)
		}
	}
}

// part leaves a lane those of its devices that stay. It runs in the lane's goroutine.
func (c *Change) part(l *lane, stay []*device) {
	for _, d := range l.devices {
		d.moved = c.next.byName[d.cfg.Name] != nil
	}
	l.rearrange(stay)
}

// staying are the devices of a lane that are kept, or replaced on the same lane.
func (c *Change) staying(l *lane) (stay []*device, changed bool) {
	for _, d := range c.was.members[l] {
		if n := c.next.byName[d.cfg.Name]; n != nil && n.lane == l {
			stay = append(stay, d)
		} else {
			changed = true
		}
	}
	return stay, changed
}

// enter puts what is new in its place and starts it.
func (c *Change) enter() {
	var all sync.WaitGroup
	defer all.Wait()
	f := c.fleet
	for _, b := range c.next.buses {
		fresh := c.was.lines[b.cfg.Name] != b
		for _, l := range b.lanes {
			if members := c.next.members[l]; fresh {
				l.rearrange(members)
			} else if stay, _ := c.staying(l); !slices.Equal(stay, members) {
				all.Go(func() { <-l.queue.between(func() { l.rearrange(members) }) })
			}
		}
		if fresh {
			f.start(b)
		}
	}
	for _, d := range c.next.devices {
		if d.cfg.Immediate != nil && c.was.byName[d.cfg.Name] != d {
			if was := d.was; was != nil {
				was.end()
				if s, ok := d.cfg.Immediate.(Successor); ok {
					s.Succeed(was.cfg.Immediate)
				}
				d.was = nil
			}
			f.startDirect(d)
		}
	}
}

// end stops a bus after the exchange in flight, and returns when its links are closed.
func (b *bus) end() {
	for _, l := range b.lanes {
		l.queue.between(func() { l.ending = true })
	}
	if b.done == nil {
		return
	}
	limit := time.AfterFunc(drainLimit, b.cancel)
	defer limit.Stop()
	<-b.done
}

// end stops a device without a line.
func (d *device) end() {
	if d.done != nil {
		d.cancel()
		<-d.done
	}
}

// arrange makes the layout of a configuration, with what it has in common with the present one.
func (f *Fleet) arrange(cfg *Config) (*layout, error) {
	was := f.now.Load()
	n := &layout{
		lines: make(map[string]*bus, len(cfg.Buses)), members: make(map[*lane][]*device),
		byName: make(map[string]*device, len(cfg.Devices)), routes: make([]*device, cfg.Table.Slots()),
	}
	for _, bc := range cfg.Buses {
		if n.lines[bc.Name] != nil {
			return nil, fmt.Errorf("bus %s is defined twice", bc.Name)
		}
		b := was.lines[bc.Name]
		if b == nil || !b.cfg.same(&bc) {
			var err error
			if b, err = newBus(bc, &f.cfg); err != nil {
				return nil, err
			}
		}
		n.lines[bc.Name] = b
		n.buses = append(n.buses, b)
	}
	for _, dc := range cfg.Devices {
		if err := n.add(f, was, dc, n.lines[dc.Bus]); err != nil {
			return nil, err
		}
	}
	n.spread()
	return n, nil
}

// add adds a device: the present one, one that takes its place, or a new one.
func (n *layout) add(f *Fleet, was *layout, cfg DeviceConfig, b *bus) error {
	switch {
	case n.byName[cfg.Name] != nil:
		return fmt.Errorf("device %s is defined twice", cfg.Name)
	case (cfg.Driver == nil) == (cfg.Immediate == nil):
		return fmt.Errorf("device %s needs one driver", cfg.Name)
	case cfg.Driver != nil && b == nil:
		return fmt.Errorf("device %s is on bus %q, which is not defined", cfg.Name, cfg.Bus)
	}
	d := was.byName[cfg.Name]
	if d == nil || !d.cfg.same(&cfg) || d.lane != nil && d.lane.bus != b {
		d = newDevice(cfg, &f.table).after(d)
		d.bus = b
		if d.was != nil && d.was.lane != nil && d.was.lane.bus == b {
			d.lane = d.was.lane
		}
	}
	n.byName[cfg.Name] = d
	n.devices = append(n.devices, d)
	for _, ref := range d.tags() {
		if ref == 0 || int(ref) > len(n.routes) {
			return fmt.Errorf("device %s has tag %d, which is not in the table", cfg.Name, ref)
		}
		n.routes[ref-1] = d
	}
	return nil
}

// spread gives each device that has no lane yet to the lane of its bus with the fewest.
func (n *layout) spread() {
	count := map[*lane]int{}
	for _, d := range n.devices {
		if d.lane != nil {
			count[d.lane]++
		}
	}
	for _, d := range n.devices {
		if d.cfg.Driver == nil {
			continue
		}
		if d.lane == nil {
			d.lane = d.bus.lanes[0]
			for _, l := range d.bus.lanes[1:] {
				if count[l] < count[d.lane] {
					d.lane = l
				}
			}
			count[d.lane]++
		}
		n.members[d.lane] = append(n.members[d.lane], d)
	}
	n.budgets = make(map[*bus]Budget, len(n.buses))
	for _, b := range n.buses {
		lanes := make([][]*device, len(b.lanes))
		for i, l := range b.lanes {
			lanes[i] = n.members[l]
		}
		n.budgets[b] = budgetOf(lanes, b.cfg.Retries)
	}
}

func (c *BusConfig) same(o *BusConfig) bool {
	return c.Name == o.Name && c.Retries == o.Retries && c.WriteRetries == o.WriteRetries &&
		slices.EqualFunc(c.Links, o.Links, func(a, b Link) bool { return identical(a, b) })
}

func (c *DeviceConfig) same(o *DeviceConfig) bool {
	return c.Name == o.Name && identical(c.Driver, o.Driver) && identical(c.Immediate, o.Immediate)
}

// identical reports whether two interfaces hold the same thing; what cannot be compared is another each time.
func identical(a, b any) bool {
	v := reflect.ValueOf(a)
	return !v.IsValid() && b == nil || v.IsValid() && v.Comparable() && a == b
}

// after has a new device take the place of an old one of its name and kind, with its counters.
func (d *device) after(was *device) *device {
	if was == nil || (was.cfg.Driver == nil) != (d.cfg.Driver == nil) {
		return d
	}
	d.was, d.stats, d.writes = was, was.stats, was.writes
	return d
}

// living is the device, or what took its place on its lane; nil if nothing did.
func (d *device) living() *device {
	for d != nil && d.gone {
		d = d.heir
	}
	return d
}

// heirOf is what took the place of a device that is gone, with those of refs that it has.
func (d *device) heirOf(refs []tag.Ref) (*device, []tag.Ref) {
	h := d.living()
	if h == nil {
		return nil, nil
	}
	has := make(map[tag.Ref]bool)
	for _, ref := range h.tags() {
		has[ref] = true
	}
	return h, slices.DeleteFunc(refs, func(ref tag.Ref) bool { return !has[ref] })
}

// rearrange gives the lane other devices. It runs in the lane's goroutine, or while that does not run.
func (l *lane) rearrange(next []*device) {
	for _, d := range l.devices {
		d.gone = true
	}
	l.devices = next
	requests := 0
	for _, d := range next {
		requests += len(d.prices)
	}
	l.loadMu.Lock()
	l.requests = requests
	l.loadMu.Unlock()
	for _, d := range next {
		d.gone = false
		if d.settled {
			continue
		}
		d.settled = true
		if l.up {
			for i := range d.scans {
				d.scans[i].catchUp(l.now())
			}
		}
		if was := d.was; was != nil {
			d.was = nil
			l.inherit(d, was)
		}
	}
}

// inherit has a device go on from the one before it. Scans of the same period keep their next moment. What was silent
// is asked at once: the change may be the cure.
func (l *lane) inherit(d, was *device) {
	d.stats.mu.Lock()
	d.stats.s.Bus = d.cfg.Bus
	d.stats.mu.Unlock()
	d.answered, d.disabled, d.silent, d.told, d.written = was.answered, was.disabled, was.silent, was.told, was.written
	same := was.lane == l
	if same {
		was.heir, d.talk = d, was.talk
	}
	if same && !was.silent {
		for i := range d.scans {
			for _, s := range was.scans {
				if s.period == d.scans[i].period {
					d.scans[i].due = s.due
				}
			}
		}
	}
	l.batch = l.batch[:0]
	for ref, old := range was.held {
		h := d.held[ref]
		switch {
		case h != nil && old.goodAt >= 0:
			h.last, h.goodAt, h.running = old.last, old.goodAt, old.running
			if !same { // the other lane had a clock of its own
				h.goodAt = 0
				if !l.base.IsZero() {
					h.goodAt = l.now()
				}
			}
			if h.running {
				d.holding++
			}
		case h == nil && old.running && d.readable(ref):
			l.batch = append(l.batch, tag.Sample{Ref: ref, Status: tag.BadNoCommunication, At: tag.Now()})
		}
	}
	l.publish(d, l.batch)
}
