package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"
)

// worker is one session under load. Its goroutine owns it until the round is over.
type worker struct {
	c        *conn
	requests []*request
	pause    time.Duration
	counting bool // each request writes another number
	aside    bool // it is not what the workload measures

	seen   latencies
	errors uint64
	first  error // of errors
}

// run sends requests until to, and measures those that are answered after from.
func (w *worker) run(from, to time.Time) {
	var number uint16
	now := time.Now()
	for i := 0; now.Before(to); i++ {
		q := w.requests[i%len(w.requests)]
		if w.counting {
			number++
			q.setValues(number)
		}
		id, body, err := w.c.ask(q, now)
		end := time.Now()
		if err != nil {
			w.fail(err) // the connection is lost
			return
		}
		v := q.check(body, id)
		if err := v.err(q); err != nil {
			w.fail(err)
		}
		if end.After(from) && end.Before(to) {
			w.seen.add(end.Sub(now))
		}
		if now = end; w.pause > 0 {
			time.Sleep(w.pause)
			now = time.Now()
		}
	}
}

func (w *worker) fail(err error) {
	if w.errors++; w.first == nil {
		w.first = err
	}
}

// verify has the first answer to each request decoded whole, which a scan is too quick for. A server that was just started
// may still wait for its values.
func (w *worker) verify(ctx context.Context) error {
	end := time.Now().Add(patience)
	w.c.sock.SetDeadline(end)
	defer w.c.sock.SetDeadline(time.Time{})
	for _, q := range w.requests {
		err := w.try(q)
		for errors.Is(err, ua.StatusBadWaitingForInitialData) && time.Now().Before(end) && ctx.Err() == nil {
			time.Sleep(waitForValues)
			err = w.try(q)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// waitForValues is the time between two looks at a server that has no values yet.
const waitForValues = 20 * time.Millisecond

func (w *worker) try(q *request) error {
	id, body, err := w.c.ask(q, time.Now())
	if err != nil {
		return err
	}
	if _, err := decode(body); err != nil {
		return err
	}
	v := q.check(body, id)
	if err := v.err(q); err != nil {
		return fmt.Errorf("%w; are these the server's nodes?", err)
	}
	return nil
}

// result is one round.
type result struct {
	seconds float64
	reads   latencies // what the workload measures
	aside   uint64    // requests beside it
	errors  uint64
	first   error
	values  int // in each request
	before  sample
	after   sample
}

// round opens the sessions, loads the server, and closes them.
func (b *bench) round(ctx context.Context) (*result, error) {
	workers, err := b.open(ctx)
	defer closeAll(workers)
	if err != nil {
		return nil, err
	}
	from := time.Now().Add(b.cfg.Warmup)
	to := from.Add(b.cfg.Duration)
	limit, cancel := context.WithDeadline(ctx, to.Add(patience))
	defer cancel()
	// A worker that waits for an answer ends with its socket.
	defer context.AfterFunc(limit, func() {
		for _, w := range workers {
			w.c.sock.Close()
		}
	})()
	var running sync.WaitGroup
	for _, w := range workers {
		running.Go(func() { w.run(from, to) })
	}
	r := &result{seconds: b.cfg.Duration.Seconds(), values: b.load.request}
	r.before = b.probe.at(limit, from, true)
	r.after = b.probe.at(limit, to, false)
	running.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for _, w := range workers {
		if w.aside {
			r.aside += w.seen.sum
		} else {
			r.reads.merge(&w.seen)
		}
		if r.errors += w.errors; r.first == nil {
			r.first = w.first
		}
	}
	return r, nil
}

// open opens all sessions and makes their requests.
func (b *bench) open(ctx context.Context) ([]*worker, error) {
	var workers []*worker
	add := func(name string) (*worker, error) {
		c, err := b.peer.open(ctx, name)
		if err != nil {
			return nil, err
		}
		w := &worker{c: c, pause: b.load.pause}
		workers = append(workers, w)
		return w, nil
	}
	for i := range b.cfg.Sessions {
		w, err := add(fmt.Sprintf("bench %d", i+1))
		if err != nil {
			return workers, fmt.Errorf("session %d: %w", i+1, err)
		}
		w.requests = b.requests(w.c, i)
		if err := w.verify(ctx); err != nil {
			return workers, fmt.Errorf("session %d: first answers: %w", i+1, err)
		}
	}
	if b.load.writer > 0 {
		w, err := add("bench writer")
		if err != nil {
			return workers, fmt.Errorf("writer: %w", err)
		}
		w.pause, w.aside, w.counting = b.load.writer, true, true
		w.requests = []*request{writeRequest(w.c.session, ids(b.nodes), kinds(b.nodes), 0)}
		if err := w.verify(ctx); err != nil {
			return workers, fmt.Errorf("writer: first answer: %w", err)
		}
	}
	return workers, nil
}

// closeAll closes the sessions, as far as the server still answers.
func closeAll(workers []*worker) {
	for _, w := range workers {
		w.c.close()
	}
}
