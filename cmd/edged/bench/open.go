package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"

	"edged/uaserver/channel"
	"edged/uaserver/pki"
	"edged/uaserver/wire"
)

const (
	clientURI   = "urn:edged:bench"
	keySize     = 2048
	nonceSize   = 32
	lifetime    = time.Hour // asked for a token and a session
	anonymousID = "anonymous"
)

// peer is a server and how it is to be talked to.
type peer struct {
	url  string
	addr string // host:port
	uri  string // security policy
	mode ua.MessageSecurityMode

	// With a policy but None.
	der    []byte // of this client
	asym   *uapolicy.EncryptionAlgorithm
	key    *rsa.PrivateKey
	server []byte // the server's certificate
}

// newPeer finds out what it takes to talk to a server by a policy; with None, nothing is sent.
func newPeer(ctx context.Context, target, security string) (*peer, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "opc.tcp" || u.Port() == "" {
		return nil, fmt.Errorf("%s is not the URL of an OPC UA server: it is opc.tcp://HOST:PORT", target)
	}
	p := &peer{url: target, addr: u.Host, uri: ua.SecurityPolicyURINone, mode: ua.MessageSecurityModeNone}
	if security == SecurityNone {
		return p, nil
	}
	endpoints, err := p.endpoints(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: endpoints: %w", target, err)
	}
	uri := ua.FormatSecurityPolicyURI(security)
	i := slices.IndexFunc(endpoints, func(e *ua.EndpointDescription) bool {
		return e.SecurityPolicyURI == uri && e.SecurityMode == ua.MessageSecurityModeSignAndEncrypt
	})
	if i < 0 {
		return nil, fmt.Errorf("%s offers no endpoint with %s and SignAndEncrypt: name another one with --security", target, security)
	}
	p.uri, p.mode = uri, ua.MessageSecurityModeSignAndEncrypt
	return p, p.certificates(endpoints[i].ServerCertificate)
}

// certificates makes this client's certificate and what encrypts for the server.
func (p *peer) certificates(server []byte) error {
	cert, err := x509.ParseCertificate(server)
	if err != nil {
		return fmt.Errorf("the server's certificate: %w", err)
	}
	public, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok {
		return errors.New("the server's certificate has no RSA key")
	}
	p.server = server
	if p.key, err = rsa.GenerateKey(rand.Reader, keySize); err != nil {
		return err
	}
	p.der, err = pki.Make(p.key, pki.Identity{ApplicationURI: clientURI, Name: "edged bench", Hosts: pki.Hosts()}, time.Now())
	if err != nil {
		return err
	}
	p.asym, err = uapolicy.Asymmetric(p.uri, p.key, public)
	return err
}

// endpoints asks the server for them, over a channel of its own.
func (p *peer) endpoints(ctx context.Context) ([]*ua.EndpointDescription, error) {
	c, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.sock.Close()
	v, err := c.call(&ua.GetEndpointsRequest{EndpointURL: p.url})
	if err != nil {
		return nil, err
	}
	return v.(*ua.GetEndpointsResponse).Endpoints, nil
}

// dial connects and opens a channel. ctx bounds that alone.
func (p *peer) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var d net.Dialer
	sock, err := d.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, err
	}
	end, _ := ctx.Deadline()
	sock.SetDeadline(end)
	c := &conn{sock: newSocket(sock), peer: p, in: inputs.Get().(*[bufferSize]byte)[:], chunk: bufferSize}
	if err := c.hello(); err != nil {
		sock.Close()
		return nil, fmt.Errorf("%s: hello: %w", p.addr, err)
	}
	if err := c.issue(); err != nil {
		sock.Close()
		return nil, fmt.Errorf("%s: channel: %w", p.addr, err)
	}
	sock.SetDeadline(time.Time{})
	return c, nil
}

// hello exchanges Hello and Acknowledge (Part 6, 7.1.2).
func (c *conn) hello() error {
	b := []byte("HELF\x00\x00\x00\x00")
	for _, v := range []uint32{0, bufferSize, bufferSize, maxMessage, 0} {
		b = wire.AppendUint32(b, v)
	}
	b = wire.AppendString(b, c.peer.url)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	if _, err := c.sock.Write(b); err != nil {
		return err
	}
	b, err := c.next()
	switch {
	case err != nil:
		return err
	case string(b[:4]) != "ACKF" || len(b) < 28:
		return peerError(b)
	}
	c.chunk = min(bufferSize, int(binary.LittleEndian.Uint32(b[12:])))
	if c.chunk < 1024 {
		return fmt.Errorf("a buffer of %d bytes", c.chunk)
	}
	c.body = channel.ChunkBody(c.chunk, c.peer.mode)
	return nil
}

// issue opens the channel.
func (c *conn) issue() error {
	if err := c.sendOpen(ua.SecurityTokenRequestTypeIssue, time.Now()); err != nil {
		return err
	}
	b, err := c.next()
	if err != nil {
		return err
	}
	if string(b[:3]) != "OPN" {
		return peerError(b)
	}
	return c.opened(b)
}

// renew asks for a new token; receive takes it in, and until then the old one serves.
func (c *conn) renew(now time.Time) error {
	c.renewal = now.Add(lifetime) // asked once
	return c.sendOpen(ua.SecurityTokenRequestTypeRenew, now)
}

func (c *conn) sendOpen(kind ua.SecurityTokenRequestType, now time.Time) error {
	if c.peer.asym != nil {
		c.nonce = make([]byte, nonceSize)
		rand.Read(c.nonce)
	}
	c.id++
	body := wire.AppendMessage(nil, &ua.OpenSecureChannelRequest{
		RequestHeader: header(wire.NodeID{}, c.id, now), RequestType: kind, SecurityMode: c.peer.mode, ClientNonce: c.nonce,
		RequestedLifetime: uint32(lifetime.Milliseconds()),
	})
	b := []byte("OPNF\x00\x00\x00\x00")
	b = wire.AppendUint32(b, c.channel)
	b = wire.AppendString(b, c.peer.uri)
	if c.peer.asym == nil {
		b = wire.AppendNull(wire.AppendNull(b))
	} else {
		b = wire.AppendByteString(b, c.peer.der)
		b = wire.AppendByteString(b, uapolicy.Thumbprint(c.peer.server))
	}
	start := len(b)
	c.seq++
	b = wire.AppendUint32(b, c.seq)
	b = wire.AppendUint32(b, c.id)
	b, err := c.peer.seal(append(b, body...), start)
	if err != nil {
		return err
	}
	_, err = c.sock.Write(b)
	return err
}

func header(session wire.NodeID, handle uint32, now time.Time) *ua.RequestHeader {
	return &ua.RequestHeader{
		AuthenticationToken: wire.ToUA(session), Timestamp: now, RequestHandle: handle, TimeoutHint: uint32(patience.Milliseconds()),
	}
}

// opened takes in an OpenSecureChannel response: the channel and its token, which is used from now on.
func (c *conn) opened(b []byte) error {
	r := wire.NewReader(b[8:])
	r.Skip(4) // the channel's id stands in the body, too
	r.ByteString()
	r.ByteString()
	r.ByteString()
	if r.Err() != nil {
		return errCut
	}
	plain, err := c.peer.unseal(b, 8+r.Offset())
	if err != nil {
		return err
	}
	if err := c.order(binary.LittleEndian.Uint32(plain)); err != nil {
		return err
	}
	v, err := decode(plain[8:])
	if err != nil {
		return err
	}
	resp, ok := v.(*ua.OpenSecureChannelResponse)
	if !ok || resp.SecurityToken == nil {
		return fmt.Errorf("%T instead of a channel", v)
	}
	t := token{id: resp.SecurityToken.TokenID}
	if c.peer.asym != nil {
		if t.keys, err = channel.NewPeerKeys(c.peer.uri, c.nonce, resp.ServerNonce, c.peer.mode); err != nil {
			return err
		}
	}
	c.channel = resp.SecurityToken.ChannelID
	c.recv = [2]token{t, c.recv[0]}
	c.send = t
	// Three quarters of its lifetime is when a client should renew (Part 4, 5.5.2.1).
	c.renewal = time.Now().Add(time.Duration(resp.SecurityToken.RevisedLifetime) * time.Millisecond / 4 * 3)
	return nil
}

// seal pads, signs and encrypts b from start on, and sets its size (Part 6, 6.7.2 and 6.7.4).
func (p *peer) seal(b []byte, start int) ([]byte, error) {
	if p.asym == nil {
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
		return b, nil
	}
	block, width := p.asym.PlaintextBlockSize(), paddingWidth(p.asym.BlockSize())
	n := len(b) - start + width + p.asym.SignatureLength()
	pad := (block - n%block) % block
	b = append(b, bytes.Repeat([]byte{byte(pad)}, pad+1)...)
	if width == 2 {
		b = append(b, byte(pad>>8))
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(start+(n+pad)/block*p.asym.BlockSize()))
	sig, err := p.asym.Signature(b)
	if err != nil {
		return nil, err
	}
	sealed, err := p.asym.Encrypt(append(b, sig...)[start:])
	return append(b[:start:start], sealed...), err
}

// unseal is the opposite of seal: it returns sequence header and body.
func (p *peer) unseal(b []byte, start int) ([]byte, error) {
	plain := b[start:]
	if p.asym != nil {
		var err error
		if plain, err = p.asym.Decrypt(plain); err != nil {
			return nil, err
		}
		n := len(plain) - p.asym.RemoteSignatureLength()
		if n < 0 {
			return nil, errInsecure
		}
		if err := p.asym.VerifySignature(slices.Concat(b[:start], plain[:n]), plain[n:]); err != nil {
			return nil, err
		}
		width := paddingWidth(p.key.Size())
		if plain = plain[:n]; n < width {
			return nil, errInsecure
		}
		pad := int(plain[n-1])
		if width == 2 {
			pad = pad<<8 | int(plain[n-2])
		}
		plain = plain[:max(0, n-width-pad)]
	}
	if len(plain) < 8 {
		return nil, errCut
	}
	return plain, nil
}

// paddingWidth is 2 with keys of more than 2048 bits, which make ExtraPaddingSize necessary (Part 6, 6.7.2.5).
func paddingWidth(key int) int {
	if key > 256 {
		return 2
	}
	return 1
}

// decode reads a response with its type's id, and turns one that is not good into its status.
func decode(b []byte) (ua.Response, error) {
	r := wire.NewReader(b)
	kind := r.NodeID()
	v, err := wire.DecodeMessage(kind.Num, &r)
	if err != nil {
		return nil, err
	}
	resp, ok := v.(ua.Response)
	if !ok || resp.Header() == nil {
		return nil, fmt.Errorf("%T is no response", v)
	}
	if code := resp.Header().ServiceResult; code&severe != 0 {
		return nil, code
	}
	return resp, nil
}

// call carries out one request, by the structs of gopcua: for what is done once a session.
func (c *conn) call(q ua.Request) (ua.Response, error) {
	c.sock.SetDeadline(time.Now().Add(patience))
	defer c.sock.SetDeadline(time.Time{})
	c.id++
	q.SetHeader(header(c.session, c.id, time.Now()))
	if err := c.write("MSG", wire.AppendMessage(nil, q)); err != nil {
		return nil, err
	}
	id, body, err := c.receive()
	if err != nil {
		return nil, err
	}
	if id != c.id {
		return nil, fmt.Errorf("the answer to request %d, not to %d", id, c.id)
	}
	return decode(body)
}

// open opens a session.
func (p *peer) open(ctx context.Context, name string) (*conn, error) {
	c, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	// A call ends when ctx does.
	stop := context.AfterFunc(ctx, func() { c.sock.Close() })
	defer stop()
	if err := c.login(name); err != nil {
		c.sock.Close()
		return nil, fmt.Errorf("%s: session: %w", p.addr, err)
	}
	return c, nil
}

// login creates and activates a session (Part 4, 5.6.2 and 5.6.3).
func (c *conn) login(name string) error {
	nonce := make([]byte, nonceSize)
	rand.Read(nonce)
	v, err := c.call(&ua.CreateSessionRequest{
		ClientDescription: &ua.ApplicationDescription{
			ApplicationURI: clientURI, ProductURI: clientURI, ApplicationName: ua.NewLocalizedText("edged bench"),
			ApplicationType: ua.ApplicationTypeClient,
		},
		EndpointURL: c.peer.url, SessionName: name, ClientNonce: nonce, ClientCertificate: c.peer.der,
		RequestedSessionTimeout: float64(lifetime.Milliseconds()),
	})
	if err != nil {
		return err
	}
	created, ok := v.(*ua.CreateSessionResponse)
	if !ok {
		return fmt.Errorf("%T instead of a session", v)
	}
	c.session = wire.FromUA(created.AuthenticationToken)
	signature := &ua.SignatureData{}
	if c.peer.asym != nil {
		signature.Algorithm = c.peer.asym.SignatureURI()
		if signature.Signature, err = c.peer.asym.Signature(slices.Concat(c.peer.server, created.ServerNonce)); err != nil {
			return err
		}
	}
	_, err = c.call(&ua.ActivateSessionRequest{
		ClientSignature:    signature,
		UserIdentityToken:  ua.NewExtensionObject(&ua.AnonymousIdentityToken{PolicyID: c.peer.anonymous(created.ServerEndpoints)}),
		UserTokenSignature: &ua.SignatureData{},
	})
	return err
}

// anonymous is the id under which the server takes users without a name.
func (p *peer) anonymous(endpoints []*ua.EndpointDescription) string {
	for _, e := range endpoints {
		if e.SecurityPolicyURI != p.uri || e.SecurityMode != p.mode {
			continue
		}
		for _, t := range e.UserIdentityTokens {
			if t.TokenType == ua.UserTokenTypeAnonymous {
				return t.PolicyID
			}
		}
	}
	return anonymousID
}

// close ends session, channel and connection.
func (c *conn) close() error {
	defer c.sock.Close()
	if _, err := c.call(&ua.CloseSessionRequest{DeleteSubscriptions: true}); err != nil {
		return err
	}
	c.id++
	return c.write("CLO", wire.AppendMessage(nil, &ua.CloseSecureChannelRequest{RequestHeader: header(wire.NodeID{}, c.id, time.Now())}))
}
