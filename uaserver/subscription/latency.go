package subscription

import (
	"sync/atomic"
	"time"

	"edged/drivers/tag"
)

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
