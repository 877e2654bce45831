package sim

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Quirks are what a simulated device always does otherwise than the standard has it. What it does now and then is a
// Fault; one without end is a quirk too: unit, transaction, echo, exception.
type Quirks struct {
	Pause        time.Duration `yaml:"pause"`          // a request sooner than this after the last answer is not heard
	WarmUp       time.Duration `yaml:"warm_up"`        // nothing is heard for so long after a connect
	Stuck        bool          `yaml:"stuck"`          // a request that was not heard, by a mute fault, is the last of its connection
	OneValue     bool          `yaml:"one_value"`      // only reads of exactly one value are carried out
	FromZero     bool          `yaml:"from_zero"`      // only reads of bits that begin at 0 are carried out
	HighBitFirst bool          `yaml:"high_bit_first"` // the first bit of each byte is its most significant one
	MaskSpoils   bool          `yaml:"mask_spoils"`    // function 22 stores its OR mask alone
	Identity     bool          `yaml:"identity_kills"` // function 43 is answered by a reset
	Count        bool          `yaml:"count"`          // answers to reads have 0 as their byte count
	WriteAnswer  bool          `yaml:"write_answer"`   // answers to writes hold zeros
	NoID         bool          `yaml:"no_id"`          // transaction ids of answers are 0
	CRCSwapped   bool          `yaml:"crc_swapped"`    // the check sum's high byte comes first; of all devices of the line
}

func (q *Quirks) check() error {
	if q.Pause < 0 || q.WarmUp < 0 {
		return fmt.Errorf("pause %v, warm_up %v: give 0 or more", q.Pause, q.WarmUp)
	}
	return nil
}

// hears reports whether a request to the device is heard at all. d.mu is held.
func (c *conversation) hears(d *Device) bool {
	now := time.Now()
	if c.since.IsZero() {
		c.since = now
	}
	q := &d.quirks
	return !c.stuck && now.Sub(c.since) >= q.WarmUp && (c.answered.IsZero() || now.Sub(c.answered) >= q.Pause)
}

// refuses is what the device has against a parsed request. d.mu is held.
func (q *Quirks) refuses(d *Device, r *request) exception {
	if r.function > 4 {
		return 0
	}
	b := d.banks[r.bank]
	i := b.find(r.at)
	one := i < len(b) && b[i].start <= r.at && (r.at-b[i].start)%uint32(b[i].width) == 0 && r.end == r.at+uint32(b[i].width)
	if q.OneValue && !one || q.FromZero && r.bank < Input && r.at != 0 {
		return illegalAddress
	}
	return 0
}

// turn reverses the bits of coils that are to be written, or of bits that were read.
func (q *Quirks) turn(data []byte) {
	for i, b := range data {
		data[i] = bits.Reverse8(b)
	}
}

// bend makes of a proper answer what the device sends.
func (q *Quirks) bend(pdu []byte) {
	switch {
	case pdu[0]&0x80 != 0:
	case pdu[0] <= 4:
		if q.HighBitFirst && pdu[0] <= 2 {
			q.turn(pdu[2:])
		}
		if q.Count {
			pdu[1] = 0
		}
	case pdu[0] != 43 && pdu[0] != 23 && q.WriteAnswer:
		clear(pdu[1:])
	}
}

// swapsCRC reports whether the devices of the line turn the check sum around.
func (l *Line) swapsCRC() bool {
	return slices.ContainsFunc(l.units[:], func(d *Device) bool { return d != nil && d.quirks.CRCSwapped })
}

// turnCRC is a copy of a frame with its check sum turned around.
func turnCRC(frame []byte) []byte {
	out := slices.Clone(frame)
	if n := len(out); n >= 2 {
		out[n-1], out[n-2] = out[n-2], out[n-1]
	}
	return out
}
