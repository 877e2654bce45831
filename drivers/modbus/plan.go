package modbus

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// limits are what a device allows in one read.
type limits struct {
	registers, bits int
	gaps            int
	holes           []span
	single          bool // one request a unit
	fromZero        bool // requests for bits begin at 0
}

func (l *limits) most(t Table) int {
	if t.Bits() {
		return l.bits
	}
	return l.registers
}

// hole names a hole that the range touches.
func (l *limits) hole(t Table, start, end int) (string, bool) {
	for _, h := range l.holes {
		if h.overlaps(t, start, end) {
			return fmt.Sprintf("%s:%d-%d", h.table, h.start, h.end-1), true
		}
	}
	return "", false
}

// unit is what no plan may tear apart: one field, or a group of fields that have to be read together.
type unit struct {
	table      Table
	start, end int
	fields     []*field
}

func (u *unit) add(f *field) {
	if len(u.fields) == 0 {
		u.table, u.start, u.end = f.table, f.start, f.end()
	}
	u.start, u.end = min(u.start, f.start), max(u.end, f.end())
	u.fields = append(u.fields, f)
}

// request is one read.
type request struct {
	table      Table
	start, end int
	fields     []*field // by address
	scan       int      // whose scan class it is

	// Owned by the lane.
	failed  bool      // its last answer was none, or an exception
	refused time.Time // when the device last refused its addresses; zero: it does not
}

func (r *request) count() int { return r.end - r.start }

func newRequest(units []unit) *request {
	r := &request{table: units[0].table, start: units[0].start}
	n := 0
	for i := range units {
		n += len(units[i].fields)
	}
	r.fields = make([]*field, 0, n)
	for _, u := range units {
		r.end = max(r.end, u.end)
		r.fields = append(r.fields, u.fields...)
	}
	slices.SortStableFunc(r.fields, func(a, b *field) int { return cmp.Compare(a.start, b.start) })
	for _, f := range r.fields {
		f.request = r
	}
	return r
}

// units are what the request is made of, by address.
func (r *request) units() []unit {
	units := make([]unit, 0, len(r.fields))
	told := map[*unit]bool{}
	for _, f := range r.fields {
		switch u := f.group(); {
		case u == nil:
			units = append(units, unit{f.table, f.start, f.end(), []*field{f}})
		case !told[u]:
			told[u] = true
			units = append(units, *u)
		}
	}
	sortUnits(units)
	return units
}

func sortUnits(units []unit) {
	slices.SortStableFunc(units, func(a, b unit) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
}

// plan finds the fewest requests for units that are due together: each as long as limits allow, from the lowest address
// on. That is the least number, since a request that began earlier could not end later.
func plan(units []unit, l *limits) []*request {
	units = slices.Clone(units)
	sortUnits(units)
	var out []*request
	for len(units) > 0 {
		n, end := 1, units[0].end
		for n < len(units) && l.joins(units[0], end, units[n]) {
			end = max(end, units[n].end)
			n++
		}
		r := newRequest(units[:n])
		if l.fromZero && r.table.Bits() {
			r.start = 0
		}
		out = append(out, r)
		units = units[n:]
	}
	return out
}

// joins reports whether a request from first on, which reaches end, may reach over u as well.
func (l *limits) joins(first unit, end int, u unit) bool {
	if l.single {
		return false
	}
	if l.fromZero && u.table.Bits() {
		return u.table == first.table
	}
	if u.table != first.table || max(end, u.end)-first.start > l.most(u.table) || u.start-end > l.gaps {
		return false
	}
	if u.start <= end {
		return true
	}
	_, in := l.hole(u.table, end, u.start)
	return !in
}

// middle is where to cut units in two: in the middle, or at the gap nearest to it, since what a device refuses is most
// often a register between those that are asked for.
func middle(units []unit) int {
	half := len(units) / 2
	best, end := 0, units[0].end
	for i, u := range units {
		if u.start > end && (best == 0 || abs(i-half) < abs(best-half)) {
			best = i
		}
		end = max(end, u.end)
	}
	return cmp.Or(best, half)
}

func abs(n int) int { return max(n, -n) }

// split halves a request between its units, for a device that refuses it because of one address. ok is false for a
// request of one unit.
func (r *request) split() (left, right *request, ok bool) {
	units := r.units()
	if len(units) < 2 {
		return nil, nil, false
	}
	half := middle(units)
	left, right = newRequest(units[:half]), newRequest(units[half:])
	left.scan, right.scan = r.scan, r.scan
	if r.start < min(left.start, right.start) { // requests for bits that begin at 0
		left.start, right.start = r.start, r.start
	}
	return left, right, true
}
