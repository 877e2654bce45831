package modbus

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"edged/drivers/port"
	"edged/drivers/tag"
)

// peer is a device on the other end of a net.Pipe. Its answer to a PDU is the frame that answer makes; a nil frame is
// silence.
type peer struct {
	framing Framing
	respond func(n int, adu []byte, reply func(...[]byte))
	units   map[byte]func(pdu []byte) []byte

	mu       sync.Mutex // guards the fields below
	requests [][]byte   // ADUs as they came
	times    []time.Time
	conns    []net.Conn
	gate     func(n int) error // of a connect; nil: open
}

// Open makes a connection to the peer.
func (p *peer) Open(context.Context) (port.Port, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != nil {
		if err := p.gate(len(p.conns)); err != nil {
			return nil, err
		}
	}
	ours, theirs := net.Pipe()
	p.conns = append(p.conns, theirs)
	go p.serve(theirs)
	return port.FromConn(ours), nil
}

func (p *peer) serve(c net.Conn) {
	defer c.Close()
	var writing sync.Mutex
	buf := make([]byte, 512)
	for {
		n, err := c.Read(buf) // a pipe brings each Write whole
		if err != nil {
			return
		}
		adu := bytes.Clone(buf[:n])
		p.mu.Lock()
		count := len(p.requests)
		p.requests = append(p.requests, adu)
		p.times = append(p.times, time.Now())
		p.mu.Unlock()
		reply := func(parts ...[]byte) {
			writing.Lock()
			defer writing.Unlock()
			for _, b := range parts {
				if len(b) > 0 {
					c.Write(b)
				}
			}
		}
		// A pipe holds nothing: a peer that is about to answer has to go on reading, as a socket does.
		go func() {
			if p.respond != nil {
				p.respond(count, adu, reply)
			} else {
				reply(p.answer(adu))
			}
		}()
	}
}

// answer is the proper frame of the device that the request is for.
func (p *peer) answer(adu []byte) []byte {
	unit, pdu := p.unwrap(adu)
	device := p.units[unit]
	if device == nil {
		return nil
	}
	return p.wrap(adu, device(pdu))
}

// unwrap is the unit and the PDU of a request.
func (p *peer) unwrap(adu []byte) (unit byte, pdu []byte) {
	switch p.framing {
	case TCP:
		return adu[6], adu[mbapSize:]
	case ASCII:
		plain, err := hex.DecodeString(string(adu[1 : len(adu)-2]))
		if err != nil || lrc(plain) != 0 {
			panic(fmt.Sprintf("%q is no request", adu))
		}
		return plain[0], plain[1 : len(plain)-1]
	}
	return adu[0], adu[1 : len(adu)-2]
}

// wrap is the frame of a PDU that answers a request.
func (p *peer) wrap(request, pdu []byte) []byte {
	unit, _ := p.unwrap(request)
	switch p.framing {
	case TCP:
		return tcpADU(binary.BigEndian.Uint16(request), unit, pdu)
	case ASCII:
		return appendASCII(nil, append([]byte{unit}, pdu...))
	}
	return rtuADU(unit, pdu)
}

func tcpADU(transaction uint16, unit byte, pdu []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, transaction)
	b = append(b, 0, 0, 0, byte(len(pdu)+1), unit)
	return append(b, pdu...)
}

func rtuADU(unit byte, pdu []byte) []byte {
	b := append([]byte{unit}, pdu...)
	return binary.LittleEndian.AppendUint16(b, crc16(b))
}

func (p *peer) seen() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// registers is a device that knows all functions; refuse may answer instead.
type registers struct {
	mu      sync.Mutex
	holding [1000]uint16
	coils   [1000]bool
	refuse  func(pdu []byte) byte // exception code; 0: none
}

func (r *registers) answer(pdu []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		if code := r.refuse(pdu); code != 0 {
			return []byte{pdu[0] | exceptionBit, code}
		}
	}
	at, n := int(binary.BigEndian.Uint16(pdu[1:])), int(binary.BigEndian.Uint16(pdu[3:]))
	switch pdu[0] {
	case 1, 2:
		out := make([]byte, 2+(n+7)/8)
		out[0], out[1] = pdu[0], byte(len(out)-2)
		for i := range n {
			if r.coils[at+i] {
				out[2+i/8] |= 1 << (i % 8)
			}
		}
		return out
	case 3, 4:
		out := []byte{pdu[0], byte(2 * n)}
		for i := range n {
			out = binary.BigEndian.AppendUint16(out, r.holding[at+i])
		}
		return out
	case 5:
		r.coils[at] = n == 0xFF00
		return pdu
	case 6:
		r.holding[at] = uint16(n)
		return pdu
	case 15:
		for i := range n {
			r.coils[at+i] = pdu[6+i/8]>>(i%8)&1 == 1
		}
		return pdu[:5]
	case 16:
		for i := range n {
			r.holding[at+i] = binary.BigEndian.Uint16(pdu[6+2*i:])
		}
		return pdu[:5]
	case 22:
		or := binary.BigEndian.Uint16(pdu[5:])
		r.holding[at] = r.holding[at]&uint16(n) | or&^uint16(n)
		return pdu
	}
	return []byte{pdu[0] | exceptionBit, 1}
}

// open makes a device of tags over a peer.
func open(t *testing.T, p *peer, cfg Config, lc LinkConfig) (*Device, *Link) {
	t.Helper()
	lc.Open, lc.Framing = p, p.framing
	l := NewLink(lc)
	if cfg.Unit == 0 {
		cfg.Unit = 1
	}
	cfg.Name = "boiler"
	for i := range cfg.Tags {
		cfg.Tags[i].Ref = tag.Ref(i + 1)
	}
	d, err := New(cfg, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d, l
}

// closeAll ends the peer's side too.
func closeAll(l *Link, p *peer) {
	l.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	time.Sleep(time.Minute) // of a bubble: late answers run into the closed pipe
}
