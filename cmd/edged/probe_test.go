package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"edged/drivers/port"
	"edged/drivers/sim"
)

// plantOf starts one device on a Modbus TCP socket.
func plantOf(t *testing.T, d sim.DeviceConfig) (*sim.Device, string) {
	t.Helper()
	d.Name, d.Line = "d", "l"
	p, err := sim.New(sim.Config{Lines: []sim.LineConfig{{Name: "l", URL: "tcp://127.0.0.1:0"}}, Devices: []sim.DeviceConfig{d}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p.Device("d"), p.Line("l").URL()
}

// mixed is a device with values of every type in one order, with holes between them.
func mixed(order string) []sim.PointConfig {
	long := map[string]string{"ABCD": "ABCDEFGH", "CDAB": "GHEFCDAB", "BADC": "BADCFEHG", "DCBA": "HGFEDCBA"}[order]
	points := []sim.PointConfig{
		{Address: "holding:48", Type: "uint16", Value: 650}, {Address: "holding:49", Type: "uint16", Repeat: 20},
		{Address: "holding:80", Type: "float64", Order: long, Value: 123456.75},
		{Address: "holding:90", Type: "string(16)", Value: "Boiler room 3"},
		{Address: "input:0", Type: "uint16", Value: 1200},
		{Address: "coil:0", Repeat: 50, Value: true}, {Address: "coil:60", Repeat: 3},
		{Address: "discrete:5", Repeat: 4, Value: true},
	}
	for i, v := range []float64{21.5, 63.25, 4.2, 101.325, 0.75, 1013.25, 7.1, 54.87193, 230.4, 49.98, 12.125, 88.8, 400.1, 3.3, 19.6, 65.2, 71.9, 20.1, 17.3, 2.718282} {
		points = append(points, sim.PointConfig{Address: fmt.Sprintf("holding:%d", 4+2*i), Type: "float32", Order: order, Value: v})
	}
	return points
}

// TestProbeLearnsWhatReadsTheSame: the section that --learn writes passes check --connect, and each of its tags reads
// what the device holds there.
func TestProbeLearnsWhatReadsTheSame(t *testing.T) {
	for _, row := range []struct {
		order     string
		registers int
	}{{"ABCD", 125}, {"CDAB", 32}, {"BADC", 125}, {"DCBA", 32}} {
		t.Run(fmt.Sprintf("%s %d registers", row.order, row.registers), func(t *testing.T) {
			t.Parallel()
			device, url := plantOf(t, sim.DeviceConfig{Unit: 3, MaxRegisters: row.registers, MaxBits: 40,
				Identity: []string{"Acme", "X1", "2.0"}, Points: mixed(row.order)})
			file := filepath.Join(t.TempDir(), "site.yaml")
			status, stdout, stderr := command(t, "probe", url, "--unit", "3", "--learn", "--range", "0-120", "--watch", "0s", "--timeout", "5s", "-o", file)
			if status != exitDone {
				t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"unit: 3", "Acme X1 2.0", "likely " + row.order, "max_bits: 40", `"holding:69-79"`, `"holding:84-89"`, `"coil:50-59"`} {
				if !strings.Contains(string(text), want) {
					t.Errorf("the section lacks %q:\n%s", want, text)
				}
			}
			if limited := strings.Contains(string(text), "max_registers: 32"); limited != (row.registers == 32) {
				t.Errorf("max_registers of a device that takes %d:\n%s", row.registers, text)
			}
			if row.registers == 32 && device.Requests() > 1300 {
				t.Errorf("%d requests", device.Requests())
			}
			want := map[string]string{}
			for _, p := range mixed(row.order) {
				if p.Type == "float32" || p.Type == "float64" {
					want["unit3."+strings.Replace(p.Address, ":", "", 1)] = fmt.Sprint(p.Value)
				}
			}
			want["unit3.holding48"], want["unit3.holding90"], want["unit3.input0"] = "650", "Boiler room 3", "1200"
			want["unit3.holding49_19"], want["unit3.coil0_49"], want["unit3.coil62"], want["unit3.discrete5_3"] = "0", "true", "false", "true"
			status, stdout, stderr = command(t, "check", "--connect", "--json", "--config", file)
			if status != exitDone {
				t.Fatalf("check: exit status %d: %s%s\n%s", status, stdout, stderr, text)
			}
			tags := 0
			for lines := bufio.NewScanner(strings.NewReader(stdout)); lines.Scan(); {
				var tag checkedTag
				if json.Unmarshal(lines.Bytes(), &tag) != nil || tag.Tag == "" {
					continue
				}
				tags++
				if v, known := want[tag.Tag]; known && tag.Value != v || tag.Status != "Good" {
					t.Errorf("%s reads %s, %s, want %s", tag.Tag, tag.Value, tag.Status, v)
				}
				delete(want, tag.Tag)
			}
			if len(want) > 0 || tags != 20+1+20+1+1+1+50+3+4 {
				t.Errorf("%d tags; missing are %v in\n%s", tags, want, text)
			}
			if status, _, stderr := command(t, "probe", url, "--unit", "3", "--learn", "-o", file); status != exitUsage || !strings.Contains(stderr, "not overwritten") {
				t.Errorf("a second run onto the same file: exit status %d: %s", status, stderr)
			}
		})
	}
}

// TestProbeOnlyReads: whatever it is told to do, no request of it changes a device.
func TestProbeOnlyReads(t *testing.T) {
	t.Parallel()
	device, url := plantOf(t, sim.DeviceConfig{Unit: 1, Points: []sim.PointConfig{
		{Address: "holding:0", Repeat: 10}, {Address: "coil:0", Repeat: 10}}})
	for _, args := range [][]string{{"--scan", "--units", "1-3"}, {"--range", "0-20"}, {"--learn", "--range", "0-20", "--watch", "1ms", "--json"}} {
		if status, stdout, stderr := command(t, append([]string{"probe", url, "--timeout", "5s"}, args...)...); status != exitDone {
			t.Errorf("%v: exit status %d: %s%s", args, status, stdout, stderr)
		}
	}
	if w, _ := device.Writes(); len(w) > 0 {
		t.Errorf("writes: %v", w)
	}
}

func TestProbeCommandLine(t *testing.T) {
	t.Parallel()
	_, url := plantOf(t, sim.DeviceConfig{Unit: 1, Points: []sim.PointConfig{{Address: "holding:0", Type: "float32", Value: 21.5}}})
	for _, row := range []struct {
		args   []string
		status int
		stdout string
		stderr string
	}{
		{[]string{url, "--scan", "--units", "1-3", "--timeout", "5s"}, exitDone, "unit 1: answered", "scanning 3 units"},
		{[]string{url, "--scan", "--units", "1-3", "--timeout", "5s", "--json"}, exitDone, `{"found":"unit","unit":1,"answer":"answered"`, ""},
		{[]string{url, "--scan", "--units", "4-5"}, exitFailed, "", "no unit of 4-5 answers"},
		{[]string{url, "--range", "0-9", "--table", "holding"}, exitDone, "holding: 2 registers: 0-1", "at most"},
		{[]string{url, "--unit", "9"}, exitFailed, "", "does not reach it (exception 11)"},
		{[]string{"tcp://127.0.0.1:1"}, exitFailed, "", "refuses the connection"},
		{[]string{"rtu:///dev/nowhere"}, exitFailed, "", "does not exist: plug the adapter in"},
		{[]string{"http://device"}, exitUsage, "", "scheme http is not known"},
		{[]string{url, "--unit", "300"}, exitUsage, "", "--unit 300: it is 0 to 255"},
		{[]string{"rtu:///dev/ttyS1", "--unit", "0"}, exitUsage, "", "unit 0 is everybody"},
		{[]string{url, "--range", "9-3"}, exitUsage, "", "--range 9-3"},
		{[]string{url, "--table", "coils"}, exitUsage, "", "--table coils: it is holding, input, coil or discrete"},
		{[]string{url, "-o", "x"}, exitUsage, "", "add --learn"},
	} {
		status, stdout, stderr := command(t, append([]string{"probe"}, row.args...)...)
		if status != row.status || !strings.Contains(stdout, row.stdout) || !strings.Contains(stderr, row.stderr) {
			t.Errorf("edged probe %v: exit status %d, stdout %q, stderr %q", row.args, status, stdout, stderr)
		}
	}
}

// TestProbeInterrupted: Ctrl-C prints what was learnt so far, a section too.
func TestProbeInterrupted(t *testing.T) {
	t.Parallel()
	_, url := plantOf(t, sim.DeviceConfig{Unit: 1, Points: []sim.PointConfig{{Address: "holding:0", Type: "float32", Repeat: 10, Value: 21.5}}})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &watched{see: func(text string) {
		if strings.Contains(text, "holding: 20 registers") {
			interrupt()
		}
	}}
	var section strings.Builder
	status := execute(ctx, []string{"probe", url, "--learn", "--range", "0-30", "--timeout", "5s"}, &section, out)
	if status != exitFailed || !strings.Contains(out.String(), "interrupted") {
		t.Errorf("exit status %d: %s", status, out.String())
	}
	if !strings.Contains(section.String(), "It was interrupted") || !strings.Contains(section.String(), "has no value that could be read") {
		t.Errorf("section: %s", section.String())
	}
}

// watched is an output that is looked at while it grows.
type watched struct {
	strings.Builder
	see func(text string)
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Builder.Write(b)
	w.see(w.String())
	return n, err
}

// TestProbeListens: an instrument on a line of its own is shown as text and digits, with a guess.
func TestProbeListens(t *testing.T) {
	t.Parallel()
	line, err := sim.OpenRTU(filepath.Join(t.TempDir(), "scale"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	stop := make(chan struct{})
	var talker sync.WaitGroup
	talker.Go(func() {
		for every := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-every.C:
				io.WriteString(line, "S S     100.00 g\r\n")
			case <-stop:
				every.Stop()
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); talker.Wait() })
	url := "serial://" + line.Path() + "?baud=9600"
	for _, row := range []struct {
		args   []string
		status int
		stdout string
		stderr string
	}{
		{[]string{url, "--for", "500ms"}, exitDone, "a scale that talks MT-SICS", ""},
		{[]string{url, "--for", "500ms"}, exitDone, "53 20 53 20", ""},
		{[]string{url, "--for", "500ms", "--json"}, exitDone, `{"found":"guess","line":"` + line.Path() + ` 9600 8N1","guess":"a scale that talks MT-SICS"`, ""},
		{[]string{url, "--for", "500ms", "--scan"}, exitDone, "9600 8", "listening at 3 settings"},
		{[]string{url, "--learn"}, exitUsage, "", "--learn is for Modbus devices"},
		{[]string{"rtu://" + line.Path()}, exitFailed, "", "is not quiet: "},
	} {
		status, stdout, stderr := command(t, append([]string{"probe"}, row.args...)...)
		if status != row.status || !strings.Contains(stdout, row.stdout) || !strings.Contains(stderr, row.stderr) {
			t.Errorf("edged probe %v: exit status %d, stdout %q, stderr %q", row.args, status, stdout, stderr)
		}
	}
}

// TestProbeOfALineInUse: a line that another program has is told with what helps (E5), and one on which nothing comes too.
func TestProbeOfALineInUse(t *testing.T) {
	t.Parallel()
	line, err := sim.OpenRTU(filepath.Join(t.TempDir(), "line"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	url := "serial://" + line.Path() + "?baud=9600"
	if status, _, stderr := command(t, "probe", url, "--for", "50ms"); status != exitFailed || !strings.Contains(stderr, "nothing came on "+line.Path()) {
		t.Errorf("an idle line: exit status %d: %s", status, stderr)
	}
	a, err := port.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	held, err := a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	for _, u := range []string{url, "rtu://" + line.Path()} {
		if status, _, stderr := command(t, "probe", u, "--for", "50ms"); status != exitFailed || !strings.Contains(stderr, "in use by another program") {
			t.Errorf("%s: exit status %d: %s", u, status, stderr)
		}
	}
}

// TestProbeLearnsALine: on a serial line the scan finds the setting that works, and the section names it.
func TestProbeLearnsALine(t *testing.T) {
	t.Parallel()
	p, err := sim.New(sim.Config{Lines: []sim.LineConfig{{Name: "l", URL: "rtu://" + filepath.Join(t.TempDir(), "line") + "?baud=115200&parity=none"}},
		Devices: []sim.DeviceConfig{{Name: "d", Line: "l", Unit: 2, Points: []sim.PointConfig{
			{Address: "holding:0", Type: "float32", Order: "CDAB", Value: 54.87}, {Address: "holding:2", Type: "float32", Order: "CDAB", Value: 21.3}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	base, _, _ := strings.Cut(p.Line("l").URL(), "?")
	file := filepath.Join(t.TempDir(), "site.yaml")
	status, stdout, stderr := command(t, "probe", base+"?baud=115200", "--scan", "--units", "1-3", "--learn", "--range", "0-9", "--table", "holding", "--watch", "0s", "-o", file)
	if status != exitDone || !strings.Contains(stdout, "unit 2: answered after") || !strings.Contains(stdout, "115200 8") {
		t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
	}
	if status, stdout, stderr = command(t, "check", "--connect", "--json", "--config", file); status != exitDone ||
		!strings.Contains(stdout, `{"tag":"unit2.holding0","status":"Good","value":"54.87"}`) {
		text, _ := os.ReadFile(file)
		t.Errorf("check: exit status %d: %s%s\n%s", status, stdout, stderr, text)
	}
}
