package store

import (
	"encoding/binary"
	"errors"
	"time"

	"edged/drivers/tag"
)

// commits is the goroutine that writes the log.
func (s *Store) commits() {
	timer := time.NewTimer(s.interval())
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.kick:
		case <-timer.C:
		}
		s.commit(false) // an error was told
		timer.Reset(s.interval())
	}
}

// interval is how long the next commit may wait.
func (s *Store) interval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.durable) > 0 {
		return min(s.cfg.Commit, durableCommit)
	}
	return s.cfg.Commit
}

// commit writes what there is, and syncs it once. It is called by the committer, and by Close after that has ended.
func (s *Store) commit(last bool) error {
	free, total, spaceErr := s.disk.Free()
	s.mu.Lock()
	s.tick(s.cfg.now())
	if spaceErr == nil {
		s.space(free, total)
	}
	p := s.next
	s.next = nil
	s.mu.Unlock()
	err := s.round(last)
	if err != nil && (s.failedOpen() || noSpace(err) && s.dropBallast()) {
		err = s.round(last) // with a file of its own
	}
	if p != nil {
		p.err = err
		close(p.done)
	}
	s.mu.Lock()
	sealed := !s.made
	roomy := !s.full && spaceErr == nil && free > 4*reserve(total)
	s.mu.Unlock()
	if sealed && err == nil && !last {
		s.round(false) // the next segment begins; the next commit tries again
	}
	if roomy {
		s.makeBallast()
	}
	return err
}

// failedOpen reports whether the segment that failed was one that is sealed now.
func (s *Store) failedOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resealed
}

// round writes one record. When the segment is due, it is the segment's last.
func (s *Store) round(last bool) error {
	s.mu.Lock()
	now := s.cfg.now()
	fresh, seq := !s.made, s.open.seq
	rec, what := s.build(tag.TimeOf(now), fresh, last)
	due := !fresh && s.due()
	if due {
		s.seal(now) // with what is in the record, and no more
	}
	if rec == nil {
		defer s.mu.Unlock()
		return s.fault
	}
	s.mu.Unlock()
	began := time.Now()
	err := s.append(seq, fresh, rec)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters.seconds = time.Since(began).Seconds()
	s.finish(err, len(rec), fresh, due, what)
	return err
}

// append writes a record to the file of a segment, which is made first if it is fresh. After an error there is no file,
// and on the disk is what was synced before.
func (s *Store) append(seq uint64, fresh bool, rec []byte) error {
	name := logName(seq)
	head := []byte(nil)
	if fresh {
		if s.file != nil {
			s.file.Close() // it was sealed
			s.file = nil
		}
		if err := s.disk.Remove(name); err != nil { // of an attempt that failed
			return err
		}
		f, err := s.disk.Create(name)
		if err != nil {
			return err
		}
		s.file, s.fileLen = f, 0
		head = appendLogHead(nil, seq)
	}
	_, err := s.file.Write(append(head, rec...))
	if err == nil {
		err = s.file.Sync()
	}
	if err == nil && fresh {
		err = s.disk.Sync()
	}
	if err == nil {
		s.fileLen += int64(len(head) + len(rec))
		return nil
	}
	if fresh {
		err = errors.Join(err, s.file.Close())
		s.disk.Remove(name) // or else before the next attempt
	} else {
		s.file.Truncate(s.fileLen) // or else its end is passed over
		err = errors.Join(err, s.file.Close())
	}
	s.file = nil
	return err
}

// finish notes how a record was taken. Call it with mu held.
func (s *Store) finish(err error, n int, fresh, due bool, what costs) {
	s.resealed = false
	if err == nil {
		s.made = !due
		s.counters.commits++
		s.counters.write(int64(n), what)
		s.counters.committed = s.cfg.now()
		if s.fault != nil {
			s.fault = nil
			s.log.Info("the disk takes commits again")
		}
		return
	}
	s.counters.errors++
	if s.fault == nil || s.fault.Error() != err.Error() {
		s.log.Error("a commit failed: what was read stays in memory, and is tried again", "error", err)
	}
	s.fault = err
	if noSpace(err) {
		s.halt()
	}
	if s.made {
		s.seal(s.cfg.now())
	}
	s.resealed = !fresh
}

// reserve is the space that history leaves on a disk, for last values and for others, in bytes.
func reserve(total int64) int64 { return min(16<<20, max(512<<10, total/16)) }

// space stops history where there is little of it, and lets it go on where there is enough. Call it with mu held.
func (s *Store) space(free, total int64) {
	switch r := reserve(total); {
	case !s.full && free < r:
		s.halt()
	case s.full && free > 2*r:
		s.full = false
		s.log.Info("there is space again: history goes on")
	}
	s.counters.free, s.counters.total = free, total
}

// halt stops history: what waits for the disk is dropped, and last values go on. Call it with mu held.
func (s *Store) halt() {
	if s.full {
		return
	}
	s.full = true
	s.log.Error("the disk is full: history is stopped, last values are still kept; make space, or lower store.max_size")
	from := tag.TimeOf(s.cfg.now())
	if s.made {
		s.seal(s.cfg.now())
	}
	for n, c := range s.open.chunks { // never on the disk
		if c.n > 0 {
			from = min(from, c.min)
			s.counters.dropped += uint64(c.n)
			s.counters.samples -= uint64(c.n)
		}
		rec := s.recording(n)
		rec.chunk, rec.dirty = nil, false
	}
	clear(s.open.chunks)
	s.open.size, s.dirty = 0, s.dirty[:0]
	s.lose(DiskFull, from)
}

// due reports whether the open segment is to be put into history. Call it with mu held.
func (s *Store) due() bool {
	size := max(s.foldSize(), 4*s.snapshotSize())
	if len(s.open.chunks) == 0 {
		return s.fileLen > int64(max(leastFold, 4*s.snapshotSize()))
	}
	return s.open.size >= size || s.cfg.now().Sub(s.open.began.Time()) >= foldAfter
}

// snapshotSize is about how many bytes a snapshot has. Call it with mu held.
func (s *Store) snapshotSize() int { return s.counters.snapshot }

// seal ends the open segment. Call it with mu held.
func (s *Store) seal(now time.Time) {
	g := s.open
	for n, c := range g.chunks {
		c.closeRun()
		rec := s.recording(n)
		rec.chunk, rec.dirty = nil, false
	}
	g.cover()
	s.dirty, s.newGaps = s.dirty[:0], nil
	s.open, s.made = newSegment(g.seq+1, tag.TimeOf(now)), false
	if g.n > 0 || len(g.gaps) > 0 {
		s.sealed = append(s.sealed, g)
		s.waiting += g.size
	}
	s.wake(s.fold)
}

// build makes the record of a commit of what changed since the last, or of all that a fresh segment begins with; nil:
// nothing did. Call it with mu held.
func (s *Store) build(now tag.Time, fresh, last bool) ([]byte, costs) {
	r := newRecord(nil, now)
	var what costs
	s.pending = 0
	size := func(f *int64, before int) { *f += int64(len(r.b) - before) }
	at := len(r.b)
	if fresh {
		r.part(partSnapshot, nil)
		s.named = 0
		s.newGaps = append([]Gap(nil), s.open.gaps...)
	}
	if s.named < len(s.slots) {
		r.part(partNames, s.nameList(s.named))
		s.named = len(s.slots)
	}
	size(&what.names, at)

	at = len(r.b)
	slow := last || s.cfg.now().Sub(s.lastAt) >= lastEvery || s.cfg.now().Before(s.lastAt)
	if b := s.lastValues(fresh, slow, s.urgent); len(b) > 0 {
		r.part(partLast, b)
	}
	s.urgent = false
	size(&what.last, at)

	at = len(r.b)
	s.states(&r, fresh)
	size(&what.durable, at)

	at = len(r.b)
	for _, g := range s.newGaps {
		r.part(partGap, g.append(nil))
	}
	s.newGaps = nil
	if b := s.runs(fresh); len(b) > 0 {
		r.part(partRuns, b)
	}
	size(&what.history, at)

	if fresh || slow {
		r.part(partWritten, binary.AppendUvarint(nil, uint64(s.counters.written)))
	}
	if last {
		r.part(partClean, nil)
	}
	if fresh {
		s.counters.snapshot = len(r.b) - int(what.history)
	}
	if slow {
		s.lastAt = s.cfg.now()
	}
	if empty := len(newRecord(nil, now).b); len(r.b) == empty {
		return nil, what
	}
	return r.seal(s.open.seq), what
}

// nameList are the names of the slots from one on.
func (s *Store) nameList(from int) (b []byte) {
	for n := from; n < len(s.slots); n++ {
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendUvarint(b, uint64(len(s.slots[n].name)))
		b = append(b, s.slots[n].name...)
	}
	return b
}

// lastValues are the last values: all; or those that the log does not have, of retained tags or of any.
func (s *Store) lastValues(all, each, retained bool) (b []byte) {
	put := func(n uint32) {
		if v := s.last(n); !v.At.IsZero() {
			b = appendLast(binary.AppendUvarint(b, uint64(n)), &v)
		}
	}
	switch {
	case all:
		for n := range s.slots {
			put(uint32(n))
		}
	case each || retained:
		rest := s.stale[:0]
		for _, n := range s.stale {
			if !each && !s.slots[n].retain {
				rest = append(rest, n)
				continue
			}
			put(n)
			s.slots[n].stale = false
		}
		s.stale = rest
		return b
	default:
		return nil
	}
	for _, n := range s.stale {
		s.slots[n].stale = false
	}
	s.stale = s.stale[:0]
	return b
}

// states writes the durable subscriptions: all, or those that changed.
func (s *Store) states(r *record, all bool) {
	put := func(id uint32) {
		if state, ok := s.durable[id]; ok {
			b := binary.AppendUvarint(nil, uint64(id))
			b = binary.AppendUvarint(b, uint64(len(state)))
			r.part(partSave, append(b, state...))
		} else if !all {
			r.part(partDrop, binary.AppendUvarint(nil, uint64(id)))
		}
	}
	if all {
		for id := range s.durable {
			put(id)
		}
	} else {
		for id := range s.saved {
			put(id)
		}
	}
	clear(s.saved)
}

// runs are the parts of chunks that the file does not have.
func (s *Store) runs(all bool) (b []byte) {
	put := func(n uint32, c *chunk) {
		c.closeRun()
		if c.written == len(c.runs) {
			return
		}
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendUvarint(b, c.entries)
		b = binary.AppendUvarint(b, uint64(len(c.runs)-c.written))
		b = append(b, c.runs[c.written:]...)
		c.entries++
		c.written = len(c.runs)
	}
	if all {
		for n, c := range s.open.chunks {
			c.written, c.entries = 0, 0
			put(n, c)
		}
	}
	for _, n := range s.dirty {
		rec := s.recording(n)
		if rec.dirty = false; !all && rec.chunk != nil {
			put(n, rec.chunk)
		}
	}
	s.dirty = s.dirty[:0]
	return b
}

const ballastName = "ballast"

// ballastSize is space that is held for the last values of a disk that others filled up, in bytes.
const ballastSize = 128 << 10

func (s *Store) makeBallast() {
	if s.ballast {
		return
	}
	f, err := s.disk.Create(ballastName)
	if err == nil {
		_, err = f.Write(make([]byte, ballastSize))
		err = errors.Join(err, f.Sync(), f.Close())
		s.mu.Lock()
		s.counters.write(ballastSize, costs{})
		s.mu.Unlock()
	}
	s.ballast = err == nil || s.hasFile(ballastName)
}

func (s *Store) dropBallast() bool {
	if !s.ballast && !s.hasFile(ballastName) {
		return false
	}
	s.ballast = false
	return s.disk.Remove(ballastName) == nil
}

func (s *Store) hasFile(name string) bool {
	list, err := s.disk.List()
	if err != nil {
		return false
	}
	for _, e := range list {
		if e.name == name {
			return true
		}
	}
	return false
}
