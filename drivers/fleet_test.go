package drivers

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"
)

// store is a device without a line, on paper: it takes everything but 13.
type store struct {
	refs    []tag.Ref
	batches [][]tag.Command
}

func (s *store) Tags() []tag.Ref { return s.refs }
func (s *store) Execute(cmds []tag.Command, sink tag.Sink) {
	s.batches = append(s.batches, slices.Clone(cmds))
	for i := range cmds {
		if cmds[i].Value.Bits() == 13 {
			cmds[i].Status = tag.BadOutOfRange
			continue
		}
		cmds[i].Status = tag.Good
		sink.Publish([]tag.Sample{{Ref: cmds[i].Ref, Value: cmds[i].Value, At: tag.Now()}})
	}
}
func (s *store) Refresh(refs []tag.Ref, sink tag.Sink) {
	for _, ref := range refs {
		sink.Publish([]tag.Sample{{Ref: ref, At: tag.Now()}})
	}
}
func (s *store) Run(ctx context.Context, sink tag.Sink) { <-ctx.Done() }

// withStore adds a device without a line to a rig: tags beyond those of the plants.
func withStore(t *testing.T, r *rig, n int) *store {
	t.Helper()
	var defs []tag.Def
	for _, d := range r.table.Load().All() {
		def := *d.Def
		def.Name = d.Name()
		defs = append(defs, def)
	}
	s := &store{}
	for i := range n {
		defs = append(defs, tag.Def{Device: "scratch", Name: string(rune('a' + i)), Access: tag.Readable | tag.Writable})
		s.refs = append(s.refs, tag.Ref(len(defs)))
	}
	table, err := tag.NewTable(defs)
	if err != nil {
		t.Fatal(err)
	}
	r.config.Table = table
	r.config.Devices = append(r.config.Devices, DeviceConfig{Name: "scratch", Immediate: s})
	if err := r.Apply(r.config); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestExecuteOverLinesAndMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Hour, 1, 2)
		r := newRig(t, BusConfig{}, p)
		s := withStore(t, r, 3)
		r.start(t)
		value := func(n uint16) tag.Value { return tag.Of(n) }
		cmds := []tag.Command{{Ref: 3, Value: value(5)}, {Ref: 1, Value: value(6)}, {Ref: 4, Value: value(13)}, {Ref: 2, Value: value(7)}, {Ref: 3, Value: value(8)}}
		r.Execute(t.Context(), cmds)
		want := []tag.Status{tag.Good, tag.Good, tag.BadOutOfRange, tag.Good, tag.Good}
		for i := range cmds {
			if cmds[i].Status != want[i] {
				t.Errorf("command %d: %v, want %v", i, cmds[i].Status, want[i])
			}
		}
		if len(s.batches) != 1 || len(s.batches[0]) != 3 || s.batches[0][2].Value.Bits() != 8 {
			t.Errorf("the store heard %v", s.batches)
		}
		own := []tag.Command{{Ref: 4, Value: value(1)}, {Ref: 5, Value: value(13)}}
		if r.Execute(t.Context(), own); own[0].Status != tag.Good || own[1].Status != tag.BadOutOfRange {
			t.Errorf("%v, %v", own[0].Status, own[1].Status)
		}
		r.Execute(t.Context(), nil)
		if status := r.Refresh(t.Context(), []tag.Ref{3, 1, 77}); status != tag.Good || len(r.sink.of(3)) != 3 {
			t.Errorf("refresh: %v, %d samples", status, len(r.sink.of(3)))
		}
		if status := r.Operate(t.Context(), "scratch", tag.Disable); status != tag.BadNotSupported {
			t.Errorf("a device without a line was switched off: %v", status)
		}
		if d, ok := r.Device("scratch"); !ok || d.State != Online || d.Requests != 5 {
			t.Errorf("%+v", d)
		}
		if len(r.Devices()) != 2 {
			t.Errorf("%d devices", len(r.Devices()))
		}
		r.stop()
	})
}

func TestDirectWritesDoNotAllocate(t *testing.T) {
	r := newRig(t, BusConfig{}, newPlant(time.Hour, 1))
	withStore(t, r, 1)
	quiet := quietStore{}
	r.now.Load().devices[1].cfg.Immediate = quiet
	cmds := []tag.Command{{Ref: 2}, {Ref: 2}, {Ref: 2}}
	if n := testing.AllocsPerRun(100, func() { r.Execute(t.Context(), cmds) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

type quietStore struct{}

func (quietStore) Tags() []tag.Ref                 { return nil }
func (quietStore) Execute([]tag.Command, tag.Sink) {}
func (quietStore) Refresh([]tag.Ref, tag.Sink)     {}
func (quietStore) Run(context.Context, tag.Sink)   {}

// steady is a driver that always answers and costs nothing.
type steady struct{ refs []tag.Ref }

func (s steady) Tags() []tag.Ref                               { return s.refs }
func (steady) Scans() []time.Duration                          { return []time.Duration{time.Nanosecond} }
func (steady) Requests(int) []int                              { return zero }
func (steady) Write(context.Context, int, []tag.Command) error { return nil }
func (s steady) Poll(_ context.Context, _, _ int, dst []tag.Sample) ([]tag.Sample, error) {
	for _, ref := range s.refs {
		dst = append(dst, tag.Sample{Ref: ref, Value: tag.Of(uint16(1))})
	}
	return dst, nil
}
func (s steady) Refresh(ctx context.Context, lane int, _ []tag.Ref, dst []tag.Sample) ([]tag.Sample, error) {
	return s.Poll(ctx, lane, 0, dst)
}

var zero = []int{0}

type nowhere struct{}

func (nowhere) Publish([]tag.Sample) {}

// steadyLane is a lane that can be stepped by hand.
func steadyLane(tb testing.TB) *lane {
	table, err := tag.NewTable([]tag.Def{{Device: "d", Name: "t", Access: tag.Readable}})
	if err != nil {
		tb.Fatal(err)
	}
	f, err := NewFleet(Config{Table: table, Sink: nowhere{}, Log: slog.New(slog.DiscardHandler), Buses: []BusConfig{{Name: "b", Links: []Link{&wire{}}}},
		Devices: []DeviceConfig{{Name: "d", Bus: "b", Driver: steady{[]tag.Ref{1}}}}})
	if err != nil {
		tb.Fatal(err)
	}
	l := f.now.Load().devices[0].lane
	l.base, l.up = time.Now(), true
	l.devices[0].scans[0].period = 1
	return l
}

func TestPollingDoesNotAllocate(t *testing.T) {
	l := steadyLane(t)
	l.step(t.Context())
	if n := testing.AllocsPerRun(100, func() { l.step(context.Background()) }); n != 0 {
		t.Errorf("%v allocations a poll", n)
	}
}

func BenchmarkStep(b *testing.B) {
	l := steadyLane(b)
	b.ReportAllocs()
	for b.Loop() {
		l.step(context.Background())
	}
}

func TestOperate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(time.Second)
		if s := r.Operate(t.Context(), "d0", tag.Disable); s != tag.Good {
			t.Fatalf("disable: %v", s)
		}
		n := len(p.polled)
		time.Sleep(time.Second)
		if len(p.polled) != n {
			t.Error("a device that is off was polled")
		}
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}}
		if r.Execute(t.Context(), cmds); cmds[0].Status != tag.BadOutOfService {
			t.Errorf("write to a device that is off: %v", cmds[0].Status)
		}
		if s := r.Operate(t.Context(), "d0", tag.Enable); s != tag.Good {
			t.Fatalf("enable: %v", s)
		}
		time.Sleep(time.Second)
		r.Operate(t.Context(), "d0", tag.ResetCounters)
		if s, _ := r.Device("d0"); s.Requests != 0 || s.State != Online {
			t.Errorf("after the reset: %+v", s)
		}
		if s := r.Operate(t.Context(), "d0", tag.Poll); s != tag.Good || p.reads != 1 {
			t.Errorf("poll: %v, %d readings", s, p.reads)
		}
		if s := r.Operate(t.Context(), "nobody", tag.Poll); s != tag.BadNodeIDUnknown {
			t.Errorf("unknown device: %v", s)
		}
		r.stop()
		if got := r.sink.statuses(1); !slices.Equal(got, []tag.Status{tag.Good, tag.BadOutOfService, tag.Good}) {
			t.Errorf("the tag went %v", got)
		}
		cmds[0].Status = tag.Good
		if r.Execute(t.Context(), cmds); cmds[0].Status != tag.BadNoCommunication {
			t.Errorf("write after the end: %v", cmds[0].Status)
		}
		if s := r.Refresh(t.Context(), []tag.Ref{1}); s != tag.BadShutdown {
			t.Errorf("refresh after the end: %v", s)
		}
	})
}

func TestFleetRefusesAWrongConfiguration(t *testing.T) {
	table, _ := tag.NewTable([]tag.Def{{Device: "d", Name: "t"}})
	p := newPlant(time.Second, 1)
	bus := BusConfig{Name: "line", Links: []Link{&wire{}}}
	for _, row := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no sink", Config{Table: table}, "sink"},
		{"two buses of a name", Config{Table: table, Sink: &record{}, Buses: []BusConfig{bus, bus}}, "bus line is defined twice"},
		{"no link", Config{Table: table, Sink: &record{}, Buses: []BusConfig{{Name: "x"}}}, "has no link"},
		{"unknown bus", Config{Table: table, Sink: &record{}, Devices: []DeviceConfig{{Name: "d", Bus: "b", Driver: p}}}, `bus "b"`},
		{"no driver", Config{Table: table, Sink: &record{}, Devices: []DeviceConfig{{Name: "d"}}}, "one driver"},
		{"tag beyond the table", Config{Table: table, Sink: &record{}, Buses: []BusConfig{bus},
			Devices: []DeviceConfig{{Name: "d", Bus: "line", Driver: newPlant(time.Second, 7)}}}, "tag 7"},
	} {
		if _, err := NewFleet(row.cfg); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
