package subscription

import (
	"fmt"
	"sync/atomic"
	"time"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// ledger is what happened to the samples and messages of a Subscription. Its identities:
//
//	looked  = filtered + sampledOut + queued
//	queued  = sent + overflowed + coalesced + dropped + what waits in items' own queues
//	passed  = the cursors' sum - origin
//	messages = acknowledged + evicted + abandoned + what is held
type ledger struct {
	origin uint64 // sum of the cursors where items began, less where they ended; wraps
	passed uint64 // samples of Series that cursors went past

	looked     uint64 // samples seen: passed ones and readings
	filtered   uint64 // no change, as the item's filter sees it
	sampledOut uint64 // passed between two samplings
	queued     uint64 // for delivery
	sent       uint64
	overflowed uint64 // lost to a queue longer than one
	coalesced  uint64 // lost to a queue of one
	dropped    uint64 // went with their item, or with Disabled

	messages             uint64
	acknowledged         uint64
	evicted              uint64 // before they were acknowledged
	evictedNotifications uint64
	abandoned            uint64 // went with their Subscription
	republished          uint64
}

// lose counts n samples that a queue of that size did not hold.
func (l *ledger) lose(n uint64, queue int) {
	if queue > 1 {
		l.overflowed += n
	} else {
		l.coalesced += n
	}
}

func (l *ledger) add(m *ledger) {
	l.origin += m.origin
	l.passed += m.passed
	l.looked += m.looked
	l.filtered += m.filtered
	l.sampledOut += m.sampledOut
	l.queued += m.queued
	l.sent += m.sent
	l.overflowed += m.overflowed
	l.coalesced += m.coalesced
	l.dropped += m.dropped
	l.messages += m.messages
	l.acknowledged += m.acknowledged
	l.evicted += m.evicted
	l.evictedNotifications += m.evictedNotifications
	l.abandoned += m.abandoned
	l.republished += m.republished
}

// balance is how far the identities are from zero, added up. cursors, waiting and held are those of the living.
func (l *ledger) balance(cursors, waiting, held uint64) uint64 {
	return distance(l.looked, l.filtered+l.sampledOut+l.queued) +
		distance(l.queued, l.sent+l.overflowed+l.coalesced+l.dropped+waiting) +
		distance(l.passed, cursors-l.origin) +
		distance(l.messages, l.acknowledged+l.evicted+l.abandoned+held)
}

func distance(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// balance adds up a Subscription's side of the identities.
func (s *Subscription) balance() uint64 {
	var cursors, waiting uint64
	for i := range s.items {
		if it := &s.items[i]; it.flags&used != 0 && it.flags&owned == 0 {
			cursors += it.cursor
		}
	}
	for _, o := range s.owns {
		if o != nil {
			cursors += o.cursor
			waiting += uint64(o.count)
		}
	}
	return s.ledger.balance(cursors, waiting, uint64(len(s.held)))
}

// Stats is what an Engine counts, for metrics and diagnostics. Counters only grow.
type Stats struct {
	Subscriptions int
	Items         int
	Sent          uint64 // notifications
	Overflowed    uint64 // notifications lost to queues longer than one
	Coalesced     uint64 // notifications lost to queues of one
	Evicted       uint64 // notifications in messages that were given up before they were acknowledged
	Unaccounted   uint64 // how far the ledger is from zero; anything but 0 is a bug
	Messages      uint64
	Acknowledged  uint64
	Republished   uint64
	Held          int // messages kept for Republish
	HeldBytes     int // and their buffers
	Requests      int // Publish requests that wait
	Latency       Histogram
}

// Stats adds up all clients. It takes each client's lock in turn.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	all := e.retired
	clients := make([]*Client, 0, len(e.clients))
	for c := range e.clients {
		clients = append(clients, c)
	}
	st := Stats{Subscriptions: len(e.subs), Items: int(e.items.Load())}
	e.mu.Unlock()
	st.Unaccounted = all.balance(0, 0, 0)
	for _, c := range clients {
		c.mu.Lock()
		st.Requests += c.queued
		for _, s := range c.subs {
			all.add(&s.ledger)
			st.Unaccounted += s.balance()
			st.Held += len(s.held)
			for i := range s.held {
				st.HeldBytes += s.held[i].charged
			}
		}
		c.mu.Unlock()
	}
	st.Sent, st.Overflowed, st.Coalesced, st.Evicted = all.sent, all.overflowed, all.coalesced, all.evictedNotifications
	st.Messages, st.Acknowledged, st.Republished = all.messages, all.acknowledged, all.republished
	for _, sh := range e.shards {
		sh.latency.addTo(&st.Latency)
	}
	return st
}

// LatencyBounds are the upper bounds of a Histogram's buckets in seconds; one more bucket has what is above.
var LatencyBounds = [...]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Histogram is the time from the oldest change in a message to its sending, a count a bucket, not cumulative.
type Histogram struct {
	Buckets [len(LatencyBounds) + 1]uint64
	Sum     time.Duration
}

// latency counts a shard's messages.
type latency struct {
	buckets [len(LatencyBounds) + 1]atomic.Uint64
	sum     atomic.Int64
}

// observe counts one message whose oldest change was at that time; 0: it had none.
func (l *latency) observe(change, sent tag.Time) {
	if change == 0 {
		return
	}
	d := max(0, sent.Sub(change))
	i := 0
	for i < len(LatencyBounds) && d.Seconds() > LatencyBounds[i] {
		i++
	}
	l.buckets[i].Add(1)
	l.sum.Add(int64(d))
}

func (l *latency) addTo(h *Histogram) {
	for i := range l.buckets {
		h.Buckets[i] += l.buckets[i].Load()
	}
	h.Sum += time.Duration(l.sum.Load())
}

// loss is what an item lost since it was told.
type loss struct {
	lost   uint64
	recent uint64 // of it since the last tick
	queue  int    // that did not hold it
	need   uint64 // queue size that would have held the worst interval
	told   int64  // when; 0: never
}

// Losses are told at most once a minute an item, and no more than these lines a minute and shard.
const (
	tellEvery = int64(time.Minute)
	tellLines = 20
)

// lossLine is one line to log.
type lossLine struct {
	client   string
	node     *address.Node
	lost     uint64
	queue    int
	need     uint64
	interval time.Duration
}

// talk bounds a shard's lines.
type talk struct {
	since  int64
	lines  int
	silent int // items that were not told
}

// noteLoss remembers what an item lost for the log. A queue of one is meant to be overwritten: it is counted only.
func (s *Subscription) noteLoss(slot uint32, lost uint64, queue int) {
	if queue <= 1 {
		return
	}
	if s.losses == nil {
		s.losses = make(map[uint32]*loss)
	}
	l := s.losses[slot]
	if l == nil {
		l = new(loss)
		s.losses[slot] = l
	}
	l.lost += lost
	l.recent += lost
	l.queue = queue
}

// reportLosses hands what was lost to the log, at most once a minute an item. It runs in the shard's goroutine.
func (s *Subscription) reportLosses(now int64) {
	for slot, l := range s.losses {
		if l.recent > 0 {
			l.need = max(l.need, l.recent+uint64(l.queue))
			l.recent = 0
		}
		switch {
		case l.told != 0 && now-l.told < tellEvery:
			continue
		case l.lost == 0:
			delete(s.losses, slot)
			continue
		}
		s.client.shard.lines = append(s.client.shard.lines, lossLine{s.client.name, s.nodeOf(slot), l.lost, l.queue,
			l.need, s.interval})
		*l = loss{told: max(now, 1)}
	}
}

// speak writes the lines. No lock is held.
func (sh *shard) speak(now int64) {
	t := &sh.talk
	log := sh.engine.cfg.Log
	if now-t.since >= tellEvery {
		if t.silent > 0 {
			log.Warn("notifications lost on more items", "items", t.silent)
		}
		*t = talk{since: now}
	}
	for i := range sh.lines {
		l := &sh.lines[i]
		if t.lines == tellLines {
			t.silent += len(sh.lines) - i
			break
		}
		t.lines++
		name := "?"
		if l.node != nil {
			name = l.node.ID.String()
		}
		log.Warn("notifications lost: the queue is too short", "client", l.client, "node", name, "lost", l.lost,
			"queue", l.queue, "publishing", l.interval, "advice", fmt.Sprintf("a queue size of %d would have held them", l.need))
	}
	clear(sh.lines)
	sh.lines = sh.lines[:0]
}
