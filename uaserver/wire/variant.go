package wire

import (
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
		return appendElements(dst, v, AppendBool)
	case tag.Int8:
		return appendElements(dst, v, func(dst []byte, e int8) []byte { return append(dst, byte(e)) })
	case tag.Uint8:
		s, _ := tag.Slice[uint8](v)
		return append(dst, s...)
	case tag.Int16:
		return appendElements(dst, v, func(dst []byte, e int16) []byte { return AppendUint16(dst, uint16(e)) })
	case tag.Uint16:
		return appendElements(dst, v, AppendUint16)
	case tag.Int32:
		return appendElements(dst, v, func(dst []byte, e int32) []byte { return AppendUint32(dst, uint32(e)) })
	case tag.Uint32:
		return appendElements(dst, v, AppendUint32)
	case tag.Int64:
		return appendElements(dst, v, func(dst []byte, e int64) []byte { return AppendUint64(dst, uint64(e)) })
	case tag.Uint64:
		return appendElements(dst, v, AppendUint64)
	case tag.Float32:
		return appendElements(dst, v, AppendFloat32)
	case tag.Float64:
		return appendElements(dst, v, AppendFloat64)
	case tag.String:
		return appendElements(dst, v, AppendString)
	case tag.DateTime:
		return appendElements(dst, v, AppendTime)
	case tag.StatusCode:
		return appendElements(dst, v, func(dst []byte, e tag.Status) []byte { return AppendUint32(dst, uint32(e)) })
	}
	return appendElements(dst, v, AppendByteString)
}

func appendElements[T tag.Element](dst []byte, v tag.Value, f func([]byte, T) []byte) []byte {
	s, _ := tag.Slice[T](v)
	for _, e := range s {
		dst = f(dst, e)
	}
	return dst
}

func appendScalarVariant(dst []byte, v tag.Value) []byte {
	k, bits := v.Kind(), v.Bits()
	switch k {
	case tag.Null:
		return append(dst, 0)
	case tag.Raw:
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
// (structures, localized texts, matrices, Variants in Variants) is checked and kept as tag.Raw. The value owns its
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

func (r *Reader) plainVariant(k tag.Kind, array bool) (tag.Value, bool) {
	if array {
		switch k {
		case tag.Bool:
			return readElements(r, 1, r.Bool), true
		case tag.Int8:
			return readElements(r, 1, func() int8 { return int8(r.Uint8()) }), true
		case tag.Uint8:
			return readElements(r, 1, r.Uint8), true
		case tag.Int16:
			return readElements(r, 2, func() int16 { return int16(r.Uint16()) }), true
		case tag.Uint16:
			return readElements(r, 2, r.Uint16), true
		case tag.Int32:
			return readElements(r, 4, r.Int32), true
		case tag.Uint32:
			return readElements(r, 4, r.Uint32), true
		case tag.Int64:
			return readElements(r, 8, func() int64 { return int64(r.Uint64()) }), true
		case tag.Uint64:
			return readElements(r, 8, r.Uint64), true
		case tag.Float32:
			return readElements(r, 4, r.Float32), true
		case tag.Float64:
			return readElements(r, 8, r.Float64), true
		case tag.String:
			return readElements(r, 4, func() string { return string([]byte(r.String())) }), true
		case tag.DateTime:
			return readElements(r, 8, r.Time), true
		case tag.StatusCode:
			return readElements(r, 4, func() tag.Status { return tag.Status(r.Uint32()) }), true
		case tag.ByteString:
			return readElements(r, 4, func() []byte { return cloneBytes(r.ByteString()) }), true
		}
		return tag.Value{}, false
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
		return tag.Of(string([]byte(r.String()))), true
	case tag.DateTime:
		return tag.Of(r.Time()), true
	case tag.StatusCode:
		return tag.Of(tag.Status(r.Uint32())), true
	case tag.ByteString:
		return tag.OfBytes(cloneBytes(r.ByteString())), true
	}
	return tag.Value{}, false
}

func readElements[T tag.Element](r *Reader, size int, f func() T) tag.Value {
	n := r.Count(size)
	if n < 0 {
		return tag.OfSlice([]T(nil))
	}
	s := make([]T, n)
	for i := range s {
		s[i] = f()
	}
	return tag.OfSlice(s)
}

func cloneBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

