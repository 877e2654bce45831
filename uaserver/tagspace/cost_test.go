package tagspace

import (
	"runtime"
	"strconv"
	"testing"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// manyDefs are n tags with all that is usual: range, unit, definition.
func manyDefs(n int) []tag.Def {
	defs := make([]tag.Def, n)
	for i := range defs {
		defs[i] = tag.Def{Device: "device", Name: "m" + strconv.Itoa(i), Kind: tag.Float32, Access: tag.Readable | tag.Writable,
			HasRange: true, Low: 0, High: 150, Unit: "°C", How: said("holding:0 float32")}
	}
	return defs
}

// TestCostOfATag bounds what a tag takes on the client side: its nodes, references, properties and last value.
func TestCostOfATag(t *testing.T) {
	const tags, most = 100_000, 260 // bytes of heap a tag
	space, err := address.New("urn:test")
	if err != nil {
		t.Fatal(err)
	}
	table, err := tag.NewTable(manyDefs(tags))
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	s, err := New(Config{Table: table, Address: space})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for ref := tag.Ref(1); ref <= tags; ref++ {
		s.Publish([]tag.Sample{{Ref: ref, Value: tag.Of(float32(ref)), At: 1}})
	}
	each := (heap() - before) / tags
	t.Logf("%d bytes a tag", each)
	if each > most {
		t.Errorf("a tag takes %d bytes, at most %d", each, most)
	}
	runtime.KeepAlive(space)
	runtime.KeepAlive(table)
}

// heap is the bytes of live objects.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkNew100000(b *testing.B) {
	table, err := tag.NewTable(manyDefs(100_000))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		space, err := address.New("urn:test")
		if err != nil {
			b.Fatal(err)
		}
		s, err := New(Config{Table: table, Address: space})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
