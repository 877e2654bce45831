package dashboard

import (
	"net"
	"sync"
)

// bounded is a listener with so many open connections at most; the next ones wait in the kernel's queue.
type bounded struct {
	net.Listener
	slots chan struct{}
	once  sync.Once
	end   chan struct{} // closed by Close
}

func newBounded(l net.Listener, n int) *bounded {
	return &bounded{Listener: l, slots: make(chan struct{}, n), end: make(chan struct{})}
}

// Accept waits for a free slot and for a connection.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.end:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &slot{Conn: c, free: func() { <-b.slots }}, nil
}

// Close ends Accept.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.end) })
	return b.Listener.Close()
}

// slot is a connection that gives its place back once.
type slot struct {
	net.Conn
	once sync.Once
	free func()
}

// Close closes the connection.
func (s *slot) Close() error {
	err := s.Conn.Close()
	s.once.Do(s.free)
	return err
}
