package store

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"edged/drivers/tag"
)

// Report is what Check found in one file.
type Report struct {
	File     string
	Size     int64 // bytes
	Segments int
	Tags     int // that have samples in it
	Samples  int
	From, To tag.Time // of the samples
	Torn     bool     // the last record of a log is not whole, as after a power cut: it was never committed
	Err      error    // what is wrong; nil: nothing is
}

// Check reads every file of a store, or one file, and all that is in it. A gateway may have the store open. What is wrong
// with a file is in its report.
func Check(path string) ([]Report, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	dir, only := path, ""
	if !info.IsDir() {
		dir, only = filepath.Split(path)
	}
	list, err := folder(dir).List()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	var out []Report
	for _, e := range list {
		if only != "" && e.name != only {
			continue
		}
		r := Report{File: e.name, Size: e.size}
		if seq, ok := logSeq(e.name); ok {
			r.checkLog(dir, seq)
		} else if _, _, ok := parseHistoryName(e.name); ok {
			r.checkHistory(dir)
		} else if only == "" {
			continue
		} else {
			return nil, fmt.Errorf("%s is no file of a store, whose names begin with history- and log-", path)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no store: it is in the folder %q of a gateway's data folder", path, "store")
	}
	return out, nil
}

func (r *Report) take(slots map[uint32]bool, slot uint32, p span) {
	if p.n == 0 {
		return
	}
	if r.Samples == 0 {
		r.From, r.To = p.min, p.max
	}
	slots[slot] = true
	r.Samples, r.From, r.To = r.Samples+p.n, min(r.From, p.min), max(r.To, p.max)
}

func (r *Report) checkLog(dir string, seq uint64) {
	b, err := os.ReadFile(filepath.Join(dir, r.File))
	if err != nil {
		r.Err = err
		return
	}
	g, err := replay(seq, b, newState())
	if err != nil {
		r.Err = err
		return
	}
	slots := map[uint32]bool{}
	for slot, c := range g.chunks {
		r.take(slots, slot, c.span)
	}
	r.Segments, r.Tags, r.Torn = 1, len(slots), g.torn
	if g.damaged {
		r.Err = fmt.Errorf("a part of it is not as it was written: %w", errDamaged)
	}
}

func (r *Report) checkHistory(dir string) {
	h := history{dir: dir, log: slog.New(slog.DiscardHandler), open: bbolt.Open}
	f := &historyFile{name: r.File}
	h.files = []*historyFile{f}
	defer h.close()
	index, err := h.indexOf(f)
	if err != nil {
		r.Err = err
		return
	}
	r.Segments = len(index)
	slots := map[uint32]bool{}
	r.Err = h.view(f, func(tx *bbolt.Tx) error {
		b := tx.Bucket(blocksBucket)
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			content, ok := checked(k, v)
			if !ok {
				return fmt.Errorf("a block of segment %d: %w", binary.BigEndian.Uint64(append(k[:len(k):len(k)], make([]byte, 8)...)), errDamaged)
			}
			var wrong error
			if !parseBlock(content, func(c stored) bool {
				p, _, err := spanOf(c.runs)
				if err != nil || p != c.span {
					wrong = fmt.Errorf("samples of tag %d: %w", c.slot, errDamaged)
				}
				r.take(slots, c.slot, p)
				return true
			}) {
				return errDamaged
			}
			return wrong
		})
	})
	r.Tags = len(slots)
}

// Compact writes the history files of a store anew where that makes them smaller. No gateway may have it open. It returns
// their bytes before and after.
func Compact(dir string) (before, after int64, err error) {
	d := folder(dir)
	lock, err := d.lock()
	if err != nil {
		return 0, 0, err
	}
	defer lock.Close()
	list, err := d.List()
	if err != nil {
		return 0, 0, err
	}
	for _, e := range list {
		if _, _, ok := parseHistoryName(e.name); !ok {
			continue
		}
		n, err := compactFile(d, e)
		if err != nil {
			return before, after, fmt.Errorf("%s: %w", e.name, err)
		}
		before, after = before+e.size, after+n
	}
	return before, after, d.Sync()
}

func compactFile(d folder, e entry) (int64, error) {
	path, fresh := d.path(e.name), d.path(e.name+".new")
	if err := inspect(path); err != nil {
		return e.size, err
	}
	src, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: openTimeout})
	if err != nil {
		return e.size, err
	}
	defer src.Close()
	os.Remove(fresh) // of a compaction that was cut off
	dst, err := bbolt.Open(fresh, 0o600, &bbolt.Options{PageSize: filePage, Timeout: openTimeout})
	if err != nil {
		return e.size, err
	}
	dst.AllocSize = 64 << 10
	err = guarded(func() error { return bbolt.Compact(dst, src, 1<<20) })
	err = errors.Join(err, dst.Close())
	if err == nil {
		err = inspect(fresh)
	}
	info, serr := os.Stat(fresh)
	if err = errors.Join(err, serr); err != nil || info.Size() >= e.size {
		return e.size, errors.Join(err, os.Remove(fresh))
	}
	return info.Size(), os.Rename(fresh, path)
}

// Backup writes a store as a tar archive, while a gateway has it open or not. Unpacked into an empty folder, it is the
// store as it was.
func Backup(dir string, w io.Writer) error {
	d := folder(dir)
	list, err := d.List()
	if err != nil {
		return err
	}
	// The log comes first: what goes from there into history meanwhile is then in both, and counts once.
	slices.SortStableFunc(list, func(a, b entry) int {
		return cmp.Compare(cond(strings.HasPrefix(b.name, "log-")), cond(strings.HasPrefix(a.name, "log-")))
	})
	out := tar.NewWriter(w)
	for _, e := range list {
		var b bytes.Buffer
		_, _, isHistory := parseHistoryName(e.name)
		_, isLog := logSeq(e.name)
		switch {
		case isHistory:
			err = copyBolt(d.path(e.name), &b)
		case isLog || e.name == formatName:
			var text []byte
			text, err = d.Read(e.name)
			b.Write(text)
		default:
			continue
		}
		if errors.Is(err, os.ErrNotExist) {
			continue // it went into history, or was too old
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		head := &tar.Header{Name: e.name, Mode: 0o600, Size: int64(b.Len()), ModTime: time.Now(), Format: tar.FormatPAX}
		if err := out.WriteHeader(head); err != nil {
			return err
		}
		if _, err := out.Write(b.Bytes()); err != nil {
			return err
		}
	}
	return out.Close()
}

func cond(b bool) int {
	if b {
		return 1
	}
	return 0
}

// copyBolt writes a file as of one moment. One that is damaged is copied as it is.
func copyBolt(path string, w io.Writer) error {
	if err := inspect(path); err != nil {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: openTimeout})
	if err != nil {
		return err
	}
	defer db.Close()
	return guarded(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			_, err := tx.WriteTo(w)
			return err
		})
	})
}
