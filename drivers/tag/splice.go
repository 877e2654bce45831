package tag

// Splice returns the array v with the elements of part in the places from and on, and false where part is no array of
// v's kind or does not fit. v itself stays as it is.
func Splice(v, part Value, from int) (Value, bool) {
	if !v.array || !part.array || v.kind != part.kind || from < 0 || part.n == 0 || from+int(part.n) > int(v.n) {
		return Value{}, false
	}
	switch v.kind {
	case Bool:
		return splice[bool](v, part, from), true
	case Int8:
		return splice[int8](v, part, from), true
	case Uint8:
		return splice[uint8](v, part, from), true
	case Int16:
		return splice[int16](v, part, from), true
	case Uint16:
		return splice[uint16](v, part, from), true
	case Int32:
		return splice[int32](v, part, from), true
	case Uint32:
		return splice[uint32](v, part, from), true
	case Int64:
		return splice[int64](v, part, from), true
	case Uint64:
		return splice[uint64](v, part, from), true
	case Float32:
		return splice[float32](v, part, from), true
	case Float64:
		return splice[float64](v, part, from), true
	case String:
		return splice[string](v, part, from), true
	case DateTime:
		return splice[Time](v, part, from), true
	case StatusCode:
		return splice[Status](v, part, from), true
	case ByteString:
		return splice[[]byte](v, part, from), true
	}
	return Value{}, false
}

func splice[T Element](v, part Value, from int) Value {
	old, _ := Slice[T](v)
	put, _ := Slice[T](part)
	out := make([]T, len(old))
	copy(out, old)
	copy(out[from:], put)
	return OfSlice(out)
}
