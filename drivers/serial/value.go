package serial

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"

	"edged/drivers/tag"
)

// reader takes the values of one message out of it. Owned by the lane.
type reader struct {
	matcher
	spans  []int // begin and end of each field of the message, from field 0, which is all of its body
	joined []byte
	wrong  *field // the last whose text was no value
	wrote  []byte // that text
}

// reads reports whether a frame is the message, and finds its fields.
func (r *reader) reads(m *message, s *said) bool {
	if !m.starts(s) {
		return false
	}
	r.spans = append(r.spans[:0], 0, len(s.body))
	switch {
	case m.split != nil:
		for at := 0; len(r.spans) < 2*(maxFields+1); {
			n := bytes.Index(s.body[at:], m.split)
			if n < 0 {
				r.spans = append(r.spans, at, len(s.body))
				break
			}
			r.spans = append(r.spans, at, at+n)
			at += n + len(m.split)
		}
	case m.pattern != nil:
		if !r.find(m.pattern, s.body) {
			return false
		}
		r.spans = append(r.spans[:0], r.caps...)
	}
	return true
}

// values appends the readings of a message whose fields were found.
func (r *reader) values(m *message, s *said, at tag.Time, dst []tag.Sample) []tag.Sample {
	r.wrong = nil
	for _, f := range m.fields {
		if f.access&tag.Readable == 0 {
			continue
		}
		v, status := r.value(f, s)
		dst = append(dst, tag.Sample{Ref: f.ref, Status: status, Value: v, At: at})
	}
	return dst
}

// value is one reading.
func (r *reader) value(f *field, s *said) (tag.Value, tag.Status) {
	var text []byte
	found := true
	switch f.place {
	case inCount:
		f.count++
		return tag.Of(f.count), tag.Good
	case inBytes:
		return r.binary(f, s.whole)
	case inField:
		text, found = r.field(f, s.body)
	case inColumns:
		text = column(s.body, f.from, f.to)
	case inPattern:
		if found = r.find(f.pattern, s.body); found && r.caps[2*f.group] >= 0 {
			text = s.body[r.caps[2*f.group]:r.caps[2*f.group+1]]
		}
	}
	text = bytes.TrimSpace(text)
	if !found {
		return r.mistaken(f, s.body)
	}
	for _, none := range f.sentinel {
		if bytes.Equal(none, text) {
			return tag.Value{}, tag.BadOutOfRange
		}
	}
	for i := range f.values {
		if bytes.Equal(f.values[i].text, text) {
			return f.values[i].value, tag.Good
		}
	}
	if len(f.values) > 0 {
		return r.mistaken(f, text)
	}
	v, ok := r.read(f, text, s.body)
	if !ok {
		return r.mistaken(f, text)
	}
	return v, tag.Good
}

// mistaken notes a text that is no value.
func (r *reader) mistaken(f *field, text []byte) (tag.Value, tag.Status) {
	r.wrong, r.wrote = f, append(r.wrote[:0], text[:min(len(text), mostShown)]...)
	return tag.Value{}, tag.BadCommunicationError
}

// field is the text of a field, or of several, joined.
func (r *reader) field(f *field, body []byte) (text []byte, found bool) {
	if len(f.fields) == 1 {
		return r.span(f.fields[0], body)
	}
	r.joined = r.joined[:0]
	for _, n := range f.fields {
		part, ok := r.span(n, body)
		if !ok {
			return nil, false
		}
		r.joined = append(r.joined, part...)
	}
	return r.joined, true
}

func (r *reader) span(n int, body []byte) ([]byte, bool) {
	if 2*n+1 >= len(r.spans) {
		return nil, false
	}
	from, to := r.spans[2*n], r.spans[2*n+1]
	if from < 0 {
		return nil, true // a part of the pattern that may be missing
	}
	return body[from:to], true
}

// column is what stands from one character to another; to 0 is the end.
func column(body []byte, from, to int) []byte {
	if to == 0 || to > len(body) {
		to = len(body)
	}
	return body[min(from, to):to]
}

// read makes a value of a text.
func (r *reader) read(f *field, text, body []byte) (tag.Value, bool) {
	switch {
	case f.kind == tag.String, f.kind == tag.ByteString:
		return f.text(text)
	case f.format == asTime:
		t, ok := f.layout.parse(text)
		return tag.Of(t), ok
	case f.kind == tag.Bool:
		return tag.Of(len(text) == 1 && text[0] == '1'), len(text) == 1 && (text[0] == '0' || text[0] == '1')
	case f.format == asHex:
		return f.hexadecimal(text)
	}
	d, ok := parseDecimal(text)
	negative := false
	if f.sign > 0 {
		s, found := r.span(f.sign, body)
		s = bytes.TrimSpace(s)
		negative = len(s) == 1 && (s[0] == 'S' || s[0] == 'W' || s[0] == '-')
		if !found || len(s) > 1 {
			return tag.Value{}, false
		}
	}
	if !ok {
		x, err := strconv.ParseFloat(string(text), 64)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) || f.format == asDegrees {
			return tag.Value{}, false
		}
		if negative {
			x = -x
		}
		return toKind(f.kind, f.scaling.of(x))
	}
	if negative {
		d.digits = -d.digits
	}
	return f.number(d)
}

// number makes a value of a decimal number.
func (f *field) number(d decimal) (tag.Value, bool) {
	switch {
	case f.format == asDegrees:
		x, ok := degrees(d)
		if !ok {
			return tag.Value{}, false
		}
		return toKind(f.kind, f.scaling.of(x))
	case d.places == 0 && !f.scaling.active && f.kind == tag.Int64,
		d.places == 0 && !f.scaling.active && f.kind == tag.Uint64 && d.digits >= 0:
		return tag.FromBits(f.kind, uint64(d.digits)), true
	}
	return toKind(f.kind, f.scaling.value(d))
}

// degrees reads degrees and minutes, written as one number: 4807.038 is 48 degrees and 7.038 minutes (NMEA 0183).
func degrees(d decimal) (float64, bool) {
	if d.places >= 15 {
		return 0, false
	}
	unit := int64(powers[d.places]) * 100
	whole, minutes := d.digits/unit, quotient(d.digits%unit, d.places)
	if math.Abs(minutes) >= 60 || whole > 180 || whole < -180 {
		return 0, false
	}
	return float64(whole) + minutes/60, true
}

func (f *field) hexadecimal(text []byte) (tag.Value, bool) {
	var n uint64
	if len(text) == 0 || len(text) > 16 {
		return tag.Value{}, false
	}
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			n = n<<4 | uint64(c|0x20-'a'+10)
		default:
			return tag.Value{}, false
		}
	}
	if !f.scaling.active {
		if low, high := kindLimits(f.kind); high > 0 { // signed kinds have their bits
			if low < 0 && float64(n) > high && float64(n) <= 2*high+1 {
				return tag.FromBits(f.kind, uint64(int64(n)-int64(2*high+2))), true
			}
		} else if f.kind == tag.Int64 || f.kind == tag.Uint64 {
			return tag.FromBits(f.kind, n), true
		}
	}
	return toKind(f.kind, f.scaling.of(float64(n)))
}

// text makes a text. One that comes again is not made again.
func (f *field) text(b []byte) (tag.Value, bool) {
	most := f.size
	if most == 0 {
		most = maxText
	}
	if len(b) > most {
		return tag.Value{}, false
	}
	if f.kind == tag.ByteString {
		if !f.last.IsNull() && bytes.Equal(f.last.Bytes(), b) {
			return f.last, true
		}
		f.last = tag.OfBytes(append([]byte{}, b...))
		return f.last, true
	}
	switch {
	case !f.last.IsNull() && string(b) == f.last.Text():
		return f.last, true
	case utf8.Valid(b):
		f.last = tag.Of(string(b))
		return f.last, true
	}
	return tag.Of(latin(b)), true
}

// binary is a reading of bytes.
func (r *reader) binary(f *field, whole []byte) (tag.Value, tag.Status) {
	if f.at+f.size > len(whole) {
		return r.mistaken(f, whole)
	}
	b := whole[f.at : f.at+f.size]
	switch f.kind {
	case tag.String:
		text := bytes.TrimSpace(bytes.TrimRight(b, "\x00"))
		v, _ := f.text(text)
		return v, tag.Good
	case tag.ByteString:
		v, _ := f.text(b)
		return v, tag.Good
	case tag.Bool:
		n := f.whole(b)
		if f.bit < 0 {
			return tag.Of(n != 0), tag.Good
		}
		return tag.Of(n>>f.bit&1 != 0), tag.Good
	}
	v, ok := f.raw(b)
	if !ok {
		return r.mistaken(f, b)
	}
	for _, none := range f.numbers {
		if x, _ := v.Float(); x == none {
			return tag.Value{}, tag.BadOutOfRange
		}
	}
	if f.scaling.active || f.scaling.decimals >= 0 {
		v, ok = f.scaled(v)
		if !ok {
			return r.mistaken(f, b)
		}
	}
	return v, tag.Good
}

// scaled is a number of bytes with its scale.
func (f *field) scaled(v tag.Value) (tag.Value, bool) {
	x, _ := v.Float()
	if x == math.Trunc(x) && math.Abs(x) < exact {
		return toKind(f.out(), f.scaling.value(decimal{digits: int64(x)}))
	}
	return toKind(f.out(), f.scaling.of(x))
}

// out is the kind of a value with its scale.
func (f *field) out() tag.Kind {
	if f.scaling.active {
		return tag.Float64
	}
	return f.kind
}

// whole is the bits of bytes.
func (f *field) whole(b []byte) (n uint64) {
	for i, x := range b {
		at := i // from the highest
		if f.order != "" {
			at = int(f.order[i] - 'A')
		}
		n |= uint64(x) << (8 * (len(b) - 1 - at))
	}
	return n
}

// raw reads a number of bytes.
func (f *field) raw(b []byte) (tag.Value, bool) {
	n := f.whole(b)
	if f.format == asBCD {
		value := uint64(0)
		for shift := 8*len(b) - 4; shift >= 0; shift -= 4 {
			digit := n >> shift & 15
			if digit > 9 {
				return tag.Value{}, false
			}
			value = value*10 + digit
		}
		return toKind(f.kind, float64(value))
	}
	switch f.kind {
	case tag.Float32:
		x := math.Float32frombits(uint32(n))
		return tag.Of(x), x-x == 0
	case tag.Float64:
		x := math.Float64frombits(n)
		return tag.Of(x), x-x == 0
	case tag.Int8, tag.Int16, tag.Int32, tag.Int64:
		shift := 64 - 8*len(b)
		return tag.FromBits(f.kind, uint64(int64(n<<shift)>>shift)), true
	}
	return tag.FromBits(f.kind, n), true
}
