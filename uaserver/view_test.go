package uaserver

import (
	"fmt"
	"testing"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/uaserver/address"
	"edged/uaserver/uatest"
	"edged/uaserver/wire"
)

func browseOf(n *ua.NodeID) *ua.BrowseDescription {
	return &ua.BrowseDescription{
		NodeID: n, BrowseDirection: ua.BrowseDirectionForward, ReferenceTypeID: ua.NewTwoByteNodeID(id.HierarchicalReferences),
		IncludeSubtypes: true, ResultMask: uint32(ua.BrowseResultMaskAll),
	}
}

func browseRequest(max uint32, nodes ...*ua.BrowseDescription) *ua.BrowseRequest {
	return &ua.BrowseRequest{
		View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, RequestedMaxReferencesPerNode: max, NodesToBrowse: nodes,
	}
}

func nextRequest(release bool, points ...[]byte) *ua.BrowseNextRequest {
	return &ua.BrowseNextRequest{ReleaseContinuationPoints: release, ContinuationPoints: points}
}

func names(refs []*ua.ReferenceDescription) (out []string) {
	for _, r := range refs {
		out = append(out, r.BrowseName.Name)
	}
	return out
}

func TestBrowsePaging(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	scratch, boiler := browseOf(plantID("scratch")), browseOf(plantID("boiler"))
	whole := must[*ua.BrowseResponse](p, browseRequest(0, scratch, boiler)).Results
	if len(whole[0].References) != 512 || len(whole[1].References) != 17 { // 500 tags, 6 state nodes, 4 methods, the identification and the NodeVersion
		t.Fatalf("%d and %d references", len(whole[0].References), len(whole[1].References))
	}
	// Two nodes in one call, seven at a time, in turn.
	results := must[*ua.BrowseResponse](p, browseRequest(7, scratch, boiler)).Results
	got := [2][]string{names(results[0].References), names(results[1].References)}
	points := [2][]byte{results[0].ContinuationPoint, results[1].ContinuationPoint}
	for points[0] != nil || points[1] != nil {
		var ask [][]byte
		var of []int
		for i, cp := range points {
			if cp != nil {
				ask, of = append(ask, cp), append(of, i)
			}
		}
		next := must[*ua.BrowseNextResponse](p, nextRequest(false, ask...)).Results
		for j, r := range next {
			if r.StatusCode != ua.StatusGood || len(r.References) > 7 || len(r.References) == 0 {
				t.Fatalf("A3: %v with %d references", r.StatusCode, len(r.References))
			}
			got[of[j]] = append(got[of[j]], names(r.References)...)
			points[of[j]] = r.ContinuationPoint
		}
	}
	for i := range got {
		if fmt.Sprint(got[i]) != fmt.Sprint(names(whole[i].References)) {
			t.Errorf("A3 node %d: pages differ from the whole", i)
		}
	}
}

func TestServerLimitsReferences(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.References = 100 })
	p := f.login(t)
	for _, asked := range []uint32{0, 101, 1 << 31} {
		r := must[*ua.BrowseResponse](p, browseRequest(asked, browseOf(plantID("scratch")))).Results[0]
		if len(r.References) != 100 || r.ContinuationPoint == nil {
			t.Errorf("A3 asked for %d: %d references", asked, len(r.References))
		}
	}
}

func TestBrowseIsBounded(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	nodes := make([]*ua.BrowseDescription, 300) // 150,000 references, if nobody counted
	for i := range nodes {
		nodes[i] = browseOf(plantID("scratch"))
	}
	refs, statuses := 0, map[ua.StatusCode]int{}
	for _, r := range must[*ua.BrowseResponse](p, browseRequest(0, nodes...)).Results {
		refs += len(r.References)
		statuses[r.StatusCode]++
	}
	if refs < 5000 || refs > 20_000 || statuses[ua.StatusBadNoContinuationPoints] == 0 || len(statuses) != 2 {
		t.Errorf("A3 %d references, %v", refs, statuses)
	}
}

func TestContinuationPoints(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Continuations = 3 })
	p := f.login(t)
	pause := func(n int) []*ua.BrowseResult {
		nodes := make([]*ua.BrowseDescription, n)
		for i := range nodes {
			nodes[i] = browseOf(plantID("scratch"))
		}
		return must[*ua.BrowseResponse](p, browseRequest(1, nodes...)).Results
	}
	one := pause(1)[0].ContinuationPoint
	if r := must[*ua.BrowseNextResponse](p, nextRequest(true, one)).Results; len(r) != 1 || r[0].StatusCode != ua.StatusGood || len(r[0].References) != 0 {
		t.Errorf("A3 a release: %+v", r)
	}
	stale := func(name string, cp []byte) {
		t.Helper()
		if r := must[*ua.BrowseNextResponse](p, nextRequest(false, cp)).Results[0]; r.StatusCode != ua.StatusBadContinuationPointInvalid {
			t.Errorf("%s: %v", name, r.StatusCode)
		}
	}
	stale("A3 a released point", one)
	stale("a null point", nil)
	stale("a made up point", make([]byte, pointSize))
	used := pause(1)[0].ContinuationPoint
	must[*ua.BrowseNextResponse](p, nextRequest(false, used))
	stale("a point that was used", used)

	full := pause(4)
	for i, want := range []ua.StatusCode{ua.StatusGood, ua.StatusGood, ua.StatusGood, ua.StatusBadNoContinuationPoints} {
		if full[i].StatusCode != want {
			t.Errorf("A3 point %d of 3: %v", i+1, full[i].StatusCode)
		}
	}
	if len(full[3].References) != 0 {
		t.Error("a refused result has references")
	}
	newer := pause(1)[0]
	if newer.StatusCode != ua.StatusGood {
		t.Errorf("7.9 a new request frees an older point: %v", newer.StatusCode)
	}
	stale("7.9 the oldest gave way", full[0].ContinuationPoint)
	if r := must[*ua.BrowseNextResponse](p, nextRequest(false, full[1].ContinuationPoint, newer.ContinuationPoint)).Results; r[0].StatusCode != ua.StatusGood || r[1].StatusCode != ua.StatusGood {
		t.Errorf("the others live: %v %v", r[0].StatusCode, r[1].StatusCode)
	}
	stranger := f.login(t)
	if r := must[*ua.BrowseNextResponse](stranger, nextRequest(false, full[2].ContinuationPoint)).Results[0]; r.StatusCode != ua.StatusBadContinuationPointInvalid {
		t.Errorf("another session's point: %v", r.StatusCode)
	}
}

func TestViewStatuses(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Nodes = 5 })
	p := f.login(t)
	view := func(change func(*ua.BrowseRequest)) *ua.BrowseRequest {
		r := browseRequest(0, browseOf(ua.NewTwoByteNodeID(id.ObjectsFolder)))
		change(r)
		return r
	}
	many := func(r *ua.BrowseRequest, n int) {
		for len(r.NodesToBrowse) < n {
			r.NodesToBrowse = append(r.NodesToBrowse, r.NodesToBrowse[0])
		}
	}
	for _, row := range []struct {
		name string
		req  ua.Request
		want ua.StatusCode
	}{
		{"Browse nothing", browseRequest(0), ua.StatusBadNothingToDo},
		{"A5 Browse the limit", view(func(r *ua.BrowseRequest) { many(r, 5) }), ua.StatusGood},
		{"A5 Browse one more", view(func(r *ua.BrowseRequest) { many(r, 6) }), ua.StatusBadTooManyOperations},
		{"Browse an unknown view", view(func(r *ua.BrowseRequest) { r.View.ViewID = ua.NewTwoByteNodeID(87) }), ua.StatusBadViewIDUnknown},
		{"BrowseNext nothing", nextRequest(false), ua.StatusBadNothingToDo},
		{"BrowseNext too many", nextRequest(false, make([][]byte, 6)...), ua.StatusBadTooManyOperations},
		{"Translate nothing", &ua.TranslateBrowsePathsToNodeIDsRequest{}, ua.StatusBadNothingToDo},
		{"Translate too many", &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{
			pathOf("x"), pathOf("x"), pathOf("x"), pathOf("x"), pathOf("x"), pathOf("x")}}, ua.StatusBadTooManyOperations},
		{"RegisterNodes nothing", &ua.RegisterNodesRequest{}, ua.StatusBadNothingToDo},
		{"RegisterNodes too many", &ua.RegisterNodesRequest{NodesToRegister: manyIDs(6)}, ua.StatusBadTooManyOperations},
		{"UnregisterNodes nothing", &ua.UnregisterNodesRequest{}, ua.StatusBadNothingToDo},
		{"UnregisterNodes too many", &ua.UnregisterNodesRequest{NodesToUnregister: manyIDs(6)}, ua.StatusBadTooManyOperations},
		{"UnregisterNodes unknown", &ua.UnregisterNodesRequest{NodesToUnregister: manyIDs(5)}, ua.StatusGood},
	} {
		if _, code := p.call(row.req); code != row.want {
			t.Errorf("%s: %v, want %v", row.name, code, row.want)
		}
	}
	for _, row := range []struct {
		name string
		d    ua.BrowseDescription
		want ua.StatusCode
	}{
		{"unknown node", ua.BrowseDescription{NodeID: plantID("nobody"), ReferenceTypeID: ua.NewTwoByteNodeID(0)}, ua.StatusBadNodeIDUnknown},
		{"unknown reference type", ua.BrowseDescription{NodeID: ua.NewTwoByteNodeID(85), ReferenceTypeID: ua.NewTwoByteNodeID(85)}, ua.StatusBadReferenceTypeIDInvalid},
		{"no direction", ua.BrowseDescription{NodeID: ua.NewTwoByteNodeID(85), ReferenceTypeID: ua.NewTwoByteNodeID(0), BrowseDirection: 3}, ua.StatusBadBrowseDirectionInvalid},
		{"nothing found", ua.BrowseDescription{NodeID: ua.NewTwoByteNodeID(85), ReferenceTypeID: ua.NewTwoByteNodeID(0), NodeClassMask: uint32(ua.NodeClassView)}, ua.StatusGood},
	} {
		r := must[*ua.BrowseResponse](p, browseRequest(0, browseOf(plantID("boiler")), &row.d)).Results
		if r[0].StatusCode != ua.StatusGood || r[1].StatusCode != row.want {
			t.Errorf("Browse %s: %v, want %v", row.name, r[1].StatusCode, row.want)
		}
	}
}

func manyIDs(n int) []*ua.NodeID {
	ids := make([]*ua.NodeID, n)
	for i := range ids {
		ids[i] = plantID(fmt.Sprint(i))
	}
	return ids
}

// pathOf is a path of hierarchical references from the Objects folder, in the plant's namespace.
func pathOf(names ...string) *ua.BrowsePath {
	p := &ua.BrowsePath{StartingNode: ua.NewTwoByteNodeID(id.ObjectsFolder), RelativePath: &ua.RelativePath{}}
	for _, n := range names {
		p.RelativePath.Elements = append(p.RelativePath.Elements, &ua.RelativePathElement{
			ReferenceTypeID: ua.NewTwoByteNodeID(id.HierarchicalReferences), IncludeSubtypes: true,
			TargetName: &ua.QualifiedName{NamespaceIndex: address.NamespacePlant, Name: n},
		})
	}
	return p
}

func TestTranslate(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	inverse := pathOf("boiler")
	inverse.StartingNode = plantID("boiler.code")
	inverse.RelativePath.Elements[0].IsInverse = true
	unknown, wrongType := pathOf("Devices"), pathOf("Devices")
	unknown.StartingNode = plantID("nobody")
	wrongType.RelativePath.Elements[0].ReferenceTypeID = ua.NewTwoByteNodeID(85)
	gap := pathOf("Devices", "boiler")
	gap.RelativePath.Elements[0].TargetName = &ua.QualifiedName{}
	rows := []struct {
		name string
		path *ua.BrowsePath
		want ua.StatusCode
		node string
	}{
		{"A16 a whole path", pathOf("Devices", "boiler", "temperature"), ua.StatusGood, "ns=2;s=boiler.temperature"},
		{"inverse", inverse, ua.StatusGood, "ns=2;s=boiler"},
		{"A16 no such name", pathOf("Devices", "nobody"), ua.StatusBadNoMatch, ""},
		{"no steps", pathOf(), ua.StatusBadNothingToDo, ""},
		{"unknown start", unknown, ua.StatusBadNodeIDUnknown, ""},
		{"no reference type", wrongType, ua.StatusBadReferenceTypeIDInvalid, ""},
		{"a gap", gap, ua.StatusBadBrowseNameInvalid, ""},
	}
	req := &ua.TranslateBrowsePathsToNodeIDsRequest{}
	for _, row := range rows {
		req.BrowsePaths = append(req.BrowsePaths, row.path)
	}
	for i, r := range must[*ua.TranslateBrowsePathsToNodeIDsResponse](p, req).Results {
		row := rows[i]
		if r.StatusCode != row.want || len(r.Targets) > 1 || (len(r.Targets) == 1) != (row.node != "") {
			t.Errorf("%s: %v, %d targets", row.name, r.StatusCode, len(r.Targets))
			continue
		}
		if row.node != "" && (r.Targets[0].TargetID.NodeID.String() != row.node || r.Targets[0].RemainingPathIndex != 0xFFFFFFFF) {
			t.Errorf("%s: %v", row.name, r.Targets[0].TargetID.NodeID)
		}
	}
}

func TestRegisterNodes(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Registered = 2 })
	p := f.login(t)
	register := func(n ...*ua.NodeID) []*ua.NodeID {
		return must[*ua.RegisterNodesResponse](p, &ua.RegisterNodesRequest{NodesToRegister: n}).RegisteredNodeIDs
	}
	got := register(plantID("boiler.code"), plantID("nobody"), ua.NewNumericNodeID(0, 2258), plantID("boiler"), plantID("boiler.counter"))
	if got[0].Type() == ua.NodeIDTypeString || got[1].String() != "ns=2;s=nobody" || got[2].String() != "i=2258" || got[4].String() != "ns=2;s=boiler.counter" {
		t.Fatalf("A16: %v", got)
	}
	v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{
		value(got[0]), {NodeID: got[0], AttributeID: ua.AttributeIDNodeID, DataEncoding: &ua.QualifiedName{}},
	}})
	if v[0].Value.Value() != int16(0) || v[1].Value.Value().(*ua.NodeID).String() != "ns=2;s=boiler.code" {
		t.Errorf("A16 read by alias: %v, %v", v[0].Value, v[1].Value)
	}
	w := writeOf("", int16(3))
	w.NodesToWrite[0].NodeID = got[0]
	if r := must[*ua.WriteResponse](p, w); r.Results[0] != ua.StatusGood {
		t.Errorf("write by alias: %v", r.Results[0])
	}
	if r := must[*ua.BrowseResponse](p, browseRequest(0, browseOf(got[3]))).Results[0]; r.StatusCode != ua.StatusGood || len(r.References) != 17 {
		t.Errorf("browse by alias: %v", r.StatusCode)
	}
	other := f.login(t)
	if v := other.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(got[0])}}); v[0].Status != ua.StatusBadNodeIDUnknown {
		t.Errorf("another session's alias: %v", v[0].Status)
	}
	// An alias survives a change of the space, and its removal is told.
	if err := f.space.Remove(f.space.Find(idOf("boiler")).ID); err != nil {
		t.Fatal(err)
	}
	v = p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(got[0]), {NodeID: got[3], AttributeID: ua.AttributeIDNodeID, DataEncoding: &ua.QualifiedName{}}}})
	if v[0].Status != ua.StatusGood || v[1].Status != ua.StatusBadNodeIDUnknown {
		t.Errorf("after a change: %v %v", v[0].Status, v[1].Status)
	}
	must[*ua.UnregisterNodesResponse](p, &ua.UnregisterNodesRequest{NodesToUnregister: []*ua.NodeID{got[0], got[3], plantID("nobody")}})
	if v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(got[0])}}); v[0].Status != ua.StatusBadNodeIDUnknown {
		t.Errorf("after UnregisterNodes: %v", v[0].Status)
	}
	if got := register(plantID("boiler.code")); got[0].Type() == ua.NodeIDTypeString {
		t.Error("a client that cleaned up gets no alias")
	}
}

// hotBrowse is a Browse of the Server object as it comes out of a connection.
func hotBrowse(t testing.TB) []byte {
	t.Helper()
	req := browseRequest(0, browseOf(ua.NewNumericNodeID(0, id.Server)))
	req.SetHeader((&peer{token: ua.NewTwoByteNodeID(0)}).header())
	body, err := uatest.Encode(req)
	if err != nil {
		t.Fatal(err)
	}
	return body[4:] // behind the type id
}

func TestBrowseAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool forgets under the race detector")
	}
	f := start(t, nil)
	c, _ := hotCall(t, f)
	body := hotBrowse(t)
	buf := make([]byte, 0, 64<<10)
	if n := testing.AllocsPerRun(100, func() {
		c.body = wire.NewReader(body)
		c.header = c.body.RequestHeader()
		b, code := f.beginBrowse(c, 1<<20)
		if code != ua.StatusGood || b.n != 1 || len(b.results) < 500 {
			t.Fatal(code)
		}
		buf = b.AppendTo(buf[:0])
		b.free()
	}); n != 0 {
		t.Errorf("a Browse allocates %v times", n)
	}
}

func BenchmarkBrowse(b *testing.B) {
	f := start(b, nil)
	c, _ := hotCall(b, f)
	body := hotBrowse(b)
	buf := make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		c.body = wire.NewReader(body)
		c.header = c.body.RequestHeader()
		r, _ := f.beginBrowse(c, 1<<20)
		buf = r.AppendTo(buf[:0])
		r.free()
	}
}

func TestPointsOfAnUnsentAnswer(t *testing.T) {
	var c continuations
	first, second := c.begin(), c.begin()
	for _, request := range []uint64{first, second, second} {
		if !c.keep(point{request: request}, 3) {
			t.Fatal("no room")
		}
	}
	c.drop(second)
	if len(c.points) != 1 || c.points[0].request != first {
		t.Errorf("A3 %d points are left", len(c.points))
	}
}
