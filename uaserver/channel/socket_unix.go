//go:build unix

package channel

import (
	"io"
	"net"
	"syscall"
)

// rawInput reads a TCP connection by its descriptor, so that a buffer is taken only when there is something to read: an
// idle connection holds none. Owned by the read goroutine.
type rawInput struct {
	conn syscall.RawConn // nil: not a TCP connection
	turn func(fd uintptr) bool
	rest remainder
	err  error // why the conversation ended; nil: conn failed
}

// attach prepares the connection for reading and writing by its descriptor, if it has one.
func (c *Channel) attach() {
	tcp, ok := c.conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	c.in.raw = rawInput{conn: raw, turn: c.turn}
	raw.Control(c.in.raw.rest.attach)
}

// read reads and works on what comes until the conversation ends.
//
// All of it happens within one call of RawConn.Read. A call forgets what became readable before it, so that each has to
// begin with a system call that most often finds nothing; within a call nothing is forgotten. Control keeps the descriptor
// open for who writes. While they last Close waits for them: see abort.
func (c *Channel) read() error {
	raw := &c.in.raw
	if raw.conn == nil {
		return c.readConn()
	}
	var err error
	closed := raw.conn.Control(func(fd uintptr) {
		c.out.lend(int(fd))
		defer c.out.lend(0)
		err = raw.conn.Read(raw.turn)
	})
	switch {
	case closed != nil:
		return c.whyEnded(closed)
	case raw.err != nil:
		return raw.err
	}
	return c.whyEnded(err)
}

// turn reads what is there and works on it. It returns false when there is nothing left, to be called again when there is.
func (c *Channel) turn(fd uintptr) bool {
	in := &c.in
	raw := &in.raw
	for {
		in.ready()
		sent := c.out.sent.Load()
		n, drained, errno := raw.rest.receive(fd, in.buf.b[in.w:])
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN:
			in.rest()
			return false
		case errno != 0:
			raw.err = c.whyEnded(errno)
			return true
		case n == 0:
			raw.err = c.whyEnded(in.ended(io.EOF))
			return true
		}
		in.w += n
		if raw.err = c.work(); raw.err != nil {
			return true
		}
		// The peer's reset may have come with what was read: it shows in what was sent since, or in reading again.
		if drained && sent != c.out.sent.Load() {
			in.rest()
			return false
		}
	}
}

// rest gives up the buffer of a connection that becomes idle.
func (in *input) rest() {
	if in.w == 0 {
		in.drop()
	}
}

// abort closes the connection, without waiting for the read goroutine.
func (c *Channel) abort() {
	if c.in.raw.conn == nil {
		c.conn.Close()
		return
	}
	go c.conn.Close()
}

// rawOutput is the descriptor of a TCP connection. Guarded by output.mu.
type rawOutput struct {
	fd int // good while the read goroutine reads; 0: there is none
}

func (o *output) lend(fd int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.raw.fd = fd
}

// writeNow writes what the socket takes at once, which may be nothing.
func (o *output) writeNow(b []byte) (n int, err error) {
	if o.raw.fd == 0 {
		return 0, nil
	}
	for n < len(b) {
		rest := b[n:]
		m, errno := transmit(uintptr(o.raw.fd), rest[:min(len(rest), writePiece)])
		switch errno {
		case 0:
			n += m
		case syscall.EINTR:
		case syscall.EAGAIN:
			return n, nil
		default:
			return n, errno
		}
	}
	return n, nil
}
