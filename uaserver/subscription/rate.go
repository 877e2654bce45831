package subscription

import (
	"math"
	"time"

	"edged/uaserver/address"
)

// measureEvery is how often the rates of a Subscription's items are measured.
const measureEvery = 10 * time.Second

// arrivals counts what came for an item, modulo 2^32: changes of its Series, or what its own filter let through.
func (s *Subscription) arrivals(slot uint32) uint32 {
	it := &s.items[slot]
	if o := s.ownOf(it); o != nil {
		return uint32(o.everQueued())
	}
	return uint32(it.series.Head())
}

// measure measures how fast each item's values come, once in a while. It runs in the shard's goroutine.
func (s *Subscription) measure(now int64) {
	span := now - s.measured
	if span < int64(measureEvery) {
		return
	}
	s.measured = now
	for slot := range s.items {
		if s.items[slot].flags&used == 0 {
			continue
		}
		p, n := &s.paths[slot], s.arrivals(uint32(slot))
		p.rate = float32(float64(n-p.mark) / time.Duration(span).Seconds())
		p.mark = n
	}
}

// rate is how many values a second come for an item: in the last span that was measured, or in the one at hand if that is
// more. 0: none, or it is too new.
func (s *Subscription) rate(slot uint32, now int64) float64 {
	p := &s.paths[slot]
	rate := float64(p.rate)
	if span := time.Duration(now - s.measured); span >= time.Second {
		rate = max(rate, float64(s.arrivals(slot)-p.mark)/span.Seconds())
	}
	return rate
}

// needOf is the queue size that holds what comes at a rate in an interval, with one to spare for what comes early or late.
func needOf(rate float64, interval time.Duration) int {
	n := math.Ceil(rate*interval.Seconds()) + 1
	return int(min(n, math.MaxInt32))
}

// short reports whether more comes for an item in a publishing interval than its queue holds, and what size does.
func (s *Subscription) short(slot uint32, now int64) (rate float64, need int, short bool) {
	rate = s.rate(slot, now)
	queue := s.settings.list[s.items[slot].set].queue
	return rate, needOf(rate, s.interval), rate*s.interval.Seconds() > float64(queue)
}

// raise is the queue size that Config.Raise gives an item that asked for that size: what its rate needs. The rate is the
// fastest that there can be, where the value has a MinimumSamplingInterval, as a polled one has, or the item a sampling
// interval; else twice what was measured since the engine started.
//
// The size is decided once, and told to the client: it is what the queue keeps. If the rate rises beyond it later, or the
// publishing interval is made longer, the loss is flagged and counted as any other, and the advice tells the size that
// holds it; ModifyMonitoredItems decides anew. A queue takes memory for what it holds, not for its size, but the account
// is charged with the size; where it has no room the item gets what it would have got without Raise.
func (e *Engine) raise(p *plan, publishing time.Duration) int {
	need := 0
	switch fastest := p.node.MinSampling * float64(time.Millisecond); {
	case p.how != walked:
		need = needOf(1/p.set.sampling.Seconds(), publishing)
	case fastest > 0:
		need = needOf(float64(time.Second)/fastest, publishing)
	default:
		need = needOf(2*float64(p.series.Head())/max(time.Duration(e.now()).Seconds(), 1), publishing)
	}
	return max(p.queue, min(need, e.cfg.Queue))
}

// reserve asks a Series for the queue of a plain item, and for the size that the client asked for where the account has no
// room for a raised one.
func (p *plan) reserve(series *address.Series) int {
	granted := series.Reserve(p.queue)
	if granted < p.asked {
		series.Release(granted)
		granted = series.Reserve(p.asked)
	}
	return granted
}

// reserveOwn is reserve for a queue of the item's own.
func (p *plan) reserveOwn(o *own) int {
	granted := o.reserve(p.queue)
	if granted < p.asked {
		granted = o.reserve(p.asked)
	}
	return granted
}
