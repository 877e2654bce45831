//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"edged/drivers/sim"
)

// TestHistory: what node-opcua reads of the history, raw and a millisecond later, is what the device said.
func TestHistory(t *testing.T) {
	plant, err := sim.New(sim.Config{
		Lines: []sim.LineConfig{{Name: "l", URL: "tcp://127.0.0.1:0"}},
		Devices: []sim.DeviceConfig{{Name: "d", Line: "l", Unit: 1, Points: []sim.PointConfig{{
			Address: "holding:0", Type: "uint32", Wave: sim.Wave{Kind: "counter", Every: 50 * time.Millisecond},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var told []uint32
	plant.OnAnswer = func(a *sim.Answer) {
		high, ok := a.Register(0)
		low, ok2 := a.Register(1)
		mu.Lock()
		defer mu.Unlock()
		if v := uint32(high)<<16 | uint32(low); ok && ok2 && (len(told) == 0 || told[len(told)-1] != v) {
			told = append(told, v)
		}
	}
	if err := plant.Start(); err != nil {
		t.Fatal(err)
	}
	defer plant.Close()
	path := filepath.Join(t.TempDir(), "site.yaml")
	text := "server: {listen: \"LISTEN\", security: {policies: [None], anonymous: read, trust_all: true}}\nweb: {listen: none}\n" +
		fmt.Sprintf("buses: [{name: l, url: %q, timeout: 5s}]\n", plant.Line("l").URL()) +
		"devices: [{name: d, bus: l, unit: 1, poll: 50ms, tags: [{name: c, address: \"holding:0\", type: uint32, history: true}]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	from := time.Now().Add(-time.Second)
	endpoint := gateway(t, "run", "--config", path, "--data", t.TempDir())
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		mu.Lock()
		n := len(told)
		mu.Unlock()
		if n > 40 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the device said %d values", n)
		}
	}
	cmd := exec.Command(tool(t, "node", "install Node.js 20 (apt-get install nodejs)"), "history.mjs", "--endpoint", endpoint, "--pki", certificates,
		"--from", from.UTC().Format(time.RFC3339Nano), "--number", "7", "ns=2;s=d.c")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	timer := time.AfterFunc(3*patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node-opcua's client: %v\n%s%s", err, out, errors.String())
	}
	heard := map[string][]uint32{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var kind, at string
		var value, status uint32
		if n, _ := fmt.Sscanf(lines.Text(), "%s %s %d %d", &kind, &at, &value, &status); n < 4 {
			continue // a Bad value, or the library speaks
		}
		if want := map[string]uint32{"raw": 0, "at": 0x402}[kind]; status != want {
			t.Errorf("%s, want status %#x", lines.Text(), want)
		}
		heard[kind] = append(heard[kind], value)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(heard["raw"]) < 40 || len(heard["at"]) != len(heard["raw"]) {
		t.Fatalf("%d raw values, %d at times\n%s", len(heard["raw"]), len(heard["at"]), out)
	}
	for i, v := range heard["raw"] {
		if v != told[i] || heard["at"][i] != v {
			t.Fatalf("value %d is raw %d and at its time %d, the device said %d", i, v, heard["at"][i], told[i])
		}
	}
}
