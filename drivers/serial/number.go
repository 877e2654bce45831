package serial

import (
	"bytes"
	"math"
	"math/big"
	"math/bits"
	"strconv"

	"edged/drivers/tag"
)

// decimal is a number as it is written: digits / 10^places.
type decimal struct {
	digits int64
	places int
}

// powers are those that a float64 holds exactly.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// exact is how large a whole number may be that a float64 holds with all before it.
const exact = 1 << 53

// parseDecimal reads a number without an exponent. Spaces may stand between the sign and the digits, as scales have it.
func parseDecimal(b []byte) (d decimal, ok bool) {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = bytes.TrimLeft(b[1:], " ")
	}
	point, seen := false, false
	for _, c := range b {
		switch {
		case c == '.' && !point:
			point = true
		case c >= '0' && c <= '9' && d.digits < (1<<63-10)/10:
			d.digits, seen = d.digits*10+int64(c-'0'), true
			if point {
				d.places++
			}
		default:
			return decimal{}, false
		}
	}
	if negative {
		d.digits = -d.digits
	}
	return d, seen
}

// scaling is value = raw * scale + offset, computed as decimals so that 68 * 0.1 is 6.8.
type scaling struct {
	scale, offset decimal
	active        bool
	decimals      int // -1: as they come
}

// newScaling reads the three keys.
func newScaling(scale, offset, places string) (scaling, *FieldError) {
	s := scaling{scale: decimal{1, 0}, decimals: -1}
	for _, key := range []struct {
		name, text string
		to         *decimal
	}{{"scale", scale, &s.scale}, {"offset", offset, &s.offset}} {
		if key.text == "" {
			continue
		}
		d, ok := parseDecimal([]byte(key.text))
		if !ok || d.places >= len(powers) || key.name == "scale" && d.digits == 0 {
			return s, wrong(key.name, "%q is no decimal number, which may be 0 for offset alone", key.text)
		}
		*key.to, s.active = d, true
	}
	if places != "" {
		n, err := strconv.Atoi(places)
		if err != nil || n < 0 || n > 15 {
			return s, wrong("decimals", "%q is not a whole number from 0 to 15", places)
		}
		s.decimals = n
	}
	return s, nil
}

// value is the engineering value of what was written.
func (s *scaling) value(d decimal) float64 {
	v := 0.0
	if m, ok := mul(d.digits, s.scale.digits); ok {
		v = quotient(m, d.places+s.scale.places)
		if s.offset.digits != 0 {
			v = s.sum(m, d.places+s.scale.places, v)
		}
	} else {
		v = quotient(d.digits, d.places)*quotient(s.scale.digits, s.scale.places) + quotient(s.offset.digits, s.offset.places)
	}
	return s.round(v)
}

// sum adds the offset to m/10^places, which is about v.
func (s *scaling) sum(m int64, places int, v float64) float64 {
	o, p := s.offset.digits, s.offset.places
	for ok := true; ok && p != places; {
		if p < places {
			o, ok = mul(o, 10)
			p++
		} else {
			m, ok = mul(m, 10)
			places++
		}
		if !ok {
			return v + quotient(s.offset.digits, s.offset.places)
		}
	}
	return quotient(m+o, p)
}

func (s *scaling) round(v float64) float64 {
	if s.decimals < 0 {
		return v
	}
	if r := math.Round(v*powers[s.decimals]) / powers[s.decimals]; !math.IsInf(r, 0) {
		return r
	}
	return v
}

// of is the engineering value of a number that is no short decimal.
func (s *scaling) of(v float64) float64 {
	if s.active {
		v = v*quotient(s.scale.digits, s.scale.places) + quotient(s.offset.digits, s.offset.places)
	}
	return s.round(v)
}

// raw is what an engineering value is written as, with no more digits than tell it from its neighbours.
func (s *scaling) raw(v float64) float64 {
	if !s.active {
		return v
	}
	exactly, ok := new(big.Rat).SetString(strconv.FormatFloat(v, 'g', -1, 64))
	if !ok {
		return math.NaN()
	}
	exactly.Sub(exactly, s.offset.rat())
	out, _ := exactly.Quo(exactly, s.scale.rat()).Float64()
	return out
}

func (d decimal) rat() *big.Rat {
	return new(big.Rat).SetFrac(big.NewInt(d.digits), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.places)), nil))
}

// mul multiplies where the product is held exactly.
func mul(a, b int64) (int64, bool) {
	high, low := bits.Mul64(abs(a), abs(b))
	if high != 0 || low > 1<<62 {
		return 0, false
	}
	if (a < 0) != (b < 0) {
		return -int64(low), true
	}
	return int64(low), true
}

func abs(a int64) uint64 {
	if a < 0 {
		return uint64(-a)
	}
	return uint64(a)
}

// quotient is n/10^places, the nearest float64 of it where n is below 2^53.
func quotient(n int64, places int) float64 {
	for places > 0 && abs(n) > exact && n%10 == 0 {
		n, places = n/10, places-1
	}
	if places >= len(powers) {
		return float64(n) / math.Pow10(places)
	}
	return float64(n) / powers[places]
}

// toKind makes a value of a kind; false if it does not hold the number.
func toKind(k tag.Kind, v float64) (tag.Value, bool) {
	switch k {
	case tag.Float64:
		return tag.Of(v), !math.IsInf(v, 0) && !math.IsNaN(v)
	case tag.Float32:
		return tag.Of(float32(v)), math.Abs(v) <= math.MaxFloat32
	}
	if v != math.Trunc(v) {
		return tag.Value{}, false
	}
	switch {
	case k == tag.Uint64 && v >= 0 && v < 1<<64:
		return tag.FromBits(k, uint64(v)), true
	case k == tag.Int64 && v >= -1<<63 && v < 1<<63:
		return tag.FromBits(k, uint64(int64(v))), true
	}
	return wholeOf(k, v)
}

func wholeOf(k tag.Kind, v float64) (tag.Value, bool) {
	low, high := kindLimits(k)
	if high == 0 || v < low || v > high {
		return tag.Value{}, false
	}
	return tag.FromBits(k, uint64(int64(v))), true
}

func kindLimits(k tag.Kind) (low, high float64) {
	switch k {
	case tag.Int8:
		return math.MinInt8, math.MaxInt8
	case tag.Uint8:
		return 0, math.MaxUint8
	case tag.Int16:
		return math.MinInt16, math.MaxInt16
	case tag.Uint16:
		return 0, math.MaxUint16
	case tag.Int32:
		return math.MinInt32, math.MaxInt32
	case tag.Uint32:
		return 0, math.MaxUint32
	}
	return 0, 0
}
