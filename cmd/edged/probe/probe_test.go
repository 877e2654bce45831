package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"edged/drivers/modbus"
	"edged/drivers/port"
	"edged/drivers/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func opener(open func() port.Port) port.Opener {
	return port.OpenFunc(func(context.Context) (port.Port, error) { return open(), nil })
}

var lineModes = port.Mode{Baud: 9600, Data: 8, Parity: "none", Stop: 1}

// plant makes simulated devices on one line, and how to open it through pipes. It is called in a bubble.
func plant(t *testing.T, url string, devices ...sim.DeviceConfig) (*sim.Plant, port.Address, func(port.Address) port.Opener) {
	t.Helper()
	for i := range devices {
		devices[i].Line = "l"
		if devices[i].Name == "" {
			devices[i].Name = fmt.Sprintf("d%d", i)
		}
	}
	p, err := sim.New(sim.Config{Lines: []sim.LineConfig{{Name: "l", URL: url}}, Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	a := port.Address{Scheme: "tcp", Host: "device:502"}
	serve := p.Line("l").ServeTCP
	if strings.HasPrefix(url, "rtu:") {
		a = port.Address{Scheme: "rtu", Path: "/dev/line", Mode: lineModes}
		serve = func(c net.Conn) { p.Line("l").ServeRTU(c) }
	}
	return p, a, func(at port.Address) port.Opener {
		return opener(func() port.Port {
			near, far := net.Pipe()
			if at.Mode == a.Mode {
				go serve(far)
			} else {
				go io.Copy(io.Discard, far) // at another speed nobody understands
			}
			return port.FromConn(near)
		})
	}
}

// learn looks at unit 1.
func learn(t *testing.T, a port.Address, open func(port.Address) port.Opener, s Steps) (*Device, error) {
	t.Helper()
	l := NewLine(Config{Address: a, Open: open, Timeout: 500 * time.Millisecond})
	defer l.Close()
	u, err := l.Unit(1)
	if err != nil {
		t.Fatal(err)
	}
	if s.Range.Budget == 0 {
		s.Range = Range{First: 0, Last: 150, Tables: AllTables, Budget: time.Hour}
	}
	return u.Learn(t.Context(), s)
}

// TestSearchFindsEveryRun: whatever the holes and the limits are, and however the device misbehaves, the runs are found
// as they are.
func TestSearchFindsEveryRun(t *testing.T) {
	for _, row := range []struct {
		name   string
		url    string
		device sim.DeviceConfig
	}{
		{"tcp", "tcp://127.0.0.1:0", sim.DeviceConfig{}},
		{"rtu", "rtu:?baud=9600&parity=none", sim.DeviceConfig{}},
		{"32 registers, 40 bits (D5)", "tcp://127.0.0.1:0", sim.DeviceConfig{MaxRegisters: 32, MaxBits: 40}},
		{"7 registers", "rtu:?baud=9600&parity=none", sim.DeviceConfig{MaxRegisters: 7, MaxBits: 3}},
		{"busy now and then (D11)", "tcp://127.0.0.1:0", sim.DeviceConfig{Faults: []sim.Fault{{Kind: sim.Exception, Code: 6, Chance: 0.2}}}},
		{"loses answers", "rtu:?baud=9600&parity=none", sim.DeviceConfig{Faults: []sim.Fault{{Kind: sim.Mute, Chance: 0.02}}}},
		{"garbles answers (D18)", "rtu:?baud=9600&parity=none", sim.DeviceConfig{Faults: []sim.Fault{{Kind: sim.BadCRC, Chance: 0.02}}}},
		{"drops connections (D20)", "tcp://127.0.0.1:0", sim.DeviceConfig{Faults: []sim.Fault{{Kind: sim.Reset, Chance: 0.02}}}},
		{"slow", "tcp://127.0.0.1:0", sim.DeviceConfig{Delay: 200 * time.Millisecond}},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s %d", row.name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, 7))
					d, want := row.device, map[modbus.Table][]string{}
					d.Unit = 1
					longest := map[modbus.Table]int{}
					for _, table := range AllTables {
						for at := r.IntN(5); at < 140; {
							n := 1 + r.IntN(60)
							d.Points = append(d.Points, sim.PointConfig{Address: fmt.Sprintf("%s:%d", table, at), Repeat: n})
							want[table] = append(want[table], span{table, at, at + n}.String())
							longest[table] = max(longest[table], n)
							at += n + 1 + r.IntN(9)
						}
					}
					_, a, open := plant(t, row.url, d)
					got, err := learn(t, a, open, Steps{})
					if err != nil {
						t.Fatal(err)
					}
					for _, table := range got.Tables {
						if !slices.Equal(table.Ranges(), want[table.Table]) {
							t.Errorf("%s: found %v, there are %v", table.Table, table.Ranges(), want[table.Table])
						}
						limit := d.MaxRegisters
						if table.Table.Bits() {
							limit = d.MaxBits
						}
						if n, known := table.Limit(); limit > 0 && limit < longest[table.Table] {
							if n != limit || !known {
								t.Errorf("%s: limit %d, known %v; it is %d", table.Table, n, known, limit)
							}
						} else if n != longest[table.Table] || known {
							t.Errorf("%s: limit %d, known %v; the longest run has %d", table.Table, n, known, longest[table.Table])
						}
					}
					if median, _ := (&Unit{times: []time.Duration{d.Delay}}).Answer(); got.Median < median || got.Median > median+50*time.Millisecond {
						t.Errorf("answer time %v, it is %v", got.Median, median)
					}
				})
			})
		}
	}
}

// TestSearchKeepsItsBudget: on a slow device each 2nd, 4th ... address is looked at, and what is found is whole all the
// same, since runs are followed to their ends.
func TestSearchKeepsItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, open := plant(t, "tcp://127.0.0.1:0", sim.DeviceConfig{Unit: 1, Delay: 100 * time.Millisecond, Points: []sim.PointConfig{
			{Address: "holding:10", Repeat: 90}, {Address: "holding:3000", Repeat: 5}, {Address: "holding:40000", Repeat: 300}}})
		s := Steps{Range: Range{Last: 999, Tables: []modbus.Table{modbus.Holding}, Budget: time.Minute}}
		stride, requests := 0, 0
		s.Estimate = func(n, r int, _ time.Duration) { stride, requests = n, r }
		began := time.Now()
		d, err := learn(t, a, open, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Tables[0].Ranges(); !slices.Equal(got, []string{"holding:10-99", "holding:3000-3004", "holding:40000-40299"}) {
			t.Errorf("found %v", got)
		}
		if took := time.Since(began); stride < 2 || took > 2*time.Minute || d.Asked > 2*requests {
			t.Errorf("each %dth address, %d requests of %d, %v", stride, d.Asked, requests, took)
		}
		if d.Timeout() < 300*time.Millisecond || d.Timeout() > time.Second {
			t.Errorf("time-out %v for answers after 100ms", d.Timeout())
		}
	})
}

// TestMuteWhereOthersRefuse: a device that says nothing to what it does not have is searched all the same, and the
// search does not wait three times for each address.
func TestMuteWhereOthersRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		open := func(port.Address) port.Opener {
			return opener(func() port.Port {
				near, far := net.Pipe()
				go func() {
					defer far.Close()
					for r := make([]byte, 12); ; {
						if _, err := io.ReadFull(far, r); err != nil {
							return
						}
						asked.Add(1)
						at, n := int(binary.BigEndian.Uint16(r[8:])), int(binary.BigEndian.Uint16(r[10:]))
						if r[7] != 3 || at < 10 || at+n > 30 {
							continue
						}
						answer := append(slices.Clone(r[:4]), 0, byte(3+2*n), r[6], 3, byte(2*n))
						far.Write(append(answer, make([]byte, 2*n)...))
					}
				}()
				return port.FromConn(near)
			})
		}
		l := NewLine(Config{Address: port.Address{Scheme: "tcp", Host: "device:502"}, Open: open, Timeout: 100 * time.Millisecond})
		defer l.Close()
		u, err := l.Unit(1)
		if err != nil {
			t.Fatal(err)
		}
		u.known, u.alive = span{modbus.Holding, 10, 11}, true
		table, err := u.Search(t.Context(), modbus.Holding, &Range{Last: 49, Budget: time.Hour}, 1, time.Now().Add(time.Hour))
		if err != nil || !slices.Equal(table.Ranges(), []string{"holding:10-29"}) {
			t.Errorf("found %v: %v", table.Ranges(), err)
		}
		if u.Mutes() < 30 || asked.Load() > 700 {
			t.Errorf("%d mutes, %d requests", u.Mutes(), asked.Load())
		}
	})
}

// TestIdentificationThatKills: a device that cannot bear function 43 is found out at the end, and its section says so.
func TestIdentificationThatKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, open := plant(t, "tcp://127.0.0.1:0", sim.DeviceConfig{Unit: 1, Quirks: sim.Quirks{Identity: true},
			Points: []sim.PointConfig{{Address: "holding:0", Value: 7}}})
		d, err := learn(t, a, open, Steps{})
		if err != nil || d.Silent != Broken {
			t.Fatalf("%v, %v", d.Silent, err)
		}
		s := Section{Bus: "line1", URL: "tcp://device", Devices: []*Device{d}}
		if !strings.Contains(s.Text(), "quirks: {identification: never}") || !strings.Contains(s.Text(), `{name: "holding0", address: "holding:0", type: uint16} # 7`) {
			t.Error(s.Text())
		}
	})
}

// TestUnitThatIsNotThere: each way not to be there has a sentence that says what helps.
func TestUnitThatIsNotThere(t *testing.T) {
	for _, row := range []struct {
		url  string
		unit int
		want string
		cfg  sim.DeviceConfig
	}{
		{"tcp://127.0.0.1:0", 2, "does not reach it (exception 11)", sim.DeviceConfig{Unit: 2}},
		{"rtu:?baud=9600&parity=none", 2, "does not answer within 500ms", sim.DeviceConfig{Unit: 2}},
		{"rtu:?baud=9600&parity=none", 1, "what comes is no answer: check speed, parity", sim.DeviceConfig{Unit: 1, Faults: []sim.Fault{{Kind: sim.BadCRC}}}},
		{"tcp://127.0.0.1:0", 1, "the connection broke", sim.DeviceConfig{Unit: 1, Faults: []sim.Fault{{Kind: sim.Reset}}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			row.cfg.Points = []sim.PointConfig{{Address: "holding:0"}}
			_, a, open := plant(t, row.url, row.cfg)
			if _, err := learn(t, a, open, Steps{}); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: %v", row.want, err)
			}
		})
	}
}

// TestScanOfUnits finds what answers behind a gateway: with values, and with exceptions.
func TestScanOfUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holding := []sim.PointConfig{{Address: "holding:0", Value: 1}}
		_, a, open := plant(t, "tcp://127.0.0.1:0", sim.DeviceConfig{Unit: 3, Points: holding},
			sim.DeviceConfig{Unit: 97, Points: []sim.PointConfig{{Address: "coil:0"}}}, sim.DeviceConfig{Unit: 200, Points: holding, Delay: 300 * time.Millisecond})
		l := NewLine(Config{Address: a, Open: open, Timeout: time.Second})
		defer l.Close()
		var told []string
		s, err := l.Units(t.Context(), upTo(247), func(f Found) { told = append(told, fmt.Sprintf("%d %s", f.Unit, f.Answer)) })
		if err != nil || s.Any || !slices.Equal(told, []string{"3 answered", "97 exception 2", "200 answered"}) {
			t.Errorf("%v, any %v: %v", told, s.Any, err)
		}
	})
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

// TestScanOfADeviceThatAnswersToAll: a device on TCP often does not look at the unit (D15): that is one, not 247.
func TestScanOfADeviceThatAnswersToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			for request := make([]byte, 12); ; {
				if _, err := io.ReadFull(far, request); err != nil {
					return
				}
				far.Write(append(append(slices.Clone(request[:4]), 0, 5), request[6], request[7], 2, 0, 42))
			}
		}()
		l := NewLine(Config{Address: port.Address{Scheme: "tcp", Host: "device:502"}, Timeout: time.Second,
			Open: func(port.Address) port.Opener { return pipe(near) }})
		defer l.Close()
		s, err := l.Units(t.Context(), upTo(247), func(Found) {})
		if err != nil || !s.Any || len(s.Units) != 1 || s.Units[0].Unit != 1 {
			t.Errorf("%+v: %v", s, err)
		}
	})
}

// TestScanOfSettings finds speed and parity of a serial line, and then every unit on it, in the time that was told.
func TestScanOfSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		points := []sim.PointConfig{{Address: "holding:0", Value: 1}}
		_, a, open := plant(t, "rtu:?baud=9600&parity=none", sim.DeviceConfig{Unit: 2, Points: points}, sim.DeviceConfig{Unit: 31, Points: points})
		cfg := Config{Address: a, Open: open, Timeout: 200 * time.Millisecond}
		cfg.Address.Mode = port.DefaultMode
		modes := Modes(cfg.Address, false, false)
		began := time.Now()
		s, err := ScanModes(t.Context(), cfg, modes, upTo(247), func(Found) {})
		if err != nil || s.Mode != a.Mode || len(s.Units) != 2 || s.Units[0].Unit != 2 || s.Units[1].Unit != 31 {
			t.Fatalf("%+v: %v", s, err)
		}
		if took, told := time.Since(began), ScanTime(cfg.Address, cfg.Timeout, modes, 247); took > told || told > 5*time.Minute {
			t.Errorf("it took %v, and %v was told", took, told)
		}
		if named := Modes(cfg.Address, true, false); len(named) != 3 || named[0].Baud != 19200 {
			t.Errorf("with a speed in the url: %v", named)
		}
	})
}

// TestInterruptedSearch: an end at any time leaves what was found until then.
func TestInterruptedSearch(t *testing.T) {
	for _, after := range []time.Duration{0, 50 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			_, a, open := plant(t, "tcp://127.0.0.1:0", sim.DeviceConfig{Unit: 1, Delay: 20 * time.Millisecond,
				Points: []sim.PointConfig{{Address: "holding:0", Repeat: 20}, {Address: "holding:60", Repeat: 3}}})
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			l := NewLine(Config{Address: a, Open: open, Timeout: 500 * time.Millisecond})
			defer l.Close()
			u, err := l.Unit(1)
			if err != nil {
				t.Fatal(err)
			}
			d, err := u.Learn(ctx, Steps{Range: Range{Last: 100, Tables: AllTables, Budget: time.Hour}})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("after %v: %v", after, err)
			}
			if after >= time.Second && !slices.Contains(d.Tables[0].Ranges(), "holding:0-19") {
				t.Errorf("after %v: %v", after, d.Tables[0].Ranges())
			}
			s := Section{Bus: "line1", URL: "tcp://device", Devices: []*Device{d}, Part: true}
			if !strings.Contains(s.Text(), "It was interrupted") {
				t.Error(s.Text())
			}
		})
	}
}

// float32s lays values out in an order.
func float32s(o Order, values ...float64) (regs []uint16) {
	for _, v := range values {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], math.Float32bits(float32(v)))
		if o == BADC || o == DCBA {
			b = [4]byte{b[1], b[0], b[3], b[2]}
		}
		pair := []uint16{binary.BigEndian.Uint16(b[:]), binary.BigEndian.Uint16(b[2:])}
		if o == CDAB || o == DCBA {
			slices.Reverse(pair)
		}
		regs = append(regs, pair...)
	}
	return regs
}

// of makes a table of looks at one run, a second apart.
func of(looks ...[]uint16) []Registers {
	r := Registers{Table: &Table{Table: modbus.Holding, Runs: []span{{modbus.Holding, 0, len(looks[0])}}}}
	for i, regs := range looks {
		r.Looks = append(r.Looks, Look{At: time.Unix(int64(i), 0), Regs: [][]uint16{regs}})
	}
	return []Registers{r}
}

func TestOrderOfFloats(t *testing.T) {
	for _, o := range Orders {
		for _, row := range []struct {
			name  string
			looks func() [][]uint16
		}{
			{"decimals", func() [][]uint16 { return [][]uint16{float32s(o, 21.5, 63.2, 4.75, 101.3, 230.1)} }},
			{"one decimal fraction", func() [][]uint16 { return [][]uint16{float32s(o, 54.87)} }},
			{"sines of many digits, of a minute, each quarter of a second", func() (looks [][]uint16) {
				for at := range 5 {
					var v []float64
					for i := range 6 {
						v = append(v, 55+35*math.Sin(float64(i)+float64(at)/4/60*2*math.Pi))
					}
					looks = append(looks, float32s(o, v...))
				}
				return looks
			}},
		} {
			regs := row.looks()
			g, fields := Orderly(of(regs...))
			if !g.Decided || g.Order != o {
				t.Errorf("%v, %s: %v by %.1f bits", o, row.name, g.Order, g.Margin)
			}
			for i, f := range fields {
				if f.Kind != Float32 || f.At != 2*i {
					t.Errorf("%v, %s: %s at %d", o, row.name, f.Type(), f.At)
				}
			}
			if len(g.For) == 0 || !strings.Contains(g.For[0].Text(), o.String()+" ") {
				t.Errorf("%v, %s: no evidence: %v", o, row.name, g.For)
			}
		}
	}
}

// TestOrderOfCounters: the order of a counter beyond 16 bits is told by its steps, and its rate is right.
func TestOrderOfCounters(t *testing.T) {
	counter := func(o Order, n uint32) []uint16 {
		return float32s(o, float64(math.Float32frombits(n)))
	}
	for _, o := range Orders {
		regs := [][]uint16{counter(o, 3*65536-40), counter(o, 3*65536-10), counter(o, 3*65536+20)}
		g, fields := Orderly(of(regs...))
		if !g.Decided || g.Order != o || len(fields) != 1 || fields[0].Kind != Uint32 || math.Abs(fields[0].Rate-30) > 1e-6 {
			t.Errorf("%v: %v by %.1f bits, %+v", o, g.Order, g.Margin, fields)
		}
	}
}

// TestNoiseHasNoOrder: registers that hold anything are decided by chance hardly ever, and what is not decided is left
// as single registers.
func TestNoiseHasNoOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	wrong := 0
	const tries = 300
	for range tries {
		regs := make([]uint16, 10)
		for i := range regs {
			regs[i] = uint16(r.Uint32())
		}
		g, fields := Orderly(of(regs))
		if g.Decided {
			wrong++
		}
		for _, f := range fields {
			if !g.Decided && f.Width > 1 && f.Kind != Text {
				t.Errorf("%s in an order that is not decided", f.Type())
			}
		}
	}
	if wrong > tries/20 {
		t.Errorf("%d of %d rows of noise have an order", wrong, tries)
	}
}

func TestTexts(t *testing.T) {
	g, fields := Orderly(of([]uint16{0x426F, 0x696C, 0x6572, 0x2033, 0, 7}))
	if len(fields) < 2 || fields[0].Kind != Text || fields[0].Looks[0] != `"Boiler 3"` || fields[0].OrderName() != "" {
		t.Errorf("%+v, %+v", g, fields)
	}
	_, fields = Orderly(of([]uint16{0x6F42, 0x6C69, 0x7265, 0x3320, 0, 7}))
	if fields[0].Kind != Text || fields[0].Looks[0] != `"Boiler 3"` || fields[0].OrderName() != "BADC" {
		t.Errorf("low byte first: %+v", fields)
	}
}
