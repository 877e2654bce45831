package channel_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"
	"go.uber.org/goleak"

	"edged/drivers/tag"
	"edged/uaserver/channel"
	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handler is a Handler of two functions; without serve it echoes.
type handler struct {
	serve  func(*channel.Request)
	closed func(*channel.Channel)
}

func (h handler) Serve(r *channel.Request) {
	if h.serve != nil {
		h.serve(r)
		return
	}
	r.Reply(raw(append(typeID(r), r.Body.Rest()...)))
}

func (h handler) Closed(c *channel.Channel) {
	if h.closed != nil {
		h.closed(c)
	}
}

// typeID is the type id that echo puts before the rest, as the request had it.
func typeID(r *channel.Request) []byte { return []byte{1, 0, byte(r.Type), byte(r.Type >> 8)} }

// raw is a response that is bytes already.
type raw []byte

func (b raw) AppendTo(dst []byte) []byte { return append(dst, b...) }

// body is a request of n bytes after its type id (ReadRequest).
func body(n int) []byte {
	b := make([]byte, 4+n)
	rand.Read(b)
	copy(b, []byte{1, 0, 0x77, 0x02})
	return b
}

// everyPolicy is all that is built, beside None, the deprecated ones last.
var everyPolicy = []channel.Policy{
	{URI: ua.SecurityPolicyURIBasic256Sha256, Modes: both},
	{URI: ua.SecurityPolicyURIAes128Sha256RsaOaep, Modes: both},
	{URI: ua.SecurityPolicyURIAes256Sha256RsaPss, Modes: both},
	{URI: ua.SecurityPolicyURIBasic256, Modes: both},
	{URI: ua.SecurityPolicyURIBasic128Rsa15, Modes: both},
}

// policyName is a policy's URI without what all have in common.
func policyName(uri string) string { return uri[strings.IndexByte(uri, '#')+1:] }

var both = []ua.MessageSecurityMode{ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt}

// ownOf makes the server's certificate for a key of that size.
func ownOf(tb testing.TB, bits int) *pki.Own {
	tb.Helper()
	key := uatest.Key(tb, bits, 0)
	der, err := pki.Make(key, pki.Identity{ApplicationURI: "urn:edged:test", Name: "test", Hosts: []string{"localhost", "127.0.0.1"}}, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return pki.NewOwn(cert, key)
}

// logs collects what is logged.
type logs struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func config(tb testing.TB) channel.Config {
	tb.Helper()
	quiet := slog.New(slog.DiscardHandler)
	return channel.Config{
		Certificate: ownOf(tb, 2048).Itself, Trust: pki.TrustAll(quiet),
		Policies: slices.Clone(everyPolicy[:3]),
		Log:      quiet,
	}
}

// listen serves on a loopback port until the end of the test, and checks that nothing is held then.
func listen(tb testing.TB, cfg channel.Config, h channel.Handler) (*channel.Server, string) {
	tb.Helper()
	if cfg.Account == nil {
		cfg.Account = &tag.Budget{}
	}
	account := cfg.Account.(*tag.Budget)
	s := channel.New(cfg, h)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			tb.Errorf("Shutdown: %v", err)
		}
		if err := <-done; err != nil {
			tb.Errorf("Serve: %v", err)
		}
		if n := account.Used(); n != 0 {
			tb.Errorf("account still holds %d bytes", n)
		}
	})
	return s, l.Addr().String()
}

func dial(tb testing.TB, addr string) net.Conn {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	tb.Cleanup(func() { conn.Close() })
	return conn
}

func connect(tb testing.TB, addr string, o uatest.Options) *uatest.Client {
	tb.Helper()
	c, err := uatest.Connect(dial(tb, addr), o)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func secured(tb testing.TB, cfg channel.Config, mode ua.MessageSecurityMode) uatest.Options {
	return uatest.Options{Policy: ua.SecurityPolicyURIBasic256Sha256, Mode: mode, Identity: uatest.ClientIdentity(tb), Server: cfg.Certificate().DER()}
}

// echo sends a request and compares the answer with it.
func echo(tb testing.TB, c *uatest.Client, id uint32, n int) *uatest.Message {
	tb.Helper()
	b := body(n)
	if err := c.Send(id, b); err != nil {
		tb.Fatal(err)
	}
	m, err := c.Receive()
	if err != nil {
		tb.Fatal(err)
	}
	if m.ID != id || !bytes.Equal(m.Body, b) {
		tb.Fatalf("request %d of %d bytes: answer %d of %d bytes differs", id, len(b), m.ID, len(m.Body))
	}
	return m
}

func wantError(tb testing.TB, c *uatest.Client, code ua.StatusCode) *uatest.Error {
	tb.Helper()
	_, err := c.Receive()
	var e *uatest.Error
	if !errors.As(err, &e) || e.Code != code {
		tb.Fatalf("got %v, want Error message %v", err, code)
	}
	return e
}

// trusting echoes, and takes every request for the activation of a session.
var trusting = handler{serve: func(r *channel.Request) {
	r.Channel.Trusted()
	handler{}.Serve(r)
}}

// TestConversation: each policy in each mode, with keys of 2048 bits and, for ExtraPaddingSize (6.7.2.5), larger ones, and
// with both mixed.
func TestConversation(t *testing.T) {
	type row struct {
		name string
		addr string
		o    uatest.Options
	}
	cfg := config(t)
	cfg.Policies = everyPolicy
	_, addr := listen(t, cfg, trusting)
	large := cfg
	large.Certificate = ownOf(t, 3072).Itself
	_, largeAddr := listen(t, large, trusting)
	rows := []row{{"None", addr, uatest.Options{}}}
	for _, p := range everyPolicy {
		for _, mode := range both {
			o := secured(t, cfg, mode)
			o.Policy = p.URI
			rows = append(rows, row{policyName(p.URI) + " " + mode.String(), addr, o})
		}
		for i, bits := range []int{2048, 3072} {
			if channel.Deprecated(p.URI) {
				continue // TestKeySizes
			}
			o := secured(t, large, both[1])
			o.Policy, o.Identity = p.URI, uatest.NewIdentity(t, uatest.Key(t, bits, 1), nil, nil)
			rows = append(rows, row{policyName(p.URI) + []string{" large server key", " large keys"}[i], largeAddr, o})
		}
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for _, buffer := range []uint32{8192, 8193, 65535, 1 << 20} {
				o := row.o
				o.Receive, o.Send = buffer, buffer
				c := connect(t, row.addr, o)
				if got := min(buffer, 65535); c.Ack[1] != got || c.Ack[2] != got {
					t.Errorf("buffers revised to %d and %d, want %d", c.Ack[1], c.Ack[2], got)
				}
				c.Options.Receive = c.Ack[2] // no chunk may be larger
				for i, n := range []int{0, 1, 7, 8, 15, 16, 17, 8000, 8100, 8140, 8160, 8168, 8169, 65000, 300_000} {
					m := echo(t, c, uint32(i+1), n)
					if n < 8000 && m.Chunks != 1 || n == 300_000 && m.Chunks < 4 {
						t.Errorf("%d bytes in %d chunks", n, m.Chunks)
					}
				}
				if err := c.Open(ua.SecurityTokenRequestTypeRenew); err != nil {
					t.Fatalf("renew: %v", err)
				}
				if m := echo(t, c, 99, 20_000); m.Token != c.Token {
					t.Errorf("answered with token %d after %d was used", m.Token, c.Token)
				}
				c.Close()
			}
		})
	}
}

func TestChannelTellsItsHandler(t *testing.T) {
	cfg := config(t)
	seen, closed := make(chan *channel.Channel, 1), make(chan *channel.Channel, 1)
	_, addr := listen(t, cfg, handler{
		serve: func(r *channel.Request) {
			seen <- r.Channel
			handler{}.Serve(r)
		},
		closed: func(c *channel.Channel) { closed <- c },
	})
	o := secured(t, cfg, ua.MessageSecurityModeSign)
	o.URL = "opc.tcp://here:4840/x"
	c := connect(t, addr, o)
	echo(t, c, 1, 10)
	ch := <-seen
	if ch.ID() != c.Channel || ch.PolicyURI() != o.Policy || ch.Mode() != o.Mode || ch.EndpointURL() != o.URL ||
		!bytes.Equal(ch.ClientCertificate(), o.Identity.DER) || !bytes.Equal(ch.ServerCertificate(), o.Server) ||
		ch.RemoteAddr().String() != c.Conn.LocalAddr().String() {
		t.Errorf("channel %d %s %v %s of %v", ch.ID(), ch.PolicyURI(), ch.Mode(), ch.EndpointURL(), ch.RemoteAddr())
	}
	b, err := c.Chunk("CLOF", 2, body(0))
	if err != nil {
		t.Fatal(err)
	}
	c.Conn.Write(b)
	if _, err := c.Receive(); err == nil {
		t.Error("CloseSecureChannel was answered (Part 6, 7.1.4)")
	}
	if <-closed != ch {
		t.Error("another channel was closed")
	}
	if err := ch.Reply(1, raw(body(1))); err != channel.ErrClosed {
		t.Errorf("Reply after the end: %v", err)
	}
}

// TestSignatures: what CreateSession and ActivateSession sign (Part 4, 5.6.2 and 5.6.3), with each policy's algorithm.
func TestSignatures(t *testing.T) {
	cfg := config(t)
	cfg.Policies = everyPolicy
	got := make(chan *channel.Channel, 1)
	_, addr := listen(t, cfg, handler{serve: func(r *channel.Request) { got <- r.Channel; handler{}.Serve(r) }})
	open := func(o uatest.Options) *channel.Channel {
		echo(t, connect(t, addr, o), 1, 1)
		return <-got
	}
	none := open(uatest.Options{})
	if s, err := none.Sign([]byte("x")); err != nil || s.Signature != nil || s.Algorithm != "" {
		t.Errorf("None: %v, %v", s, err)
	}
	if err := none.Verify(nil, []byte("x")); err != nil {
		t.Errorf("None: %v", err)
	}
	for _, p := range everyPolicy {
		t.Run(policyName(p.URI), func(t *testing.T) {
			o := secured(t, cfg, both[0])
			o.Policy = p.URI
			testSignatures(t, cfg, p.URI, open(o))
		})
	}
}

func testSignatures(t *testing.T, cfg channel.Config, policy string, sec *channel.Channel) {
	client, err := uapolicy.Asymmetric(policy, uatest.Key(t, 2048, 1), &cfg.Certificate().Key().PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := sec.Sign([]byte("certificate"), []byte("nonce"))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.VerifySignature([]byte("certificatenonce"), sig.Signature); err != nil || sig.Algorithm != client.SignatureURI() {
		t.Errorf("server signature by %s: %v", sig.Algorithm, err)
	}
	good := &ua.SignatureData{Algorithm: client.SignatureURI()}
	if good.Signature, err = client.Signature([]byte("certificatenonce")); err != nil {
		t.Fatal(err)
	}
	bad := *good
	bad.Signature = bytes.Clone(bad.Signature)
	bad.Signature[5]++
	short := *good
	short.Signature = short.Signature[:100]
	other := *good
	other.Algorithm = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512"
	for _, row := range []struct {
		name string
		sig  *ua.SignatureData
		want error
	}{
		{"right", good, nil},
		{"altered", &bad, ua.StatusBadApplicationSignatureInvalid},
		{"short", &short, ua.StatusBadApplicationSignatureInvalid},
		{"other algorithm", &other, ua.StatusBadApplicationSignatureInvalid},
		{"empty", &ua.SignatureData{}, ua.StatusBadApplicationSignatureInvalid},
		{"none", nil, ua.StatusBadApplicationSignatureInvalid},
	} {
		if err := sec.Verify(row.sig, []byte("certificate"), []byte("nonce")); err != row.want {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
	}
}

func TestGopcuaClient(t *testing.T) {
	cfg := config(t)
	cfg.Policies = everyPolicy
	_, addr := listen(t, cfg, handler{serve: func(r *channel.Request) {
		if r.Type != id.GetEndpointsRequest_Encoding_DefaultBinary {
			t.Errorf("request type %d", r.Type)
		}
		h := r.Body.RequestHeader()
		b, err := uatest.Encode(&ua.GetEndpointsResponse{
			ResponseHeader: &ua.ResponseHeader{
				Timestamp: time.Now(), RequestHandle: h.Handle, ServiceDiagnostics: &ua.DiagnosticInfo{}, AdditionalHeader: ua.NewExtensionObject(nil),
			},
			Endpoints: []*ua.EndpointDescription{{EndpointURL: strings.Repeat("x", 20_000), Server: &ua.ApplicationDescription{ApplicationName: &ua.LocalizedText{}}}},
		})
		if err != nil {
			t.Error(err)
		}
		r.Reply(raw(b))
	}})
	me := uatest.ClientIdentity(t)
	ask := func(t *testing.T, policy string, mode ua.MessageSecurityMode) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		opts := []opcua.Option{opcua.AutoReconnect(false)}
		if mode != ua.MessageSecurityModeNone {
			opts = append(opts, opcua.Certificate(me.DER), opcua.PrivateKey(me.Key), opcua.SecurityFromEndpoint(&ua.EndpointDescription{
				SecurityPolicyURI: policy, SecurityMode: mode, ServerCertificate: cfg.Certificate().DER(),
				UserIdentityTokens: []*ua.UserTokenPolicy{{TokenType: ua.UserTokenTypeAnonymous}},
			}, ua.UserTokenTypeAnonymous))
		}
		c, err := opcua.NewClient("opc.tcp://"+addr, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Dial(ctx); err != nil {
			t.Fatalf("%s %v: %v", policy, mode, err)
		}
		defer c.Close(ctx)
		resp, err := c.GetEndpoints(ctx)
		if err != nil || len(resp.Endpoints) != 1 || len(resp.Endpoints[0].EndpointURL) != 20_000 {
			t.Errorf("%s %v: %v, %v", policy, mode, resp, err)
		}
	}
	ask(t, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	for _, p := range everyPolicy {
		for _, mode := range p.Modes {
			ask(t, p.URI, mode)
		}
	}
}

// TestKeySizes is what each policy asks of both ends' keys and of the client's certificate (Part 7).
func TestKeySizes(t *testing.T) {
	small, large := config(t), config(t)
	small.Policies, large.Policies = everyPolicy, everyPolicy
	large.Certificate = ownOf(t, 3072).Itself
	_, smallAddr := listen(t, small, trusting)
	_, largeAddr := listen(t, large, trusting)
	sha1 := func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA1WithRSA }
	for _, row := range []struct {
		name   string
		bits   int
		change func(*x509.Certificate)
		strong ua.StatusCode // by a policy of today
		old    ua.StatusCode // by a deprecated one
	}{
		{"1024 bits", 1024, nil, 0, ua.StatusOK}, // what is wrong in size is for TestTrustAll: this client does not send it
		{"2048 bits", 2048, nil, ua.StatusOK, ua.StatusOK},
		{"3072 bits", 3072, nil, ua.StatusOK, 0},
		{"signed with SHA-1", 2048, sha1, ua.StatusBadCertificatePolicyCheckFailed, ua.StatusOK},
	} {
		me := uatest.NewIdentity(t, uatest.Key(t, row.bits, 0), nil, row.change)
		for _, p := range everyPolicy {
			want := row.strong
			if channel.Deprecated(p.URI) {
				want = row.old
			}
			if row.bits == 1024 && !channel.Deprecated(p.URI) || row.bits == 3072 && channel.Deprecated(p.URI) {
				continue // the test's own client refuses to make such a request
			}
			o := secured(t, small, both[1])
			o.Policy, o.Identity = p.URI, me
			if got := refusal(t, smallAddr, o); got != want {
				t.Errorf("Part 7 %s, %s: %v, want %v", policyName(p.URI), row.name, got, want)
			}
		}
	}
	for _, p := range everyPolicy {
		want := ua.StatusOK
		if channel.Deprecated(p.URI) {
			want = ua.StatusBadSecurityPolicyRejected
		}
		o := secured(t, small, both[1]) // of the other server, whose key the test's client takes
		o.Policy = p.URI
		if !channel.Deprecated(p.URI) {
			o.Server = large.Certificate().DER()
		}
		if got := refusal(t, largeAddr, o); got != want {
			t.Errorf("Part 7 %s, server's key of 3072 bits: %v, want %v", policyName(p.URI), got, want)
		}
	}
}

// refusal opens a channel and returns why it was refused.
func refusal(t *testing.T, addr string, o uatest.Options) ua.StatusCode {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var told *uatest.Error
	if _, err := uatest.Connect(conn, o); errors.As(err, &told) {
		return told.Code
	} else if err != nil {
		t.Fatalf("%s: %v", policyName(o.Policy), err)
	}
	return ua.StatusOK
}
