package drivers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"
)

func TestCommandComesRightAfterTheExchangeInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Millisecond, 1) // the line is never free
		p.takes = func() time.Duration { return 50 * time.Millisecond }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(time.Second + 20*time.Millisecond)
		began := time.Now()
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(7))}}
		r.Execute(t.Context(), cmds)
		// The exchange in flight, the write, one poll that may come between, the confirming reading.
		if took := time.Since(began); cmds[0].Status != tag.Good || took > 200*time.Millisecond {
			t.Errorf("status %v after %v", cmds[0].Status, took)
		}
		if last := r.sink.of(1); !last[len(last)-1].Value.Equal(tag.Of(uint16(7))) {
			t.Errorf("the confirming reading was not published before the answer: %v", last[len(last)-1].Value)
		}
		r.stop()
	})
}

func TestCommandsDoNotStarvePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.takes = func() time.Duration { return 10 * time.Millisecond }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					r.Execute(ctx, []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}})
				}
			})
		}
		wg.Wait()
		r.stop()
		if len(p.polled) < 100 {
			t.Errorf("%d polls of 100 in ten seconds", len(p.polled))
		}
		if len(p.writes) < 300 {
			t.Errorf("only %d commands got through", len(p.writes))
		}
	})
}

func TestWriteOutcomes(t *testing.T) {
	lost := errors.New("connection reset")
	for _, row := range []struct {
		name    string
		config  BusConfig
		write   func(n int, c *tag.Command) error
		status  tag.Status
		writes  int
		unknown bool // the log says that it may have happened
	}{
		{"confirmed", BusConfig{}, nil, tag.Good, 1, false},
		{"refused", BusConfig{}, func(_ int, c *tag.Command) error {
			c.Status = tag.BadOutOfRange
			return &Fault{Kind: Refused, Err: errors.New("exception 3")}
		}, tag.BadOutOfRange, 1, false},
		{"sent and unanswered, sent once", BusConfig{Retries: 3}, func(_ int, c *tag.Command) error {
			c.Status = tag.BadTimeout
			return mute()
		}, tag.BadTimeout, 1, true},
		{"sent and unanswered, retries of writes set", BusConfig{WriteRetries: 2}, func(_ int, c *tag.Command) error {
			c.Status = tag.BadTimeout
			return mute()
		}, tag.BadTimeout, 3, true},
		{"answered at the second try", BusConfig{WriteRetries: 2}, func(n int, c *tag.Command) error {
			if n > 0 {
				return nil
			}
			c.Status = tag.BadTimeout
			return mute()
		}, tag.Good, 2, false},
		{"nothing was sent: tried again on a new link", BusConfig{}, func(n int, c *tag.Command) error {
			if n > 0 {
				return nil
			}
			return fmt.Errorf("closed while idle: %w", ErrUnsent)
		}, tag.Good, 2, false},
		{"link lost after it was sent", BusConfig{}, func(_ int, c *tag.Command) error {
			c.Status = tag.BadTimeout
			return lost
		}, tag.BadTimeout, 1, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant(time.Second, 1)
				n := 0
				if row.write != nil {
					p.write = func(c *tag.Command) error { n++; return row.write(n-1, c) }
				}
				r := newRig(t, row.config, p)
				r.start(t)
				time.Sleep(10 * time.Millisecond)
				cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(42))}}
				r.Execute(t.Context(), cmds)
				r.stop()
				if cmds[0].Status != row.status || len(p.writes) != row.writes {
					t.Errorf("%v after %d writes, want %v after %d", cmds[0].Status, len(p.writes), row.status, row.writes)
				}
				if told := r.logged("it may have happened") == 1; told != row.unknown {
					t.Errorf("the log tells of an unknown outcome: %v\n%s", told, r.log)
				}
			})
		})
	}
}

func TestCommandOfAClientThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Hour, 1, 2)
		p.takes = func() time.Duration { return time.Second }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}, {Ref: 2, Value: tag.Of(uint16(2))}}
		r.Execute(ctx, cmds)
		if cmds[0].Status != tag.BadTimeout || cmds[1].Status != tag.BadNoCommunication {
			t.Errorf("statuses %v, %v", cmds[0].Status, cmds[1].Status)
		}
		time.Sleep(10 * time.Second)
		r.stop()
		if !slices.Equal(p.writes, []tag.Ref{1}) {
			t.Errorf("written: %v; what waited must never be carried out", p.writes)
		}
		if r.logged("it may have happened") != 1 {
			t.Error("the log does not tell of the unknown outcome")
		}
	})
}

func TestCommandsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPlant(time.Hour, 1, 2), newPlant(time.Hour, 3, 4)
		r := newRig(t, BusConfig{}, a, b)
		var order []tag.Ref
		keep := func(c *tag.Command) error { order = append(order, c.Ref); return nil }
		a.write, b.write = keep, keep
		r.start(t)
		var cmds []tag.Command
		want := []tag.Ref{3, 1, 4, 2, 1, 3}
		for i, ref := range want {
			cmds = append(cmds, tag.Command{Ref: ref, Value: tag.Of(uint16(i))})
		}
		cmds = append(cmds, tag.Command{Ref: 99})
		r.Execute(t.Context(), cmds)
		r.stop()
		if !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		for i := range want {
			if cmds[i].Status != tag.Good {
				t.Errorf("command %d: %v", i, cmds[i].Status)
			}
		}
		if cmds[6].Status != tag.BadNodeIDUnknown {
			t.Errorf("unknown tag: %v", cmds[6].Status)
		}
	})
}

// A device that is busy with what was just written asks for patience when the reading that confirms it comes.
func TestD11BusyAfterAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Second, 1)
		busyUntil := time.Time{}
		p.write = func(*tag.Command) error { busyUntil = time.Now().Add(50 * time.Millisecond); return nil }
		p.poll = func(int) error {
			if time.Now().Before(busyUntil) {
				return &Fault{Kind: Busy, Err: errors.New("exception 6")}
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(100 * time.Millisecond)
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(42))}}
		r.Execute(t.Context(), cmds)
		last := r.sink.of(1)
		r.stop()
		if got := r.sink.statuses(1); cmds[0].Status != tag.Good || !slices.Equal(got, []tag.Status{tag.Good}) {
			t.Errorf("written %v, the tag went %v", cmds[0].Status, got)
		}
		if v := last[len(last)-1].Value; v.Bits() != 42 {
			t.Errorf("confirmed as %v", v)
		}
	})
}

func TestReadersShareARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Hour, 1, 2)
		p.takes = func() time.Duration { return 100 * time.Millisecond }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(50 * time.Millisecond) // the first poll is under way
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if s := r.Refresh(t.Context(), []tag.Ref{tag.Ref(i%2 + 1)}); s != tag.Good {
					t.Errorf("refresh: %v", s)
				}
			})
		}
		wg.Wait()
		r.stop()
		if p.reads != 1 {
			t.Errorf("%d exchanges for 100 readers", p.reads)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	q := newQueue()
	for range maxJobs {
		if s := q.put(&job{done: make(chan struct{})}); s != tag.Good {
			t.Fatal(s)
		}
	}
	if s := q.put(&job{}); s != tag.BadResourceUnavailable {
		t.Errorf("job %d: %v", maxJobs+1, s)
	}
	if _, s := q.join(nil, nil); s != tag.BadResourceUnavailable {
		t.Errorf("reading %d: %v", maxJobs+1, s)
	}
	q.close()
	if s := q.put(&job{}); s != tag.BadShutdown {
		t.Errorf("after the end: %v", s)
	}
}

func TestSharedReadingsNameEachTagOnce(t *testing.T) {
	q, d := newQueue(), &device{}
	for range 3 {
		q.join(d, []tag.Ref{2, 1, 2})
	}
	if j := q.head(); len(q.jobs) != 1 || len(j.refs) != 1 || !slices.Equal(j.refs[0].refs, []tag.Ref{2, 1}) {
		t.Errorf("%d jobs, %v", len(q.jobs), j.refs)
	}
	if q.join(d, []tag.Ref{3}); len(q.jobs) != 2 {
		t.Error("a reading joined a job that has begun")
	}
}

func TestCommandsKeepTheOrderInWhichTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Hour, 1)
		r := newRig(t, BusConfig{}, p)
		var order []uint64
		p.write = func(c *tag.Command) error {
			order = append(order, c.Value.Bits())
			return nil
		}
		r.start(t)
		synctest.Wait()
		const n = 50
		var waits [n]func()
		cmds := make([][]tag.Command, n)
		for i := range n {
			cmds[i] = []tag.Command{{Ref: 1, Value: tag.Of(uint16(i))}}
			waits[i] = r.Submit(t.Context(), cmds[i])
		}
		for i := n - 1; i >= 0; i-- { // whoever waits first
			waits[i]()
			if cmds[i][0].Status != tag.Good {
				t.Errorf("command %d: %v", i, cmds[i][0].Status)
			}
		}
		r.stop()
		if len(order) != n || !slices.IsSorted(order) {
			t.Errorf("carried out as %v", order)
		}
	})
}

func TestFullQueueRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Hour, 1)
		r := newRig(t, BusConfig{}, p) // never started: nothing leaves the queue
		ctx, cancel := context.WithCancel(t.Context())
		var waits []func()
		for range maxJobs {
			waits = append(waits, r.Submit(ctx, []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}}))
		}
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}}
		if r.Submit(ctx, cmds)(); cmds[0].Status != tag.BadResourceUnavailable {
			t.Errorf("one too many: %v", cmds[0].Status)
		}
		cancel()
		for _, wait := range waits {
			wait()
		}
	})
}
