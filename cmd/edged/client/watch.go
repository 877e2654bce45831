package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopcua/opcua/ua"
)

// How a subscription keeps its two ends aware of each other: the server says something at least every keepAlive, and
// ends a subscription that nobody fetches from after lifetime.
const (
	keepAlive = 5 * time.Second
	lifetime  = time.Minute
)

// publishLimit is longer than any Publish request waits; how long each may is said with the call.
const publishLimit = 4 * time.Hour

// MostInterval is the longest publishing interval that Watch takes.
const MostInterval = time.Hour

// WatchOptions say how often and how much.
type WatchOptions struct {
	Interval time.Duration // publishing: how often the server sends what it has
	Sampling time.Duration // how often it looks; 0: every change that it sees
	Queue    uint32        // how many values of an item wait to be sent
}

// Change is one notification.
type Change struct {
	Item     int // index of the node
	Time     time.Time
	Value    any
	Status   ua.StatusCode
	Overflow bool // the server lost values of this item before this one
}

// Item is what became of a node that is to be watched.
type Item struct {
	Status ua.StatusCode
	Queue  uint32 // as the server gives it
}

// Watch subscribes to the values of nodes. It calls created once with what became of each, then change for each
// notification in its order, until ctx ends, one of them returns an error, or the connection or the subscription is
// lost; it returns why. With ctx ended that is nil.
func (c *Conn) Watch(ctx context.Context, nodes []*ua.NodeID, o WatchOptions, created func([]Item) error, change func(Change) error) error {
	sub, err := c.subscribe(ctx, o)
	if err != nil {
		return c.trouble(err)
	}
	items, err := c.monitor(ctx, sub.SubscriptionID, nodes, o)
	if err != nil {
		return c.trouble(err)
	}
	if err := created(items); err != nil {
		return err
	}
	silence := time.Duration(sub.RevisedPublishingInterval*float64(sub.RevisedMaxKeepAliveCount)*float64(time.Millisecond)) + c.timeout
	err = c.publish(ctx, sub.SubscriptionID, min(silence, publishLimit), len(nodes), change)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *Conn) subscribe(ctx context.Context, o WatchOptions) (*ua.CreateSubscriptionResponse, error) {
	alive := uint32(max(1, keepAlive/max(o.Interval, time.Millisecond)))
	return call[*ua.CreateSubscriptionResponse](ctx, c, c.timeout, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: float64(o.Interval) / float64(time.Millisecond),
		RequestedMaxKeepAliveCount:  alive,
		// At least three times the keep-alive count (Part 4, 5.14.2).
		RequestedLifetimeCount: max(3*alive, uint32(lifetime/max(o.Interval, time.Millisecond))),
		PublishingEnabled:      true,
	})
}

func (c *Conn) monitor(ctx context.Context, sub uint32, nodes []*ua.NodeID, o WatchOptions) ([]Item, error) {
	out := make([]Item, 0, len(nodes))
	err := inBatches(len(nodes), mostNodes, func(from, to int) error {
		req := &ua.CreateMonitoredItemsRequest{SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth}
		for i, n := range nodes[from:to] {
			req.ItemsToCreate = append(req.ItemsToCreate, &ua.MonitoredItemCreateRequest{
				ItemToMonitor:  &ua.ReadValueID{NodeID: n, AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}},
				MonitoringMode: ua.MonitoringModeReporting,
				RequestedParameters: &ua.MonitoringParameters{
					ClientHandle: uint32(from + i), SamplingInterval: float64(o.Sampling) / float64(time.Millisecond),
					QueueSize: o.Queue, DiscardOldest: true,
				},
			})
		}
		r, err := call[*ua.CreateMonitoredItemsResponse](ctx, c, c.timeout, req)
		if err == nil {
			err = counts("CreateMonitoredItems", len(r.Results), to-from)
		}
		if err != nil {
			return err
		}
		for _, result := range r.Results {
			if result == nil {
				result = &ua.MonitoredItemCreateResult{StatusCode: ua.StatusBadUnexpectedError}
			}
			out = append(out, Item{result.StatusCode, result.RevisedQueueSize})
		}
		return nil
	})
	return out, err
}

// publish fetches notifications, one request after the other: the server answers at each publishing interval at most.
func (c *Conn) publish(ctx context.Context, sub uint32, silence time.Duration, items int, change func(Change) error) error {
	var acks []*ua.SubscriptionAcknowledgement
	for {
		r, err := call[*ua.PublishResponse](ctx, c, silence, &ua.PublishRequest{SubscriptionAcknowledgements: acks})
		if err != nil {
			return c.trouble(err)
		}
		acks = nil
		m := r.NotificationMessage
		if m == nil || r.SubscriptionID != sub {
			continue
		}
		if len(m.NotificationData) > 0 { // a keep-alive has no number of its own (Part 4, 5.14.1.2)
			acks = []*ua.SubscriptionAcknowledgement{{SubscriptionID: sub, SequenceNumber: m.SequenceNumber}}
		}
		for _, data := range m.NotificationData {
			if data == nil {
				continue
			}
			if err := c.deliver(data.Value, m.PublishTime, items, change); err != nil {
				return err
			}
		}
	}
}

func (c *Conn) deliver(data any, published time.Time, items int, change func(Change) error) error {
	switch n := data.(type) {
	case *ua.StatusChangeNotification:
		return c.trouble(fmt.Errorf("the server ended the subscription: %w", statusError(n.Status)))
	case *ua.DataChangeNotification:
		for _, item := range n.MonitoredItems {
			if item == nil || item.Value == nil || int(item.ClientHandle) >= items {
				return c.trouble(errors.New("the server sent a notification for an item that was not asked for"))
			}
			v := reading(&ua.ReadValueID{}, item.Value)
			at := v.Source
			if at.IsZero() {
				at = v.Server
			}
			if at.IsZero() {
				at = published
			}
			if err := change(Change{int(item.ClientHandle), at, v.Value, v.Status, Overflowed(v.Status)}); err != nil {
				return err
			}
		}
	}
	return nil
}
