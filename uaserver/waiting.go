package uaserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"edged/uaserver/wire"
)

// waiting is the requests of one session that wait for devices.
type waiting struct {
	mu    sync.Mutex // guards all below
	ended bool
	next  uint64
	calls map[uint64]waiter
}

type waiter struct {
	handle uint32
	cancel context.CancelCauseFunc
}

// errCancelled is the cause of a context that the Cancel service ended.
var errCancelled = errors.New("cancelled by the client")

// enter counts a request in, in all as well. It does so under the lock, so that nothing is added to all after cancelAll.
func (w *waiting) enter(handle uint32, limit int, cancel context.CancelCauseFunc, all *sync.WaitGroup) (key uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || len(w.calls) >= limit {
		return 0, false
	}
	if w.calls == nil {
		w.calls = map[uint64]waiter{}
	}
	all.Add(1)
	w.next++
	w.calls[w.next] = waiter{handle, cancel}
	return w.next, true
}

func (w *waiting) leave(key uint64) {
	w.mu.Lock()
	delete(w.calls, key)
	w.mu.Unlock()
}

// cancel ends the contexts of all requests with a handle, and returns how many there were.
func (w *waiting) cancel(handle uint32) (n uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if c.handle == handle {
			c.cancel(errCancelled)
			n++
		}
	}
	return n
}

// cancelAll ends all of them, and lets no more in.
func (w *waiting) cancelAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, c := range w.calls {
		c.cancel(errCancelled)
	}
}

// apart runs f in a goroutine of its own, because it waits for devices, with the client's TimeoutHint as its deadline,
// and then the answer that f returns. It reports false where too many wait already. f gets a call that lives as long as
// it needs; the bytes behind c.body are gone by then: keep, which runs before apart returns, copies what f needs of
// them.
func (s *Server) apart(c *call, keep func(ctx context.Context), f func(ctx context.Context, c *call) (answer func())) bool {
	limit := s.cfg.Limits.Request
	if h := time.Duration(c.header.TimeoutHint) * time.Millisecond; h > 0 && h < limit {
		limit = h
	}
	ctx, stop := context.WithTimeout(s.ctx, limit)
	ctx, cancel := context.WithCancelCause(ctx)
	end := func() {
		s.nWait.Add(-1)
		cancel(nil)
		stop()
	}
	if s.nWait.Add(1) > int64(s.cfg.Limits.WaitingAll) {
		end()
		return false
	}
	wait := &c.client.wait
	key, ok := wait.enter(c.header.Handle, s.cfg.Limits.Waiting, cancel, &s.waiting)
	if !ok {
		end()
		return false
	}
	leave := func() {
		wait.leave(key)
		end()
	}
	started := false
	defer func() {
		if !started { // keep panicked
			leave()
			s.waiting.Done()
		}
	}()
	keep(ctx)
	own := &call{s: s, ch: c.ch, id: c.id, header: c.header, client: c.client, typ: c.typ, row: c.row}
	own.header.AuditID, own.header.Token = "", wire.NodeID{} // they alias the connection's buffer
	started = true
	go func() {
		defer s.waiting.Done()
		defer s.contain(own.ch)
		answer := func() func() {
			defer leave() // before the answer: the client may send its next request at once
			return f(ctx, own)
		}()
		answer()
	}()
	return true
}
