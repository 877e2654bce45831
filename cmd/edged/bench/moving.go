package bench

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/gopcua/opcua/id"

	"edged/uaserver/wire"
)

// moving is what changes the values of a round.
type moving struct {
	b       *bench
	watch   *watching
	writer  *writer // nil: the bench writes nothing
	plant   *plant  // nil: the values come from nowhere else
	running sync.WaitGroup
	halted  time.Time
}

// newMoving prepares it. Values that the bench writes are all 0 afterwards.
func (b *bench) newMoving(ctx context.Context) (*moving, error) {
	m := &moving{b: b, watch: b.load.watch, plant: b.plant}
	if m.plant != nil || m.watch.mover == byServer && !m.watch.twoWay {
		return m, nil
	}
	c, err := b.peer.open(ctx, "bench writer")
	if err != nil {
		return nil, fmt.Errorf("writer: %w", err)
	}
	m.writer = newWriter(c, m.watch, b.nodes)
	if err := m.writer.reset(ctx); err != nil {
		m.close()
		return nil, fmt.Errorf("writer: first answer: %w", err)
	}
	return m, nil
}

// ahead reports whether the values move before the measured part begins.
func (m *moving) ahead() bool { return m.plant == nil && m.watch.mover == byServer }

// onward reports whether they still move when it has ended.
func (m *moving) onward() bool { return m.plant != nil || m.watch.mover == byServer }

// start has the values change until to. Those of two-way count from from on. A simulated device moves all the time: the
// gateway, which had polled it once, begins to poll.
func (m *moving) start(ctx context.Context, from, to time.Time) error {
	if m.plant != nil {
		return m.b.own.reload(m.b.site(false))
	}
	if m.writer == nil {
		return nil
	}
	m.writer.from = from
	stop := context.AfterFunc(ctx, func() { m.writer.c.sock.Close() })
	m.running.Go(func() {
		defer stop()
		m.writer.run(to)
	})
	return nil
}

// wait waits for the answer to the last Write.
func (m *moving) wait() error {
	m.running.Wait()
	if m.writer != nil && m.writer.err != nil {
		return fmt.Errorf("writer: %w", m.writer.err)
	}
	return nil
}

// halt stops what the server moves by itself, where it is a gateway of its own. A simulated device goes on, and the
// Subscriptions are deleted, once what was told until now has been published: so both sides' counts are of the same time.
func (m *moving) halt(ctx context.Context, k *crew) error {
	m.halted = time.Now()
	if m.plant != nil {
		m.plant.mark()
		pause(ctx, m.b.quiet())
		k.tally.quitting.Store(true)
		return nil
	}
	if m.watch.mover == byServer && m.b.own != nil {
		return m.b.own.reload(m.b.site(true))
	}
	return nil
}

// complete reports whether nothing more can come, or nothing more is waited for.
func (m *moving) complete(k *crew) bool {
	if m.plant != nil {
		return k.tally.quit.Load() == uint64(len(k.subs))
	}
	if m.watch.mover == byServer && m.b.own == nil {
		// Values move on: those of the measured time have been published by then.
		return time.Since(m.halted) > m.b.quiet()
	}
	if m.watch.mover == byServer {
		return false
	}
	items := uint64(0)
	for _, s := range k.subs {
		items += uint64(len(s.items))
	}
	return k.tally.received.Load() >= (m.writer.writes+1)*items
}

// judge compares what arrived with what there was.
func (m *moving) judge(ctx context.Context, k *crew, r *watched) error {
	switch {
	case m.plant != nil:
		m.plant.judge(k, r)
		return nil
	case m.watch.mover != byServer:
		r.writes = m.writer.writes
		r.expected = (r.writes + 1) * r.items
		for _, s := range k.subs {
			for i := range s.items {
				if uint16(s.items[i].last) != uint16(r.writes) {
					r.behind++
				}
			}
		}
		return nil
	}
	if m.writer != nil {
		r.writes = m.writer.writes
		r.back, r.backSum = m.writer.delay, m.writer.total
	}
	var err error
	if m.b.own != nil {
		err = m.compare(ctx, k, r)
	}
	r.expected = r.received + r.lost + r.behind
	if m.watch.twoWay {
		r.received = r.window.inside
		r.expected = uint64(float64(len(m.b.nodes)/2)*r.seconds/m.watch.pause.Seconds() + 0.5)
	}
	return err
}

// compare reads what the nodes hold at last, and counts the items that hold something else.
func (m *moving) compare(ctx context.Context, k *crew, r *watched) error {
	c, err := m.b.peer.open(ctx, "bench reader")
	if err != nil {
		return fmt.Errorf("reader: %w", err)
	}
	defer c.close()
	numbers, err := readNumbers(c, m.b.nodes)
	if err != nil {
		return fmt.Errorf("reading the last values: %w", err)
	}
	last := make(map[wire.NodeID]uint32, len(numbers))
	for i, n := range numbers {
		last[m.b.nodes[i].id] = n
	}
	for _, s := range k.subs {
		for i := range s.items {
			want := last[s.nodes[i].id]
			if s.items[i].last != want || s.echo(uint32(i)) && m.writer.last[i-len(s.items)/2] != want {
				r.behind++
			}
		}
	}
	return nil
}

func (m *moving) close() {
	if m.writer != nil {
		m.writer.c.close()
	}
}

// writer is the session that changes the values. Its goroutine owns it while it runs.
type writer struct {
	c      *conn
	watch  *watching
	nodes  []node
	all    *request // of every node, in whole numbers
	writes uint64   // Writes, or values of two-way
	err    error

	// Of two-way.
	from  time.Time // when they count
	last  []uint32  // numbers written
	delay latencies
	total time.Duration
	one   *request // as text, of nodes that differ
	head  int
}

func newWriter(c *conn, w *watching, nodes []node) *writer {
	x := &writer{c: c, watch: w, nodes: nodes}
	if w.twoWay {
		x.nodes = nodes[len(nodes)/2:]
		x.last = make([]uint32, len(x.nodes))
		x.one = begin(c.session, id.WriteRequest_Encoding_DefaultBinary, id.WriteResponse_Encoding_DefaultBinary)
		x.one.scan, x.head = scanStatuses, len(x.one.body)
		return x
	}
	x.all = writeRequest(c.session, ids(nodes), kinds(nodes), 0)
	return x
}

// reset writes 0 to all nodes, once the server takes it.
func (x *writer) reset(ctx context.Context) error {
	if !x.watch.twoWay {
		return (&worker{c: x.c, requests: []*request{x.all}}).verify(ctx)
	}
	for from := 0; from < len(x.nodes); from += maxGather {
		x.text()
		for i := from; i < min(from+maxGather, len(x.nodes)); i++ {
			x.add(i, 0)
		}
		if err := (&worker{c: x.c, requests: []*request{x.one}}).verify(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (x *writer) run(to time.Time) {
	switch {
	case x.watch.twoWay:
		x.gather(to)
	case x.watch.mover == byPause:
		for now := time.Now(); now.Before(to) && x.err == nil; now = time.Now() {
			x.write(now)
			time.Sleep(x.watch.pause)
		}
	default:
		for at := time.Now(); at.Before(to) && x.err == nil; {
			x.write(time.Now())
			for now := time.Now(); !at.After(now); { // no catch-up
				at = at.Add(x.watch.pause)
			}
			time.Sleep(time.Until(at))
		}
	}
}

// write writes the next number to all nodes.
func (x *writer) write(now time.Time) {
	x.all.setValues(uint16(x.writes + 1))
	if x.send(x.all, now); x.err == nil {
		x.writes++
	}
}

func (x *writer) send(q *request, now time.Time) {
	id, body, err := x.c.ask(q, now)
	if err == nil {
		v := q.check(body, id)
		err = v.err(q)
	}
	x.err = err
}

// Two-way: at each tick some of the client's values change, so that each does once in a step; they are gathered for a
// while and sent in requests of at most so many.
const (
	ticks     = 50 // in a step
	gathering = 8 * time.Millisecond
	maxGather = 4000
)

// changed is the values of one tick.
type changed struct {
	tick int
	at   time.Time
}

// gather changes values tick by tick and sends them.
func (x *writer) gather(to time.Time) {
	every := x.watch.pause / ticks
	var waiting []changed
	start := time.Now()
	for tick := 0; x.err == nil; {
		now := time.Now()
		at := start.Add(time.Duration(tick) * every)
		if !at.Before(to) && len(waiting) == 0 {
			return
		}
		if !now.Before(at) && at.Before(to) {
			waiting = append(waiting, changed{tick, now})
			tick += int(now.Sub(at)/every) + 1 // no catch-up
			continue
		}
		if len(waiting) > 0 && now.Sub(waiting[0].at) >= gathering {
			waiting = x.sendGathered(waiting)
			continue
		}
		wake := at
		if len(waiting) > 0 && (waiting[0].at.Add(gathering).Before(at) || !at.Before(to)) {
			wake = waiting[0].at.Add(gathering)
		}
		time.Sleep(time.Until(wake))
	}
}

// sendGathered sends what waits, as far as one request may go, and measures how long each value took.
func (x *writer) sendGathered(waiting []changed) []changed {
	part := len(x.nodes) / ticks
	n := min(len(waiting), max(1, maxGather/max(1, part)))
	x.text()
	for _, c := range waiting[:n] {
		for i := range part {
			at := c.tick%ticks*part + i
			x.add(at, x.last[at]+1) // not the tick, which may be left out
		}
	}
	if x.send(x.one, time.Now()); x.err != nil {
		return nil
	}
	now := time.Now()
	for _, c := range waiting[:n] {
		if c.at.Before(x.from) {
			continue
		}
		d := now.Sub(c.at)
		for range part {
			x.delay.add(d)
		}
		x.total += d * time.Duration(part)
		x.writes += uint64(part)
	}
	return append(waiting[:0], waiting[n:]...)
}

// text begins a Write of text, and add appends a value to it.
func (x *writer) text() {
	x.one.body, x.one.items = wire.AppendUint32(x.one.body[:x.head], 0), 0
}

func (x *writer) add(i int, number uint32) {
	b := appendValueOf(x.one.body, x.nodes[i].id)
	b = append(b, hasValue, ofString, 0, 0, 0, 0)
	at := len(b)
	b = strconv.AppendUint(b, uint64(number), 10)
	b[at-4] = byte(len(b) - at)
	x.one.items++
	b[x.head], b[x.head+1] = byte(x.one.items), byte(x.one.items>>8)
	x.one.body = b
	x.last[i] = number
}

// between counts the entries of an ascending list from low to high.
func between(list []uint32, low, high uint32) int {
	from := sort.Search(len(list), func(i int) bool { return list[i] >= low })
	return sort.Search(len(list), func(i int) bool { return list[i] > high }) - from
}
