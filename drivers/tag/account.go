package tag

import (
	"math"
	"sync/atomic"
)

// Budget is an Account with a fixed limit in bytes.
type Budget struct {
	used  atomic.Int64
	Limit int64 // set before the first use; 0 is no limit
}

// Take counts n bytes if they fit.
func (b *Budget) Take(n int) bool {
	if used := b.used.Add(int64(n)); b.Limit > 0 && used > b.Limit {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

// Give returns n bytes.
func (b *Budget) Give(n int) { b.used.Add(int64(-n)) }

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Left is how many bytes there are to take; without a limit, more than anybody asks for.
func (b *Budget) Left() int64 {
	if b.Limit <= 0 {
		return math.MaxInt64
	}
	return max(0, b.Limit-b.used.Load())
}
