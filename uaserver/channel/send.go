package channel

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"edged/drivers/tag"
)

// writePiece is how much is written under one deadline: a slow reader is one that does not take this much in Limits.Stall.
const writePiece = 64 * 1024

// output is the sending half of a channel: sequence numbers, keys and what waits for the socket. The mutex guards all
// of it and is never held while the socket is waited for.
type output struct {
	mu      sync.Mutex
	seq     uint32 // last sent
	token   *token
	next    *token    // renewed, not used by the client yet
	queue   []*buffer // what waits, in order
	waiting int       // bytes of it
	writing bool      // the writer goroutine lives
	writer  sync.WaitGroup
	sent    atomic.Uint32 // writes that the socket took without an error
	size    atomic.Int32  // bytes of recent responses, so that the next one's buffer fits
	account tag.Account
	raw     rawOutput
}

// Reply sends a response to the request with that id; each request gets one. Any goroutine may call it; responses go out
// in the order of the calls. It never waits for the socket. It returns ErrTooLarge or ErrClosed.
func (c *Channel) Reply(id uint32, b Body) error { return c.ReplyWithin(id, b, 0) }

// ReplyWithin is Reply with one more bound on the response in bytes, such as a session's; 0: none.
func (c *Channel) ReplyWithin(id uint32, b Body, most uint32) error {
	o := &c.out
	hint := int(o.size.Load())
	buf := take(max(smallest, hint))
	buf.b = b.AppendTo(buf.b[:headerSize])
	n := len(buf.b) - headerSize
	if n > c.MaxResponse() || most > 0 && uint64(n) > uint64(most) {
		buf.release()
		return ErrTooLarge
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.closing.Load() {
		buf.release()
		return ErrClosed
	}
	buf.b = c.frame(buf.b, id, n)
	o.size.Store(int32(max(len(buf.b), hint-hint/8)))
	return c.write(buf)
}

// frame makes chunks of a body of n bytes behind headerSize bytes of room, and secures them, in place.
func (c *Channel) frame(b []byte, id uint32, n int) []byte {
	chunks := max(1, (n+c.body-1)/c.body)
	full := c.policy.sealedSize(c.body, c.mode)
	last := n - (chunks-1)*c.body
	total := (chunks-1)*full + c.policy.sealedSize(last, c.mode)
	b = slices.Grow(b, total-len(b))[:total]
	// From the last chunk to the first, no part is overwritten before it was moved.
	for i := chunks - 1; i > 0; i-- {
		size := c.body
		if i == chunks-1 {
			size = last
		}
		copy(b[i*full+headerSize:][:size], b[headerSize+i*c.body:])
	}
	t := c.out.current()
	for i := range chunks {
		kind, size := "MSGC", c.body
		if i == chunks-1 {
			kind, size = "MSGF", last
		}
		chunk := b[i*full:][:c.policy.sealedSize(size, c.mode)]
		putHeader(chunk, kind, c.id, t.id, c.out.nextSeq(), id)
		t.send.seal(chunk, size, c.mode)
	}
	return b
}

// current is the token to send with: the one in use, until it has ended or the client has used its successor (Part 6,
// 6.7.3).
func (o *output) current() *token {
	if o.next != nil && time.Now().After(o.token.created.Add(o.token.life)) {
		o.token, o.next = o.next, nil
	}
	return o.token
}

// use makes a renewed token the one to send with.
func (o *output) use(t *token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.token, o.next = t, nil
}

// nextSeq numbers a chunk (Part 6, 6.7.2.4).
func (o *output) nextSeq() uint32 {
	if o.seq > wrapAfter {
		o.seq = 0
	}
	o.seq++
	return o.seq
}

// send sends a whole message that is not a response to a request.
func (c *Channel) send(b []byte) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.sendLocked(b)
}

func (c *Channel) sendLocked(b []byte) error {
	if c.closing.Load() {
		return ErrClosed
	}
	return c.write(&buffer{b: b})
}

// write gives buf to the socket, or to the queue if the socket does not take it at once. o.mu is held.
func (c *Channel) write(buf *buffer) error {
	o := &c.out
	if !o.writing {
		n, err := o.writeNow(buf.b)
		if err != nil {
			buf.release()
			c.cut(slog.LevelDebug, "write: "+err.Error())
			return ErrClosed
		}
		o.sent.Add(1)
		if n == len(buf.b) {
			buf.release()
			return nil
		}
		buf.off = n
	}
	n := len(buf.b) - buf.off
	// One response may exceed the bound, or a large one could never be sent.
	if o.waiting >= c.s.cfg.Limits.Output {
		buf.release()
		c.cut(slog.LevelWarn, "client does not read its responses")
		return ErrClosed
	}
	if o.account != nil && !o.account.Take(n) {
		buf.release()
		c.cut(slog.LevelWarn, "client does not read its responses, and there is no memory left to keep them")
		return ErrClosed
	}
	o.queue = append(o.queue, buf)
	o.waiting += n
	if !o.writing {
		o.writing = true
		o.writer.Add(1)
		go c.drain()
	}
	return nil
}

// cut ends a connection that cannot be written any more. o.mu is held.
func (c *Channel) cut(level slog.Level, why string) {
	if !c.closing.Swap(true) {
		c.drop(level, why)
	}
}

// drain writes the queue, and lives as long as there is one.
func (c *Channel) drain() {
	o := &c.out
	defer o.writer.Done()
	var err error
	for {
		o.mu.Lock()
		if err != nil {
			c.cut(c.failed(err))
			o.clear()
		}
		if len(o.queue) == 0 {
			o.writing = false
			if c.closing.Load() {
				closeWrite(c.conn)
			} else {
				c.conn.SetWriteDeadline(time.Time{}) // an old one would fail the next direct write
			}
			o.mu.Unlock()
			return
		}
		buf := o.queue[0]
		copy(o.queue, o.queue[1:])
		o.queue[len(o.queue)-1] = nil
		o.queue = o.queue[:len(o.queue)-1]
		o.mu.Unlock()

		n := len(buf.b) - buf.off
		err = c.writeAll(buf.b[buf.off:])

		o.mu.Lock()
		o.give(n)
		o.mu.Unlock()
		buf.release()
	}
}

// failed tells a client that stopped reading from one that is gone.
func (c *Channel) failed(err error) (slog.Level, string) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return slog.LevelWarn, "client did not read its responses for " + c.s.cfg.Limits.Stall.String()
	}
	return slog.LevelDebug, "write: " + err.Error()
}

func (c *Channel) writeAll(b []byte) error {
	for len(b) > 0 {
		c.conn.SetWriteDeadline(time.Now().Add(c.s.cfg.Limits.Stall))
		n, err := c.conn.Write(b[:min(len(b), writePiece)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (o *output) give(n int) {
	o.waiting -= n
	if o.account != nil {
		o.account.Give(n)
	}
}

// clear gives up what waits. o.mu is held.
func (o *output) clear() {
	for i, buf := range o.queue {
		o.give(len(buf.b) - buf.off)
		buf.release()
		o.queue[i] = nil
	}
	o.queue = o.queue[:0]
}

// end stops the conversation: nothing more is answered or read. What was answered before is still sent, then f, if any.
func (c *Channel) end(f *fault) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.closing.Load() {
		return
	}
	if f != nil {
		c.write(&buffer{b: appendError(nil, f.code, f.reason)})
	}
	c.closing.Store(true)
	if !o.writing {
		closeWrite(c.conn)
	}
	c.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the read goroutine
}

// closeWrite tells the peer that nothing more comes. A connection that cannot be closed by halves is closed.
func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
		return
	}
	conn.Close()
}

// finish waits for the writer goroutine, after the connection was closed.
func (o *output) finish() {
	o.writer.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clear()
	o.queue, o.token, o.next = nil, nil, nil
}
