package subscription

import (
	"github.com/gopcua/opcua/id"

	"edged/uaserver/wire"
)

// Counts is what happened to the samples of one item, or of many. Its identities, exact whenever they are read:
//
//	New    = Unchanged + Filtered + SampledOut + Queued
//	Queued = Overwritten + Overflowed + Exhausted + Disabled + Deleted + Expired + Sent + Waiting
//	Sent   = acknowledged + evicted + abandoned + held (Messages)
//
// What waits in a Series longer than the queue is counted as lost at once, not when the queue is emptied.
type Counts struct {
	New         uint64 // changes of a Series and readings, initial values too, as the item's sampling saw them
	Unchanged   uint64 // readings equal to the one before
	Filtered    uint64 // changes that the item's filter does not let through
	SampledOut  uint64 // passed between two samplings
	Queued      uint64 // for delivery
	Overwritten uint64 // lost to a newer one in a queue of one, which has no Overflow bit
	Overflowed  uint64 // lost to a queue longer than one
	Exhausted   uint64 // lost though their queue had places: there was no memory for what a newer value holds, such as a text
	Disabled    uint64 // went when their item was disabled
	Deleted     uint64 // went with their item or Subscription, which the client deleted
	Expired     uint64 // went with a Subscription whose lifetime ended
	Sent        uint64 // in messages; a message that is republished counts once
	Waiting     uint64
}

// Lost is what queues did not hold.
func (n *Counts) Lost() uint64 { return n.Overwritten + n.Overflowed + n.Exhausted }

// lose counts samples that a queue of that size did not hold.
func (n *Counts) lose(lost uint64, queue int) {
	if queue > 1 {
		n.Overflowed += lost
	} else {
		n.Overwritten += lost
	}
}

func (n *Counts) add(m *Counts) {
	n.New += m.New
	n.Unchanged += m.Unchanged
	n.Filtered += m.Filtered
	n.SampledOut += m.SampledOut
	n.Queued += m.Queued
	n.Overwritten += m.Overwritten
	n.Overflowed += m.Overflowed
	n.Exhausted += m.Exhausted
	n.Disabled += m.Disabled
	n.Deleted += m.Deleted
	n.Expired += m.Expired
	n.Sent += m.Sent
	n.Waiting += m.Waiting
}

// Unaccounted is how far the identities within are from zero, added up.
func (n *Counts) Unaccounted() uint64 {
	return distance(n.New, n.Unchanged+n.Filtered+n.SampledOut+n.Queued) +
		distance(n.Queued, n.Overwritten+n.Overflowed+n.Exhausted+n.Disabled+n.Deleted+n.Expired+n.Sent+n.Waiting)
}

// Messages is what happened to the NotificationMessages of Subscriptions, and to the notifications in them.
type Messages struct {
	Sent, Acknowledged, Evicted, Abandoned, Held uint64

	SentIn, AcknowledgedIn, EvictedIn, AbandonedIn, HeldIn uint64 // notifications

	Republished uint64 // messages, again
}

func (m *Messages) add(x *Messages) {
	m.Sent += x.Sent
	m.Acknowledged += x.Acknowledged
	m.Evicted += x.Evicted
	m.Abandoned += x.Abandoned
	m.Held += x.Held
	m.SentIn += x.SentIn
	m.AcknowledgedIn += x.AcknowledgedIn
	m.EvictedIn += x.EvictedIn
	m.AbandonedIn += x.AbandonedIn
	m.HeldIn += x.HeldIn
	m.Republished += x.Republished
}

// Unaccounted is how far the identities are from zero, added up.
func (m *Messages) Unaccounted() uint64 {
	return distance(m.Sent, m.Acknowledged+m.Evicted+m.Abandoned+m.Held) +
		distance(m.SentIn, m.AcknowledgedIn+m.EvictedIn+m.AbandonedIn+m.HeldIn)
}

func distance(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// ledger is a Subscription's, but for what is in its items: a plain item's counts follow from its cursor and its toll, and
// an item with a queue of its own has its own.
type ledger struct {
	gone     *Counts // of items that are gone; nil: none is
	messages Messages
}

// past are the counts of items that are gone.
func (l *ledger) past() Counts {
	if l.gone == nil {
		return Counts{}
	}
	return *l.gone
}

// path is what an item's counts and its need are told by. It is apart from the item, for who publishes never looks at it.
type path struct {
	origin uint64  // cursor of a plain item at its first sample, as if it had never been disabled
	mark   uint32  // lower bits of arrivals when the rate was measured last
	rate   float32 // arrivals a second
}

// toll is what a plain item lost, and what of any item was evicted. There are none in a Subscription that never lost
// anything.
type toll struct {
	overwritten, overflowed uint64
	disabled                uint64
	evicted                 uint64 // notifications in messages that were given up before they were acknowledged
}

// toll is the item's, to count in.
func (s *Subscription) toll(slot uint32) *toll {
	if int(slot) >= len(s.tolls) {
		s.tolls = append(s.tolls, make([]toll, len(s.items)-len(s.tolls))...)
	}
	return &s.tolls[slot]
}

// counts are those of one item. What items that look at each sample have not walked yet is not among them.
func (s *Subscription) counts(slot uint32) (n Counts) {
	it := &s.items[slot]
	if o := s.ownOf(it); o != nil {
		return o.counted()
	}
	n = s.passed(slot)
	if it.flags&sampling != 0 {
		queue := int(s.settings.list[it.set].queue)
		waiting, lost := it.series.Behind(it.cursor, queue)
		n.Waiting = waiting
		n.lose(lost, queue)
		n.New += waiting + lost
		n.Queued += waiting + lost
	}
	return n
}

// passed are the counts of what the cursor of a plain item went past.
func (s *Subscription) passed(slot uint32) (n Counts) {
	n.New = s.items[slot].cursor - s.paths[slot].origin
	n.Queued = n.New
	if int(slot) < len(s.tolls) {
		t := &s.tolls[slot]
		n.Overwritten, n.Overflowed, n.Disabled = t.overwritten, t.overflowed, t.disabled
	}
	n.Sent = n.Queued - n.Lost() - n.Disabled
	return n
}

// total adds up a Subscription, and tells how far its identities are from zero. visit hears of each item; nil: nobody does.
func (s *Subscription) total(visit func(slot uint32, n *Counts)) (n Counts, m Messages, off uint64) {
	s.walk()
	n = s.ledger.past()
	var c Counts // of one item
	for slot := range s.items {
		if s.items[slot].flags&used != 0 {
			c = s.counts(uint32(slot))
			off += c.Unaccounted()
			n.add(&c)
			if visit != nil {
				visit(uint32(slot), &c)
			}
		}
	}
	m = s.ledger.messages
	m.Held = uint64(len(s.held))
	for i := range s.held {
		m.HeldIn += uint64(s.held[i].notifications)
	}
	gone := s.ledger.past()
	return n, m, off + gone.Unaccounted() + m.Unaccounted() + distance(n.Sent, m.SentIn)
}

// retire moves the counts of an item that goes into those of the items that are gone.
func (s *Subscription) retire(slot uint32) {
	n := s.counts(slot)
	if s.expired {
		n.Expired += n.Waiting
	} else {
		n.Deleted += n.Waiting
	}
	n.Waiting = 0
	if s.ledger.gone == nil {
		s.ledger.gone = new(Counts)
	}
	s.ledger.gone.add(&n)
}

// evictedFrom notes on the items that a message is of that it was given up. They are found by their handles, in the order
// in which they were sent; what belongs to items that are gone is nobody's.
func (s *Subscription) evictedFrom(message []byte) {
	slot, looks := 0, 2*len(s.items)
	eachHandle(message, func(handle uint32) bool {
		for ; looks > 0; looks-- {
			if it := &s.items[slot]; it.flags&used != 0 && it.handle == handle {
				s.toll(uint32(slot)).evicted++
				return true
			}
			if slot++; slot == len(s.items) {
				slot = 0
			}
		}
		return false
	})
}

// eachHandle calls each with the client handles of a message that fill made, until that returns false.
func eachHandle(message []byte, each func(handle uint32) bool) {
	const head = 4 + 8 // sequence number, time (Part 4, 7.26)
	if len(message) < head {
		return
	}
	r := wire.NewReader(message[head:])
	for parts := r.Count(3); parts > 0 && r.Err() == nil; parts-- {
		x := r.Extension()
		events := x.Is(id.EventNotificationList_Encoding_DefaultBinary)
		b := wire.NewReader(x.Body)
		for n := b.Count(5); n > 0 && b.Err() == nil; n-- {
			handle := b.Uint32()
			if !events {
				b.SkipBuiltin(dataValue)
			} else {
				for k := b.Count(1); k > 0; k-- {
					b.SkipBuiltin(variant)
				}
			}
			if b.Err() != nil || !each(handle) {
				return
			}
		}
	}
}

// Numbers of built-in types (Part 6, 5.1.2).
const (
	dataValue = 23
	variant   = 24
)

// account is what an Engine counts of Subscriptions that are gone.
type account struct {
	counts   Counts
	messages Messages
}

// Stats is what an Engine counts, for metrics and diagnostics. Counters only grow, but for what waits or is held.
type Stats struct {
	Subscriptions int
	Items         int
	Counts
	Messages    Messages
	Unaccounted uint64 // how far the ledger is from zero; anything but 0 is a bug
	HeldBytes   int    // buffers of the messages that are kept for Republish
	Requests    int    // Publish requests that wait
	Latency     Histogram
}

// everyClient calls do with each client, under its lock.
func (e *Engine) everyClient(do func(c *Client)) {
	e.mu.Lock()
	clients := make([]*Client, 0, len(e.clients))
	for c := range e.clients {
		clients = append(clients, c)
	}
	e.mu.Unlock()
	for _, c := range clients {
		c.mu.Lock()
		do(c)
		c.mu.Unlock()
	}
}

// Stats adds up all clients. It takes each client's lock in turn, and looks at each item.
func (e *Engine) Stats() Stats {
	return e.gather(func() func(c *Client, st *Stats) {
		return func(c *Client, st *Stats) {
			for _, s := range c.subs.list {
				n, m, off := s.total(nil)
				st.take(&n, &m, off)
			}
		}
	})
}

// take adds a Subscription.
func (st *Stats) take(n *Counts, m *Messages, off uint64) {
	st.Counts.add(n)
	st.Messages.add(m)
	st.Unaccounted += off
}

// gather adds up all clients. begin is called before they are looked at, perhaps again, and gives who adds the
// Subscriptions of each, under its lock.
func (e *Engine) gather(begin func() func(c *Client, st *Stats)) (st Stats) {
	e.steady(func() {
		st = Stats{}
		each := begin()
		e.everyClient(func(c *Client) {
			st.Requests += c.queued
			st.HeldBytes += c.kept
			each(c, &st)
		})
		e.mu.Lock()
		st.Subscriptions, st.Items = len(e.subs), int(e.items.Load())
		gone := e.retired
		e.mu.Unlock()
		st.take(&gone.counts, &gone.messages, gone.counts.Unaccounted()+gone.messages.Unaccounted())
	})
	for _, sh := range e.shards {
		sh.latency.addTo(&st.Latency)
	}
	return st
}

// steady has read add up all Subscriptions, again if one of them ended or moved meanwhile, and so was counted twice or not
// at all. It gives up where they never stop ending.
func (e *Engine) steady(read func()) {
	for range 5 {
		e.mu.Lock()
		before := e.moves
		e.mu.Unlock()
		read()
		e.mu.Lock()
		same := e.moves == before
		e.mu.Unlock()
		if same {
			return
		}
	}
}

// leave forgets a Subscription and keeps its ledger. It is called under the client's lock.
func (e *Engine) leave(s *Subscription) {
	gone := s.ledger.past()
	e.mu.Lock()
	delete(e.subs, s.id)
	e.moves++
	e.retired.counts.add(&gone)
	e.retired.messages.add(&s.ledger.messages)
	e.mu.Unlock()
}
