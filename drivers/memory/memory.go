// Package memory is the driver of tags that live in the gateway: set points, counters, load tests.
// It hides how a value is kept, and how one moves by itself.
package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"edged/drivers"
	"edged/drivers/tag"
)

// Tag is one tag as the site file describes it.
type Tag struct {
	Ref       tag.Ref // set before New; the checks do without it
	Name      string
	Type      string // "float64", "string", "uint16[4]"; default float64
	Value     any    // initial value: bool, a whole number, a float, string or []any of them; nil is zero
	Access    tag.Access
	HasRange  bool
	Low, High float64 // limits of a write
	Wave      *Wave
	Retain    bool // a Good write is one that Device.Keep's function has kept
}

// Wave is how a tag moves by itself.
type Wave struct {
	Kind   string        // counter, sine, square, random, text
	Every  time.Duration // between two values; 0: 1 s
	Phase  time.Duration // how much later than those of a wave without it; less than Every
	Period time.Duration // of sine and square; 0: 60 s
	Min    float64
	Max    float64 // of sine, square and random; a counter begins again at Min after it, and at its type's end where 0
}

// FieldError is what is wrong with one key of the site file.
type FieldError struct {
	Field string // the key: "type", "value", "range", "wave.kind", ...
	Msg   string // what is wrong and the way out
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Msg }

// slot is one tag at work.
type slot struct {
	*rules            // shared by tags that are alike
	sample tag.Sample // what it holds
}

// rules are what a tag may hold. They are read only once they are made.
type rules struct {
	typ       tag.Type
	access    tag.Access
	hasRange  bool
	low, high float64
	retain    bool
}

// Device is a row of memory tags. It implements drivers.Immediate, and is safe for concurrent use.
type Device struct {
	tags  []tag.Ref
	first tag.Ref // of index
	index []int32 // slot+1 by Ref-first; 0: not ours
	waves []group
	keep  func(context.Context) error // nil: nothing is retained

	mu    sync.Mutex // guards the fields below, and is held while publishing: readings leave in the order in which they were made
	slots []slot
	batch []tag.Sample
	start time.Time // of the waves' grids; zero before Run
	heir  *Device   // what took its place: it answers for this one
}

var (
	_ drivers.Immediate = (*Device)(nil)
	_ drivers.Successor = (*Device)(nil)
	_ drivers.Keeper    = (*Device)(nil)
)

// New makes a device.
func New(name string, tags []Tag) (*Device, error) {
	d := &Device{}
	if len(tags) == 0 {
		return d, nil
	}
	low := slices.MinFunc(tags, func(a, b Tag) int { return int(a.Ref) - int(b.Ref) }).Ref
	high := slices.MaxFunc(tags, func(a, b Tag) int { return int(a.Ref) - int(b.Ref) }).Ref
	d.first, d.index = low, make([]int32, high-low+1)
	d.slots, d.tags = make([]slot, 0, len(tags)), make([]tag.Ref, 0, len(tags))
	shared := map[rules]*rules{}
	for i := range tags {
		t := &tags[i]
		s, errs := t.slot()
		if len(errs) > 0 {
			return nil, fmt.Errorf("device %s: tag %s: %w", name, t.Name, errs[0])
		}
		if d.index[t.Ref-low] != 0 {
			return nil, fmt.Errorf("device %s: tag %s has the slot of another", name, t.Name)
		}
		if same := shared[*s.rules]; same != nil {
			s.rules = same
		} else {
			shared[*s.rules] = s.rules
		}
		d.slots = append(d.slots, *s)
		d.tags = append(d.tags, t.Ref)
		d.index[t.Ref-low] = int32(len(d.slots))
		d.addWave(t, len(d.slots)-1)
	}
	return d, nil
}

// Tags implements drivers.Immediate.
func (d *Device) Tags() []tag.Ref { return d.tags }

// slot finds a tag's slot, or nil.
func (d *Device) slot(ref tag.Ref) *slot {
	if ref < d.first || int(ref-d.first) >= len(d.index) {
		return nil
	}
	i := d.index[ref-d.first]
	if i == 0 {
		return nil
	}
	return &d.slots[i-1]
}

// Restore sets what a tag holds before Run, for a value that was kept over a restart. It reports whether the value is
// of the tag's type.
func (d *Device) Restore(s tag.Sample) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.slot(s.Ref)
	if at == nil || at.check(s.Value, false) != tag.Good {
		return false
	}
	at.sample = s
	return true
}

// KeepBy tells what keeps the values of retained tags over a restart: it returns when what was published is kept. It is
// called once, before Run.
func (d *Device) KeepBy(keep func(context.Context) error) { d.keep = keep }

// Keep implements drivers.Keeper. A value that could not be kept is in the tag and may be gone after a restart: its write
// is answered with BadResourceUnavailable.
func (d *Device) Keep(ctx context.Context, cmds []tag.Command) {
	kept := func(c *tag.Command) bool {
		s := d.slot(c.Ref)
		return s != nil && s.retain && c.Status == tag.Good
	}
	if !slices.ContainsFunc(cmds, func(c tag.Command) bool { return kept(&c) }) {
		return
	}
	if d.keep != nil && d.keep(ctx) == nil {
		return
	}
	for i := range cmds {
		if kept(&cmds[i]) {
			cmds[i].Status = tag.BadResourceUnavailable
		}
	}
}

// Succeed implements drivers.Successor: tags that were there before with the same type hold what they held, unless
// their range forbids it now, and waves go on where they were. From then on old has d answer for it.
func (d *Device) Succeed(old drivers.Immediate) {
	o, ok := old.(*Device)
	if !ok || o == d {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start, o.heir = o.start, d
	for i := range d.slots {
		s := &d.slots[i]
		was := o.slot(s.sample.Ref)
		if was == nil || was.typ != s.typ {
			continue
		}
		if v := was.sample.Value; v.IsNull() || s.check(v, false) == tag.Good {
			s.sample = was.sample
		}
	}
}

// lock locks the device that answers, and returns it.
func (d *Device) lock() *Device {
	for d.mu.Lock(); d.heir != nil; d.mu.Lock() {
		next := d.heir
		d.mu.Unlock()
		d = next
	}
	return d
}

// Execute implements drivers.Immediate. A command's status and SourceTimestamp are stored with its value.
func (d *Device) Execute(cmds []tag.Command, sink tag.Sink) {
	now := tag.Now()
	d = d.lock()
	defer d.mu.Unlock()
	batch, n := slices.Grow(d.batch[:0], len(cmds))[:len(cmds)], 0
	for i := range cmds {
		c := &cmds[i]
		s := d.slot(c.Ref)
		if s == nil {
			c.Status = tag.BadNodeIDUnknown
			continue
		}
		if c.Status = s.store(c, now); c.Status == tag.Good {
			// Part by part, as it was written: to be read whole it would have to arrive in memory first.
			from, to := &s.sample, &batch[n]
			to.Ref, to.Status, to.Value, to.At = from.Ref, from.Status, from.Value, from.At
			n++
		}
	}
	d.batch = batch[:n]
	if n > 0 {
		sink.Publish(d.batch)
	}
	d.forget()
}

// maxBatch is how many samples the device keeps room for between two calls.
const maxBatch = 4096

// forget drops the values that the batch points to. Call it with mu held.
func (d *Device) forget() {
	clear(d.batch)
	if cap(d.batch) > maxBatch {
		d.batch = nil
	}
}

// check tells whether a value may be stored, or is part of one that may be.
func (s *slot) check(v tag.Value, part bool) tag.Status {
	if v.Kind() != s.typ.Kind || v.IsArray() != (s.typ.Len > 0) {
		return tag.BadTypeMismatch
	}
	if s.typ.Len > 0 {
		if !part && v.Len() != s.typ.Len {
			return tag.BadTypeMismatch
		}
		return tag.Good
	}
	if s.typ.Size > 0 && v.Len() > s.typ.Size {
		return tag.BadOutOfRange
	}
	if s.hasRange {
		if x, ok := v.Float(); ok && !(x >= s.low && x <= s.high) {
			return tag.BadOutOfRange
		}
	}
	return tag.Good
}

// store puts a command's value into the slot.
func (s *slot) store(c *tag.Command, now tag.Time) tag.Status {
	if s.access&tag.Writable == 0 {
		return tag.BadNotWritable
	}
	v := c.Value
	if c.Edit != nil {
		var status tag.Status
		if v, status = c.Edit(s.sample.Value); status != tag.Good {
			return status
		}
	}
	if v.IsNull() && c.Put.IsBad() {
		s.put(v, c, now)
		return tag.Good
	}
	if status := s.check(v, c.Part); status != tag.Good {
		return status
	}
	if c.Part {
		if s.typ.Len == 0 {
			return tag.BadWriteNotSupported
		}
		var ok bool
		if v, ok = tag.Splice(s.sample.Value, v, c.From); !ok {
			return tag.BadIndexRangeNoData
		}
	}
	s.put(v, c, now)
	return tag.Good
}

func (s *slot) put(v tag.Value, c *tag.Command, now tag.Time) {
	s.sample.Value, s.sample.Status, s.sample.At = v, c.Put, now
	if !c.At.IsZero() {
		s.sample.At = c.At
	}
}

// Refresh implements drivers.Immediate.
func (d *Device) Refresh(refs []tag.Ref, sink tag.Sink) {
	d = d.lock()
	defer d.mu.Unlock()
	d.batch = d.batch[:0]
	for _, ref := range refs {
		if s := d.slot(ref); s != nil {
			d.batch = append(d.batch, s.sample)
		}
	}
	sink.Publish(d.batch)
	d.forget()
}
