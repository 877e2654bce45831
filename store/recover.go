package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"edged/drivers/tag"
)

// recover brings back what was there: names, last values and subscriptions by the log; and what of history is only in
// the log is put into memory, from where it goes into a file as any sealed segment.
func (s *Store) recover() error {
	if !s.cfg.ReadOnly {
		if err := s.makeFolder(); err != nil {
			return err
		}
	}
	list, err := s.disk.List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Error("the store cannot be read: it works in memory until a restart", "error", err)
	}
	if err := s.checkFormat(list); err != nil {
		return err
	}
	if s.lock != nil {
		s.tidy(list)
	}
	s.history.load(list)
	inLog := map[uint64]bool{}
	for _, e := range list {
		if seq, ok := logSeq(e.name); ok {
			inLog[seq] = true
		}
	}
	for _, f := range slices.Backward(s.history.all()) { // those before are looked at when somebody asks, or by folds
		index, err := s.history.indexOf(f)
		if errors.Is(err, ErrNewer) {
			return fmt.Errorf("%s %w", f.name, err)
		}
		if err != nil {
			s.setAside([]*historyFile{f}, inLog)
			index, _ = s.history.indexOf(f)
		}
		if len(index) > 0 {
			break
		}
	}
	if s.cfg.ReadOnly {
		s.setAside(s.history.all(), nil)
	}
	s.counters.files = s.history.size()
	return s.readLogs(list)
}

// makeFolder makes the folder and locks it. A disk that is read only is no error.
func (s *Store) makeFolder() error {
	d, ok := s.disk.(interface{ lock() (*os.File, error) })
	if !ok {
		return nil
	}
	err := os.MkdirAll(s.cfg.Dir, 0o700)
	if err == nil {
		s.lock, err = d.lock()
	}
	if errors.Is(err, ErrLocked) {
		return err
	}
	if err != nil {
		s.log.Error("the store cannot be written: it works in memory, and tries again", "error", err)
	}
	return nil
}

// readLogs reads the files of the log, oldest first.
func (s *Store) readLogs(list []entry) error {
	var seqs []uint64
	for _, e := range list {
		if seq, ok := logSeq(e.name); ok {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	folded := s.history.folded()
	st := newState()
	highest, complete := folded, false
	var lost []Gap
	var aside []string
	for _, seq := range seqs {
		highest = max(highest, seq)
		b, err := s.disk.Read(logName(seq))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went into history meanwhile
		}
		if err != nil {
			s.log.Error("a file of the log cannot be read", "file", logName(seq), "error", err)
			continue
		}
		r, err := replay(seq, b, st)
		if err != nil {
			return err
		}
		complete = (complete || r.snapshot) && !r.damaged
		s.lastOf(r, st)
		if seq > folded && (r.n > 0 || len(r.gaps) > 0) {
			s.sealed = append(s.sealed, r.segment)
			s.waiting += r.segment.size
		}
		if r.damaged {
			lost = append(lost, r.lost...)
			aside = append(aside, logName(seq))
			s.log.Error("a file of the log is damaged: what can be read of it is read", "file", logName(seq), "unreadable parts", r.broken)
		}
	}
	if !complete {
		s.namesOfHistory(st)
	}
	s.slots = make([]slot, 0, len(st.names))
	for n, name := range st.names {
		if name == "" { // lost: its history is found by nobody
			name = "\x00" + strconv.Itoa(n)
		}
		s.slots = append(s.slots, slot{name: name})
		if v, ok := st.last[uint32(n)]; ok {
			s.setLast(uint32(n), &v)
		}
	}
	s.durable = st.durable
	s.counters.written = st.written
	s.open = newSegment(highest+1, tag.TimeOf(s.cfg.now()))
	s.restartGap(st, lost)
	if s.lock != nil {
		s.keepAside(aside)
	}
	return nil
}

// lastOf takes the last values that are in the samples of a file.
func (s *Store) lastOf(r *replayed, st *state) {
	for n, c := range r.chunks {
		if _, v, err := spanOf(c.runs); err == nil && !v.At.IsZero() && v.At >= st.last[n].At {
			st.last[n] = v
		}
	}
}

// namesOfHistory finds the names of tags in the history files, because the log has lost them.
func (s *Store) namesOfHistory(st *state) {
	for _, f := range s.history.all() {
		s.history.names(f, func(slot uint32, name string) {
			if int(slot) >= len(st.names) || st.names[slot] == "" {
				st.name(uint64(slot), name)
			}
		})
	}
}

// restartGap tells of the time in which nobody recorded, and of what could not be read.
func (s *Store) restartGap(st *state, lost []Gap) {
	if s.cfg.ReadOnly || len(st.names) == 0 {
		return
	}
	for _, g := range lost {
		s.addGap(g)
	}
	if now := tag.TimeOf(s.cfg.now()); st.at > 0 {
		if now < st.at {
			s.log.Warn("the clock is behind what it was when the store was written last", "then", st.at, "now", now)
			s.addGap(Gap{From: now, To: st.at, Reason: ClockSet})
		} else {
			s.addGap(Gap{From: st.at, To: now, Reason: Restart})
		}
	}
}

// keepAside renames damaged files of the log; they are in memory, and go into history as what is left of them. Until
// then a copy of that stays under the old name.
func (s *Store) keepAside(names []string) {
	for _, name := range names {
		b, err := s.disk.Read(name)
		if err != nil {
			continue
		}
		aside := asideName(name, s.cfg.now())
		f, err := s.disk.Create(aside)
		if err == nil {
			_, err = f.Write(b)
			err = errors.Join(err, f.Sync(), f.Close())
		}
		s.log.Error("a damaged file was set aside", "file", name, "aside", aside, "error", err)
	}
}

const (
	formatName = "format"
	formatText = "edged store "
)

// formatNow is the version of the folder as this program writes it. A file of the log and one of history has a version
// of its own.
const formatNow = 1

// steps bring a folder of an older version to the next. Each may be cut off by the power and is then done again, so it
// removes nothing before all else is on the disk. There has been one version so far.
var steps = map[int]func(d disk) error{}

// checkFormat reads the version of the folder, and brings an older one to the present.
func (s *Store) checkFormat(list []entry) error {
	return migrate(s.disk, list, s.lock != nil, steps, formatNow, func(from, to int) {
		s.log.Info("the store is brought to another format", "from", from, "to", to)
	})
}

func migrate(d disk, list []entry, write bool, steps map[int]func(disk) error, now int, tell func(from, to int)) error {
	at := slices.IndexFunc(list, func(e entry) bool { return e.name == formatName })
	have := now
	if at >= 0 {
		b, err := d.Read(formatName)
		if err != nil {
			return nil // a disk that cannot be read is told of elsewhere
		}
		if n, ok := parseFormat(string(b)); ok {
			have = n
		} else {
			at = -1 // damaged: files have versions of their own
		}
	}
	if have > now {
		return fmt.Errorf("format %d %w", have, ErrNewer)
	}
	if !write || at >= 0 && have == now {
		return nil
	}
	for ; have < now; have++ {
		tell(have, have+1)
		if step := steps[have]; step == nil {
			return fmt.Errorf("format %d is of a program that this one does not follow", have)
		} else if err := step(d); err != nil {
			return fmt.Errorf("from format %d: %w", have, err)
		}
		if err := writeFormat(d, have+1); err != nil {
			return err
		}
		at = 0
	}
	if at < 0 {
		writeFormat(d, now) // a full disk is told of elsewhere
	}
	return nil
}

// formatLine is what the file says: the version, and the sum of that.
func formatLine(version int) string {
	text := formatText + strconv.Itoa(version)
	return fmt.Sprintf("%s %08x\n", text, crc32.Checksum([]byte(text), crcTable))
}

func parseFormat(line string) (version int, ok bool) {
	if n, err := fmt.Sscanf(line, formatText+"%d", &version); n != 1 || err != nil || version < 1 {
		return 0, false
	}
	return version, line == formatLine(version)
}

// writeFormat puts the version in the place of the one before, at once.
func writeFormat(d disk, version int) error {
	const fresh = formatName + ".new"
	if err := d.Remove(fresh); err != nil {
		return err
	}
	f, err := d.Create(fresh)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(formatLine(version)))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(d.Rename(fresh, formatName), d.Sync())
}
