package memory

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"edged/drivers/tag"
)

const (
	defaultEvery  = time.Second
	defaultPeriod = 60 * time.Second
	// minEvery keeps a wave from taking a core for itself.
	minEvery = time.Millisecond
)

// group is the waves of one step, on one grid.
type group struct {
	every, phase time.Duration
	waves        []wave
}

// after is the first moment of the grid that comes after one.
func (g *group) after(now time.Duration) time.Duration {
	return g.phase + ((now-g.phase)/g.every+1)*g.every
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// wave is one tag's wave.
type wave struct {
	slot int
	Wave
}

var waveKinds = map[string]bool{"counter": true, "sine": true, "square": true, "random": true, "text": true}

func (w *Wave) check(typ tag.Type) []*FieldError {
	var errs []*FieldError
	wrong := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{field, fmt.Sprintf(format, args...)})
	}
	switch {
	case !waveKinds[w.Kind]:
		wrong("kind", "%q is not one of counter, sine, square, random, text", w.Kind)
	case typ.Len > 0:
		wrong("kind", "an array does not move by itself: use scalars")
	case w.Kind == "text" && typ.Kind != tag.String:
		wrong("kind", "text is for the type string, and this is %s", typ)
	case w.Kind != "text" && !typ.Kind.Number() && typ.Kind != tag.Bool:
		wrong("kind", "%s is for numbers, and this is %s", w.Kind, typ)
	case w.Kind == "sine" && typ.Kind == tag.Bool:
		wrong("kind", "a bool has no sine: use square")
	}
	if w.Every != 0 && w.Every < minEvery {
		wrong("every", "%v is shorter than %v", w.Every, minEvery)
	}
	if every := orDefault(w.Every, defaultEvery); w.Phase < 0 || w.Phase >= every {
		wrong("phase", "%v: give less than every, which is %v", w.Phase, every)
	}
	if w.Period < 0 {
		wrong("period", "%v is negative", w.Period)
	}
	if w.Max < w.Min && !(w.Kind == "counter" && w.Max == 0) {
		wrong("max", "%v is below min %v", w.Max, w.Min)
	}
	return errs
}

func (d *Device) addWave(t *Tag, slot int) {
	if t.Wave == nil {
		return
	}
	w := wave{slot, *t.Wave}
	w.Every, w.Period = orDefault(w.Every, defaultEvery), orDefault(w.Period, defaultPeriod)
	for i := range d.waves {
		if d.waves[i].every == w.Every && d.waves[i].phase == w.Phase {
			d.waves[i].waves = append(d.waves[i].waves, w)
			return
		}
	}
	d.waves = append(d.waves, group{w.Every, w.Phase, []wave{w}})
}

// Run implements drivers.Immediate. Each step has a grid of its own, counted from the start, or from that of the device
// before: a step that comes late moves none of the later ones, and one that was missed is left out.
func (d *Device) Run(ctx context.Context, sink tag.Sink) {
	start := d.begin(sink)
	next := make([]time.Duration, len(d.waves))
	for i := range next {
		next[i] = d.waves[i].after(time.Since(start))
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		first := time.Hour
		now := time.Since(start)
		for i, at := range next {
			if at <= now {
				d.move(&d.waves[i], at, sink)
				next[i] = d.waves[i].after(now)
			}
			first = min(first, next[i]-now)
		}
		timer.Reset(first)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// begin publishes what all tags hold, and returns the start of the grids.
func (d *Device) begin(sink tag.Sink) time.Time {
	now := tag.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.start.IsZero() {
		d.start = time.Now()
	}
	for some := range slices.Chunk(d.slots, maxBatch) {
		d.batch = d.batch[:0]
		for i := range some {
			if s := &some[i].sample; s.At.IsZero() {
				s.At = now
			}
			d.batch = append(d.batch, some[i].sample)
		}
		sink.Publish(d.batch)
	}
	d.forget()
	return d.start
}

// move makes one step of a group; at is its moment since the start.
func (d *Device) move(g *group, at time.Duration, sink tag.Sink) {
	now := tag.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.batch = d.batch[:0]
	for i := range g.waves {
		w := &g.waves[i]
		s := &d.slots[w.slot]
		s.sample.Value = w.value(s.typ.Kind, s.sample.Value, at)
		s.sample.Status, s.sample.At = tag.Good, now
		d.batch = append(d.batch, s.sample)
	}
	sink.Publish(d.batch)
	d.forget()
}

// value is what the tag becomes. A counter goes on from what the tag holds, so that a client can set it.
func (w *wave) value(k tag.Kind, was tag.Value, at time.Duration) tag.Value {
	switch w.Kind {
	case "counter":
		return w.count(k, was)
	case "text":
		return tag.Of(strconv.FormatInt(int64(at/w.Every), 10))
	case "random":
		if k == tag.Bool {
			return tag.Of(rand.N(2) == 1)
		}
		return fromFloat(k, w.Min+rand.Float64()*(w.Max-w.Min))
	}
	phase := float64(at%w.Period) / float64(w.Period)
	if w.Kind == "square" {
		high := phase < 0.5
		if k == tag.Bool {
			return tag.Of(high)
		}
		if high {
			return fromFloat(k, w.Max)
		}
		return fromFloat(k, w.Min)
	}
	return fromFloat(k, (w.Min+w.Max)/2+(w.Max-w.Min)/2*math.Sin(2*math.Pi*phase))
}

func (w *wave) count(k tag.Kind, was tag.Value) tag.Value {
	if k == tag.Bool {
		return tag.Of(!was.Bool())
	}
	v, _ := was.Float()
	if w.Max > w.Min && v >= w.Max {
		return fromFloat(k, w.Min)
	}
	if k == tag.Float32 || k == tag.Float64 {
		return fromFloat(k, v+1)
	}
	next := was.Bits() + 1
	if r := wholeRange[k]; k != tag.Uint64 && k != tag.Int64 && int64(next) > r[1] {
		next = uint64(r[0])
	}
	return tag.FromBits(k, next)
}
