package subscription

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"

	"edged/uaserver/address"
)

// shard is one goroutine with a clock for the clients that belong to it.
type shard struct {
	engine *Engine
	latency
	wake chan struct{} // holds one: look at the heap again

	// Owned by the shard's goroutine.
	due   []*alarm
	reads []address.ReadItem
	polls []*own
	lines []line
	talk  talk

	mu     sync.Mutex // guards all below; nothing else is locked while it is held
	alarms alarms
	until  int64 // when the goroutine looks again; 0 while it works
}

func newShard(e *Engine) *shard { return &shard{engine: e, wake: make(chan struct{}, 1)} }

// alarm is a place in a shard's heap: the next time that its owner has something to do.
type alarm struct {
	shard atomic.Pointer[shard] // changes while the mu of the shard before is held
	owner ringer
	woken atomic.Bool // ring as soon as possible

	// Guarded by shard.mu.
	at       int64
	priority uint8 // the higher first, of alarms at the same time
	pos      int   // in the heap; -1: not there
}

// ringer is who has an alarm. It is called in the goroutine of the shard that it had when the alarm went off.
type ringer interface{ ring(sh *shard, now int64) }

func (a *alarm) init(sh *shard, owner ringer) {
	a.shard.Store(sh)
	a.owner, a.pos = owner, -1
}

// lock locks the shard that the alarm belongs to, and returns it.
func (a *alarm) lock() *shard {
	for {
		sh := a.shard.Load()
		sh.mu.Lock()
		if a.shard.Load() == sh {
			return sh
		}
		sh.mu.Unlock()
	}
}

// move gives the alarm to another shard, in which it is not set.
func (a *alarm) move(to *shard) {
	sh := a.lock()
	if a.pos >= 0 {
		heap.Remove(&sh.alarms, a.pos)
	}
	a.shard.Store(to)
	sh.mu.Unlock()
}

// set has the alarm ring at that time, once.
func (a *alarm) set(at int64) {
	sh := a.lock()
	if a.woken.Load() {
		at = 0
	}
	a.at = at
	if a.pos >= 0 {
		heap.Fix(&sh.alarms, a.pos)
	} else {
		heap.Push(&sh.alarms, a)
	}
	early := at < sh.until
	sh.mu.Unlock()
	if early {
		sh.stir()
	}
}

// stop takes the alarm out of the heap.
func (a *alarm) stop() {
	sh := a.lock()
	if a.pos >= 0 {
		heap.Remove(&sh.alarms, a.pos)
	}
	sh.mu.Unlock()
}

// wakeUp has the alarm ring as soon as possible.
func (a *alarm) wakeUp() {
	if a.woken.CompareAndSwap(false, true) {
		a.set(0)
	}
}

func (sh *shard) stir() {
	select {
	case sh.wake <- struct{}{}:
	default:
	}
}

// run rings alarms until the engine is closed.
func (sh *shard) run() {
	defer sh.engine.done.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := sh.engine.now()
		wait := sh.collect(now)
		for i, a := range sh.due {
			a.owner.ring(sh, now)
			sh.due[i] = nil
		}
		if len(sh.due) > 0 {
			sh.speak(now)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-sh.wake:
		case <-sh.engine.ctx.Done():
			return
		}
	}
}

// collect moves what is due into sh.due, in order of time and priority, and tells how long to wait if nothing is.
func (sh *shard) collect(now int64) time.Duration {
	sh.due = sh.due[:0]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for len(sh.alarms) > 0 && sh.alarms[0].at <= now {
		sh.due = append(sh.due, heap.Pop(&sh.alarms).(*alarm))
	}
	sh.until = 0
	if len(sh.due) > 0 {
		return 0
	}
	sh.until = now + int64(time.Hour)
	if len(sh.alarms) > 0 {
		sh.until = sh.alarms[0].at
	}
	return time.Duration(sh.until - now)
}

// alarms is a heap by time, then priority.
type alarms []*alarm

func (h alarms) Len() int { return len(h) }
func (h alarms) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].priority > h[j].priority
}
func (h alarms) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}
func (h *alarms) Push(x any) {
	a := x.(*alarm)
	a.pos = len(*h)
	*h = append(*h, a)
}
func (h *alarms) Pop() any {
	old := *h
	a := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	a.pos = -1
	return a
}
