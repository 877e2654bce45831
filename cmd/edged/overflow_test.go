package main

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"
)

// kindsOfTag are the types that a tag may have, with the i-th of their values; each differs from the one before. Arrays of
// ByteString, which gopcua does not encode, are among the kinds of the engine's own test.
var kindsOfTag = []struct {
	kind  string
	value func(i int) any
}{
	{"bool", func(i int) any { return i%2 == 1 }},
	{"int8", func(i int) any { return int8(-i) }},
	{"uint8", func(i int) any { return uint8(i) }},
	{"int16", func(i int) any { return int16(-i) }},
	{"uint16", func(i int) any { return uint16(i) }},
	{"int32", func(i int) any { return int32(-i) }},
	{"uint32", func(i int) any { return uint32(i) }},
	{"int64", func(i int) any { return int64(-i) << 40 }},
	{"uint64", func(i int) any { return uint64(i) << 60 >> 1 }},
	{"float32", func(i int) any { return float32(i) / 4 }},
	{"float64", func(i int) any { return float64(i) / 3 }},
	{"string(80)", func(i int) any { return strings.Repeat("ä", i) }},
	{"bytes(40)", func(i int) any { return make([]byte, i) }},
	{"bool[2]", func(i int) any { return []bool{true, i%2 == 1} }},
	{"int8[2]", func(i int) any { return []int8{1, int8(-i)} }},
	{"uint8[2]", func(i int) any { return ua.ByteArray{1, byte(i)} }},
	{"int16[2]", func(i int) any { return []int16{1, int16(-i)} }},
	{"uint16[2]", func(i int) any { return []uint16{1, uint16(i)} }},
	{"int32[2]", func(i int) any { return []int32{1, int32(-i)} }},
	{"uint32[2]", func(i int) any { return []uint32{1, uint32(i)} }},
	{"int64[2]", func(i int) any { return []int64{1, int64(-i)} }},
	{"uint64[2]", func(i int) any { return []uint64{1, uint64(i)} }},
	{"float32[2]", func(i int) any { return []float32{1, float32(i)} }},
	{"float64[2]", func(i int) any { return []float64{1, float64(i)} }},
	{"string(9)[2]", func(i int) any { return []string{"a", fmt.Sprint(i)} }},
}

// overflowItem is one row of the table.
type overflowItem struct {
	kind   int // index into kindsOfTag
	queue  int
	oldest bool // discarded
}

func (x *overflowItem) String() string {
	return fmt.Sprintf("%s, queue %d, discard oldest %v", kindsOfTag[x.kind].kind, x.queue, x.oldest)
}

// noted is one notification.
type noted struct {
	value    any
	overflow bool
}

// want is what the queue holds after the values from..from+n-1 (Part 4, 5.13.1.5).
func (x *overflowItem) want(from, n int) (out []noted) {
	value := kindsOfTag[x.kind].value
	for i := range n {
		out = append(out, noted{value: value(from + i)})
	}
	switch last := out[n-1]; {
	case n <= x.queue:
	case x.queue == 1:
		out = out[n-1:]
	case x.oldest:
		out = out[n-x.queue:]
		out[0].overflow = true
	default:
		last.overflow = true
		out = append(out[:x.queue-1], last)
	}
	return out
}

// TestOverflowOfEveryKind: queue 1, 2, 3 and 10, discard oldest and newest, every type of tag, from a Write to the
// notifications of a stock client; then the ledger says the same.
func TestOverflowOfEveryKind(t *testing.T) {
	site := siteHead + "devices:\n- name: d\n  driver: memory\n  tags:\n"
	for i, k := range kindsOfTag {
		site += fmt.Sprintf("  - {name: t%d, type: %q, access: readwrite}\n", i, k.kind)
	}
	g, _ := startSite(t, site)
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	var table []overflowItem
	for kind := range kindsOfTag {
		for _, queue := range []int{1, 2, 3, 10} {
			table = append(table, overflowItem{kind, queue, true}, overflowItem{kind, queue, false})
		}
	}
	var mu sync.Mutex // guards got
	got := make([][]noted, len(table))
	sub := monitorTable(t, c, table, func(item int, v *ua.DataValue) {
		mu.Lock()
		defer mu.Unlock()
		if v.Status&^0x480 != 0 {
			t.Errorf("%v: %v", &table[item], v.Status)
		}
		got[item] = append(got[item], noted{v.Value.Value(), v.Status == 0x480})
	})
	arrived := func(want func(x *overflowItem) int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			for i := range table {
				if len(got[i]) < want(&table[i]) {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "initial values", arrived(func(*overflowItem) int { return 1 }))
	lost := map[bool]uint64{} // by whether the queue is longer than one
	for _, round := range []struct{ from, n int }{{1, 12}, {13, 2}, {15, 11}, {26, 10}} {
		publishing(t, c, sub, false)
		mu.Lock()
		clear(got)
		mu.Unlock()
		writeAll(t, c, round.from, round.n)
		publishing(t, c, sub, true)
		eventually(t, "what the queues hold", arrived(func(x *overflowItem) int { return min(round.n, x.queue) }))
		mu.Lock()
		for i := range table {
			x := &table[i]
			if want := x.want(round.from, round.n); !reflect.DeepEqual(got[i], want) {
				t.Errorf("%v, %d values: got %v, want %v", x, round.n, got[i], want)
			}
			lost[x.queue > 1] += uint64(round.n - min(round.n, x.queue))
		}
		mu.Unlock()
	}
	if st := g.server.Engine().Stats(); st.Overflowed != lost[true] || st.Overwritten != lost[false] || st.Unaccounted != 0 {
		t.Errorf("the ledger has %d overflowed and %d overwritten, unaccounted %d; want %d and %d", st.Overflowed, st.Overwritten,
			st.Unaccounted, lost[true], lost[false])
	}
}

// monitorTable makes an item a row.
func monitorTable(t *testing.T, c *opcua.Client, table []overflowItem, hear func(item int, v *ua.DataValue)) *opcua.Subscription {
	t.Helper()
	sub := listen(t, c, &opcua.SubscriptionParameters{Interval: 20 * time.Millisecond, LifetimeCount: 100_000}, hear)
	items := make([]*ua.MonitoredItemCreateRequest, len(table))
	for i, x := range table {
		items[i] = opcua.NewMonitoredItemCreateRequestWithDefaults(tagID(fmt.Sprintf("d.t%d", x.kind)), ua.AttributeIDValue, uint32(i))
		p := items[i].RequestedParameters
		p.QueueSize, p.DiscardOldest, p.SamplingInterval = uint32(x.queue), x.oldest, 0
	}
	r, err := sub.Monitor(t.Context(), ua.TimestampsToReturnBoth, items...)
	if err != nil {
		t.Fatal(err)
	}
	for i, result := range r.Results {
		if result.StatusCode != ua.StatusOK || result.RevisedQueueSize != uint32(table[i].queue) {
			t.Fatalf("%v: %v, queue %d", &table[i], result.StatusCode, result.RevisedQueueSize)
		}
	}
	return sub
}

// publishing switches publishing on or off (Part 4, 5.14.4): what is written meanwhile waits in the queues, however long
// the machine takes.
func publishing(t *testing.T, c *opcua.Client, sub *opcua.Subscription, enabled bool) {
	t.Helper()
	err := c.Send(t.Context(), &ua.SetPublishingModeRequest{PublishingEnabled: enabled, SubscriptionIDs: []uint32{sub.SubscriptionID}},
		func(r ua.Response) error {
			if m, ok := r.(*ua.SetPublishingModeResponse); !ok || m.Results[0] != ua.StatusOK {
				t.Fatalf("SetPublishingMode: %v", r)
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

// writeAll writes n values to each tag, one after the other, in one request.
func writeAll(t *testing.T, c *opcua.Client, from, n int) {
	t.Helper()
	req := &ua.WriteRequest{}
	for i := from; i < from+n; i++ {
		for k := range kindsOfTag {
			req.NodesToWrite = append(req.NodesToWrite, &ua.WriteValue{NodeID: tagID(fmt.Sprintf("d.t%d", k)), AttributeID: ua.AttributeIDValue,
				Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(kindsOfTag[k].value(i))}})
		}
	}
	r, err := c.Write(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for i, code := range r.Results {
		if code != ua.StatusOK {
			t.Fatalf("%s: %v", kindsOfTag[i%len(kindsOfTag)].kind, code)
		}
	}
}
