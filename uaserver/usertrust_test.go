package uaserver

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/address"
	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

// TestUserTrust: certificates of users are trusted apart from those of clients: by name in the list of users, or because
// they, or their issuer, lie in the users' folders; there, revocation lists count for both.
func TestUserTrust(t *testing.T) {
	dir := t.TempDir()
	trust, err := pki.OpenUsers(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	users := plantUsers(t)
	users.byCommon = map[string]User{"dora": {Name: "dora", Rights: mayLook.With(address.Observer)}}
	f := guarded(t, func(c *Config) { c.Users, c.UserTrust = users, trust })
	named := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: name} }
	}
	key := uatest.Key(t, 2048, 0)
	root := uatest.NewIdentity(t, uatest.Key(t, 2048, 2), nil, func(c *x509.Certificate) {
		c.Subject, c.IsCA = pkix.Name{CommonName: "people"}, true
		c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	})
	dora, gone := uatest.NewIdentity(t, key, root, named("dora")), uatest.NewIdentity(t, key, root, named("dora"))
	eve, self := uatest.NewIdentity(t, key, root, named("eve")), uatest.NewIdentity(t, key, nil, named("dora"))
	late := uatest.NewIdentity(t, key, root, func(c *x509.Certificate) {
		named("dora")(c)
		c.NotAfter = time.Now().Add(-time.Minute)
	})
	logIn := func(id *uatest.Identity) (*peer, ua.StatusCode) {
		p := f.dial(t, f.secured(t))
		return p, f.signIn(p, func() any {
			return &ua.X509IdentityToken{PolicyID: certificatePolicy + "Basic256Sha256", CertificateData: id.DER}
		}, id)
	}
	if _, code := logIn(dora); code != ua.StatusBadIdentityTokenRejected {
		t.Errorf("nobody is trusted: %v", code)
	}
	put(t, dir, pki.OfUsers(pki.TrustedFolder), "people", root.DER)
	list := func(revoked ...*uatest.Identity) {
		t.Helper()
		r := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour)}
		for _, id := range revoked {
			r.RevokedCertificateEntries = append(r.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: id.Cert.SerialNumber, RevocationTime: time.Now()})
		}
		der, err := x509.CreateRevocationList(rand.Reader, r, root.Cert, root.Key)
		if err != nil {
			t.Fatal(err)
		}
		put(t, dir, pki.OfUsers(pki.IssuersFolder), "people.crl", der)
	}
	list(gone)
	for _, row := range []struct {
		name string
		id   *uatest.Identity
		want ua.StatusCode
	}{
		{"named in the list of users", carl(t), ua.StatusGood},
		{"of a trusted issuer, and a user's name", dora, ua.StatusGood},
		{"of a trusted issuer, and nobody's name", eve, ua.StatusBadIdentityTokenRejected},
		{"a user's name alone", self, ua.StatusBadIdentityTokenRejected},
		{"revoked", gone, ua.StatusBadIdentityTokenRejected},
		{"expired", late, ua.StatusBadIdentityTokenRejected},
	} {
		if _, code := logIn(row.id); code != row.want {
			t.Errorf("7.40.5 %s: %v, want %v", row.name, code, row.want)
		}
	}
	kept, err := pki.Entries(dir)
	if err != nil {
		t.Fatal(err)
	}
	rejected := 0
	for _, e := range kept {
		if e.Folder == pki.OfUsers(pki.RejectedFolder) {
			rejected++
		}
	}
	if rejected != 2 { // dora's before her issuer was trusted, and the one that names her alone
		t.Errorf("%d rejected certificates of users are kept, want 2", rejected)
	}
	p, code := logIn(dora)
	if code != ua.StatusGood {
		t.Fatal(code)
	}
	other, code := logIn(carl(t))
	if code != ua.StatusGood {
		t.Fatal(code)
	}
	list(gone, dora)
	read := &ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, code := p.call(read); code == ua.StatusBadSessionIDInvalid {
			break
		} else if time.Now().After(end) {
			t.Fatalf("her certificate was revoked, and her session goes on: %v", code)
		}
	}
	if _, code := other.call(read); code != ua.StatusGood {
		t.Errorf("another user's session: %v", code)
	}
}
