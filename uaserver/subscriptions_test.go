package uaserver

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/subscription"
	"edged/uaserver/uatest"
)

// receive reads the next response.
func (p *peer) receive() (uint32, ua.Response) {
	p.t.Helper()
	m, err := p.Receive()
	if err != nil {
		p.t.Fatal(err)
	}
	v, err := uatest.Decode(m.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return m.ID, v.(ua.Response)
}

// published reads the next response, which answers a Publish request.
func (p *peer) published() *ua.PublishResponse {
	p.t.Helper()
	_, resp := p.receive()
	r, ok := resp.(*ua.PublishResponse)
	if !ok {
		p.t.Fatalf("%T %v instead of a PublishResponse", resp, resp.Header().ServiceResult)
	}
	return r
}

func publishRequest(acks ...*ua.SubscriptionAcknowledgement) *ua.PublishRequest {
	return &ua.PublishRequest{SubscriptionAcknowledgements: acks}
}

// subscription makes a Subscription that publishes each 20 ms.
func (p *peer) subscription() uint32 {
	p.t.Helper()
	return must[*ua.CreateSubscriptionResponse](p, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: 20, RequestedLifetimeCount: 3000, RequestedMaxKeepAliveCount: 1000, PublishingEnabled: true,
	}).SubscriptionID
}

func itemRequest(n *ua.NodeID, handle, queue uint32) *ua.MonitoredItemCreateRequest {
	return &ua.MonitoredItemCreateRequest{
		ItemToMonitor: value(n), MonitoringMode: ua.MonitoringModeReporting,
		RequestedParameters: &ua.MonitoringParameters{ClientHandle: handle, Filter: ua.NewExtensionObject(nil), QueueSize: queue, DiscardOldest: true},
	}
}

func createItems(sub uint32, items ...*ua.MonitoredItemCreateRequest) *ua.CreateMonitoredItemsRequest {
	return &ua.CreateMonitoredItemsRequest{SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth, ItemsToCreate: items}
}

// changes are the notifications in a response.
func changes(r *ua.PublishResponse) (out []*ua.MonitoredItemNotification) {
	for _, x := range r.NotificationMessage.NotificationData {
		if d, ok := x.Value.(*ua.DataChangeNotification); ok {
			out = append(out, d.MonitoredItems...)
		}
	}
	return out
}

func TestSubscriptionServices(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.MonitoredItems, c.Limits.Nodes = 3, 600 })
	p := f.login(t)
	for _, row := range []struct{ ask, want float64 }{
		{0, 10}, {0.2, 10}, {-5, 10}, {math.NaN(), 10}, {math.Inf(1), 3_600_000}, {1e18, 3_600_000}, {250, 250},
	} {
		resp := must[*ua.CreateSubscriptionResponse](p, &ua.CreateSubscriptionRequest{
			RequestedPublishingInterval: row.ask, RequestedLifetimeCount: math.MaxUint32, RequestedMaxKeepAliveCount: 0,
		})
		if resp.RevisedPublishingInterval != row.want || resp.RevisedLifetimeCount < 3*resp.RevisedMaxKeepAliveCount || resp.SubscriptionID == 0 {
			t.Errorf("interval %v: %+v", row.ask, resp)
		}
		gone := must[*ua.DeleteSubscriptionsResponse](p, &ua.DeleteSubscriptionsRequest{SubscriptionIDs: []uint32{resp.SubscriptionID, 1}})
		if want := []ua.StatusCode{ua.StatusGood, ua.StatusBadSubscriptionIDInvalid}; !slices.Equal(gone.Results, want) {
			t.Errorf("deleted: %v", gone.Results)
		}
	}
	sub := p.subscription()
	item := itemRequest(plantID("boiler.counter"), 1, 1)
	many := slices.Repeat([]uint32{7}, 601)
	badSub, tooMany, nothing := ua.StatusBadSubscriptionIDInvalid, ua.StatusBadTooManyOperations, ua.StatusBadNothingToDo
	rows := []struct {
		name string
		req  ua.Request
		want ua.StatusCode
	}{
		{"modify a foreign one", &ua.ModifySubscriptionRequest{SubscriptionID: sub + 1}, badSub},
		{"publishing mode of nothing", &ua.SetPublishingModeRequest{}, nothing},
		{"publishing mode of too many", &ua.SetPublishingModeRequest{SubscriptionIDs: many}, tooMany},
		{"delete nothing", &ua.DeleteSubscriptionsRequest{}, nothing},
		{"delete too many", &ua.DeleteSubscriptionsRequest{SubscriptionIDs: many}, tooMany},
		{"republish what is not there", &ua.RepublishRequest{SubscriptionID: sub, RetransmitSequenceNumber: 1}, ua.StatusBadMessageNotAvailable},
		{"republish of a foreign one", &ua.RepublishRequest{SubscriptionID: sub + 1, RetransmitSequenceNumber: 1}, badSub},
		{"create nothing", createItems(sub), nothing},
		{"create too many", createItems(sub, item, item, item, item), tooMany},
		{"create in a foreign one", createItems(sub+1, item), badSub},
		{"create with other timestamps", &ua.CreateMonitoredItemsRequest{SubscriptionID: sub, TimestampsToReturn: 4,
			ItemsToCreate: []*ua.MonitoredItemCreateRequest{item}}, ua.StatusBadTimestampsToReturnInvalid},
		{"modify no items", &ua.ModifyMonitoredItemsRequest{SubscriptionID: sub}, nothing},
		{"modify items of a foreign one", &ua.ModifyMonitoredItemsRequest{SubscriptionID: sub + 1, ItemsToModify: []*ua.MonitoredItemModifyRequest{
			{MonitoredItemID: 1, RequestedParameters: item.RequestedParameters}}}, badSub},
		{"mode of no items", &ua.SetMonitoringModeRequest{SubscriptionID: sub}, nothing},
		{"no such mode", &ua.SetMonitoringModeRequest{SubscriptionID: sub, MonitoringMode: 3, MonitoredItemIDs: []uint32{1}}, ua.StatusBadMonitoringModeInvalid},
		{"delete no items", &ua.DeleteMonitoredItemsRequest{SubscriptionID: sub}, nothing},
		{"delete too many items", &ua.DeleteMonitoredItemsRequest{SubscriptionID: sub, MonitoredItemIDs: many}, tooMany},
		{"delete items of a foreign one", &ua.DeleteMonitoredItemsRequest{SubscriptionID: sub + 1, MonitoredItemIDs: []uint32{1}}, badSub},
		{"transfer nothing", &ua.TransferSubscriptionsRequest{}, nothing},
		{"transfer too many", &ua.TransferSubscriptionsRequest{SubscriptionIDs: many}, tooMany},
		{"trigger nothing", &ua.SetTriggeringRequest{SubscriptionID: sub, TriggeringItemID: 1}, nothing},
		{"trigger too many", &ua.SetTriggeringRequest{SubscriptionID: sub, LinksToAdd: many[:2], LinksToRemove: many[:2]}, tooMany},
		{"trigger in a foreign one", &ua.SetTriggeringRequest{SubscriptionID: sub + 1, LinksToAdd: []uint32{1}}, badSub},
		{"trigger by an unknown item", &ua.SetTriggeringRequest{SubscriptionID: sub, TriggeringItemID: 1, LinksToAdd: []uint32{1}}, ua.StatusBadMonitoredItemIDInvalid},
	}
	for _, row := range rows {
		if _, code := p.call(row.req); code != row.want {
			t.Errorf("%s: %v, want %v", row.name, code, row.want)
		}
	}
	other := f.login(t)
	if _, code := other.call(createItems(sub, item)); code != badSub {
		t.Errorf("items in another session's Subscription: %v", code)
	}
	if _, code := other.call(publishRequest()); code != ua.StatusBadNoSubscription {
		t.Errorf("Publish without a Subscription: %v", code)
	}
}

func TestMonitoredItemServices(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	sub := p.subscription()
	alias := must[*ua.RegisterNodesResponse](p, &ua.RegisterNodesRequest{NodesToRegister: []*ua.NodeID{plantID("boiler.counter")}})
	change := func(r *ua.MonitoredItemCreateRequest, f func(r *ua.MonitoredItemCreateRequest)) *ua.MonitoredItemCreateRequest {
		f(r)
		return r
	}
	percent := func(r *ua.MonitoredItemCreateRequest) {
		r.RequestedParameters.Filter = ua.NewExtensionObject(&ua.DataChangeFilter{
			Trigger: ua.DataChangeTriggerStatusValue, DeadbandType: uint32(ua.DeadbandTypePercent), DeadbandValue: 10,
		})
	}
	resp := must[*ua.CreateMonitoredItemsResponse](p, createItems(sub,
		itemRequest(alias.RegisteredNodeIDs[0], 1, 10),
		change(itemRequest(plantID("boiler.temperature"), 2, 10), percent),
		change(itemRequest(plantID("boiler.counter"), 3, 10), percent),
		itemRequest(plantID("no.such"), 4, 1),
		change(itemRequest(plantID("boiler.curve"), 5, 10), func(r *ua.MonitoredItemCreateRequest) { r.ItemToMonitor.IndexRange = "1:2" }),
		change(itemRequest(plantID("boiler.code"), 6, 1), func(r *ua.MonitoredItemCreateRequest) {
			r.ItemToMonitor.DataEncoding = &ua.QualifiedName{Name: "Default XML"}
		}),
		itemRequest(plantID("dead.level"), 7, 1),
		change(itemRequest(plantID("boiler"), 8, 1), func(r *ua.MonitoredItemCreateRequest) { r.ItemToMonitor.AttributeID = ua.AttributeIDBrowseName }),
		itemRequest(plantID("boiler"), 9, 1),
		itemRequest(ua.NewNumericNodeID(0, 2259), 10, 1),
	))
	want := []ua.StatusCode{
		ua.StatusGood, ua.StatusGood, ua.StatusBadDeadbandFilterInvalid, ua.StatusBadNodeIDUnknown, ua.StatusGood,
		ua.StatusBadDataEncodingUnsupported, ua.StatusGood, ua.StatusGood, ua.StatusBadAttributeIDInvalid, ua.StatusGood,
	}
	for i, r := range resp.Results {
		if r.StatusCode != want[i] {
			t.Errorf("item %d: %v, want %v", i+1, r.StatusCode, want[i])
		}
	}
	for range 5 {
		p.post(publishRequest())
	}
	first := map[uint32]string{}
	for len(first) < 6 {
		for _, n := range changes(p.published()) {
			text := n.Value.Status.Error()
			if n.Value.Status == ua.StatusGood {
				text = fmt.Sprint(n.Value.Value.Value())
			}
			if n.ClientHandle == 8 { // a QualifiedName
				text = n.Value.Value.Value().(*ua.QualifiedName).Name
			}
			first[n.ClientHandle] = text
		}
	}
	for handle, want := range map[uint32]string{1: "0", 2: "0", 5: "[2 3]", 7: ua.StatusBadNoCommunication.Error(), 8: "boiler", 10: "0"} {
		if first[handle] != want {
			t.Errorf("item %d reports %q first, want %q", handle, first[handle], want)
		}
	}
	// 10 % of the range from 0 to 150 is 15; elements 1 and 2 are watched.
	for _, v := range []float32{5, 15, 16, 20, 31.5} {
		f.tags.Publish([]tag.Sample{{Ref: f.ref(t, "boiler.temperature"), Value: tag.Of(v), At: tag.Now()}})
	}
	for _, v := range [][]int16{{9, 2, 3, 9, 9}, {9, 2, 4, 9, 9}} {
		f.tags.Publish([]tag.Sample{{Ref: f.ref(t, "boiler.curve"), Value: tag.OfSlice(v), At: tag.Now()}})
	}
	var got []string
	for len(got) < 3 {
		for _, n := range changes(p.published()) {
			got = append(got, fmt.Sprint(n.ClientHandle, " ", n.Value.Value.Value()))
		}
	}
	if slices.Sort(got); !slices.Equal(got, []string{"2 16", "2 31.5", "5 [2 4]"}) {
		t.Errorf("changes %v", got)
	}
	ids := []uint32{resp.Results[0].MonitoredItemID, 4_000_000}
	modified := must[*ua.ModifyMonitoredItemsResponse](p, &ua.ModifyMonitoredItemsRequest{SubscriptionID: sub, ItemsToModify: []*ua.MonitoredItemModifyRequest{
		{MonitoredItemID: ids[0], RequestedParameters: &ua.MonitoringParameters{ClientHandle: 77, Filter: ua.NewExtensionObject(nil), QueueSize: math.MaxUint32, DiscardOldest: true}},
		{MonitoredItemID: ids[1], RequestedParameters: &ua.MonitoringParameters{Filter: ua.NewExtensionObject(nil)}},
	}})
	if r := modified.Results; r[0].StatusCode != ua.StatusGood || r[0].RevisedQueueSize != 10_000 || r[1].StatusCode != ua.StatusBadMonitoredItemIDInvalid {
		t.Errorf("modified: %+v, %+v", r[0], r[1])
	}
	wantResults := []ua.StatusCode{ua.StatusGood, ua.StatusBadMonitoredItemIDInvalid}
	mode := must[*ua.SetMonitoringModeResponse](p, &ua.SetMonitoringModeRequest{SubscriptionID: sub, MonitoringMode: ua.MonitoringModeSampling, MonitoredItemIDs: ids})
	if !slices.Equal(mode.Results, wantResults) {
		t.Errorf("mode: %v", mode.Results)
	}
	gone := must[*ua.DeleteMonitoredItemsResponse](p, &ua.DeleteMonitoredItemsRequest{SubscriptionID: sub, MonitoredItemIDs: ids})
	if !slices.Equal(gone.Results, wantResults) {
		t.Errorf("deleted: %v", gone.Results)
	}
}

func TestRepublishOnTheWire(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	sub := p.subscription()
	must[*ua.CreateMonitoredItemsResponse](p, createItems(sub, itemRequest(plantID("boiler.counter"), 1, 10)))
	p.post(publishRequest())
	first := p.published()
	again := must[*ua.RepublishResponse](p, &ua.RepublishRequest{SubscriptionID: sub, RetransmitSequenceNumber: 1})
	a, _ := ua.Encode(first.NotificationMessage)
	b, _ := ua.Encode(again.NotificationMessage)
	if string(a) != string(b) || !slices.Contains(first.AvailableSequenceNumbers, 1) {
		t.Errorf("republished %+v, sent %+v", again.NotificationMessage, first.NotificationMessage)
	}
	p.post(publishRequest(&ua.SubscriptionAcknowledgement{SubscriptionID: sub, SequenceNumber: 1}, &ua.SubscriptionAcknowledgement{SubscriptionID: sub, SequenceNumber: 9}))
	f.tags.Publish([]tag.Sample{{Ref: f.ref(t, "boiler.counter"), Value: tag.Of(uint32(5)), At: tag.Now()}})
	if r := p.published(); !slices.Equal(r.Results, []ua.StatusCode{ua.StatusGood, ua.StatusBadSequenceNumberUnknown}) {
		t.Errorf("acknowledged: %v", r.Results)
	}
	if _, code := p.call(&ua.RepublishRequest{SubscriptionID: sub, RetransmitSequenceNumber: 1}); code != ua.StatusBadMessageNotAvailable {
		t.Errorf("acknowledged and there: %v", code)
	}
}

// TestManyAcknowledgements: each Publish request that waits keeps its results, so there is a bound to them.
func TestManyAcknowledgements(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Nodes = 100 })
	p := f.login(t)
	p.subscription()
	list := make([]*ua.SubscriptionAcknowledgement, 101)
	for i := range list {
		list[i] = &ua.SubscriptionAcknowledgement{SubscriptionID: 1, SequenceNumber: uint32(i)}
	}
	if _, code := p.call(publishRequest(list...)); code != ua.StatusBadTooManyOperations {
		t.Errorf("one too many: %v", code)
	}
	p.post(publishRequest(list[1:]...))
	if r := p.published(); len(r.Results) != 100 {
		t.Errorf("%d results", len(r.Results))
	}
}

// TestInitialValuesOnTheWire is B19: with Publish requests outstanding, the CreateMonitoredItems response comes before
// any notification that names its items, and each item has one initial value.
func TestInitialValuesOnTheWire(t *testing.T) {
	f := start(t, func(c *Config) { c.Subscription = subscription.Config{MinPublishing: time.Millisecond} })
	p := f.login(t)
	sub := must[*ua.CreateSubscriptionResponse](p, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: 1, RequestedLifetimeCount: 100_000, RequestedMaxKeepAliveCount: 10_000, PublishingEnabled: true,
	}).SubscriptionID
	for range 10 {
		p.post(publishRequest())
	}
	handle := uint32(0)
	for run := range 40 {
		var items []*ua.MonitoredItemCreateRequest
		for i := range 50 {
			handle++
			items = append(items, itemRequest(plantID(fmt.Sprintf("scratch.m%03d", i)), handle, 1))
		}
		request := p.post(createItems(sub, items...))
		answered, count := false, map[uint32]int{}
		for !answered || len(count) < 50 {
			id, resp := p.receive()
			if id == request {
				answered = true
				continue
			}
			for _, n := range changes(resp.(*ua.PublishResponse)) {
				if count[n.ClientHandle]++; n.ClientHandle > handle-50 && !answered {
					t.Fatalf("run %d: item %d reported before it was made", run, n.ClientHandle)
				}
			}
			p.post(publishRequest())
		}
		for h, n := range count {
			if n != 1 {
				t.Fatalf("run %d: item %d has %d initial values", run, h, n)
			}
		}
	}
}

// TestMessagesFitTheClient is A4: a client with small limits gets all of it, in more messages.
func TestMessagesFitTheClient(t *testing.T) {
	f := start(t, nil)
	p := f.dial(t, func(o *uatest.Options) { o.Receive, o.MaxSize = 8192, 16384 })
	p.create()
	must[*ua.ActivateSessionResponse](p, activateRequest(anonymous()))
	sub := p.subscription()
	must[*ua.CreateMonitoredItemsResponse](p, createItems(sub, itemRequest(plantID("boiler.counter"), 1, 5000)))
	for i := range uint32(4000) {
		f.tags.Publish([]tag.Sample{{Ref: f.ref(t, "boiler.counter"), Value: tag.Of(i + 1), At: tag.Now()}})
	}
	want, messages := uint32(0), 0
	for want <= 4000 {
		p.post(publishRequest())
		m, err := p.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Body) > 16384 {
			t.Fatalf("%d bytes", len(m.Body))
		}
		v, err := uatest.Decode(m.Body)
		if err != nil {
			t.Fatal(err)
		}
		messages++
		for _, n := range changes(v.(*ua.PublishResponse)) {
			if got := n.Value.Value.Value(); got != want {
				t.Fatalf("got %v, want %d", got, want)
			}
			want++
		}
	}
	if messages < 5 {
		t.Errorf("%d messages", messages)
	}
}

// TestLostChannel: the Publish requests of a lost channel are given up, the session's Subscriptions live on, and what
// happened meanwhile goes to the session's next channel.
func TestLostChannel(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	sub := p.subscription()
	must[*ua.CreateMonitoredItemsResponse](p, createItems(sub, itemRequest(plantID("boiler.counter"), 1, 1000)))
	p.post(publishRequest())
	p.published()
	for range 5 {
		p.post(publishRequest())
	}
	p.Close()
	for i := range uint32(500) {
		f.tags.Publish([]tag.Sample{{Ref: f.ref(t, "boiler.counter"), Value: tag.Of(i + 1), At: tag.Now()}})
		if i%100 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	q := f.dial(t, nil)
	q.token = p.token
	must[*ua.ActivateSessionResponse](q, activateRequest(anonymous()))
	// A message may have been written into the closed connection: it is there for Republish.
	q.post(publishRequest())
	r := q.published()
	want := uint32(1)
	take := func(m *ua.NotificationMessage) {
		for _, n := range changes(&ua.PublishResponse{NotificationMessage: m}) {
			if got := n.Value.Value.Value(); got != want {
				t.Fatalf("got %v, want %d", got, want)
			}
			want++
		}
	}
	for n := uint32(2); n < r.NotificationMessage.SequenceNumber; n++ {
		take(must[*ua.RepublishResponse](q, &ua.RepublishRequest{SubscriptionID: sub, RetransmitSequenceNumber: n}).NotificationMessage)
	}
	take(r.NotificationMessage)
	for want <= 500 {
		q.post(publishRequest())
		take(q.published().NotificationMessage)
	}
	if st := f.engine.Stats(); st.Unaccounted != 0 || st.Overflowed != 0 {
		t.Errorf("%+v", st)
	}
}

// TestSubscriptionGarbage: requests that end too soon are answered, and the link is kept.
func TestSubscriptionGarbage(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	sub := p.subscription()
	reqs := []ua.Request{
		&ua.CreateSubscriptionRequest{}, &ua.ModifySubscriptionRequest{}, &ua.SetPublishingModeRequest{SubscriptionIDs: []uint32{1}},
		publishRequest(&ua.SubscriptionAcknowledgement{}), &ua.RepublishRequest{}, &ua.DeleteSubscriptionsRequest{SubscriptionIDs: []uint32{1}},
		createItems(sub, itemRequest(plantID("boiler.counter"), 1, 1)),
		&ua.ModifyMonitoredItemsRequest{SubscriptionID: sub, ItemsToModify: []*ua.MonitoredItemModifyRequest{
			{RequestedParameters: &ua.MonitoringParameters{Filter: ua.NewExtensionObject(nil)}}}},
		&ua.SetMonitoringModeRequest{SubscriptionID: sub, MonitoredItemIDs: []uint32{1}},
		&ua.DeleteMonitoredItemsRequest{SubscriptionID: sub, MonitoredItemIDs: []uint32{1}},
	}
	for _, req := range reqs {
		name := strings.TrimPrefix(fmt.Sprintf("%T", req), "*ua.")
		req.SetHeader(p.header())
		body, err := uatest.Encode(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Send(p.number, body[:len(body)-1]); err != nil {
			t.Fatal(err)
		}
		if _, resp := p.receive(); resp.Header().ServiceResult != ua.StatusBadDecodingError {
			t.Errorf("%s cut short: %v", name, resp.Header().ServiceResult)
		}
	}
	p.subscription() // the link is kept
}
