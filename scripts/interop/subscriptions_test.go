//go:build interop

package interop

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestSubscriptionServices has node-opcua use the services of subscriptions one by one.
func TestSubscriptionServices(t *testing.T) {
	endpoint := gateway(t, "demo", "--listen", "LISTEN", "--web", "none", "--data", t.TempDir())
	node := tool(t, "node", "install Node.js 20 (apt-get install nodejs)")
	if _, err := os.Stat("node_modules/node-opcua-client"); err != nil {
		t.Fatal("node-opcua-client is missing: run scripts/setup.sh")
	}
	cmd := exec.Command(node, "subscriptions.mjs", "--endpoint", endpoint, "--pki", certificates)
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	timer := time.AfterFunc(3*patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil {
		t.Fatalf("node-opcua's client: %v\n%s%s", err, out.String(), errors.String())
	}
	const want = `{"passed":["subscribe","modify","deadband","trigger","republish","transfer","methods","delete"]}`
	if !strings.Contains(out.String(), want) {
		t.Errorf("node-opcua's client said %s", out.String())
	}
}
