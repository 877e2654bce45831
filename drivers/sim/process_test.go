package sim

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"
)

// heater is a plant whose temperature follows a set point.
func heater(damping float64) Config {
	return Config{
		Lines: []LineConfig{{Name: "l", URL: "tcp://127.0.0.1:0"}},
		Devices: []DeviceConfig{{Name: "d", Line: "l", Unit: 1, Points: []PointConfig{
			{Address: "holding:0", Value: 20},
			{Address: "input:0", Type: "float64", Wave: Wave{Kind: "process", Of: "holding:0", Gain: 2, Offset: 5, Period: 4 * time.Second, Damping: damping, Min: 45}},
			{Address: "input:4", Type: "int16", Wave: Wave{Kind: "process", Of: "holding:0", Gain: 1000, Damping: damping}},
		}}},
	}
}

// step is the course of the process by small steps.
func step(omega, damping, y, v, goal, seconds float64) (float64, float64) {
	const dt = 1e-5
	for range int(seconds / dt) {
		a := omega*omega*(goal-y) - 2*damping*omega*v
		v += a * dt
		y += v * dt
	}
	return y, v
}

func TestProcessFollowsItsSetPoint(t *testing.T) {
	for _, damping := range []float64{0.2, 0.7, 1, 1.8} {
		synctest.Test(t, func(t *testing.T) {
			p, err := New(heater(damping))
			if err != nil {
				t.Fatal(err)
			}
			d := p.Device("d")
			value := func() float64 { v, _ := d.Value(Input, 0).Float(); return v }
			if v := value(); v != 45 {
				t.Errorf("damping %v: it begins at %v", damping, v)
			}
			omega := 2 * math.Pi / 4
			y, v := 45.0, 0.0
			for _, row := range []struct {
				set  uint16
				wait time.Duration
			}{{40, time.Second}, {10, 1500 * time.Millisecond}, {10, time.Second}, {300, 20 * time.Second}} {
				d.Set(Holding, 0, row.set)
				time.Sleep(row.wait)
				y, v = step(omega, damping, y, v, 2*float64(row.set)+5, row.wait.Seconds())
				if got := value(); math.Abs(got-y) > 0.01 {
					t.Errorf("damping %v: %v after the set point %d, want %v", damping, got, row.set, y)
				}
			}
			if got := d.Value(Input, 4); !got.Equal(tag.Of(int16(math.MaxInt16))) {
				t.Errorf("what a register cannot hold is %v", got)
			}
			if got := value(); damping > 0.5 && math.Abs(got-605) > 0.1 {
				t.Errorf("damping %v: it has come to %v", damping, got)
			}
			p.Close()
		})
	}
}

func TestProcessWithoutASetPoint(t *testing.T) {
	for of, want := range map[string]string{
		"holding:9": "has no number there", "input:0": "has no number there", "x": "give coil:, discrete:",
	} {
		cfg := heater(1)
		cfg.Devices[0].Points[1].Wave.Of = of
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %s: %v", of, err)
		}
	}
}

func TestCommands(t *testing.T) {
	p := start(t, small("tcp://127.0.0.1:0"))
	d := p.Device("device")
	for _, row := range []struct {
		text, says, err string
	}{
		{"", "", ""},
		{"fault device exception code=6 times=2", "device: exception is in force", ""},
		{"fault device late for=200ms chance=0.5 function=3 skip=1", "device: late is in force", ""},
		{"status", "device: 0 requests, 2 faults in force", ""},
		{"heal device", "device is well", ""},
		{"set device holding:3 7 -1", "device holding:3 is 7 -1", ""},
		{"down line", "down line", ""},
		{"up line", "up line", ""},
		{"drop line", "drop line", ""},
		{"fault", "", "give one of"},
		{"fault nobody mute", "", "no device is named nobody"},
		{"fault device", "", "which kind?"},
		{"fault device dead", "", "give one of"},
		{"fault device late", "", "needs a time"},
		{"fault device mute often=1", "", "give code="},
		{"fault device mute times=x", "", "times=x"},
		{"set device holding:3", "", "give an address and numbers"},
		{"set device x:3 1", "", "address"},
		{"set device holding:3 70000", "", "no register"},
		{"down nowhere", "", "no line is named nowhere"},
		{"jump device", "", "give one of"},
	} {
		says, err := p.Command(row.text)
		if says != row.says || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%q: %q, %v", row.text, says, err)
		}
	}
	if a, b := d.Value(Holding, 3).Bits(), d.Value(Holding, 4).Bits(); a != 7 || b != 0xFFFF {
		t.Errorf("set made %d and %d", a, b)
	}
}
