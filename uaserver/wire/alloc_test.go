package wire

import (
	"testing"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

var (
	aValue = DataValue{Value: tag.Of(21.5), Source: 1, Server: 2}
	aID    = TextID(2, "boiler.temperature")
)

// readBody is the body of a Read of n variables.
func readBody(n int) []byte {
	b := AppendUint32(AppendUint32(AppendFloat64(nil, 0), 2), uint32(n))
	for range n {
		b = appendReadItem(b)
	}
	return b
}

func appendReadItem(b []byte) []byte {
	b = AppendUint32(AppendNodeID(b, aID), uint32(ua.AttributeIDValue))
	return AppendNull(AppendUint16(AppendNull(b), 0))
}

func writeBody(n int) []byte {
	b := AppendUint32(nil, uint32(n))
	for range n {
		b = AppendNull(AppendUint32(AppendNodeID(b, aID), uint32(ua.AttributeIDValue)))
		b = AppendDataValue(b, &aValue)
	}
	return b
}

func createBody(n int) []byte {
	b := AppendUint32(AppendUint32(AppendUint32(nil, 1), 2), uint32(n))
	for range n {
		b = AppendUint32(appendReadItem(b), 2)
		var at int
		b, at = BeginExtension(AppendFloat64(AppendUint32(b, 1), 100), id.DataChangeFilter_Encoding_DefaultBinary)
		b = EndExtension(AppendFloat64(AppendUint32(AppendUint32(b, 1), 1), 0.5), at)
		b = append(AppendUint32(b, 10), 1)
	}
	return b
}

func browseBody(n int) []byte {
	b := AppendUint32(AppendUint32(AppendUint64(AppendNodeID(nil, NodeID{}), 0), 0), 0)
	b = AppendUint32(b, uint32(n))
	for range n {
		b = AppendUint32(AppendNodeID(b, aID), 0)
		b = AppendUint32(AppendUint32(AppendBool(AppendNodeID(b, NumericID(0, id.HierarchicalReferences)), true), 0), 63)
	}
	return b
}

func publishBody(n int) []byte {
	b := AppendUint32(nil, uint32(n))
	for i := range n {
		b = AppendUint32(AppendUint32(b, 1), uint32(i))
	}
	return b
}

var sink struct {
	n     uint64
	value tag.Value
	b     []byte
}

// hot are the paths that must not allocate: what one costs is a benchmark of the same name.
var hot = []struct {
	name string
	n    int // elements
	run  func()
}{
	{"AppendVariant Double", 1, func() { sink.b = AppendVariant(sink.b[:0], aValue.Value) }},
	{"AppendDataValue", 1, func() { sink.b = AppendDataValue(sink.b[:0], &aValue) }},
	{"AppendVariant 1000 Doubles", 1000, func() { sink.b = AppendVariant(sink.b[:0], manyDoubles) }},
	{"AppendNodeID", 1, func() { sink.b = AppendNodeID(sink.b[:0], aID) }},
	{"AppendResponseHeader", 1, func() { sink.b = AppendResponseHeader(sink.b[:0], 1, 2, 0, 3) }},
	{"Variant Double", 1, func() { r := NewReader(doubleBytes); sink.value = r.Variant() }},
	{"RequestHeader", 1, func() { r := NewReader(headerBytes); sink.n += uint64(r.RequestHeader().Handle) }},
	{"ReadRequest", 100, func() {
		r := NewReader(reads)
		v := r.ReadRequest()
		for i := (ReadValueID{}); v.Next(&i); {
			sink.n += uint64(i.Attribute)
		}
	}},
	{"WriteRequest", 100, func() {
		r := NewReader(writes)
		v := r.WriteRequest()
		var d DataValue
		for i := (WriteValue{}); v.Next(&i, &d); {
			sink.n += d.Value.Bits()
		}
	}},
	{"CreateMonitoredItemsRequest", 100, func() {
		r := NewReader(creates)
		v := r.CreateMonitoredItemsRequest()
		for i, ok := v.Next(); ok; i, ok = v.Next() {
			f, _, _ := i.Parameters.Filter.DataChangeFilter()
			sink.n += uint64(f.Deadband)
		}
	}},
	{"BrowseRequest", 100, func() {
		r := NewReader(browses)
		v := r.BrowseRequest()
		for i, ok := v.Next(); ok; i, ok = v.Next() {
			sink.n += uint64(i.ResultMask)
		}
	}},
	{"PublishRequest", 100, func() {
		r := NewReader(publishes)
		v := r.PublishRequest()
		for a, ok := v.Next(); ok; a, ok = v.Next() {
			sink.n += uint64(a.Sequence)
		}
	}},
	{"AppendMessage CreateSubscriptionResponse", 1, func() { sink.b = AppendMessage(sink.b[:0], created) }},
}

var (
	manyDoubles = tag.OfSlice(make([]float64, 1000))
	doubleBytes = AppendVariant(nil, aValue.Value)
	headerBytes = []byte(header)
	reads       = readBody(100)
	writes      = writeBody(100)
	creates     = createBody(100)
	browses     = browseBody(100)
	publishes   = publishBody(100)
	created     = &ua.CreateSubscriptionResponse{ResponseHeader: &ua.ResponseHeader{}, SubscriptionID: 7}
)

func TestHotPathsAllocateNothing(t *testing.T) {
	for _, h := range hot {
		h.run() // grows the buffer
		before := sink.n
		if n := testing.AllocsPerRun(100, h.run); n != 0 {
			t.Errorf("%s: %v allocations", h.name, n)
		}
		if h.n == 100 && sink.n == before {
			t.Errorf("%s: nothing was read", h.name)
		}
	}
}

// TestValuesAllocateOnce: an array or text read from a message is one allocation, that of its memory.
func TestValuesAllocateOnce(t *testing.T) {
	for _, v := range []tag.Value{tag.Of("boiler"), tag.OfBytes([]byte{1}), tag.OfSlice([]bool{true}), tag.OfSlice([]int8{1}),
		tag.OfSlice([]uint8{1}), tag.OfSlice([]int16{1}), tag.OfSlice([]uint16{1}), tag.OfSlice([]int32{1}), tag.OfSlice([]uint32{1}),
		tag.OfSlice([]int64{1}), tag.OfSlice([]uint64{1}), tag.OfSlice([]float32{1}), tag.OfSlice([]float64{1}),
		tag.OfSlice([]tag.Time{1}), tag.OfSlice([]tag.Status{1})} {
		b := AppendVariant(nil, v)
		if n := testing.AllocsPerRun(100, func() { r := NewReader(b); sink.value = r.Variant() }); n != 1 {
			t.Errorf("%v of %v: %v allocations", v.Kind(), v, n)
		}
		if !sink.value.Equal(v) {
			t.Errorf("%v became %v", v, sink.value)
		}
		sink.b = AppendVariant(sink.b[:0], v)
		if n := testing.AllocsPerRun(100, func() { sink.b = AppendVariant(sink.b[:0], v) }); n != 0 {
			t.Errorf("%v of %v: %v allocations to append", v.Kind(), v, n)
		}
	}
}

func BenchmarkHot(b *testing.B) {
	for _, h := range hot {
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.run()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*h.n), "ns/element")
		})
	}
}

// BenchmarkCold decodes a message of 100 nodes into gopcua's structs.
func BenchmarkCold(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(reads)
		if _, err := DecodeRequest(id.ReadRequest_Encoding_DefaultBinary, &r); err != nil {
			b.Fatal(err)
		}
	}
}
