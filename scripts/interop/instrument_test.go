//go:build interop

package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstruments reads a simulated scale and a simulated receiver over lines that socat carries, and tares the scale.
func TestInstruments(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) string {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	plant := write("sim.yaml", fmt.Sprintf(`
lines:
  - {name: l1, url: "serial://%[1]s/sim-scale?baud=9600"}
  - {name: l2, url: "serial://%[1]s/sim-gps?baud=9600"}
instruments:
  - {name: scale, line: l1, kind: mt-sics, load: 100.25}
  - {name: gps, line: l2, kind: nmea-gps, every: 100ms, garble: 9}
`, dir))
	start(t, edged(t), "sim", "--config", plant).await(t, "its lines are there", func() bool {
		_, one := os.Stat(at("sim-scale"))
		_, two := os.Stat(at("sim-gps"))
		return one == nil && two == nil
	})
	for _, name := range []string{"scale", "gps"} {
		start(t, tool(t, "socat", "apt-get install socat"), "pty,raw,echo=0,link="+at(name), "open:"+at("sim-"+name)+",raw,echo=0").
			await(t, "the line "+name, func() bool { _, err := os.Stat(at(name)); return err == nil })
	}
	endpoint := gateway(t, "run", "--data", at("data"), "--config", write("site.yaml", fmt.Sprintf(`
server: {listen: "LISTEN", security: {policies: [None], anonymous: write}}
web: {listen: none}
buses:
  - {name: l1, url: "serial://%[1]s/scale?baud=9600"}
  - {name: l2, url: "serial://%[1]s/gps?baud=9600"}
devices:
  - {name: scale, bus: l1, driver: serial, profile: mt-sics, poll: 100ms}
  - {name: gps, bus: l2, driver: serial, profile: nmea-gps}
`, dir)))
	client := func(args ...string) string {
		out, _ := exec.Command(edged(t), args...).CombinedOutput() // what it says is judged, be it a failure
		return string(out)
	}
	await := func(node, want string) {
		t.Helper()
		for range 100 {
			if strings.Contains(client("read", endpoint, node, "--json"), want) {
				return
			}
		}
		t.Fatalf("%s is not %s: %s", node, want, client("read", endpoint, node, "--json"))
	}
	await("scale.weight", "100.25")
	await("scale.stable", "true")
	await("gps.altitude", "545.4")
	await("gps.valid", "true")
	if out := client("write", endpoint, "scale.tare=true", "--json"); !strings.Contains(out, "Good") {
		t.Fatalf("the tare: %s", out)
	}
	await("scale.tare_weight", "100.25")
	await("scale.weight", `"value":0`)
}
