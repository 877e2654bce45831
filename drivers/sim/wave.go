package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"edged/drivers/tag"
)

// Wave is how a value moves by itself. It is a function of the time since the plant was made, and of the number of the
// value within a repeated point.
type Wave struct {
	// Kind is counter (Min + elapsed/Every * Step, and value i of a repeated point is i ahead; it wraps as its type
	// does, or from Max to Min when Max is above Min), sine, square (Max in the first half of each Period) or random
	// (another value from Min to Max each Every). Value i of n is i/n of a period behind in a sine or square.
	Kind   string        `yaml:"kind"`
	Every  time.Duration `yaml:"every"`  // of counter and random; 0 is 100 ms
	Step   float64       `yaml:"step"`   // of a counter; 0 is 1
	Period time.Duration `yaml:"period"` // of sine and square; 0 is 10 s
	Min    float64       `yaml:"min"`
	Max    float64       `yaml:"max"` // 0 with Min 0 is 100 (of a bool: 1), but for a counter, which then has no end

	// Of a process: a second-order system that follows a set point. It begins at Min, and tends to Gain times the set point
	// plus Offset, with a natural period of Period.
	Of      string  `yaml:"of"`   // address of the set point: holding:10
	Gain    float64 `yaml:"gain"` // 0 is 1
	Offset  float64 `yaml:"offset"`
	Damping float64 `yaml:"damping"` // below 1 it overshoots; 0 is 0.7
}

type waveKind uint8

const (
	still waveKind = iota
	counter
	sine
	square
	random
	following
)

var waveNames = []string{counter: "counter", sine: "sine", square: "square", random: "random", following: "process"}

// wave is a Wave made ready to be computed.
type wave struct {
	kind          waveKind
	every, period time.Duration
	step          int64
	low, high     float64
	process       *process // of kind following
	first, span   int64    // of a counter: its first value, and after how many values it is there again (0: never)
}

var kindLimits = map[tag.Kind][2]float64{
	tag.Bool: {0, 1}, tag.Int16: {math.MinInt16, math.MaxInt16}, tag.Uint16: {0, math.MaxUint16},
	tag.Int32: {math.MinInt32, math.MaxInt32}, tag.Uint32: {0, math.MaxUint32},
	tag.Int64: {math.MinInt64, math.MaxInt64}, tag.Uint64: {0, math.MaxUint64},
	tag.Float32: {-math.MaxFloat32, math.MaxFloat32}, tag.Float64: {-math.MaxFloat64, math.MaxFloat64},
}

func newWave(c *Wave, kind tag.Kind) (wave, error) {
	i := slices.Index(waveNames, c.Kind)
	if i < int(counter) {
		return wave{}, fmt.Errorf("wave %q: give counter, sine, square, random or process", c.Kind)
	}
	limits, number := kindLimits[kind]
	if !number {
		return wave{}, fmt.Errorf("text has no wave: give it a value")
	}
	w := wave{kind: waveKind(i), every: c.Every, period: c.Period, low: c.Min, high: c.Max, step: int64(c.Step)}
	if w.kind == following {
		var err error
		w.process, err = newProcess(c)
		return w, err
	}
	if w.every == 0 {
		w.every = 100 * time.Millisecond
	}
	if w.period == 0 {
		w.period = 10 * time.Second
	}
	if w.step == 0 {
		w.step = 1
	}
	if w.low == 0 && w.high == 0 && w.kind != counter {
		w.high = min(100, limits[1])
	}
	switch {
	case w.every < 0 || w.period < 0:
		return wave{}, fmt.Errorf("every %v, period %v: give times above 0", c.Every, c.Period)
	case c.Step != math.Trunc(c.Step):
		return wave{}, fmt.Errorf("step %v: a counter steps by whole numbers", c.Step)
	case w.low < limits[0] || w.low > limits[1] || w.high > limits[1] || w.high < limits[0]:
		return wave{}, fmt.Errorf("min %v, max %v: %v holds %v to %v", w.low, w.high, kind, limits[0], limits[1])
	case w.high < w.low && (w.kind != counter || w.high != 0):
		return wave{}, fmt.Errorf("min %v is above max %v", w.low, w.high)
	}
	w.first = int64(w.low)
	if w.kind == counter && w.high > w.low {
		w.span = int64(w.high-w.low) + 1
	}
	return w, nil
}

// steps is how often d has gone by.
func (w *wave) steps(elapsed time.Duration) int64 { return int64(elapsed / w.every) }

// whole is a counter's value.
func (w *wave) whole(elapsed time.Duration, i int) int64 {
	n := w.steps(elapsed)*w.step + int64(i)
	if w.span > 0 {
		if n %= w.span; n < 0 {
			n += w.span
		}
	}
	return w.first + n
}

// float is the value of every other wave; i of n is the value's place in a repeated point.
func (w *wave) float(elapsed time.Duration, i, n int) float64 {
	switch w.kind {
	case sine:
		return (w.low+w.high)/2 + (w.high-w.low)/2*math.Sin(2*math.Pi*w.phase(elapsed, i, n))
	case square:
		if w.phase(elapsed, i, n) < 0.5 {
			return w.high
		}
		return w.low
	default:
		const unit = 1.0 / (1 << 53)
		return w.low + (w.high-w.low)*float64(scatter(uint64(w.steps(elapsed))<<16+uint64(i))>>11)*unit
	}
}

// phase is how far the period has gone, from 0 to 1.
func (w *wave) phase(elapsed time.Duration, i, n int) float64 {
	p := float64(elapsed%w.period)/float64(w.period) - float64(i)/float64(n)
	if p < 0 {
		p++
	}
	return p
}

// bits is the value at a time as the bits of kind.
func (w *wave) bits(kind tag.Kind, elapsed time.Duration, i, n int) uint64 {
	if w.kind == counter {
		v := w.whole(elapsed, i)
		switch kind {
		case tag.Float32:
			return uint64(math.Float32bits(float32(v)))
		case tag.Float64:
			return math.Float64bits(float64(v))
		case tag.Bool:
			return uint64(v & 1)
		}
		return uint64(v)
	}
	if w.kind == following {
		y, _ := w.process.at(elapsed)
		return floatBits(kind, clamp(kind, y))
	}
	return floatBits(kind, w.float(elapsed, i, n))
}

// floatBits rounds v to kind and gives its bits.
func floatBits(kind tag.Kind, v float64) uint64 {
	switch kind {
	case tag.Float32:
		return uint64(math.Float32bits(float32(v)))
	case tag.Float64:
		return math.Float64bits(v)
	case tag.Uint64:
		return uint64(math.Round(v))
	}
	return uint64(int64(math.Round(v)))
}

// scatter is the finalizer of splitmix64: neighbouring numbers give unrelated ones, the same in each run.
func scatter(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
