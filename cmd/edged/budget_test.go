package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/sim"
)

// twoUnits is a site with two units on a line of 9600 baud, 11 bits a character: 1.146 ms each.
const twoUnits = `
buses: [{name: l, url: "rtu:///dev/none?baud=9600", timeout: 200ms, retries: 1, overbook: OVERBOOK}]
devices:
- {name: a, bus: l, unit: 1, poll: 100ms, tags: [{name: "r{n}", repeat: 10, address: "holding:0"}]}
- {name: b, bus: l, unit: 2, poll: 1s, tags: [{name: "c{n}", repeat: 9, address: "coil:0"}, {name: x, address: "input:5", type: float32, poll: 200ms}]}
`

func TestCheckTellsTheBudget(t *testing.T) {
	char := 11.0 / 9600 * 1000 // ms
	takes := func(answer float64) float64 { return char * (8 + 3.5 + answer + 3.5) }
	ten, nine, two := takes(5+20), takes(5+2), takes(5+4)
	site := writeFile(t, "site.yaml", strings.Replace(twoUnits, "OVERBOOK", "refuse", 1))
	status, stdout, stderr := command(t, "check", "--json", "--config", site)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	var got checkedBus
	if status != exitDone || len(lines) != 2 || json.Unmarshal([]byte(lines[1]), &got) != nil {
		t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
	}
	fails := char*(8+25+3.5) + 200 // of the longest answer
	for what, pair := range map[string][2]float64{
		"load": {got.Load, ten/100 + nine/1000 + two/200}, "cycle": {got.Cycle, ten + nine + two}, "wait": {got.Wait, ten},
		"cycle with a silent unit": {got.CycleSilent, ten + nine + two + 2*fails}, "wait with a silent unit": {got.WaitSilent, fails},
		"a's load": {got.Devices[0].Load, ten / 100}, "a falls silent": {got.Devices[0].First, 2 * fails},
		"a silent": {got.Devices[0].Silent, fails / (fails + 8000)},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-3*pair[1] {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
	if got.Requests != 3 || got.Assumed || len(got.Blame) != 0 {
		t.Errorf("%+v", got)
	}
	status, stdout, _ = command(t, "check", "--config", site)
	if want := "bus l: 3 requests, 62 % of the line's time"; status != exitDone || !strings.Contains(stdout, want) {
		t.Errorf("check says\n%s", stdout)
	}
}

func TestOverbookedLine(t *testing.T) {
	for _, overbook := range []string{"refuse", "warn"} {
		text := strings.Replace(twoUnits, "OVERBOOK", overbook, 1)
		text = strings.Replace(text, "poll: 100ms", "poll: 40ms", 1)
		status, stdout, stderr := command(t, "check", "--config", writeFile(t, "site.yaml", text))
		const blame = "bus l: its tags need 131 % of the line's time: poll less often, or on another line, a.r0 to a.r9 every 40ms (115 %)"
		switch {
		case !strings.Contains(stdout+stderr, blame):
			t.Errorf("%s: %s%s", overbook, stdout, stderr)
		case overbook == "refuse" && (status != exitUsage || !strings.Contains(stderr, "site.yaml:2:9:")):
			t.Errorf("exit status %d: %s", status, stderr)
		case overbook == "warn" && status != exitDone:
			t.Errorf("exit status %d: %s", status, stderr)
		}
	}
}

// TestBusNodes reads predicted and measured of a line that runs, and what a device that fell silent costs it.
func TestBusNodes(t *testing.T) {
	plant, err := sim.New(sim.Config{Lines: []sim.LineConfig{{Name: "l", URL: "tcp://127.0.0.1:0"}}, Devices: []sim.DeviceConfig{
		{Name: "a", Line: "l", Unit: 1, Points: []sim.PointConfig{{Address: "holding:0", Repeat: 4}}},
		{Name: "b", Line: "l", Unit: 2, Points: []sim.PointConfig{{Address: "holding:0", Repeat: 4}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := plant.Start(); err != nil {
		t.Fatal(err)
	}
	defer plant.Close()
	device := func(name, unit string) string {
		return "- {name: " + name + ", bus: l, unit: " + unit + ", poll: 50ms, tags: [{name: t, address: \"holding:0\"}]}\n"
	}
	head := siteHead + "buses: [{name: l, url: \"" + plant.Line("l").URL() + "\", timeout: 50ms, pipeline: 2}]\ndevices:\n"
	g, _ := startSite(t, head+device("a", "1")+device("b", "2"))
	c := connect(t, endpointUp(t, g), "None", ua.MessageSecurityModeNone)
	read := func(name string) (float64, ua.StatusCode) {
		r, err := c.Read(t.Context(), &ua.ReadRequest{NodesToRead: []*ua.ReadValueID{{NodeID: ua.NewStringNodeID(1, "buses/l."+name), AttributeID: ua.AttributeIDValue}}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Results[0].Status != ua.StatusOK {
			return 0, r.Results[0].Status
		}
		return r.Results[0].Value.Value().(float64), ua.StatusOK
	}
	await := func(name string, ok func(v float64) bool) {
		t.Helper()
		var v float64
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if v, _ = read(name); ok(v) {
				return
			}
		}
		t.Errorf("%s stayed %v", name, v)
	}
	await("edged_bus_up", func(v float64) bool { return v == 1 })
	await("edged_bus_utilization", func(v float64) bool { return v > 0 && v < 1 })
	await("edged_bus_cycle_seconds", func(v float64) bool { return v > 0 && v < 1 })
	if v, _ := read("edged_bus_predicted_cycle_seconds"); v != 0.005 {
		t.Errorf("a cycle of %v was predicted, want 5 ms: each device has a lane", v)
	}
	if v, _ := read("edged_device_lost_seconds_total.b"); v != 0 {
		t.Errorf("b has cost %v s", v)
	}
	plant.Device("b").Fault(sim.Fault{Kind: sim.Mute})
	await("edged_device_lost_seconds_total.b", func(v float64) bool { return v >= 0.05 })
	if v, _ := read("edged_device_predicted_silent_share.b"); math.Abs(v-0.05/8.05) > 1e-6 {
		t.Errorf("a silent b is predicted to take %v of the line", v)
	}
	if n := plant.Line("l").Accepted(); n != 1 {
		t.Errorf("%d connections for two transactions in flight", n)
	}
	next, err := parseSite("site.yaml", []byte(head+device("a", "1")))
	if err == nil {
		err = g.reload(next)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, status := read("edged_device_lost_seconds_total.b"); status != ua.StatusBadNodeIDUnknown {
		t.Errorf("a node of a device that has gone reads %v", status)
	}
	if _, status := read("edged_bus_up"); status != ua.StatusOK {
		t.Errorf("the bus reads %v", status)
	}
}
