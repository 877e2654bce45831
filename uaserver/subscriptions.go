package uaserver

import (
	"errors"
	"sync"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/channel"
	"edged/uaserver/subscription"
	"edged/uaserver/wire"
)

// sender sends the answers to Publish requests of one session that came through one channel.
type sender struct {
	ch     *channel.Channel
	client *client
}

// Respond implements subscription.Sender. A message that the client cannot take stays for Republish.
func (p sender) Respond(request uint32, r *subscription.Response) bool {
	err := p.ch.ReplyWithin(request, r, p.client.Peer.MaxResponse)
	failed := r.Status() != ua.StatusGood
	if errors.Is(err, channel.ErrTooLarge) {
		failed = true
		err = p.ch.Reply(request, &fault{r.Handle(), ua.StatusBadResponseTooLarge})
	}
	if failed {
		p.client.counts.failed(byRequest[id.PublishRequest_Encoding_DefaultBinary])
	}
	return err == nil
}

// subscriptionCounts are those of ServerDiagnosticsSummary (Part 5, 12.9).
func (s *Server) subscriptionCounts() (current, created, intervals uint32) {
	n, ever, paces := s.engine.Counts()
	return uint32(n), uint32(ever), uint32(paces)
}

// body is a response: what stands behind its header.
type body struct {
	response uint32 // type id
	handle   uint32
	append   func(dst []byte) []byte
}

// AppendTo appends the response.
func (b *body) AppendTo(dst []byte) []byte {
	return b.append(wire.AppendResponseHeader(dst, b.response, b.handle, ua.StatusGood, tag.Now()))
}

// answer sends a response of that type; rest appends what stands behind its header.
func (c *call) answer(response uint32, rest func(dst []byte) []byte) {
	c.reply(&body{response, c.header.Handle, rest})
}

// answerStatuses sends a response that is a list of results.
func (c *call) answerStatuses(response uint32, results []ua.StatusCode) {
	c.answer(response, func(dst []byte) []byte { return wire.AppendNull(appendStatuses(dst, results)) })
}

func appendStatuses(dst []byte, results []ua.StatusCode) []byte {
	dst = wire.AppendUint32(dst, uint32(len(results)))
	for _, code := range results {
		dst = wire.AppendUint32(dst, uint32(code))
	}
	return dst
}

// parameters reads what CreateSubscription and ModifySubscription have in common up to the priority, which the former
// has behind publishingEnabled.
func parameters(r *wire.Reader) (p subscription.Parameters) {
	p.Publishing = r.Float64()
	p.Lifetime = r.Uint32()
	p.KeepAlive = r.Uint32()
	p.Notifications = r.Uint32()
	return p
}

func appendParameters(dst []byte, p *subscription.Parameters) []byte {
	dst = wire.AppendFloat64(dst, p.Publishing)
	dst = wire.AppendUint32(dst, p.Lifetime)
	return wire.AppendUint32(dst, p.KeepAlive)
}

// createSubscription answers CreateSubscription (Part 4, 5.14.2).
func (s *Server) createSubscription(c *call) {
	p := parameters(&c.body)
	enabled := c.body.Bool()
	p.Priority = c.body.Uint8()
	if c.body.Err() != nil {
		c.fault(decodingStatus(c.body.Err()))
		return
	}
	c.client.pub.SetName(c.client.Peer.Name)
	code := c.client.pub.CreateSubscription(p, enabled, func(sub uint32, revised subscription.Parameters) {
		c.answer(id.CreateSubscriptionResponse_Encoding_DefaultBinary, func(dst []byte) []byte {
			return appendParameters(wire.AppendUint32(dst, sub), &revised)
		})
	})
	if code != ua.StatusGood {
		c.fault(code)
	}
}

// modifySubscription answers ModifySubscription (Part 4, 5.14.3).
func (s *Server) modifySubscription(c *call) {
	sub := c.body.Uint32()
	p := parameters(&c.body)
	p.Priority = c.body.Uint8()
	if c.body.Err() != nil {
		c.fault(decodingStatus(c.body.Err()))
		return
	}
	revised, code := c.client.pub.ModifySubscription(sub, p)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	c.answer(id.ModifySubscriptionResponse_Encoding_DefaultBinary, func(dst []byte) []byte {
		return appendParameters(dst, &revised)
	})
}

// idView is a view of a request that ends in a list of ids.
type idView interface{ Next() (uint32, bool) }

// ids collects n ids after the checks that all lists of operations have.
func (c *call) ids(v idView, n, limit int) ([]uint32, ua.StatusCode) {
	if c.body.Err() != nil {
		return nil, decodingStatus(c.body.Err())
	}
	if code := operations(n, limit); code != ua.StatusGood {
		return nil, code
	}
	if !c.fits(n, 4) {
		return nil, ua.StatusBadResponseTooLarge
	}
	list := make([]uint32, 0, n)
	for i, ok := v.Next(); ok; i, ok = v.Next() {
		list = append(list, i)
	}
	return list, ua.StatusGood
}

// setPublishingMode answers SetPublishingMode (Part 4, 5.14.4).
func (s *Server) setPublishingMode(c *call) {
	v := c.body.SetPublishingModeRequest()
	list, code := c.ids(&v, v.N, s.cfg.Limits.Nodes)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	results := make([]ua.StatusCode, len(list))
	c.client.pub.SetPublishing(list, v.Enabled, results)
	c.answerStatuses(id.SetPublishingModeResponse_Encoding_DefaultBinary, results)
}

// deleteSubscriptions answers DeleteSubscriptions (Part 4, 5.14.8).
func (s *Server) deleteSubscriptions(c *call) {
	v := c.body.DeleteSubscriptionsRequest()
	list, code := c.ids(&v, v.N, s.cfg.Limits.Nodes)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	results := make([]ua.StatusCode, len(list))
	c.client.pub.DeleteSubscriptions(list, results, func() {
		c.answerStatuses(id.DeleteSubscriptionsResponse_Encoding_DefaultBinary, results)
	})
}

// transferSubscriptions answers TransferSubscriptions (Part 4, 5.14.7). The log tells what was taken over, and what was
// refused.
func (s *Server) transferSubscriptions(c *call) {
	v := c.body.TransferSubscriptionsRequest()
	list, code := c.ids(&v, v.N, s.cfg.Limits.Nodes)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	const each = 8 + 4*4 // bytes of a result, with a few messages more than there are now
	if n := len(list)*each + 4*s.engine.Available(list); !c.fits(n, 1) {
		c.fault(ua.StatusBadResponseTooLarge)
		return
	}
	results := make([]subscription.TransferResult, len(list))
	code = c.client.pub.Transfer(list, v.Initial, results, func() {
		c.answer(id.TransferSubscriptionsResponse_Encoding_DefaultBinary, func(dst []byte) []byte {
			return appendTransfers(dst, results)
		})
	})
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	for i, r := range results {
		if r.Status == ua.StatusGood || r.Status == ua.StatusBadUserAccessDenied {
			s.talk.say(s.log, "subscription transferred", "subscription", list[i], "to", c.client.Peer.Name,
				"client", c.client.Peer.ApplicationName, "user", c.client.userName(), "status", tag.Status(r.Status).String())
		}
	}
}

func appendTransfers(dst []byte, results []subscription.TransferResult) []byte {
	dst = wire.AppendUint32(dst, uint32(len(results)))
	for i := range results {
		dst = wire.AppendUint32(dst, uint32(results[i].Status))
		dst = wire.AppendUint32(dst, uint32(len(results[i].Available)))
		for _, n := range results[i].Available {
			dst = wire.AppendUint32(dst, n)
		}
	}
	return wire.AppendNull(dst)
}

// acks is the acknowledgements of one Publish request.
type acks struct{ list []subscription.Ack }

var ackLists = sync.Pool{New: func() any { return new(acks) }}

// maxAcks is how many acknowledgements a list in the pool has room for.
const maxAcks = 1024

// publish takes a Publish request (Part 4, 5.14.5); the engine answers it.
func (s *Server) publish(c *call) {
	v := c.body.PublishRequest()
	if c.body.Err() != nil {
		c.fault(decodingStatus(c.body.Err()))
		return
	}
	if v.N > s.cfg.Limits.Nodes { // a result each is kept while the request waits
		c.fault(ua.StatusBadTooManyOperations)
		return
	}
	a := ackLists.Get().(*acks)
	a.list = a.list[:0]
	for k, ok := v.Next(); ok; k, ok = v.Next() {
		a.list = append(a.list, subscription.Ack(k))
	}
	c.client.pub.Publish(subscription.Request{
		Sender: sender{c.ch, c.client}, ID: c.id, Handle: c.header.Handle,
		Timeout: time.Duration(c.header.TimeoutHint) * time.Millisecond, Message: c.room(),
	}, a.list)
	if cap(a.list) <= maxAcks {
		ackLists.Put(a)
	}
}

// republish answers Republish (Part 4, 5.14.6).
func (s *Server) republish(c *call) {
	sub, sequence := c.body.Uint32(), c.body.Uint32()
	if c.body.Err() != nil {
		c.fault(decodingStatus(c.body.Err()))
		return
	}
	code := c.client.pub.Republish(sub, sequence, func(message []byte) {
		c.answer(id.RepublishResponse_Encoding_DefaultBinary, func(dst []byte) []byte { return append(dst, message...) })
	})
	if code != ua.StatusGood {
		c.fault(code)
	}
}

// itemBatch is the working memory of a MonitoredItem service.
type itemBatch struct {
	create  []subscription.ItemRequest
	modify  []subscription.ModifyRequest
	results []subscription.ItemResult
}

var itemBatches = sync.Pool{New: func() any { return new(itemBatch) }}

// free gives the memory back; what aliases a request's buffer must not stay in it.
func (b *itemBatch) free() {
	clear(b.create)
	clear(b.modify)
	b.create, b.modify, b.results = b.create[:0], b.modify[:0], b.results[:0]
	itemBatches.Put(b)
}

// resultBytes is the size of a MonitoredItemCreateResult without a FilterResult, the longer of the two results.
const resultBytes = 23

// filterResultBytes is at least what the result of an event filter takes: no clause takes less than half of what may be
// said of it.
func filterResultBytes(x *wire.Extension) int {
	if !x.Is(id.EventFilter_Encoding_DefaultBinary) {
		return 0
	}
	return 2*len(x.Body) + 32
}

// appendResults appends one result an item.
func (b *itemBatch) appendResults(dst []byte, created bool) []byte {
	dst = wire.AppendUint32(dst, uint32(len(b.results)))
	for i := range b.results {
		r := &b.results[i]
		dst = wire.AppendUint32(dst, uint32(r.Status))
		if created {
			dst = wire.AppendUint32(dst, r.ID)
		}
		dst = wire.AppendFloat64(dst, r.Sampling)
		dst = wire.AppendUint32(dst, r.Queue)
		if r.Filter == nil {
			dst = append(dst, 0, 0, 0) // FilterResult: a null ExtensionObject
			continue
		}
		var at int
		dst, at = wire.BeginExtension(dst, id.EventFilterResult_Encoding_DefaultBinary)
		dst = wire.EndExtension(append(dst, r.Filter...), at)
	}
	return wire.AppendNull(dst)
}

// room makes n results.
func (b *itemBatch) room(n int) {
	if cap(b.results) < n {
		b.results = make([]subscription.ItemResult, n)
	}
	b.results = b.results[:n]
}

// createMonitoredItems answers CreateMonitoredItems (Part 4, 5.13.2).
func (s *Server) createMonitoredItems(c *call) {
	v := c.body.CreateMonitoredItemsRequest()
	if c.body.Err() != nil {
		c.fault(decodingStatus(c.body.Err()))
		return
	}
	if code := operations(v.N, s.cfg.Limits.MonitoredItems); code != ua.StatusGood {
		c.fault(code)
		return
	}
	b := itemBatches.Get().(*itemBatch)
	defer b.free()
	filters := 0
	for m, ok := v.Next(); ok; m, ok = v.Next() {
		b.create = append(b.create, c.itemRequest(&m))
		filters += filterResultBytes(&m.Parameters.Filter)
	}
	if !c.fits(v.N*resultBytes+filters, 1) {
		c.fault(ua.StatusBadResponseTooLarge)
		return
	}
	b.room(len(b.create))
	code := c.client.pub.CreateItems(s.ctx, v.Subscription, v.Timestamps, c.client.may(), b.create, b.results, func() {
		c.answer(id.CreateMonitoredItemsResponse_Encoding_DefaultBinary, func(dst []byte) []byte {
			return b.appendResults(dst, true)
		})
	})
	if code != ua.StatusGood {
		c.fault(code)
	}
}

// itemRequest makes the engine's request of the wire's. A node may be named by an alias of RegisterNodes.
func (c *call) itemRequest(m *wire.CreateItem) subscription.ItemRequest {
	p := &m.Parameters
	r := subscription.ItemRequest{
		Node: c.node(&m.Item.Node), Attribute: m.Item.Attribute, Range: m.Item.Range, Mode: m.Mode,
		Handle: p.ClientHandle, Sampling: p.Sampling, Queue: p.QueueSize, Oldest: p.DiscardOldest,
	}
	r.FilterType, r.Filter = filterOf(&p.Filter)
	if r.Node != nil && (m.Item.Encoding != "" || m.Item.EncodingNS != 0) {
		r.Status = ua.StatusCode(checkEncoding(&m.Item))
	}
	return r
}

// filterOf is the encoding and the body of a filter. One with a body that is not binary has a type that no filter has.
func filterOf(x *wire.Extension) (wire.NodeID, []byte) {
	switch x.Encoding {
	case wire.NoBody:
		return wire.NodeID{}, nil
	case wire.BinaryBody:
		return x.Type, x.Body
	}
	return wire.NumericID(0, id.XMLElement), nil
}

// modifyMonitoredItems answers ModifyMonitoredItems (Part 4, 5.13.3).
func (s *Server) modifyMonitoredItems(c *call) {
	v := c.body.ModifyMonitoredItemsRequest()
	if c.body.Err() != nil {
		c.fault(decodingStatus(c.body.Err()))
		return
	}
	if code := operations(v.N, s.cfg.Limits.MonitoredItems); code != ua.StatusGood {
		c.fault(code)
		return
	}
	b := itemBatches.Get().(*itemBatch)
	defer b.free()
	filters := 0
	for m, ok := v.Next(); ok; m, ok = v.Next() {
		p := &m.Parameters
		r := subscription.ModifyRequest{ID: m.ID, Handle: p.ClientHandle, Sampling: p.Sampling, Queue: p.QueueSize, Oldest: p.DiscardOldest}
		r.FilterType, r.Filter = filterOf(&p.Filter)
		b.modify = append(b.modify, r)
		filters += filterResultBytes(&p.Filter)
	}
	if !c.fits(v.N*resultBytes+filters, 1) {
		c.fault(ua.StatusBadResponseTooLarge)
		return
	}
	b.room(len(b.modify))
	code := c.client.pub.ModifyItems(v.Subscription, v.Timestamps, b.modify, b.results, func() {
		c.answer(id.ModifyMonitoredItemsResponse_Encoding_DefaultBinary, func(dst []byte) []byte {
			return b.appendResults(dst, false)
		})
	})
	if code != ua.StatusGood {
		c.fault(code)
	}
}

// setMonitoringMode answers SetMonitoringMode (Part 4, 5.13.4).
func (s *Server) setMonitoringMode(c *call) {
	v := c.body.SetMonitoringModeRequest()
	list, code := c.ids(&v, v.N, s.cfg.Limits.MonitoredItems)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	results := make([]ua.StatusCode, len(list))
	if code = c.client.pub.SetMode(v.Subscription, v.Mode, list, results); code != ua.StatusGood {
		c.fault(code)
		return
	}
	c.answerStatuses(id.SetMonitoringModeResponse_Encoding_DefaultBinary, results)
}

// setTriggering answers SetTriggering (Part 4, 5.13.5).
func (s *Server) setTriggering(c *call) {
	v := c.body.SetTriggeringRequest()
	list, code := c.ids(&v, v.N+v.Removed, s.cfg.Limits.MonitoredItems)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	results := make([]ua.StatusCode, len(list))
	added, removed := results[:v.N], results[v.N:]
	code = c.client.pub.SetTriggering(v.Subscription, v.Item, list[v.N:], list[:v.N], removed, added)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	c.answer(id.SetTriggeringResponse_Encoding_DefaultBinary, func(dst []byte) []byte {
		return wire.AppendNull(appendStatuses(wire.AppendNull(appendStatuses(dst, added)), removed))
	})
}

// deleteMonitoredItems answers DeleteMonitoredItems (Part 4, 5.13.6).
func (s *Server) deleteMonitoredItems(c *call) {
	v := c.body.DeleteMonitoredItemsRequest()
	list, code := c.ids(&v, v.N, s.cfg.Limits.MonitoredItems)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	results := make([]ua.StatusCode, len(list))
	if code = c.client.pub.DeleteItems(v.Subscription, list, results); code != ua.StatusGood {
		c.fault(code)
		return
	}
	c.answerStatuses(id.DeleteMonitoredItemsResponse_Encoding_DefaultBinary, results)
}
