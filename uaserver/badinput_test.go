package uaserver

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// TestBadInput throws at the subscription services what no sane client sends. All of it is revised or refused with the
// standard's code, and another client, whose values change all the while, has each of them in time.
func TestBadInput(t *testing.T) {
	f := start(t, func(c *Config) { c.Subscription.Subscriptions = 50 })
	stop, stopped := make(chan struct{}), make(chan struct{})
	other := f.login(t)
	other.patient()
	other.subscribe("boiler.counter", 3000)
	go func() {
		defer close(stopped)
		next, quiet := uint32(0), time.Duration(0)
		for last := time.Now(); ; last = time.Now() {
			other.post(publishRequest())
			for _, v := range values(other.published()) {
				if v != next {
					t.Errorf("the other client has %d, want %d", v, next)
				}
				next++
			}
			quiet = max(quiet, time.Since(last))
			select {
			case <-stop:
				if quiet > 15*time.Second {
					t.Errorf("the other client heard nothing for %v", quiet)
				}
				return
			default:
			}
			f.tags.Publish([]tag.Sample{{Ref: f.ref(t, "boiler.counter"), Value: tag.Of(next), At: tag.Now()}})
		}
	}()
	p := f.login(t)
	p.patient()
	counts := []uint32{0, 1, math.MaxUint32}
	intervals := []float64{0, 0.2, -5, math.NaN(), math.Inf(1), math.Inf(-1), 1e18, -1e308}
	for _, interval := range intervals {
		for _, count := range counts {
			for _, keepAlive := range counts {
				made := must[*ua.CreateSubscriptionResponse](p, &ua.CreateSubscriptionRequest{
					RequestedPublishingInterval: interval, RequestedLifetimeCount: count, RequestedMaxKeepAliveCount: keepAlive,
					MaxNotificationsPerPublish: count, PublishingEnabled: true, Priority: 255,
				})
				again := must[*ua.ModifySubscriptionResponse](p, &ua.ModifySubscriptionRequest{
					SubscriptionID: made.SubscriptionID, RequestedPublishingInterval: interval, RequestedLifetimeCount: count,
					RequestedMaxKeepAliveCount: keepAlive, MaxNotificationsPerPublish: count,
				})
				if d := made.RevisedPublishingInterval; !(d >= 10 && d <= 3_600_000) || made.RevisedMaxKeepAliveCount == 0 ||
					made.RevisedLifetimeCount < 3*made.RevisedMaxKeepAliveCount || float64(made.RevisedLifetimeCount)*d > 3*24*3_600_000 ||
					again.RevisedPublishingInterval != d || again.RevisedLifetimeCount != made.RevisedLifetimeCount {
					t.Errorf("%v, %d, %d becomes %+v, then %+v", interval, count, keepAlive, made, again)
				}
				must[*ua.DeleteSubscriptionsResponse](p, &ua.DeleteSubscriptionsRequest{SubscriptionIDs: []uint32{made.SubscriptionID}})
			}
		}
	}
	sub := p.subscription()
	for _, sampling := range intervals {
		for _, queue := range counts {
			for _, oldest := range []bool{false, true} {
				item := itemRequest(plantID("boiler.code"), 1, queue)
				item.RequestedParameters.SamplingInterval, item.RequestedParameters.DiscardOldest = sampling, oldest
				made := must[*ua.CreateMonitoredItemsResponse](p, createItems(sub, item)).Results[0]
				again := must[*ua.ModifyMonitoredItemsResponse](p, &ua.ModifyMonitoredItemsRequest{SubscriptionID: sub,
					ItemsToModify: []*ua.MonitoredItemModifyRequest{{MonitoredItemID: made.MonitoredItemID, RequestedParameters: item.RequestedParameters}}}).Results[0]
				if want := min(max(queue, 1), 10_000); made.StatusCode != ua.StatusGood || made.RevisedQueueSize != want || again.RevisedQueueSize != want ||
					!(made.RevisedSamplingInterval >= 0 && made.RevisedSamplingInterval <= 3_600_000) || again.RevisedSamplingInterval != made.RevisedSamplingInterval {
					t.Errorf("%v, %d becomes %+v, then %+v", sampling, queue, made, again)
				}
			}
		}
	}
	badSub, badItem := ua.StatusBadSubscriptionIDInvalid, ua.StatusBadMonitoredItemIDInvalid
	for _, foreign := range []uint32{0, 1, math.MaxUint32, sub ^ 0x80} {
		for _, req := range []ua.Request{
			&ua.ModifySubscriptionRequest{SubscriptionID: foreign, RequestedPublishingInterval: 100},
			&ua.RepublishRequest{SubscriptionID: foreign, RetransmitSequenceNumber: 1},
			createItems(foreign, itemRequest(plantID("boiler.code"), 1, 1)),
			&ua.DeleteMonitoredItemsRequest{SubscriptionID: foreign, MonitoredItemIDs: []uint32{1}},
			&ua.SetMonitoringModeRequest{SubscriptionID: foreign, MonitoredItemIDs: []uint32{1}},
			&ua.SetTriggeringRequest{SubscriptionID: foreign, LinksToAdd: []uint32{1}},
		} {
			if _, code := p.call(req); code != badSub {
				t.Errorf("%T of %d: %v", req, foreign, code)
			}
		}
		if r := must[*ua.TransferSubscriptionsResponse](p, &ua.TransferSubscriptionsRequest{SubscriptionIDs: []uint32{foreign}}).Results[0]; r.StatusCode != badSub {
			t.Errorf("transfer of %d: %v", foreign, r.StatusCode)
		}
		if r := must[*ua.SetPublishingModeResponse](p, &ua.SetPublishingModeRequest{SubscriptionIDs: []uint32{foreign}}).Results; r[0] != badSub {
			t.Errorf("publishing mode of %d: %v", foreign, r)
		}
		if r := must[*ua.DeleteMonitoredItemsResponse](p, &ua.DeleteMonitoredItemsRequest{SubscriptionID: sub, MonitoredItemIDs: []uint32{foreign | 0x00FFFF00}}).Results; r[0] != badItem {
			t.Errorf("item %d: %v", foreign, r)
		}
	}
	if _, code := p.call(&ua.RepublishRequest{SubscriptionID: sub, RetransmitSequenceNumber: math.MaxUint32}); code != ua.StatusBadMessageNotAvailable {
		t.Errorf("Republish of the last number: %v", code)
	}
	change := func(trigger, kind uint32, value float64) any {
		return &ua.DataChangeFilter{Trigger: ua.DataChangeTrigger(trigger), DeadbandType: kind, DeadbandValue: value}
	}
	for _, row := range []struct {
		node   string
		filter any
		want   ua.StatusCode
	}{
		{"boiler.temperature", change(3, 0, 0), ua.StatusBadMonitoredItemFilterInvalid},
		{"boiler.temperature", change(math.MaxUint32, 0, 0), ua.StatusBadMonitoredItemFilterInvalid},
		{"boiler.temperature", change(1, 3, 1), ua.StatusBadDeadbandFilterInvalid},
		{"boiler.temperature", change(1, 1, -1), ua.StatusBadDeadbandFilterInvalid},
		{"boiler.temperature", change(1, 1, math.NaN()), ua.StatusBadDeadbandFilterInvalid},
		{"boiler.temperature", change(1, 1, math.Inf(1)), ua.StatusBadDeadbandFilterInvalid},
		{"boiler.temperature", change(1, 2, 100.1), ua.StatusBadDeadbandFilterInvalid},
		{"boiler.temperature", change(1, 2, 100), ua.StatusGood},
		{"boiler.counter", change(1, 2, 1), ua.StatusBadDeadbandFilterInvalid}, // no EURange (Part 8, 7.2)
		{"boiler.curve", change(1, 1, 1), ua.StatusGood},
		{"boiler.temperature", &ua.EventFilter{WhereClause: &ua.ContentFilter{}}, ua.StatusBadFilterNotAllowed},
		{"boiler.temperature", &ua.AggregateFilter{StartTime: time.Now(), AggregateType: ua.NewNumericNodeID(0, 2342),
			AggregateConfiguration: &ua.AggregateConfiguration{}}, ua.StatusBadMonitoredItemFilterUnsupported},
		{"boiler.temperature", &ua.Argument{DataType: ua.NewNumericNodeID(0, 1), Description: &ua.LocalizedText{}}, ua.StatusBadMonitoredItemFilterInvalid},
	} {
		item := itemRequest(plantID(row.node), 1, 1)
		item.RequestedParameters.Filter = ua.NewExtensionObject(row.filter)
		if r := must[*ua.CreateMonitoredItemsResponse](p, createItems(sub, item)).Results[0]; r.StatusCode != row.want {
			t.Errorf("%s with %T %+v: %v, want %v", row.node, row.filter, row.filter, r.StatusCode, row.want)
		}
	}
	close(stop)
	<-stopped
	if n := f.engine.Stats().Unaccounted; n != 0 {
		t.Errorf("the ledger is off by %d", n)
	}
}

// TestEveryAttribute is 5.13.1.1: an item watches any attribute, or a part of it.
func TestEveryAttribute(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	sub := p.subscription()
	var items []*ua.MonitoredItemCreateRequest
	var want []ua.StatusCode
	for a := ua.AttributeIDNodeID; a <= ua.AttributeIDAccessLevelEx; a++ {
		read := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{{NodeID: plantID("boiler.curve"), AttributeID: a, DataEncoding: &ua.QualifiedName{}}}})[0]
		code := ua.StatusGood
		if read.Status == ua.StatusBadAttributeIDInvalid {
			code = read.Status
		}
		item := itemRequest(plantID("boiler.curve"), uint32(a), 1)
		item.ItemToMonitor.AttributeID = a
		items, want = append(items, item), append(want, code)
	}
	part := func(node *ua.NodeID, a ua.AttributeID, handle uint32, text string, code ua.StatusCode) {
		item := itemRequest(node, handle, 1)
		item.ItemToMonitor.AttributeID, item.ItemToMonitor.IndexRange = a, text
		items, want = append(items, item), append(want, code)
	}
	part(plantID("boiler.curve"), ua.AttributeIDArrayDimensions, 100, "0", ua.StatusGood)
	part(plantID("boiler.curve"), ua.AttributeIDValue, 101, "3:4", ua.StatusGood)
	part(plantID("boiler.curve"), ua.AttributeIDValue, 102, "7", ua.StatusGood) // no such element: told in its status (7.27)
	part(plantID("boiler.curve"), ua.AttributeIDValue, 103, "4:3", ua.StatusBadIndexRangeInvalid)
	part(ua.NewNumericNodeID(0, id.Server_NamespaceArray), ua.AttributeIDValue, 104, "0", ua.StatusGood)
	results := must[*ua.CreateMonitoredItemsResponse](p, createItems(sub, items...)).Results
	n := 0
	for i, r := range results {
		if r.StatusCode != want[i] {
			t.Errorf("attribute %d, range %q: %v, want %v", items[i].ItemToMonitor.AttributeID, items[i].ItemToMonitor.IndexRange, r.StatusCode, want[i])
		}
		if r.StatusCode == ua.StatusGood {
			n++
		}
	}
	got := map[uint32]string{}
	for len(got) < n {
		p.post(publishRequest())
		for _, c := range changes(p.published()) {
			got[c.ClientHandle] = fmt.Sprint(c.Value.Value.Value())
			if c.Value.Status != ua.StatusGood {
				got[c.ClientHandle] = c.Value.Status.Error()
			}
		}
	}
	for handle, text := range map[uint32]string{
		uint32(ua.AttributeIDNodeClass): "2", uint32(ua.AttributeIDValue): "[1 2 3 4 5]", uint32(ua.AttributeIDValueRank): "1",
		100: "[5]", 101: "[4 5]", 102: ua.StatusBadIndexRangeNoData.Error(), 104: "[http://opcfoundation.org/UA/]",
	} {
		if got[handle] != text {
			t.Errorf("item %d reports %q, want %q", handle, got[handle], text)
		}
	}
	if slices.Contains(want, ua.StatusBadAttributeIDInvalid) == (n == len(items)) {
		t.Error("some attributes are those of other node classes")
	}
}
