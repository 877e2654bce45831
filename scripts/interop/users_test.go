//go:build interop

package interop

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const usersSite = `
server:
  listen: LISTEN
  security:
    policies: [None, Basic256Sha256, Aes128_Sha256_RsaOaep, Aes256_Sha256_RsaPss]
    trust_all: true
    roles: {operator: {write: [d.free]}}
web: {listen: none}
devices:
  - {name: d, driver: memory, tags: [{name: free, access: readwrite}, {name: set, access: readwrite}]}
`

// userCertificate writes a certificate and its key for a user.
func userCertificate(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "carl"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "carl.pem"), filepath.Join(dir, "carl.key")
	for path, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// TestUsers: node-opcua's client logs in with every kind of token on every policy (field reports C6 and C7).
func TestUsers(t *testing.T) {
	node := tool(t, "node", "install Node.js 20 (apt-get install nodejs)")
	dir := t.TempDir()
	file := filepath.Join(dir, "site.yaml")
	if err := os.WriteFile(file, []byte(usersSite), 0o600); err != nil {
		t.Fatal(err)
	}
	certificate, key := userCertificate(t, dir)
	endpoint := gateway(t, "run", "--config", file, "--data", filepath.Join(dir, "data"))
	add := func(args ...string) {
		cmd := exec.Command(edged(t), append([]string{"users", "add", "--config", file}, args...)...)
		cmd.Stdin = strings.NewReader("open sesame\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("users add %v: %v %s", args, err, out)
		}
	}
	add("anna", "--role", "operator")
	add("carl", "--role", "operator", "--certificate", certificate)
	anna, carl := []string{"--user", "anna", "--password", "open sesame"}, []string{"--certificate", certificate, "--key", key}
	type row struct {
		name         string
		over         security
		who          []string
		set          string
		login, write string
	}
	rows := []row{
		{"not her tag", security{"None", "None"}, anna, "d.set", "Good", "BadUserAccessDenied"},
		{"wrong password", usual, []string{"--user", "anna", "--password", "guess"}, "d.free", "BadIdentityTokenRejected", ""},
		{"unknown user", usual, []string{"--user", "eve", "--password", "open sesame"}, "d.free", "BadIdentityTokenRejected", ""},
	}
	for _, over := range []security{{"None", "None"}, usual, {"Aes128_Sha256_RsaOaep", "Sign"}, {"Aes256_Sha256_RsaPss", "SignAndEncrypt"}} {
		rows = append(rows, row{"name on " + over.policy, over, anna, "d.free", "Good", "Good"}, row{"certificate on " + over.policy, over, carl, "d.free", "Good", "Good"})
	}
	for _, r := range rows {
		args := append([]string{"users.mjs", "--endpoint", endpoint, "--policy", r.over.policy, "--mode", r.over.mode, "--pki", certificates, "--write", "ns=2;s=" + r.set}, r.who...)
		cmd := exec.Command(node, args...)
		var out, errors bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errors
		timer := time.AfterFunc(3*patience, func() { cmd.Process.Kill() })
		err := cmd.Run()
		timer.Stop()
		if err != nil {
			t.Errorf("%s: %v\n%s%s", r.name, err, out.String(), errors.String())
			continue
		}
		var got struct{ Login, Write string }
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "{") {
				if err := json.Unmarshal([]byte(line), &got); err != nil {
					t.Errorf("%s: %q: %v", r.name, line, err)
				}
			}
		}
		if !strings.Contains(got.Login, r.login) || got.Write != r.write {
			t.Errorf("%s: log-in %s, write %s; want %s and %s", r.name, got.Login, got.Write, r.login, r.write)
		}
	}
}
