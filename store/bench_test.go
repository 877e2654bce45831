package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"edged/drivers/tag"
)

// handed is how many bytes this process has handed to write(), by the kernel's count.
func handed(t testing.TB) (n int64) {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip("this kernel does not count what is written: ", err)
	}
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "wchar: %d", &n); err == nil {
			return n
		}
	}
	t.Skip("this kernel does not count what is written")
	return 0
}

// cpu is the processor time that this process has taken.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// plant makes readings of n tags: floats that move slowly, one a step.
type plant struct {
	batch []tag.Sample
	r     *rand.Rand
	walk  []float64
}

func newPlant(n int) *plant {
	p := &plant{batch: make([]tag.Sample, n), r: rand.New(rand.NewPCG(1, uint64(n))), walk: make([]float64, n)}
	for i := range p.batch {
		p.batch[i].Ref, p.walk[i] = tag.Ref(i+1), 60
	}
	return p
}

func (p *plant) step(at tag.Time) []tag.Sample {
	for i := range p.batch {
		p.walk[i] += p.r.NormFloat64() * 0.02
		p.batch[i].Value, p.batch[i].At = tag.Of(float32(p.walk[i])), at
	}
	return p.batch
}

// The measure of flash life: bytes handed to write(), by the kernel's count and history files included, are at most 3 a
// byte that was encoded, however few there are; and a commit of less than 20 KB writes at most 24 KB itself.
func TestBytesWritten(t *testing.T) {
	for _, c := range []struct{ tags, commits int }{{4, 600}, {40, 300}, {200, 100}, {600, 60}, {800, 40}, {1500, 20}, {6000, 8}} {
		dir := t.TempDir()
		s := openStore(t, Config{Dir: dir, disk: &badDisk{folder: folder(dir)}, open: unsynced, Log: nil})
		s.Apply(someTags(c.tags))
		mustCommit(t, s) // names and the ballast come once
		p, at := newPlant(c.tags), began
		before := handed(t)
		for range c.commits {
			for range 10 { // one a second, and a commit each 10 s
				at = at.Add(time.Second)
				s.Publish(p.step(at))
			}
			mustCommit(t, s)
			if err := s.foldAll(); err != nil {
				t.Fatal(err)
			}
		}
		s.mu.Lock()
		encoded, folded := s.counters.costs.history, s.counters.folded
		s.seal(time.Now()) // all of it comes to a history file
		s.mu.Unlock()
		closing := s.Stats().Written
		if err := s.foldAll(); err != nil {
			t.Fatal(err)
		}
		folded += s.Stats().Written - closing
		wrote := handed(t) - before
		perByte, perCommit := float64(wrote)/float64(encoded), float64(s.Stats().Written-folded-ballastSize)/float64(c.commits)
		size := float64(encoded) / float64(c.commits)
		t.Logf("%5d tags: %7.0f bytes encoded a commit, %7.0f written by it; with history files %.2f a byte; %.2f bytes a sample",
			c.tags, size, perCommit, perByte, float64(encoded)/float64(c.commits*c.tags*10))
		if perByte > 3 || size < 20e3 && perCommit > 24e3 {
			t.Errorf("%d tags: %.0f bytes a commit are %.0f written, and %.2f a byte", c.tags, size, perCommit, perByte)
		}
		if own := s.Stats().Written; math.Abs(float64(own-wrote)) > 0.25*float64(wrote)+300e3 {
			t.Errorf("%d tags: the store says that it wrote %d bytes, the kernel %d", c.tags, own, wrote)
		}
		crash(s)
	}
}

// BenchmarkRecord is samples that come in, are committed each second, and go into history: ns and CPU of one.
func BenchmarkRecord(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir(), Commit: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	const tags = 1000
	s.Apply(someTags(tags))
	p, at := newPlant(tags), began
	var batches [][]tag.Sample
	for range 64 {
		at = at.Add(time.Second)
		batches = append(batches, append([]tag.Sample(nil), p.step(at)...))
	}
	b.ReportAllocs()
	b.ResetTimer()
	used := cpu()
	for n := 0; n < b.N; n += tags {
		batch := batches[n/tags%len(batches)]
		at = at.Add(time.Second)
		for i := range batch {
			batch[i].At = at
		}
		s.Publish(batch)
		for s.Stats().Backlog > 12<<20 { // as fast as the disk, no faster
			time.Sleep(time.Millisecond)
		}
	}
	if err := s.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64((cpu()-used).Nanoseconds())/float64(b.N), "cpu-ns/sample")
	b.ReportMetric(float64(s.Stats().Dropped), "dropped")
}

// BenchmarkReadDay reads a day of one of 1,000 tags, one sample a second, from its history files.
func BenchmarkReadDay(b *testing.B) {
	dir := b.TempDir()
	s, err := Open(Config{Dir: dir, disk: &badDisk{folder: folder(dir)}, open: unsynced})
	if err != nil {
		b.Fatal(err)
	}
	const tags, day = 1000, 86_400
	s.Apply(someTags(tags))
	p, at := newPlant(tags), began
	for i := range day {
		at = at.Add(time.Second)
		s.Publish(p.step(at))
		if i%10 == 0 {
			s.commit(false)
			s.foldAll()
		}
	}
	crash(s)
	if s, err = Open(Config{Dir: dir, ReadOnly: true}); err != nil {
		b.Fatal(err)
	}
	s.Apply(someTags(tags))
	for _, page := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("page=%d", page), func(b *testing.B) {
			n := 0
			var dst []tag.Sample
			b.ReportAllocs()
			for i := range b.N {
				var key []byte
				for {
					if dst, key, err = s.Read(tag.Ref(i%tags+1), time.Time{}, tag.MaxTime.Time(), key, page, dst[:0]); err != nil {
						b.Fatal(err)
					}
					if n += len(dst); key == nil {
						break
					}
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "samples/s")
		})
	}
	s.Close(b.Context())
}
