package uaserver

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

// trusting is a server that trusts what lies in the folders of dir.
func trusting(t *testing.T, change ...func(*Config)) (f *fixture, dir string) {
	t.Helper()
	dir = t.TempDir()
	trust, err := pki.OpenFolder(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return start(t, func(c *Config) {
		c.Trust = trust
		for _, ch := range change {
			ch(c)
		}
	}), dir
}

func put(t *testing.T, dir, folder, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, folder, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// enter opens a secured channel and makes a session, and returns the first code that is not good.
func (f *fixture) enter(t *testing.T, id *uatest.Identity, change func(*uatest.Options), request func(*ua.CreateSessionRequest)) (*peer, ua.StatusCode) {
	t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { conn.Close() })
	o := uatest.Options{URL: "opc.tcp://" + f.addr}
	f.secured(t)(&o)
	o.Identity = id
	if change != nil {
		change(&o)
	}
	c, err := uatest.Connect(conn, o)
	var told *uatest.Error
	if errors.As(err, &told) {
		return nil, told.Code
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{Client: c, t: t, token: ua.NewTwoByteNodeID(0)}
	req := createRequest()
	req.ClientCertificate = id.DER
	if request != nil {
		request(req)
	}
	resp, code := p.call(req)
	if r, ok := resp.(*ua.CreateSessionResponse); ok && code == ua.StatusGood {
		p.token, p.nonce = r.AuthenticationToken, r.ServerNonce
		code = p.signed(t, id, f.own.DER(), r.ServerNonce)
	}
	return p, code
}

// TestEachCertificateHasItsCode is Part 4, 6.1.3 as a client sees it.
func TestEachCertificateHasItsCode(t *testing.T) {
	var log lines
	f, dir := trusting(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	key := uatest.Key(t, 2048, 1)
	root := uatest.NewIdentity(t, uatest.Key(t, 2048, 2), nil, func(c *x509.Certificate) {
		c.Subject, c.IsCA = pkix.Name{CommonName: "root"}, true
		c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	})
	issued, revoked := uatest.NewIdentity(t, key, root, nil), uatest.NewIdentity(t, key, root, nil)
	good := uatest.ClientIdentity(t)
	expired := uatest.NewIdentity(t, key, nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })
	early := uatest.NewIdentity(t, key, nil, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
	use := uatest.NewIdentity(t, key, nil, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign })
	stolen := &uatest.Identity{DER: good.DER, Cert: good.Cert, Key: uatest.Key(t, 2048, 0)}
	for name, id := range map[string]*uatest.Identity{"good": good, "expired": expired, "early": early, "use": use, "root": root} {
		put(t, dir, "trusted", name, id.DER)
	}
	list, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: revoked.Cert.SerialNumber, RevocationTime: time.Now()}},
	}, root.Cert, root.Key)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "issuers", "root.crl", list)
	for _, row := range []struct {
		name    string
		id      *uatest.Identity
		request func(*ua.CreateSessionRequest)
		want    ua.StatusCode
	}{
		{"trusted", good, nil, ua.StatusGood},
		{"issuer trusted", issued, nil, ua.StatusGood},
		{"untrusted", uatest.ClientIdentity(t), nil, ua.StatusBadSecurityChecksFailed},
		{"expired", expired, nil, ua.StatusBadCertificateTimeInvalid},
		{"C10 not valid yet", early, nil, ua.StatusBadCertificateTimeInvalid},
		{"revoked", revoked, nil, ua.StatusBadCertificateRevoked},
		{"usage", use, nil, ua.StatusBadCertificateUseNotAllowed},
		{"wrong key", stolen, nil, ua.StatusBadSecurityChecksFailed},
		{"wrong URI", good, func(r *ua.CreateSessionRequest) { r.ClientDescription.ApplicationURI = "urn:other" }, ua.StatusBadCertificateURIInvalid},
		{"another certificate in the session", good, func(r *ua.CreateSessionRequest) { r.ClientCertificate = issued.DER }, ua.StatusBadSecurityChecksFailed},
	} {
		if _, code := f.enter(t, row.id, nil, row.request); code != row.want {
			t.Errorf("6.1.3 %s: %v, want %v", row.name, code, row.want)
		}
	}
	// What a peer may not know, who reads the log has to (Part 6, 6.7.7).
	told := log.with("connection refused or broken off")
	for _, cause := range []string{"not trusted", "signature", "expired", "revoked", "use"} {
		if !slices.ContainsFunc(told, func(line string) bool { return strings.Contains(line, cause) }) {
			t.Errorf("the log does not tell of %q: %q", cause, told)
		}
	}
}

// TestTrustWithoutRestart is C9: refused, trusted, let in, while another goes on.
func TestTrustWithoutRestart(t *testing.T) {
	f, dir := trusting(t)
	other, me := uatest.NewIdentity(t, uatest.Key(t, 2048, 2), nil, nil), uatest.ClientIdentity(t)
	put(t, dir, "trusted", "other", other.DER)
	p, code := f.enter(t, other, nil, nil)
	if code != ua.StatusGood {
		t.Fatal(code)
	}
	for _, row := range []struct {
		name     string
		from, to string
		want     ua.StatusCode
	}{
		{"C9 refused", "", "", ua.StatusBadSecurityChecksFailed},
		{"C9 trusted", pki.RejectedFolder, pki.TrustedFolder, ua.StatusGood},
		{"C9 rejected", pki.TrustedFolder, pki.RejectedFolder, ua.StatusBadSecurityChecksFailed},
	} {
		if row.from != "" {
			if e, err := pki.Move(dir, pki.ThumbprintOf(me.DER).String()[:8], row.from, row.to); err != nil || !bytes.Equal(e.Cert.Raw, me.DER) {
				t.Fatal(err)
			}
		}
		if _, code := f.enter(t, me, nil, nil); code != row.want {
			t.Errorf("%s: %v, want %v", row.name, code, row.want)
		}
		if r := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(ua.NewNumericNodeID(0, 2259))}}); r[0].Status != ua.StatusOK {
			t.Errorf("%s: another client reads %v", row.name, r[0].Status)
		}
	}
}

// TestTrustThatEnds: a client whose certificate is rejected or revoked while it is connected loses channel and session soon,
// and is told why; others go on.
func TestTrustThatEnds(t *testing.T) {
	f, dir := trusting(t)
	root := uatest.NewIdentity(t, uatest.Key(t, 2048, 2), nil, func(c *x509.Certificate) {
		c.Subject, c.IsCA = pkix.Name{CommonName: "root"}, true
		c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	})
	between := uatest.NewIdentity(t, uatest.Key(t, 2048, 0), root, func(c *x509.Certificate) {
		c.Subject, c.IsCA = pkix.Name{CommonName: "between"}, true
		c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	})
	alone, issued := uatest.ClientIdentity(t), uatest.NewIdentity(t, uatest.Key(t, 2048, 1), root, nil)
	deep := uatest.NewIdentity(t, uatest.Key(t, 2048, 1), between, nil)
	chained := *deep // sends its issuer, which no folder has
	chained.DER = append(bytes.Clone(deep.DER), between.DER...)
	for name, id := range map[string]*uatest.Identity{"root": root, "alone": alone} {
		put(t, dir, "trusted", name, id.DER)
	}
	enter := func(id *uatest.Identity) *peer {
		t.Helper()
		p, code := f.enter(t, id, nil, nil)
		if code != ua.StatusGood {
			t.Fatal(code)
		}
		return p
	}
	one, two, three := enter(alone), enter(issued), enter(&chained)
	told := func(p *peer) ua.StatusCode { // in a Publish that waits, or at the end of the connection
		var e *uatest.Error
		if _, err := p.Receive(); errors.As(err, &e) {
			return e.Code
		} else if err != nil {
			t.Error(err)
		}
		return ua.StatusGood
	}
	if _, err := pki.Move(dir, pki.ThumbprintOf(alone.DER).String(), pki.TrustedFolder, pki.RejectedFolder); err != nil {
		t.Fatal(err)
	}
	if code := told(one); code != ua.StatusBadSecurityChecksFailed {
		t.Errorf("C9 rejected: %v", code)
	}
	list, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: issued.Cert.SerialNumber, RevocationTime: time.Now()}},
	}, root.Cert, root.Key)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "issuers", "root.crl", list)
	if code := told(two); code != ua.StatusBadCertificateRevoked {
		t.Errorf("6.1.3 revoked: %v", code)
	}
	for end := time.Now().Add(20 * time.Second); f.Stats().Sessions.Current != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d sessions, want one", f.Stats().Sessions.Current)
		}
	}
	if r := three.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(ua.NewNumericNodeID(0, 2259))}}); r[0].Status != ua.StatusOK {
		t.Errorf("another client reads %v", r[0].Status)
	}
}

// TestURLsThatNobodyConfigured is C8: whatever a client calls the server, it gets in, and is told the name that it used.
func TestURLsThatNobodyConfigured(t *testing.T) {
	f, dir := trusting(t)
	me := uatest.ClientIdentity(t)
	put(t, dir, "trusted", "me", me.DER)
	for _, row := range []struct{ name, url, want string }{
		{"the address", "opc.tcp://" + f.addr, "opc.tcp://" + f.addr},
		{"a trailing slash", "opc.tcp://" + f.addr + "/", "opc.tcp://" + f.addr},
		{"the discovery URL", "opc.tcp://" + f.addr + "/discovery", "opc.tcp://" + f.addr},
		{"case", "OPC.TCP://GATEWAY:4840", "opc.tcp://GATEWAY:4840"},
		{"an alias that nobody knows", "opc.tcp://plant-7.example:14840/UA/Server/", "opc.tcp://plant-7.example:14840"},
		{"an address behind a translation", "opc.tcp://203.0.113.7:4841", "opc.tcp://203.0.113.7:4841"},
	} {
		p, code := f.enter(t, me, func(o *uatest.Options) { o.URL = row.url }, func(r *ua.CreateSessionRequest) { r.EndpointURL = row.url })
		if code != ua.StatusGood {
			t.Errorf("C8 %s: %v", row.name, code)
			continue
		}
		r := must[*ua.GetEndpointsResponse](p, &ua.GetEndpointsRequest{EndpointURL: row.url})
		s := must[*ua.FindServersResponse](p, &ua.FindServersRequest{EndpointURL: row.url})
		if r.Endpoints[0].EndpointURL != row.want || s.Servers[0].DiscoveryURLs[0] != row.want {
			t.Errorf("C8 %s: %s and %s, want %s", row.name, r.Endpoints[0].EndpointURL, s.Servers[0].DiscoveryURLs[0], row.want)
		}
	}
}

// TestOneApplicationURI is C8: certificate, endpoint, server and namespace say the same.
func TestOneApplicationURI(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	r := must[*ua.GetEndpointsResponse](p, &ua.GetEndpointsRequest{})
	cert, err := x509.ParseCertificate(r.Endpoints[0].ServerCertificate)
	if err != nil {
		t.Fatal(err)
	}
	v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(ua.NewNumericNodeID(0, 2254)), value(ua.NewNumericNodeID(0, 2255))}})
	servers, namespaces := v[0].Value.Value().([]string), v[1].Value.Value().([]string)
	for where, uri := range map[string]string{
		"certificate": pki.URI(cert), "description": r.Endpoints[0].Server.ApplicationURI, "ServerArray": servers[0], "NamespaceArray": namespaces[1],
	} {
		if uri != appURI {
			t.Errorf("C8 %s: %s, want %s", where, uri, appURI)
		}
	}
}
