package address

import (
	"slices"
	"sync"
	"sync/atomic"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// SlotBytes is what one slot of a Series is charged to its account: a tag.Sample. What its value holds beside itself is
// charged when it is there.
const SlotBytes = 40

// Block groups the Series of variables that change together, such as those of one device. Its counter tells a reader
// of many Series that none of them moved, without a look at each.
type Block struct {
	changes atomic.Uint64
	account tag.Account // charged with the slots that queues reserve; nil: none
}

// NewBlock makes a Block whose queues are charged to account; nil is no limit.
func NewBlock(account tag.Account) *Block { return &Block{account: account} }

// New makes the Series of a variable, n being its node. It begins without a sample.
func (b *Block) New(n *Node) *Series {
	s := new(Series)
	s.Init(b, n)
	return s
}

// Changes counts the samples that were appended to the block's Series.
func (b *Block) Changes() uint64 { return b.changes.Load() }

// Waker is told that half a ring has passed. It is called by whoever appends: it must not block, nor call the Series.
type Waker interface{ Wake() }

// need is how many readers asked for a queue of one size.
type need struct{ queue, readers int32 }

// Series is the log of one variable: its last samples, for cursors to walk. A change costs the same with one reader or
// a thousand, and whoever appends never waits for a reader's socket. The zero Series is ready for use; it belongs to no
// block and charges no account.
type Series struct {
	head     atomic.Uint64 // number of samples ever appended; written under mu
	block    *Block        // nil: none
	node     atomic.Pointer[Node]
	mu       sync.Mutex // guards all below; held for copies alone
	kind     tag.Kind   // of the readings that Publish takes; Null: any
	shut     bool       // Publish takes none
	last     tag.Sample // the newest
	verified tag.Time
	log      *log    // nil: nobody wants more than the newest, as of most variables
	turns    *[]turn // the last ones, oldest first; nil: there was none
}

// Changed are the two bits of a notification's status which say that what is known of the variable has to be read anew
// before the value is used (Part 4, 7.39.1). They have no meaning elsewhere: Last and Value do not show them.
const (
	SemanticsChanged = tag.Status(1 << 14)
	StructureChanged = tag.Status(1 << 15)
	Changed          = SemanticsChanged | StructureChanged
)

// turn is a sample that came with bits of Changed.
type turn struct {
	at   uint64 // its number: the head then
	bits tag.Status
}

// maxTurns is how many of them a Series remembers, for readers who are behind.
const maxTurns = 8

// log is what a Series holds while readers want more than its newest sample. Its Series' mu guards it.
type log struct {
	ring   []tag.Sample // the newest too; grows as it fills, up to queue
	next   int          // slot of the next sample
	count  int          // samples in the ring, the newest of them before next
	queue  int          // largest queue that is reserved; 0 is none
	needs  []need       // by queue size, ascending
	alarm  uint64       // head at which the wakers are told next
	wakers []Waker
}

// Block is the block that the Series belongs to; nil if none.
func (s *Series) Block() *Block { return s.block }

// Init puts a Series that is part of something else into a block, before it is used.
func (s *Series) Init(b *Block, n *Node) {
	s.block = b
	s.node.Store(n)
}

// Node is the variable whose samples these are; nil if nobody gave one.
func (s *Series) Node() *Node { return s.node.Load() }

// SetNode gives a Series that has no node the one by which a reader found it.
func (s *Series) SetNode(n *Node) {
	if s.node.Load() == nil {
		s.node.Store(n)
	}
}

// Bind has the Series follow its variable to another node, such as one that took the place of the first.
func (s *Series) Bind(n *Node) { s.node.Store(n) }

// Head is the number of samples ever appended. A reader whose cursor is there has seen everything.
func (s *Series) Head() uint64 { return s.head.Load() }

// Append adds a changed sample.
func (s *Series) Append(v tag.Sample) {
	s.mu.Lock()
	s.append(&v)
	s.mu.Unlock()
	s.changed()
}

// Open appends a sample, from which on Publish takes readings of one kind and those without a value; Null: of any. Bits of
// Changed in the sample's status are told to each reader once: with this sample, or the next that the reader gets.
func (s *Series) Open(kind tag.Kind, v tag.Sample) { s.turn(kind, false, v) }

// Shut appends a sample, from which on Publish takes no reading until Open.
func (s *Series) Shut(v tag.Sample) { s.turn(tag.Null, true, v) }

func (s *Series) turn(kind tag.Kind, shut bool, v tag.Sample) {
	s.mu.Lock()
	s.kind, s.shut = kind, shut
	s.tell(v.Status & Changed)
	v.Status &^= Changed
	s.append(&v)
	s.mu.Unlock()
	s.changed()
}

// Tell appends the newest sample again, for its readers to be told of bits of Changed as Open says. Where there is no
// sample, or the Series is shut, there is nothing to tell of.
func (s *Series) Tell(bits tag.Status) {
	s.mu.Lock()
	if s.shut || s.head.Load() == 0 {
		s.mu.Unlock()
		return
	}
	verified, v := s.verified, s.last
	s.tell(bits)
	s.append(&v)
	s.verified = verified
	s.mu.Unlock()
	s.changed()
}

// tell notes that the next sample comes with bits of Changed. Call it with mu held.
func (s *Series) tell(bits tag.Status) {
	if bits == 0 {
		return
	}
	if s.turns == nil {
		s.turns = new([]turn)
	}
	turns := *s.turns
	if len(turns) == maxTurns {
		turns = slices.Delete(turns, 0, 1)
	}
	*s.turns = append(turns, turn{s.head.Load() + 1, bits})
}

// mark sets the bits of Changed in samples that a reader gets: those behind the base-th. cursor is where the reader was.
func (s *Series) mark(got []tag.Sample, base, cursor uint64) {
	for _, t := range *s.turns {
		if t.at > cursor && t.at <= base+uint64(len(got)) {
			got[max(t.at, base+1)-base-1].Status |= t.bits
		}
	}
}

// Publish takes a reading: one with another status or value than the newest sample is appended, an equal one verifies
// that, and one that is not taken now (see Open and Shut) is passed over.
func (s *Series) Publish(v *tag.Sample) {
	s.mu.Lock()
	switch {
	case s.shut, s.kind != tag.Null && s.kind != v.Value.Kind() && !v.Value.IsNull():
	case s.head.Load() > 0 && s.last.Status == v.Status && s.last.Value.Equal(v.Value):
		s.verified = v.At
	default:
		s.append(v)
		s.mu.Unlock()
		s.changed()
		return
	}
	s.mu.Unlock()
}

// append adds a sample. Call it with mu held, and changed afterwards.
func (s *Series) append(v *tag.Sample) {
	if s.log != nil {
		s.log.add(s.account(), *v)
	}
	s.last, s.verified = *v, v.At
	head := s.head.Load() + 1
	s.head.Store(head)
	if s.log != nil {
		s.log.wake(head)
	}
}

// changed tells the block of a new sample.
func (s *Series) changed() {
	if s.block != nil {
		s.block.changes.Add(1)
	}
}

// account is what the queues are charged to, or nil.
func (s *Series) account() tag.Account {
	if s.block == nil {
		return nil
	}
	return s.block.account
}

// add puts a sample into the ring.
func (l *log) add(a tag.Account, v tag.Sample) {
	l.retain(a)
	switch n := len(l.ring); {
	case l.count == n && n < max(1, l.queue):
		l.resize(a, min(max(1, l.queue), max(1, 2*n)))
	case l.count == n && n > 1:
		l.forget(a)
	}
	if l.next == len(l.ring) {
		l.next = 0
	}
	l.ring[l.next] = v
	l.next++
	l.count = min(l.count+1, len(l.ring))
}

// wake tells the wakers when half of the largest queue has passed.
func (l *log) wake(head uint64) {
	if len(l.wakers) == 0 || head < l.alarm {
		return
	}
	l.alarm = head + uint64(max(1, l.queue/2))
	for _, w := range l.wakers {
		w.Wake()
	}
}

// retain charges the account with the text, bytes or elements of the newest sample, which is about to be kept behind a
// newer one. Where there is no room older samples go, and at last this one: their readers are told of a loss.
func (l *log) retain(a tag.Account) {
	if l.count == 0 || l.queue <= 1 || a == nil {
		return
	}
	n := l.ring[l.slot(1)].Value.Size()
	for n > 0 && !a.Take(n) {
		if l.count == 1 {
			l.ring[l.slot(1)] = tag.Sample{}
			l.count = 0
			return
		}
		l.forget(a)
	}
}

// forget gives up the oldest sample, which is not the newest.
func (l *log) forget(a tag.Account) {
	oldest := &l.ring[l.slot(l.count)]
	if n := oldest.Value.Size(); n > 0 && a != nil {
		a.Give(n)
	}
	*oldest = tag.Sample{}
	l.count--
}

// resize gives the ring that many slots, with its newest samples in order from the first.
func (l *log) resize(a tag.Account, size int) {
	for l.count > size {
		l.forget(a)
	}
	n := l.count
	ring := make([]tag.Sample, size)
	for i := range n {
		ring[i] = l.ring[l.slot(n-i)]
	}
	l.ring, l.next = ring, n
}

// slot is where the sample is that was appended back samples ago; 1 is the newest.
func (l *log) slot(back int) int {
	i := l.next - back
	if i < 0 {
		i += len(l.ring)
	}
	return i
}

// begin returns the log, which it makes at the first call with the newest sample in it.
func (s *Series) begin() *log {
	if s.log == nil {
		s.log = &log{}
		if s.head.Load() > 0 {
			s.log.add(nil, s.last)
		}
	}
	return s.log
}

// end gives the log up when nobody wants it any longer.
func (s *Series) end() {
	if l := s.log; l.queue <= 1 && len(l.wakers) == 0 {
		s.log = nil
	}
}

// Verify notes that a reading at that time found the last sample unchanged.
func (s *Series) Verify(at tag.Time) {
	s.mu.Lock()
	s.verified = at
	s.mu.Unlock()
}

// Last is the newest sample, and when it was last verified; false before the first.
func (s *Series) Last() (v tag.Sample, verified tag.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.verified, s.head.Load() > 0
}

// Value sets v to the newest sample, with the time of the last verification as ServerTimestamp; it leaves v alone before
// the first. It is what Last is, for a reader of many.
func (s *Series) Value(v *wire.DataValue) {
	s.mu.Lock()
	if s.head.Load() > 0 {
		v.Value, v.Status, v.Source, v.Server = s.last.Value, s.last.Status, s.last.At, s.verified
	}
	s.mu.Unlock()
}

// Take appends to dst what is new since cursor, oldest first, at most max samples of the last queue ones, and moves
// cursor past them. lost is how many samples before those the head had passed beyond the queue, exactly. The status of a
// sample may have bits of Changed.
func (s *Series) Take(cursor *uint64, queue, max int, dst []tag.Sample) (_ []tag.Sample, lost uint64) {
	s.mu.Lock()
	fresh, lost := s.kept(*cursor, queue)
	n := min(int(fresh), max)
	switch {
	case n <= 0:
	case s.log == nil:
		dst = append(dst, s.last)
	default:
		dst = s.log.copy(dst, int(fresh), n)
	}
	if s.turns != nil && n > 0 {
		s.mark(dst[len(dst)-n:], *cursor+lost, *cursor)
	}
	s.mu.Unlock()
	*cursor += lost + uint64(n)
	return dst, lost
}

// Behind is what Take would find with that cursor and queue: how many samples wait, and how many are lost.
func (s *Series) Behind(cursor uint64, queue int) (waiting, lost uint64) {
	if s.head.Load() == cursor {
		return 0, 0
	}
	s.mu.Lock()
	waiting, lost = s.kept(cursor, queue)
	s.mu.Unlock()
	return waiting, lost
}

// kept splits what is new since cursor into what a reader with that queue gets, and what it lost. Call it with mu held.
func (s *Series) kept(cursor uint64, queue int) (fresh, lost uint64) {
	fresh = s.head.Load() - cursor
	kept := uint64(min(queue, 1))
	if s.log != nil {
		kept = uint64(min(queue, s.log.count))
	}
	if fresh > kept {
		return kept, fresh - kept
	}
	return fresh, 0
}

// copy appends n samples to dst, from the one that was appended back samples ago.
func (l *log) copy(dst []tag.Sample, back, n int) []tag.Sample {
	from := l.slot(back)
	if tail := len(l.ring) - from; n > tail {
		dst = append(dst, l.ring[from:]...)
		return append(dst, l.ring[:n-tail]...)
	}
	return append(dst, l.ring[from:from+n]...)
}

// Reserve asks that the last queue samples be kept for one more reader, and returns how many will be: as many as the
// block's account has room for, at least one. What was granted is given back with Release.
func (s *Series) Reserve(queue int) (granted int) {
	if queue <= 1 { // the newest is there in any case
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.begin()
	defer s.end()
	for queue > l.queue && !l.charge(s.account(), queue) {
		queue = max(l.queue, queue/2, 1)
	}
	if queue <= 1 {
		return 1
	}
	l.queue = max(l.queue, queue)
	i := 0
	for i < len(l.needs) && int(l.needs[i].queue) < queue {
		i++
	}
	if i == len(l.needs) || int(l.needs[i].queue) != queue {
		l.needs = append(l.needs, need{})
		copy(l.needs[i+1:], l.needs[i:])
		l.needs[i] = need{queue: int32(queue)}
	}
	l.needs[i].readers++
	return queue
}

// charge takes the bytes of a larger queue from the account. The one slot that every variable has is not charged.
func (l *log) charge(a tag.Account, queue int) bool {
	more := (queue - max(1, l.queue)) * SlotBytes
	return more <= 0 || a == nil || a.Take(more)
}

// Release ends a reservation. The ring shrinks, keeping its newest samples, when nobody needs its size any longer.
func (s *Series) Release(granted int) {
	if granted <= 1 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, a := s.log, s.account()
	if l == nil {
		return // it was given back before
	}
	for i := range l.needs {
		if int(l.needs[i].queue) != granted {
			continue
		}
		if l.needs[i].readers--; l.needs[i].readers == 0 {
			l.needs = append(l.needs[:i], l.needs[i+1:]...)
		}
		break
	}
	queue := 0
	if n := len(l.needs); n > 0 {
		queue = int(l.needs[n-1].queue)
	}
	if a != nil {
		a.Give((max(1, l.queue) - max(1, queue)) * SlotBytes)
	}
	l.queue = queue
	if size := max(1, queue); len(l.ring) > size {
		l.resize(a, size)
	}
	s.end()
}

// Watch has w told each time that half of the largest queue has passed, so that a reader that must look at every
// sample comes in time.
func (s *Series) Watch(w Waker) {
	s.mu.Lock()
	l := s.begin()
	l.wakers = append(l.wakers, w)
	l.alarm = s.head.Load() + uint64(max(1, l.queue/2))
	s.mu.Unlock()
}

// Unwatch ends one Watch of w.
func (s *Series) Unwatch(w Waker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == nil {
		return
	}
	l := s.log
	for i := range l.wakers {
		if l.wakers[i] == w {
			l.wakers = append(l.wakers[:i], l.wakers[i+1:]...)
			break
		}
	}
	s.end()
}
