package subscription

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// dataFilter is the type and body of a DataChangeFilter.
func dataFilter(r *ItemRequest, trigger ua.DataChangeTrigger, kind ua.DeadbandType, value float64) {
	r.FilterType = wire.NumericID(0, id.DataChangeFilter_Encoding_DefaultBinary)
	b := binary.LittleEndian.AppendUint32(nil, uint32(trigger))
	b = binary.LittleEndian.AppendUint32(b, uint32(kind))
	r.Filter = binary.LittleEndian.AppendUint64(b, math.Float64bits(value))
}

func TestQueue(t *testing.T) {
	bubble(t, "B1 every change, in order, up to the revised size", func(t *testing.T) {
		r := newRig(t, Config{Queue: 5000})
		v := r.variable(100)
		v.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 1000})
		rows := []struct{ ask, want uint32 }{{0, 1}, {1, 1}, {10, 10}, {math.MaxUint32, 5000}}
		for _, row := range rows {
			if got := c.monitor(sub, plainItem(v, row.ask))[0]; got.Queue != row.want || got.Sampling != 100 {
				t.Fatalf("asked for %d, got %+v", row.ask, got)
			}
		}
		c.publish(100)
		var got []received
		for i := range 50 {
			if i > 0 {
				v.set(int64(i))
			}
			sleep(ms(100))
		}
		got = append(got, c.take()...)
		byItem := map[uint32][]int64{}
		for i := range got {
			for _, n := range got[i].items() {
				byItem[n.ClientHandle] = append(byItem[n.ClientHandle], n.Value.Value.Value().(int64))
			}
		}
		for _, h := range []uint32{3, 4} {
			for i, n := range byItem[h] {
				if n != int64(i) {
					t.Fatalf("item %d got %v", h, byItem[h])
				}
			}
			if len(byItem[h]) < 49 {
				t.Fatalf("item %d got %d of 50", h, len(byItem[h]))
			}
		}
		if len(byItem[1]) != 5 || !slices.Equal(byItem[1], byItem[2]) {
			t.Fatalf("queues of one got %v and %v", byItem[1], byItem[2])
		}
		if len(flagged(got...)) != 0 {
			t.Fatal("Overflow although nothing was lost")
		}
	})
	bubble(t, "the account has no room: a shorter queue is granted, and told", func(t *testing.T) {
		r := newRig(t, Config{Account: &tag.Budget{Limit: 10 * entryBytes}})
		r.block = address.NewBlock(&tag.Budget{Limit: 400})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		plain := plainItem(v, 1000)
		newest := plainItem(v, 1000)
		newest.Oldest = false
		got := c.monitor(sub, plain, newest)
		if got[0].Queue < 5 || got[0].Queue > 11 || got[1].Queue < 5 || got[1].Queue > 11 {
			t.Fatalf("granted %d and %d", got[0].Queue, got[1].Queue)
		}
		for i := range 100 {
			v.set(int64(i))
		}
		c.publish(1)
		sleep(ms(100))
		m := c.one()
		if n := len(m.items()); n != int(got[0].Queue+got[1].Queue) {
			t.Fatalf("%d notifications, want %d and %d", n, got[0].Queue, got[1].Queue)
		}
	})
}

// TestOverflow is Part 4, 5.13.1.5 with figure 17: which entries stay, and which of them has the Overflow bit.
func TestOverflow(t *testing.T) {
	rows := []struct {
		queue  uint32
		oldest bool
		n      int // changes between two messages
		want   []int64
		flag   []int
	}{
		{1, true, 1, []int64{0}, nil},
		{1, true, 5, []int64{4}, nil},
		{1, false, 5, []int64{4}, nil},
		{2, true, 2, []int64{0, 1}, nil},
		{2, true, 3, []int64{1, 2}, []int{0}},
		{2, true, 9, []int64{7, 8}, []int{0}},
		{2, false, 2, []int64{0, 1}, nil},
		{2, false, 3, []int64{0, 2}, []int{1}},
		{2, false, 9, []int64{0, 8}, []int{1}},
		{3, true, 3, []int64{0, 1, 2}, nil},
		{3, true, 4, []int64{1, 2, 3}, []int{0}},
		{3, false, 4, []int64{0, 1, 3}, []int{2}},
		{3, false, 8, []int64{0, 1, 7}, []int{2}},
		{10, true, 10, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, nil},
		{10, true, 11, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, []int{0}},
		{10, false, 10, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, nil},
		{10, false, 12, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 11}, []int{9}},
		{10, false, 2000, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 1999}, []int{9}},
	}
	for _, row := range rows {
		for _, ownQueue := range []bool{false, true} { // a deadband that lets everything through
			bubble(t, fmt.Sprintf("queue %d oldest %v changes %d own %v", row.queue, row.oldest, row.n, ownQueue), func(t *testing.T) {
				r := newRig(t, Config{})
				v := r.variable(0)
				c := r.client()
				sub := c.subscribe(Parameters{})
				item := plainItem(v, row.queue)
				item.Oldest = row.oldest
				if ownQueue {
					dataFilter(&item, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 0.5)
				}
				c.monitor(sub, item)
				c.publish(2)
				for range 2 { // the second message begins anew
					for i := range row.n {
						v.set(int64(i))
						if i%100 == 99 {
							time.Sleep(time.Microsecond) // lets the walker in, long before the tick
						}
					}
					sleep(ms(100))
					m := c.one()
					c.wantValues([]received{m}, row.want...)
					if f := flagged(m); !slices.Equal(f, row.flag) {
						t.Fatalf("Overflow on %v, want %v", f, row.flag)
					}
					v.set(-5)
					sleep(ms(100))
					c.take()
					c.publish(2)
				}
				if st := r.engine.Stats(); row.queue == 1 && (st.Overflowed != 0 || row.n > 1 != (st.Coalesced > 0)) {
					t.Fatalf("a queue of one counts as %+v", st)
				}
			})
		}
	}
}

func TestSampling(t *testing.T) {
	bubble(t, "B4 intervals are revised, and every item reports", func(t *testing.T) {
		r := newRig(t, Config{})
		polled, memory, live := r.variable(100), r.variable(0), r.live()
		polled.set(1)
		memory.set(1)
		live.live = wire.DataValue{Value: tag.Of(int64(1)), Source: tag.Now(), Server: tag.Now()}
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 250})
		rows := []struct {
			v    *variable
			ask  float64
			want float64
		}{
			{polled, 0, 100}, {polled, -1, 250}, {polled, 0.001, 100}, {polled, 1e12, 3_600_000}, {polled, math.NaN(), 250},
			{polled, math.Inf(1), 3_600_000}, {polled, math.Inf(-1), 250}, {polled, 500, 500},
			{memory, 0, 0}, {memory, -1, 250}, {memory, 0.001, 0.001}, {memory, 1e12, 3_600_000}, {memory, 20, 20},
			{live, 0, 100}, {live, -1, 250}, {live, 0.001, 100}, {live, 1e12, 3_600_000}, {live, math.NaN(), 250},
		}
		var reqs []ItemRequest
		for _, row := range rows {
			for _, queue := range []uint32{1, 5} {
				item := plainItem(row.v, queue)
				item.Sampling = row.ask
				reqs = append(reqs, item)
			}
		}
		for i, got := range c.monitor(sub, reqs...) {
			if want := rows[i/2].want; got.Status != ua.StatusGood || got.Sampling != want {
				t.Errorf("asked for %v: %+v, want %v", rows[i/2].ask, got, want)
			}
		}
		c.publish(1)
		sleep(ms(250))
		if m := c.one(); len(m.items()) != len(reqs) {
			t.Fatalf("%d of %d items report", len(m.items()), len(reqs))
		}
	})
	bubble(t, "5.13.1.2 slower than the changes: one sample an interval, the last of a burst arrives", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 1000})
		item := plainItem(v, 10)
		item.Sampling = 200
		c.monitor(sub, item)
		c.publish(5)
		sleep(ms(30))
		for i := range 20 { // a change each 50 ms, until 980 ms
			v.set(int64(i + 1))
			time.Sleep(ms(50))
		}
		sleep(ms(1000))
		got := c.take()
		c.wantValues(got, 0, 4, 8, 12, 16, 20)
		if len(flagged(got...)) != 0 {
			t.Fatal("sampled out is no Overflow")
		}
	})
	bubble(t, "slower than publishing", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 100})
		item := plainItem(v, 1)
		item.Sampling = 450
		c.monitor(sub, item)
		c.publish(50)
		for i := range 20 {
			time.Sleep(ms(95))
			v.set(int64(i + 1))
		}
		var at []time.Duration
		for _, m := range c.take() {
			if len(m.items()) > 0 {
				at = append(at, m.after)
			}
		}
		if want := []time.Duration{ms(100), ms(500), ms(900), ms(1400), ms(1800)}; !slices.Equal(at, want) {
			t.Fatalf("reported at %v, want %v", at, want)
		}
	})
	bubble(t, "5.14.3 publishing becomes faster than sampling", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 1000})
		item := plainItem(v, 1)
		item.Sampling = -1
		c.monitor(sub, item)
		c.publish(100)
		sleep(ms(1010))
		c.wantValues(c.take(), 0)
		c.ModifySubscription(sub, Parameters{Publishing: 100, KeepAlive: 10})
		for i := range 40 {
			v.set(int64(i + 1))
			sleep(ms(100))
		}
		if got := values(c.take()...); len(got) < 4 || len(got) > 5 {
			t.Fatalf("sampled each second for 4 s: %v", got)
		}
	})
	bubble(t, "a value that is read, at the sampling interval and no faster", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.live()
		read := func(n int64) {
			v.mu.Lock()
			v.live = wire.DataValue{Value: tag.Of(n), Source: tag.Now(), Server: tag.Now()}
			v.mu.Unlock()
		}
		read(1)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 500})
		c.monitor(sub, plainItem(v, 10))
		c.publish(10)
		for i := range 5 {
			sleep(ms(250))
			read(int64(i + 2))
		}
		sleep(ms(250))
		c.wantValues(c.take(), 1, 2, 3, 4, 5, 6)
		if v.reads < 15 || v.reads > 17 {
			t.Fatalf("read %d times in 1.5 s", v.reads)
		}
	})
	bubble(t, "who supplies a value panics", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.live()
		v.live = wire.DataValue{Value: tag.Of(int64(1)), Server: tag.Now()}
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 10))
		c.publish(10)
		sleep(ms(100))
		c.wantValues(c.take(), 1)
		v.mu.Lock()
		v.broken = true
		v.mu.Unlock()
		sleep(ms(200))
		if m := c.one(); len(m.items()) != 1 || m.items()[0].Value.Status != ua.StatusBadInternalError {
			t.Fatalf("%+v", m.resp)
		}
	})
	bubble(t, "5.13.2 other attributes report once", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		item := plainItem(v, 3)
		item.Attribute = ua.AttributeIDDisplayName
		if got := c.monitor(sub, item)[0]; got.Status != ua.StatusGood || got.Sampling != 1000 {
			t.Fatalf("%+v", got)
		}
		c.publish(50)
		sleep(ms(5000))
		n := 0
		for _, m := range c.take() {
			for _, i := range m.items() {
				n++
				if i.Value.Value.Value() != "v" || i.Value.Has(ua.DataValueSourceTimestamp) || !i.Value.Has(ua.DataValueServerTimestamp) {
					t.Fatalf("reported %+v", i.Value)
				}
			}
		}
		if n != 1 {
			t.Fatalf("reported %d times", n)
		}
	})
}

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
			{"range of a name", with(v, func(i *ItemRequest) { i.Attribute, i.Range = ua.AttributeIDDisplayName, "1" }), ua.StatusBadIndexRangeInvalid},
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

func TestFilter(t *testing.T) {
	samples := func(vs ...any) (out []tag.Sample) {
		for _, v := range vs {
			switch v := v.(type) {
			case float64:
				out = append(out, tag.Sample{Value: tag.Of(v)})
			case []int16:
				out = append(out, tag.Sample{Value: tag.OfSlice(v)})
			case tag.Status:
				out = append(out, tag.Sample{Status: v})
			}
		}
		return out
	}
	nan, inf := math.NaN(), math.Inf(1)
	bad := tag.BadNoCommunication
	rows := []struct {
		name    string
		trigger ua.DataChangeTrigger
		kind    ua.DeadbandType
		value   float64
		in      []tag.Sample
		want    []int // indexes into in
	}{
		{"status", ua.DataChangeTriggerStatus, 0, 0, samples(1.0, 2.0, bad, 3.0, 4.0), []int{0, 2, 3}},
		{"status and value", ua.DataChangeTriggerStatusValue, 0, 0, samples(1.0, 2.0, bad, 2.0), []int{0, 1, 2, 3}},
		{"status, value and time", ua.DataChangeTriggerStatusValueTimestamp, 0, 0, samples(1.0, 2.0), []int{0, 1}},
		{"absolute: more than, against the last reported", ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 1,
			samples(0.0, 0.6, 1.0, 1.2, 2.0, 2.1, 2.3, 1.1, 1.3), []int{0, 3, 6, 7}},
		{"percent of 200", ua.DataChangeTriggerStatusValue, ua.DeadbandTypePercent, 10, samples(0.0, 20.0, 20.1, 40.0, 40.2), []int{0, 2, 4}},
		{"a status passes", ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 10, samples(1.0, bad, 1.0), []int{0, 1, 2}},
		{"D13 to and from NaN", ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 10, samples(1.0, nan, nan, 1.0, 2.0), []int{0, 1, 3}},
		{"infinities", ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 10, samples(1.0, inf, inf, -inf, 1.0), []int{0, 1, 3, 4}},
		{"any element", ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 2,
			samples([]int16{1, 2, 3}, []int16{2, 3, 4}, []int16{1, 2, 6}, []int16{1, 2}, []int16{}), []int{0, 2, 3, 4}},
	}
	for _, row := range rows {
		bubble(t, row.name, func(t *testing.T) {
			r := newRig(t, Config{EURange: func(*address.Node) (float64, float64, bool) { return -100, 100, true }})
			v := r.variable(0)
			c := r.client()
			sub := c.subscribe(Parameters{})
			item := plainItem(v, 100)
			dataFilter(&item, row.trigger, row.kind, row.value)
			c.monitor(sub, item)
			born := tag.Now()
			for i, s := range row.in {
				s.At = born + tag.Time(i)
				v.series.Append(s)
			}
			c.publish(1)
			sleep(ms(100))
			m := c.one()
			var got []int
			for _, n := range m.items() {
				got = append(got, int(tag.TimeOf(n.Value.SourceTimestamp)-born))
			}
			if !slices.Equal(got, row.want) {
				t.Fatalf("reported %v, want %v", got, row.want)
			}
		})
	}
	bubble(t, "A12 IndexRange: only its elements count", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		item := plainItem(v, 10)
		item.Range = "1:2"
		c.monitor(sub, item)
		for _, s := range [][]int16{{1, 2, 3}, {9, 2, 3}, {9, 2, 4}, {1}, {7}, {1, 5, 6}} {
			v.series.Append(tag.Sample{Value: tag.OfSlice(s), At: tag.Now()})
		}
		c.publish(1)
		sleep(ms(100))
		m := c.one()
		var got []string
		for _, n := range m.items() {
			if n.Value.Status != 0 {
				got = append(got, n.Value.Status.Error())
			} else {
				got = append(got, fmt.Sprint(n.Value.Value.Value()))
			}
		}
		want := []string{"[2 3]", "[2 4]", ua.StatusBadIndexRangeNoData.Error(), "[5 6]"}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
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
