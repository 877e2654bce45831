package sim_test

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/modbus"
	"edged/drivers/sim"
	"edged/drivers/tag"
)

// TestADayOfTheField lets three units fail at random over each transport, the line be cut now and then, and clients write
// and ask, for two minutes of the field's time, or for 24 hours with EDGED_LONG=1: every value that is published is one
// that its device has said, in the order in which it was said; a write that was Good is what the device holds; and in the
// end all is well again.
func TestADayOfTheField(t *testing.T) {
	span := 2 * time.Minute
	if os.Getenv("EDGED_LONG") != "" {
		span = 24 * time.Hour
	}
	for i := range transports {
		tr := &transports[i]
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { day(t, tr, span) })
		})
	}
}

const dayUnits = 3

func day(t *testing.T, tr *transport, span time.Duration) {
	random := rand.New(rand.NewPCG(uint64(time.Now().Unix()), uint64(len(tr.name))))
	r := newRig(t, tr, dayUnits, faultTimeout)
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	var clients sync.WaitGroup
	clients.Go(func() { r.write(ctx, t) })
	clients.Go(func() { r.ask(ctx) })
	faults := 0
	for ctx.Err() == nil {
		time.Sleep(time.Duration(random.IntN(20_000)) * time.Millisecond)
		if random.IntN(10) == 0 {
			r.setCut(true)
			time.Sleep(time.Duration(random.IntN(15_000)) * time.Millisecond)
			r.setCut(false)
			continue
		}
		f := faultRows[random.IntN(len(faultRows))]
		f.Times = 1 + random.IntN(8)
		if random.IntN(3) == 0 {
			f.Chance = 0.3
		}
		if f.Kind == sim.Delay || f.Kind == sim.Late {
			f.For = time.Duration(1+random.IntN(700)) * time.Millisecond
			if tr.framing != modbus.TCP {
				// Without transaction ids an answer that comes later than twice the time-out cannot be told from another.
				f.For /= 2
				if f.Kind == sim.Delay { // those of a request and its retry add up
					f.For = min(f.For, faultTimeout*9/10)
				}
			}
		}
		r.plant.Devices()[random.IntN(dayUnits)].Fault(f)
		faults++
	}
	clients.Wait()
	for _, d := range r.plant.Devices() {
		d.Heal()
	}
	time.Sleep(30 * time.Second)
	r.stop()
	r.check(t)
	for unit := range dayUnits {
		went, _ := r.judge.outcome(ref(unit, totalTag), time.Time{})
		if len(went) == 0 || went[len(went)-1] != tag.Good {
			t.Errorf("unit %d ends as %v", unit, went)
		}
		if n, most := r.judge.good[ref(unit, totalTag)-1], int(span/period); n < most/4 {
			t.Errorf("unit %d was read well %d times of %d", unit, n, most)
		}
	}
	t.Logf("%v of the field: %d faults, %d readings published", span, faults, r.judge.published)
}

// write writes a number that counts up to a set point, time and again.
func (r *rig) write(ctx context.Context, t *testing.T) {
	d := r.plant.Device("u1")
	for n := uint16(2); ctx.Err() == nil; n++ {
		time.Sleep(1700 * time.Millisecond)
		cmds := []tag.Command{{Ref: ref(1, setpointTag), Value: tag.Of(n)}}
		r.Execute(ctx, cmds)
		if v := d.Value(sim.Holding, 10); cmds[0].Status == tag.Good && v.Bits() != uint64(n) {
			t.Errorf("a write of %d was Good, and the device holds %v", n, v)
		}
	}
}

// ask asks for readings, as clients with a small maxAge do.
func (r *rig) ask(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(230 * time.Millisecond)
		r.Refresh(ctx, []tag.Ref{ref(2, totalTag), ref(2, counterTag)})
	}
}
