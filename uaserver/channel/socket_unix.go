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
	try  func(fd uintptr) bool
	n    int
	err  error
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
	c.in.raw = rawInput{conn: raw, try: c.in.tryRead}
	c.out.raw = rawOutput{conn: raw, try: c.out.tryWrite}
}

// read reads at least one byte behind what is unread.
func (in *input) read(conn net.Conn) error {
	if in.raw.conn == nil {
		return in.readConn(conn)
	}
	if err := in.raw.conn.Read(in.raw.try); err != nil {
		return err
	}
	n, err := in.raw.n, in.raw.err
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	in.w += n
	return nil
}

// tryRead reads what is there. It returns false if there is nothing, to be called again when there is.
func (in *input) tryRead(fd uintptr) bool {
	if in.buf == nil {
		in.buf = full(take(firstRead))
	}
	for {
		n, errno := receive(fd, in.buf.b[in.w:])
		in.raw.n, in.raw.err = n, nil
		switch errno {
		case 0:
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			if in.w == 0 {
				in.drop()
			}
			return false
		default:
			in.raw.err = errno
		}
		return true
	}
}

// rawOutput writes a TCP connection by its descriptor. Guarded by output.mu.
type rawOutput struct {
	conn syscall.RawConn // nil: not a TCP connection
	try  func(fd uintptr) bool
	b    []byte
	n    int
	err  error
}

// writeNow writes what the socket takes at once, which may be nothing.
func (o *output) writeNow(b []byte) (int, error) {
	if o.raw.conn == nil {
		return 0, nil
	}
	o.raw.b, o.raw.n, o.raw.err = b, 0, nil
	err := o.raw.conn.Write(o.raw.try)
	o.raw.b = nil
	if err == nil {
		err = o.raw.err
	}
	return o.raw.n, err
}

func (o *output) tryWrite(fd uintptr) bool {
	for o.raw.n < len(o.raw.b) {
		rest := o.raw.b[o.raw.n:]
		n, errno := transmit(fd, rest[:min(len(rest), writePiece)])
		switch errno {
		case 0:
			o.raw.n += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			o.raw.err = errno
			return true
		}
	}
	return true
}
