package pki_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

func TestMove(t *testing.T) {
	dir := t.TempDir()
	me := uatest.ClientIdentity(t)
	other := uatest.NewIdentity(t, uatest.Key(t, 2048, 2), nil, nil)
	print, second := pki.ThumbprintOf(me.DER).String(), pki.ThumbprintOf(other.DER).String()
	place(t, dir, "rejected/client of the scada.der", me.DER)
	place(t, dir, "rejected/again.der", me.DER)
	place(t, dir, "rejected/junk", []byte("junk"))
	place(t, dir, "trusted/"+second+".der", other.DER)
	colons := strings.ToUpper(print[:2] + ":" + print[2:4] + ":" + print[4:])
	for _, row := range []struct {
		name, prefix, from, to string
		want                   string // in the error; "": none
	}{
		{"C9 nothing begins so", "0000", "rejected", "trusted", "edged certs list"},
		{"C9 too short", print[:3], "rejected", "trusted", "4 hexadecimal digits"},
		{"C9 no thumbprint", "boiler", "rejected", "trusted", "is no thumbprint"},
		{"C9 there already", second[:8], "rejected", "trusted", "in trusted already"},
		{"C9 trusted", colons, "rejected", "trusted", ""},
		{"C9 trusted twice", print, "rejected", "trusted", "in trusted already"},
		{"C9 back by a prefix", print[:7], "trusted", "rejected", ""},
	} {
		e, err := pki.Move(dir, row.prefix, row.from, row.to)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
		if err == nil && (e.Folder != row.to || !bytes.Equal(e.Cert.Raw, me.DER)) {
			t.Errorf("%s: %+v", row.name, e)
		}
	}
	all, err := pki.Entries(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Folder+"/"+e.File)
		if (e.Err != nil) != (e.File == "junk") {
			t.Errorf("%s: %v", e.File, e.Err)
		}
	}
	if len(all) != 3 || !strings.Contains(strings.Join(names, " "), "rejected/"+print+".der") {
		t.Errorf("folders hold %v", names)
	}
}

func TestMoveAsksForMoreDigits(t *testing.T) {
	dir := t.TempDir()
	first := map[string]bool{}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // quicker to sign with
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(i) + 1), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		print := pki.ThumbprintOf(der).String()
		place(t, dir, "rejected/"+print+".der", der)
		if first[print[:4]] {
			if _, err := pki.Move(dir, print[:4], "rejected", "trusted"); err == nil || !strings.Contains(err.Error(), "give more digits") {
				t.Errorf("%v", err)
			}
			return
		}
		first[print[:4]] = true
	}
	t.Fatal("no two thumbprints begin alike")
}

func TestAdd(t *testing.T) {
	dir := t.TempDir()
	me := uatest.ClientIdentity(t)
	root := authority(t, "root", 0, nil)
	for _, row := range []struct {
		name string
		data []byte
		want string
	}{
		{"certificate", me.DER, ""},
		{"revocation list", revocationList(t, root, time.Now().Add(time.Hour), nil), "issuers"},
		{"junk", []byte("junk"), "neither a certificate"},
	} {
		file := place(t, t.TempDir(), "given", row.data)
		_, err := pki.Add(dir, file, pki.TrustedFolder)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "trusted", pki.ThumbprintOf(me.DER).String()+".der")); err != nil || !bytes.Equal(b, me.DER) {
		t.Errorf("not in the folder: %v", err)
	}
}

// TestRenew is C8 and C9: a new certificate with the same URI, asked for by a person; the old one is kept.
func TestRenew(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.Load(dir); err == nil {
		t.Error("a certificate was loaded that is not there")
	}
	old, _ := open(t, dir, identity)
	moved := identity
	moved.Hosts = []string{"kettle"}
	for _, row := range []struct {
		name string
		id   pki.Identity
		bits int
		want string // in the error; "": none
	}{
		{"no URI", pki.Identity{}, 0, "application URI"},
		{"1024 bits", moved, 1024, "2048 to 4096"},
		{"the same key", moved, 0, ""},
		{"another key", moved, 2048, ""},
	} {
		before, err := pki.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		own, err := pki.Renew(dir, row.id, row.bits)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
		now, log := open(t, dir, moved)
		if err != nil {
			if !bytes.Equal(now.DER(), old.DER()) {
				t.Errorf("%s: the certificate has changed", row.name)
			}
			continue
		}
		if !bytes.Equal(now.DER(), own.DER()) || bytes.Equal(now.DER(), before.DER()) || log != "" || pki.URI(now.Certificate()) != identity.ApplicationURI {
			t.Errorf("%s: another certificate than the new one, or a word about it: %s", row.name, log)
		}
		if same := now.Key().Equal(old.Key()); same != (row.bits == 0) || row.bits != 0 && now.Key().N.BitLen() != row.bits {
			t.Errorf("%s: key of %d bits, the old one: %v", row.name, now.Key().N.BitLen(), same)
		}
		kept, err := os.ReadFile(filepath.Join(dir, "own", "certificate-"+before.Thumbprint().String()[:8]+".der"))
		if err != nil || !bytes.Equal(kept, before.DER()) {
			t.Errorf("%s: the old certificate was not kept: %v", row.name, err)
		}
	}
}

// TestRenewedWhileItRuns: a renewed certificate, with or without another key, is taken within seconds; files that do not
// fit together are not, and say why once.
func TestRenewedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		write := func(name string, data []byte) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, pki.OwnFolder, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, pki.OwnFolder), 0o700); err != nil {
			t.Fatal(err)
		}
		keyOf := func(bits, number int) []byte {
			return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(uatest.Key(t, bits, number))})
		}
		write("key.pem", keyOf(2048, 0))
		var log lockedLog
		k, err := pki.Keep(dir, identity, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		first := k.Own()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { k.Watch(ctx); close(ended) }()
		log.take()
		settle := func() string { time.Sleep(10 * time.Second); synctest.Wait(); return log.take() }
		if text := settle(); text != "" || k.Own() != first {
			t.Errorf("nothing has changed: %s", text)
		}
		renewed, err := pki.Renew(dir, identity, 0)
		if err != nil {
			t.Fatal(err)
		}
		if text := settle(); k.Own().Thumbprint() != renewed.Thumbprint() || !strings.Contains(text, "was changed: new channels") {
			t.Errorf("C9 renewed: %v, log %s", k.Own().Thumbprint(), text)
		}
		write("key.pem", keyOf(2048, 1))
		if text := settle(); k.Own().Thumbprint() != renewed.Thumbprint() || strings.Count(text, "is not taken") != 1 {
			t.Errorf("a key that does not fit: %v, log %s", k.Own().Thumbprint(), text)
		}
		if text := settle(); text != "" {
			t.Errorf("told again: %s", text)
		}
		other := uatest.NewIdentity(t, uatest.Key(t, 2048, 1), nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(20 * day) })
		write("certificate.der", other.DER)
		if text := settle(); k.Own().Thumbprint() != pki.ThumbprintOf(other.DER) || !strings.Contains(text, "ends soon") {
			t.Errorf("replaced files: %v, log %s", k.Own().Thumbprint(), text)
		}
		cancel()
		<-ended
	})
}
