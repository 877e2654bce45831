package address

import (
	"fmt"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/wire"
)

// described is a decoded ReferenceDescription.
type described struct {
	kind       wire.NodeID
	forward    bool
	node       wire.NodeID
	ns         uint16
	name       string
	display    string
	class      ua.NodeClass
	definition wire.NodeID
}

func decode(t testing.TB, b []byte, n int) []described {
	t.Helper()
	r := wire.NewReader(b)
	var all []described
	for range n {
		var d described
		d.kind = r.NodeID()
		d.forward = r.Bool()
		d.node, _, _ = r.ExpandedID()
		d.ns, d.name = r.Uint16(), r.String()
		if r.Uint8()&2 != 0 {
			d.display = r.String()
		}
		d.class = ua.NodeClass(r.Uint32())
		d.definition, _, _ = r.ExpandedID()
		all = append(all, d)
	}
	if r.Err() != nil || len(r.Rest()) != 0 {
		t.Fatalf("%d references do not fill their %d bytes: %v", n, len(b), r.Err())
	}
	return all
}

func TestA3BrowsePaging(t *testing.T) {
	s := newSpace(t)
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("t%03d", i))
	}
	folder(t, s, "many", nil, names...)
	d := BrowseDescription{Node: plantID("many"), ReferenceType: wire.NumericID(0, 33), Subtypes: true, Results: 63}
	whole, total, next, _ := s.Browse(nil, &d, Position{}, 0)
	if total != 500 || !next.Done() {
		t.Fatalf("in one go: %d, done %v", total, next.Done())
	}
	for _, max := range []int{1, 7, 100, 499, 500, 501} {
		var out []byte
		at, count, calls := Position{}, 0, 0
		for {
			var n int
			var st ua.StatusCode
			if out, n, at, st = s.Browse(out, &d, at, max); st != ua.StatusOK {
				t.Fatal(st)
			}
			count, calls = count+n, calls+1
			if at.Done() {
				break
			}
			if n != max {
				t.Fatalf("max %d: a page of %d", max, n)
			}
		}
		if string(out) != string(whole) || count != 500 || calls != (500+max-1)/max {
			t.Errorf("max %d: %d references in %d calls, the same as in one go: %v", max, count, calls, string(out) == string(whole))
		}
	}
}

func TestA3ChangeBetweenPages(t *testing.T) {
	s := newSpace(t)
	folder(t, s, "f", nil, "a", "b", "c", "d")
	d := BrowseDescription{Node: plantID("f"), ReferenceType: idComponent, Results: 63}
	out, n, at, _ := s.Browse(nil, &d, Position{}, 2)
	again := variable("f.d", "d", nil)
	again.More = &More{DisplayName: "D"}
	err := s.Apply(Change{ // a and c go, d is replaced, e comes
		Remove: []wire.NodeID{plantID("f.a"), plantID("f.c"), plantID("f.d")},
		Add:    []*Node{variable("f.e", "e", nil), again},
		References: []Reference{
			{plantID("f"), idComponent, plantID("f.e")}, {plantID("f.e"), idHasTypeDefinition, idBaseData},
			{plantID("f"), idComponent, plantID("f.d")}, {plantID("f.d"), idHasTypeDefinition, idBaseData},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, m, at, _ := s.Browse(out, &d, at, 2)
	got := ""
	for _, r := range decode(t, out, n+m) {
		got += r.display
	}
	if got != "abD" || !at.Done() {
		t.Errorf("walked %q: what stayed is neither repeated nor skipped, what went is not told of", got)
	}
}

func TestBrowseTable(t *testing.T) {
	s := newSpace(t)
	folder(t, s, "f", nil, "a")
	hierarchical := wire.NumericID(0, 33)
	forward, inverse, both := ua.BrowseDirectionForward, ua.BrowseDirectionInverse, ua.BrowseDirectionBoth
	for _, row := range []struct {
		name   string
		d      BrowseDescription
		want   string // browse names in order
		status ua.StatusCode
	}{
		{"5.8.2 Root forward", BrowseDescription{Node: wire.NumericID(0, 84), ReferenceType: idOrganizes}, "Objects Types Views", 0},
		{"subtypes", BrowseDescription{Node: plantID("f"), ReferenceType: hierarchical, Subtypes: true}, "a", 0},
		{"no subtypes", BrowseDescription{Node: plantID("f"), ReferenceType: hierarchical}, "", 0},
		{"null type is all", BrowseDescription{Node: plantID("f")}, "FolderType a", 0},
		{"inverse", BrowseDescription{Node: plantID("f"), Direction: inverse}, "Objects", 0},
		{"both", BrowseDescription{Node: plantID("f"), Direction: both}, "Objects FolderType a", 0},
		{"class mask", BrowseDescription{Node: plantID("f"), Direction: both, Classes: uint32(ua.NodeClassVariable)}, "a", 0},
		{"two classes", BrowseDescription{Node: plantID("f"), Direction: both, Classes: uint32(ua.NodeClassVariable | ua.NodeClassObjectType)}, "FolderType a", 0},
		{"unknown node", BrowseDescription{Node: plantID("g")}, "", ua.StatusBadNodeIDUnknown},
		{"unknown type", BrowseDescription{Node: plantID("f"), ReferenceType: plantID("g")}, "", ua.StatusBadReferenceTypeIDInvalid},
		{"no reference type", BrowseDescription{Node: plantID("f"), ReferenceType: idObjects}, "", ua.StatusBadReferenceTypeIDInvalid},
		{"direction", BrowseDescription{Node: plantID("f"), Direction: 3}, "", ua.StatusBadBrowseDirectionInvalid},
		{"direction far off", BrowseDescription{Node: plantID("f"), Direction: 1 << 31}, "", ua.StatusBadBrowseDirectionInvalid},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.d.Results = 63
			if row.d.Direction == 0 {
				row.d.Direction = forward
			}
			out, n, next, status := s.Browse(nil, &row.d, Position{}, 0)
			got := ""
			for i, r := range decode(t, out, n) {
				if i > 0 {
					got += " "
				}
				got += r.name
			}
			if got != row.want || status != row.status || !next.Done() {
				t.Errorf("got %q, %v", got, status)
			}
		})
	}
}

func TestBrowseResultMask(t *testing.T) {
	s := newSpace(t)
	folder(t, s, "f", nil, "a")
	full := described{idComponent, true, plantID("f.a"), 2, "a", "a", ua.NodeClassVariable, idBaseData}
	for _, row := range []struct {
		name string
		mask ua.BrowseResultMask
		want described
	}{
		{"none", ua.BrowseResultMaskNone, described{node: full.node}},
		{"reference type", ua.BrowseResultMaskReferenceTypeID, described{node: full.node, kind: full.kind}},
		{"is forward", ua.BrowseResultMaskIsForward, described{node: full.node, forward: true}},
		{"node class", ua.BrowseResultMaskNodeClass, described{node: full.node, class: full.class}},
		{"browse name", ua.BrowseResultMaskBrowseName, described{node: full.node, ns: 2, name: "a"}},
		{"display name", ua.BrowseResultMaskDisplayName, described{node: full.node, display: "a"}},
		{"type definition", ua.BrowseResultMaskTypeDefinition, described{node: full.node, definition: full.definition}},
		{"all", ua.BrowseResultMaskAll, full},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := BrowseDescription{Node: plantID("f"), ReferenceType: idComponent, Results: uint32(row.mask)}
			out, n, _, _ := s.Browse(nil, &d, Position{}, 0)
			if got := decode(t, out, n); len(got) != 1 || got[0] != row.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestTranslateTable(t *testing.T) {
	s := newSpace(t)
	folder(t, s, "f", nil, "a", "b")
	step := func(kind uint32, name string) RelativePathElement {
		return RelativePathElement{ReferenceType: wire.NumericID(0, kind), Subtypes: true, TargetName: name}
	}
	plant := func(e RelativePathElement) RelativePathElement { e.TargetNS = NamespacePlant; return e }
	up := func(e RelativePathElement) RelativePathElement { e.Inverse = true; return e }
	exact := func(e RelativePathElement) RelativePathElement { e.Subtypes = false; return e }
	for _, row := range []struct {
		name   string
		start  wire.NodeID
		path   []RelativePathElement
		want   string
		status ua.StatusCode
	}{
		{"ServerStatus.State", idServer, []RelativePathElement{step(33, "ServerStatus"), step(33, "State")}, "i=2259", 0},
		{"property", idServer, []RelativePathElement{step(46, "NamespaceArray")}, "i=2255", 0},
		{"plant", idObjects, []RelativePathElement{plant(step(35, "f")), plant(step(33, "b"))}, "ns=2;s=f.b", 0},
		{"null type follows all", plantID("f"), []RelativePathElement{{TargetName: "FolderType"}}, "i=61", 0},
		{"inverse", plantID("f.a"), []RelativePathElement{up(plant(step(47, "f"))), up(step(35, "Objects"))}, "i=85", 0},
		{"last step without a name", plantID("f"), []RelativePathElement{step(33, "")}, "ns=2;s=f.a ns=2;s=f.b", 0},
		{"no subtypes", plantID("f"), []RelativePathElement{exact(plant(step(33, "a")))}, "", ua.StatusBadNoMatch},
		{"wrong namespace", idObjects, []RelativePathElement{step(35, "f")}, "", ua.StatusBadNoMatch},
		{"no such name", idServer, []RelativePathElement{step(33, "Nowhere")}, "", ua.StatusBadNoMatch},
		{"step without a name before the last", idServer, []RelativePathElement{step(33, ""), step(33, "State")}, "", ua.StatusBadBrowseNameInvalid},
		{"no step", idServer, nil, "", ua.StatusBadNothingToDo},
		{"unknown start", plantID("x"), []RelativePathElement{step(33, "a")}, "", ua.StatusBadNodeIDUnknown},
		{"no reference type", idServer, []RelativePathElement{step(85, "a")}, "", ua.StatusBadReferenceTypeIDInvalid},
	} {
		t.Run(row.name, func(t *testing.T) {
			targets, status := s.Translate(row.start, row.path)
			got := ""
			for i, n := range targets {
				if i > 0 {
					got += " "
				}
				got += n.Node.ID.String()
				if n.Remaining != 1<<32-1 {
					t.Errorf("remaining path index %d", n.Remaining)
				}
			}
			if got != row.want || status != row.status {
				t.Errorf("got %q, %v", got, status)
			}
		})
	}
}

func TestBrowseDoesNotAllocate(t *testing.T) {
	s := newSpace(t)
	d := BrowseDescription{Node: idServer, ReferenceType: wire.NumericID(0, 33), Subtypes: true, Results: 63}
	buf, n, _, _ := s.Browse(nil, &d, Position{}, 0)
	if n < 10 {
		t.Fatalf("the Server object has %d references", n)
	}
	if a := testing.AllocsPerRun(100, func() { buf, _, _, _ = s.Browse(buf[:0], &d, Position{}, 0) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

func BenchmarkBrowseServer(b *testing.B) {
	s := newSpace(b)
	d := BrowseDescription{Node: idServer, ReferenceType: wire.NumericID(0, 33), Subtypes: true, Results: 63}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _, _, _ = s.Browse(buf[:0], &d, Position{}, 0)
	}
}

// TestBrowseReadsLikeTheStandardsTypes: another decoder reads the same references.
func TestBrowseReadsLikeTheStandardsTypes(t *testing.T) {
	s := newSpace(t)
	folder(t, s, "f", nil, "a")
	for _, id := range []wire.NodeID{idServer, plantID("f"), n0(84), n0(58)} {
		d := BrowseDescription{Node: id, Direction: ua.BrowseDirectionBoth, Results: 63}
		out, n, _, _ := s.Browse(nil, &d, Position{}, 0)
		mine := decode(t, out, n)
		for i := range mine {
			var r ua.ReferenceDescription
			used, err := ua.Decode(out, &r)
			if err != nil {
				t.Fatal(err)
			}
			out = out[used:]
			if wire.FromUA(r.ReferenceTypeID) != mine[i].kind || r.IsForward != mine[i].forward ||
				wire.FromUA(r.NodeID.NodeID) != mine[i].node || r.BrowseName.Name != mine[i].name ||
				r.DisplayName.Text != mine[i].display || r.NodeClass != mine[i].class ||
				wire.FromUA(r.TypeDefinition.NodeID) != mine[i].definition {
				t.Errorf("%s: %+v, want %+v", id, r, mine[i])
			}
		}
		if len(out) != 0 {
			t.Errorf("%s: %d bytes left", id, len(out))
		}
	}
}
