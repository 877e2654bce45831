package bench

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// sockets are both ends of a connection over TCP.
func sockets(t *testing.T) (*socket, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); peer.Close() })
	end := time.Now().Add(patience)
	c.SetDeadline(end)
	peer.SetDeadline(end)
	return newSocket(c), peer
}

// More than the socket takes at once goes out before the answer is waited for.
func TestExchange(t *testing.T) {
	s, peer := sockets(t)
	s.Conn.(*net.TCPConn).SetWriteBuffer(4096)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	done := make(chan []byte)
	go func() {
		got := make([]byte, len(big))
		io.ReadFull(peer, got)
		peer.Write([]byte("first"))
		io.ReadFull(peer, got[:3])
		peer.Write([]byte("second"))
		done <- got[3:]
	}()
	in := make([]byte, 16)
	for i, out := range [][]byte{big, []byte("012")} {
		n, err := s.exchange(out, in)
		if want := []string{"first", "second"}[i]; err != nil || string(in[:n]) != want {
			t.Fatalf("%q, %v; want %q", in[:n], err, want)
		}
	}
	if got := <-done; !bytes.Equal(got, big[3:]) {
		t.Error("the peer got other bytes")
	}
}

func TestSocketEnds(t *testing.T) {
	calls := map[string]func(s *socket) error{
		"read":     func(s *socket) error { _, err := s.Read(make([]byte, 9)); return err },
		"exchange": func(s *socket) error { _, err := s.exchange([]byte("x"), make([]byte, 9)); return err },
	}
	for name, call := range calls {
		t.Run(name+" to its deadline", func(t *testing.T) {
			s, _ := sockets(t)
			s.SetDeadline(time.Now().Add(10 * time.Millisecond))
			if err := call(s); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
		})
		t.Run(name+" while it is closed", func(t *testing.T) {
			s, _ := sockets(t)
			defer time.AfterFunc(10*time.Millisecond, func() { s.Close() }).Stop()
			if err := call(s); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
		t.Run(name+" when the peer has gone", func(t *testing.T) {
			s, peer := sockets(t)
			peer.Close()
			if err := call(s); err == nil {
				t.Error("no error")
			}
			if err := call(s); err == nil {
				t.Error("no error the second time")
			}
		})
	}
	t.Run("writing to a peer that does not read", func(t *testing.T) {
		s, _ := sockets(t)
		s.SetDeadline(time.Now().Add(20 * time.Millisecond))
		b := make([]byte, 64<<20)
		if n, err := s.Write(b); !errors.Is(err, os.ErrDeadlineExceeded) || n == len(b) {
			t.Error(n, err)
		}
	})
}
