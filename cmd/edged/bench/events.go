package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// eventFields are the select clauses of load-events: those of BaseEventType.
var eventFields = []string{"EventId", "EventType", "SourceNode", "SourceName", "Time", "Message", "Severity"}

// Events a second that load-events raises. Signing and encrypting is bound by the cipher.
const (
	eventRate          = 10_000
	eventRateEncrypted = 2_000
	raiseEvery         = 100 * time.Millisecond
)

// drainLimit is how long after the last event all are to have arrived.
const drainLimit = 2 * time.Second

// appendEventFilter appends an EventFilter with eventFields and no where clause, as an ExtensionObject.
func appendEventFilter(dst []byte) []byte {
	dst, at := wire.BeginExtension(dst, id.EventFilter_Encoding_DefaultBinary)
	dst = wire.AppendUint32(dst, uint32(len(eventFields)))
	for _, name := range eventFields {
		dst = wire.AppendNodeID(dst, wire.NumericID(0, id.BaseEventType))
		dst = wire.AppendQualifiedName(wire.AppendUint32(dst, 1), 0, name)
		dst = wire.AppendUint32(dst, uint32(ua.AttributeIDValue))
		dst = wire.AppendNull(dst) // IndexRange
	}
	return wire.EndExtension(wire.AppendUint32(dst, 0), at)
}

// eventsOf reads the head of an EventNotificationList: how many events it has, and of the first one the item and the time.
// A client of load-events watches one item in each Subscription, so that all of a list are of that item. check has every
// event read, to the end of the list.
func eventsOf(b []byte, check bool) (n int, handle uint32, at tag.Time, err error) {
	n, b, ok := count(b, 8)
	if !ok {
		return 0, 0, 0, errCut
	}
	r := wire.NewReader(b)
	for i := 0; i < n && (i == 0 || check); i++ {
		h := r.Uint32()
		fields := r.Count(1)
		if fields != len(eventFields) {
			return 0, 0, 0, fmt.Errorf("an event has %d fields", fields)
		}
		for k := range fields {
			if k == 4 && i == 0 {
				at = tag.Time(r.Variant().Bits())
				continue
			}
			r.SkipBuiltin(variant)
		}
		if i > 0 && h != handle {
			return 0, 0, 0, errors.New("events of two items in one list")
		}
		handle = h
	}
	if r.Err() != nil || check && len(r.Rest()) != 0 {
		return 0, 0, 0, errCut
	}
	return n, handle, at, nil
}

// events counts the events of a message. The first message of an item is read to its end.
func (s *subscriber) events(body []byte) error {
	n, handle, at, err := eventsOf(body, false)
	if err != nil {
		return err
	}
	if handle >= uint32(len(s.items)) {
		s.foreign++
		return nil
	}
	it := &s.items[handle]
	if it.count == 0 {
		if n, _, _, err = eventsOf(body, true); err != nil {
			return err
		}
		s.news++
	}
	it.count += uint32(n)
	s.got += uint64(n)
	if w := &s.tally.window; w.open {
		d := time.Duration(max(0, s.now-at)) * 100 // ticks of 100 ns
		w.inside++
		w.total += d
		w.delay.add(d)
	}
	return nil
}

// eventRound has a gateway raise events at a steady rate while all sessions watch them.
func (b *bench) eventRound(ctx context.Context) (u *setup, r *watched, err error) {
	k := &crew{b: b}
	defer k.close()
	defer context.AfterFunc(ctx, func() { k.ending.Store(true) })()
	c, err := b.peer.open(ctx, "bench events")
	if err != nil {
		return nil, nil, err
	}
	defer c.sock.Close()
	if u, err = k.open(ctx); err != nil {
		return nil, nil, err
	}
	for _, s := range k.subs {
		if err := s.start(); err != nil {
			return u, nil, err
		}
		k.running.Go(s.run)
	}
	r = &watched{watching: b.load.watch, own: b.own != nil, scaled: b.cfg.Scale < 1, seconds: b.cfg.Duration.Seconds()}
	r.before = b.probe.at(ctx, time.Now(), true)
	from := time.Now()
	k.window(from, from.Add(b.cfg.Duration))
	raised, err := b.raise(ctx, c)
	if err != nil {
		return u, nil, err
	}
	r.seconds = time.Since(from).Seconds()
	r.writes, r.items = raised, uint64(len(k.subs)*len(k.subs[0].items))
	r.expected = raised * r.items
	r.drain = k.drainUntil(ctx, func() bool { return k.tally.received.Load() >= r.expected })
	r.final = b.probe.at(ctx, time.Now(), false)
	r.after = r.final
	r.received = k.tally.received.Load()
	r.counted = r.received
	k.stop()
	if err := k.tally.wrong(); err != nil && ctx.Err() == nil {
		r.errors, r.first = k.tally.errors, err
	}
	k.sum(r)
	for _, s := range k.subs {
		for i := range s.items {
			if uint64(s.items[i].count) != raised {
				r.behind++
			}
		}
	}
	return u, r, ctx.Err()
}

// raise calls RaiseEvent for as long as the workload lasts, and tells how many events that were. Rates that the gateway
// cannot take are not made up for.
func (b *bench) raise(ctx context.Context, c *conn) (raised uint64, err error) {
	rate := eventRate
	if b.cfg.Security != SecurityNone {
		rate = eventRateEncrypted
	}
	n := uint32(float64(rate) * raiseEvery.Seconds())
	q := &ua.CallRequest{MethodsToCall: []*ua.CallMethodRequest{{
		ObjectID: ua.NewStringNodeID(1, "gateway"), MethodID: ua.NewStringNodeID(1, "gateway.$RaiseEvent"),
		InputArguments: []*ua.Variant{ua.MustVariant(n), ua.MustVariant(uint16(500))},
	}}}
	next := time.Now()
	for end := next.Add(b.cfg.Duration); next.Before(end); {
		v, err := c.call(q)
		if err != nil {
			return raised, err
		}
		r, ok := v.(*ua.CallResponse)
		if !ok || len(r.Results) != 1 {
			return raised, fmt.Errorf("%T instead of the answer to a Call", v)
		}
		if code := r.Results[0].StatusCode; code != ua.StatusGood {
			return raised, fmt.Errorf("RaiseEvent: %w; the site file has to say server: {raise_events: true}", code)
		}
		raised += uint64(n)
		if next = next.Add(raiseEvery); time.Since(next) > 0 {
			next = time.Now()
		}
		if !pause(ctx, time.Until(next)) {
			return raised, context.Cause(ctx)
		}
	}
	return raised, nil
}

// judgeEvents wants all events at all items, soon after the last one, at the rate of the workload.
func judgeEvents(r *watched) string {
	s := r.sound()
	switch {
	case s != "":
	case r.received != r.expected:
		s = fmt.Sprintf("%d of %d events arrived", r.received, r.expected)
	case r.drain > drainLimit:
		s = fmt.Sprintf("the last event arrived after %v", r.drain)
	}
	return s
}
