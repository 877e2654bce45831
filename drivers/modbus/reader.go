package modbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"edged/drivers"
)

// Reader asks one unit of a line for what a person wants to see who commissions it, without tags and without a plan. It
// sends the function codes 1 to 4 and 43/14 alone: nothing that it asks changes a device. It is used by one goroutine.
type Reader struct {
	d *Device
}

// NewReader makes a Reader of a unit. Several may share a link, in turn.
func NewReader(link *Link, unit int) (*Reader, error) {
	d, err := New(Config{Name: fmt.Sprintf("unit %d", unit), Unit: unit}, link)
	if err != nil {
		return nil, err
	}
	return &Reader{d}, nil
}

// Read brings count registers from start on, high byte first, or bits, the first one in the lowest bit of the first byte.
// The error tells by Exception, Unanswered and Distorted what it was; any other leaves the link unusable.
func (r *Reader) Read(ctx context.Context, t Table, start, count int) ([]byte, error) {
	most := mostReadRegisters
	if t.Bits() {
		most = mostReadBits
	}
	if start < 0 || count < 1 || count > most || start+count > lastAddress+1 {
		return nil, fmt.Errorf("%s:%d+%d cannot be asked for: one read brings 1 to %d, up to address %d", t, start, count, most, lastAddress)
	}
	return r.d.read(ctx, 0, t, start, count)
}

// Identify brings what the unit says of itself (43/14). A unit that does not know the function answers an exception.
func (r *Reader) Identify(ctx context.Context) (drivers.Identity, error) {
	for {
		id, more, err := r.d.Identify(ctx, 0)
		if err != nil || !more {
			return id, err
		}
	}
}

// Exception is the exception code that a device answered (Application Protocol, 7), or 0.
func Exception(err error) byte { return exceptionOf(err) }

// Unanswered reports whether nothing came before the time-out.
func Unanswered(err error) bool { return errors.Is(err, errMute) }

// Distorted reports whether something came that is no answer.
func Distorted(err error) bool { return errors.Is(err, errGarbled) }

// LineTime is how long the characters of a read and of its answer take on a serial line: the part of an exchange that is
// not the device's. It is 0 where characters take no time.
func (l *Link) LineTime(t Table, count int) time.Duration {
	data := 2 * count
	if t.Bits() {
		data = (count + 7) / 8
	}
	request, answer := 1+5+crcSize, 1+2+data+crcSize
	if l.cfg.Framing == ASCII {
		request, answer = 1+2*(1+5+1)+len(asciiEnd), 1+2*(1+2+data+1)+len(asciiEnd)
	}
	return l.cfg.Mode.Chars(request) + l.cfg.Mode.Chars(answer) + l.silence
}
