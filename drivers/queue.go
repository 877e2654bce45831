package drivers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"edged/drivers/tag"
)

// maxJobs bounds a lane's queue: at the pace of a fast line it is some ten seconds' work, and whoever asked first has
// long gone.
const maxJobs = 4096

// queue is what clients ask of a lane, in order of arrival.
type queue struct {
	mu      *sync.Mutex // guards all but wake, and the unfinished part of every job in jobs
	jobs    []*job
	shared  *job          // a job of readings alone that has not begun: whoever asks meanwhile joins it
	changes []change      // for the lane to make before its next exchange
	works   bool          // the lane has begun and not ended
	closed  bool          // the lane has ended
	wake    chan struct{} // of one entry: the lane may be asleep
}

// change is something to be done between two exchanges, in the lane's goroutine.
type change struct {
	do   func()
	done chan struct{} // closed when it was done
}

// How far a command has come.
const (
	waiting uint8 = iota
	begun
	finished
	dropped
)

// job is a row of commands, and the readings that confirm them or were asked for alone.
type job struct {
	cmds    []tag.Command // copies: the caller may go while one is under way
	devices []*device     // of cmds
	state   []uint8       // of cmds
	next    int           // of cmds; owned by the lane
	refs    []deviceRefs  // to read; owned by the lane once begun
	operate func()        // runs in the lane's goroutine
	done    chan struct{} // closed at the end
	came    time.Time
}

// deviceRefs are tags of one device, each once.
type deviceRefs struct {
	d    *device
	refs []tag.Ref
	has  map[tag.Ref]struct{}
}

func newQueue() queue { return queue{mu: new(sync.Mutex), wake: make(chan struct{}, 1)} }

// put adds a job, or tells why not.
func (q *queue) put(j *job) tag.Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.append(j)
}

// append adds a job. Call it with mu held.
func (q *queue) append(j *job) tag.Status {
	switch {
	case q.closed:
		return tag.BadShutdown
	case len(q.jobs) >= maxJobs:
		return tag.BadResourceUnavailable
	}
	j.came = time.Now()
	q.jobs = append(q.jobs, j)
	q.ring()
	return tag.Good
}

func (q *queue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// open notes that the lane begins its work.
func (q *queue) open() {
	q.mu.Lock()
	q.works = true
	q.mu.Unlock()
}

// between has the lane do something between two exchanges, before all that waits. Of a lane that does not work it is
// done at once. The channel is closed when it was done.
func (q *queue) between(do func()) <-chan struct{} {
	c := change{do, make(chan struct{})}
	q.mu.Lock()
	works := q.works
	if works {
		q.changes = append(q.changes, c)
		q.ring()
	}
	q.mu.Unlock()
	if !works {
		c.make()
	}
	return c.done
}

func (c *change) make() {
	c.do()
	close(c.done)
}

// change makes the changes that were asked for.
func (q *queue) change() {
	q.mu.Lock()
	changes := q.changes
	q.changes = nil
	q.mu.Unlock()
	for i := range changes {
		changes[i].make()
	}
}

// join adds readings to the job that waits, or to a new one.
func (q *queue) join(d *device, refs []tag.Ref) (*job, tag.Status) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.shared
	if j == nil {
		j = &job{done: make(chan struct{})}
		if status := q.append(j); status != tag.Good {
			return nil, status
		}
		q.shared = j
	}
	j.add(d, refs...)
	return j, tag.Good
}

func (j *job) add(d *device, refs ...tag.Ref) {
	i := slices.IndexFunc(j.refs, func(r deviceRefs) bool { return r.d == d })
	if i < 0 {
		i = len(j.refs)
		j.refs = append(j.refs, deviceRefs{d: d, has: make(map[tag.Ref]struct{}, len(refs))})
	}
	r := &j.refs[i]
	for _, ref := range refs {
		if _, ok := r.has[ref]; !ok {
			r.has[ref] = struct{}{}
			r.refs = append(r.refs, ref)
		}
	}
}

// head is the job whose turn it is.
func (q *queue) head() *job {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) == 0 {
		return nil
	}
	if q.jobs[0] == q.shared {
		q.shared = nil
	}
	return q.jobs[0]
}

// end finishes the job at the head.
func (q *queue) end(j *job) {
	q.mu.Lock()
	q.jobs = slices.Delete(q.jobs, 0, 1)
	if len(q.jobs) > 0 {
		q.ring()
	}
	q.mu.Unlock()
	close(j.done)
}

// begin takes the next command for execution, unless its caller has gone.
func (q *queue) begin(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.state[j.next] == dropped {
		return false
	}
	j.state[j.next] = begun
	return true
}

// wanted reports whether a client waits for a command or a reading.
func (q *queue) wanted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.jobs, func(j *job) bool { return len(j.cmds)+len(j.refs) > 0 })
}

func (q *queue) finish(j *job, status tag.Status) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j.cmds[j.next].Status = status
	j.state[j.next] = finished
}

// abandon tells the statuses of a job whose caller does not wait any longer: what waits is dropped and never executed,
// of what is under way the outcome is unknown. unknown lists those.
func (q *queue) abandon(j *job) (statuses []tag.Status, unknown []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range j.cmds {
		status := j.cmds[i].Status
		switch j.state[i] {
		case waiting:
			j.state[i], status = dropped, tag.BadNoCommunication
		case begun:
			status = tag.BadTimeout
			unknown = append(unknown, i)
		}
		statuses = append(statuses, status)
	}
	return statuses, unknown
}

// refuse answers all jobs of a line that is down.
func (q *queue) refuse() {
	q.mu.Lock()
	jobs := q.jobs
	q.jobs, q.shared = nil, nil
	for _, j := range jobs {
		for i := range j.cmds {
			if j.state[i] == waiting {
				j.state[i], j.cmds[i].Status = finished, tag.BadNoCommunication
			}
		}
	}
	q.mu.Unlock()
	for _, j := range jobs {
		if j.operate != nil {
			j.operate()
		}
		close(j.done)
	}
}

// close refuses what waits and all that comes later.
func (q *queue) close() {
	q.mu.Lock()
	q.closed, q.works = true, false
	q.mu.Unlock()
	q.change()
	q.refuse()
}

// serve makes one exchange for the job at the head of the queue.
func (l *lane) serve(ctx context.Context, j *job) {
	switch {
	case j.operate != nil:
		j.operate()
		j.operate = nil
	case j.next < len(j.cmds):
		if j.next == 0 {
			l.waited(time.Since(j.came))
		}
		if l.queue.begin(j) {
			status := l.write(ctx, j.devices[j.next], j.cmds[j.next])
			l.queue.finish(j, status)
			l.confirm(j, status)
		}
		j.next++
	case len(j.refs) > 0:
		r := &j.refs[0]
		r.refs = l.refresh(ctx, r.d, r.refs)
		if len(r.refs) == 0 {
			j.refs = j.refs[1:]
		}
	}
	if l.up && j.next >= len(j.cmds) && len(j.refs) == 0 {
		l.queue.end(j)
	}
}

// confirm asks for the reading that confirms a write, before the caller hears of it. A tag that cannot be read reads
// back what was written.
func (l *lane) confirm(j *job, status tag.Status) {
	if status != tag.Good {
		return
	}
	c, d := &j.cmds[j.next], j.devices[j.next]
	if d.readable(c.Ref) {
		j.add(d, c.Ref)
		return
	}
	if v, whole := d.wrote(c); whole {
		l.batch = append(l.batch[:0], tag.Sample{Ref: c.Ref, Value: v, At: tag.Now()})
		l.bus.sink.Publish(l.batch)
	}
}

// wrote is what a tag that cannot be read holds after a write. Of an array that was never written as a whole that is not
// known.
func (d *device) wrote(c *tag.Command) (v tag.Value, whole bool) {
	if !c.Value.IsArray() {
		return c.Value, true
	}
	v, whole = c.Value, true
	if c.Part {
		old := d.written[c.Ref]
		if t := d.table.Load().Tag(c.Ref); t == nil || t.Len != old.Len() {
			return tag.Value{}, false
		}
		if v, whole = tag.Splice(old, c.Value, c.From); !whole {
			return tag.Value{}, false
		}
	}
	if d.written == nil {
		d.written = map[tag.Ref]tag.Value{}
	}
	d.written[c.Ref] = v
	return v, true
}

// write carries one command out and returns its status.
func (l *lane) write(ctx context.Context, d *device, c tag.Command) tag.Status {
	switch {
	case d.gone && d.heir == nil && !d.moved:
		return tag.BadNodeIDUnknown
	case d.gone:
		return tag.BadNoCommunication // it was checked against what its tag was
	case d.disabled:
		return tag.BadOutOfService
	}
	if l.spared(d) {
		return tag.BadNoCommunication
	}
	one := [1]tag.Command{c}
	for try, busy := 0, 0; ; {
		one[0].Status = tag.BadNoCommunication
		start := time.Now()
		err := d.cfg.Driver.Write(ctx, l.number, one[:])
		took := time.Since(start)
		status := one[0].Status
		if err == nil {
			if status == tag.Good {
				l.exchanged(took, true)
				d.stats.answered(took, 0)
				l.alive(d)
				d.writes.good(l.bus.log, d, c.Ref)
			}
			return status
		}
		l.exchanged(took, true)
		f, ok := isFault(err)
		if !ok {
			if l.again(ctx, d, err) && errors.Is(err, ErrUnsent) {
				continue
			}
			d.writes.failed(l.bus.log, d, c.Ref, status, err)
			return status
		}
		l.blame(d, f)
		switch {
		case retryable(f.Kind) && try < l.bus.cfg.WriteRetries:
			try++
			continue
		case f.Kind == Busy && busy < busyTries && ctx.Err() == nil:
			l.wait(ctx, busyPause<<busy)
			busy++
			continue
		}
		d.writes.failed(l.bus.log, d, c.Ref, status, err)
		l.failed(d, -1, f, nil)
		return status
	}
}

// refresh reads the first of refs and what comes with it, publishes, and returns the rest. A device that is silent or
// off has had its readings published: they are bad.
func (l *lane) refresh(ctx context.Context, d *device, refs []tag.Ref) []tag.Ref {
	if d.gone {
		if d, refs = d.heirOf(refs); len(refs) == 0 {
			return nil
		}
	}
	if d.disabled || l.spared(d) {
		return nil
	}
	if !d.readable(refs[0]) {
		return refs[1:]
	}
	for try, busy := 0, 0; ; {
		start := time.Now()
		batch, err := d.cfg.Driver.Refresh(ctx, l.number, refs, l.batch[:0])
		if errors.Is(err, ErrSkipped) {
			return without(refs, nil) // nobody can ask for it
		}
		took := time.Since(start)
		l.batch = batch
		l.exchanged(took, true)
		if err == nil {
			d.stats.answered(took, len(batch))
			l.alive(d)
			rest := without(refs, batch)
			l.publish(d, batch)
			return rest
		}
		f, ok := isFault(err)
		if !ok {
			if !l.again(ctx, d, err) {
				return nil
			}
			continue
		}
		l.blame(d, f)
		switch {
		case retryable(f.Kind) && !d.silent && try < l.bus.cfg.Retries:
			try++
			continue
		case f.Kind == Busy && busy < busyTries && ctx.Err() == nil:
			l.wait(ctx, busyPause<<busy)
			busy++
			continue
		}
		rest := without(refs, batch)
		l.failed(d, -1, f, batch)
		return rest
	}
}

// without are the refs behind the first that the batch has no reading of.
func without(refs []tag.Ref, batch []tag.Sample) []tag.Ref {
	if len(refs) == 1 {
		return nil
	}
	read := make(map[tag.Ref]struct{}, len(batch))
	for i := range batch {
		read[batch[i].Ref] = struct{}{}
	}
	return slices.DeleteFunc(refs[1:], func(r tag.Ref) bool {
		_, ok := read[r]
		return ok
	})
}
