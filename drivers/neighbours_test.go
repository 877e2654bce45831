package drivers

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"
)

// dead makes n devices that never answer: tags first, first+1, ...
func dead(n int, first tag.Ref, period, timeout time.Duration) []*plant {
	var out []*plant
	for i := range n {
		p := newPlant(period, first+tag.Ref(i))
		p.takes = func() time.Duration { return timeout }
		p.poll = func(int) error { return mute() }
		out = append(out, p)
	}
	return out
}

func TestD11ManyDeadUnitsLeaveTheLineToTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := newPlant(200*time.Millisecond, 31)
		r := newRig(t, BusConfig{}, append(dead(30, 1, 200*time.Millisecond, 100*time.Millisecond), live)...)
		r.start(t)
		time.Sleep(40 * time.Second)
		r.stop()
		if n := len(live.polled); n < 180 {
			t.Errorf("%d polls of 200 beside dead units", n)
		}
		for i := range live.polled[1:] {
			if gap := live.polled[i+1].Sub(live.polled[i]); gap > 450*time.Millisecond {
				t.Errorf("%v between two polls of 200 ms", gap)
			}
		}
	})
}

// A link that is made anew since the devices asked are silent is not a line that is down, and they keep their back-off.
func TestD21HalfOpenIsNotDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plants := dead(4, 1, time.Second, 100*time.Millisecond)
		silences := 0
		for _, p := range plants {
			p.poll = func(int) error {
				if silences++; silences%3 == 0 {
					return fmt.Errorf("connection made anew: %w", ErrHalfOpen)
				}
				return mute()
			}
		}
		live := newPlant(5*time.Second, 5)
		r := newRig(t, BusConfig{}, append(plants, live)...)
		r.start(t)
		time.Sleep(time.Minute)
		r.stop()
		if got := r.sink.statuses(5); !slices.Equal(got, []tag.Status{tag.Good}) {
			t.Errorf("the device that answers went %v", got)
		}
		if n := len(live.polled); n < 12 {
			t.Errorf("%d polls of 12", n)
		}
		if n := r.logged("line is down"); n != 0 {
			t.Errorf("%d times down", n)
		}
		for i, p := range plants {
			if n := len(p.polled); n > 24 { // each third time twice
				t.Errorf("dead device %d was asked %d times in a minute", i, n)
			}
		}
	})
}

func TestH5DeviceThatComesAndGoesFillsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		n := 0
		var ended atomic.Bool
		p.poll = func(int) error {
			if n++; n%2 == 0 && !ended.Load() {
				return &Fault{Kind: Refused, Err: errors.New("exception 4")}
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(time.Hour)
		if got := r.logged("device=d0"); got < 6*6 || got > 7*6 {
			t.Errorf("%d lines in an hour", got)
		}
		ended.Store(true)
		time.Sleep(11 * time.Minute)
		r.stop()
		if got := r.logged("state=online unsaid="); got == 0 {
			t.Error("the log does not tell how it ended")
		}
	})
}
