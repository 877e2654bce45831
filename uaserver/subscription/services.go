package subscription

import (
	"math"
	"time"

	"github.com/gopcua/opcua/ua"
)

// Parameters are what a client asks of a Subscription, and what it gets (Part 4, 5.14.2). Publishing is in milliseconds.
type Parameters struct {
	Publishing    float64
	Lifetime      uint32
	KeepAlive     uint32
	Notifications uint32 // in one message; 0 is no limit
	Priority      uint8
}

// interval revises a time in milliseconds to what the engine keeps; NaN counts as too short.
func interval(ms float64, shortest, longest time.Duration) time.Duration {
	switch {
	case !(ms > float64(shortest)/1e6): // NaN too
		return shortest
	case ms >= float64(longest)/1e6:
		return longest
	}
	return time.Duration(ms * 1e6)
}

// millis is a duration in the standard's unit.
func millis(d time.Duration) float64 { return float64(d) / 1e6 }

// revise makes p what the engine can keep: intervals within its bounds, a lifetime of at least three keep-alives
// (Part 4, 5.14.2.2), and neither so long that a forgotten Subscription would stay for ever.
func (e *Engine) revise(p *Parameters) time.Duration {
	d := interval(p.Publishing, e.cfg.MinPublishing, e.cfg.MaxPublishing)
	p.Publishing = millis(d)
	if p.KeepAlive == 0 {
		p.KeepAlive = 10
	}
	p.KeepAlive = min(p.KeepAlive, atMost(e.cfg.MaxKeepAlive/d))
	p.Lifetime = min(p.Lifetime, atMost(e.cfg.MaxLifetime/d))
	p.Lifetime = max(p.Lifetime, 3*p.KeepAlive)
	return d
}

// atMost is a count of at least one, such that three times as many still fit 32 bits.
func atMost(n time.Duration) uint32 { return uint32(min(max(n, 1), math.MaxUint32/3)) }

// CreateSubscription makes a Subscription and calls reply with what it became, before anything of it is published
// (Part 4, 5.14.2). A status other than Good, BadTooManySubscriptions or BadSessionClosed, is for a ServiceFault.
func (c *Client) CreateSubscription(p Parameters, enabled bool, reply func(id uint32, revised Parameters)) ua.StatusCode {
	e := c.engine
	d := e.revise(&p)
	e.creating.Lock()
	defer e.creating.Unlock()
	e.makeRoom()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ua.StatusBadSessionClosed
	}
	s := &Subscription{client: c, enabled: enabled}
	s.home.Store(c)
	s.step(onCreate, 0)
	s.pace.Store(int64(d))
	if !e.enter(s) {
		s.step(onCreateFailed, 0)
		return ua.StatusBadTooManySubscriptions
	}
	s.alarm.init(c.shard, s)
	s.adopt(d, &p)
	now := e.now()
	s.step(onCreated, now)
	c.subs.add(s)
	s.nextTick, s.measured, s.chance = now+int64(d), now, now
	s.schedule()
	reply(s.id, p)
	return ua.StatusGood
}

// ModifySubscription changes a Subscription (Part 4, 5.14.3); the new publishing interval starts now.
func (c *Client) ModifySubscription(id uint32, p Parameters) (revised Parameters, _ ua.StatusCode) {
	d := c.engine.revise(&p)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.subs.find(id)
	if s == nil {
		return p, ua.StatusBadSubscriptionIDInvalid
	}
	now := c.engine.now()
	if d != s.interval {
		s.nextTick = now + int64(d)
	}
	s.adopt(d, &p)
	s.tally.modified++
	s.hasten(now)
	s.step(onModify, now)
	s.schedule()
	return p, ua.StatusGood
}

// adopt takes over revised parameters.
func (s *Subscription) adopt(d time.Duration, p *Parameters) {
	s.interval = d
	s.pace.Store(int64(d))
	s.every, s.life = p.KeepAlive, p.Lifetime
	s.keepAlive = min(s.keepAlive, p.KeepAlive)
	s.asked, s.room = p.Notifications, math.MaxInt32
	if p.Notifications > 0 {
		s.room = int(min(p.Notifications, math.MaxInt32))
	}
	s.priority = p.Priority
	sh := s.alarm.lock()
	s.alarm.priority = p.Priority
	sh.mu.Unlock()
}

// SetPublishing is SetPublishingMode (Part 4, 5.14.4).
func (c *Client) SetPublishing(ids []uint32, enabled bool, results []ua.StatusCode) {
	now := c.engine.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, id := range ids {
		results[i] = ua.StatusBadSubscriptionIDInvalid
		if s := c.subs.find(id); s != nil {
			results[i] = ua.StatusGood
			s.enabled = enabled
			s.tally.switched(enabled)
			s.step(onSetPublishing, now)
		}
	}
}

// DeleteSubscriptions deletes Subscriptions (Part 4, 5.14.8). reply is called before Publish requests that have nothing
// left to wait for are answered.
func (c *Client) DeleteSubscriptions(ids []uint32, results []ua.StatusCode, reply func()) {
	now := c.engine.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, id := range ids {
		results[i] = ua.StatusBadSubscriptionIDInvalid
		if s := c.subs.find(id); s != nil {
			results[i] = ua.StatusGood
			s.step(onDelete, now)
		}
	}
	reply()
	c.rest()
}

// Republish calls reply with the encoded NotificationMessage of that number, or returns BadMessageNotAvailable or
// BadSubscriptionIdInvalid (Part 4, 5.14.6). The message is good until reply returns.
func (c *Client) Republish(id, sequence uint32, reply func(message []byte)) ua.StatusCode {
	now := c.engine.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.subs.find(id)
	if s == nil {
		return ua.StatusBadSubscriptionIDInvalid
	}
	m := s.find(sequence)
	s.found = m >= 0
	s.tally.republishRequests++
	s.step(onRepublish, now)
	if m < 0 {
		return ua.StatusBadMessageNotAvailable
	}
	s.ledger.messages.Republished++
	reply(s.held[m].message)
	return ua.StatusGood
}
