// Package channel is the conversation with one client: OPC UA Connection Protocol and Secure Conversation (Part 6, 7.1 and 6.7).
// It hides hello, open and renewal, chunks, keys and tokens, and a peer that does not keep to them or does not read.
package channel

import (
	"net"

	"github.com/gopcua/opcua/ua"
)

// Channel is a SecureChannel and its connection: one ends with the other.
type Channel struct{}

// ID is the SecureChannelId.
func (c *Channel) ID() uint32 { return 0 }

// PolicyURI is the channel's security policy.
func (c *Channel) PolicyURI() string { return "" }

// Mode is the channel's security mode.
func (c *Channel) Mode() ua.MessageSecurityMode { return 0 }

// ClientCertificate is the client's own certificate (DER, without its issuers), nil with policy None. It is read only.
func (c *Channel) ClientCertificate() []byte { return nil }

// ServerCertificate is the gateway's certificate (DER), nil where there is none. It is read only.
func (c *Channel) ServerCertificate() []byte { return nil }

// RemoteAddr is the client's address.
func (c *Channel) RemoteAddr() net.Addr { return nil }

// EndpointURL is the URL that the client named in its Hello.
func (c *Channel) EndpointURL() string { return "" }

// Sign signs the concatenation of data with the gateway's key, as CreateSession's serverSignature wants it (Part 4,
// 5.6.2). With policy None the signature is empty.
func (c *Channel) Sign(data ...[]byte) (*ua.SignatureData, error) { return nil, nil }

// Verify checks a signature by the client's key over the concatenation of data, as ActivateSession's clientSignature is
// (Part 4, 5.6.3). The error is the status to answer: BadApplicationSignatureInvalid.
func (c *Channel) Verify(sig *ua.SignatureData, data ...[]byte) error { return nil }

// Trusted lifts the limit on requests from Limits.Login to Limits.Request, and keeps the connection from giving way to
// new ones. It is called when a session was activated on the channel.
func (c *Channel) Trusted() {}

// Reply sends a response to the request with that id; each request gets one. Any goroutine may call it; responses go out
// in the order of the calls. It never waits for the socket. It returns ErrTooLarge or ErrClosed.
func (c *Channel) Reply(id uint32, b Body) error { return nil }

// Close ends the channel after the responses before it were sent. Unless code is Good, the client is told it in an Error
// message (Part 6, 7.1.2.5).
func (c *Channel) Close(code ua.StatusCode) {}
