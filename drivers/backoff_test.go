package drivers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"
)

// outage makes a device fail from one moment to another.
type outage struct{ from, to time.Time }

func (o *outage) now() bool { return time.Now().After(o.from) && time.Now().Before(o.to) }

// firstGood is the first good reading of a tag at or after t.
func (r *record) firstGood(ref tag.Ref, t time.Time) (time.Time, bool) {
	for _, s := range r.of(ref) {
		if at := s.At.Time(); !at.Before(t) && s.Status == tag.Good {
			return at, true
		}
	}
	return time.Time{}, false
}

func TestBackAfterALongOutage(t *testing.T) {
	for _, row := range []struct {
		name string
		wish func(r *rig) // what a client asks every 100 ms, after a last attempt in vain of 500 ms at a device
		link bool         // the line was down, not one device
		most time.Duration
	}{
		{"a device, by itself", nil, false, 11 * time.Second},
		{"a device, a write", func(r *rig) { write(r, 1) }, false, 5200 * time.Millisecond},
		{"a device, a reading", func(r *rig) { r.Refresh(context.Background(), []tag.Ref{1}) }, false, 5200 * time.Millisecond},
		{"a line, by itself", nil, true, 11 * time.Second},
		{"a line, a write", func(r *rig) { write(r, 1) }, true, 1200 * time.Millisecond},
		{"a line, a reading", func(r *rig) { r.Refresh(context.Background(), []tag.Ref{1}) }, true, 1200 * time.Millisecond},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, o := newPlant(100*time.Millisecond, 1), &outage{}
				r := newRig(t, BusConfig{Retries: 1}, p)
				if row.link {
					fails := func() error {
						if o.now() {
							return errors.New("refused")
						}
						return nil
					}
					r.link.open = func(int) error { return fails() }
					p.poll = func(int) error { return fails() }
				} else {
					p.takes = func() time.Duration {
						if o.now() {
							return 500 * time.Millisecond
						}
						return time.Millisecond
					}
					p.poll = func(int) error {
						if o.now() {
							return mute()
						}
						return nil
					}
				}
				o.from = time.Now().Add(time.Second)
				o.to = o.from.Add(time.Hour)
				r.start(t)
				time.Sleep(time.Until(o.to) + time.Millisecond)
				for row.wish != nil && time.Since(o.to) < 6*time.Second {
					row.wish(r)
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(15 * time.Second)
				r.stop()
				at, ok := r.sink.firstGood(1, o.to)
				if took := at.Sub(o.to); !ok || took > row.most {
					t.Errorf("good again after %v, want at most %v (%v)", took, row.most, ok)
				}
			})
		})
	}
}

func write(r *rig, ref tag.Ref) tag.Status {
	cmds := []tag.Command{{Ref: ref, Value: tag.Of(uint16(7))}}
	r.Execute(context.Background(), cmds)
	return cmds[0].Status
}

func TestClientsOfDeadUnitsLeaveTheLineToTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := newPlant(100*time.Millisecond, 4)
		r := newRig(t, BusConfig{Retries: 1}, append(dead(3, 1, 200*time.Millisecond, 100*time.Millisecond), live)...)
		r.start(t)
		time.Sleep(10 * time.Second) // back-off has grown
		live.mu.Lock()
		before := len(live.polled)
		live.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var clients sync.WaitGroup
		for ref := tag.Ref(1); ref <= 3; ref++ {
			clients.Go(func() {
				for ctx.Err() == nil {
					write(r, ref)
					r.Refresh(ctx, []tag.Ref{ref})
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		clients.Wait()
		r.stop()
		if n := len(live.polled) - before; n < 600*85/100 {
			t.Errorf("%d polls of 600 beside clients that ask for dead units", n)
		}
	})
}

func TestH5WritesToADeadDeviceAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := newPlant(100*time.Millisecond, 1), &outage{}
		p.write = func(c *tag.Command) error {
			if o.now() {
				c.Status = tag.BadDeviceFailure
				return &Fault{Kind: Refused, Err: errors.New("exception 4")}
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		o.from = time.Now()
		o.to = o.from.Add(time.Hour)
		r.start(t)
		for range 1000 {
			time.Sleep(time.Second)
			if s := write(r, 1); s != tag.BadDeviceFailure {
				t.Fatalf("the write was %v", s)
			}
		}
		o.to = time.Now()
		if s := write(r, 1); s != tag.Good {
			t.Errorf("the write was %v", s)
		}
		r.stop()
		if n := r.logged("write failed"); n != 1 {
			t.Errorf("a thousand failures were told %d times", n)
		}
		if n := r.logged("write succeeds again\" bus=line tag=d0.t1 failed=1000"); n != 1 {
			t.Errorf("the log does not tell that writes succeed again:\n%s", r.log)
		}
	})
}

// A request that is tried again, and a device that asks for patience, hold up no command and no other device.
func TestCommandsAndPollsComeBetweenTries(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault func() error
	}{
		{"no answer", mute},
		{"D11 busy", func() error { return &Fault{Kind: Busy, Err: errors.New("exception 6")} }},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const timeout = 100 * time.Millisecond
				bad, good := newPlant(time.Second, 1), newPlant(20*time.Millisecond, 2)
				bad.takes = func() time.Duration { return timeout }
				n := 0
				bad.poll = func(int) error {
					if n++; n >= 2 && n <= 4 {
						return row.fault()
					}
					return nil
				}
				r := newRig(t, BusConfig{Retries: 3}, bad, good)
				r.start(t)
				time.Sleep(time.Second + 10*time.Millisecond) // the first try is under way
				began := time.Now()
				s := write(r, 2)
				if took := time.Since(began); s != tag.Good || took > 2*timeout+10*time.Millisecond {
					t.Errorf("a write beside a request that is tried again: %v after %v", s, took)
				}
				time.Sleep(5 * time.Second)
				r.stop()
				for i := range good.polled[1:] {
					if gap := good.polled[i+1].Sub(good.polled[i]); gap > timeout+20*time.Millisecond {
						t.Errorf("%v between two polls of 20 ms", gap)
					}
				}
				if got := r.sink.statuses(1); !slices.Equal(got, []tag.Status{tag.Good}) {
					t.Errorf("the device that was tried again went %v", got)
				}
			})
		})
	}
}
