package memory

import (
	"fmt"
	"math"

	"edged/drivers/tag"
)

// Shape is what others see of a tag's type. It is zero for a tag that Check refuses.
func (t *Tag) Shape() (kind tag.Kind, length int) {
	s, errs := t.slot()
	if len(errs) > 0 {
		return tag.Null, 0
	}
	return s.typ.Kind, s.typ.Len
}

// Check reports everything that is wrong with the tag's keys.
func (t *Tag) Check() []*FieldError {
	_, errs := t.slot()
	return errs
}

func (t *Tag) slot() (*slot, []*FieldError) {
	var errs []*FieldError
	wrong := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{field, fmt.Sprintf(format, args...)})
	}
	s := &slot{rules: &rules{typ: tag.Type{Kind: tag.Float64}, access: t.Access, hasRange: t.HasRange, low: t.Low, high: t.High, retain: t.Retain}}
	if s.access == 0 {
		s.access = tag.Readable
	}
	if t.Type != "" {
		typ, err := tag.ParseType(t.Type)
		if err != nil {
			wrong("type", "%v", err)
			return nil, errs
		}
		s.typ = typ
	}
	if t.HasRange && !(t.Low <= t.High) {
		wrong("range", "%v is above %v: give the lower limit first", t.Low, t.High)
	}
	if w := t.Wave; w != nil && w.Kind == "counter" && t.Value == nil && s.typ.Len == 0 && s.typ.Kind.Number() {
		s.sample.Value = fromFloat(s.typ.Kind, w.Min)
	}
	v, err := initial(s.typ, t.Value)
	if err != nil {
		wrong("value", "%v", err)
	}
	if s.sample.Ref = t.Ref; s.sample.Value.IsNull() {
		s.sample.Value = v
	}
	if err == nil && t.Value != nil && s.check(v, false) == tag.BadOutOfRange {
		wrong("value", "%v is out of range: it lies from %v to %v, text has at most %d bytes", t.Value, t.Low, t.High, s.typ.Size)
	}
	if t.Wave != nil {
		for _, e := range t.Wave.check(s.typ) {
			wrong("wave."+e.Field, "%s", e.Msg)
		}
	}
	return s, errs
}

// initial is the value of a type that a site file's text means.
func initial(typ tag.Type, v any) (tag.Value, error) {
	if typ.Len == 0 {
		return scalar(typ.Kind, v)
	}
	list, ok := v.([]any)
	switch {
	case v == nil:
		list = make([]any, typ.Len)
	case !ok:
		return tag.Value{}, fmt.Errorf("%v is no list of %d values", v, typ.Len)
	case len(list) != typ.Len:
		return tag.Value{}, fmt.Errorf("the list has %d values, and the type %d", len(list), typ.Len)
	}
	values := make([]tag.Value, len(list))
	for i, e := range list {
		x, err := scalar(typ.Kind, e)
		if err != nil {
			return tag.Value{}, err
		}
		values[i] = x
	}
	return array(typ.Kind, values), nil
}

func scalar(k tag.Kind, v any) (tag.Value, error) {
	switch k {
	case tag.Bool:
		if b, ok := orZero(v, false).(bool); ok {
			return tag.Of(b), nil
		}
		return tag.Value{}, fmt.Errorf("%v is not true or false", v)
	case tag.String, tag.ByteString:
		s, ok := orZero(v, "").(string)
		if !ok {
			return tag.Value{}, fmt.Errorf("%v is no text: put it in quotes", v)
		}
		if k == tag.String {
			return tag.Of(s), nil
		}
		return tag.OfBytes([]byte(s)), nil
	case tag.Float32, tag.Float64:
		f, ok := float(orZero(v, 0.0))
		if !ok {
			return tag.Value{}, fmt.Errorf("%v is no number", v)
		}
		return fromFloat(k, f), nil
	}
	return whole(k, orZero(v, int64(0)))
}

func orZero(v, zero any) any {
	if v == nil {
		return zero
	}
	return v
}

func float(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case uint64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// wholeRange are the limits of the whole kinds that fit an int64; Uint64 has its own.
var wholeRange = map[tag.Kind][2]int64{
	tag.Int8: {math.MinInt8, math.MaxInt8}, tag.Uint8: {0, math.MaxUint8},
	tag.Int16: {math.MinInt16, math.MaxInt16}, tag.Uint16: {0, math.MaxUint16},
	tag.Int32: {math.MinInt32, math.MaxInt32}, tag.Uint32: {0, math.MaxUint32},
	tag.Int64: {math.MinInt64, math.MaxInt64}, tag.Uint64: {0, math.MaxInt64},
}

func whole(k tag.Kind, v any) (tag.Value, error) {
	var n int64
	switch x := v.(type) {
	case int:
		n = int64(x)
	case int64:
		n = x
	case uint64:
		if k == tag.Uint64 {
			return tag.Of(x), nil
		}
		if x > math.MaxInt64 {
			return tag.Value{}, fmt.Errorf("%d does not fit the type", x)
		}
		n = int64(x)
	default:
		return tag.Value{}, fmt.Errorf("%v is no whole number", v)
	}
	if r := wholeRange[k]; n < r[0] || n > r[1] {
		return tag.Value{}, fmt.Errorf("%d does not fit the type, which reaches from %d to %d", n, r[0], r[1])
	}
	return tag.FromBits(k, uint64(n)), nil
}

// fromFloat makes a number of a kind from f, rounded and cut to what the kind holds.
func fromFloat(k tag.Kind, f float64) tag.Value {
	switch k {
	case tag.Float32:
		return tag.Of(float32(f))
	case tag.Float64:
		return tag.Of(f)
	case tag.Bool:
		return tag.Of(f != 0)
	}
	r := wholeRange[k]
	switch f = math.Round(f); {
	case f <= float64(r[0]):
		return tag.FromBits(k, uint64(r[0]))
	case f >= float64(r[1]):
		return tag.FromBits(k, uint64(r[1]))
	}
	return tag.FromBits(k, uint64(int64(f)))
}

// array joins scalars of one kind.
func array(k tag.Kind, values []tag.Value) tag.Value {
	switch k {
	case tag.Bool:
		return gather(values, tag.Value.Bool)
	case tag.Int8:
		return gather(values, func(v tag.Value) int8 { return int8(v.Bits()) })
	case tag.Uint8:
		return gather(values, func(v tag.Value) uint8 { return uint8(v.Bits()) })
	case tag.Int16:
		return gather(values, func(v tag.Value) int16 { return int16(v.Bits()) })
	case tag.Uint16:
		return gather(values, func(v tag.Value) uint16 { return uint16(v.Bits()) })
	case tag.Int32:
		return gather(values, func(v tag.Value) int32 { return int32(v.Bits()) })
	case tag.Uint32:
		return gather(values, func(v tag.Value) uint32 { return uint32(v.Bits()) })
	case tag.Int64:
		return gather(values, func(v tag.Value) int64 { return int64(v.Bits()) })
	case tag.Uint64:
		return gather(values, tag.Value.Bits)
	case tag.Float32:
		return gather(values, func(v tag.Value) float32 { return math.Float32frombits(uint32(v.Bits())) })
	case tag.Float64:
		return gather(values, func(v tag.Value) float64 { return math.Float64frombits(v.Bits()) })
	case tag.String:
		return gather(values, tag.Value.Text)
	}
	return gather(values, tag.Value.Bytes)
}

func gather[T tag.Element](values []tag.Value, f func(tag.Value) T) tag.Value {
	out := make([]T, len(values))
	for i, v := range values {
		out[i] = f(v)
	}
	return tag.OfSlice(out)
}
