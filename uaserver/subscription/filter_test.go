package subscription

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

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

// FuzzFilter: whatever a filter's body is, it is refused or becomes settings that the engine can work with.
func FuzzFilter(f *testing.F) {
	var x ItemRequest
	dataFilter(&x, ua.DataChangeTriggerStatusValue, ua.DeadbandTypePercent, 10)
	f.Add(x.Filter, uint32(id.DataChangeFilter_Encoding_DefaultBinary))
	f.Add(x.Filter[:7], uint32(id.DataChangeFilter_Encoding_DefaultBinary))
	f.Add([]byte{}, uint32(id.EventFilter_Encoding_DefaultBinary))
	e := &Engine{}
	e.cfg.EURange = func(*address.Node) (float64, float64, bool) { return -100, 100, true }
	e.cfg.defaults()
	n := &address.Node{Attributes: &address.Attributes{Class: ua.NodeClassVariable, DataType: wire.NumericID(0, id.Double)}}
	f.Fuzz(func(t *testing.T, body []byte, kind uint32) {
		var set settings
		code := e.filter(&set, n, ua.AttributeIDValue, wire.NumericID(0, kind), body)
		if code != ua.StatusGood {
			return
		}
		if !(set.band >= 0) || math.IsInf(set.band, 0) || set.trigger > triggerStatusValueTimestamp {
			t.Fatalf("%x becomes %+v", body, set)
		}
		a, b := entry{Sample: tag.Sample{Value: tag.Of(1.0)}}, entry{Sample: tag.Sample{Value: tag.Of(1.0), Status: tag.BadNoCommunication}}
		if !set.changed(&a, &b) || set.changed(&a, &a) {
			t.Fatalf("%+v does not tell a change of status from none", set)
		}
	})
}
