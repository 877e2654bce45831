package uaserver

import (
	"context"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/uaserver/address"
	"edged/uaserver/channel"
	"edged/uaserver/pki"
	"edged/uaserver/session"
	"edged/uaserver/subscription"
	"edged/uaserver/wire"
)

// User is somebody who may log in.
type User struct {
	Name     string
	Password []byte         // its bcrypt hash; nil: he has none
	Rights   address.Rights // with his roles; MayAudit is his over encrypted channels alone (Part 5, 6.3.4)
}

// Users knows who may log in. It is asked at each log-in, by several goroutines.
type Users interface {
	// Offers tells with what there are users to log in.
	Offers() (passwords, certificates bool)
	// ByName finds a user by name.
	ByName(name string) (User, bool)
	// ByCertificate finds the user of a certificate.
	ByCertificate(thumbprint pki.Thumbprint) (User, bool)
	// ByCommonName finds a user who may log in with any certificate of his name that UserTrust trusts.
	ByCommonName(name string) (User, bool)
}

// UserTrust decides about the certificates of users.
type UserTrust interface {
	pki.Trust
	// CheckNamed checks one that a user has by its thumbprint, and that so is trusted.
	CheckNamed(chain []*x509.Certificate, need pki.Strength, now time.Time) error
}

// PolicyIds of user tokens. Those of users are followed by the name of the policy that their secrets and signatures go by,
// so that one id means one thing at every endpoint.
const (
	anonymousPolicy   = "anonymous"
	userNamePolicy    = "username-"
	certificatePolicy = "certificate-"
)

// How often an origin may fail before it is locked out (field report C5).
const (
	mayFail = 5
	// mayFailTogether is for all trusted clients of one address: some gateways stand for many.
	mayFailTogether = 50
)

// Ways to log in, as the standard names them (Part 5, 12.12: AuthenticationMechanism).
const (
	byNobody      = "Anonymous"
	byName        = "UserName"
	byCertificate = "Certificate"
)

// identity is who an activated session belongs to.
type identity struct {
	by     string
	user   string         // empty: anonymous
	print  pki.Thumbprint // of the certificate that he logged in with
	chain  []byte         // the certificate, with the issuers that came with it
	policy string         // that it was checked for
	rights address.Rights
}

// on is what the rights are on a channel: what concerns security is for users over encrypted ones (Part 5, 6.3.4).
func (i *identity) on(ch *channel.Channel) address.Rights {
	if ch.Mode() != ua.MessageSecurityModeSignAndEncrypt {
		return i.rights | address.Exposed
	}
	return i.rights
}

// same reports whether two identities are one user's, whatever he may do by now.
func (i *identity) same(o *identity) bool { return i.by == o.by && i.user == o.user }

// String is the user as the log names him.
func (i *identity) String() string {
	if i.by == byNobody {
		return "anonymous"
	}
	return i.user
}

// tokenPolicies are the user tokens that an endpoint takes (Part 4, 7.41). Passwords are encrypted at each of them: by the
// endpoint's policy, or, where it has none, by one that old clients have too (field report C7).
func (s *Server) tokenPolicies(endpoint string) (all []*ua.UserTokenPolicy) {
	may := s.access.Load()
	if may.anonymous != 0 {
		all = append(all, &ua.UserTokenPolicy{PolicyID: anonymousPolicy, TokenType: ua.UserTokenTypeAnonymous})
	}
	if may.users == nil || s.cfg.Certificate == nil {
		return all
	}
	uri := endpoint
	if channel.SecretAlgorithm(uri) == "" {
		uri = ua.SecurityPolicyURIBasic256Sha256
	}
	name := uri[len(ua.SecurityPolicyURIPrefix):]
	passwords, certificates := may.users.Offers()
	if passwords {
		all = append(all, &ua.UserTokenPolicy{PolicyID: userNamePolicy + name, TokenType: ua.UserTokenTypeUserName, SecurityPolicyURI: uri})
	}
	if certificates {
		all = append(all, &ua.UserTokenPolicy{PolicyID: certificatePolicy + name, TokenType: ua.UserTokenTypeCertificate, SecurityPolicyURI: uri})
	}
	return all
}

// tokenPolicy is the security policy of a token's PolicyId, or "". One of another endpoint is taken too: clients keep what
// they learnt before the site was changed.
func (s *Server) tokenPolicy(prefix, id string) string {
	if len(id) <= len(prefix) || id[:len(prefix)] != prefix || s.access.Load().users == nil || s.cfg.Certificate == nil {
		return ""
	}
	uri := ua.SecurityPolicyURIPrefix + id[len(prefix):]
	if channel.SecretAlgorithm(uri) == "" || channel.Deprecated(uri) && !s.configured(uri) {
		return ""
	}
	return uri
}

// configured reports whether a policy is one of those that the site names.
func (s *Server) configured(uri string) bool {
	return slices.ContainsFunc(s.cfg.Policies, func(p channel.Policy) bool { return p.URI == uri })
}

// identify finds out whose a user token is, as far as that takes no time. No token at all is an anonymous one (Part 4,
// 5.6.3.2). A password is not checked yet: it is returned as a login.
func (s *Server) identify(ch *channel.Channel, nonce []byte, req *ua.ActivateSessionRequest) (*identity, *login, ua.StatusCode) {
	x := req.UserIdentityToken
	if x != nil && x.Value == nil && x.TypeID != nil && x.TypeID.NodeID != nil && wire.FromUA(x.TypeID.NodeID) != (wire.NodeID{}) {
		return nil, nil, ua.StatusBadIdentityTokenInvalid
	}
	if x == nil || x.Value == nil {
		return s.anonymous()
	}
	switch t := x.Value.(type) {
	case *ua.AnonymousIdentityToken:
		if t.PolicyID == anonymousPolicy {
			return s.anonymous()
		}
	case *ua.UserNameIdentityToken:
		return s.userName(t, nonce)
	case *ua.X509IdentityToken:
		who, code := s.certificate(ch, nonce, t, req.UserTokenSignature)
		return who, nil, code
	}
	return nil, nil, ua.StatusBadIdentityTokenInvalid
}

func (s *Server) anonymous() (*identity, *login, ua.StatusCode) {
	a := s.access.Load()
	if a.anonymous == 0 {
		return nil, nil, ua.StatusBadIdentityTokenRejected
	}
	return a.nobody, nil, ua.StatusGood
}

// login is a user name whose password has to be checked.
type login struct {
	user   string
	secret []byte
	sealed bool   // secret is an RsaEncryptedSecret
	policy string // by which it is encrypted
	nonce  []byte // the server's, which the secret has to hold
}

// userName checks the form of a token (Part 4, 7.40.4). The secret comes in the format of old, with the algorithm, or as an
// EncryptedSecret, which names its policy itself. A password in clear text is refused everywhere.
func (s *Server) userName(t *ua.UserNameIdentityToken, nonce []byte) (*identity, *login, ua.StatusCode) {
	policy := s.tokenPolicy(userNamePolicy, t.PolicyID)
	sealed := t.EncryptionAlgorithm == "" && channel.IsEncryptedSecret(t.Password)
	if policy == "" || t.UserName == "" || len(t.UserName) > maxName || !sealed && t.EncryptionAlgorithm != channel.SecretAlgorithm(policy) {
		return nil, nil, ua.StatusBadIdentityTokenInvalid
	}
	return nil, &login{user: t.UserName, secret: t.Password, sealed: sealed, policy: policy, nonce: nonce}, ua.StatusGood
}

// check finds the user of a login. Whatever is wrong with it takes the same time and is answered alike: a secret that
// cannot be decrypted is checked as a wrong password.
func (s *Server) check(ctx context.Context, ch *channel.Channel, l *login) (*identity, error) {
	password := l.password(ch)
	u, _ := s.access.Load().byName(l.user)
	err := s.door.Try(ctx, &session.Attempt{User: l.user, Hash: u.Password, Password: password, From: origins(ch)})
	if err != nil {
		return nil, err
	}
	return &identity{by: byName, user: u.Name, rights: u.Rights}, nil
}

// password is what the secret holds, or nil where it cannot be read or is not for this session.
func (l *login) password(ch *channel.Channel) []byte {
	if l.sealed {
		secret, nonce, err := ch.DecryptSecret(l.policy, l.secret)
		if err != nil || len(l.nonce) == 0 || subtle.ConstantTimeCompare(nonce, l.nonce) != 1 {
			return nil
		}
		return secret
	}
	secret, err := ch.Decrypt(l.policy, l.secret)
	if err != nil {
		return nil
	}
	password, _ := session.PasswordOf(secret, l.nonce)
	return password
}

// origins are where a log-in comes from: a trusted certificate, or else the address. Of an address all certificates
// together are bounded too, where anybody's is trusted.
func origins(ch *channel.Channel) []session.Origin {
	at := addressOf(ch.RemoteAddr())
	if der := ch.ClientCertificate(); der != nil {
		return []session.Origin{
			{Name: "certificate " + pki.ThumbprintOf(der).String(), Limit: mayFail}, {Name: "all at " + at, Limit: mayFailTogether},
		}
	}
	return []session.Origin{{Name: "address " + at, Limit: mayFail}}
}

// addressOf is an address without its port; of IPv6 the network, whose addresses one machine has to choose from.
func addressOf(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return a.String()
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}

// certificate finds the user of a certificate (Part 4, 7.40.5), who has signed the server's certificate and last nonce.
func (s *Server) certificate(ch *channel.Channel, nonce []byte, t *ua.X509IdentityToken, sig *ua.SignatureData) (*identity, ua.StatusCode) {
	policy := s.tokenPolicy(certificatePolicy, t.PolicyID)
	if policy == "" {
		return nil, ua.StatusBadIdentityTokenInvalid
	}
	chain, err := pki.Parse(t.CertificateData)
	if err != nil {
		return nil, ua.StatusBadIdentityTokenInvalid
	}
	cert := chain[0]
	if !channel.StrengthOf(policy).Fits(cert) {
		return nil, ua.StatusBadIdentityTokenInvalid
	}
	print := pki.ThumbprintOf(cert.Raw)
	u, err := s.certificateUser(chain, policy)
	if err != nil {
		if s.auditor.take(1) > 0 {
			s.auditUntrusted(cert.Raw, err)
		}
		s.refusals.sayAt(s.log, slog.LevelWarn, "a user's certificate is not taken", "from", ch.RemoteAddr(), "why", err)
		return nil, ua.StatusBadIdentityTokenRejected
	}
	if channel.VerifyBy(policy, cert, sig, ch.ServerCertificate(), nonce) != nil {
		return nil, ua.StatusBadUserSignatureInvalid
	}
	who := &identity{by: byCertificate, user: u.Name, print: print, policy: policy, rights: u.Rights}
	for _, c := range chain {
		who.chain = append(who.chain, c.Raw...)
	}
	return who, ua.StatusGood
}

// certificateUser finds whose a certificate is. One that a user has by its thumbprint is trusted by that; of any other
// UserTrust decides, and its common name names the user.
func (s *Server) certificateUser(chain []*x509.Certificate, policy string) (User, error) {
	cert, now, may := chain[0], time.Now(), s.access.Load()
	u, named := may.byCertificate(pki.ThumbprintOf(cert.Raw))
	switch trust := s.cfg.UserTrust; {
	case named && trust != nil:
		return u, trust.CheckNamed(chain, channel.StrengthOf(policy), now)
	case named && !now.Before(cert.NotBefore) && !now.After(cert.NotAfter):
		return u, nil
	case trust == nil:
		return u, errNoUser
	default:
		if err := trust.Check(chain, channel.StrengthOf(policy), now); err != nil {
			return User{}, err
		}
	}
	if u, named = may.byCommonName(cert.Subject.CommonName); !named {
		return u, errNoUser
	}
	return u, nil
}

var errNoUser = errors.New("no user has this certificate")

func (a *access) byCommonName(name string) (User, bool) {
	if a.users == nil || name == "" {
		return User{}, false
	}
	return a.users.ByCommonName(name)
}

func (a *access) byName(name string) (User, bool) {
	if a.users == nil {
		return User{}, false
	}
	return a.users.ByName(name)
}

func (a *access) byCertificate(print pki.Thumbprint) (User, bool) {
	if a.users == nil {
		return User{}, false
	}
	return a.users.ByCertificate(print)
}

// find is the user of an identity as he is now; false: he may no longer log in.
func (a *access) find(who *identity) (rights address.Rights, ok bool) {
	var u User
	switch who.by {
	case byNobody:
		return a.anonymous &^ address.MayAudit, a.anonymous != 0
	case byCertificate:
		if u, ok = a.byCertificate(who.print); !ok {
			u, ok = a.byCommonName(who.user)
		}
	default:
		u, ok = a.byName(who.user)
	}
	return u.Rights, ok && u.Name == who.user
}

// Authorize replaces Config.Anonymous and Config.Users, for sessions that there are as CheckUsers does, and has all of them
// follow Permissions of nodes that have changed.
func (s *Server) Authorize(anonymous address.Rights, users Users) {
	s.access.Store(newAccess(anonymous, users))
	for _, cl := range s.clients() {
		s.checkUser(cl, true)
	}
}

// CheckUsers looks at the users of all sessions again: the sessions of one who was removed end, and one whose roles changed
// has the new ones at once, in his subscriptions too. Waiting Publish requests of a session that ends are answered
// BadSessionClosed, what comes later BadSessionIdInvalid.
func (s *Server) CheckUsers() {
	for _, cl := range s.clients() {
		s.checkUser(cl, false)
	}
}

// checkUser looks at one session's user. all says that nodes may have changed too.
func (s *Server) checkUser(cl *client, all bool) {
	cl.entering.Lock()
	defer cl.entering.Unlock()
	who := cl.who.Load()
	if who == nil {
		return
	}
	allowed, ok := s.access.Load().find(who)
	if !ok {
		s.sessions.Revoke(cl.Session)
		return
	}
	if allowed == who.rights && !all {
		return
	}
	now := *who
	now.rights = allowed
	rights := now.rights | address.Exposed
	s.mu.Lock()
	ch := cl.ch
	if ch != nil {
		rights = now.on(ch)
	}
	s.mu.Unlock()
	cl.who.Store(&now)
	cl.rights.Store(uint32(rights))
	cl.pub.SetRights(rights)
	if allowed != who.rights {
		s.log.Info("rights of a session changed", "session", cl.Peer.Name, "user", who.String(), "roles", allowed.Roles().String())
	}
}

// owner is whom a session acts for when it comes to its Subscriptions.
func (c *client) owner(who *identity, ch *channel.Channel) subscription.Owner {
	return subscription.Owner{
		User: who.user, Application: c.Peer.ApplicationURI, Signed: ch.Mode() != ua.MessageSecurityModeNone,
	}
}

// checkUserTrust ends the sessions of users whose certificates are taken no more.
func (s *Server) checkUserTrust() {
	for _, cl := range s.clients() {
		who := cl.who.Load()
		if who == nil || who.by != byCertificate {
			continue
		}
		chain, err := pki.Parse(who.chain)
		if err == nil {
			_, err = s.certificateUser(chain, who.policy)
		}
		if err != nil {
			s.log.Warn("session ends: its user's certificate is taken no more", "session", cl.Peer.Name, "user", who.user, "why", err)
			s.sessions.Revoke(cl.Session)
		}
	}
}

// loginStatus is what a client is told of a log-in that failed.
func loginStatus(err error) ua.StatusCode {
	if errors.Is(err, session.ErrBusy) {
		return statusBadServerTooBusy
	}
	return ua.StatusBadIdentityTokenRejected
}

// refused logs that a session was not activated. user is as the client gave it, "" if it gave none.
func (s *Server) refused(cl *client, ch *channel.Channel, user string, why any) {
	s.rejected.securitySessions.Add(1)
	code, ok := why.(ua.StatusCode)
	if !ok {
		code = ua.StatusBadIdentityTokenRejected
	}
	s.auditSession(id.AuditActivateSessionEventType, ch, cl, "", user, code)
	s.refusals.sayAt(s.log, slog.LevelWarn, "session not activated", "session", cl.Peer.Name, "client", cl.Peer.ApplicationName,
		"user", user, "from", ch.RemoteAddr(), "why", why)
}
