package wire

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"edged/drivers/tag"
)

// AppendVariant appends a Variant (Part 6, 5.2.2.16).
func AppendVariant(dst []byte, v tag.Value) []byte {
	if !v.IsArray() {
		return appendScalarVariant(dst, v)
	}
	dst = append(dst, byte(v.Kind())|0x80)
	dst = AppendUint32(dst, uint32(v.Len()))
	switch v.Kind() {
	case tag.Bool:
		return appendFixed[bool](dst, v)
	case tag.Int8:
		return appendFixed[int8](dst, v)
	case tag.Uint8:
		return appendFixed[uint8](dst, v)
	case tag.Int16:
		return appendFixed[int16](dst, v)
	case tag.Uint16:
		return appendFixed[uint16](dst, v)
	case tag.Int32:
		return appendFixed[int32](dst, v)
	case tag.Uint32:
		return appendFixed[uint32](dst, v)
	case tag.Int64:
		return appendFixed[int64](dst, v)
	case tag.Uint64:
		return appendFixed[uint64](dst, v)
	case tag.Float32:
		return appendFixed[float32](dst, v)
	case tag.Float64:
		return appendFixed[float64](dst, v)
	case tag.StatusCode:
		return appendFixed[tag.Status](dst, v)
	case tag.DateTime:
		s, _ := tag.Slice[tag.Time](v)
		return appendEach(dst, s, AppendTime)
	case tag.String:
		s, _ := tag.Slice[string](v)
		return appendEach(dst, s, AppendString)
	}
	s, _ := tag.Slice[[]byte](v)
	return appendEach(dst, s, AppendByteString)
}

// appendFixed appends the elements of numbers as they lie in memory, which is how they go over the wire.
func appendFixed[T tag.Element](dst []byte, v tag.Value) []byte {
	s, _ := tag.Slice[T](v)
	at := len(dst)
	dst = append(dst, memory(s)...)
	littleEndian(dst[at:], int(unsafe.Sizeof(*new(T))))
	return dst
}

// memory is s as bytes.
func memory[T tag.Element](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// littleEndian turns numbers of size bytes between the machine's order and the wire's.
func littleEndian(b []byte, size int) {
	if !bigEndian || size == 1 {
		return
	}
	for ; len(b) >= size; b = b[size:] {
		slices.Reverse(b[:size])
	}
}

func appendScalarVariant(dst []byte, v tag.Value) []byte {
	k, bits := v.Kind(), v.Bits()
	switch k {
	case tag.Null:
		return append(dst, 0)
	case tag.Raw:
		if v.Len() == 0 {
			return append(dst, 0)
		}
		return append(dst, v.Bytes()...)
	case tag.String:
		return AppendString(append(dst, byte(k)), v.Text())
	case tag.ByteString:
		return AppendByteString(append(dst, byte(k)), v.Bytes())
	case tag.Bool, tag.Int8, tag.Uint8:
		return append(dst, byte(k), byte(bits))
	case tag.Int16, tag.Uint16:
		return append(dst, byte(k), byte(bits), byte(bits>>8))
	case tag.Int32, tag.Uint32, tag.Float32, tag.StatusCode:
		return AppendUint32(append(dst, byte(k)), uint32(bits))
	case tag.DateTime:
		return AppendTime(append(dst, byte(k)), tag.Time(bits))
	}
	return AppendUint64(append(dst, byte(k)), bits)
}

// Variant reads a Variant. Scalars and one-dimensional arrays of the kinds of package tag become such values; all else
// (structures, localized texts, matrices, arrays of Variants) is checked and kept as tag.Raw. The value owns its
// memory.
func (r *Reader) Variant() tag.Value {
	start := r.off
	mask := r.Uint8()
	k := tag.Kind(mask & 0x3F)
	array, dims := mask&0x80 != 0, mask&0x40 != 0
	if dims && !array {
		r.Fail(ErrValue)
	}
	if r.err != nil || mask == 0 {
		return tag.Value{}
	}
	if !dims {
		if v, ok := r.plainVariant(k, array); ok {
			return v
		}
		if r.err != nil {
			return tag.Value{}
		}
	}
	r.off = start
	r.skipVariant()
	if r.err != nil {
		return tag.Value{}
	}
	return tag.OfRaw(append([]byte(nil), r.b[start:r.off]...))
}

// plainVariant reads the value of a scalar or of a one-dimensional array; false: package tag has no such kind.
func (r *Reader) plainVariant(k tag.Kind, array bool) (tag.Value, bool) {
	if array {
		return r.plainArray(k)
	}
	switch k {
	case tag.Bool:
		return tag.Of(r.Bool()), true
	case tag.Int8:
		return tag.Of(int8(r.Uint8())), true
	case tag.Uint8:
		return tag.Of(r.Uint8()), true
	case tag.Int16:
		return tag.Of(int16(r.Uint16())), true
	case tag.Uint16:
		return tag.Of(r.Uint16()), true
	case tag.Int32:
		return tag.Of(r.Int32()), true
	case tag.Uint32:
		return tag.Of(r.Uint32()), true
	case tag.Int64:
		return tag.Of(int64(r.Uint64())), true
	case tag.Uint64:
		return tag.Of(r.Uint64()), true
	case tag.Float32:
		return tag.FromBits(tag.Float32, uint64(r.Uint32())), true
	case tag.Float64:
		return tag.FromBits(tag.Float64, r.Uint64()), true
	case tag.String:
		return tag.Of(r.ownText()), true
	case tag.DateTime:
		return tag.Of(r.Time()), true
	case tag.StatusCode:
		return tag.Of(tag.Status(r.Uint32())), true
	case tag.ByteString:
		return tag.OfBytes(r.ownBytes()), true
	}
	return tag.Value{}, false
}

func (r *Reader) plainArray(k tag.Kind) (tag.Value, bool) {
	switch k {
	case tag.Bool:
		return readFixed[bool](r), true
	case tag.Int8:
		return readFixed[int8](r), true
	case tag.Uint8:
		return readFixed[uint8](r), true
	case tag.Int16:
		return readFixed[int16](r), true
	case tag.Uint16:
		return readFixed[uint16](r), true
	case tag.Int32:
		return readFixed[int32](r), true
	case tag.Uint32:
		return readFixed[uint32](r), true
	case tag.Int64:
		return readFixed[int64](r), true
	case tag.Uint64:
		return readFixed[uint64](r), true
	case tag.Float32:
		return readFixed[float32](r), true
	case tag.Float64:
		return readFixed[float64](r), true
	case tag.DateTime:
		return readFixed[tag.Time](r), true
	case tag.StatusCode:
		return readFixed[tag.Status](r), true
	case tag.String:
		s := make([]string, max(r.Count(4), 0))
		for i := range s {
			s[i] = r.ownText()
		}
		return tag.OfSlice(s), true
	case tag.ByteString:
		s := make([][]byte, max(r.Count(4), 0))
		for i := range s {
			s[i] = r.ownBytes()
		}
		return tag.OfSlice(s), true
	}
	return tag.Value{}, false
}

// readFixed reads an array of numbers. Null is an array without elements.
func readFixed[T tag.Element](r *Reader) tag.Value {
	size := int(unsafe.Sizeof(*new(T)))
	n := max(r.Count(size), 0)
	p := r.take(n * size)
	s := make([]T, len(p)/size)
	copy(memory(s), p)
	littleEndian(memory(s), size)
	switch s := any(s).(type) {
	case []bool: // a Go bool is 0 or 1
		for i := range s {
			s[i] = p[i] != 0
		}
	case []tag.Time:
		for i := range s {
			s[i] = cutTime(uint64(s[i]))
		}
	}
	return tag.OfSlice(s)
}

func cloneBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}
