package address

import (
	"sync"

	"edged/drivers/tag"
)

// Series is the log of one variable: its last samples, for cursors to walk. A change costs the same with one reader or
// a thousand, and whoever appends never waits for a reader's socket.
type Series struct {
	mu       sync.Mutex // guards all below; held for copies alone
	ring     []tag.Sample
	head     uint64 // number of samples ever appended
	verified tag.Time
}

// Append adds a changed sample.
func (s *Series) Append(v tag.Sample) {
	s.mu.Lock()
	if len(s.ring) == 0 {
		s.ring = make([]tag.Sample, 1)
	}
	s.ring[s.head%uint64(len(s.ring))] = v
	s.head++
	s.verified = v.At
	s.mu.Unlock()
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
	if s.head == 0 {
		return v, 0, false
	}
	return s.ring[(s.head-1)%uint64(len(s.ring))], s.verified, true
}
