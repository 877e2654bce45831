package drivers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"edged/drivers/tag"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestScansKeepTheirGrid(t *testing.T) {
	for _, row := range []struct {
		name           string
		period, takes  time.Duration
		run            time.Duration
		every          time.Duration
		polls, overrun int
	}{
		{"exchange shorter than the period: no drift", 100 * time.Millisecond, 7 * time.Millisecond, 10 * time.Second, 100 * time.Millisecond, 101, 0},
		{"exchange of two and a half periods: on the grid, two left out", 100 * time.Millisecond, 250 * time.Millisecond, 3 * time.Second, 300 * time.Millisecond, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant(row.period, 1)
				p.takes = func() time.Duration { return row.takes }
				r := newRig(t, BusConfig{}, p)
				began := time.Now()
				r.start(t)
				time.Sleep(row.run + row.takes)
				r.stop()
				for i, at := range p.polled {
					if off := at.Sub(began) % row.period; i > 0 && row.takes < row.period && off != 0 {
						t.Fatalf("poll %d began %v off the grid", i, off)
					}
				}
				if row.polls > 0 && len(p.polled) != row.polls {
					t.Errorf("%d polls, want %d", len(p.polled), row.polls)
				}
				if s, _ := r.Device("d0"); (s.Overruns > 0) != (row.overrun > 0) {
					t.Errorf("%d overruns counted", s.Overruns)
				}
				if n := r.logged("too slow"); n != row.overrun {
					t.Errorf("overruns were told %d times", n)
				}
			})
		})
	}
}

func TestScanDone(t *testing.T) {
	const p = 100 * time.Millisecond
	for _, row := range []struct {
		due, now, next time.Duration
		missed         uint64
	}{
		{0, 10 * time.Millisecond, p, 0},
		{0, p, p, 0},
		{0, 199 * time.Millisecond, p, 0},
		{0, 200 * time.Millisecond, 2 * p, 1},
		{p, 570 * time.Millisecond, 5 * p, 3},
	} {
		s := scan{period: p, due: row.due, next: 2}
		if missed := s.done(row.now); missed != row.missed || s.due != row.next || s.next != 0 {
			t.Errorf("due %v, done at %v: next %v, missed %d; want %v, %d", row.due, row.now, s.due, missed, row.next, row.missed)
		}
	}
	s := scan{period: p, due: 7 * p}
	if s.catchUp(333 * time.Millisecond); s.due != 3*p {
		t.Errorf("caught up at %v", s.due)
	}
	if s.skip(333 * time.Millisecond); s.due != 4*p {
		t.Errorf("skipped to %v", s.due)
	}
}

func TestMuteUnitDoesNotStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var plants []*plant
		for i := range 8 {
			p := newPlant(200*time.Millisecond, tag.Ref(i+1))
			p.takes = func() time.Duration { return 20 * time.Millisecond }
			plants = append(plants, p)
		}
		var dead time.Time
		plants[3].takes = func() time.Duration {
			if time.Now().After(dead) {
				return 200 * time.Millisecond
			}
			return 20 * time.Millisecond
		}
		plants[3].poll = func(int) error {
			if time.Now().After(dead) {
				return mute()
			}
			return nil
		}
		r := newRig(t, BusConfig{Retries: 1}, plants...)
		dead = time.Now().Add(time.Second)
		r.start(t)
		time.Sleep(61 * time.Second)
		r.stop()
		for i, p := range plants {
			if i == 3 {
				continue
			}
			if want := 61 * 5 * 9 / 10; len(p.polled) < want {
				t.Errorf("unit %d was polled %d times, want at least %d", i, len(p.polled), want)
			}
		}
		if n := len(plants[3].polled); n > 20 {
			t.Errorf("the mute unit was asked %d times in a minute", n)
		}
		if got := r.sink.statuses(4); !slices.Equal(got, []tag.Status{tag.Good, tag.BadNoCommunication}) {
			t.Errorf("the mute unit's tag went %v", got)
		}
		if n := len(r.sink.of(4)); n > 7 {
			t.Errorf("the outage was published %d times", n-6)
		}
		if n := r.logged("does not answer"); n != 1 {
			t.Errorf("the log says %d times that the unit is mute", n)
		}
		if s, _ := r.Device("d3"); s.State != Offline || s.Faults[Mute] == 0 || s.LastError == "" {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestLinkDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1, 2)
		r := newRig(t, BusConfig{}, p)
		var cut, back time.Time
		gone := func() bool { return time.Now().After(cut) && time.Now().Before(back) }
		r.link.open = func(int) error {
			if gone() {
				return errors.New("refused")
			}
			return nil
		}
		p.poll = func(int) error {
			if gone() {
				return errors.New("reset by peer")
			}
			return nil
		}
		cut = time.Now().Add(time.Second)
		back = cut.Add(time.Minute)
		r.start(t)
		time.Sleep(30 * time.Second)
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}}
		began := time.Now()
		r.Execute(t.Context(), cmds)
		if cmds[0].Status != tag.BadNoCommunication || time.Since(began) > time.Second {
			t.Errorf("a write to a line that is down: %v after %v", cmds[0].Status, time.Since(began))
		}
		if b := r.Buses()[0]; b.Up || b.LastError == "" {
			t.Errorf("bus %+v", b)
		}
		time.Sleep(80 * time.Second)
		r.stop()
		for ref := tag.Ref(1); ref <= 2; ref++ {
			if got := r.sink.statuses(ref); !slices.Equal(got, []tag.Status{tag.Good, tag.BadNoCommunication, tag.Good}) {
				t.Errorf("tag %d went %v", ref, got)
			}
			bad := 0
			for _, s := range r.sink.of(ref) {
				if s.Status == tag.BadNoCommunication {
					bad++
					if !s.Value.IsNull() {
						t.Errorf("D12 the outage has the value %v", s.Value)
					}
				}
			}
			if bad != 1 {
				t.Errorf("the outage was published %d times", bad)
			}
		}
		if n := r.link.attempts(); n > 16 {
			t.Errorf("D20 %d attempts in a minute", n)
		}
		if down, up := r.logged("line is down"), r.logged("line is up"); down != 1 || up != 2 {
			t.Errorf("logged down %d times, up %d times", down, up)
		}
	})
}

func TestBeforeTheFirstAnswerNothingIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		r := newRig(t, BusConfig{}, p)
		r.link.open = func(int) error { return errors.New("no route to host") }
		r.start(t)
		time.Sleep(time.Minute)
		r.stop()
		if len(r.sink.samples) != 0 {
			t.Errorf("published %v", r.sink.samples)
		}
		if n := r.logged("line is down"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestHostThatDropsEachConnectionIsNotUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.poll = func(int) error { return errors.New("closed") }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(time.Minute)
		r.stop()
		if n := r.link.attempts(); n > 12 {
			t.Errorf("%d connections in a minute", n)
		}
		if n := r.logged("line is"); n != 1 {
			t.Errorf("logged %d changes", n)
		}
	})
}

func TestD20IdleCloseIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(10*time.Second, 1)
		closes := 0
		p.poll = func(int) error {
			if closes++; closes%2 == 0 { // each second exchange finds the connection closed
				return fmt.Errorf("closed while idle: %w", ErrUnsent)
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(60*time.Second + 10*time.Millisecond)
		r.stop()
		if got := r.sink.statuses(1); !slices.Equal(got, []tag.Status{tag.Good}) {
			t.Errorf("the tag went %v", got)
		}
		if n := len(r.sink.of(1)); n != 7 {
			t.Errorf("%d readings of 7", n)
		}
		if s, _ := r.Device("d0"); s.Errors != 0 || s.LastError != "" {
			t.Errorf("%d errors, the last %q", s.Errors, s.LastError)
		}
	})
}

func TestI3SlowScanOfManyRequestsDelaysNoFastOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.scans = append(p.scans, 5*time.Second)
		p.requests = append(p.requests, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
		p.takes = func() time.Duration { return 30 * time.Millisecond }
		var fast []time.Time
		slow := 0
		p.poll = func(request int) error {
			if request > 0 {
				slow++
				return nil
			}
			fast = append(fast, time.Now())
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(21 * time.Second)
		r.stop()
		for i := range fast[1:] {
			if gap := fast[i+1].Sub(fast[i]); gap > 200*time.Millisecond {
				t.Errorf("%v between two readings of 100 ms", gap)
			}
		}
		if slow != 50 {
			t.Errorf("%d slow requests of 50", slow)
		}
	})
}

func TestOverloadStarvesNoSlowScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.scans = append(p.scans, 2*time.Second)
		p.requests = append(p.requests, []int{1, 2})
		p.takes = func() time.Duration { return 150 * time.Millisecond } // the fast scan alone is more than the line can do
		slow := 0
		p.poll = func(request int) error {
			if request > 0 {
				slow++
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(40 * time.Second)
		r.stop()
		if slow < 36 {
			t.Errorf("%d slow requests of 40", slow)
		}
	})
}

func TestHoldKeepsTheLastGoodValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1, 2)
		p.values[1] = 12345
		var dead time.Time
		p.poll = func(int) error {
			if time.Now().After(dead) {
				return mute()
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.now.Load().devices[0].held = map[tag.Ref]*held{1: {keep: 5 * time.Second, goodAt: -1}}
		began := time.Now()
		dead = began.Add(1050 * time.Millisecond)
		r.start(t)
		time.Sleep(20 * time.Second)
		r.stop()
		want := []tag.Status{tag.Good, tag.UncertainNoCommunicationLastUsableValue, tag.BadNoCommunication}
		if got := r.sink.statuses(1); !slices.Equal(got, want) {
			t.Errorf("the held tag went %v", got)
		}
		if got := r.sink.statuses(2); !slices.Equal(got, []tag.Status{tag.Good, tag.BadNoCommunication}) {
			t.Errorf("the other tag went %v", got)
		}
		for _, s := range r.sink.of(1) {
			switch {
			case s.Status.IsUncertain() && s.Value.Bits() != 12345:
				t.Errorf("held as %v", s.Value)
			case s.Status.IsBad():
				if at := s.At.Time().Sub(began); at < 5900*time.Millisecond || at > 6200*time.Millisecond {
					t.Errorf("held until %v after the start", at)
				}
			}
		}
	})
}

func TestD11BusyIsGivenTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Second, 1)
		n := 0
		p.poll = func(int) error {
			if n++; n <= 2 {
				return &Fault{Kind: Busy, Err: errors.New("exception 6")}
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(500 * time.Millisecond)
		r.stop()
		if got := r.sink.statuses(1); !slices.Equal(got, []tag.Status{tag.Good}) {
			t.Errorf("the tag went %v", got)
		}
	})
}

func TestFailingRequestMakesTheDeviceDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.requests = [][]int{{0, 1}}
		healed := time.Now().Add(time.Second)
		p.poll = func(request int) error {
			if request == 1 && time.Now().Before(healed) {
				return &Fault{Kind: Refused, Err: errors.New("exception 4")}
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(500 * time.Millisecond)
		if s, _ := r.Device("d0"); s.State != Degraded || !strings.Contains(s.LastError, "exception 4") {
			t.Errorf("state %v, last error %q", s.State, s.LastError)
		}
		time.Sleep(time.Second)
		if s, _ := r.Device("d0"); s.State != Online {
			t.Errorf("state %v after it healed", s.State)
		}
		r.stop()
		if n := r.logged("request fails"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestUtilization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.takes = func() time.Duration { return 25 * time.Millisecond }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(35 * time.Second)
		b := r.Buses()[0]
		r.stop()
		if b.Utilization < 0.24 || b.Utilization > 0.26 {
			t.Errorf("utilization %v, want 0.25", b.Utilization)
		}
		if b.Polls[5] != 350 {
			t.Errorf("exchanges by duration %v", b.Polls)
		}
	})
}

func TestLanesWorkAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, err := tag.NewTable([]tag.Def{{Device: "a", Name: "t", Access: tag.Readable}, {Device: "b", Name: "t", Access: tag.Readable}})
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Table: table, Sink: &record{}, Log: slog.New(slog.DiscardHandler),
			Buses: []BusConfig{{Name: "line", Links: []Link{&wire{}, &wire{}}}}}
		var plants []*plant
		for i, name := range []string{"a", "b"} {
			p := newPlant(100*time.Millisecond, tag.Ref(i+1))
			p.takes = func() time.Duration { return 90 * time.Millisecond }
			plants = append(plants, p)
			cfg.Devices = append(cfg.Devices, DeviceConfig{Name: name, Bus: "line", Driver: p})
		}
		f, err := NewFleet(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		f.Run(ctx)
		for _, p := range plants {
			if len(p.polled) < 99 {
				t.Errorf("%d polls of 100: two devices waited for one lane", len(p.polled))
			}
		}
		if b := f.Buses()[0]; b.Opened != 2 || b.Overruns != 0 {
			t.Errorf("%+v", b)
		}
	})
}
