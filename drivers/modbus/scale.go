package modbus

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// scaling is value = raw*scale + offset, exact as the decimal text says: both are whole numbers of 10^-places, and so is
// the value, which is divided once at the end. 68*0.1 is then the double nearest to 6.8, and not 6.800000000000001.
type scaling struct {
	scale, offset int64 // in 10^-places
	places        int
	power         float64 // 10^places
	round         int64   // 10^(places-decimals): what the value is rounded to; 1: nothing
	decimals      int     // for float raws; -1: not rounded
	fscale        float64 // for float raws
	foffset       float64
}

const (
	// A double holds every whole number up to this, and every power of ten up to 10^22: a quotient of the two is
	// the double nearest to the decimal.
	maxExact  = 1 << 53
	maxPlaces = 15
)

// decimal is mantissa * 10^-places.
type decimal struct {
	mantissa int64
	places   int
}

func parseDecimal(text string) (decimal, error) {
	fail := func() (decimal, error) {
		return decimal{}, fmt.Errorf("%q is not a decimal number such as 0.1 or -40, of at most %d places", text, maxPlaces)
	}
	digits, exponent := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		e, err := strconv.Atoi(text[i+1:])
		if err != nil || e < -maxPlaces || e > maxPlaces {
			return fail()
		}
		digits, exponent = text[:i], e
	}
	whole, fraction, point := strings.Cut(digits, ".")
	if point && fraction == "" || strings.HasPrefix(fraction, "+") || strings.HasPrefix(fraction, "-") {
		return fail()
	}
	fraction = strings.TrimRight(fraction, "0")
	m, err := strconv.ParseInt(whole+fraction, 10, 64)
	if err != nil {
		return fail()
	}
	d := decimal{m, len(fraction) - exponent}
	for d.places < 0 {
		if d.mantissa > math.MaxInt64/10 || d.mantissa < math.MinInt64/10 {
			return fail()
		}
		d.mantissa, d.places = d.mantissa*10, d.places+1
	}
	if d.places > maxPlaces {
		return fail()
	}
	return d, nil
}

// at is the mantissa for a larger number of places.
func (d decimal) at(places int) (int64, bool) {
	m := d.mantissa
	for range places - d.places {
		if m > math.MaxInt64/10 || m < math.MinInt64/10 {
			return 0, false
		}
		m *= 10
	}
	return m, true
}

// newScaling takes decimals -1 for a value that is not rounded further.
func newScaling(scale, offset decimal, decimals int) (*scaling, error) {
	s := &scaling{places: max(scale.places, offset.places), round: 1, decimals: decimals}
	var ok1, ok2 bool
	s.scale, ok1 = scale.at(s.places)
	s.offset, ok2 = offset.at(s.places)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("scale and offset together have more than 18 digits")
	}
	s.power = math.Pow10(s.places)
	if decimals >= 0 {
		for range s.places - decimals {
			s.round *= 10
		}
	}
	s.fscale = float64(scale.mantissa) / math.Pow10(scale.places)
	s.foffset = float64(offset.mantissa) / math.Pow10(offset.places)
	return s, nil
}

// value scales a signed raw number.
func (s *scaling) value(raw int64) float64 {
	hi, lo := bits.Mul64(magnitude(raw), magnitude(s.scale))
	if hi != 0 || lo > maxExact {
		return s.bigValue(new(big.Int).SetInt64(raw))
	}
	product := int64(lo)
	if (raw < 0) != (s.scale < 0) {
		product = -product
	}
	sum := product + s.offset
	if s.offset > maxExact || s.offset < -maxExact || sum > maxExact || sum < -maxExact {
		return s.bigValue(new(big.Int).SetInt64(raw))
	}
	return float64(roundTo(sum, s.round)) / s.power
}

// unsigned scales an unsigned raw number.
func (s *scaling) unsigned(raw uint64) float64 {
	if raw <= math.MaxInt64 {
		return s.value(int64(raw))
	}
	return s.bigValue(new(big.Int).SetUint64(raw))
}

// float scales a raw floating-point number, which promises no decimals of its own.
func (s *scaling) float(raw float64) float64 {
	return roundFloat(raw*s.fscale+s.foffset, s.decimals)
}

func (s *scaling) bigValue(raw *big.Int) float64 {
	raw.Mul(raw, big.NewInt(s.scale)).Add(raw, big.NewInt(s.offset))
	if s.round > 1 {
		raw = roundBig(new(big.Rat).SetFrac(raw, big.NewInt(s.round)))
		raw.Mul(raw, big.NewInt(s.round))
	}
	v, _ := new(big.Rat).SetFrac(raw, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(s.places)), nil)).Float64()
	return v
}

// raw is the whole raw number nearest to a value, and false if an int64 or uint64 does not hold it. A negative number
// comes as its two's complement with negative true.
func (s *scaling) raw(v float64) (raw uint64, negative, ok bool) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false, false
	}
	if k := math.Round(v * s.power); math.Abs(k) < maxExact/4 && s.offset < maxExact && s.offset > -maxExact {
		q := divRound(int64(k)-s.offset, s.scale)
		return uint64(q), q < 0, true
	}
	r := new(big.Rat)
	r.SetFloat64(v)
	r.Mul(r, new(big.Rat).SetFloat64(s.power))
	r.Sub(r, new(big.Rat).SetInt64(s.offset))
	r.Quo(r, new(big.Rat).SetInt64(s.scale))
	q := roundBig(r)
	if q.IsInt64() {
		return uint64(q.Int64()), q.Sign() < 0, true
	}
	if q.IsUint64() {
		return q.Uint64(), false, true
	}
	return 0, false, false
}

// rawFloat is the raw floating-point number of a value.
func (s *scaling) rawFloat(v float64) float64 { return (v - s.foffset) / s.fscale }

func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// divRound divides, half away from zero.
func divRound(a, b int64) int64 {
	q, r := a/b, a%b
	if rest := magnitude(r); rest >= magnitude(b)-rest {
		if (a < 0) != (b < 0) {
			return q - 1
		}
		return q + 1
	}
	return q
}

func roundTo(v, step int64) int64 {
	if step == 1 {
		return v
	}
	return divRound(v, step) * step
}

// roundBig rounds half away from zero.
func roundBig(r *big.Rat) *big.Int {
	n := new(big.Int).Abs(r.Num())
	n.Lsh(n, 1).Add(n, r.Denom())
	n.Quo(n, new(big.Int).Lsh(r.Denom(), 1))
	if r.Sign() < 0 {
		n.Neg(n)
	}
	return n
}

// roundFloat rounds to decimals places; -1 leaves v as it is.
func roundFloat(v float64, decimals int) float64 {
	if decimals < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	p := math.Pow10(decimals)
	if math.Abs(v) > maxExact/p {
		return v
	}
	return math.Round(v*p) / p
}
