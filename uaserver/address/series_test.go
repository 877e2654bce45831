package address

import (
	"math/rand/v2"
	"strings"
	"testing"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

func numbered(n int) tag.Sample { return tag.Sample{Value: tag.Of(int64(n)), At: tag.Time(n)} }

// reference is what a Series promises, written without a ring: the whole log.
type reference struct{ log []tag.Sample }

func (r *reference) take(cursor *uint64, queue, max int) (out []tag.Sample, lost uint64) {
	fresh := len(r.log) - int(*cursor)
	if fresh > queue {
		lost, fresh = uint64(fresh-queue), queue
	}
	from := len(r.log) - fresh
	out = r.log[from : from+min(fresh, max)]
	*cursor += lost + uint64(len(out))
	return out, lost
}

func TestSeriesAgainstReference(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		budget := &tag.Budget{}
		s := NewBlock(budget).New(nil)
		var ref reference
		type reader struct {
			cursor  uint64
			granted int
		}
		var readers []reader
		for range 300 {
			switch k := rnd.IntN(10); {
			case k < 6:
				for range 1 + rnd.IntN(6) {
					v := numbered(len(ref.log))
					if seed%2 == 1 {
						v.Value = tag.Of(strings.Repeat("x", rnd.IntN(50)))
					}
					ref.log = append(ref.log, v)
					s.Append(v)
				}
			case k < 7 && len(readers) < 5:
				readers = append(readers, reader{s.Head(), s.Reserve(1 + rnd.IntN(20))})
			case k < 8 && len(readers) > 0:
				i := rnd.IntN(len(readers))
				s.Release(readers[i].granted)
				readers = append(readers[:i], readers[i+1:]...)
			case len(readers) > 0:
				r := &readers[rnd.IntN(len(readers))]
				before, max := r.cursor, 1+rnd.IntN(25)
				got, lost := s.Take(&r.cursor, r.granted, max, nil)
				want, wantLost := ref.take(&before, r.granted, max)
				if len(got) != len(want) || lost != wantLost || before != r.cursor {
					t.Fatalf("seed %d: took %d, lost %d, cursor %d; want %d, %d, %d", seed, len(got), lost, r.cursor, len(want), wantLost, before)
				}
				for i := range got {
					if got[i] != want[i] {
						t.Fatalf("seed %d: sample %d is %v, want %v", seed, i, got[i].Value, want[i].Value)
					}
				}
			}
		}
		for _, r := range readers {
			s.Release(r.granted)
		}
		if budget.Used() != 0 {
			t.Fatalf("seed %d: %d bytes stay charged", seed, budget.Used())
		}
		if s.log != nil {
			t.Fatalf("seed %d: %d slots are kept for nobody", seed, len(s.log.ring))
		}
	}
}

func TestSeriesAccount(t *testing.T) {
	budget := &tag.Budget{Limit: 20 * SlotBytes}
	s := NewBlock(budget).New(nil)
	if got := s.Reserve(10); got != 10 {
		t.Fatalf("granted %d of 10", got)
	}
	got := s.Reserve(1000)
	if got < 10 || got > 21 {
		t.Fatalf("granted %d of 1000 with room for 21", got)
	}
	if got := s.Reserve(1000); got < 10 || int64(got) > 21 {
		t.Fatalf("the second reader was granted %d", got)
	}
	full := NewBlock(&tag.Budget{Limit: 1}).New(nil)
	if got := full.Reserve(5); got != 1 {
		t.Fatalf("granted %d without any room", got)
	}
	for i := range 3 {
		full.Append(numbered(i))
	}
	if v, _, ok := full.Last(); !ok || v != numbered(2) {
		t.Fatalf("last is %v", v)
	}
}

// TestSeriesChargesTexts: texts in a queue are on the account too. Without room for them the oldest go, and are lost to
// their readers; the newest is always there.
func TestSeriesChargesTexts(t *testing.T) {
	budget := &tag.Budget{Limit: 99*SlotBytes + 3500}
	s := NewBlock(budget).New(nil)
	if got := s.Reserve(100); got != 100 {
		t.Fatalf("granted %d", got)
	}
	text := func(i, n int) tag.Sample {
		return tag.Sample{Value: tag.Of(strings.Repeat("x", n)), At: tag.Time(i)}
	}
	for i := range 50 {
		s.Append(text(i, 1000))
		if budget.Used() > budget.Limit {
			t.Fatalf("%d bytes are charged", budget.Used())
		}
	}
	var cursor uint64
	got, lost := s.Take(&cursor, 100, 100, nil)
	if len(got) != 4 || lost != 46 || got[3].At != 49 || cursor != 50 {
		t.Fatalf("took %d, lost %d, cursor %d", len(got), lost, cursor)
	}
	s.Append(text(50, 5000)) // longer than all room there is
	s.Append(text(51, 10))
	if got, lost = s.Take(&cursor, 100, 100, nil); len(got) != 1 || lost != 1 || got[0].At != 51 {
		t.Fatalf("took %d, lost %d after a long text", len(got), lost)
	}
	for i := range 300 { // room enough again
		s.Append(text(i, 10))
	}
	if got, lost = s.Take(&cursor, 100, 300, nil); len(got) != 100 || lost != 200 {
		t.Fatalf("took %d, lost %d of short texts", len(got), lost)
	}
	s.Release(100)
	if v, _, ok := s.Last(); !ok || v.At != 299 || budget.Used() != 0 {
		t.Fatalf("the last is %v, %d bytes stay charged", v.At, budget.Used())
	}
}

func TestSeriesGrowsAsItFills(t *testing.T) {
	s := NewBlock(nil).New(nil)
	s.Reserve(1000)
	for i := range 3 {
		s.Append(numbered(i))
	}
	if len(s.log.ring) > 4 {
		t.Fatalf("%d slots hold 3 samples", len(s.log.ring))
	}
}

type counter int

func (c *counter) Wake() { *c++ }

func TestSeriesWakesAtHalfARing(t *testing.T) {
	var s Series
	var wakes counter
	s.Reserve(64)
	s.Watch(&wakes)
	for i := range 320 {
		s.Append(numbered(i))
	}
	if wakes != 10 {
		t.Fatalf("told %d times in five rings, want 10", wakes)
	}
	s.Unwatch(&wakes)
	for i := range 320 {
		s.Append(numbered(i))
	}
	if wakes != 10 {
		t.Fatal("told after Unwatch")
	}
}

func TestSeriesVerify(t *testing.T) {
	var s Series
	if _, _, ok := s.Last(); ok {
		t.Fatal("an empty Series has a last sample")
	}
	s.Append(numbered(1))
	s.Verify(9)
	if v, at, ok := s.Last(); !ok || at != 9 || v != numbered(1) {
		t.Fatalf("last is %v, verified %v", v.Value, at)
	}
}

// TestSeriesPublish: a reading is a change if its status or its value is another, and else verifies the newest sample.
func TestSeriesPublish(t *testing.T) {
	b := NewBlock(nil)
	s := b.New(nil)
	var v wire.DataValue
	if s.Value(&v); v != (wire.DataValue{}) {
		t.Fatal("an empty Series has a value")
	}
	for i, row := range []struct {
		reading tag.Sample
		head    uint64
		source  tag.Time
	}{
		{tag.Sample{}, 1, 0}, // the first, though it is that of an empty Series
		{tag.Sample{Value: tag.Of(1.0), At: 10}, 2, 10},
		{tag.Sample{Value: tag.Of(1.0), At: 11}, 2, 10},
		{tag.Sample{Value: tag.Of(2.0), At: 12}, 3, 12},
		{tag.Sample{Value: tag.Of(2.0), At: 13, Status: tag.BadTimeout}, 4, 13},
		{tag.Sample{Value: tag.Of(2.0), At: 14, Status: tag.BadTimeout}, 4, 13},
		{tag.Sample{Value: tag.Of("2"), At: 15, Status: tag.BadTimeout}, 5, 15},
	} {
		r := row.reading
		s.Publish(&r)
		s.Value(&v)
		want := wire.DataValue{Value: r.Value, Status: r.Status, Source: row.source, Server: r.At}
		if v != want || s.Head() != row.head || b.Changes() != row.head {
			t.Errorf("reading %d: %+v, want %+v; %d samples, %d changes", i, v, want, s.Head(), b.Changes())
		}
	}
}

func TestSeriesDoesNotAllocate(t *testing.T) {
	s := NewBlock(nil).New(nil)
	s.Reserve(10)
	for i := range 20 {
		s.Append(numbered(i))
	}
	var cursor uint64
	dst := make([]tag.Sample, 0, 10)
	if n := testing.AllocsPerRun(1000, func() {
		s.Append(numbered(1))
		dst, _ = s.Take(&cursor, 10, 10, dst[:0])
	}); n != 0 {
		t.Fatalf("%v allocations a change and a take", n)
	}
}

func BenchmarkSeriesAppend(b *testing.B) {
	s := NewBlock(nil).New(nil)
	s.Reserve(10)
	b.ReportAllocs()
	for i := range b.N {
		s.Append(numbered(i))
	}
}

// TestPublishTakesOneKind: readings of another kind, and those that come while the Series is shut, leave no trace.
func TestPublishTakesOneKind(t *testing.T) {
	s := NewBlock(nil).New(nil)
	head := func(step string, want uint64, value tag.Value, verified tag.Time) {
		t.Helper()
		last, at, _ := s.Last()
		if s.Head() != want || !last.Value.Equal(value) || at != verified {
			t.Errorf("%s: head %d, %v, verified %v; want %d, %v, %v", step, s.Head(), last.Value, at, want, value, verified)
		}
	}
	s.Open(tag.Int32, tag.Sample{Status: tag.BadWaitingForInitialData, At: 1})
	s.Publish(&tag.Sample{Value: tag.Of(1.5), At: 2})
	head("of another kind", 1, tag.Value{}, 1)
	s.Publish(&tag.Sample{Value: tag.Of(int32(7)), At: 3})
	head("of its kind", 2, tag.Of(int32(7)), 3)
	s.Publish(&tag.Sample{Value: tag.Of(int32(7)), At: 4})
	head("again", 2, tag.Of(int32(7)), 4)
	s.Publish(&tag.Sample{Status: tag.BadNoCommunication, At: 5})
	head("without a value", 3, tag.Value{}, 5)
	s.Shut(tag.Sample{Status: tag.BadNodeIDUnknown, At: 6})
	s.Publish(&tag.Sample{Value: tag.Of(int32(8)), At: 7})
	s.Publish(&tag.Sample{Status: tag.BadNodeIDUnknown, At: 8})
	head("shut", 4, tag.Value{}, 6)
	s.Open(tag.Null, tag.Sample{Status: tag.BadWaitingForInitialData, At: 9})
	s.Publish(&tag.Sample{Value: tag.Of("any"), At: 10})
	head("of any kind", 6, tag.Of("any"), 10)
}
