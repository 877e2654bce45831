package store

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"

	"edged/drivers/tag"
)

// The codec of samples. A chunk is all samples of one tag in one segment: runs, one or more a commit, each of which is
//
//	uvarint n<<1 | reset, then n samples as bits, least significant bit first, filled up to a whole byte
//
// A sample is: one bit, 0 where status and form (kind, array) are those of the sample before, else 1 and 41 bits of
// them; the time; the value. Of the time the change of the difference is written, of a number the difference to what
// its model expects. A run with reset begins with a fresh model, so that it can be read without what was before.

var errDamaged = errors.New("damaged")

// bitWriter appends bits. The zero bitWriter is empty.
type bitWriter struct {
	buf []byte
	acc uint64
	n   uint // bits in acc, below 32
}

func (w *bitWriter) write(v uint64, n uint) {
	if n > 32 {
		w.write(v&math.MaxUint32, 32)
		v, n = v>>32, n-32
	}
	w.acc |= (v & (1<<n - 1)) << w.n
	if w.n += n; w.n >= 32 {
		w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(w.acc))
		w.acc, w.n = w.acc>>32, w.n-32
	}
}

// align fills the last byte up.
func (w *bitWriter) align() {
	for ; w.n > 0; w.n -= min(w.n, 8) {
		w.buf = append(w.buf, byte(w.acc))
		w.acc >>= 8
	}
}

// bitReader reads what a bitWriter wrote. After the end it gives zeros, and short is true.
type bitReader struct {
	buf   []byte
	acc   uint64
	n     uint
	short bool
}

func (r *bitReader) read(n uint) uint64 {
	if n > 32 {
		low := r.read(32)
		return low | r.read(n-32)<<32
	}
	if r.n < n {
		r.fill(n)
	}
	v := r.acc & (1<<n - 1)
	r.acc, r.n = r.acc>>n, r.n-n
	return v
}

func (r *bitReader) fill(n uint) {
	if len(r.buf) >= 4 && r.n < 32 {
		r.acc |= uint64(binary.LittleEndian.Uint32(r.buf)) << r.n
		r.buf, r.n = r.buf[4:], r.n+32
		return
	}
	for r.n < n {
		if len(r.buf) == 0 {
			r.short, r.n = true, n
			return
		}
		r.acc |= uint64(r.buf[0]) << r.n
		r.buf, r.n = r.buf[1:], r.n+8
	}
}

// align goes to the next whole byte, and returns how many bytes are left from there.
func (r *bitReader) align() int { return len(r.buf) + int(r.n/8) }

// left is an upper bound of the bytes that are left.
func (r *bitReader) left() int { return len(r.buf) + int(r.n/8) }

// residual writes numbers in about as many bits as the last ones needed: 0 and these bits; or a 1 for each bit more,
// then 0, and what is left of the number, whose highest bit is known; or manyBits 1s, six bits of a width, and that.
type residual struct {
	width uint8  // bits, at most 63
	mean  uint16 // that were needed, in 1/16
}

const (
	meanShift = 4 // a mean forgets by 1/16 a number
	manyBits  = 8
)

func (a *residual) put(w *bitWriter, v uint64) {
	need, width := uint(bits.Len64(v)), uint(a.width)
	switch more := need - width; {
	case need <= width:
		w.write(v<<1, 1+width)
	case more < manyBits:
		w.write(1<<more-1, more+1)
		w.write(v, need-1)
	default:
		w.write(1<<manyBits-1|uint64(need-1)<<manyBits, manyBits+6)
		w.write(v, need-1)
	}
	a.adapt(need)
}

func (a *residual) get(r *bitReader) uint64 {
	if r.read(1) == 0 {
		v := r.read(uint(a.width))
		a.adapt(uint(bits.Len64(v)))
		return v
	}
	more := uint(1)
	for more < manyBits && r.read(1) == 1 {
		more++
	}
	need := uint(a.width) + more
	if more == manyBits {
		need = uint(r.read(6)) + 1
	}
	need = min(need, 64) // of a damaged chunk
	v := r.read(need-1) | 1<<(need-1)
	a.adapt(need)
	return v
}

// adapt makes the width what the numbers need on the average.
func (a *residual) adapt(need uint) {
	a.mean += uint16(need) - (a.mean+8)>>meanShift
	a.width = uint8(min(63, uint(a.mean)>>meanShift))
}

func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// trend expects that a number stays, or that it goes on as it went, whichever was nearer of late.
type trend struct {
	last, delta  int64
	stays, goes  uint16 // mean bits of the error of each, in 1/16
	coded        residual
	goesExpected bool
}

func (t *trend) expected() int64 {
	if t.goesExpected {
		return t.last + t.delta
	}
	return t.last
}

func (t *trend) put(w *bitWriter, v int64) {
	t.coded.put(w, zigzag(v-t.expected()))
	t.learn(v)
}

func (t *trend) get(r *bitReader) int64 {
	v := t.expected() + unzigzag(t.coded.get(r))
	t.learn(v)
	return v
}

func (t *trend) learn(v int64) {
	delta := v - t.last
	stays, goes := bits.Len64(zigzag(delta)), bits.Len64(zigzag(delta-t.delta))
	t.stays += uint16(stays) - t.stays>>meanShift
	t.goes += uint16(goes) - t.goes>>meanShift
	t.last, t.delta, t.goesExpected = v, delta, t.goes < t.stays
}

// clock expects the next time: as far from the last as that was from the one before, or where readings at an even pace
// would be, each of which comes a little late; whichever was nearer of late. Of readings each second, up to 50 us late,
// the first takes 14 bits a sample and the second 10.
type clock struct {
	at         tag.Time
	step       int64 // between the last two times
	even, pace int64 // the smoothed time and step, in 1/16 ticks
	steps      uint16
	evens      uint16
	isEven     bool
	coded      residual
}

func (c *clock) expected() tag.Time {
	if c.isEven {
		return tag.Time((c.even + c.pace) >> 4)
	}
	return c.at + tag.Time(c.step)
}

func (c *clock) put(w *bitWriter, at tag.Time) {
	c.coded.put(w, zigzag(int64(at-c.expected())))
	c.learn(at)
}

func (c *clock) get(r *bitReader) tag.Time {
	at := c.expected() + tag.Time(unzigzag(c.coded.get(r)))
	c.learn(at)
	return at
}

func (c *clock) learn(at tag.Time) {
	step := int64(at - c.at)
	late := int64(at)<<4 - c.even - c.pace
	c.steps += uint16(bits.Len64(zigzag(step-c.step))) - c.steps>>meanShift
	c.evens += uint16(bits.Len64(zigzag(late>>4))) - c.evens>>meanShift
	if far := step << 2; late > far || late < -far {
		c.even, c.pace = int64(at)<<4, step<<4
	} else {
		c.even, c.pace = c.even+c.pace+late>>3, c.pace+late>>7
	}
	c.at, c.step, c.isEven = at, step, c.evens < c.steps
}

// model is what writer and reader of a chunk expect of the next sample. The zero model begins a run with reset.
type model struct {
	form   form
	status tag.Status
	time   clock
	value  trend // of the number as a whole one
	floats floatMode
	blob   []byte // the last text, bytes or array, encoded
	blobs  residual
}

// form is what a value is of.
type form struct {
	kind  tag.Kind
	array bool
}

// number reports whether values of the form are written as numbers.
func (f form) number() bool {
	return !f.array && f.kind != tag.Null && f.kind != tag.String && f.kind != tag.ByteString && f.kind != tag.Raw
}

// floatMode is how floats become whole numbers: as the decimal number that they mean, where all their digits fit, or as
// their bits, in the order of the floats.
type floatMode struct {
	decimals int8 // 0: by their bits; else 1 + places behind the point
	tries    uint8
	last     float64 // of Float32 too
}

const (
	maxPlaces  = 6
	tryEvery   = 32 // numbers by their bits, until decimals are tried again
	maxDecimal = 1 << 53
)

var powers = [maxPlaces + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6}

// decimal is v as a whole number of places behind the point, and whether that gives v again.
func decimal(k tag.Kind, v float64, places int8) (int64, bool) {
	m := math.Round(v * powers[places])
	if !(m > -maxDecimal && m < maxDecimal) {
		return 0, false
	}
	back := m / powers[places]
	if k == tag.Float32 {
		back = float64(float32(back))
	}
	return int64(m), math.Float64bits(back) == math.Float64bits(v) && math.Float64bits(m) != 1<<63 // minus zero is no whole number
}

// ordered maps the bits of a float to a number that grows with it; it is its own inverse.
func ordered(k tag.Kind, b uint64) int64 {
	if k == tag.Float32 {
		v := int32(uint32(b))
		return int64(v ^ (v >> 31 & math.MaxInt32))
	}
	v := int64(b)
	return v ^ (v >> 63 & math.MaxInt64)
}

func floatOf(k tag.Kind, b uint64) float64 {
	if k == tag.Float32 {
		return float64(math.Float32frombits(uint32(b)))
	}
	return math.Float64frombits(b)
}

// choose finds the mode for v: the present one where it serves.
func (f *floatMode) choose(k tag.Kind, v float64) int8 {
	if f.decimals > 0 {
		for p := f.decimals - 1; p <= maxPlaces; p++ {
			if _, ok := decimal(k, v, p); ok {
				return p + 1
			}
		}
		return 0
	}
	if f.tries > 0 {
		return 0
	}
	for p := int8(0); p <= maxPlaces; p++ {
		if _, ok := decimal(k, v, p); ok {
			return p + 1
		}
	}
	return 0
}

// enter goes over to a mode: the trend goes on from the last value as the mode has it.
func (m *model) enter(k tag.Kind, decimals int8) {
	m.floats.decimals, m.floats.tries = decimals, 0
	coded := m.value.coded
	m.value = trend{}
	if decimals > 0 {
		m.value.last, _ = decimal(k, m.floats.last, decimals-1)
		return
	}
	m.value.coded = coded
	b := math.Float64bits(m.floats.last)
	if k == tag.Float32 {
		b = uint64(math.Float32bits(float32(m.floats.last)))
	}
	m.value.last = ordered(k, b)
}

func (m *model) putFloat(w *bitWriter, k tag.Kind, b uint64) {
	v := floatOf(k, b)
	mode := m.floats.choose(k, v)
	if mode == m.floats.decimals {
		w.write(0, 1)
	} else {
		w.write(1|uint64(mode)<<1, 5)
		m.enter(k, mode)
	}
	if mode > 0 {
		n, _ := decimal(k, v, mode-1)
		m.value.put(w, n)
	} else {
		m.value.put(w, ordered(k, b))
		m.floats.tries = (m.floats.tries + 1) % tryEvery
	}
	m.floats.last = v
}

func (m *model) getFloat(r *bitReader, k tag.Kind) (uint64, error) {
	if r.read(1) == 1 {
		mode := int8(r.read(4))
		if mode > maxPlaces+1 {
			return 0, errDamaged
		}
		m.enter(k, mode)
	}
	n := m.value.get(r)
	var b uint64
	if p := m.floats.decimals; p > 0 {
		v := float64(n) / powers[p-1]
		if b = math.Float64bits(v); k == tag.Float32 {
			b = uint64(math.Float32bits(float32(v)))
		}
	} else {
		if b = uint64(n); k == tag.Float32 {
			b = uint64(uint32(ordered(k, uint64(uint32(n)))))
		} else {
			b = uint64(ordered(k, b))
		}
		m.floats.tries = (m.floats.tries + 1) % tryEvery
	}
	m.floats.last = floatOf(k, b)
	return b, nil
}

// put appends a sample.
func (m *model) put(w *bitWriter, s *tag.Sample) {
	if f := (form{s.Value.Kind(), s.Value.IsArray()}); f == m.form && s.Status == m.status {
		w.write(0, 1)
	} else {
		array := uint64(0)
		if f.array {
			array = 1
		}
		w.write(1, 1)
		w.write(uint64(s.Status)|uint64(f.kind)<<32|array<<40, 41)
		m.change(f, s.Status)
	}
	m.time.put(w, s.At)
	switch k := m.form.kind; {
	case !m.form.number():
		if k != tag.Null {
			m.putBlob(w, s.Value)
		}
	case k == tag.Float32 || k == tag.Float64:
		m.putFloat(w, k, s.Value.Bits())
	default:
		m.value.put(w, int64(s.Value.Bits()))
	}
}

// change goes over to another status or form. A null between two numbers of a kind, which an outage is, leaves what is
// known of the numbers.
func (m *model) change(f form, status tag.Status) {
	m.status = status
	m.form = f
}

// get reads a sample; it sets all but its Ref.
func (m *model) get(r *bitReader, s *tag.Sample) error {
	if r.read(1) == 1 {
		x := r.read(41)
		f := form{tag.Kind(x >> 32), x>>40 == 1}
		if !known(f) {
			return errDamaged
		}
		m.change(f, tag.Status(x))
	}
	s.Status, s.At = m.status, m.time.get(r)
	switch k := m.form.kind; {
	case !m.form.number():
		s.Value = tag.Value{}
		if k != tag.Null {
			v, err := m.getBlob(r)
			if err != nil {
				return err
			}
			s.Value = v
		}
	case k == tag.Float32 || k == tag.Float64:
		b, err := m.getFloat(r, k)
		if err != nil {
			return err
		}
		s.Value = tag.FromBits(k, b)
	default:
		s.Value = tag.FromBits(k, uint64(m.value.get(r)))
	}
	if r.short {
		return errDamaged
	}
	return nil
}

// known reports whether there are values of a form.
func known(f form) bool {
	switch k := f.kind; {
	case k == tag.Null, k == tag.Raw:
		return !f.array
	case k <= tag.DateTime, k == tag.ByteString, k == tag.StatusCode:
		return true
	}
	return false
}
