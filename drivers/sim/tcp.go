package sim

import (
	"encoding/binary"
	"errors"
	"net"
	"time"
)

// mbapHeader is the length of a Modbus TCP frame's header with the unit (Messaging on TCP/IP V1.0b, 3.1.3).
const mbapHeader = 7

var errNotModbus = errors.New("not Modbus TCP")

func appendHeader(dst []byte, transaction uint16, length int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, transaction)
	dst = binary.BigEndian.AppendUint16(dst, 0)
	return binary.BigEndian.AppendUint16(dst, uint16(length))
}

// scanTCP gives the length of the frame at the start of b, or 0 if more bytes are needed to tell or to fill it.
func scanTCP(b []byte) (int, error) {
	if len(b) < 6 {
		return 0, nil
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if b[2] != 0 || b[3] != 0 || length < 2 || length > maxPDU+1 {
		return 0, errNotModbus
	}
	if len(b) < 6+length {
		return 0, nil
	}
	return 6 + length, nil
}

// ServeTCP serves one Modbus TCP client until it leaves, talks something else, or the plant is closed. It closes conn.
func (l *Line) ServeTCP(conn net.Conn) {
	if !l.enter(conn, nil) {
		conn.Close()
		return
	}
	l.talkTCP(conn)
}

func (l *Line) talkTCP(conn net.Conn) {
	defer l.leave(conn)
	c := conversation{line: l, since: time.Now(), t: tcp, peer: conn, out: make([]byte, 0, 2*(mbapHeader+maxPDU))}
	if errors.Is(c.serveTCP(), errReset) {
		if t, ok := conn.(*net.TCPConn); ok {
			t.SetLinger(0) // the close sends RST
		}
	}
}

func (c *conversation) serveTCP() error {
	var buf [1024]byte
	held := 0
	for {
		if idle := c.line.cfg.Idle; idle > 0 {
			c.peer.SetReadDeadline(time.Now().Add(idle))
		}
		n, err := c.peer.Read(buf[held:])
		if err != nil {
			return err
		}
		held += n
		at := 0
		for {
			length, err := scanTCP(buf[at:held])
			if err != nil {
				return err
			}
			if length == 0 {
				break
			}
			frame := buf[at : at+length]
			if err := c.serve(binary.BigEndian.Uint16(frame), frame[6], frame[mbapHeader:], frame); err != nil {
				return err
			}
			at += length
		}
		held = copy(buf[:], buf[at:held])
	}
}
