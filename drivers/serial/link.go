package serial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"edged/drivers"
	"edged/drivers/port"
)

const (
	defaultTimeout = 500 * time.Millisecond
	// longGap is after how long without a look at the line what waits there is old.
	longGap = time.Second
)

// LinkConfig is one line of instruments.
type LinkConfig struct {
	Open       port.Opener
	Mode       port.Mode     // of a serial line; zero over TCP
	Timeout    time.Duration // of an answer, beside the time that the request takes on the line; 0: 500 ms
	Turnaround time.Duration // silence between an answer and the next request
	Echo       bool          // the line brings back what is sent
}

// Links makes the configuration of a link from a bus url.
func Links(a port.Address) LinkConfig { return LinkConfig{Open: a, Mode: a.Mode} }

// Link is one connection to a line of instruments. It implements drivers.Link. Only Close, and what interrupts a Listen,
// may be called by another goroutine than the lane's.
type Link struct {
	cfg LinkConfig

	mu   sync.Mutex // guards port
	port port.Port

	// Owned by the lane.
	opened    uint64    // how often it was
	quietFrom time.Time // when the line fell silent
	looked    time.Time // when what came was last read
	echo      []byte    // memory for what comes back
}

// NewLink makes a link. It opens nothing.
func NewLink(cfg LinkConfig) *Link {
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	return &Link{cfg: cfg}
}

// Open implements drivers.Link.
func (l *Link) Open(ctx context.Context) error {
	p, err := l.cfg.Open.Open(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.port != nil {
		l.port.Close()
	}
	l.port = p
	l.opened++
	l.quietFrom, l.looked = time.Time{}, time.Now()
	return nil
}

// Close implements drivers.Link.
func (l *Link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.port == nil {
		return nil
	}
	err := l.port.Close()
	l.port = nil
	return err
}

// current is the open stream.
func (l *Link) current() (port.Port, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.port == nil {
		return nil, fmt.Errorf("the connection is closed: %w", drivers.ErrUnsent)
	}
	return l.port, nil
}

// interruptBy has a Read end when ctx does. stop returns when nothing is left that could end another one.
func interruptBy(ctx context.Context, p port.Port) (stop func()) {
	ran := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(ran)
		p.SetDeadline(time.Unix(1, 0)) // of a port that was closed it fails, and its Read has ended
	})
	return func() {
		if !undo() {
			<-ran
		}
	}
}

// send waits for the line's silence and sends. sent tells whether anything may have left.
func (l *Link) send(ctx context.Context, p port.Port, b []byte, deadline time.Time) (sent bool, err error) {
	if wait := time.Until(l.quietFrom.Add(l.cfg.Turnaround)); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return false, fmt.Errorf("%w: %w", ctx.Err(), drivers.ErrUnsent)
		}
	}
	if err := p.SetDeadline(deadline); err != nil {
		return false, fmt.Errorf("%w: %w", closed(err), drivers.ErrUnsent)
	}
	n, err := p.Write(b)
	switch {
	case err == nil:
		return true, nil
	case n == 0 && port.IsTimeout(err):
		return false, fmt.Errorf("the line takes no request: %w", drivers.ErrUnsent)
	case n == 0:
		return false, fmt.Errorf("%w: %w", closed(err), drivers.ErrUnsent)
	}
	return true, closed(err)
}

// echoed takes what was sent off the input, where the line brings it back.
func (l *Link) echoed(p port.Port, out []byte) error {
	if !l.cfg.Echo {
		return nil
	}
	if cap(l.echo) < len(out) {
		l.echo = make([]byte, len(out))
	}
	back := l.echo[:len(out)]
	if _, err := io.ReadFull(p, back); err != nil {
		if port.IsTimeout(err) {
			return errNoEcho
		}
		return closed(err)
	}
	if string(back) != string(out) {
		return errNoEcho
	}
	return nil
}

var errNoEcho = errors.New("what was sent did not come back: is echo set rightly?")

// closed says what io.EOF means here.
func closed(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the other end has closed: %w", err)
	case errors.Is(err, net.ErrClosed):
		return fmt.Errorf("the connection was closed: %w", err)
	}
	return err
}
