package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// disk is the folder of the store, as far as the log is concerned. Tests put another in its place, which stands still,
// is full, or remembers what was written since the last sync.
type disk interface {
	Create(name string) (file, error) // a file that is not there, to be appended to
	Read(name string) ([]byte, error)
	List() ([]entry, error)
	Remove(name string) error
	Rename(from, to string) error // also to what is there
	Sync() error                  // of the folder itself: what was created, removed and renamed
	Free() (free, total int64, err error)
}

// file is one that is being written.
type file interface {
	Write(b []byte) (int, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

// entry is a file of the folder.
type entry struct {
	name string
	size int64
}

// folder is a disk of the operating system.
type folder string

func (d folder) path(name string) string { return filepath.Join(string(d), name) }

func (d folder) Create(name string) (file, error) {
	f, err := os.OpenFile(d.path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d folder) Read(name string) ([]byte, error) { return os.ReadFile(d.path(name)) }

func (d folder) List() ([]entry, error) {
	list, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, e := range list {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // it went meanwhile, or is none of ours
		}
		out = append(out, entry{e.Name(), info.Size()})
	}
	return out, nil
}

func (d folder) Remove(name string) error {
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d folder) Rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }

func (d folder) Sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

func (d folder) Free() (free, total int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(string(d), &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}

// noSpace reports whether an error is about space alone: it may end by itself.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// ErrLocked is that another process writes the store.
var ErrLocked = errors.New("another process has the store open")

// lock makes this process the only one that writes the folder, until the file is closed.
func (d folder) lock() (*os.File, error) {
	f, err := os.OpenFile(d.path(lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, err
	}
	return f, nil
}

const lockName = "lock"
