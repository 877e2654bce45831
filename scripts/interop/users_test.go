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
    policies: [None, Basic256Sha256, Aes128_Sha256_RsaOaep, Aes256_Sha256_RsaPss, Basic256]
    anonymous: read
    trust_all: true
    roles: {operator: {write: [d.free]}}
web: {listen: none}
devices:
  - {name: d, driver: memory, tags: [{name: free, access: readwrite}, {name: set, access: readwrite}]}
`

// userCertificate writes a certificate and its key for a user.
func userCertificate(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
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
	user := func(args ...string) {
		cmd := exec.Command(edged(t), append([]string{"users", "add", "--config", file}, args...)...)
		cmd.Stdin = strings.NewReader("open sesame\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("users add %v: %v %s", args, err, out)
		}
	}
	user("anna", "--role", "operator")
	user("carl", "--role", "operator", "--certificate", certificate)
	type entry struct {
		Policy, Mode, User, Password, Certificate, Key, Write string
	}
	type row struct {
		name         string
		entry        entry
		login, write string
	}
	var rows []row
	add := func(name string, over security, who entry, set, login, write string) {
		who.Policy, who.Mode, who.Write = over.policy, over.mode, "ns=2;s="+set
		rows = append(rows, row{name + " on " + over.policy + " " + over.mode, who, login, write})
	}
	anna, carl := entry{User: "anna", Password: "open sesame"}, entry{Certificate: certificate, Key: key}
	other, otherKey := userCertificate(t, filepath.Join(dir, "other"))
	for _, over := range []security{
		{"None", "None"}, {"Basic256Sha256", "Sign"}, usual, {"Aes128_Sha256_RsaOaep", "Sign"}, {"Aes128_Sha256_RsaOaep", "SignAndEncrypt"},
		{"Aes256_Sha256_RsaPss", "Sign"}, {"Aes256_Sha256_RsaPss", "SignAndEncrypt"}, {"Basic256", "Sign"}, {"Basic256", "SignAndEncrypt"}, // Node.js decrypts nothing of Basic128Rsa15 any more
	} {
		add("anonymous", over, entry{}, "d.free", "Good", "BadUserAccessDenied")
		add("name", over, anna, "d.free", "Good", "Good")
		add("certificate", over, carl, "d.free", "Good", "Good")
	}
	add("not her tag", usual, anna, "d.set", "Good", "BadUserAccessDenied")
	add("wrong password", usual, entry{User: "anna", Password: "guess"}, "d.free", "BadIdentityTokenRejected", "")
	add("unknown user", usual, entry{User: "eve", Password: "open sesame"}, "d.free", "BadIdentityTokenRejected", "")
	add("unknown certificate", usual, entry{Certificate: other, Key: otherKey}, "d.free", "BadIdentityTokenRejected", "")
	add("wrong key", usual, entry{Certificate: certificate, Key: otherKey}, "d.free", "BadUserSignatureInvalid", "")
	entries := make([]map[string]string, len(rows))
	for i, r := range rows {
		e := r.entry
		entries[i] = map[string]string{
			"policy": e.Policy, "mode": e.Mode, "user": e.User, "password": e.Password, "certificate": e.Certificate, "key": e.Key, "write": e.Write,
		}
	}
	cases, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "users.mjs", "--endpoint", endpoint, "--pki", certificates, "--cases", string(cases))
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	timer := time.AfterFunc(5*patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errors.String())
	}
	done := 0
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "{") || done == len(rows) {
			continue
		}
		r := rows[done]
		done++
		var got struct{ Login, Write string }
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Errorf("%s: %q: %v", r.name, line, err)
		}
		if !strings.Contains(got.Login, r.login) || got.Write != r.write {
			t.Errorf("%s: log-in %s, write %s; want %s and %s", r.name, got.Login, got.Write, r.login, r.write)
		}
	}
	if done != len(rows) {
		t.Errorf("%d results of %d cases: %s%s", done, len(rows), out.String(), errors.String())
	}
}
