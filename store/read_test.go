package store

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"edged/drivers/tag"
)

// TestReadIsTheModel compares Read with a sorted list: any times, in and out of order, in files, segments and memory, both
// directions, pages of any size.
func TestReadIsTheModel(t *testing.T) {
	base := t.TempDir()
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		dir := fmt.Sprintf("%s/%d", base, run)
		s, err := Open(Config{Dir: dir, fold: 1 << 20, disk: &badDisk{folder: folder(dir)}, open: unsynced})
		if err != nil {
			r.Fatal(err)
		}
		defer crash(s)
		s.Apply(someTags(2))
		var model []tag.Sample
		at := began
		for range rapid.IntRange(1, 6).Draw(r, "segments") {
			for i := range rapid.IntRange(0, 30).Draw(r, "samples") {
				at += tag.Time(rapid.SampledFrom([]int64{1, 1, 1, 1, 0, 5, -3, -20}).Draw(r, "step"))
				v := tag.Sample{Ref: 1, Value: tag.Of(uint32(len(model) + i<<16)), At: at}
				s.Publish([]tag.Sample{v, {Ref: 2, Value: v.Value, At: at}})
				model = append(model, v)
			}
			switch rapid.IntRange(0, 3).Draw(r, "then") {
			case 1:
				s.commit(false)
			case 2, 3:
				s.commit(false)
				s.mu.Lock()
				s.seal(time.Now())
				s.mu.Unlock()
				s.commit(false)
				if err := s.foldAll(); err != nil {
					r.Fatal(err)
				}
			}
		}
		slices.SortStableFunc(model, func(a, b tag.Sample) int { return cmp.Compare(a.At, b.At) })
		for range 5 {
			from := began + tag.Time(rapid.Int64Range(-60, 150).Draw(r, "from"))
			to := began + tag.Time(rapid.Int64Range(-60, 150).Draw(r, "to"))
			page := rapid.IntRange(1, 40).Draw(r, "page")
			var want []tag.Sample
			for _, v := range model {
				if from <= to && v.At >= from && (v.At < to || from == to && v.At == to) || from > to && v.At <= from && v.At > to {
					want = append(want, v)
				}
			}
			if from > to {
				slices.Reverse(want)
			}
			checkSame(r, readAll(t, s, 1, from.Time(), to.Time(), page), want)
		}
	})
}

// unsynced opens bbolt files for tests that cut no power.
func unsynced(path string, mode os.FileMode, o *bbolt.Options) (*bbolt.DB, error) {
	fast := *o
	fast.NoSync, fast.NoGrowSync = true, true
	return bbolt.Open(path, mode, &fast)
}

// Bounds are reads of one sample; ends may be left open; a continuation that is none is refused.
func TestReadBounds(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	s.Apply(someTags(1))
	countUp(s, 1, 0, 10)
	at := func(i int) time.Time { return counter(1, i).At.Time() }
	for _, c := range []struct {
		name     string
		from, to time.Time
		limit    int
		want     []int
	}{
		{"from is included, to is not", at(3), at(5), 0, []int{3, 4}},
		{"backward too", at(5), at(3), 0, []int{5, 4}},
		{"one moment", at(4), at(4), 0, []int{4}},
		{"the bound before a start", at(3).Add(time.Millisecond), time.Time{}, 1, []int{3}},
		{"the bound at a start", at(3), time.Time{}, 1, []int{3}},
		{"the bound behind an end", at(5).Add(time.Millisecond), tag.MaxTime.Time(), 1, []int{6}},
		{"from the beginning", time.Time{}, at(2), 0, []int{0, 1}},
		{"backward to the beginning", at(1), time.Time{}, 0, []int{1, 0}},
		{"to the end", at(8), tag.MaxTime.Time(), 0, []int{8, 9}},
		{"before all", time.Time{}, at(0), 0, nil},
		{"behind all", at(10), tag.MaxTime.Time(), 0, nil},
	} {
		got, key, err := s.Read(1, c.from, c.to, nil, c.limit, nil)
		if err != nil || len(got) != len(c.want) || c.limit == 0 && key != nil {
			t.Errorf("%s: %v, %v", c.name, got, err)
			continue
		}
		for i, n := range c.want {
			if got[i].Value.Bits() != uint64(n) {
				t.Errorf("%s: sample %d is %v", c.name, i, got[i].Value)
			}
		}
	}
	for _, key := range [][]byte{{}, {1, 2}, make([]byte, keySize)} {
		if _, _, err := s.Read(1, at(0), at(9), key, 1, nil); err != ErrKey {
			t.Errorf("continuation %v: %v", key, err)
		}
	}
	if got, _, err := s.Read(99, at(0), at(9), nil, 0, nil); err != nil || got != nil {
		t.Errorf("a tag that is not there: %v, %v", got, err)
	}
}

// walled is a store whose clock on the wall the test sets.
func walled(t *testing.T, dir string, now *time.Time) *Store {
	s := openStore(t, Config{Dir: dir, Retention: 24 * time.Hour, now: func() time.Time { return *now }})
	s.Apply(someTags(1))
	return s
}

// The clock jumps back an hour: both readings of the hour are kept, in the order of their times, the hour is marked, and
// nothing stalls (field report C10).
func TestClockBack(t *testing.T) {
	dir, now := t.TempDir(), began.Time().Add(100*time.Second)
	s := walled(t, dir, &now)
	countUp(s, 1, 0, 100)
	mustCommit(t, s)
	now = now.Add(-time.Hour)
	mustCommit(t, s)
	for i := range 100 {
		s.Publish([]tag.Sample{{Ref: 1, Value: tag.Of(uint32(1000 + i)), At: counter(1, i).At.Add(-time.Hour + 101*time.Second)}})
	}
	mustCommit(t, s)
	for range 2 {
		got := readAll(t, s, 1, time.Time{}, tag.MaxTime.Time(), 30)
		values := withoutGaps(got)
		if len(values) != 200 || !slices.IsSortedFunc(got, func(a, b tag.Sample) int { return cmp.Compare(a.At, b.At) }) {
			t.Fatalf("%d of 200 samples, or out of order", len(values))
		}
		if got[0].Status != ClockSet.Status() || got[0].At.Sub(tag.TimeOf(now)) > time.Second {
			t.Errorf("the hour is not marked: %v", got[0])
		}
		crash(s)
		s = walled(t, dir, &now)
	}
}

// The clock jumps forward a year: the year is a gap, and no history goes by its age for a day of running, so that a wrong
// year costs none.
func TestClockForward(t *testing.T) {
	dir, now := t.TempDir(), began.Time()
	s := walled(t, dir, &now)
	for day := range 3 {
		for i := range 10 {
			s.Publish([]tag.Sample{{Ref: 1, Value: tag.Of(uint32(day*10 + i)), At: tag.TimeOf(now.Add(time.Duration(i) * time.Second))}})
		}
		mustCommit(t, s)
		s.mu.Lock()
		s.seal(now)
		s.mu.Unlock()
		mustCommit(t, s)
		if err := s.foldAll(); err != nil {
			t.Fatal(err)
		}
		crash(s)
		now = now.Add(6 * time.Hour)
		s = walled(t, dir, &now) // a restart: the clock runs on while nobody looks
	}
	files := len(s.history.all())
	now = now.AddDate(1, 0, 0)
	mustCommit(t, s)
	s.retain()
	if got := len(s.history.all()); got != files || files < 2 {
		t.Errorf("of %d files %d are left", files, got)
	}
	got := gapsOf(t, s, 1)
	if last := got[len(got)-1]; last.Status != ClockSet.Status() {
		t.Errorf("the year is no gap: %v", last)
	}
	s.mu.Lock()
	s.wall.stepped = -clockTrust - time.Hour // a day has passed
	s.mu.Unlock()
	s.retain()
	if got := len(s.history.all()); got != 1 {
		t.Errorf("a day later %d files are left", got)
	}
}

// A restart is a gap, and what has not moved since is there again behind it.
func TestRestartIsAGap(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir})
	s.Apply(someTags(1))
	countUp(s, 1, 0, 2)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, Config{Dir: dir})
	s.Apply(someTags(1))
	s.Publish([]tag.Sample{counter(1, 1)})
	got := readAll(t, s, 1, time.Time{}, tag.MaxTime.Time(), 10)
	if len(got) != 4 || got[2].Status != Restart.Status() || !got[2].Value.IsNull() || got[3].Value.Bits() != 1 || got[3].At <= got[2].At {
		t.Errorf("%v", got)
	}
}

// A deadband is of history alone; a status is always a change.
func TestDeadband(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	s.Apply([]Tag{{Ref: 1, Name: "a", History: true, Deadband: 0.5}})
	var at tag.Time = began
	put := func(v tag.Value, status tag.Status) {
		at += 1e7
		s.Publish([]tag.Sample{{Ref: 1, Value: v, Status: status, At: at}})
	}
	for _, x := range []float64{1, 1.5, 1.6, 1.2, 1.09, 5, math.NaN(), math.NaN(), 5} {
		put(tag.Of(x), tag.Good)
	}
	put(tag.Value{}, tag.BadNoCommunication)
	put(tag.Value{}, tag.BadNoCommunication)
	put(tag.Of(5.0), tag.Good)
	var text []string
	for _, v := range all(t, s, 1) {
		text = append(text, v.Value.String())
	}
	if got := fmt.Sprint(text); got != "[1 1.6 1.09 5 NaN 5 null 5]" {
		t.Errorf("recorded %s", got)
	}
	if last := s.Last(); len(last) != 1 || last[0].Value.String() != "5" {
		t.Errorf("the last value is %v", last)
	}
}

// Durable subscriptions: saved, changed, dropped, and committed each second while there is one.
func TestDurable(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir, Commit: time.Minute})
	if s.interval() != time.Minute {
		t.Errorf("commits each %v", s.interval())
	}
	for id, state := range map[uint32]string{1: "one", 2: "two", 1 << 31: "big"} {
		if err := s.Save(id, []byte(state)); err != nil {
			t.Fatal(err)
		}
	}
	if s.interval() != time.Second {
		t.Errorf("with a durable subscription commits each %v", s.interval())
	}
	mustCommit(t, s)
	s.Save(2, []byte("changed"))
	s.Drop(1)
	s.Drop(99)
	mustCommit(t, s)
	s.Save(3, []byte("never committed"))
	crash(s)
	for range 2 {
		s = openStore(t, Config{Dir: dir})
		states, err := s.Load()
		if err != nil || len(states) != 2 || string(states[2]) != "changed" || string(states[1<<31]) != "big" {
			t.Errorf("came back: %v, %v", states, err)
		}
		mustCommit(t, s) // a snapshot
		crash(s)
	}
}
