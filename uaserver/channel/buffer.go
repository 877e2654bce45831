package channel

import (
	"math/bits"
	"sync"
)

const (
	smallest   = 4 * 1024     // bytes of the first class of pooled buffers; each class has twice the one before
	classes    = 9            // up to 1 MiB; what is larger is left to the garbage collector
	firstRead  = 2 * smallest // what an idle connection takes when bytes arrive: Part 6, 7.1.2.3 has no smaller chunk limit
	headerSize = 24           // of a symmetric chunk: message, security and sequence header (Part 6, 6.7.2)
)

// buffer is bytes from a pool. It is a pointer's target, so that going to the pool and back allocates nothing.
type buffer struct {
	b   []byte
	off int // what of b was already written to the socket
}

var pools [classes]sync.Pool

// take returns a buffer whose b is empty and has room for n bytes.
func take(n int) *buffer {
	k := 0
	if n > smallest {
		k = bits.Len(uint(n-1) / smallest)
	}
	if k >= classes {
		return &buffer{b: make([]byte, 0, n)}
	}
	if b, ok := pools[k].Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, 0, smallest<<k)}
}

// release puts b back. Whoever held it forgets it.
func (b *buffer) release() {
	n := cap(b.b)
	if n < smallest || n > smallest<<classes {
		return
	}
	b.b, b.off = b.b[:0], 0
	pools[min(bits.Len(uint(n/smallest))-1, classes-1)].Put(b)
}
