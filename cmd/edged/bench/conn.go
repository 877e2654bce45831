package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/channel"
	"edged/uaserver/wire"
)

const (
	// bufferSize is the largest chunk that the client takes and sends: what OPC UA servers use by default.
	bufferSize = 64 << 10
	// maxMessage bounds a message of several chunks.
	maxMessage = 16 << 20
	// patience is how long the client waits for an answer outside of the measured part.
	patience = 20 * time.Second
)

// token is a SecurityToken of the channel.
type token struct {
	id   uint32
	keys *channel.PeerKeys // nil with policy None
}

// conn is one connection with its channel and its session. One goroutine uses it, for several requests in flight, too:
// it sends them all and then one for each answer. Others may close sock.
type conn struct {
	sock    *socket
	peer    *peer
	channel uint32
	session wire.NodeID // AuthenticationToken; null before there is one

	// Sending.
	out     []byte
	seq     uint32
	id      uint32 // last request id; handles are the same numbers
	send    token
	chunk   int // bytes that the server takes
	body    int // of a message in one chunk
	renewal time.Time
	nonce   []byte // of an OpenSecureChannel request that is not answered yet

	// Receiving.
	in    []byte
	r, w  int      // in[r:w] has not been taken
	parts []byte   // of a message of several chunks
	last  uint32   // sequence number
	recv  [2]token // the newest, and the one before
}

// Errors of a server that breaks Part 6, 6.7.
var (
	errInsecure = errors.New("a chunk of the server is not secured as agreed")
	errOrder    = errors.New("sequence number out of order")
)

// post sends q and returns its request id, which is its handle.
func (c *conn) post(q *request, now time.Time) (uint32, error) {
	c.stamp(q, now)
	return c.id, c.write("MSG", q.body)
}

// stamp sets what is new in a request each time.
func (c *conn) stamp(q *request, now time.Time) {
	c.id++
	binary.LittleEndian.PutUint64(q.body[q.time:], uint64(tag.TimeOf(now)))
	binary.LittleEndian.PutUint32(q.body[q.handle:], c.id)
}

func (c *conn) write(kind string, body []byte) error {
	c.pack(kind, body)
	return c.flush()
}

// queue puts q behind what flush will send, and returns its request id.
func (c *conn) queue(q *request, now time.Time) uint32 {
	c.stamp(q, now)
	c.pack("MSG", q.body)
	return c.id
}

// flush sends what was packed, by one call of the system.
func (c *conn) flush() error {
	out := c.out
	c.out = out[:0]
	if len(out) == 0 {
		return nil
	}
	_, err := c.sock.Write(out)
	return err
}

// pack appends a message to out, in as many chunks as it needs.
func (c *conn) pack(kind string, body []byte) {
	out := c.out
	for {
		part, mark := body, "F"
		if len(part) > c.body {
			part, mark = body[:c.body], "C"
		}
		body = body[len(part):]
		at, size := len(out), channel.ChunkSize(len(part), c.peer.mode)
		if cap(out) < at+size {
			out = append(make([]byte, 0, 2*(at+size)), out...)
		}
		out = out[:at+size]
		b := out[at:]
		c.seq++
		copy(b[channel.HeaderSize:], part)
		channel.PutHeader(b, kind+mark, c.channel, c.send.id, c.seq, c.id)
		if c.send.keys != nil {
			c.send.keys.Seal(b, len(part))
		}
		if len(body) == 0 {
			break
		}
	}
	c.out = out
}

// receive waits for the next message, which is good until the next call, and returns the id of its request. An answer to
// a renewal is taken in on the way.
func (c *conn) receive() (uint32, []byte, error) {
	c.parts = c.parts[:0]
	for {
		b, err := c.next()
		if err != nil {
			return 0, nil, err
		}
		switch string(b[:3]) {
		case "MSG":
		case "OPN":
			if err := c.opened(b); err != nil {
				return 0, nil, err
			}
			continue
		default:
			return 0, nil, peerError(b)
		}
		id, part, err := c.open(b)
		switch {
		case err != nil:
			return 0, nil, err
		case b[3] == 'A':
			return 0, nil, fmt.Errorf("the server gave up its answer: %w", peerError(part))
		case b[3] == 'F' && len(c.parts) == 0:
			return id, part, nil
		case len(c.parts)+len(part) > maxMessage:
			return 0, nil, fmt.Errorf("an answer of more than %d bytes", maxMessage)
		}
		c.parts = append(c.parts, part...)
		if b[3] == 'F' {
			return id, c.parts, nil
		}
	}
}

// next waits for one chunk.
func (c *conn) next() ([]byte, error) {
	for {
		if c.w-c.r >= 8 {
			size := binary.LittleEndian.Uint32(c.in[c.r+4:])
			if size < 8 || size > bufferSize {
				return nil, fmt.Errorf("a chunk of %d bytes where at most %d were agreed", size, bufferSize)
			}
			if int(size) > len(c.in) {
				in := make([]byte, bufferSize)
				c.w, c.r = copy(in, c.in[c.r:c.w]), 0
				c.in = in
			}
			if c.w-c.r >= int(size) {
				b := c.in[c.r : c.r+int(size)]
				if c.r += int(size); c.r == c.w {
					c.r, c.w = 0, 0
				}
				return b, nil
			}
		}
		if c.r > 0 {
			c.w, c.r = copy(c.in, c.in[c.r:c.w]), 0
		}
		n, err := c.sock.Read(c.in[c.w:])
		if c.w += n; n == 0 && err != nil {
			return nil, err
		}
	}
}

// arrived reports whether the next chunk has arrived already.
func (c *conn) arrived() bool {
	return c.w-c.r >= 8 && uint32(c.w-c.r) >= binary.LittleEndian.Uint32(c.in[c.r+4:])
}

// inputs are the buffers of connections that have much to receive for a while.
var inputs = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// restBuffer is what a connection has that receives little.
const restBuffer = 512

// rest gives the large buffer away, until a chunk needs one: of ten thousand sessions most have nothing to receive.
func (c *conn) rest() {
	small := make([]byte, max(restBuffer, c.w-c.r))
	big := c.in
	c.w, c.r = copy(small, c.in[c.r:c.w]), 0
	c.in, c.out, c.parts = small, nil, nil
	if len(big) == bufferSize {
		inputs.Put((*[bufferSize]byte)(big))
	}
}

// open checks a symmetric chunk and returns the id of its request and its part of the message.
func (c *conn) open(b []byte) (id uint32, part []byte, err error) {
	if len(b) < channel.HeaderSize {
		return 0, nil, errCut
	}
	t := &c.recv[0]
	if used := binary.LittleEndian.Uint32(b[12:]); used != t.id {
		if t = &c.recv[1]; used != t.id {
			return 0, nil, fmt.Errorf("%w: token %d was never given", errInsecure, used)
		}
	}
	part = b[16:]
	if t.keys != nil {
		var ok bool
		if part, ok = t.keys.Open(b); !ok {
			return 0, nil, errInsecure
		}
	}
	return binary.LittleEndian.Uint32(part[4:]), part[8:], c.order(binary.LittleEndian.Uint32(part))
}

// order checks a sequence number: each is one more than the last, and begins anew below 1024 (Part 6, 6.7.2.4).
func (c *conn) order(seq uint32) error {
	last := c.last
	if c.last = seq; seq == last+1 || last == 0 || last >= 1<<32-1024 && seq < 1024 {
		return nil
	}
	return fmt.Errorf("%w: %d after %d", errOrder, seq, last)
}

// peerError is what an Error message or an aborted message says (Part 6, 7.1.2.5 and 6.7.3).
func peerError(b []byte) error {
	if string(b[:min(3, len(b))]) == "ERR" {
		b = b[8:]
	}
	r := wire.NewReader(b)
	code, reason := ua.StatusCode(r.Uint32()), r.String()
	if r.Err() != nil {
		return errCut
	}
	if reason == "" {
		return code
	}
	return fmt.Errorf("%w: %s", code, reason)
}

// ask sends q and waits for its answer, while nothing else is in flight. A token that comes to its end is renewed on the
// way.
func (c *conn) ask(q *request, now time.Time) (id uint32, body []byte, err error) {
	if now.After(c.renewal) {
		if err := c.renew(now); err != nil {
			return 0, nil, err
		}
	}
	c.stamp(q, now)
	c.pack("MSG", q.body)
	out := c.out
	c.out = out[:0]
	n, err := c.sock.exchange(out, c.in[c.w:])
	if err != nil {
		return 0, nil, err
	}
	c.w += n
	got, body, err := c.receive()
	if err == nil && got != c.id {
		err = fmt.Errorf("the answer to request %d, not to %d", got, c.id)
	}
	return c.id, body, err
}
