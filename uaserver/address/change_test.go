package address

import (
	"fmt"
	"runtime"
	"slices"
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

// TestPlacesOfReplacedNodes: a node that is removed and added anew in one Change is where it was for whoever browses; one
// that comes back later, or by another reference, is at the end; and one that does not come back leaves no trace.
func TestPlacesOfReplacedNodes(t *testing.T) {
	component := func(name string) Reference { return Reference{plantID("dev0"), idComponent, plantID("dev0." + name)} }
	for _, row := range []struct {
		name   string
		remove []string
		add    []string // in this order, with a component reference each
		other  []string // among them those that another kind of reference leads to
		want   string
	}{
		{"one", []string{"tag1"}, []string{"tag1"}, nil, "[tag0 tag1 tag2 tag3]"},
		{"the first and the last", []string{"tag0", "tag3"}, []string{"tag3", "tag0"}, nil, "[tag0 tag1 tag2 tag3]"},
		{"all, and a new one", []string{"tag3", "tag1", "tag0", "tag2"}, []string{"new", "tag2", "tag3", "tag1", "tag0"}, nil, "[tag0 tag1 tag2 tag3 new]"},
		{"one stays away", []string{"tag0", "tag1", "tag2"}, []string{"tag2", "tag0"}, nil, "[tag0 tag2 tag3]"},
		{"by another reference", []string{"tag1", "tag2"}, []string{"tag1", "tag2"}, []string{"tag1"}, "[tag0 tag2 tag3 tag1]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, err := New("urn:edged:test")
			if err == nil {
				err = s.Apply(plant(1, 4, nil))
			}
			if err != nil {
				t.Fatal(err)
			}
			c := Change{}
			for _, name := range row.remove {
				c.Remove = append(c.Remove, plantID("dev0."+name))
			}
			for _, name := range row.add {
				n := variable("dev0."+name, name, nil)
				r := component(name)
				if slices.Contains(row.other, name) {
					r.Type = idOrganizes
				}
				c.Add = append(c.Add, n)
				c.References = append(c.References, r, Reference{n.ID, idHasTypeDefinition, idBaseData})
			}
			if err := s.Apply(c); err != nil {
				t.Fatal(err)
			}
			var got []string
			device := s.Find(plantID("dev0"))
			s.References(device, func(kind *Node, inverse bool, target *Node) bool {
				if !inverse && kind.ID != idHasTypeDefinition {
					got = append(got, target.BrowseName)
					if s.Find(target.ID) != target {
						t.Errorf("%s is the node of before", target.BrowseName)
					}
				}
				return true
			})
			if fmt.Sprint(got) != row.want {
				t.Errorf("browsed %v, want %v", got, row.want)
			}
			for _, name := range row.add {
				back := 0
				s.References(s.Find(plantID("dev0."+name)), func(_ *Node, inverse bool, target *Node) bool {
					if inverse && target == device {
						back++
					}
					return true
				})
				if back != 1 {
					t.Errorf("%s has %d references to its device", name, back)
				}
			}
		})
	}
}
