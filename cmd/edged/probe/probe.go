// Package probe learns what hangs on a line: units, registers, limits, answer times, byte orders, and what an unknown
// instrument sends. It hides how a device is asked so that it comes to no harm: it only reads, one request at a time.
package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"edged/drivers"
	"edged/drivers/modbus"
	"edged/drivers/port"
)

// Config is what a Line needs.
type Config struct {
	Address port.Address
	Open    func(port.Address) port.Opener // nil: the address itself
	Timeout time.Duration                  // for an answer, beside the time that its characters take
	Echo    bool                           // the line brings back what is sent
	// Progress hears what is being done, often. It may be nil.
	Progress func(text string)
}

// Line is a line whose units are asked. It is used by one goroutine.
type Line struct {
	cfg  Config
	link *modbus.Link
	open bool
	lost int // times in a row that the link broke before anything came
}

// NewLine makes a Line. It opens nothing.
func NewLine(cfg Config) *Line {
	if cfg.Open == nil {
		cfg.Open = func(a port.Address) port.Opener { return a }
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string) {}
	}
	c := modbus.Links(cfg.Address)
	c.Open, c.Timeout, c.Echo = cfg.Open(cfg.Address), cfg.Timeout, cfg.Echo
	return &Line{cfg: cfg, link: modbus.NewLink(c)}
}

// Open opens the line, unless it is open.
func (l *Line) Open(ctx context.Context) error {
	if l.open {
		return nil
	}
	if err := l.link.Open(ctx); err != nil {
		return err
	}
	l.open = true
	return nil
}

// Exchange is how long the characters of a read and of its answer take.
func (l *Line) Exchange(t modbus.Table, count int) time.Duration { return l.link.LineTime(t, count) }

// Close closes the line.
func (l *Line) Close() {
	l.open = false
	l.link.Close()
}

// Verdict is what became of one request.
type Verdict uint8

// The verdicts.
const (
	Answered Verdict = iota
	Refused          // an exception
	Mute             // nothing came in time
	Garbled          // something came that is no answer
	Broken           // the connection ended instead of an answer
)

var verdicts = [...]string{"answered", "refused", "no answer", "garbled answer", "the connection ended"}

// String is the verdict for people.
func (v Verdict) String() string { return verdicts[v] }

const (
	// A link that breaks this often in a row, before anything came, is given up.
	mostLost  = 5
	afterLost = 200 * time.Millisecond
	// A busy device (exceptions 5 and 6) is asked again so often, with so much time in between.
	busyTries = 8
	busyPause = 100 * time.Millisecond
	// A request without a proper answer is made again so often; no more when the unit left this many unanswered while it
	// answered others: it has no exceptions for what it does not know.
	retries = 2
	habit   = 8
)

// Exception codes that are not about the addresses (Application Protocol, 7).
const (
	illegalFunction = 1
	acknowledge     = 5
	busy            = 6
	noPath          = 10
	noTarget        = 11
)

// Unit is one unit of a line.
type Unit struct {
	ID     int
	line   *Line
	reader *modbus.Reader
	times  []time.Duration // of answers, without the time on the line
	alive  bool            // it has answered
	known  span            // a request that it answered, to see whether it still does
	mutes  int             // requests that it did not answer, and answered others right after
	asked  int
}

// Unit is the unit with this number.
func (l *Line) Unit(id int) (*Unit, error) {
	r, err := modbus.NewReader(l.link, id)
	if err != nil {
		return nil, err
	}
	return &Unit{ID: id, line: l, reader: r}, nil
}

// once makes one request. The error is the end: of ctx, or of the line, which cannot be opened.
func (u *Unit) once(ctx context.Context, t modbus.Table, start, count int) (data []byte, v Verdict, code byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, Mute, 0, err
	}
	if err := u.line.Open(ctx); err != nil {
		return nil, Mute, 0, err
	}
	u.asked++
	began := time.Now()
	data, err = u.reader.Read(ctx, t, start, count)
	took := time.Since(began)
	v, code, err = u.line.judge(ctx, err)
	if v == Answered || v == Refused && code != noPath && code != noTarget {
		u.alive = true
		u.times = append(u.times, max(0, took-u.line.link.LineTime(t, count)))
	}
	return data, v, code, err
}

// judge tells what the error of an exchange means, and closes a link that is of no more use.
func (l *Line) judge(ctx context.Context, err error) (Verdict, byte, error) {
	if err == nil {
		l.lost = 0
		return Answered, 0, nil
	}
	if code := modbus.Exception(err); code != 0 {
		l.lost = 0
		return Refused, code, nil
	}
	if end := ctx.Err(); end != nil {
		return Mute, 0, end
	}
	switch {
	case errors.Is(err, drivers.ErrHalfOpen): // a connection through which nobody answered; maybe there is nobody
		l.Close()
		return Mute, 0, nil
	case modbus.Unanswered(err):
		return Mute, 0, nil
	case modbus.Distorted(err):
		return Garbled, 0, nil
	}
	l.Close()
	if l.lost++; l.lost >= mostLost {
		return Broken, 0, fmt.Errorf("%s: the connection broke %d times in a row: %w", l.cfg.Address, l.lost, err)
	}
	return Broken, 0, pause(ctx, afterLost)
}

// read makes a request until there is a verdict to rely on.
func (u *Unit) read(ctx context.Context, t modbus.Table, start, count int) (data []byte, v Verdict, code byte, err error) {
	for tries, waits := 0, 0; ; {
		data, v, code, err = u.once(ctx, t, start, count)
		switch {
		case err != nil:
			return nil, v, code, err
		case v == Answered:
			u.known = span{t, start, start + count}
			return data, v, code, nil
		case v == Refused && (code == busy || code == acknowledge) && waits < busyTries:
			waits++
			if err := pause(ctx, busyPause); err != nil {
				return nil, v, code, err
			}
		case v == Refused:
			return nil, v, code, nil
		case tries == retries, u.mutes > habit && v == Mute:
			return nil, v, code, nil
		default:
			tries++
		}
	}
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Identify is what the unit says of itself (43/14), and why it says nothing otherwise. It is to be the last question: a
// few devices cannot bear it.
func (u *Unit) Identify(ctx context.Context) (drivers.Identity, Verdict, error) {
	for range 2 { // it is given up after two connections that ended at the question
		if err := u.line.Open(ctx); err != nil {
			return drivers.Identity{}, Mute, err
		}
		id, err := u.reader.Identify(ctx)
		v, _, err := u.line.judge(ctx, err)
		if v != Broken || err != nil {
			return id, v, err
		}
	}
	return drivers.Identity{}, Broken, nil
}
