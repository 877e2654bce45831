package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edged/drivers/port"
	"edged/drivers/sim"
)

// command carries out one command line.
func command(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = execute(t.Context(), args, &out, &err)
	return status, out.String(), err.String()
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandLine(t *testing.T) {
	good, bad := writeFile(t, "good.yaml", oneDevice), writeFile(t, "bad.yaml", "server: {listen: 1}\ndevices: 2\n")
	plant := writeFile(t, "plant.yaml", "lines: [{name: l, url: \"tcp://127.0.0.1:0\"}]\ndevices: [{name: d, line: x, unit: 300}]\n")
	for _, row := range []struct {
		args   []string
		status int
		stdout string // each of these words stands there
		stderr string
	}{
		{[]string{"version"}, exitDone, "edged devel", ""},
		{[]string{"--help"}, exitDone, "demo run check sim version", ""},
		{[]string{"demo", "--help"}, exitDone, "127.0.0.1:4840 127.0.0.1:8080 edged-data --print", ""},
		{[]string{"demo", "--print"}, exitDone, "devices: boiler scratch", ""},
		{[]string{}, exitUsage, "", "edged: expected --help"},
		{[]string{"fly"}, exitUsage, "", "edged: fly --help"},
		{[]string{"check"}, exitUsage, "", "--config"},
		{[]string{"version", "--log-level", "loud"}, exitUsage, "", "--log-level debug"},
		{[]string{"demo", "--listen", "4840"}, exitUsage, "", "--listen HOST:PORT"},
		{[]string{"demo", "--web", "nowhere"}, exitUsage, "", "--web HOST:PORT"},
		{[]string{"check", "--config", good}, exitDone, "good: 0 buses 1 device 1 tag note: nobody", ""},
		{[]string{"check", "--config", bad}, exitUsage, "", "bad.yaml:1:18: bad.yaml:2:10:"},
		{[]string{"check", "--json", "--config", bad}, exitUsage, `"line":1,"col":18 "line":2,"col":10`, "2 mistakes"},
		{[]string{"check", "--json", "--config", good}, exitDone, `"devices":1 "tags":1 "notes"`, ""},
		{[]string{"check", "--config", "/nowhere/site.yaml"}, exitFailed, "", "/nowhere/site.yaml no such file --config"},
		{[]string{"run", "--config", bad}, exitUsage, "", "bad.yaml:1:18:"},
		{[]string{"run", "--config", good, "--data", "/proc/nowhere"}, exitFailed, "", "/proc/nowhere --data"},
		{[]string{"sim", "--config", plant}, exitUsage, "", "plant.yaml:2:27: plant.yaml:2:36:"},
		{[]string{"sim", "--config", bad}, exitUsage, "", "unknown key \"server\""},
	} {
		status, stdout, stderr := command(t, row.args...)
		if status != row.status {
			t.Errorf("edged %v: exit status %d, want %d", row.args, status, row.status)
		}
		for _, side := range []struct{ name, got, want string }{{"stdout", stdout, row.stdout}, {"stderr", stderr, row.stderr}} {
			if side.want == "" && side.got != "" {
				t.Errorf("edged %v: %s has %q", row.args, side.name, side.got)
			}
			for _, word := range strings.Fields(side.want) {
				if !strings.Contains(side.got, word) {
					t.Errorf("edged %v: %s lacks %q: %q", row.args, side.name, word, side.got)
				}
			}
		}
		if row.status != exitDone && strings.Contains(stderr, "goroutine") {
			t.Errorf("edged %v: %s", row.args, stderr)
		}
	}
}

func TestLog(t *testing.T) {
	var text, object bytes.Buffer
	newLog(&text, "text", "warn").Info("quiet")
	newLog(&text, "text", "warn").Warn("loud", "bus", "line1")
	if got := text.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud bus=line1") || strings.Contains(got, "\x1b") {
		t.Errorf("text log is %q", got)
	}
	newLog(&object, "json", "debug").Debug("small", "bus", "line1", "n", 3)
	var line map[string]any
	if err := json.Unmarshal(object.Bytes(), &line); err != nil || line["msg"] != "small" || line["bus"] != "line1" || line["level"] != "debug" {
		t.Errorf("JSON log is %q: %v", object.String(), err)
	}
}

// TestCheckConnects checks a site against the demo's plant, whole and with a tag that the device does not have.
func TestCheckConnects(t *testing.T) {
	plant, err := sim.New(sim.Demo())
	if err != nil {
		t.Fatal(err)
	}
	if err := plant.Start(); err != nil {
		t.Fatal(err)
	}
	defer plant.Close()
	text := string(demoSite)
	text = strings.Replace(text, "tcp://127.0.0.1:5020", plant.Line(sim.DemoTCP).URL(), 1)
	text = strings.Replace(text, "rtu:///dev/ttyS1?baud=19200&data=8&parity=even&stop=1", plant.Line(sim.DemoRTU).URL(), 1)
	status, stdout, stderr := command(t, "check", "--connect", "--config", writeFile(t, "site.yaml", text))
	if status != exitDone || !strings.Contains(stdout, "every tag was read") {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	text = strings.Replace(text, "discrete:0", "discrete:9", 1)
	status, stdout, _ = command(t, "check", "--connect", "--json", "--config", writeFile(t, "site.yaml", text))
	if status != exitFailed || !strings.Contains(stdout, `{"tag":"burner.flame","status":"BadConfigurationError","value":"null"}`) {
		t.Errorf("exit status %d, stdout\n%.2000s", status, stdout)
	}
}

// TestSim runs `edged sim` until it has said where its devices are, and asks one of them.
func TestSim(t *testing.T) {
	file := writeFile(t, "plant.yaml", `
lines: [{name: l, url: "tcp://127.0.0.1:0", idle: 5m}]
devices:
- name: boiler
  line: l
  unit: 17
  points:
  - {address: "holding:0", type: float32, wave: {kind: sine, period: 60s, min: 20, max: 90}}
  - {address: "holding:10", value: 650}
  faults:
  - {kind: noise, bytes: [0, 255], times: 1, function: 4}
`)
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan int, 1)
	var stderr bytes.Buffer
	said, commands := filepath.Join(t.TempDir(), "said"), writeFile(t, "commands", "set boiler holding:10 77\nset boiler coil:1\n")
	go func() {
		done <- execute(ctx, []string{"sim", "--config", file, "--log", said, "--commands", commands}, in, &stderr)
		in.Close()
	}()
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err, stderr.String())
	}
	f := strings.Fields(string(line[:n]))
	if len(f) != 4 || f[0] != "boiler" || f[2] != "17" {
		t.Fatalf("sim printed %q", line[:n])
	}
	if _, err := port.Parse(f[3]); err != nil {
		t.Error(err)
	}
	status, stdout, logged := command(t, "check", "--connect", "--config", writeFile(t, "site.yaml",
		"buses: [{name: l, url: \""+f[3]+"\"}]\ndevices: [{name: b, bus: l, unit: 17, poll: 100ms, tags: [{name: t, address: \"holding:10\"}]}]\n"))
	if status != exitDone {
		t.Errorf("exit status %d: %s%s", status, stdout, logged)
	}
	cancel()
	if status := <-done; status != exitDone {
		t.Errorf("sim ended with %d: %s", status, stderr.String())
	}
	if text, err := os.ReadFile(said); err != nil || !strings.Contains(string(text), `"device":"boiler","function":3,"table":"holding","address":10,"count":1,"data":"004d"}`) {
		t.Errorf("the log of answers: %s %v", text, err)
	}
	if !strings.Contains(stderr.String(), "holding:10 is 77") || !strings.Contains(stderr.String(), "give an address and numbers") {
		t.Errorf("commands: %s", stderr.String())
	}
}

func FuzzPlant(f *testing.F) {
	f.Add([]byte("lines: [{name: l, url: \"tcp://127.0.0.1:0\"}]\ndevices: [{name: d, line: l, unit: 1, points: [{address: \"holding:0\", value: [1]}], faults: [{kind: delay, for: 1s}]}]\n"))
	f.Add([]byte("lines: 1\ndevices: [[]]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := parsePlant("plant.yaml", text)
		if err == nil && len(cfg.Problems()) > 0 {
			t.Errorf("a plant with problems passed: %v", cfg.Problems())
		}
	})
}
