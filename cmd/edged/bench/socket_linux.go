package bench

import (
	"io"
	"net"
	"syscall"
	"unsafe"
)

// socket is a connection. One over TCP is read and written by system calls that the scheduler is not told about, since
// the descriptor does not block: the load client must cost less than what it measures.
type socket struct {
	net.Conn
	raw syscall.RawConn // nil: not over TCP

	in, out []byte // of the call that is under way
	n       int
	sent    bool
	err     error
	// The methods of the same names, bound once.
	onRead, onWrite, onExchange func(fd uintptr) bool
}

func newSocket(c net.Conn) *socket {
	s := &socket{Conn: c}
	if tcp, ok := c.(*net.TCPConn); ok {
		s.raw, _ = tcp.SyscallConn() // without it, as over anything else
	}
	s.onRead, s.onWrite, s.onExchange = s.tryRead, s.tryWrite, s.tryExchange
	return s
}

// Read reads at least one byte.
func (s *socket) Read(b []byte) (int, error) {
	if s.raw == nil {
		return s.Conn.Read(b)
	}
	s.in = b
	return s.result(s.raw.Read(s.onRead))
}

// Write writes all of b.
func (s *socket) Write(b []byte) (int, error) {
	if s.raw == nil {
		return s.Conn.Write(b)
	}
	s.out, s.err = b, nil
	if err := s.raw.Write(s.onWrite); err != nil {
		return len(b) - len(s.out), err
	}
	return len(b) - len(s.out), s.err
}

// exchange writes all of out and reads at least one byte of the answer, which cannot be there before out was written: so
// it waits without trying first.
func (s *socket) exchange(out, in []byte) (int, error) {
	if s.raw == nil {
		if _, err := s.Conn.Write(out); err != nil {
			return 0, err
		}
		return s.Conn.Read(in)
	}
	s.in, s.out, s.sent = in, out, false
	err := s.raw.Read(s.onExchange)
	if err != nil || s.err != nil || len(s.out) == 0 {
		return s.result(err)
	}
	// The socket did not take all at once.
	if _, err := s.Write(s.out); err != nil {
		return 0, err
	}
	return s.Read(in)
}

// result is that of a read.
func (s *socket) result(err error) (int, error) {
	switch {
	case err != nil:
		return 0, err
	case s.err != nil:
		return 0, s.err
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// tryRead returns false to be called again when there is something to read.
func (s *socket) tryRead(fd uintptr) bool {
	for {
		n, errno := transfer(syscall.SYS_RECVFROM, fd, s.in)
		switch errno {
		case 0:
			s.n, s.err = n, nil
			return true
		case syscall.EAGAIN:
			return false
		case syscall.EINTR:
		default:
			s.n, s.err = 0, errno
			return true
		}
	}
}

// tryWrite returns false to be called again when more can be written.
func (s *socket) tryWrite(fd uintptr) bool {
	for len(s.out) > 0 {
		n, errno := transfer(syscall.SYS_SENDTO, fd, s.out)
		switch errno {
		case 0:
			s.out = s.out[n:]
		case syscall.EAGAIN:
			return false
		case syscall.EINTR:
		default:
			s.err = errno
			return true
		}
	}
	return true
}

func (s *socket) tryExchange(fd uintptr) bool {
	if s.sent {
		return s.tryRead(fd)
	}
	s.n, s.err, s.sent = 0, nil, true
	// True ends the call, with an error or with a rest to be written.
	return !s.tryWrite(fd) || s.err != nil
}

func transfer(call, fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}
