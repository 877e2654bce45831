package subscription

import (
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/address"
)

// SetRights has all items of a client follow what its user may do from now on (Part 4, 5.13.2.1): one whose Value he may
// read no more reports BadUserAccessDenied and nothing of what waited; one that he may read again reports its Value.
func (c *Client) SetRights(rights address.Rights) {
	now := c.engine.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rights = rights
	for _, s := range c.subs.list {
		s.recheckAll(now)
	}
}

// recheckAll has the items follow the rights of the client that the Subscription belongs to.
func (s *Subscription) recheckAll(now int64) {
	for slot := range s.items {
		if s.items[slot].flags&used != 0 {
			s.recheck(uint32(slot), now)
		}
	}
	s.stale()
	s.schedule()
}

// recheck gives an item the way to its samples that its client's rights leave.
func (s *Subscription) recheck(slot uint32, now int64) {
	it := &s.items[slot]
	o := s.ownOf(it)
	switch {
	case o == nil:
		if n := it.series.Node(); n != nil && !readable(n, s.client.rights) {
			s.deny(slot, n, now)
		}
	case o.how == evented:
		s.recheckEvents(o)
	case o.how != polled:
		if n := o.series.Node(); n != nil && !readable(n, s.client.rights) {
			o.node = n
			s.denyOwn(o, now)
		}
	default:
		s.readAgain(slot, o, now)
	}
}

func readable(n *address.Node, rights address.Rights) bool {
	return rights.On(n)&address.MayRead != 0
}

// deny has an item without a queue of its own read its node, which tells the status.
func (s *Subscription) deny(slot uint32, n *address.Node, now int64) {
	it := &s.items[slot]
	if it.flags&sampling != 0 {
		s.end(slot)
	}
	set := s.settings.list[it.set].settings
	p := plan{node: n, attribute: ua.AttributeIDValue, set: set, queue: int(set.queue), how: polled}
	p.set.sampling = s.pollEvery(set.sampling)
	if !s.modifyToOwn(it, slot, &p) {
		it.flags &^= sampling | reporting // there is no memory to say so
		s.client.engine.cfg.Log.Warn("a monitored item is disabled: its user may read it no more, and there is no memory to tell the client", "client", s.client.name, "node", n.ID.String())
		return
	}
	s.pollNow(s.owns[it.cursor], now)
}

// denyOwn does the same for one that has a queue.
func (s *Subscription) denyOwn(o *own, now int64) {
	it := &s.items[o.slot]
	if it.flags&sampling != 0 {
		s.end(o.slot)
	}
	set := s.settings.list[o.set].settings
	set.sampling = s.pollEvery(set.sampling)
	if other, ok := s.settings.get(&set); ok {
		s.settings.put(o.set)
		o.set, it.set = other, other
	}
	s.detach(o)
	o.how, o.reserved, o.have = polled, 0, false
	s.pollNow(o, now)
}

func (s *Subscription) pollEvery(d time.Duration) time.Duration {
	return max(d, s.client.engine.cfg.MinPolling)
}

// pollNow has an item that reads its node do so at once.
func (s *Subscription) pollNow(o *own, now int64) {
	o.series, o.cursor = nil, 0
	o.due = max(now, 1)
	s.expect(o)
}

// readAgain looks at an item that reads its node: where that has a Series that may be read, the item goes by it.
func (s *Subscription) readAgain(slot uint32, o *own, now int64) {
	n := o.node
	if n == nil {
		return
	}
	if o.attribute != ua.AttributeIDValue || n.Manager == nil {
		o.due = max(now, 1)
		s.expect(o)
		return
	}
	series := n.Manager.Series(n)
	if series != nil && series.Node() != nil {
		o.node = series.Node() // the one that has taken its place
	}
	if series == nil || o.node.Access&ua.AccessLevelTypeCurrentRead == 0 || !readable(o.node, s.client.rights) {
		o.due = max(now, 1)
		s.expect(o)
		return
	}
	set := s.settings.list[o.set].settings
	p := plan{node: o.node, series: series, attribute: o.attribute, set: set}
	p.shape(s.client.engine, millis(set.sampling), s.interval, uint32(set.queue), !set.newest, o.ranged)
	o.how, o.series, o.have = p.how, series, false
	s.attach(o)
	s.watch(series.Block())
	s.begin(slot, now)
}
