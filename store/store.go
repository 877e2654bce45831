// Package store is what survives a power cut: history, last values, retained tags and durable subscriptions.
// It hides files, formats and disks that are slow, full or damaged: whoever publishes never waits for one.
//
// All goes through one log of batches: every Config.Commit, what was published since is appended to the log in one
// write and one sync (log.go, commit.go). Readings are compressed as they are published (codec.go), so a batch is the
// new bytes of each tag's chunk. When a segment of the log is large or an hour old its chunks go, as they are, into a
// bbolt file of history (history.go), and the segment is removed. The log is no bbolt file: one needs two syncs and
// 16 to 24 KB a commit, however little there is to write, and a log one sync and as many bytes as there are.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"edged/drivers/tag"
)

// Config is what a Store is made of. Dir has to be given.
type Config struct {
	Dir       string        // made if it is not there
	Retention time.Duration // how long history is kept; 0: as long as there is space
	MaxSize   int64         // bytes of all files together; 0: 1 GiB
	Commit    time.Duration // between two commits, at most; 0: 10 s. While there are durable subscriptions it is 1 s at most
	Backlog   int           // compressed bytes that wait for a disk that stands still, at most; 0: 8 MiB. What comes then is dropped, and is a gap
	Endurance int64         // bytes that the disk is rated to take; 0: a thousand times its size
	ReadOnly  bool          // nothing is written, and another process may have the store open
	Log       *slog.Logger

	fold int              // bytes of a segment, for tests
	disk disk             // for tests
	now  func() time.Time // the clock on the wall, for tests
	open func(string, os.FileMode, *bbolt.Options) (*bbolt.DB, error)
}

const (
	defaultMaxSize = 1 << 30
	defaultCommit  = 10 * time.Second
	defaultBacklog = 8 << 20
	durableCommit  = time.Second
	lastEvery      = time.Minute // between two commits of last values that nobody waits for, and of a sign of life
	foldAfter      = time.Hour
	mostFold       = 4 << 20 // bytes of a segment
	leastFold      = 64 << 10
	commitBytes    = 1 << 20 // that wait, and are written before their time
	wearFactor     = 1000    // cycles that cheap flash is good for
)

// Tag is one that the store is to know.
type Tag struct {
	Ref      tag.Ref
	Name     string  // full name, by which history is kept for good
	History  bool    // each change is recorded
	Deadband float64 // a number that moved by no more is no change
	Retain   bool    // its last sample is kept as it is, bad ones too, with the next commit
}

// Store is an open store. It implements tag.Sink and is safe for concurrent use.
type Store struct {
	cfg     Config
	disk    disk
	log     *slog.Logger
	history history
	lock    *os.File // nil: read only, or the disk is
	start   time.Time
	kick    chan struct{} // to the committer
	fold    chan struct{} // to the folder
	stop    chan struct{}
	ended   sync.WaitGroup

	file    file // the open segment's; owned by the committer. nil: it has to be made
	fileLen int64
	ballast bool // owned by the committer

	mu        sync.Mutex // guards all below; never held while a disk works
	slots     []slot
	records   []*recording          // of slots that have had history since the start
	large     map[uint32]tag.Sample // last values that a slot has no room for
	statuses  []tag.Status          // of last values, the first of them Good
	refs      []uint32              // slot+1 by Ref-1; 0: none
	open      *segment
	sealed    []*segment // to be put into history, oldest first
	made      bool       // the open segment has a file
	dirty     []uint32   // slots whose chunks have grown since the last commit
	stale     []uint32   // slots whose last value differs from the log's
	urgent    bool       // one of them is retained
	named     int        // slots whose names are in the open segment's file
	durable   map[uint32][]byte
	saved     map[uint32]bool // changed since the last commit
	newGaps   []Gap           // of the open segment, not yet in its file
	gap       *Gap            // that lasts
	epoch     int             // of what was recorded last: after a gap all is recorded anew
	resumed   tag.Time        // when the last gap ended
	pending   int             // bytes since the last record was made, about
	waiting   int             // bytes in sealed
	next      *pass           // the commit that somebody waits for
	full      bool            // history is stopped
	told      map[uint64]bool // segments that cannot be read
	foldFault error           // of the last segment that was to go into history
	resealed  bool            // the last commit failed, and the next has a file of its own
	fault     error           // of the last commit
	lastAt    time.Time       // when last values were committed
	wall      wall
	closed    bool
	counters  counters
}

// slot is a tag's name for good, and its last value: the newest that is not bad, of a retained tag the newest. There is
// one for each tag of a device, so it is small.
type slot struct {
	name   string
	at     tag.Time // of the last value; zero: there is none
	bits   uint64
	record uint32   // 1 + index in Store.records; 0: none
	kind   tag.Kind // Raw: the last value is in Store.large
	status uint8    // index in Store.statuses
	retain bool
	stale  bool // in Store.stale
}

// recording is what is known of a tag with history.
type recording struct {
	history  bool // still
	dirty    bool // in Store.dirty
	deadband float64
	recorded tag.Sample // in history, if epoch is the store's
	epoch    int
	chunk    *chunk // in the open segment
}

// last is a slot's last value; At is zero if there is none. Call it with mu held.
func (s *Store) last(n uint32) tag.Sample {
	sl := &s.slots[n]
	if sl.kind == tag.Raw {
		return s.large[n]
	}
	return tag.Sample{Status: s.statuses[sl.status], Value: tag.FromBits(sl.kind, sl.bits), At: sl.at}
}

// setLast gives a slot its last value. Call it with mu held.
func (s *Store) setLast(n uint32, v *tag.Sample) {
	sl := &s.slots[n]
	if sl.kind == tag.Raw {
		delete(s.large, n)
	}
	k := v.Value.Kind()
	status := slices.Index(s.statuses, v.Status)
	if status < 0 && len(s.statuses) <= math.MaxUint8 {
		status = len(s.statuses)
		s.statuses = append(s.statuses, v.Status)
	}
	sl.at = v.At
	if status < 0 || v.Value.IsArray() || k == tag.String || k == tag.ByteString || k == tag.Raw {
		sl.kind, s.large[n] = tag.Raw, tag.Sample{Status: v.Status, Value: v.Value, At: v.At}
		return
	}
	sl.kind, sl.bits, sl.status = k, v.Value.Bits(), uint8(status)
}

// recording is that of a slot, a new one if it has none. Call it with mu held.
func (s *Store) recording(n uint32) *recording {
	sl := &s.slots[n]
	if sl.record == 0 {
		s.records = append(s.records, &recording{})
		sl.record = uint32(len(s.records))
	}
	return s.records[sl.record-1]
}

// Open opens the store of a folder, or begins one. Damage is no error: a damaged file is set aside, and what can be read
// of it is read. Nor is a disk that takes nothing: the store works in memory, and tries again. An error is that a newer
// program wrote the store (ErrNewer), or that another process has it open (ErrLocked). Nothing is written before Start.
func Open(cfg Config) (*Store, error) {
	if cfg.MaxSize <= 0 {
		cfg.MaxSize = defaultMaxSize
	}
	if cfg.Commit <= 0 {
		cfg.Commit = defaultCommit
	}
	if cfg.Backlog <= 0 {
		cfg.Backlog = defaultBacklog
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	if cfg.open == nil {
		cfg.open = bbolt.Open
	}
	s := &Store{
		cfg: cfg, disk: cfg.disk, log: cfg.Log, start: time.Now(), kick: make(chan struct{}, 1), fold: make(chan struct{}, 1),
		stop: make(chan struct{}), large: map[uint32]tag.Sample{}, statuses: []tag.Status{0}, durable: map[uint32][]byte{}, saved: map[uint32]bool{}, epoch: 1,
	}
	if s.disk == nil {
		s.disk = folder(cfg.Dir)
	}
	s.history = history{dir: cfg.Dir, log: s.log, open: cfg.open}
	s.wall.set(cfg.now(), s.start)
	if err := s.recover(); err != nil {
		if s.lock != nil {
			s.lock.Close()
		}
		s.history.close()
		return nil, fmt.Errorf("store %s: %w", cfg.Dir, err)
	}
	return s, nil
}

// Start begins to write, from when on Commit returns. It is called once, and not for a store that is read only.
func (s *Store) Start() {
	s.ended.Go(s.commits)
	s.ended.Go(s.folds)
}

// Apply tells which tags there are now, each Ref always with the same name. The names that were there before keep their
// history and their last values.
func (s *Store) Apply(tags []Tag) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slots {
		s.slots[i].retain = false
	}
	for _, r := range s.records {
		r.history, r.deadband = false, 0
	}
	s.enter(tags)
	for i := range tags {
		t := &tags[i]
		if t.Ref == 0 {
			continue
		}
		n := s.refs[t.Ref-1] - 1
		s.slots[n].retain = t.Retain
		if t.History {
			r := s.recording(n)
			r.history, r.deadband = true, t.Deadband
		}
	}
}

// enter finds the slots of tags, new ones for names that have none. Call it with mu held.
func (s *Store) enter(tags []Tag) {
	was, fresh := s.refs, 0
	s.refs = make([]uint32, 0, len(tags))
	var byName map[string]uint32
	for i := range tags {
		t := &tags[i]
		r := int(t.Ref) - 1
		if r < 0 {
			continue
		}
		if r >= len(s.refs) {
			s.refs = append(s.refs, make([]uint32, r+1-len(s.refs))...)
		}
		if r < len(was) && was[r] != 0 {
			s.refs[r] = was[r]
			continue
		}
		if byName == nil { // made where it is needed: for good it would cost as much as the slots
			byName = make(map[string]uint32, len(s.slots))
			for n := range s.slots {
				byName[s.slots[n].name] = uint32(n) + 1
			}
		}
		if s.refs[r] = byName[t.Name]; s.refs[r] == 0 {
			fresh++
		}
	}
	if n := len(s.slots) + fresh; n > cap(s.slots) {
		s.slots = append(make([]slot, 0, n), s.slots...)
	}
	for i := range tags {
		if t := &tags[i]; t.Ref != 0 && s.refs[t.Ref-1] == 0 {
			s.slots = append(s.slots, slot{name: t.Name})
			s.refs[t.Ref-1] = uint32(len(s.slots))
		}
	}
}

// Publish implements tag.Sink: it records changes. It never waits for a disk.
func (s *Store) Publish(batch []tag.Sample) {
	s.mu.Lock()
	for i := range batch {
		r := uint64(batch[i].Ref) - 1
		if r >= uint64(len(s.refs)) || s.refs[r] == 0 {
			continue
		}
		s.take(s.refs[r]-1, &batch[i])
	}
	kick := s.pending >= commitBytes
	s.mu.Unlock()
	if kick {
		s.wake(s.kick)
	}
}

func (s *Store) wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take keeps what is to be kept of a reading. Call it with mu held.
func (s *Store) take(n uint32, v *tag.Sample) {
	if v.Value.Size() > maxValue {
		v = &tag.Sample{Ref: v.Ref, Status: badEncodingLimitsExceeded, At: v.At}
	}
	sl, last := &s.slots[n], s.last(n)
	var rec *recording
	if sl.record != 0 {
		rec = s.records[sl.record-1]
	}
	if (rec == nil || rec.epoch != s.epoch) && v.At < s.resumed && v.At == last.At && v.Status == last.Status && v.Value.Equal(last.Value) {
		v = &tag.Sample{Ref: v.Ref, Status: v.Status, Value: v.Value, At: s.resumed} // known already: it still holds behind the gap
	}
	if (sl.retain || !v.Status.IsBad()) && (last.Status != v.Status || last.At.IsZero() || !last.Value.Equal(v.Value)) {
		s.setLast(n, v)
		if s.urgent = s.urgent || sl.retain; !sl.stale {
			sl.stale = true
			s.stale = append(s.stale, n)
		}
	}
	if rec != nil && rec.history && !s.closed && (rec.epoch != s.epoch || changed(&rec.recorded, v, rec.deadband)) {
		s.record(n, rec, v)
	}
}

// record puts a change into history. Call it with mu held.
func (s *Store) record(n uint32, rec *recording, v *tag.Sample) {
	switch {
	case s.full:
		s.counters.dropped++
		return
	case s.open.size+s.waiting >= s.cfg.Backlog+2*s.foldSize():
		s.counters.dropped++
		s.lose(DiskSlow, v.At)
		return
	case s.gap != nil:
		s.resume(v.At)
	}
	c := rec.chunk
	if c == nil {
		c = &chunk{}
		rec.chunk, s.open.chunks[n] = c, c
	}
	if !rec.dirty {
		rec.dirty = true
		s.dirty = append(s.dirty, n)
		s.pending += entryHead
	}
	grown := c.add(v)
	s.pending += grown
	s.open.size += grown
	s.counters.samples++
	rec.recorded, rec.epoch = *v, s.epoch
}

// entryHead is what a part of a chunk takes in the log beside its samples, in bytes, about.
const entryHead = 8

// changed reports whether a reading is another than the one recorded.
func changed(was, v *tag.Sample, deadband float64) bool {
	if was.Status != v.Status {
		return true
	}
	if deadband > 0 {
		a, ok := was.Value.Float()
		b, ok2 := v.Value.Float()
		if ok && ok2 && was.Value.Kind() == v.Value.Kind() {
			return math.Abs(b-a) > deadband || math.IsNaN(a) != math.IsNaN(b)
		}
	}
	return !was.Value.Equal(v.Value)
}

// foldSize is how many bytes a segment has when it is put into history.
func (s *Store) foldSize() int {
	if s.cfg.fold > 0 {
		return s.cfg.fold
	}
	return int(min(mostFold, max(leastFold, s.cfg.MaxSize/64)))
}

// lose begins a gap, if none lasts. Call it with mu held.
func (s *Store) lose(why Reason, from tag.Time) {
	if s.gap != nil {
		return
	}
	s.gap = &Gap{From: from, Reason: why, slots: uint32(len(s.slots))}
	s.log.Error("history has a gap from now on", "reason", why)
}

// resume ends the gap that lasts. Call it with mu held.
func (s *Store) resume(to tag.Time) {
	g := *s.gap
	s.gap = nil
	g.To = to
	s.addGap(g)
	s.log.Warn("history goes on", "after", g.To.Sub(g.From), "reason", g.Reason)
}

// addGap keeps a gap. Everything is recorded anew behind it. Call it with mu held.
func (s *Store) addGap(g Gap) {
	g.slots = uint32(len(s.slots))
	s.open.gaps = append(s.open.gaps, g)
	s.newGaps = append(s.newGaps, g)
	s.epoch++
	s.resumed = min(g.To, tag.TimeOf(s.cfg.now()))
}

// Gap notes that there are no readings of a time, for a reason outside of the store. A zero to is now.
func (s *Store) Gap(from, to time.Time, why Reason) {
	if to.IsZero() {
		to = s.cfg.now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addGap(Gap{From: tag.TimeOf(from), To: tag.TimeOf(to), Reason: why})
}

// Last are the last values of the tags that there are now, as they were kept: of each the newest that was not bad, and
// of a retained tag the newest. Their times are those of the readings.
func (s *Store) Last() []tag.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []tag.Sample
	for i, n := range s.refs {
		if n == 0 || s.slots[n-1].at.IsZero() {
			continue
		}
		v := s.last(n - 1)
		v.Ref = tag.Ref(i + 1)
		out = append(out, v)
	}
	return out
}

// Save keeps the state of a durable subscription, with the next commit, a second from now at most. It keeps nothing of
// state. The error is that of the last commit: the state will be tried again with the next.
func (s *Store) Save(id uint32, state []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := len(s.durable) == 0
	s.durable[id], s.saved[id] = slices.Clone(state), true
	if first {
		s.wake(s.kick) // commits come faster from here on
	}
	return s.fault
}

// Load returns the states of all durable subscriptions.
func (s *Store) Load() (map[uint32][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.durable), nil
}

// Drop forgets the state of a durable subscription, with the next commit.
func (s *Store) Drop(id uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.durable[id]; ok {
		delete(s.durable, id)
		s.saved[id] = true
	}
	return s.fault
}

// pass is a commit that somebody waits for.
type pass struct {
	done chan struct{}
	err  error
}

// Commit returns when the history, the retained tags and the subscriptions that were published and saved before are on
// the disk. Those who wait at one time share one sync.
func (s *Store) Commit(ctx context.Context) error {
	s.mu.Lock()
	if s.closed || s.cfg.ReadOnly {
		s.mu.Unlock()
		return errClosed
	}
	if s.next == nil {
		s.next = &pass{done: make(chan struct{})}
	}
	p := s.next
	s.urgent = true
	s.mu.Unlock()
	s.wake(s.kick)
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errClosed = errors.New("the store is closed")

// Close commits what there is and closes the files. It waits for a disk until ctx ends.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	close(s.stop)
	done := make(chan error, 1)
	go func() {
		s.ended.Wait()
		var err error
		if !s.cfg.ReadOnly {
			err = s.commit(true)
		}
		if s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
		s.history.close()
		if s.lock != nil {
			s.lock.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("store %s: the disk does not answer: %w", s.cfg.Dir, ctx.Err())
	}
}
