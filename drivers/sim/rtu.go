package sim

import (
	"syscall"
	"time"

	"edged/drivers/port"
)

// crcTable is the CRC-16 of Serial Line V1.02, 2.5.1.2: polynomial A001, reflected, starting with FFFF.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		c := uint16(i)
		for range 8 {
			if c&1 != 0 {
				c = c>>1 ^ 0xA001
			} else {
				c >>= 1
			}
		}
		t[i] = c
	}
	return t
}()

func crc(b []byte) uint16 {
	c := uint16(0xFFFF)
	for _, x := range b {
		c = c>>8 ^ crcTable[byte(c)^x]
	}
	return c
}

// appendCRC appends the check sum of frame, the low byte first.
func appendCRC(dst, frame []byte) []byte {
	c := crc(frame)
	return append(dst, byte(c), byte(c>>8))
}

// maxRTU is the longest frame: unit, PDU, check sum.
const maxRTU = 1 + maxPDU + 2

// scanRTU gives the length of the request at the start of b by its function: 0 if more bytes are needed to tell, -1 if
// only silence can tell.
func scanRTU(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	counted := func(at int) int { // a byte count stands at at, the check sum behind what it counts
		if len(b) <= at {
			return 0
		}
		return min(at+1+int(b[at])+2, maxRTU)
	}
	switch b[1] {
	case 1, 2, 3, 4, 5, 6:
		return 8
	case 15, 16:
		return counted(6)
	case 22:
		return 10
	case 23:
		return counted(10)
	case 43:
		return 7
	}
	return -1
}

// valid reports whether a frame has a PDU and the right check sum.
func valid(frame []byte) bool { return len(frame) >= 4 && crc(frame) == 0 }

// silence is how long a line must be quiet for a broken or unknown frame to be over: 3.5 characters (Serial Line V1.02,
// 2.5.1.1), but at least what a busy machine needs to hand the rest of a frame over.
func (l *Line) silence() time.Duration {
	return max(20*time.Millisecond, l.gap())
}

// ServeRTU serves the master at the other end of a stream until it leaves or the plant is closed. It closes the stream.
func (l *Line) ServeRTU(s stream) {
	if !l.enter(s, nil) {
		s.Close()
		return
	}
	l.talkRTU(s)
}

// ServeASCII serves the master at the other end of a stream, as ServeRTU does.
func (l *Line) ServeASCII(s stream) {
	if !l.enter(s, nil) {
		s.Close()
		return
	}
	l.talkASCII(s)
}

func (l *Line) talkRTU(s stream) {
	defer l.leave(s)
	c := conversation{line: l, since: time.Now(), t: rtu, peer: s, out: make([]byte, 0, 2*maxRTU)}
	defer c.keepTime()()
	c.serveRTU()
}

// keepTime has a paced conversation wait as exactly as the system can, until what it returns is called.
func (c *conversation) keepTime() (end func()) {
	_, terminal := c.peer.(*Port)
	_, socket := c.peer.(syscall.Conn)
	if c.line.cfg.Pace && (terminal || socket) { // a net.Pipe may live in a time of its own
		c.alarm, _ = port.NewAlarm() // nil: timers do, if less exactly
	}
	return func() {
		if c.alarm != nil {
			c.alarm.Close()
		}
	}
}

func (c *conversation) serveRTU() error {
	var buf [2 * maxRTU]byte
	held := 0
	var began time.Time // of the frame in buf
	for {
		var deadline time.Time
		if held > 0 {
			deadline = time.Now().Add(c.line.silence())
		} else if c.line.cfg.Idle > 0 {
			deadline = time.Now().Add(c.line.cfg.Idle)
		}
		c.peer.SetReadDeadline(deadline)
		n, err := c.peer.Read(buf[held:])
		if held == 0 {
			began = time.Now()
			if n > 0 && !c.sent.IsZero() {
				c.line.sawGap(began.Sub(c.sent))
				c.sent = time.Time{}
			}
		}
		held += n
		if err != nil && (!isTimeout(err) || held == 0) {
			return err
		}
		silent := err != nil
		used, err := c.serveFrames(buf[:held], silent, began)
		if err != nil {
			return err
		}
		if silent || held-used == len(buf) {
			held = 0 // what is left is no request
			continue
		}
		held = copy(buf[:], buf[used:held])
	}
}

// serveFrames answers the requests at the start of b and gives how many bytes they were. silent: the line fell silent
// behind b.
func (c *conversation) serveFrames(b []byte, silent bool, began time.Time) (int, error) {
	used := 0
	for {
		rest := b[used:]
		n := scanRTU(rest)
		if n < 0 && silent {
			n = len(rest)
		}
		if n <= 0 || n > len(rest) || !valid(rest[:n]) && !(c.line.swapsCRC() && valid(turnCRC(rest[:n]))) {
			return used, nil
		}
		if c.line.cfg.Pace {
			// The request has taken its time on the wire, and the answer follows 3.5 characters of silence.
			c.begins = began.Add(c.line.url.mode.Chars(n) + c.line.gap())
			if !c.waitUntil(c.begins) {
				return used, errReset
			}
		}
		if err := c.serve(0, rest[0], rest[1:n-2], rest[:n]); err != nil && err != errReset {
			return used, err
		}
		used += n
	}
}

// gap is the silence between two frames: 3.5 characters, and 1.75 ms above 19200 baud (Serial Line V1.02, 2.5.1.1).
func (l *Line) gap() time.Duration {
	if l.url.mode.Baud > 19200 {
		return 1750 * time.Microsecond
	}
	return l.url.mode.Chars(7) / 2
}

// send writes a frame, on a paced line at the line's speed.
func (c *conversation) send(frame []byte) error {
	defer func() { c.sent = time.Now() }()
	if c.t == tcp || !c.line.cfg.Pace {
		_, err := c.peer.Write(frame)
		return err
	}
	const least = time.Millisecond // a shorter sleep costs more than it shows
	mode := c.line.url.mode
	chunk := int(max(1, least/mode.Chars(1)))
	for sent := 0; sent < len(frame); {
		n := min(chunk, len(frame)-sent)
		if !c.waitUntil(c.begins.Add(mode.Chars(sent + n))) {
			return errReset
		}
		if _, err := c.peer.Write(frame[sent : sent+n]); err != nil {
			return err
		}
		sent += n
	}
	c.line.wasLate(time.Since(c.begins.Add(mode.Chars(len(frame)))))
	return nil
}

// waitUntil waits for a moment of the line's own time, which goes on from where a request began whatever the machine
// does: what one wait is late is not added to the next. It reports false when the plant is closed.
func (c *conversation) waitUntil(t time.Time) bool {
	if c.alarm == nil {
		return c.line.plant.pause(time.Until(t))
	}
	if err := c.alarm.Wait(t); err != nil {
		return false
	}
	select {
	case <-c.line.plant.done:
		return false
	default:
		return true
	}
}
