package channel

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/pki"
	"edged/uaserver/wire"
)

const (
	maxPolicy = 255 // bytes of a SecurityPolicyUri (Part 6, 6.7.2.3)
	// maxBlocks bounds the RSA blocks of an OpenSecureChannel request: an honest one has two to four, and each costs a
	// private key operation.
	maxBlocks = 6
)

// openRequest is what counts in an OpenSecureChannel request.
type openRequest struct {
	policy      *policy
	own         *pki.Own // nil: there is none
	certificate []byte
	issuers     []byte
	asymmetric  *asymmetric // nil with policy None
	seq, id     uint32
	handle      uint32
	renew       bool
	mode        ua.MessageSecurityMode
	nonce       []byte // aliases the message
	life        time.Duration
}

// open answers an OpenSecureChannel request (Part 4, 5.5.2; Part 6, 6.7.4): a new channel, or a new token for it.
func (c *Channel) open(b []byte) error {
	var q openRequest
	plain, err := c.openSecurity(b, &q)
	if err != nil {
		return err
	}
	if err := c.openBody(plain, &q); err != nil {
		return err
	}
	if err := c.openAllowed(&q); err != nil {
		return err
	}
	t := &token{id: c.in.tokens + 1, created: time.Now(), life: q.life}
	nonce := make([]byte, q.policy.nonce)
	rand.Read(nonce)
	if q.policy.nonce > 0 {
		if err := t.recv.derive(q.policy, nonce, q.nonce, q.mode, cipher.NewCBCDecrypter); err != nil {
			return insecure("keys: %v", err)
		}
		if err := t.send.derive(q.policy, q.nonce, nonce, q.mode, cipher.NewCBCEncrypter); err != nil {
			return insecure("keys: %v", err)
		}
		c.in.nonce = bytes.Clone(q.nonce)
	}
	c.in.tokens++
	if q.renew {
		c.in.next = t
		c.in.expire = t.end()
		return c.sendOpen(&q, t, nonce)
	}
	c.policy, c.mode, c.own, c.certificate, c.issuers = q.policy, q.mode, q.own, c.s.share(q.certificate), q.issuers
	c.body = c.policy.bodySize(c.chunk, c.mode)
	c.in.token = t
	c.in.expire = t.end()
	c.id = c.s.nextID()
	c.s.mu.Lock()
	c.opened = true
	c.s.mu.Unlock()
	if o, ok := c.s.handler.(Opener); ok {
		o.Opened(c)
	}
	level := slog.LevelInfo
	if q.certificate == nil {
		level = slog.LevelDebug // anybody can open one; the log is not theirs to fill
	}
	c.log().Log(context.Background(), level, "channel opened", "channel", c.id, "policy", c.policy.uri, "mode", c.mode, "certificate", thumbprint(c.certificate), "lifetime", t.life)
	return c.sendOpen(&q, t, nonce)
}

func thumbprint(der []byte) string {
	if der == nil {
		return ""
	}
	return pki.ThumbprintOf(der).String()
}

// openSecurity reads the asymmetric security header and opens what it secures: the sequence header and the body. The order
// of the checks is that of Part 6, 6.7.7; no private key operation is spent on a certificate that is not trusted.
func (c *Channel) openSecurity(b []byte, q *openRequest) ([]byte, error) {
	r := wire.NewReader(b[messageHeader:])
	channel := r.Uint32()
	uri, certificate, receiver := r.ByteString(), r.ByteString(), r.ByteString()
	if r.Err() != nil || len(uri) > maxPolicy {
		return nil, faultf(ua.StatusBadDecodingError, "security header cannot be read")
	}
	if channel != c.id {
		return nil, faultf(ua.StatusBadTCPSecureChannelUnknown, "channel %d is not of this connection", channel)
	}
	q.policy = policies[string(uri)]
	if q.own = c.own; c.id == 0 {
		q.own = c.s.own()
	}
	if q.policy == nil || !c.s.offers(q.policy.uri, q.own) {
		return nil, faultf(ua.StatusBadSecurityPolicyRejected, "security policy %.255q is not offered", uri)
	}
	if c.id != 0 && q.policy != c.policy {
		return nil, insecure("renewal with another security policy")
	}
	header := messageHeader + r.Offset()
	if q.policy.nonce == 0 {
		return b[header:], nil
	}
	if print := q.own.Thumbprint(); !bytes.Equal(receiver, print[:]) {
		return nil, faultf(ua.StatusBadCertificateInvalid, "receiver certificate is not this server's")
	}
	if err := c.openCertificate(certificate, q); err != nil {
		return nil, err
	}
	return c.decrypt(b, header, q.asymmetric)
}

// openCertificate checks the client's certificate, at every renewal again (Part 4, 6.1.7).
func (c *Channel) openCertificate(b []byte, q *openRequest) error {
	chain, err := pki.Parse(b)
	if err != nil {
		return untrusted(err)
	}
	if c.id != 0 && !bytes.Equal(chain[0].Raw, c.certificate) {
		return insecure("renewal with another certificate")
	}
	if err := c.s.cfg.Trust.Check(chain, q.policy.strength, time.Now()); err != nil {
		return untrusted(err)
	}
	if q.certificate = c.certificate; c.id == 0 {
		q.certificate = chain[0].Raw
		for _, issuer := range chain[1:] {
			q.issuers = append(q.issuers, issuer.Raw...)
		}
	}
	peer, ok := chain[0].PublicKey.(*rsa.PublicKey)
	if !ok {
		return insecure("certificate %v: %v", pki.ThumbprintOf(chain[0].Raw), errNotRSA)
	}
	q.asymmetric = &asymmetric{policy: q.policy, own: q.own.Key(), peer: peer}
	return nil
}

// decrypt opens the asymmetrically secured part of b, which begins at header (Part 6, 6.7.2 and 6.7.4).
func (c *Channel) decrypt(b []byte, header int, asym *asymmetric) ([]byte, error) {
	block := asym.own.Size()
	sealed := b[header:]
	if len(sealed) == 0 || len(sealed)%block != 0 || len(sealed)/block > maxBlocks {
		return nil, insecure("encrypted part of %d bytes is not 1 to %d blocks of %d", len(sealed), maxBlocks, block)
	}
	var plain []byte
	err := c.inTurn(func() (err error) {
		plain, err = asym.open(sealed)
		return err
	})
	if err == ErrClosed {
		return nil, err
	}
	if err != nil {
		return nil, insecure("decryption: %v", err)
	}
	n := len(plain) - asym.peer.Size()
	if n < seqSize {
		return nil, insecure("encrypted part is too short")
	}
	signed := append(slices.Clone(b[:header]), plain[:n]...)
	if err := asym.verify(signed, plain[n:]); err != nil {
		return nil, insecure("signature: %v", err)
	}
	plain, ok := unpad(plain[:n], paddingWidth(block))
	if !ok {
		return nil, insecure("padding is broken")
	}
	return plain, nil
}

// paddingWidth is 2 where a key of more than 2048 bits makes ExtraPaddingSize necessary (Part 6, 6.7.2.5).
func paddingWidth(keySize int) int {
	if keySize > 256 {
		return 2
	}
	return 1
}

// openBody reads sequence header and body.
func (c *Channel) openBody(plain []byte, q *openRequest) error {
	r := wire.NewReader(plain)
	q.seq, q.id = r.Uint32(), r.Uint32()
	if r.Err() == nil && c.id != 0 {
		if err := c.in.sequence(q.seq); err != nil {
			return err
		}
	}
	kind := r.NodeID()
	if r.Err() == nil && kind != wire.NumericID(0, id.OpenSecureChannelRequest_Encoding_DefaultBinary) {
		return faultf(ua.StatusBadTCPMessageTypeInvalid, "message is not an OpenSecureChannel request")
	}
	h := r.RequestHeader()
	r.Uint32() // ClientProtocolVersion: what Hello said counts
	kindOf, mode := r.Uint32(), r.Uint32()
	q.nonce = r.ByteString()
	life := time.Duration(r.Uint32()) * time.Millisecond
	if r.Err() != nil {
		return faultf(ua.StatusBadDecodingError, "OpenSecureChannel request cannot be read")
	}
	if kindOf > uint32(ua.SecurityTokenRequestTypeRenew) {
		return faultf(ua.StatusBadRequestTypeInvalid, "request type %d is neither issue nor renew", kindOf)
	}
	c.in.seq = q.seq
	q.handle = h.Handle
	q.renew = kindOf == uint32(ua.SecurityTokenRequestTypeRenew)
	q.mode = ua.MessageSecurityMode(mode)
	l := &c.s.cfg.Limits
	if life == 0 {
		life = l.MaxLifetime
	}
	q.life = min(max(life, l.MinLifetime), l.MaxLifetime)
	return nil
}

// openAllowed checks the request against what is offered and against the channel.
func (c *Channel) openAllowed(q *openRequest) error {
	if q.renew != (c.id != 0) {
		return faultf(ua.StatusBadTCPSecureChannelUnknown, "a connection has one channel: it is issued once, then renewed")
	}
	if !c.s.offersMode(q.policy.uri, q.mode) {
		return faultf(ua.StatusBadSecurityModeRejected, "security mode %d is not offered with this policy", q.mode)
	}
	if q.renew && q.mode != c.mode {
		return faultf(ua.StatusBadSecurityModeRejected, "renewal with another security mode")
	}
	if n := q.policy.nonce; n > 0 && (len(q.nonce) != n || bytes.Equal(q.nonce, c.in.nonce)) {
		return faultf(ua.StatusBadNonceInvalid, "nonce must be %d new random bytes", n)
	}
	return nil
}

// sendOpen sends the OpenSecureChannel response. With it a new channel begins to send; a renewed one keeps its token until
// the client uses the new one (Part 6, 6.7.3).
func (c *Channel) sendOpen(q *openRequest, t *token, nonce []byte) error {
	if q.asymmetric != nil {
		// The place is waited for before the lock, which then is held for one operation at most: others reply meanwhile.
		if err := c.turnOf(); err != nil {
			return err
		}
		defer c.s.turnEnds()
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	b := make([]byte, 0, 4096)
	b = append(b, "OPNF\x00\x00\x00\x00"...)
	b = wire.AppendUint32(b, c.id)
	b = wire.AppendString(b, q.policy.uri)
	if q.asymmetric == nil {
		b = wire.AppendNull(wire.AppendNull(b))
	} else {
		print := pki.ThumbprintOf(q.certificate)
		b = wire.AppendByteString(b, q.own.DER())
		b = wire.AppendByteString(b, print[:])
	}
	header := len(b)
	b = wire.AppendUint32(b, c.out.nextSeq())
	b = wire.AppendUint32(b, q.id)
	b = wire.AppendResponseHeader(b, id.OpenSecureChannelResponse_Encoding_DefaultBinary, q.handle, ua.StatusOK, tag.Now())
	b = wire.AppendUint32(b, 0) // ServerProtocolVersion
	b = wire.AppendUint32(b, c.id)
	b = wire.AppendUint32(b, t.id)
	b = wire.AppendTime(b, tag.TimeOf(t.created))
	b = wire.AppendUint32(b, uint32(t.life/time.Millisecond))
	if len(nonce) == 0 {
		b = wire.AppendNull(b)
	} else {
		b = wire.AppendByteString(b, nonce)
	}
	b, err := c.encrypt(b, header, q.asymmetric)
	if err != nil {
		return insecure("response: %v", err)
	}
	if q.renew {
		c.out.next = t
	} else {
		c.out.token = t
	}
	return c.sendLocked(b)
}

// encrypt pads, signs and encrypts b from header on, and sets its size (Part 6, 6.7.2 and 6.7.4). The caller has a place
// for a private key operation.
func (c *Channel) encrypt(b []byte, header int, asym *asymmetric) ([]byte, error) {
	if asym == nil {
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
		return b, nil
	}
	width, block := paddingWidth(asym.peer.Size()), asym.plainBlock()
	n := len(b) - header + width + asym.own.Size()
	pad := (block - n%block) % block
	for range pad + 1 {
		b = append(b, byte(pad))
	}
	if width == 2 {
		b = append(b, byte(pad>>8))
	}
	size := header + (n+pad)/block*asym.peer.Size()
	if size > c.chunk {
		return nil, fmt.Errorf("%d bytes do not fit into the client's buffer of %d", size, c.chunk)
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(size))
	sig, err := asym.sign(b)
	if err != nil {
		return nil, err
	}
	return asym.appendSealed(b[:header:header], append(b[header:], sig...))
}
