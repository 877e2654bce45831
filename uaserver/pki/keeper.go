package pki

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// keepLook is how often a Keeper looks at its files. What has changed is taken at the look after, when it is the same
// still: a renewal changes one file after the other.
const keepLook = 2 * time.Second

// Keeper keeps the own certificate as its files have it: one that was renewed or replaced is taken while the gateway runs.
type Keeper struct {
	dir string
	id  Identity
	log *slog.Logger
	own atomic.Pointer[Own]

	// Owned by Watch.
	seen [2]fs.FileInfo // certificate and key, as they were at the last look; nil: not there
	due  bool           // they had changed then
}

// Keep opens the own certificate as Open does.
func Keep(dir string, id Identity, log *slog.Logger) (*Keeper, error) {
	if log == nil {
		log = slog.Default()
	}
	k := &Keeper{dir: filepath.Join(dir, OwnFolder), id: id, log: log}
	own, err := Open(dir, id, log)
	if err != nil {
		return nil, err
	}
	k.own.Store(own)
	k.changed()
	return k, nil
}

// Own is the certificate as it is now.
func (k *Keeper) Own() *Own { return k.own.Load() }

// Watch takes what the files become, and warns about the certificate's end as Own.Watch does, until ctx ends.
func (k *Keeper) Watch(ctx context.Context) {
	tick := time.NewTicker(keepLook)
	defer tick.Stop()
	told := k.Own().tellEnd(0, k.log)
	next := time.Now().Add(endLook)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if k.look() {
			told, next = 0, time.Time{}
		}
		if now := time.Now(); now.After(next) {
			told, next = k.Own().tellEnd(told, k.log), now.Add(endLook)
		}
	}
}

// look takes another certificate, if there is one, and reports whether it did.
func (k *Keeper) look() bool {
	if k.changed() {
		k.due = true
		return false
	}
	if !k.due {
		return false
	}
	k.due = false
	own, err := load(k.dir)
	was := k.Own()
	switch {
	case err != nil:
		k.log.Error("own certificate was changed and is not taken: the one of before is used until the files are right", "error", err)
		return false
	case own.thumbprint == was.thumbprint:
		return false
	}
	k.own.Store(own)
	k.log.Info("own certificate was changed: new channels get it, and clients have to trust it", "thumbprint", own.thumbprint, "before", was.thumbprint, "end", own.cert.NotAfter)
	own.warn(k.id, time.Now(), k.log)
	return true
}

// changed notes how the files are, and reports whether they were otherwise at the last look.
func (k *Keeper) changed() (yes bool) {
	for i, name := range []string{certFile, keyFile} {
		was := k.seen[i]
		now, err := os.Stat(filepath.Join(k.dir, name))
		if err != nil {
			now = nil
		}
		same := was == nil && now == nil ||
			was != nil && now != nil && os.SameFile(was, now) && was.Size() == now.Size() && was.ModTime().Equal(now.ModTime())
		yes = yes || !same
		k.seen[i] = now
	}
	return yes
}
