package drivers

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"
)

// known is a plant that says what it is, in two exchanges.
type known struct {
	*plant
	model atomic.Pointer[string]
	err   error
	asked []time.Time // read it when the rig has stopped
}

func (k *known) named(model string) *known {
	k.model.Store(&model)
	return k
}

func (k *known) Identify(context.Context, int) (Identity, bool, error) {
	k.asked = append(k.asked, time.Now())
	time.Sleep(k.takes())
	if k.err != nil {
		return Identity{}, false, k.err
	}
	return Identity{Model: *k.model.Load()}, len(k.asked)%2 == 1, nil
}

// knownRig is a rig whose device says what it is.
func knownRig(t *testing.T, k *known) *rig {
	t.Helper()
	r := newRig(t, BusConfig{}, k.plant)
	r.config.Devices[0].Driver = k
	if err := r.Apply(r.config); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestIdentification(t *testing.T) {
	t.Run("after the first answer, and again after a reconnect", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := (&known{plant: newPlant(100*time.Millisecond, 1)}).named("X1")
			var cut atomic.Bool
			k.poll = func(int) error {
				if cut.CompareAndSwap(true, false) {
					return errors.New("reset")
				}
				return nil
			}
			r := knownRig(t, k)
			r.start(t)
			time.Sleep(time.Minute)
			if d, _ := r.Device("d0"); d.Identity.Model != "X1" {
				t.Errorf("it is %q", d.Identity.Model)
			}
			k.named("X2")
			cut.Store(true)
			time.Sleep(time.Minute)
			r.stop()
			if d, _ := r.Device("d0"); d.Identity.Model != "X2" || len(k.asked) != 4 {
				t.Errorf("after the reconnect %q, after %d exchanges", d.Identity.Model, len(k.asked))
			}
		})
	})
	t.Run("a line that always has something due puts it off, and not for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := (&known{plant: newPlant(time.Millisecond, 1)}).named("")
			k.takes = func() time.Duration { return 10 * time.Millisecond }
			r := knownRig(t, k)
			r.start(t)
			time.Sleep(identifyPatience + time.Second)
			r.stop()
			if len(k.asked) != 2 || k.asked[1].Sub(k.polled[0]) < identifyPatience {
				t.Errorf("asked at %v", k.asked)
			}
		})
	})
	t.Run("a refusal is no fault of the device", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := &known{plant: newPlant(time.Second, 1), err: mute()}
			r := knownRig(t, k)
			r.start(t)
			time.Sleep(10 * time.Second)
			r.stop()
			d, _ := r.Device("d0")
			if d.State != Online || d.Errors != 0 || !slices.Equal(r.sink.statuses(1), []tag.Status{tag.Good}) || len(k.asked) != 1 {
				t.Errorf("%+v, tag %v, asked %d times", d, r.sink.statuses(1), len(k.asked))
			}
		})
	})
	t.Run("a connection that closes when idle brings the same device", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := (&known{plant: newPlant(time.Second, 1)}).named("")
			n := 0
			k.poll = func(int) error {
				if n++; n%2 == 1 {
					return ErrUnsent
				}
				return nil
			}
			r := knownRig(t, k)
			r.start(t)
			time.Sleep(time.Minute)
			r.stop()
			if n := len(k.asked); n < 6 || n > 2*7 {
				t.Errorf("asked %d times in a minute", n)
			}
		})
	})
}

// D11: a device that asks for patience gets it for a write too.
func TestBusyWritesAreTriedAgain(t *testing.T) {
	for _, row := range []struct {
		busy   int
		status tag.Status
		writes int
	}{{2, tag.Good, 3}, {100, tag.BadResourceUnavailable, 1 + busyTries}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlant(time.Minute, 1)
			n := 0
			p.write = func(c *tag.Command) error {
				if n++; n > row.busy {
					return nil
				}
				c.Status = tag.BadResourceUnavailable
				return &Fault{Kind: Busy, Err: errors.New("exception 6")}
			}
			r := newRig(t, BusConfig{}, p)
			r.start(t)
			time.Sleep(time.Second)
			cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(42))}}
			r.Execute(t.Context(), cmds)
			r.stop()
			if cmds[0].Status != row.status || len(p.writes) != row.writes {
				t.Errorf("busy %d times: %v after %d writes", row.busy, cmds[0].Status, len(p.writes))
			}
			if told := r.logged("it has not happened") == 1; told != (row.status != tag.Good) {
				t.Errorf("log: %s", r.log)
			}
		})
	}
}

// What a tag that cannot be read reads back: what was last written, of an array too.
func TestReadBackOfWriteOnlyTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Minute, 1, 2)
		r := newRig(t, BusConfig{}, p)
		defs := []tag.Def{{Device: "d0", Name: "t1", Kind: tag.Uint16, Len: 4, Access: tag.Writable},
			{Device: "d0", Name: "t2", Kind: tag.Uint16, Access: tag.Writable}}
		var err error
		if r.config.Table, err = tag.NewTable(defs); err == nil {
			err = r.Apply(r.config)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.start(t)
		time.Sleep(time.Second)
		write := func(c tag.Command) {
			t.Helper()
			cmds := []tag.Command{c}
			if r.Execute(t.Context(), cmds); cmds[0].Status != tag.Good {
				t.Fatal(cmds[0].Status)
			}
		}
		read := func(ref tag.Ref) tag.Value { all := r.sink.of(ref); return all[len(all)-1].Value }
		before := len(r.sink.of(1))
		write(tag.Command{Ref: 1, Value: tag.OfSlice([]uint16{7}), From: 2, Part: true})
		if len(r.sink.of(1)) != before {
			t.Errorf("an array that was never written as a whole reads %v", read(1))
		}
		write(tag.Command{Ref: 1, Value: tag.OfSlice([]uint16{1, 2, 3, 4})})
		write(tag.Command{Ref: 1, Value: tag.OfSlice([]uint16{8, 9}), From: 1, Part: true})
		if v := read(1); !v.Equal(tag.OfSlice([]uint16{1, 8, 9, 4})) {
			t.Errorf("the array reads %v", v)
		}
		write(tag.Command{Ref: 2, Value: tag.Of(uint16(5))})
		if v := read(2); !v.Equal(tag.Of(uint16(5))) {
			t.Errorf("the number reads %v", v)
		}
		r.stop()
	})
}

// A request that the driver leaves out for now changes nothing, and one that it has replaced is forgotten.
func TestRequestsLeftOutAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Second, 1)
		p.requests = [][]int{{0, 1}}
		var step atomic.Int32
		p.poll = func(request int) error {
			switch {
			case request != 1:
				return nil
			case step.CompareAndSwap(0, 1):
				return &Fault{Kind: Refused, Err: errors.New("exception 2")}
			case step.Load() == 1:
				return ErrSkipped
			}
			p.requests = [][]int{{0}}
			return ErrReplanned
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(10*time.Second + time.Millisecond*500)
		if d, _ := r.Device("d0"); d.State != Degraded || d.Errors != 1 || d.Requests != 12 {
			t.Errorf("while it is left out: %+v", d)
		}
		step.Store(2)
		time.Sleep(2 * time.Second)
		if d, _ := r.Device("d0"); d.State != Online {
			t.Errorf("after it was replaced: %v", d.State)
		}
		r.stop()
	})
}
