package channel

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/pki"
	"edged/uaserver/wire"
)

// Handler answers the requests of open channels.
type Handler interface {
	// Serve runs in the connection's read goroutine; no other request of the channel is read meanwhile. r and everything
	// that aliases its body are valid until Serve returns; its Channel and ID may be kept for a later Reply.
	Serve(r *Request)
	// Closed is called once for a channel that was open, after its last Serve has returned.
	Closed(c *Channel)
}

// Opener is a Handler that hears of channels when they were opened; not of renewals.
type Opener interface {
	// Opened runs in the connection's read goroutine, before the client is told.
	Opened(c *Channel)
}

// Request is one whole request message.
type Request struct {
	Channel *Channel
	ID      uint32      // request id of the sequence header, which the response carries
	Type    uint32      // numeric id in namespace 0 of the request's encoding; 0 for any other NodeId
	Body    wire.Reader // stands at the RequestHeader
}

// Reply sends the response to r: Channel.Reply with the request's id.
func (r *Request) Reply(b Body) error { return r.Channel.Reply(r.ID, b) }

// Body appends a response: the NodeId of its encoding, then all of it.
type Body interface {
	AppendTo(dst []byte) []byte
}

// Errors of Reply.
var (
	// ErrTooLarge says that the response exceeds what the client takes (MaxMessageSize, MaxChunkCount of its Hello) or
	// Limits.Response. Nothing was sent; a fault with BadResponseTooLarge can be.
	ErrTooLarge = errors.New("channel: response exceeds the client's limits")
	// ErrClosed says that the channel is gone.
	ErrClosed = errors.New("channel: closed")
)

// Policy is a security policy that is offered, with the modes in which it is.
type Policy struct {
	URI   string
	Modes []ua.MessageSecurityMode
}

// Limits bound what peers can make the server hold. Zero values mean the defaults.
type Limits struct {
	Connections int           // at once (110)
	PerAddress  int           // connections at once from one IP address (Connections)
	Buffer      int           // bytes of a chunk, both ways; at least 8192 (65535: Part 6, 7.1.2.3)
	Login       int           // bytes of a request before Trusted (64 KiB)
	Request     int           // bytes of a request afterwards (16 MiB)
	Response    int           // bytes of a response (16 MiB)
	Output      int           // bytes that may wait for a slow reader before its connection is closed (4 MiB)
	Handshake   time.Duration // for hello and open together, and for every unfinished request before Trusted (10 s)
	Stall       time.Duration // without progress in an unfinished request, or in sending (60 s)
	MinLifetime time.Duration // of a security token (2 s); a client may renew at any time anyway
	MaxLifetime time.Duration // of a security token (1 h)
}

// Config is what a Server needs.
type Config struct {
	// Certificate is the gateway's own as it is now: new channels get it, others keep theirs. It is nil, or returns nil,
	// where only policy None is offered.
	Certificate func() *pki.Own
	Trust       pki.Trust // asked about the certificate of each secured channel, at open and renewal
	Policies    []Policy  // offered; None is always accepted, for discovery: the Handler decides what it may do
	Limits      Limits
	Account     tag.Account  // charged with unfinished requests and waiting output; nil: not counted
	Log         *slog.Logger // nil: slog.Default
}

// Defaults of Limits.
const (
	defaultConnections = 110
	defaultBuffer      = 65535
	defaultLogin       = 64 * 1024
	defaultRequest     = 16 << 20
	defaultOutput      = 4 << 20
	defaultHandshake   = 10 * time.Second
	defaultStall       = time.Minute
	defaultMinLifetime = 2 * time.Second
	defaultMaxLifetime = time.Hour

	linger = time.Second // for a peer to take the Error message before its connection is closed
)

func (l Limits) withDefaults() Limits {
	l.Connections = cmp.Or(l.Connections, defaultConnections)
	l.PerAddress = cmp.Or(l.PerAddress, l.Connections)
	l.Buffer = min(max(cmp.Or(l.Buffer, defaultBuffer), minChunk), math.MaxInt32)
	l.Login = cmp.Or(l.Login, defaultLogin)
	l.Request = min(cmp.Or(l.Request, defaultRequest), math.MaxInt32)
	l.Response = min(cmp.Or(l.Response, defaultRequest), math.MaxInt32)
	l.Output = cmp.Or(l.Output, defaultOutput)
	l.Handshake = cmp.Or(l.Handshake, defaultHandshake)
	l.Stall = cmp.Or(l.Stall, defaultStall)
	l.MinLifetime = cmp.Or(l.MinLifetime, defaultMinLifetime)
	l.MaxLifetime = max(cmp.Or(l.MaxLifetime, defaultMaxLifetime), l.MinLifetime)
	return l
}
