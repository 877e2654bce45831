package address

import (
	"sync"
	"sync/atomic"

	"edged/drivers/tag"
)

// slotBytes is what one slot of a Series is charged to its account: a tag.Sample. What its value holds beside itself is
// charged when it is there.
const slotBytes = 40

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
	mu       sync.Mutex   // guards all below; held for copies alone
	ring     []tag.Sample // grows as it fills, up to queue
	next     int          // slot of the next sample
	count    int          // samples in the ring, the newest of them before next
	queue    int          // largest queue that is reserved; 0 is none
	needs    []need       // by queue size, ascending
	alarm    uint64       // head at which the wakers are told next
	wakers   []Waker
	verified tag.Time
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
	s.retain()
	switch n := len(s.ring); {
	case s.count == n && n < max(1, s.queue):
		s.resize(min(max(1, s.queue), max(1, 2*n)))
	case s.count == n && n > 1:
		s.forget()
	}
	if s.next == len(s.ring) {
		s.next = 0
	}
	s.ring[s.next] = v
	s.next++
	s.count = min(s.count+1, len(s.ring))
	head := s.head.Load() + 1
	s.head.Store(head)
	s.verified = v.At
	if len(s.wakers) > 0 && head >= s.alarm {
		s.alarm = head + uint64(max(1, s.queue/2))
		for _, w := range s.wakers {
			w.Wake()
		}
	}
	s.mu.Unlock()
	if s.block != nil {
		s.block.changes.Add(1)
	}
}

// retain charges the account with the text, bytes or elements of the newest sample, which is about to be kept behind a
// newer one. Where there is no room older samples go, and at last this one: their readers are told of a loss.
func (s *Series) retain() {
	if s.count == 0 || s.queue <= 1 || s.block == nil || s.block.account == nil {
		return
	}
	n := s.ring[s.slot(1)].Value.Size()
	for n > 0 && !s.block.account.Take(n) {
		if s.count == 1 {
			s.ring[s.slot(1)] = tag.Sample{}
			s.count = 0
			return
		}
		s.forget()
	}
}

// forget gives up the oldest sample, which is not the newest.
func (s *Series) forget() {
	oldest := &s.ring[s.slot(s.count)]
	if n := oldest.Value.Size(); n > 0 && s.block != nil && s.block.account != nil {
		s.block.account.Give(n)
	}
	*oldest = tag.Sample{}
	s.count--
}

// resize gives the ring that many slots, with its newest samples in order from the first.
func (s *Series) resize(size int) {
	for s.count > size {
		s.forget()
	}
	n := s.count
	ring := make([]tag.Sample, size)
	for i := range n {
		ring[i] = s.ring[s.slot(n-i)]
	}
	s.ring, s.next = ring, n
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
	if s.head.Load() == 0 {
		return v, 0, false
	}
	return s.ring[s.slot(1)], s.verified, true
}

// slot is where the sample is that was appended back samples ago; 1 is the newest.
func (s *Series) slot(back int) int {
	i := s.next - back
	if i < 0 {
		i += len(s.ring)
	}
	return i
}

// Take appends to dst what is new since cursor, oldest first, at most max samples of the last queue ones, and moves
// cursor past them. lost is how many samples before those the head had passed beyond the queue, exactly.
func (s *Series) Take(cursor *uint64, queue, max int, dst []tag.Sample) (_ []tag.Sample, lost uint64) {
	s.mu.Lock()
	fresh := s.head.Load() - *cursor
	kept := uint64(min(queue, s.count))
	if fresh > kept {
		lost = fresh - kept
		fresh = kept
	}
	n := min(int(fresh), max)
	if n > 0 {
		from := s.slot(int(fresh))
		if tail := len(s.ring) - from; n > tail {
			dst = append(dst, s.ring[from:]...)
			dst = append(dst, s.ring[:n-tail]...)
		} else {
			dst = append(dst, s.ring[from:from+n]...)
		}
	}
	s.mu.Unlock()
	*cursor += lost + uint64(n)
	return dst, lost
}

// Reserve asks that the last queue samples be kept for one more reader, and returns how many will be: as many as the
// block's account has room for, at least one. What was granted is given back with Release.
func (s *Series) Reserve(queue int) (granted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue = max(1, queue)
	for queue > s.queue && !s.charge(queue) {
		queue = max(s.queue, queue/2, 1)
	}
	s.queue = max(s.queue, queue)
	i := 0
	for i < len(s.needs) && int(s.needs[i].queue) < queue {
		i++
	}
	if i == len(s.needs) || int(s.needs[i].queue) != queue {
		s.needs = append(s.needs, need{})
		copy(s.needs[i+1:], s.needs[i:])
		s.needs[i] = need{queue: int32(queue)}
	}
	s.needs[i].readers++
	return queue
}

// charge takes the bytes of a larger queue from the account. The one slot that every variable has is not charged.
func (s *Series) charge(queue int) bool {
	more := (queue - max(1, s.queue)) * slotBytes
	return more <= 0 || s.block == nil || s.block.account == nil || s.block.account.Take(more)
}

// Release ends a reservation. The ring shrinks, keeping its newest samples, when nobody needs its size any longer.
func (s *Series) Release(granted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.needs {
		if int(s.needs[i].queue) != granted {
			continue
		}
		if s.needs[i].readers--; s.needs[i].readers == 0 {
			s.needs = append(s.needs[:i], s.needs[i+1:]...)
		}
		break
	}
	queue := 0
	if n := len(s.needs); n > 0 {
		queue = int(s.needs[n-1].queue)
	}
	if s.block != nil && s.block.account != nil {
		s.block.account.Give((max(1, s.queue) - max(1, queue)) * slotBytes)
	}
	s.queue = queue
	if size := max(1, queue); len(s.ring) > size {
		s.resize(size)
	}
}

// Watch has w told each time that half of the largest queue has passed, so that a reader that must look at every
// sample comes in time.
func (s *Series) Watch(w Waker) {
	s.mu.Lock()
	s.wakers = append(s.wakers, w)
	s.alarm = s.head.Load() + uint64(max(1, s.queue/2))
	s.mu.Unlock()
}

// Unwatch ends one Watch of w.
func (s *Series) Unwatch(w Waker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.wakers {
		if s.wakers[i] == w {
			s.wakers = append(s.wakers[:i], s.wakers[i+1:]...)
			return
		}
	}
}
