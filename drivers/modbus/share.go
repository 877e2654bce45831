package modbus

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"edged/drivers/port"
)

// Shared is one Modbus TCP connection for several links, each with a transaction in flight: a device or gateway that
// takes few clients still works on several requests at a time (Messaging on TCP/IP, 4.4.1.2). It is the Opener of those
// links. Requests get ids of their own on the wire, and an answer goes to the link whose request it answers; one that
// nobody waits for any more is thrown away.
type Shared struct {
	open port.Opener

	mu   sync.Mutex // guards conn; held while the connection is opened
	conn *sharedConn
}

// NewShared makes the opener. It opens nothing.
func NewShared(open port.Opener) *Shared { return &Shared{open: open} }

// Open implements port.Opener: it joins the connection, or makes it.
func (s *Shared) Open(ctx context.Context) (port.Port, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		if p := s.conn.join(); p != nil {
			return p, nil
		}
	}
	p, err := s.open.Open(ctx)
	if err != nil {
		return nil, err
	}
	s.conn = &sharedConn{port: p, writing: make(chan struct{}, 1), asks: map[uint16]*sharedPort{}}
	own := s.conn.join()
	go s.conn.read()
	return own, nil
}

// sharedConn is one connection, until it ends.
type sharedConn struct {
	port port.Port

	writing chan struct{} // of one entry: one request at a time

	mu     sync.Mutex // guards the fields below, and those of every sharedPort
	links  int        // that use it
	last   uint16     // transaction id on the wire
	asks   map[uint16]*sharedPort
	heard  time.Time // when the last answer came
	failed error     // it has ended
}

// sharedPort is the connection as one link sees it. It has one request in flight.
type sharedPort struct {
	conn    *sharedConn
	arrived chan struct{} // of one entry: in or the end may have changed
	timer   *time.Timer   // owned by Read

	// Guarded by conn.mu.
	own      [2]byte // the link's transaction id of its request
	wire     uint16  // ours
	waiting  bool
	asked    time.Time
	in       []byte
	deadline time.Time
	closed   bool
}

// join adds a link, or returns nil if the connection has ended.
func (c *sharedConn) join() *sharedPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return nil
	}
	c.links++
	return &sharedPort{conn: c, arrived: make(chan struct{}, 1), in: make([]byte, 0, maxTCPFrame)}
}

// read gives each answer to the link that waits for it, until the connection ends.
func (c *sharedConn) read() {
	var buf [bufferSize]byte
	filled := 0
	for {
		n, err := c.port.Read(buf[filled:])
		if filled > 0 && c.begins(buf[filled:filled+n]) {
			err = errors.New("an answer was cut off: the next one would be taken for its rest")
		}
		if filled += n; err != nil {
			c.end(err)
			return
		}
		at := 0
		for {
			n, ok := tcpFrame(buf[at:filled])
			if !ok {
				c.end(errors.New("the stream holds no Modbus TCP frames any more"))
				return
			}
			if n == 0 {
				break
			}
			c.give(buf[at : at+n])
			at += n
		}
		filled = copy(buf[:], buf[at:filled])
	}
}

// begins reports whether b begins as an answer that is waited for.
func (c *sharedConn) begins(b []byte) bool {
	if len(b) < mbapSize {
		return false
	}
	_, ok := tcpFrame(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	return ok && c.asks[binary.BigEndian.Uint16(b)] != nil
}

// give hands an answer on.
func (c *sharedConn) give(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	id := binary.BigEndian.Uint16(frame)
	p := c.asks[id]
	if p == nil {
		return
	}
	delete(c.asks, id)
	p.waiting = false
	p.in = append(append(p.in[:0], p.own[:]...), frame[2:]...)
	p.ring()
}

// end tells every link that the connection is over.
func (c *sharedConn) end(err error) {
	c.port.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
	for _, p := range c.asks {
		p.ring()
	}
}

func (p *sharedPort) ring() {
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// Read implements port.Port.
func (p *sharedPort) Read(b []byte) (int, error) {
	c := p.conn
	for {
		c.mu.Lock()
		n, err, until := copy(b, p.in), c.failed, p.deadline
		p.in = append(p.in[:0], p.in[n:]...)
		if p.closed {
			err = net.ErrClosed
		}
		c.mu.Unlock()
		switch d := time.Until(until); {
		case n > 0:
			return n, nil
		case err != nil:
			return 0, err
		case until.IsZero():
			<-p.arrived
			continue
		case d <= 0:
			return 0, os.ErrDeadlineExceeded
		case p.timer == nil:
			p.timer = time.NewTimer(d)
		default:
			p.timer.Reset(d)
		}
		select {
		case <-p.arrived:
			p.timer.Stop()
		case <-p.timer.C:
		}
	}
}

// Write implements port.Port. b is one whole request.
func (p *sharedPort) Write(b []byte) (int, error) {
	c := p.conn
	if len(b) < mbapSize || len(b) > maxTCPFrame {
		return 0, errors.New("not one whole request")
	}
	var out [maxTCPFrame]byte
	copy(out[:], b)
	if !p.turn() {
		return 0, os.ErrDeadlineExceeded
	}
	defer func() { <-c.writing }()
	c.mu.Lock()
	if err := c.failed; err != nil || p.closed {
		c.mu.Unlock()
		if err == nil {
			err = net.ErrClosed
		}
		return 0, err
	}
	if p.waiting { // given up: its answer is nobody's
		delete(c.asks, p.wire)
	}
	c.last++
	p.wire, p.waiting, p.asked, p.in = c.last, true, time.Now(), p.in[:0]
	copy(p.own[:], b)
	c.asks[p.wire] = p
	until := p.deadline
	c.mu.Unlock()
	binary.BigEndian.PutUint16(out[:], p.wire)
	if err := p.writeUntil(until); err != nil {
		return 0, err
	}
	n, err := c.port.Write(out[:len(b)])
	if err != nil && n > 0 {
		c.end(err) // half a request: what follows would be taken for its rest
	}
	return n, err
}

// turn waits until no other link writes, and not beyond the deadline: a peer that does not read holds up whoever writes.
func (p *sharedPort) turn() bool {
	c := p.conn
	select {
	case c.writing <- struct{}{}:
		return true
	default:
	}
	c.mu.Lock()
	until := p.deadline
	c.mu.Unlock()
	if until.IsZero() {
		c.writing <- struct{}{}
		return true
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case c.writing <- struct{}{}:
		return true
	case <-t.C:
		return false
	}
}

// writeUntil bounds the write that follows; the reader waits without a bound.
func (p *sharedPort) writeUntil(t time.Time) error {
	if w, ok := p.conn.port.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return w.SetWriteDeadline(t)
	}
	return nil
}

// SetDeadline implements port.Port.
func (p *sharedPort) SetDeadline(t time.Time) error {
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	p.deadline = t
	if p.conn.failed != nil {
		return p.conn.failed
	}
	return nil
}

// Discard implements port.Port.
func (p *sharedPort) Discard() error {
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	p.in = p.in[:0]
	if p.conn.failed != nil {
		return io.EOF
	}
	return nil
}

// Drain implements port.Port.
func (p *sharedPort) Drain() error { return nil }

// Close implements port.Port. The connection ends with its last link, and with one that has heard nothing on it since its
// last request, nor has another: it may be half open.
func (p *sharedPort) Close() error {
	c := p.conn
	c.mu.Lock()
	if p.closed {
		c.mu.Unlock()
		return nil
	}
	p.closed = true
	unheard := p.waiting && c.heard.Before(p.asked)
	if p.waiting {
		delete(c.asks, p.wire)
	}
	c.links--
	over := c.links == 0 || unheard
	c.mu.Unlock()
	p.ring()
	if over {
		c.end(net.ErrClosed)
	}
	return nil
}

var _ port.Opener = (*Shared)(nil)
