package store

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"edged/drivers/tag"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(asRecorder); dir != "" {
		fmt.Fprintln(os.Stderr, recordUntilKilled(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// logs writes what the store logs into the test's log.
type logs struct{ t *testing.T }

func (l logs) Write(b []byte) (int, error) {
	l.t.Logf("%s", b)
	return len(b), nil
}

// openStore opens a store in which nothing runs by itself, and closes it with the test.
func openStore(t *testing.T, cfg Config) *Store {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(logs{t}, nil))
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// someTags are n tags d.0, d.1, ... with history.
func someTags(n int) []Tag {
	tags := make([]Tag, n)
	for i := range tags {
		tags[i] = Tag{Ref: tag.Ref(i + 1), Name: fmt.Sprintf("d.%d", i), History: true}
	}
	return tags
}

// mustCommit commits, and fails the test where that fails.
func mustCommit(t *testing.T, s *Store) {
	t.Helper()
	if err := s.commit(false); err != nil {
		t.Fatal(err)
	}
}

// crash ends a store as a power cut does: nothing is written any more.
func crash(s *Store) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
	s.history.close()
	if s.lock != nil {
		s.lock.Close()
	}
}

// all reads the whole history of a tag, gaps left out.
func all(t *testing.T, s *Store, ref tag.Ref) []tag.Sample {
	t.Helper()
	return withoutGaps(readAll(t, s, ref, time.Time{}, tag.MaxTime.Time(), 1000))
}

func withoutGaps(in []tag.Sample) (out []tag.Sample) {
	for _, v := range in {
		if !isGap(v) {
			out = append(out, v)
		}
	}
	return out
}

func isGap(v tag.Sample) bool {
	for r := Restart; r.known() != 0; r++ {
		if v.Status == r.Status() && v.Value.IsNull() {
			return true
		}
	}
	return false
}

// readAll reads page by page.
func readAll(t *testing.T, s *Store, ref tag.Ref, from, to time.Time, page int) (out []tag.Sample) {
	t.Helper()
	var key []byte
	for {
		var err error
		before := len(out)
		out, key, err = s.Read(ref, from, to, key, page, out)
		if err != nil {
			t.Fatal(err)
		}
		if len(out)-before > page || key != nil && len(out)-before != page {
			t.Fatalf("a page of %d has %d samples", page, len(out)-before)
		}
		if key == nil {
			return out
		}
	}
}

// counter is the i-th sample of a tag that counts, one a second.
func counter(ref tag.Ref, i int) tag.Sample {
	return tag.Sample{Ref: ref, Value: tag.Of(uint32(i)), At: began.Add(time.Duration(i) * time.Second)}
}

// countUp publishes the samples from and up to to of n tags.
func countUp(s *Store, n, from, to int) {
	batch := make([]tag.Sample, n)
	for i := from; i < to; i++ {
		for j := range batch {
			batch[j] = counter(tag.Ref(j+1), i)
		}
		s.Publish(batch)
	}
}

// counted checks that a tag's history is the count from and up to to, in order and none twice.
func counted(t *testing.T, s *Store, ref tag.Ref, from, to int) {
	t.Helper()
	got := all(t, s, ref)
	if len(got) != to-from {
		t.Fatalf("tag %d has %d samples, want %d", ref, len(got), to-from)
	}
	for i := range got {
		if want := counter(ref, from+i); !same(&got[i], &want) || got[i].Ref != ref {
			t.Fatalf("tag %d: sample %d is %+v, want %+v", ref, i, got[i], want)
		}
	}
}

func TestHistorySurvives(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir})
	s.Apply(someTags(3))
	countUp(s, 3, 0, 100)
	counted(t, s, 2, 0, 100) // before it is on the disk
	mustCommit(t, s)
	countUp(s, 3, 100, 150)
	mustCommit(t, s)
	countUp(s, 3, 150, 160) // never committed
	crash(s)

	s = openStore(t, Config{Dir: dir})
	s.Apply([]Tag{{Ref: 9, Name: "d.1", History: true}, {Ref: 1, Name: "d.2", History: true}}) // in another order
	for _, ref := range []tag.Ref{9, 1} {
		if got := all(t, s, ref); len(got) != 150 || got[149].Value.Bits() != 149 {
			t.Fatalf("%d samples came back", len(got))
		}
	}
	last := s.Last()
	if len(last) != 2 || last[0].Value.Bits() != 149 || last[0].At != counter(1, 149).At {
		t.Errorf("last values %v", last)
	}
	if err := s.foldAll(); err != nil { // into a file
		t.Fatal(err)
	}
	if list, _ := filepath.Glob(filepath.Join(dir, "history-*")); len(list) != 1 {
		t.Errorf("history files %v", list)
	}
	mustCommit(t, s)
	crash(s)

	s = openStore(t, Config{Dir: dir})
	s.Apply(someTags(3))
	counted(t, s, 1, 0, 150)
	counted(t, s, 3, 0, 150)
}

// A segment that is in a history file and still in the log is there once.
func TestASegmentIsThereOnce(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir})
	s.Apply(someTags(2))
	for round := range 5 {
		countUp(s, 2, round*10, round*10+10)
		mustCommit(t, s)
		s.mu.Lock()
		s.seal(time.Now())
		s.mu.Unlock()
		mustCommit(t, s)
		if err := s.foldAll(); err != nil {
			t.Fatal(err)
		}
		counted(t, s, 2, 0, round*10+10)
		crash(s)
		s = openStore(t, Config{Dir: dir})
		s.Apply(someTags(2))
		counted(t, s, 1, 0, round*10+10)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) > 6 {
		t.Errorf("%d files are left, %v", len(list), err)
	}
}
