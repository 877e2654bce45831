package sim

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"edged/drivers/port"
	"edged/drivers/tag"
)

// Line is one listening socket or serial line of the plant. Its methods are safe for concurrent use.
type Line struct {
	name       string
	plant      *Plant
	url        *lineURL
	cfg        LineConfig
	units      [256]*Device // set before Start
	instrument *Instrument  // set before Start; nil: none

	mu        sync.Mutex // guards last
	up        bool
	addr      string // that Up listened on: the port stays over Down and Up
	listener  net.Listener
	port      *Port
	temporary string // folder that Down removes
	peers     map[io.Closer]struct{}
	accepted  int
	shortest  time.Duration // silence before a request that was seen; 0: none yet
	late      time.Duration // sum, of the ends of answers on a line that keeps its bit times
	ends      int           // of such answers
}

func newLine(p *Plant, c *LineConfig) *Line {
	u, _ := parseLineURL(c.URL) // Problems has checked it
	return &Line{name: c.Name, plant: p, url: u, cfg: *c, peers: make(map[io.Closer]struct{})}
}

// Name is the line's name.
func (l *Line) Name() string { return l.name }

// Up begins to listen, or makes the pseudo terminal, after New or Down. An up line stays as it is.
func (l *Line) Up() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		return nil
	}
	var err error
	if l.url.serial() {
		err = l.openPort()
	} else {
		err = l.listen()
	}
	if err != nil {
		return fmt.Errorf("sim: line %s: %w", l.name, err)
	}
	l.up = true
	return nil
}

func (l *Line) listen() error {
	addr := l.addr
	if addr == "" {
		addr = l.url.host
	}
	listener, err := net.Listen("tcp", addr)
	if err == nil && l.url.scheme == "tcp+tls" {
		listener, err = l.url.secure(listener)
	}
	if err != nil {
		return err
	}
	if !l.plant.join(func() { l.accept(listener) }) {
		listener.Close()
		return errors.New("the plant is closed")
	}
	l.listener, l.addr = listener, listener.Addr().String()
	return nil
}

func (l *Line) openPort() error {
	link := l.addr
	if link == "" {
		link = l.url.path
	}
	if link == "" {
		dir, err := os.MkdirTemp("", "sim-")
		if err != nil {
			return err
		}
		l.temporary, link = dir, filepath.Join(dir, l.name)
	}
	port, err := OpenRTU(link)
	if err != nil {
		return err
	}
	serve := l.ServeRTU
	switch l.url.scheme {
	case "ascii":
		serve = l.ServeASCII
	case "serial":
		serve = l.ServeInstrument
	}
	if !l.plant.join(func() { serve(port) }) {
		port.Close()
		return errors.New("the plant is closed")
	}
	l.port, l.addr = port, link
	return nil
}

// Down ends every connection and stops listening; a pseudo terminal vanishes, its link too. It is no error twice.
func (l *Line) Down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up = false
	if l.listener != nil {
		l.listener.Close()
		l.listener = nil
	}
	for p := range l.peers {
		p.Close()
	}
	if l.port != nil {
		l.port.Close()
		l.port = nil
	}
	if l.temporary != "" {
		os.RemoveAll(l.temporary)
		l.temporary, l.addr = "", ""
	}
}

// URL is how a gateway reaches the line, in the form of its site file. A line that never was up has the URL of its file.
func (l *Line) URL() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.addr == "":
		return l.cfg.URL
	case l.url.scheme == "tcp+tls", l.url.query == "":
		return l.url.scheme + "://" + l.addr
	}
	return l.url.scheme + "://" + l.addr + "?" + l.url.query
}

// Address is HOST:PORT, or the path of the serial device to open.
func (l *Line) Address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addr
}

// Accepted is how many connections were taken since New.
func (l *Line) Accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted
}

// Connected is how many connections there are.
func (l *Line) Connected() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.peers)
}

// ShortestGap is the shortest silence that a master kept between an answer and its next request on a serial line, and 0
// before there was one.
func (l *Line) ShortestGap() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shortest
}

// Late is how long after their time the answers of a line that keeps its bit times have ended, in sum, and how many they
// were: what the machine, not the gateway, has added.
func (l *Line) Late() (sum time.Duration, answers int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late, l.ends
}

func (l *Line) wasLate(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late += d
	l.ends++
}

// sawGap counts a silence in.
func (l *Line) sawGap(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shortest == 0 || d < l.shortest {
		l.shortest = d
	}
}

// Drop ends every connection, as a device that restarts does; the line goes on listening.
func (l *Line) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.peers {
		p.Close()
	}
}

func (l *Line) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !l.plant.pause(10*time.Millisecond) {
				return
			}
			continue // out of descriptors: some come back
		}
		if !l.enter(conn, listener) {
			conn.Close()
			continue
		}
		if !l.plant.join(func() { l.talk(conn) }) {
			l.leave(conn)
			return
		}
	}
}

// talk serves a connection as the line's url says.
func (l *Line) talk(conn net.Conn) {
	switch l.url.scheme {
	case "rtuovertcp":
		l.talkRTU(conn)
	case "serial+tcp":
		l.talkInstrument(conn)
	default:
		l.talkTCP(conn)
	}
}

// enter counts a peer in, unless the line is full, or no longer listens on the listener that brought it; leave counts it
// out and closes it.
func (l *Line) enter(c io.Closer, from net.Listener) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.plant.done:
		return false
	default:
	}
	if from != nil && from != l.listener || l.cfg.Clients > 0 && len(l.peers) >= l.cfg.Clients {
		return false
	}
	l.accepted++
	l.peers[c] = struct{}{}
	return true
}

func (l *Line) leave(c io.Closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.peers, c)
	c.Close()
}

// transport is how a PDU is framed.
type transport uint8

const (
	tcp transport = iota
	rtu
	ascii
)

// stream is what a conversation runs over: a socket, a pseudo terminal or a net.Pipe.
type stream interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
}

// conversation is one peer's requests, answered one after the other. Owned by its goroutine.
type conversation struct {
	line    *Line
	t       transport
	peer    stream
	pdu     [maxPDU + 3]byte // the answer's PDU
	out     []byte           // the answer's frame
	request request
	answer  Answer
	sent    time.Time // when the last answer was, on a serial line

	// Of devices with quirks.
	since    time.Time // when the conversation began
	answered time.Time // when the last answer was
	stuck    bool      // nothing more is heard

	// Of a line that keeps its bit times.
	alarm  *port.Alarm // nil: timers do
	begins time.Time   // when the answer's first bit is on the line
}

// errReset asks for the connection to be reset.
var errReset = errors.New("reset")

// serve answers one request. An error ends the conversation.
func (c *conversation) serve(transaction uint16, unit byte, pdu, frame []byte) error {
	refused := parseRequest(&c.request, pdu)
	if c.t != tcp && unit == 0 {
		c.broadcast(refused)
		return nil
	}
	d := c.line.units[unit]
	if d == nil {
		if c.t != tcp {
			return nil // nobody feels addressed
		}
		c.out = appendFrame(c.out[:0], c.t, transaction, unit, []byte{pdu[0] | 0x80, byte(gatewayTarget)})
		return c.send(c.out)
	}
	answer, fault := c.ask(d, refused)
	switch fault.Kind {
	case Mute:
		return nil
	case Reset:
		return errReset
	case Delay:
		if !c.pause(fault.For) {
			return errReset
		}
	}
	if !c.pause(d.delay) {
		return errReset
	}
	if fault.Kind == Lost {
		return nil
	}
	if c.line.plant.OnAnswer != nil {
		c.line.plant.OnAnswer(&c.answer)
	}
	d.quirks.bend(answer)
	if d.quirks.NoID {
		transaction = 0
	}
	if fault.Kind != "" {
		answer = fault.bend(answer)
		if fault.Kind == WrongUnit {
			unit++
		}
		if fault.Kind == WrongTrans {
			transaction++
		}
	}
	c.out = appendFrame(c.out[:0], c.t, transaction, unit, answer)
	if d.quirks.CRCSwapped && c.t == rtu {
		c.out = turnCRC(c.out)
	}
	if fault.Kind != "" {
		c.out = fault.distort(c.out, frame, c.t)
	}
	if fault.Kind == Late {
		return c.sendLate(slices.Clone(c.out), fault.For)
	}
	err := c.send(c.out)
	c.answered = time.Now()
	return err
}

// pause puts the answer off.
func (c *conversation) pause(d time.Duration) bool {
	c.begins = c.begins.Add(d)
	return c.line.plant.pause(d)
}

// sendLate sends a frame when the master has given up waiting, while the conversation goes on.
func (c *conversation) sendLate(frame []byte, after time.Duration) error {
	peer := c.peer
	c.line.plant.join(func() {
		if c.line.plant.pause(after) {
			peer.Write(frame) // a peer that has gone by now misses it
		}
	})
	return nil
}

// ask lets the device carry the request out, unless a fault forbids it, and fills in c.answer.
func (c *conversation) ask(d *Device, refused exception) ([]byte, Fault) {
	r := &c.request
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if !c.hears(d) {
		return nil, Fault{Kind: Mute}
	}
	fault := d.fault(r.function)
	if r.function == 43 && d.quirks.Identity {
		fault.Kind = Reset
	}
	if refused == 0 {
		refused = d.quirks.refuses(d, r)
	}
	var pdu []byte
	switch fault.Kind {
	case Mute, Reset:
		c.stuck = d.quirks.Stuck
		return nil, fault
	case Exception:
		pdu = fault.bend(append(c.pdu[:0], r.function))
		refused = exception(pdu[1])
	default:
		pdu, refused = d.carryOut(c.pdu[:0], r, refused)
	}
	c.answer = Answer{Device: d, At: tag.Now(), Function: r.function, Bank: r.bank, Address: int(r.at), Count: int(r.end - r.at),
		Code: byte(refused), Fault: fault.Kind}
	switch {
	case refused != 0:
	case r.function <= 4 || r.function == 23:
		c.answer.Data = pdu[2:]
	case r.function == 43:
		c.answer.Data = pdu[1:]
	default:
		c.answer.Data = r.data
	}
	return pdu, fault
}

// broadcast lets every device of a serial line carry out a write, unanswered (Serial Line V1.02, 2.1).
func (c *conversation) broadcast(refused exception) {
	r := &c.request
	if refused != 0 || r.function != 5 && r.function != 6 && r.function != 15 && r.function != 16 {
		return
	}
	for _, d := range c.line.units {
		if d == nil {
			continue
		}
		d.mu.Lock()
		d.asked++
		if f := d.fault(r.function).Kind; f != Mute && f != Reset && f != Exception {
			d.carryOut(c.pdu[:0], r, 0)
		}
		d.mu.Unlock()
	}
}

// appendFrame wraps a PDU.
func appendFrame(dst []byte, t transport, transaction uint16, unit byte, pdu []byte) []byte {
	if t == tcp {
		dst = appendHeader(dst, transaction, len(pdu)+1)
		return append(append(dst, unit), pdu...)
	}
	if t == ascii {
		return appendASCII(dst, unit, pdu)
	}
	start := len(dst)
	dst = append(append(dst, unit), pdu...)
	return appendCRC(dst, dst[start:])
}
