//go:build !linux

package bench

import "net"

// socket is a connection.
type socket struct{ net.Conn }

func newSocket(c net.Conn) *socket { return &socket{c} }

// exchange writes all of out and reads at least one byte of the answer.
func (s *socket) exchange(out, in []byte) (int, error) {
	if _, err := s.Write(out); err != nil {
		return 0, err
	}
	return s.Read(in)
}
