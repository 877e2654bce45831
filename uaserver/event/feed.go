package event

import (
	"math"
	"sync"

	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// key is what events are evaluated once for.
type key struct {
	node   wire.NodeID
	rights address.Rights
	filter string
}

// Feed is the last events that one filter lets through of one notifier, encoded, for cursors to walk.
type Feed struct {
	hub    *Hub
	key    key
	filter *Filter
	users  int // guarded by Hub.mu

	mu      sync.Mutex // guards all below and the Taps; only the account's own is taken while it is held
	head    uint64     // number of events that ever passed
	records [][]byte   // the last ones, oldest first
	queue   int        // the longest of the taps
	taps    []*Tap
	last    int // bytes of the newest
	held    int // bytes on the account
}

// recordBytes is what an event is charged beside its bytes.
const recordBytes = 48

// Tap is where one monitored item takes its events from: what its queue would hold is the last events of a Feed, or the
// first ones. Its methods are safe for concurrent use with the Hub's, and called by one at a time.
type Tap struct {
	feed *Feed

	// Guarded by feed.mu.
	cursor uint64   // number of the next event that is not in stash
	queue  int      // places
	newest bool     // the newest is discarded when the queue is full
	stash  [][]byte // the first events of a queue whose newest are discarded, which the feed has no more
	full   bool     // the account has no room for more of them
	over   bool     // events were lost, and the overflow event was not sent yet
}

// Watch makes a Tap for the events of a notifier, as far as they are shown to somebody with those rights. nil: there are
// too many distinct filters, or there is no memory.
func (h *Hub) Watch(n *address.Node, rights address.Rights, f *Filter, queue int, newest bool) *Tap {
	k := key{n.ID, rights, f.body}
	h.mu.Lock()
	feed := h.feeds[k]
	if feed == nil {
		if len(h.feeds) >= maxFeeds || !h.account.Take(feedBytes+4*len(f.body)) {
			h.mu.Unlock()
			return nil
		}
		feed = &Feed{hub: h, key: k, filter: f}
		h.feeds[k] = feed
		h.relist()
	}
	feed.users++
	h.mu.Unlock()
	t := &Tap{feed: feed, queue: queue, newest: newest}
	feed.mu.Lock()
	t.cursor = feed.head
	feed.taps = append(feed.taps, t)
	feed.queue = max(feed.queue, queue)
	feed.mu.Unlock()
	return t
}

// relist is called with mu held.
func (h *Hub) relist() {
	h.list = make([]*Feed, 0, len(h.feeds))
	audited := false
	for _, f := range h.feeds {
		h.list = append(h.list, f)
		audited = audited || f.key.rights&(address.MayAudit|address.Exposed) == address.MayAudit
	}
	h.audited.Store(audited)
}

// Close ends the Tap.
func (t *Tap) Close() {
	f, h := t.feed, t.feed.hub
	f.mu.Lock()
	t.dropStash()
	f.queue = 0
	for i := len(f.taps) - 1; i >= 0; i-- {
		if f.taps[i] == t {
			f.taps[i] = f.taps[len(f.taps)-1]
			f.taps[len(f.taps)-1] = nil
			f.taps = f.taps[:len(f.taps)-1]
			continue
		}
		f.queue = max(f.queue, f.taps[i].queue)
	}
	f.evictTo(f.queue)
	f.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.users--; f.users == 0 {
		delete(h.feeds, f.key)
		h.relist()
		h.account.Give(feedBytes + 4*len(f.key.filter))
	}
}

// shows reports whether the feed's clients may see an event.
func (f *Feed) shows(e *Event) bool {
	rights := f.key.rights
	if e.Audit && rights&(address.MayAudit|address.Exposed) != address.MayAudit {
		return false
	}
	return e.Source == nil || e.Source.Shows(rights.Roles())
}

// of reports whether the feed's notifier is among those of an event.
func (f *Feed) of(notifiers []wire.NodeID) bool {
	for i := range notifiers {
		if notifiers[i] == f.key.node {
			return true
		}
	}
	return false
}

// size is about what the next event takes.
func (f *Feed) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last + 8
}

// append adds an event. What the account has no room for pushes out the oldest.
func (f *Feed) append(body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = len(body)
	if len(f.taps) == 0 {
		f.head++
		return
	}
	if len(f.records) >= f.queue {
		f.trim()
		f.evictTo(f.queue - 1)
	}
	n := len(body) + recordBytes
	for !f.take(n) {
		if len(f.records) == 0 {
			f.head++ // lost to all: their cursors tell
			return
		}
		f.evictTo(len(f.records) - 1)
	}
	f.records = append(f.records, body)
	f.head++
}

// take charges bytes to the account, of which events leave the rest to others: half of what is left beside them.
func (f *Feed) take(n int) bool {
	if a, ok := f.hub.account.(interface{ Left() int64 }); ok {
		if left := a.Left(); left < math.MaxInt64/2 && int64(n) > (left-int64(f.held))/2 {
			return false
		}
	}
	if !f.hub.account.Take(n) {
		return false
	}
	f.held += n
	return true
}

func (f *Feed) give(n int) {
	f.held -= n
	f.hub.account.Give(n)
}

// miss tells that events never came this far.
func (f *Feed) miss(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.taps {
		t.over = true
	}
}

// trim forgets what every tap has taken.
func (f *Feed) trim() {
	least := f.head
	for _, t := range f.taps {
		least = min(least, t.cursor)
	}
	if left := int(f.head - least); left < len(f.records) {
		f.evictTo(left)
	}
}

// evictTo forgets the oldest events but for so many. Taps that keep the first ones take what they need.
func (f *Feed) evictTo(left int) {
	left = max(left, 0)
	for len(f.records) > left {
		at := f.head - uint64(len(f.records))
		body := f.records[0]
		f.give(len(body) + recordBytes)
		for _, t := range f.taps {
			t.save(at, body)
		}
		f.records[0] = nil
		f.records = f.records[1:]
	}
}

// save takes an event that the feed forgets, if the tap is to keep its first ones.
func (t *Tap) save(at uint64, body []byte) {
	if !t.newest || t.full || t.cursor != at || len(t.stash) >= t.queue-1 {
		return
	}
	if !t.feed.take(len(body) + recordBytes) {
		t.full = true
		return
	}
	t.stash = append(t.stash, body)
	t.cursor++
}

func (t *Tap) dropStash() {
	for _, body := range t.stash {
		t.feed.give(len(body) + recordBytes)
	}
	t.stash, t.full = nil, false
}

// waiting is how many events the queue holds now, and how many it lost since it was settled last.
func (t *Tap) waiting() (n int, lost uint64) {
	f := t.feed
	all := uint64(len(t.stash)) + f.head - t.cursor
	there := len(t.stash) + int(min(uint64(len(f.records)), f.head-t.cursor)) // with those that the feed still has
	n = min(there, t.queue)
	return n, all - uint64(n)
}

// settle makes the loss final, and returns it.
func (t *Tap) settle() uint64 {
	n, lost := t.waiting()
	if lost == 0 {
		return 0
	}
	t.over = true
	f := t.feed
	if !t.newest {
		there := int(min(uint64(len(f.records)), f.head-t.cursor))
		t.shorten(max(n-there, 0))
		t.cursor = f.head - uint64(min(n, there))
		return lost
	}
	// The first places keep what came first, the last one the newest (Part 4, 7.21, discardOldest).
	for from := f.head - uint64(len(f.records)); len(t.stash) < n-1 && t.cursor < f.head; t.cursor++ {
		if t.cursor >= from && !t.keep(f.records[t.cursor-from]) {
			break
		}
	}
	if t.cursor < f.head && len(f.records) > 0 && n > 0 {
		for len(t.stash) >= n {
			t.cut()
		}
		t.keep(f.records[len(f.records)-1])
	}
	t.cursor, t.full = f.head, false
	return lost + uint64(n-len(t.stash))
}

func (t *Tap) keep(body []byte) bool {
	if !t.feed.take(len(body) + recordBytes) {
		return false
	}
	t.stash = append(t.stash, body)
	return true
}

// shorten drops the first events of the stash but for so many.
func (t *Tap) shorten(left int) {
	for len(t.stash) > left {
		t.feed.give(len(t.stash[0]) + recordBytes)
		t.stash[0] = nil
		t.stash = t.stash[1:]
	}
}

// cut drops the last event of the stash.
func (t *Tap) cut() {
	last := len(t.stash) - 1
	t.feed.give(len(t.stash[last]) + recordBytes)
	t.stash[last] = nil
	t.stash = t.stash[:last]
}

// Waiting is how many events the queue holds, and how many it lost that Peek has not told of yet. over: an overflow event
// waits beside them.
func (t *Tap) Waiting() (n int, lost uint64, over bool) {
	t.feed.mu.Lock()
	defer t.feed.mu.Unlock()
	n, lost = t.waiting()
	return n, lost, t.over || lost > 0
}

// Peek appends the encoded EventFields of the oldest events of the queue to dst, at most so many, and returns how many
// were lost since it was called last. The slices are read only.
func (t *Tap) Peek(dst [][]byte, most int) (_ [][]byte, lost uint64) {
	f := t.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	lost = t.settle()
	dst = append(dst, t.stash[:min(len(t.stash), most)]...)
	if most -= len(t.stash); most > 0 {
		if from := f.head - uint64(len(f.records)); t.cursor >= from {
			rest := f.records[t.cursor-from:]
			dst = append(dst, rest[:min(len(rest), most)]...)
		}
	}
	return dst, lost
}

// Advance takes the oldest n events, which Peek has given, off the queue.
func (t *Tap) Advance(n int) {
	t.feed.mu.Lock()
	defer t.feed.mu.Unlock()
	k := min(n, len(t.stash))
	if t.shorten(len(t.stash) - k); len(t.stash) == 0 {
		t.stash, t.full = nil, false
	}
	t.cursor += uint64(n - k)
}

// Overflow reports whether an overflow event waits, and whether it stands before the others: they were lost at that end
// (Part 4, 5.13.1.5). It has a place of its own beside the queue's.
func (t *Tap) Overflow() (waits, first bool) {
	t.feed.mu.Lock()
	defer t.feed.mu.Unlock()
	return t.over, !t.newest
}

// OverflowBody is the overflow event in the form of the filter; the where clause is not asked.
func (t *Tap) OverflowBody() []byte { return t.feed.filter.Append(nil, t.feed.hub.overflowEvent()) }

// RefusedBody is what stands for an event that fits no message.
func (t *Tap) RefusedBody() []byte { return t.feed.filter.appendRefused(nil) }

// Told notes that the overflow event was sent.
func (t *Tap) Told() {
	t.feed.mu.Lock()
	t.over = false
	t.feed.mu.Unlock()
}

// Clear empties the queue: it begins with the next event.
func (t *Tap) Clear() {
	t.feed.mu.Lock()
	defer t.feed.mu.Unlock()
	t.dropStash()
	t.cursor, t.over = t.feed.head, false
}

// Resize gives the queue another size and policy. What is too much is lost by the policy, which is returned.
func (t *Tap) Resize(queue int, newest bool) (lost uint64) {
	f := t.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	lost = t.settle()
	t.queue, t.newest = queue, newest
	f.queue = 0
	for _, o := range f.taps {
		f.queue = max(f.queue, o.queue)
	}
	lost += t.settle()
	f.evictTo(f.queue)
	return lost
}

// Filter is what the tap's events pass and how they are encoded.
func (t *Tap) Filter() *Filter { return t.feed.filter }

// Size is the queue's.
func (t *Tap) Size() int {
	t.feed.mu.Lock()
	defer t.feed.mu.Unlock()
	return t.queue
}
