package memory

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"edged/drivers/tag"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rw = tag.Readable | tag.Writable

// record is a sink that keeps what it hears.
type record struct {
	mu      sync.Mutex
	samples []tag.Sample
	batches int
}

func (r *record) Publish(batch []tag.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples = append(r.samples, batch...)
	r.batches++
}

func (r *record) of(ref tag.Ref) (out []tag.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.samples {
		if s.Ref == ref {
			out = append(out, s)
		}
	}
	return out
}

func device(t testing.TB, tags ...Tag) *Device {
	t.Helper()
	for i := range tags {
		tags[i].Ref = tag.Ref(i + 10)
		tags[i].Name = fmt.Sprintf("t%d", i)
		if tags[i].Access == 0 {
			tags[i].Access = rw
		}
	}
	d, err := New("scratch", tags)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWrites(t *testing.T) {
	then := tag.TimeOf(time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC))
	for _, row := range []struct {
		name string
		tag  Tag
		cmd  tag.Command
		want tag.Status
		hold tag.Value // what the tag holds after a Good write
	}{
		{"value", Tag{}, tag.Command{Value: tag.Of(1.5)}, tag.Good, tag.Of(1.5)},
		{"status and time are stored", Tag{Type: "uint16"}, tag.Command{Value: tag.Of(uint16(3)), Put: tag.BadDeviceFailure, At: then}, tag.Good, tag.Of(uint16(3))},
		{"text", Tag{Type: "string"}, tag.Command{Value: tag.Of("x")}, tag.Good, tag.Of("x")},
		{"part of an array", Tag{Type: "int32[4]"}, tag.Command{Value: tag.OfSlice([]int32{8, 9}), Part: true, From: 1}, tag.Good, tag.OfSlice([]int32{0, 8, 9, 0})},
		{"another type", Tag{Type: "uint16"}, tag.Command{Value: tag.Of(int32(3))}, tag.BadTypeMismatch, tag.Value{}},
		{"an array for a scalar", Tag{}, tag.Command{Value: tag.OfSlice([]float64{1})}, tag.BadTypeMismatch, tag.Value{}},
		{"another length", Tag{Type: "int32[4]"}, tag.Command{Value: tag.OfSlice([]int32{1})}, tag.BadTypeMismatch, tag.Value{}},
		{"a part beyond the end", Tag{Type: "int32[4]"}, tag.Command{Value: tag.OfSlice([]int32{8, 9}), Part: true, From: 3}, tag.BadIndexRangeNoData, tag.Value{}},
		{"a part of a scalar", Tag{}, tag.Command{Value: tag.Of(1.5), Part: true}, tag.BadWriteNotSupported, tag.Value{}},
		{"above the range", Tag{HasRange: true, High: 10}, tag.Command{Value: tag.Of(10.1)}, tag.BadOutOfRange, tag.Value{}},
		{"NaN against a range", Tag{HasRange: true, High: 10}, tag.Command{Value: tag.Of(math.NaN())}, tag.BadOutOfRange, tag.Value{}},
		{"text too long", Tag{Type: "string(3)"}, tag.Command{Value: tag.Of("abcd")}, tag.BadOutOfRange, tag.Value{}},
		{"characters of a text", Tag{Type: "string(3)", Value: "abc"}, tag.Command{Value: tag.Of("X"), Edit: func(old tag.Value) (tag.Value, tag.Status) {
			return tag.Of(old.Text()[:1] + "X" + old.Text()[2:]), tag.Good
		}}, tag.Good, tag.Of("aXc")},
		{"an edit that does not fit", Tag{Type: "string(3)", Value: "abc"}, tag.Command{Value: tag.Of("X"), Edit: func(tag.Value) (tag.Value, tag.Status) {
			return tag.Of("abcX"), tag.Good
		}}, tag.BadOutOfRange, tag.Value{}},
		{"an edit that fails", Tag{Type: "string(3)"}, tag.Command{Value: tag.Of("X"), Edit: func(tag.Value) (tag.Value, tag.Status) {
			return tag.Value{}, tag.BadIndexRangeNoData
		}}, tag.BadIndexRangeNoData, tag.Value{}},
		{"no value, with a bad status", Tag{}, tag.Command{Put: tag.BadDeviceFailure}, tag.Good, tag.Value{}},
		{"no value, with a good status", Tag{}, tag.Command{}, tag.BadTypeMismatch, tag.Value{}},
		{"read only", Tag{Access: tag.Readable}, tag.Command{Value: tag.Of(1.0)}, tag.BadNotWritable, tag.Value{}},
	} {
		d, sink := device(t, row.tag), &record{}
		cmds := []tag.Command{row.cmd, {Ref: 99}}
		cmds[0].Ref = 10
		d.Execute(cmds, sink)
		if cmds[0].Status != row.want || cmds[1].Status != tag.BadNodeIDUnknown {
			t.Errorf("%s: %v, %v", row.name, cmds[0].Status, cmds[1].Status)
		}
		got := sink.of(10)
		if row.want != tag.Good {
			if len(got) != 0 {
				t.Errorf("%s: a refused write was published as %v", row.name, got)
			}
			continue
		}
		if len(got) != 1 || !got[0].Value.Equal(row.hold) || got[0].Status != row.cmd.Put || row.cmd.At != 0 && got[0].At != row.cmd.At || got[0].At == 0 {
			t.Errorf("%s: published %v", row.name, got)
		}
		d.Refresh([]tag.Ref{10, 99}, sink)
		if again := sink.of(10); len(again) != 2 || again[1] != again[0] {
			t.Errorf("%s: reads back %v", row.name, again)
		}
	}
}

func TestConcurrentWritersArePublishedInOrder(t *testing.T) {
	d, sink := device(t, Tag{Type: "uint32"}, Tag{Type: "uint32"}), &record{}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 500 {
				d.Execute([]tag.Command{{Ref: 10, Value: tag.Of(uint32(w*1000 + i))}, {Ref: 11, Value: tag.Of(uint32(w*1000 + i))}}, sink)
			}
		})
	}
	wg.Wait()
	a, b := sink.of(10), sink.of(11)
	last := map[uint64]uint64{}
	for i := range a {
		v := a[i].Value.Bits()
		if v != b[i].Value.Bits() {
			t.Fatal("one batch was torn apart")
		}
		if was, ok := last[v/1000]; ok && v != was+1 {
			t.Fatalf("writer %d went from %d to %d", v/1000, was, v)
		}
		last[v/1000] = v
	}
	if len(a) != 2000 {
		t.Errorf("%d of 2000 writes were published", len(a))
	}
}

func TestBeginPublishesTheInitialValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, sink := device(t, Tag{Value: 2.5}, Tag{Type: "string", Value: "hello"}, Tag{Type: "bool[2]", Value: []any{true, false}}, Tag{Type: "uint16"}), &record{}
		if !d.Restore(tag.Sample{Ref: 13, Value: tag.Of(uint16(77)), At: 5}) {
			t.Error("a kept value was refused")
		}
		if d.Restore(tag.Sample{Ref: 13, Value: tag.Of("x")}) || d.Restore(tag.Sample{Ref: 99}) {
			t.Error("a value of another type, or of no tag, was taken")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d.Run(ctx, sink)
		want := []tag.Value{tag.Of(2.5), tag.Of("hello"), tag.OfSlice([]bool{true, false}), tag.Of(uint16(77))}
		for i, v := range want {
			got := sink.of(tag.Ref(10 + i))
			if len(got) != 1 || !got[0].Value.Equal(v) || got[0].Status != tag.Good || got[0].At == 0 {
				t.Errorf("tag %d: %v, want %v", i, got, v)
			}
		}
		if sink.of(13)[0].At != 5 {
			t.Error("a kept value lost its time")
		}
		if sink.batches != 1 {
			t.Errorf("%d batches", sink.batches)
		}
	})
}

func TestWaves(t *testing.T) {
	second := time.Second
	for _, row := range []struct {
		name string
		tag  Tag
		want []any // the first values after the initial one
	}{
		{"counter", Tag{Type: "uint32", Wave: &Wave{Kind: "counter", Every: second}}, []any{uint32(1), uint32(2), uint32(3)}},
		{"counter from min over max", Tag{Type: "int16", Wave: &Wave{Kind: "counter", Every: second, Min: 5, Max: 6}}, []any{int16(6), int16(5), int16(6)}},
		{"counter at its type's end", Tag{Type: "uint16", Value: 65534, Wave: &Wave{Kind: "counter", Every: second}}, []any{uint16(65535), uint16(0), uint16(1)}},
		{"counter at its type's end, signed", Tag{Type: "int8", Value: 127, Wave: &Wave{Kind: "counter", Every: second}}, []any{int8(-128), int8(-127)}},
		{"counter of a double", Tag{Wave: &Wave{Kind: "counter", Every: second}}, []any{1.0, 2.0}},
		{"counter of a bool", Tag{Type: "bool", Wave: &Wave{Kind: "counter", Every: second}}, []any{true, false, true}},
		{"sine", Tag{Type: "int16", Wave: &Wave{Kind: "sine", Every: second, Period: 4 * second, Min: -10, Max: 10}}, []any{int16(10), int16(0), int16(-10), int16(0)}},
		{"square", Tag{Wave: &Wave{Kind: "square", Every: second, Period: 4 * second, Max: 3}}, []any{3.0, 0.0, 0.0, 3.0}},
		{"square of a bool", Tag{Type: "bool", Wave: &Wave{Kind: "square", Every: second, Period: 4 * second}}, []any{true, false, false, true}},
		{"text", Tag{Type: "string", Wave: &Wave{Kind: "text", Every: second}}, []any{"1", "2", "3"}},
		{"defaults", Tag{Wave: &Wave{Kind: "counter"}}, []any{1.0, 2.0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, sink := device(t, row.tag), &record{}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
			defer cancel()
			d.Run(ctx, sink)
			got := sink.of(10)
			if len(got) != 6 {
				t.Fatalf("%s: %d values in five seconds", row.name, len(got))
			}
			for i, want := range row.want {
				if v := got[i+1].Value.Any(); v != want {
					t.Errorf("%s: value %d is %v, want %v", row.name, i+1, v, want)
				}
				if gap := got[i+1].At.Sub(got[i].At); gap != second {
					t.Errorf("%s: %v after the one before", row.name, gap)
				}
			}
		})
	}
}

// A wave with a phase moves that much later, on a grid of its own.
func TestPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const phase = 300 * time.Millisecond
		text := func(phase time.Duration) Tag {
			return Tag{Type: "string", Value: "0", Wave: &Wave{Kind: "text", Every: time.Second, Phase: phase}}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		d, sink := device(t, text(0), text(phase)), &record{}
		d.Run(ctx, sink)
		early, late := sink.of(10), sink.of(11)
		if len(early) != 4 || len(late) != 4 {
			t.Fatalf("%d and %d values", len(early), len(late))
		}
		for i := 1; i < 4; i++ {
			if gap := late[i].At.Sub(early[i].At); gap != phase || late[i].Value.Any() != early[i].Value.Any() {
				t.Errorf("value %d: %v, %v after %v", i, late[i].Value.Any(), gap, early[i].Value.Any())
			}
		}
	})
	for _, wrong := range []time.Duration{-1, time.Second} {
		if errs := (&Tag{Type: "string", Wave: &Wave{Kind: "text", Phase: wrong}}).Check(); len(errs) != 1 || errs[0].Field != "wave.phase" {
			t.Errorf("phase %v: %v", wrong, errs)
		}
	}
}

func TestRandomStaysInItsRange(t *testing.T) {
	w := wave{Wave: Wave{Kind: "random", Min: -2, Max: 3}}
	seen := map[int64]bool{}
	for range 1000 {
		v, _ := w.value(tag.Int16, tag.Value{}, 0).Float()
		if v < -2 || v > 3 {
			t.Fatal(v)
		}
		seen[int64(v)] = true
	}
	if len(seen) != 6 {
		t.Errorf("only %v came up", seen)
	}
	if v := w.value(tag.Bool, tag.Value{}, 0); v.Kind() != tag.Bool {
		t.Errorf("%v", v)
	}
}

func TestWavesOfSeveralSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, sink := device(t,
			Tag{Type: "uint32", Wave: &Wave{Kind: "counter", Every: 20 * time.Millisecond}},
			Tag{Type: "uint32", Wave: &Wave{Kind: "counter", Every: 50 * time.Millisecond}},
			Tag{Type: "uint32", Wave: &Wave{Kind: "counter", Every: 20 * time.Millisecond}}), &record{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		d.Run(ctx, sink)
		for ref, want := range map[tag.Ref]int{10: 51, 11: 21, 12: 51} {
			if n := len(sink.of(ref)); n != want {
				t.Errorf("tag %d: %d values in a second, want %d", ref, n, want)
			}
		}
		if sink.batches != 1+50+20 {
			t.Errorf("%d batches", sink.batches)
		}
	})
}

func TestCheckNamesTheKey(t *testing.T) {
	for _, row := range []struct {
		tag  Tag
		want []string
	}{
		{Tag{}, nil},
		{Tag{Type: "uint8", Value: 255}, nil},
		{Tag{Type: "uint64", Value: uint64(math.MaxUint64)}, nil},
		{Tag{Type: "float32", Value: uint64(3)}, nil},
		{Tag{Type: "bytes(4)", Value: "abcd"}, nil},
		{Tag{Type: "double"}, []string{"type"}},
		{Tag{Type: "uint8", Value: 256}, []string{"value"}},
		{Tag{Type: "uint8", Value: -1}, []string{"value"}},
		{Tag{Type: "uint8", Value: 1.5}, []string{"value"}},
		{Tag{Type: "int64", Value: uint64(math.MaxUint64)}, []string{"value"}},
		{Tag{Type: "bool", Value: 1}, []string{"value"}},
		{Tag{Type: "string", Value: 1}, []string{"value"}},
		{Tag{Value: "1"}, []string{"value"}},
		{Tag{Value: 11, HasRange: true, High: 10}, []string{"value"}},
		{Tag{Type: "string(2)", Value: "abc"}, []string{"value"}},
		{Tag{Type: "int16[2]", Value: 1}, []string{"value"}},
		{Tag{Type: "int16[2]", Value: []any{1}}, []string{"value"}},
		{Tag{Type: "int16[2]", Value: []any{1, "x"}}, []string{"value"}},
		{Tag{HasRange: true, Low: 2, High: 1}, []string{"range"}},
		{Tag{Wave: &Wave{Kind: "saw"}}, []string{"wave.kind"}},
		{Tag{Type: "string", Wave: &Wave{Kind: "sine"}}, []string{"wave.kind"}},
		{Tag{Wave: &Wave{Kind: "text"}}, []string{"wave.kind"}},
		{Tag{Type: "bool", Wave: &Wave{Kind: "sine"}}, []string{"wave.kind"}},
		{Tag{Type: "int16[2]", Wave: &Wave{Kind: "counter"}}, []string{"wave.kind"}},
		{Tag{Wave: &Wave{Kind: "sine", Every: time.Microsecond, Period: -1, Min: 2, Max: 1}}, []string{"wave.every", "wave.period", "wave.max"}},
	} {
		var got []string
		for _, e := range row.tag.Check() {
			got = append(got, e.Field)
			if !strings.HasPrefix(e.Error(), e.Field+": ") {
				t.Errorf("%v", e)
			}
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%+v: wrong in %v, want %v", row.tag, got, row.want)
		}
		if _, err := New("d", []Tag{row.tag}); (err == nil) != (row.want == nil) {
			t.Errorf("%+v: New: %v", row.tag, err)
		}
	}
	if _, err := New("d", []Tag{{Ref: 1}, {Ref: 1}}); err == nil {
		t.Error("two tags of one slot")
	}
	if k, n := (&Tag{Type: "uint16[3]"}).Shape(); k != tag.Uint16 || n != 3 {
		t.Errorf("%v, %d", k, n)
	}
	if k, _ := (&Tag{Type: "?"}).Shape(); k != tag.Null {
		t.Errorf("%v", k)
	}
}

func TestArraysOfEveryKind(t *testing.T) {
	for _, typ := range []string{"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"} {
		tg := Tag{Type: typ + "[2]", Value: []any{1, 2}}
		s, errs := tg.slot()
		if len(errs) > 0 {
			t.Fatal(errs[0])
		}
		if text := s.sample.Value.String(); text != "[1 2]" || s.sample.Value.Kind() != s.typ.Kind {
			t.Errorf("%s: %s", typ, text)
		}
	}
	tg := Tag{Type: "string[2]", Value: []any{"a", "b"}}
	if s, _ := tg.slot(); s.sample.Value.String() != "[a b]" {
		t.Errorf("%v", s.sample.Value)
	}
}

type nowhere struct{}

func (nowhere) Publish([]tag.Sample) {}

func TestExecuteDoesNotAllocate(t *testing.T) {
	tags := make([]Tag, 600)
	d := device(t, tags...)
	cmds := make([]tag.Command, len(tags))
	for i := range cmds {
		cmds[i] = tag.Command{Ref: tag.Ref(i + 10), Value: tag.Of(float64(i))}
	}
	if n := testing.AllocsPerRun(100, func() { d.Execute(cmds, nowhere{}) }); n != 0 {
		t.Errorf("%v allocations for %d writes", n, len(cmds))
	}
}

func BenchmarkExecute100(b *testing.B) {
	d := device(b, make([]Tag, 100)...)
	cmds := make([]tag.Command, 100)
	for i := range cmds {
		cmds[i] = tag.Command{Ref: tag.Ref(i + 10), Value: tag.Of(42.0)}
	}
	b.ReportAllocs()
	for b.Loop() {
		d.Execute(cmds, nowhere{})
	}
}

func TestSuccession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &record{}
		run := func(d *Device) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); d.Run(ctx, sink) }()
			return func() { cancel(); <-done }
		}
		counter := &Wave{Kind: "counter", Every: 100 * time.Millisecond}
		sine := &Wave{Kind: "sine", Every: 100 * time.Millisecond, Period: 10 * time.Second, Max: 100}
		old := device(t, Tag{Type: "uint32"}, Tag{Type: "uint32", Wave: counter}, Tag{Wave: sine}, Tag{Type: "int16"}, Tag{Value: 50}, Tag{})
		stop := run(old)
		then := tag.Time(5)
		old.Execute([]tag.Command{{Ref: 10, Value: tag.Of(uint32(7)), At: then, Put: tag.BadDeviceFailure}, {Ref: 13, Value: tag.Of(int16(3))}}, sink)
		time.Sleep(1050 * time.Millisecond)
		stop()
		last := func(ref tag.Ref) tag.Sample { all := sink.of(ref); return all[len(all)-1] }
		phase, count := last(12).Value, last(11).Value
		sink.samples = nil
		// The fourth gets another type, the fifth a range that forbids what it holds, the sixth goes.
		next := device(t, Tag{Type: "uint32", Value: 1}, Tag{Type: "uint32", Wave: counter}, Tag{Wave: sine}, Tag{Type: "float32"}, Tag{HasRange: true, High: 10, Value: 1})
		next.Succeed(old)
		stop = run(next)
		synctest.Wait()
		for ref, want := range map[tag.Ref]tag.Value{10: tag.Of(uint32(7)), 11: count, 12: phase, 13: tag.Of(float32(0)), 14: tag.Of(1.0)} {
			if got := last(ref); !got.Value.Equal(want) {
				t.Errorf("tag %d holds %v, want %v", ref, got.Value, want)
			}
		}
		if got := last(10); got.At != then || got.Status != tag.BadDeviceFailure {
			t.Errorf("status and time of a value that is kept: %v", got)
		}
		// Who still has the old device speaks with the new one.
		cmds := []tag.Command{{Ref: 10, Value: tag.Of(uint32(8))}, {Ref: 15, Value: tag.Of(1.0)}}
		old.Execute(cmds, sink)
		if old.Refresh([]tag.Ref{10}, sink); cmds[0].Status != tag.Good || cmds[1].Status != tag.BadNodeIDUnknown || last(10).Value.Bits() != 8 {
			t.Errorf("by the old device: %v, %v, %v", cmds[0].Status, cmds[1].Status, last(10).Value)
		}
		next.Succeed(next)
		time.Sleep(time.Second)
		stop()
		steps := sink.of(11)
		for i, s := range steps[1:] {
			if s.Value.Bits() != steps[i].Value.Bits()+1 {
				t.Errorf("the counter went from %v to %v", steps[i].Value, s.Value)
			}
			if i > 0 && s.At.Sub(steps[i].At) != 100*time.Millisecond {
				t.Errorf("a step of %v", s.At.Sub(steps[i].At))
			}
		}
		if len(steps) != 11 {
			t.Errorf("%d steps in a second", len(steps)-1)
		}
	})
}
