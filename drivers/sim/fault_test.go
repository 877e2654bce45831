package sim_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/sim"
	"edged/drivers/tag"
)

const faultTimeout = 200 * time.Millisecond

// faultRows are what may go wrong: each with the first two requests that meet it, which are a poll and its retry, or
// otherwise as often as it says.
var faultRows = []sim.Fault{
	{Kind: sim.Mute, Times: 2},
	{Kind: sim.Mute, Times: 1},
	{Kind: sim.Mute, Times: 5},
	{Kind: sim.Lost, Times: 2},
	{Kind: sim.Delay, For: 80 * time.Millisecond, Times: 2},
	{Kind: sim.Delay, For: 450 * time.Millisecond, Times: 1},
	{Kind: sim.Late, For: 250 * time.Millisecond, Times: 1},
	{Kind: sim.Late, For: 350 * time.Millisecond, Times: 2},
	{Kind: sim.Exception, Code: 1, Times: 2},
	{Kind: sim.Exception, Code: 3, Times: 2},
	{Kind: sim.Exception, Code: 4, Times: 2},
	{Kind: sim.Exception, Code: 5, Times: 3},
	{Kind: sim.Exception, Code: 6, Times: 3},
	{Kind: sim.Exception, Code: 6, Times: 8},
	{Kind: sim.Exception, Code: 10, Times: 2},
	{Kind: sim.Exception, Code: 11, Times: 2},
	{Kind: sim.WrongUnit, Times: 2},
	{Kind: sim.WrongTrans, Times: 2},
	{Kind: sim.WrongFunction, Times: 2},
	{Kind: sim.WrongCount, Times: 2},
	{Kind: sim.BadCRC, Times: 1},
	{Kind: sim.BadCRC, Times: 2},
	{Kind: sim.Cut, Times: 1},
	{Kind: sim.Cut, Times: 2},
	{Kind: sim.Noise, Times: 5},
	{Kind: sim.Trailing, Times: 5},
	{Kind: sim.Duplicate, Times: 5},
	{Kind: sim.Echo, Times: 2},
	{Kind: sim.Reset, Times: 1},
	{Kind: sim.Reset, Times: 2},
}

func describe(f *sim.Fault) string {
	s := string(f.Kind)
	if f.Code > 0 {
		s += fmt.Sprint(" ", f.Code)
	}
	if f.For > 0 {
		s += fmt.Sprint(" ", f.For)
	}
	return fmt.Sprintf("%s x%d", s, f.Times)
}

// faultTable is what each fault does over each transport, kept in testdata: EDGED_GOLDEN=1 writes it anew.
const faultTable = "testdata/faults.txt"

// TestEachFaultOverEachTransport makes the table: what a tag went through, how soon it was good again after the first
// request that met the fault, and whether its neighbour on the line noticed. Nothing but what the devices said is ever
// published, and in that order.
func TestEachFaultOverEachTransport(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "%-20s %-11s %-30s %s\n", "fault", "transport", "the tag went", "good again within")
	for i := range faultRows {
		f := &faultRows[i]
		for k := range transports {
			tr := &transports[k]
			t.Run(describe(f)+" "+tr.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					went, took := faultRow(t, tr, *f)
					fmt.Fprintf(&table, "%-20s %-11s %-30s %s\n", describe(f), tr.name, went, took)
				})
			})
		}
	}
	if t.Failed() {
		return
	}
	if os.Getenv("EDGED_GOLDEN") != "" {
		if err := os.WriteFile(faultTable, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(faultTable)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(table.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		if i >= len(got) || got[i] != line {
			t.Errorf("line %d:\nwant %s\ngot  %s", i+1, line, got[min(i, len(got)-1)])
		}
	}
}

// faultRow puts a fault in force and returns what became of a tag of the device.
func faultRow(t *testing.T, tr *transport, f sim.Fault) (went, took string) {
	r := newRig(t, tr, 2, faultTimeout)
	time.Sleep(2*time.Second + 50*time.Millisecond)
	began := time.Now()
	r.plant.Device("u0").Fault(f)
	time.Sleep(20 * time.Second)
	r.stop()
	r.check(t)
	statuses, recovered := r.judge.outcome(ref(0, totalTag), began)
	var words []string
	for _, s := range statuses {
		words = append(words, s.String())
	}
	switch {
	case len(words) == 0:
		went, took = "Good", "-"
	default:
		// The grid and the jitter of a back-off are in it: a first and a second back-off, or the longest.
		went, took = strings.Join(words, " "), "2s"
		if d := recovered.Sub(began); d > 11*time.Second {
			t.Errorf("good again after %v", d)
		} else if d > 2*time.Second {
			took = "11s"
		}
	}
	if len(statuses) > 0 && statuses[len(statuses)-1] != tag.Good {
		t.Errorf("the tag went %v", statuses)
	}
	if v := r.judge.last[ref(0, totalTag)-1]; v != theTotal {
		t.Errorf("D12 the total is %d", v)
	}
	if tr.lanes > 1 && slices.Contains([]sim.FaultKind{sim.Cut, sim.Noise, sim.BadCRC, sim.Trailing, sim.Reset}, f.Kind) {
		// The stream is broken for whichever device's request comes next: which one that is, is chance.
		went, took = "as its neighbour, or Good", "11s"
	}
	return went, took
}
