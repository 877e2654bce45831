package modbus

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	gomodbus "github.com/goburrow/modbus"

	"edged/drivers"
	"edged/drivers/port"
)

// Framing is how requests and answers are told apart on a stream.
type Framing uint8

// The framings.
const (
	TCP   Framing = iota // MBAP header with a transaction id
	RTU                  // CRC and silence
	ASCII                // lines of hexadecimal digits with an LRC
)

// LinkConfig is one connection to a line.
type LinkConfig struct {
	Open       port.Opener
	Framing    Framing
	Mode       port.Mode     // of a serial line; zero where characters take no time
	Timeout    time.Duration // for an answer, beside the time that its characters take; 0: 500 ms
	Turnaround time.Duration // silence between an answer and the next request; RTU on a serial line keeps at least 3.5 characters
	Broadcast  time.Duration // how long a broadcast write is given; 0: 100 ms
	Echo       bool          // the line brings back what we send
}

const (
	defaultTimeout   = 500 * time.Millisecond
	defaultBroadcast = 100 * time.Millisecond
	// shortSilence is what stands for 3.5 characters above 19200 baud (Serial Line, 2.5.1.1).
	shortSilence     = 1750 * time.Microsecond
	shortSilenceBaud = 19200
	// A TCP connection that brought not a byte for this many requests, to units that answer otherwise or if none does, is
	// taken for half open and made anew.
	maxSilent = 3
	// After this long without a request a TCP connection is asked whether the peer has closed it, before it is used: a
	// device that closes after each answer, or when idle, makes no error then. A write asks always.
	probeIdle = 10 * time.Millisecond
	// bufferSize holds the longest frame with as much noise before it; what is older is dropped.
	bufferSize = 2048
	// maxASCIIFrame is a colon, two characters for each byte of unit, PDU and LRC, and the end of the line.
	maxASCIIFrame = 1 + 2*(1+maxPDU+1) + 2
)

// Links makes the configuration of a link from a bus url.
func Links(a port.Address) LinkConfig {
	c := LinkConfig{Open: a, Framing: TCP, Mode: a.Mode}
	switch {
	case a.Scheme == "ascii":
		c.Framing = ASCII
	case a.Serial(), a.Scheme == "rtuovertcp":
		c.Framing = RTU
	}
	return c
}

// Link is one connection to a line. It implements drivers.Link, and is the transporter under goburrow's client. Only
// Close may be called by another goroutine than the lane's.
type Link struct {
	cfg     LinkConfig
	silence time.Duration

	mu   sync.Mutex // guards port
	port port.Port

	// Owned by the lane.
	transaction uint16
	buf         [bufferSize]byte
	filled      int // bytes of buf that are not yet a frame
	out         [maxASCIIFrame]byte
	plain       [maxRTUFrame]byte // unit and PDU of an ASCII answer
	asked       [maxRTUFrame]byte // unit and PDU of the request
	quietFrom   time.Time         // when the line fell silent
	used        time.Time         // of the last request
	silent      int               // requests in a row that brought not a byte and say something about the connection
	heard       map[byte]bool     // units that answer, of TCP
	late        map[byte]late     // by unit, where there are no transaction ids
	opened      time.Time
	quirks      *Quirks         // of the device of the exchange in flight
	ctx         context.Context // of the exchange in flight: goburrow's Send has none
	sent        bool            // whether a write left since begin
}

// late is a request that was given up, and whose answer may still come. RTU and ASCII have no transaction ids: such an
// answer would be taken for that of the next request of the same shape.
type late struct {
	request []byte
	until   time.Time
	// answered: the request was made again since, and answered; an answer to the first may still come until then.
	answered time.Time
}

// Errors of one exchange on a link that works. The device makes faults of them.
var (
	errMute    = errors.New("no answer")
	errGarbled = errors.New("garbled answer")
)

// NewLink makes a link. It opens nothing.
func NewLink(cfg LinkConfig) *Link {
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Broadcast <= 0 {
		cfg.Broadcast = defaultBroadcast
	}
	l := &Link{cfg: cfg, silence: cfg.Turnaround, heard: map[byte]bool{}}
	l.quirks = &Quirks{}
	if cfg.Framing == RTU && cfg.Mode.Baud > 0 {
		quiet := shortSilence
		if cfg.Mode.Baud <= shortSilenceBaud {
			quiet = cfg.Mode.Chars(7) / 2
		}
		l.silence = max(l.silence, quiet)
	}
	return l
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
	l.filled, l.silent = 0, 0
	l.quietFrom, l.used = time.Now(), time.Now()
	l.opened = l.used
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

func (l *Link) current() port.Port {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.port
}

// begin prepares an exchange: the client's Send takes no context.
func (l *Link) begin(ctx context.Context, q *Quirks) {
	l.ctx, l.quirks, l.sent = ctx, q, false
}

// lostError is the end of a link. It wraps drivers.ErrUnsent where nothing of the request left.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// Send is goburrow's Transporter: one exchange. Its errors are errMute and errGarbled where the link works, and a
// *lostError where it does not. What it returns is valid until the next call.
func (l *Link) Send(request []byte) ([]byte, error) {
	answer, err := l.exchange(request)
	if err != nil && !errors.Is(err, errMute) && !errors.Is(err, errGarbled) {
		err = &lostError{err}
	}
	return answer, err
}

func (l *Link) exchange(request []byte) ([]byte, error) {
	p := l.current()
	if p == nil {
		return nil, fmt.Errorf("the connection is closed: %w", drivers.ErrUnsent)
	}
	if err := l.ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, drivers.ErrUnsent)
	}
	answer, err := l.send(p, request)
	if errors.Is(err, errMute) && l.quirks.Reconnect {
		l.Close() // the bus connects again
	}
	return answer, err
}

func (l *Link) send(p port.Port, request []byte) ([]byte, error) {
	switch l.cfg.Framing {
	case TCP:
		return l.sendTCP(p, request)
	case RTU:
		return l.sendLine(p, append(l.asked[:0], request[:len(request)-crcSize]...), request)
	}
	adu := l.asked[:(len(request)-1-len(asciiEnd))/2]
	if _, err := hex.Decode(adu, request[1:len(request)-len(asciiEnd)]); err != nil {
		return nil, err
	}
	return l.sendLine(p, adu[:len(adu)-1], request) // without the LRC
}

// quiet is from when on the next request may be sent.
func (l *Link) quiet() time.Time {
	from := l.quietFrom.Add(max(l.silence, l.quirks.PauseBetween))
	if warm := l.opened.Add(l.quirks.PauseConnect); l.quirks.PauseConnect > 0 && warm.After(from) {
		return warm
	}
	return from
}

func (l *Link) sendTCP(p port.Port, request []byte) ([]byte, error) {
	if time.Since(l.used) > probeIdle || !reads(request[mbapSize:]) {
		if err := l.discard(p); err != nil {
			return nil, err
		}
	}
	if err := l.wait(l.quiet()); err != nil {
		return nil, err
	}
	// Every device's packager numbers from one, so that ids of one line would collide: the link numbers anew.
	l.transaction++
	out := append(l.out[:0], request...)
	binary.BigEndian.PutUint16(out, l.transaction)
	l.used = time.Now()
	deadline := l.used.Add(l.cfg.Timeout)
	if err := l.write(p, out, deadline); err != nil {
		return nil, err
	}
	defer func() { l.quietFrom = time.Now() }()
	q := l.quirks
	echo := l.cfg.Echo || q.Echo
	for {
		frame, err := l.nextTCP(p)
		if err != nil {
			if errors.Is(err, errMute) && q.AnyID {
				l.Close() // a late answer could not be told from the next one
			}
			return nil, l.halfOpen(request[6], err)
		}
		if binary.BigEndian.Uint16(frame) != l.transaction && !q.AnyID {
			continue // the late answer to a request that was given up
		}
		if echo && bytes.Equal(frame[6:], request[6:]) {
			echo = false
			continue
		}
		if frame[6] != request[6] && !q.AnyUnit || !answers(request[mbapSize:], frame[mbapSize:], q) {
			return nil, fmt.Errorf("%w: % x does not answer % x", errGarbled, frame[6:min(len(frame), 16)], request[6:])
		}
		l.heard[request[6]] = true
		copy(frame, request[:2])
		frame[6] = request[6]
		return frame, nil
	}
}

// halfOpen makes another error of the silence of a unit that answered before, when there was too much of it: the
// connection may lead nowhere.
func (l *Link) halfOpen(unit byte, err error) error {
	if !errors.Is(err, errMute) || len(l.heard) > 0 && !l.heard[unit] {
		return err
	}
	if l.silent++; l.silent < maxSilent {
		return err
	}
	delete(l.heard, unit) // if the connection was right, it is this unit that has gone
	return fmt.Errorf("no answer to %d requests in a row, the connection is made anew: %w", l.silent, drivers.ErrHalfOpen)
}

// nextTCP reads one frame. It stays valid until the next call.
func (l *Link) nextTCP(p port.Port) ([]byte, error) {
	for {
		n, ok := tcpFrame(l.buf[:l.filled])
		if !ok {
			head := l.buf[:min(l.filled, 8)]
			err := fmt.Errorf("%w: % x is no Modbus TCP frame", errGarbled, head)
			l.Close() // the next frame cannot be found; the bus connects again
			return nil, err
		}
		if n > 0 {
			copy(l.out[:], l.buf[:n])
			l.filled = copy(l.buf[:], l.buf[n:l.filled])
			return l.out[:n], nil
		}
		if err := l.read(p); err != nil {
			return nil, err
		}
	}
}

// sendLine makes an exchange by RTU or ASCII; adu are unit and PDU of the request.
func (l *Link) sendLine(p port.Port, adu, request []byte) ([]byte, error) {
	if err := l.wait(l.quiet()); err != nil {
		return nil, err
	}
	if err := l.outlive(adu); err != nil {
		return nil, err
	}
	if err := l.discard(p); err != nil {
		return nil, err
	}
	if l.cfg.Framing == RTU && l.quirks.CRCSwapped {
		request = append(l.out[:0], request...)
		n := len(request)
		request[n-1], request[n-2] = request[n-2], request[n-1]
	}
	size, _ := answerSize(adu[1:])
	if adu[1] == funcIdentify {
		size = maxPDU
	}
	expected := 1 + size + crcSize
	if l.cfg.Framing == ASCII {
		expected = 1 + 2*(1+size+1) + len(asciiEnd)
	}
	echo := l.cfg.Echo || l.quirks.Echo
	if echo {
		expected += len(request)
	}
	l.used = time.Now()
	sending := l.cfg.Mode.Chars(len(request))
	deadline := l.used.Add(sending + l.cfg.Timeout + l.cfg.Mode.Chars(expected))
	if err := l.write(p, request, deadline); err != nil {
		return nil, err
	}
	if adu[0] == 0 {
		l.quietFrom = l.used.Add(sending + l.cfg.Broadcast)
		return l.broadcasted(adu)
	}
	defer func() { l.quietFrom = time.Now() }()
	if echo {
		if err := l.echo(p, request); err != nil {
			return nil, l.halfOpenLine(adu[0], err)
		}
	}
	for {
		if answer := l.find(adu); answer != nil {
			answer[0] = adu[0]
			l.filled = 0
			if g, ok := l.late[adu[0]]; ok {
				// This may have been the late answer to the request before, and then the answer to this one is on its way.
				if g.answered.IsZero() {
					g.answered = g.until
				}
				g.until = l.used.Add(2 * l.cfg.Timeout)
				l.late[adu[0]] = g
			}
			if l.onTCP() {
				l.heard[adu[0]] = true
			}
			return l.frame(answer), nil
		}
		if err := l.read(p); err != nil {
			l.gaveUp(adu)
			return nil, l.halfOpenLine(adu[0], err)
		}
	}
}

// onTCP reports whether a connection carries the frames of a line.
func (l *Link) onTCP() bool { return l.cfg.Mode.Baud == 0 }

// halfOpenLine is halfOpen where a connection carries the frames of a line.
func (l *Link) halfOpenLine(unit byte, err error) error {
	if l.onTCP() {
		return l.halfOpen(unit, err)
	}
	return err
}

// find is the answer to the request, unit and PDU, in what the line brought; nil: it is not there yet.
func (l *Link) find(adu []byte) []byte {
	if l.cfg.Framing == ASCII {
		return asciiFrame(l.plain[:0], adu, l.buf[:l.filled], l.quirks)
	}
	return rtuFrame(adu, l.buf[:l.filled], l.quirks)
}

// frame wraps unit and PDU for goburrow's packager.
func (l *Link) frame(adu []byte) []byte {
	if l.cfg.Framing == ASCII {
		return appendASCII(l.out[:0], adu)
	}
	out := append(l.out[:0], adu...)
	return binary.LittleEndian.AppendUint16(out, crc16(out))
}

// gaveUp remembers a request that was not answered in time.
func (l *Link) gaveUp(request []byte) {
	if l.late == nil {
		l.late = map[byte]late{}
	}
	l.late[request[0]] = late{request: append(l.late[request[0]].request[:0], request...), until: time.Now().Add(l.cfg.Timeout)}
}

// outlive waits, before another request to the same unit, until the answer to one that was given up can be expected no
// more. The same request again needs no wait, unless it was answered since: a late answer is an answer to it.
func (l *Link) outlive(request []byte) error {
	g, ok := l.late[request[0]]
	switch {
	case !ok:
		return nil
	case !time.Now().Before(g.until):
		delete(l.late, request[0])
		return nil
	case bytes.Equal(g.request, request):
		return l.wait(g.answered) // an older value must not come after a newer one
	}
	if err := l.wait(g.until); err != nil {
		return err
	}
	delete(l.late, request[0]) // or each answer from now on would put off the next request
	return nil
}

// broadcasted makes the answer that the client waits for and nobody gives (Serial Line, 2.1).
func (l *Link) broadcasted(request []byte) ([]byte, error) {
	size, _ := answerSize(request[1:])
	if reads(request[1:]) {
		return nil, fmt.Errorf("%w: unit 0 is everybody on a serial line, and nobody answers", errMute)
	}
	if err := l.wait(l.quietFrom); err != nil {
		return nil, err
	}
	return l.frame(request[:1+size]), nil
}

// echo takes the request that comes back off the input, with the noise before it: the echo of a write must never be
// taken for its answer.
func (l *Link) echo(p port.Port, request []byte) error {
	for {
		if i := bytes.Index(l.buf[:l.filled], request); i >= 0 {
			l.filled = copy(l.buf[:], l.buf[i+len(request):l.filled])
			return nil
		}
		if err := l.read(p); err != nil {
			return fmt.Errorf("%w; no echo of the request came back either: is echo set rightly?", err)
		}
	}
}

// wait sleeps until the moment, or until the exchange's context ends.
func (l *Link) wait(until time.Time) error {
	d := time.Until(until)
	if d <= 0 {
		return nil
	}
	if w, ok := l.current().(port.Waiter); ok {
		if err := w.WaitUntil(until); err != nil {
			return fmt.Errorf("%w: %w", closed(err), drivers.ErrUnsent)
		}
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-l.ctx.Done():
		return fmt.Errorf("%w: %w", l.ctx.Err(), drivers.ErrUnsent)
	}
}

// discard drops what came unasked.
func (l *Link) discard(p port.Port) error {
	l.filled = 0
	if err := p.Discard(); err != nil {
		return fmt.Errorf("%w: %w", closed(err), drivers.ErrUnsent)
	}
	return nil
}

func (l *Link) write(p port.Port, b []byte, deadline time.Time) error {
	if err := p.SetDeadline(deadline); err != nil {
		return fmt.Errorf("%w: %w", closed(err), drivers.ErrUnsent)
	}
	n, err := p.Write(b)
	pdu := l.asked[1:]
	if l.cfg.Framing == TCP {
		pdu = b[mbapSize:]
	}
	l.sent = l.sent || n > 0 && !reads(pdu)
	switch {
	case err == nil:
		return nil
	case n == 0 && port.IsTimeout(err):
		// The peer's window is full: it has not read for long, and the kernel would send this later, unasked.
		return fmt.Errorf("the line takes no request: %w", drivers.ErrUnsent)
	case n == 0:
		return fmt.Errorf("%w: %w", closed(err), drivers.ErrUnsent)
	}
	return closed(err)
}

// read adds to buf what the stream brings until the deadline.
func (l *Link) read(p port.Port) error {
	if l.filled == len(l.buf) {
		l.filled = copy(l.buf[:], l.buf[len(l.buf)/2:]) // a peer that never stops: only the newest can be the answer
	}
	n, err := p.Read(l.buf[l.filled:])
	l.filled += n
	switch {
	case n > 0:
		l.silent = 0
		return nil
	case !port.IsTimeout(err):
		return closed(err)
	case l.filled > 0 && l.cfg.Framing != TCP:
		return fmt.Errorf("%w: % x holds no frame of ours", errGarbled, l.buf[:min(l.filled, 16)])
	}
	return fmt.Errorf("%w within %v", errMute, l.cfg.Timeout)
}

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

var _ gomodbus.Transporter = (*Link)(nil)
