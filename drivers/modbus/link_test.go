package modbus

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers"
	"edged/drivers/port"
	"edged/drivers/tag"
)

const waits = 100 * time.Millisecond

func TestReadFaults(t *testing.T) {
	good := func(pdu ...byte) []byte { return pdu }
	for _, row := range []struct {
		name    string
		framing Framing
		answer  func(adu []byte) [][]byte // parts of the stream
		status  tag.Status
		kind    drivers.FaultKind
	}{
		{"D12 silence", TCP, func([]byte) [][]byte { return nil }, tag.BadNoCommunication, drivers.Mute},
		{"D12 silence", RTU, func([]byte) [][]byte { return nil }, tag.BadNoCommunication, drivers.Mute},
		{"proper", TCP, func(a []byte) [][]byte {
			return [][]byte{tcpADU(binary.BigEndian.Uint16(a), 1, good(3, 2, 0, 42))}
		}, tag.Good, 0},
		{"proper, byte by byte", TCP, func(a []byte) [][]byte {
			return split(tcpADU(binary.BigEndian.Uint16(a), 1, good(3, 2, 0, 42)))
		}, tag.Good, 0},
		{"proper, byte by byte", RTU, func([]byte) [][]byte { return split(rtuADU(1, good(3, 2, 0, 42))) }, tag.Good, 0},
		{"exception 6", TCP, func(a []byte) [][]byte {
			return [][]byte{tcpADU(binary.BigEndian.Uint16(a), 1, good(0x83, 6))}
		}, tag.BadResourceUnavailable, drivers.Busy},
		{"exception 4", RTU, func([]byte) [][]byte { return [][]byte{rtuADU(1, good(0x83, 4))} }, tag.BadDeviceFailure, drivers.Refused},
		{"exception 1", RTU, func([]byte) [][]byte { return [][]byte{rtuADU(1, good(0x83, 1))} }, tag.BadNotSupported, drivers.Refused},
		{"exception 2", RTU, func([]byte) [][]byte { return [][]byte{rtuADU(1, good(0x83, 2))} }, tag.BadConfigurationError, drivers.Refused},
		{"exception 3", RTU, func([]byte) [][]byte { return [][]byte{rtuADU(1, good(0x83, 3))} }, tag.BadConfigurationError, drivers.Refused},
		{"exception 5", RTU, func([]byte) [][]byte { return [][]byte{rtuADU(1, good(0x83, 5))} }, tag.BadResourceUnavailable, drivers.Busy},
		{"exception 8", RTU, func([]byte) [][]byte { return [][]byte{rtuADU(1, good(0x83, 8))} }, tag.BadDeviceFailure, drivers.Refused},
		{"exception unknown", RTU, func([]byte) [][]byte { return [][]byte{rtuADU(1, good(0x83, 77))} }, tag.BadDeviceFailure, drivers.Refused},
		{"D11 exception 10", TCP, func(a []byte) [][]byte {
			return [][]byte{tcpADU(binary.BigEndian.Uint16(a), 1, good(0x83, 10))}
		}, tag.BadNoCommunication, drivers.Mute},
		{"D11 exception 11", TCP, func(a []byte) [][]byte {
			return [][]byte{tcpADU(binary.BigEndian.Uint16(a), 1, good(0x83, 11))}
		}, tag.BadNoCommunication, drivers.Mute},
		{"wrong count", TCP, func(a []byte) [][]byte {
			return [][]byte{tcpADU(binary.BigEndian.Uint16(a), 1, good(3, 4, 0, 42, 0, 43))}
		}, tag.BadCommunicationError, drivers.Garbled},
		{"count that lies", TCP, func(a []byte) [][]byte {
			return [][]byte{tcpADU(binary.BigEndian.Uint16(a), 1, good(3, 9, 0, 42))}
		}, tag.BadCommunicationError, drivers.Garbled},
		{"wrong function is no exception", TCP, func(a []byte) [][]byte {
			return [][]byte{tcpADU(binary.BigEndian.Uint16(a), 1, good(4, 2, 0, 42))}
		}, tag.BadCommunicationError, drivers.Garbled},
		{"exception of another function", TCP, func(a []byte) [][]byte {
			return [][]byte{tcpADU(binary.BigEndian.Uint16(a), 1, good(0x84, 2))}
		}, tag.BadCommunicationError, drivers.Garbled},
		{"D15 wrong unit", TCP, func(a []byte) [][]byte {
			return [][]byte{tcpADU(binary.BigEndian.Uint16(a), 0, good(3, 2, 0, 42))}
		}, tag.BadCommunicationError, drivers.Garbled},
		{"frame of one byte", TCP, func(a []byte) [][]byte {
			return [][]byte{{a[0], a[1], 0, 0, 0, 1, 1}}
		}, tag.BadCommunicationError, drivers.Garbled},
		{"no frame at all", TCP, func([]byte) [][]byte { return [][]byte{[]byte("HTTP/1.1 400 Bad Request\r\n\r\n")} }, tag.BadCommunicationError, drivers.Garbled},
		{"frame cut short", TCP, func(a []byte) [][]byte {
			return [][]byte{tcpADU(binary.BigEndian.Uint16(a), 1, good(3, 2, 0, 42))[:9]}
		}, tag.BadNoCommunication, drivers.Mute},
		{"D1 an older answer first", TCP, func(a []byte) [][]byte {
			n := binary.BigEndian.Uint16(a)
			return [][]byte{tcpADU(n-1, 1, good(3, 2, 0, 99)), tcpADU(n, 1, good(3, 2, 0, 42))}
		}, tag.Good, 0},
		{"wrong unit", RTU, func([]byte) [][]byte { return [][]byte{rtuADU(2, good(3, 2, 0, 42))} }, tag.BadCommunicationError, drivers.Garbled},
		{"wrong checksum", RTU, func([]byte) [][]byte {
			b := rtuADU(1, good(3, 2, 0, 42))
			b[4] ^= 1
			return [][]byte{b}
		}, tag.BadCommunicationError, drivers.Garbled},
		{"cut short", RTU, func([]byte) [][]byte { return [][]byte{rtuADU(1, good(3, 2, 0, 42))[:5]} }, tag.BadCommunicationError, drivers.Garbled},
		{"D18 zeros and noise around", RTU, func([]byte) [][]byte {
			return [][]byte{{0, 0, 0xFF, 1, 3, 1}, rtuADU(1, good(3, 2, 0, 42)), {0, 0, 0}}
		}, tag.Good, 0},
		{"D18 noise that begins like a frame", RTU, func([]byte) [][]byte {
			return [][]byte{{1, 3, 2, 0}, rtuADU(1, good(3, 2, 0, 42))}
		}, tag.Good, 0},
		{"a peer that never stops", RTU, func([]byte) [][]byte { return [][]byte{bytes.Repeat([]byte{1, 3}, 3000)} }, tag.BadCommunicationError, drivers.Garbled},
	} {
		name := map[Framing]string{TCP: "TCP ", RTU: "RTU "}[row.framing] + row.name
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{framing: row.framing, respond: func(_ int, adu []byte, reply func(...[]byte)) { reply(row.answer(adu)...) }}
				d, l := open(t, p, Config{Tags: []Tag{{Name: "t", Address: "holding:7"}}}, LinkConfig{Timeout: waits})
				defer closeAll(l, p)
				began := time.Now()
				got, err := d.Poll(t.Context(), 0, 0, nil)
				if len(got) != 1 || got[0].Status != row.status {
					t.Fatalf("%v, %v; want %v", got, err, row.status)
				}
				if row.status == tag.Good {
					if err != nil || !got[0].Value.Equal(tag.Of(uint16(42))) {
						t.Errorf("%v, %v", got[0].Value, err)
					}
					return
				}
				var f *drivers.Fault
				if !errors.As(err, &f) || f.Kind != row.kind {
					t.Errorf("%v is no fault of kind %v", err, row.kind)
				}
				if !got[0].Value.IsNull() {
					t.Errorf("D12 a failed read has the value %v", got[0].Value)
				}
				if took := time.Since(began); took > waits+5*time.Millisecond {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func split(b []byte) (out [][]byte) {
	for i := range b {
		out = append(out, b[i:i+1])
	}
	return out
}

func TestD1LateAnswersNeverSwapValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &registers{}
		dev.holding[0], dev.holding[500] = 111, 555
		p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{1: dev.answer}}
		p.respond = func(n int, adu []byte, reply func(...[]byte)) {
			if n == 0 {
				time.Sleep(waits + waits/2) // past the time-out, into the next request
			}
			reply(p.answer(adu))
		}
		d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0"}, {Name: "b", Address: "holding:500"}}}, LinkConfig{Timeout: waits})
		defer closeAll(l, p)
		want := map[tag.Ref]uint16{1: 111, 2: 555}
		bad := 0
		for i := range 10 {
			got, err := d.Poll(t.Context(), 0, i%2, nil)
			if got[0].Status != tag.Good {
				bad++
				continue
			}
			if err != nil || got[0].Value.Bits() != uint64(want[got[0].Ref]) {
				t.Fatalf("poll %d: tag %d is %v, %v", i, got[0].Ref, got[0].Value, err)
			}
		}
		if bad != 1 || len(p.conns) != 1 {
			t.Errorf("%d bad polls, %d connections; want 1 and 1", bad, len(p.conns))
		}
	})
}

func TestD1LateAnswersOnASerialLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &registers{}
		dev.holding[0], dev.holding[500] = 111, 555
		p := &peer{framing: RTU, units: map[byte]func([]byte) []byte{1: dev.answer}}
		one := make(chan struct{}, 1) // a device answers one request after the other
		p.respond = func(n int, adu []byte, reply func(...[]byte)) {
			one <- struct{}{}
			defer func() { <-one }()
			if n < 2 { // the request and its repetition are both answered late
				time.Sleep(waits + waits/4)
			}
			reply(p.answer(adu))
		}
		d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0"}, {Name: "b", Address: "holding:500"}}}, LinkConfig{Timeout: waits})
		defer closeAll(l, p)
		want := map[tag.Ref]uint64{1: 111, 2: 555}
		good := 0
		for _, request := range []int{0, 0, 1, 0, 1, 0} {
			for _, s := range first(d.Poll(t.Context(), 0, request, nil)) {
				if s.Status != tag.Good {
					continue
				}
				good++
				if s.Value.Bits() != want[s.Ref] {
					t.Errorf("tag %d is %v", s.Ref, s.Value)
				}
			}
		}
		if good != 5 {
			t.Errorf("%d good readings of 6", good)
		}
	})
}

func first(s []tag.Sample, _ error) []tag.Sample { return s }

func TestD21SilentConnectionIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{framing: TCP}
		d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0"}}}, LinkConfig{Timeout: waits})
		defer closeAll(l, p)
		for i := range maxSilent {
			_, err := d.Poll(t.Context(), 0, 0, nil)
			var f *drivers.Fault
			if isFault := errors.As(err, &f); isFault != (i < maxSilent-1) {
				t.Fatalf("silence %d: %v", i, err)
			}
		}
	})
}

func TestD20ConnectionClosedWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &registers{}
		p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{1: dev.answer}}
		d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0", Access: tag.Readable | tag.Writable}}}, LinkConfig{Timeout: waits})
		defer closeAll(l, p)
		if _, err := d.Poll(t.Context(), 0, 0, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		p.conns[0].Close()
		time.Sleep(5 * time.Second)
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(5)), Status: tag.BadNoCommunication}}
		if err := d.Write(t.Context(), 0, cmds); !errors.Is(err, drivers.ErrUnsent) || cmds[0].Status != tag.BadNoCommunication {
			t.Errorf("%v, %v", err, cmds[0].Status)
		}
		if err := l.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.Write(t.Context(), 0, cmds); err != nil || cmds[0].Status != tag.Good || dev.holding[0] != 5 {
			t.Errorf("%v, %v, register %d", err, cmds[0].Status, dev.holding[0])
		}
	})
}

// A unit that never answered says nothing about a connection through which others do.
func TestD21SilenceOfADeadUnitIsNotTheConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &registers{}
		p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{1: dev.answer}}
		var cut atomic.Bool
		p.respond = func(_ int, adu []byte, reply func(...[]byte)) {
			if !cut.Load() {
				reply(p.answer(adu))
			}
		}
		alive, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0"}}}, LinkConfig{Timeout: waits})
		defer closeAll(l, p)
		gone, err := New(Config{Name: "gone", Unit: 2, Tags: []Tag{{Ref: 1, Name: "a", Address: "holding:0"}}}, l)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := alive.Poll(t.Context(), 0, 0, nil); err != nil {
			t.Fatal(err)
		}
		for i := range 2 * maxSilent {
			_, err := gone.Poll(t.Context(), 0, 0, nil)
			var f *drivers.Fault
			if !errors.As(err, &f) || f.Kind != drivers.Mute {
				t.Errorf("silence %d: %v", i, err)
			}
		}
		cut.Store(true)
		for i := range maxSilent {
			_, err := alive.Poll(t.Context(), 0, 0, nil)
			if half := errors.Is(err, drivers.ErrHalfOpen); half != (i == maxSilent-1) {
				t.Errorf("silence %d of a unit that had answered: %v", i, err)
			}
		}
	})
}

// A write is never sent into a connection that the peer has closed, however short ago it was used: it would be lost, and
// its outcome unknown. A pipe tells a writer that the other end has gone, a socket does not.
func TestD20ConnectionClosedAfterEachAnswer(t *testing.T) {
	dev := &registers{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	closed := make(chan struct{}, 1)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			adu := make([]byte, maxTCPFrame)
			if n, err := c.Read(adu); err == nil {
				c.Write(tcpADU(binary.BigEndian.Uint16(adu), adu[6], dev.answer(adu[7:n])))
			}
			c.Close()
			closed <- struct{}{}
		}
	}()
	l := NewLink(LinkConfig{Timeout: 5 * time.Second, Open: port.OpenFunc(func(context.Context) (port.Port, error) {
		c, err := net.Dial("tcp", ln.Addr().String())
		return port.FromConn(c), err
	})})
	defer l.Close()
	d, err := New(Config{Name: "boiler", Unit: 1, Tags: []Tag{
		{Ref: 1, Name: "a", Address: "holding:0", Access: tag.Readable | tag.Writable}}}, l)
	if err == nil {
		err = l.Open(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := d.Poll(t.Context(), 0, 0, nil); err != nil {
			t.Fatal(err)
		}
		<-closed
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(5)), Status: tag.BadNoCommunication}}
		if err := d.Write(t.Context(), 0, cmds); !errors.Is(err, drivers.ErrUnsent) || cmds[0].Status != tag.BadNoCommunication {
			t.Errorf("round %d: %v, %v", i, err, cmds[0].Status)
		}
		if err := l.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLostLinkIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{framing: TCP}
		p.respond = func(int, []byte, func(...[]byte)) { p.conns[0].Close() }
		rw := tag.Readable | tag.Writable
		d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0", Access: rw}}}, LinkConfig{Timeout: waits})
		defer closeAll(l, p)
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(5)), Status: tag.BadNoCommunication}}
		err := d.Write(t.Context(), 0, cmds)
		var f *drivers.Fault
		if err == nil || errors.As(err, &f) || errors.Is(err, drivers.ErrUnsent) || !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
		if cmds[0].Status != tag.BadTimeout {
			t.Errorf("sent, and the link was lost: %v", cmds[0].Status)
		}
		got, err := d.Poll(t.Context(), 0, 0, nil)
		if len(got) != 0 || err == nil || errors.As(err, &f) {
			t.Errorf("%v, %v", got, err)
		}
		l.Close()
		if _, err := d.Poll(t.Context(), 0, 0, nil); !errors.Is(err, drivers.ErrUnsent) {
			t.Errorf("on a closed link: %v", err)
		}
	})
}

func TestD17SilenceBeforeTheNextRequest(t *testing.T) {
	for _, row := range []struct {
		baud       int
		turnaround time.Duration
		quiet      time.Duration
	}{
		{9600, 0, 4010416 * time.Nanosecond}, // 3.5 characters of 11 bits
		{19200, 0, 2005208 * time.Nanosecond},
		{115200, 0, 1750 * time.Microsecond},
		{115200, 5 * time.Millisecond, 5 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			dev := &registers{}
			p := &peer{framing: RTU, units: map[byte]func([]byte) []byte{1: dev.answer}}
			d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0"}}},
				LinkConfig{Timeout: waits, Turnaround: row.turnaround, Mode: port.Mode{Baud: row.baud, Data: 8, Parity: "even", Stop: 1}})
			defer closeAll(l, p)
			var ended time.Time
			for i := range 5 {
				if _, err := d.Poll(t.Context(), 0, 0, nil); err != nil {
					t.Fatal(err)
				}
				// Discard takes up to a millisecond on a pipe, which is silence too.
				if gap := p.times[i].Sub(ended); i > 0 && (gap < row.quiet || gap > row.quiet+2*time.Millisecond) {
					t.Errorf("%d baud: %v of silence, want %v", row.baud, gap, row.quiet)
				}
				ended = time.Now()
			}
		})
	}
}

func TestLongAnswersOnSlowLinesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &registers{}
		p := &peer{framing: RTU, units: map[byte]func([]byte) []byte{1: dev.answer}}
		mode := port.Mode{Baud: 1200, Data: 8, Parity: "none", Stop: 1}
		p.respond = func(_ int, adu []byte, reply func(...[]byte)) {
			for _, b := range split(p.answer(adu)) {
				time.Sleep(mode.Chars(1))
				reply(b)
			}
		}
		d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0", Type: "uint16[100]"}}}, LinkConfig{Timeout: waits, Mode: mode})
		defer closeAll(l, p)
		if got, err := d.Poll(t.Context(), 0, 0, nil); err != nil || got[0].Status != tag.Good {
			t.Errorf("1.7 s of characters with a time-out of %v: %v", waits, err)
		}
	})
}

func TestD18Echo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &registers{}
		dev.holding[0] = 42
		p := &peer{framing: RTU, units: map[byte]func([]byte) []byte{1: dev.answer}}
		answers := true
		p.respond = func(_ int, adu []byte, reply func(...[]byte)) {
			reply([]byte{0xFF}, adu)
			if answers {
				reply(p.answer(adu))
			}
		}
		rw := tag.Readable | tag.Writable
		d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0", Access: rw}}}, LinkConfig{Timeout: waits, Echo: true})
		defer closeAll(l, p)
		if got, err := d.Poll(t.Context(), 0, 0, nil); err != nil || got[0].Value.Bits() != 42 {
			t.Errorf("%v, %v", got, err)
		}
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(5))}}
		if err := d.Write(t.Context(), 0, cmds); err != nil || cmds[0].Status != tag.Good {
			t.Errorf("%v, %v", err, cmds[0].Status)
		}
		answers = false
		if d.Write(t.Context(), 0, cmds); cmds[0].Status != tag.BadTimeout {
			t.Errorf("the echo of a write was taken for its answer: %v", cmds[0].Status)
		}
	})
}

func TestD15BroadcastReturnsQuickly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{framing: RTU}
		lc := LinkConfig{Timeout: 5 * time.Second, Broadcast: 100 * time.Millisecond, Open: p, Framing: RTU}
		l := NewLink(lc)
		d, err := New(Config{Name: "all", Unit: 0, Tags: []Tag{
			{Ref: 1, Name: "one", Address: "holding:0", Access: tag.Writable},
			{Ref: 2, Name: "row", Address: "holding:4", Type: "uint16[2]", Access: tag.Writable},
			{Ref: 3, Name: "coil", Address: "coil:4", Access: tag.Writable},
		}}, l)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer closeAll(l, p)
		for _, c := range []tag.Command{{Ref: 1, Value: tag.Of(uint16(5))}, {Ref: 2, Value: tag.OfSlice([]uint16{5, 6})}, {Ref: 3, Value: tag.Of(true)}} {
			began := time.Now()
			cmds := []tag.Command{c}
			if err := d.Write(t.Context(), 0, cmds); err != nil || cmds[0].Status != tag.Good {
				t.Errorf("%v, %v", err, cmds[0].Status)
			}
			if took := time.Since(began); took < 100*time.Millisecond || took > 110*time.Millisecond {
				t.Errorf("took %v", took)
			}
		}
	})
}

func TestD15UnitsOnTCPAreSentAsConfigured(t *testing.T) {
	for _, unit := range []int{0, 1, 255} {
		synctest.Test(t, func(t *testing.T) {
			dev := &registers{}
			p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{byte(unit): dev.answer}}
			l := NewLink(LinkConfig{Timeout: waits, Open: p, Framing: TCP})
			d, err := New(Config{Name: "d", Unit: unit, Tags: []Tag{{Ref: 1, Name: "a", Address: "holding:0"}}}, l)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer closeAll(l, p)
			if _, err := d.Poll(t.Context(), 0, 0, nil); err != nil || p.seen()[0][6] != byte(unit) {
				t.Errorf("unit %d: %v", unit, err)
			}
		})
	}
}

func TestSharedLinkNumbersTransactionsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &registers{}
		p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{1: dev.answer, 2: dev.answer}}
		l := NewLink(LinkConfig{Timeout: waits, Open: p, Framing: TCP})
		if err := l.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer closeAll(l, p)
		for unit := 1; unit <= 2; unit++ {
			d, err := New(Config{Name: "d", Unit: unit, Tags: []Tag{{Ref: 1, Name: "a", Address: "holding:0"}}}, l)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Poll(t.Context(), 0, 0, nil); err != nil {
				t.Fatal(err)
			}
		}
		if a, b := p.seen()[0], p.seen()[1]; bytes.Equal(a[:2], b[:2]) {
			t.Errorf("two requests of one link have the transaction id % x", a[:2])
		}
	})
}

func TestEndOfTheContextEndsTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{framing: RTU}
		d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0"}}}, LinkConfig{Timeout: waits, Turnaround: time.Hour, Mode: port.DefaultMode})
		defer closeAll(l, p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Poll(ctx, 0, 0, nil); !errors.Is(err, drivers.ErrUnsent) {
			t.Errorf("%v", err)
		}
		if len(p.seen()) != 0 {
			t.Error("a request was sent after the end")
		}
	})
}
