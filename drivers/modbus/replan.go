package modbus

import (
	"errors"
	"slices"
	"time"

	gomodbus "github.com/goburrow/modbus"

	"edged/drivers"
)

const (
	// restFor is how long an address that a device refuses is left alone: each question costs the line an exchange.
	restFor = time.Minute
	// After a reconnect it may be another device, and is asked sooner; but not one that closes after each answer.
	restAtLeast = 10 * time.Second
)

// errArranged is ErrReplanned without a refusal.
var errArranged = errors.Join(drivers.ErrSkipped, drivers.ErrReplanned)

// scanPlans are the requests of a device. Owned by the lane.
type scanPlans struct {
	plans    []scanPlan // by scan
	requests []*request // by number; nil: free
}

// scanPlan are the requests of one scan.
type scanPlan struct {
	numbers   []int
	first     []int      // as numbers began
	whole     []*request // as first
	split     bool       // some request of whole
	recovered bool       // the device has taken something that it had refused
}

// add plans one more scan.
func (s *scanPlans) add(rs []*request) {
	p := scanPlan{whole: rs}
	for _, r := range rs {
		r.scan = len(s.plans)
		p.first = append(p.first, len(s.requests))
		s.requests = append(s.requests, r)
	}
	p.numbers = slices.Clone(p.first)
	s.plans = append(s.plans, p)
}

// refusesAddresses reports whether an exception to a read tells that some of its addresses are not there: 2, or 3 of
// devices that take so many at once no better (Application Protocol, 7).
func refusesAddresses(code byte) bool {
	return code == gomodbus.ExceptionCodeIllegalDataAddress || code == gomodbus.ExceptionCodeIllegalDataValue
}

// replan halves a refused request, so that in the end the offending address alone is bad. The halves stay.
func (s *scanPlans) replan(number int, r *request) bool {
	left, right, ok := r.split()
	if !ok {
		return false
	}
	n := slices.Index(s.requests, nil)
	if n < 0 {
		n = len(s.requests)
		s.requests = append(s.requests, nil)
	}
	s.requests[number], s.requests[n] = left, right
	p := &s.plans[r.scan]
	p.split = true
	p.numbers = slices.Insert(slices.Clone(p.numbers), slices.Index(p.numbers, number)+1, n)
	return true
}

// refuse notes that the device has refused the request, which cannot be split.
func (r *request) refuse() { r.refused = time.Now() }

// rests reports whether the request is left alone for now; opened is when the link was.
func (r *request) rests(opened time.Time) bool {
	if r.refused.IsZero() {
		return false
	}
	since := time.Since(r.refused)
	return since < restAtLeast || since < restFor && !opened.After(r.refused)
}

// answered notes a good answer.
func (s *scanPlans) answered(r *request) {
	if !r.refused.IsZero() {
		s.plans[r.scan].recovered = true
	}
	r.failed, r.refused = false, time.Time{}
}

// begin arranges a plan before its first request is made, and reports whether it is another one then: it is put together
// again when the device takes what it had refused, and an address that the device refuses does not stay the first, which
// is asked for always.
func (s *scanPlans) begin(p *scanPlan) bool {
	failed := func(n int) bool { return s.requests[n].failed }
	if p.split && p.recovered && !slices.ContainsFunc(p.numbers, failed) {
		for _, n := range p.numbers {
			s.requests[n] = nil
		}
		for i, r := range p.whole {
			r.failed = false
			s.requests[p.first[i]] = r
			for _, f := range r.fields {
				f.request = r
			}
		}
		p.numbers, p.split, p.recovered = slices.Clone(p.first), false, false
		return true
	}
	i := slices.IndexFunc(p.numbers, func(n int) bool { return !failed(n) })
	if i <= 0 || s.requests[p.numbers[0]].refused.IsZero() {
		return false
	}
	p.numbers = append(slices.Clone(p.numbers[i:]), p.numbers[:i]...)
	return true
}
