package uaserver

import (
	"crypto/rsa"
	"crypto/x509"
	"math"
	"net/url"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"

	"edged/uaserver/uatest"
)

func TestCreateSession(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Sessions = 2 })
	p := f.dial(t, nil)
	r := p.create()
	if r.RevisedSessionTimeout != 60000 || len(r.ServerNonce) != 32 || r.MaxRequestMessageSize != 16<<20 ||
		r.SessionID.Namespace() != 1 || len(r.AuthenticationToken.StringID()) < 40 {
		t.Errorf("5.6.2: %+v", r)
	}
	if len(r.ServerEndpoints) != 3 || r.ServerEndpoints[0].EndpointURL != "opc.tcp://somewhere:1234" {
		t.Errorf("endpoints: %+v", r.ServerEndpoints)
	}
	must[*ua.ActivateSessionResponse](p, activateRequest(anonymous()))
	f.login(t)
	if _, code := p.call(createRequest()); code != ua.StatusBadTooManySessions {
		t.Errorf("a third session: %v", code)
	}
}

func TestActivateIdentity(t *testing.T) {
	f := start(t, nil)
	closed := start(t, func(c *Config) { c.Anonymous = 0 })
	for _, row := range []struct {
		name  string
		on    *fixture
		token any
		want  ua.StatusCode
	}{
		{"anonymous", f, anonymous(), ua.StatusGood},
		{"5.6.3 no token is anonymous", f, nil, ua.StatusGood},
		{"C6 unknown policy", f, &ua.AnonymousIdentityToken{PolicyID: "nonsense"}, ua.StatusBadIdentityTokenInvalid},
		{"C6 a user", f, &ua.UserNameIdentityToken{PolicyID: anonymousPolicy, UserName: "root"}, ua.StatusBadIdentityTokenInvalid},
		{"C6 a certificate", f, &ua.X509IdentityToken{PolicyID: "x509"}, ua.StatusBadIdentityTokenInvalid},
		{"C6 an issued token", f, &ua.IssuedIdentityToken{PolicyID: "jwt"}, ua.StatusBadIdentityTokenInvalid},
		{"C6 nonsense", f, &ua.Argument{Name: "x", DataType: ua.NewTwoByteNodeID(1), Description: ua.NewLocalizedText("")}, ua.StatusBadIdentityTokenInvalid},
		{"C6 anonymous is not allowed", closed, anonymous(), ua.StatusBadIdentityTokenRejected},
		{"C6 no token is not allowed", closed, nil, ua.StatusBadIdentityTokenRejected},
	} {
		p := row.on.dial(t, nil)
		p.create()
		if _, code := p.call(activateRequest(row.token)); code != row.want {
			t.Errorf("%s: %v, want %v", row.name, code, row.want)
		}
		_, code := p.call(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})
		if want := row.want; want == ua.StatusGood && code != want || want != ua.StatusGood && code != ua.StatusBadSessionNotActivated {
			t.Errorf("%s: a Read afterwards: %v", row.name, code)
		}
	}
}

func TestTokensAndChannels(t *testing.T) {
	f := start(t, nil)
	read := func(p *peer) ua.StatusCode {
		_, code := p.call(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})
		return code
	}
	a, b := f.login(t), f.dial(t, nil)
	if code := read(b); code != ua.StatusBadSessionIDInvalid {
		t.Errorf("C6 no token: %v", code)
	}
	b.token = ua.NewByteStringNodeID(0, make([]byte, 32))
	if code := read(b); code != ua.StatusBadSessionIDInvalid {
		t.Errorf("C6 a guessed token: %v", code)
	}
	b.token = ua.NewNumericNodeID(0, 1)
	if code := read(b); code != ua.StatusBadSessionIDInvalid {
		t.Errorf("C6 a numeric token: %v", code)
	}
	b.token = a.token
	if code := read(b); code != ua.StatusBadSecureChannelIDInvalid {
		t.Errorf("C6 Read on channel B with channel A's token: %v", code)
	}
	if _, code := b.call(&ua.CloseSessionRequest{}); code != ua.StatusBadSecureChannelIDInvalid {
		t.Errorf("C6 CloseSession from channel B: %v", code)
	}
	if code := read(a); code != ua.StatusGood {
		t.Errorf("A goes on: %v", code)
	}
	must[*ua.ActivateSessionResponse](b, activateRequest(anonymous()))
	if code := read(b); code != ua.StatusGood {
		t.Errorf("5.6.3 after ActivateSession on B: %v", code)
	}
	if code := read(a); code != ua.StatusBadSecureChannelIDInvalid {
		t.Errorf("5.6.3 A has lost the session: %v", code)
	}
	must[*ua.CloseSessionResponse](b, &ua.CloseSessionRequest{DeleteSubscriptions: true})
	if code := read(b); code != ua.StatusBadSessionIDInvalid {
		t.Errorf("after CloseSession: %v", code)
	}
	// The first activation is for the channel that made the session.
	c, d := f.dial(t, nil), f.dial(t, nil)
	c.create()
	d.token = c.token
	if _, code := d.call(activateRequest(anonymous())); code != ua.StatusBadSecureChannelIDInvalid {
		t.Errorf("5.6.3 first activation from another channel: %v", code)
	}
	if code := read(c); code != ua.StatusBadSessionNotActivated {
		t.Errorf("5.6.2 before ActivateSession: %v", code)
	}
	if code := read(c); code != ua.StatusBadSessionIDInvalid {
		t.Errorf("5.6.2 a session that is used too early is closed: %v", code)
	}
}

func TestSessionTimesOut(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.MinSession, c.Limits.MaxSession = 50*time.Millisecond, 50*time.Millisecond })
	p := f.login(t)
	deadline := time.Now().Add(5 * time.Second)
	for f.Stats().Sessions.Current > 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if _, code := p.call(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}}); code != ua.StatusBadSessionIDInvalid {
		t.Errorf("after the time-out: %v", code)
	}
	v := f.login(t).read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{
		value(ua.NewNumericNodeID(0, 2281)), value(ua.NewNumericNodeID(0, 2278)), value(ua.NewNumericNodeID(0, 2277)),
	}})
	if v[0].Value.Value() != uint32(1) || v[1].Value.Value() != uint32(2) || v[2].Value.Value() != uint32(1) {
		t.Errorf("12.9 timed out %v, ever %v, now %v", v[0].Value, v[1].Value, v[2].Value)
	}
}

// signed activates a session over Basic256Sha256 with a signature over data.
func (p *peer) signed(t *testing.T, id *uatest.Identity, data ...[]byte) ua.StatusCode {
	t.Helper()
	alg, err := uapolicy.Asymmetric(ua.SecurityPolicyURIBasic256Sha256, id.Key, &id.Key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, d := range data {
		all = append(all, d...)
	}
	sig, err := alg.Signature(all)
	if err != nil {
		t.Fatal(err)
	}
	req := activateRequest(anonymous())
	req.ClientSignature = &ua.SignatureData{Algorithm: alg.SignatureURI(), Signature: sig}
	resp, code := p.call(req)
	if r, ok := resp.(*ua.ActivateSessionResponse); ok {
		p.nonce = r.ServerNonce
	}
	return code
}

func TestSecuredSession(t *testing.T) {
	f := start(t, nil)
	own := uatest.ClientIdentity(t)
	p := f.dial(t, func(o *uatest.Options) { f.secured(t)(o); o.Identity = own })
	for _, row := range []struct {
		name   string
		change func(*ua.CreateSessionRequest)
		want   ua.StatusCode
	}{
		{"another certificate", func(r *ua.CreateSessionRequest) { r.ClientCertificate = uatest.ClientIdentity(t).DER }, ua.StatusBadSecurityChecksFailed},
		{"no certificate", func(r *ua.CreateSessionRequest) { r.ClientCertificate = nil }, ua.StatusBadSecurityChecksFailed},
		{"6.1.3 another application", func(r *ua.CreateSessionRequest) { r.ClientDescription.ApplicationURI = "urn:other" }, ua.StatusBadCertificateURIInvalid},
		{"5.6.2 a short nonce", func(r *ua.CreateSessionRequest) { r.ClientNonce = make([]byte, 31) }, ua.StatusBadNonceInvalid},
		{"a chain", func(r *ua.CreateSessionRequest) {
			r.ClientCertificate = append(own.DER[:len(own.DER):len(own.DER)], 1, 2, 3)
		}, ua.StatusGood},
		{"its own", func(*ua.CreateSessionRequest) {}, ua.StatusGood},
	} {
		req := createRequest()
		req.ClientCertificate = own.DER
		row.change(req)
		resp, code := p.call(req)
		if code != row.want {
			t.Errorf("%s: %v, want %v", row.name, code, row.want)
		}
		if r, ok := resp.(*ua.CreateSessionResponse); ok {
			p.token, p.nonce = r.AuthenticationToken, r.ServerNonce
			alg, err := uapolicy.Asymmetric(ua.SecurityPolicyURIBasic256Sha256, own.Key, f.own.Certificate().PublicKey.(*rsa.PublicKey))
			if err != nil {
				t.Fatal(err)
			}
			if err := alg.VerifySignature(append(own.DER[:len(own.DER):len(own.DER)], req.ClientNonce...), r.ServerSignature.Signature); err != nil {
				t.Errorf("%s: 5.6.2 the server's signature: %v", row.name, err)
			}
			if string(r.ServerCertificate) != string(f.own.DER()) {
				t.Errorf("%s: another server certificate", row.name)
			}
		}
	}
	if code := p.signed(t, own, f.own.DER(), make([]byte, 32)); code != ua.StatusBadApplicationSignatureInvalid {
		t.Errorf("5.6.3 a signature over another nonce: %v", code)
	}
	if _, code := p.call(activateRequest(anonymous())); code != ua.StatusBadApplicationSignatureInvalid {
		t.Errorf("5.6.3 no signature: %v", code)
	}
	nonce := p.nonce
	if code := p.signed(t, own, f.own.DER(), nonce); code != ua.StatusGood {
		t.Errorf("5.6.3: %v", code)
	}
	if code := p.signed(t, own, f.own.DER(), nonce); code != ua.StatusBadApplicationSignatureInvalid {
		t.Errorf("5.6.3 a nonce used twice: %v", code)
	}
	other := uatest.NewIdentity(t, uatest.Key(t, 2048, 2), nil, nil)
	thief := f.dial(t, func(o *uatest.Options) { f.secured(t)(o); o.Identity = other })
	thief.token = p.token
	if code := thief.signed(t, other, f.own.DER(), p.nonce); code != ua.StatusBadSecurityChecksFailed {
		t.Errorf("C6 another client's certificate: %v", code)
	}
	plain := f.dial(t, nil)
	plain.token = p.token
	if _, code := plain.call(activateRequest(anonymous())); code != ua.StatusBadSecurityChecksFailed {
		t.Errorf("C6 a channel without security: %v", code)
	}
	again := f.dial(t, func(o *uatest.Options) { f.secured(t)(o); o.Identity = own })
	again.token = p.token
	if code := again.signed(t, own, f.own.DER(), p.nonce); code != ua.StatusGood {
		t.Errorf("5.6.3 a new channel of the same client: %v", code)
	}
	again.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})
}

func TestCertificateWithoutURI(t *testing.T) {
	f := start(t, nil)
	id := uatest.NewIdentity(t, uatest.Key(t, 2048, 1), nil, func(c *x509.Certificate) { c.URIs = []*url.URL{} })
	p := f.dial(t, func(o *uatest.Options) { f.secured(t)(o); o.Identity = id })
	req := createRequest()
	req.ClientCertificate = id.DER
	if _, code := p.call(req); code != ua.StatusBadCertificateURIInvalid {
		t.Errorf("6.1.3: %v", code)
	}
}

func TestMilliseconds(t *testing.T) {
	for _, row := range []struct {
		ms   float64
		want time.Duration
	}{
		{1.5, 1500 * time.Microsecond}, {0, 0}, {-1, 0}, {math.NaN(), 0}, {math.Inf(1), math.MaxInt64}, {1e300, math.MaxInt64}, {math.Inf(-1), 0},
	} {
		if got := fromMillis(row.ms); got != row.want {
			t.Errorf("%v ms: %v, want %v", row.ms, got, row.want)
		}
	}
}
