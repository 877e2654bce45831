package drivers

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// minPeriod keeps a scan of no period from taking the line for itself.
const minPeriod = time.Millisecond

// scan is one scan class of a device: a grid of moments on the lane's clock, period apart from its origin. Owned by the
// lane's goroutine.
type scan struct {
	period time.Duration
	due    time.Duration // a moment of the grid
	next   int           // index into the class's requests; above 0 while a scan is under way
	late   int           // scans that have yet to be in time before the log may tell of an overrun again

	// Of the request at next, while it is tried again.
	try, busy int
	at        time.Duration // not before
}

// recovered is how many scans in a row are in time before the log may tell of an overrun again.
const recovered = 100

// settle ends the tries of a request.
func (s *scan) settle() { s.try, s.busy, s.at = 0, 0, 0 }

// done moves a scan that has ended to its next moment. Moments that have passed whole are left out and counted: the grid
// stays where it is.
func (s *scan) done(now time.Duration) (missed uint64) {
	s.next = 0
	s.due += s.period
	if behind := now - s.due; behind >= s.period {
		missed = uint64(behind / s.period)
		s.due += time.Duration(missed) * s.period
	}
	return missed
}

// skip goes to the first moment after now, without a scan.
func (s *scan) skip(now time.Duration) {
	s.next = 0
	s.settle()
	s.due = now - now%s.period + s.period
}

// catchUp makes a scan due that is not under way, at the last moment of its grid.
func (s *scan) catchUp(now time.Duration) {
	if s.next == 0 {
		s.due = now - now%s.period
	}
}

// due is the scan whose period ends first, or nil: the many requests of a slow scan let a fast one in between, and a line
// that cannot do all still comes to each. A silent device is asked when its back-off is over, whatever its grid says, but
// not two in a row while one that answers is due: each costs the line a time-out.
func (l *lane) due() (*device, int) {
	now := l.now()
	var best, probe *device
	var bestEnd, probeEnd time.Duration
	number := 0
	for _, d := range l.devices {
		if d.disabled {
			continue
		}
		if d.silent && d.retryAt > 0 {
			if len(d.scans) == 0 || d.retryAt > now {
				continue
			}
			if end := d.retryAt + d.scans[0].period; probe == nil || end < probeEnd {
				probe, probeEnd = d, end
			}
			continue
		}
		for i := range d.scans {
			s := &d.scans[i]
			if end := s.due + s.period; s.due <= now && s.at <= now && (best == nil || end < bestEnd) {
				best, bestEnd, number = d, end, i
			}
		}
	}
	if probe != nil && (best == nil || !l.probed && probeEnd < bestEnd) {
		return probe, 0
	}
	return best, number
}

// nextEvent is when due will have something, or a held value ends.
func (l *lane) nextEvent() time.Duration {
	next := min(l.nextHold(), l.nextStranger())
	for _, d := range l.devices {
		switch {
		case d.disabled || len(d.scans) == 0:
		case d.silent && d.retryAt > 0:
			next = min(next, d.retryAt)
		default:
			for i := range d.scans {
				next = min(next, max(d.scans[i].due, d.scans[i].at))
			}
		}
	}
	return next
}

// scan makes the next request of a scan.
func (l *lane) scan(ctx context.Context, d *device, number int) {
	s := &d.scans[number]
	requests := d.cfg.Driver.Requests(number)
	if s.next < len(requests) {
		if l.poll(ctx, d, s, requests[s.next]) || !l.up || d.silent {
			return // the same place again, or the scan is off
		}
		s.next++
		requests = d.cfg.Driver.Requests(number)
	}
	if s.next < len(requests) {
		return
	}
	missed := s.done(l.now())
	if missed == 0 {
		s.late = max(0, s.late-1)
		return
	}
	if s.late == 0 {
		l.say(d, slog.LevelWarn, "the line is too slow for the scan, some are left out: poll less often or give the device a line of its own",
			"poll", s.period)
	}
	s.late = recovered
	d.stats.overrun(missed)
	l.bus.mu.Lock()
	l.bus.s.Overruns += missed
	l.bus.mu.Unlock()
}

// poll makes one request and publishes what it brought. again is true when it is to be made again: next or, of a device
// that is busy, a little later. Commands and other polls that are due come in between.
func (l *lane) poll(ctx context.Context, d *device, s *scan, request int) (again bool) {
	start := time.Now()
	batch, err := d.cfg.Driver.Poll(ctx, l.number, request, l.batch[:0])
	if errors.Is(err, ErrSkipped) {
		s.settle()
		if again = errors.Is(err, ErrReplanned); again {
			d.forget()
		}
		return again
	}
	took := time.Since(start)
	l.batch = batch
	l.exchanged(took, false)
	if err == nil {
		s.settle()
		d.stats.answered(took, len(batch))
		delete(d.failing, request)
		l.alive(d)
		l.publish(d, batch)
		return false
	}
	if ctx.Err() != nil {
		return false
	}
	if errors.Is(err, ErrReplanned) {
		s.settle()
		d.stats.failed(Refused, err)
		d.forget()
		l.alive(d)
		return true
	}
	f, ok := isFault(err)
	if !ok {
		return l.again(ctx, d, err)
	}
	l.blame(d, f)
	switch {
	case retryable(f.Kind) && !d.silent && s.try < l.bus.cfg.Retries:
		s.try++
		return true
	case f.Kind == Busy && s.busy < busyTries:
		s.at = l.now() + busyPause<<s.busy
		s.busy++
		return true
	}
	s.settle()
	l.failed(d, request, f, batch)
	return false
}

// wait holds the line for a short time.
func (l *lane) wait(ctx context.Context, d time.Duration) {
	l.timer.Reset(d)
	select {
	case <-l.timer.C:
	case <-ctx.Done():
	}
}
