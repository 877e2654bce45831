package drivers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"
)

// with returns the rig's configuration with other drivers in place of those of the devices of these names.
func (r *rig) with(drivers map[string]Driver) Config {
	next := r.config
	next.Devices = slices.Clone(next.Devices)
	for i := range next.Devices {
		if d, ok := drivers[next.Devices[i].Name]; ok {
			next.Devices[i].Driver = d
		}
	}
	return next
}

// apply goes over to a configuration, which becomes the rig's.
func (r *rig) apply(t *testing.T, next Config) {
	t.Helper()
	if err := r.Apply(next); err != nil {
		t.Fatal(err)
	}
	r.config = next
}

// onGrid checks that a plant was asked at every moment of a grid from one time to another, or later by the exchanges
// that share the line.
func onGrid(t *testing.T, what string, p *plant, origin, from, to time.Time, period time.Duration) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	at := map[time.Duration]int{}
	for _, when := range p.polled {
		if !when.Before(from) && when.Before(to) {
			at[when.Sub(origin).Truncate(period)]++
			if late := when.Sub(origin) % period; late > 10*time.Millisecond {
				t.Errorf("%s: asked %v behind its grid", what, late)
			}
		}
	}
	want := int(to.Sub(from) / period)
	if len(at) != want {
		t.Errorf("%s: asked at %d moments of %d", what, len(at), want)
	}
	for when, n := range at {
		if n != 1 {
			t.Errorf("%s: asked %d times at %v", what, n, when)
		}
	}
}

func TestApplyLeavesWhatIsKeptAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPlant(100*time.Millisecond, 1), newPlant(100*time.Millisecond, 2)
		r := newRig(t, BusConfig{}, a, b)
		r.start(t)
		origin := time.Now()
		time.Sleep(time.Second)
		before, _ := r.Device("d0")
		plants := []*plant{b}
		for i := range 20 {
			time.Sleep(37 * time.Millisecond)
			next := newPlant([]time.Duration{100 * time.Millisecond, 70 * time.Millisecond}[i%2], 2)
			plants = append(plants, next)
			r.apply(t, r.with(map[string]Driver{"d1": next}))
		}
		time.Sleep(time.Until(origin.Add(3 * time.Second)))
		r.stop()
		onGrid(t, "H4 a device that is kept", a, origin, origin, origin.Add(3*time.Second), 100*time.Millisecond)
		if after, _ := r.Device("d0"); after.Requests < before.Requests+20 || after.State != Online || after.Errors != 0 {
			t.Errorf("%+v, before the changes %+v", after, before)
		}
		if n := r.link.attempts(); n != 1 {
			t.Errorf("H4 the line of changed devices was opened %d times", n)
		}
		if d, _ := r.Device("d1"); d.Requests < 40 || d.State != Online {
			t.Errorf("a changed device lost its counters: %+v", d)
		}
		for i, p := range plants[:len(plants)-1] {
			if p.mu.Lock(); len(p.polled) > 0 && i > 0 && p.polled[len(p.polled)-1].Sub(p.polled[0]) > 40*time.Millisecond {
				t.Errorf("driver %d was used after it was replaced", i)
			}
			p.mu.Unlock()
		}
		if r.sink.statuses(1)[0] != tag.Good || len(r.sink.statuses(1)) != 1 || len(r.sink.statuses(2)) != 1 {
			t.Errorf("tags went %v and %v", r.sink.statuses(1), r.sink.statuses(2))
		}
	})
}

func TestAChangedDeviceKeepsTheGridOfItsScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was := newPlant(100*time.Millisecond, 1)
		r := newRig(t, BusConfig{}, was)
		r.start(t)
		origin := time.Now()
		time.Sleep(1050 * time.Millisecond)
		next := newPlant(100*time.Millisecond, 1)
		next.scans = append(next.scans, 30*time.Millisecond) // a tag got a period of its own
		next.requests = [][]int{{0}, {1}}
		r.apply(t, r.with(map[string]Driver{"d0": next}))
		time.Sleep(20 * time.Millisecond)
		next.mu.Lock()
		if len(next.polled) != 1 {
			t.Errorf("%d requests at once, want that of the new period alone", len(next.polled))
		}
		next.mu.Unlock()
		time.Sleep(time.Second)
		r.stop()
		next.mu.Lock()
		defer next.mu.Unlock()
		slow := 0
		for _, at := range next.polled {
			if d := at.Sub(origin); d%(100*time.Millisecond) < 5*time.Millisecond {
				slow++
			}
		}
		if slow < 10 {
			t.Errorf("the old period was met %d times in a second", slow)
		}
	})
}

func TestCommandsOfADeviceThatGoes(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(r *rig) Config
		want   tag.Status
	}{
		{"replaced", func(r *rig) Config { return r.with(map[string]Driver{"d0": newPlant(time.Hour, 1)}) }, tag.BadNoCommunication},
		{"removed", func(r *rig) Config {
			next := r.config
			next.Devices = next.Devices[1:]
			return next
		}, tag.BadNodeIDUnknown},
		{"moved to another bus", func(r *rig) Config {
			next := r.with(map[string]Driver{"d0": newPlant(time.Hour, 1)})
			next.Buses = append(slices.Clone(next.Buses), BusConfig{Name: "second", Links: []Link{&wire{}}})
			next.Devices[0].Bus = "second"
			return next
		}, tag.BadNoCommunication},
		{"its bus is another", func(r *rig) Config {
			next := r.with(map[string]Driver{"d0": newPlant(time.Hour, 1), "d1": newPlant(time.Hour, 2)})
			next.Buses = []BusConfig{{Name: "line", Links: []Link{&wire{}}}}
			return next
		}, tag.BadNoCommunication},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := newPlant(time.Hour, 1)
				slow.takes = func() time.Duration { return time.Second }
				r := newRig(t, BusConfig{}, slow, newPlant(time.Hour, 2))
				r.start(t)
				time.Sleep(5 * time.Second)
				slow.mu.Lock()
				slow.writes = nil
				slow.mu.Unlock()
				var writers sync.WaitGroup
				statuses := make([]tag.Status, 3)
				for i := range statuses {
					writers.Go(func() {
						cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(i))}}
						r.Execute(t.Context(), cmds)
						statuses[i] = cmds[0].Status
					})
					synctest.Wait()
				}
				time.Sleep(100 * time.Millisecond) // the first is on the wire
				r.apply(t, row.change(r))
				writers.Wait()
				if statuses[0] != tag.Good {
					t.Errorf("the command in flight: %v", statuses[0])
				}
				if statuses[1] != row.want || statuses[2] != row.want {
					t.Errorf("commands that waited: %v, %v, want %v", statuses[1], statuses[2], row.want)
				}
				if len(slow.writes) != 1 {
					t.Errorf("%d commands were sent", len(slow.writes))
				}
				// Who waits for a reading of what is gone does not wait for ever.
				if s := r.Refresh(t.Context(), []tag.Ref{1, 2}); s != tag.Good {
					t.Errorf("a reading afterwards: %v", s)
				}
				r.stop()
			})
		})
	}
}

// host is a device that takes one connection at a time, and counts.
type host struct {
	mu    sync.Mutex
	open  int
	most  int
	total int
}

// socket is a link to a host.
type socket struct {
	host *host
	open bool // owned by the lane
}

func (s *socket) Open(context.Context) error {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if s.host.open > 0 {
		return errors.New("the host has a connection already")
	}
	s.open = true
	s.host.open++
	s.host.total++
	s.host.most = max(s.host.most, s.host.open)
	return nil
}

func (s *socket) Close() error {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if s.open {
		s.open = false
		s.host.open--
	}
	return nil
}

func TestD20TheOldSocketIsClosedBeforeTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, BusConfig{}, newPlant(100*time.Millisecond, 1))
		h := &host{}
		line := func(name string) Config {
			next := r.with(map[string]Driver{"d0": newPlant(100*time.Millisecond, 1)})
			next.Buses = []BusConfig{{Name: name, Links: []Link{&socket{host: h}}}}
			next.Devices[0].Bus = name
			return next
		}
		r.apply(t, line("line"))
		r.start(t)
		time.Sleep(time.Second)
		for i := range 20 {
			r.apply(t, line([]string{"line", "other"}[i/10])) // another setting, then another name
			time.Sleep(time.Second)
			if d, _ := r.Device("d0"); d.State != Online || d.Bus != r.config.Buses[0].Name {
				t.Fatalf("reload %d: %+v", i, d)
			}
		}
		if h.most != 1 || h.total != 21 || h.open != 1 {
			t.Errorf("sockets: %d at a time, %d in all, %d now", h.most, h.total, h.open)
		}
		if got := r.sink.statuses(1); len(got) != 1 {
			t.Errorf("the tag went %v", got)
		}
		r.stop()
		if h.open != 0 {
			t.Error("a socket is left")
		}
	})
}

func TestABusThatCannotOpenGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, BusConfig{}, newPlant(100*time.Millisecond, 1))
		r.config.Buses = []BusConfig{{Name: "line", Links: []Link{hung{}}}}
		r.apply(t, r.config)
		r.start(t)
		time.Sleep(time.Second) // within its first attempt
		next := r.with(map[string]Driver{"d0": newPlant(100*time.Millisecond, 1)})
		next.Buses = []BusConfig{{Name: "line", Links: []Link{&wire{}}}}
		began := time.Now()
		r.apply(t, next)
		if took := time.Since(began); took > drainLimit {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Second)
		if d, _ := r.Device("d0"); d.State != Online {
			t.Errorf("%+v", d)
		}
		r.stop()
	})
}

// hung is a link to a host that does not say a word.
type hung struct{}

func (hung) Open(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
func (hung) Close() error                   { return nil }

func TestADeviceThatMovesIsNotTakenForNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, BusConfig{}, newPlant(100*time.Millisecond, 1))
		r.start(t)
		time.Sleep(time.Second)
		next := r.with(map[string]Driver{"d0": newPlant(100*time.Millisecond, 1)})
		next.Buses = []BusConfig{{Name: "wrong", Links: []Link{&wire{open: func(int) error { return errors.New("no such host") }}}}}
		next.Devices[0].Bus = "wrong"
		r.apply(t, next)
		time.Sleep(time.Second)
		r.stop()
		if got := r.sink.statuses(1); !slices.Equal(got, []tag.Status{tag.Good, tag.BadNoCommunication}) {
			t.Errorf("the tag went %v: what was read on the old line is not to stand for ever", got)
		}
	})
}

func TestAChangeThatIsWrongChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		origin := time.Now()
		time.Sleep(time.Second)
		next := r.config
		next.Buses = nil
		if err := r.Apply(next); err == nil {
			t.Error("a device without its bus was taken")
		}
		time.Sleep(time.Second)
		r.stop()
		onGrid(t, "the device", p, origin, origin, origin.Add(2*time.Second), 100*time.Millisecond)
	})
}

func TestOperateOutlivesAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, BusConfig{}, newPlant(100*time.Millisecond, 1))
		r.start(t)
		time.Sleep(time.Second)
		r.Operate(t.Context(), "d0", tag.Disable)
		next := newPlant(100*time.Millisecond, 1)
		r.apply(t, r.with(map[string]Driver{"d0": next}))
		time.Sleep(time.Second)
		if len(next.polled) != 0 {
			t.Error("a device that was switched off is asked again after a change")
		}
		if s := r.Operate(t.Context(), "d0", tag.Enable); s != tag.Good {
			t.Errorf("enable: %v", s)
		}
		time.Sleep(time.Second)
		r.stop()
		if len(next.polled) < 10 {
			t.Errorf("switched on it was asked %d times", len(next.polled))
		}
	})
}

func TestHoldOutlivesAChange(t *testing.T) {
	for _, row := range []struct {
		name string
		keep bool // the tag has hold after the change too
		want []tag.Status
		for_ time.Duration // that the uncertain value stands, from the last good reading
	}{
		{"kept", true, []tag.Status{tag.Good, tag.UncertainNoCommunicationLastUsableValue, tag.BadNoCommunication}, 5 * time.Second},
		{"taken away", false, []tag.Status{tag.Good, tag.UncertainNoCommunicationLastUsableValue, tag.BadNoCommunication}, 3 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant(100*time.Millisecond, 1)
				r := newRig(t, BusConfig{}, p)
				r.config.Devices[0].Hold = map[tag.Ref]time.Duration{1: 5 * time.Second}
				r.config.Devices[0].Driver = newPlant(100*time.Millisecond, 1)
				var silent atomic.Bool
				fail := func(int) error {
					if silent.Load() {
						return mute()
					}
					return nil
				}
				r.config.Devices[0].Driver.(*plant).poll = fail
				r.apply(t, r.config)
				r.start(t)
				time.Sleep(time.Second)
				silent.Store(true)
				fell := tag.Now()
				time.Sleep(3 * time.Second)
				next := newPlant(100*time.Millisecond, 1)
				next.poll = fail
				cfg := r.with(map[string]Driver{"d0": next})
				if !row.keep {
					cfg.Devices[0].Hold = nil
				}
				r.apply(t, cfg)
				time.Sleep(5 * time.Second)
				r.stop()
				if got := r.sink.statuses(1); !slices.Equal(got, row.want) {
					t.Fatalf("the tag went %v", got)
				}
				all := r.sink.of(1)
				i := slices.IndexFunc(all, func(s tag.Sample) bool { return s.Status == tag.BadNoCommunication })
				if d := all[i].At.Sub(fell); d < row.for_-200*time.Millisecond || d > row.for_+200*time.Millisecond {
					t.Errorf("bad %v after the last reading, want %v", d, row.for_)
				}
			})
		})
	}
}

func TestApplyBeforeRunAndAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, BusConfig{}, newPlant(time.Hour, 1))
		first := newPlant(100*time.Millisecond, 1)
		r.apply(t, r.with(map[string]Driver{"d0": first}))
		r.start(t)
		time.Sleep(950 * time.Millisecond)
		r.stop()
		if len(first.polled) != 10 {
			t.Errorf("asked %d times", len(first.polled))
		}
		r.apply(t, r.with(map[string]Driver{"d0": newPlant(time.Hour, 1)}))
		cmds := []tag.Command{{Ref: 1}}
		if r.Execute(t.Context(), cmds); cmds[0].Status != tag.BadNoCommunication {
			t.Errorf("a write after the end: %v", cmds[0].Status)
		}
	})
}

// counter is a device without a line that counts its lives.
type counter struct {
	store
	running *int
	old     Immediate
}

func (c *counter) Run(ctx context.Context, sink tag.Sink) {
	*c.running++
	<-ctx.Done()
	*c.running--
}

func (c *counter) Succeed(old Immediate) { c.old = old }

func TestDevicesWithoutALineAreReplacedAndRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := 0
		make := func() *counter { return &counter{store: store{refs: []tag.Ref{2}}, running: &running} }
		r := newRig(t, BusConfig{}, newPlant(100*time.Millisecond, 1))
		withStore(t, r, 1)
		set := func(i Immediate) {
			next := r.config
			next.Devices = slices.Clone(next.Devices[:1])
			if i != nil {
				next.Devices = append(next.Devices, DeviceConfig{Name: "scratch", Immediate: i})
			}
			r.apply(t, next)
			synctest.Wait()
		}
		first := make()
		set(first)
		r.start(t)
		synctest.Wait()
		second := make()
		if set(second); running != 1 || second.old != Immediate(first) {
			t.Errorf("%d run, after %v", running, second.old)
		}
		if set(second); running != 1 || second.old != Immediate(first) {
			t.Errorf("what is kept: %d run", running)
		}
		cmds := []tag.Command{{Ref: 2}}
		if set(nil); running != 0 {
			t.Error("what was removed works on")
		}
		if r.Execute(t.Context(), cmds); cmds[0].Status != tag.BadNodeIDUnknown {
			t.Errorf("a write to what was removed: %v", cmds[0].Status)
		}
		set(make())
		if r.Execute(t.Context(), cmds); running != 1 || cmds[0].Status != tag.Good {
			t.Errorf("returned: %d run, %v", running, cmds[0].Status)
		}
		r.stop()
		if running != 0 {
			t.Error("one works on after the end")
		}
	})
}

func TestApplyWhileOthersAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, BusConfig{}, newPlant(10*time.Millisecond, 1), newPlant(10*time.Millisecond, 2))
		r.start(t)
		ctx, cancel := context.WithCancel(t.Context())
		var askers sync.WaitGroup
		for range 4 {
			askers.Go(func() {
				for ctx.Err() == nil {
					cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}, {Ref: 2, Value: tag.Of(uint16(2))}}
					r.Execute(ctx, cmds)
					if s := cmds[0].Status; s != tag.Good && ctx.Err() == nil {
						t.Errorf("a write to the device that is kept: %v", s)
					}
					if s := cmds[1].Status; s != tag.Good && s != tag.BadNoCommunication && s != tag.BadNodeIDUnknown {
						t.Errorf("a write to the device that changes: %v", s)
					}
					r.Refresh(ctx, []tag.Ref{1, 2})
					r.Devices()
					r.Buses()
					r.Operate(ctx, "d1", tag.Poll)
					time.Sleep(time.Millisecond)
				}
			})
		}
		without := r.config
		without.Devices = without.Devices[:1]
		for i := range 100 {
			if i%3 == 0 {
				if err := r.Apply(without); err != nil {
					t.Fatal(err)
				}
			} else if err := r.Apply(r.with(map[string]Driver{"d1": newPlant(10*time.Millisecond, 2)})); err != nil {
				t.Fatal(err)
			}
			time.Sleep(7 * time.Millisecond)
		}
		cancel()
		askers.Wait()
		r.stop()
	})
}
