//go:build interop

package interop

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const eventsSite = `
server:
  listen: LISTEN
  raise_events: true
  security: {policies: [Basic256Sha256], trust_all: true}
web: {listen: none}
devices:
  - {name: d, driver: memory, tags: [{name: free, type: float64, value: 0, access: readwrite}]}
`

// TestEvents has node-opcua watch events and call methods, as an admin and as an observer.
func TestEvents(t *testing.T) {
	node := tool(t, "node", "install Node.js 20 (apt-get install nodejs)")
	if _, err := os.Stat("node_modules/node-opcua-client"); err != nil {
		t.Fatal("node-opcua-client is missing: run scripts/setup.sh")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "site.yaml")
	if err := os.WriteFile(file, []byte(eventsSite), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "users-site.yaml") // its users are the same: they stand beside both
	if err := os.WriteFile(other, []byte(strings.Replace(eventsSite, "LISTEN", "127.0.0.1:4840", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]string{"boss": "admin", "eve": "observer"} {
		cmd := exec.Command(edged(t), "users", "add", name, "--role", role, "--config", other)
		cmd.Stdin = strings.NewReader("open sesame\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("users add %s: %v %s", name, err, out)
		}
	}
	endpoint := gateway(t, "run", "--config", file, "--data", filepath.Join(dir, "data"))
	cmd := exec.Command(node, "events.mjs", "--endpoint", endpoint, "--pki", certificates, "--password", "open sesame")
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	timer := time.AfterFunc(5*patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil {
		t.Fatalf("node-opcua's client: %v\n%s%s", err, out.String(), errors.String())
	}
	const want = `{"passed":["watch","refused","where","audit","methods"]}`
	if !strings.Contains(out.String(), want) {
		t.Errorf("node-opcua's client said %s", out.String())
	}
}
