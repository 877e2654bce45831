package subscription

import (
	"cmp"
	"slices"
)

// Diagnostics is what a Subscription tells of itself (Part 5, 12.15). Publishing is in milliseconds; counters only grow.
type Diagnostics struct {
	ID            uint32
	Session       uint32 // that it belongs to; 0: its session has ended
	Priority      uint8
	Publishing    float64
	KeepAlive     uint32 // MaxKeepAliveCount
	Lifetime      uint32 // MaxLifetimeCount
	Notifications uint32 // MaxNotificationsPerPublish; 0: no limit
	Enabled       bool

	Modified, Enables, Disables uint32 // requests that did so
	RepublishRequests           uint32
	Republished                 uint32 // messages
	TransferRequests            uint32
	ToOther, ToSame             uint32 // transfers to sessions of another client, and of the same
	Publishes                   uint32 // requests that it answered
	Sent                        uint64 // notifications
	Late, KeptAlive             uint32 // how often it became LATE, and KEEPALIVE
	LifetimeLeft                uint32 // LifetimeCounter
	Held                        int    // messages that were not acknowledged
	Evicted                     uint64 // messages given up before they were acknowledged
	Items, DisabledItems        int
	Overflowed                  uint64 // notifications lost to queues longer than one
	Next                        uint32 // sequence number
}

// tally is what only Diagnostics counts; guarded by the client's mu.
type tally struct {
	modified, enables, disables  uint32
	republishRequests, publishes uint32
	transferRequests             uint32
	toOther, toSame              uint32
	late, keptAlive              uint32
}

// enter counts a change of state.
func (t *tally) enter(was, to state) {
	switch {
	case was == to:
	case to == late:
		t.late++
	case to == keepAlive:
		t.keptAlive++
	}
}

// switched counts a SetPublishingMode.
func (t *tally) switched(enabled bool) {
	if enabled {
		t.enables++
	} else {
		t.disables++
	}
}

// SetSession tells which session the client belongs to, until Close.
func (c *Client) SetSession(id uint32) {
	c.mu.Lock()
	c.session = id
	c.mu.Unlock()
}

// Load is how many Subscriptions, MonitoredItems and waiting Publish requests the client has.
func (c *Client) Load() (subscriptions, items, requests int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subs.list {
		items += int(s.live)
	}
	return len(c.subs.list), items, c.queued
}

// Diagnostics appends those of all Subscriptions to dst, in the order of their ids. It takes each client's lock in turn.
func (e *Engine) Diagnostics(dst []Diagnostics) []Diagnostics {
	e.mu.Lock()
	clients := make([]*Client, 0, len(e.clients))
	for c := range e.clients {
		clients = append(clients, c)
	}
	e.mu.Unlock()
	for _, c := range clients {
		c.mu.Lock()
		for _, s := range c.subs.list {
			dst = append(dst, s.diagnostics())
		}
		c.mu.Unlock()
	}
	slices.SortFunc(dst, func(a, b Diagnostics) int { return cmp.Compare(a.ID, b.ID) })
	return dst
}

// diagnostics is called with the client's mu held.
func (s *Subscription) diagnostics() Diagnostics {
	n, m, _ := s.total(nil)
	d := Diagnostics{
		ID: s.id, Priority: s.priority, Publishing: millis(s.interval), KeepAlive: s.every, Lifetime: s.life,
		Notifications: s.asked, Enabled: s.enabled,
		Modified: s.tally.modified, Enables: s.tally.enables, Disables: s.tally.disables,
		RepublishRequests: s.tally.republishRequests, Republished: uint32(m.Republished),
		TransferRequests: s.tally.transferRequests, ToOther: s.tally.toOther, ToSame: s.tally.toSame,
		Publishes: s.tally.publishes, Sent: n.Sent, Late: s.tally.late, KeptAlive: s.tally.keptAlive,
		LifetimeLeft: s.lifetime, Held: len(s.held), Evicted: m.Evicted, Items: int(s.live),
		Overflowed: n.Overflowed + n.Exhausted, Next: s.following(),
	}
	if !s.client.closed {
		d.Session = s.client.session
	}
	for i := range s.items {
		if f := s.items[i].flags; f&used != 0 && f&sampling == 0 {
			d.DisabledItems++
		}
	}
	return d
}
