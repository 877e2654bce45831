package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"edged/drivers/memory"
	"edged/drivers/tag"
	"edged/store"
	"edged/uaserver/tagspace"
)

// storeFolder is the store in the data folder.
const storeFolder = "store"

// recorder gives what was read to the clients and to the store, and brings back what the store kept.
type recorder struct {
	tags  tag.Sink     // the clients' side
	store *store.Store // nil: there is none, as the log has told
	fault error        // why

	waiting  atomic.Int32 // length of restored
	mu       sync.Mutex   // guards restored
	restored map[tag.Ref]bool
}

// openRecorder opens the store of a data folder. Without one the gateway works all the same: fields are read and clients
// are served, which a store never stands in the way of.
func openRecorder(s *site, data string, table *tag.Table, log *slog.Logger) *recorder {
	r := &recorder{restored: map[tag.Ref]bool{}}
	st, err := store.Open(store.Config{
		Dir: filepath.Join(data, storeFolder), Retention: s.Store.Retention, MaxSize: s.Store.MaxSize, Commit: s.Store.Commit, Log: log,
	})
	if err != nil {
		log.Error("the gateway works without its store: no history, and nothing outlives a restart", "error", err)
		r.fault = err
		return r
	}
	r.store = st
	r.apply(table)
	return r
}

// log is where clients read history; nil: there is none.
func (r *recorder) log() tagspace.Log {
	if r.store == nil {
		return nil
	}
	return r.store
}

// start has the store write.
func (r *recorder) start() {
	if r.store != nil {
		r.store.Start()
	}
}

// apply tells the store which tags there are, those aside of which it has nothing to keep.
func (r *recorder) apply(table *tag.Table) {
	if r.store == nil {
		return
	}
	var tags []store.Tag
	for ref, t := range table.All() {
		if !t.History && !t.Retain && !lastValueKept(t) {
			continue
		}
		tags = append(tags, store.Tag{Ref: ref, Name: t.FullName(), History: t.History, Deadband: t.Deadband, Retain: t.Retain})
	}
	r.store.Apply(tags)
}

// lastValueKept reports whether a tag shows its last value after a restart until its device has answered.
func lastValueKept(t *tag.Tag) bool { return !t.Memory && t.Access&tag.Readable != 0 }

// bringBack gives tags their last values: the retained ones as they were, and those of devices as uncertain until their
// device has answered. It is for all tags, or for those that are new alone, of which there may be none.
func (r *recorder) bringBack(table *tag.Table, f *field, all bool, added []tag.Ref) {
	if r.store == nil {
		return
	}
	fresh := make(map[tag.Ref]bool, len(added))
	for _, ref := range added {
		fresh[ref] = true
	}
	var uncertain []tag.Sample
	for _, v := range r.store.Last() {
		t := table.Tag(v.Ref)
		switch {
		case t == nil || !all && !fresh[v.Ref]:
		case t.Retain:
			if d, ok := f.devices[t.Device].Immediate.(*memory.Device); ok {
				d.Restore(v) // not one of another type
			}
		case lastValueKept(t):
			v.Status = tag.UncertainNoCommunicationLastUsableValue
			uncertain = append(uncertain, v)
		}
	}
	if len(uncertain) == 0 {
		return
	}
	r.tags.Publish(uncertain)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range uncertain {
		r.restored[v.Ref] = true
	}
	r.waiting.Store(int32(len(r.restored)))
}

// Publish implements tag.Sink.
func (r *recorder) Publish(batch []tag.Sample) {
	if r.waiting.Load() == 0 {
		r.tags.Publish(batch)
	} else {
		r.tags.Publish(r.answered(batch))
	}
	if r.store != nil {
		r.store.Publish(batch)
	}
}

// answered leaves out that a device does not answer while it has not since the start and its tag shows the last value.
func (r *recorder) answered(batch []tag.Sample) []tag.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]tag.Sample, 0, len(batch))
	for i := range batch {
		v := &batch[i]
		if r.restored[v.Ref] {
			if v.Status == tag.BadNoCommunication {
				continue
			}
			delete(r.restored, v.Ref)
		}
		out = append(out, *v)
	}
	r.waiting.Store(int32(len(r.restored)))
	return out
}

// Commit returns when the values of retained tags that were published are on the disk.
func (r *recorder) Commit(ctx context.Context) error {
	if r.store == nil {
		return r.fault
	}
	return r.store.Commit(ctx)
}

// stats is how the store does.
func (r *recorder) stats() store.Stats {
	if r.store == nil {
		return store.Stats{Fault: r.fault}
	}
	return r.store.Stats()
}

// close commits what there is and closes the store, until ctx ends.
func (r *recorder) close(ctx context.Context) error {
	if r.store == nil {
		return nil
	}
	err := r.store.Close(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("the disk of the store does not answer")
	}
	return err
}
