package sim

import (
	"encoding/binary"

	"edged/drivers/tag"
)

// Limits of one request (Application Protocol V1.1b3, 4.1 and 6.1 to 6.17).
const (
	maxPDU            = 253
	maxReadBits       = 2000
	maxReadRegisters  = 125
	maxWriteBits      = 1968
	maxWriteRegisters = 123
	maxBothRegisters  = 121 // written by function 23
)

// exception is an exception code (section 7); 0 is none.
type exception byte

const (
	illegalFunction exception = 1
	illegalAddress  exception = 2
	illegalValue    exception = 3
	deviceFailure   exception = 4
	gatewayTarget   exception = 11 // no answer from the unit behind a gateway
)

// request is a parsed PDU. data aliases it.
type request struct {
	function    byte
	bank        Bank
	at, end     uint32 // what is read, or with a plain write: written
	wat, wend   uint32 // what function 23 writes
	data        []byte // to write: registers big-endian, bits from the lowest on
	and, or     uint16 // of a mask write
	code, first byte   // of 43/14: the kind of access and the first object
}

// function is how one function code is parsed and carried out. parse reports false for exception 3; run is called with
// the device locked.
type function struct {
	bank  Bank
	parse func(r *request, body []byte) bool
	run   func(d *Device, r *request, dst []byte) ([]byte, exception)
}

// functionCodes is one above the highest function code that sim knows.
const functionCodes = 44

var functions = [functionCodes]function{
	1:  {Coil, parseRead(maxReadBits), (*Device).readBits},
	2:  {Discrete, parseRead(maxReadBits), (*Device).readBits},
	3:  {Holding, parseRead(maxReadRegisters), (*Device).readRegisters},
	4:  {Input, parseRead(maxReadRegisters), (*Device).readRegisters},
	5:  {Coil, parseWriteCoil, (*Device).writeBits},
	6:  {Holding, parseWriteRegister, (*Device).writeRegisters},
	15: {Coil, parseWriteCoils, (*Device).writeBits},
	16: {Holding, parseWriteRegisters, (*Device).writeRegisters},
	22: {Holding, parseMask, (*Device).mask},
	23: {Holding, parseBoth, (*Device).both},
	43: {Holding, parseIdentify, (*Device).identify},
}

// parseRequest parses a PDU, which is never empty.
func parseRequest(r *request, pdu []byte) exception {
	*r = request{function: pdu[0]}
	if int(pdu[0]) >= len(functions) || functions[pdu[0]].parse == nil {
		return illegalFunction
	}
	f := &functions[pdu[0]]
	r.bank = f.bank
	if !f.parse(r, pdu[1:]) {
		return illegalValue
	}
	return 0
}

func (r *request) span(b []byte, most int) bool {
	n := uint32(binary.BigEndian.Uint16(b[2:]))
	r.at = uint32(binary.BigEndian.Uint16(b))
	r.end = r.at + n
	return n >= 1 && n <= uint32(most)
}

func parseRead(most int) func(*request, []byte) bool {
	return func(r *request, b []byte) bool { return len(b) == 4 && r.span(b, most) }
}

var bitOff, bitOn = []byte{0}, []byte{1}

func parseWriteCoil(r *request, b []byte) bool {
	if len(b) != 4 || b[3] != 0 {
		return false
	}
	r.at = uint32(binary.BigEndian.Uint16(b))
	r.end = r.at + 1
	switch b[2] {
	case 0xFF:
		r.data = bitOn
	case 0x00:
		r.data = bitOff
	default:
		return false
	}
	return true
}

func parseWriteRegister(r *request, b []byte) bool {
	if len(b) != 4 {
		return false
	}
	r.at = uint32(binary.BigEndian.Uint16(b))
	r.end = r.at + 1
	r.data = b[2:]
	return true
}

func parseWriteCoils(r *request, b []byte) bool {
	if len(b) < 6 || !r.span(b, maxWriteBits) {
		return false
	}
	r.data = b[5:]
	n := int(r.end-r.at+7) / 8
	return int(b[4]) == n && len(r.data) == n
}

func parseWriteRegisters(r *request, b []byte) bool {
	if len(b) < 7 || !r.span(b, maxWriteRegisters) {
		return false
	}
	r.data = b[5:]
	n := 2 * int(r.end-r.at)
	return int(b[4]) == n && len(r.data) == n
}

func parseMask(r *request, b []byte) bool {
	if len(b) != 6 {
		return false
	}
	r.at = uint32(binary.BigEndian.Uint16(b))
	r.end = r.at + 1
	r.and, r.or = binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint16(b[4:])
	return true
}

func parseBoth(r *request, b []byte) bool {
	if len(b) < 11 || !r.span(b, maxReadRegisters) {
		return false
	}
	n := uint32(binary.BigEndian.Uint16(b[6:]))
	r.wat = uint32(binary.BigEndian.Uint16(b[4:]))
	r.wend = r.wat + n
	r.data = b[9:]
	return n >= 1 && n <= maxBothRegisters && uint32(b[8]) == 2*n && len(r.data) == int(2*n)
}

func parseIdentify(r *request, b []byte) bool {
	if len(b) != 3 || b[0] != meiIdentify {
		return false
	}
	r.code, r.first = b[1], b[2]
	return r.code >= 1 && r.code <= 4
}

// carryOut answers a parsed request by appending a PDU to dst. refused is what the parser said. d.mu is held.
func (d *Device) carryOut(dst []byte, r *request, refused exception) ([]byte, exception) {
	if int(r.function) >= len(d.allowed) || !d.allowed[r.function] {
		refused = illegalFunction
	}
	start := len(dst)
	if refused == 0 {
		if dst, refused = functions[r.function].run(d, r, append(dst, r.function)); refused == 0 {
			return dst, 0
		}
	}
	return append(dst[:start], r.function|0x80, byte(refused)), refused
}

func (d *Device) readBits(r *request, dst []byte) ([]byte, exception) {
	b := d.banks[r.bank]
	if int(r.end-r.at) > d.maxBits {
		return dst, illegalValue
	}
	if !b.covers(r.at, r.end, false) {
		return dst, illegalAddress
	}
	dst = append(dst, byte((r.end-r.at+7)/8))
	return b.readBits(dst, r.at, r.end, d.plant.elapsed()), 0
}

func (d *Device) readRegisters(r *request, dst []byte) ([]byte, exception) {
	b := d.banks[r.bank]
	if int(r.end-r.at) > d.maxRegs {
		return dst, illegalValue
	}
	if !b.covers(r.at, r.end, false) {
		return dst, illegalAddress
	}
	dst = append(dst, byte(2*(r.end-r.at)))
	return b.read(dst, r.at, r.end, d.plant.elapsed()), 0
}

func (d *Device) writeBits(r *request, dst []byte) ([]byte, exception) {
	b := d.banks[Coil]
	if int(r.end-r.at) > d.maxBits {
		return dst, illegalValue
	}
	if !b.covers(r.at, r.end, true) {
		return dst, illegalAddress
	}
	if r.function == 15 && d.quirks.HighBitFirst {
		d.quirks.turn(r.data)
	}
	b.writeBits(r.at, r.end, r.data)
	d.wrote()
	d.logWrite(r, Coil, r.at, r.end, tag.Now())
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.at))
	if r.function == 5 {
		return append(dst, -r.data[0], 0), 0 // FF00 or 0000 (6.5)
	}
	return binary.BigEndian.AppendUint16(dst, uint16(r.end-r.at)), 0
}

func (d *Device) writeRegisters(r *request, dst []byte) ([]byte, exception) {
	b := d.banks[Holding]
	if int(r.end-r.at) > d.maxRegs {
		return dst, illegalValue
	}
	if !b.covers(r.at, r.end, true) {
		return dst, illegalAddress
	}
	b.write(r.at, r.data)
	d.wrote()
	d.logWrite(r, Holding, r.at, r.end, tag.Now())
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.at))
	if r.function == 6 {
		return append(dst, r.data...), 0
	}
	return binary.BigEndian.AppendUint16(dst, uint16(r.end-r.at)), 0
}

func (d *Device) mask(r *request, dst []byte) ([]byte, exception) {
	b := d.banks[Holding]
	if !b.covers(r.at, r.end, true) {
		return dst, illegalAddress
	}
	c := b.cell(r.at)
	*c = *c&r.and | r.or&^r.and // 6.16
	if d.quirks.MaskSpoils {
		*c = r.or
	}
	d.wrote()
	d.logWrite(r, Holding, r.at, r.end, tag.Now())
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.at))
	dst = binary.BigEndian.AppendUint16(dst, r.and)
	return binary.BigEndian.AppendUint16(dst, r.or), 0
}

// both writes before it reads (6.17).
func (d *Device) both(r *request, dst []byte) ([]byte, exception) {
	b := d.banks[Holding]
	if int(r.end-r.at) > d.maxRegs || int(r.wend-r.wat) > d.maxRegs {
		return dst, illegalValue
	}
	if !b.covers(r.at, r.end, false) || !b.covers(r.wat, r.wend, true) {
		return dst, illegalAddress
	}
	b.write(r.wat, r.data)
	d.wrote()
	d.logWrite(r, Holding, r.wat, r.wend, tag.Now())
	dst = append(dst, byte(2*(r.end-r.at)))
	return b.read(dst, r.at, r.end, d.plant.elapsed()), 0
}

const (
	meiIdentify = 14
	maxIdentity = 7   // objects 0 to 6 are the standard's (6.21)
	maxObject   = 244 // bytes of one object, so that one fits an answer
	conformity  = 0x82
)

// lastObject is the highest object of each kind of access: 1 basic, 2 regular, 3 extended, 4 one object.
var lastObject = [...]int{1: 2, 2: 6, 3: 6, 4: 6}

// identify is 43/14, Read Device Identification. An object beyond the last starts the stream anew (6.21).
func (d *Device) identify(r *request, dst []byte) ([]byte, exception) {
	last := min(lastObject[r.code], len(d.identity)-1)
	first := int(r.first)
	if len(d.identity) == 0 {
		return dst, illegalFunction
	}
	if first > last {
		if r.code == 4 {
			return dst, illegalAddress
		}
		first = 0
	}
	if r.code == 4 {
		last = first
	}
	start := len(dst) - 1
	dst = append(dst, meiIdentify, r.code, conformity, 0, 0, 0)
	more, count := start+4, start+6
	for i := first; i <= last; i++ {
		s := d.identity[i]
		if len(dst)-start+2+len(s) > maxPDU {
			dst[more], dst[more+1] = 0xFF, byte(i)
			break
		}
		dst = append(append(dst, byte(i), byte(len(s))), s...)
		dst[count]++
	}
	return dst, 0
}
