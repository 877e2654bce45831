package address

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
)

// plant makes devices with variables each.
func plant(devices, variables int, m NodeManager) (c Change) {
	for d := range devices {
		device := fmt.Sprintf("dev%d", d)
		c.Add = append(c.Add, &Node{ID: plantID(device), BrowseName: device, Attributes: &Attributes{Class: ua.NodeClassObject, BrowseNS: NamespacePlant}})
		c.References = append(c.References, Reference{idObjects, idOrganizes, plantID(device)},
			Reference{plantID(device), idHasTypeDefinition, idFolderType})
		for i := range variables {
			name := fmt.Sprintf("tag%d", i)
			n := variable(device+"."+name, name, m)
			c.Add = append(c.Add, n)
			c.References = append(c.References, Reference{plantID(device), idComponent, n.ID},
				Reference{n.ID, idHasTypeDefinition, idBaseData})
		}
	}
	return c
}

// TestPlantOf20000Tags: what a large site costs.
func TestPlantOf20000Tags(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 20,000 nodes")
	}
	s, err := New("urn:edged:test")
	if err != nil {
		t.Fatal(err)
	}
	c := plant(20, 1000, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	if err := s.Apply(c); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(start)
	runtime.GC()
	runtime.ReadMemStats(&after)
	start = time.Now()
	n := variable("one", "one", nil)
	err = s.Add([]*Node{n}, []Reference{{plantID("dev5"), idComponent, n.ID}, {n.ID, idHasTypeDefinition, idBaseData}})
	if err != nil {
		t.Fatal(err)
	}
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / 20_000
	t.Logf("20,000 tags in %v, %d bytes a tag beside its Node; one more in %v", whole, each, time.Since(start))
	if each > 160 {
		t.Errorf("%d bytes a tag beside its Node", each)
	}
	if got := s.Len() - 20_020; got < 4000 || s.Find(plantID("dev19.tag999")) == nil {
		t.Errorf("%d nodes beside the plant's", got)
	}
	runtime.KeepAlive(c)
}
