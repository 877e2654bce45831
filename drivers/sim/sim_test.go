package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"

	client "github.com/goburrow/modbus"
	"github.com/goccy/go-yaml"
	other "github.com/simonvetter/modbus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start brings a plant up and closes it at the end of the test.
func start(t testing.TB, cfg Config) *Plant {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// small is a plant of one device with ten registers, 100 to 109 in the first bytes, and a coil.
func small(url string) Config {
	points := []PointConfig{{Address: "coil:0", Value: true}}
	for i := range 10 {
		points = append(points, PointConfig{Address: "holding:" + string(rune('0'+i)), Value: 100 + i})
	}
	return Config{
		Lines:   []LineConfig{{Name: "line", URL: url}},
		Devices: []DeviceConfig{{Name: "device", Line: "line", Unit: 1, Points: points}},
	}
}

func TestDemoOverTCPAndPTY(t *testing.T) {
	p := start(t, Demo())
	t.Run("goburrow TCP", func(t *testing.T) {
		h := client.NewTCPClientHandler(p.Line(DemoTCP).Address())
		h.SlaveId = 1
		defer h.Close()
		c := client.NewClient(h)
		b, err := c.ReadHoldingRegisters(0, 4)
		if err != nil {
			t.Fatal(err)
		}
		if v := math.Float32frombits(binary.BigEndian.Uint32(b)); v < 20 || v > 90 {
			t.Errorf("temperature %v", v)
		}
		if n, past := binary.BigEndian.Uint32(b[4:]), uint32(time.Since(p.Epoch())/(100*time.Millisecond)); n > past {
			t.Errorf("the counter is %d after %d steps", n, past)
		}
		if _, err := c.WriteSingleRegister(10, 700); err != nil {
			t.Fatal(err)
		}
		if v := p.Device("boiler").Value(Holding, 10); !v.Equal(tag.Of(uint16(700))) {
			t.Errorf("set point %v", v)
		}
	})
	t.Run("goburrow RTU", func(t *testing.T) {
		h := client.NewRTUClientHandler(p.Line(DemoRTU).Address())
		h.SlaveId, h.BaudRate, h.Timeout = 7, 19200, 2*time.Second
		defer h.Close()
		c := client.NewClient(h)
		b, err := c.ReadInputRegisters(0, 3)
		if err != nil {
			t.Fatal(err)
		}
		if v := math.Float32frombits(uint32(binary.BigEndian.Uint16(b[2:]))<<16 | uint32(binary.BigEndian.Uint16(b))); v < 0.8 || v > 4.2 {
			t.Errorf("pressure %v", v)
		}
		if n := binary.BigEndian.Uint16(b[4:]); n < 1200 || n > 1450 {
			t.Errorf("fan %v", n)
		}
		if _, err := c.WriteSingleCoil(0, 0); err != nil {
			t.Fatal(err)
		}
		if v := p.Device("burner").Value(Coil, 0); v.Bool() {
			t.Error("the coil is still on")
		}
	})
	t.Run("simonvetter TCP", func(t *testing.T) {
		c, err := other.NewClient(&other.ClientConfiguration{URL: p.Line(DemoTCP).URL(), Timeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Open(); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		v, err := c.ReadFloat32(0, other.HOLDING_REGISTER)
		if err != nil || v < 20 || v > 90 {
			t.Errorf("temperature %v: %v", v, err)
		}
		on, err := c.ReadCoil(3)
		if err != nil || !on {
			t.Errorf("running %v: %v", on, err)
		}
		if _, err := c.ReadRegister(9000, other.HOLDING_REGISTER); !errors.Is(err, other.ErrIllegalDataAddress) {
			t.Errorf("an address that is not there: %v", err)
		}
	})
	if len(p.Lines()) != 2 || len(p.Devices()) != 2 || p.Device("nobody") != nil || p.Line("nowhere") != nil {
		t.Error("the demo is not two devices on two lines")
	}
}

// ask sends a request, if any, over a stream and reads want bytes, or until 100 ms without any.
func ask(t *testing.T, c net.Conn, request []byte, want int) ([]byte, error) {
	t.Helper()
	if len(request) > 0 { // a net.Pipe waits for a reader even of nothing
		if _, err := c.Write(request); err != nil {
			return nil, err
		}
	}
	b := make([]byte, want)
	c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	n, err := io.ReadFull(c, b)
	return b[:n], err
}

var readTwo = []byte{0, 7, 0, 0, 0, 6, 1, 3, 0, 0, 0, 2}

func TestFaultsTCP(t *testing.T) {
	good := "0007 0000 0007 01 03 04 0064 0065"
	rows := []struct {
		fault Fault
		want  string // what comes, to the last byte
	}{
		{Fault{}, good},
		{Fault{Kind: Mute}, ""},
		{Fault{Kind: Lost}, ""},
		{Fault{Kind: Delay, For: 50 * time.Millisecond}, good},
		{Fault{Kind: Exception, Code: 6}, "0007 0000 0003 01 83 06"},
		{Fault{Kind: Exception}, "0007 0000 0003 01 83 04"},
		{Fault{Kind: WrongUnit}, "0007 0000 0007 02 03 04 0064 0065"},
		{Fault{Kind: WrongTrans}, "0008 0000 0007 01 03 04 0064 0065"},
		{Fault{Kind: WrongFunction}, "0007 0000 0007 01 07 04 0064 0065"},
		{Fault{Kind: WrongCount}, "0007 0000 0005 01 03 02 0064"},
		{Fault{Kind: BadCRC}, "0007 0001 0007 01 03 04 0064 0065"},
		{Fault{Kind: Cut}, "0007 0000 0007 01"},
		{Fault{Kind: Noise}, "00FF00" + good},
		{Fault{Kind: Trailing, Data: []byte{1, 2}}, good + "0102"},
		{Fault{Kind: Duplicate}, good + good},
		{Fault{Kind: Echo}, "0007 0000 0006 01 03 0000 0002" + good},
	}
	for _, row := range rows {
		t.Run("fault "+string(row.fault.Kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := New(small("tcp://127.0.0.1:0"))
				if err != nil {
					t.Fatal(err)
				}
				near, far := net.Pipe()
				go p.Line("line").ServeTCP(far)
				if row.fault.Kind != "" {
					p.Device("device").Fault(row.fault)
				}
				got, err := ask(t, near, readTwo, 64)
				if !isTimeout(err) {
					t.Errorf("the connection did not stay: %v", err)
				}
				if want := unhex(t, row.want); !bytes.Equal(got, want) {
					t.Errorf("got % X, want % X", got, want)
				}
				p.Device("device").Heal()
				if got, _ := ask(t, near, readTwo, 13); !bytes.Equal(got, unhex(t, good)) {
					t.Errorf("healed, got % X", got)
				}
				if n := p.Device("device").Requests(); n != 2 {
					t.Errorf("%d requests counted", n)
				}
				near.Close()
				p.Close()
				synctest.Wait()
			})
		})
	}
}

func TestFaultsRTU(t *testing.T) {
	frame := func(s string) []byte { b := unhex(t, s); return appendCRC(b, b) }
	request := frame("01 03 0000 0002")
	good := frame("01 03 04 0064 0065")
	broken := bytes.Clone(good)
	broken[len(broken)-1] ^= 1
	rows := []struct {
		name  string
		fault Fault
		ask   []byte
		want  []byte
	}{
		{"none", Fault{}, request, good},
		{"mute", Fault{Kind: Mute}, request, nil},
		{"reset", Fault{Kind: Reset}, request, nil},
		{"crc", Fault{Kind: BadCRC}, request, broken},
		{"cut", Fault{Kind: Cut}, request, good[:5]},
		{"wrong unit", Fault{Kind: WrongUnit}, request, frame("02 03 04 0064 0065")},
		{"D18 zeros behind", Fault{Kind: Trailing, Data: []byte{0, 0, 0}}, request, append(bytes.Clone(good), 0, 0, 0)},
		{"D18 echo", Fault{Kind: Echo}, request, append(bytes.Clone(request), good...)},
		{"other unit", Fault{}, frame("05 03 0000 0002"), nil},
		{"crc of the request", Fault{}, unhex(t, "01 03 0000 0002 0000"), nil},
		{"unknown function ends by silence", Fault{}, frame("01 64 01 02 03"), frame("01 E4 01")},
		{"two requests at once", Fault{}, append(bytes.Clone(request), request...), append(bytes.Clone(good), good...)},
		{"15 counted by its bytes", Fault{}, frame("01 0F 0000 0001 01 00"), frame("01 0F 0000 0001")},
		{"22", Fault{}, frame("01 16 0001 0000 1234"), frame("01 16 0001 0000 1234")},
		{"23", Fault{}, frame("01 17 0000 0001 0002 0001 02 0009"), frame("01 17 02 0064")},
		{"43", Fault{}, frame("01 2B 0E 01 00"), frame("01 AB 01")},
		{"2.1 broadcast write", Fault{}, frame("00 06 0003 0BAD"), nil},
		{"2.1 broadcast read", Fault{}, frame("00 03 0000 0001"), nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := small("rtu:")
				p, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				near, far := net.Pipe()
				go p.Line("line").ServeRTU(far)
				if row.fault.Kind != "" {
					p.Device("device").Fault(row.fault)
				}
				if got, err := ask(t, near, row.ask, 64); !isTimeout(err) || !bytes.Equal(got, row.want) {
					t.Errorf("got % X, want % X: %v", got, row.want, err)
				}
				p.Device("device").Heal()
				if got, _ := ask(t, near, frame("01 03 0009 0001"), 7); !bytes.Equal(got, frame("01 03 02 006D")) {
					t.Errorf("afterwards, got % X", got)
				}
				if row.ask[0] == 0 && row.ask[1] == 6 {
					if v := p.Device("device").Value(Holding, 3); v.Bits() != 0x0BAD {
						t.Errorf("the broadcast wrote %v", v)
					}
				}
				near.Close()
				p.Close()
				synctest.Wait()
			})
		})
	}
}

func TestRTUByteByByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(small("rtu:"))
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		go p.Line("line").ServeRTU(far)
		request := appendCRC([]byte{1, 3, 0, 0, 0, 1}, []byte{1, 3, 0, 0, 0, 1})
		for _, b := range request {
			near.Write([]byte{b})
			time.Sleep(2 * time.Millisecond)
		}
		if got, _ := ask(t, near, nil, 7); len(got) != 7 {
			t.Errorf("got % X", got)
		}
		near.Write(request[:5]) // and never the rest: silence ends it
		time.Sleep(100 * time.Millisecond)
		if got, _ := ask(t, near, request, 7); len(got) != 7 {
			t.Errorf("after half a request, got % X", got)
		}
		near.Close()
		p.Close()
		synctest.Wait()
	})
}

// A paced line takes the time of its bits: request, 3.5 characters, answer.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small("rtu:?baud=9600&parity=even")
		cfg.Lines[0].Pace = true
		p, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		go p.Line("line").ServeRTU(far)
		request := appendCRC([]byte{1, 3, 0, 0, 0, 10}, []byte{1, 3, 0, 0, 0, 10})
		began := time.Now()
		got, err := ask(t, near, request, 25)
		if err != nil {
			t.Fatalf("got % X: %v", got, err)
		}
		const char = 11 * time.Second / 9600
		want := 8*char + 7*char/2 + 25*char
		if took := time.Since(began); took < want-time.Millisecond || took > want+time.Millisecond {
			t.Errorf("took %v, the line needs %v", took, want)
		}
		if gap := p.Line("line").ShortestGap(); gap != 0 {
			t.Errorf("a gap of %v before there was one", gap)
		}
		for _, d := range []time.Duration{9, 5, 7} {
			time.Sleep(d * time.Millisecond)
			ask(t, near, request, 25)
		}
		if gap := p.Line("line").ShortestGap(); gap != 5*time.Millisecond {
			t.Errorf("D17: the shortest gap is %v", gap)
		}
		near.Close()
		p.Close()
		synctest.Wait()
	})
}

func TestFaultRules(t *testing.T) {
	d := specDevice(t)
	pick := func(function byte) FaultKind {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.fault(function).Kind
	}
	lift := d.Fault(Fault{Kind: Mute, Function: 3, Skip: 1, Times: 2})
	d.Fault(Fault{Kind: Exception, Code: 6, Function: 4, Times: 2})
	var got []FaultKind
	for _, f := range []byte{3, 3, 6, 3, 3, 4, 4, 4} {
		got = append(got, pick(f))
	}
	want := []FaultKind{"", Mute, "", Mute, "", Exception, Exception, ""}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("faults %q, want %q", got, want)
		}
	}
	lift()
	d.Heal()
	d.Fault(Fault{Kind: Cut, Chance: 0.25})
	n := 0
	for range 4000 {
		if pick(3) == Cut {
			n++
		}
	}
	if n < 800 || n > 1200 {
		t.Errorf("a chance of a quarter met %d of 4000", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("a fault of no kind was taken")
		}
	}()
	d.Fault(Fault{Kind: "flood"})
}

func TestCounterIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Config{
			Lines: []LineConfig{{Name: "line", URL: "tcp://127.0.0.1:0"}},
			Devices: []DeviceConfig{{Name: "d", Line: "line", Points: []PointConfig{
				{Address: "holding:0", Type: "uint32", Order: "CDAB", Repeat: 3, Wave: Wave{Kind: "counter", Every: 20 * time.Millisecond}},
				{Address: "holding:10", Type: "uint16", Wave: Wave{Kind: "counter", Every: time.Second, Step: -1}},
				{Address: "holding:11", Type: "int16", Wave: Wave{Kind: "counter", Every: time.Second, Min: -2, Max: 2}},
				{Address: "holding:12", Type: "float64", Wave: Wave{Kind: "counter", Every: time.Second, Step: 3}},
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var heard []Answer
		p.OnAnswer = func(a *Answer) { heard = append(heard, *a) }
		near, far := net.Pipe()
		go p.Line("line").ServeTCP(far)
		d := p.Device("d")
		for i := range 7 {
			if v := d.Value(Holding, 0); v.Bits() != uint64(50*i) {
				t.Errorf("after %d s the counter is %v", i, v)
			}
			if v := d.Value(Holding, 4); v.Bits() != uint64(50*i+2) {
				t.Errorf("after %d s the third counter is %v", i, v)
			}
			if v := d.Value(Holding, 10); !v.Equal(tag.Of(uint16(-i))) {
				t.Errorf("after %d s the counter down is %v", i, v)
			}
			if v := d.Value(Holding, 11); !v.Equal(tag.Of(int16(i%5 - 2))) {
				t.Errorf("after %d s the counter from -2 to 2 is %v", i, v)
			}
			if v := d.Value(Holding, 12); !v.Equal(tag.Of(float64(3 * i))) {
				t.Errorf("after %d s the float counter is %v", i, v)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(12 * time.Hour)
		got, err := ask(t, near, []byte{0, 1, 0, 0, 0, 6, 0, 3, 0, 1, 0, 2}, 13) // the second half of one, the first of the next
		if err != nil {
			t.Fatal(err)
		}
		n := uint32(12*3600+7) * 50
		if hi, lo := binary.BigEndian.Uint16(got[9:]), binary.BigEndian.Uint16(got[11:]); hi != uint16(n>>16) || lo != uint16(n+1) {
			t.Errorf("got %d and %d of %d", hi, lo, n)
		}
		if len(heard) != 1 || heard[0].At != tag.Now() {
			t.Fatalf("%d answers heard", len(heard))
		}
		if r, ok := heard[0].Register(2); !ok || r != uint16(n+1) {
			t.Errorf("heard %d %v", r, ok)
		}
		if _, ok := heard[0].Register(3); ok {
			t.Error("the answer holds a register that was not asked for")
		}
		near.Close()
		p.Close()
		synctest.Wait()
	})
}

func TestLineGoesDownAndUp(t *testing.T) {
	for _, url := range []string{"tcp://127.0.0.1:0", "rtuovertcp://127.0.0.1:0"} {
		t.Run(url, func(t *testing.T) {
			p := start(t, small(url))
			l := p.Line("line")
			before := l.Address()
			c := dial(t, l)
			waitFor(t, "one peer", func() bool { return l.Connected() == 1 })
			l.Down()
			l.Down()
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("the connection outlived its line")
			}
			if _, err := net.Dial("tcp", before); err == nil {
				t.Error("the line still listens")
			}
			waitFor(t, "no peer", func() bool { return l.Connected() == 0 })
			if err := l.Up(); err != nil {
				t.Fatal(err)
			}
			if l.Address() != before {
				t.Errorf("it came back at %s, not %s", l.Address(), before)
			}
			dial(t, l)
			waitFor(t, "another peer", func() bool { return l.Accepted() == 2 })
			l.Drop()
			waitFor(t, "no peer after the drop", func() bool { return l.Connected() == 0 })
		})
	}
}

func dial(t *testing.T, l *Line) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestTerminalComesBack(t *testing.T) {
	link := filepath.Join(t.TempDir(), "by-id", "adapter")
	p := start(t, small("rtu://"+link+"?baud=115200&parity=none"))
	l := p.Line("line")
	if l.Address() != link || l.URL() != "rtu://"+link+"?baud=115200&parity=none" {
		t.Fatalf("address %s, url %s", l.Address(), l.URL())
	}
	first, _ := os.Readlink(link)
	l.Down()
	if _, err := os.Lstat(link); err == nil {
		t.Error("E2: the link stayed when the port vanished")
	}
	if err := l.Up(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(link); err != nil {
		t.Errorf("E2: %s did not come back as it was %s: %v", link, first, err)
	}
	h := client.NewRTUClientHandler(link)
	h.SlaveId, h.BaudRate, h.Timeout, h.Parity = 1, 115200, 2*time.Second, "N"
	defer h.Close()
	if b, err := client.NewClient(h).ReadHoldingRegisters(0, 1); err != nil || b[1] != 100 {
		t.Errorf("read %v: %v", b, err)
	}
	p.Close()
	if _, err := os.Lstat(link); err == nil {
		t.Error("the link outlived the plant")
	}
}

func TestOpenRTUReplacesOnlyLinks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRTU(file); err == nil || !strings.Contains(err.Error(), "no link") {
		t.Errorf("a file was replaced: %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/nowhere", link); err != nil {
		t.Fatal(err)
	}
	port, err := OpenRTU(link)
	if err != nil {
		t.Fatal(err)
	}
	if port.Path() != link {
		t.Errorf("path %s", port.Path())
	}
	port.Close()
	port.Close()
}

func TestClientsAndIdle(t *testing.T) {
	cfg := small("tcp://127.0.0.1:0")
	cfg.Lines[0].Clients, cfg.Lines[0].Idle = 1, 50*time.Millisecond
	p := start(t, cfg)
	l := p.Line("line")
	c := dial(t, l)
	waitFor(t, "the first is taken", func() bool { return l.Connected() == 1 })
	second := dial(t, l)
	second.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := second.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("D20: the second client was taken: %v", err)
	}
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("D20: the idle connection ended with %v", err)
	}
}

func TestResetAndGarbage(t *testing.T) {
	p := start(t, small("tcp://127.0.0.1:0"))
	p.Device("device").Fault(Fault{Kind: Reset, Times: 1})
	c := dial(t, p.Line("line"))
	if _, err := ask(t, c, readTwo, 1); err == nil || isTimeout(err) {
		t.Errorf("the connection was not reset: %v", err)
	}
	c = dial(t, p.Line("line"))
	if _, err := ask(t, c, []byte("GET / HTTP/1.1\r\n\r\n"), 1); err == nil || isTimeout(err) {
		t.Errorf("what is not Modbus was not cut off: %v", err)
	}
	c = dial(t, p.Line("line"))
	if got, _ := ask(t, c, readTwo, 13); len(got) != 13 {
		t.Errorf("the next client got % X", got)
	}
	if got, _ := ask(t, c, []byte{0, 1, 0, 0, 0, 6, 9, 3, 0, 0, 0, 2}, 9); !bytes.Equal(got, []byte{0, 1, 0, 0, 0, 3, 9, 0x83, 11}) {
		t.Errorf("D11: an absent unit is answered % X", got)
	}
}

func TestManyClients(t *testing.T) {
	p, err := New(small("tcp://127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	var heard atomic.Int64
	p.OnAnswer = func(a *Answer) { heard.Add(int64(a.Count)) }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	waitFor(t, "the line is up", func() bool { return p.Line("line").Address() != "" })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c, err := net.Dial("tcp", p.Line("line").Address())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			b := make([]byte, 13)
			for i := range 50 {
				request := bytes.Clone(readTwo)
				request[1] = byte(i)
				c.Write(request)
				if _, err := io.ReadFull(c, b); err != nil || b[1] != byte(i) || b[10] != 100 {
					t.Errorf("answer % X: %v", b, err)
					return
				}
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if heard.Load() != 20*50*2 {
		t.Errorf("%d registers heard", heard.Load())
	}
	if err := p.Line("line").Up(); err == nil {
		t.Error("a line of a closed plant came up")
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := small("tcp://127.0.0.1:0")
	cfg.Lines = append(cfg.Lines, LineConfig{Name: "taken", URL: "tcp://" + l.Addr().String()})
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err == nil || !strings.Contains(err.Error(), "line taken") {
		t.Errorf("started on a port in use: %v", err)
	}
	if err := p.Run(t.Context()); err == nil {
		t.Error("a closed plant runs")
	}
	if p.Line("taken").URL() != "tcp://"+l.Addr().String() || p.Line("taken").Name() != "taken" {
		t.Errorf("the line that never was up is at %s", p.Line("taken").URL())
	}
}

func TestAnsweredBits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(small("tcp://127.0.0.1:0"))
		if err != nil {
			t.Fatal(err)
		}
		var heard []Answer
		p.OnAnswer = func(a *Answer) {
			kept := *a
			kept.Data = bytes.Clone(a.Data)
			heard = append(heard, kept)
		}
		near, far := net.Pipe()
		go p.Line("line").ServeTCP(far)
		ask(t, near, []byte{0, 1, 0, 0, 0, 6, 1, 1, 0, 0, 0, 1}, 10)
		p.Device("device").Set(Coil, 0, 0)
		ask(t, near, []byte{0, 2, 0, 0, 0, 6, 1, 1, 0, 0, 0, 1}, 10)
		ask(t, near, []byte{0, 3, 0, 0, 0, 6, 1, 1, 0, 0, 0, 2}, 9)
		ask(t, near, []byte{0, 4, 0, 0, 0, 6, 1, 6, 0, 2, 0, 9}, 12)
		if len(heard) != 4 {
			t.Fatalf("%d answers heard", len(heard))
		}
		for i, want := range []struct{ on, held bool }{{true, true}, {false, true}, {false, false}, {false, false}} {
			if on, held := heard[i].Bit(0); on != want.on || held != want.held {
				t.Errorf("answer %d: bit %v %v", i, on, held)
			}
		}
		if heard[2].Code != 2 || heard[3].Function != 6 || heard[3].Address != 2 || !bytes.Equal(heard[3].Data, []byte{0, 9}) {
			t.Errorf("heard %+v and %+v", heard[2], heard[3])
		}
		if d := heard[0].Device; d.Name() != "device" || d.Unit() != 1 {
			t.Errorf("device %s %d", d.Name(), d.Unit())
		}
		near.Close()
		p.Close()
		synctest.Wait()
	})
}

func TestConfigFromYAML(t *testing.T) {
	const file = `
lines:
  - {name: net, url: "tcp://127.0.0.1:0", clients: 4, idle: 5s}
  - {name: rs485, url: "rtu:?baud=9600&parity=none&stop=2", pace: true}
devices:
  - name: boiler
    line: net
    unit: 1
    max_registers: 20
    functions: [3, 6]
    delay: 5ms
    identity: [Maker, Code, "1.0"]
    points:
      - {address: "holding:0", type: float32, order: CDAB, wave: {kind: sine, period: 60s, min: 20, max: 90}}
      - {address: "holding:2", type: uint32, wave: {kind: counter, every: 100ms}}
      - {address: "holding:10", value: 650}
      - {address: "holding:20", type: int16, value: -5}
      - {address: "holding:30", type: string(6), value: abc}
      - {address: "holding:40", type: uint64, value: 18446744073709551615}
      - {address: "holding:44", type: float64, value: 1.5, repeat: 2}
      - {address: "coil:3", value: true}
    faults:
      - {kind: delay, for: 200ms, skip: 3, times: 1}
      - {kind: noise, bytes: [1, 255], chance: 0.5, function: 3}
  - {name: meter, line: rs485, unit: 247}
`
	var cfg Config
	if err := yaml.NewDecoder(strings.NewReader(file), yaml.Strict()).Decode(&cfg); err != nil {
		t.Fatal(err)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := p.Device("boiler")
	for at, want := range map[int]tag.Value{10: tag.Of(uint16(650)), 20: tag.Of(int16(-5)), 30: tag.Of("abc\x00\x00\x00"),
		40: tag.Of(uint64(math.MaxUint64)), 44: tag.Of(1.5), 48: tag.Of(1.5)} {
		if got := d.Value(Holding, at); !got.Equal(want) {
			t.Errorf("holding:%d is %v, want %v", at, got, want)
		}
	}
	if d.delay != 5*time.Millisecond || len(d.rules) != 2 || d.rules[0].For != 200*time.Millisecond || !bytes.Equal(d.rules[1].Data, []byte{1, 255}) {
		t.Errorf("delay %v, rules %+v %+v", d.delay, d.rules[0], d.rules[1])
	}
	if m := p.Line("rs485").url.mode; m.Bits() != 11 || m.Baud != 9600 {
		t.Errorf("mode %v", m)
	}
}

func TestProblems(t *testing.T) {
	cfg := Config{
		Lines: []LineConfig{{URL: "tcp://x"}, {Name: "a", URL: "udp://x:1", Clients: -1, Idle: -1}, {Name: "a", URL: "rtu:?baud=1"}, {Name: "b", URL: "rtu:"}},
		Devices: []DeviceConfig{
			{Line: "b", Unit: 0, MaxRegisters: 126, MaxBits: -1, Functions: []int{7}},
			{Name: "d", Line: "nowhere", Unit: 256},
			{Name: "d", Line: "a", Unit: 1, Faults: []Fault{{Kind: "delay"}}, Points: []PointConfig{
				{Address: "40001"},
				{Address: "holding:0", Type: "uint8"},
				{Address: "coil:0", Type: "uint16"},
				{Address: "holding:0", Type: "uint32", Order: "ACBD"},
				{Address: "holding:65535", Type: "uint32"},
				{Address: "holding:0", Type: "uint32"},
				{Address: "holding:1", Value: 1},
				{Address: "holding:9", Value: 65536},
				{Address: "holding:9", Value: "many"},
				{Address: "holding:9", Value: 1, Wave: Wave{Kind: "sine"}},
				{Address: "holding:9", Wave: Wave{Kind: "saw"}},
				{Address: "holding:9", Wave: Wave{Kind: "sine", Max: 70000}},
				{Address: "holding:9", Type: "string(2)", Value: "abc"},
				{Address: "holding:9", Type: "string(999)"},
			}},
		},
	}
	want := []string{
		"$.lines[0]", "$.lines[0].url", "$.lines[1].url", "$.lines[1].clients", "$.lines[1].idle", "$.lines[2].name", "$.lines[2].url",
		"$.devices[0]", "$.devices[0].unit", "$.devices[0].max_registers", "$.devices[0].max_bits", "$.devices[0].functions[0]",
		"$.devices[1].line", "$.devices[1].unit", "$.devices[2].name", "$.devices[2].faults[0]",
		"$.devices[2].points[0].address", "$.devices[2].points[1].type", "$.devices[2].points[2].type", "$.devices[2].points[3].order",
		"$.devices[2].points[4].repeat", "$.devices[2].points[6].address", "$.devices[2].points[7].value", "$.devices[2].points[8].value",
		"$.devices[2].points[9].value", "$.devices[2].points[10].wave", "$.devices[2].points[11].wave", "$.devices[2].points[12].value",
		"$.devices[2].points[13].type",
	}
	var got []string
	for _, p := range cfg.Problems() {
		got = append(got, p.Path)
		if p.Text == "" {
			t.Errorf("%s has no text", p.Path)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("problems at\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := New(cfg); err == nil {
		t.Error("a plant was made of it")
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a plant was made of nothing")
	}
}
