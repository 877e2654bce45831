package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.etcd.io/bbolt"

	"edged/drivers/tag"
)

// Power cuts at the block layer. A tape remembers everything that the store and bbolt write, and what they sync. A cut
// at any place of it makes the folder as it may be found then: of the writes since the last sync of a file any sectors,
// of a file's new length any part, of what was created, renamed and removed since the last sync of the folder the first
// few.

// event is one thing on the tape.
type event struct {
	kind kind
	name string
	to   string // of rename
	at   int64  // offset, or size
	b    []byte
	ack  acked
}

type kind int

const (
	evCreate kind = iota
	evWrite
	evSync
	evTruncate
	evSize // grown and synced
	evRemove
	evRename
	evSyncDir
	evAck
)

// acked is what had been promised.
type acked struct {
	samples int // of each tag
	kept    int // value of the retained tag
	state   int // of the durable subscription
}

// tape is a disk that remembers.
type tape struct {
	folder
	mu     sync.Mutex // guards events
	events []event
	bolt   string // file that bbolt has written a meta page to, and synced by the next event
}

func (d *tape) add(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bolt != "" && (e.kind != evWrite || e.name != d.bolt) {
		d.events = append(d.events, event{kind: evSync, name: d.bolt})
		d.bolt = ""
	}
	d.events = append(d.events, e)
}

func (d *tape) Create(name string) (file, error) {
	f, err := d.folder.Create(name)
	if err != nil {
		return nil, err
	}
	d.add(event{kind: evCreate, name: name})
	return &tapeFile{file: f, tape: d, name: name}, nil
}

func (d *tape) Remove(name string) error {
	if _, err := os.Stat(d.path(name)); err == nil {
		d.add(event{kind: evRemove, name: name})
	}
	return d.folder.Remove(name)
}

func (d *tape) Rename(from, to string) error {
	d.add(event{kind: evRename, name: from, to: to})
	return d.folder.Rename(from, to)
}

func (d *tape) Sync() error {
	d.add(event{kind: evSyncDir})
	return nil
}

type tapeFile struct {
	file
	tape *tape
	name string
	size int64
}

func (f *tapeFile) Write(b []byte) (int, error) {
	f.tape.add(event{kind: evWrite, name: f.name, at: f.size, b: bytes.Clone(b)})
	f.size += int64(len(b))
	return f.file.Write(b)
}

func (f *tapeFile) Sync() error {
	f.tape.add(event{kind: evSync, name: f.name})
	return nil
}

func (f *tapeFile) Truncate(size int64) error {
	f.tape.add(event{kind: evTruncate, name: f.name, at: size})
	f.size = size
	return f.file.Truncate(size)
}

// open has bbolt write onto the tape: its pages, and a sync before and after each meta page.
func (d *tape) open(path string, mode os.FileMode, o *bbolt.Options) (*bbolt.DB, error) {
	name := filepath.Base(path)
	_, err := os.Stat(path)
	fresh := err != nil
	opts := *o
	opts.NoSync = true // the tape says what is on the disk; this test needs none
	opts.NoGrowSync = true
	db, err := bbolt.Open(path, mode, &opts)
	if err != nil || o.ReadOnly {
		return db, err
	}
	if fresh {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		d.add(event{kind: evCreate, name: name})
		d.add(event{kind: evWrite, name: name, b: b})
		d.add(event{kind: evSync, name: name})
	}
	size := int64(0)
	writeAt := (*func([]byte, int64) (int, error))(unsafe.Pointer(reflect.ValueOf(db).Elem().FieldByName("ops").Field(0).UnsafeAddr()))
	below := *writeAt
	*writeAt = func(b []byte, at int64) (int, error) {
		if info, err := os.Stat(path); err == nil && info.Size() > size {
			size = info.Size()
			d.add(event{kind: evSize, name: name, at: size})
		}
		meta := at < 2*filePage
		if meta {
			d.add(event{kind: evSync, name: name})
		}
		d.add(event{kind: evWrite, name: name, at: at, b: bytes.Clone(b)})
		if meta {
			d.mu.Lock()
			d.bolt = name
			d.mu.Unlock()
		}
		return below(b, at)
	}
	return db, nil
}

// found is a folder after a cut.
type found map[string][]byte

const sector = 512

// cut plays the tape up to event n, and then lets the power fail.
func (d *tape) cut(n int, r *rand.Rand) (found, acked) {
	type inode struct {
		b       []byte
		pending []event
	}
	nodes := map[string]*inode{} // as the process sees names
	durable := map[string]*inode{}
	var dir []event // since the last sync of the folder
	var promised acked
	apply := func(e event, names map[string]*inode) {
		switch e.kind {
		case evCreate:
			names[e.name] = nodes[e.name]
		case evRemove:
			delete(names, e.name)
		case evRename:
			names[e.to] = names[e.name]
			delete(names, e.name)
		}
	}
	made := map[int]*inode{} // by index in dir, for creates
	for _, e := range d.events[:n] {
		switch e.kind {
		case evCreate:
			nodes[e.name] = &inode{}
			made[len(dir)] = nodes[e.name]
			dir = append(dir, e)
		case evRemove:
			delete(nodes, e.name)
			dir = append(dir, e)
		case evRename:
			nodes[e.to] = nodes[e.name]
			delete(nodes, e.name)
			dir = append(dir, e)
		case evSyncDir:
			durable = maps.Clone(nodes)
			dir, made = nil, map[int]*inode{}
		case evWrite, evTruncate:
			nodes[e.name].pending = append(nodes[e.name].pending, e)
		case evSync:
			f := nodes[e.name]
			for _, p := range f.pending {
				f.b = written(f.b, p)
			}
			f.pending = nil
		case evSize:
			f := nodes[e.name]
			f.b = append(f.b, make([]byte, max(0, int(e.at)-len(f.b)))...)
		case evAck:
			promised = e.ack
		}
	}
	for i, e := range dir[:r.IntN(len(dir)+1)] { // the folder's journal keeps the order
		if e.kind == evCreate {
			durable[e.name] = made[i]
			continue
		}
		apply(e, durable)
	}
	out := found{}
	for name, f := range durable {
		if f != nil {
			out[name] = torn(f.b, f.pending, r)
		}
	}
	return out, promised
}

func written(b []byte, e event) []byte {
	if e.kind == evTruncate {
		return append(b[:min(len(b), int(e.at))], make([]byte, max(0, int(e.at)-len(b)))...)
	}
	b = append(b, make([]byte, max(0, int(e.at)+len(e.b)-len(b)))...)
	copy(b[e.at:], e.b)
	return b
}

// torn is a file to which some sectors of some writes came, in any order.
func torn(b []byte, pending []event, r *rand.Rand) []byte {
	b = slices.Clone(b)
	before := len(b)
	for _, i := range r.Perm(len(pending)) {
		e := pending[i]
		if e.kind == evTruncate {
			if r.IntN(2) == 0 {
				b = written(b, e)
			}
			continue
		}
		share := r.IntN(5) // of 4 sectors
		for from := 0; from < len(e.b); {
			to := min(len(e.b), (int(e.at)+from)/sector*sector+sector-int(e.at))
			if r.IntN(4) < share {
				b = written(b, event{kind: evWrite, at: e.at + int64(from), b: e.b[from:to]})
			}
			from = to
		}
	}
	if len(b) > before && r.IntN(3) == 0 { // the length is one of the things that may not have come
		b = b[:before+r.IntN(len(b)-before+1)]
	}
	return b
}

func (f found) write(t *testing.T, dir string) {
	t.Helper()
	for name, b := range f {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	cutTags = 4
	keptRef = cutTags + 1
)

// cutTagList are tags that count, and one that is retained.
func cutTagList() []Tag {
	return append(someTags(cutTags), Tag{Ref: keptRef, Name: "memory.kept", Retain: true})
}

// recordTape fills a tape: samples, commits, segments that go into history, restarts, a durable subscription.
func recordTape(t *testing.T, dir string, rounds int, r *rand.Rand) *tape {
	d := &tape{folder: folder(dir)}
	cfg := Config{Dir: dir, fold: 250, MaxSize: 1 << 20, disk: d, open: d.open}
	s := openStore(t, cfg)
	s.Apply(cutTagList())
	n, kept, state := 0, 0, 0
	for range rounds {
		more := 1 + r.IntN(40)
		countUp(s, cutTags, n, n+more)
		n += more
		if r.IntN(2) == 0 {
			kept++
			s.Publish([]tag.Sample{{Ref: keptRef, Value: tag.Of(uint32(kept)), At: began.Add(time.Duration(n) * time.Second)}})
			s.mu.Lock()
			s.urgent = true // as Commit does
			s.mu.Unlock()
		}
		if r.IntN(3) == 0 {
			state++
			s.Save(7, stateOf(state))
		}
		mustCommit(t, s)
		d.add(event{kind: evAck, ack: acked{n, kept, state}})
		if r.IntN(3) == 0 {
			if err := s.foldAll(); err != nil {
				t.Fatal(err)
			}
		}
		if r.IntN(12) == 0 {
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			s = openStore(t, cfg)
			s.Apply(cutTagList())
		}
	}
	return d
}

// stateOf is the n-th state of the durable subscription.
func stateOf(n int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%08d", n)), 40) }

// check opens a folder after a cut: all that was promised is there, in order and once, and the store works on.
func check(t *testing.T, dir string, promised acked) {
	t.Helper()
	s := openStore(t, Config{Dir: dir, fold: 250, MaxSize: 1 << 20})
	s.Apply(cutTagList())
	n := -1
	for ref := range tag.Ref(cutTags) {
		got := len(all(t, s, ref+1))
		counted(t, s, ref+1, 0, got)
		if got < promised.samples {
			t.Fatalf("tag %d has %d samples, %d were committed", ref+1, got, promised.samples)
		}
		if n = max(n, got); n != got {
			t.Fatalf("tag %d has %d samples, another %d", ref+1, got, n)
		}
	}
	last := map[tag.Ref]uint64{}
	for _, v := range s.Last() {
		last[v.Ref] = v.Value.Bits()
	}
	if n > 0 && last[1] != uint64(n-1) {
		t.Fatalf("the last value is %d of %d", last[1], n)
	}
	if last[keptRef] < uint64(promised.kept) {
		t.Fatalf("the retained tag is %d, %d was answered Good", last[keptRef], promised.kept)
	}
	states, _ := s.Load()
	if state, ok := states[7]; ok || promised.state > 0 {
		var have int
		fmt.Sscanf(string(state[:min(8, len(state))]), "%d", &have)
		if have < promised.state || !bytes.Equal(state, stateOf(have)) {
			t.Fatalf("the durable subscription is %d, %d was committed", have, promised.state)
		}
	}
	countUp(s, cutTags, n, n+3)
	mustCommit(t, s)
	if err := s.foldAll(); err != nil {
		t.Fatal(err)
	}
	counted(t, s, 1, 0, n+3)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if reports, err := Check(dir); err != nil {
		t.Fatal(err)
	} else {
		for _, r := range reports {
			if r.Err != nil {
				t.Fatalf("%s: %v", r.File, r.Err)
			}
		}
	}
}

// rounds is how often a test of chance is done: CI, or for long.
func rounds(short, long int) int {
	if os.Getenv("EDGED_LONG") != "" {
		return long
	}
	return short
}

func TestPowerCuts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	d := recordTape(t, t.TempDir(), 200, r)
	t.Logf("%d events on the tape", len(d.events))
	for i := range rounds(50, 1000) {
		n := r.IntN(len(d.events) + 1)
		state, promised := d.cut(n, r)
		dir := filepath.Join(t.TempDir(), "store")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		state.write(t, dir)
		if !t.Run(fmt.Sprintf("%d at %d", i, n), func(t *testing.T) { check(t, dir, promised) }) {
			return
		}
		os.RemoveAll(dir)
	}
}
