package address

import (
	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// encodedArray is an array or a matrix that is kept as an encoded Variant (Part 6, 5.2.2.16), taken apart: localized
// texts, names, ids, structures, and matrices of anything.
type encodedArray struct {
	mask   byte // of the Variant
	nDims  int
	dims   [maxRangeDims]uint32
	count  int
	body   []byte   // the elements
	size   int      // of each; 0: they differ
	starts []uint32 // in body, of elements that differ in size, and the end
}

// parseEncoded takes a value apart; false: it is no array, or has more dimensions than a range can have.
func parseEncoded(v tag.Value) (a encodedArray, ok bool) {
	b := v.Bytes()
	if v.IsArray() {
		b = wire.AppendVariant(nil, v)
	}
	if len(b) < 5 || b[0]&0x80 == 0 {
		return a, false
	}
	a.mask = b[0]
	r := wire.NewReader(b[1:])
	a.count = max(r.Count(1), 0)
	from := r.Offset()
	if !a.elements(&r) {
		return a, false
	}
	a.body = b[1+from : 1+r.Offset()]
	a.nDims, a.dims[0] = 1, uint32(a.count)
	if a.mask&0x40 != 0 && !a.shape(&r) {
		return a, false
	}
	return a, true
}

// elements passes over the elements.
func (a *encodedArray) elements(r *wire.Reader) bool {
	if a.size = fixedSize(a.kind()); a.size > 0 {
		r.Skip(a.size * a.count)
		return r.Err() == nil
	}
	from := r.Offset()
	a.starts = make([]uint32, 0, a.count+1)
	for range a.count {
		a.starts = append(a.starts, uint32(r.Offset()-from))
		if !skipElement(r, a.kind()) {
			return false
		}
	}
	a.starts = append(a.starts, uint32(r.Offset()-from))
	return true
}

// shape reads the dimensions of a matrix, whose product is the number of elements.
func (a *encodedArray) shape(r *wire.Reader) bool {
	a.nDims = r.Count(4)
	if a.nDims < 1 || a.nDims > maxRangeDims {
		return false
	}
	product := uint64(1)
	for i := range a.nDims {
		a.dims[i] = r.Uint32()
		if product *= uint64(a.dims[i]); product > 1<<32 {
			return false
		}
	}
	return r.Err() == nil && product == uint64(a.count)
}

func (a *encodedArray) kind() uint8 { return a.mask & 0x3F }

// part is n elements from the i-th on.
func (a *encodedArray) part(i, n int) []byte {
	if a.size > 0 {
		return a.body[i*a.size : (i+n)*a.size]
	}
	return a.body[a.starts[i]:a.starts[i+n]]
}

// element is one element of a matrix of String or ByteString.
func (a *encodedArray) element(i int) tag.Value {
	r := wire.NewReader(a.part(i, 1))
	if a.kind() == uint8(tag.String) {
		return tag.Of(r.String())
	}
	return tag.OfBytes(r.ByteString())
}

func appendElement(dst []byte, v tag.Value) []byte {
	if v.Kind() == tag.String {
		return wire.AppendString(dst, v.Text())
	}
	return wire.AppendByteString(dst, v.Bytes())
}

// text reports whether a range has one dimension more than the array: the last one cuts its texts.
func (a *encodedArray) text(r *Range) bool {
	return r.Dims == a.nDims+1 && (a.kind() == uint8(tag.String) || a.kind() == uint8(tag.ByteString))
}

// runs calls visit for each row of neighbours that the ranges of the array's dimensions name, in the order in which the
// elements are encoded: the last dimension moves fastest (Part 6, 5.2.2.16). high is the last index of each.
func (a *encodedArray) runs(r *Range, high *[maxRangeDims]uint32, visit func(first, n int) tag.Status) tag.Status {
	last := a.nDims - 1
	var at [maxRangeDims]uint32
	for i := range last {
		at[i], _ = r.span(i)
	}
	low, _ := r.span(last)
	for {
		first := 0
		for i := range last {
			first = (first + int(at[i])) * int(a.dims[i+1])
		}
		if st := visit(first+int(low), int(high[last]-low)+1); st != tag.Good {
			return st
		}
		i := last - 1
		for ; i >= 0; i-- {
			if at[i] < high[i] {
				at[i]++
				break
			}
			at[i], _ = r.span(i)
		}
		if i < 0 {
			return tag.Good
		}
	}
}

// appendHead begins an encoded array of that many elements, of the same type.
func (a *encodedArray) appendHead(count int) []byte {
	return wire.AppendUint32([]byte{a.mask}, uint32(count))
}

// appendShape ends the encoding of a matrix.
func (a *encodedArray) appendShape(dst []byte, dims *[maxRangeDims]uint32) []byte {
	if a.mask&0x40 == 0 {
		return dst
	}
	dst = wire.AppendUint32(dst, uint32(a.nDims))
	for i := range a.nDims {
		dst = wire.AppendUint32(dst, dims[i])
	}
	return dst
}

// rawRange is ApplyRange for what is kept encoded.
func rawRange(v tag.Value, r Range) (tag.Value, tag.Status) {
	a, ok := parseEncoded(v)
	text := ok && a.text(&r)
	if !ok || r.Dims != a.nDims && !text {
		return tag.Value{}, tag.BadIndexRangeNoData
	}
	var high, lengths [maxRangeDims]uint32
	count := 1
	for i := range a.nDims {
		low, to := r.span(i)
		if low >= a.dims[i] {
			return tag.Value{}, tag.BadIndexRangeNoData
		}
		high[i] = min(to, a.dims[i]-1) // what lies beyond the end is left out
		lengths[i] = high[i] - low + 1
		count *= int(lengths[i])
	}
	out, found := a.appendHead(count), !text
	a.runs(&r, &high, func(first, n int) tag.Status {
		if !text {
			out = append(out, a.part(first, n)...)
			return tag.Good
		}
		for i := first; i < first+n; i++ {
			w, st := textRange(a.element(i), r.last())
			if found = found || st == tag.Good; st != tag.Good {
				w = emptyLike(tag.Kind(a.kind()))
			}
			out = appendElement(out, w)
		}
		return tag.Good
	})
	if !found {
		return tag.Value{}, tag.BadIndexRangeNoData
	}
	return tag.OfRaw(a.appendShape(out, &lengths)), tag.Good
}

func emptyLike(k tag.Kind) tag.Value {
	if k == tag.String {
		return tag.Of("")
	}
	return tag.OfBytes([]byte{})
}

// replaceRaw is ReplaceRange for what is kept encoded.
func replaceRaw(old, part tag.Value, r Range) (tag.Value, tag.Status) {
	a, ok := parseEncoded(old)
	text := ok && a.text(&r)
	if !ok || r.Dims != a.nDims && !text {
		return tag.Value{}, tag.BadIndexRangeNoData
	}
	p, ok := parseEncoded(part)
	if !ok || p.kind() != a.kind() || p.nDims != a.nDims {
		return tag.Value{}, tag.BadTypeMismatch
	}
	var high [maxRangeDims]uint32
	for i := range a.nDims {
		low, to := r.span(i)
		if high[i] = to; uint64(p.dims[i]) != uint64(to-low)+1 {
			return tag.Value{}, badIndexRangeDataMismatch
		}
	}
	for i := range a.nDims {
		if high[i] >= a.dims[i] {
			return tag.Value{}, tag.BadIndexRangeNoData
		}
	}
	out, done, from := a.appendHead(a.count), 0, 0 // elements of a, and of p
	st := a.runs(&r, &high, func(first, n int) tag.Status {
		out = append(out, a.part(done, first-done)...)
		if !text {
			out = append(out, p.part(from, n)...)
		}
		for i := 0; text && i < n; i++ {
			w, st := replaceText(a.element(first+i), p.element(from+i), r.last())
			if st != tag.Good {
				return st
			}
			out = appendElement(out, w)
		}
		done, from = first+n, from+n
		return tag.Good
	})
	if st != tag.Good {
		return tag.Value{}, st
	}
	out = append(out, a.part(done, a.count-done)...)
	return tag.OfRaw(a.appendShape(out, &a.dims)), tag.Good
}

// fixedSize is the bytes of an element of a built-in type whose elements are all of one size, or 0.
func fixedSize(kind uint8) int {
	switch kind {
	case 1, 2, 3:
		return 1
	case 4, 5:
		return 2
	case 6, 7, 10, 19:
		return 4
	case 8, 9, 11, 13:
		return 8
	case 14: // Guid
		return 16
	}
	return 0
}

// skipElement passes over one element of an encoded array, and reports whether it is a whole one.
func skipElement(r *wire.Reader, kind uint8) bool {
	r.SkipBuiltin(kind)
	return kind != 0 && r.Err() == nil
}
