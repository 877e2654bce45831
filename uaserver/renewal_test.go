package uaserver

import (
	"crypto/x509"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/channel"
	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

// ownWith makes an own certificate of the test's server with a key.
func ownWith(t *testing.T, bits, number int) *pki.Own {
	t.Helper()
	key := uatest.Key(t, bits, number)
	der, err := pki.Make(key, pki.Identity{ApplicationURI: appURI, Name: "Test"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return pki.NewOwn(cert, key)
}

// TestRenewedOwnCertificate: new channels and the endpoints have it at once, old channels live on, renew their tokens and
// make sessions with the one of before, and a session goes over to a channel with the new one.
func TestRenewedOwnCertificate(t *testing.T) {
	var now atomic.Pointer[pki.Own]
	f := start(t, func(c *Config) {
		now.Store(c.Certificate())
		c.Certificate = now.Load
	})
	before := f.own
	me := uatest.ClientIdentity(t)
	mine := func(o *uatest.Options) { f.secured(t)(o); o.Identity = me }
	enter := func(p *peer) {
		t.Helper()
		req := createRequest()
		req.ClientCertificate = me.DER
		r := must[*ua.CreateSessionResponse](p, req)
		if p.token, p.nonce = r.AuthenticationToken, r.ServerNonce; string(r.ServerCertificate) != string(p.Options.Server) {
			t.Error("5.6.2 a session with another certificate than its channel's")
		}
		if code := p.signed(t, me, r.ServerCertificate, p.nonce); code != ua.StatusGood {
			t.Fatal(code)
		}
	}
	reads := func(p *peer) {
		t.Helper()
		if r := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}}); r[0].Status != ua.StatusOK {
			t.Error(r[0].Status)
		}
	}
	old := f.dial(t, mine)
	enter(old)

	after := ownWith(t, 3072, 1)
	now.Store(after)
	f.own = after
	if err := old.Open(ua.SecurityTokenRequestTypeRenew); err != nil {
		t.Fatalf("renewal of an old channel: %v", err)
	}
	reads(old)
	enter(old)
	fresh := f.dial(t, mine)
	for _, e := range must[*ua.GetEndpointsResponse](fresh, &ua.GetEndpointsRequest{}).Endpoints {
		if string(e.ServerCertificate) != string(after.DER()) {
			t.Errorf("%s shows another certificate", e.SecurityPolicyURI)
		}
	}
	enter(fresh)
	reads(fresh)
	moved := f.dial(t, mine)
	moved.token = old.token
	if code := moved.signed(t, me, before.DER(), old.nonce); code != ua.StatusGood {
		t.Errorf("5.6.3 a session goes to a channel with the new certificate: %v", code)
	}
	reads(moved)
	f.own = before
	if _, code := f.enter(t, me, nil, nil); code != ua.StatusBadCertificateInvalid {
		t.Errorf("6.7.2.3 a new channel for the certificate of before: %v", code)
	}
	f.own = after
}

// TestDeprecatedPolicies: they are offered where they are named, behind all others, with tokens of their own; what old
// clients send for a password is taken there alone, and not where the own key is too large for them.
func TestDeprecatedPolicies(t *testing.T) {
	var own atomic.Pointer[pki.Own]
	f := guarded(t, func(c *Config) {
		own.Store(c.Certificate())
		c.Certificate = own.Load
		both := []ua.MessageSecurityMode{ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt}
		for _, uri := range []string{ua.SecurityPolicyURIBasic128Rsa15, ua.SecurityPolicyURIBasic256, ua.SecurityPolicyURIAes128Sha256RsaOaep} {
			c.Policies = append(c.Policies, channel.Policy{URI: uri, Modes: both})
		}
	})
	p := f.dial(t, nil)
	ends := func() (deprecated, others []*ua.EndpointDescription) {
		for _, e := range must[*ua.GetEndpointsResponse](p, &ua.GetEndpointsRequest{}).Endpoints {
			if channel.Deprecated(e.SecurityPolicyURI) {
				deprecated = append(deprecated, e)
			} else if e.SecurityMode != ua.MessageSecurityModeNone {
				if len(deprecated) > 0 {
					t.Errorf("%s comes behind deprecated ones", e.SecurityPolicyURI)
				}
				others = append(others, e)
			}
		}
		return deprecated, others
	}
	deprecated, others := ends()
	if len(deprecated) != 4 || len(others) == 0 {
		t.Fatalf("%d deprecated endpoints of 4, %d others", len(deprecated), len(others))
	}
	for _, e := range deprecated {
		if e.SecurityLevel == 0 || e.SecurityLevel >= others[len(others)-1].SecurityLevel || e.UserIdentityTokens[0].SecurityPolicyURI != e.SecurityPolicyURI {
			t.Errorf("7.14 %s: level %d, tokens of %s", e.SecurityPolicyURI, e.SecurityLevel, e.UserIdentityTokens[0].SecurityPolicyURI)
		}
	}
	own.Store(ownWith(t, 3072, 1))
	if deprecated, others := ends(); len(deprecated) != 0 || len(others) == 0 {
		t.Errorf("Part 7 %d deprecated endpoints with a key of 3072 bits, %d others", len(deprecated), len(others))
	}
	bare := guarded(t, nil)
	q := bare.dial(t, nil)
	q.create()
	token := bare.nameToken(q, "anna", "open sesame")
	token.PolicyID = userNamePolicy + "Basic256" // the algorithm is the same
	if _, code := q.call(activateRequest(token)); code != ua.StatusBadIdentityTokenInvalid {
		t.Errorf("a token of a policy that is off: %v", code)
	}
}
