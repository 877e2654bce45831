package subscription

import (
	"encoding/binary"
	"math"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/uaserver/address"
	events "edged/uaserver/event"
	"edged/uaserver/wire"
)

// An item that watches events is an own whose queue is a Tap: a cursor into the events that its filter lets through, which
// all items with the same filter share. What is sent is counted in its Counts; what waits, and what was lost since, is
// asked of the Tap.

// defaultEvents is the queue of an item that leaves it to the server (Part 4, 7.21): the size that holds ten seconds of a
// hundred events each.
const defaultEvents = 1000

// planEvents decides what an event item will be.
func (e *Engine) planEvents(r *ItemRequest, rights address.Rights) (p plan) {
	p.node, p.attribute, p.how = r.Node, r.Attribute, evented
	switch {
	case e.cfg.Events == nil, p.node.EventNotifier&1 == 0:
		p.status = ua.StatusBadNotSupported
	case r.Mode > ua.MonitoringModeReporting:
		p.status = ua.StatusBadMonitoringModeInvalid
	case rights.On(p.node)&address.MayRead == 0:
		p.status = ua.StatusBadUserAccessDenied
	case r.Range != "":
		p.status = ua.StatusBadIndexRangeInvalid
	default:
		p.events, p.result, p.status = e.eventFilter(r.FilterType, r.Filter)
	}
	e.shapeEvents(&p.set, r.Queue, r.Oldest)
	return p
}

// eventFilter reads the filter that an event item has to have.
func (e *Engine) eventFilter(kind wire.NodeID, body []byte) (*events.Filter, []byte, ua.StatusCode) {
	switch kind {
	case wire.NumericID(0, id.EventFilter_Encoding_DefaultBinary):
		f, res := events.Parse(e.space(), body)
		return f, res.Body(), res.Status
	case wire.NodeID{}:
		return nil, nil, ua.StatusBadEventFilterInvalid
	case wire.NumericID(0, id.DataChangeFilter_Encoding_DefaultBinary), wire.NumericID(0, id.AggregateFilter_Encoding_DefaultBinary):
		return nil, nil, ua.StatusBadFilterNotAllowed
	}
	return nil, nil, ua.StatusBadMonitoredItemFilterInvalid
}

func (e *Engine) space() *address.Space { return e.cfg.Events.Space() }

// shapeEvents revises the queue size. 0 leaves it to the server (Part 4, 7.21).
func (e *Engine) shapeEvents(set *settings, queue uint32, oldest bool) {
	most := uint32(min(e.cfg.Queue, math.MaxInt32))
	if queue == 0 {
		queue = min(defaultEvents, most)
	}
	*set = settings{queue: int32(min(queue, most)), newest: !oldest}
}

// createEvents makes an event item of a plan.
func (s *Subscription) createEvents(it *item, slot uint32, p *plan) bool {
	cfg := &s.client.engine.cfg
	if !cfg.Account.Take(ownBytes) {
		return false
	}
	o := &own{how: evented, slot: slot, node: p.node, attribute: p.attribute, account: cfg.Queues}
	o.tap = cfg.Events.Watch(p.node, s.client.rights, p.events, int(p.set.queue), p.set.newest)
	ok := o.tap != nil
	if ok {
		if o.set, ok = s.settings.get(&p.set); !ok {
			o.tap.Close()
		}
	}
	if !ok {
		cfg.Account.Give(ownBytes)
		return false
	}
	s.adoptOwn(it, o)
	s.evented++
	return true
}

// detachEvents ends an item's Tap.
func (s *Subscription) detachEvents(o *own) {
	o.tap.Close()
	s.evented--
}

// modifyEvents changes an event item. What waits stays as it was selected, but another filter begins with the next event.
func (s *Subscription) modifyEvents(it *item, o *own, r *ModifyRequest) ItemResult {
	e := s.client.engine
	f, res, status := e.eventFilter(r.FilterType, r.Filter)
	if status != ua.StatusGood {
		return ItemResult{Status: status, Filter: res}
	}
	var next settings
	e.shapeEvents(&next, r.Queue, r.Oldest)
	var other *events.Tap
	if !o.tap.Filter().Equal(f) {
		if other = e.cfg.Events.Watch(o.node, s.client.rights, f, int(next.queue), next.newest); other == nil {
			return ItemResult{Status: ua.StatusBadTooManyMonitoredItems}
		}
	}
	set, ok := s.settings.get(&next)
	if !ok {
		if other != nil {
			other.Close()
		}
		return ItemResult{Status: ua.StatusBadTooManyMonitoredItems}
	}
	if other != nil {
		s.retap(o, other)
	} else {
		s.lostEvents(o, o.tap.Resize(int(next.queue), next.newest))
	}
	s.settings.put(o.set)
	o.set, it.set, it.handle = set, set, r.Handle
	return ItemResult{Queue: uint32(next.queue), Filter: res}
}

// retap gives an item another Tap; what waits in the one before goes, as if the item had been disabled.
func (s *Subscription) retap(o *own, other *events.Tap) {
	if s.items[o.slot].flags&sampling != 0 {
		s.endEvents(o)
	}
	o.tap.Close()
	o.tap = other
}

// recheckEvents has an item watch with the rights that its client has now.
func (s *Subscription) recheckEvents(o *own) {
	cfg, set := &s.client.engine.cfg, &s.settings.list[o.set]
	if other := cfg.Events.Watch(o.node, s.client.rights, o.tap.Filter(), int(set.queue), set.newest); other != nil {
		s.retap(o, other)
		return
	}
	if s.items[o.slot].flags&sampling != 0 { // it must not go on with the rights that its client had
		s.endEvents(o)
	}
	s.items[o.slot].flags &^= sampling | reporting
	cfg.Log.Warn("an event item is disabled: its user's rights have changed, and there is no memory for another filter", "client", s.client.name)
}

// endEvents drops what waits.
func (s *Subscription) endEvents(o *own) {
	n := o.counted()
	n.Disabled += n.Waiting
	n.Waiting = 0
	o.Counts = n
	o.tap.Clear()
}

// lostEvents counts what a Tap tells that its queue lost.
func (s *Subscription) lostEvents(o *own, lost uint64) {
	if lost == 0 {
		return
	}
	o.New += lost
	o.Queued += lost
	s.lostOf(o, lost, int(s.settings.list[o.set].queue))
}

// counted are an item's Counts with what waits.
func (o *own) counted() Counts {
	n := o.Counts
	n.Waiting = uint64(o.count)
	if o.how != evented {
		return n
	}
	waiting, lost, over := o.tap.Waiting()
	n.Waiting = uint64(waiting)
	if over {
		n.Waiting++
	}
	n.New += n.Waiting + lost
	n.Queued += n.Waiting + lost
	n.lose(lost, o.tap.Size())
	return n
}

// waits reports whether something is queued.
func (o *own) waits() bool {
	if o.how != evented {
		return o.count > 0
	}
	n, _, over := o.tap.Waiting()
	return n > 0 || over
}

// everQueued counts what was ever queued.
func (o *own) everQueued() uint64 {
	if o.how != evented {
		return o.Queued
	}
	n := o.counted()
	return n.Queued
}

// both appends a message's data and its events, the part first that was second in the last message.
func (f *filler) both(dst []byte) []byte {
	s := f.s
	count := len(dst) - 4 // of the message's parts; openMessage has written 1
	parts := uint32(0)
	part := func(data bool) {
		at, before := len(dst), f.n
		if data {
			dst, _ = f.data(dst)
		} else {
			dst = f.events(dst)
		}
		if f.n == before {
			dst = dst[:at]
			return
		}
		parts++
	}
	s.turned = !s.turned
	part(!s.turned)
	part(s.turned)
	binary.LittleEndian.PutUint32(dst[count:], parts)
	return dst
}

// events appends the EventNotificationList of a message (Part 4, 7.25.3).
func (f *filler) events(dst []byte) []byte {
	s, before := f.s, f.n
	dst, body := openExtension(dst, id.EventNotificationList_Encoding_DefaultBinary)
	count := len(dst)
	dst = wire.AppendUint32(dst, 0)
	from := int(s.resumeEvents)
	for i := range s.owns {
		k := from + i
		if k >= len(s.owns) {
			k -= len(s.owns)
		}
		o := s.owns[k]
		if o == nil || o.how != evented {
			continue
		}
		it := &s.items[o.slot]
		if it.flags&reports == 0 {
			continue
		}
		var full bool
		if dst, full = f.tap(dst, it, o); full {
			s.resumeEvents = int32(k)
			break
		}
		it.flags &^= triggered
	}
	binary.LittleEndian.PutUint32(dst[count:], uint32(f.n-before))
	return closeExtension(dst, body)
}

// tap appends what an item's Tap has, and reports whether the message is full.
func (f *filler) tap(dst []byte, it *item, o *own) (_ []byte, full bool) {
	for {
		if f.n >= f.room {
			return dst, o.waits()
		}
		got, lost := o.tap.Peek(f.bodies[:0], min(4*piece, f.room-f.n))
		f.bodies = got
		f.s.lostEvents(o, lost)
		over, first := o.tap.Overflow()
		if over && (first || len(got) == 0) {
			var fits bool
			if dst, fits = f.event(dst, it.handle, o.tap.OverflowBody(), nil); !fits {
				return dst, true
			}
			o.tap.Told()
			o.took(1)
			continue
		}
		if len(got) == 0 {
			o.recent = 0
			return dst, false
		}
		for n, b := range got {
			var fits bool
			if dst, fits = f.event(dst, it.handle, b, o.tap.RefusedBody); !fits {
				o.tap.Advance(n)
				o.took(n)
				return dst, true
			}
		}
		o.tap.Advance(len(got))
		o.took(len(got))
	}
}

// took counts events that were sent.
func (o *own) took(n int) {
	o.New += uint64(n)
	o.Queued += uint64(n)
	o.Sent += uint64(n)
}

// event appends an EventFieldList if the message's bytes allow it. One that would fill more than a message alone is
// replaced by what refused gives, which tells why its fields are missing.
func (f *filler) event(dst []byte, handle uint32, body []byte, refused func() []byte) ([]byte, bool) {
	if len(dst)+4+len(body) > f.limit {
		if f.n > 0 {
			return dst, false
		}
		if refused != nil {
			body = refused()
		}
	}
	dst = append(dst, byte(handle), byte(handle>>8), byte(handle>>16), byte(handle>>24))
	f.n++
	return append(dst, body...), true
}
