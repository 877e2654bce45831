package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// seen is what a client knows of one MonitoredItem.
type seen struct {
	first, last uint32 // numbers
	count       uint32 // notifications with a good value
}

// tally adds up what many sessions receive.
type tally struct {
	received atomic.Uint64 // notifications with a good value, initial ones too
	lost     atomic.Uint64 // numbers left out between two of them
	again    atomic.Uint64 // notifications of the number before, beside initial ones
	overflow atomic.Uint64 // notifications with the Overflow bit
	begun    atomic.Uint64 // items with their initial value
	quitting atomic.Bool   // no more notifications are wanted
	quit     atomic.Uint64 // sessions that get none any more
	messages atomic.Uint64

	mu     sync.Mutex // guards all below
	window window
	errors uint64
	first  error // of errors
}

// window are the notifications of some time.
type window struct {
	open     bool
	from, to tag.Time // of SourceTimestamps; to 0: no end
	inside   uint64   // notifications whose SourceTimestamp lies in it
	delay    latencies
	total    time.Duration // of delay
}

func (t *tally) fail(err error) {
	t.mu.Lock()
	if t.errors++; t.first == nil {
		t.first = err
	}
	t.mu.Unlock()
}

// subscriber is one session with its Subscriptions. Its goroutine owns it between start and finish.
type subscriber struct {
	c       *conn
	watch   *watching
	nodes   []node // of its items, by client handle
	items   []seen // likewise
	subs    []uint32
	tally   *tally
	publish *request // without acknowledgements
	head    int      // bytes of it before them
	ending  *atomic.Bool
	gone    bool // its Subscriptions

	// Of the message at hand.
	now                             tag.Time
	got, lost, again, flagged, news uint64
	foreign                         int // notifications of no item, or without a number
	code                            ua.StatusCode
}

func newSubscriber(c *conn, w *watching, nodes []node, t *tally, ending *atomic.Bool) *subscriber {
	s := &subscriber{c: c, watch: w, nodes: nodes, items: make([]seen, len(nodes)), tally: t, ending: ending}
	s.publish = begin(c.session, id.PublishRequest_Encoding_DefaultBinary, id.PublishResponse_Encoding_DefaultBinary)
	// A Publish request waits as long as it takes.
	binary.LittleEndian.PutUint32(s.publish.body[s.publish.handle+12:], 0)
	s.head = len(s.publish.body)
	return s
}

// createSubscriptions creates the session's Subscriptions (Part 4, 5.14.2).
func (s *subscriber) createSubscriptions() error {
	w := s.watch
	for range w.subscriptions {
		v, err := s.c.call(&ua.CreateSubscriptionRequest{
			RequestedPublishingInterval: float64(w.publishing) / float64(time.Millisecond), PublishingEnabled: true,
			RequestedLifetimeCount: uint32(lifetime / w.publishing), RequestedMaxKeepAliveCount: uint32(max(1, keepAlive/w.publishing)),
		})
		if err != nil {
			return fmt.Errorf("subscription: %w", err)
		}
		r, ok := v.(*ua.CreateSubscriptionResponse)
		if !ok {
			return fmt.Errorf("%T instead of a subscription", v)
		}
		s.subs = append(s.subs, r.SubscriptionID)
	}
	return nil
}

// keepAlive is how long a Subscription without news is asked to be silent.
const keepAlive = 10 * time.Second

// createItems creates the items of one Subscription, by a request at a time (Part 4, 5.13.2), and tells how many.
func (s *subscriber) createItems(sub int) (made int, err error) {
	from := min(sub*s.watch.items, len(s.nodes))
	for left := s.nodes[from:min(from+s.watch.items, len(s.nodes))]; len(left) > 0; {
		n := min(len(left), maxItems)
		q := itemsRequest(s.c.session, s.subs[sub], left[:n], uint32(from), s.watch)
		s.c.sock.SetDeadline(time.Now().Add(patience))
		got, body, err := s.c.ask(q, time.Now())
		s.c.sock.SetDeadline(time.Time{})
		if err != nil {
			return made, err
		}
		v := q.check(body, got)
		if err := v.err(q); err != nil {
			return made, fmt.Errorf("items: %w", err)
		}
		left, from, made = left[n:], from+n, made+n
	}
	return made, nil
}

// maxItems is how many items one request creates.
const maxItems = 1000

// itemsRequest creates items on the Value of nodes, whose client handles count up.
func itemsRequest(session wire.NodeID, sub uint32, nodes []node, handle uint32, w *watching) *request {
	q := begin(session, id.CreateMonitoredItemsRequest_Encoding_DefaultBinary, id.CreateMonitoredItemsResponse_Encoding_DefaultBinary)
	q.items, q.scan = len(nodes), scanItems
	b := wire.AppendUint32(q.body, sub)
	b = wire.AppendUint32(b, uint32(ua.TimestampsToReturnBoth))
	b = wire.AppendUint32(b, uint32(len(nodes)))
	for i := range nodes {
		if w.events {
			b = wire.AppendNodeID(b, nodes[i].id)
			b = wire.AppendNull(wire.AppendUint32(b, uint32(ua.AttributeIDEventNotifier)))
		} else {
			b = appendValueOf(b, nodes[i].id)
		}
		b = wire.AppendNull(wire.AppendUint16(b, 0)) // DataEncoding
		b = wire.AppendUint32(b, uint32(ua.MonitoringModeReporting))
		b = wire.AppendUint32(b, handle+uint32(i))
		b = wire.AppendFloat64(b, w.sampling)
		if w.events {
			b = appendEventFilter(b)
		} else {
			b = append(b, 0, 0, wire.NoBody) // no filter
		}
		b = wire.AppendUint32(b, w.queue)
		b = wire.AppendBool(b, true) // DiscardOldest
	}
	q.body = b
	return q
}

// scanItems walks over the results of a CreateMonitoredItemsResponse.
func scanItems(b []byte) verdict {
	const least = 4 + 4 + 8 + 4 + 3
	n, b, ok := count(b, least)
	if !ok {
		return verdict{fault: errCut}
	}
	v := verdict{items: n}
	r := wire.NewReader(b)
	for range n {
		code := ua.StatusCode(r.Uint32())
		r.Skip(4 + 8 + 4) // id, revised sampling interval and queue size
		r.Extension()
		if code&severe != 0 {
			v.badItem(code)
		}
	}
	if !ending(r.Rest()) {
		v.fault = errCut
	}
	return v
}

// start sends the Publish requests that are to be in flight.
func (s *subscriber) start() error {
	now := time.Now()
	for range s.watch.requests {
		s.ask(0, 0, now)
	}
	return s.c.flush()
}

// ask queues a Publish request that acknowledges a message; of Subscription 0 there is none.
func (s *subscriber) ask(sub, sequence uint32, now time.Time) {
	b := s.publish.body[:s.head]
	if sub == 0 {
		b = wire.AppendUint32(b, 0)
	} else {
		b = wire.AppendUint32(b, 1)
		b = wire.AppendUint32(b, sub)
		b = wire.AppendUint32(b, sequence)
	}
	s.publish.body = b
	s.c.queue(s.publish, now)
}

// run receives notifications and sends the next Publish request for each answer, until the connection is closed or its
// deadline set. When several answers are there they are asked for by one call of the system.
func (s *subscriber) run() {
	for {
		_, body, err := s.c.receive()
		if err != nil {
			if !s.ending.Load() {
				s.tally.fail(err)
			}
			return
		}
		now := time.Now()
		if err := s.take(body, now); err != nil {
			s.tally.fail(err)
			if errors.Is(err, errCut) {
				return
			}
		}
		if s.c.arrived() {
			continue
		}
		if now.After(s.c.renewal) {
			err = s.c.renew(now)
		}
		if err = errors.Join(err, s.c.flush()); err != nil && !s.ending.Load() {
			s.tally.fail(err)
			return
		}
	}
}

// take counts what an answer to a Publish request holds, and queues the next one.
func (s *subscriber) take(b []byte, now time.Time) error {
	if s.tally.quitting.Load() && !s.gone {
		s.quit(now)
	}
	if _, code, err := answered(b, id.DeleteSubscriptionsResponse_Encoding_DefaultBinary); err == nil && code == 0 {
		s.tally.quit.Add(1)
		return nil
	}
	b, code, err := answered(b, s.publish.answer)
	if err != nil {
		return err
	}
	if code&severe != 0 {
		if s.gone && code == ua.StatusBadNoSubscription {
			return nil
		}
		if code == ua.StatusBadTimeout || code == ua.StatusBadTooManyPublishRequests {
			s.ask(0, 0, now)
		}
		if s.ending.Load() {
			return nil
		}
		return fmt.Errorf("a Publish request: %w", code)
	}
	p, err := parsePublished(b)
	if err != nil {
		return errCut
	}
	if p.keepAlive {
		s.ask(0, 0, now)
		return nil
	}
	s.ask(p.sub, p.sequence, now)
	s.now, s.got, s.lost, s.again, s.flagged, s.news, s.foreign, s.code = tag.TimeOf(now), 0, 0, 0, 0, 0, 0, 0
	err = s.message(&p)
	s.tally.add(s)
	if err == nil && s.foreign > 0 {
		err = fmt.Errorf("%d notifications of no item, or without a value: the last is %w", s.foreign, s.code)
	}
	return err
}

// quit deletes the Subscriptions (Part 4, 5.14.8). What is under way arrives.
func (s *subscriber) quit(now time.Time) {
	s.gone = true
	q := begin(s.c.session, id.DeleteSubscriptionsRequest_Encoding_DefaultBinary, id.DeleteSubscriptionsResponse_Encoding_DefaultBinary)
	b := wire.AppendUint32(q.body, uint32(len(s.subs)))
	for _, sub := range s.subs {
		b = wire.AppendUint32(b, sub)
	}
	q.body = b
	s.c.queue(q, now)
}

// message counts the notifications of a message, and how late they are: each, or the first alone.
func (s *subscriber) message(p *published) error {
	t := s.tally
	first := true
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &t.window
	return p.each(s.events, func(n *notice) {
		s.count(n)
		if !w.open || n.source == 0 || !first && !s.watch.each {
			return
		}
		if first = false; n.source < w.from || w.to != 0 && n.source >= w.to || s.echo(n.handle) {
			return
		}
		d := time.Duration(max(0, s.now-n.source)) * 100 // ticks of 100 ns
		w.inside++
		w.total += d
		w.delay.add(d)
	})
}

// echo reports whether an item watches what the client itself writes.
func (s *subscriber) echo(handle uint32) bool { return s.watch.twoWay && int(handle) >= len(s.items)/2 }

// count enters one notification into its item.
func (s *subscriber) count(n *notice) {
	if n.code&overflow == overflow {
		s.flagged++
	}
	if n.handle >= uint32(len(s.items)) || !n.known || n.code&severe != 0 {
		if n.code != ua.StatusBadWaitingForInitialData {
			s.foreign++
			s.code = n.code
		}
		return
	}
	it := &s.items[n.handle]
	switch step := uint16(n.number - it.last); {
	case it.count == 0:
		s.news++
		it.first = n.number
	case step == 0:
		s.again++
	default:
		s.lost += uint64(step - 1)
	}
	it.last = n.number
	it.count++
	s.got++
}

func (t *tally) add(s *subscriber) {
	t.messages.Add(1)
	t.received.Add(s.got)
	t.lost.Add(s.lost)
	t.again.Add(s.again)
	t.overflow.Add(s.flagged)
	t.begun.Add(s.news)
}

// answered checks that b is a response of that type and returns what stands behind its header, or the status of a fault.
func answered(b []byte, kind uint32) (rest []byte, code ua.StatusCode, err error) {
	if len(b) < headerSize || b[0] != 1 || b[1] != 0 {
		return nil, 0, errCut
	}
	if code = ua.StatusCode(binary.LittleEndian.Uint32(b[resultAt:])); code&severe != 0 {
		return nil, code, nil
	}
	n := tail(b[tailAt:])
	if n == 0 || uint32(binary.LittleEndian.Uint16(b[2:])) != kind {
		return nil, 0, errCut
	}
	return b[tailAt+n:], code, nil
}

// finish ends session, channel and connection once run has ended: answers that are under way are passed over.
func (s *subscriber) finish() {
	c := s.c
	defer c.sock.Close()
	c.sock.SetDeadline(time.Now().Add(patience / 10))
	c.id++
	last := c.id
	if c.write("MSG", wire.AppendMessage(nil, &ua.CloseSessionRequest{RequestHeader: header(c.session, last, time.Now()), DeleteSubscriptions: true})) != nil {
		return
	}
	for {
		got, _, err := c.receive()
		if err != nil {
			return
		}
		if got == last {
			break
		}
	}
	c.id++
	c.write("CLO", wire.AppendMessage(nil, &ua.CloseSecureChannelRequest{RequestHeader: header(wire.NodeID{}, c.id, time.Now())}))
}
