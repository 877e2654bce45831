package sim_test

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// wire is one end of a connection that holds what the other end has yet to read, as a kernel does and a net.Pipe does not:
// a late answer holds nobody up.
type wire struct {
	in, out  chan []byte
	gone     [2]chan struct{} // closed by this end, by the other
	once     *sync.Once       // of this end's Close
	rest     []byte           // owned by Read
	deadline time.Time        // owned by Read's goroutine
}

// newWire makes both ends.
func newWire() (near, far net.Conn) {
	const held = 1024 // writes, each a frame or a part of one
	a, b := make(chan []byte, held), make(chan []byte, held)
	x, y := make(chan struct{}), make(chan struct{})
	return &wire{in: a, out: b, gone: [2]chan struct{}{x, y}, once: &sync.Once{}},
		&wire{in: b, out: a, gone: [2]chan struct{}{y, x}, once: &sync.Once{}}
}

func (w *wire) Read(p []byte) (int, error) {
	if len(w.rest) == 0 {
		var late <-chan time.Time
		if !w.deadline.IsZero() {
			d := time.Until(w.deadline)
			if d <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			t := time.NewTimer(d)
			defer t.Stop()
			late = t.C
		}
		select {
		case w.rest = <-w.in:
		case <-w.gone[0]:
			return 0, net.ErrClosed
		case <-w.gone[1]:
			return 0, io.EOF
		case <-late:
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *wire) Write(p []byte) (int, error) {
	select {
	case <-w.gone[0]:
		return 0, net.ErrClosed
	case <-w.gone[1]:
		return 0, io.ErrClosedPipe
	default:
	}
	select {
	case w.out <- append([]byte(nil), p...):
		return len(p), nil
	default:
		return 0, os.ErrDeadlineExceeded // nobody has read for long
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.gone[0]) })
	return nil
}

func (w *wire) SetDeadline(t time.Time) error      { w.deadline = t; return nil }
func (w *wire) SetReadDeadline(t time.Time) error  { w.deadline = t; return nil }
func (w *wire) SetWriteDeadline(t time.Time) error { return nil }
func (w *wire) LocalAddr() net.Addr                { return nil }
func (w *wire) RemoteAddr() net.Addr               { return nil }
