// Package channel is the conversation with one client: OPC UA Connection Protocol and Secure Conversation (Part 6, 7.1 and 6.7).
// It hides hello, open and renewal, chunks, keys and tokens, and a peer that does not keep to them or does not read.
package channel

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/pki"
)

// Channel is a SecureChannel and its connection: one ends with the other.
type Channel struct {
	s      *Server
	conn   net.Conn
	addr   netip.Addr // of the peer, without port; zero if it has none
	number uint64     // order of arrival
	began  time.Time

	opened  bool        // guarded by s.mu; what is set by the read goroutine is there for all
	trusted atomic.Bool // it has an activated session
	closing atomic.Bool // set with out.mu held; nothing more is read or answered
	gone    atomic.Bool // it gave way to another

	// Set by the read goroutine before the Handler hears of the channel, constant afterwards.
	id          uint32
	url         string
	policy      *policy
	mode        ua.MessageSecurityMode
	own         *pki.Own // the gateway's certificate, as it was when the channel was opened; nil: it has none
	certificate []byte   // the client's own
	issuers     []byte   // of it, as the client sent them; nil: none
	chunk       int      // bytes of a chunk that we send
	body        int      // bytes of a message in such a chunk
	maxMessage  int      // bytes of a response that the client takes; 0: no limit
	maxChunks   int      // chunks of a response that the client takes; 0: no limit
	maxChunk    int      // bytes of a chunk that we take

	in  input
	out output
}

// ID is the SecureChannelId.
func (c *Channel) ID() uint32 { return c.id }

// PolicyURI is the channel's security policy.
func (c *Channel) PolicyURI() string { return c.policy.uri }

// Mode is the channel's security mode.
func (c *Channel) Mode() ua.MessageSecurityMode { return c.mode }

// ClientCertificate is the client's own certificate (DER, without its issuers), nil with policy None. It is read only.
func (c *Channel) ClientCertificate() []byte { return c.certificate }

// Own is the gateway's certificate that the channel was opened with, nil where there is none.
func (c *Channel) Own() *pki.Own { return c.own }

// ServerCertificate is Own (DER), nil where there is none. It is read only.
func (c *Channel) ServerCertificate() []byte {
	if c.own == nil {
		return nil
	}
	return c.own.DER()
}

// RemoteAddr is the client's address.
func (c *Channel) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// EndpointURL is the URL that the client named in its Hello.
func (c *Channel) EndpointURL() string { return c.url }

// Sign signs the concatenation of data with the gateway's key, as CreateSession's serverSignature wants it (Part 4,
// 5.6.2). With policy None the signature is empty.
func (c *Channel) Sign(data ...[]byte) (*ua.SignatureData, error) {
	if c.policy.nonce == 0 {
		return &ua.SignatureData{}, nil
	}
	a := asymmetric{policy: c.policy, own: c.own.Key()}
	var sig []byte
	err := c.private(func() (err error) {
		sig, err = a.sign(concat(data))
		return err
	})
	if err != nil {
		return nil, err
	}
	return &ua.SignatureData{Algorithm: a.signature, Signature: sig}, nil
}

// Verify checks a signature by the client's key over the concatenation of data, as ActivateSession's clientSignature is
// (Part 4, 5.6.3). The error is the status to answer: BadApplicationSignatureInvalid. With policy None nothing is signed.
func (c *Channel) Verify(sig *ua.SignatureData, data ...[]byte) error {
	if c.policy.nonce == 0 {
		return nil
	}
	if sig == nil || sig.Algorithm != c.policy.signature {
		return ua.StatusBadApplicationSignatureInvalid
	}
	if aside(func() error { return c.verify(concat(data), sig.Signature) }) != nil {
		return ua.StatusBadApplicationSignatureInvalid
	}
	return nil
}

// verify checks a signature by the client's key, which is taken out of its certificate for it: kept, both would cost an
// idle connection more than this the few that are opened.
func (c *Channel) verify(message, signature []byte) error {
	cert, err := x509.ParseCertificate(c.certificate)
	if err != nil {
		return err
	}
	peer, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok {
		return errNotRSA
	}
	a := asymmetric{policy: c.policy, peer: peer}
	return a.verify(message, signature)
}

// VerifyBy checks a signature by the key of a certificate over the concatenation of data, by the algorithm of a policy: a
// user's (Part 4, 5.6.3.2, userTokenSignature).
func VerifyBy(policyURI string, cert *x509.Certificate, sig *ua.SignatureData, data ...[]byte) error {
	p := policies[policyURI]
	peer, ok := cert.PublicKey.(*rsa.PublicKey)
	if p == nil || p.nonce == 0 || !ok || sig == nil || sig.Algorithm != p.signature {
		return errSignature
	}
	a := asymmetric{policy: p, peer: peer}
	return aside(func() error { return a.verify(concat(data), sig.Signature) })
}

var errSignature = errors.New("channel: not signed by the policy's algorithm")

func concat(data [][]byte) []byte {
	var all []byte
	for _, d := range data {
		all = append(all, d...)
	}
	return all
}

// Trusted lifts the limit on requests from Limits.Login to Limits.Request, and keeps the connection from giving way to
// new ones. It is called when a session was activated on the channel.
func (c *Channel) Trusted() { c.trusted.Store(true) }

// Untrusted takes that back. It is called when the last session of the channel has ended, or has moved to another channel.
func (c *Channel) Untrusted() { c.trusted.Store(false) }

// Close ends the channel after the responses before it were sent. Unless code is Good, the client is told it in an Error
// message (Part 6, 7.1.2.5). Any goroutine may call it; it does not wait.
func (c *Channel) Close(code ua.StatusCode) {
	if code == ua.StatusOK {
		c.end(nil)
		return
	}
	c.end(&fault{code: code})
}

// log tells of the peer. It is made when there is something to tell, which is seldom.
func (c *Channel) log() *slog.Logger { return c.s.cfg.Log.With("remote", remoteOf(c.conn)) }

// run is the life of the connection, in its read goroutine.
func (c *Channel) run() {
	err := c.converse()
	var f *fault
	if errors.As(err, &f) {
		c.s.refusals.log(c.log(), c.addr, f)
		c.end(f)
	} else {
		c.log().Debug("connection ended", "channel", c.id, "reason", err)
	}
	c.finish(f != nil || c.closing.Load())
	if c.id != 0 {
		c.s.handler.Closed(c)
	}
}

// finish closes the connection. polite gives the peer until linger to take what was sent: closing with unread input would
// reset the connection, and the peer would never see why (Part 6, 7.1.2.5 wants it told).
func (c *Channel) finish(polite bool) {
	c.end(nil)
	if polite {
		c.in.discard(c.conn, c.s.linger)
	}
	c.conn.Close()
	c.out.finish()
	c.in.finish()
}

// drop closes the connection at once. Any goroutine may call it.
func (c *Channel) drop(level slog.Level, why string) {
	c.log().Log(context.Background(), level, "connection dropped", "reason", why)
	c.abort()
}
