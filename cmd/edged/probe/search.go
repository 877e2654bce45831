package probe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"edged/drivers/modbus"
)

// span are addresses of a table, end is the first beyond.
type span struct {
	table      modbus.Table
	start, end int
}

// String is the span as the site file writes a hole.
func (s span) String() string {
	if s.end == s.start+1 {
		return fmt.Sprintf("%s:%d", s.table, s.start)
	}
	return fmt.Sprintf("%s:%d-%d", s.table, s.start, s.end-1)
}

func (s span) len() int { return s.end - s.start }

const addresses = 1 << 16

// Range is where a search looks at every address.
type Range struct {
	First, Last int
	Tables      []modbus.Table
	Budget      time.Duration // for all tables
}

// AllTables are the four, those first in which most devices have their values.
var AllTables = []modbus.Table{modbus.Holding, modbus.Input, modbus.Coils, modbus.Discrete}

// landmarks are addresses where tables often begin: round numbers, decimal and binary, with the one after, since many a
// manual counts from one; and SunSpec's 40000.
var landmarks = func() []int {
	var out []int
	for n := 100; n < 1000; n += 100 {
		out = append(out, n, n+1)
	}
	for n := 1000; n < addresses; n += 1000 {
		out = append(out, n, n+1)
	}
	for n := 256; n < addresses; n *= 2 {
		out = append(out, n)
	}
	for n := 4096; n < addresses; n += 4096 {
		out = append(out, n)
	}
	slices.Sort(out)
	return slices.Compact(out)
}()

// overrun is how far beyond its range a run of addresses is followed.
const overrun = 2000

// Table is what a search has found of one table.
type Table struct {
	Table  modbus.Table
	Runs   []span
	Why    string // of an empty table: why
	Good   int    // the largest read that was answered
	Bad    int    // the smallest that was refused though each of its addresses can be read; 0: none
	Whole  bool   // every address of the range was looked at
	Stride int    // distance of the addresses that were looked at

	state []byte // by address: unknown, there, missing
}

const (
	unknown byte = iota
	there
	missing
)

// Limit is the largest read that the device answers, and whether it is known that more is refused.
func (t *Table) Limit() (n int, known bool) { return t.Good, t.Bad > 0 || t.Good == most(t.Table) }

// most is what one read brings (Application Protocol, 6.1 to 6.4).
func most(t modbus.Table) int {
	if t.Bits() {
		return 2000
	}
	return 125
}

// Contact finds out whether the unit answers at all, and which tables it has.
func (u *Unit) Contact(ctx context.Context) error {
	last := Mute
	for _, t := range AllTables {
		u.line.cfg.Progress(fmt.Sprintf("unit %d: first contact", u.ID))
		_, v, code, err := u.read(ctx, t, 0, 1)
		switch {
		case err != nil:
			return err
		case code == noPath || code == noTarget:
			return fmt.Errorf("unit %d: the gateway at %s does not reach it (exception %d): check its number and its line; --scan lists the units that answer", u.ID, u.line.cfg.Address, code)
		case u.alive: // twice more, for a time of answers that is no chance
			for range 2 {
				if _, _, _, err := u.read(ctx, t, 0, 1); err != nil {
					return err
				}
			}
			return nil
		}
		if v != Mute {
			last = v
		}
	}
	switch {
	case last == Garbled:
		return fmt.Errorf("unit %d at %s: what comes is no answer: check speed, parity and wiring; --scan tries the settings of a serial line", u.ID, u.line.cfg.Address)
	case last == Broken:
		return fmt.Errorf("unit %d at %s: the connection ends at each request: is this a Modbus device, and does it take one more client?", u.ID, u.line.cfg.Address)
	}
	return fmt.Errorf("unit %d at %s does not answer within %v: check its number, speed, parity and wiring; --scan lists the units that answer, --timeout waits longer",
		u.ID, u.line.cfg.Address, u.line.cfg.Timeout)
}

// plan is what a search of one table will look at.
func (r *Range) plan(stride int) []int {
	var out []int
	for at := r.First; at <= r.Last; at += stride {
		out = append(out, at)
	}
	for _, at := range landmarks {
		if at < r.First || at > r.Last {
			out = append(out, at)
		}
	}
	return out
}

// Stride is the smallest distance of addresses, of the powers of two, with which a search of so many tables keeps its
// budget; n are the requests that it takes at most, and d the time.
func (r *Range) Stride(answer time.Duration) (stride, n int, d time.Duration) {
	for stride = 1; ; stride *= 2 {
		n = len(r.Tables) * len(r.plan(stride))
		d = time.Duration(n) * answer
		if d <= r.Budget || stride > r.Last-r.First {
			return stride, n, d
		}
	}
}

// search is the search of one table.
type search struct {
	*Table
	unit  *Unit
	until time.Time
	end   int // of the range
}

// Search finds which addresses of a table exist. What was found before an error is returned with it.
func (u *Unit) Search(ctx context.Context, t modbus.Table, r *Range, stride int, until time.Time) (*Table, error) {
	s := &search{Table: &Table{Table: t, Stride: stride, state: make([]byte, addresses)}, unit: u, until: until, end: r.Last + 1}
	err := s.run(ctx, r.plan(stride))
	s.collect()
	if err == nil && len(s.Runs) > 0 {
		err = s.limit(ctx)
	}
	return s.Table, err
}

func (s *search) run(ctx context.Context, plan []int) error {
	found := 0
	for i, at := range plan {
		if s.state[at] != unknown {
			continue
		}
		if time.Now().After(s.until) {
			return nil
		}
		s.unit.line.cfg.Progress(fmt.Sprintf("unit %d: %s:%d, %d of %d, %d found", s.unit.ID, s.Table.Table, at, i+1, len(plan), found))
		ok, code, err := s.try(ctx, at, 1)
		if err != nil {
			return err
		}
		if !ok {
			s.state[at] = missing
			if i == 0 && code == illegalFunction {
				s.Why, s.Whole = "the device does not know its function (exception 1)", true
				return nil
			}
			continue
		}
		s.mark(at, 1)
		if err := s.extend(ctx, at+1, +1, min(addresses, max(s.end, at+overrun))); err != nil {
			return err
		}
		if err := s.extend(ctx, at, -1, 0); err != nil {
			return err
		}
		found = 0
		for _, st := range s.state {
			if st == there {
				found++
			}
		}
	}
	s.Whole = s.Stride == 1
	if found == 0 {
		s.Why = "no address that was looked at can be read"
	}
	return nil
}

// try reads a block. A unit that stays silent is asked for something that it has answered: if it answers that, the block
// does not exist.
func (s *search) try(ctx context.Context, start, count int) (ok bool, code byte, err error) {
	for again := false; ; again = true {
		_, v, code, err := s.unit.read(ctx, s.Table.Table, start, count)
		switch {
		case err != nil:
			return false, 0, err
		case v == Answered:
			s.Good = max(s.Good, count)
			return true, 0, nil
		case code == noPath, code == noTarget:
			return false, 0, fmt.Errorf("unit %d is gone: the gateway answers exception %d", s.unit.ID, code)
		case v == Refused:
			return false, code, nil
		}
		if err := s.still(ctx, v); err != nil || again || s.unit.mutes > habit {
			return false, 0, err
		}
	}
}

// still reports as an error that the unit answers nothing more.
func (s *search) still(ctx context.Context, v Verdict) error {
	u := s.unit
	u.mutes++
	if u.known.len() == 0 {
		return nil
	}
	_, w, _, err := u.read(ctx, u.known.table, u.known.start, u.known.len())
	if err == nil && w != Answered {
		err = fmt.Errorf("unit %d has stopped answering (%v), even for %v, which it had answered", u.ID, v, u.known)
	}
	return err
}

func (s *search) mark(start, count int) {
	for at := start; at < start+count; at++ {
		s.state[at] = there
	}
}

// extend follows a run from edge on, up or down, to bound at most: with reads that double as long as they are answered,
// and halve when one is not, until it is known which address is missing.
func (s *search) extend(ctx context.Context, edge, way, bound int) error {
	step := 1
	var failed span // a block that was refused; when all of it was read by parts, it was too large
	for edge != bound {
		room := (bound - edge) * way
		if failed.len() > 0 {
			room = min(room, max((failed.end-edge)*way, (failed.start-edge)*way))
		}
		n := min(step, room)
		start := edge
		if way < 0 {
			start = edge - n
		}
		for i := range n { // what is known ends the run, or was a part of it before
			at := edge + i*way
			if way < 0 {
				at--
			}
			if s.state[at] != unknown {
				n = i
				break
			}
		}
		if n == 0 {
			return nil
		}
		if way < 0 {
			start = edge - n
		}
		ok, _, err := s.try(ctx, start, n)
		switch {
		case err != nil:
			return err
		case ok:
			s.mark(start, n)
			edge += way * n
			if failed.len() > 0 && (edge == failed.end && way > 0 || edge == failed.start && way < 0) {
				s.Bad = min(failed.len(), orMost(s.Bad))
				failed = span{}
			}
			if step = min(2*step, most(s.Table.Table)); s.Bad > 0 {
				step = min(step, s.Good)
			}
		case n == 1:
			s.state[start] = missing
			return nil
		default:
			failed = span{s.Table.Table, start, start + n}
			step = n / 2
		}
	}
	return nil
}

func orMost(n int) int {
	if n == 0 {
		return addresses
	}
	return n
}

// collect makes runs of what is there.
func (s *search) collect() {
	for at := 0; at < addresses; at++ {
		if s.state[at] != there {
			continue
		}
		end := at
		for end < addresses && s.state[end] == there {
			end++
		}
		s.Runs = append(s.Runs, span{s.Table.Table, at, end})
		at = end
	}
}

// limit finds the largest block, by halves, in the longest run.
func (s *search) limit(ctx context.Context) error {
	long := slices.MaxFunc(s.Runs, func(a, b span) int { return a.len() - b.len() })
	high := min(long.len(), most(s.Table.Table))
	if s.Bad > 0 {
		high = min(high, s.Bad-1)
	}
	for n := high; s.Good < high; n = (s.Good + high + 1) / 2 {
		s.unit.line.cfg.Progress(fmt.Sprintf("unit %d: how many of %s one read brings: %d?", s.unit.ID, s.Table.Table, n))
		ok, _, err := s.try(ctx, long.start, n)
		if err != nil {
			return err
		}
		if !ok {
			s.Bad, high = n, n-1
		}
	}
	return nil
}

// Holes are the addresses between the runs.
func (t *Table) Holes() []span {
	var out []span
	for i := 1; i < len(t.Runs); i++ {
		out = append(out, span{t.Table, t.Runs[i-1].end, t.Runs[i].start})
	}
	return out
}

// Answer is the median of the times that answers took, and the longest.
func (u *Unit) Answer() (median, longest time.Duration) {
	if len(u.times) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(u.times))
	return sorted[len(sorted)/2], sorted[len(sorted)-1]
}

// Mutes is how many requests the unit left without an answer, and answered others right after.
func (u *Unit) Mutes() int { return u.mutes }

// Asked is how many requests were made.
func (u *Unit) Asked() int { return u.asked }
