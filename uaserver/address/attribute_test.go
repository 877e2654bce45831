package address

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// recorder is a NodeManager that notes how it is called.
type recorder struct {
	reads, writes []string // "first item's id xN"
	quiet         bool     // notes nothing, for counts of allocations
}

func (m *recorder) Read(_ context.Context, items []ReadItem) {
	if !m.quiet {
		m.reads = append(m.reads, fmt.Sprintf("%s x%d", items[0].Node.ID.Str, len(items)))
	}
	for i := range items {
		if !items[i].Result.Status.IsBad() {
			items[i].Result.Value = tag.Of(1.5)
		}
	}
}

func (m *recorder) Write(_ context.Context, items []WriteItem) {
	if !m.quiet {
		m.writes = append(m.writes, fmt.Sprintf("%s x%d", items[0].Node.ID.Str, len(items)))
	}
}

func (m *recorder) Series(*Node) *Series { return nil }

// TestA7EveryAttributeOfEveryClass reads the attributes 0 to 28 of one node of each class. Each is a value, or
// BadAttributeIdInvalid where the class has none (Part 3, 5.9).
func TestA7EveryAttributeOfEveryClass(t *testing.T) {
	s := newSpace(t)
	view := &Node{ID: plantID("view"), BrowseName: "view", Attributes: &Attributes{Class: ua.NodeClassView, BrowseNS: 2}}
	if err := s.Add([]*Node{view}, nil); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		node wire.NodeID
		has  string // attributes that give a value
	}{
		{"Object", idServer, "1 2 3 4 5 6 7 12"},
		{"Variable, scalar", n0(15958), "1 2 3 4 5 6 7 13 14 15 17 18 19 20 27"},
		{"Variable, array", n0(3876), "1 2 3 4 5 6 7 13 14 15 16 17 18 19 20 27"},
		{"Method", n0(3875), "1 2 3 4 5 6 7 21 22"},
		{"ObjectType", n0(58), "1 2 3 4 5 6 7 8"},
		{"VariableType", n0(63), "1 2 3 4 5 6 7 8 14 15"},
		{"ReferenceType", idOrganizes, "1 2 3 4 5 6 7 8 9 10"},
		{"ReferenceType, symmetric", n0(32), "1 2 3 4 5 6 7 8 9"},
		{"DataType", n0(862), "1 2 3 4 5 6 7 8 23"},
		{"DataType without definition", n0(11), "1 2 3 4 5 6 7 8"},
		{"View", view.ID, "1 2 3 4 5 6 7 11 12"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var items []ReadItem
			for a := range 30 {
				items = append(items, ReadItem{Node: s.Find(row.node), Attribute: ua.AttributeID(a)})
			}
			items = append(items, ReadItem{Node: s.Find(row.node), Attribute: 1<<32 - 1})
			s.Read(context.Background(), allRights, items)
			var has []string
			for i := range items {
				r := &items[i].Result
				switch {
				case r.Status == tag.Good && !r.Value.IsNull():
					has = append(has, fmt.Sprint(uint32(items[i].Attribute)))
				case r.Status != badAttributeIDInvalid || !r.Value.IsNull():
					t.Errorf("attribute %d: %v", items[i].Attribute, r)
				}
				if r.Server.IsZero() {
					t.Errorf("attribute %d: no ServerTimestamp", items[i].Attribute)
				}
			}
			if got := strings.Join(has, " "); got != row.has {
				t.Errorf("has %s", got)
			}
		})
	}
}

func TestAttributeValues(t *testing.T) {
	s := newSpace(t)
	n := variable("v", "v", &recorder{})
	n.More, n.Rank, n.MinSampling = &More{DisplayName: "Vee", Description: "about v"}, 2, 100
	if err := s.Add([]*Node{n}, nil); err != nil {
		t.Fatal(err)
	}
	text := func(s string) tag.Value { return tag.OfRaw(wire.AppendLocalizedText([]byte{21}, "", s)) }
	for _, row := range []struct {
		node wire.NodeID
		a    ua.AttributeID
		want tag.Value
	}{
		{n.ID, ua.AttributeIDNodeID, tag.OfRaw(wire.AppendNodeID([]byte{17}, n.ID))},
		{n.ID, ua.AttributeIDNodeClass, tag.Of(int32(2))},
		{n.ID, ua.AttributeIDBrowseName, tag.OfRaw(wire.AppendQualifiedName([]byte{20}, 2, "v"))},
		{n.ID, ua.AttributeIDDisplayName, text("Vee")},
		{n.ID, ua.AttributeIDDescription, text("about v")},
		{n.ID, ua.AttributeIDWriteMask, tag.Of(uint32(0))},
		{n.ID, ua.AttributeIDDataType, tag.OfRaw(wire.AppendNodeID([]byte{17}, n0(11)))},
		{n.ID, ua.AttributeIDValueRank, tag.Of(int32(2))},
		{n.ID, ua.AttributeIDArrayDimensions, tag.OfSlice([]uint32{0, 0})},
		{n.ID, ua.AttributeIDAccessLevel, tag.Of(uint8(3))},
		{n.ID, ua.AttributeIDUserAccessLevel, tag.Of(uint8(3))},
		{n.ID, ua.AttributeIDAccessLevelEx, tag.Of(uint32(3))},
		{n.ID, ua.AttributeIDMinimumSamplingInterval, tag.Of(100.0)},
		{n.ID, ua.AttributeIDHistorizing, tag.Of(false)},
		{n.ID, ua.AttributeIDValue, tag.Of(1.5)},
		{idOrganizes, ua.AttributeIDInverseName, text("OrganizedBy")},
		{idOrganizes, ua.AttributeIDSymmetric, tag.Of(false)},
		{n0(31), ua.AttributeIDIsAbstract, tag.Of(true)},
		{n0(31), ua.AttributeIDSymmetric, tag.Of(true)},
		{n0(3875), ua.AttributeIDExecutable, tag.Of(true)},
		{n0(3875), ua.AttributeIDUserExecutable, tag.Of(true)},
	} {
		if r := readValue(t, s, row.node, row.a); r.Status != tag.Good || !r.Value.Equal(row.want) {
			t.Errorf("%s attribute %d: %v %v, want %v", row.node, row.a, r.Status, r.Value, row.want)
		}
	}
}

func TestReadStatuses(t *testing.T) {
	s := newSpace(t)
	m := &recorder{}
	f := folder(t, s, "f", m, "both", "write")
	f[2].Access = ua.AccessLevelTypeCurrentWrite
	f[2].Historizing = false
	value := ua.AttributeIDValue
	for _, row := range []struct {
		name   string
		item   ReadItem
		rights Rights
		want   tag.Status
	}{
		{"5.10.2 unknown node", ReadItem{Attribute: value}, allRights, tag.BadNodeIDUnknown},
		{"attribute of another class", ReadItem{Node: f[0], Attribute: value}, allRights, badAttributeIDInvalid},
		{"not readable", ReadItem{Node: f[2], Attribute: value}, allRights, tag.BadNotReadable},
		{"not readable comes before the user's rights", ReadItem{Node: f[2], Attribute: value}, 0, tag.BadNotReadable},
		{"user may not read", ReadItem{Node: f[1], Attribute: value}, MayBrowse, tag.BadUserAccessDenied},
		{"user may not read a static value", ReadItem{Node: s.Find(n0(15958)), Attribute: value}, MayBrowse, tag.BadUserAccessDenied},
		{"user may not browse", ReadItem{Node: f[1], Attribute: ua.AttributeIDBrowseName}, MayRead, tag.BadUserAccessDenied},
		{"range of a scalar attribute", ReadItem{Node: f[1], Attribute: ua.AttributeIDNodeClass, Range: "0"}, allRights, tag.BadIndexRangeNoData},
		{"nonsense range", ReadItem{Node: s.Find(n0(15963)), Attribute: value, Range: "a"}, allRights, tag.BadIndexRangeInvalid},
		{"range past the end", ReadItem{Node: s.Find(n0(15962)), Attribute: value, Range: "5"}, allRights, tag.BadIndexRangeNoData},
		{"good", ReadItem{Node: f[1], Attribute: value}, allRights, tag.Good},
	} {
		t.Run(row.name, func(t *testing.T) {
			items := []ReadItem{row.item}
			s.Read(context.Background(), row.rights, items)
			if got := items[0].Result; got.Status != row.want || got.Status.IsBad() && !got.Value.IsNull() {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestUserAccessLevel(t *testing.T) {
	n := &Node{Attributes: &Attributes{Class: ua.NodeClassVariable, Access: 0x7F}}
	for _, row := range []struct {
		rights Rights
		want   ua.AccessLevelType
	}{
		{allRights, 0x7F}, {MayRead, 0x15}, {MayWrite, 0x7A}, {MayBrowse, 0x10},
	} {
		if got := n.UserAccess(row.rights); got != row.want {
			t.Errorf("rights %04b: %#x, want %#x", row.rights, got, row.want)
		}
	}
}

// TestReadRuns: a run of neighbours of one manager is one call, and what was refused is not asked for.
func TestReadRuns(t *testing.T) {
	s := newSpace(t)
	m, other := &recorder{}, &recorder{}
	f := folder(t, s, "f", m, "a", "b", "c")
	g := folder(t, s, "g", other, "a")
	denied := variable("x", "x", m)
	denied.Access = 0
	value := func(n *Node) ReadItem { return ReadItem{Node: n, Attribute: ua.AttributeIDValue} }
	items := []ReadItem{
		value(denied), value(f[1]), value(denied), value(f[2]), value(denied),
		value(g[1]),
		value(f[3]), {Node: f[3], Attribute: ua.AttributeIDBrowseName}, value(f[1]), value(f[1]),
	}
	s.Read(context.Background(), allRights, items)
	if got := strings.Join(m.reads, ", "); got != "f.a x3, f.c x1, f.a x2" {
		t.Errorf("manager was asked for %s", got)
	}
	if got := strings.Join(other.reads, ", "); got != "g.a x1" {
		t.Errorf("the other was asked for %s", got)
	}
	for i := range items {
		want := tag.Good
		if items[i].Node == denied {
			want = tag.BadNotReadable
		}
		if items[i].Result.Status != want {
			t.Errorf("item %d: %v", i, items[i].Result)
		}
	}
}

func TestFindAndReadDoNotAllocate(t *testing.T) {
	s := newSpace(t)
	m := &recorder{quiet: true}
	var nodes []*Node
	for i := range 100 {
		n := variable("", "v", m)
		n.ID = wire.NumericID(NamespacePlant, uint32(1000+i))
		nodes = append(nodes, n)
	}
	if err := s.Add(nodes, nil); err != nil {
		t.Fatal(err)
	}
	items := make([]ReadItem, 100)
	if a := testing.AllocsPerRun(100, func() { read100(s, items) }); a != 0 {
		t.Errorf("%v allocations in a read of 100 values", a)
	}
}

func read100(s *Space, items []ReadItem) {
	for i := range items {
		items[i] = ReadItem{Node: s.Find(wire.NumericID(NamespacePlant, uint32(1000+i))), Attribute: ua.AttributeIDValue}
	}
	s.Read(context.Background(), allRights, items)
}

func BenchmarkFindAndRead100(b *testing.B) {
	s := newSpace(b)
	m := &recorder{quiet: true}
	var nodes []*Node
	for i := range 100_000 {
		n := variable("", "v", m)
		n.ID = wire.NumericID(NamespacePlant, uint32(1000+i))
		nodes = append(nodes, n)
	}
	if err := s.Add(nodes, nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		items := make([]ReadItem, 100)
		for pb.Next() {
			read100(s, items)
		}
	})
}
