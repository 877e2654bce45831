package sim

import (
	"bytes"
	"encoding/hex"
	"time"
)

// maxASCII is the longest frame: a colon, two characters a byte of unit, PDU and LRC, and the end of the line (Serial Line
// V1.02, 2.5.2).
const maxASCII = 1 + 2*(1+maxPDU+1) + 2

// lrc is the check sum of Serial Line V1.02, 2.5.2.2: the two's complement of the sum.
func lrc(b []byte) byte {
	var sum byte
	for _, x := range b {
		sum += x
	}
	return -sum
}

const upperHex = "0123456789ABCDEF"

// appendASCII appends the frame of a unit and a PDU.
func appendASCII(dst []byte, unit byte, pdu []byte) []byte {
	dst = append(dst, ':', upperHex[unit>>4], upperHex[unit&15])
	for _, x := range pdu {
		dst = append(dst, upperHex[x>>4], upperHex[x&15])
	}
	sum := lrc(pdu) - unit
	return append(dst, upperHex[sum>>4], upperHex[sum&15], '\r', '\n')
}

// parseASCII is unit and PDU of a line without its end, and false for what is none.
func parseASCII(dst, line []byte) ([]byte, bool) {
	at := bytes.LastIndexByte(line, ':')
	if at < 0 || len(line)-at-1 > 2*(1+maxPDU+1) {
		return nil, false
	}
	n, err := hex.Decode(dst, line[at+1:])
	if err != nil || n < 3 || lrc(dst[:n]) != 0 {
		return nil, false
	}
	return dst[:n-1], true
}

func (l *Line) talkASCII(s stream) {
	defer l.leave(s)
	c := conversation{line: l, since: time.Now(), t: ascii, peer: s, out: make([]byte, 0, 2*maxASCII)}
	defer c.keepTime()()
	c.serveASCII()
}

func (c *conversation) serveASCII() error {
	var buf [2 * maxASCII]byte
	var frame [maxASCII]byte
	held := 0
	var began time.Time // of the line in buf
	for {
		if idle := c.line.cfg.Idle; idle > 0 {
			c.peer.SetReadDeadline(time.Now().Add(idle))
		}
		n, err := c.peer.Read(buf[held:])
		if err != nil {
			return err
		}
		if held == 0 {
			began = time.Now()
		}
		held += n
		for {
			end := bytes.Index(buf[:held], []byte("\r\n"))
			if end < 0 {
				break
			}
			if adu, ok := parseASCII(frame[:], buf[:end]); ok {
				if c.line.cfg.Pace {
					c.begins = began.Add(c.line.url.mode.Chars(end + 2))
					if !c.waitUntil(c.begins) {
						return errReset
					}
				}
				if err := c.serve(0, adu[0], adu[1:], buf[:end+2]); err != nil && err != errReset {
					return err
				}
			}
			held = copy(buf[:], buf[end+2:held])
		}
		if held == len(buf) {
			held = 0 // no frame is that long
		}
	}
}
