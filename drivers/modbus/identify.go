package modbus

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	gomodbus "github.com/goburrow/modbus"

	"edged/drivers"
)

// The objects of an identification, and the kinds of access (Application Protocol, 6.21).
const (
	objectVendor   = 0
	objectCode     = 1
	objectRevision = 2
	objectProduct  = 4
	objectModel    = 5
	objects        = 7 // what lies beyond is the vendor's own

	accessBasic   = 1 // objects 0 to 2, which every device that answers has
	accessRegular = 2 // objects 0 to 6
	// maxIdentify bounds the exchanges of one identification: seven objects in turn, and once more for basic access.
	maxIdentify = 8
	// maxLost connections that ended at the question are no chance: there are devices that cannot bear it.
	maxLost = 2
)

// identification is what a device has said of itself so far. Owned by the lane.
type identification struct {
	untold bool // the device does not tell, and is left alone
	told   bool
	access byte // 0: nothing was asked yet
	next   byte // object to ask for
	asked  int
	lost   int // connections that ended at the question
	text   [objects]string
}

var _ drivers.Identifier = (*Device)(nil)

// Identify implements drivers.Identifier. A device that refuses, or does not answer, is never asked again.
func (d *Device) Identify(ctx context.Context, lane int) (id drivers.Identity, more bool, err error) {
	w := &d.who
	if w.untold || w.told && d.quirks.CloseAfter { // or a connection after the other would be for this alone
		return id, false, drivers.ErrSkipped
	}
	if w.access == 0 {
		*w = identification{access: accessRegular, lost: w.lost}
	}
	l := &d.lanes[lane]
	l.link.begin(ctx, &d.quirks)
	answer, err := l.exchange(gomodbus.ProtocolDataUnit{FunctionCode: funcIdentify, Data: []byte{meiIdentify, w.access, w.next}})
	if err == nil {
		more, err = w.take(answer)
	} else if exceptionOf(err) != 0 && exceptionOf(err) != gomodbus.ExceptionCodeIllegalFunction && w.access == accessRegular {
		w.access, w.next = accessBasic, 0
		return id, true, nil
	}
	if w.asked++; err == nil && more && w.asked < maxIdentify {
		return id, true, nil
	}
	asked := w.access
	w.access = 0
	if err != nil {
		_, fault := d.fault(err, false, fmt.Sprintf("identification 43/14, access %d", asked))
		if fault == nil {
			if !errors.Is(err, drivers.ErrUnsent) {
				w.lost++
			}
			w.untold = w.lost == maxLost
			return id, false, err
		}
		w.untold = true
		return id, false, fault
	}
	w.told = true
	d.left(lane)
	return w.identity(), false, nil
}

// left closes the connection of a device that bears it no longer than it must.
func (d *Device) left(lane int) {
	if d.quirks.CloseAfter && (d.who.told || d.who.untold) {
		d.lanes[lane].link.Close()
	}
}

// exchange is goburrow's client for a function that it does not know.
func (l *lane) exchange(request gomodbus.ProtocolDataUnit) ([]byte, error) {
	adu, err := l.packager.Encode(&request)
	if err != nil {
		return nil, err
	}
	answer, err := l.link.Send(adu)
	if err != nil {
		return nil, err
	}
	pdu, err := l.packager.Decode(answer)
	if err != nil {
		return nil, err
	}
	if pdu.FunctionCode != request.FunctionCode {
		return nil, &gomodbus.ModbusError{FunctionCode: pdu.FunctionCode, ExceptionCode: pdu.Data[0]}
	}
	return pdu.Data, nil
}

// take takes the objects of an answer, a PDU without its function code. more: the device has others.
func (w *identification) take(b []byte) (more bool, err error) {
	if len(b) < identifyAhead-1 || b[0] != meiIdentify {
		return false, fmt.Errorf("%w: % x is no identification", errGarbled, b[:min(len(b), 16)])
	}
	follows, next, rest := b[3] == 0xFF, b[4], b[identifyAhead-1:]
	last := -1
	for range b[5] {
		if len(rest) < 2 || len(rest) < 2+int(rest[1]) {
			return false, fmt.Errorf("%w: an identification ends within an object", errGarbled)
		}
		object, text := int(rest[0]), rest[2:2+rest[1]]
		rest = rest[2+len(text):]
		if last = object; object < objects {
			w.text[object] = clean(text)
		}
	}
	if !follows || last < 0 || int(next) <= last || next >= objects { // an answer of no object would be asked for again

		return false, nil
	}
	w.next = next
	return true, nil
}

// clean makes a text of an object, which is ASCII, and often filled with something.
func clean(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	printable := func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}
	return strings.TrimSpace(strings.Map(printable, strings.ToValidUTF8(string(b), "?")))
}

func (w *identification) identity() drivers.Identity {
	return drivers.Identity{
		Manufacturer:     w.text[objectVendor],
		Model:            cmp.Or(w.text[objectModel], w.text[objectProduct], w.text[objectCode]),
		SoftwareRevision: w.text[objectRevision],
	}
}
