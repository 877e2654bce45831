package store

import (
	"encoding/binary"
	"math"
	"math/bits"

	"edged/drivers/tag"
)

// maxValue is the largest text, bytes or array that is kept, in bytes. A larger one is kept as
// BadEncodingLimitsExceeded without its value.
const maxValue = 1 << 20

const badEncodingLimitsExceeded tag.Status = 0x80080000

// putBlob writes a text, bytes or an array: 1 where it is the last one again, else 0, the length that both have in common
// at the beginning, that of the rest, and the rest.
func (m *model) putBlob(w *bitWriter, v tag.Value) {
	b := appendBlob(nil, v)
	if m.blob != nil && string(b) == string(m.blob) {
		w.write(1, 1)
		return
	}
	w.write(0, 1)
	common := 0
	for common < min(len(b), len(m.blob)) && b[common] == m.blob[common] {
		common++
	}
	m.blobs.put(w, uint64(common))
	m.blobs.put(w, uint64(len(b)-common))
	for _, c := range b[common:] {
		w.write(uint64(c), 8)
	}
	m.blob = b
}

func (m *model) getBlob(r *bitReader) (tag.Value, error) {
	if r.read(1) == 1 {
		return blobValue(m.form, m.blob)
	}
	common, rest := m.blobs.get(r), m.blobs.get(r)
	if common > uint64(len(m.blob)) || rest > uint64(r.left()) {
		return tag.Value{}, errDamaged
	}
	b := make([]byte, common+rest)
	copy(b, m.blob[:common])
	for i := range b[common:] {
		b[int(common)+i] = byte(r.read(8))
	}
	m.blob = b
	return blobValue(m.form, b)
}

// appendBlob appends the content of a text, bytes or an array; its form is written elsewhere. Bytes begin with 0 where
// they are null and 1 otherwise (Part 6, 5.2.2.7).
func appendBlob(dst []byte, v tag.Value) []byte {
	if !v.IsArray() {
		switch v.Kind() {
		case tag.String:
			return append(dst, v.Text()...)
		case tag.Raw:
			return append(dst, v.Bytes()...)
		}
		return appendBytes(dst, v.Bytes())
	}
	switch v.Kind() {
	case tag.Bool:
		return appendEach(dst, v, func(dst []byte, b bool) []byte {
			if b {
				return append(dst, 1)
			}
			return append(dst, 0)
		})
	case tag.Int8:
		return appendEach(dst, v, func(dst []byte, x int8) []byte { return append(dst, byte(x)) })
	case tag.Uint8:
		return appendEach(dst, v, func(dst []byte, x uint8) []byte { return append(dst, x) })
	case tag.Int16:
		return appendEach(dst, v, func(dst []byte, x int16) []byte { return binary.LittleEndian.AppendUint16(dst, uint16(x)) })
	case tag.Uint16:
		return appendEach(dst, v, binary.LittleEndian.AppendUint16)
	case tag.Int32:
		return appendEach(dst, v, func(dst []byte, x int32) []byte { return binary.LittleEndian.AppendUint32(dst, uint32(x)) })
	case tag.Uint32:
		return appendEach(dst, v, binary.LittleEndian.AppendUint32)
	case tag.Int64:
		return appendEach(dst, v, func(dst []byte, x int64) []byte { return binary.LittleEndian.AppendUint64(dst, uint64(x)) })
	case tag.Uint64:
		return appendEach(dst, v, binary.LittleEndian.AppendUint64)
	case tag.Float32:
		return appendEach(dst, v, func(dst []byte, x float32) []byte {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
		})
	case tag.Float64:
		return appendEach(dst, v, func(dst []byte, x float64) []byte {
			return binary.LittleEndian.AppendUint64(dst, math.Float64bits(x))
		})
	case tag.DateTime:
		return appendEach(dst, v, func(dst []byte, x tag.Time) []byte { return binary.LittleEndian.AppendUint64(dst, uint64(x)) })
	case tag.StatusCode:
		return appendEach(dst, v, func(dst []byte, x tag.Status) []byte { return binary.LittleEndian.AppendUint32(dst, uint32(x)) })
	case tag.String:
		return appendEach(dst, v, func(dst []byte, x string) []byte {
			return append(binary.AppendUvarint(dst, uint64(len(x))), x...)
		})
	}
	return appendEach(dst, v, func(dst, x []byte) []byte {
		if x == nil {
			return binary.AppendUvarint(dst, 0)
		}
		return append(binary.AppendUvarint(dst, uint64(len(x))+1), x...)
	})
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	return append(append(dst, 1), b...)
}

func appendEach[T tag.Element](dst []byte, v tag.Value, one func([]byte, T) []byte) []byte {
	elements, _ := tag.Slice[T](v)
	for _, x := range elements {
		dst = one(dst, x)
	}
	return dst
}

// blobValue makes the value of what appendBlob wrote; it keeps nothing of b.
func blobValue(f form, b []byte) (tag.Value, error) {
	if !f.array {
		switch f.kind {
		case tag.String:
			return tag.Of(string(b)), nil
		case tag.Raw:
			return tag.OfRaw(append([]byte{}, b...)), nil
		}
		if len(b) == 0 || b[0] > 1 || b[0] == 0 && len(b) > 1 {
			return tag.Value{}, errDamaged
		}
		if b[0] == 0 {
			return tag.OfBytes(nil), nil
		}
		return tag.OfBytes(append([]byte{}, b[1:]...)), nil
	}
	switch f.kind {
	case tag.Bool:
		return fixed(b, 1, func(b []byte) bool { return b[0] != 0 })
	case tag.Int8:
		return fixed(b, 1, func(b []byte) int8 { return int8(b[0]) })
	case tag.Uint8:
		return fixed(b, 1, func(b []byte) uint8 { return b[0] })
	case tag.Int16:
		return fixed(b, 2, func(b []byte) int16 { return int16(binary.LittleEndian.Uint16(b)) })
	case tag.Uint16:
		return fixed(b, 2, binary.LittleEndian.Uint16)
	case tag.Int32:
		return fixed(b, 4, func(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b)) })
	case tag.Uint32:
		return fixed(b, 4, binary.LittleEndian.Uint32)
	case tag.Int64:
		return fixed(b, 8, func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) })
	case tag.Uint64:
		return fixed(b, 8, binary.LittleEndian.Uint64)
	case tag.Float32:
		return fixed(b, 4, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) })
	case tag.Float64:
		return fixed(b, 8, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) })
	case tag.DateTime:
		return fixed(b, 8, func(b []byte) tag.Time { return tag.Time(binary.LittleEndian.Uint64(b)) })
	case tag.StatusCode:
		return fixed(b, 4, func(b []byte) tag.Status { return tag.Status(binary.LittleEndian.Uint32(b)) })
	case tag.String:
		return texts(b)
	}
	return byteStrings(b)
}

func fixed[T tag.Element](b []byte, size int, one func([]byte) T) (tag.Value, error) {
	if len(b)%size != 0 {
		return tag.Value{}, errDamaged
	}
	out := make([]T, len(b)/size)
	for i := range out {
		out[i] = one(b[i*size:])
	}
	return tag.OfSlice(out), nil
}

func texts(b []byte) (tag.Value, error) {
	out := []string{}
	for f := (fields{b: b}); len(f.b) > 0; {
		out = append(out, string(f.bytes()))
		if f.bad {
			return tag.Value{}, errDamaged
		}
	}
	return tag.OfSlice(out), nil
}

func byteStrings(b []byte) (tag.Value, error) {
	out := [][]byte{}
	for f := (fields{b: b}); len(f.b) > 0; {
		n := f.uvarint()
		if n > uint64(len(f.b))+1 {
			f.bad = true
		}
		if f.bad {
			return tag.Value{}, errDamaged
		}
		if n == 0 {
			out = append(out, nil)
			continue
		}
		out = append(out, append([]byte{}, f.b[:n-1]...))
		f.b = f.b[n-1:]
	}
	return tag.OfSlice(out), nil
}

// appendLast appends a whole sample that is read without any other: of a last value.
func appendLast(dst []byte, s *tag.Sample) []byte {
	array := byte(0)
	if s.Value.IsArray() {
		array = 1
	}
	dst = binary.AppendVarint(dst, int64(s.At))
	dst = binary.AppendUvarint(dst, uint64(s.Status))
	dst = append(dst, byte(s.Value.Kind()), array)
	if f := (form{s.Value.Kind(), s.Value.IsArray()}); f.number() {
		if k := f.kind; k == tag.Float32 || k == tag.Float64 {
			return binary.AppendUvarint(dst, swapped(k, s.Value.Bits()))
		}
		return binary.AppendVarint(dst, int64(s.Value.Bits()))
	}
	b := appendBlob(nil, s.Value)
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// swapped turns the bytes of a float around: the last bits of its mantissa are often zero, and make a short number so.
// It is its own inverse.
func swapped(k tag.Kind, b uint64) uint64 {
	if k == tag.Float32 {
		return uint64(bits.ReverseBytes32(uint32(b)))
	}
	return bits.ReverseBytes64(b)
}

// last reads what appendLast wrote.
func (f *fields) last() tag.Sample {
	var s tag.Sample
	s.At, s.Status = tag.Time(f.varint()), tag.Status(f.uvarint())
	shape := form{tag.Kind(f.byte()), f.byte() == 1}
	switch {
	case f.bad || !known(shape):
		f.bad = true
	case shape.number():
		if k := shape.kind; k == tag.Float32 || k == tag.Float64 {
			s.Value = tag.FromBits(k, swapped(k, f.uvarint()))
		} else {
			s.Value = tag.FromBits(k, uint64(f.varint()))
		}
	default:
		b := f.bytes()
		if shape.kind == tag.Null || f.bad {
			break
		}
		v, err := blobValue(shape, b)
		f.bad = f.bad || err != nil
		s.Value = v
	}
	return s
}

// fields reads the parts of a record. After a mistake bad is true and all else is zero.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) uvarint() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.bad, f.b = true, nil
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) varint() int64 {
	v, n := binary.Varint(f.b)
	if n <= 0 {
		f.bad, f.b = true, nil
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) byte() byte {
	if len(f.b) == 0 {
		f.bad = true
		return 0
	}
	c := f.b[0]
	f.b = f.b[1:]
	return c
}

// bytes are the next ones with their length before them. They are part of the record.
func (f *fields) bytes() []byte {
	n := f.uvarint()
	if n > uint64(len(f.b)) {
		f.bad, f.b = true, nil
		return nil
	}
	b := f.b[:n]
	f.b = f.b[n:]
	return b
}
