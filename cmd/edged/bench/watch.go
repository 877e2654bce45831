package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// mover is who changes the values that are watched.
type mover int

const (
	byPause  mover = iota // the bench: a Write of all, its answer, a pause
	byPeriod              // the bench: a Write of all each period
	byServer              // the server by itself
)

// watching is a workload of subscriptions.
type watching struct {
	subscriptions int // a session
	items         int // a Subscription, at most
	publishing    time.Duration
	sampling      float64 // milliseconds; -1: as the Subscription publishes
	queue         uint32
	requests      int // Publish requests in flight a session
	mover         mover
	pause         time.Duration // of the writer, its period, or the step of the server's values
	each          bool          // the delay of each notification is measured, not of the first in a message alone
	objects       int           // of twoWay
	events        bool          // the items watch the Server object's events
	twoWay        bool          // the second half of the nodes is written by the client, as text
	judge         func(r *watched) string
}

// watched is one round of it.
type watched struct {
	*watching
	own     bool // the server is a gateway of its own, with a ledger
	scaled  bool // a quick look
	seconds float64
	writes  uint64
	items   uint64
	errors  uint64
	first   error

	expected uint64 // notifications
	received uint64
	counted  uint64 // notifications while the cost was measured
	lost     uint64 // left out between two that were received: overwritten in the queue
	again    uint64
	overflow uint64
	behind   uint64 // items whose last value did not arrive
	fewest   uint64 // notifications of an item
	nodeLow  uint64 // of a node, by all its items
	window   window
	back     latencies // of two-way: from a change at the client to the server's answer
	backSum  time.Duration
	drain    time.Duration

	before, after, final sample // final: when all has arrived
}

// crew are all sessions of a round.
type crew struct {
	b       *bench
	subs    []*subscriber
	tally   tally
	ending  atomic.Bool
	running sync.WaitGroup
}

// openers is how many sessions are opened at a time.
const openers = 16

// restAbove is the number of sessions from which on they give their large buffers away.
const restAbove = 200

// each has some goroutines do something for each number below n. The first error ends it.
func each(ctx context.Context, n, goroutines int, do func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for range min(n, goroutines) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					cancel(fmt.Errorf("session %d: %w", i+1, err))
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// open opens the sessions with their Subscriptions, then makes the items, and measures both.
func (k *crew) open(ctx context.Context) (*setup, error) {
	b, w := k.b, k.b.load.watch
	if err := descriptors(b.cfg.Sessions); err != nil {
		return nil, err
	}
	k.subs = make([]*subscriber, b.cfg.Sessions)
	u := &setup{sessions: gauge{n: b.cfg.Sessions, probe: &b.probe}, items: gauge{n: b.cfg.Sessions * len(b.items(0)), probe: &b.probe}}
	u.sessions.begin()
	err := each(ctx, b.cfg.Sessions, openers, func(i int) error {
		c, err := b.peer.open(ctx, fmt.Sprintf("bench %d", i+1))
		if err != nil {
			return err
		}
		s := newSubscriber(c, w, b.items(i), &k.tally, &k.ending)
		k.subs[i] = s
		if err = s.createSubscriptions(); err == nil && b.cfg.Sessions > restAbove {
			c.rest()
		}
		u.sessions.done(1)
		return err
	})
	if u.sessions.end(); err != nil {
		return nil, err
	}
	u.items.begin()
	err = each(ctx, b.cfg.Sessions, openers, func(i int) error {
		s := k.subs[i]
		for sub := range s.subs {
			n, err := s.createItems(sub)
			if err != nil {
				return err
			}
			u.items.done(n)
		}
		return nil
	})
	u.items.end()
	return u, err
}

// start has all sessions ask for notifications, and waits until every item has its initial value.
func (k *crew) start(ctx context.Context) error {
	want := uint64(0)
	for _, s := range k.subs {
		if err := s.start(); err != nil {
			return err
		}
		want += uint64(len(s.items))
		if len(k.subs) > restAbove {
			s.c.rest()
		}
		k.running.Go(s.run)
	}
	for end := time.Now().Add(initialPatience); k.tally.begun.Load() < want; {
		if err := k.tally.wrong(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d items have no initial value after %v", want-k.tally.begun.Load(), want, initialPatience)
		}
		if !pause(ctx, waitForValues) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// initialPatience is how long the initial values of all items may take.
const initialPatience = time.Minute

func (t *tally) wrong() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// stop ends the receiving of all sessions, which keep what they know.
func (k *crew) stop() {
	k.ending.Store(true)
	for _, s := range k.subs {
		if s != nil {
			s.c.sock.SetReadDeadline(time.Now())
		}
	}
	k.running.Wait()
}

// close closes all sessions, as far as the server still answers.
func (k *crew) close() {
	k.stop()
	each(context.Background(), len(k.subs), openers, func(i int) error {
		if k.subs[i] != nil {
			k.subs[i].finish()
		}
		return nil
	})
}

// Draining ends when nothing came for some time, or after longest.
const (
	drainLook    = 250 * time.Millisecond
	drainQuiet   = 2 * time.Second
	drainLongest = 2 * time.Minute
)

// quiet is the time without a notification after which none is waited for: less in a quick look.
func (b *bench) quiet() time.Duration {
	scaled := time.Duration(float64(drainQuiet) * min(1, b.cfg.Scale))
	return max(scaled, b.load.watch.publishing*3/2, drainLook)
}

// drainUntil waits until done, or for as long as notifications come; it tells how long that was.
func (k *crew) drainUntil(ctx context.Context, done func() bool) time.Duration {
	begun := time.Now()
	last, at := k.tally.received.Load(), begun
	for time.Since(begun) < drainLongest && time.Since(at) < k.b.quiet() {
		if done() {
			return time.Since(begun)
		}
		if !pause(ctx, drainLook) {
			break
		}
		if n := k.tally.received.Load(); n != last {
			last, at = n, time.Now()
		}
	}
	return at.Sub(begun)
}

// items are the nodes that a session watches. Sessions share the nodes out: each takes those behind its predecessor's.
func (b *bench) items(session int) []node {
	w := b.load.watch
	n := w.subscriptions * w.items
	if w.twoWay {
		n = min(n, len(b.nodes))
	}
	if session == 0 && n == len(b.nodes) {
		return b.nodes
	}
	out := make([]node, n)
	for i := range out {
		out[i] = b.nodes[(session*n+i)%len(b.nodes)]
	}
	return out
}

// watchRound opens the sessions, changes the values, waits for what is under way, and compares.
func (b *bench) watchRound(ctx context.Context) (u *setup, r *watched, err error) {
	if b.load.watch.events {
		return b.eventRound(ctx)
	}
	k := &crew{b: b}
	defer k.close()
	defer context.AfterFunc(ctx, func() { k.ending.Store(true) })()
	m, err := b.newMoving(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer m.close()
	if u, err = k.open(ctx); err != nil {
		return nil, nil, err
	}
	if err = k.start(ctx); err != nil {
		return u, nil, err
	}
	if r, err = k.measure(ctx, m); err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return u, r, err
}

// measure is the part of a round that counts.
func (k *crew) measure(ctx context.Context, m *moving) (*watched, error) {
	b := k.b
	r := &watched{watching: b.load.watch, own: b.own != nil, scaled: b.cfg.Scale < 1, seconds: b.cfg.Duration.Seconds()}
	warm := time.Now().Add(b.cfg.Warmup)
	if m.ahead() {
		if err := m.start(ctx, warm, warm.Add(b.cfg.Duration)); err != nil {
			return nil, err
		}
	}
	r.before = b.probe.at(ctx, warm, true)
	from := time.Now()
	to := from.Add(b.cfg.Duration)
	k.window(from, to)
	before := k.tally.received.Load()
	if !m.ahead() {
		before = 0 // initial values count
		if err := m.start(ctx, from, to); err != nil {
			return nil, err
		}
	}
	pause(ctx, time.Until(to))
	err := m.wait()
	if m.onward() {
		r.after = b.probe.at(ctx, time.Now(), false)
		r.counted = k.tally.received.Load() - before
	}
	if err == nil {
		err = m.halt(ctx, k)
	}
	if err != nil {
		return nil, err
	}
	r.drain = k.drainUntil(ctx, func() bool { return m.complete(k) })
	r.final = b.probe.at(ctx, time.Now(), false)
	if !m.onward() {
		r.after, r.counted = r.final, k.tally.received.Load()-before
	}
	r.received = k.tally.received.Load() - before
	k.stop()
	if err := k.tally.wrong(); err != nil && ctx.Err() == nil {
		r.errors, r.first = k.tally.errors, err
	}
	k.sum(r)
	return r, m.judge(ctx, k, r)
}

// window begins the counting of delays.
func (k *crew) window(from, to time.Time) {
	t := &k.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	t.window = window{open: true, from: tag.TimeOf(from)}
	if k.b.load.watch.each {
		t.window.to = tag.TimeOf(to)
	}
}

// sum adds up what the sessions know. They have stopped.
func (k *crew) sum(r *watched) {
	r.lost, r.again, r.overflow = k.tally.lost.Load(), k.tally.again.Load(), k.tally.overflow.Load()
	r.window = k.tally.window
	r.fewest = 1<<63 - 1
	nodes := map[wire.NodeID]uint64{}
	for _, s := range k.subs {
		r.items += uint64(len(s.items))
		for i := range s.items {
			r.fewest = min(r.fewest, uint64(s.items[i].count))
			nodes[s.nodes[i].id] += uint64(s.items[i].count)
		}
	}
	r.nodeLow = 1<<63 - 1
	for _, n := range nodes {
		r.nodeLow = min(r.nodeLow, n)
	}
}

// readNumbers reads what the nodes hold.
func readNumbers(c *conn, nodes []node) ([]uint32, error) {
	out := make([]uint32, 0, len(nodes))
	for len(nodes) > 0 {
		n := min(len(nodes), maxItems)
		q := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth}
		for _, x := range nodes[:n] {
			q.NodesToRead = append(q.NodesToRead, &ua.ReadValueID{NodeID: wire.ToUA(x.id), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}})
		}
		v, err := c.call(q)
		if err != nil {
			return nil, err
		}
		r, ok := v.(*ua.ReadResponse)
		if !ok || len(r.Results) != n {
			return nil, errors.New("an answer to a Read that does not fit")
		}
		for _, d := range r.Results {
			x := notice{}
			if d.Status == ua.StatusOK && d.Value != nil {
				b, err := d.Value.Encode()
				if err != nil {
					return nil, err
				}
				x.value(b)
			}
			if !x.known {
				return nil, fmt.Errorf("a value is %w", d.Status)
			}
			out = append(out, x.number)
		}
		nodes = nodes[n:]
	}
	return out, nil
}
