package store

import (
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	foldRetry   = 10 * time.Second
	retainEvery = time.Minute
	leastFile   = 256 << 10 // bytes of a history file before the next begins
	fileParts   = 16        // of the largest size: so much goes at a time
	mostPeriod  = 24 * time.Hour
	leastPeriod = time.Hour
	clockTrust  = 24 * time.Hour // for which the clock must have run since it was set forward, before history goes by age
)

// folds is the goroutine that puts sealed segments into history files, and removes old ones.
func (s *Store) folds() {
	s.setAside(s.history.all(), nil)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.fold:
		case <-timer.C:
		}
		wait := retainEvery
		if err := s.foldAll(); err != nil {
			wait = foldRetry
		}
		s.retain()
		timer.Reset(wait)
	}
}

// foldAll puts every sealed segment into history.
func (s *Store) foldAll() error {
	for {
		s.mu.Lock()
		if len(s.sealed) == 0 || s.full {
			s.mu.Unlock()
			return nil
		}
		g := s.sealed[0]
		names := make([]string, len(s.slots))
		for i := range s.slots {
			names[i] = s.slots[i].name
		}
		s.mu.Unlock()
		n, err := s.history.write(s.current(g.seq), g, names)
		if err == nil {
			err = s.disk.Sync() // of a file that is new
		}
		s.mu.Lock()
		s.counters.write(n, costs{})
		s.counters.folded += n
		if err == nil {
			s.sealed = slices.Delete(s.sealed, 0, 1)
			s.waiting -= g.size
			s.counters.folds++
		}
		told := s.foldFault
		s.foldFault = err
		s.mu.Unlock()
		switch {
		case err == nil:
			s.removeLogs(g.seq)
			continue
		case told == nil || told.Error() != err.Error():
			s.log.Error("history cannot be written: it waits in memory and in the log", "error", err)
		}
		if errors.Is(err, errDamaged) {
			s.setAside(s.history.all(), nil)
		}
		return err
	}
}

// current is the file for a segment: the newest, or one that is begun because that is large or old.
func (s *Store) current(seq uint64) *historyFile {
	now := s.cfg.now()
	files := s.history.all()
	if len(files) > 0 {
		f := files[len(files)-1]
		f.mu.RLock()
		size := f.size
		f.mu.RUnlock()
		if age := now.Sub(f.start); size < max(min(leastFile, int64(64*s.foldSize())), s.cfg.MaxSize/fileParts) && age < s.period() && age > -s.period() {
			return f
		}
	}
	return s.history.begin(seq, now)
}

// period is how much time a history file spans.
func (s *Store) period() time.Duration {
	if s.cfg.Retention <= 0 {
		return mostPeriod
	}
	return min(mostPeriod, max(leastPeriod, s.cfg.Retention/8))
}

// removeLogs removes the files of segments that are in history, but for the last of them: should the file that took it
// be damaged, it is there.
func (s *Store) removeLogs(folded uint64) {
	list, err := s.disk.List()
	if err != nil {
		return
	}
	s.mu.Lock()
	keep := s.open.seq
	if len(s.sealed) > 0 {
		keep = s.sealed[0].seq
	}
	s.mu.Unlock()
	for _, e := range list {
		if seq, ok := logSeq(e.name); ok && seq < folded && seq < keep {
			if err := s.disk.Remove(e.name); err != nil {
				s.log.Warn("a file of the log that is not needed any more stays", "file", e.name, "error", err)
			}
		}
	}
}

// retain removes the oldest history files while there is too much, or when they are too old.
func (s *Store) retain() {
	for {
		files := s.history.all()
		total := s.history.size()
		s.mu.Lock()
		s.counters.files = total
		trusted := s.wall.stepped == 0 || time.Since(s.start)-s.wall.stepped > clockTrust
		s.mu.Unlock()
		if len(files) < 2 {
			return
		}
		why := ""
		switch end := files[1].start; {
		case total > s.cfg.MaxSize-int64(2*s.foldSize()):
			why = "size"
		case s.cfg.Retention > 0 && trusted && s.cfg.now().Sub(end) > s.cfg.Retention:
			why = "age"
		default:
			return
		}
		f := files[0]
		if err := s.history.remove(f); err != nil {
			s.log.Error("the oldest history cannot be removed", "file", f.name, "error", err)
			return
		}
		s.log.Info("the oldest history was removed", "file", f.name, "for its", why)
	}
}

// setAside replaces damaged files among some by what can be read of them, but for segments that the log still has.
func (s *Store) setAside(files []*historyFile, inLog map[uint64]bool) {
	for _, f := range files {
		_, err := s.history.indexOf(f)
		if !errors.Is(err, errDamaged) {
			continue
		}
		if s.lock == nil {
			s.log.Error("a history file is damaged", "file", f.name, "error", err)
			continue
		}
		aside, failed := s.history.repair(f, s.cfg.now(), inLog)
		s.log.Error("a history file is damaged: it was set aside, and a new one has what can be read of it",
			"file", f.name, "aside", aside, "error", err)
		if failed != nil {
			s.log.Error("a damaged file could not be made anew", "file", f.name, "error", failed)
		}
	}
}

// emptyFile is the most that a bbolt file has that holds nothing, in bytes.
const emptyFile = 4 * filePage

// maxAside is how many damaged files are kept.
const maxAside = 4

// tidy removes what an interrupted work left, and damaged files but for the newest.
func (s *Store) tidy(list []entry) {
	var aside []string
	for _, e := range list {
		switch {
		case strings.HasPrefix(e.name, "damaged-"):
			aside = append(aside, e.name)
		case strings.HasSuffix(e.name, ".new"):
			s.disk.Remove(e.name)
		case strings.HasPrefix(e.name, "history-") && e.size <= emptyFile:
			s.disk.Remove(e.name) // the power failed when it was begun
		}
	}
	slices.Sort(aside) // by time
	for len(aside) > maxAside {
		s.disk.Remove(aside[0])
		aside = aside[1:]
	}
}
