package subscription

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// Sender sends the answers to Publish requests. A channel is one, wrapped; it must be comparable.
type Sender interface {
	// Respond sends r as the answer to the request with that id, in the order of the calls. It neither waits for the
	// socket nor keeps r, and calls nothing of this package. False: the connection is gone. What was not sent stays for
	// Republish.
	Respond(id uint32, r *Response) bool
}

// Request is one Publish request, apart from its acknowledgements.
type Request struct {
	Sender  Sender
	ID      uint32        // of the request, for Respond
	Handle  uint32        // RequestHandle, for the ResponseHeader
	Timeout time.Duration // TimeoutHint; 0 is none
	Message int           // bytes of a response that the client takes; 0 is the Engine's own bound
}

// Ack is one SubscriptionAcknowledgement.
type Ack struct{ Subscription, Sequence uint32 }

// waiting is a Publish request in a client's queue.
type waiting struct {
	sender   Sender
	id       uint32
	handle   uint32
	deadline int64 // 0: none
	message  int
	results  []ua.StatusCode
}

// notice is a StatusChangeNotification of a Subscription that is gone.
type notice struct {
	sub, sequence uint32
	status        ua.StatusCode
}

// maxNotices is how many notices wait for a Publish request; a client that lets more Subscriptions die hears of the
// last ones.
const maxNotices = 16

// Client is the publish side of one session: its Subscriptions and the Publish requests that wait. Its methods are safe
// for concurrent use.
type Client struct {
	engine *Engine
	shard  *shard
	alarm  alarm // of the first time-out of a Publish request

	mu      sync.Mutex // guards all below and the Subscriptions; held while an answer is appended to its connection
	name    string
	session uint32 // id; 0: nobody told
	rights  address.Rights
	closed  bool  // the session has ended
	owner   Owner // whom it acts for
	subs    byID
	queue   []waiting // a ring; requests keep their place's memory
	first   int
	queued  int
	notices []notice
	spare   [][]byte // buffers of messages that were acknowledged
	heard   int64    // when the last Publish request came
	kept    int      // bytes of messages for Republish, on Config.Account
	queues  int      // bytes that its items' queues may take of Config.Queues
	worries *worries
}

// maxResults is how many acknowledgement results a place in the queue keeps memory for.
const maxResults = 1024

// leastSpare is how many acknowledged messages' buffers a client keeps at least, and maxSpare at most: two for each
// Subscription, of which one has been sent while the other is acknowledged. They are on the account.
const (
	leastSpare = 16
	maxSpare   = 256
)

// SetName names the client in log lines.
func (c *Client) SetName(name string) {
	c.mu.Lock()
	c.name = name
	c.mu.Unlock()
}

// Publish takes one Publish request (Part 4, 5.14.5) with its acknowledgements. The answer comes through its Sender,
// now or later: a NotificationMessage, BadNoSubscription, BadTooManyPublishRequests, BadTimeout or BadSessionClosed.
func (c *Client) Publish(r Request, acks []Ack) {
	now := c.engine.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = now
	w := c.enqueue(&r, now)
	for _, a := range acks {
		w.results = append(w.results, c.acknowledge(a))
	}
	switch {
	case c.closed:
		c.fail(ua.StatusBadSessionClosed)
	case len(c.subs.list) == 0:
		c.tellTransfers()
		c.fail(ua.StatusBadNoSubscription)
	default:
		c.serve(now)
	}
}

// enqueue puts a request behind the others. When there are too many the oldest is answered
// BadTooManyPublishRequests (Part 4, 5.14.5.2).
func (c *Client) enqueue(r *Request, now int64) *waiting {
	if c.queued == c.engine.cfg.Requests {
		c.failOldest(ua.StatusBadTooManyPublishRequests)
	}
	if c.queued == len(c.queue) {
		bigger := make([]waiting, max(1, 2*len(c.queue)))
		for i := range c.queued {
			bigger[i] = *c.at(i)
		}
		c.queue, c.first = bigger, 0
	}
	c.queued++
	w := c.at(c.queued - 1)
	results := w.results[:0]
	if cap(results) > maxResults {
		results = nil
	}
	*w = waiting{sender: r.Sender, id: r.ID, handle: r.Handle, message: c.engine.cfg.Message, results: results}
	if r.Message > 0 {
		w.message = min(w.message, r.Message)
	}
	if r.Timeout > 0 {
		w.deadline = now + int64(r.Timeout)
		c.watchDeadline(w.deadline)
	}
	return w
}

// at is the i-th oldest request.
func (c *Client) at(i int) *waiting { return &c.queue[(c.first+i)%len(c.queue)] }

// watchDeadline has the alarm ring for the earliest deadline.
func (c *Client) watchDeadline(at int64) {
	sh := c.shard
	sh.mu.Lock()
	armed := c.alarm.pos >= 0 && c.alarm.at <= at
	sh.mu.Unlock()
	if !armed {
		c.alarm.set(at)
	}
}

// ring answers the requests whose TimeoutHint has passed with BadTimeout (Part 4, 7.33).
func (c *Client) ring(_ *shard, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := int64(math.MaxInt64)
	for i := 0; i < c.queued; {
		switch w := c.at(i); {
		case w.deadline == 0:
			i++
		case w.deadline <= now:
			c.respond(i, &Response{status: ua.StatusBadTimeout})
		default:
			next = min(next, w.deadline)
			i++
		}
	}
	if next != math.MaxInt64 {
		c.alarm.set(next)
	}
}

// remove takes out the i-th oldest request.
func (c *Client) remove(i int) {
	gone := *c.at(i)
	for ; i > 0; i-- {
		*c.at(i) = *c.at(i - 1)
	}
	*c.at(0) = waiting{results: gone.results[:0]}
	c.first = (c.first + 1) % len(c.queue)
	c.queued--
}

// answers are Responses that nobody needs at the moment: a client needs one for as long as it takes to append it.
var answers = sync.Pool{New: func() any { return new(Response) }}

// respond answers the i-th oldest request with a, and reports whether its connection took it.
func (c *Client) respond(i int, a *Response) bool {
	w, r := c.at(i), answers.Get().(*Response)
	*r = *a
	r.handle, r.results, r.at = w.handle, w.results, tag.Now()
	ok := w.sender.Respond(w.id, r)
	c.remove(i)
	*r = Response{}
	answers.Put(r)
	return ok
}

// deliver answers the oldest request with a, or the next one when a connection is gone.
func (c *Client) deliver(a *Response) {
	for c.queued > 0 {
		sender := c.at(0).sender
		if c.respond(0, a) {
			return
		}
		c.giveUp(sender)
	}
}

// failOldest answers the oldest request with a fault.
func (c *Client) failOldest(code ua.StatusCode) {
	c.respond(0, &Response{status: code})
}

// fail answers all requests with a fault.
func (c *Client) fail(code ua.StatusCode) {
	for c.queued > 0 {
		c.failOldest(code)
	}
}

// serve uses the waiting requests for what is late: first for news of Subscriptions that are gone, then for the
// Subscription with the highest priority that is LATE or has more to send, the longest waiting one of equals.
func (c *Client) serve(now int64) {
	for c.queued > 0 {
		if len(c.notices) > 0 && !c.closed {
			c.sendNotice(0)
			continue
		}
		var best *Subscription
		for _, s := range c.subs.list {
			if s.overdue() && (best == nil || s.priority > best.priority ||
				s.priority == best.priority && s.lateSince < best.lateSince) {
				best = s
			}
		}
		if best == nil {
			return
		}
		best.step(onPublish, now)
	}
}

// notify has a notice sent with the next Publish request.
func (c *Client) notify(n notice) {
	if c.closed {
		return
	}
	if len(c.notices) == maxNotices {
		c.notices = slices.Delete(c.notices, 0, 1)
	}
	c.notices = append(c.notices, n)
}

// tellTransfers sends the notices of Subscriptions that serve another session now: a client that has none left shall
// know why before it is told that it has none.
func (c *Client) tellTransfers() {
	for i := 0; i < len(c.notices) && c.queued > 0; {
		if c.notices[i].status == ua.StatusGoodSubscriptionTransferred {
			c.sendNotice(i)
		} else {
			i++
		}
	}
}

// sendNotice answers the oldest Publish request with the i-th notice.
func (c *Client) sendNotice(i int) {
	n := c.notices[i]
	c.notices = slices.Delete(c.notices, i, i+1)
	c.deliver(&Response{sub: n.sub, message: appendStatusChange(nil, n.sequence, tag.Now(), n.status)})
}

// acknowledge forgets a message that the client has (Part 4, 5.14.5.4 for the codes).
func (c *Client) acknowledge(a Ack) ua.StatusCode {
	s := c.subs.find(a.Subscription)
	switch {
	case s == nil:
		return ua.StatusBadSubscriptionIDInvalid
	case !s.acknowledge(a.Sequence):
		return ua.StatusBadSequenceNumberUnknown
	}
	return ua.StatusGood
}

// Detach gives up the Publish requests that came through sender, whose connection is gone. The Subscriptions live on
// and serve whoever comes next.
func (c *Client) Detach(sender Sender) {
	c.mu.Lock()
	c.giveUp(sender)
	c.mu.Unlock()
}

// giveUp forgets the requests that came through sender.
func (c *Client) giveUp(sender Sender) {
	for i := 0; i < c.queued; {
		if c.at(i).sender == sender {
			c.remove(i)
		} else {
			i++
		}
	}
}

// Cancel answers the waiting requests with that RequestHandle BadRequestCancelledByClient, and tells how many there
// were (Part 4, 5.7.5).
func (c *Client) Cancel(handle uint32) (n uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < c.queued; {
		if c.at(i).handle != handle {
			i++
			continue
		}
		c.respond(i, &Response{status: ua.StatusBadRequestCancelledByClient})
		n++
	}
	return n
}

// Close ends the session's publish side: waiting requests are answered BadSessionClosed. Subscriptions that are not
// deleted live on until their lifetime ends (Part 4, 5.7.4).
func (c *Client) Close(deleteSubscriptions bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.fail(ua.StatusBadSessionClosed)
	c.notices, c.queue = nil, nil
	if deleteSubscriptions {
		for _, s := range slices.Clone(c.subs.list) {
			s.step(onDelete, c.engine.now())
		}
	}
	c.rest()
}

// rest is called when a Subscription may have been the last: Publish requests have nothing to wait for (Part 4,
// 5.14.5.3, BadNoSubscription).
func (c *Client) rest() {
	if len(c.subs.list) > 0 {
		return
	}
	c.tellTransfers()
	c.fail(ua.StatusBadNoSubscription)
	if c.closed {
		c.shed()
		c.alarm.stop()
		c.engine.forget(c)
	}
}

// buffer is an empty buffer for a message, a new one with room for so many bytes.
func (c *Client) buffer(room int) []byte {
	n := len(c.spare)
	if n == 0 {
		return make([]byte, 0, max(room, 128))
	}
	b := c.spare[n-1]
	c.spare = c.spare[:n-1]
	c.engine.cfg.Account.Give(cap(b))
	return b[:0]
}

// recycle takes back the buffer of a message that nobody needs any more.
func (c *Client) recycle(b []byte) {
	if len(c.spare) < max(leastSpare, min(2*len(c.subs.list), maxSpare)) && c.engine.cfg.Account.Take(cap(b)) {
		c.spare = append(c.spare, b)
	}
}

// shed lets go of the buffers that were taken back.
func (c *Client) shed() {
	for _, b := range c.spare {
		c.engine.cfg.Account.Give(cap(b))
	}
	c.spare = nil
}
