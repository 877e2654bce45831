package modbus

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"

	"edged/drivers/tag"
)

// write is one command made ready for the wire.
type write struct {
	start int
	count int    // registers or bits
	data  []byte // registers in wire order, or bits packed as an answer packs them
}

// encode checks a command against the field and makes its bytes. A status other than Good refuses it.
func (f *field) encode(c *tag.Command, scratch []byte) (write, tag.Status) {
	if f.access&tag.Writable == 0 {
		return write{}, tag.BadNotWritable
	}
	if !c.At.IsZero() || c.Put != tag.Good {
		return write{}, tag.BadWriteNotSupported
	}
	v := c.Value
	if v.Kind() != f.outKind() || v.IsArray() != (f.array > 0) {
		return write{}, tag.BadTypeMismatch
	}
	w := write{start: f.start, count: f.count}
	if f.array > 0 {
		from, n := 0, v.Len()
		switch {
		case c.Part:
			if from = c.From; from < 0 || n == 0 || from+n > f.array {
				return write{}, tag.BadIndexRangeNoData
			}
		case n != f.array:
			return write{}, tag.BadTypeMismatch
		}
		unit := max(1, f.width/2)
		w.start, w.count = f.start+from*unit, n*unit
		return f.encodeArray(v, w, scratch)
	}
	if c.Part {
		return write{}, tag.BadWriteNotSupported
	}
	return f.encodeScalar(v, w, scratch)
}

func (f *field) encodeScalar(v tag.Value, w write, scratch []byte) (write, tag.Status) {
	switch {
	case f.kind == tag.Bool:
		w.data = append(scratch[:0], 0)
		if v.Bool() {
			w.data[0] = 1
		}
		return w, tag.Good
	case f.kind == tag.String || f.kind == tag.ByteString:
		return f.encodeText(v, w, scratch)
	}
	raw, status := f.rawOf(v.Bits())
	if status != tag.Good {
		return w, status
	}
	w.data = grow(scratch, f.width)
	f.put(w.data, raw)
	return w, tag.Good
}

// encodeText pads with NUL. A longer text is out of range, and so are bytes of another length: there is no shorter
// ByteString in registers.
func (f *field) encodeText(v tag.Value, w write, scratch []byte) (write, tag.Status) {
	w.data = grow(scratch, 2*f.count)
	clear(w.data)
	var text []byte
	if f.kind == tag.String {
		if v.Len() > f.width {
			return w, tag.BadOutOfRange
		}
		text = []byte(v.Text())
	} else if text = v.Bytes(); v.Len() != f.width {
		return w, tag.BadOutOfRange
	}
	if f.spaces && f.kind == tag.String {
		text = append(text, bytes.Repeat([]byte{' '}, f.width-len(text))...)
	}
	if f.half > 0 {
		for i, c := range text {
			w.data[2*i+int(f.half)-1] = c
		}
		return w, tag.Good
	}
	copy(w.data, text)
	if f.swapBytes {
		swapPairs(w.data)
	}
	return w, tag.Good
}

func (f *field) encodeArray(v tag.Value, w write, scratch []byte) (write, tag.Status) {
	if bools, ok := tag.Slice[bool](v); ok {
		w.data = grow(scratch, (len(bools)+7)/8)
		clear(w.data)
		for i, on := range bools {
			if on {
				w.data[i/8] |= 1 << (i % 8)
			}
		}
		return w, tag.Good
	}
	w.data = grow(scratch, 2*w.count)
	for i := range v.Len() {
		raw, status := f.rawOf(elementBits(v, i))
		if status != tag.Good {
			return w, status
		}
		f.put(w.data[i*f.width:], raw)
	}
	return w, tag.Good
}

// rawOf turns one element's value bits of outKind into raw bits; the range is checked in engineering units.
func (f *field) rawOf(value uint64) (uint64, tag.Status) {
	if f.hasRange {
		v, _ := tag.FromBits(f.outKind(), value).Float()
		if !(v >= f.low && v <= f.high) {
			return 0, tag.BadOutOfRange
		}
	}
	if f.scaling == nil {
		return value, tag.Good
	}
	v := math.Float64frombits(value)
	switch f.kind {
	case tag.Float32:
		r := f.scaling.rawFloat(v)
		if math.IsNaN(r) || math.Abs(r) > math.MaxFloat32 {
			return 0, tag.BadOutOfRange
		}
		return uint64(math.Float32bits(float32(r))), tag.Good
	case tag.Float64:
		r := f.scaling.rawFloat(v)
		if math.IsNaN(r) || math.IsInf(r, 0) {
			return 0, tag.BadOutOfRange
		}
		return math.Float64bits(r), tag.Good
	}
	raw, negative, ok := f.scaling.raw(v)
	if !ok || !fits(f.kind, raw, negative) {
		return 0, tag.BadOutOfRange
	}
	return raw, tag.Good
}

// fits reports whether a whole number is one of the kind.
func fits(k tag.Kind, raw uint64, negative bool) bool {
	width := map[tag.Kind]int{tag.Int16: 15, tag.Int32: 31, tag.Int64: 63, tag.Uint16: 16, tag.Uint32: 32, tag.Uint64: 64}[k]
	if negative {
		return (k == tag.Int16 || k == tag.Int32 || k == tag.Int64) && bits.Len64(^raw) <= width
	}
	return bits.Len64(raw) <= width
}

// elementBits are an array element's bits as tag.FromBits takes them.
func elementBits(v tag.Value, i int) uint64 {
	switch v.Kind() {
	case tag.Int16:
		s, _ := tag.Slice[int16](v)
		return uint64(int64(s[i]))
	case tag.Uint16:
		s, _ := tag.Slice[uint16](v)
		return uint64(s[i])
	case tag.Int32:
		s, _ := tag.Slice[int32](v)
		return uint64(int64(s[i]))
	case tag.Uint32:
		s, _ := tag.Slice[uint32](v)
		return uint64(s[i])
	case tag.Int64:
		s, _ := tag.Slice[int64](v)
		return uint64(s[i])
	case tag.Uint64:
		s, _ := tag.Slice[uint64](v)
		return s[i]
	case tag.Float32:
		s, _ := tag.Slice[float32](v)
		return uint64(math.Float32bits(s[i]))
	case tag.Float64:
		s, _ := tag.Slice[float64](v)
		return math.Float64bits(s[i])
	}
	return 0
}

func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// masks are the AND and OR masks that set or clear one bit and leave the others (Application Protocol, 6.16).
func masks(bit int, on bool) (and, or uint16) {
	and = ^(uint16(1) << bit)
	if on {
		or = 1 << bit
	}
	return and, or
}

// withBit is a register's two bytes with one bit set or cleared.
func withBit(register []byte, bit int, on bool) uint16 {
	and, or := masks(bit, on)
	return binary.BigEndian.Uint16(register)&and | or
}
