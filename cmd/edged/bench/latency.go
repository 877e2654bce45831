package bench

import (
	"math/bits"
	"time"
)

// The buckets of a latencies: one a nanosecond below 2*subBuckets, then subBuckets for each power of two, so that a bucket
// is at most 1/subBuckets (3 %) wide. The last ends after 2^41 ns, more than half an hour.
const (
	subBits    = 5
	subBuckets = 1 << subBits
	powers     = 36
	buckets    = (powers + 1) * subBuckets
)

// latencies is a distribution of times. The zero value is empty.
type latencies struct {
	n   [buckets]uint32
	sum uint64 // how many
	max time.Duration
}

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-subBits-1, 0)
	return min(shift<<subBits+int(v>>shift), buckets-1)
}

// middle is the middle of a bucket.
func middle(i int) time.Duration {
	shift := max(i>>subBits-1, 0)
	low := uint64(i-shift<<subBits) << shift
	return time.Duration(low + (uint64(1)<<shift)/2)
}

// add counts one time.
func (l *latencies) add(d time.Duration) {
	l.n[bucket(d)]++
	l.sum++
	l.max = max(l.max, d)
}

// merge adds all of o.
func (l *latencies) merge(o *latencies) {
	for i, n := range o.n {
		l.n[i] += n
	}
	l.sum += o.sum
	l.max = max(l.max, o.max)
}

// quantile is the time that q (0 to 1) of all do not exceed, within the width of a bucket; 0 where there are none. The
// longest is exact.
func (l *latencies) quantile(q float64) time.Duration {
	if l.sum == 0 {
		return 0
	}
	rank := max(uint64(q*float64(l.sum)+0.5), 1)
	if rank >= l.sum {
		return l.max
	}
	for i, n := range l.n {
		if rank <= uint64(n) {
			return min(middle(i), l.max)
		}
		rank -= uint64(n)
	}
	return l.max
}
