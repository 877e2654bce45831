package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// FaultKind is what goes wrong.
type FaultKind string

// The kinds of fault.
const (
	Mute          FaultKind = "mute"        // the request is neither carried out nor answered
	Lost          FaultKind = "lost"        // the request is carried out, its answer never sent
	Delay         FaultKind = "delay"       // the answer comes For later; the line waits meanwhile
	Late          FaultKind = "late"        // the answer comes For later, other requests are answered meanwhile
	Exception     FaultKind = "exception"   // the answer is the exception Code
	WrongUnit     FaultKind = "unit"        // the answer names the next unit
	WrongTrans    FaultKind = "transaction" // the answer names the next transaction (tcp)
	WrongFunction FaultKind = "function"    // the answer names another function
	WrongCount    FaultKind = "count"       // a read is answered with one register or byte of bits less, well framed
	BadCRC        FaultKind = "crc"         // the check sum is wrong (on tcp: the protocol id is not 0)
	Cut           FaultKind = "cut"         // only the first half of the frame is sent
	Noise         FaultKind = "noise"       // Bytes come before the frame
	Trailing      FaultKind = "trailing"    // Bytes come after the frame
	Duplicate     FaultKind = "duplicate"   // the frame is sent twice
	Echo          FaultKind = "echo"        // the request comes back before the answer, as on a two-wire line
	Reset         FaultKind = "reset"       // the connection is reset instead of an answer (on a serial line: mute)
)

var faultKinds = []FaultKind{Mute, Lost, Delay, Late, Exception, WrongUnit, WrongTrans, WrongFunction, WrongCount, BadCRC,
	Cut, Noise, Trailing, Duplicate, Echo, Reset}

// Fault is a rule for what goes wrong with a device's answers. A request meets at most one: the first that fits it.
type Fault struct {
	Kind FaultKind     `yaml:"kind"`
	Code int           `yaml:"code"`  // of an Exception; 0 is 4, device failure
	For  time.Duration `yaml:"for"`   // of a Delay and of Late
	Data []byte        `yaml:"bytes"` // of Noise and Trailing; empty is 00 FF 00

	// Which requests it meets: all, unless narrowed.
	Function int     `yaml:"function"` // only this function code
	Skip     int     `yaml:"skip"`     // not the first Skip that would fit
	Times    int     `yaml:"times"`    // only so many; 0 is no end
	Chance   float64 `yaml:"chance"`   // each with this probability; 0 is always
}

func (f *Fault) check() error {
	switch {
	case !slices.Contains(faultKinds, f.Kind):
		return fmt.Errorf("fault kind %q: give one of %v", f.Kind, faultKinds)
	case f.Code < 0 || f.Code > 255:
		return fmt.Errorf("exception code %d: give 1 to 255", f.Code)
	case (f.Kind == Delay || f.Kind == Late) && f.For <= 0:
		return fmt.Errorf("%s needs a time: for: 200ms", f.Kind)
	case f.Function < 0 || f.Function > 127:
		return fmt.Errorf("function %d: give 1 to 127", f.Function)
	case f.Skip < 0 || f.Times < 0:
		return fmt.Errorf("skip %d, times %d: give 0 or more", f.Skip, f.Times)
	case f.Chance < 0 || f.Chance > 1:
		return fmt.Errorf("chance %v: give 0 to 1", f.Chance)
	}
	return nil
}

// rule is a Fault in force, with its counts.
type rule struct {
	Fault
	seen int // requests that would fit
	done int // requests that it met
}

// Fault puts f in force and returns what lifts it. It panics on a fault that makes no sense: that is a mistake in a test.
func (d *Device) Fault(f Fault) (lift func()) {
	if err := f.check(); err != nil {
		panic(fmt.Sprintf("sim: device %s: %v", d.name, err))
	}
	r := &rule{Fault: f}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rules = append(d.rules, r)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.rules = slices.DeleteFunc(d.rules, func(o *rule) bool { return o == r })
	}
}

// Heal lifts every fault.
func (d *Device) Heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rules = nil
}

// fault picks what goes wrong with a request; its Kind is empty for nothing. d.mu is held.
func (d *Device) fault(function byte) Fault {
	for _, r := range d.rules {
		if r.Function != 0 && byte(r.Function) != function || r.Times > 0 && r.done >= r.Times {
			continue
		}
		if r.Chance > 0 && rand.Float64() >= r.Chance {
			continue
		}
		if r.seen++; r.seen <= r.Skip {
			continue
		}
		r.done++
		return r.Fault
	}
	return Fault{}
}

// noise is the bytes of a Noise or Trailing fault.
func (f *Fault) noise() []byte {
	if len(f.Data) == 0 {
		return []byte{0x00, 0xFF, 0x00}
	}
	return f.Data
}

// bend applies what goes wrong inside a PDU.
func (f *Fault) bend(pdu []byte) []byte {
	switch f.Kind {
	case Exception:
		code := byte(f.Code)
		if code == 0 {
			code = byte(deviceFailure)
		}
		return append(pdu[:0], pdu[0]|0x80, code)
	case WrongFunction:
		pdu[0] ^= 0x04
	case WrongCount:
		switch {
		case pdu[0] >= 3 && pdu[0] <= 4 && len(pdu) >= 4 || pdu[0] == 23 && len(pdu) >= 4:
			pdu[1] -= 2
			return pdu[:len(pdu)-2]
		case pdu[0] <= 2 && len(pdu) >= 3:
			pdu[1]--
			return pdu[:len(pdu)-1]
		}
	}
	return pdu
}

// distort applies what goes wrong with the frame of an answer; request is the frame that it answers.
func (f *Fault) distort(frame, request []byte, t transport) []byte {
	switch f.Kind {
	case BadCRC:
		switch t {
		case tcp:
			frame[3] ^= 0x01
		case ascii:
			frame[len(frame)-4] ^= 0x01 // the LRC's first digit is still one
		default:
			frame[len(frame)-1] ^= 0x01
		}
	case Cut:
		return frame[:(len(frame)+1)/2]
	case Noise:
		return append(append([]byte(nil), f.noise()...), frame...)
	case Trailing:
		return append(frame, f.noise()...)
	case Duplicate:
		return append(frame, frame...)
	case Echo:
		return append(append([]byte(nil), request...), frame...)
	}
	return frame
}
