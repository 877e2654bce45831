package store

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/tag"
)

// badDisk is a folder that is full, read only, broken, or stands still.
type badDisk struct {
	folder
	mu    sync.Mutex // guards the fields below
	err   error      // of every write
	sync  error      // of every sync
	free  int64      // bytes; 0: plenty
	still chan struct{}
	wrote int
}

func (d *badDisk) set(f func(*badDisk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// state is what happens to the next write.
func (d *badDisk) state() (still chan struct{}, write, sync error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.still, d.err, d.sync
}

func (d *badDisk) Create(name string) (file, error) {
	if _, err, _ := d.state(); err != nil && name != ballastName {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f, err := d.folder.Create(name)
	if err != nil {
		return nil, err
	}
	return &badFile{f, d}, nil
}

func (d *badDisk) Free() (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.free > 0 {
		return d.free, 1 << 30, nil
	}
	return 1 << 29, 1 << 30, nil
}

type badFile struct {
	file
	disk *badDisk
}

func (f *badFile) Write(b []byte) (int, error) {
	still, err, _ := f.disk.state()
	if still != nil {
		<-still
	}
	if err != nil {
		n, _ := f.file.Write(b[:len(b)/2]) // a part of it comes
		return n, err
	}
	f.disk.set(func(d *badDisk) { d.wrote += len(b) })
	return f.file.Write(b)
}

func (f *badFile) Sync() error {
	if _, _, err := f.disk.state(); err != nil {
		return err
	}
	return nil
}

// gapsOf are the gaps in a tag's history, by their statuses.
func gapsOf(t *testing.T, s *Store, ref tag.Ref) (out []tag.Sample) {
	t.Helper()
	for _, v := range readAll(t, s, ref, time.Time{}, tag.MaxTime.Time(), 1000) {
		if isGap(v) {
			out = append(out, v)
		}
	}
	return out
}

// A disk that stands still for 10 s costs whoever publishes nothing, and nothing is lost (field report F3).
func TestStillDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, still := &badDisk{folder: folder(dir)}, make(chan struct{})
		s := openStore(t, Config{Dir: dir, disk: d, Commit: time.Second})
		d.set(func(d *badDisk) { d.still = still })
		s.Start()
		s.Apply(someTags(100))
		began := time.Now()
		for i := range 1000 { // 10 s of 10,000 samples a second
			countUp(s, 100, i, i+1)
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("publishing took %v: it waited for the disk", took)
		}
		if st := s.Stats(); st.Commits != 0 || st.Dropped != 0 {
			t.Errorf("%d commits, %d dropped", st.Commits, st.Dropped)
		}
		d.set(func(d *badDisk) { d.still = nil })
		close(still)
		if err := s.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, Config{Dir: dir, ReadOnly: true})
		s.Apply(someTags(100))
		counted(t, s, 100, 0, 1000)
	})
}

// What does not fit the backlog is dropped, counted, and a gap with its reason; what came before and after is there.
func TestBacklogIsBounded(t *testing.T) {
	d := &badDisk{folder: folder(t.TempDir()), err: syscall.EIO}
	s := openStore(t, Config{Dir: string(d.folder), disk: d, Backlog: 20_000, fold: 1000})
	s.Apply(someTags(10))
	n := 0
	for ; s.Stats().Dropped == 0; n += 10 {
		countUp(s, 10, n, n+10)
		s.commit(false)
		if n > 100_000 {
			t.Fatal("nothing is ever dropped")
		}
	}
	if b := s.Stats().Backlog; b > 25_000 {
		t.Errorf("%d bytes wait", b)
	}
	countUp(s, 10, n, n+100) // all of it is lost
	d.set(func(d *badDisk) { d.err = nil })
	mustCommit(t, s)
	mustCommit(t, s)
	if err := s.foldAll(); err != nil {
		t.Fatal(err)
	}
	countUp(s, 10, n+100, n+200)
	mustCommit(t, s)
	crash(s)
	s = openStore(t, Config{Dir: string(d.folder)})
	s.Apply(someTags(10))
	got := readAll(t, s, 3, time.Time{}, tag.MaxTime.Time(), 77)
	i := 0
	for ; i < len(got) && !isGap(got[i]); i++ {
		if got[i].Value.Bits() != uint64(i) {
			t.Fatalf("sample %d is %v", i, got[i].Value)
		}
	}
	if i == 0 || i >= n || got[i].Status != DiskSlow.Status() {
		t.Fatalf("after %d of %d samples comes %v", i, n, got[i])
	}
	for j, v := range got[i+1:] {
		if !isGap(v) && v.Value.Bits() != uint64(n+99+j) && v.Value.Bits() != uint64(n+100+j) {
			t.Fatalf("behind the gap sample %d is %v", j, v.Value)
		}
	}
}

// A sync that fails says nothing of what came to the disk: what it was for is written anew, into another file.
func TestFailedSync(t *testing.T) {
	d := &badDisk{folder: folder(t.TempDir())}
	s := openStore(t, Config{Dir: string(d.folder), disk: d})
	s.Apply(someTags(2))
	countUp(s, 2, 0, 50)
	mustCommit(t, s)
	d.set(func(d *badDisk) { d.sync = syscall.EIO })
	countUp(s, 2, 50, 100)
	if err := s.commit(false); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the commit that failed: %v", err)
	}
	if s.Stats().Fault == nil {
		t.Error("the fault is not told")
	}
	d.set(func(d *badDisk) { d.sync = nil })
	countUp(s, 2, 100, 120)
	mustCommit(t, s)
	if err := s.foldAll(); err != nil {
		t.Fatal(err)
	}
	crash(s)
	s = openStore(t, Config{Dir: string(d.folder)})
	s.Apply(someTags(2))
	counted(t, s, 1, 0, 120)
}

// A full disk stops history first and last values last; both go on when there is space (field report F4).
func TestFullDisk(t *testing.T) {
	d := &badDisk{folder: folder(t.TempDir())}
	s := openStore(t, Config{Dir: string(d.folder), disk: d})
	s.Apply(append(someTags(2), Tag{Ref: 3, Name: "memory.kept", Retain: true}))
	keep := func(n int) error {
		s.Publish([]tag.Sample{{Ref: 3, Value: tag.Of(uint32(n)), At: counter(3, n).At}})
		return s.commit(false)
	}
	countUp(s, 2, 0, 50)
	mustCommit(t, s)
	d.set(func(d *badDisk) { d.free = 256 << 10 })
	mustCommit(t, s)
	if st := s.Stats(); !st.Full || st.Gap != DiskFull {
		t.Fatalf("256 KiB are left: %+v", st)
	}
	before := d.wrote
	countUp(s, 2, 50, 10_000)
	if err := keep(1); err != nil {
		t.Fatal(err)
	}
	if wrote := d.wrote - before; wrote > 1000 {
		t.Errorf("%d bytes were written", wrote)
	}
	for i := range 2000 { // in 256 KiB
		if err := keep(i); err != nil {
			t.Fatal(err)
		}
	}
	var size int64
	list, _ := d.List()
	for _, e := range list {
		if e.name != ballastName {
			size += e.size
		}
	}
	if size > 256<<10 {
		t.Errorf("last values alone have taken %d bytes", size)
	}
	d.set(func(d *badDisk) { d.err = syscall.ENOSPC }) // not a byte
	if err := keep(3000); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a retained write on a full disk: %v", err)
	}
	d.set(func(d *badDisk) { d.err, d.free = nil, 0 })
	if err := keep(3001); err != nil {
		t.Fatal(err)
	}
	countUp(s, 2, 20_000, 20_050)
	mustCommit(t, s)
	crash(s)
	s = openStore(t, Config{Dir: string(d.folder)})
	s.Apply(append(someTags(2), Tag{Ref: 3, Name: "memory.kept", Retain: true}))
	got := readAll(t, s, 1, time.Time{}, tag.MaxTime.Time(), 1000)
	values := withoutGaps(got)
	if len(values) != 100 || values[49].Value.Bits() != 49 || values[50].Value.Bits() != 20_000 {
		t.Errorf("%d samples are there, %v", len(values), values[len(values)-1].Value)
	}
	told := false
	for _, v := range got {
		told = told || v.Status == DiskFull.Status()
	}
	if !told {
		t.Error("the gap is not told")
	}
	for _, v := range s.Last() {
		if v.Ref == 3 && v.Value.Bits() != 3001 {
			t.Errorf("the retained tag is %v", v.Value)
		}
	}
}

// A disk that is read only is no reason not to start: history is read, and what comes is kept in memory.
func TestReadOnlyDisk(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir})
	s.Apply(someTags(2))
	countUp(s, 2, 0, 50)
	mustCommit(t, s)
	crash(s)
	d := &badDisk{folder: folder(dir), err: syscall.EROFS}
	s = openStore(t, Config{Dir: dir, disk: d})
	s.Apply(someTags(2))
	counted(t, s, 1, 0, 50)
	countUp(s, 2, 50, 60)
	if err := s.commit(false); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a commit: %v", err)
	}
	counted(t, s, 1, 0, 60)
	d.set(func(d *badDisk) { d.err = nil }) // mounted anew
	mustCommit(t, s)
	crash(s)
	s = openStore(t, Config{Dir: dir})
	s.Apply(someTags(2))
	counted(t, s, 1, 0, 60)
}

// A folder that cannot even be made: the store works in memory.
func TestNoFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, Config{Dir: filepath.Join(dir, "store")})
	s.Apply(someTags(1))
	countUp(s, 1, 0, 10)
	if s.commit(false) == nil {
		t.Error("a commit into nothing has succeeded")
	}
	counted(t, s, 1, 0, 10)
}

// One process writes; another is told, and a reader is welcome (field report F4).
func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir, fold: 100})
	s.Apply(someTags(1))
	countUp(s, 1, 0, 500)
	mustCommit(t, s)
	mustCommit(t, s)
	if err := s.foldAll(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrLocked) {
		t.Errorf("a second one: %v", err)
	}
	reader := openStore(t, Config{Dir: dir, ReadOnly: true})
	reader.Apply(someTags(1))
	counted(t, reader, 1, 0, 500)
	if _, _, err := Compact(dir); err == nil {
		t.Error("the files of an open store were compacted")
	}
}

// Formats: a newer one is refused and nothing touched; an older one is brought forward, also after a cut in the middle.
func TestFormats(t *testing.T) {
	dir := folder(t.TempDir())
	if err := os.WriteFile(dir.path(formatName), []byte(formatLine(formatNow+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: string(dir)}); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "--data") {
		t.Errorf("a newer store: %v", err)
	}
	if list, _ := dir.List(); len(list) != 2 { // and the lock
		t.Errorf("the newer store was touched: %v", list)
	}
	fail := errors.New("the power failed")
	var done []int
	steps := map[int]func(disk) error{
		1: func(disk) error { done = append(done, 1); return nil },
		2: func(disk) error { done = append(done, 2); return fail },
	}
	if err := writeFormat(dir, 1); err != nil {
		t.Fatal(err)
	}
	move := func() error {
		list, err := dir.List()
		if err != nil {
			t.Fatal(err)
		}
		return migrate(dir, list, true, steps, 3, func(int, int) {})
	}
	if err := move(); !errors.Is(err, fail) {
		t.Errorf("a step that fails: %v", err)
	}
	steps[2] = func(disk) error { done = append(done, 3); return nil }
	if err := move(); err != nil || fmt.Sprint(done) != "[1 2 3]" {
		t.Errorf("steps %v, %v", done, err)
	}
	if b, _ := dir.Read(formatName); string(b) != formatLine(3) {
		t.Errorf("the format is %q", b)
	}
	if err := move(); err != nil || len(done) != 3 {
		t.Errorf("nothing was to be done: %v, %v", done, err)
	}
	delete(steps, 2)
	writeFormat(dir, 2)
	if err := move(); err == nil {
		t.Error("a step that is not known was left out")
	}
	newer := appendLogHead(nil, 5)
	newer[8] = logVersion + 1
	newer = append(newer[:logHead-4], le32(newer[:logHead-4])...)
	if _, err := replay(5, newer, newState()); !errors.Is(err, ErrNewer) {
		t.Errorf("a log of a newer version: %v", err)
	}
}

func le32(b []byte) []byte { return order.AppendUint32(nil, crc32.Checksum(b, crcTable)) }
