package channel

import (
	"encoding/binary"
	"math"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/wire"
)

// Sizes of the OPC UA Connection Protocol (Part 6, 7.1.2).
const (
	minChunk  = 8192 // the least that a peer may ask for
	maxURL    = 4096 // bytes of the EndpointUrl
	maxReason = 4096 // bytes of an Error's reason

	messageHeader = 8
	helloSize     = messageHeader + 5*4 + 4 // without the URL
)

// hello answers a Hello with an Acknowledge (Part 6, 7.1.2.3 and 7.1.2.4). A client of a later protocol version is
// answered with ours, 0, as the standard asks.
func (c *Channel) hello(b []byte) error {
	r := wire.NewReader(b[messageHeader:])
	r.Uint32() // ProtocolVersion
	receive, send := r.Uint32(), r.Uint32()
	message, chunks := r.Uint32(), r.Uint32()
	url := r.String()
	if r.Err() != nil {
		return faultf(ua.StatusBadDecodingError, "Hello cannot be read")
	}
	if len(url) > maxURL {
		return faultf(ua.StatusBadTCPEndpointURLInvalid, "EndpointUrl is longer than %d bytes", maxURL)
	}
	if receive < minChunk || send < minChunk {
		return faultf(ua.StatusBadConnectionRejected, "buffers must have at least %d bytes", minChunk)
	}
	l := &c.s.cfg.Limits
	c.url = string([]byte(url))
	c.maxChunk = int(min(uint32(l.Buffer), send))
	c.chunk = int(min(uint32(l.Buffer), receive))
	c.maxMessage = int(min(message, math.MaxInt32))
	c.maxChunks = int(min(chunks, math.MaxInt32))

	ack := make([]byte, messageHeader, messageHeader+5*4)
	copy(ack, "ACKF")
	ack = wire.AppendUint32(ack, 0) // ProtocolVersion
	ack = wire.AppendUint32(ack, uint32(c.maxChunk))
	ack = wire.AppendUint32(ack, uint32(c.chunk))
	ack = wire.AppendUint32(ack, uint32(l.Request))
	ack = wire.AppendUint32(ack, uint32(chunksOf(l.Request)))
	binary.LittleEndian.PutUint32(ack[4:], uint32(len(ack)))
	return c.send(ack)
}

// chunksOf is how many chunks a request of n bytes may have: twice what chunks of the smallest size need, since a client
// need not fill them.
func chunksOf(n int) int { return 2 * (n/minChunk + 1) }

// appendError appends an Error message (Part 6, 7.1.2.5).
func appendError(dst []byte, code ua.StatusCode, reason string) []byte {
	reason = reason[:min(len(reason), maxReason)]
	at := len(dst)
	dst = append(dst, "ERRF\x00\x00\x00\x00"...)
	dst = wire.AppendUint32(dst, uint32(code))
	if reason == "" {
		dst = wire.AppendNull(dst)
	} else {
		dst = wire.AppendString(dst, reason)
	}
	binary.LittleEndian.PutUint32(dst[at+4:], uint32(len(dst)-at))
	return dst
}
