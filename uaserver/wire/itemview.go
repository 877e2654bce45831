package wire

import (
	"unsafe"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// This file has the views of the MonitoredItem and Subscription services; see view.go for what all views promise.

// Acknowledgement is one message that the client has got (Part 4, 5.14.5).
type Acknowledgement struct {
	Subscription uint32
	Sequence     uint32
}

// PublishRequest is a view of Publish (Part 4, 5.14.5).
type PublishRequest struct {
	N int // SubscriptionAcknowledgements
	list
}

// PublishRequest reads a PublishRequest and checks it whole.
func (r *Reader) PublishRequest() (v PublishRequest) {
	v.list = r.list(ackSize)
	r.take(v.left * ackSize)
	v.N = v.end(r)
	return v
}

// Next is the next acknowledgement; false: there is none.
func (v *PublishRequest) Next() (a Acknowledgement, ok bool) {
	if !v.next() {
		return a, false
	}
	a.Subscription = v.items.Uint32()
	a.Sequence = v.items.Uint32()
	return a, true
}

// MonitoringParameters are what a client asks of a MonitoredItem (Part 4, 7.21).
type MonitoringParameters struct {
	ClientHandle  uint32
	Sampling      float64 // SamplingInterval in milliseconds; 0: the fastest; negative: the publishing interval
	Filter        Extension
	QueueSize     uint32
	DiscardOldest bool
}

func (r *Reader) parameters() (p MonitoringParameters) {
	p.ClientHandle = r.Uint32()
	p.Sampling = r.Float64()
	p.Filter = r.Extension()
	p.QueueSize = r.Uint32()
	p.DiscardOldest = r.Bool()
	return p
}

func (r *Reader) skipParameters() {
	r.take(4 + 8)
	r.Extension()
	r.take(4 + 1)
}

// CreateItem is one MonitoredItemCreateRequest (Part 4, 5.13.2).
type CreateItem struct {
	Item       ReadValueID
	Mode       ua.MonitoringMode
	Parameters MonitoringParameters
}

// CreateMonitoredItemsRequest is a view of CreateMonitoredItems (Part 4, 5.13.2).
type CreateMonitoredItemsRequest struct {
	Subscription uint32
	Timestamps   ua.TimestampsToReturn
	N            int // ItemsToCreate
	list
}

// CreateMonitoredItemsRequest reads a CreateMonitoredItemsRequest and checks it whole, but for the bodies of filters.
func (r *Reader) CreateMonitoredItemsRequest() (v CreateMonitoredItemsRequest) {
	v.Subscription = r.Uint32()
	v.Timestamps = ua.TimestampsToReturn(r.Uint32())
	v.list = r.list(createItemSize)
	for i := 0; i < v.left && r.err == nil; i++ {
		r.skipReadValueID()
		r.take(4)
		r.skipParameters()
	}
	v.N = v.end(r)
	return v
}

// Next is the next item to create; false: there is none.
func (v *CreateMonitoredItemsRequest) Next() (c CreateItem, ok bool) {
	if !v.next() {
		return c, false
	}
	c.Item = v.items.ReadValueID()
	c.Mode = ua.MonitoringMode(v.items.Uint32())
	c.Parameters = v.items.parameters()
	return c, true
}

// ModifyItem is one MonitoredItemModifyRequest (Part 4, 5.13.3).
type ModifyItem struct {
	ID         uint32
	Parameters MonitoringParameters
}

// ModifyMonitoredItemsRequest is a view of ModifyMonitoredItems (Part 4, 5.13.3).
type ModifyMonitoredItemsRequest struct {
	Subscription uint32
	Timestamps   ua.TimestampsToReturn
	N            int // ItemsToModify
	list
}

// ModifyMonitoredItemsRequest reads a ModifyMonitoredItemsRequest and checks it whole, but for the bodies of filters.
func (r *Reader) ModifyMonitoredItemsRequest() (v ModifyMonitoredItemsRequest) {
	v.Subscription = r.Uint32()
	v.Timestamps = ua.TimestampsToReturn(r.Uint32())
	v.list = r.list(modifyItemSize)
	for i := 0; i < v.left && r.err == nil; i++ {
		r.take(4)
		r.skipParameters()
	}
	v.N = v.end(r)
	return v
}

// Next is the next item to modify; false: there is none.
func (v *ModifyMonitoredItemsRequest) Next() (m ModifyItem, ok bool) {
	if !v.next() {
		return m, false
	}
	m.ID = v.items.Uint32()
	m.Parameters = v.items.parameters()
	return m, true
}

// ids is an array of UInt32 ids.
type ids struct{ list }

func (r *Reader) ids() (v ids, n int) {
	v.list = r.list(4)
	r.take(v.left * 4)
	return v, v.end(r)
}

// Next is the next id; false: there is none.
func (v *ids) Next() (id uint32, ok bool) {
	if !v.next() {
		return 0, false
	}
	return v.items.Uint32(), true
}

// DeleteMonitoredItemsRequest is a view of DeleteMonitoredItems (Part 4, 5.13.6). Next gives the items' ids.
type DeleteMonitoredItemsRequest struct {
	Subscription uint32
	N            int // MonitoredItemIds
	ids
}

// DeleteMonitoredItemsRequest reads a DeleteMonitoredItemsRequest and checks it whole.
func (r *Reader) DeleteMonitoredItemsRequest() (v DeleteMonitoredItemsRequest) {
	v.Subscription = r.Uint32()
	v.ids, v.N = r.ids()
	return v
}

// SetMonitoringModeRequest is a view of SetMonitoringMode (Part 4, 5.13.4). Next gives the items' ids.
type SetMonitoringModeRequest struct {
	Subscription uint32
	Mode         ua.MonitoringMode
	N            int // MonitoredItemIds
	ids
}

// SetMonitoringModeRequest reads a SetMonitoringModeRequest and checks it whole.
func (r *Reader) SetMonitoringModeRequest() (v SetMonitoringModeRequest) {
	v.Subscription = r.Uint32()
	v.Mode = ua.MonitoringMode(r.Uint32())
	v.ids, v.N = r.ids()
	return v
}

// SetPublishingModeRequest is a view of SetPublishingMode (Part 4, 5.14.4). Next gives the subscriptions' ids.
type SetPublishingModeRequest struct {
	Enabled bool
	N       int // SubscriptionIds
	ids
}

// SetPublishingModeRequest reads a SetPublishingModeRequest and checks it whole.
func (r *Reader) SetPublishingModeRequest() (v SetPublishingModeRequest) {
	v.Enabled = r.Bool()
	v.ids, v.N = r.ids()
	return v
}

// DeleteSubscriptionsRequest is a view of DeleteSubscriptions (Part 4, 5.14.8). Next gives the subscriptions' ids.
type DeleteSubscriptionsRequest struct {
	N int // SubscriptionIds
	ids
}

// DeleteSubscriptionsRequest reads a DeleteSubscriptionsRequest and checks it whole.
func (r *Reader) DeleteSubscriptionsRequest() (v DeleteSubscriptionsRequest) {
	v.ids, v.N = r.ids()
	return v
}

// TransferSubscriptionsRequest is a view of TransferSubscriptions (Part 4, 5.14.7). Next gives the subscriptions' ids.
type TransferSubscriptionsRequest struct {
	Initial bool // SendInitialValues
	N       int  // SubscriptionIds
	ids
}

// TransferSubscriptionsRequest reads a TransferSubscriptionsRequest and checks it whole.
func (r *Reader) TransferSubscriptionsRequest() (v TransferSubscriptionsRequest) {
	v.ids, v.N = r.ids()
	v.Initial = r.Bool()
	if r.Err() != nil {
		v.ids, v.N = ids{}, 0
	}
	return v
}

// SetTriggeringRequest is a view of SetTriggering (Part 4, 5.13.5). Next gives the items that links are added to, then
// those that links are removed from.
type SetTriggeringRequest struct {
	Subscription uint32
	Item         uint32 // TriggeringItemId
	N            int    // LinksToAdd
	Removed      int    // LinksToRemove
	add, remove  ids
}

// SetTriggeringRequest reads a SetTriggeringRequest and checks it whole.
func (r *Reader) SetTriggeringRequest() (v SetTriggeringRequest) {
	v.Subscription, v.Item = r.Uint32(), r.Uint32()
	v.add, v.N = r.ids()
	v.remove, v.Removed = r.ids()
	if r.Err() != nil {
		return SetTriggeringRequest{}
	}
	return v
}

// Next is the next item; false: there is none.
func (v *SetTriggeringRequest) Next() (item uint32, ok bool) {
	if item, ok = v.add.Next(); ok {
		return item, true
	}
	return v.remove.Next()
}

// CallMethod is one method to call (Part 4, 5.12.2). Its ids alias the buffer, its inputs own their memory.
type CallMethod struct {
	Object NodeID
	Method NodeID
	Inputs []tag.Value
}

// CallRequest is a view of Call (Part 4, 5.12.2).
type CallRequest struct {
	N     int // MethodsToCall
	items *Reader
	left  int
}

// CallRequest reads a CallRequest up to its first method. It is walked once, as Read is: the caller looks at Err when
// there is no more.
func (r *Reader) CallRequest() (v CallRequest) {
	v.N = max(r.Count(callItemSize), 0)
	v.items, v.left = r, v.N
	return v
}

// Next reads the next method; false: there is none, or the Reader has an error.
func (v *CallRequest) Next() (m CallMethod, ok bool) {
	if v.left == 0 {
		return m, false
	}
	v.left--
	r := v.items
	m.Object, m.Method = r.NodeID(), r.NodeID()
	n := max(r.Count(1), 0)
	if r.err != nil || !r.charge(n*int(unsafe.Sizeof(tag.Value{}))) {
		return m, false
	}
	m.Inputs = make([]tag.Value, n)
	for i := range m.Inputs {
		m.Inputs[i] = r.Variant()
	}
	return m, r.err == nil
}
