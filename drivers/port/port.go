// Package port is byte streams to field hardware: TCP connections and serial lines, each with a deadline.
// It hides how a stream is opened, locked and timed, so that a protocol runs over all of them and over net.Pipe.
package port

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Port is one open byte stream. It is used by one goroutine; Close may come from any.
type Port interface {
	// Read returns at least one byte or an error: os.ErrDeadlineExceeded when the deadline has passed, io.EOF when the
	// other end or the device is gone, net.ErrClosed after Close.
	Read(p []byte) (int, error)
	// Write sends all of p or returns an error as Read does.
	Write(p []byte) (int, error)
	// SetDeadline bounds the Reads and Writes that follow. A zero time is no bound.
	SetDeadline(t time.Time) error
	// Discard drops the input that waits. It returns io.EOF if the other end has closed in the meantime.
	Discard() error
	// Drain returns when what was written has left for the line.
	Drain() error
	Close() error
}

// Waiter is an optional ability of a Port on whose line time is counted in characters.
type Waiter interface {
	// WaitUntil returns at the moment, as exactly as the system can, or with net.ErrClosed after Close.
	WaitUntil(t time.Time) error
}

// Opener opens a stream. An error is one sentence that names the stream and what helps.
type Opener interface {
	Open(ctx context.Context) (Port, error)
}

// OpenFunc is a function as an Opener.
type OpenFunc func(ctx context.Context) (Port, error)

// Open calls f.
func (f OpenFunc) Open(ctx context.Context) (Port, error) { return f(ctx) }

// IsTimeout reports whether err says that a deadline has passed.
func IsTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

const (
	// dialTimeout bounds a connect where the context does not: a host that drops packets answers never.
	dialTimeout = 5 * time.Second
	// A cable that was pulled is noticed after keepIdle + keepCount*keepInterval at the latest, even with no request sent.
	keepIdle     = 15 * time.Second
	keepInterval = 5 * time.Second
	keepCount    = 3
	// maxDiscard bounds what Discard reads from a peer that never stops talking, in bytes.
	maxDiscard = 64 << 10
	// settle is how long Discard waits for input of a stream that cannot be asked without waiting (net.Pipe).
	settle = time.Millisecond
)

// dial connects to a TCP host.
func dial(ctx context.Context, hostport string) (Port, error) {
	c, err := connect(ctx, hostport)
	if err != nil {
		return nil, err
	}
	return FromConn(c), nil
}

func connect(ctx context.Context, hostport string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: keepIdle, Interval: keepInterval, Count: keepCount}}
	c, err := d.DialContext(ctx, "tcp", hostport)
	if err != nil {
		return nil, dialError(hostport, err)
	}
	return c, nil
}

// dialError adds what helps.
func dialError(hostport string, err error) error {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return fmt.Errorf("cannot find host %s: check its name or give its address: %w", hostport, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s refuses the connection: check the port, and that the device takes one more client: %w", hostport, err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Errorf("%s cannot be reached: check cable, address and route: %w", hostport, err)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s does not answer: check that the device is on and its address right: %w", hostport, err)
	}
	return fmt.Errorf("cannot connect to %s: %w", hostport, err)
}

// FromConn makes a Port of a connection: a TCP one, or a net.Pipe of a test.
func FromConn(c net.Conn) Port {
	p := &connPort{Conn: c}
	if sc, ok := c.(syscall.Conn); ok {
		p.raw, _ = sc.SyscallConn()
	}
	return p
}

type connPort struct {
	net.Conn
	raw syscall.RawConn // nil where the stream is not a descriptor
}

func (p *connPort) Drain() error { return nil }

func (p *connPort) Discard() error {
	if p.raw == nil {
		return p.discardTimed()
	}
	// A read with a deadline in the past does not even look at the socket, so that the descriptor is asked itself.
	if err := p.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	var buf [512]byte
	var end error
	for total := 0; total < maxDiscard && end == nil; {
		var n int
		err := p.raw.Read(func(fd uintptr) bool {
			n, end = readNow(int(fd), buf[:])
			return true
		})
		if err != nil {
			return err
		}
		total += n
	}
	if errors.Is(end, syscall.EAGAIN) {
		return nil
	}
	return end
}

// readNow reads what is there without waiting; the descriptors of connections do not block.
func readNow(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, p)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (p *connPort) discardTimed() error {
	// A pipe whose other end has closed takes no deadline, and needs none: Read tells what became of it.
	if err := p.SetReadDeadline(time.Now().Add(settle)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	var buf [512]byte
	for total := 0; total < maxDiscard; {
		n, err := p.Conn.Read(buf[:])
		total += n
		if IsTimeout(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
