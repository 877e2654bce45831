package bench

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsAreNarrow(t *testing.T) {
	for d := time.Duration(0); d < 2*subBuckets; d++ {
		if got := middle(bucket(d)); got != d {
			t.Errorf("%v is counted as %v: small times are exact", d, got)
		}
	}
	last := -1
	for d := time.Duration(1); d < time.Hour/2; d += d/7 + 1 {
		i := bucket(d)
		if i < last || i >= buckets {
			t.Fatalf("%v: bucket %d behind %d", d, i, last)
		}
		last = i
		if off := middle(i) - d; off > d/subBuckets || off < -d/subBuckets {
			t.Errorf("%v is counted as %v", d, middle(i))
		}
	}
	for _, d := range []time.Duration{-1, 1 << 62} {
		if i := bucket(d); i != 0 && i != buckets-1 {
			t.Errorf("%d: bucket %d", d, i)
		}
	}
}

func TestQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var parts [3]latencies
	var all []time.Duration
	for i := range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(100*time.Microsecond))
		parts[i%3].add(d)
		all = append(all, d)
	}
	var l latencies
	for i := range parts {
		l.merge(&parts[i])
	}
	slices.Sort(all)
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
		want := all[int(q*float64(len(all)))-1]
		if got := l.quantile(q); got < want-want/20 || got > want+want/20 {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
	if l.quantile(1) != l.max || l.max != all[len(all)-1] || l.sum != 10_000 {
		t.Errorf("quantile 1 is %v, max %v of %d, want %v", l.quantile(1), l.max, l.sum, all[len(all)-1])
	}
	var none latencies
	if none.quantile(0.5) != 0 {
		t.Error("nothing has a median")
	}
	none.add(time.Second)
	if got := none.quantile(0.5); got != time.Second {
		t.Errorf("the median of one second is %v", got)
	}
}
