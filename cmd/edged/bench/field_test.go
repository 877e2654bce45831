package bench

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

func TestOffGrid(t *testing.T) {
	const period = 100 * time.Millisecond
	start := time.Now()
	at := func(ms ...int) (out []time.Time) {
		for _, m := range ms {
			out = append(out, start.Add(time.Duration(m)*time.Millisecond))
		}
		return out
	}
	for _, row := range []struct {
		name    string
		times   []time.Time
		off     []float64
		skipped int
	}{
		{"nothing", nil, nil, 0},
		{"on the grid", at(0, 100, 200, 300), []float64{0, 0, 0, 0}, 0},
		{"late, the first one too", at(7, 100, 230, 304), []float64{7, 0, 30, 4}, 0},
		{"left out", at(0, 100, 400, 500), []float64{0, 0, 0, 0}, 2},
	} {
		off, skipped := offGrid(row.times, period)
		if !slices.Equal(off, row.off) || skipped != row.skipped {
			t.Errorf("%s: off %v, %d left out; want %v, %d", row.name, off, skipped, row.off, row.skipped)
		}
	}
}

func TestFiguresOfAField(t *testing.T) {
	var f figures
	f.add("baud", 9600, 0)
	f.add("line_late_us", 12.345, 1)
	f.add("cores", orNaN(0, false), 3)
	var text, script bytes.Buffer
	f.print(&text, "field-rtu", false, true, "PASS")
	f.print(&script, "field-rtu", true, true, "PASS")
	if want := "      baud  line_late_us     cores\n      9600          12.3         -  PASS\n"; text.String() != want {
		t.Errorf("text\n%q\n%q", text.String(), want)
	}
	if want := "{\"workload\":\"field-rtu\",\"baud\":9600,\"line_late_us\":12.3,\"cores\":null,\"verdict\":\"PASS\"}\n"; script.String() != want {
		t.Errorf("script %s", script.String())
	}
}
