package sim

import (
	"io"
	"math"
	"net"
	"testing"
	"time"

	"edged/drivers/tag"

	"pgregory.net/rapid"
)

// Whatever the kind, order and width, what is laid out is read back.
func TestOrderRoundTrip(t *testing.T) {
	names := []string{"int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"}
	rapid.Check(t, func(t *rapid.T) {
		p := point{bank: Holding}
		if err := p.setType(rapid.SampledFrom(names).Draw(t, "type")); err != nil {
			t.Fatal(err)
		}
		p.order = order{words: rapid.Bool().Draw(t, "words"), bytes: rapid.Bool().Draw(t, "bytes")}
		p.n, p.cells = 1, make([]uint16, p.width)
		bits := rapid.Uint64().Draw(t, "bits")
		p.order.put(p.cells, bits)
		if got, want := p.value(0, 0), kindValue(p.kind, bits); got.Bits() != want.Bits() {
			t.Fatalf("%v read back as %v", want, got)
		}
	})
}

func TestOrders(t *testing.T) {
	for _, row := range []struct {
		name string
		want [2]uint16
	}{
		{"ABCD", [2]uint16{0x429B, 0x077A}},
		{"CDAB", [2]uint16{0x077A, 0x429B}},
		{"BADC", [2]uint16{0x9B42, 0x7A07}},
		{"DCBA", [2]uint16{0x7A07, 0x9B42}},
	} {
		o, err := parseOrder(row.name, 2)
		if err != nil {
			t.Fatal(err)
		}
		var regs [2]uint16
		o.put(regs[:], 0x429B077A)
		if regs != row.want {
			t.Errorf("D6 %s: %04X, want %04X", row.name, regs, row.want)
		}
	}
}

func TestWaves(t *testing.T) {
	w := func(c Wave, k tag.Kind) *wave {
		v, err := newWave(&c, k)
		if err != nil {
			t.Fatal(err)
		}
		return &v
	}
	s := w(Wave{Kind: "sine", Period: time.Minute, Min: 20, Max: 90}, tag.Float32)
	for _, row := range []struct {
		at   time.Duration
		want float32
	}{{0, 55}, {15 * time.Second, 90}, {45 * time.Second, 20}, {75 * time.Second, 90}} {
		if got := math.Float32frombits(uint32(s.bits(tag.Float32, row.at, 0, 1))); math.Abs(float64(got-row.want)) > 1e-4 {
			t.Errorf("the sine is %v at %v, want %v", got, row.at, row.want)
		}
	}
	q := w(Wave{Kind: "square", Period: 2 * time.Second}, tag.Bool)
	if q.bits(tag.Bool, 0, 0, 1) != 1 || q.bits(tag.Bool, 1500*time.Millisecond, 0, 1) != 0 || q.bits(tag.Bool, 0, 1, 2) != 0 {
		t.Error("the square is not on first, off then, and half a period behind for the second of two")
	}
	r := w(Wave{Kind: "random", Every: time.Second, Min: -10, Max: 10}, tag.Int16)
	seen := make(map[uint64]bool)
	for i := range 200 {
		at := time.Duration(i) * time.Second
		v := r.bits(tag.Int16, at, 0, 1)
		if n := int16(v); n < -10 || n > 10 || v != r.bits(tag.Int16, at+999*time.Millisecond, 0, 1) {
			t.Fatalf("random %d at %v", n, at)
		}
		seen[v] = true
	}
	if len(seen) < 15 {
		t.Errorf("only %d different values of 21 in 200", len(seen))
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(readTwo)
	f.Add([]byte{1, 3, 0, 0, 0, 2, 0xC4, 0x0B})
	f.Add([]byte{1, 16, 0, 0, 0, 1, 255, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := scanTCP(b); n > len(b) || n < 0 || n > 0 && (n < mbapHeader+1 || n > mbapHeader+maxPDU) || err != nil && n != 0 {
			t.Fatalf("scanTCP % X: %d %v", b, n, err)
		}
		if n := scanRTU(b); n < -1 || n > maxRTU || n > 0 && n < 4 {
			t.Fatalf("scanRTU % X: %d", b, n)
		}
		frame := appendCRC(append([]byte(nil), b...), b)
		if len(frame) >= 4 && !valid(frame) {
			t.Fatalf("% X is not valid with its own check sum", b)
		}
		near, far := net.Pipe()
		p, err := New(small("rtu:"))
		if err != nil {
			t.Fatal(err)
		}
		c := conversation{line: p.lines[0], t: rtu, peer: far}
		go func() { // whatever is answered is taken
			sink := make([]byte, 512)
			for {
				if _, err := near.Read(sink); err != nil {
					return
				}
			}
		}()
		if used, err := c.serveFrames(frame, true, time.Now()); used < 0 || used > len(frame) || err != nil {
			t.Fatalf("%d of % X used: %v", used, frame, err)
		}
		near.Close()
		far.Close()
	})
}

// hundred is a device of 100 registers of all waves, as the load of the field side is made of.
func hundred(t testing.TB) (*conversation, []byte) {
	t.Helper()
	p, err := New(Config{
		Lines: []LineConfig{{Name: "line", URL: "tcp://127.0.0.1:0"}},
		Devices: []DeviceConfig{{Name: "d", Line: "line", Unit: 1, Points: []PointConfig{
			{Address: "holding:0", Type: "uint32", Repeat: 25, Wave: Wave{Kind: "counter"}},
			{Address: "holding:50", Type: "float32", Repeat: 12, Wave: Wave{Kind: "sine"}},
			{Address: "holding:74", Repeat: 10, Wave: Wave{Kind: "random"}},
			{Address: "holding:84", Repeat: 16, Value: 7},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.OnAnswer = func(*Answer) {}
	return &conversation{line: p.lines[0], t: tcp, peer: nowhere{}}, []byte{0, 1, 0, 0, 0, 6, 1, 3, 0, 0, 0, 100}
}

type nowhere struct{}

func (nowhere) Read([]byte) (int, error)        { return 0, net.ErrClosed }
func (nowhere) Write(b []byte) (int, error)     { return len(b), nil }
func (nowhere) Close() error                    { return nil }
func (nowhere) SetReadDeadline(time.Time) error { return nil }

func TestAnswerAllocatesNothing(t *testing.T) {
	c, request := hundred(t)
	n := testing.AllocsPerRun(100, func() {
		if err := c.serve(1, 1, request[7:], request); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a request", n)
	}
	if len(c.out) != 9+200 {
		t.Errorf("the answer has %d bytes", len(c.out))
	}
}

func BenchmarkAnswer100(b *testing.B) {
	c, request := hundred(b)
	b.ReportAllocs()
	for b.Loop() {
		c.serve(1, 1, request[7:], request)
	}
}

// One poll of 100 registers over loopback: most of it is the kernel's.
func BenchmarkTCP100(b *testing.B) {
	c, request := hundred(b)
	p := c.line.plant
	if err := p.Start(); err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	conn, err := net.Dial("tcp", p.lines[0].Address())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	answer := make([]byte, 9+200)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			b.Fatal(err)
		}
	}
}
