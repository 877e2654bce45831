package subscription

import (
	"math"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// No client takes all of an account, so that one that never acknowledges, or asks for queues without end, leaves the others
// something: each may have half of what is left beside it. The second then gets a quarter, and so on; what a client gives back
// is there for all.

// sized is an Account that knows what is left of it, such as tag.Budget. Of any other a client may take what it gets.
type sized interface{ Left() int64 }

// share is how many more bytes of an account a client may take that has own bytes of it.
func share(a tag.Account, own int) int64 {
	if a, ok := a.(sized); ok {
		return (a.Left() - int64(own)) / 2
	}
	return math.MaxInt64 / 2
}

// takeKept charges a message that is to be kept for Republish: where there is room for one at all, a client's first has it.
func (c *Client) takeKept(n int) bool {
	a := c.engine.cfg.Account
	if c.kept > 0 && int64(n) > share(a, c.kept) || !a.Take(n) {
		return false
	}
	c.kept += n
	return true
}

// giveKept ends a takeKept.
func (c *Client) giveKept(n int) {
	c.engine.cfg.Account.Give(n)
	c.kept -= n
}

// fullest is the client's Subscription with the most messages that are kept, or nil.
func (c *Client) fullest() (most *Subscription) {
	for _, s := range c.subs.list {
		if len(s.held) > 0 && (most == nil || len(s.held) > len(most.held)) {
			most = s
		}
	}
	return most
}

// bound cuts the queue that an item is about to get to the client's share. back is what it has already, which it keeps at
// least.
func (c *Client) bound(p *plan, place, back int) {
	left := share(c.engine.cfg.Queues, c.queues-back) + int64(back)/2
	if most := max(left, int64(back)) / int64(place); most < int64(p.queue-1) {
		p.queue = int(max(most, 0)) + 1
		p.asked = min(p.asked, p.queue)
	}
}

// walkedRing is how many samples a Series is asked to keep for an item that looks at each of them: walkedRing, or as many as
// the client's share has room for, but enough for its own queue.
func (c *Client) walkedRing(queue int) int {
	most := max(0, share(c.engine.cfg.Queues, c.queues)/address.SlotBytes) + 1
	return int(min(walkedRing, max(most, 2*int64(queue))))
}

// reserved counts what the Subscription's queues may take, though those of many items on one Series share it.
func (s *Subscription) reserved(n int) {
	s.queues += n
	s.client.queues += n
}

// placesOf is what the queue of a plain item counts for.
func placesOf(queue int) int { return (queue - 1) * address.SlotBytes }
