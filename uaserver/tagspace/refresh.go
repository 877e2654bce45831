package tagspace

import (
	"context"
	"sync"
	"time"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// freshness is how old a value may always be, whatever maxAge a reader asks for.
const freshness = time.Second

// Stale reports whether an item was answered with a value that its reader finds too old: verified longer ago than the
// larger of his maxAge and one second. What lives in the gateway, or cannot be read, is never stale.
func (s *Space) Stale(it *address.ReadItem, now tag.Time) bool {
	sl := s.slot(it.Node.Ref)
	if sl.def == nil || it.Node.Token != 0 || sl.def.Memory || sl.def.Access&tag.Readable == 0 || s.field == nil {
		return false
	}
	return now.Sub(it.Result.Server) > max(it.MaxAge, freshness)
}

// Refresh reads the tags of the stale items from their devices. It returns after the readings were published, or when
// ctx ends. Readers of one tag share one reading.
func (s *Space) Refresh(ctx context.Context, items []address.ReadItem) {
	now := tag.Now()
	var refs []tag.Ref
	for i := range items {
		if it := &items[i]; it.Node != nil && it.Node.Manager == address.NodeManager(s) && s.Stale(it, now) {
			refs = append(refs, it.Node.Ref)
		}
	}
	for _, f := range s.refresh.start(s, refs) {
		select {
		case <-f.done:
		case <-ctx.Done():
			return
		}
	}
}

// refreshes are the readings under way.
type refreshes struct {
	ctx    context.Context // ends with close
	cancel context.CancelFunc

	mu      sync.Mutex // guards all below
	flying  map[tag.Ref]*flight
	closed  bool
	running sync.WaitGroup // added to with mu held
}

// flight is one reading of some tags. It outlives the reader who began it, because others may wait for it as well.
type flight struct{ done chan struct{} }

func (r *refreshes) init() {
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.flying = map[tag.Ref]*flight{}
}

// start returns the flights that bring refs: those under way, and one more for the others.
func (r *refreshes) start(s *Space, refs []tag.Ref) (all []*flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	own := &flight{done: make(chan struct{})}
	var mine []tag.Ref
	joined := map[*flight]bool{own: true}
	for _, ref := range refs {
		f := r.flying[ref]
		if f == nil {
			r.flying[ref] = own
			mine = append(mine, ref)
		} else if !joined[f] {
			joined[f] = true
			all = append(all, f)
		}
	}
	if len(mine) == 0 {
		return all
	}
	r.running.Add(1)
	go r.fly(s, own, mine)
	return append(all, own)
}

func (r *refreshes) fly(s *Space, f *flight, refs []tag.Ref) {
	defer r.running.Done()
	ctx, stop := context.WithTimeout(r.ctx, s.cfg.Refresh)
	defer stop()
	s.field.Refresh(ctx, refs) // what failed was published as a bad status
	r.mu.Lock()
	for _, ref := range refs {
		delete(r.flying, ref)
	}
	r.mu.Unlock()
	close(f.done)
}

func (r *refreshes) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.running.Wait()
}
