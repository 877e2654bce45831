package store

import (
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"
)

// A simulated year: the files stay under their limit whatever comes, and history goes by its age where there is room. A
// commit, and what it leads to, each 8 simulated hours, and with EDGED_LONG=1 each hour.
func TestAYear(t *testing.T) {
	const tags = 40
	step := rounds(8, 1) // hours
	for _, c := range []struct {
		name      string
		maxSize   int64
		retention time.Duration
	}{
		{"by size", 4 << 20, 0},
		{"by age", 64 << 20, 30 * 24 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			began := time.Now()
			var largest, size int64
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t, Config{
					Dir: dir, MaxSize: c.maxSize, Retention: c.retention, disk: &badDisk{folder: folder(dir)}, open: unsynced,
				})
				s.Apply(someTags(tags))
				p, start := newPlant(tags), time.Now()
				for hour := step; hour <= 365*24; hour += step {
					for range 6 * step {
						time.Sleep(10 * time.Minute)
						s.Publish(p.step(tag.Now()))
					}
					mustCommit(t, s)
					if err := s.foldAll(); err != nil {
						t.Fatal(err)
					}
					s.retain()
					if hour%24 > 0 {
						continue
					}
					list, err := s.disk.List()
					if err != nil {
						t.Fatal(err)
					}
					size = -ballastSize
					for _, e := range list {
						size += e.size
					}
					if largest = max(largest, size); size > s.cfg.MaxSize {
						t.Fatalf("after %d h there are %d bytes, the limit is %d", hour, size, s.cfg.MaxSize)
					}
					if hour%(73*24) == 0 {
						t.Logf("day %3d: %8d bytes, %2d history files", hour/24, size, len(s.history.all()))
					}
				}
				first, _, err := s.Read(1, time.Time{}, tag.MaxTime.Time(), nil, 1, nil)
				if err != nil || len(first) == 0 {
					t.Fatal("nothing is left")
				}
				age := time.Since(first[0].At.Time())
				t.Logf("history reaches back %v of %v", age.Round(time.Hour), time.Since(start))
				if c.retention > 0 && (age > c.retention+2*s.period() || age < c.retention-s.period()) {
					t.Errorf("history reaches back %v, it is to be kept for %v", age, c.retention)
				}
				if c.retention == 0 && age < 20*24*time.Hour {
					t.Errorf("history reaches back %v alone", age)
				}
			})
			t.Logf("a year took %v, and %d bytes at most", time.Since(began).Round(time.Millisecond), largest)
		})
	}
}
