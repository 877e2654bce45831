package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"edged/drivers/tag"
)

// mostRead is how many samples one Read returns at most.
const mostRead = 1 << 20

// item is a sample with its place in the order of history: by time, and of one time as recorded.
type item struct {
	tag.Sample
	place
}

// place is where in the log a sample is.
type place struct {
	seq   uint64
	index uint32 // of the sample in its chunk; of a gap from gapIndex on
}

const gapIndex = 1 << 31

func (a *item) compare(b *item) int {
	if c := cmp.Compare(a.At, b.At); c != 0 {
		return c
	}
	if c := cmp.Compare(a.seq, b.seq); c != 0 {
		return c
	}
	return cmp.Compare(a.index, b.index)
}

const (
	keySize    = 1 + 8 + 8 + 4
	keyVersion = 1
)

// key is an item's place for a continuation.
func (a *item) key() []byte {
	b := binary.BigEndian.AppendUint64([]byte{keyVersion}, uint64(a.At))
	b = binary.BigEndian.AppendUint64(b, a.seq)
	return binary.BigEndian.AppendUint32(b, a.index)
}

// ErrKey is that a continuation is none of Read's.
var ErrKey = errors.New("the continuation is not one of this store")

func parseKey(b []byte) (*item, error) {
	if len(b) != keySize || b[0] != keyVersion {
		return nil, ErrKey
	}
	var a item
	a.At = tag.Time(binary.BigEndian.Uint64(b[1:]))
	a.seq, a.index = binary.BigEndian.Uint64(b[9:]), binary.BigEndian.Uint32(b[17:])
	return &a, nil
}

// Read appends the history of a tag to dst: from the time from, that one included, to the time to, that one not. Where
// from is after to it reads backward; a zero to is then the beginning, and the last second of tag.MaxTime the end. What
// was read and is not yet on the disk is there too. A gap is one sample with a bad status (Reason.Status) and no value,
// at its beginning. Bounds are got with a limit of 1: Read(ref, at, zero) is the sample at or before at.
//
// At most limit samples are appended (0: a million). If there are more, the key is not nil: given as after, with the
// same times, it continues, also in another run of the program. What came meanwhile with an older time is then passed
// over. Nothing is held between two calls. A tag without history is no error; nor is a damaged file, which is a gap.
func (s *Store) Read(ref tag.Ref, from, to time.Time, after []byte, limit int, dst []tag.Sample) ([]tag.Sample, []byte, error) {
	s.mu.Lock()
	r := uint64(ref) - 1
	n := uint32(0)
	if r < uint64(len(s.refs)) {
		n = s.refs[r]
	}
	s.mu.Unlock()
	if n == 0 {
		return dst, nil, nil
	}
	return s.read(n-1, ref, from, to, after, limit, dst)
}

// ReadName is Read for the full name of a tag, which need not be there any more. Samples have the Ref 0.
func (s *Store) ReadName(name string, from, to time.Time, after []byte, limit int, dst []tag.Sample) ([]tag.Sample, []byte, error) {
	s.mu.Lock()
	n := slices.IndexFunc(s.slots, func(sl slot) bool { return sl.name == name })
	s.mu.Unlock()
	if n < 0 {
		return dst, nil, fmt.Errorf("there is no history of %s", name)
	}
	return s.read(uint32(n), 0, from, to, after, limit, dst)
}

// Names are the full names of all tags that the store ever knew, sorted.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, 0, len(s.slots))
	for i := range s.slots {
		sl := &s.slots[i]
		if sl.name[:min(1, len(sl.name))] != "\x00" {
			out = append(out, sl.name)
		}
	}
	slices.Sort(out)
	return out
}

func (s *Store) read(n uint32, ref tag.Ref, from, to time.Time, after []byte, limit int, dst []tag.Sample) ([]tag.Sample, []byte, error) {
	if limit <= 0 || limit > mostRead {
		limit = mostRead
	}
	q := query{slot: n, ref: ref, most: limit + 1}
	a, b := tag.TimeOf(from), tag.TimeOf(to)
	if from.After(to) {
		q.back, q.low, q.high = true, b+1, a
		if to.IsZero() {
			q.low = 0
		}
	} else {
		q.low, q.high = a, b-1
		if a == b {
			q.high = b
		}
	}
	if after != nil {
		k, err := parseKey(after)
		if err != nil {
			return dst, nil, err
		}
		if q.after = k; q.back {
			q.high = min(q.high, k.At)
		} else {
			q.low = max(q.low, k.At)
		}
	}
	pooled := items.Get().(*[]item)
	q.items = (*pooled)[:0]
	defer func() {
		clear(q.items) // texts and arrays are not held
		if *pooled = q.items; cap(q.items) <= mostPooled {
			items.Put(pooled)
		}
	}()
	q.collect(s)
	q.cut()
	var key []byte
	found := q.items
	if len(found) > limit {
		found = found[:limit]
		key = found[limit-1].key()
	}
	dst = slices.Grow(dst, len(found))
	for i := range found {
		dst = append(dst, found[i].Sample)
	}
	return dst, key, nil
}

// items are the rooms of queries, up to mostPooled items each.
var items = sync.Pool{New: func() any { return new([]item) }}

const mostPooled = 32 << 10

// source is one chunk of the tag, or a segment that may have one.
type source struct {
	span
	seq  uint64
	runs []byte       // nil: of file
	file *historyFile // nil: damaged, so the whole span is a gap
}

// query gathers what one Read returns. Sources may overlap in time, after the clock was set and where a client gives
// times of its own, so what was gathered is put in order, and what is beyond the limit dropped, again and again.
type query struct {
	slot      uint32
	ref       tag.Ref
	low, high tag.Time // both included
	after     *item
	back      bool
	most      int
	items     []item
	messy     bool // items are not in order
}

// collect reads every source that may hold some of the first items.
func (q *query) collect(s *Store) {
	sources := q.sources(s)
	if q.back {
		slices.SortFunc(sources, func(a, b source) int { return cmp.Or(cmp.Compare(b.max, a.max), cmp.Compare(b.seq, a.seq)) })
	} else {
		slices.SortFunc(sources, func(a, b source) int { return cmp.Or(cmp.Compare(a.min, b.min), cmp.Compare(a.seq, b.seq)) })
	}
	for i := range sources {
		c := &sources[i]
		if len(q.items) >= q.most {
			q.cut()
			if end := q.items[len(q.items)-1].At; q.back && c.max < end || !q.back && c.min > end {
				return
			}
		}
		var err error
		if c.runs != nil {
			err = q.decode(c.seq, stored{q.slot, c.span, c.runs})
		} else if c.file != nil {
			err = s.history.chunkOf(c.file, c.seq, q.slot, func(k stored) error { return q.decode(c.seq, k) })
		}
		if err != nil {
			s.damage(c, err)
			q.add(&item{tag.Sample{Status: Damaged.Status(), At: c.min}, place{c.seq, gapIndex - 1}})
		}
	}
}

// damage tells of a chunk that cannot be read, once a file.
func (s *Store) damage(c *source, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil {
		s.told = map[uint64]bool{}
	}
	if !s.told[c.seq] && len(s.told) < 1000 {
		s.told[c.seq] = true
		s.log.Error("a part of history cannot be read", "from", c.min, "to", c.max, "error", err)
	}
}

// sources finds the segments that reach into the time, and adds the gaps.
func (q *query) sources(s *Store) []source {
	var out []source
	put := func(c source) {
		if c.n > 0 && c.max >= q.low && c.min <= q.high {
			out = append(out, c)
		}
	}
	seen := map[uint64]bool{}
	s.mu.Lock()
	for _, g := range append(s.sealed[:len(s.sealed):len(s.sealed)], s.open) {
		seen[g.seq] = true
		if c := g.chunks[q.slot]; c != nil {
			c.closeRun() // what is in runs does not change any more
			put(source{span: c.span, seq: g.seq, runs: c.runs[:len(c.runs):len(c.runs)]})
		}
		q.gaps(g.seq, g.gaps)
	}
	if s.gap != nil {
		q.gaps(s.open.seq+1, []Gap{*s.gap})
	}
	s.mu.Unlock()
	for _, f := range s.history.all() {
		index, err := s.history.indexOf(f)
		if err != nil {
			continue // told of when it was found
		}
		for _, e := range index {
			if seen[e.seq] {
				continue // it was put into the file a moment ago
			}
			put(source{span: e.span, seq: e.seq, file: f})
			q.gaps(e.seq, e.gaps)
		}
	}
	return out
}

func (q *query) gaps(seq uint64, gaps []Gap) {
	for i, g := range gaps {
		if q.slot < g.slots {
			q.add(&item{tag.Sample{Status: g.Reason.Status(), At: g.From}, place{seq, gapIndex + uint32(i)}})
		}
	}
}

// add takes an item if it is one that was asked for.
func (q *query) add(v *item) {
	if v.At < q.low || v.At > q.high {
		return
	}
	if q.after != nil {
		if c := v.compare(q.after); c == 0 || (c < 0) != q.back {
			return
		}
	}
	v.Ref = q.ref
	if n := len(q.items); n > 0 && !q.messy {
		q.messy = (q.items[n-1].compare(v) > 0) != q.back
	}
	if q.items = append(q.items, *v); len(q.items) >= 2*q.most+1024 {
		q.cut()
	}
}

// cut puts the items in order, and drops those beyond the limit.
func (q *query) cut() {
	if q.messy {
		sign := 1
		if q.back {
			sign = -1
		}
		slices.SortFunc(q.items, func(a, b item) int { return sign * a.compare(&b) })
		q.items = slices.CompactFunc(q.items, func(a, b item) bool { return a.place == b.place && a.At == b.At })
		q.messy = false
	}
	if len(q.items) > q.most {
		clear(q.items[q.most:])
		q.items = q.items[:q.most]
	}
}

// decode adds the samples of a chunk.
func (q *query) decode(seq uint64, c stored) error {
	d := decoder{b: c.runs}
	found := 0
	var v item
	for i := uint32(0); ; i++ {
		ok, err := d.next(&v.Sample)
		if err != nil || !ok {
			return err
		}
		if !q.back && !c.unsorted {
			if v.At > q.high || found >= q.most {
				return nil
			}
		}
		if v.At < q.low {
			continue
		}
		v.place = place{seq, i}
		before := len(q.items)
		q.add(&v)
		if len(q.items) > before {
			found++
		}
	}
}
