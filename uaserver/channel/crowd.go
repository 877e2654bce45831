package channel

import (
	"sync/atomic"
	"time"
)

// crowd tells a connection whether it is alone with its requests. One that is not lets the others be served before its
// next read: a client that waits for each response has sent its next request by then, so that the read needs no second
// try and the connection no wake-up. With 20 such clients that keep the server busy a request takes 1.03 reads instead
// of 2.0, and 6.9 us of CPU instead of 7.6; where the server has to wait for them, nothing changes. A connection that is
// alone would pay for it with the wake-up of another processor, which finds nothing to do.
type crowd struct {
	since time.Time     // of at
	last  atomic.Uint64 // number of the connection that was served last
	at    atomic.Int64  // when, in ns since since
}

// recent is how long ago another connection may have been served for there to be a crowd: a few requests' time.
const recent = 100 * time.Microsecond

// others notes that a connection was served, and reports whether another one was just before.
func (c *crowd) others(number uint64) bool {
	now := int64(time.Since(c.since))
	if c.last.Load() == number {
		c.at.Store(now)
		return false
	}
	c.last.Store(number)
	return now-c.at.Swap(now) < int64(recent)
}
