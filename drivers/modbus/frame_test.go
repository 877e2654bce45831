package modbus

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"edged/drivers/port"
	"edged/drivers/tag"
)

func TestCRC(t *testing.T) {
	// Serial Line, appendix B: the CRC of 02 07 is 41 12 on the wire.
	if c := crc16([]byte{2, 7}); c != 0x1241 {
		t.Errorf("%04x", c)
	}
}

// requests of every function, as units and PDUs.
var allRequests = [][]byte{
	unhex("01 01 0013 0025"), unhex("01 02 00C4 0016"), unhex("01 03 006B 0003"), unhex("01 04 0008 0001"),
	unhex("01 05 00AC FF00"), unhex("01 06 0001 0003"), unhex("01 0F 0013 000A 02 CD01"), unhex("01 10 0001 0002 04 000A 0102"),
	unhex("01 16 0004 00F2 0025"), unhex("01 17 0003 0006 000E 0003 06 00FF 00FF 00FF"), unhex("01 2B 0E 01 00"),
}

// The answers to them in the examples of the Application Protocol, 6.1 to 6.17 and 6.21.
var allAnswers = []string{"01 05 CD6BB20E1B", "02 03 ACDB35", "03 06 022B 0000 0064", "04 02 000A", "05 00AC FF00", "06 0001 0003",
	"0F 0013 000A", "10 0001 0002", "16 0004 00F2 0025", "17 0C 00FE 0ACD 0001 0003 000D 00FF",
	"2B 0E 01 01 00 00 03 00 16 436F6D70616E79206964656E74696669636174696F6E 01 0E 50726F6475637420636F6465 2058 02 05 56322E3131"}

// lineFrames are the decoders of lines, with what makes their frames.
var lineFrames = map[string]struct {
	find func(request, b []byte) []byte
	make func(adu []byte) []byte
}{
	"RTU": {func(request, b []byte) []byte { return rtuFrame(request, b, &Quirks{}) },
		func(adu []byte) []byte { return rtuADU(adu[0], adu[1:]) }},
	"ASCII": {func(request, b []byte) []byte { return asciiFrame(make([]byte, 0, maxRTUFrame), request, b, &Quirks{}) },
		func(adu []byte) []byte { return appendASCII(nil, adu) }},
}

func TestAnswersOfTheStandard(t *testing.T) {
	for name, frames := range lineFrames {
		for i, answer := range allAnswers {
			request, adu := allRequests[i], append([]byte{1}, unhex(answer)...)
			frame := frames.make(adu)
			noisy := append(append([]byte{0, 1, ':', 0xFF}, frame...), 0, 0, 0)
			for _, b := range [][]byte{frame, noisy} {
				if got := frames.find(request, b); !bytes.Equal(got, adu) {
					t.Errorf("%s: % x is not taken for the answer to % x", name, b, request)
				}
			}
			for n := range frame {
				if got := frames.find(request, frame[:n]); got != nil {
					t.Errorf("%s: the first %d bytes of % x were taken for a frame", name, n, frame)
				}
			}
			for _, at := range []int{0, 1} { // another unit, another function
				other := bytes.Clone(adu)
				other[at] ^= 2
				if got := frames.find(request, frames.make(other)); got != nil {
					t.Errorf("%s: % x was taken for the answer to % x", name, other, request)
				}
			}
			for at := range frame { // one wrong bit
				other := bytes.Clone(frame)
				other[at] ^= 1
				if got := frames.find(request, other); got != nil && !bytes.Equal(got, adu) {
					t.Errorf("%s: % x was taken for the answer to % x", name, other, request)
				}
			}
			if got := frames.find(request, frames.make([]byte{1, request[1] | exceptionBit, 2})); len(got) != 3 {
				t.Errorf("%s: no exception to % x", name, request)
			}
		}
	}
}

func TestASCIIGolden(t *testing.T) {
	// The LRC of 02 07 is F7 (Serial Line, 6.2.1 has the procedure).
	if got := string(appendASCII(nil, []byte{2, 7})); got != ":0207F7\r\n" {
		t.Errorf("%q", got)
	}
	request := unhex("01 03 006B 0003")
	for _, row := range []struct {
		name, stream string
		ok           bool
	}{
		{"proper", ":010306022B00000064 65\r\n", true},
		{"small letters", ":010306022b0000006465\r\n", true},
		{"a frame that broke off before", ":0103\x00:010306022B0000006465\r\n", true},
		{"behind another line", "hello\r\n:010306022B0000006465\r\n", true},
		{"wrong LRC", ":010306022B0000006466\r\n", false},
		{"odd number of digits", ":010306022B000000646\r\n", false},
		{"no end", ":010306022B0000006465\r", false},
		{"no start", "010306022B0000006465\r\n", true}, // the colon was lost in noise, and the LRC is right
		{"no digits", ":01030602ZZ0000006465\r\n", false},
		{"LRC alone", ":00\r\n", false},
		{"longer than any frame", ":" + strings.Repeat("00", 300) + "\r\n", false},
	} {
		stream := strings.ReplaceAll(row.stream, " ", "")
		if got := lineFrames["ASCII"].find(request, []byte(stream)); (got != nil) != row.ok {
			t.Errorf("%s: % x", row.name, got)
		}
	}
}

func checkFound(t *testing.T, request, adu []byte) {
	t.Helper()
	switch {
	case len(adu) < 3 || adu[0] != request[0] || adu[1]&^exceptionBit != request[1] || len(adu) > 1+maxPDU:
		t.Fatalf("% x for % x", adu, request)
	case adu[1] == request[1] && reads(request[1:]) && request[1] != funcIdentify && int(adu[2]) != len(adu)-3:
		t.Fatalf("% x for % x: the count lies", adu, request)
	}
}

func FuzzRTUFrame(f *testing.F) {
	for i, answer := range allAnswers {
		f.Add(i, rtuADU(1, unhex(answer)))
		f.Add(i, append([]byte{0, 1}, rtuADU(1, []byte{0x83, 2})...))
	}
	f.Fuzz(func(t *testing.T, i int, stream []byte) {
		request := allRequests[uint(i)%uint(len(allRequests))]
		adu := rtuFrame(request, stream, &Quirks{})
		if adu == nil {
			return
		}
		checkFound(t, request, adu)
		if !bytes.Contains(stream, rtuADU(adu[0], adu[1:])) {
			t.Fatalf("% x does not stand in % x with its checksum", adu, stream)
		}
	})
}

func FuzzASCIIFrame(f *testing.F) {
	for i, answer := range allAnswers {
		f.Add(i, appendASCII(nil, append([]byte{1}, unhex(answer)...)))
		f.Add(i, append([]byte(":01"), appendASCII(nil, []byte{1, 0x83, 2})...))
	}
	f.Fuzz(func(t *testing.T, i int, stream []byte) {
		request := allRequests[uint(i)%uint(len(allRequests))]
		adu := asciiFrame(make([]byte, 0, maxRTUFrame), request, stream, &Quirks{})
		if adu == nil {
			return
		}
		checkFound(t, request, adu)
		line := appendASCII(nil, adu)[1:] // the colon may be lost
		if !bytes.Contains(bytes.ToUpper(stream), line) {
			t.Fatalf("% x does not stand in %q with its LRC", adu, stream)
		}
	})
}

func FuzzIdentification(f *testing.F) {
	f.Add(unhex(allAnswers[10])[1:])
	f.Add(unhex("0E 02 83 FF 05 01 00 03 616263"))
	f.Add(unhex("0E 02 83 00 00 02 00 03 61"))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := identification{access: accessRegular}
		more, err := w.take(b)
		if more && (err != nil || w.next == 0 || w.next >= objects) {
			t.Fatalf("% x: next is %d, %v", b, w.next, err)
		}
		for _, s := range w.text {
			if !utf8.ValidString(s) || len(s) > 3*255 || strings.ContainsFunc(s, unicode.IsControl) {
				t.Fatalf("% x: text %q", b, s)
			}
		}
	})
}

func FuzzTCPFrame(f *testing.F) {
	f.Add(unhex("0001 0000 0005 01 03 02 002A"))
	f.Add(unhex("0001 0000 0001 01"))
	f.Add(unhex("0001 0000 FFFF 01 03"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		n, ok := tcpFrame(stream)
		switch {
		case !ok && n != 0, n < 0, n > len(stream), n > maxTCPFrame, n > 0 && n < mbapSize+1:
			t.Fatalf("% x: %d, %v", stream, n, ok)
		case ok && n == 0 && len(stream) >= maxTCPFrame:
			t.Fatalf("% x: waits for more", stream)
		}
	})
}

// canned is a port whose peer says the same whatever it is asked.
type canned struct {
	data []byte
	at   int
}

func (c *canned) Read(p []byte) (int, error) {
	if c.at == len(c.data) {
		return 0, context.DeadlineExceeded
	}
	n := copy(p, c.data[c.at:])
	c.at += n
	return n, nil
}
func (c *canned) Write(p []byte) (int, error) { return len(p), nil }
func (c *canned) SetDeadline(time.Time) error { return nil }
func (c *canned) Discard() error              { return nil }
func (c *canned) Drain() error                { return nil }
func (c *canned) Close() error                { return nil }

func FuzzExchange(f *testing.F) {
	f.Add(uint8(TCP), unhex("0001 0000 0005 01 03 02 002A"))
	f.Add(uint8(RTU), rtuADU(1, unhex("03 02 002A")))
	f.Add(uint8(ASCII), appendASCII(nil, unhex("01 03 02 002A")))
	f.Add(uint8(TCP), unhex("0001 0000 0003 01 83 02"))
	f.Fuzz(func(t *testing.T, framing uint8, stream []byte) {
		lc := LinkConfig{Timeout: time.Second, Open: port.OpenFunc(func(context.Context) (port.Port, error) { return &canned{data: stream}, nil })}
		lc.Framing = Framing(framing % 3)
		l := NewLink(lc)
		d, err := New(Config{Name: "d", Unit: 1, Tags: []Tag{{Ref: 1, Name: "a", Address: "holding:0"}}}, l)
		if err != nil {
			t.Fatal(err)
		}
		l.Open(context.Background())
		got, err := d.Poll(context.Background(), 0, 0, nil)
		for _, s := range got {
			if s.Status == tag.Good && (err != nil || s.Value.Kind() != tag.Uint16) {
				t.Fatalf("% x: %v, %v", stream, s, err)
			}
		}
	})
}

func TestPollAllocatesPerRequestOnly(t *testing.T) {
	count := func(tags int) float64 {
		d, c := cannedDevice(t, tags)
		var dst []tag.Sample
		return testing.AllocsPerRun(100, func() {
			c.at = 0
			d.lanes[0].link.transaction = 0
			var err error
			if dst, err = d.Poll(context.Background(), 0, 0, dst[:0]); err != nil || len(dst) != tags {
				t.Fatalf("%d values, %v", len(dst), err)
			}
		})
	}
	one, many := count(1), count(120)
	if many != one || many > 6 {
		t.Errorf("%v allocations for 1 value, %v for 120", one, many)
	}
}

// cannedDevice is a device of n registers whose every answer is ready.
func cannedDevice(t testing.TB, n int) (*Device, *canned) {
	pdu := append([]byte{3, byte(2 * n)}, bytes.Repeat([]byte{0, 42}, n)...)
	c := &canned{data: tcpADU(1, 1, pdu)}
	l := NewLink(LinkConfig{Timeout: time.Hour, Open: port.OpenFunc(func(context.Context) (port.Port, error) { return c, nil })})
	var tags []Tag
	for i := range n {
		tags = append(tags, Tag{Ref: tag.Ref(i + 1), Name: Address{Holding, i, -1}.String(), Address: Address{Holding, i, -1}.String(), Type: "int16", Scale: "0.1"})
	}
	d, err := New(Config{Name: "d", Unit: 1, Tags: tags}, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	return d, c
}

func BenchmarkPoll120(b *testing.B) {
	d, c := cannedDevice(b, 120)
	var dst []tag.Sample
	b.ReportAllocs()
	for b.Loop() {
		c.at = 0
		d.lanes[0].link.transaction = 0
		dst, _ = d.Poll(context.Background(), 0, 0, dst[:0])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/120, "ns/value")
}
