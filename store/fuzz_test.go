package store

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"edged/drivers/tag"
)

// FuzzReplay reads a file of the log of any bytes: what is taken of it can be read.
func FuzzReplay(f *testing.F) {
	dir := f.TempDir()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	s.Apply(someTags(2))
	countUp(s, 2, 0, 20)
	s.Save(7, []byte("state"))
	s.commit(false)
	countUp(s, 2, 20, 40)
	s.commit(false)
	crash(s)
	b, err := os.ReadFile(filepath.Join(dir, logName(1)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-5])
	body, _ := firstRecord(1, b[logHead:])
	f.Add(body)
	f.Fuzz(func(t *testing.T, b []byte) {
		replay(1, b, newState())
		// Sums keep most of what is wrong out: behind them all must hold too.
		r := &replayed{segment: newSegment(1, 0)}
		r.take(b, newState(), true)
		r.finish()
		for _, c := range r.chunks {
			if p, _, err := spanOf(c.runs); err != nil || p != c.span {
				t.Fatalf("a chunk was taken that cannot be read: %v", err)
			}
		}
	})
}

// FuzzBlock reads a block, and an entry of the index, of any bytes.
func FuzzBlock(f *testing.F) {
	var b block
	b.add(3, encode(series(5, time.Second, 0, func(i int) tag.Value { return tag.Of(uint32(i)) }), 2))
	b.add(9, encode(series(5, time.Second, 0, func(i int) tag.Value { return tag.Of("text") }), 5))
	f.Add(b.value())
	f.Fuzz(func(t *testing.T, v []byte) {
		parseBlock(v, func(c stored) bool { spanOf(c.runs); return true })
		k := seqKey(1)
		parseIndexed(k, summed(k, v))
		parseKey(v)
		parseFormat(string(v))
	})
}

// Everybody at once: publishers, readers, subscriptions, commits, and segments that go into history meanwhile.
func TestAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir, Commit: 5 * time.Millisecond, fold: 300})
	s.Apply(someTags(4))
	s.Start()
	var work sync.WaitGroup
	for ref := range tag.Ref(3) { // each tag has one publisher
		work.Go(func() {
			for i := range 3000 {
				s.Publish([]tag.Sample{counter(ref+1, i)})
				if i%100 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for range 2 {
		work.Go(func() {
			for range 30 {
				got, _, err := s.Read(2, time.Time{}, tag.MaxTime.Time(), nil, 0, nil)
				if err != nil {
					t.Error(err)
				}
				for i, v := range withoutGaps(got) {
					if v.Value.Bits() != uint64(i) {
						t.Errorf("sample %d is %v", i, v.Value)
						return
					}
				}
			}
		})
	}
	work.Go(func() {
		for i := range 20 {
			s.Save(uint32(i%3), stateOf(i))
			if err := s.Commit(context.Background()); err != nil {
				t.Error(err)
			}
			s.Stats()
			s.Last()
			s.Load()
			s.Drop(2)
		}
	})
	work.Wait()
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, Config{Dir: dir})
	s.Apply(someTags(4))
	for ref := range tag.Ref(3) {
		counted(t, s, ref+1, 0, 3000)
	}
}
