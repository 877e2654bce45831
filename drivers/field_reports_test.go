package drivers

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"
)

// I7: a poll that was in flight when a write came must not bring the old value back after the write was confirmed.
func TestI7NoOldValueAfterAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.takes = func() time.Duration { return 90 * time.Millisecond } // a block read that is slow
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		for n := uint16(1); n <= 50; n++ {
			time.Sleep(time.Duration(n) * 7 * time.Millisecond)
			cmds := []tag.Command{{Ref: 1, Value: tag.Of(n)}}
			r.Execute(t.Context(), cmds)
			confirmed := len(r.sink.of(1))
			time.Sleep(300 * time.Millisecond)
			if cmds[0].Status != tag.Good {
				t.Fatal(cmds[0].Status)
			}
			for _, s := range r.sink.of(1)[confirmed-1:] {
				if s.Value.Bits() != uint64(n) {
					t.Fatalf("after %d was confirmed, %v was published", n, s.Value)
				}
			}
		}
		r.stop()
	})
}

// H3: every loop of a bus tells that it works, with all of its devices dead too; one that hangs is silent.
func TestH3PulseOfABus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, BusConfig{}, dead(3, 1, time.Second, 500*time.Millisecond)...)
		var mu sync.Mutex
		var last time.Time
		var longest time.Duration
		r.config.Pulse = func() {
			mu.Lock()
			defer mu.Unlock()
			if !last.IsZero() {
				longest = max(longest, time.Since(last))
			}
			last = time.Now()
		}
		f, err := NewFleet(r.config)
		if err != nil {
			t.Fatal(err)
		}
		r.Fleet = f
		r.start(t)
		time.Sleep(10 * time.Minute)
		r.stop()
		if longest == 0 || longest > maxSleep+time.Second {
			t.Errorf("%v without a sign of work", longest)
		}
	})
}

// I3: scan classes of one device keep their own grids: a slow one with many requests delays the fast one by one exchange,
// and both have their rates.
func TestI3ScanClassesKeepTheirRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.scans = []time.Duration{100 * time.Millisecond, 10 * time.Second}
		p.requests = [][]int{{0}, {1, 2, 3, 4, 5, 6, 7, 8}}
		p.takes = func() time.Duration { return 40 * time.Millisecond }
		var fast []time.Time
		slow := 0
		p.poll = func(request int) error {
			if request == 0 {
				fast = append(fast, time.Now())
			} else {
				slow++
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(100*time.Second + 50*time.Millisecond)
		r.stop()
		if len(fast) < 995 || slow < 10*8 {
			t.Errorf("%d fast polls of 1000, %d slow requests of 80", len(fast), slow)
		}
		for i := range fast[1:] {
			if gap := fast[i+1].Sub(fast[i]); gap > 145*time.Millisecond {
				t.Errorf("%v between two fast polls", gap)
			}
		}
	})
}
