package modbus

import (
	"bytes"
	"context"
	"testing"
	"time"

	"edged/drivers/port"
	"edged/drivers/tag"
)

func TestCRC(t *testing.T) {
	// Serial Line, appendix B: the CRC of 02 07 is 41 12 on the wire.
	if c := crc16([]byte{2, 7}); c != 0x1241 {
		t.Errorf("%04x", c)
	}
}

// requests of every function, as ADUs on a line.
var rtuRequests = [][]byte{
	rtuADU(1, unhex("01 0013 0025")), rtuADU(1, unhex("02 00C4 0016")), rtuADU(1, unhex("03 006B 0003")), rtuADU(1, unhex("04 0008 0001")),
	rtuADU(1, unhex("05 00AC FF00")), rtuADU(1, unhex("06 0001 0003")), rtuADU(1, unhex("0F 0013 000A 02 CD01")), rtuADU(1, unhex("10 0001 0002 04 000A 0102")),
	rtuADU(1, unhex("16 0004 00F2 0025")),
}

func TestAnswersOfTheStandard(t *testing.T) {
	// The examples of the Application Protocol, 6.1 to 6.16.
	for i, answer := range []string{"01 05 CD6BB20E1B", "02 03 ACDB35", "03 06 022B 0000 0064", "04 02 000A", "05 00AC FF00", "06 0001 0003",
		"0F 0013 000A", "10 0001 0002", "16 0004 00F2 0025"} {
		request := rtuRequests[i]
		frame := rtuADU(1, unhex(answer))
		if got := rtuFrame(request, frame); !bytes.Equal(got, frame) {
			t.Errorf("% x is not taken for the answer to % x", frame, request)
		}
		other := bytes.Clone(frame)
		other[1] ^= 1
		if got := rtuFrame(request, rtuADU(1, other[1:len(other)-2])); got != nil {
			t.Errorf("% x was taken for the answer to % x", other, request)
		}
	}
}

func FuzzRTUFrame(f *testing.F) {
	for i := range rtuRequests {
		f.Add(i, rtuADU(1, unhex("03 06 022B 0000 0064")))
		f.Add(i, append([]byte{0, 1}, rtuADU(1, []byte{0x83, 2})...))
	}
	f.Fuzz(func(t *testing.T, i int, stream []byte) {
		request := rtuRequests[uint(i)%uint(len(rtuRequests))]
		frame := rtuFrame(request, stream)
		if frame == nil {
			return
		}
		if len(frame) < 5 || frame[0] != request[0] || frame[1]&^exceptionBit != request[1] || !bytes.Contains(stream, frame) {
			t.Fatalf("% x for % x", frame, request)
		}
		if c := crc16(frame); c != 0 { // the CRC over a frame with its CRC is zero
			t.Fatalf("% x has a wrong checksum", frame)
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
	f.Add(false, unhex("0001 0000 0005 01 03 02 002A"))
	f.Add(true, rtuADU(1, unhex("03 02 002A")))
	f.Add(false, unhex("0001 0000 0003 01 83 02"))
	f.Fuzz(func(t *testing.T, rtu bool, stream []byte) {
		lc := LinkConfig{Timeout: time.Second, Open: port.OpenFunc(func(context.Context) (port.Port, error) { return &canned{data: stream}, nil })}
		if rtu {
			lc.Framing = RTU
		}
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
