package channel

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

const (
	// wrapAfter is the last sequence number that may not be followed by a wrap, which goes to a number below wrapTo (Part
	// 6, 6.7.2.4).
	wrapAfter = 4_294_966_271
	wrapTo    = 1024

	maxDiscard = 1 << 20 // bytes read from a peer whose connection is being closed
)

// input is the receiving half of a channel. Owned by the read goroutine.
type input struct {
	buf     *buffer // nil while the connection is idle
	r, w    int     // what is unread: buf.b[r:w] of its capacity
	size    int     // of the chunk that is being worked on
	account tag.Account

	bufCharge     int // bytes that the account was charged with for buf
	messageCharge int // and for message

	deadline time.Time // that the connection has now
	expire   time.Time // of the newest token
	begun    time.Time // of the unfinished request; zero: none

	reverse     *reverse // nil: the client made the connection
	hello       bool
	token, next *token // next: renewed, not used by the client yet
	tokens      uint32 // ids given
	nonce       []byte // the client's last
	seq         uint32 // last received

	message *buffer // body of the chunks before the final one
	chunks  int     // how many there were
	id      uint32  // request id of the unfinished request

	request Request
	raw     rawInput
}

// converse reads and answers chunk after chunk until the conversation ends. Its error says why.
func (c *Channel) converse() (err error) {
	if r := c.in.reverse; r != nil {
		defer func() { r.why = err }()
	}
	if err := c.work(); err != nil {
		return err
	}
	return c.read()
}

// work answers the whole chunks among what was read, and prepares for reading on.
func (c *Channel) work() error {
	for {
		chunk, err := c.nextChunk()
		if err != nil {
			return c.whyEnded(err)
		}
		if chunk == nil {
			return nil
		}
		if err := c.receive(chunk); err != nil {
			return err
		}
		if c.closing.Load() {
			return errEnd
		}
		c.in.consume()
	}
}

// whyEnded turns an error of reading into what the peer is told.
func (c *Channel) whyEnded(err error) error {
	switch {
	case c.closing.Load():
		return errEnd
	case !errors.Is(err, os.ErrDeadlineExceeded), c.in.reverse.waits():
		return err
	case c.id == 0:
		return faultf(ua.StatusBadTimeout, "no channel was opened within %v", c.s.cfg.Limits.Handshake)
	case c.in.partial():
		return faultf(ua.StatusBadTimeout, "a request was begun and not finished")
	}
	return faultf(ua.StatusBadSecureChannelClosed, "the security token has expired")
}

// nextChunk returns the next whole chunk, which is good until consume, or nil when more must be read for it.
func (c *Channel) nextChunk() ([]byte, error) {
	if c.in.unread() < messageHeader {
		return nil, c.want(messageHeader)
	}
	h := c.in.buf.b[c.in.r:c.in.w]
	low, high, err := c.chunkLimits(h)
	if err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(h[4:])
	if size > uint32(high) {
		return nil, faultf(ua.StatusBadTCPMessageTooLarge, "chunk of %d bytes: %d are taken", size, high)
	}
	if size < uint32(low) {
		return nil, faultf(ua.StatusBadDecodingError, "chunk of %d bytes is too short", size)
	}
	if c.in.unread() < int(size) {
		return nil, c.want(int(size))
	}
	c.in.size = int(size)
	return c.in.buf.b[c.in.r : c.in.r+int(size)], nil
}

// chunkLimits checks the kind of a chunk against what may come now, and returns how large it may be.
func (c *Channel) chunkLimits(h []byte) (low, high int, err error) {
	final := h[3] == 'F'
	switch kind := string(h[:3]); {
	case kind == "HEL" && final && !c.in.hello:
		return helloSize, minChunk, nil
	case kind == "ERR" && final && c.in.reverse.waits():
		return messageHeader + 8, minChunk, nil
	case kind == "OPN" && final && c.in.hello:
		return messageHeader + 4, c.maxChunk, nil
	case kind == "CLO" && final && c.id != 0, kind == "MSG" && (final || h[3] == 'C' || h[3] == 'A') && c.id != 0:
		return headerSize, c.maxChunk, nil
	case (kind == "MSG" || kind == "CLO") && c.in.hello && c.id == 0:
		return 0, 0, faultf(ua.StatusBadTCPSecureChannelUnknown, "no channel was opened")
	}
	return 0, 0, faultf(ua.StatusBadTCPMessageTypeInvalid, "message type %.4q cannot come here", h[:4])
}

func (c *Channel) receive(b []byte) error {
	switch b[0] {
	case 'H':
		c.in.hello = true
		if c.in.reverse != nil {
			c.in.reverse.hello(c)
		}
		return c.hello(b)
	case 'E':
		return c.in.reverse.refused(b)
	case 'O':
		return aside(func() error { return c.open(b) })
	}
	plain, err := c.unseal(b)
	if err != nil {
		return err
	}
	seq, id := binary.LittleEndian.Uint32(plain), binary.LittleEndian.Uint32(plain[4:])
	if err := c.in.sequence(seq); err != nil {
		return err
	}
	c.in.seq = seq
	if b[0] == 'C' {
		return errEnd // CloseSecureChannel has no response (Part 6, 7.1.4)
	}
	return c.gather(b[3], id, plain[seqSize:])
}

// unseal checks and decrypts a symmetric chunk, and makes a renewed token the one in use when its first message has come.
func (c *Channel) unseal(b []byte) ([]byte, error) {
	if channel := binary.LittleEndian.Uint32(b[8:]); channel != c.id {
		return nil, faultf(ua.StatusBadTCPSecureChannelUnknown, "channel %d is not of this connection", channel)
	}
	id := binary.LittleEndian.Uint32(b[12:])
	t := c.in.token
	if next := c.in.next; next != nil && id == next.id {
		t = next
	}
	if id != t.id || t.expired(time.Now()) {
		return nil, faultf(ua.StatusBadSecureChannelTokenUnknown, "token %d is not known or has expired", id)
	}
	plain, ok := t.recv.open(b, c.mode)
	if !ok {
		return nil, insecure("message of channel %d cannot be verified", c.id)
	}
	if t == c.in.next {
		c.in.token, c.in.next = t, nil
		c.in.expire = t.end()
		c.out.use(t)
	}
	return plain, nil
}

// sequence checks that seq follows the last number (Part 6, 6.7.2.4).
func (in *input) sequence(seq uint32) error {
	if seq == in.seq+1 && seq != 0 || in.seq > wrapAfter && seq < wrapTo {
		return nil
	}
	return insecure("BadSequenceNumberInvalid: %d after %d", seq, in.seq)
}

// gather joins the chunks of a request (Part 6, 6.7.2.2) and serves it when it is whole. The body of a request of one
// chunk stays where it was received.
func (c *Channel) gather(kind byte, id uint32, body []byte) error {
	if c.in.chunks > 0 && id != c.in.id {
		return faultf(ua.StatusBadTCPMessageTypeInvalid, "chunk of request %d within request %d", id, c.in.id)
	}
	if kind == 'A' {
		c.in.forget()
		return nil
	}
	limit := c.s.cfg.Limits.Login
	if c.trusted.Load() {
		limit = c.s.cfg.Limits.Request
	}
	c.in.chunks++
	if c.in.messageLen()+len(body) > limit || c.in.chunks > chunksOf(limit) {
		return faultf(ua.StatusBadTCPMessageTooLarge, "request is larger than %d bytes or %d chunks", limit, chunksOf(limit))
	}
	if kind == 'F' && c.in.chunks == 1 {
		err := c.serve(id, body)
		c.in.forget()
		return err
	}
	c.in.id = id
	if c.in.begun.IsZero() {
		c.in.begun = time.Now()
	}
	if !c.in.append(body, limit) {
		return faultf(ua.StatusBadTCPNotEnoughResources, "no memory for a request of this size now")
	}
	if kind != 'F' {
		return nil
	}
	err := c.serve(id, c.in.message.b)
	c.in.forget()
	return err
}

func (c *Channel) serve(id uint32, body []byte) error {
	q := &c.in.request
	*q = Request{Channel: c, ID: id, Body: wire.NewReader(body)}
	kind := q.Body.NodeID()
	if q.Body.Err() != nil {
		return faultf(ua.StatusBadDecodingError, "request %d cannot be read", id)
	}
	if kind.NS == 0 && kind.Type == wire.Numeric {
		q.Type = kind.Num
	}
	c.s.handler.Serve(q)
	q.Body = wire.Reader{}
	return nil
}

// partial reports whether a request was begun and not finished.
func (in *input) partial() bool { return in.chunks > 0 || in.w > in.r }

func (in *input) messageLen() int {
	if in.message == nil {
		return 0
	}
	return len(in.message.b)
}

// append adds to the unfinished request, which will not exceed limit, if the account has room for it.
func (in *input) append(body []byte, limit int) bool {
	have := in.messageLen()
	if need := have + len(body); in.message == nil || need > in.messageCharge {
		size := max(min(2*have, limit), need, smallest)
		if !in.charge(size) {
			return false
		}
		grown := take(size)
		if in.message != nil {
			grown.b = append(grown.b, in.message.b...)
			in.message.release()
		}
		in.credit(in.messageCharge)
		in.message, in.messageCharge = grown, size
	}
	in.message.b = append(in.message.b, body...)
	return true
}

// forget gives up the unfinished request.
func (in *input) forget() {
	in.chunks = 0
	if in.message != nil {
		in.message.release()
		in.message = nil
	}
	in.credit(in.messageCharge)
	in.messageCharge = 0
}

func (in *input) charge(n int) bool { return in.account == nil || in.account.Take(n) }

func (in *input) credit(n int) {
	if in.account != nil && n > 0 {
		in.account.Give(n)
	}
}

// consume passes over the chunk that was worked on. A buffer that was taken for a large one is not kept.
func (in *input) consume() {
	in.r += in.size
	in.size = 0
	if in.chunks == 0 {
		in.begun = time.Time{}
	}
	if in.r < in.w {
		return
	}
	in.r, in.w = 0, 0
	if in.bufCharge > 0 {
		in.drop()
	}
}

// drop gives the buffer back.
func (in *input) drop() {
	if in.buf == nil {
		return
	}
	in.credit(in.bufCharge)
	in.bufCharge = 0
	in.buf.release()
	in.buf = nil
}

// room makes the buffer large enough for n unread bytes. Buffers beyond the first size are charged to the account: a peer
// that announces a large chunk and does not send it holds what others could use.
func (in *input) room(n int) error {
	if in.buf == nil || len(in.buf.b)-in.r >= n {
		return nil
	}
	if len(in.buf.b) >= n {
		in.w = copy(in.buf.b, in.buf.b[in.r:in.w])
		in.r = 0
		return nil
	}
	if !in.charge(n) {
		return faultf(ua.StatusBadTCPNotEnoughResources, "no memory for a chunk of %d bytes now", n)
	}
	grown := full(take(n))
	in.w = copy(grown.b, in.buf.b[in.r:in.w])
	in.r = 0
	in.drop()
	in.buf, in.bufCharge = grown, n
	return nil
}

// full makes all of a buffer's bytes usable.
func full(b *buffer) *buffer {
	b.b = b.b[:cap(b.b)]
	return b
}

// unread is how many bytes were read and not worked on.
func (in *input) unread() int { return in.w - in.r }

// want prepares for reading until n bytes are unread.
func (c *Channel) want(n int) error {
	if err := c.in.room(n); err != nil {
		return err
	}
	return c.arm()
}

// readConn reads a connection that has no descriptor, and works on what comes. It holds a buffer while it waits.
func (c *Channel) readConn() error {
	in := &c.in
	for {
		in.ready()
		n, err := c.conn.Read(in.buf.b[in.w:])
		if n == 0 && err != nil {
			return c.whyEnded(in.ended(err))
		}
		in.w += n
		if err := c.work(); err != nil {
			return err
		}
	}
}

// ready makes sure that there is a buffer to read into.
func (in *input) ready() {
	if in.buf == nil {
		in.buf = full(take(firstRead))
	}
}

// ended tells an end between messages from one within.
func (in *input) ended(err error) error {
	if err == io.EOF && in.partial() {
		return io.ErrUnexpectedEOF
	}
	return err
}

// arm sets the deadline of the next read. While nothing is under way it is the end of the token, so that an idle
// connection costs no timer call.
func (c *Channel) arm() error {
	in := &c.in
	l := &c.s.cfg.Limits
	var t time.Time
	switch {
	case c.id == 0:
		t = c.began.Add(l.Handshake)
	case !in.partial():
		t = in.expire
	case c.trusted.Load():
		t = time.Now().Add(l.Stall)
	default:
		if in.begun.IsZero() {
			in.begun = time.Now()
		}
		t = in.begun.Add(l.Handshake)
	}
	if !t.Equal(in.deadline) {
		// A connection that takes no deadline is closed, at either end: reading it tells which.
		c.conn.SetReadDeadline(t)
		in.deadline = t
	}
	// end sets closing first and the deadline then, so that one of the two is seen.
	if c.closing.Load() {
		return errEnd
	}
	return nil
}

// discard reads and forgets until the peer closes, or until linger has passed.
func (in *input) discard(conn net.Conn, linger time.Duration) {
	conn.SetReadDeadline(time.Now().Add(linger))
	in.ready()
	for n := 0; n < maxDiscard; {
		m, err := conn.Read(in.buf.b)
		if err != nil {
			return
		}
		n += m
	}
}

// finish gives back what is held.
func (in *input) finish() {
	in.forget()
	in.drop()
	in.request = Request{}
}
