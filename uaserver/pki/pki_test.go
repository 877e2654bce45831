package pki_test

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"go.uber.org/goleak"

	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

var identity = pki.Identity{ApplicationURI: "urn:edged:boiler-house", Name: "Boiler house", Hosts: []string{"boiler", "10.0.0.7", "fd00::7"}}

func open(t *testing.T, dir string, id pki.Identity) (*pki.Own, string) {
	t.Helper()
	var log bytes.Buffer
	own, err := pki.Open(dir, id, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return own, log.String()
}

func TestOwnCertificateIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	own, log := open(t, dir, identity)
	if !strings.Contains(log, own.Thumbprint().String()) {
		t.Errorf("log does not name the new certificate: %s", log)
	}
	c := own.Certificate()
	now := time.Now()
	switch {
	case pki.URI(c) != identity.ApplicationURI || c.Subject.CommonName != identity.Name:
		t.Errorf("URI %s, name %s", pki.URI(c), c.Subject.CommonName)
	case !slices.Equal(c.DNSNames, []string{"boiler"}) || len(c.IPAddresses) != 2 || !c.IPAddresses[0].Equal(net.ParseIP("10.0.0.7")):
		t.Errorf("C8 names %v, addresses %v", c.DNSNames, c.IPAddresses)
	case c.NotBefore.After(now.Add(-23*time.Hour)) || c.NotAfter.Before(now.AddDate(9, 11, 0)):
		t.Errorf("C10 valid from %v to %v", c.NotBefore, c.NotAfter)
	case own.Key().N.BitLen() != 2048 || c.SignatureAlgorithm != x509.SHA256WithRSA:
		t.Errorf("%d bits, %v", own.Key().N.BitLen(), c.SignatureAlgorithm)
	}
	if err := c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(dir, "own", "key.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", info.Mode(), err)
	}
	again, log := open(t, dir, identity)
	if !bytes.Equal(again.DER(), own.DER()) || !again.Key().Equal(own.Key()) || log != "" {
		t.Errorf("another certificate at the second start, or a word about it: %s", log)
	}
}

func TestOwnCertificateIsKeptWhenItNoLongerFits(t *testing.T) {
	dir := t.TempDir()
	own, _ := open(t, dir, identity)
	for _, row := range []struct {
		name string
		id   pki.Identity
		warn string // "": none
	}{
		{"C8 the same", identity, ""},
		{"C8 case of host names", pki.Identity{ApplicationURI: identity.ApplicationURI, Hosts: []string{"BOILER"}}, ""},
		{"C8 host renamed", pki.Identity{ApplicationURI: identity.ApplicationURI, Hosts: []string{"kettle"}}, "kettle"},
		{"C8 another address", pki.Identity{ApplicationURI: identity.ApplicationURI, Hosts: []string{"10.0.0.8"}}, "10.0.0.8"},
		{"C8 another URI", pki.Identity{ApplicationURI: "urn:edged:other"}, "urn:edged:other"},
	} {
		now, log := open(t, dir, row.id)
		if !bytes.Equal(now.DER(), own.DER()) {
			t.Errorf("%s: certificate was made anew", row.name)
		}
		if (log != "") != (row.warn != "") || !strings.Contains(log, row.warn) {
			t.Errorf("%s: log %q", row.name, log)
		}
	}
}

func TestOwnCertificateInTime(t *testing.T) {
	key := uatest.Key(t, 2048, 0)
	early := uatest.NewIdentity(t, key, nil, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
	dir := t.TempDir()
	place(t, dir, "own/certificate.der", early.DER)
	place(t, dir, "own/key.pem", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	if _, log := open(t, dir, pki.Identity{ApplicationURI: "urn:test:client"}); !strings.Contains(log, "check the clock") {
		t.Errorf("C10 not valid yet: log %q", log)
	}
	der, err := pki.Make(key, identity, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if c.NotAfter.Before(time.Now().AddDate(1, 0, 0)) {
		t.Errorf("C10 made in 1970: ends %v", c.NotAfter)
	}
	if c.NotBefore.After(time.Unix(0, 0)) || c.NotBefore.Unix() < 0 {
		t.Errorf("C10 made in 1970: begins %v", c.NotBefore)
	}
}

// place writes a file under dir.
func place(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOwnFilesDamaged(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, identity)
	cert, err := os.ReadFile(filepath.Join(dir, "own/certificate.der"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, "own/key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	small := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(uatest.Key(t, 1024, 0))})
	other := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(uatest.Key(t, 2048, 0))})
	for _, row := range []struct {
		name      string
		cert, key []byte // nil: no file
		want      string // in the error; "": none
	}{
		{"start cut short between key and certificate", nil, key, ""},
		{"certificate as PEM", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), key, ""},
		{"key lost", cert, nil, "has no key"},
		{"key empty", cert, []byte{}, "no PEM block"},
		{"key is a certificate", cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), "key.pem"},
		{"key too small", cert, small, "1024 bits"},
		{"key of another certificate", cert, other, "does not belong"},
		{"certificate cut", cert[:100], key, "certificate.der"},
	} {
		dir := t.TempDir()
		if row.cert != nil {
			place(t, dir, "own/certificate.der", row.cert)
		}
		if row.key != nil {
			place(t, dir, "own/key.pem", row.key)
		}
		_, err := pki.Open(dir, identity, quiet)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
		entries, err := os.ReadDir(filepath.Join(dir, "own"))
		if err != nil || len(entries) > 2 {
			t.Errorf("%s: %v left behind, %v", row.name, entries, err)
		}
	}
	if _, err := pki.Open(t.TempDir(), pki.Identity{}, quiet); err == nil {
		t.Error("no application URI was taken")
	}
	blocked := place(t, t.TempDir(), "file", nil)
	if _, err := pki.Open(blocked, identity, quiet); err == nil || !strings.Contains(err.Error(), "own certificate") {
		t.Errorf("a file in place of the folder: %v", err)
	}
}

func TestParse(t *testing.T) {
	me := uatest.ClientIdentity(t)
	other := uatest.NewIdentity(t, uatest.Key(t, 2048, 2), nil, nil)
	three := uatest.NewIdentity(t, uatest.Key(t, 3072, 0), nil, nil)
	small := uatest.NewIdentity(t, uatest.Key(t, 1024, 0), nil, nil)
	join := func(b ...[]byte) []byte { return bytes.Join(b, nil) }
	for _, row := range []struct {
		name string
		b    []byte
		n    int
		code ua.StatusCode
	}{
		{"6.2.2 one", me.DER, 1, 0},
		{"6.2.6 a chain", join(me.DER, other.DER), 2, 0},
		{"6.7.2.3 extra bytes", join(me.DER, []byte{1, 2, 3}), 1, 0},
		{"6.2.6 a chain without end", bytes.Repeat(me.DER, 12), 8, 0},
		{"Part 7 3072 bits", three.DER, 1, 0},
		{"Part 7 1024 bits", small.DER, 1, 0},
		{"none", nil, 0, ua.StatusBadCertificateInvalid},
		{"cut", me.DER[:len(me.DER)-1], 0, ua.StatusBadCertificateInvalid},
		{"garbage", bytes.Repeat([]byte{0x30}, 500), 0, ua.StatusBadCertificateInvalid},
		{"too large", make([]byte, 20_000), 0, ua.StatusBadCertificateInvalid},
	} {
		chain, err := pki.Parse(row.b)
		if len(chain) != row.n || code(t, err) != row.code {
			t.Errorf("%s: %d certificates, %v", row.name, len(chain), err)
		}
	}
	b := bytes.Clone(me.DER)
	chain, err := pki.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if !bytes.Equal(chain[0].Raw, me.DER) {
		t.Error("what was parsed changes with the buffer")
	}
}

func code(t *testing.T, err error) ua.StatusCode {
	t.Helper()
	if err == nil {
		return 0
	}
	var e *pki.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T: %v", err, err)
	}
	if e.Text == "" || e.Error() != e.Text {
		t.Errorf("%v has no text", e.Code)
	}
	return e.Code
}

// authority is a certificate that may issue others.
func authority(t *testing.T, name string, number int, issuer *uatest.Identity) *uatest.Identity {
	t.Helper()
	return uatest.NewIdentity(t, uatest.Key(t, 2048, number), issuer, func(c *x509.Certificate) {
		c.Subject, c.IsCA = pkix.Name{CommonName: name}, true
		c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	})
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	f, err := pki.OpenFolder(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	key := uatest.Key(t, 2048, 1)
	client := func(issuer *uatest.Identity, change func(*x509.Certificate)) *uatest.Identity {
		return uatest.NewIdentity(t, key, issuer, change)
	}
	root := authority(t, "root", 0, nil)
	between := authority(t, "between", 2, root)
	foreign := authority(t, "foreign", 2, nil)
	me, pemMe := client(nil, nil), client(nil, nil)
	issued := client(root, nil)
	deep := client(between, nil)
	expired := client(nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })
	early := client(root, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
	use := client(nil, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign })
	forged := *me
	cert := *me.Cert
	cert.Signature = bytes.Clone(cert.Signature)
	cert.Signature[9]++
	cert.Raw = append(bytes.Clone(cert.Raw), 0)
	forged.Cert = &cert
	for i, id := range []*uatest.Identity{me, expired, use, root} {
		place(t, dir, fmt.Sprintf("trusted/%d.der", i), id.DER)
	}
	place(t, dir, "trusted/x.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pemMe.DER}))
	place(t, dir, "trusted/readme.txt", []byte("hello"))
	for _, row := range []struct {
		name  string
		chain []*uatest.Identity
		code  ua.StatusCode
		peer  ua.StatusCode
	}{
		{"6.1.3 in the folder as DER", []*uatest.Identity{me}, 0, 0},
		{"6.1.3 in the folder as PEM", []*uatest.Identity{pemMe}, 0, 0},
		{"6.1.3 issuer in the folder", []*uatest.Identity{issued}, 0, 0},
		{"6.1.3 issuer in the folder and sent", []*uatest.Identity{issued, root}, 0, 0},
		{"6.1.3 issuer's issuer in the folder", []*uatest.Identity{deep, between}, 0, 0},
		{"6.1.3 issuer's issuer in the folder, nothing between", []*uatest.Identity{deep}, ua.StatusBadCertificateChainIncomplete, ua.StatusBadSecurityChecksFailed},
		{"6.1.3 not in the folder", []*uatest.Identity{client(nil, nil)}, ua.StatusBadCertificateUntrusted, ua.StatusBadSecurityChecksFailed},
		{"6.1.3 issuer not in the folder", []*uatest.Identity{client(foreign, nil), foreign}, ua.StatusBadCertificateUntrusted, ua.StatusBadSecurityChecksFailed},
		{"6.1.3 issuer unknown", []*uatest.Identity{client(foreign, nil)}, ua.StatusBadCertificateChainIncomplete, ua.StatusBadSecurityChecksFailed},
		{"6.1.3 issuer is no authority", []*uatest.Identity{client(me, nil), me}, ua.StatusBadCertificateIssuerUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed},
		{"6.1.3 issuer's name alone", []*uatest.Identity{client(nil, func(c *x509.Certificate) { c.Subject = root.Cert.Subject }), root}, ua.StatusBadCertificateUntrusted, ua.StatusBadSecurityChecksFailed},
		{"6.1.3 issuer's name with another key", []*uatest.Identity{client(authority(t, "root", 2, nil), nil), root}, ua.StatusBadCertificateInvalid, ua.StatusBadSecurityChecksFailed},
		{"6.1.3 signature", []*uatest.Identity{&forged}, ua.StatusBadCertificateInvalid, ua.StatusBadSecurityChecksFailed},
		{"6.1.3 expired", []*uatest.Identity{expired}, ua.StatusBadCertificateTimeInvalid, ua.StatusBadCertificateTimeInvalid},
		{"6.1.3 not valid yet", []*uatest.Identity{early}, ua.StatusBadCertificateTimeInvalid, ua.StatusBadCertificateTimeInvalid},
		{"6.1.3 usage", []*uatest.Identity{use}, ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateUseNotAllowed},
	} {
		var chain []*x509.Certificate
		for _, id := range row.chain {
			chain = append(chain, id.Cert)
		}
		err := f.Check(chain, pki.Strong, time.Now())
		if got := code(t, err); got != row.code {
			t.Errorf("%s: %v", row.name, err)
		}
		var e *pki.Error
		if errors.As(err, &e) && e.PeerCode() != row.peer {
			t.Errorf("%s: peer is told %v", row.name, e.PeerCode())
		}
	}
}

// TestTrustAtRunTime is C9: connect untrusted, move the file, connect again, and back.
func TestTrustAtRunTime(t *testing.T) {
	dir := t.TempDir()
	f, err := pki.OpenFolder(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	me := uatest.ClientIdentity(t)
	check := func(want ua.StatusCode) {
		t.Helper()
		// A look that took long, as on a loaded machine, puts off the next.
		end := time.Now().Add(30 * time.Second)
		got := code(t, f.Check([]*x509.Certificate{me.Cert}, pki.Strong, time.Now()))
		for ; got != want && time.Now().Before(end); got = code(t, f.Check([]*x509.Certificate{me.Cert}, pki.Strong, time.Now())) {
			time.Sleep(5 * time.Millisecond)
		}
		if got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	check(ua.StatusBadCertificateUntrusted)
	name := pki.ThumbprintOf(me.DER).String() + ".der"
	rejected, trusted := filepath.Join(dir, "rejected", name), filepath.Join(dir, "trusted", name)
	for range 3 {
		if err := os.Rename(rejected, trusted); err != nil {
			t.Fatal(err)
		}
		check(0)
		check(0)
		if err := os.Rename(trusted, rejected); err != nil {
			t.Fatal(err)
		}
		check(ua.StatusBadCertificateUntrusted)
	}
	if err := os.RemoveAll(filepath.Join(dir, "trusted")); err != nil {
		t.Fatal(err)
	}
	check(ua.StatusBadCertificateUntrusted)
}

// TestRejectedAreBounded is C9: a thousand refused certificates leave 64 files.
func TestRejectedAreBounded(t *testing.T) {
	dir := t.TempDir()
	f, err := pki.OpenFolder(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	me := uatest.ClientIdentity(t)
	for i := range 1000 {
		c := *me.Cert
		c.Raw = append(bytes.Clone(c.Raw), byte(i), byte(i>>8))
		if got := code(t, f.Check([]*x509.Certificate{&c}, pki.Strong, time.Now())); got != ua.StatusBadCertificateUntrusted {
			t.Fatal(got)
		}
	}
	files, err := os.ReadDir(filepath.Join(dir, "rejected"))
	if err != nil || len(files) != 64 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

func TestTrustAll(t *testing.T) {
	var log bytes.Buffer
	trust := pki.TrustAll(slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "trust_all") {
		t.Errorf("no warning: %q", log.String())
	}
	me := uatest.ClientIdentity(t)
	if err := trust.Check([]*x509.Certificate{me.Cert}, pki.Strong, time.Now()); err != nil {
		t.Error(err)
	}
	if got := code(t, trust.Check([]*x509.Certificate{me.Cert}, pki.Strong, time.Now().AddDate(1, 0, 0))); got != ua.StatusBadCertificateTimeInvalid {
		t.Errorf("expired: %v", got)
	}
	weak := uatest.NewIdentity(t, uatest.Key(t, 1024, 0), nil, func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA1WithRSA })
	large := uatest.NewIdentity(t, uatest.Key(t, 3072, 0), nil, nil)
	for _, row := range []struct {
		name string
		cert *x509.Certificate
		need pki.Strength
		want ua.StatusCode
	}{
		{"SHA-1 and 1024 bits for policies of today", weak.Cert, pki.Strong, ua.StatusBadCertificatePolicyCheckFailed},
		{"SHA-1 and 1024 bits for deprecated ones", weak.Cert, pki.Deprecated, 0},
		{"3072 bits for policies of today", large.Cert, pki.Strong, 0},
		{"3072 bits for deprecated ones", large.Cert, pki.Deprecated, ua.StatusBadCertificatePolicyCheckFailed},
	} {
		if got := code(t, trust.Check([]*x509.Certificate{row.cert}, row.need, time.Now())); got != row.want {
			t.Errorf("Part 7 %s: %v", row.name, got)
		}
	}
	forged := *me.Cert
	forged.Signature = bytes.Repeat([]byte{1}, 256)
	if got := code(t, trust.Check([]*x509.Certificate{&forged}, pki.Strong, time.Now())); got != ua.StatusBadCertificateInvalid {
		t.Errorf("forged: %v", got)
	}
}

func TestHosts(t *testing.T) {
	hosts := pki.Hosts()
	if !slices.Contains(hosts, "localhost") || !slices.Contains(hosts, "127.0.0.1") {
		t.Errorf("%v", hosts)
	}
}

// FuzzParse is any bytes as a sender certificate.
func FuzzParse(f *testing.F) {
	me := uatest.ClientIdentity(f)
	f.Add(me.DER)
	f.Add(append(bytes.Clone(me.DER), me.DER...))
	f.Add(me.DER[:300])
	trust := pki.TrustAll(quiet)
	f.Fuzz(func(t *testing.T, b []byte) {
		chain, err := pki.Parse(b)
		if err != nil {
			if code(t, err) == 0 {
				t.Error("refused without a code")
			}
			return
		}
		if bits := chain[0].PublicKey.(interface{ Size() int }).Size() * 8; bits < pki.MinKeyBits || bits > pki.MaxKeyBits {
			t.Errorf("key of %d bits", bits)
		}
		if err := trust.Check(chain, pki.Strong, time.Now()); err != nil {
			code(t, err)
		}
	})
}
