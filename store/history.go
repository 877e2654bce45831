package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"edged/drivers/tag"
)

// History files are bbolt files, each of a period. A segment of the log goes into one of them as a whole, in one
// transaction, whose keys are behind all others: nothing is ever rewritten, and retention removes a file.
//
//	format  "version" -> uint32
//	names   slot -> sum, name             of the tags in the file
//	index   seq -> sum, segment           and its gaps
//	blocks  seq, last slot -> sum, table, chunks
//
// Numbers in keys are big-endian. A sum is the CRC of key and value. A block holds the chunks of a few neighbouring
// tags, so that small chunks fill whole pages.
var (
	formatBucket = []byte("format")
	namesBucket  = []byte("names")
	indexBucket  = []byte("index")
	blocksBucket = []byte("blocks")
	versionKey   = []byte("version")
)

const (
	fileVersion = 1
	filePage    = 4096
	blockSize   = 32 << 10
	openTimeout = 2 * time.Second // another process reads the file
)

// history is all history files.
type history struct {
	dir  string
	log  *slog.Logger
	open func(path string, mode os.FileMode, o *bbolt.Options) (*bbolt.DB, error)

	mu    sync.RWMutex // guards files
	files []*historyFile
}

// historyFile is one of them.
type historyFile struct {
	name  string
	first uint64    // number of its first segment, by its name
	start time.Time // when it was made, by its name

	mu     sync.RWMutex // held for reading by whoever uses db, which is open for reading alone
	db     *bbolt.DB    // nil: not opened yet, or just being written
	index  []indexed    // by seq; nil until it was opened
	loaded bool
	failed error // it cannot be read
	size   int64
}

// indexed is what the index says of a segment.
type indexed struct {
	seq uint64
	span
	gaps []Gap
}

func historyName(first uint64, at time.Time) string {
	return fmt.Sprintf("history-%016x-%s.db", first, at.UTC().Format("20060102T150405"))
}

func parseHistoryName(name string) (first uint64, start time.Time, ok bool) {
	text, ok := strings.CutPrefix(name, "history-")
	if !ok || len(text) != 16+1+15+3 || text[16] != '-' || text[32:] != ".db" {
		return 0, start, false
	}
	start, err := time.Parse("20060102T150405", text[17:32])
	n, err2 := fmt.Sscanf(text[:16], "%x", &first)
	return first, start, err == nil && err2 == nil && n == 1
}

// load lists the files of the folder. None is opened.
func (h *history) load(list []entry) {
	for _, e := range list {
		if first, start, ok := parseHistoryName(e.name); ok {
			h.files = append(h.files, &historyFile{name: e.name, first: first, start: start, size: e.size})
		}
	}
	slices.SortFunc(h.files, func(a, b *historyFile) int { return cmp.Compare(a.first, b.first) })
}

func (h *history) path(f *historyFile) string { return filepath.Join(h.dir, f.name) }

// all are the files, oldest first.
func (h *history) all() []*historyFile {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Clone(h.files)
}

// size is how many bytes they have together.
func (h *history) size() (n int64) {
	for _, f := range h.all() {
		f.mu.RLock()
		n += f.size
		f.mu.RUnlock()
	}
	return n
}

// folded is the number of the newest segment that is in a file.
func (h *history) folded() uint64 {
	files := h.all()
	for _, f := range slices.Backward(files) {
		if index, err := h.indexOf(f); err == nil && len(index) > 0 {
			return index[len(index)-1].seq
		}
	}
	return 0
}

// indexOf opens a file for reading if it is not open, and returns what is in it.
func (h *history) indexOf(f *historyFile) ([]indexed, error) {
	f.mu.RLock()
	if f.db != nil || f.failed != nil {
		defer f.mu.RUnlock()
		return f.index, f.failed
	}
	f.mu.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.index, h.openLocked(f)
}

// openLocked opens a file for reading. Call it with f.mu held.
func (h *history) openLocked(f *historyFile) error {
	if f.db != nil || f.failed != nil {
		return f.failed
	}
	if !f.loaded {
		if err := inspect(h.path(f)); err != nil {
			if errors.Is(err, errDamaged) {
				f.failed = err
			}
			return err
		}
	}
	db, err := h.open(h.path(f), 0o600, &bbolt.Options{ReadOnly: true, Timeout: openTimeout, NoStatistics: true})
	if err != nil {
		return err
	}
	if !f.loaded {
		index, err := readIndex(db)
		if err != nil {
			db.Close()
			if errors.Is(err, errDamaged) || errors.Is(err, ErrNewer) {
				f.failed = err
			}
			return err
		}
		f.index, f.loaded = index, true
	}
	f.db = db
	return nil
}

// guarded calls f, which reads a mapped file: a fault of the disk under it is an error.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	return f()
}

// view reads a file.
func (h *history) view(f *historyFile, read func(*bbolt.Tx) error) error {
	for {
		if _, err := h.indexOf(f); err != nil {
			return err
		}
		f.mu.RLock()
		if f.db != nil {
			defer f.mu.RUnlock()
			return guarded(func() error { return f.db.View(read) })
		}
		f.mu.RUnlock() // it has just been written
	}
}

func readIndex(db *bbolt.DB) (out []indexed, err error) {
	err = guarded(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			format := tx.Bucket(formatBucket)
			if format == nil {
				if k, _ := tx.Cursor().First(); k == nil {
					return nil // the power failed before the first segment came
				}
				return fmt.Errorf("it says no version: %w", errDamaged)
			}
			v := format.Get(versionKey)
			if len(v) != 4 {
				return fmt.Errorf("its version is not readable: %w", errDamaged)
			}
			if binary.BigEndian.Uint32(v) > fileVersion {
				return ErrNewer
			}
			index := tx.Bucket(indexBucket)
			if index == nil || tx.Bucket(blocksBucket) == nil || tx.Bucket(namesBucket) == nil {
				return fmt.Errorf("a part of it is missing: %w", errDamaged)
			}
			return index.ForEach(func(k, v []byte) error {
				e, ok := parseIndexed(k, v)
				if !ok {
					return fmt.Errorf("its index is not readable: %w", errDamaged)
				}
				out = append(out, e)
				return nil
			})
		})
	})
	return out, err
}

// summed puts the sum of key and value before a value.
func summed(key, value []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, sumOf(key, value)), value...)
}

func sumOf(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, crcTable), crcTable, value)
}

// checked is a value behind its sum, if that is right.
func checked(key, v []byte) ([]byte, bool) {
	if len(v) < 4 || binary.LittleEndian.Uint32(v) != sumOf(key, v[4:]) {
		return nil, false
	}
	return v[4:], true
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

func appendIndexed(g *segment) []byte {
	b := binary.AppendUvarint(nil, uint64(g.n))
	b = binary.AppendVarint(b, int64(g.min))
	b = binary.AppendVarint(b, int64(g.max))
	for _, gap := range g.gaps {
		b = gap.append(b)
	}
	return b
}

func parseIndexed(k, v []byte) (indexed, bool) {
	v, ok := checked(k, v)
	if !ok || len(k) != 8 {
		return indexed{}, false
	}
	f := fields{b: v}
	e := indexed{seq: binary.BigEndian.Uint64(k)}
	e.n, e.min, e.max = int(f.uvarint()), tag.Time(f.varint()), tag.Time(f.varint())
	for len(f.b) > 0 && !f.bad {
		e.gaps = append(e.gaps, f.gap())
	}
	return e, !f.bad
}

// block is one in the making.
type block struct {
	table, chunks []byte
	n             int
	last          uint32 // slot
}

func (b *block) add(slot uint32, c *chunk) {
	order := uint64(c.n) << 1
	if c.unsorted {
		order |= 1
	}
	b.table = binary.AppendUvarint(b.table, uint64(slot-b.last))
	b.table = binary.AppendUvarint(b.table, order)
	b.table = binary.AppendVarint(b.table, int64(c.min))
	b.table = binary.AppendUvarint(b.table, uint64(c.max-c.min))
	b.table = binary.AppendUvarint(b.table, uint64(len(c.runs)))
	b.chunks = append(b.chunks, c.runs...)
	b.n, b.last = b.n+1, slot
}

// value is the block as it is kept.
func (b *block) value() []byte {
	v := binary.AppendUvarint(nil, uint64(b.n))
	v = append(v, b.table...)
	return append(v, b.chunks...)
}

func blockKey(seq uint64, slot uint32) []byte {
	return binary.BigEndian.AppendUint32(seqKey(seq), slot)
}

// stored is a chunk in a block: its runs are part of the file.
type stored struct {
	slot uint32
	span
	runs []byte
}

// parseBlock reads the table of a block whose sum was right.
func parseBlock(v []byte, each func(stored) bool) bool {
	f := fields{b: v}
	n := f.uvarint()
	if n > uint64(len(v)) {
		return false
	}
	list := make([]stored, 0, n)
	sizes, slot := make([]uint64, 0, n), uint64(0)
	for range n {
		slot += f.uvarint()
		order := f.uvarint()
		first, rest, size := tag.Time(f.varint()), tag.Time(f.uvarint()), f.uvarint()
		if f.bad || slot >= maxSlots {
			return false
		}
		list = append(list, stored{slot: uint32(slot), span: span{int(order >> 1), first, first + rest, order&1 == 1}})
		sizes = append(sizes, size)
	}
	for i := range list {
		if sizes[i] > uint64(len(f.b)) {
			return false
		}
		list[i].runs, f.b = f.b[:sizes[i]], f.b[sizes[i]:]
		if !each(list[i]) {
			return true
		}
	}
	return len(f.b) == 0
}

// chunkOf gives a tag's chunk of a segment to read, if there is one. What it gets is valid until it returns.
func (h *history) chunkOf(f *historyFile, seq uint64, slot uint32, read func(stored) error) error {
	return h.view(f, func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(blocksBucket)
		if bucket == nil {
			return nil
		}
		k, v := bucket.Cursor().Seek(blockKey(seq, slot))
		if len(k) != 12 || binary.BigEndian.Uint64(k) != seq {
			return nil
		}
		v, ok := checked(k, v)
		if !ok {
			return fmt.Errorf("%s: segment %d: %w", f.name, seq, errDamaged)
		}
		var err error
		if !parseBlock(v, func(c stored) bool {
			if c.slot == slot {
				err = read(c)
			}
			return c.slot < slot
		}) {
			return fmt.Errorf("%s: segment %d: %w", f.name, seq, errDamaged)
		}
		return err
	})
}

// names gives the names of the tags in a file.
func (h *history) names(f *historyFile, each func(slot uint32, name string)) error {
	return h.view(f, func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(namesBucket)
		if bucket == nil {
			return nil
		}
		return bucket.ForEach(func(k, v []byte) error {
			if name, ok := checked(k, v); ok && len(k) == 4 {
				each(binary.BigEndian.Uint32(k), string(name))
			}
			return nil
		})
	})
}

// begin makes the file for segments from a number on. Nothing is written yet.
func (h *history) begin(seq uint64, now time.Time) *historyFile {
	f := &historyFile{name: historyName(seq, now), first: seq, start: now, loaded: true}
	h.mu.Lock()
	h.files = append(h.files, f)
	h.mu.Unlock()
	return f
}

// write puts a segment into a file, in one transaction. It returns how many bytes were written.
func (h *history) write(f *historyFile, g *segment, names []string) (written int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return 0, f.failed
	}
	path := h.path(f)
	_, err = os.Stat(path)
	fresh := errors.Is(err, os.ErrNotExist)
	if err != nil && !fresh {
		return 0, err
	}
	if !fresh && !f.loaded {
		if err := h.openLocked(f); err != nil {
			return 0, err
		}
	}
	if f.db != nil {
		f.db.Close()
		f.db = nil
	}
	db, err := h.open(path, 0o600, &bbolt.Options{Timeout: openTimeout, PageSize: filePage, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return 0, err
	}
	db.AllocSize = 64 << 10
	err = guarded(func() error { return db.Update(func(tx *bbolt.Tx) error { return put(tx, g, names) }) })
	stats := db.Stats()
	written = stats.TxStats.GetPageAlloc() + filePage
	if fresh {
		written += 4 * filePage
	}
	err = errors.Join(err, db.Close())
	if info, serr := os.Stat(path); serr == nil {
		f.size = info.Size()
	}
	if err != nil {
		return written, err
	}
	at, found := slices.BinarySearchFunc(f.index, g.seq, func(e indexed, seq uint64) int { return cmp.Compare(e.seq, seq) })
	if !found {
		f.index = slices.Insert(f.index, at, indexed{g.seq, g.span, g.gaps})
	}
	f.loaded = true
	return written, nil
}

func put(tx *bbolt.Tx, g *segment, names []string) error {
	buckets := map[string]*bbolt.Bucket{}
	for _, name := range [][]byte{formatBucket, namesBucket, indexBucket, blocksBucket} {
		b, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		b.FillPercent = 1 // keys come in order
		buckets[string(name)] = b
	}
	format, tags, index, blocks := buckets[string(formatBucket)], buckets[string(namesBucket)], buckets[string(indexBucket)], buckets[string(blocksBucket)]
	if format.Get(versionKey) == nil {
		if err := format.Put(versionKey, binary.BigEndian.AppendUint32(nil, fileVersion)); err != nil {
			return err
		}
	}
	if index.Get(seqKey(g.seq)) != nil {
		return nil // it is there: the power failed before its log went
	}
	b := block{}
	flush := func() error {
		if b.n == 0 {
			return nil
		}
		k := blockKey(g.seq, b.last)
		err := blocks.Put(k, summed(k, b.value()))
		b = block{}
		return err
	}
	for _, slot := range slices.Sorted(maps.Keys(g.chunks)) {
		c := g.chunks[slot]
		if c.n == 0 {
			continue
		}
		if b.n > 0 && len(b.chunks)+len(c.runs) > blockSize {
			if err := flush(); err != nil {
				return err
			}
		}
		b.add(slot, c)
		k := binary.BigEndian.AppendUint32(nil, slot)
		if int(slot) < len(names) && tags.Get(k) == nil {
			if err := tags.Put(k, summed(k, []byte(names[slot]))); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	k := seqKey(g.seq)
	return index.Put(k, summed(k, appendIndexed(g)))
}

// remove deletes a file.
func (h *history) remove(f *historyFile) error {
	h.mu.Lock()
	h.files = slices.DeleteFunc(h.files, func(o *historyFile) bool { return o == f })
	h.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db != nil {
		f.db.Close()
		f.db = nil
	}
	f.failed = os.ErrNotExist
	return os.Remove(h.path(f))
}

// repair makes a damaged file anew of what can be read of it; the damaged one stays under another name, which is
// returned. Segments that the log still has come from there.
func (h *history) repair(f *historyFile, now time.Time, inLog map[uint64]bool) (aside string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db != nil {
		f.db.Close()
		f.db = nil
	}
	aside = asideName(f.name, now)
	path := h.path(f)
	if err := os.Rename(path, filepath.Join(h.dir, aside)); err != nil {
		return "", err
	}
	f.index, f.loaded, f.failed, f.size = nil, true, nil, 0
	db, err := h.open(path+".new", 0o600, &bbolt.Options{Timeout: openTimeout, PageSize: filePage})
	if err != nil {
		return aside, err
	}
	db.AllocSize = 64 << 10
	err = db.Update(func(tx *bbolt.Tx) error { return rescue(tx, filepath.Join(h.dir, aside), inLog) })
	if err = errors.Join(err, db.Close()); err != nil {
		return aside, errors.Join(err, os.Remove(path+".new"))
	}
	if err := os.Rename(path+".new", path); err != nil {
		return aside, err
	}
	f.loaded = false
	return aside, h.openLocked(f)
}

// asideName is what a damaged file is called from then on.
func asideName(name string, now time.Time) string {
	return "damaged-" + now.UTC().Format("20060102T150405") + "-" + name
}

// rescue fills a file with what another still has, by the sums.
func rescue(tx *bbolt.Tx, path string, inLog map[uint64]bool) error {
	buckets := map[string]*bbolt.Bucket{}
	for _, name := range [][]byte{formatBucket, namesBucket, indexBucket, blocksBucket} {
		b, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		buckets[string(name)] = b
	}
	if err := buckets[string(formatBucket)].Put(versionKey, binary.BigEndian.AppendUint32(nil, fileVersion)); err != nil {
		return err
	}
	spans := map[uint64]*segment{}
	var failed error
	err := salvage(path, func(k, v []byte) {
		content, ok := checked(k, v)
		if !ok || failed != nil || len(k) >= 8 && inLog[binary.BigEndian.Uint64(k)] {
			return
		}
		switch len(k) {
		case 4:
			failed = buckets[string(namesBucket)].Put(k, v)
		case 8:
			failed = buckets[string(indexBucket)].Put(k, v)
		case 12:
			seq := binary.BigEndian.Uint64(k)
			g := spans[seq]
			if g == nil {
				g = newSegment(seq, 0)
				spans[seq] = g
			}
			parseBlock(content, func(c stored) bool {
				if g.n == 0 {
					g.min, g.max = c.min, c.max
				}
				g.n, g.min, g.max = g.n+c.n, min(g.min, c.min), max(g.max, c.max)
				return true
			})
			failed = buckets[string(blocksBucket)].Put(k, v)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	for seq, g := range spans { // blocks whose index is lost
		if k := seqKey(seq); buckets[string(indexBucket)].Get(k) == nil {
			g.gaps = []Gap{{From: g.min, To: g.max, Reason: Damaged, slots: maxSlots}}
			if err := buckets[string(indexBucket)].Put(k, summed(k, appendIndexed(g))); err != nil {
				return err
			}
		}
	}
	return nil
}

// close closes all files.
func (h *history) close() {
	for _, f := range h.all() {
		f.mu.Lock()
		if f.db != nil {
			f.db.Close()
			f.db = nil
		}
		f.failed = os.ErrClosed
		f.mu.Unlock()
	}
}
