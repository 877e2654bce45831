package subscription

import (
	"slices"
	"strings"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	events "edged/uaserver/event"
)

// entryBytes is what a place in an item's own queue takes of Config.Queues.
const entryBytes = 48

// ownBytes is what an own takes of Config.Account: itself, its first place and its text.
const ownBytes = 448

// walkedRing is how many samples a Series keeps at least for an item that looks at each of them: half of it may pass
// while its Subscription's goroutine is woken.
const walkedRing = 256

// entry is one sample in an item's own queue. Status holds the Overflow bit already.
type entry struct {
	tag.Sample
	server tag.Time
}

// how an item with a queue of its own gets its samples.
type how uint8

const (
	walked  how = iota // every sample of the Series is looked at
	sampled            // the Series' last sample, at the sampling interval
	polled             // the attribute is read at the sampling interval
	evented            // events, from a Tap that is their queue
)

// own is what an item has whose queue is not simply the last samples of a Series: a deadband, a trigger, an IndexRange,
// discard newest, sampling slower than the changes, or no Series at all.
type own struct {
	how       how
	slot      uint32      // of its item
	set       uint16      // of its item
	have      bool        // last is set
	gap       bool        // samples passed unseen: the next entry carries Overflow
	reserved  int         // of the Series
	tap       *events.Tap // of events
	account   tag.Account
	charged   int // bytes of the queue's places; what values hold beside is charged one by one
	series    *address.Series
	cursor    uint64
	due       int64 // next sampling
	node      *address.Node
	attribute ua.AttributeID
	ranged    bool
	part      address.Range
	text      string // of the range, for reading
	last      entry  // the last one queued, against which changes are judged
	recent    uint32 // lost since its queue was last sent

	Counts // but for Waiting, which is count

	ring  []entry // grows as it fills, up to the queue size
	first int
	count int
}

// at is the i-th oldest entry.
func (o *own) at(i int) *entry {
	i += o.first
	if i >= len(o.ring) {
		i -= len(o.ring)
	}
	return &o.ring[i]
}

// offer judges a sample, and queues it if it is a change.
func (o *own) offer(v entry, set *settings) {
	o.New++
	if o.ranged && o.how != polled && v.Status.IsGood() {
		part, status := address.ApplyRange(v.Value, o.part)
		if status != tag.Good {
			part, v.Status = tag.Value{}, status
		}
		v.Value = part
	}
	told := v.Status & address.Changed
	v.Status &^= told
	if !o.have {
		told = 0 // nothing was sent before
	}
	if o.have && told == 0 && !set.changed(&o.last, &v) {
		if o.last.Status == v.Status && o.last.Value.Equal(v.Value) {
			o.Unchanged++
		} else {
			o.Filtered++
		}
		return
	}
	o.last, o.have = v, true
	v.Status |= told
	o.Queued++
	if o.gap {
		o.gap = false
		if set.queue > 1 {
			v.Status |= overflow
		}
	}
	o.push(v, set)
}

// push queues an entry. What has no room, in the queue or on the account, goes by the discard policy, with the Overflow
// bit on the entry that stands next to the loss (Part 4, 5.13.1.5): the oldest kept, or the newest, which takes the place
// of the last. A queue of one has no Overflow bit. What a lost entry had of address.Changed goes to the same entry.
func (o *own) push(v entry, set *settings) {
	size, n := int(set.queue), v.Value.Size()
	lost, exhausted, told := 0, 0, tag.Status(0)
	for ; o.count >= size; lost++ {
		told |= o.discard(set)
	}
	fits := n == 0 || o.account.Take(n)
	for ; !fits && o.count > 0; exhausted++ {
		told |= o.discard(set)
		fits = o.account.Take(n)
	}
	if !fits {
		v.Value, v.Status = tag.Value{}, tag.BadOutOfMemory
	}
	if o.count == len(o.ring) {
		o.resize(min(size, max(1, 2*len(o.ring))))
	}
	o.count++
	*o.at(o.count - 1) = v
	if lost+exhausted > 0 {
		o.lose(uint64(lost), size)
		o.Exhausted += uint64(exhausted)
		o.mark(set, told)
	}
}

// discard drops the entry that the policy gives up for a new one. It returns what the entry had of address.Changed.
func (o *own) discard(set *settings) tag.Status {
	if set.newest {
		last := o.at(o.count - 1)
		o.release(last)
		told := last.Status & address.Changed
		*last = entry{}
		o.count--
		return told
	}
	v := o.pop()
	return v.Status & address.Changed
}

// release gives back what an entry's value held.
func (o *own) release(v *entry) {
	if n := v.Value.Size(); n > 0 {
		o.account.Give(n)
	}
}

// mark sets the Overflow bit, and what lost entries told, next to a loss.
func (o *own) mark(set *settings, told tag.Status) {
	next := o.at(0)
	if set.newest {
		next = o.at(o.count - 1)
	}
	next.Status |= told
	if set.queue == 1 {
		next.Status &^= overflow
	} else {
		next.Status |= overflow
	}
}

// pop takes the oldest entry.
func (o *own) pop() entry {
	v := *o.at(0)
	*o.at(0) = entry{}
	o.release(&v)
	if o.first++; o.first == len(o.ring) {
		o.first = 0
	}
	o.count--
	return v
}

// resize gives the ring that many places; it has room for what is queued.
func (o *own) resize(size int) {
	ring := make([]entry, size)
	for i := range o.count {
		ring[i] = *o.at(i)
	}
	o.ring, o.first = ring, 0
}

// shorten makes the queue fit new settings: what is too much goes by the discard policy, but for the newest entry.
func (o *own) shorten(set *settings) {
	size := int(set.queue)
	if over := o.count - size; over > 0 {
		newest := *o.at(o.count - 1)
		told := tag.Status(0)
		for range over {
			if set.newest { // the last entry gives way to the newest
				*o.at(o.count - 1) = *o.at(o.count - 2)
			}
			told |= o.discard(set)
		}
		*o.at(size - 1) = newest
		o.lose(uint64(over), size)
		o.mark(set, told)
	}
	if len(o.ring) > size {
		o.resize(size)
	}
}

// reserve takes from the account what a queue of that many entries needs, and returns how many were granted.
func (o *own) reserve(queue int) int {
	o.account.Give(o.charged)
	o.charged = 0
	for queue > 1 {
		if n := (queue - 1) * entryBytes; o.account.Take(n) {
			o.charged = n
			return queue
		}
		queue /= 2
	}
	return 1
}

// clear empties the queue and forgets what was reported.
func (o *own) clear() {
	o.Disabled += uint64(o.count)
	for o.count > 0 {
		o.pop()
	}
	o.ring, o.first = nil, 0
	o.have, o.gap = false, false
	o.last = entry{}
}

// walk looks at all samples of the Series of items that want each one.
func (s *Subscription) walk() {
	for _, o := range s.owns {
		if o != nil && o.how == walked && o.series.Head() != o.cursor && s.items[o.slot].flags&sampling != 0 {
			s.walkOne(o)
		}
	}
}

func (s *Subscription) walkOne(o *own) {
	var buf [32]tag.Sample
	set := &s.settings.list[o.set].settings
	for o.series.Head() != o.cursor {
		got, lost := o.series.Take(&o.cursor, o.reserved, len(buf), buf[:0])
		if lost > 0 {
			o.gap = true
			o.New += lost
			o.Queued += lost
			s.lostOf(o, lost, int(set.queue))
		}
		for i := range got {
			v := entry{got[i], got[i].At}
			if !o.have { // an initial value
				v.server = knownAt(o.series, &got[i])
			}
			s.offer(o, v, set)
		}
	}
}

// offer gives an item a sample, and notes what it lost by it.
func (s *Subscription) offer(o *own, v entry, set *settings) {
	lost, exhausted := o.Overwritten+o.Overflowed, o.Exhausted
	o.offer(v, set)
	if lost = o.Overwritten + o.Overflowed - lost; lost > 0 {
		s.noteLossOf(o, lost, int(set.queue))
	}
	if exhausted = o.Exhausted - exhausted; exhausted > 0 {
		s.noteExhausted(o, exhausted)
	}
}

// sample takes the samples of items whose sampling interval has passed, and notes which have to be read.
func (s *Subscription) sample(now int64) {
	s.nextSample = 0
	for _, o := range s.owns {
		if o == nil || o.how == walked || o.how == evented {
			continue
		}
		if o.due <= now && s.items[o.slot].flags&sampling != 0 {
			d := int64(s.settings.list[o.set].sampling)
			if o.due += d; o.due <= now {
				o.due = now + d
			}
			if o.how == polled {
				s.polling = append(s.polling, o)
			} else {
				s.sampleOne(o)
			}
		}
		s.expect(o)
	}
}

// expect has the clock ring for the item's next sampling.
func (s *Subscription) expect(o *own) {
	if s.items[o.slot].flags&sampling != 0 && o.how != walked && o.how != evented && (s.nextSample == 0 || o.due < s.nextSample) {
		s.nextSample = o.due
	}
}

// sampleOne takes the newest sample of a Series; the ones before were sampled out.
func (s *Subscription) sampleOne(o *own) {
	if o.series.Head() == o.cursor {
		return
	}
	var buf [1]tag.Sample
	got, passed := o.series.Take(&o.cursor, 1, 1, buf[:0])
	o.New += passed
	o.SampledOut += passed
	s.offer(o, entry{got[0], knownAt(o.series, &got[0])}, &s.settings.list[o.set].settings)
}

// maxReads is how many values are read at once: a shard keeps memory for them, and its clients' requests wait for no more.
const maxReads = 1024

// poll reads the attributes of the items in s.polling, without the client's lock: a reading may ask for what the lock
// guards. It returns the client that is locked then, which after a transfer is another.
func (s *Subscription) poll(sh *shard) *Client {
	c := s.client
	sh.polls = append(sh.polls[:0], s.polling...)
	clear(s.polling)
	s.polling = s.polling[:0]
	for some := range slices.Chunk(sh.polls, maxReads) {
		sh.reads = sh.reads[:0]
		for _, o := range some {
			sh.reads = append(sh.reads, address.ReadItem{Node: o.node, Attribute: o.attribute, Range: o.text})
		}
		rights := c.rights
		c.mu.Unlock()
		c.engine.read(c.engine.ctx, rights, sh.reads)
		c = s.lock()
		for i, o := range some {
			some[i] = nil
			if s.state == closed || o.node == nil || s.items[o.slot].flags&sampling == 0 {
				continue // deleted or disabled meanwhile
			}
			s.offerRead(o, &sh.reads[i])
		}
		clear(sh.reads)
	}
	return c
}

// offerRead takes the result of a reading as a sample. Only a Value has a SourceTimestamp.
func (s *Subscription) offerRead(o *own, r *address.ReadItem) {
	v := entry{tag.Sample{Status: r.Result.Status, Value: r.Result.Value}, r.Result.Server}
	if o.attribute == ua.AttributeIDValue {
		v.At = r.Result.Source
	}
	s.offer(o, v, &s.settings.list[o.set].settings)
}

// setRange remembers an IndexRange; its text is copied out of the request.
func (o *own) setRange(text string, part address.Range) {
	o.ranged = text != ""
	o.text, o.part = strings.Clone(text), part
}
