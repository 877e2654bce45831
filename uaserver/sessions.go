package uaserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unique"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/uaserver/address"
	"edged/uaserver/channel"
	"edged/uaserver/session"
)

const (
	// activation is how long a session may wait for ActivateSession: a client does it at once.
	activation = 30 * time.Second
	// minNonce is the least length of a client nonce in bytes (Part 4, 5.6.2.2).
	minNonce = 32
	// maxName bounds texts that a client names itself with and that are kept, in bytes.
	maxName = 512
	// maxLocales bounds the locale ids that are kept of a session.
	maxLocales = 16
)

// createSession makes a session (Part 4, 5.6.2). It answers to any endpoint URL: a client behind a translated address
// cannot know ours.
func (s *Server) createSession(c *call, req *ua.CreateSessionRequest) (ua.Response, ua.StatusCode) {
	resp, cl, code := s.makeSession(c, req)
	s.auditSession(id.AuditCreateSessionEventType, c.ch, cl, c.header.AuditID, "", code)
	if code != ua.StatusGood {
		return nil, code
	}
	return resp, code
}

func (s *Server) makeSession(c *call, req *ua.CreateSessionRequest) (ua.Response, *client, ua.StatusCode) {
	if s.stopping.Load() {
		return nil, nil, ua.StatusBadShutdown
	}
	if code := checkClient(c.ch, req); code != ua.StatusGood {
		s.rejected.securitySessions.Add(1)
		s.log.Warn("session refused", "client", applicationURI(req), "from", c.ch.RemoteAddr(), "why", code)
		return nil, nil, code
	}
	// The client checks the key of the channel's certificate with it (Part 4, 5.6.2.2, serverSignature).
	signature, err := c.ch.Sign(c.ch.ClientCertificate(), req.ClientNonce)
	if err != nil {
		s.log.Error("session refused: cannot sign", "from", c.ch.RemoteAddr(), "error", err)
		return nil, nil, ua.StatusBadInternalError
	}
	peer := session.Peer{
		Name: clip(req.SessionName), EndpointURL: clip(req.EndpointURL), Address: c.ch.RemoteAddr().String(),
		Certificate: c.ch.ClientCertificate(), MaxResponse: req.MaxResponseMessageSize, ApplicationURI: applicationURI(req),
	}
	if d := req.ClientDescription; d != nil && d.ApplicationName != nil {
		peer.ApplicationName = clip(d.ApplicationName.Text)
	}
	se, err := s.sessions.Create(c.ch.ID(), fromMillis(req.RequestedSessionTimeout), peer,
		func(se *session.Session) any { return s.join(se, c.ch, req) })
	switch {
	case errors.Is(err, session.ErrFull):
		s.rejected.sessions.Add(1)
		return nil, nil, ua.StatusBadTooManySessions
	case err != nil:
		return nil, nil, ua.StatusBadShutdown
	}
	return &ua.CreateSessionResponse{
		SessionID:             ua.NewNumericNodeID(address.NamespaceApplication, se.ID),
		AuthenticationToken:   ua.NewByteStringNodeID(0, []byte(se.Token)),
		RevisedSessionTimeout: millis(se.Timeout),
		ServerNonce:           se.Nonce(),
		ServerCertificate:     c.ch.ServerCertificate(),
		ServerEndpoints:       s.describeEndpoints(s.urlFor(c.ch, req.EndpointURL)),
		ServerSignature:       signature,
		MaxRequestMessageSize: s.cfg.Limits.Message,
	}, se.Joined.(*client), ua.StatusGood
}

// join makes what belongs to a session. It is called before anybody can find the session.
func (s *Server) join(se *session.Session, ch *channel.Channel, req *ua.CreateSessionRequest) any {
	cl := &client{Session: se, own: ch.Own(), counts: newCounts(len(s.requests)), about: unique.Make(string(appendAbout(nil, req)))}
	if se.Peer.Name == "" {
		se.Peer.Name = fmt.Sprintf("session %d", se.ID)
	}
	cl.pub = s.engine.NewClient()
	cl.pub.SetName(se.Peer.Name)
	cl.pub.SetSession(se.ID)
	return cl
}

// checkClient compares the certificate that a client shows with the one that its channel was opened with, and its
// application URI with the certificate (Part 4, 6.1.3; 5.6.2.3). On a channel without security both mean nothing.
func checkClient(ch *channel.Channel, req *ua.CreateSessionRequest) ua.StatusCode {
	own := ch.ClientCertificate()
	if ch.Mode() == ua.MessageSecurityModeNone {
		return ua.StatusGood
	}
	if len(req.ClientNonce) < minNonce {
		return ua.StatusBadNonceInvalid
	}
	if len(own) == 0 || !bytes.HasPrefix(req.ClientCertificate, own) { // issuers may follow
		return ua.StatusBadSecurityChecksFailed
	}
	cert, err := x509.ParseCertificate(own)
	if err != nil {
		return ua.StatusBadCertificateInvalid
	}
	want := applicationURI(req)
	for _, u := range cert.URIs {
		if u.String() == want {
			return ua.StatusGood
		}
	}
	return ua.StatusBadCertificateURIInvalid
}

func applicationURI(req *ua.CreateSessionRequest) string {
	if req.ClientDescription == nil {
		return ""
	}
	return clip(req.ClientDescription.ApplicationURI)
}

// activateSession binds a session to the channel and its user (Part 4, 5.6.3). A password is checked beside the
// connection's read goroutine, whose other sessions go on meanwhile.
func (s *Server) activateSession(c *call, req *ua.ActivateSessionRequest) (ua.Response, ua.StatusCode) {
	cl, code := s.find(c)
	if code != ua.StatusGood {
		return nil, code
	}
	refuse := func(code ua.StatusCode) (ua.Response, ua.StatusCode) {
		s.refused(cl, c.ch, "", code)
		return nil, code
	}
	if !cl.SameClient(c.ch.ClientCertificate()) {
		return refuse(ua.StatusBadSecurityChecksFailed)
	}
	nonce := cl.Nonce()
	if c.ch.Mode() != ua.MessageSecurityModeNone {
		if !cl.signed(c.ch, req.ClientSignature, nonce) {
			return refuse(ua.StatusBadApplicationSignatureInvalid)
		}
	}
	locales := clipLocales(req.LocaleIDs)
	who, l, code := s.identify(c.ch, nonce, req)
	switch {
	case code != ua.StatusGood:
		return refuse(code)
	case l == nil:
		return s.activate(cl, c.ch, who, locales)
	}
	return s.logIn(c, cl, l, locales)
}

// signed checks a client's signature over the server's certificate and nonce (Part 4, 5.6.3.2). The certificate is the
// channel's, or, where it was renewed meanwhile, the one that the client was given when the session was made.
func (c *client) signed(ch *channel.Channel, sig *ua.SignatureData, nonce []byte) bool {
	return ch.Verify(sig, ch.ServerCertificate(), nonce) == nil || ch.Own() != c.own && ch.Verify(sig, c.own.DER(), nonce) == nil
}

// logIn answers when the password was checked. A session has one check at a time.
func (s *Server) logIn(c *call, cl *client, l *login, locales []string) (ua.Response, ua.StatusCode) {
	if !cl.checking.CompareAndSwap(false, true) {
		return nil, statusBadServerTooBusy
	}
	c.client = cl
	ok := s.apart(c, func(context.Context) {}, func(ctx context.Context, c *call) func() {
		defer cl.checking.Store(false)
		c.client = nil // its counters are of requests in a session
		who, err := s.check(ctx, c.ch, l)
		var resp ua.Response
		code := loginStatus(err)
		if err != nil {
			s.refused(cl, c.ch, l.user, err)
		} else {
			resp, code = s.activate(cl, c.ch, who, locales)
		}
		return func() {
			if code != ua.StatusGood {
				c.fault(code)
				return
			}
			c.respond(resp)
		}
	})
	c.client = nil
	if !ok {
		cl.checking.Store(false)
		return nil, statusBadServerTooBusy
	}
	return nil, ua.StatusGood
}

// activate lets a user in. A session stays its user's: what it has subscribed to was for his eyes (Part 4, 5.6.3.2,
// Bad_IdentityChangeNotSupported).
func (s *Server) activate(cl *client, ch *channel.Channel, who *identity, locales []string) (ua.Response, ua.StatusCode) {
	cl.entering.Lock()
	defer cl.entering.Unlock()
	refuse := func(code ua.StatusCode) (ua.Response, ua.StatusCode) {
		s.refused(cl, ch, who.String(), code)
		return nil, code
	}
	before := cl.who.Load()
	if before != nil && !before.same(who) {
		return refuse(ua.StatusBadIdentityChangeNotSupported)
	}
	nonce, err := cl.Activate(ch.ID(), locales)
	switch {
	case errors.Is(err, session.ErrChannel):
		return refuse(ua.StatusBadSecureChannelIDInvalid)
	case err != nil:
		return nil, ua.StatusBadSessionClosed
	}
	was := cl.rights.Swap(uint32(who.on(ch)))
	cl.who.Store(who)
	cl.pub.SetOwner(cl.owner(who, ch))
	if address.Rights(was) != cl.may() {
		cl.pub.SetRights(cl.may())
	}
	s.bind(cl, ch)
	if ch.Ended() { // meanwhile, and perhaps before it was bound
		s.unbound(ch)
	}
	s.auditSession(id.AuditActivateSessionEventType, ch, cl, "", who.String(), ua.StatusGood)
	if before == nil {
		s.talk.say(s.log, "session activated", "session", cl.Peer.Name, "client", cl.Peer.ApplicationName, "user", who.String(),
			"from", ch.RemoteAddr(), "policy", ch.PolicyURI(), "mode", ch.Mode().String())
	}
	return &ua.ActivateSessionResponse{ServerNonce: nonce}, ua.StatusGood
}

// closeSession ends a session, activated or not (Part 4, 5.6.4).
func (s *Server) closeSession(c *call, req *ua.CloseSessionRequest) (ua.Response, ua.StatusCode) {
	cl, code := s.find(c)
	switch {
	case code != ua.StatusGood:
		return nil, code
	case cl.Channel() != c.ch.ID():
		return nil, ua.StatusBadSecureChannelIDInvalid
	}
	s.sessions.Close(cl.Session, req.DeleteSubscriptions)
	s.auditSession(id.AuditSessionEventType, c.ch, cl, c.header.AuditID, cl.userName(), ua.StatusGood)
	return &ua.CloseSessionResponse{}, ua.StatusGood
}

// cancelRequests ends requests that still wait (Part 4, 5.7.5), Publish requests among them. They are answered with
// BadRequestCancelledByClient.
func (s *Server) cancelRequests(c *call, req *ua.CancelRequest) (ua.Response, ua.StatusCode) {
	n := c.client.wait.cancel(req.RequestHandle) + c.client.pub.Cancel(req.RequestHandle)
	return &ua.CancelResponse{CancelCount: n}, ua.StatusGood
}

// clip copies a text that a client sent, so that it does not keep a message alive, and bounds it.
func clip(s string) string { return string([]byte(s[:min(len(s), maxName)])) }

func clipLocales(ids []string) []string {
	if ids == nil {
		return nil
	}
	kept := slices.Clone(ids[:min(len(ids), maxLocales)])
	for i := range kept {
		kept[i] = clip(kept[i])
	}
	return kept
}

// fromMillis converts the standard's Duration. What is not a number or negative is zero; what is too long is cut.
func fromMillis(ms float64) time.Duration {
	switch {
	case !(ms > 0):
		return 0
	case ms > math.MaxInt64/1e6:
		return math.MaxInt64
	}
	return time.Duration(ms * float64(time.Millisecond))
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// randomBytes returns n random bytes. crypto/rand.Read never fails; it ends the process instead.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}
