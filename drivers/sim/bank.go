package sim

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"strconv"
	"time"

	"edged/drivers/tag"
)

// Bank is one of the four tables of a Modbus device (Application Protocol V1.1b3, 4.3).
type Bank uint8

// The tables.
const (
	Coil Bank = iota
	Discrete
	Input
	Holding
)

// String is the table's name in an address.
func (b Bank) String() string { return bankNames[b] }

// order is how the bytes of a value that is longer than a register lie in its registers.
type order struct {
	words bool // the last register first
	bytes bool // the low byte first in each register
}

func parseOrder(s string, width int) (order, error) {
	switch s {
	case "", "ABCD", "ABCDEFGH", "AB":
		return order{}, nil
	case "DCBA", "HGFEDCBA":
		return order{words: true, bytes: true}, nil
	case "BADC", "BADCFEHG", "BA":
		return order{bytes: true}, nil
	case "CDAB", "GHEFCDAB":
		return order{words: true}, nil
	}
	return order{}, fmt.Errorf("order %q: give ABCD, DCBA, BADC or CDAB (eight bytes: ABCDEFGH, HGFEDCBA, BADCFEHG, GHEFCDAB) for %d registers", s, width)
}

// put lays the low 16*len(regs) bits of v out in regs.
func (o order) put(regs []uint16, v uint64) {
	for i := range regs {
		at := len(regs) - 1 - i
		if o.words {
			at = i
		}
		r := uint16(v >> (16 * i))
		if o.bytes {
			r = r<<8 | r>>8
		}
		regs[at] = r
	}
}

// point is a run of addresses of one table that hold values of one type.
type point struct {
	bank       Bank
	start, end uint32 // addresses; end is the first beyond
	width      int    // addresses a value
	n          int    // values
	kind       tag.Kind
	order      order
	wave       wave
	writable   bool
	// cells is one register or bit an address, of a point without a wave. Guarded by the device's mu.
	cells []uint16
}

func kindWidth(k tag.Kind) int {
	switch k {
	case tag.Int32, tag.Uint32, tag.Float32:
		return 2
	case tag.Int64, tag.Uint64, tag.Float64:
		return 4
	}
	return 1
}

// setValue fills the cells from a value of the file.
func (p *point) setValue(value any) error {
	p.cells = make([]uint16, p.n*p.width)
	if p.kind == tag.String {
		return p.setText(value)
	}
	bits, err := valueBits(p.kind, value)
	if err != nil {
		return err
	}
	for i := 0; i < len(p.cells); i += p.width {
		p.order.put(p.cells[i:i+p.width], bits)
	}
	return nil
}

func (p *point) setText(value any) error {
	if value == nil {
		return nil
	}
	s, ok := value.(string)
	if !ok || len(s) > 2*p.width {
		return fmt.Errorf("value %v: give text of at most %d bytes", value, 2*p.width)
	}
	for i := range len(p.cells) {
		var pair [2]byte
		copy(pair[:], s[min(len(s), i%p.width*2):])
		if p.order.bytes {
			pair[0], pair[1] = pair[1], pair[0]
		}
		p.cells[i] = binary.BigEndian.Uint16(pair[:])
	}
	return nil
}

// valueBits gives the bits of kind for a number or bool of the file.
func valueBits(kind tag.Kind, value any) (uint64, error) {
	limits := kindLimits[kind]
	wrong := fmt.Errorf("value %v: %v holds %v to %v", value, kind, limits[0], limits[1])
	text := fmt.Sprint(value)
	switch v := value.(type) {
	case nil:
		return 0, nil
	case bool:
		if kind != tag.Bool {
			return 0, wrong
		}
		if v {
			return 1, nil
		}
		return 0, nil
	case float64:
		if kind == tag.Float32 || kind == tag.Float64 {
			return floatBits(kind, v), nil
		}
		text = strconv.FormatFloat(v, 'f', -1, 64)
	case float32:
		return valueBits(kind, float64(v))
	}
	switch kind {
	case tag.Float32, tag.Float64:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, wrong
		}
		return floatBits(kind, v), nil
	case tag.Uint64:
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, wrong
		}
		return v, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || float64(v) < limits[0] || float64(v) > limits[1] && kind != tag.Int64 {
		return 0, wrong
	}
	return uint64(v), nil
}

// registers appends the registers from..to of the point, big-endian.
func (p *point) registers(dst []byte, from, to uint32, elapsed time.Duration) []byte {
	if p.wave.kind == still {
		for _, r := range p.cells[from-p.start : to-p.start] {
			dst = binary.BigEndian.AppendUint16(dst, r)
		}
		return dst
	}
	var regs [4]uint16
	for at := from; at < to; {
		i := int(at-p.start) / p.width
		first := p.start + uint32(i*p.width)
		p.order.put(regs[:p.width], p.wave.bits(p.kind, elapsed, i, p.n))
		for _, r := range regs[at-first : min(to-first, uint32(p.width))] {
			dst = binary.BigEndian.AppendUint16(dst, r)
			at++
		}
	}
	return dst
}

// bit is the bit at an address.
func (p *point) bit(at uint32, elapsed time.Duration) bool {
	if p.wave.kind == still {
		return p.cells[at-p.start] != 0
	}
	return p.wave.bits(tag.Bool, elapsed, int(at-p.start), p.n) != 0
}

// bank is one table: its points by address, none overlapping.
type bank []point

// find gives the index of the first point that ends beyond at.
func (b bank) find(at uint32) int {
	return sort.Search(len(b), func(i int) bool { return b[i].end > at })
}

// covers reports whether every address from at to end exists, and can be written if writing.
func (b bank) covers(at, end uint32, writing bool) bool {
	for i := b.find(at); i < len(b) && b[i].start <= at; i++ {
		if writing && !b[i].writable {
			return false
		}
		if b[i].end >= end {
			return true
		}
		at = b[i].end
	}
	return false
}

// read appends count registers from at on; covers was true for them.
func (b bank) read(dst []byte, at, end uint32, elapsed time.Duration) []byte {
	for i := b.find(at); at < end; i++ {
		to := min(b[i].end, end)
		dst = b[i].registers(dst, at, to, elapsed)
		at = to
	}
	return dst
}

// readBits appends the bits from at on, the first in the lowest bit of the first byte (6.1).
func (b bank) readBits(dst []byte, at, end uint32, elapsed time.Duration) []byte {
	var octet byte
	first := at
	for i := b.find(at); at < end; i++ {
		for to := min(b[i].end, end); at < to; at++ {
			n := (at - first) % 8
			if n == 0 && at > first {
				dst, octet = append(dst, octet), 0
			}
			if b[i].bit(at, elapsed) {
				octet |= 1 << n
			}
		}
	}
	return append(dst, octet)
}

// cell is the stored register or bit at an address that covers was true for when writing.
func (b bank) cell(at uint32) *uint16 {
	p := &b[b.find(at)]
	return &p.cells[at-p.start]
}

// write stores registers, big-endian, from at on.
func (b bank) write(at uint32, data []byte) {
	for ; len(data) >= 2; data = data[2:] {
		*b.cell(at) = binary.BigEndian.Uint16(data)
		at++
	}
}

// writeBits stores bits from at on.
func (b bank) writeBits(at, end uint32, data []byte) {
	for n := uint32(0); at < end; n++ {
		*b.cell(at) = uint16(data[n/8] >> (n % 8) & 1)
		at++
	}
}

// value is the point's i-th value.
func (p *point) value(i int, elapsed time.Duration) tag.Value {
	if p.wave.kind != still {
		return kindValue(p.kind, p.wave.bits(p.kind, elapsed, i, p.n))
	}
	cells := p.cells[i*p.width : (i+1)*p.width]
	if p.kind == tag.String {
		text := make([]byte, 0, 2*len(cells))
		for _, c := range cells {
			if p.order.bytes {
				c = c<<8 | c>>8
			}
			text = binary.BigEndian.AppendUint16(text, c)
		}
		return tag.Of(string(text))
	}
	var bits uint64
	for j := range cells {
		at := j
		if p.order.words {
			at = len(cells) - 1 - j
		}
		c := cells[at]
		if p.order.bytes {
			c = c<<8 | c>>8
		}
		bits = bits<<16 | uint64(c)
	}
	return kindValue(p.kind, bits)
}

// kindValue makes the value of kind from the low bits of bits.
func kindValue(kind tag.Kind, bits uint64) tag.Value {
	switch kind {
	case tag.Bool:
		return tag.Of(bits&1 != 0)
	case tag.Int16:
		return tag.Of(int16(bits))
	case tag.Uint16:
		return tag.Of(uint16(bits))
	case tag.Int32:
		return tag.Of(int32(bits))
	case tag.Uint32:
		return tag.Of(uint32(bits))
	case tag.Int64:
		return tag.Of(int64(bits))
	case tag.Uint64:
		return tag.Of(bits)
	case tag.Float32:
		return tag.Of(math.Float32frombits(uint32(bits)))
	}
	return tag.Of(math.Float64frombits(bits))
}
