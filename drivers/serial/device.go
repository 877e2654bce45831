package serial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"edged/drivers"
	"edged/drivers/port"
	"edged/drivers/tag"
)

// Device is one instrument, planned. It implements drivers.Driver, and drivers.Listener.
type Device struct {
	name     string
	link     *Link
	talks    bool
	stale    time.Duration
	ignore   *pattern
	messages []*message
	only     *message // of an instrument that has but one to say unasked
	tags     []tag.Ref
	fields   map[tag.Ref]*field
	hold     map[tag.Ref]time.Duration
	scans    []time.Duration
	requests [][]int

	// Owned by the lane.
	framer  *framer
	reader  reader
	opened  uint64    // of the link, when the framer began
	at      tag.Time  // when the last bytes came
	last    time.Time // the same, for silence
	heard   time.Time // when the last message came, or the link was opened
	out     []byte
	pending []tag.Sample // unasked readings that came during a write
	batch   []tag.Sample
	blames  [2]blame

	messagesHeard int // of batch
}

var (
	_ drivers.Driver   = (*Device)(nil)
	_ drivers.Listener = (*Device)(nil)
)

// New plans an instrument over the link of its bus.
func New(cfg Config, links ...*Link) (*Device, error) {
	if len(links) != 1 {
		return nil, fmt.Errorf("device %s: a line of instruments has one link, not %d", cfg.Name, len(links))
	}
	frame, messages, fields, err := cfg.plan()
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", cfg.Name, err)
	}
	d := &Device{name: cfg.Name, link: links[0], talks: cfg.Talks(), stale: cfg.Stale, messages: messages,
		fields: make(map[tag.Ref]*field, len(fields)), hold: map[tag.Ref]time.Duration{}, framer: newFramer(frame)}
	d.ignore, _ = cfg.pattern(cfg.Ignore) // Check has compiled it
	for i, f := range fields {
		if d.fields[f.ref] != nil {
			return nil, fmt.Errorf("device %s: tag %s has the slot of another", cfg.Name, f.name)
		}
		d.fields[f.ref] = f
		d.tags = append(d.tags, f.ref)
		if h := cfg.Tags[i].Hold; h > 0 {
			d.hold[f.ref] = h
		}
	}
	unasked := 0
	for _, m := range messages {
		if m.unasked {
			unasked++
			d.only = m
		}
	}
	if unasked != 1 {
		d.only = nil
	}
	d.scans, d.requests = periods(messages)
	d.reader.joined = make([]byte, 0, mostShown)
	return d, nil
}

// Tags implements drivers.Driver.
func (d *Device) Tags() []tag.Ref { return d.tags }

// Hold are the tags whose last good value is kept for a while, for drivers.DeviceConfig.
func (d *Device) Hold() map[tag.Ref]time.Duration { return d.hold }

// Scans implements drivers.Driver.
func (d *Device) Scans() []time.Duration { return d.scans }

// Requests implements drivers.Driver.
func (d *Device) Requests(scan int) []int { return d.requests[scan] }

// Poll implements drivers.Driver: it asks for one message. What the instrument says unasked meanwhile comes with it.
func (d *Device) Poll(ctx context.Context, _, request int, dst []tag.Sample) ([]tag.Sample, error) {
	return d.ask(ctx, d.messages[request], dst)
}

// Refresh implements drivers.Driver. What comes unasked alone cannot be asked for.
func (d *Device) Refresh(ctx context.Context, _ int, refs []tag.Ref, dst []tag.Sample) ([]tag.Sample, error) {
	f := d.fields[refs[0]]
	if f == nil || f.message == nil || f.message.send == nil {
		return dst, drivers.ErrSkipped
	}
	return d.ask(ctx, f.message, dst)
}

// What an answer is.
type verdict uint8

const (
	other verdict = iota
	answer
	none
	busy
	refused
)

// errSilent is the end of a time-out.
var errSilent = errors.New("no answer")

func (d *Device) ask(ctx context.Context, m *message, dst []tag.Sample) ([]tag.Sample, error) {
	p, err := d.begin()
	if err != nil {
		return dst, err
	}
	d.out, _ = m.send.append(d.out[:0], nil, tag.Value{}) // it holds no value
	timeout := d.timeout(m.timeout)
	deadline := time.Now().Add(d.link.cfg.Mode.Chars(len(d.out)) + timeout)
	if _, err := d.link.send(ctx, p, d.out, deadline); err != nil {
		return dst, err
	}
	dst, s, v, err := d.await(p, deadline, m, nil, dst)
	d.link.quietFrom = time.Now()
	switch {
	case err == nil:
	case errors.Is(err, errSilent), errors.Is(err, errGarbled):
		status, kind := tag.BadNoCommunication, drivers.Mute
		if errors.Is(err, errGarbled) {
			status, kind = tag.BadCommunicationError, drivers.Garbled
		}
		return d.bad(m, status, dst), &drivers.Fault{Kind: kind, Err: fmt.Errorf("%s: %s: %w within %v", d.name, m.name, err, timeout)}
	default:
		return dst, err
	}
	switch v {
	case none:
		return d.bad(m, tag.BadOutOfRange, dst), nil
	case busy:
		return d.bad(m, tag.BadResourceUnavailable, dst), d.fault(drivers.Busy, m.name, "it asks for patience", &s)
	case refused:
		return d.bad(m, tag.BadDeviceFailure, dst), d.fault(drivers.Refused, m.name, "it refuses", &s)
	}
	dst = d.reader.values(m, &s, d.at, dst)
	if f := d.reader.wrong; f != nil {
		return dst, &drivers.Fault{Kind: drivers.Refused, Err: fmt.Errorf("%s: %s: %s is no value of tag %s, in %s",
			d.name, m.name, shown(d.reader.wrote), f.name, shown(s.whole))}
	}
	return dst, nil
}

func (d *Device) fault(kind drivers.FaultKind, what, says string, s *said) *drivers.Fault {
	return &drivers.Fault{Kind: kind, Err: fmt.Errorf("%s: %s: %s: %s", d.name, what, says, shown(s.whole))}
}

func (d *Device) timeout(own time.Duration) time.Duration {
	if own > 0 {
		return own
	}
	return d.link.cfg.Timeout
}

// bad appends one bad status for every tag of a message.
func (d *Device) bad(m *message, status tag.Status, dst []tag.Sample) []tag.Sample {
	at := tag.Now()
	for _, f := range m.fields {
		if f.access&tag.Readable != 0 {
			dst = append(dst, tag.Sample{Ref: f.ref, Status: status, At: at})
		}
	}
	return dst
}

// begin prepares an exchange. What came before it is no answer: of an instrument that talks unasked it is kept.
func (d *Device) begin() (port.Port, error) {
	p, err := d.link.current()
	if err != nil {
		return nil, err
	}
	if err := d.look(p); err != nil {
		return nil, err
	}
	if d.talks {
		return p, nil
	}
	d.framer.reset()
	if err := p.Discard(); err != nil {
		return nil, fmt.Errorf("%w: %w", closed(err), drivers.ErrUnsent)
	}
	return p, nil
}

// look begins anew where the stream is another, or what waits there is old.
func (d *Device) look(p port.Port) error {
	now := time.Now()
	fresh := d.opened == d.link.opened
	if !fresh {
		d.opened, d.heard = d.link.opened, now
	}
	if fresh && now.Sub(d.link.looked) < longGap {
		d.link.looked = now
		return nil
	}
	d.link.looked = now
	d.framer.reset()
	if !fresh {
		return nil
	}
	if err := p.Discard(); err != nil {
		return fmt.Errorf("%w: %w", closed(err), drivers.ErrUnsent)
	}
	return nil
}

// errGarbled is wrapped by what tells of an answer that is none.
var errGarbled = errors.New("no proper answer")

// await reads until the answer to a request, or to a command, has come. Unasked readings that come before it are
// appended.
func (d *Device) await(p port.Port, deadline time.Time, m *message, o *order, dst []tag.Sample) ([]tag.Sample, said, verdict, error) {
	if err := p.SetDeadline(deadline); err != nil {
		return dst, said{}, other, closed(err)
	}
	switch err := d.link.echoed(p, d.out); {
	case errors.Is(err, errNoEcho):
		return dst, said{}, other, fmt.Errorf("%w: %w", errGarbled, err)
	case err != nil:
		return dst, said{}, other, err
	}
	var stray error // what came and was no answer
	for {
		s, err := d.next(p, deadline)
		switch {
		case errors.Is(err, errSilent) && stray != nil:
			return dst, s, other, stray
		case errors.Is(err, errSilent) && (d.framer.partial() || d.framer.noises > 0):
			return dst, s, other, fmt.Errorf("%w: %s came", errGarbled, shown(d.framer.left()))
		case err != nil:
			return dst, s, other, err
		case s.err != nil:
			stray = fmt.Errorf("%w: %w: %s", errGarbled, s.err, shown(s.whole))
			if !d.talks {
				return dst, s, other, stray // nothing else will come
			}
			continue
		}
		if v := d.judge(m, o, &s); v != other {
			d.heard = d.last
			return dst, s, v, nil
		}
		if d.talks {
			var ok bool
			if dst, ok = d.unasked(&s, dst); ok {
				continue
			}
		}
		if d.ignored(&s) {
			continue
		}
		stray = fmt.Errorf("%w: %s does not match", errGarbled, shown(s.whole))
	}
}

// judge tells what a frame is to a request or a command.
func (d *Device) judge(m *message, o *order, s *said) verdict {
	match := func(p *pattern) bool { return p != nil && d.reader.find(p, s.body) }
	if o != nil {
		switch {
		case match(o.busy):
			return busy
		case match(o.refused):
			return refused
		case match(o.done):
			return answer
		}
		return other
	}
	switch {
	case match(m.none):
		return none
	case match(m.busy):
		return busy
	case match(m.refused):
		return refused
	case d.reader.reads(m, s):
		return answer
	}
	return other
}

func (d *Device) ignored(s *said) bool {
	return d.ignore != nil && d.reader.find(d.ignore, s.body)
}

// unasked appends the readings of a frame that is a message of an instrument that talks; false: it is none.
func (d *Device) unasked(s *said, dst []tag.Sample) ([]tag.Sample, bool) {
	for _, m := range d.messages {
		if !m.unasked {
			continue
		}
		switch d.judge(m, nil, s) {
		case other:
		case answer:
			d.heard = d.last
			return d.reader.values(m, s, d.at, dst), true
		case none:
			d.heard = d.last
			return d.bad(m, tag.BadOutOfRange, dst), true
		default:
			d.heard = d.last
			return d.bad(m, tag.BadDeviceFailure, dst), true
		}
	}
	return dst, false
}

// next reads until there is a frame. Its error is errSilent when the deadline has passed.
func (d *Device) next(p port.Port, deadline time.Time) (said, error) {
	for {
		if s, ok := d.framer.next(); ok {
			return s, nil
		}
		until := deadline
		quiet := time.Time{}
		if d.framer.silence > 0 && d.framer.partial() {
			if quiet = d.last.Add(d.framer.silence); quiet.Before(until) {
				until = quiet
			}
		}
		if d.framer.silence > 0 {
			if err := p.SetDeadline(until); err != nil {
				return said{}, closed(err)
			}
		}
		switch err := d.read(p); {
		case err == nil:
		case !port.IsTimeout(err):
			return said{}, closed(err)
		case !quiet.IsZero() && !time.Now().Before(quiet):
			if s, ok := d.framer.flush(); ok {
				return s, nil
			}
		default:
			return said{}, errSilent
		}
	}
}

// read adds what the stream brings to the framer.
func (d *Device) read(p port.Port) error {
	n, err := p.Read(d.framer.room())
	if n > 0 {
		d.framer.add(n)
		d.last = time.Now()
		d.at = tag.TimeOf(d.last)
		d.link.looked = d.last
		return nil
	}
	return err
}

// left is what came and was no frame.
func (f *framer) left() []byte {
	if f.noises > 0 {
		return f.noise
	}
	return f.buf[f.from:f.to]
}

// Write implements drivers.Driver: it carries out the first command.
func (d *Device) Write(ctx context.Context, _ int, cmds []tag.Command) error {
	for i := range cmds {
		if err := d.write(ctx, &cmds[i]); err != nil {
			return err
		}
	}
	return nil
}

func (d *Device) write(ctx context.Context, c *tag.Command) error {
	f := d.fields[c.Ref]
	if f == nil {
		c.Status = tag.BadNodeIDUnknown
		return nil
	}
	var status tag.Status
	if d.out, status = f.compose(d.out[:0], c); status != tag.Good {
		c.Status = status
		return nil
	}
	p, err := d.begin()
	if err != nil {
		return err
	}
	timeout := d.timeout(f.write.timeout)
	deadline := time.Now().Add(d.link.cfg.Mode.Chars(len(d.out)) + timeout)
	sent, err := d.link.send(ctx, p, d.out, deadline)
	if sent {
		c.Status = tag.BadTimeout
	}
	if err != nil {
		return err
	}
	if f.write.done == nil {
		if err = p.SetDeadline(deadline); err == nil {
			err = d.link.echoed(p, d.out)
		}
		if err == nil {
			err = p.Drain()
		}
		if d.link.quietFrom = time.Now(); err == nil {
			c.Status = tag.Good
			return nil
		}
	}
	var s said
	var v verdict
	if err == nil {
		d.pending, s, v, err = d.await(p, deadline, nil, f.write, d.pending)
		d.link.quietFrom = time.Now()
	}
	return d.outcome(f, c, &s, v, err, timeout)
}

// outcome makes the end of a write its command's status.
func (d *Device) outcome(f *field, c *tag.Command, s *said, v verdict, err error, timeout time.Duration) error {
	fault := func(kind drivers.FaultKind, outcome drivers.Outcome, err error) error {
		return &drivers.Fault{Kind: kind, Outcome: outcome, Err: fmt.Errorf("%s: write %s: %w", d.name, f.name, err)}
	}
	switch {
	case errors.Is(err, errSilent):
		c.Status = tag.BadTimeout
		return fault(drivers.Mute, drivers.Unknown, fmt.Errorf("%w within %v", err, timeout))
	case errors.Is(err, errGarbled), errors.Is(err, errNoEcho):
		c.Status = tag.BadCommunicationError
		return fault(drivers.Garbled, drivers.Unknown, err)
	case err != nil:
		return err
	case v == busy:
		c.Status = tag.BadResourceUnavailable
		return fault(drivers.Busy, drivers.NotDone, fmt.Errorf("it asks for patience: %s", shown(s.whole)))
	case v == refused:
		c.Status = tag.BadDeviceFailure
		return fault(drivers.Refused, drivers.NotDone, fmt.Errorf("it refuses: %s", shown(s.whole)))
	}
	c.Status = tag.Good
	return nil
}

// compose checks a command against its tag and makes its bytes. A status other than Good refuses it.
func (f *field) compose(dst []byte, c *tag.Command) ([]byte, tag.Status) {
	v := c.Value
	switch {
	case f.write == nil:
		return dst, tag.BadNotWritable
	case !c.At.IsZero() || c.Put != tag.Good || c.Part:
		return dst, tag.BadWriteNotSupported
	case v.Kind() != f.out() || v.IsArray():
		return dst, tag.BadTypeMismatch
	case f.size > 0 && f.kind == tag.String && v.Len() > f.size:
		return dst, tag.BadOutOfRange
	}
	if f.hasRange {
		if x, ok := v.Float(); ok && !(x >= f.low && x <= f.high) {
			return dst, tag.BadOutOfRange
		}
	}
	if !f.write.send.hasValue() && !f.triggers(v) {
		return dst, tag.BadOutOfRange
	}
	return f.write.send.append(dst, f, v)
}

// triggers reports whether a value carries out a command that says nothing of it: true does, of a bool.
func (f *field) triggers(v tag.Value) bool {
	if f.kind == tag.Bool {
		return v.Bool()
	}
	for _, m := range f.values {
		if m.value.Equal(v) {
			return true
		}
	}
	return false
}
