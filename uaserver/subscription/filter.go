package subscription

import (
	"math"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// settings are what many items have in common; a Subscription keeps each distinct one once.
type settings struct {
	band     float64 // absolute deadband; 0: none
	sampling time.Duration
	queue    int32 // granted
	times    uint8 // mask bits of the timestamps to return
	trigger  trigger
	newest   bool // discard the newest when the queue is full
}

// trigger is the change that an item reports (Part 4, 7.22.2, DataChangeTrigger).
type trigger uint8

const (
	triggerStatus trigger = iota
	triggerStatusValue
	triggerStatusValueTimestamp
)

// interned is a Subscription's settings, by the number that its items hold.
type interned struct {
	list []shared
	last int32
}

// shared are settings and how many items have them.
type shared struct {
	settings
	users uint32
}

// maxSettings is how many distinct settings a Subscription may have: an item holds 16 bits of number.
const maxSettings = 1 << 16

// get is the number of v, and counts one more item that has it. It fails when there are too many.
func (t *interned) get(v *settings) (uint16, bool) {
	if int(t.last) < len(t.list) && t.list[t.last].users > 0 && t.list[t.last].settings == *v {
		t.list[t.last].users++
		return uint16(t.last), true
	}
	vacant := -1
	for i := range t.list {
		if t.list[i].users == 0 {
			vacant = i
		} else if t.list[i].settings == *v {
			t.list[i].users++
			t.last = int32(i)
			return uint16(i), true
		}
	}
	if vacant < 0 {
		if len(t.list) == maxSettings {
			return 0, false
		}
		vacant = len(t.list)
		t.list = append(t.list, shared{})
	}
	t.list[vacant], t.last = shared{*v, 1}, int32(vacant)
	return uint16(vacant), true
}

// put counts one item less.
func (t *interned) put(n uint16) { t.list[n].users-- }

// filter sets what a monitoring filter asks for. The status is that of the item (Part 4, 5.13.2.4 and 7.22).
func (e *Engine) filter(set *settings, n *address.Node, attribute ua.AttributeID, kind wire.NodeID, body []byte) ua.StatusCode {
	set.trigger = triggerStatusValue
	switch {
	case kind.IsNull():
		return ua.StatusGood
	case kind == wire.NumericID(0, id.EventFilter_Encoding_DefaultBinary):
		return ua.StatusBadFilterNotAllowed
	case kind == wire.NumericID(0, id.AggregateFilter_Encoding_DefaultBinary):
		return ua.StatusBadMonitoredItemFilterUnsupported
	case kind != wire.NumericID(0, id.DataChangeFilter_Encoding_DefaultBinary):
		return ua.StatusBadMonitoredItemFilterInvalid
	case attribute != ua.AttributeIDValue:
		return ua.StatusBadFilterNotAllowed
	}
	r := wire.NewReader(body)
	change, deadband, value := r.Uint32(), r.Uint32(), r.Float64()
	if r.Err() != nil || change > uint32(triggerStatusValueTimestamp) {
		return ua.StatusBadMonitoredItemFilterInvalid
	}
	set.trigger = trigger(change)
	return e.deadband(set, n, ua.DeadbandType(deadband), value)
}

// deadband makes the deadband absolute, so that a change is compared with one number.
func (e *Engine) deadband(set *settings, n *address.Node, kind ua.DeadbandType, value float64) ua.StatusCode {
	switch {
	case kind == ua.DeadbandTypeNone:
		return ua.StatusGood
	case kind != ua.DeadbandTypeAbsolute && kind != ua.DeadbandTypePercent:
		return ua.StatusBadDeadbandFilterInvalid
	case !(value >= 0) || math.IsInf(value, 0): // NaN too
		return ua.StatusBadDeadbandFilterInvalid
	case !numeric(n):
		return ua.StatusBadFilterNotAllowed
	}
	if kind == ua.DeadbandTypePercent {
		low, high, ok := e.cfg.EURange(n)
		if !ok || value > 100 || !(high > low) {
			return ua.StatusBadDeadbandFilterInvalid
		}
		value *= (high - low) / 100
	}
	set.band = value
	return ua.StatusGood
}

// numeric reports whether a deadband makes sense of the node's values: its DataType is Number or below (Part 3, 8.1 ff.),
// or what it holds is a number.
func numeric(n *address.Node) bool {
	if t := n.DataType; t.NS == 0 && t.Type == wire.Numeric {
		switch k := t.Num; {
		case k >= id.SByte && k <= id.Double, k >= id.Number && k <= id.UInteger, k == id.Duration:
			return true
		case k <= id.DiagnosticInfo && k != id.BaseDataType:
			return false
		}
	}
	v := n.Value
	if n.Manager != nil {
		if s := n.Manager.Series(n); s != nil {
			last, _, _ := s.Last()
			v = last.Value
		}
	}
	return v.Kind().Number()
}

// changed reports whether v is a change against old, as the settings see it.
func (set *settings) changed(old, v *entry) bool {
	switch {
	case old.Status != v.Status:
		return true
	case set.trigger == triggerStatus:
		return false
	case set.trigger == triggerStatusValueTimestamp && old.At != v.At:
		return true
	case set.band == 0:
		return !old.Value.Equal(v.Value)
	}
	return beyond(old.Value, v.Value, set.band)
}

// beyond reports whether a value, or any element of an array, moved by more than the deadband (Part 4, 7.22.2). A value
// of another form is a change, and so is one to or from a NaN.
func beyond(old, v tag.Value, band float64) bool {
	if old.Kind() != v.Kind() || old.IsArray() != v.IsArray() || old.Len() != v.Len() {
		return true
	}
	if !v.IsArray() {
		a, ok := old.Float()
		b, _ := v.Float()
		if !ok {
			return !old.Equal(v)
		}
		return apart(a, b, band)
	}
	switch v.Kind() {
	case tag.Int8:
		return anyApart[int8](old, v, band)
	case tag.Uint8:
		return anyApart[uint8](old, v, band)
	case tag.Int16:
		return anyApart[int16](old, v, band)
	case tag.Uint16:
		return anyApart[uint16](old, v, band)
	case tag.Int32:
		return anyApart[int32](old, v, band)
	case tag.Uint32:
		return anyApart[uint32](old, v, band)
	case tag.Int64:
		return anyApart[int64](old, v, band)
	case tag.Uint64:
		return anyApart[uint64](old, v, band)
	case tag.Float32:
		return anyApart[float32](old, v, band)
	case tag.Float64:
		return anyApart[float64](old, v, band)
	}
	return !old.Equal(v)
}

// number is what a deadband compares.
type number interface {
	int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64
}

func anyApart[T interface {
	number
	tag.Element
}](old, v tag.Value, band float64) bool {
	a, _ := tag.Slice[T](old)
	b, _ := tag.Slice[T](v)
	for i := range b {
		if apart(float64(a[i]), float64(b[i]), band) {
			return true
		}
	}
	return false
}

func apart(a, b, band float64) bool {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.IsNaN(a) != math.IsNaN(b)
	}
	return a != b && !(math.Abs(b-a) <= band) // infinities: their difference is no number
}
