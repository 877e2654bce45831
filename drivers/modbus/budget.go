package modbus

import (
	"time"

	"edged/drivers"
	"edged/drivers/tag"
)

var _ drivers.Priced = (*Device)(nil)

// Exchange implements drivers.Priced.
func (d *Device) Exchange(number int) drivers.Exchange {
	if len(d.lanes) == 0 {
		return drivers.Exchange{Takes: drivers.AssumedExchange, Assumed: true}
	}
	r := d.requests[number]
	bytes := 2 * r.count()
	if r.table.Bits() {
		bytes = (r.count() + 7) / 8
	}
	const asks, counts = 5, 2 // function, address, count; function, byte count
	return d.lanes[0].link.takes(asks, counts+bytes)
}

// Reads implements drivers.Priced.
func (d *Device) Reads(number int) []tag.Ref {
	fields := d.requests[number].fields
	refs := make([]tag.Ref, len(fields))
	for i, f := range fields {
		refs[i] = f.ref
	}
	return refs
}

// takes is what an exchange of two PDUs takes on the link, the device answering after the least silence that the
// standard allows (Serial Line, 2.5.1.1). What a two-wire line echoes comes back meanwhile.
func (l *Link) takes(asks, answers int) drivers.Exchange {
	mode := l.cfg.Mode
	if l.cfg.Framing == TCP || mode.Baud == 0 {
		return drivers.Exchange{Takes: drivers.AssumedExchange + l.silence, Fails: l.cfg.Timeout + l.silence, Assumed: true}
	}
	asked, answered := mode.Chars(l.cfg.Framing.chars(asks)), mode.Chars(l.cfg.Framing.chars(answers))
	gap := l.cfg.gap()
	if l.cfg.Framing == ASCII {
		gap = 0 // a colon begins a frame, no silence
	}
	return drivers.Exchange{
		Takes: asked + gap + answered + l.silence,
		Fails: asked + l.cfg.Timeout + answered + l.silence,
	}
}

// chars is how many characters the frame of a PDU has on a serial line.
func (f Framing) chars(pdu int) int {
	if f == ASCII {
		return 1 + 2*(1+pdu+1) + len(asciiEnd)
	}
	return 1 + pdu + crcSize
}

// gap is the least silence between two frames of a serial line.
func (c *LinkConfig) gap() time.Duration {
	if c.Mode.Baud > shortSilenceBaud {
		return shortSilence
	}
	return c.Mode.Chars(7) / 2
}
