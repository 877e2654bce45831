package serial

import (
	"context"
	"fmt"
	"time"

	"edged/drivers"
	"edged/drivers/port"
	"edged/drivers/tag"
)

const (
	// An instrument that says more than one thing in two paces is read once in pace: what it said meanwhile waits in the
	// buffers below. A talker of 1,000 lines/s costs 1.7 % of a core so, over a pty on a loaded machine, against 3.2 % where
	// every other read waited, and one that never stops takes at most a buffer's length a pace. Times of readings are up to
	// pace late.
	pace = 5 * time.Millisecond
	// tellEvery is how often what was misheard is told with its text; in between it is counted.
	tellEvery = time.Second
)

// blame is what was misheard, in one of two ways. Owned by the lane.
type blame struct {
	fault *drivers.Fault // told last
	at    time.Time      // when its text was made
	n     int            // since it was told
}

// The ways to be misheard.
const (
	broken    = iota // no frame, or one with a wrong checksum
	unmatched        // a frame that is no message, or that holds what is no value
)

// Talks implements drivers.Listener.
func (d *Device) Talks() bool { return d.talks }

// Listen implements drivers.Listener.
func (d *Device) Listen(ctx context.Context, ear drivers.Ear) error {
	p, err := d.link.current()
	if err != nil {
		return err
	}
	if err := d.look(p); err != nil {
		return err
	}
	if len(d.pending) > 0 {
		ear.Heard(d.pending, 1)
		d.pending = d.pending[:0]
	}
	defer interruptBy(ctx, p)()
	var before time.Time
	for arm := true; ; {
		d.tell(ear)
		if d.stale > 0 && time.Since(d.heard) >= d.stale {
			return d.gone()
		}
		// The deadline of a read that went well is left as it is, and asked again when it has passed.
		if arm || d.framer.silence > 0 {
			if err := p.SetDeadline(d.wakeAt()); err != nil {
				return closed(err)
			}
		}
		if ctx.Err() != nil { // behind the deadline, which the end of ctx sets too
			return nil
		}
		err := d.read(p)
		switch arm = err != nil; {
		case err == nil:
		case !port.IsTimeout(err):
			return closed(err)
		case d.framer.silence > 0 && time.Since(d.last) >= d.framer.silence:
			if s, ok := d.framer.flush(); ok {
				d.hear(&s)
			}
			continue
		default:
			continue
		}
		if d.last.Sub(before) < 2*pace {
			time.Sleep(pace)
		}
		before = d.last
	}
}

// wakeAt is when the line is to be looked at although nothing came; zero: never.
func (d *Device) wakeAt() time.Time {
	var at time.Time
	if d.stale > 0 {
		at = d.heard.Add(d.stale)
	}
	if d.framer.silence > 0 && d.framer.partial() {
		if quiet := d.last.Add(d.framer.silence); at.IsZero() || quiet.Before(at) {
			at = quiet
		}
	}
	return at
}

// gone is the fault of an instrument that was silent for too long, or has said nothing that is a message.
func (d *Device) gone() error {
	d.heard = time.Now()
	if b := d.framer.left(); len(b) > 0 {
		err := fmt.Errorf("%s: nothing that is a message came within %v: %s", d.name, d.stale, shown(b))
		d.framer.reset()
		return &drivers.Fault{Kind: drivers.Garbled, Err: err}
	}
	return &drivers.Fault{Kind: drivers.Mute, Err: fmt.Errorf("%s: nothing came within %v", d.name, d.stale)}
}

// tell publishes what the frames that have come say, and tells of what was misheard.
func (d *Device) tell(ear drivers.Ear) {
	for {
		s, ok := d.framer.next()
		if !ok {
			break
		}
		d.hear(&s)
	}
	if len(d.batch) > 0 || d.messagesHeard > 0 {
		ear.Heard(d.batch, d.messagesHeard)
		d.batch, d.messagesHeard = d.batch[:0], 0
	}
	for i := range d.blames {
		if b := &d.blames[i]; b.n > 0 {
			ear.Misheard(b.fault, b.n)
			b.n = 0
		}
	}
}

// hear takes one frame.
func (d *Device) hear(s *said) {
	if s.err != nil {
		d.mishear(broken, s, "")
		if d.only != nil {
			d.batch = d.bad(d.only, tag.BadCommunicationError, d.batch)
		}
		return
	}
	var ok bool
	d.reader.wrong = nil
	if d.batch, ok = d.unasked(s, d.batch); ok {
		d.messagesHeard++
		if d.reader.wrong != nil {
			d.mishear(unmatched, s, d.reader.wrong.name)
		}
		return
	}
	if d.ignored(s) {
		d.heard = d.last
		return
	}
	d.mishear(unmatched, s, "")
	if d.only != nil {
		d.batch = d.bad(d.only, tag.BadCommunicationError, d.batch)
	}
}

// mishear counts a frame that is no message, or in which a tag has no value.
func (d *Device) mishear(way int, s *said, of string) {
	b := &d.blames[way]
	b.n++
	if b.fault != nil && time.Since(b.at) < tellEvery {
		return
	}
	b.at = time.Now()
	switch {
	case way == broken:
		b.fault = &drivers.Fault{Kind: drivers.Garbled, Err: fmt.Errorf("%s: %w: %s", d.name, s.err, shown(s.whole))}
	case of != "":
		b.fault = &drivers.Fault{Kind: drivers.Refused, Err: fmt.Errorf("%s: %s is no value of tag %s, in %s", d.name, shown(d.reader.wrote), of, shown(s.whole))}
	default:
		b.fault = &drivers.Fault{Kind: drivers.Refused, Err: fmt.Errorf("%s: %s matches none of its messages", d.name, shown(s.whole))}
	}
}
