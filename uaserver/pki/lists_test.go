package pki_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

// revocationList is what an authority signs: the certificates that it revokes, until end.
func revocationList(t *testing.T, issuer *uatest.Identity, end time.Time, change func(*x509.RevocationList), revoked ...*uatest.Identity) []byte {
	t.Helper()
	l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: end}
	for _, r := range revoked {
		l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: r.Cert.SerialNumber, RevocationTime: time.Now().Add(-time.Minute)})
	}
	if change != nil {
		change(l)
	}
	der, err := x509.CreateRevocationList(rand.Reader, l, issuer.Cert, issuer.Key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// check is the code that a fresh Folder of dir answers for a chain.
func check(t *testing.T, f *pki.Folder, chain ...*uatest.Identity) (ua.StatusCode, ua.StatusCode) {
	t.Helper()
	var certs []*x509.Certificate
	for _, id := range chain {
		certs = append(certs, id.Cert)
	}
	err := f.Check(certs, pki.Strong, time.Now())
	var e *pki.Error
	if errors.As(err, &e) {
		return e.Code, e.PeerCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, 0
}

// TestRevocation is the end of Part 4, 6.1.3: issuers that are not trusted, and revocation lists.
func TestRevocation(t *testing.T) {
	key := uatest.Key(t, 2048, 1)
	root := authority(t, "root", 0, nil)
	between := authority(t, "between", 2, root)
	other := authority(t, "root", 2, nil) // another key behind the same name
	oneBelow := uatest.NewIdentity(t, uatest.Key(t, 2048, 0), nil, func(c *x509.Certificate) {
		c.Subject, c.IsCA, c.MaxPathLenZero = pkix.Name{CommonName: "short"}, true, true
		c.KeyUsage = x509.KeyUsageCertSign
	})
	underShort := authority(t, "under short", 2, oneBelow)
	old := uatest.NewIdentity(t, uatest.Key(t, 2048, 0), nil, func(c *x509.Certificate) {
		c.Subject, c.IsCA, c.NotAfter = pkix.Name{CommonName: "old root"}, true, time.Now().Add(-time.Minute)
		c.KeyUsage = x509.KeyUsageCertSign
	})
	me := uatest.NewIdentity(t, key, root, nil)
	deep := uatest.NewIdentity(t, key, between, nil)
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	crl := func(issuer *uatest.Identity, end time.Time, revoked ...*uatest.Identity) []byte {
		return revocationList(t, issuer, end, nil, revoked...)
	}
	delta := revocationList(t, root, soon, func(l *x509.RevocationList) {
		l.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}}}
	}, me)
	deltaOfNone := revocationList(t, root, soon, func(l *x509.RevocationList) {
		l.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}}}
	})
	tomorrow := revocationList(t, root, time.Now().Add(48*time.Hour), func(l *x509.RevocationList) { l.ThisUpdate = time.Now().Add(24 * time.Hour) })
	type files map[string][]byte
	for _, row := range []struct {
		name  string
		files files
		chain []*uatest.Identity
		code  ua.StatusCode
		peer  ua.StatusCode
	}{
		{"trusted by itself, issuer unknown", files{"trusted/me": me.DER}, []*uatest.Identity{me}, 0, 0},
		{"trusted by itself, issuer at hand", files{"trusted/me": me.DER, "issuers/root": root.DER}, []*uatest.Identity{me}, 0, 0},
		{"an issuer that is not trusted trusts nobody", files{"issuers/root": root.DER}, []*uatest.Identity{me}, ua.StatusBadCertificateUntrusted, ua.StatusBadSecurityChecksFailed},
		{"an issuer that is not trusted completes a chain", files{"trusted/root": root.DER, "issuers/between": between.DER}, []*uatest.Identity{deep}, 0, 0},
		{"a trusted authority, its root an issuer", files{"trusted/between": between.DER, "issuers/root": root.DER}, []*uatest.Identity{deep}, 0, 0},
		{"nobody knows the issuer", files{}, []*uatest.Identity{me}, ua.StatusBadCertificateChainIncomplete, ua.StatusBadSecurityChecksFailed},
		{"list without me", files{"trusted/root": root.DER, "trusted/root.crl": crl(root, soon, deep)}, []*uatest.Identity{me}, 0, 0},
		{"list among the issuers", files{"trusted/root": root.DER, "issuers/root.crl": crl(root, soon, me)}, []*uatest.Identity{me}, ua.StatusBadCertificateRevoked, ua.StatusBadCertificateRevoked},
		{"list as PEM", files{"trusted/root": root.DER, "issuers/root.pem": pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: crl(root, soon, me)})}, []*uatest.Identity{me}, ua.StatusBadCertificateRevoked, ua.StatusBadCertificateRevoked},
		{"revoked, though trusted by itself", files{"trusted/me": me.DER, "issuers/root": root.DER, "issuers/crl": crl(root, soon, me)}, []*uatest.Identity{me}, ua.StatusBadCertificateRevoked, ua.StatusBadCertificateRevoked},
		{"issuer revoked", files{"trusted/root": root.DER, "issuers/crl": crl(root, soon, between)}, []*uatest.Identity{deep, between}, ua.StatusBadCertificateIssuerRevoked, ua.StatusBadCertificateIssuerRevoked},
		{"list of an issuer that the client sent", files{"trusted/root": root.DER, "issuers/crl": crl(between, soon, deep)}, []*uatest.Identity{deep, between}, ua.StatusBadCertificateRevoked, ua.StatusBadCertificateRevoked},
		{"no list: let pass", files{"trusted/root": root.DER}, []*uatest.Identity{me}, 0, 0},
		{"list has ended", files{"trusted/root": root.DER, "issuers/crl": crl(root, past)}, []*uatest.Identity{me}, ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateRevocationUnknown},
		{"list has ended, and revokes all the same", files{"trusted/root": root.DER, "issuers/crl": crl(root, past, me)}, []*uatest.Identity{me}, ua.StatusBadCertificateRevoked, ua.StatusBadCertificateRevoked},
		{"list has ended, another is current", files{"trusted/root": root.DER, "issuers/1": crl(root, past), "issuers/2": crl(root, soon)}, []*uatest.Identity{me}, 0, 0},
		{"list begins tomorrow", files{"trusted/root": root.DER, "issuers/crl": tomorrow}, []*uatest.Identity{me}, ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateRevocationUnknown},
		{"list of the issuer's issuer has ended", files{"trusted/root": root.DER, "issuers/crl": crl(root, past)}, []*uatest.Identity{deep, between}, ua.StatusBadCertificateIssuerRevocationUnknown, ua.StatusBadCertificateIssuerRevocationUnknown},
		{"list signed by another", files{"trusted/root": root.DER, "issuers/crl": crl(other, soon, me)}, []*uatest.Identity{me}, ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateRevocationUnknown},
		{"list signed by another beside the right one", files{"trusted/root": root.DER, "issuers/1": crl(other, soon, me), "issuers/2": crl(root, soon)}, []*uatest.Identity{me}, 0, 0},
		{"partial list revokes", files{"trusted/root": root.DER, "issuers/crl": delta}, []*uatest.Identity{me}, ua.StatusBadCertificateRevoked, ua.StatusBadCertificateRevoked},
		{"partial list clears nobody", files{"trusted/root": root.DER, "issuers/crl": deltaOfNone}, []*uatest.Identity{me}, ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateRevocationUnknown},
		{"issuer expired", files{"trusted/old": old.DER}, []*uatest.Identity{uatest.NewIdentity(t, key, old, nil)}, ua.StatusBadCertificateIssuerTimeInvalid, ua.StatusBadCertificateIssuerTimeInvalid},
		{"RFC 5280, 4.2.1.9 an authority too many", files{"trusted/short": oneBelow.DER}, []*uatest.Identity{uatest.NewIdentity(t, key, underShort, nil), underShort}, ua.StatusBadCertificateIssuerUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed},
	} {
		dir := t.TempDir()
		for name, data := range row.files {
			place(t, dir, name, data)
		}
		f, err := pki.OpenFolder(dir, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if code, peer := check(t, f, row.chain...); code != row.code || peer != row.peer {
			t.Errorf("6.1.3 %s: %v, and the peer is told %v", row.name, code, peer)
		}
	}
}

// TestRevocationListAtRunTime is C9: a list that is put in, and one that is written over in its place.
func TestRevocationListAtRunTime(t *testing.T) {
	root := authority(t, "root", 0, nil)
	me := uatest.NewIdentity(t, uatest.Key(t, 2048, 1), root, nil)
	dir, log := t.TempDir(), new(bytes.Buffer)
	f, err := pki.OpenFolder(dir, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	place(t, dir, "trusted/root.der", root.DER)
	for range 3 {
		if code, _ := check(t, f, me); code != 0 {
			t.Errorf("no list: %v", code)
		}
	}
	if n := strings.Count(log.String(), "has no revocation list"); n != 1 {
		t.Errorf("told %d times that there is no list", n)
	}
	// A look that took long, as on a loaded machine, puts off the next.
	becomes := func(what string, want ua.StatusCode, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			code, _ := check(t, f, me)
			if code == want && (ok == nil || ok()) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %v, log %s", what, code, log)
			}
		}
	}
	told := func(what string) func() bool { return func() bool { return strings.Contains(log.String(), what) } }
	soon := time.Now().Add(time.Hour)
	path := place(t, dir, "issuers/root.crl", revocationList(t, root, time.Now().Add(-time.Minute), nil))
	becomes("a list that has ended", ua.StatusBadCertificateRevocationUnknown, told("root.crl ended at"))
	place(t, dir, "issuers/root.crl", revocationList(t, root, soon, nil))
	becomes("a list without me", 0, nil)
	place(t, dir, "issuers/root.crl", revocationList(t, root, soon, nil, me))
	becomes("a list with me", ua.StatusBadCertificateRevoked, nil)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	becomes("the list taken away", 0, nil)
	place(t, dir, "issuers/junk.crl", []byte("junk"))
	place(t, dir, "issuers/large.crl", make([]byte, 5<<20))
	becomes("a file that is none", 0, told("junk.crl"))
	becomes("a file that is too large", 0, told("large.crl"))
	for range 2 {
		if code, _ := check(t, f, me); code != 0 {
			t.Errorf("files that are none: %v", code)
		}
	}
	for _, name := range []string{"junk.crl", "large.crl"} {
		if n := strings.Count(log.String(), name); n != 1 {
			t.Errorf("%s was told %d times: %s", name, n, log)
		}
	}
}

// TestManyTrusted is a change among many certificates: one file is read, not all of them.
func TestManyTrusted(t *testing.T) {
	dir := t.TempDir()
	f, err := pki.OpenFolder(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	root := authority(t, "root", 0, nil)
	place(t, dir, "trusted/root.der", root.DER)
	me := uatest.NewIdentity(t, uatest.Key(t, 2048, 1), root, nil)
	past := time.Now().Add(-time.Minute)
	for i := range 2000 {
		path := place(t, dir, fmt.Sprintf("trusted/%d.der", i), me.DER)
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(dir, "trusted"), past, past); err != nil {
		t.Fatal(err)
	}
	check(t, f, me)
	// A folder that has not changed costs two looks at it.
	if n := testing.AllocsPerRun(20, func() { check(t, f, me) }); n > 200 {
		t.Errorf("%.0f allocations a check", n)
	}
}
