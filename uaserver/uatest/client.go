// Package uatest is an OPC UA client for tests that speaks the wire without the server's code: gopcua's codec and policies.
// It hides the conversation, and lets a test break each of its rules.
package uatest

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"
)

// Options are what a Client asks for. Zero values are policy None and no limits.
type Options struct {
	URL       string // opc.tcp://localhost:4840 unless set
	Policy    string // security policy URI
	Mode      ua.MessageSecurityMode
	Identity  *Identity     // certificate and key, where the policy is not None
	Server    []byte        // the server's certificate (DER), likewise
	Lifetime  time.Duration // asked for the security token; an hour unless set
	Receive   uint32        // buffer sizes, 65535 unless set
	Send      uint32
	MaxSize   uint32 // MaxMessageSize
	MaxChunks uint32 // MaxChunkCount
}

// Error is an Error message of the server.
type Error struct {
	Code   ua.StatusCode
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%v: %s", e.Code, e.Reason) }

// Message is a whole message from the server.
type Message struct {
	ID     uint32 // request id
	Token  uint32 // security token of its last chunk
	Chunks int
	Body   []byte // type id and response
	opn    bool
}

// Client is one connection. Its exported fields may be changed between calls, to break rules. Sending and receiving may
// be done by two goroutines.
type Client struct {
	Conn    net.Conn
	Options Options

	Channel   uint32 // SecureChannelId
	Token     uint32 // to send with
	Seq       uint32 // last sent
	ChunkSize int    // of what is sent; the server's receive buffer after Hello
	Lifetime  time.Duration
	Nonce     []byte     // of the next OpenSecureChannel request instead of a random one
	LastSeq   uint32     // last received
	Session   *ua.NodeID // AuthenticationToken of what Call sends; nil: none

	// Of the server's Acknowledge.
	Ack [5]uint32 // version, receive buffer, send buffer, message size, chunk count

	anonymous string // policy id of its token
	nonce     []byte // the session's last from the server

	asym *uapolicy.EncryptionAlgorithm
	mu   sync.Mutex                               // guards syms
	syms map[uint32]*uapolicy.EncryptionAlgorithm // by token
}

// New wraps a connection. Nothing is sent yet.
func New(conn net.Conn, o Options) (*Client, error) {
	if o.URL == "" {
		o.URL = "opc.tcp://localhost:4840"
	}
	if o.Policy == "" {
		o.Policy = ua.SecurityPolicyURINone
	}
	if o.Mode == 0 {
		o.Mode = ua.MessageSecurityModeNone
	}
	if o.Lifetime == 0 {
		o.Lifetime = time.Hour
	}
	if o.Receive == 0 {
		o.Receive = 65535
	}
	if o.Send == 0 {
		o.Send = 65535
	}
	c := &Client{Conn: conn, Options: o, ChunkSize: int(o.Send), syms: map[uint32]*uapolicy.EncryptionAlgorithm{}}
	if o.Policy == ua.SecurityPolicyURINone {
		return c, nil
	}
	server, err := x509.ParseCertificate(o.Server)
	if err != nil {
		return nil, err
	}
	c.asym, err = uapolicy.Asymmetric(o.Policy, o.Identity.Key, server.PublicKey.(*rsa.PublicKey))
	return c, err
}

// Connect says Hello and opens a channel.
func Connect(conn net.Conn, o Options) (*Client, error) {
	c, err := New(conn, o)
	if err != nil {
		return nil, err
	}
	if err := c.Hello(); err != nil {
		return nil, err
	}
	return c, c.Open(ua.SecurityTokenRequestTypeIssue)
}

// Close closes the connection.
func (c *Client) Close() { c.Conn.Close() }

// HelloMessage is the Hello that the options ask for.
func (c *Client) HelloMessage() []byte {
	b := []byte("HELF\x00\x00\x00\x00")
	for _, v := range []uint32{0, c.Options.Receive, c.Options.Send, c.Options.MaxSize, c.Options.MaxChunks} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = appendBytes(b, []byte(c.Options.URL))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	return b
}

// Hello says Hello and reads the Acknowledge.
func (c *Client) Hello() error {
	if _, err := c.Conn.Write(c.HelloMessage()); err != nil {
		return err
	}
	kind, b, err := c.ReadChunk()
	if err != nil {
		return err
	}
	if kind != "ACKF" || len(b) != 28 {
		return fmt.Errorf("%q of %d bytes instead of an Acknowledge", kind, len(b))
	}
	for i := range c.Ack {
		c.Ack[i] = binary.LittleEndian.Uint32(b[8+4*i:])
	}
	c.ChunkSize = int(c.Ack[1])
	return nil
}

// Open issues or renews the channel's token, and makes it the one to send with.
func (c *Client) Open(kind ua.SecurityTokenRequestType) error {
	nonce, err := c.SendOpen(kind)
	if err != nil {
		return err
	}
	m, err := c.Receive()
	if err != nil {
		return err
	}
	token, err := c.Opened(m, nonce)
	c.Token = token
	return err
}

// SendOpen sends an OpenSecureChannel request and returns its nonce.
func (c *Client) SendOpen(kind ua.SecurityTokenRequestType) (nonce []byte, err error) {
	if nonce = c.Nonce; nonce == nil && c.asym != nil {
		nonce = make([]byte, c.asym.NonceLength())
		rand.Read(nonce)
	}
	req := &ua.OpenSecureChannelRequest{
		RequestHeader: header(), RequestType: kind, SecurityMode: c.Options.Mode,
		ClientNonce: nonce, RequestedLifetime: uint32(c.Options.Lifetime / time.Millisecond),
	}
	body, err := Encode(req)
	if err != nil {
		return nil, err
	}
	b, err := c.OpenChunk(1, body)
	if err != nil {
		return nil, err
	}
	_, err = c.Conn.Write(b)
	return nonce, err
}

// IsOpen reports whether a message is an OpenSecureChannel response.
func (m *Message) IsOpen() bool { return m.opn }

// Opened takes in an OpenSecureChannel response: the channel's id and the keys of the token, which it returns.
func (c *Client) Opened(m *Message, nonce []byte) (token uint32, err error) {
	v, err := Decode(m.Body)
	if err != nil {
		return 0, err
	}
	resp, ok := v.(*ua.OpenSecureChannelResponse)
	if !ok {
		return 0, fmt.Errorf("%T instead of an OpenSecureChannelResponse", v)
	}
	t := resp.SecurityToken
	if result := resp.ResponseHeader.ServiceResult; result != ua.StatusOK {
		return 0, result
	}
	if c.Channel == 0 {
		c.Channel = t.ChannelID
	}
	c.Lifetime = time.Duration(t.RevisedLifetime) * time.Millisecond
	if c.asym != nil {
		sym, err := uapolicy.Symmetric(c.Options.Policy, nonce, resp.ServerNonce)
		if err != nil {
			return 0, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.syms[t.TokenID] = sym
	}
	return t.TokenID, nil
}

// OpenChunk is an OPN chunk around a body.
func (c *Client) OpenChunk(id uint32, body []byte) ([]byte, error) {
	b := []byte("OPNF\x00\x00\x00\x00")
	b = binary.LittleEndian.AppendUint32(b, c.Channel)
	b = appendBytes(b, []byte(c.Options.Policy))
	if c.asym == nil {
		b = appendBytes(appendBytes(b, nil), nil)
	} else {
		b = appendBytes(b, c.Options.Identity.DER)
		b = appendBytes(b, uapolicy.Thumbprint(c.Options.Server))
	}
	header := len(b)
	c.Seq++
	b = binary.LittleEndian.AppendUint32(b, c.Seq)
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, body...)
	return secure(b, header, c.asym, c.asym != nil)
}

// Chunks splits a body into MSG chunks that fit ChunkSize.
func (c *Client) Chunks(id uint32, body []byte) ([][]byte, error) {
	room := c.ChunkSize - 24
	if c.asym != nil {
		room = (c.ChunkSize-16)/16*16 - 8 - 32 - 1 - 16 // secure pads a full block where none is needed
	}
	var all [][]byte
	for {
		kind, n := "MSGC", room
		if len(body) <= room {
			kind, n = "MSGF", len(body)
		}
		b, err := c.Chunk(kind, id, body[:n])
		if err != nil {
			return nil, err
		}
		all = append(all, b)
		if body = body[n:]; kind == "MSGF" {
			return all, nil
		}
	}
}

// Chunk is one symmetric chunk: kind is MSGF, MSGC, MSGA or CLOF.
func (c *Client) Chunk(kind string, id uint32, body []byte) ([]byte, error) {
	b := append([]byte(kind), 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, c.Channel)
	b = binary.LittleEndian.AppendUint32(b, c.Token)
	c.Seq++
	b = binary.LittleEndian.AppendUint32(b, c.Seq)
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, body...)
	return secure(b, 16, c.sym(c.Token), c.Options.Mode == ua.MessageSecurityModeSignAndEncrypt)
}

// sym is a token's algorithm, or any other where the token is not known: a test that lies about it.
func (c *Client) sym(token uint32) *uapolicy.EncryptionAlgorithm {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.syms[token]; s != nil {
		return s
	}
	for _, s := range c.syms {
		return s
	}
	return nil
}

// secure pads, signs and encrypts what lies behind the header, and sets the size (Part 6, 6.7.2.5).
func secure(b []byte, header int, alg *uapolicy.EncryptionAlgorithm, encrypt bool) ([]byte, error) {
	if alg == nil {
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
		return b, nil
	}
	size := len(b) + alg.SignatureLength()
	if encrypt {
		width := 1
		if alg.BlockSize() > 256 {
			width = 2
		}
		block := alg.PlaintextBlockSize()
		pad := block - (len(b)-header+alg.SignatureLength()+width)%block
		for i := 0; i <= pad; i++ {
			b = append(b, byte(pad))
		}
		if width == 2 {
			b = append(b, byte(pad>>8))
		}
		size = header + (len(b)-header+alg.SignatureLength())/block*alg.BlockSize()
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(size))
	sig, err := alg.Signature(b)
	if err != nil {
		return nil, err
	}
	b = append(b, sig...)
	if !encrypt {
		return b, nil
	}
	sealed, err := alg.Encrypt(b[header:])
	return append(b[:header:header], sealed...), err
}

// unsecure is the opposite of secure: it returns what lies between header and padding.
func unsecure(b []byte, header int, alg *uapolicy.EncryptionAlgorithm, encrypt bool, key int) ([]byte, error) {
	if alg == nil {
		return b[header:], nil
	}
	plain := b[header:]
	if encrypt {
		var err error
		if plain, err = alg.Decrypt(plain); err != nil {
			return nil, err
		}
	}
	n := len(plain) - alg.RemoteSignatureLength()
	if n < 8 {
		return nil, errors.New("secured part is too short")
	}
	if err := alg.VerifySignature(append(bytes.Clone(b[:header]), plain[:n]...), plain[n:]); err != nil {
		return nil, err
	}
	plain = plain[:n]
	if encrypt {
		pad, width := int(plain[n-1]), 1
		if key > 256 {
			pad, width = pad<<8|int(plain[n-2]), 2
		}
		if pad+width > n {
			return nil, errors.New("padding is longer than the message")
		}
		plain = plain[:n-pad-width]
	}
	return plain, nil
}

// Send sends a request's body (type id and request) in as many chunks as it needs.
func (c *Client) Send(id uint32, body []byte) error {
	chunks, err := c.Chunks(id, body)
	if err != nil {
		return err
	}
	_, err = c.Conn.Write(bytes.Join(chunks, nil))
	return err
}

// Receive reads the next whole message: a response, or the *Error that the server ends the connection with.
func (c *Client) Receive() (*Message, error) {
	m := &Message{}
	for {
		kind, b, err := c.ReadChunk()
		if err != nil {
			return nil, err
		}
		if len(b) > int(c.Options.Receive) {
			return nil, fmt.Errorf("chunk of %d bytes for a buffer of %d", len(b), c.Options.Receive)
		}
		plain, err := c.open(kind, b, m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		seq := binary.LittleEndian.Uint32(plain)
		if c.LastSeq != 0 && seq != c.LastSeq+1 {
			return nil, fmt.Errorf("sequence number %d after %d", seq, c.LastSeq)
		}
		c.LastSeq = seq
		m.ID = binary.LittleEndian.Uint32(plain[4:])
		m.Chunks++
		m.Body = append(m.Body, plain[8:]...)
		if kind[3] == 'F' {
			return m, nil
		}
	}
}

func (c *Client) open(kind string, b []byte, m *Message) ([]byte, error) {
	switch kind {
	case "OPNF":
		m.opn = true
		header := 12
		for range 3 {
			n := int32(binary.LittleEndian.Uint32(b[header:]))
			header += 4 + max(0, int(n))
		}
		key := 0
		if c.asym != nil {
			key = c.Options.Identity.Key.Size()
		}
		return unsecure(b, header, c.asym, c.asym != nil, key)
	case "MSGF", "MSGC":
		m.Token = binary.LittleEndian.Uint32(b[12:])
		return unsecure(b, 16, c.sym(m.Token), c.Options.Mode == ua.MessageSecurityModeSignAndEncrypt, 0)
	}
	return nil, errors.New("not a message of a server")
}

// ReadChunk reads one chunk as it is. An Error message is returned as an *Error.
func (c *Client) ReadChunk() (kind string, b []byte, err error) {
	var h [8]byte
	if _, err := io.ReadFull(c.Conn, h[:]); err != nil {
		return "", nil, err
	}
	size := binary.LittleEndian.Uint32(h[4:])
	if size < 8 || size > 1<<20 {
		return "", nil, fmt.Errorf("chunk of %d bytes", size)
	}
	b = make([]byte, size)
	copy(b, h[:])
	if _, err := io.ReadFull(c.Conn, b[8:]); err != nil {
		return "", nil, err
	}
	if string(h[:3]) == "ERR" {
		e := &Error{Code: ua.StatusCode(binary.LittleEndian.Uint32(b[8:]))}
		if n := int32(binary.LittleEndian.Uint32(b[12:])); n > 0 {
			e.Reason = string(b[16:])
		}
		return "", nil, e
	}
	return string(h[:4]), b, nil
}

// Call sends a request and decodes the response with the same request id, passing over others.
func (c *Client) Call(id uint32, req ua.Request) (any, error) {
	if req.Header() == nil {
		req.SetHeader(header())
		if c.Session != nil {
			req.Header().AuthenticationToken = c.Session
		}
	}
	body, err := Encode(req)
	if err != nil {
		return nil, err
	}
	if err := c.Send(id, body); err != nil {
		return nil, err
	}
	for {
		m, err := c.Receive()
		if err != nil {
			return nil, err
		}
		if m.ID == id {
			return Decode(m.Body)
		}
	}
}

func header() *ua.RequestHeader {
	return &ua.RequestHeader{
		AuthenticationToken: ua.NewTwoByteNodeID(0), Timestamp: time.Now(), RequestHandle: 1,
		AdditionalHeader: ua.NewExtensionObject(nil),
	}
}

// Encode is a request or response with its type id, by gopcua's codec.
func Encode(v any) ([]byte, error) {
	id := ua.ServiceTypeID(v)
	if id == 0 {
		return nil, fmt.Errorf("%T is no service message", v)
	}
	head, err := ua.Encode(ua.NewFourByteExpandedNodeID(0, id))
	if err != nil {
		return nil, err
	}
	body, err := ua.Encode(v)
	return append(head, body...), err
}

// Decode is the opposite of Encode.
func Decode(b []byte) (any, error) {
	_, v, err := ua.DecodeService(b)
	return v, err
}

func appendBytes(b, v []byte) []byte {
	if v == nil {
		return append(b, 0xFF, 0xFF, 0xFF, 0xFF)
	}
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
}
