// Package subscription is the publish engine: Subscriptions and their MonitoredItems, pulled from the Series of the
// variables (Part 4, 5.13 and 5.14). It hides clocks, queues, cursors and retransmission, and counts all that it does.
package subscription

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"edged/drivers/tag"
	"edged/uaserver/address"
	events "edged/uaserver/event"
	"edged/uaserver/wire"
)

// Space is what the engine asks of an address space; address.Space is one.
type Space interface {
	// Read reads attributes; items carry their results.
	Read(ctx context.Context, rights address.Rights, items []address.ReadItem)
}

// Config is what an Engine is made of. Space has to be given; a zero field takes its default.
type Config struct {
	Space   Space
	EURange func(n *address.Node) (low, high float64, ok bool) // for percent deadbands; nil: no node has one
	Account tag.Account                                        // bytes of messages kept for Republish, and of items with queues of their own; nil: no limit
	Queues  tag.Account                                        // bytes of those queues, which are shorter when there are none left; nil: Account
	Events  *events.Hub                                        // whose events items watch; nil: there are none
	Log     *slog.Logger                                       // hears of losses; nil: nobody does

	Shards        int           // goroutines that publish; one a core
	Subscriptions int           // of all clients, 1,000
	Items         int           // MonitoredItems of all clients, 500,000
	Queue         int           // longest queue of an item, 10,000
	Raise         bool          // queues longer than one are made as long as the rate of their values needs
	MinPublishing time.Duration // shortest publishing interval, 10 ms
	MaxPublishing time.Duration // longest publishing and sampling interval, 1 h
	MaxKeepAlive  time.Duration // longest time between keep-alives, 1 h
	MaxLifetime   time.Duration // longest time that a Subscription lives without Publish requests, 24 h
	MinPolling    time.Duration // shortest sampling interval of a value that has no Series, 100 ms
	Requests      int           // Publish requests that one client may have waiting, 128
	Held          int           // messages that a Subscription keeps for Republish, twice Requests
	Message       int           // bytes of a response, above which the rest goes into the next one, 1 MiB
}

func (c *Config) defaults() {
	or(&c.Log, slog.New(slog.DiscardHandler))
	or(&c.Shards, runtime.GOMAXPROCS(0))
	or(&c.Subscriptions, 1000)
	or(&c.Items, 500_000)
	or(&c.Queue, 10_000)
	or(&c.MinPublishing, 10*time.Millisecond)
	or(&c.MaxPublishing, time.Hour)
	or(&c.MaxKeepAlive, time.Hour)
	or(&c.MaxLifetime, 24*time.Hour)
	or(&c.MinPolling, 100*time.Millisecond)
	or(&c.Requests, 128)
	or(&c.Held, 2*c.Requests)
	or(&c.Message, 1<<20)
	if c.EURange == nil {
		c.EURange = func(*address.Node) (low, high float64, ok bool) { return 0, 0, false }
	}
	if c.Account == nil {
		c.Account = &tag.Budget{}
	}
	if c.Queues == nil {
		c.Queues = c.Account
	}
}

func or[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// Engine publishes. Each client belongs to one of its shards; there is no lock and no clock that all of them share.
type Engine struct {
	cfg    Config
	start  time.Time // of the engine's clock, which a step of the wall clock does not move
	shards []*shard
	items  atomic.Int64 // MonitoredItems of all clients
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	moving   sync.Mutex // held while Subscriptions are transferred, before their clients' locks: only so does anybody hold two
	creating sync.Mutex // held while a Subscription is made, so that the room which was made for it is its own; taken before any client's lock

	mu      sync.Mutex // guards all below; taken when a client or a Subscription comes or goes
	subs    map[uint32]*Subscription
	clients map[*Client]struct{}
	placed  int    // clients ever made, for the choice of a shard
	created uint64 // Subscriptions ever made
	closed  bool
	moves   uint64 // how often a Subscription ended or went to another client
	retired account
}

// New starts an Engine.
func New(cfg Config) *Engine {
	cfg.defaults()
	e := &Engine{cfg: cfg, start: time.Now(), subs: make(map[uint32]*Subscription), clients: make(map[*Client]struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	for range cfg.Shards {
		sh := newShard(e)
		e.shards = append(e.shards, sh)
		e.done.Add(1)
		go sh.run()
	}
	return e
}

// now is the engine's clock in nanoseconds since its start.
func (e *Engine) now() int64 { return int64(time.Since(e.start)) }

// read has the address space read. Who supplies a value and panics gives BadInternalError: the goroutine that publishes
// for many clients does not end with one value.
func (e *Engine) read(ctx context.Context, rights address.Rights, items []address.ReadItem) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Log.Error("reading monitored values panicked", "panic", p, "stack", string(debug.Stack()))
			for i := range items {
				items[i].Result = wire.DataValue{Status: tag.BadInternalError, Server: tag.Now()}
			}
		}
	}()
	e.cfg.Space.Read(ctx, rights, items)
}

// Close ends all clients with their Subscriptions; waiting Publish requests are answered BadSessionClosed. It returns
// when the engine's goroutines have ended.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	clients := make([]*Client, 0, len(e.clients))
	for c := range e.clients {
		clients = append(clients, c)
	}
	e.mu.Unlock()
	for _, c := range clients {
		c.Close(true)
	}
	e.cancel()
	e.done.Wait()
}

// NewClient makes the publish side of a session.
func (e *Engine) NewClient() *Client {
	c := &Client{engine: e}
	e.mu.Lock()
	c.shard = e.shards[e.placed%len(e.shards)]
	e.placed++
	e.clients[c] = struct{}{}
	e.mu.Unlock()
	c.alarm.init(c.shard, c)
	return c
}

// Counts are how many Subscriptions there are, how many there ever were, and how many publishing intervals they have
// (Part 5, 12.9). It takes no client's lock.
func (e *Engine) Counts() (current int, created uint64, intervals int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	paces := make(map[int64]struct{})
	for _, s := range e.subs {
		paces[s.pace.Load()] = struct{}{}
	}
	return len(e.subs), e.created, len(paces)
}

// enter gives a Subscription its id, which nobody can guess: a client that asks for an id that it had from the process
// before must not meet another's. It fails when there are too many.
func (e *Engine) enter(s *Subscription) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.subs) >= e.cfg.Subscriptions {
		return false
	}
	for s.id == 0 || e.subs[s.id] != nil {
		var b [4]byte
		rand.Read(b[:])
		s.id = binary.LittleEndian.Uint32(b[:])
	}
	e.subs[s.id] = s
	e.created++
	return true
}

// find is a Subscription by its id, whosever it is, or nil.
func (e *Engine) find(id uint32) *Subscription {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.subs[id]
}

// makeRoom deletes a Subscription whose session has ended, the one that would expire first, if there are as many as there
// may be: nobody can ask for what it has, and its lifetime may be a day. It is called without any client's lock.
func (e *Engine) makeRoom() {
	e.mu.Lock()
	full := len(e.subs) >= e.cfg.Subscriptions
	var clients []*Client
	if full {
		clients = slices.Collect(maps.Keys(e.clients))
	}
	e.mu.Unlock()
	var of *Client
	var first *Subscription
	least := int64(math.MaxInt64)
	for _, c := range clients {
		c.mu.Lock()
		for _, s := range c.subs.list {
			if left := int64(s.lifetime) * int64(s.interval); c.closed && left < least {
				of, first, least = c, s, left
			}
		}
		c.mu.Unlock()
	}
	if first == nil {
		return
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.subs.find(first.id) != first { // it found another session meanwhile
		return
	}
	first.step(onDelete, e.now())
	of.rest()
}

// forget drops a client that is closed and has no Subscription left.
func (e *Engine) forget(c *Client) {
	e.mu.Lock()
	delete(e.clients, c)
	e.mu.Unlock()
}
