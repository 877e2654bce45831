package modbus

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"edged/drivers/tag"
)

// field is one tag's place in the device and how its bytes become a value; it is made once, from a checked Tag.
type field struct {
	*form
	rare  *rare // nil: nothing of it
	start int   // first register or bit
	ref   tag.Ref
	bit   int8 // of a register; -1: whole registers

	// Owned by the lane once the device runs.
	request *request // that reads it; nil: write only
}

// rare is what few fields have, apart from all others.
type rare struct {
	group *unit // of fields that are read together; nil: it is read for itself

	// Owned by the lane once the device runs.
	decoded decoded // of a value that would allocate
}

// group is the fields that have to be read together with f, or nil.
func (f *field) group() *unit {
	if f.rare == nil {
		return nil
	}
	return f.rare.group
}

// join puts f into a group, before the device runs.
func (f *field) join(u *unit) {
	if f.rare == nil {
		f.rare = &rare{}
	}
	f.rare.group = u
}

// last is what f's bytes were decoded to last. Only a field whose values would allocate has one.
func (f *field) last() *decoded { return &f.rare.decoded }

// form is what tags that are alike have in common. It is read only once it is made.
type form struct {
	shape
	scaling   *scaling
	sentinels []uint64
}

// shape is the part of a form that can be compared.
type shape struct {
	table      Table
	count      int      // registers or bits
	kind       tag.Kind // of one raw element
	array      int      // elements; 0 is a scalar
	width      int      // bytes of one element; of bits, 0
	swapBytes  bool     // in each register
	swapWords  bool     // registers of one element in reverse order
	decimals   int      // of a float without scaling; -1: not rounded
	nanGood    bool
	access     tag.Access
	hasRange   bool
	low, high  float64
	verify     bool
	singleOnly bool // write functions 5 and 6 alone
	multiOnly  bool // write functions 15 and 16 alone
	both       bool // registers are written by function 23, which reads them at once
	half       int8 // of a text with one character a register: 0 has two, 1 in the high byte, 2 in the low one
	spaces     bool // a text is filled with spaces
}

// forms are those of a device, each of them once.
type forms map[alike][]*form

// alike is what can be compared of a form; its sentinels remain.
type alike struct {
	shape
	scaled  bool
	scaling scaling
}

// of is the form that is read and written like f.
func (fs forms) of(f *form) *form {
	key := alike{shape: f.shape}
	if f.scaling != nil {
		key.scaled, key.scaling = true, *f.scaling
	}
	for _, same := range fs[key] {
		if slices.Equal(same.sentinels, f.sentinels) {
			return same
		}
	}
	fs[key] = append(fs[key], f)
	return f
}

// decoded is what a field's bytes were decoded to last: the same bytes are the same value.
type decoded struct {
	bytes  []byte
	value  tag.Value
	status tag.Status
}

func (f *field) end() int { return f.start + f.count }

// reach is the range that no reading of the field may tear apart.
func (f *field) reach() (start, end int) {
	if u := f.group(); u != nil {
		return u.start, u.end
	}
	return f.start, f.end()
}

// outKind is the kind of the tag's elements as others see them.
func (f *field) outKind() tag.Kind {
	if f.scaling != nil {
		return tag.Float64
	}
	return f.kind
}

// element is one element's 64 bits as tag.FromBits takes them. b holds its registers in the device's order.
func (f *field) element(b []byte) uint64 {
	var raw uint64
	n := f.width / 2
	for i := range n {
		w := i
		if f.swapWords {
			w = n - 1 - i
		}
		r := binary.BigEndian.Uint16(b[2*w:])
		if f.swapBytes {
			r = r>>8 | r<<8
		}
		raw = raw<<16 | uint64(r)
	}
	return raw
}

// put is the reverse of element.
func (f *field) put(b []byte, raw uint64) {
	n := f.width / 2
	for i := n - 1; i >= 0; i-- {
		w := i
		if f.swapWords {
			w = n - 1 - i
		}
		r := uint16(raw)
		if f.swapBytes {
			r = r>>8 | r<<8
		}
		binary.BigEndian.PutUint16(b[2*w:], r)
		raw >>= 16
	}
}

// extend widens raw bits to what tag.FromBits takes.
func (f *field) extend(raw uint64) uint64 {
	switch f.kind {
	case tag.Int16:
		return uint64(int64(int16(raw)))
	case tag.Int32:
		return uint64(int64(int32(raw)))
	}
	return raw
}

// number is one element's value bits of outKind, and its status.
func (f *field) number(raw uint64) (uint64, tag.Status) {
	for _, s := range f.sentinels {
		if raw == s {
			return 0, tag.BadOutOfRange
		}
	}
	switch f.kind {
	case tag.Float32:
		v := float64(math.Float32frombits(uint32(raw)))
		if math.IsNaN(v) && !f.nanGood {
			return 0, tag.BadOutOfRange
		}
		if f.scaling != nil {
			return math.Float64bits(f.scaling.float(v)), tag.Good
		}
		if f.decimals >= 0 {
			return uint64(math.Float32bits(float32(roundFloat(v, f.decimals)))), tag.Good
		}
		return raw, tag.Good
	case tag.Float64:
		v := math.Float64frombits(raw)
		if math.IsNaN(v) && !f.nanGood {
			return 0, tag.BadOutOfRange
		}
		if f.scaling != nil {
			v = f.scaling.float(v)
		} else {
			v = roundFloat(v, f.decimals)
		}
		return math.Float64bits(v), tag.Good
	case tag.Uint16, tag.Uint32, tag.Uint64:
		if f.scaling != nil {
			return math.Float64bits(f.scaling.unsigned(raw)), tag.Good
		}
		return raw, tag.Good
	}
	raw = f.extend(raw)
	if f.scaling != nil {
		return math.Float64bits(f.scaling.value(int64(raw))), tag.Good
	}
	return raw, tag.Good
}

// decode makes the value of the field. data is what a read of the field's table brought, beginning with the register or
// bit number base; the caller made sure that the field lies inside.
func (f *field) decode(data []byte, base int) (tag.Value, tag.Status) {
	off := f.start - base
	if f.table.Bits() {
		if f.array == 0 {
			return tag.Of(bitAt(data, off)), tag.Good
		}
		return f.bitArray(data, off), tag.Good
	}
	b := data[2*off : 2*(off+f.count)]
	switch {
	case f.bit >= 0:
		return tag.Of(binary.BigEndian.Uint16(b)>>f.bit&1 == 1), tag.Good
	case f.array == 0 && f.width > 0 && f.kind.Number():
		raw, status := f.number(f.element(b))
		if status != tag.Good {
			return tag.Value{}, status
		}
		return tag.FromBits(f.outKind(), raw), tag.Good
	}
	d := f.last()
	if d.bytes != nil && string(d.bytes) == string(b) {
		return d.value, d.status
	}
	d.bytes = append(d.bytes[:0], b...)
	d.value, d.status = f.long(b)
	return d.value, d.status
}

// long decodes text, bytes and arrays: what needs memory of its own.
func (f *field) long(b []byte) (tag.Value, tag.Status) {
	if f.kind == tag.String || f.kind == tag.ByteString {
		return f.text(b), tag.Good
	}
	bits := make([]uint64, f.array)
	for i := range bits {
		raw, status := f.number(f.element(b[i*f.width:]))
		if status != tag.Good {
			return tag.Value{}, status
		}
		bits[i] = raw
	}
	return arrayOf(f.outKind(), bits), tag.Good
}

// text makes a text or bytes of registers. A text ends with the first NUL, or before the spaces at its end where the
// device fills with them.
func (f *field) text(b []byte) tag.Value {
	text := make([]byte, f.width)
	if f.half == 0 {
		pairs := b
		if f.swapBytes {
			pairs = make([]byte, len(b))
			copy(pairs, b)
			swapPairs(pairs)
		}
		copy(text, pairs)
	} else {
		for i := range text {
			text[i] = b[2*i+int(f.half)-1]
		}
	}
	if f.kind == tag.ByteString {
		return tag.OfBytes(text)
	}
	if i := bytes.IndexByte(text, 0); i >= 0 {
		text = text[:i]
	}
	if f.spaces {
		text = bytes.TrimRight(text, " ")
	}
	return tag.Of(string(text))
}

func (f *field) bitArray(data []byte, off int) tag.Value {
	last := f.last()
	if was, ok := tag.Slice[bool](last.value); ok {
		same := true
		for i, on := range was {
			same = same && on == bitAt(data, off+i)
		}
		if same {
			return last.value
		}
	}
	now := make([]bool, f.array)
	for i := range now {
		now[i] = bitAt(data, off+i)
	}
	last.value = tag.OfSlice(now)
	return last.value
}

// bitAt is bit n of an answer: the first is the least significant of the first byte (Application Protocol, 6.1).
func bitAt(data []byte, n int) bool { return data[n/8]>>(n%8)&1 == 1 }

func swapPairs(b []byte) {
	for i := 0; i+1 < len(b); i += 2 {
		b[i], b[i+1] = b[i+1], b[i]
	}
}

func arrayOf(k tag.Kind, bits []uint64) tag.Value {
	switch k {
	case tag.Int16:
		return convert(bits, func(b uint64) int16 { return int16(b) })
	case tag.Uint16:
		return convert(bits, func(b uint64) uint16 { return uint16(b) })
	case tag.Int32:
		return convert(bits, func(b uint64) int32 { return int32(b) })
	case tag.Uint32:
		return convert(bits, func(b uint64) uint32 { return uint32(b) })
	case tag.Int64:
		return convert(bits, func(b uint64) int64 { return int64(b) })
	case tag.Uint64:
		return tag.OfSlice(bits)
	case tag.Float32:
		return convert(bits, func(b uint64) float32 { return math.Float32frombits(uint32(b)) })
	}
	return convert(bits, math.Float64frombits)
}

func convert[T tag.Element](bits []uint64, f func(uint64) T) tag.Value {
	out := make([]T, len(bits))
	for i, b := range bits {
		out[i] = f(b)
	}
	return tag.OfSlice(out)
}
