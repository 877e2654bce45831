package probe

import (
	"context"
	"fmt"
	"time"

	"edged/drivers"
	"edged/drivers/modbus"
)

// Device is what was learnt of one unit.
type Device struct {
	Unit     int
	Identity drivers.Identity
	Silent   Verdict // why there is no identity; Answered: there is one
	Tables   []*Table
	Looks    [][]Look // by table
	Guess    Guess
	Fields   []Field // values of registers, in the order of their addresses, then rows of bits
	Median   time.Duration
	Longest  time.Duration
	Mutes    int
	Asked    int
}

const (
	// Values are looked at so often. What moves smoothly is told from noise by where two looks point to: with a third of a
	// second between looks better than with seconds.
	looks = 5
	// So many registers or bits of one table are looked at.
	mostShown = 8000
)

// Steps is what Learn is to do.
type Steps struct {
	Range Range
	Watch time.Duration // between the first and the last look at the values; 0: one look
	// Estimate hears how much a search will ask, before it begins: requests, and how long they take.
	Estimate func(stride, requests int, d time.Duration)
	Tell     func(text string, t *Table)
}

// Learn looks at everything that a unit has. It returns what it knows with the error, however early that came.
func (u *Unit) Learn(ctx context.Context, s Steps) (*Device, error) {
	d := &Device{Unit: u.ID, Silent: Mute}
	err := u.learn(ctx, s, d)
	for _, t := range d.Tables {
		if len(t.Runs) > 0 && t.Good == 0 {
			t.Good = 1
		}
	}
	d.conclude()
	d.Median, d.Longest = u.Answer()
	d.Mutes, d.Asked = u.Mutes(), u.Asked()
	return d, err
}

func (u *Unit) learn(ctx context.Context, s Steps, d *Device) error {
	if err := u.Contact(ctx); err != nil {
		return err
	}
	median, _ := u.Answer()
	u.times = nil // the first answers of a connection take longer than those to come
	one := median + u.line.link.LineTime(modbus.Holding, 1)
	stride, n, took := s.Range.Stride(one)
	if s.Estimate != nil {
		s.Estimate(stride, n, took)
	}
	until := time.Now().Add(2 * s.Range.Budget)
	for _, t := range s.Range.Tables {
		found, err := u.Search(ctx, t, &s.Range, stride, until)
		d.Tables = append(d.Tables, found)
		d.Looks = append(d.Looks, nil)
		if s.Tell != nil {
			s.Tell(found.Text(), found)
		}
		if err != nil {
			return err
		}
	}
	times := looks
	if s.Watch <= 0 {
		times = 1
	}
	for i := range times {
		if i > 0 {
			u.line.cfg.Progress(fmt.Sprintf("unit %d: watching its values", u.ID))
			if err := pause(ctx, s.Watch/(looks-1)); err != nil {
				return err
			}
		}
		for j, t := range d.Tables {
			l, err := u.Watch(ctx, t.first(mostShown))
			d.Looks[j] = append(d.Looks[j], l)
			if err != nil {
				return err
			}
		}
	}
	u.line.cfg.Progress(fmt.Sprintf("unit %d: identification", u.ID))
	id, v, err := u.Identify(ctx)
	d.Identity, d.Silent = id, v
	return err
}

// first is the table with no more of its runs than hold n addresses.
func (t *Table) first(n int) *Table {
	out := *t
	out.Runs = nil
	for _, r := range t.Runs {
		if r.len() > n {
			r.end = r.start + n
		}
		if r.len() == 0 {
			break
		}
		out.Runs = append(out.Runs, r)
		n -= r.len()
	}
	return &out
}

// conclude makes fields of what was read.
func (d *Device) conclude() {
	var regs []Registers
	for i, t := range d.Tables {
		if !t.Table.Bits() && d.Looks[i] != nil {
			regs = append(regs, Registers{t.first(mostShown), d.Looks[i]})
		}
	}
	d.Guess, d.Fields = Orderly(regs)
	for i, t := range d.Tables {
		if !t.Table.Bits() {
			continue
		}
		for j, run := range t.first(mostShown).Runs {
			bits, times := series(d.Looks[i], j, run.len())
			for at := run.start; at < run.end && len(bits) > 0; at++ {
				f := Field{Table: t.Table, At: at, Width: 1, Count: 1, Kind: Bit}
				f.show(bits, times, run.start)
				f.Rate = 0
				d.Fields = append(d.Fields, f)
			}
		}
	}
}

// Text says in one line what a search has found.
func (t *Table) Text() string {
	if len(t.Runs) == 0 {
		return fmt.Sprintf("%s: nothing: %s", t.Table, t.why())
	}
	what, n := "registers", 0
	if t.Table.Bits() {
		what = "bits"
	}
	for _, r := range t.Runs {
		n += r.len()
	}
	text := fmt.Sprintf("%s: %d %s: %s", t.Table, n, what, spans(t.Runs))
	switch limit, known := t.Limit(); {
	case t.Bad > 0:
		text += fmt.Sprintf("; one read brings %d at most, %d are refused", limit, t.Bad)
	case known:
		text += fmt.Sprintf("; one read brings %d", limit)
	default:
		text += fmt.Sprintf("; one read brings %d, there is no longer run to try", limit)
	}
	if !t.Whole {
		text += fmt.Sprintf(" (looked at each %s address)", ordinal(t.Stride))
	}
	return text
}

func (t *Table) why() string {
	if t.Why == "" {
		return "the search was ended before it was done"
	}
	return t.Why
}

func ordinal(n int) string {
	switch n {
	case 1:
		return "" + "single"
	case 2:
		return "2nd"
	}
	return fmt.Sprintf("%dth", n)
}

// shownSpans is how many runs a line of text names.
const shownSpans = 12

func spans(all []span) string {
	text := ""
	for i, s := range all {
		switch {
		case i == shownSpans:
			return text + fmt.Sprintf(" and %d more", len(all)-i)
		case i > 0:
			text += ", "
		}
		text += s.bare()
	}
	return text
}

// bare is the span without its table.
func (s span) bare() string {
	if s.len() == 1 {
		return fmt.Sprint(s.start)
	}
	return fmt.Sprintf("%d-%d", s.start, s.end-1)
}

// leastTimeout is the shortest time-out that is advised: below it a pause of the device's own is an outage.
const leastTimeout = 100 * time.Millisecond

// Timeout is the time-out that the answers suggest: three times the longest.
func (d *Device) Timeout() time.Duration {
	return nice(max(leastTimeout, 3*d.Longest))
}

// nice is the next longer time with one or two digits.
func nice(d time.Duration) time.Duration {
	for unit := 10 * time.Millisecond; ; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 3, 5} {
			if d <= n*unit {
				return n * unit
			}
		}
	}
}

// mostMoving is how many moving values are told of one by one.
const mostMoving = 40

// Moving are values that differed between two looks, the first ones.
func (d *Device) Moving() []Field {
	var out []Field
	for _, f := range d.Fields {
		if f.Moves && len(out) < mostMoving {
			out = append(out, f)
		}
	}
	return out
}

// Values are what the registers and bits hold, with rows of like ones put together.
func (d *Device) Values() []Field { return rows(d.Fields) }

// Ranges are the runs of addresses, as a site file writes them.
func (t *Table) Ranges() []string {
	out := make([]string, len(t.Runs))
	for i, r := range t.Runs {
		out[i] = r.String()
	}
	return out
}
