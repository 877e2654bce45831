package address

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

func n0(i uint32) wire.NodeID { return wire.NumericID(0, i) }

func TestCoreStartsFastAndSmall(t *testing.T) {
	const most = 3 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var s *Space
	took := time.Hour
	for range 3 { // the best of three: the machine may be busy
		start := time.Now()
		var err error
		if s, err = New("urn:edged:test"); err != nil {
			t.Fatal(err)
		}
		took = min(took, time.Since(start))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d nodes, %v, %d bytes of heap", s.Len(), took, heap)
	if took > 100*time.Millisecond || heap > most {
		t.Errorf("namespace 0 takes %v and %d bytes of heap, at most 100 ms and %d are allowed", took, heap, most)
	}
	runtime.KeepAlive(s)
}

func TestCoreSpotChecks(t *testing.T) {
	s := newSpace(t)
	for _, row := range []struct {
		id         uint32
		name       string
		class      ua.NodeClass
		definition uint32
	}{
		{84, "Root", ua.NodeClassObject, 61},
		{85, "Objects", ua.NodeClassObject, 61},
		{86, "Types", ua.NodeClassObject, 61},
		{87, "Views", ua.NodeClassObject, 61},
		{2253, "Server", ua.NodeClassObject, 2004},
		{2255, "NamespaceArray", ua.NodeClassVariable, 68},
		{2256, "ServerStatus", ua.NodeClassVariable, 2138},
		{2267, "ServiceLevel", ua.NodeClassVariable, 68},
		{2275, "ServerDiagnosticsSummary", ua.NodeClassVariable, 2150},
		{11704, "OperationLimits", ua.NodeClassObject, 11564},
		{11715, "Namespaces", ua.NodeClassObject, 11645},
		{15957, "http://opcfoundation.org/UA/", ua.NodeClassObject, 11616},
		{45, "HasSubtype", ua.NodeClassReferenceType, 0},
		{862, "ServerStatusDataType", ua.NodeClassDataType, 0},
		{2368, "AnalogItemType", ua.NodeClassVariableType, 0},
		{2041, "BaseEventType", ua.NodeClassObjectType, 0},
		{3875, "ConditionRefresh", ua.NodeClassMethod, 0},
	} {
		n := s.Find(n0(row.id))
		if n == nil || n.BrowseName != row.name || n.Class != row.class {
			t.Errorf("i=%d: %+v", row.id, n)
			continue
		}
		if def := n.TypeDefinition(); row.definition == 0 && def != nil || row.definition != 0 && (def == nil || def.ID != n0(row.definition)) {
			t.Errorf("i=%d: type definition %v", row.id, def)
		}
	}
	for _, up := range [][2]uint32{{2368, 62}, {862, 22}, {852, 29}, {294, 13}, {290, 11}, {46, 33}, {47, 33}, {35, 31}, {2004, 58}, {11, 26}, {7, 28}} {
		if !s.IsSubtype(n0(up[0]), n0(up[1])) || s.IsSubtype(n0(up[1]), n0(up[0])) {
			t.Errorf("i=%d is not below i=%d alone", up[0], up[1])
		}
	}
}

// TestCoreNodesAreWhole checks every node of namespace 0 against the rules of Part 3, 5.
func TestCoreNodesAreWhole(t *testing.T) {
	s := newSpace(t)
	v := s.now.Load()
	kind := func(i uint32) uint16 {
		k, ok := v.kindOf(n0(i))
		if !ok {
			t.Fatalf("i=%d is no reference type", i)
		}
		return k
	}
	subtype := kind(45)
	roots := []uint32{24, 31, 58, 62} // BaseDataType, References, BaseObjectType, BaseVariableType
	for _, n := range allNodes(v) {
		if n.BrowseName == "" || n.DisplayName() == "" {
			t.Errorf("%s: has no name", n.ID)
		}
		switch n.Class {
		case ua.NodeClassObject, ua.NodeClassVariable:
			want := ua.NodeClassObjectType
			if n.Class == ua.NodeClassVariable {
				want = ua.NodeClassVariableType
			}
			if def := n.TypeDefinition(); def == nil || def.Class != want {
				t.Errorf("%s %s: type definition %v", n.ID, n.BrowseName, def)
			}
		case ua.NodeClassMethod:
		default:
			supers := 0
			for _, e := range n.links.Load().all {
				if e.inverse && e.kind == subtype {
					supers++
				}
			}
			isRoot := n.ID.NS == 0 && slices.Contains(roots, n.ID.Num)
			if isRoot != (supers == 0) || supers > 1 {
				t.Errorf("%s %s: subtype of %d types", n.ID, n.BrowseName, supers)
			}
		}
		if n.Class == ua.NodeClassVariable || n.Class == ua.NodeClassVariableType {
			if d := s.Find(n.DataType); d == nil || d.Class != ua.NodeClassDataType {
				t.Errorf("%s %s: data type %s", n.ID, n.BrowseName, n.DataType)
			}
			if !n.Value.IsNull() {
				d := wire.DataValue{Value: n.Value}
				if st := v.accept(n, Range{}, &d); st != tag.Good {
					t.Errorf("%s %s: its own value would be refused: %v", n.ID, n.BrowseName, st)
				}
			}
		}
	}
}

// TestCoreIsReachable walks the hierarchy from Root: what it does not find is declared below.
func TestCoreIsReachable(t *testing.T) {
	s := newSpace(t)
	v := s.now.Load()
	seen := below(v, s.Find(n0(84)))
	for _, n := range allNodes(v) {
		if seen[n] {
			continue
		}
		// Encodings hang on their data types by HasEncoding alone. What nothing refers to is a definition of the standard
		// itself: InputArguments (Part 3), EngineeringUnits (Part 8), the aggregates, which a server that has them offers.
		if owner := n.firstOwner(); owner != nil && !seen[owner] {
			t.Errorf("%s %s: not reachable from Root", n.ID, n.BrowseName)
		}
	}
	if len(seen) < 3500 {
		t.Errorf("only %d of %d nodes reached", len(seen), s.Len())
	}
}

// below is n and all that hierarchical references lead to from it.
func below(v *view, n *Node) map[*Node]bool {
	hierarchical, _ := v.kindOf(n0(33))
	seen := map[*Node]bool{}
	var walk func(n *Node)
	walk = func(n *Node) {
		if seen[n] {
			return
		}
		seen[n] = true
		for _, e := range n.links.Load().all {
			if !e.inverse && v.subtypes[hierarchical].has(e.kind) {
				walk(e.target)
			}
		}
	}
	walk(n)
	return seen
}

// firstOwner is the first node that refers to n.
func (n *Node) firstOwner() *Node {
	for _, e := range n.links.Load().all {
		if e.inverse {
			return e.target
		}
	}
	return nil
}

func readValue(t testing.TB, s *Space, id wire.NodeID, a ua.AttributeID) wire.DataValue {
	t.Helper()
	it := []ReadItem{{Node: s.Find(id), Attribute: a}}
	s.Read(context.Background(), allRights, it)
	return it[0].Result
}

func TestCoreValues(t *testing.T) {
	s := newSpace(t)
	// EnumStrings of ServerState (Part 5, 12.6), localized texts.
	r := wire.NewReader(readValue(t, s, n0(7612), ua.AttributeIDValue).Value.Bytes())
	if r.Uint8() != 21|0x80 {
		t.Fatal("EnumStrings are no array of LocalizedText")
	}
	var names []string
	for n := r.Count(1); n > 0; n-- {
		r.Skip(1)
		names = append(names, r.String())
	}
	want := "Running Failed NoConfiguration Suspended Shutdown Test CommunicationFault Unknown"
	if strings.Join(names, " ") != want || r.Err() != nil {
		t.Errorf("ServerState: %q, %v", names, r.Err())
	}
	// The standard's own decoder reads the structures.
	argument := extensionObjects(t, readValue(t, s, n0(3876), ua.AttributeIDValue).Value) // ConditionRefresh InputArguments
	if a, ok := argument[0].Value.(*ua.Argument); !ok || a.Name != "SubscriptionId" || a.DataType.IntID() != 288 || a.ValueRank != -1 {
		t.Errorf("argument %+v", argument[0].Value)
	}
	values := extensionObjects(t, readValue(t, s, n0(id.NodeClass_EnumValues), ua.AttributeIDValue).Value)
	if v, ok := values[0].Value.(*ua.EnumValueType); !ok || v.DisplayName.Text == "" {
		t.Errorf("enum value %+v", values[0].Value)
	}
	if v := readValue(t, s, n0(15960), ua.AttributeIDValue); v.Value.Kind() != tag.DateTime || v.Value.String() != "2022-11-01T00:00:00.000Z" {
		t.Errorf("NamespacePublicationDate %v", v)
	}
	if v := readValue(t, s, n0(7617), ua.AttributeIDValue); v.Value.Kind() != tag.ByteString || !strings.Contains(string(v.Value.Bytes()), "opc:TypeDictionary") {
		t.Error("the binary type dictionary is not there")
	}
}

func extensionObjects(t testing.TB, v tag.Value) []*ua.ExtensionObject {
	t.Helper()
	var variant ua.Variant
	if _, err := variant.Decode(v.Bytes()); err != nil {
		t.Fatal(err)
	}
	switch x := variant.Value().(type) {
	case []*ua.ExtensionObject:
		return x
	case *ua.ExtensionObject:
		return []*ua.ExtensionObject{x}
	}
	t.Fatalf("a %T", variant.Value())
	return nil
}

func TestCoreDataTypeDefinitions(t *testing.T) {
	s := newSpace(t)
	structure := func(node uint32) *ua.StructureDefinition {
		d, ok := extensionObjects(t, readValue(t, s, n0(node), ua.AttributeIDDataTypeDefinition).Value)[0].Value.(*ua.StructureDefinition)
		if !ok {
			t.Fatalf("i=%d: no StructureDefinition", node)
		}
		return d
	}
	d := structure(862) // ServerStatusDataType
	if len(d.Fields) != 6 || d.Fields[2].Name != "State" || d.Fields[2].DataType.IntID() != 852 || d.DefaultEncodingID.IntID() != 864 ||
		d.BaseDataType.IntID() != 22 || d.StructureType != ua.StructureTypeStructure {
		t.Errorf("ServerStatusDataType: %+v", d)
	}
	d = structure(id.EventFilter)
	if d.BaseDataType.IntID() != 719 {
		t.Errorf("base of EventFilter is %v", d.BaseDataType)
	}
	d = structure(id.UserNameIdentityToken) // begins with the field of UserIdentityToken
	if len(d.Fields) != 4 || d.Fields[0].Name != "PolicyId" || d.Fields[3].Name != "EncryptionAlgorithm" {
		t.Errorf("UserNameIdentityToken: %d fields, %+v", len(d.Fields), d.Fields)
	}
	e, ok := extensionObjects(t, readValue(t, s, n0(852), ua.AttributeIDDataTypeDefinition).Value)[0].Value.(*ua.EnumDefinition)
	if !ok || len(e.Fields) != 8 || e.Fields[4].Name != "Shutdown" || e.Fields[4].Value != 4 {
		t.Errorf("ServerState: %+v", e)
	}
	for _, id := range []uint32{1, 11, 12, 290} { // built-in and simple types have none
		if v := readValue(t, s, n0(id), ua.AttributeIDDataTypeDefinition); v.Status != badAttributeIDInvalid {
			t.Errorf("i=%d: %v", id, v.Status)
		}
	}
}

// TestUnservedIsNotOffered: what the server does not serve is not there, and what nobody supplies says so.
func TestUnservedIsNotOffered(t *testing.T) {
	s := newSpace(t)
	for _, id := range []uint32{12749, 12886, 15606, 15644, 12637, 14443, 17371, 23470, 31915, 16314} {
		if n := s.Find(n0(id)); n != nil {
			t.Errorf("i=%d %s is offered", id, n.BrowseName)
		}
	}
	for n := range below(s.now.Load(), s.Find(idObjects)) {
		if n.Class == ua.NodeClassMethod && n.ID != n0(11492) && n.ID != n0(12873) { // GetMonitoredItems, ResendData
			t.Errorf("%s %s can be seen, but not called", n.ID, n.BrowseName)
		}
	}
	if v := readValue(t, s, n0(2258), ua.AttributeIDValue); v.Status != tag.BadNotReadable {
		t.Errorf("CurrentTime that nobody supplies: %v", v)
	}
	s.Find(n0(2266)).Value = tag.Of(tag.Time(1))
	if v := readValue(t, s, n0(2266), ua.AttributeIDValue); v.Status != tag.Good {
		t.Errorf("BuildDate that the server set: %v", v)
	}
	if v := readValue(t, s, n0(2139), ua.AttributeIDValue); v.Status != tag.Good || !v.Value.IsNull() { // ServerStatusType.StartTime
		t.Errorf("an instance declaration: %v", v)
	}
	if v := readValue(t, s, idServer, ua.AttributeIDEventNotifier); v.Value != tag.Of(uint8(1)) {
		t.Errorf("SubscribeToEvents: EventNotifier is %v", v.Value)
	}
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New("urn:edged:test"); err != nil {
			b.Fatal(err)
		}
	}
}
