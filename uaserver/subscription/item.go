package subscription

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/address"
	events "edged/uaserver/event"
	"edged/uaserver/wire"
)

// item is one MonitoredItem: a cursor into a Series, the client's handle and its settings. It is 24 bytes; all else
// belongs to items whose queue is not simply the last samples (own).
type item struct {
	series *address.Series // nil if owned
	cursor uint64          // into the Series; index into owns if owned
	handle uint32          // ClientHandle
	set    uint16
	flags  flags
	turn   uint8 // how often the slot was given; the upper byte of the item's id
}

type flags uint8

const (
	used      flags = 1 << iota // the slot holds an item
	owned                       // it has a queue of its own
	sampling                    // mode is Sampling or Reporting
	reporting                   // mode is Reporting
	fresh                       // the initial value was not sent yet
	gapped                      // samples before the cursor were lost: the next one carries Overflow
	triggered                   // a triggering item has triggered it: what it has queued is reported

	reports = reporting | triggered
)

const maxSlots = 1 << 24 // an item's id has 24 bits of slot

// maxRange is how many bytes an item's IndexRange has at most, which is kept: more than any value has dimensions for.
const maxRange = 255

// ItemRequest is a MonitoredItemCreateRequest. Its strings may alias a request buffer.
type ItemRequest struct {
	Status     ua.StatusCode // other than Good: the caller refuses it
	Node       *address.Node // nil: BadNodeIdUnknown
	Attribute  ua.AttributeID
	Range      string // IndexRange
	Mode       ua.MonitoringMode
	Handle     uint32
	Sampling   float64 // milliseconds
	FilterType wire.NodeID
	Filter     []byte
	Queue      uint32
	Oldest     bool // DiscardOldest
}

// ItemResult is what became of an item that was created or modified.
type ItemResult struct {
	Status   ua.StatusCode
	ID       uint32
	Sampling float64 // revised, milliseconds
	Queue    uint32  // revised
	Filter   []byte  // encoded EventFilterResult; nil: there is nothing to say of the filter
}

// ModifyRequest is a MonitoredItemModifyRequest.
type ModifyRequest struct {
	ID         uint32
	Handle     uint32
	Sampling   float64
	FilterType wire.NodeID
	Filter     []byte
	Queue      uint32
	Oldest     bool
}

// plan is an item before it exists.
type plan struct {
	status    ua.StatusCode
	node      *address.Node
	series    *address.Series // nil: polled
	attribute ua.AttributeID
	set       settings
	asked     int // queue, revised
	queue     int // asked, or raised; not granted yet
	how       how
	plain     bool // needs no queue of its own
	part      address.Range
	read      int // index into the readings, of a polled one
	events    *events.Filter
	result    []byte // of the filter
}

// CreateItems makes MonitoredItems (Part 4, 5.13.2), one result each, and calls reply before any notification of them
// is sent. A node that cannot be read is no error: its item reports the status. The status returned is for a
// ServiceFault.
func (c *Client) CreateItems(ctx context.Context, sub uint32, times ua.TimestampsToReturn, rights address.Rights,
	reqs []ItemRequest, results []ItemResult, reply func()) ua.StatusCode {
	mask, ok := timesOf(times)
	if !ok {
		return ua.StatusBadTimestampsToReturnInvalid
	}
	c.mu.Lock()
	s := c.subs.find(sub)
	publishing := time.Duration(0)
	if s != nil {
		c.rights = rights
		publishing = s.interval
	}
	c.mu.Unlock()
	if s == nil {
		return ua.StatusBadSubscriptionIDInvalid
	}
	w := batches.Get().(*batch)
	defer w.release()
	for i := range reqs {
		p := c.engine.plan(&reqs[i], rights, publishing)
		p.set.times = mask
		if p.status == ua.StatusGood && p.how == polled {
			p.read = len(w.reads)
			w.reads = append(w.reads, address.ReadItem{Node: p.node, Attribute: p.attribute, Range: reqs[i].Range})
		}
		w.plans = append(w.plans, p)
	}
	if len(w.reads) > 0 {
		c.engine.read(ctx, rights, w.reads)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.engine.now()
	if c.subs.find(sub) != s { // deleted or transferred meanwhile
		return ua.StatusBadSubscriptionIDInvalid
	}
	for i := range reqs {
		results[i] = s.create(&w.plans[i], &reqs[i], w.reads, now)
	}
	s.step(onItems, now)
	s.schedule()
	reply()
	return ua.StatusGood
}

// batch is the working memory of one CreateItems.
type batch struct {
	plans []plan
	reads []address.ReadItem
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (w *batch) release() {
	clear(w.plans)
	clear(w.reads)
	w.plans, w.reads = w.plans[:0], w.reads[:0]
	if cap(w.plans) <= 1<<14 {
		batches.Put(w)
	}
}

// plan decides what an item will be.
func (e *Engine) plan(r *ItemRequest, rights address.Rights, publishing time.Duration) (p plan) {
	p.node, p.attribute, p.status = r.Node, r.Attribute, r.Status
	switch {
	case p.status != ua.StatusGood:
	case p.node == nil:
		p.status = ua.StatusBadNodeIDUnknown
	case r.Attribute == ua.AttributeIDEventNotifier && p.node.Class&(ua.NodeClassObject|ua.NodeClassView) != 0:
		return e.planEvents(r, rights)
	case r.Mode > ua.MonitoringModeReporting:
		p.status = ua.StatusBadMonitoringModeInvalid
	}
	if p.status != ua.StatusGood {
		return p
	}
	if r.Range != "" {
		var err error
		if p.part, err = address.ParseRange(r.Range); err != nil || len(r.Range) > maxRange {
			p.status = ua.StatusBadIndexRangeInvalid
			return p
		}
	}
	if p.status = e.filter(&p.set, p.node, r.Attribute, r.FilterType, r.Filter); p.status != ua.StatusGood {
		return p
	}
	n := p.node
	if r.Attribute == ua.AttributeIDValue && n.Manager != nil && n.Class == ua.NodeClassVariable &&
		n.Access&ua.AccessLevelTypeCurrentRead != 0 && rights.On(n)&address.MayRead != 0 {
		if p.series = n.Manager.Series(n); p.series != nil {
			p.series.SetNode(n)
		}
	}
	p.shape(e, r.Sampling, publishing, r.Queue, r.Oldest, r.Range != "")
	return p
}

// shape revises sampling interval and queue size (Part 4, 7.21), and decides how the item gets its samples.
//
// A Series holds changes as they come: at most one in the node's MinimumSamplingInterval. An item that asks for no
// slower sampling sees each of them. One that asks for slower sampling is sampled at its interval, but for a queue of
// one that is published at least as slowly: its value at the publishing tick is the same.
func (p *plan) shape(e *Engine, ms float64, publishing time.Duration, queue uint32, oldest, ranged bool) {
	fastest := time.Duration(0)
	if p.series == nil {
		fastest = e.cfg.MinPolling
		if p.attribute != ua.AttributeIDValue {
			fastest = max(fastest, time.Second)
		}
	}
	if m := p.node.MinSampling; m > 0 {
		fastest = max(fastest, interval(m, 0, e.cfg.MaxPublishing))
	}
	d := publishing
	if ms >= 0 {
		d = interval(ms, 0, e.cfg.MaxPublishing)
	}
	p.set.sampling = max(d, fastest)
	p.queue = int(min(max(queue, 1), uint32(min(e.cfg.Queue, math.MaxInt32))))
	p.set.newest = !oldest && p.queue > 1
	slower := p.set.sampling > fastest && p.set.sampling >= e.cfg.MinPublishing
	switch {
	case p.series == nil:
		p.how = polled
	case slower && (p.queue > 1 || p.set.sampling > publishing):
		p.how = sampled
	default:
		p.how = walked
		p.plain = p.set.band == 0 && p.set.trigger != triggerStatus && !p.set.newest && !ranged
	}
	if p.asked = p.queue; e.cfg.Raise && p.queue > 1 {
		p.queue = e.raise(p, publishing)
	}
}

// create makes an item of a plan.
func (s *Subscription) create(p *plan, r *ItemRequest, reads []address.ReadItem, now int64) ItemResult {
	if p.status == ua.StatusGood && p.how == polled {
		switch st := ua.StatusCode(reads[p.read].Result.Status); st {
		case ua.StatusBadAttributeIDInvalid, ua.StatusBadIndexRangeInvalid, ua.StatusBadNodeIDUnknown:
			p.status = st
		}
	}
	if p.status != ua.StatusGood {
		return ItemResult{Status: p.status, Filter: p.result}
	}
	slot, status := s.slot()
	if status != ua.StatusGood {
		return ItemResult{Status: status}
	}
	it := &s.items[slot]
	it.handle = r.Handle
	it.flags = used | modes[r.Mode]
	if p.plain {
		s.client.bound(p, address.SlotBytes, 0)
		p.queue = p.reserve(p.series)
	}
	ok := true
	if p.how == evented {
		ok = s.createEvents(it, slot, p)
	} else if p.plain {
		p.set.queue = int32(p.queue)
		it.set, ok = s.settings.get(&p.set)
		it.series = p.series
		s.reserved(placesOf(p.queue))
	} else {
		ok = s.createOwn(it, slot, p, r.Range)
	}
	if !ok {
		if p.plain {
			p.series.Release(p.queue)
			s.reserved(-placesOf(p.queue))
		}
		s.vacate(slot)
		return ItemResult{Status: ua.StatusBadTooManyMonitoredItems}
	}
	if p.series != nil {
		s.watch(p.series.Block())
	}
	s.paths[slot].mark = s.arrivals(slot)
	s.begin(slot, now)
	if p.how == polled && it.flags&sampling != 0 {
		o := s.owns[it.cursor]
		s.offerRead(o, &reads[p.read])
	}
	return ItemResult{ID: it.id(slot), Sampling: millis(p.set.sampling),
		Queue: uint32(s.settings.list[it.set].queue), Filter: p.result}
}

// modes is the flags of each MonitoringMode.
var modes = [...]flags{
	ua.MonitoringModeDisabled:  0,
	ua.MonitoringModeSampling:  sampling,
	ua.MonitoringModeReporting: sampling | reporting,
}

// slot finds a place for an item, and counts it.
func (s *Subscription) slot() (uint32, ua.StatusCode) {
	e := s.client.engine
	if e.items.Add(1) > int64(e.cfg.Items) || len(s.free) == 0 && len(s.items) == maxSlots-1 {
		e.items.Add(-1)
		return 0, ua.StatusBadTooManyMonitoredItems
	}
	s.live++
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot, ua.StatusGood
	}
	s.items = append(s.items, item{})
	s.paths = append(s.paths, path{})
	return uint32(len(s.items) - 1), ua.StatusGood
}

// vacate gives an item's place back. Its next item has another id.
func (s *Subscription) vacate(slot uint32) {
	s.items[slot] = item{turn: s.items[slot].turn + 1}
	s.paths[slot] = path{}
	if int(slot) < len(s.tolls) {
		s.tolls[slot] = toll{}
	}
	s.free = append(s.free, slot)
	s.live--
	s.client.engine.items.Add(-1)
}

// createOwn gives an item a queue of its own, if the account has room for it.
func (s *Subscription) createOwn(it *item, slot uint32, p *plan, text string) bool {
	o := &own{how: p.how, slot: slot, series: p.series, node: p.node, attribute: p.attribute, account: s.client.engine.cfg.Queues}
	if !s.client.engine.cfg.Account.Take(ownBytes) {
		return false
	}
	o.setRange(text, p.part)
	s.client.bound(p, entryBytes, 0)
	p.set.queue = int32(p.reserveOwn(o))
	var ok bool
	if o.set, ok = s.settings.get(&p.set); !ok {
		o.account.Give(o.charged)
		s.client.engine.cfg.Account.Give(ownBytes)
		return false
	}
	s.adoptOwn(it, o)
	s.reserved(o.charged)
	s.attach(o)
	return true
}

// adoptOwn gives an item its queue.
func (s *Subscription) adoptOwn(it *item, o *own) {
	it.set = o.set
	it.flags |= owned
	if n := len(s.freeOwns); n > 0 {
		it.cursor = uint64(s.freeOwns[n-1])
		s.freeOwns = s.freeOwns[:n-1]
		s.owns[it.cursor] = o
	} else {
		it.cursor = uint64(len(s.owns))
		s.owns = append(s.owns, o)
	}
}

// attach reserves what an item needs of its Series.
func (s *Subscription) attach(o *own) {
	switch o.how {
	case walked:
		o.reserved = o.series.Reserve(s.client.walkedRing(int(s.settings.list[o.set].queue)))
		s.reserved(placesOf(o.reserved))
		o.series.Watch(s)
	case sampled:
		o.reserved = o.series.Reserve(1)
	}
}

// detach gives it back.
func (s *Subscription) detach(o *own) {
	if o.how == evented {
		s.detachEvents(o)
		return
	}
	if o.how == walked {
		o.series.Unwatch(s)
		s.reserved(-placesOf(o.reserved))
	}
	if o.series != nil {
		o.series.Release(o.reserved)
	}
}

// Wake has the Subscription look at its Series soon: half a ring has passed. It never blocks.
func (s *Subscription) Wake() { s.alarm.wakeUp() }

// watch remembers the block of an item's Series. A Subscription on more blocks than it pays to look through looks at
// its items instead.
func (s *Subscription) watch(b *address.Block) {
	const maxBlocks = 16
	if s.mixed {
		return
	}
	for i := range s.blocks {
		if s.blocks[i].block == b {
			s.blocks[i].at = math.MaxUint64 // the new item has news
			return
		}
	}
	if b == nil || len(s.blocks) == maxBlocks {
		s.mixed, s.blocks = true, nil
		return
	}
	s.blocks = append(s.blocks, seen{block: b, at: math.MaxUint64})
}

// begin puts an item's cursor at its first sample: the last one of the Series, if the item samples.
func (s *Subscription) begin(slot uint32, now int64) {
	it := &s.items[slot]
	o := s.ownOf(it)
	if o != nil && o.how == evented {
		o.tap.Clear()
		return
	}
	if o != nil {
		o.due = now
		if o.how == polled {
			o.due += int64(s.settings.list[o.set].sampling)
			s.expect(o)
			return
		}
	}
	cursor, series := &it.cursor, it.series
	if o != nil {
		cursor, series = &o.cursor, o.series
	}
	before := *cursor
	*cursor = series.Head()
	if it.flags&sampling != 0 && *cursor > 0 {
		*cursor--
		it.flags |= fresh
	}
	if o == nil {
		s.paths[slot].origin += *cursor - before
		if t := s.triggers[slot]; t != nil {
			t.mark = *cursor // an initial value triggers
		}
	}
	switch {
	case o == nil || it.flags&sampling == 0:
	case o.how == walked:
		s.walkOne(o)
	default:
		o.due += int64(s.settings.list[o.set].sampling)
		s.sampleOne(o)
		s.expect(o)
	}
}

// ownOf is the item's own queue, or nil.
func (s *Subscription) ownOf(it *item) *own {
	if it.flags&owned == 0 {
		return nil
	}
	return s.owns[it.cursor]
}

// id is the MonitoredItemId of the item in that slot.
func (it *item) id(slot uint32) uint32 { return uint32(it.turn)<<24 | (slot + 1) }

// lookup finds an item by its id.
func (s *Subscription) lookup(id uint32) (slot uint32, ok bool) {
	slot = id&(maxSlots-1) - 1
	if slot >= uint32(len(s.items)) {
		return 0, false
	}
	it := &s.items[slot]
	return slot, it.flags&used != 0 && uint32(it.turn) == id>>24
}

// nodeOf is the node that an item watches, for people; nil if it is not known.
func (s *Subscription) nodeOf(slot uint32) *address.Node {
	it := &s.items[slot]
	if o := s.ownOf(it); o != nil {
		return o.node
	}
	if it.series == nil {
		return nil
	}
	return it.series.Node()
}

// end drops what waits for an item, which stops sampling.
func (s *Subscription) end(slot uint32) {
	it := &s.items[slot]
	it.flags &^= gapped
	if o := s.ownOf(it); o != nil {
		switch o.how {
		case walked:
			s.walkOne(o)
		case evented:
			s.endEvents(o)
			return
		}
		o.clear()
		return
	}
	queue := int(s.settings.list[it.set].queue)
	waiting, lost := it.series.Behind(it.cursor, queue)
	it.cursor += waiting + lost
	s.lost(slot, lost, queue)
	if waiting > 0 {
		s.toll(slot).disabled += waiting
	}
}

// deleteItem deletes an item.
func (s *Subscription) deleteItem(slot uint32) {
	it := &s.items[slot]
	o := s.ownOf(it)
	if o != nil && o.how == walked && it.flags&sampling != 0 {
		s.walkOne(o)
	}
	s.retire(slot)
	if o != nil {
		o.clear()
		s.detach(o)
		o.account.Give(o.charged)
		s.reserved(-o.charged)
		s.client.engine.cfg.Account.Give(ownBytes)
		o.node = nil // a reading that is under way is for nobody
		s.owns[it.cursor] = nil
		s.freeOwns = append(s.freeOwns, uint32(it.cursor))
	} else {
		queue := int(s.settings.list[it.set].queue)
		it.series.Release(queue)
		s.reserved(-placesOf(queue))
	}
	s.settings.put(it.set)
	s.dropTriggers(slot)
	s.vacate(slot)
}
