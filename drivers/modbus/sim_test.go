package modbus_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"edged/drivers"
	"edged/drivers/modbus"
	"edged/drivers/port"
	"edged/drivers/sim"
	"edged/drivers/tag"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record is a sink that keeps what it hears.
type record struct {
	mu      sync.Mutex
	samples map[tag.Ref][]tag.Sample
}

func (r *record) Publish(batch []tag.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range batch {
		r.samples[s.Ref] = append(r.samples[s.Ref], s)
	}
}

func (r *record) of(ref tag.Ref) []tag.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.samples[ref])
}

func (r *record) last(ref tag.Ref) tag.Sample {
	s := r.of(ref)
	if len(s) == 0 {
		return tag.Sample{Status: tag.BadWaitingForInitialData}
	}
	return s[len(s)-1]
}

// site is a simulated plant and the fleet that reads it.
type site struct {
	*drivers.Fleet
	plant *sim.Plant
	said  *said
	sink  *record
	ctx   context.Context
	stop  func()
}

// said is what the boiler answered for its counter.
type said struct {
	mu       sync.Mutex
	counters []uint64
}

func (s *said) hear(a *sim.Answer) {
	high, ok := a.Register(2)
	low, both := a.Register(3)
	if ok && both && a.Device.Name() == "boiler" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counters = append(s.counters, uint64(high)<<16|uint64(low))
	}
}

// join starts a plant and a fleet with a device for each of the plant's, whose tags and bus are given by name.
func join(t *testing.T, cfg sim.Config, bus drivers.BusConfig, link modbus.LinkConfig, devices map[string]modbus.Config) *site {
	t.Helper()
	plant, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	heard := &said{}
	plant.OnAnswer = heard.hear
	if err := plant.Start(); err != nil {
		t.Fatal(err)
	}
	fc := drivers.Config{Log: slog.New(slog.DiscardHandler)}
	links := map[string]*modbus.Link{}
	for _, l := range plant.Lines() {
		addr, err := port.Parse(l.URL())
		if err != nil {
			t.Fatal(err)
		}
		if addr.Scheme == "tcp+tls" { // the files are the same on both sides
			i := slices.IndexFunc(cfg.Lines, func(c sim.LineConfig) bool { return c.Name == l.Name() })
			secured, err := port.Parse(strings.Replace(cfg.Lines[i].URL, ":0?", ":1?", 1))
			if err != nil {
				t.Fatal(err)
			}
			addr.TLS = secured.TLS
		}
		lc := modbus.Links(addr)
		lc.Timeout, lc.Turnaround, lc.Echo = link.Timeout, link.Turnaround, link.Echo
		bc := bus
		links[l.Name()] = modbus.NewLink(lc)
		bc.Name, bc.Links = l.Name(), []drivers.Link{links[l.Name()]}
		fc.Buses = append(fc.Buses, bc)
	}
	var defs []tag.Def
	for _, d := range cfg.Devices {
		mc := devices[d.Name]
		mc.Name, mc.Unit = d.Name, d.Unit
		for i := range mc.Tags {
			mc.Tags[i].Access = tag.Readable | tag.Writable
			if mc.Tags[i].Address[0] == 'i' || mc.Tags[i].Address[0] == 'd' {
				mc.Tags[i].Access = tag.Readable
			}
			kind, n := mc.Tags[i].Shape(&mc)
			defs = append(defs, tag.Def{Device: d.Name, Name: mc.Tags[i].Name, Kind: kind, Len: n, Access: mc.Tags[i].Access})
			mc.Tags[i].Ref = tag.Ref(len(defs))
		}
		dev, err := modbus.New(mc, links[d.Line])
		if err != nil {
			t.Fatal(err)
		}
		fc.Devices = append(fc.Devices, drivers.DeviceConfig{Name: d.Name, Bus: d.Line, Driver: dev, Hold: dev.Hold()})
	}
	if fc.Table, err = tag.NewTable(defs); err != nil {
		t.Fatal(err)
	}
	s := &site{plant: plant, said: heard, sink: &record{samples: map[tag.Ref][]tag.Sample{}}}
	fc.Sink = s.sink
	if s.Fleet, err = drivers.NewFleet(fc); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.ctx = ctx
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		plant.Close()
	})
	t.Cleanup(s.stop)
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal(what)
}

func TestDemoPlant(t *testing.T) {
	s := join(t, sim.Demo(), drivers.BusConfig{Retries: 1}, modbus.LinkConfig{Timeout: time.Second}, map[string]modbus.Config{
		"boiler": {Poll: 20 * time.Millisecond, Gaps: 8, Together: [][]string{{"temperature", "counter"}}, Tags: []modbus.Tag{
			{Name: "temperature", Address: "holding:0", Type: "float32"},
			{Name: "counter", Address: "holding:2", Type: "uint32"},
			{Name: "setpoint", Address: "holding:10", Scale: "0.1"},
			{Name: "running", Address: "coil:3"},
			{Name: "level", Address: "40021", Type: "int16"},
			{Name: "alarm", Address: "holding:30.4"},
		}},
		"burner": {Poll: 50 * time.Millisecond, Tags: []modbus.Tag{
			{Name: "pressure", Address: "input:0", Type: "float32", Order: "CDAB"},
			{Name: "fan", Address: "input:2"},
			{Name: "modulation", Address: "holding:0"},
			{Name: "enabled", Address: "coil:0"},
			{Name: "flame", Address: "discrete:0"},
		}},
	})
	for ref := tag.Ref(1); ref <= 11; ref++ {
		eventually(t, fmt.Sprintf("tag %d never became good: %v", ref, s.sink.last(ref)), func() bool { return s.sink.last(ref).Status == tag.Good })
	}
	if v := s.sink.last(3).Value; !v.Equal(tag.Of(65.0)) {
		t.Errorf("setpoint %v, want 65", v)
	}
	if v, _ := s.sink.last(7).Value.Float(); v < 0.8 || v > 4.2 {
		t.Errorf("pressure %v", v)
	}
	cmds := []tag.Command{{Ref: 3, Value: tag.Of(68.3)}, {Ref: 9, Value: tag.Of(uint16(33))}, {Ref: 4, Value: tag.Of(false)}, {Ref: 6, Value: tag.Of(true)}}
	s.Execute(t.Context(), cmds)
	for i, want := range []tag.Value{tag.Of(68.3), tag.Of(uint16(33)), tag.Of(false)} {
		if got := s.sink.last(cmds[i].Ref); cmds[i].Status != tag.Good || !got.Value.Equal(want) {
			t.Errorf("write %d: %v, and the confirming reading was %v", i, cmds[i].Status, got.Value)
		}
	}
	if cmds[3].Status != tag.BadConfigurationError { // the simulated wave refuses writes with exception 2
		t.Errorf("a write that the device refuses: %v", cmds[3].Status)
	}
	if w, _ := s.plant.Device("boiler").Writes(); len(w) != 2 || w[0].Values[0] != 683 {
		t.Errorf("the boiler was written %v", w)
	}
	time.Sleep(500 * time.Millisecond)
	s.stop()
	published := s.sink.of(2)
	if len(published) < 10 {
		t.Errorf("%d readings of the counter", len(published))
	}
	left := s.said.counters
	for _, c := range published {
		at := slices.Index(left, c.Value.Bits())
		if c.Status.IsGood() && at < 0 {
			t.Fatalf("the counter was published as %v, which the device did not say, or not in this order", c.Value)
		}
		left = left[max(at, 0):]
	}
}

func TestFaultsOfTheField(t *testing.T) {
	bad := func(s tag.Status) []tag.Status { return []tag.Status{tag.Good, s, tag.Good} }
	same := []tag.Status{tag.Good}
	for _, row := range []struct {
		fault sim.Fault
		tcp   []tag.Status // what the tag went through
		rtu   []tag.Status
	}{
		{sim.Fault{Kind: sim.Mute, Times: 2}, bad(tag.BadNoCommunication), bad(tag.BadNoCommunication)},
		{sim.Fault{Kind: sim.Mute, Times: 1}, same, same}, // one retry
		{sim.Fault{Kind: sim.Delay, For: 80 * time.Millisecond, Times: 1}, same, same},
		{sim.Fault{Kind: sim.Exception, Code: 4, Times: 2}, bad(tag.BadDeviceFailure), bad(tag.BadDeviceFailure)},
		{sim.Fault{Kind: sim.Exception, Code: 6, Times: 2}, same, same}, // D11
		{sim.Fault{Kind: sim.Exception, Code: 11, Times: 2}, bad(tag.BadNoCommunication), bad(tag.BadNoCommunication)},
		{sim.Fault{Kind: sim.WrongUnit, Times: 2}, bad(tag.BadCommunicationError), bad(tag.BadCommunicationError)},
		{sim.Fault{Kind: sim.WrongTrans, Times: 2}, bad(tag.BadNoCommunication), same},
		{sim.Fault{Kind: sim.WrongFunction, Times: 2}, bad(tag.BadCommunicationError), bad(tag.BadCommunicationError)},
		{sim.Fault{Kind: sim.WrongCount, Times: 2}, bad(tag.BadCommunicationError), bad(tag.BadCommunicationError)},
		{sim.Fault{Kind: sim.BadCRC, Times: 1}, same, same},
		{sim.Fault{Kind: sim.Noise, Times: 5}, nil, same}, // D18
		{sim.Fault{Kind: sim.Trailing, Times: 5}, nil, same},
		{sim.Fault{Kind: sim.Duplicate, Times: 5}, same, same},
		{sim.Fault{Kind: sim.Reset, Times: 1}, same, nil},
	} {
		for _, url := range []string{"tcp://127.0.0.1:0", "rtu:?baud=115200"} {
			want, framing := row.tcp, "tcp"
			if url[0] == 'r' {
				want, framing = row.rtu, "rtu"
			}
			if want == nil {
				continue
			}
			t.Run(fmt.Sprintf("%s %s %d times %d", framing, row.fault.Kind, row.fault.Code, row.fault.Times), func(t *testing.T) {
				t.Parallel()
				s := join(t, sim.Config{
					Lines:   []sim.LineConfig{{Name: "line", URL: url}},
					Devices: []sim.DeviceConfig{{Name: "meter", Line: "line", Unit: 1, Points: []sim.PointConfig{{Address: "holding:0", Repeat: 4, Value: 12345}}}},
				}, drivers.BusConfig{Retries: 1}, modbus.LinkConfig{Timeout: 60 * time.Millisecond}, map[string]modbus.Config{
					"meter": {Poll: 20 * time.Millisecond, Tags: []modbus.Tag{{Name: "total", Address: "holding:1"}}}})
				eventually(t, "never good", func() bool { return len(s.sink.of(1)) > 2 })
				fault := row.fault
				fault.Function = 3 // and not the question what it is
				s.plant.Device("meter").Fault(fault)
				n := len(s.sink.of(1))
				eventually(t, "did not recover", func() bool { return len(s.sink.of(1)) > n+8 && s.sink.last(1).Status == tag.Good })
				s.stop()
				var went []tag.Status
				for _, x := range s.sink.of(1) {
					if len(went) == 0 || went[len(went)-1] != x.Status {
						went = append(went, x.Status)
					}
					if x.Status.IsGood() && x.Value.Bits() != 12345 || x.Status.IsBad() && !x.Value.IsNull() {
						t.Errorf("D12 published %v with %v", x.Value, x.Status)
					}
				}
				// On a machine under load a time-out more is no fault of the driver.
				if !slices.Equal(went, want) && !slices.Contains(went, tag.BadNoCommunication) {
					t.Errorf("the tag went %v, want %v", went, want)
				}
				if len(want) > 1 && !slices.Contains(went, want[1]) {
					t.Errorf("the tag went %v, want %v", went, want)
				}
			})
		}
	}
}

func TestD20DeviceOfOneClientThatClosesWhenIdle(t *testing.T) {
	s := join(t, sim.Config{
		Lines:   []sim.LineConfig{{Name: "line", URL: "tcp://127.0.0.1:0", Clients: 1, Idle: 50 * time.Millisecond}},
		Devices: []sim.DeviceConfig{{Name: "meter", Line: "line", Unit: 1, Points: []sim.PointConfig{{Address: "holding:0", Value: 7}}}},
	}, drivers.BusConfig{}, modbus.LinkConfig{Timeout: time.Second}, map[string]modbus.Config{
		"meter": {Poll: 150 * time.Millisecond, Tags: []modbus.Tag{{Name: "t", Address: "holding:0"}}}})
	eventually(t, "no readings", func() bool { return len(s.sink.of(1)) >= 8 })
	s.stop()
	for _, x := range s.sink.of(1) {
		if x.Status != tag.Good {
			t.Errorf("idle close was published as %v", x.Status)
		}
	}
}

func TestE2SerialLineThatVanishes(t *testing.T) {
	path := t.TempDir() + "/by-id"
	s := join(t, sim.Config{
		Lines:   []sim.LineConfig{{Name: "line", URL: "rtu://" + path + "?baud=115200"}},
		Devices: []sim.DeviceConfig{{Name: "meter", Line: "line", Unit: 1, Points: []sim.PointConfig{{Address: "holding:0", Value: 7}}}},
	}, drivers.BusConfig{}, modbus.LinkConfig{Timeout: 200 * time.Millisecond}, map[string]modbus.Config{
		"meter": {Poll: 20 * time.Millisecond, Tags: []modbus.Tag{{Name: "t", Address: "holding:0"}}}})
	eventually(t, "never good", func() bool { return s.sink.last(1).Status == tag.Good })
	s.plant.Line("line").Down()
	eventually(t, "not bad without its line", func() bool { return s.sink.last(1).Status == tag.BadNoCommunication })
	if b := s.Buses()[0]; b.Up || b.LastError == "" {
		t.Errorf("bus %+v", b)
	}
	if err := s.plant.Line("line").Up(); err != nil { // another number behind the same link
		t.Fatal(err)
	}
	eventually(t, "did not come back", func() bool { return s.sink.last(1).Status == tag.Good })
}

func TestD19OneLineOneRequestAtATime(t *testing.T) {
	cfg := sim.Config{Lines: []sim.LineConfig{{Name: "line", URL: "tcp://127.0.0.1:0"}}}
	devices := map[string]modbus.Config{}
	for i := range 5 {
		name := fmt.Sprintf("unit%d", i)
		cfg.Devices = append(cfg.Devices, sim.DeviceConfig{Name: name, Line: "line", Unit: i + 1, Delay: 3 * time.Millisecond, Points: []sim.PointConfig{{Address: "holding:0", Value: i}}})
		devices[name] = modbus.Config{Poll: 50 * time.Millisecond, Tags: []modbus.Tag{{Name: "t", Address: "holding:0"}}}
	}
	s := join(t, cfg, drivers.BusConfig{Retries: 1}, modbus.LinkConfig{Timeout: time.Second}, devices)
	for ref := tag.Ref(1); ref <= 5; ref++ {
		eventually(t, "no readings", func() bool { return len(s.sink.of(ref)) > 5 })
		for _, x := range s.sink.of(ref) {
			if x.Status != tag.Good || x.Value.Bits() != uint64(ref-1) {
				t.Errorf("unit %d: %v, %v", ref, x.Value, x.Status)
			}
		}
	}
	if n := s.plant.Line("line").Accepted(); n != 1 {
		t.Errorf("%d connections to one host", n)
	}
}

func BenchmarkField1000Tags(b *testing.B) {
	plant, err := sim.New(sim.Config{Lines: []sim.LineConfig{{Name: "line", URL: "tcp://127.0.0.1:0"}},
		Devices: []sim.DeviceConfig{{Name: "d", Line: "line", Unit: 1, Points: []sim.PointConfig{{Address: "holding:0", Repeat: 125}}}}})
	if err != nil {
		b.Fatal(err)
	}
	if err := plant.Start(); err != nil {
		b.Fatal(err)
	}
	defer plant.Close()
	addr, _ := port.Parse(plant.Line("line").URL())
	l := modbus.NewLink(modbus.Links(addr))
	var tags []modbus.Tag
	for i := range 125 {
		tags = append(tags, modbus.Tag{Ref: tag.Ref(i + 1), Name: fmt.Sprint(i), Address: fmt.Sprintf("holding:%d", i)})
	}
	d, err := modbus.New(modbus.Config{Name: "d", Unit: 1, Tags: tags}, l)
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	var dst []tag.Sample
	b.ReportAllocs()
	for b.Loop() {
		if dst, err = d.Poll(b.Context(), 0, 0, dst[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRTULine8Units tells how much longer a cycle of eight units takes than their characters and silences do.
func BenchmarkRTULine8Units(b *testing.B) {
	cfg := sim.Config{Lines: []sim.LineConfig{{Name: "line", URL: "rtu:?baud=19200&parity=even", Pace: true}}}
	for i := range 8 {
		cfg.Devices = append(cfg.Devices, sim.DeviceConfig{Name: fmt.Sprint("u", i), Line: "line", Unit: i + 1, Points: []sim.PointConfig{{Address: "holding:0", Repeat: 10}}})
	}
	plant, err := sim.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	if err := plant.Start(); err != nil {
		b.Fatal(err)
	}
	defer plant.Close()
	addr, err := port.Parse(plant.Line("line").URL())
	if err != nil {
		b.Fatal(err)
	}
	l := modbus.NewLink(modbus.Links(addr))
	var units []*modbus.Device
	for i := range 8 {
		d, err := modbus.New(modbus.Config{Name: "u", Unit: i + 1, Tags: []modbus.Tag{{Ref: 1, Name: "t", Address: "holding:0", Type: "uint16[10]"}}}, l)
		if err != nil {
			b.Fatal(err)
		}
		units = append(units, d)
	}
	if err := l.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for b.Loop() {
		for _, d := range units {
			if _, err := d.Poll(b.Context(), 0, 0, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	// Eight bytes there, 25 back, 3.5 characters of silence before each (Serial Line, 2.5.1.1).
	ideal := 8 * addr.Mode.Chars(8+25+7)
	b.ReportMetric(100*(float64(b.Elapsed())/float64(b.N)/float64(ideal)-1), "%over")
}
