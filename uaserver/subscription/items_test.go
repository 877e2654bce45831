package subscription

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

func TestCreateItems(t *testing.T) {
	bubble(t, "A6 what cannot be monitored", func(t *testing.T) {
		r := newRig(t, Config{EURange: func(n *address.Node) (float64, float64, bool) { return 0, 200, n.BrowseName == "ranged" }})
		v, text, ranged, secret := r.variable(0), r.variable(0), r.variable(0), r.variable(0)
		text.node.DataType = wire.NumericID(0, id.String)
		ranged.node.BrowseName = "ranged"
		secret.node.Access = 0
		object := r.live()
		object.node.Class = ua.NodeClassObject
		c := r.client()
		sub := c.subscribe(Parameters{})
		with := func(v *variable, change func(i *ItemRequest)) ItemRequest {
			i := plainItem(v, 1)
			change(&i)
			return i
		}
		deadband := func(kind ua.DeadbandType, value float64) func(i *ItemRequest) {
			return func(i *ItemRequest) { dataFilter(i, ua.DataChangeTriggerStatusValue, kind, value) }
		}
		rows := []struct {
			name string
			item ItemRequest
			want ua.StatusCode
		}{
			{"unknown node", ItemRequest{Attribute: ua.AttributeIDValue}, ua.StatusBadNodeIDUnknown},
			{"refused by the service", with(v, func(i *ItemRequest) { i.Status = ua.StatusBadDataEncodingInvalid }), ua.StatusBadDataEncodingInvalid},
			{"events", with(object, func(i *ItemRequest) { i.Attribute = ua.AttributeIDEventNotifier }), ua.StatusBadNotSupported},
			{"events of a variable", with(v, func(i *ItemRequest) { i.Attribute = ua.AttributeIDEventNotifier }), ua.StatusBadAttributeIDInvalid},
			{"no such attribute", with(v, func(i *ItemRequest) { i.Attribute = 99 }), ua.StatusBadAttributeIDInvalid},
			{"no such mode", with(v, func(i *ItemRequest) { i.Mode = 3 }), ua.StatusBadMonitoringModeInvalid},
			{"nonsense range", with(v, func(i *ItemRequest) { i.Range = "2:1" }), ua.StatusBadIndexRangeInvalid},
			{"range of a thousand dimensions", with(v, func(i *ItemRequest) { i.Range = strings.Repeat("1,", 999) + "1" }), ua.StatusBadIndexRangeInvalid},
			{"nonsense range of a name", with(v, func(i *ItemRequest) { i.Attribute, i.Range = ua.AttributeIDDisplayName, "1:" }), ua.StatusBadIndexRangeInvalid},
			{"event filter", with(v, func(i *ItemRequest) { i.FilterType = wire.NumericID(0, id.EventFilter_Encoding_DefaultBinary) }), ua.StatusBadFilterNotAllowed},
			{"aggregate filter", with(v, func(i *ItemRequest) { i.FilterType = wire.NumericID(0, id.AggregateFilter_Encoding_DefaultBinary) }), ua.StatusBadMonitoredItemFilterUnsupported},
			{"no filter", with(v, func(i *ItemRequest) { i.FilterType = wire.NumericID(2, 7) }), ua.StatusBadMonitoredItemFilterInvalid},
			{"half a filter", with(v, func(i *ItemRequest) { deadband(1, 1)(i); i.Filter = i.Filter[:9] }), ua.StatusBadMonitoredItemFilterInvalid},
			{"no such trigger", with(v, func(i *ItemRequest) { dataFilter(i, 3, 0, 0) }), ua.StatusBadMonitoredItemFilterInvalid},
			{"filter of a name", with(v, func(i *ItemRequest) { deadband(0, 0)(i); i.Attribute = ua.AttributeIDDisplayName }), ua.StatusBadFilterNotAllowed},
			{"deadband", with(v, deadband(ua.DeadbandTypeAbsolute, 1)), ua.StatusGood},
			{"deadband of zero", with(v, deadband(ua.DeadbandTypeAbsolute, 0)), ua.StatusGood},
			{"negative deadband", with(v, deadband(ua.DeadbandTypeAbsolute, -1)), ua.StatusBadDeadbandFilterInvalid},
			{"deadband NaN", with(v, deadband(ua.DeadbandTypeAbsolute, math.NaN())), ua.StatusBadDeadbandFilterInvalid},
			{"deadband of infinity", with(v, deadband(ua.DeadbandTypeAbsolute, math.Inf(1))), ua.StatusBadDeadbandFilterInvalid},
			{"no such deadband", with(v, deadband(7, 1)), ua.StatusBadDeadbandFilterInvalid},
			{"deadband of a text", with(text, deadband(ua.DeadbandTypeAbsolute, 1)), ua.StatusBadFilterNotAllowed},
			{"percent without a range", with(v, deadband(ua.DeadbandTypePercent, 1)), ua.StatusBadDeadbandFilterInvalid},
			{"percent", with(ranged, deadband(ua.DeadbandTypePercent, 10)), ua.StatusGood},
			{"percent above 100", with(ranged, deadband(ua.DeadbandTypePercent, 101)), ua.StatusBadDeadbandFilterInvalid},
			{"5.13.2 not readable: reports it", plainItem(secret, 1), ua.StatusGood},
		}
		var reqs []ItemRequest
		for _, row := range rows {
			reqs = append(reqs, row.item)
		}
		for i, got := range c.monitor(sub, reqs...) {
			if got.Status != rows[i].want || got.Status == ua.StatusGood != (got.ID != 0) {
				t.Errorf("%s: %+v, want %v", rows[i].name, got, rows[i].want)
			}
		}
		c.publish(1)
		sleep(ms(100))
		m := c.one()
		if n := m.items(); len(n) != 1 || n[0].Value.Status != ua.StatusBadNotReadable {
			t.Fatalf("reported %+v", n)
		}
		code := c.CreateItems(t.Context(), sub, 4, everyRight, []ItemRequest{plainItem(v, 1)}, make([]ItemResult, 1), nil)
		if code != ua.StatusBadTimestampsToReturnInvalid {
			t.Fatalf("timestamps 4: %v", code)
		}
	})
	bubble(t, "A8 TimestampsToReturn, and a bad status without a value", func(t *testing.T) {
		for times, want := range map[ua.TimestampsToReturn][2]bool{
			ua.TimestampsToReturnSource: {true, false}, ua.TimestampsToReturnServer: {false, true},
			ua.TimestampsToReturnBoth: {true, true}, ua.TimestampsToReturnNeither: {false, false},
		} {
			r := newRig(t, Config{})
			v := r.variable(0)
			v.series.Append(tag.Sample{Status: tag.BadNoCommunication, At: tag.Now()})
			c := r.client()
			sub := c.subscribe(Parameters{})
			c.CreateItems(t.Context(), sub, times, everyRight, []ItemRequest{plainItem(v, 1)}, make([]ItemResult, 1), func() {})
			c.publish(1)
			sleep(ms(100))
			m := c.one()
			got := m.items()[0].Value
			if got.Has(ua.DataValueSourceTimestamp) != want[0] || got.Has(ua.DataValueServerTimestamp) != want[1] ||
				got.Has(ua.DataValueValue) || got.Status != ua.StatusBadNoCommunication {
				t.Errorf("%v: %+v", times, got)
			}
			if want[0] && !got.SourceTimestamp.Equal(time.Now().Add(-ms(100))) {
				t.Errorf("SourceTimestamp %v", got.SourceTimestamp)
			}
			c.Close(true)
		}
	})
	t.Run("B19 the response before any notification, one initial value an item", func(t *testing.T) {
		r := newRig(t, Config{}) // real time: the clock races with the service
		var vars []*variable
		for i := range 50 {
			v := r.variable(0)
			v.set(int64(i))
			vars = append(vars, v)
		}
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 10, KeepAlive: 1000, Lifetime: 10_000})
		time.Sleep(15 * time.Millisecond) // the first keep-alive is over
		c.publish(100)
		for run := range 60 {
			var reqs []ItemRequest
			for _, v := range vars {
				reqs = append(reqs, plainItem(v, 10))
			}
			c.mu.Lock()
			c.order, c.got = nil, nil
			c.mu.Unlock()
			results := c.monitor(sub, reqs...)
			deadline := time.Now().Add(5 * time.Second)
			count := map[uint32]int{}
			for len(count) < 50 && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
				c.mu.Lock()
				clear(count)
				for i := range c.got {
					for _, n := range c.got[i].items() {
						count[n.ClientHandle]++
					}
				}
				c.mu.Unlock()
			}
			c.mu.Lock()
			first := c.order[0]
			c.mu.Unlock()
			if len(count) != 50 || first != "created" {
				t.Fatalf("run %d: %d items reported, first was %s", run, len(count), first)
			}
			var ids []uint32
			for i, x := range results {
				ids = append(ids, x.ID)
				if n := count[reqs[i].Handle]; n != 1 {
					t.Fatalf("run %d: %d initial values", run, n)
				}
			}
			c.DeleteItems(sub, ids, make([]ua.StatusCode, 50))
			c.publish(2)
		}
	})
}

func TestModes(t *testing.T) {
	for _, kind := range []string{"plain", "own queue", "read"} {
		bubble(t, "B16 monitoring modes, "+kind, func(t *testing.T) {
			r := newRig(t, Config{})
			v := r.variable(0)
			item := plainItem(v, 10)
			switch kind {
			case "own queue":
				dataFilter(&item, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 0.5)
			case "read":
				v = r.live()
				item = plainItem(v, 10)
			}
			set := func(n int64) {
				if v.series != nil {
					v.set(n)
					return
				}
				v.mu.Lock()
				v.live = wire.DataValue{Value: tag.Of(n), Source: tag.Now(), Server: tag.Now()}
				v.mu.Unlock()
			}
			set(1)
			item.Mode = ua.MonitoringModeDisabled
			c := r.client()
			sub := c.subscribe(Parameters{Publishing: 200, KeepAlive: 100, Lifetime: 1000})
			id := c.monitor(sub, item)[0].ID
			c.publish(20)
			mode := func(m ua.MonitoringMode) {
				results := make([]ua.StatusCode, 2)
				if code := c.SetMode(sub, m, []uint32{id, id + 77}, results); code != ua.StatusGood ||
					results[0] != ua.StatusGood || results[1] != ua.StatusBadMonitoredItemIDInvalid {
					t.Fatalf("%v: %v, %v", m, code, results)
				}
			}
			step := func(n int64) { set(n); sleep(ms(200)) }
			time.Sleep(ms(10))
			step(2)
			step(3)
			if got := values(c.take()...); len(got) != 0 {
				t.Fatalf("disabled, it reports %v", got)
			}
			mode(ua.MonitoringModeReporting)
			sleep(ms(200))
			c.wantValues(c.take(), 3)
			step(4)
			c.wantValues(c.take(), 4)
			mode(ua.MonitoringModeSampling)
			step(5)
			step(6)
			if got := values(c.take()...); len(got) != 0 {
				t.Fatalf("sampling, it reports %v", got)
			}
			mode(ua.MonitoringModeReporting)
			sleep(ms(200))
			c.wantValues(c.take(), 5, 6)
			mode(ua.MonitoringModeSampling)
			step(7)
			mode(ua.MonitoringModeDisabled)
			step(8)
			mode(ua.MonitoringModeReporting)
			sleep(ms(200))
			c.wantValues(c.take(), 8) // what was queued went with Disabled
			if code := c.SetMode(sub, 3, []uint32{id}, make([]ua.StatusCode, 1)); code != ua.StatusBadMonitoringModeInvalid {
				t.Fatalf("mode 3: %v", code)
			}
		})
	}
}

func TestModify(t *testing.T) {
	for _, ownQueue := range []bool{false, true} {
		bubble(t, fmt.Sprintf("B17 the queue is shortened and lengthened, own %v", ownQueue), func(t *testing.T) {
			r := newRig(t, Config{})
			v := r.variable(0)
			c := r.client()
			sub := c.subscribe(Parameters{})
			item := plainItem(v, 10)
			var filter ModifyRequest
			if ownQueue {
				dataFilter(&item, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 0.5)
				filter.FilterType, filter.Filter = item.FilterType, item.Filter
			}
			id := c.monitor(sub, item)[0].ID
			modify := func(queue, handle uint32) {
				m := filter
				m.ID, m.Handle, m.Queue, m.Oldest = id, handle, queue, true
				results := make([]ItemResult, 2)
				code := c.ModifyItems(sub, ua.TimestampsToReturnBoth, []ModifyRequest{m, {ID: 999}}, results, func() {})
				if code != ua.StatusGood || results[0].Queue != queue || results[1].Status != ua.StatusBadMonitoredItemIDInvalid {
					t.Fatalf("%v: %+v", code, results)
				}
			}
			v.set(1, 2, 3, 4, 5, 6, 7, 8)
			modify(3, 50)
			c.publish(1)
			sleep(ms(100))
			m := c.one()
			c.wantValues([]received{m}, 6, 7, 8)
			if f := flagged(m); !slices.Equal(f, []int{0}) || m.items()[0].ClientHandle != 50 {
				t.Fatalf("Overflow on %v, handle %d", f, m.items()[0].ClientHandle)
			}
			v.set(9)
			modify(20, 51)
			for i := range 15 {
				v.set(int64(10 + i))
			}
			c.publish(1)
			sleep(ms(100))
			m = c.one()
			c.wantValues([]received{m}, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
			if len(flagged(m)) != 0 || m.items()[0].ClientHandle != 51 {
				t.Fatalf("Overflow on %v, handle %d", flagged(m), m.items()[0].ClientHandle)
			}
		})
	}
	bubble(t, "a filter and another sampling on an item that had none", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		id := c.monitor(sub, plainItem(v, 10))[0].ID
		modify := func(change func(m *ModifyRequest)) {
			m := ModifyRequest{ID: id, Handle: 1, Queue: 10, Oldest: true}
			change(&m)
			results := make([]ItemResult, 1)
			if c.ModifyItems(sub, ua.TimestampsToReturnBoth, []ModifyRequest{m}, results, func() {}); results[0].Status != ua.StatusGood {
				t.Fatalf("%+v", results)
			}
		}
		next := func(want ...int64) {
			t.Helper()
			c.publish(1)
			sleep(ms(100))
			c.wantValues(c.take(), want...)
		}
		v.set(1, 2, 3)
		var item ItemRequest
		dataFilter(&item, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 10)
		modify(func(m *ModifyRequest) { m.FilterType, m.Filter = item.FilterType, item.Filter })
		v.set(4, 14, 15)
		next(1, 2, 3, 14)
		modify(func(m *ModifyRequest) { m.Sampling = 50 })
		v.set(20, 21)
		next(21)
		modify(func(m *ModifyRequest) { m.Queue, m.Oldest = 3, false })
		v.set(30, 31, 32, 33)
		next(30, 31, 33)
		modify(func(m *ModifyRequest) {})
		v.set(40, 41, 42, 43)
		next(40, 41, 42, 43)
	})
}
