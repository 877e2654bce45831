package subscription

import (
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// DeleteItems deletes MonitoredItems (Part 4, 5.13.6).
func (c *Client) DeleteItems(sub uint32, ids []uint32, results []ua.StatusCode) ua.StatusCode {
	return c.eachItem(sub, ids, results, func(s *Subscription, slot uint32) { s.deleteItem(slot) })
}

// SetMode is SetMonitoringMode (Part 4, 5.13.4). An item that is disabled loses its queue; one that is enabled reports
// its value as if it were new (5.13.1.3).
func (c *Client) SetMode(sub uint32, mode ua.MonitoringMode, ids []uint32, results []ua.StatusCode) ua.StatusCode {
	if mode > ua.MonitoringModeReporting {
		return ua.StatusBadMonitoringModeInvalid
	}
	now := c.engine.now()
	return c.eachItem(sub, ids, results, func(s *Subscription, slot uint32) { s.setMode(slot, mode, now) })
}

func (s *Subscription) setMode(slot uint32, mode ua.MonitoringMode, now int64) {
	if len(s.triggers) > 0 {
		s.walk()
		s.fire()
	}
	it := &s.items[slot]
	was := it.flags
	if mode == ua.MonitoringModeDisabled && was&sampling != 0 {
		s.end(slot)
	}
	it.flags = it.flags&^(sampling|reporting) | modes[mode]
	if mode != ua.MonitoringModeSampling {
		it.flags &^= triggered
	}
	s.stale()
	if was&sampling != 0 || it.flags&sampling == 0 {
		return
	}
	s.begin(slot, now)
	if o := s.ownOf(it); o != nil && o.how == polled {
		o.due = max(now, 1)
		s.expect(o)
	}
}

// stale has the next tick look at every item, although no Series moved.
func (s *Subscription) stale() {
	for i := range s.blocks {
		s.blocks[i].at = ^uint64(0)
	}
}

// eachItem applies do to the items with those ids, as a service of the Subscription.
func (c *Client) eachItem(sub uint32, ids []uint32, results []ua.StatusCode, do func(s *Subscription, slot uint32)) ua.StatusCode {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.subs.find(sub)
	if s == nil {
		return ua.StatusBadSubscriptionIDInvalid
	}
	for i, id := range ids {
		results[i] = ua.StatusBadMonitoredItemIDInvalid
		if slot, ok := s.lookup(id); ok {
			results[i] = ua.StatusGood
			do(s, slot)
		}
	}
	s.step(onItems, c.engine.now())
	s.schedule()
	return ua.StatusGood
}

// ModifyItems changes MonitoredItems (Part 4, 5.13.3), one result each, and calls reply before any notification under a
// new client handle. The status returned is for a ServiceFault.
func (c *Client) ModifyItems(sub uint32, times ua.TimestampsToReturn, reqs []ModifyRequest,
	results []ItemResult, reply func()) ua.StatusCode {
	mask, ok := timesOf(times)
	if !ok {
		return ua.StatusBadTimestampsToReturnInvalid
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.subs.find(sub)
	if s == nil {
		return ua.StatusBadSubscriptionIDInvalid
	}
	now := c.engine.now()
	for i := range reqs {
		slot, ok := s.lookup(reqs[i].ID)
		if !ok {
			results[i] = ItemResult{Status: ua.StatusBadMonitoredItemIDInvalid}
			continue
		}
		results[i] = s.modify(slot, mask, &reqs[i], now)
	}
	s.stale()
	s.step(onItems, now)
	s.schedule()
	reply()
	return ua.StatusGood
}

// modify gives an item new settings. What waits in its queue stays, as far as the new size goes.
func (s *Subscription) modify(slot uint32, times uint8, r *ModifyRequest, now int64) ItemResult {
	it := &s.items[slot]
	o := s.ownOf(it)
	p := plan{node: s.nodeOf(slot), attribute: ua.AttributeIDValue, series: it.series}
	if o != nil {
		p.attribute, p.series = o.attribute, o.series
	}
	if o != nil && o.how == evented {
		return s.modifyEvents(it, o, r)
	}
	p.set.times = times
	if st := s.client.engine.filter(&p.set, p.node, p.attribute, r.FilterType, r.Filter); st != ua.StatusGood {
		return ItemResult{Status: st}
	}
	p.shape(s.client.engine, r.Sampling, s.interval, r.Queue, r.Oldest, o != nil && o.ranged)
	ok := true
	switch {
	case o == nil && p.plain:
		ok = s.modifyPlain(it, slot, &p)
	case o == nil:
		ok = s.modifyToOwn(it, slot, &p)
	default:
		ok = s.modifyOwn(it, o, &p)
	}
	if !ok {
		return ItemResult{Status: ua.StatusBadTooManyMonitoredItems}
	}
	it.handle = r.Handle
	if o := s.ownOf(it); o != nil {
		o.due = now + int64(p.set.sampling)
		s.expect(o)
	}
	return ItemResult{Sampling: millis(p.set.sampling), Queue: uint32(s.settings.list[it.set].queue)}
}

// modifyPlain changes an item that needs no queue of its own. What the shorter of the old and the new queue does not
// hold is lost now; the next message marks it.
func (s *Subscription) modifyPlain(it *item, slot uint32, p *plan) bool {
	old := int(s.settings.list[it.set].queue)
	s.client.bound(p, address.SlotBytes, placesOf(old))
	granted := p.reserve(it.series)
	p.set.queue = int32(granted)
	set, ok := s.settings.get(&p.set)
	if !ok {
		it.series.Release(granted)
		return false
	}
	keep := min(old, granted)
	if it.flags&sampling != 0 {
		waiting, lost := it.series.Behind(it.cursor, old)
		over := waiting - min(waiting, uint64(keep))
		it.cursor += lost + over
		s.lost(slot, lost, old)
		s.lost(slot, over, keep)
		if keep > 1 && lost+over > 0 {
			it.flags |= gapped
		}
	}
	if granted == 1 {
		it.flags &^= gapped
	}
	it.series.Release(old)
	s.reserved(placesOf(granted) - placesOf(old))
	s.settings.put(it.set)
	it.set = set
	return true
}

// modifyToOwn gives an item a queue of its own, with what its cursor has not passed yet.
func (s *Subscription) modifyToOwn(it *item, slot uint32, p *plan) bool {
	series, cursor, before := it.series, it.cursor, it.set
	past := s.passed(slot)
	old := int(s.settings.list[before].queue)
	var buf [64]tag.Sample
	if s.triggers[slot] != nil {
		s.fire() // by the count that the item had
	}
	if !s.createOwn(it, slot, p, "") {
		return false
	}
	o := s.owns[it.cursor]
	o.cursor, o.gap = cursor, it.flags&gapped != 0
	o.Counts, s.paths[slot] = past, path{mark: uint32(past.Queued), rate: s.paths[slot].rate}
	if int(slot) < len(s.tolls) {
		s.tolls[slot] = toll{evicted: s.tolls[slot].evicted}
	}
	it.flags &^= gapped
	it.series = nil
	if it.flags&sampling != 0 {
		set := &s.settings.list[o.set].settings
		if v, _, ok := series.Last(); ok && series.Head() == o.cursor { // what was sent last is what changes are judged against
			o.last, o.have = entry{v, v.At}, true
		}
		for series.Head() != o.cursor { // no filter was in force: all of it is queued
			got, lost := series.Take(&o.cursor, old, len(buf), buf[:0])
			o.New += uint64(len(got)) + lost
			o.Queued += uint64(len(got)) + lost
			s.lostOf(o, lost, old)
			o.gap = o.gap || lost > 0 && old > 1
			for i := range got {
				v := entry{got[i], got[i].At}
				o.last, o.have = v, true
				o.last.Status &^= address.Changed
				if o.gap && set.queue > 1 {
					v.Status |= overflow
				}
				o.gap = false
				o.push(v, set)
			}
		}
	}
	if t := s.triggers[slot]; t != nil {
		t.mark = o.Queued
	}
	series.Release(old)
	s.reserved(-placesOf(old))
	s.settings.put(before)
	return true
}

// hasten samples the items that were published no faster than they asked to be sampled, and now would be.
func (s *Subscription) hasten(now int64) {
	for slot := range s.items {
		it := &s.items[slot]
		if it.flags&used == 0 || it.flags&owned != 0 {
			continue
		}
		p := plan{node: it.series.Node(), series: it.series, attribute: ua.AttributeIDValue, set: s.settings.list[it.set].settings}
		set := &p.set
		if p.shape(s.client.engine, millis(set.sampling), s.interval, uint32(set.queue), true, false); p.how != sampled {
			continue
		}
		p.queue = p.asked // what was promised stays
		if s.modifyToOwn(it, uint32(slot), &p) {
			o := s.owns[it.cursor]
			o.due = now + int64(set.sampling)
			s.expect(o)
		}
	}
}

// modifyOwn changes an item that has a queue of its own; it keeps one.
func (s *Subscription) modifyOwn(it *item, o *own, p *plan) bool {
	if o.how == walked && it.flags&sampling != 0 {
		s.walkOne(o) // what has passed is judged by the settings under which it did
	}
	charged := o.charged
	s.client.bound(p, entryBytes, charged)
	p.set.queue = int32(p.reserveOwn(o))
	defer func() { s.reserved(o.charged - charged) }()
	set, ok := s.settings.get(&p.set)
	if !ok {
		o.reserve(int(s.settings.list[o.set].queue))
		return false
	}
	s.settings.put(o.set)
	o.set, it.set = set, set
	if o.how != p.how {
		s.detach(o)
		o.how = p.how
		s.attach(o)
	}
	o.shorten(&s.settings.list[set].settings)
	return true
}

// lost counts what a plain item lost.
func (s *Subscription) lost(slot uint32, lost uint64, queue int) {
	if lost == 0 {
		return
	}
	if t := s.toll(slot); queue > 1 {
		t.overflowed += lost
	} else {
		t.overwritten += lost
	}
	s.noteLoss(slot, lost, lost+uint64(queue), queue)
}

// lostOf counts what passed unseen by an item with a queue of its own.
func (s *Subscription) lostOf(o *own, lost uint64, queue int) {
	if lost == 0 {
		return
	}
	o.lose(lost, queue)
	s.noteLossOf(o, lost, queue)
}

// available reports whether any item has something to report (NotificationsAvailable). While no block of Series moved
// since there was nothing left, it looks no further.
func (s *Subscription) available() bool {
	s.walk()
	if len(s.triggers) > 0 && s.fire() {
		return true
	}
	for _, o := range s.owns {
		if o != nil && s.items[o.slot].flags&reports != 0 && o.waits() {
			return true
		}
	}
	moved := s.mixed
	for i := range s.blocks {
		b := &s.blocks[i]
		b.now = b.block.Changes()
		moved = moved || b.now != b.at
	}
	if !moved {
		return false
	}
	if s.waits() {
		return true
	}
	s.settle()
	return false
}

// settle notes that nothing was left when the blocks were last looked at.
func (s *Subscription) settle() {
	for i := range s.blocks {
		s.blocks[i].at = s.blocks[i].now
	}
}

// waits reports whether any item that takes from its Series, or its own queue, has something to report.
func (s *Subscription) waits() bool {
	for i := range s.items {
		it := &s.items[i]
		if it.flags&reports != 0 && s.hasNews(it) {
			return true
		}
	}
	return false
}

// hasNews reports whether an item has something queued.
func (s *Subscription) hasNews(it *item) bool {
	if it.flags&owned != 0 {
		return s.owns[it.cursor].waits()
	}
	return it.series.Head() != it.cursor
}

// appendData appends a NotificationMessage with what the items have, at most s.room notifications and limit
// bytes, and sets s.more if something stayed. Items take turns: the next message begins where this one ended.
func (s *Subscription) appendData(dst []byte, at tag.Time, limit int) ([]byte, int) {
	return s.fill(openMessage(dst, s.sequence, at), limit)
}

var _ address.Waker = (*Subscription)(nil)
