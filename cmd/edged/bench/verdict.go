package bench

import "fmt"

// The judges of the workloads: "" is a pass, else what was missed.

func (r *watched) missing() uint64 { return max(r.expected, r.received) - r.received }

// sound is what every workload of subscriptions must meet: no errors, every last value there, and a ledger that adds up.
func (r *watched) sound() string {
	switch {
	case r.errors > 0:
		return fmt.Sprintf("%d errors, the first: %v", r.errors, r.first)
	case r.behind > 0:
		return fmt.Sprintf("%d items have not received their last value", r.behind)
	case r.own && r.final.unaccounted != 0:
		return fmt.Sprintf("the ledger cannot account for %v notifications", r.final.unaccounted)
	}
	return ""
}

// ledger is how many notifications the server counts as not delivered.
func (r *watched) ledger() float64 { return r.final.discarded - r.before.discarded }

// accounted compares what is missing with what the server says that it did not deliver.
func (r *watched) accounted() string {
	if r.own && float64(r.missing()) != r.ledger() {
		return fmt.Sprintf("%d notifications are missing and the ledger counts %v", r.missing(), r.ledger())
	}
	return ""
}

func first(reasons ...string) string {
	for _, s := range reasons {
		if s != "" {
			return s
		}
	}
	return ""
}

// judgeAll wants everything.
func judgeAll(r *watched) string {
	s := r.sound()
	switch {
	case s != "":
	case r.received != r.expected:
		s = fmt.Sprintf("%d of %d notifications arrived", r.received, r.expected)
	case r.overflow > 0:
		s = fmt.Sprintf("%d notifications with the Overflow bit", r.overflow)
	}
	return s
}

// judgeNearly is the gate of the load test that load-subscribe is taken from, and that losses are told.
func judgeNearly(r *watched) string {
	const least = 0.99
	s := r.sound()
	switch {
	case s != "":
	case float64(r.received) <= least*float64(r.expected):
		s = fmt.Sprintf("%d of %d notifications arrived", r.received, r.expected)
	case r.nodeLow < r.writes:
		s = fmt.Sprintf("%d notifications of a node after %d writes", r.nodeLow, r.writes)
	}
	return first(s, r.accounted())
}

// judgeHeld wants all that the queue holds: what a queue of one loses is counted.
func judgeHeld(r *watched) string {
	if r.queue > 1 {
		return judgeAll(r)
	}
	return first(r.sound(), r.accounted())
}

// judgeSessions wants each session served to the end.
func judgeSessions(r *watched) string {
	s := r.sound()
	if s == "" && r.fewest < 2 {
		s = "a session has received nothing but its initial value"
	}
	return first(s, r.accounted())
}

// judgeTwoWay wants all that was offered to arrive at both sides, and, but in a quick look, as much to be offered as the
// workload says. The first and the last tick of the measured time may fall outside of it.
func judgeTwoWay(r *watched) string {
	const least = 0.999
	offered := least*float64(r.expected) - float64(2*r.objects/ticks)
	if r.scaled {
		offered = 1
	}
	s := r.sound()
	switch {
	case s != "":
	case r.lost > 0:
		s = fmt.Sprintf("%d values were left out", r.lost)
	case float64(r.received) < offered:
		s = fmt.Sprintf("%d of %d arrived at the client", r.received, r.expected)
	case float64(r.writes) < offered:
		s = fmt.Sprintf("%d of %d arrived at the server", r.writes, r.expected)
	}
	return s
}
