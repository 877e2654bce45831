package subscription

import (
	"slices"

	"github.com/gopcua/opcua/ua"
)

// linkBytes is what a triggering link takes of Config.Account: its place in a list that grows by doubling.
const linkBytes = 16

// triggering is what an item has that triggers others (Part 4, 5.13.1.6). An item that it links to, and that samples
// without reporting, reports what it has queued in the first message after the triggering item queued something.
type triggering struct {
	mark  uint64   // what the item had queued, ever, when that was last looked at
	links []uint32 // ids of the items to report, ascending
}

// SetTriggering removes and adds links from one item to others of the same Subscription (Part 4, 5.13.5), one result
// each, what is removed first. The status returned is for a ServiceFault.
func (c *Client) SetTriggering(sub, item uint32, remove, add []uint32, removed, added []ua.StatusCode) ua.StatusCode {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.subs.find(sub)
	if s == nil {
		return ua.StatusBadSubscriptionIDInvalid
	}
	s.step(onItems, c.engine.now())
	slot, ok := s.lookup(item)
	if !ok {
		return ua.StatusBadMonitoredItemIDInvalid
	}
	s.walk()
	s.fire() // what was queued before a link does not trigger by it
	t := s.triggers[slot]
	if t == nil {
		t = &triggering{mark: s.queuedEver(&s.items[slot])}
	} else {
		s.prune(t)
	}
	for i, id := range remove {
		removed[i] = s.unlink(t, id)
	}
	for i, id := range add {
		added[i] = s.link(t, id)
	}
	switch {
	case len(t.links) == 0:
		delete(s.triggers, slot)
	case s.triggers == nil:
		s.triggers = map[uint32]*triggering{slot: t}
	default:
		s.triggers[slot] = t
	}
	return ua.StatusGood
}

func (s *Subscription) link(t *triggering, id uint32) ua.StatusCode {
	if _, ok := s.lookup(id); !ok {
		return ua.StatusBadMonitoredItemIDInvalid
	}
	at, there := slices.BinarySearch(t.links, id)
	if there {
		return ua.StatusGood
	}
	if !s.client.engine.cfg.Account.Take(linkBytes) {
		return ua.StatusBadOutOfMemory
	}
	t.links = slices.Insert(t.links, at, id)
	return ua.StatusGood
}

func (s *Subscription) unlink(t *triggering, id uint32) ua.StatusCode {
	at, there := slices.BinarySearch(t.links, id)
	if !there {
		return ua.StatusBadMonitoredItemIDInvalid
	}
	t.links = slices.Delete(t.links, at, at+1)
	s.client.engine.cfg.Account.Give(linkBytes)
	return ua.StatusGood
}

// prune drops the links to items that were deleted, which go with their items.
func (s *Subscription) prune(t *triggering) {
	n := len(t.links)
	t.links = slices.DeleteFunc(t.links, func(id uint32) bool {
		_, ok := s.lookup(id)
		return !ok
	})
	s.client.engine.cfg.Account.Give((n - len(t.links)) * linkBytes)
}

// dropTriggers forgets the links of an item that is deleted. The items that they lead to stay as they are.
func (s *Subscription) dropTriggers(slot uint32) {
	if t := s.triggers[slot]; t != nil {
		s.client.engine.cfg.Account.Give(len(t.links) * linkBytes)
		delete(s.triggers, slot)
	}
}

// queuedEver counts what an item ever had to report, from anywhere: only its growth means something.
func (s *Subscription) queuedEver(it *item) uint64 {
	if o := s.ownOf(it); o != nil {
		return o.everQueued()
	}
	return it.series.Head()
}

// fire looks which triggering items have queued something since it was last called, and marks the items to report. It
// tells whether any of them has something to report. It is called before a message is made, and before links or modes
// change. Items that look at each sample have been walked.
func (s *Subscription) fire() (news bool) {
	for slot, t := range s.triggers {
		it := &s.items[slot]
		n := s.queuedEver(it)
		if n == t.mark {
			continue
		}
		t.mark = n
		if it.flags&sampling == 0 {
			continue
		}
		s.prune(t)
		for _, id := range t.links {
			target, _ := s.lookup(id)
			if x := &s.items[target]; x.flags&sampling != 0 && x.flags&reporting == 0 && s.hasNews(x) {
				x.flags |= triggered
				news = true
			}
		}
	}
	return news
}
