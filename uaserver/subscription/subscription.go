package subscription

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// Subscription is one Subscription (Part 4, 5.14). All of it but id, home, alarm and pace is guarded by its client's mu.
// A transfer, which holds the mu of both, gives it another client.
type Subscription struct {
	id     uint32
	client *Client
	home   atomic.Pointer[Client] // client, for who does not hold mu: see lock
	alarm  alarm
	pace   atomic.Int64 // interval, for who does not hold mu

	// Parameters.
	interval time.Duration
	every    uint32 // keep-alive count
	life     uint32 // lifetime count
	room     int    // MaxNotificationsPerPublish
	asked    uint32 // the same as it was asked for: 0 is no limit
	priority uint8
	enabled  bool

	// State (Part 4, 5.14.1).
	state     state
	keepAlive uint32 // counts down
	lifetime  uint32 // counts down
	sent      bool   // a message was sent
	more      bool   // the last message did not hold everything
	found     bool   // of the Republish in hand
	sequence  uint32 // of the last NotificationMessage; 0 before the first
	lateSince int64

	// Clock, in the engine's nanoseconds.
	nextTick   int64
	nextSample int64 // of the items with a queue of their own; 0: none

	items        []item
	paths        []path                 // of the items, by slot
	tolls        []toll                 // of the items, by slot, as far as there are any
	triggers     map[uint32]*triggering // by the slot of the triggering item
	free         []uint32               // slots of items that were deleted
	live         int32                  // items
	resume       int32                  // slot at which the next message begins
	evented      int32                  // items that watch events
	resumeEvents int32                  // index into owns at which the next message's events begin
	settings     interned
	owns         []*own
	freeOwns     []uint32
	blocks       []seen
	queues       int  // bytes that its items' queues may take of Config.Queues
	mixed        bool // there are items whose block is not in blocks
	turned       bool // events were first in the last message
	expired      bool // its lifetime ended

	held    []held // messages for Republish, oldest first
	size    int    // bytes of the last one
	ledger  ledger
	tally   tally
	oldest  tag.Time // of the changes in the message at hand
	polling []*own   // items whose values are being read

	clock    int64         // when the event at hand came, in the engine's nanoseconds
	chance   int64         // when a message could have been made last: the timer expired with publishing enabled
	filled   int64         // when the last message was made
	starved  time.Duration // for how long a message had no Publish request when the event at hand came
	measured int64         // when the rates were
}

// held is a message that was not acknowledged.
type held struct {
	sequence      uint32
	notifications uint32
	charged       int // bytes on the account
	message       []byte
}

// seen is how far a block of Series had changed when nothing of it was left to send.
type seen struct {
	block *address.Block
	at    uint64
	now   uint64
}

// overdue reports whether a Publish request that arrives now is used at once.
func (s *Subscription) overdue() bool {
	return s.state == late || s.state == normal && s.more && s.enabled
}

// lock locks the client that the Subscription belongs to, and returns it.
func (s *Subscription) lock() *Client {
	for {
		c := s.home.Load()
		c.mu.Lock()
		if s.home.Load() == c {
			return c
		}
		c.mu.Unlock()
	}
}

// strayed reports whether the Subscription, whose client is locked, has nothing to do in the goroutine of that shard:
// it is gone, or it was transferred to another, which is told to look.
func (s *Subscription) strayed(sh *shard) bool {
	if s.state == closed {
		return true
	}
	if s.client.shard == sh {
		return false
	}
	s.alarm.wakeUp()
	return true
}

// ring is the Subscription's clock: it samples and publishes what is due, then waits for the next time. Values that
// have to be read are read without the client's lock.
func (s *Subscription) ring(sh *shard, now int64) {
	s.alarm.woken.Store(false)
	c := s.lock()
	if s.strayed(sh) {
		c.mu.Unlock()
		return
	}
	s.tick(now)
	s.walk()
	if s.nextSample != 0 && now >= s.nextSample {
		s.sample(now)
	}
	if len(s.polling) > 0 {
		if c = s.poll(sh); s.strayed(sh) {
			c.mu.Unlock()
			return
		}
	}
	if s.state != closed && now >= s.nextTick {
		s.nextTick += int64(s.interval)
		if s.nextTick <= now { // the machine was busy or asleep: no burst to catch up
			s.nextTick = now + int64(s.interval)
		}
		s.step(onTimer, now)
		s.measure(now)
		c.report(now)
	}
	if s.state == closed {
		c.report(now)
		c.serve(now)
		c.rest()
	} else {
		s.schedule()
	}
	c.mu.Unlock()
}

// schedule sets the alarm for whatever comes first.
func (s *Subscription) schedule() {
	at := s.nextTick
	if s.nextSample != 0 {
		at = min(at, s.nextSample)
	}
	s.alarm.set(at)
}

// step runs the state machine for one event and does what it says.
func (s *Subscription) step(e event, now int64) {
	s.tick(now)
	f := facts{found: s.found}
	if s.enabled && (e == onTimer || e == onPublish) {
		f.available = s.available()
	}
	s.stepWith(e, f, now)
}

// stepWith is step with the facts that the event brings. It returns what was done.
func (s *Subscription) stepWith(e event, f facts, now int64) action {
	c := s.client
	f.queued, f.enabled, f.more, f.sent = c.queued > 0, s.enabled, s.more, s.sent
	f.keepAlive, f.every, f.lifetime = s.keepAlive, s.every, s.lifetime
	was := s.state
	_, to, do := next(was, e, f)
	s.state = to
	s.tally.enter(was, to)
	if to == late && was != late {
		s.lateSince = now
	}
	if do&startTimer != 0 {
		s.lifetime--
	}
	if do&resetLifetime != 0 {
		s.lifetime = s.life
	}
	if do&resetKeepAlive != 0 {
		s.keepAlive = s.every
	}
	if do&countKeepAlive != 0 {
		s.keepAlive--
	}
	if do&returnMessage != 0 {
		s.returnNotifications()
	}
	if do&returnKeepAlive != 0 {
		s.sendKeepAlive()
	}
	if do&clearMore != 0 {
		s.more = false
	}
	if e == onTimer && s.enabled {
		s.chance = now
	}
	if do&deleteItems != 0 {
		s.expired = do&issueStatus != 0
		s.remove()
	}
	if do&issueStatus != 0 {
		status := ua.StatusBadTimeout
		if e == onTransfer {
			status = ua.StatusGoodSubscriptionTransferred
		}
		c.notify(notice{s.id, s.following(), status})
	}
	return do
}

// following is the next sequence number: from 1, and after the largest 1 again (Part 4, 7.8 Counter).
func (s *Subscription) following() uint32 {
	if s.sequence == math.MaxUint32 {
		return 1
	}
	return s.sequence + 1
}

// returnNotifications sends messages while there are both notifications left over and Publish requests (Part 4,
// table 85, ReturnNotifications).
func (s *Subscription) returnNotifications() {
	for {
		s.sendMessage()
		if !s.more || s.client.queued == 0 {
			return
		}
	}
}

// A message is not cut shorter than leastMessage bytes: a notification of any number fits. around is what a
// PublishResponse has around the message, apart from its two lists.
const (
	leastMessage = 256
	around       = 80
)

// sendMessage answers the oldest Publish request with what the items have.
func (s *Subscription) sendMessage() {
	c := s.client
	w := c.at(0)
	s.sequence = s.following()
	at := tag.Now()
	buf, n := s.appendData(c.buffer(s.size), at, max(leastMessage, w.message-around-4*(len(s.held)+1+len(w.results))))
	s.sent, s.size = true, len(buf)
	s.keep(held{sequence: s.sequence, notifications: uint32(n), message: buf})
	s.tally.publishes++
	c.deliver(&Response{sub: s.id, held: s.held, more: s.more, message: buf})
	if k := len(s.held); k == 0 || s.held[k-1].sequence != s.sequence {
		c.recycle(buf)
	}
	s.ledger.messages.Sent++
	s.ledger.messages.SentIn += uint64(n)
	s.filled = s.clock
	c.shard.latency.observe(s.oldest, at)
}

// sendKeepAlive answers the oldest Publish request with the number of the next message, without using it.
func (s *Subscription) sendKeepAlive() {
	c := s.client
	buf := appendKeepAlive(c.buffer(0), s.following(), tag.Now())
	s.sent = true
	s.tally.publishes++
	c.deliver(&Response{sub: s.id, held: s.held, message: buf})
	c.recycle(buf)
}

// keep holds a message for Republish. When there are too many, or the account has no room, the oldest are given up;
// one that does not fit alone is not kept.
func (s *Subscription) keep(h held) {
	cfg := &s.client.engine.cfg
	for len(s.held) >= cfg.Held {
		s.evict(false)
	}
	h.charged = cap(h.message)
	for c := s.client; !c.takeKept(h.charged); {
		if len(c.spare) > 0 {
			c.shed()
			continue
		}
		of := s
		if len(s.held) == 0 {
			of = c.fullest()
		}
		if of == nil {
			s.giveUp(&h, true)
			return
		}
		of.evict(true)
	}
	s.held = append(s.held, h)
	if len(s.held) > cfg.Held/2 {
		s.notePiled()
	}
}

// evict gives up the oldest message that is kept; for want of memory, or because there are too many.
func (s *Subscription) evict(memory bool) {
	s.giveUp(&s.held[0], memory)
	s.drop(0)
}

// giveUp counts a message that nobody can ask for any more, though it was not acknowledged.
func (s *Subscription) giveUp(h *held, memory bool) {
	s.ledger.messages.Evicted++
	s.ledger.messages.EvictedIn += uint64(h.notifications)
	s.evictedFrom(h.message)
	s.noteEvicted(h, memory)
}

// drop forgets the i-th kept message.
func (s *Subscription) drop(i int) {
	s.client.giveKept(s.held[i].charged)
	s.client.recycle(s.held[i].message)
	copy(s.held[i:], s.held[i+1:])
	s.held[len(s.held)-1] = held{}
	s.held = s.held[:len(s.held)-1]
}

// find is the index of a kept message, or -1.
func (s *Subscription) find(sequence uint32) int {
	for i := range s.held {
		if s.held[i].sequence == sequence {
			return i
		}
	}
	return -1
}

// acknowledge forgets a message that the client has, and reports whether there was one.
func (s *Subscription) acknowledge(sequence uint32) bool {
	i := s.find(sequence)
	if i < 0 {
		return false
	}
	s.ledger.messages.Acknowledged++
	s.ledger.messages.AcknowledgedIn += uint64(s.held[i].notifications)
	s.drop(i)
	return true
}

// remove ends the Subscription: its items, its messages and its place in the engine.
func (s *Subscription) remove() {
	c := s.client
	for slot := range s.items {
		if s.items[slot].flags&used != 0 {
			s.deleteItem(uint32(slot))
		}
	}
	if s.expired {
		s.noteExpired(s.ledger.past().Expired)
	}
	s.items, s.paths, s.tolls, s.owns, s.blocks, s.triggers = nil, nil, nil, nil, nil, nil
	for len(s.held) > 0 {
		s.ledger.messages.Abandoned++
		s.ledger.messages.AbandonedIn += uint64(s.held[len(s.held)-1].notifications)
		s.drop(len(s.held) - 1)
	}
	c.subs.remove(s)
	s.alarm.stop()
	c.engine.leave(s)
}
