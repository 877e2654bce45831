package drivers

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"edged/drivers/tag"
)

// device is what a lane knows of one device.
type device struct {
	cfg    DeviceConfig
	lane   *lane                      // nil for a device without a line
	table  *atomic.Pointer[tag.Table] // the fleet's
	stats  *deviceStats
	bus    *bus    // of lane
	prices []price // of its requests, as they were when it was made
	was    *device // what it takes the place of, until it does; owned by Apply

	// Of a device without a line that works; owned by the fleet's mu.
	cancel context.CancelFunc
	done   chan struct{}

	// Owned by the lane's goroutine.
	settled  bool    // it is among the lane's devices, or was
	gone     bool    // another configuration is without it
	moved    bool    // of one that is gone: to another line, or it is replaced
	heir     *device // of one that is gone: what took its place on this lane, or nil
	scans    []scan
	answered bool // at least once since start: until then its tags wait for initial data
	silent   bool // does not answer: it is asked again at retryAt
	disabled bool
	told     bool // whether the log knows the state
	talk     talk
	backoff  time.Duration
	retryAt  time.Duration // on the lane's clock
	garbled  int           // answers in a row that were none
	failing  map[int]bool  // requests that failed last time
	held     map[tag.Ref]*held
	written  map[tag.Ref]tag.Value // arrays that cannot be read, as they were written
	// when the device was last asked what it is, on the lane's clock; 0: never
	identified time.Duration
	met        uint64        // the last of the links that the lane opened on which the device answered
	holding    int           // entries of held whose time runs
	toldMishap time.Duration // when the log last heard that it was misheard, on the lane's clock; 0: never

	writes *writeLog
}

// held is the last good value of a tag with hold.
type held struct {
	last    tag.Sample
	goodAt  time.Duration // on the lane's clock; -1: never
	keep    time.Duration
	running bool // published as uncertain; bad when keep is over
}

// maxGarbled is how many answers in a row may be no answers before the device is treated as silent: each costs the line
// a time-out.
const maxGarbled = 3

func newDevice(cfg DeviceConfig, table *atomic.Pointer[tag.Table]) *device {
	d := &device{cfg: cfg, table: table, failing: map[int]bool{}}
	d.stats = &deviceStats{s: DeviceStats{Name: cfg.Name, Bus: cfg.Bus}}
	d.writes = newWriteLog()
	if cfg.Driver == nil {
		d.stats.s.State = Online
		return d
	}
	d.prices = prices(cfg.Driver)
	for _, period := range cfg.Driver.Scans() {
		d.scans = append(d.scans, scan{period: max(period, minPeriod)})
	}
	if len(cfg.Hold) > 0 {
		d.held = make(map[tag.Ref]*held, len(cfg.Hold))
		for ref, keep := range cfg.Hold {
			d.held[ref] = &held{keep: keep, goodAt: -1}
		}
	}
	return d
}

func (d *device) tags() []tag.Ref {
	if d.cfg.Immediate != nil {
		return d.cfg.Immediate.Tags()
	}
	return d.cfg.Driver.Tags()
}

func (d *device) readable(ref tag.Ref) bool {
	t := d.table.Load().Tag(ref)
	return t != nil && t.Access&tag.Readable != 0
}

// forget drops what is known of requests that the driver has replaced.
func (d *device) forget() {
	if len(d.failing) == 0 {
		return
	}
	live := map[int]bool{}
	for scan := range d.scans {
		for _, request := range d.cfg.Driver.Requests(scan) {
			live[request] = true
		}
	}
	for request := range d.failing {
		if !live[request] {
			delete(d.failing, request)
		}
	}
}

// say logs of a device, within the bounds of its talk.
func (l *lane) say(d *device, level slog.Level, msg string, args ...any) {
	d.talk.say(l.bus.log, l.now(), level, msg, append([]any{"device", d.cfg.Name}, args...)...)
}

// alive notes that the device answered, be it with an exception.
func (l *lane) alive(d *device) {
	l.good()
	if d.silent || d.met != l.opened {
		d.met = l.opened
		l.meet(d)
	}
	d.answered = true
	d.garbled = 0
	state := Online
	if len(d.failing) > 0 {
		state = Degraded
	}
	changed := d.stats.setState(state)
	if !d.silent && d.told {
		if changed || d.talk.unsaid > 0 && d.talk.owes(l.now()) {
			l.say(d, slog.LevelInfo, "device changed", "state", state)
		}
		return
	}
	if d.told || changed {
		l.say(d, slog.LevelInfo, "device answers", "state", state)
	}
	d.silent, d.told, d.backoff = false, true, 0
	now := l.now()
	for i := range d.scans {
		d.scans[i].catchUp(now)
	}
}

// silence publishes once that the device cannot be read, unless it never answered since start.
func (l *lane) silence(d *device, status tag.Status) {
	was := d.silent
	d.silent = true
	d.stats.setState(Offline)
	clear(d.failing)
	now := l.now()
	for i := range d.scans {
		d.scans[i].skip(now)
	}
	if was || !d.answered || d.disabled {
		return
	}
	l.publishAll(d, status)
}

// publishAll publishes one bad status for every readable tag of the device.
func (l *lane) publishAll(d *device, status tag.Status) {
	l.batch = l.batch[:0]
	at := tag.Now()
	for _, ref := range d.tags() {
		if d.readable(ref) {
			l.batch = append(l.batch, tag.Sample{Ref: ref, Status: status, At: at})
		}
	}
	l.publish(d, l.batch)
}

// mute puts a device that did not answer off, each time for longer.
func (l *lane) mute(d *device, status tag.Status, err error) {
	if !d.told || !d.silent || d.talk.owes(l.now()) {
		l.say(d, slog.LevelWarn, "device does not answer, its tags are bad until it does", "err", err)
		d.told = true
	}
	l.silence(d, status)
	l.triedInVain(l.took)
	d.backoff = nextBackoff(d.backoff, l.mostBackoff())
	d.retryAt = l.now() + jitter(d.backoff)
}

// mostBackoff is how far the back-off of a device that does not answer grows: all that are silent together may take a
// sixteenth of the line.
func (l *lane) mostBackoff() time.Duration {
	n := 0
	for _, d := range l.devices {
		if d.silent && !d.disabled {
			n++
		}
	}
	return min(max(mostBackoff, time.Duration(patience*n)*l.took), farBackoff)
}

// spared reports whether a device that does not answer is left alone although a client asks for it: it was asked a
// moment ago, and each time costs the line a time-out.
func (l *lane) spared(d *device) bool {
	now := l.now()
	return d.silent && d.retryAt > now && now < l.wishAt
}

// failed notes what a fault means for the device, and publishes the readings that came with it.
func (l *lane) failed(d *device, request int, f *Fault, batch []tag.Sample) {
	switch f.Kind {
	case Mute:
		l.mute(d, tag.BadNoCommunication, f)
		return
	case Garbled:
		if d.garbled++; d.garbled >= maxGarbled {
			l.mute(d, tag.BadCommunicationError, f)
			return
		}
		l.publish(d, batch)
		return
	}
	if request >= 0 && !d.failing[request] {
		d.failing[request] = true
		l.say(d, slog.LevelWarn, "request fails", "err", f)
	}
	l.alive(d)
	l.publish(d, batch)
}

// publish gives a batch to the sink. A tag with hold stays uncertain for a while instead of bad.
func (l *lane) publish(d *device, batch []tag.Sample) {
	if len(batch) == 0 {
		return
	}
	if len(d.held) > 0 {
		l.hold(d, batch)
	}
	l.bus.sink.Publish(batch)
}

func (l *lane) hold(d *device, batch []tag.Sample) {
	now := l.now()
	for i := range batch {
		s := &batch[i]
		h := d.held[s.Ref]
		if h == nil {
			continue
		}
		if h.running {
			h.running = false
			d.holding--
		}
		switch {
		case s.Status.IsGood():
			h.last, h.goodAt = *s, now
		case s.Status == tag.BadNoCommunication && h.goodAt >= 0 && now < h.goodAt+h.keep:
			s.Status, s.Value = tag.UncertainNoCommunicationLastUsableValue, h.last.Value
			h.running = true
			d.holding++
		}
	}
}

const never = time.Duration(1<<63 - 1)

// nextHold is when the next held value is to become bad.
func (l *lane) nextHold() time.Duration {
	next := never
	for _, d := range l.devices {
		if d.holding == 0 {
			continue
		}
		for _, h := range d.held {
			if h.running {
				next = min(next, h.goodAt+h.keep)
			}
		}
	}
	return next
}

// expireHolds publishes held values whose time is over as bad.
func (l *lane) expireHolds() {
	for _, d := range l.devices {
		if d.holding == 0 {
			continue
		}
		now := l.now()
		l.batch = l.batch[:0]
		for ref, h := range d.held {
			if h.running && now >= h.goodAt+h.keep {
				l.batch = append(l.batch, tag.Sample{Ref: ref, Status: tag.BadNoCommunication, At: tag.Now()})
			}
		}
		l.publish(d, l.batch)
	}
}

// enable switches a device on or off. What is off is not asked, and its tags say so.
func (l *lane) enable(d *device, on bool) {
	if d = d.living(); d == nil || d.disabled == !on {
		return
	}
	d.stats.mu.Lock()
	d.stats.s.Disabled = !on
	d.stats.mu.Unlock()
	l.bus.log.Info("device switched", "device", d.cfg.Name, "enabled", on)
	if !on {
		l.publishAll(d, tag.BadOutOfService)
		d.stats.setState(Offline)
	}
	d.disabled, d.silent, d.retryAt, d.backoff = !on, true, 0, 0
	d.garbled = 0
	clear(d.failing)
	now := l.now()
	for i := range d.scans {
		d.scans[i].skip(now)
		d.scans[i].catchUp(now)
	}
}

// blame counts a fault, and the time that it took from the others.
func (l *lane) blame(d *device, f *Fault) {
	d.stats.failed(f.Kind, f)
	if f.Kind == Mute || f.Kind == Garbled {
		d.stats.lost(l.took)
	}
}

// retryable reports whether a read that failed so is worth another try at once.
func retryable(k FaultKind) bool { return k == Mute || k == Garbled }
