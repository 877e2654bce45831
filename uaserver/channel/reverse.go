package channel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/wire"
)

// ErrNoHello says that a client which the gateway connected to has not said Hello in time.
var ErrNoHello = errors.New("channel: the client has not said Hello")

// Reverse is how a connection begins that the gateway makes to a client (Part 6, 7.1.3).
type Reverse struct {
	ServerURI   string        // of the gateway's application
	EndpointURL string        // that the client is to name in its Hello
	Wait        time.Duration // for the Hello
	Heard       func()        // called once, in the connection's goroutine, when the Hello has come
}

// reverse is what is left of it in the connection. Owned by the read goroutine.
type reverse struct {
	heard func()
	came  bool  // the Hello
	why   error // the conversation ended
}

// ServeReverse says ReverseHello on a connection that the gateway made, waits for the client's Hello, and goes on as with
// one that was accepted. It returns when the connection has ended, and closes it. Its error is why no Hello came:
// ErrNoHello, ErrClosed, what the client said, or what became of the connection.
func (s *Server) ServeReverse(conn net.Conn, begin Reverse) error {
	c := s.admit(conn)
	if c == nil {
		return ErrClosed
	}
	r := &reverse{heard: begin.Heard}
	c.in.reverse = r
	c.began = time.Now().Add(begin.Wait - s.cfg.Limits.Handshake)
	if err := c.send(appendReverseHello(nil, begin.ServerURI, begin.EndpointURL)); err != nil {
		c.conn.Close() // which run finds
	}
	s.run(c)
	switch {
	case r.came:
		return nil
	case errors.Is(r.why, os.ErrDeadlineExceeded):
		return ErrNoHello
	case errors.Is(r.why, errEnd):
		return ErrClosed
	}
	return r.why
}

// appendReverseHello appends a ReverseHello message (Part 6, 7.1.2.6).
func appendReverseHello(dst []byte, uri, url string) []byte {
	at := len(dst)
	dst = append(dst, "RHEF\x00\x00\x00\x00"...)
	dst = wire.AppendString(dst, uri)
	dst = wire.AppendString(dst, url)
	binary.LittleEndian.PutUint32(dst[at+4:], uint32(len(dst)-at))
	return dst
}

// waits reports whether the client's Hello is waited for.
func (r *reverse) waits() bool { return r != nil && !r.came }

// hello notes that it has come: from now on the time for opening a channel runs.
func (r *reverse) hello(c *Channel) {
	r.came = true
	c.began = time.Now()
	if r.heard != nil {
		r.heard()
	}
}

// refused reads the Error message of a client that does not want the connection (Part 6, 7.1.2.6).
func (r *reverse) refused(b []byte) error {
	m := wire.NewReader(b[messageHeader:])
	code, reason := ua.StatusCode(m.Uint32()), m.String()
	if m.Err() != nil {
		return faultf(ua.StatusBadDecodingError, "Error cannot be read")
	}
	return fmt.Errorf("the client refuses: %s %.255q", codeName(code), reason)
}
