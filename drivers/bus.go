package drivers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"edged/drivers/tag"
)

const (
	defaultOpenTimeout = 5 * time.Second
	// Back-off of a link that cannot be opened, and of a device that does not answer: from first to most, doubled each
	// time, with jitter, so that a gateway does not come back to all its hosts at one moment.
	// A host or device that is back waits no longer than mostBackoff and its jitter, 10 s.
	firstBackoff = 500 * time.Millisecond
	mostBackoff  = 8 * time.Second
	// Where asking in vain takes long (a time-out, for as many devices as are silent), a back-off is at least patience
	// times as long, up to farBackoff: the others keep their rate.
	patience   = 16
	farBackoff = 30 * time.Second
	// A client's wish ends a back-off, but not sooner than leastWait after the last attempt, nor than wishShare times what
	// that took: clients that ask on and on for what is dead leave nine tenths of the line to the others.
	leastWait = time.Second
	wishShare = 10
	// A device that asks for patience (exceptions 5 and 6) gets it this often, from busyPause on, doubled each time.
	busyTries = 3
	busyPause = 20 * time.Millisecond
	// maxSleep is how long a lane that has nothing to do stays silent to the watchdog.
	maxSleep = 5 * time.Second
	// loadWindow is how long busy time is summed for Utilization.
	loadWindow = 10 * time.Second
)

// What the log says of a line.
const (
	toldNothing uint8 = iota
	toldUp
	toldDown
)

// bus is one line: its lanes, and what they count together.
type bus struct {
	cfg   BusConfig
	log   *slog.Logger
	sink  tag.Sink
	pulse tag.Pulse
	lanes []*lane

	// Of a bus that works; owned by the fleet's mu.
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex // guards s and started
	s       BusStats
	started time.Time
}

// lane is one link and the devices that talk through it. It has one goroutine, which owns everything but the queue.
type lane struct {
	bus    *bus
	number int
	link   Link
	queue  queue

	// Owned by the lane's goroutine.
	devices   []*device
	strangers []stranger // devices that have yet to be asked what they are
	opened    uint64     // how often the link was
	ending    bool       // another configuration is without this bus
	base      time.Time  // the grid's origin; differences are monotonic, so that a clock step moves no scan
	up        bool
	told      uint8 // what the log says of the line
	worked    bool  // an exchange succeeded since the link was opened
	backoff   time.Duration
	reopenAt  time.Duration // of a link that is not up
	wishAt    time.Duration // from when on a client's wish has a silent device asked, or the link opened, before its time
	took      time.Duration // the last exchange
	probed    bool          // the last poll was of a silent device: one that answers is next
	talk      talk
	yielded   bool // the last exchange was a command's: a due poll is next
	batch     []tag.Sample
	timer     *time.Timer

	loadMu   sync.Mutex    // guards the fields below
	window   time.Duration // when the current window began
	current  load          // of the current window
	before   load          // of the window before
	complete bool          // there was one
	requests int           // of the lane's devices
}

// load is what a lane did in a window.
type load struct {
	busy     time.Duration // in exchanges
	polls    int
	pollTime time.Duration
	wait     time.Duration // the longest of a write
}

func newBus(cfg BusConfig, fleet *Config) (*bus, error) {
	if len(cfg.Links) == 0 {
		return nil, fmt.Errorf("bus %s has no link", cfg.Name)
	}
	if cfg.OpenTimeout <= 0 {
		cfg.OpenTimeout = defaultOpenTimeout
	}
	b := &bus{cfg: cfg, log: fleet.Log.With("bus", cfg.Name), sink: fleet.Sink, pulse: fleet.Pulse, s: BusStats{Name: cfg.Name}}
	for i, link := range cfg.Links {
		b.lanes = append(b.lanes, &lane{bus: b, number: i, link: link, queue: newQueue()})
	}
	return b, nil
}

func (b *bus) run(ctx context.Context) {
	b.mu.Lock()
	b.started = time.Now()
	b.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range b.lanes {
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
}

func (b *bus) snapshot() BusStats {
	b.mu.Lock()
	s := b.s
	if !b.started.IsZero() {
		s.Uptime = time.Since(b.started)
	}
	b.mu.Unlock()
	for _, l := range b.lanes {
		l.measure(&s)
	}
	return s
}

// exchanged counts one exchange.
func (l *lane) exchanged(took time.Duration, command bool) {
	b := l.bus
	i := 0
	for i < len(pollBounds) && took > pollBounds[i] {
		i++
	}
	b.mu.Lock()
	b.s.Polls[i]++
	b.s.PollTime += took
	if command {
		b.s.Commands++
	}
	b.mu.Unlock()
	l.took = took
	l.loadMu.Lock()
	l.turnWindow()
	l.current.busy += took
	if !command {
		l.current.polls++
		l.current.pollTime += took
	}
	l.loadMu.Unlock()
}

// turnWindow begins a new window when the current one is full. Call it with loadMu held.
func (l *lane) turnWindow() {
	now := l.now()
	if now-l.window < loadWindow {
		return
	}
	l.before, l.complete = l.current, true
	if now-l.window >= 2*loadWindow {
		l.before = load{}
	}
	l.current, l.window = load{}, now-(now-l.window)%loadWindow
}

// measure adds what the lane did in the last ten to twenty seconds.
func (l *lane) measure(s *BusStats) {
	l.loadMu.Lock()
	defer l.loadMu.Unlock()
	if l.base.IsZero() {
		return
	}
	l.turnWindow()
	sum, span := l.current, l.now()-l.window
	if l.complete {
		sum.busy, sum.polls, sum.pollTime = sum.busy+l.before.busy, sum.polls+l.before.polls, sum.pollTime+l.before.pollTime
		sum.wait = max(sum.wait, l.before.wait)
		span += loadWindow
	}
	if span > 0 {
		s.Utilization = max(s.Utilization, min(1, float64(sum.busy)/float64(span)))
	}
	if sum.polls > 0 {
		s.Cycle = max(s.Cycle, sum.pollTime/time.Duration(sum.polls)*time.Duration(l.requests))
	}
	s.Wait = max(s.Wait, sum.wait)
}

// waited notes how long a write waited for the line.
func (l *lane) waited(d time.Duration) {
	l.loadMu.Lock()
	defer l.loadMu.Unlock()
	l.turnWindow()
	l.current.wait = max(l.current.wait, d)
}

// now is the time on the lane's own clock.
func (l *lane) now() time.Duration { return time.Since(l.base) }

func (l *lane) run(ctx context.Context) {
	l.loadMu.Lock()
	l.base = time.Now()
	l.loadMu.Unlock()
	l.timer = time.NewTimer(maxSleep)
	defer l.timer.Stop()
	// An exchange in flight ends at once when the fleet stops.
	stop := context.AfterFunc(ctx, func() { l.link.Close() })
	defer stop()
	defer l.queue.close()
	defer l.link.Close()
	for ctx.Err() == nil {
		if l.queue.change(); l.ending {
			return
		}
		if l.bus.pulse != nil {
			l.bus.pulse()
		}
		l.expireHolds()
		switch {
		case !l.up && l.now() < l.reopenAt && !(l.now() >= l.wishAt && l.queue.wanted()):
			l.queue.refuse()
			l.sleep(ctx, min(l.reopenAt, l.nextHold()))
		case !l.up:
			switch err := l.open(ctx); {
			case err == nil:
				l.askAll()
			case ctx.Err() == nil:
				l.down(err)
			}
		case !l.step(ctx):
			l.rest(ctx, l.nextEvent())
		}
	}
}

// step makes one exchange: a command's, or a poll's that is due. After a command a due poll comes first, so that
// neither starves the other.
func (l *lane) step(ctx context.Context) bool {
	d, scan := l.due()
	if d == nil || !l.yielded {
		if j := l.queue.head(); j != nil {
			l.yielded = true
			l.serve(ctx, j)
			return true
		}
	}
	l.yielded = false
	if len(l.strangers) > 0 && l.identify(ctx, d == nil) {
		return true
	}
	if d == nil {
		return false
	}
	l.probed = d.silent
	l.scan(ctx, d, scan)
	return true
}

// sleep waits until the moment, a job, or the end.
func (l *lane) sleep(ctx context.Context, until time.Duration) {
	d := min(until-l.now(), maxSleep)
	if d <= 0 {
		return
	}
	l.timer.Reset(d)
	select {
	case <-l.timer.C:
	case <-l.queue.wake:
	case <-ctx.Done():
	}
}

func nextBackoff(d, most time.Duration) time.Duration {
	return min(max(2*d, firstBackoff), most)
}

// triedInVain notes how long an attempt took that brought nothing: the next wish of a client has to wait.
func (l *lane) triedInVain(took time.Duration) { l.wishAt = l.now() + max(leastWait, wishShare*took) }

// jitter spreads d by a quarter to both sides.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2)
}

// open opens the link once.
func (l *lane) open(ctx context.Context) error {
	octx, cancel := context.WithTimeout(ctx, l.bus.cfg.OpenTimeout)
	defer cancel()
	began := l.now()
	if err := l.link.Open(octx); err != nil {
		l.triedInVain(l.now() - began)
		return err
	}
	if ctx.Err() != nil {
		l.link.Close() // the end came while it opened
		return ctx.Err()
	}
	l.up, l.worked = true, false
	l.opened++
	b := l.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.Opened++
	b.s.Up = true
	return nil
}

// askAll makes every device due: the line was down, so that their back-off says nothing about them. Where a link that
// worked was only opened anew it does, and stays.
func (l *lane) askAll() {
	now := l.now()
	for _, d := range l.devices {
		d.retryAt = 0
		for i := range d.scans {
			d.scans[i].catchUp(now)
		}
	}
}

// down publishes once that nothing on the line can be reached, logs the change, and puts the next attempt off.
func (l *lane) down(err error) {
	b := l.bus
	b.mu.Lock()
	b.s.LastError = err.Error()
	b.s.Up = false
	b.mu.Unlock()
	if l.told != toldDown {
		l.told = toldDown
		l.talk.say(b.log, l.now(), slog.LevelWarn, "line is down, its tags are bad until it is back", "lane", l.number, "err", err)
	}
	l.up = false
	for _, d := range l.devices {
		l.silence(d, tag.BadNoCommunication)
	}
	l.backoff = nextBackoff(l.backoff, mostBackoff)
	l.wishAt = max(l.wishAt, l.now()+leastWait)
	l.reopenAt = l.now() + jitter(l.backoff)
}

// relink closes a link that was lost. It reports whether the exchange may be tried again at once, on a new link: the old
// one had worked, and a peer that closes when idle is no failure; or it may be half open.
func (l *lane) relink(ctx context.Context, err error) bool {
	l.link.Close()
	if ctx.Err() != nil {
		return false
	}
	if l.worked || errors.Is(err, ErrHalfOpen) {
		again := l.open(ctx)
		if again == nil {
			return true
		}
		err = again
	}
	if ctx.Err() == nil {
		l.down(err)
	}
	return false
}

// again is relink with the loss on the device's account. A connection that the peer had closed before anything was sent,
// and that comes back at once, is no failure.
func (l *lane) again(ctx context.Context, d *device, err error) bool {
	ok := l.relink(ctx, err)
	if !ok || !errors.Is(err, ErrUnsent) {
		d.stats.failed(LinkLost, err)
	}
	return ok
}

// good notes that an exchange succeeded: a host that takes a connection and drops it is not up.
func (l *lane) good() {
	l.worked = true
	l.backoff = 0
	if l.told != toldUp {
		l.told = toldUp
		l.talk.say(l.bus.log, l.now(), slog.LevelInfo, "line is up", "lane", l.number)
	}
}

// isFault reports whether err is the device's, on a link that works.
func isFault(err error) (*Fault, bool) {
	var f *Fault
	ok := errors.As(err, &f)
	return f, ok
}
