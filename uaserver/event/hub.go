package event

import (
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// Hub takes events from whoever raises them, and gives them to whoever watches. Raising appends to a bounded list; one
// goroutine evaluates the filters, once each. It is safe for concurrent use.
type Hub struct {
	space   *address.Space
	account tag.Account
	log     *slog.Logger
	wake    chan struct{} // holds one: there are events
	stop    chan struct{}
	done    chan struct{}

	mu      sync.Mutex // guards all below; no other lock is taken while it is held
	pending []*Event
	dropped uint64 // since the feeds were last told
	lost    uint64 // dropped, ever
	raised  uint64
	prefix  [8]byte // of EventIds
	feeds   map[key]*Feed
	list    []*Feed // of feeds; replaced as a whole
	closed  bool
	audited atomic.Bool // somebody watches who may see what concerns security
	idle    *sync.Cond  // the list of events was taken, or has been worked through
	busy    bool
}

// What a Hub holds at most. maxPending events are two seconds of what the gateway carries; a thousand distinct filters, of
// a hundred elements each, still let ten thousand events a second through a core where they are alike.
const (
	maxPending = 1 << 15
	maxFeeds   = 1000
	feedBytes  = 1024 // of an account: a Feed and its plan, beside its body
)

// New starts a Hub. The account is charged with the events that wait for clients; nil: no limit.
func New(space *address.Space, account tag.Account, log *slog.Logger) *Hub {
	if account == nil {
		account = &tag.Budget{}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h := &Hub{
		space: space, account: account, log: log, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		done: make(chan struct{}), feeds: map[key]*Feed{},
	}
	h.idle = sync.NewCond(&h.mu)
	rand.Read(h.prefix[:])
	go h.run()
	return h
}

// Close ends the Hub; what was raised and not given out yet is dropped. It may be called twice.
func (h *Hub) Close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.stop)
	}
	h.idle.Broadcast()
	h.mu.Unlock()
	<-h.done
}

// Raise takes an event. It never waits; false: there are too many already, and the event is lost to everybody, who is told
// by an EventQueueOverflowEvent.
func (h *Hub) Raise(e *Event) bool {
	h.mu.Lock()
	ok := h.put(e)
	h.mu.Unlock()
	h.stir()
	return ok
}

// RaiseAll takes events as fast as they are worked off, for who can wait.
func (h *Hub) RaiseAll(events []*Event) {
	for len(events) > 0 {
		h.mu.Lock()
		for len(h.pending) >= maxPending/2 && !h.closed {
			h.idle.Wait()
		}
		for n := 0; len(events) > 0 && len(h.pending) < maxPending/2 && n < 256; n++ {
			h.put(events[0])
			events = events[1:]
		}
		if h.closed {
			events = nil
		}
		h.mu.Unlock()
		h.stir()
	}
}

// put is called with mu held.
func (h *Hub) put(e *Event) bool {
	if h.closed {
		return false
	}
	if len(h.pending) >= maxPending {
		h.dropped++
		h.lost++
		return false
	}
	h.name(e)
	h.pending = append(h.pending, e)
	return true
}

// name gives an event its EventId and its ReceiveTime.
func (h *Hub) name(e *Event) {
	h.raised++
	copy(e.id[:], h.prefix[:])
	binary.BigEndian.PutUint64(e.id[8:], h.raised)
	e.receive = tag.Now()
	if e.Time == 0 {
		e.Time = e.receive
	}
}

func (h *Hub) stir() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Audited reports whether anybody watches who may see audit events: for who would have to work for them.
func (h *Hub) Audited() bool { return h.audited.Load() }

// Space is the address space whose types events have.
func (h *Hub) Space() *address.Space { return h.space }

// Stats are counters of a Hub.
type Stats struct {
	Raised uint64 // events taken
	Lost   uint64 // events that came too fast
	Feeds  int    // distinct filters
}

// Stats returns the counters.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{h.raised, h.lost, len(h.feeds)}
}

// Settle waits until everything that was raised has been given out.
func (h *Hub) Settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for (len(h.pending) > 0 || h.busy) && !h.closed {
		h.idle.Wait()
	}
}

// run gives out events until the Hub is closed.
func (h *Hub) run() {
	defer close(h.done)
	var batch []*Event
	for {
		select {
		case <-h.stop:
			return
		case <-h.wake:
		}
		for {
			h.mu.Lock()
			clear(batch)
			batch, h.pending = h.pending, batch[:0]
			dropped, feeds := h.dropped, h.list
			h.dropped = 0
			h.busy = len(batch) > 0
			h.idle.Broadcast()
			h.mu.Unlock()
			if len(batch) == 0 && dropped == 0 {
				break
			}
			h.give(batch, feeds)
			if dropped > 0 {
				for _, f := range feeds {
					f.miss(dropped)
				}
				h.log.Warn("events came too fast and are lost", "events", dropped)
			}
		}
	}
}

// give appends events to the feeds that they pass.
func (h *Hub) give(batch []*Event, feeds []*Feed) {
	var notifiers []wire.NodeID
	var source *address.Node
	known := false
	for _, e := range batch {
		if !known || e.Source != source {
			source, known = e.Source, true
			notifiers = h.notifiers(source, notifiers[:0])
		}
		for _, f := range feeds {
			if f.shows(e) && f.of(notifiers) && f.filter.Passes(e) {
				f.append(f.filter.Append(make([]byte, 0, f.size()), e))
			}
		}
	}
}

// maxNotifiers ends the walk up from an event's source.
const maxNotifiers = 32

// notifiers are the objects that report the events of a source (Part 3, 4.7): the Server object, the source itself, and
// what is above it by HasEventSource or HasNotifier, or has it as a part.
func (h *Hub) notifiers(source *address.Node, dst []wire.NodeID) []wire.NodeID {
	dst = append(dst, serverID)
	if source == nil {
		return dst
	}
	up := []*address.Node{source}
	for i := 0; i < len(up) && i < maxNotifiers; i++ {
		if up[i].EventNotifier&1 != 0 {
			dst = append(dst, up[i].ID)
		}
		h.space.References(up[i], func(kind *address.Node, inverse bool, target *address.Node) bool {
			if inverse && target.Class == ua.NodeClassObject && h.space.IsSubtype(kind.ID, hierarchical) && len(up) < maxNotifiers {
				up = append(up, target)
			}
			return true
		})
	}
	return dst
}

// overflowEvent is what a client gets that lost events (Part 5, 6.4.17).
func (h *Hub) overflowEvent() *Event {
	e := &Event{
		Type: wire.NumericID(0, id.EventQueueOverflowEventType), Severity: 500,
		Message: "events were lost: the queue of the monitored item is too short, or it is published too seldom",
	}
	h.mu.Lock()
	h.name(e)
	h.mu.Unlock()
	return e
}
