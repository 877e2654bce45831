package subscription

import (
	"slices"

	"github.com/gopcua/opcua/ua"
)

// Owner is whom a session acts for, as far as a transfer asks (Part 4, 5.14.7.1).
type Owner struct {
	User        string // empty: anonymous
	Application string // ApplicationUri
	Signed      bool   // the channel's mode is Sign or SignAndEncrypt
}

// mayTake reports whether a session of o may take over what belongs to one of from: it is the same user's, or both are
// anonymous, of one application, whose name the certificates of signed channels prove.
func (o Owner) mayTake(from Owner) bool {
	if o.User != "" || from.User != "" {
		return o.User == from.User
	}
	return o.Signed && from.Signed && o.Application == from.Application
}

// SetOwner tells whom the session acts for.
func (c *Client) SetOwner(o Owner) {
	c.mu.Lock()
	c.owner = o
	c.mu.Unlock()
}

// TransferResult is what became of a Subscription that was to be transferred.
type TransferResult struct {
	Status    ua.StatusCode
	Available []uint32 // AvailableSequenceNumbers
}

// Available is how many messages Subscriptions keep for Republish, all together: what results of their transfer have to
// hold.
func (e *Engine) Available(ids []uint32) (n int) {
	for _, id := range ids {
		if s := e.find(id); s != nil {
			c := s.lock()
			n += len(s.held)
			c.mu.Unlock()
		}
	}
	return n
}

// Transfer takes over Subscriptions of other sessions (Part 4, 5.14.7), one result each, and calls reply before anything
// of them is published. With initial, what their items sent last is sent again. The status returned, Good or
// BadSessionClosed, is for a ServiceFault; those of results are Good, BadSubscriptionIdInvalid, BadUserAccessDenied, and
// BadNothingToDo for what the session has already.
func (c *Client) Transfer(ids []uint32, initial bool, results []TransferResult, reply func()) ua.StatusCode {
	e := c.engine
	now := e.now()
	e.moving.Lock()
	defer e.moving.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ua.StatusBadSessionClosed
	}
	for i, id := range ids {
		results[i] = c.takeOver(id, initial, now)
	}
	reply()
	c.serve(now)
	return ua.StatusGood
}

// takeOver transfers one Subscription. The client's mu is held, and Engine.moving.
func (c *Client) takeOver(id uint32, initial bool, now int64) TransferResult {
	s := c.engine.find(id)
	if s == nil {
		return TransferResult{Status: ua.StatusBadSubscriptionIDInvalid}
	}
	from := s.home.Load() // stays what it is: transfers go one by one
	if from == c {
		s.stepWith(onTransfer, facts{}, now)
		return TransferResult{Status: ua.StatusBadNothingToDo}
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if s.state == closed {
		return TransferResult{Status: ua.StatusBadSubscriptionIDInvalid}
	}
	s.tally.transferRequests++
	do := s.stepWith(onTransfer, facts{changed: true, validated: c.owner.mayTake(from.owner)}, now)
	if do&setSession == 0 {
		return TransferResult{Status: ua.StatusBadUserAccessDenied}
	}
	if c.owner.Application == from.owner.Application {
		s.tally.toSame++
	} else {
		s.tally.toOther++
	}
	s.move(from, c)
	if c.rights != from.rights {
		s.recheckAll(now)
	}
	from.serve(now)
	from.rest()
	if initial {
		s.resend()
	}
	r := TransferResult{Available: make([]uint32, len(s.held))}
	for i := range s.held {
		r.Available[i] = s.held[i].sequence
	}
	return r
}

// move makes the Subscription another client's, and perhaps another shard's. Both clients' mu are held.
func (s *Subscription) move(from, to *Client) {
	s.alarm.move(to.shard)
	from.subs.remove(s)
	s.client = to
	s.home.Store(to)
	to.subs.add(s)
	for i := range s.held {
		from.kept -= s.held[i].charged
		to.kept += s.held[i].charged
	}
	from.queues -= s.queues
	to.queues += s.queues
	e := to.engine
	e.mu.Lock()
	e.moves++
	e.mu.Unlock()
	s.schedule()
}

// find is a Subscription of the client's, or why it is not to be had by a method of the Server object (Part 5, 9.1, 9.2).
func (c *Client) find(id uint32) (*Subscription, ua.StatusCode) {
	if s := c.subs.find(id); s != nil {
		return s, ua.StatusGood
	}
	if c.engine.find(id) != nil {
		return nil, ua.StatusBadUserAccessDenied
	}
	return nil, ua.StatusBadSubscriptionIDInvalid
}

// Resend is the method ResendData (Part 5, 9.2): the items that report, and have nothing queued, send once more what they
// sent last. The status is Good, BadSubscriptionIdInvalid, or BadUserAccessDenied for another session's Subscription.
func (c *Client) Resend(sub uint32) ua.StatusCode {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, code := c.find(sub)
	if code == ua.StatusGood {
		s.resend()
		s.step(onItems, c.engine.now())
	}
	return code
}

// resend queues what was sent last for items that have nothing queued (Part 4, 5.14.7.2). It counts as new, but triggers
// nothing.
func (s *Subscription) resend() {
	s.walk()
	s.fire()
	for slot := range s.items {
		it := &s.items[slot]
		if it.flags&used == 0 || it.flags&reporting == 0 {
			continue
		}
		if o := s.ownOf(it); o != nil {
			s.repeat(o)
		} else if it.cursor > 0 && it.series.Head() == it.cursor {
			it.cursor--
			s.paths[slot].origin--
			it.flags |= fresh
		}
	}
	for slot, t := range s.triggers {
		t.mark = s.queuedEver(&s.items[slot])
	}
	s.stale()
}

// repeat queues the last entry of an item's own queue again, if the queue is empty.
func (s *Subscription) repeat(o *own) {
	if o.count > 0 || !o.have { // events are not sent again
		return
	}
	v := o.last
	if o.series != nil {
		v.server = knownAt(o.series, &v.Sample)
	}
	o.New++
	o.Queued++
	o.push(v, &s.settings.list[o.set].settings)
}

// Items is the method GetMonitoredItems (Part 5, 9.1): the ids of a Subscription's items, and the handles that the client
// gave them. The status is Good, BadSubscriptionIdInvalid, BadUserAccessDenied for another session's Subscription, or
// BadResponseTooLarge where there are more than most.
func (c *Client) Items(sub uint32, most int) (ids, handles []uint32, code ua.StatusCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, code := c.find(sub)
	switch {
	case code != ua.StatusGood:
		return nil, nil, code
	case int(s.live) > most:
		return nil, nil, ua.StatusBadResponseTooLarge
	}
	ids, handles = slices.Grow(ids, int(s.live)), slices.Grow(handles, int(s.live))
	for slot := range s.items {
		if it := &s.items[slot]; it.flags&used != 0 {
			ids = append(ids, it.id(uint32(slot)))
			handles = append(handles, it.handle)
		}
	}
	s.step(onItems, c.engine.now())
	return ids, handles, ua.StatusGood
}
