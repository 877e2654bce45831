package address

import (
	"errors"
	"slices"
	"unicode/utf8"

	"edged/drivers/tag"
)

// maxRangeDims is how many dimensions a Range keeps. A range of more is parsed, and no value has such a part.
const maxRangeDims = 8

// Range is a parsed NumericRange (Part 4, 7.27). The zero Range is the whole value.
type Range struct {
	Dims      int                         // number of dimensions given; 0: the whole value
	Low, High uint32                      // first and last index of the first dimension, both inclusive
	rest      [maxRangeDims - 1][2]uint32 // of the other dimensions
}

// span is the first and the last index of a dimension.
func (r *Range) span(i int) (low, high uint32) {
	if i == 0 {
		return r.Low, r.High
	}
	return r.rest[i-1][0], r.rest[i-1][1]
}

// last is the last dimension alone.
func (r *Range) last() Range {
	low, high := r.span(r.Dims - 1)
	return Range{Dims: 1, Low: low, High: high}
}

var errRange = errors.New(`index range is not of the form "2" or "1:3", with the smaller index first`)

// ParseRange parses an IndexRange: "2", "1:3", "1:3,0:2". Empty text is the zero Range. In a span the first index is
// below the second (Part 4, 7.27). The error becomes BadIndexRangeInvalid.
func ParseRange(s string) (Range, error) {
	var r Range
	for at := 0; s != "" && at <= len(s); r.Dims++ {
		low, next, ok := parseIndex(s, at)
		if !ok {
			return Range{}, errRange
		}
		high := low
		if next < len(s) && s[next] == ':' {
			if high, next, ok = parseIndex(s, next+1); !ok || high <= low {
				return Range{}, errRange
			}
		}
		switch {
		case r.Dims == 0:
			r.Low, r.High = low, high
		case r.Dims < maxRangeDims:
			r.rest[r.Dims-1] = [2]uint32{low, high}
		}
		if next < len(s) && s[next] != ',' {
			return Range{}, errRange
		}
		at = next + 1
	}
	return r, nil
}

func parseIndex(s string, at int) (v uint32, next int, ok bool) {
	n := uint64(0)
	for next = at; next < len(s) && s[next] >= '0' && s[next] <= '9'; next++ {
		if n = n*10 + uint64(s[next]-'0'); n > 1<<32-1 {
			return 0, 0, false
		}
	}
	return uint32(n), next, next > at
}

// rangeOf parses text and applies it.
func rangeOf(v tag.Value, text string) (tag.Value, tag.Status) {
	if text == "" {
		return v, tag.Good
	}
	r, err := ParseRange(text)
	if err != nil {
		return tag.Value{}, tag.BadIndexRangeInvalid
	}
	return ApplyRange(v, r)
}

// ApplyRange returns the part of v that r names: elements of an array or a matrix, characters of a String, bytes of a
// ByteString; with one dimension more than the array has, characters or bytes of its elements. A range names every
// dimension. What lies beyond the end is left out; a range wholly beyond it, and one of other dimensions than v's, is
// BadIndexRangeNoData (Part 4, 7.27). The result may share v's memory.
func ApplyRange(v tag.Value, r Range) (tag.Value, tag.Status) {
	switch {
	case r.Dims == 0:
		return v, tag.Good
	case r.Dims > maxRangeDims:
		return tag.Value{}, tag.BadIndexRangeNoData
	case v.Kind() == tag.Raw:
		return rawRange(v, r)
	case !v.IsArray():
		return textRange(v, r)
	}
	part, ok := cutArray(v, r.Low, r.High)
	if !ok {
		return tag.Value{}, tag.BadIndexRangeNoData
	}
	switch r.Dims {
	case 1:
		return part, tag.Good
	case 2:
		return elementsRange(part, r.last())
	}
	return tag.Value{}, tag.BadIndexRangeNoData
}

// textRange cuts a String by characters and a ByteString by bytes.
func textRange(v tag.Value, r Range) (tag.Value, tag.Status) {
	if r.Dims == 1 {
		switch v.Kind() {
		case tag.String:
			if from, to, ok := characters(v.Text(), r.Low, r.High); ok {
				return tag.Of(v.Text()[from:to]), tag.Good
			}
		case tag.ByteString:
			if s, ok := cut(v.Bytes(), r.Low, r.High); ok {
				return tag.OfBytes(s), tag.Good
			}
		}
	}
	return tag.Value{}, tag.BadIndexRangeNoData
}

// characters finds the bytes from and to of the characters low to high.
func characters(s string, low, high uint32) (from, to int, ok bool) {
	i := uint32(0)
	for at := range s {
		if i == low {
			from, ok = at, true
		}
		if uint64(i) == uint64(high)+1 {
			return from, at, ok
		}
		i++
	}
	return from, len(s), ok
}

// elementsRange cuts each element of an array of String or ByteString. Elements too short for it become empty; if all
// are, there is no data.
func elementsRange(v tag.Value, r Range) (tag.Value, tag.Status) {
	found := false
	if s, ok := tag.Slice[string](v); ok {
		out := make([]string, len(s))
		for i, e := range s {
			if w, st := textRange(tag.Of(e), r); st == tag.Good {
				out[i], found = w.Text(), true
			}
		}
		if found {
			return tag.OfSlice(out), tag.Good
		}
	}
	if s, ok := tag.Slice[[]byte](v); ok {
		out := make([][]byte, len(s))
		for i, e := range s {
			if w, st := textRange(tag.OfBytes(e), r); st == tag.Good {
				out[i], found = w.Bytes(), true
			}
		}
		if found {
			return tag.OfSlice(out), tag.Good
		}
	}
	return tag.Value{}, tag.BadIndexRangeNoData
}

func cut[T any](s []T, low, high uint32) ([]T, bool) {
	if uint64(low) >= uint64(len(s)) {
		return nil, false
	}
	to := min(uint64(high)+1, uint64(len(s)))
	return s[low:to:to], true
}

func cutSlice[T tag.Element](v tag.Value, low, high uint32) (tag.Value, bool) {
	s, _ := tag.Slice[T](v)
	s, ok := cut(s, low, high)
	return tag.OfSlice(s), ok
}

func cutArray(v tag.Value, low, high uint32) (tag.Value, bool) {
	switch v.Kind() {
	case tag.Bool:
		return cutSlice[bool](v, low, high)
	case tag.Int8:
		return cutSlice[int8](v, low, high)
	case tag.Uint8:
		return cutSlice[uint8](v, low, high)
	case tag.Int16:
		return cutSlice[int16](v, low, high)
	case tag.Uint16:
		return cutSlice[uint16](v, low, high)
	case tag.Int32:
		return cutSlice[int32](v, low, high)
	case tag.Uint32:
		return cutSlice[uint32](v, low, high)
	case tag.Int64:
		return cutSlice[int64](v, low, high)
	case tag.Uint64:
		return cutSlice[uint64](v, low, high)
	case tag.Float32:
		return cutSlice[float32](v, low, high)
	case tag.Float64:
		return cutSlice[float64](v, low, high)
	case tag.String:
		return cutSlice[string](v, low, high)
	case tag.DateTime:
		return cutSlice[tag.Time](v, low, high)
	case tag.StatusCode:
		return cutSlice[tag.Status](v, low, high)
	case tag.ByteString:
		return cutSlice[[]byte](v, low, high)
	}
	return tag.Value{}, false
}

// ReplaceRange returns old with the elements, characters or bytes that r names replaced by part, for writes (Part 4,
// 5.10.4.2 and 7.27). part has to be of old's kind, and an array or a matrix where old is one (else BadTypeMismatch), in
// each dimension as long as the range (else BadIndexRangeDataMismatch), and the range within old (else
// BadIndexRangeNoData). old is unchanged.
func ReplaceRange(old, part tag.Value, r Range) (tag.Value, tag.Status) {
	switch {
	case r.Dims == 0:
		return part, tag.Good
	case r.Dims > maxRangeDims:
		return tag.Value{}, tag.BadIndexRangeNoData
	case old.Kind() == tag.Raw:
		return replaceRaw(old, part, r)
	case r.Dims > 2 || r.Dims == 2 && !(old.IsArray() && (old.Kind() == tag.String || old.Kind() == tag.ByteString)):
		return tag.Value{}, tag.BadIndexRangeNoData
	case part.Kind() != old.Kind():
		return tag.Value{}, tag.BadTypeMismatch
	case !old.IsArray():
		return replaceText(old, part, r)
	case r.Dims == 2 && old.Kind() == tag.String:
		return replaceElements(old, part, r, func(s string) tag.Value { return tag.Of(s) }, tag.Value.Text)
	case r.Dims == 2:
		return replaceElements(old, part, r, tag.OfBytes, tag.Value.Bytes)
	}
	switch old.Kind() {
	case tag.Bool:
		return replaceSlice[bool](old, part, r)
	case tag.Int8:
		return replaceSlice[int8](old, part, r)
	case tag.Uint8:
		return replaceSlice[uint8](old, part, r)
	case tag.Int16:
		return replaceSlice[int16](old, part, r)
	case tag.Uint16:
		return replaceSlice[uint16](old, part, r)
	case tag.Int32:
		return replaceSlice[int32](old, part, r)
	case tag.Uint32:
		return replaceSlice[uint32](old, part, r)
	case tag.Int64:
		return replaceSlice[int64](old, part, r)
	case tag.Uint64:
		return replaceSlice[uint64](old, part, r)
	case tag.Float32:
		return replaceSlice[float32](old, part, r)
	case tag.Float64:
		return replaceSlice[float64](old, part, r)
	case tag.String:
		return replaceSlice[string](old, part, r)
	case tag.DateTime:
		return replaceSlice[tag.Time](old, part, r)
	case tag.StatusCode:
		return replaceSlice[tag.Status](old, part, r)
	case tag.ByteString:
		return replaceSlice[[]byte](old, part, r)
	}
	return tag.Value{}, tag.BadTypeMismatch
}

func replaceSlice[T tag.Element](old, part tag.Value, r Range) (tag.Value, tag.Status) {
	s, _ := tag.Slice[T](old)
	p, ok := tag.Slice[T](part)
	switch {
	case !ok:
		return tag.Value{}, tag.BadTypeMismatch
	case uint64(len(p)) != uint64(r.High-r.Low)+1:
		return tag.Value{}, badIndexRangeDataMismatch
	case uint64(r.High) >= uint64(len(s)):
		return tag.Value{}, tag.BadIndexRangeNoData
	}
	s = slices.Clone(s)
	copy(s[r.Low:], p)
	return tag.OfSlice(s), tag.Good
}

// replaceElements replaces a part of each of the elements that the first dimension names by the element of part.
func replaceElements[T string | []byte](old, part tag.Value, r Range, wrap func(T) tag.Value, unwrap func(tag.Value) T) (tag.Value, tag.Status) {
	s, _ := tag.Slice[T](old)
	p, ok := tag.Slice[T](part)
	switch {
	case !ok:
		return tag.Value{}, tag.BadTypeMismatch
	case uint64(len(p)) != uint64(r.High-r.Low)+1:
		return tag.Value{}, badIndexRangeDataMismatch
	case uint64(r.High) >= uint64(len(s)):
		return tag.Value{}, tag.BadIndexRangeNoData
	}
	s = slices.Clone(s)
	for i := range p {
		at := int(r.Low) + i
		w, st := replaceText(wrap(s[at]), wrap(p[i]), r.last())
		if st != tag.Good {
			return tag.Value{}, st
		}
		s[at] = unwrap(w)
	}
	return tag.OfSlice(s), tag.Good
}

// replaceText replaces characters of a String, or bytes of a ByteString.
func replaceText(old, part tag.Value, r Range) (tag.Value, tag.Status) {
	if part.IsArray() {
		return tag.Value{}, tag.BadTypeMismatch
	}
	length := uint64(r.High-r.Low) + 1
	switch old.Kind() {
	case tag.String:
		s := old.Text()
		if uint64(utf8.RuneCountInString(part.Text())) != length {
			return tag.Value{}, badIndexRangeDataMismatch
		}
		if uint64(r.High) >= uint64(utf8.RuneCountInString(s)) {
			return tag.Value{}, tag.BadIndexRangeNoData
		}
		from, to, _ := characters(s, r.Low, r.High)
		return tag.Of(s[:from] + part.Text() + s[to:]), tag.Good
	case tag.ByteString:
		if uint64(part.Len()) != length {
			return tag.Value{}, badIndexRangeDataMismatch
		}
		if uint64(r.High) >= uint64(old.Len()) {
			return tag.Value{}, tag.BadIndexRangeNoData
		}
		b := slices.Clone(old.Bytes())
		copy(b[r.Low:], part.Bytes())
		return tag.OfBytes(b), tag.Good
	}
	return tag.Value{}, tag.BadIndexRangeNoData
}
