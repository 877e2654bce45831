package store

import (
	"time"

	"edged/drivers/tag"
)

// costs are the bytes of a record by what they are for.
type costs struct{ names, last, durable, history int64 }

// counters are what Stats tells. Store.mu guards them.
type counters struct {
	samples, dropped uint64
	commits, errors  uint64
	folds            uint64
	seconds          float64 // of the last commit
	written          int64   // bytes, since the store was begun
	costs            costs
	folded           int64 // bytes, written to history files
	snapshot         int   // bytes, of what a segment begins with
	committed        time.Time
	free, total      int64
	hours            [24]int64 // bytes, by hour of running
	hour             int64     // that is running
	files            int64     // bytes, of the history files
}

func (c *counters) write(n int64, what costs) {
	c.written += n
	c.hours[c.hour%24] += n
	c.costs.names += what.names
	c.costs.last += what.last
	c.costs.durable += what.durable
	c.costs.history += what.history
}

// Stats is how the store does.
type Stats struct {
	Samples      uint64           // recorded since the start
	Dropped      uint64           // not recorded, because the disk was full or too slow
	Commits      uint64           // since the start
	CommitErrors uint64           // since the start
	CommitTime   time.Duration    // of the last commit
	Committed    time.Time        // when that was; zero: there was none
	Folds        uint64           // segments that were put into history files since the start
	Backlog      int              // bytes that are not in history files, about
	Size         int64            // bytes of the history files
	Files        int              // history files
	Free         int64            // bytes that the disk has left
	Written      int64            // bytes ever written
	WrittenFor   map[string]int64 // bytes since the start by what they were for: history, last, durable, names, fold
	Day          int64            // bytes in the last 24 hours of running; projected in the first
	Endurance    int64            // bytes that the disk is rated to take
	Years        float64          // that it lasts at this rate; 0: not known
	Durable      int              // durable subscriptions
	Full         bool             // history is stopped for lack of space
	Gap          Reason           // why nothing is recorded now; 0: it is
	Fault        error            // why the last commit failed; nil: it did not
}

// Stats tells how the store does. It asks no disk.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counters
	st := Stats{
		Samples: c.samples, Dropped: c.dropped, Commits: c.commits, CommitErrors: c.errors,
		CommitTime: time.Duration(c.seconds * float64(time.Second)), Committed: c.committed, Folds: c.folds,
		Backlog: s.open.size + s.waiting, Size: c.files, Files: len(s.history.all()), Free: c.free,
		Written: c.written, Endurance: s.cfg.Endurance, Durable: len(s.durable), Full: s.full, Fault: s.fault,
		WrittenFor: map[string]int64{
			"history": c.costs.history, "last": c.costs.last, "durable": c.costs.durable, "names": c.costs.names, "fold": c.folded,
		},
	}
	if s.gap != nil {
		st.Gap = s.gap.Reason
	}
	if st.Endurance <= 0 {
		st.Endurance = wearFactor * c.total
	}
	for _, n := range c.hours {
		st.Day += n
	}
	if up := time.Since(s.start); up < 24*time.Hour && up > time.Minute {
		st.Day = int64(float64(st.Day) * float64(24*time.Hour) / float64(up))
	}
	if st.Day > 0 {
		st.Years = float64(max(0, st.Endurance-st.Written)) / float64(st.Day) / 365
	}
	return st
}

// wall is the clock on the wall, of which one does not know when somebody sets it.
type wall struct {
	first   time.Time     // on the wall, when the store was opened
	start   time.Time     // on a clock that nobody sets
	off     time.Duration // by which the wall has left the other
	stepped time.Duration // running time of the last step forward; 0: none
}

func (w *wall) set(now, start time.Time) { w.first, w.start = now.Round(0), start }

// clockStep is by how much the clock has to be set to be told, so that what a time server does all day is no gap.
const clockStep = 2 * time.Second

// tick counts the hours, and notes when the clock was set. Call it with mu held.
func (s *Store) tick(now time.Time) {
	up := time.Since(s.start)
	if h := int64(up / time.Hour); h != s.counters.hour {
		for s.counters.hour < h {
			s.counters.hour++
			s.counters.hours[s.counters.hour%24] = 0
		}
	}
	off := now.Round(0).Sub(s.wall.first) - up
	step := off - s.wall.off
	if step < clockStep && step > -clockStep {
		return
	}
	s.wall.off = off
	to := tag.TimeOf(now)
	from := to.Add(-step)
	s.log.Warn("the clock was set: history has a gap", "by", step)
	if step < 0 {
		from, to = to, from // the time that is there twice
	} else {
		s.wall.stepped = max(up, 1)
	}
	s.addGap(Gap{From: from, To: to, Reason: ClockSet})
}
