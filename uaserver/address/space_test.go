package address

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

const allRights = MayBrowse | MayRead | MayWrite | MayCall

func newSpace(t testing.TB) *Space {
	t.Helper()
	s, err := New("urn:edged:test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkSpace(t, s) })
	return s
}

// checkSpace is the invariant of every space: each reference ends at a node that is there and is seen from both ends
// once, and the subtype sets are what a walk finds.
func checkSpace(t testing.TB, s *Space) {
	t.Helper()
	v := s.now.Load()
	all := allNodes(v)
	if len(all) != s.Len() {
		t.Errorf("%d nodes in the maps, Len is %d", len(all), s.Len())
	}
	type edge struct {
		from, to *Node
		kind     uint16
	}
	forward, inverse := map[edge]int{}, map[edge]int{}
	for _, n := range all {
		l := n.links.Load()
		if l == nil {
			t.Errorf("%s: has no list of references", n.ID)
			continue
		}
		var def *Node
		for _, e := range l.all {
			if v.find(e.target.ID) != e.target {
				t.Errorf("%s: refers to %s, which is not in the space", n.ID, e.target.ID)
			}
			if e.inverse {
				inverse[edge{e.target, n, e.kind}]++
				continue
			}
			if e.kind == kindHasTypeDefinition {
				def = e.target
				if n.ID.NS != 0 {
					continue // a type does not list its instances
				}
			}
			forward[edge{n, e.target, e.kind}]++
		}
		if def != l.definition {
			t.Errorf("%s: type definition differs from its reference", n.ID)
		}
	}
	for e, n := range forward {
		if n != 1 || inverse[e] != 1 {
			t.Errorf("%s to %s: %d forward, %d inverse", e.from.ID, e.to.ID, n, inverse[e])
		}
	}
	if len(inverse) != len(forward) {
		t.Errorf("%d references forward, %d inverse", len(forward), len(inverse))
	}
	for i, k := range v.kinds {
		for j, super := range v.kinds {
			if got, want := v.subtypes[j].has(uint16(i)), s.IsSubtype(k.ID, super.ID); got != want {
				t.Errorf("%s below %s: set says %v, walk %v", k.BrowseName, super.BrowseName, got, want)
			}
		}
	}
}

func allNodes(v *view) []*Node {
	var all []*Node
	for _, i := range v.core {
		if i != 0 {
			all = append(all, &v.coreNodes[i-1])
		}
	}
	for _, n := range v.numbers {
		all = append(all, n)
	}
	for _, t := range v.texts {
		if t == nil {
			continue
		}
		for _, n := range t.nodes {
			if n != nil {
				all = append(all, n)
			}
		}
	}
	for _, n := range v.others {
		all = append(all, n)
	}
	return all
}

var (
	idObjects    = wire.NumericID(0, 85)
	idServer     = wire.NumericID(0, 2253)
	idOrganizes  = wire.NumericID(0, 35)
	idComponent  = wire.NumericID(0, 47)
	idFolderType = wire.NumericID(0, 61)
	idBaseData   = wire.NumericID(0, 63)
)

func plantID(name string) wire.NodeID { return wire.TextID(NamespacePlant, name) }

// folder adds a folder with variables of the type Double below Objects.
func folder(t testing.TB, s *Space, name string, m NodeManager, variables ...string) []*Node {
	t.Helper()
	nodes := []*Node{{ID: plantID(name), BrowseName: name, Attributes: &Attributes{Class: ua.NodeClassObject, BrowseNS: NamespacePlant}}}
	refs := []Reference{{idObjects, idOrganizes, plantID(name)}, {plantID(name), idHasTypeDefinition, idFolderType}}
	for _, v := range variables {
		nodes = append(nodes, variable(name+"."+v, v, m))
		refs = append(refs, Reference{plantID(name), idComponent, plantID(name + "." + v)},
			Reference{plantID(name + "." + v), idHasTypeDefinition, idBaseData})
	}
	if err := s.Add(nodes, refs); err != nil {
		t.Fatal(err)
	}
	return nodes
}

func variable(id, name string, m NodeManager) *Node {
	return &Node{
		ID: plantID(id), BrowseName: name, Attributes: &Attributes{
			Class: ua.NodeClassVariable, BrowseNS: NamespacePlant, DataType: wire.NumericID(0, 11), Rank: -1, Manager: m,
			Access: ua.AccessLevelTypeCurrentRead | ua.AccessLevelTypeCurrentWrite,
		},
	}
}

func TestFindByEveryKindOfID(t *testing.T) {
	s := newSpace(t)
	ids := []wire.NodeID{
		wire.NumericID(1, 7), wire.NumericID(2, 7), wire.NumericID(0, 70000), wire.TextID(1, "7"), wire.TextID(2, "7"),
		{NS: 1, Type: wire.GUID, Str: "0123456789abcdef"}, {NS: 1, Type: wire.Opaque, Str: "7"},
	}
	var nodes []*Node
	for _, id := range ids {
		nodes = append(nodes, &Node{ID: id, BrowseName: id.String(), Attributes: &Attributes{Class: ua.NodeClassObject}})
	}
	if err := s.Add(nodes, nil); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		if s.Find(id) != nodes[i] {
			t.Errorf("%s: not found", id)
		}
	}
	for _, id := range []wire.NodeID{{}, wire.NumericID(0, 1<<31), wire.NumericID(9, 7), wire.TextID(9, "7"), wire.TextID(0, "x")} {
		if s.Find(id) != nil {
			t.Errorf("%s: found", id)
		}
	}
	if err := s.Remove(ids...); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if s.Find(id) != nil {
			t.Errorf("%s: found after its removal", id)
		}
	}
}

func TestNamespaces(t *testing.T) {
	s := newSpace(t)
	if i, err := s.AddNamespace("urn:more"); i != 3 || err != nil {
		t.Fatalf("AddNamespace: %d, %v", i, err)
	}
	if i, _ := s.AddNamespace(URIOfPlant); i != NamespacePlant {
		t.Errorf("a known namespace got index %d", i)
	}
	it := []ReadItem{{Node: s.Find(idNamespaceArray), Attribute: ua.AttributeIDValue}}
	s.Read(context.Background(), allRights, it)
	got, _ := tag.Slice[string](it[0].Result.Value)
	if want := "http://opcfoundation.org/UA/ urn:edged:test urn:edged:plant urn:more"; strings.Join(got, " ") != want {
		t.Errorf("NamespaceArray is %q", got)
	}
	it[0].Range = "1:2"
	s.Read(context.Background(), allRights, it)
	if got, _ := tag.Slice[string](it[0].Result.Value); strings.Join(got, " ") != "urn:edged:test urn:edged:plant" {
		t.Errorf("its part is %q", got)
	}
}

func TestChangeIsRefusedWhole(t *testing.T) {
	object := func(id wire.NodeID, name string) *Node {
		return &Node{ID: id, BrowseName: name, Attributes: &Attributes{Class: ua.NodeClassObject}}
	}
	a, b := plantID("a"), plantID("b")
	for _, row := range []struct {
		name   string
		change Change
		says   string
	}{
		{"no id", Change{Add: []*Node{object(wire.NodeID{}, "x")}}, "has no id"},
		{"no name", Change{Add: []*Node{object(b, "")}}, "no BrowseName"},
		{"no class", Change{Add: []*Node{{ID: b, BrowseName: "b", Attributes: &Attributes{}}}}, "node class"},
		{"two classes", Change{Add: []*Node{{ID: b, BrowseName: "b", Attributes: &Attributes{Class: 3}}}}, "node class"},
		{"namespace unknown", Change{Add: []*Node{object(wire.TextID(8, "b"), "b")}}, "NamespaceArray"},
		{"there already", Change{Add: []*Node{object(a, "a")}}, "is there already"},
		{"twice in one change", Change{Add: []*Node{object(b, "b"), object(b, "b")}}, "is there already"},
		{"source unknown", Change{References: []Reference{{b, idComponent, a}}}, "source is unknown"},
		{"parent unknown", Change{Add: []*Node{object(b, "b")}, References: []Reference{{plantID("c"), idComponent, b}}}, "source is unknown"},
		{"target unknown", Change{References: []Reference{{a, idComponent, b}}}, "target is unknown"},
		{"no reference type", Change{References: []Reference{{a, idObjects, idObjects}}}, "no reference type"},
		{"reference twice", Change{References: []Reference{{idObjects, idOrganizes, a}}}, "is there already"},
		{"two types", Change{References: []Reference{{a, idHasTypeDefinition, idBaseData}}}, "type definition already"},
		{"remove unknown", Change{Remove: []wire.NodeID{b}}, "unknown"},
		{"remove twice", Change{Remove: []wire.NodeID{a, a}}, "unknown"},
		{"remove reference type", Change{Remove: []wire.NodeID{idComponent}}, "stays"},
		{"drop what is not there", Change{Drop: []Reference{{a, idComponent, idObjects}}}, "not there"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSpace(t)
			folder(t, s, "a", nil, "v")
			serial, n := s.Serial(), s.Len()
			row.change.Add = append([]*Node{object(plantID("first"), "first")}, row.change.Add...)
			err := s.Apply(row.change)
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Fatalf("error %v, want one that says %q", err, row.says)
			}
			if s.Serial() != serial || s.Len() != n || s.Find(plantID("first")) != nil {
				t.Error("part of the change was carried out")
			}
		})
	}
}

func TestReloadKeepsWhatStays(t *testing.T) {
	s := newSpace(t)
	nodes := folder(t, s, "a", nil, "v", "w")
	again := variable("a.w", "w", nil)
	err := s.Apply(Change{
		Remove: []wire.NodeID{plantID("a.w")}, Add: []*Node{again},
		References: []Reference{{plantID("a"), idComponent, plantID("a.w")}, {plantID("a.w"), idHasTypeDefinition, idBaseData}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Find(plantID("a")) != nodes[0] || s.Find(plantID("a.v")) != nodes[1] || s.Find(plantID("a.w")) != again {
		t.Error("reload replaced more or less than it should")
	}
	if err := s.Add([]*Node{nodes[2]}, nil); err == nil {
		t.Error("a node that was removed could be added again as it is")
	}
	if err := s.Apply(Change{Drop: []Reference{{plantID("a"), idComponent, plantID("a.v")}}}); err != nil {
		t.Fatal(err)
	}
	if _, st := s.Translate(plantID("a"), []RelativePathElement{{TargetNS: NamespacePlant, TargetName: "v"}}); st != ua.StatusBadNoMatch {
		t.Errorf("after Drop the path gives %v", st)
	}
}

func TestNewReferenceTypesAreSubtypes(t *testing.T) {
	s := newSpace(t)
	folder(t, s, "a", nil, "v")
	feeds := plantID("Feeds")
	err := s.Add([]*Node{{ID: feeds, BrowseName: "Feeds", Attributes: &Attributes{Class: ua.NodeClassReferenceType, BrowseNS: 2, More: &More{InverseName: "FedBy"}}}},
		[]Reference{{idComponent, idHasSubtype, feeds}, {plantID("a.v"), feeds, plantID("a")}})
	if err != nil {
		t.Fatal(err)
	}
	if !s.IsSubtype(feeds, idComponent) || s.IsSubtype(idComponent, feeds) || s.IsSubtype(plantID("x"), feeds) {
		t.Error("IsSubtype does not know the new type")
	}
	d := BrowseDescription{Node: plantID("a.v"), ReferenceType: wire.NumericID(0, 33), Subtypes: true, Results: 63}
	if out, n, _, _ := s.Browse(nil, &d, Position{}, 0); n != 1 || decode(t, out, n)[0].kind != feeds {
		t.Errorf("browsing HierarchicalReferences finds %d of the new type", n)
	}
	if _, st := s.Translate(plantID("a"), []RelativePathElement{{ReferenceType: feeds, Inverse: true, TargetNS: 2, TargetName: "v"}}); st != ua.StatusOK {
		t.Errorf("path over the new type: %v", st)
	}
}

// TestReadersMeetChanges lets the race detector watch walks while the plant is reloaded.
func TestReadersMeetChanges(t *testing.T) {
	s := newSpace(t)
	folder(t, s, "a", nil, "v")
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			d := BrowseDescription{Node: plantID("a"), Direction: ua.BrowseDirectionBoth, Results: 63}
			var buf []byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				n := 0
				if buf, n, _, _ = s.Browse(buf[:0], &d, Position{}, 0); n < 3 {
					t.Errorf("only %d references", n)
				}
				it := []ReadItem{{Node: s.Find(plantID("a.w")), Attribute: ua.AttributeIDBrowseName}}
				s.Read(context.Background(), allRights, it)
				s.References(s.Find(plantID("a")), func(kind *Node, _ bool, _ *Node) bool { return kind != nil })
			}
		})
	}
	for i := range 200 {
		kind := plantID(fmt.Sprintf("Kind%d", i))
		err := s.Add([]*Node{{ID: kind, BrowseName: "Kind", Attributes: &Attributes{Class: ua.NodeClassReferenceType}}},
			[]Reference{{idComponent, idHasSubtype, kind}, {plantID("a"), kind, plantID("a.v")}})
		if err != nil {
			t.Error(err)
		}
		err = s.Add([]*Node{variable("a.w", "w", nil)}, []Reference{
			{plantID("a"), idComponent, plantID("a.w")}, {plantID("a.w"), idHasTypeDefinition, idBaseData}})
		if err != nil {
			t.Error(err)
		}
		if err := s.Remove(plantID("a.w")); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	readers.Wait()
}
