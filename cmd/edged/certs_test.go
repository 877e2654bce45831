package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

// TestCerts is C9 at the command line: a refused certificate is listed, trusted, and rejected again.
func TestCerts(t *testing.T) {
	data := filepath.Join(t.TempDir(), dataFolder)
	dir := filepath.Join(data, "pki")
	id := pki.Identity{ApplicationURI: "urn:edged:test", Name: "test", Hosts: []string{"kettle", "10.0.0.7"}}
	own, err := pki.Open(dir, id, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	me := uatest.ClientIdentity(t)
	print := pki.ThumbprintOf(me.DER).String()
	for folder, file := range map[string]string{"rejected": print + ".der", "trusted": ""} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		if file != "" {
			if err := os.WriteFile(filepath.Join(dir, folder, file), me.DER, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	given := filepath.Join(t.TempDir(), "scada.der")
	if err := os.WriteFile(given, me.DER, 0o600); err != nil {
		t.Fatal(err)
	}
	site := filepath.Join(filepath.Dir(data), "site.yaml")
	if err := os.WriteFile(site, []byte("server: {application_uri: \"urn:edged:test\", name: test}\n"+oneDevice), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		args   []string
		status int
		stdout string // each of these words stands there
		stderr string
	}{
		{"own", []string{"show", "--data", data}, exitDone, own.Thumbprint().String() + " urn:edged:test kettle 10.0.0.7 daysLeft", ""},
		{"C9 listed", []string{"list", "--data", data}, exitDone, "rejected " + print + " urn:test:client", ""},
		{"C9 listed beside the site file", []string{"list", "--config", site}, exitDone, "rejected " + print, ""},
		{"C9 trusted", []string{"trust", print[:8], "--data", data}, exitDone, "trusted " + print, ""},
		{"C9 trusted twice", []string{"trust", print[:8], "--data", data}, exitFailed, "", "in trusted already"},
		{"C9 rejected", []string{"reject", strings.ToUpper(print[:8]), "--data", data}, exitDone, "rejected " + print, ""},
		{"C9 trusted from a file", []string{"trust", given, "--data", data}, exitDone, "trusted " + print, ""},
		{"a user's from a file", []string{"trust", given, "--user", "--data", data}, exitDone, "users/trusted " + print, ""},
		{"a user's listed apart", []string{"list", "--data", data}, exitDone, "users/trusted", ""},
		{"a user's rejected", []string{"reject", print[:8], "--user", "--data", data}, exitDone, "users/rejected " + print, ""},
		{"nobody's", []string{"reject", "ffffffff", "--data", data}, exitFailed, "", "ffffffff edged certs list"},
		{"no folder named", []string{"list"}, exitUsage, "", "--data --config"},
		{"no such folder", []string{"list", "--data", "/nowhere"}, exitFailed, "", "/nowhere --data"},
		{"no own certificate", []string{"show", "--data", t.TempDir()}, exitFailed, "", "edged certs renew"},
		{"bits", []string{"renew", "--bits", "1024", "--data", data}, exitUsage, "", "2048 3072 4096"},
		{"C8 renewed", []string{"renew", "--config", site}, exitDone, "urn:edged:test localhost", "within seconds"},
		{"C8 renewed without the site file", []string{"renew", "--data", data}, exitDone, "urn:edged:test localhost", "within seconds"},
	} {
		status, stdout, stderr := command(t, append([]string{"certs"}, row.args...)...)
		if status != row.status {
			t.Errorf("%s: exit status %d, want %d: %s", row.name, status, row.status, stderr)
		}
		for _, side := range []struct{ name, got, want string }{{"stdout", stdout, row.stdout}, {"stderr", stderr, row.stderr}} {
			for _, word := range strings.Fields(side.want) {
				if !strings.Contains(side.got, word) {
					t.Errorf("%s: %s lacks %q: %q", row.name, side.name, word, side.got)
				}
			}
		}
	}
	status, stdout, _ := command(t, "certs", "list", "--json", "--data", data)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if status != exitDone || len(lines) != 3 {
		t.Fatalf("exit status %d, %d lines: %s", status, len(lines), stdout)
	}
	for _, line := range lines {
		var row certificateRow
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.Thumbprint != print || row.DaysLeft == nil || row.Kind != kindCertificate {
			t.Errorf("%s: %v", line, err)
		}
	}
	now, err := pki.Load(dir)
	if err != nil || now.Thumbprint() == own.Thumbprint() || !now.Key().Equal(own.Key()) {
		t.Errorf("not renewed with its key: %v", err)
	}
}
