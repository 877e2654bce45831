package uaserver

import (
	"fmt"
	"testing"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// crawl walks all references in both directions from the root, and returns the class of every node that it met.
func crawl(t *testing.T, p *peer) map[string]ua.NodeClass {
	t.Helper()
	root := ua.NewTwoByteNodeID(id.RootFolder)
	found := map[string]ua.NodeClass{root.String(): ua.NodeClassObject}
	queue := []*ua.NodeID{root}
	for len(queue) > 0 {
		n := min(len(queue), 200)
		var nodes []*ua.BrowseDescription
		for _, node := range queue[:n] {
			nodes = append(nodes, &ua.BrowseDescription{
				NodeID: node, BrowseDirection: ua.BrowseDirectionBoth, ReferenceTypeID: ua.NewTwoByteNodeID(0),
				ResultMask: uint32(ua.BrowseResultMaskNodeClass),
			})
		}
		queue = queue[n:]
		results := must[*ua.BrowseResponse](p, browseRequest(0, nodes...)).Results
		for i := 0; i < len(results); i++ {
			r := results[i]
			if r.StatusCode != ua.StatusGood {
				t.Fatalf("%v: %v", nodes[min(i, n-1)].NodeID, r.StatusCode)
			}
			for _, ref := range r.References {
				key := ref.NodeID.NodeID.String()
				if found[key] == 0 {
					found[key] = ref.NodeClass
					queue = append(queue, ref.NodeID.NodeID)
				}
			}
			if r.ContinuationPoint != nil {
				results = append(results, must[*ua.BrowseNextResponse](p, nextRequest(false, r.ContinuationPoint)).Results...)
			}
		}
	}
	return found
}

// mandatory are the attributes that every node of a class has (Part 3, 5.9).
var mandatory = map[ua.NodeClass][]ua.AttributeID{
	ua.NodeClassObject:        {ua.AttributeIDEventNotifier},
	ua.NodeClassVariable:      {ua.AttributeIDDataType, ua.AttributeIDValueRank, ua.AttributeIDAccessLevel, ua.AttributeIDUserAccessLevel, ua.AttributeIDHistorizing},
	ua.NodeClassMethod:        {ua.AttributeIDExecutable, ua.AttributeIDUserExecutable},
	ua.NodeClassObjectType:    {ua.AttributeIDIsAbstract},
	ua.NodeClassVariableType:  {ua.AttributeIDIsAbstract, ua.AttributeIDDataType, ua.AttributeIDValueRank},
	ua.NodeClassReferenceType: {ua.AttributeIDIsAbstract, ua.AttributeIDSymmetric},
	ua.NodeClassDataType:      {ua.AttributeIDIsAbstract},
}

// TestEveryAttributeOfEveryNode reads, as UaExpert does, the attributes 1 to 27 of whatever can be browsed.
func TestEveryAttributeOfEveryNode(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	found := crawl(t, p)
	if len(found) < f.space.Len() {
		t.Errorf("%d nodes found, the space has %d", len(found), f.space.Len())
	}
	var nodes []string
	for n := range found {
		nodes = append(nodes, n)
	}
	const attributes, batch = 27, 300
	for len(nodes) > 0 {
		some := nodes[:min(batch, len(nodes))]
		nodes = nodes[len(some):]
		req := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth, MaxAge: 3_600_000}
		for _, n := range some {
			for a := ua.AttributeID(1); a <= attributes; a++ {
				req.NodesToRead = append(req.NodesToRead, &ua.ReadValueID{NodeID: ua.MustParseNodeID(n), AttributeID: a, DataEncoding: &ua.QualifiedName{}})
			}
		}
		results := p.read(req)
		for i, n := range some {
			checkAttributes(t, n, found[n], results[i*attributes:(i+1)*attributes])
		}
	}
}

func checkAttributes(t *testing.T, node string, class ua.NodeClass, results []*ua.DataValue) {
	t.Helper()
	for i, v := range results {
		a := ua.AttributeID(i + 1)
		expected := v.Status == ua.StatusGood || v.Status == ua.StatusBadAttributeIDInvalid
		if a == ua.AttributeIDValue {
			expected = expected || v.Status == ua.StatusBadNoCommunication || v.Status == ua.StatusBadWaitingForInitialData ||
				v.Status == ua.StatusBadUserAccessDenied && node == fmt.Sprintf("i=%d", securityArray)
		}
		if !expected || v.Status != ua.StatusGood && v.Has(ua.DataValueValue) {
			t.Errorf("%s attribute %v: %v, mask %x", node, a, v.Status, v.EncodingMask)
		}
	}
	for _, a := range append([]ua.AttributeID{1, 2, 3, 4}, mandatory[class]...) {
		if v := results[a-1]; v.Status != ua.StatusGood {
			t.Errorf("%s of class %v has no %v: %v", node, class, a, v.Status)
		}
	}
	if got := results[ua.AttributeIDNodeClass-1].Value.Value(); got != int32(class) {
		t.Errorf("%s: NodeClass %v, browsed as %v", node, got, class)
	}
	if got := results[ua.AttributeIDNodeID-1].Value.Value().(*ua.NodeID).String(); got != node {
		t.Errorf("%s: NodeId %s", node, got)
	}
}

// TestEventItemOnTheServerObject is how UaExpert begins: it watches events and data in one call.
func TestEventItemOnTheServerObject(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	sub := p.subscription()
	events := itemRequest(ua.NewNumericNodeID(0, id.Server), 1, 0)
	events.ItemToMonitor.AttributeID = ua.AttributeIDEventNotifier
	events.RequestedParameters.Filter = ua.NewExtensionObject(&ua.EventFilter{
		SelectClauses: []*ua.SimpleAttributeOperand{{
			TypeDefinitionID: ua.NewNumericNodeID(0, id.BaseEventType), BrowsePath: []*ua.QualifiedName{{Name: "Message"}}, AttributeID: ua.AttributeIDValue,
		}},
		WhereClause: &ua.ContentFilter{},
	})
	r := must[*ua.CreateMonitoredItemsResponse](p, &ua.CreateMonitoredItemsRequest{
		SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth,
		ItemsToCreate: []*ua.MonitoredItemCreateRequest{events, itemRequest(plantID("boiler.code"), 2, 1)},
	}).Results
	if r[0].StatusCode != ua.StatusGood || r[1].StatusCode != ua.StatusGood {
		t.Errorf("event item %v, data item %v", r[0].StatusCode, r[1].StatusCode)
	}
}

// largeDefs are 10,000 tags of one device.
func largeDefs() []tag.Def {
	defs := make([]tag.Def, 10_000)
	for i := range defs {
		defs[i] = tag.Def{Device: "large", Name: fmt.Sprintf("t%05d", i), Kind: tag.Float64, Access: tag.Readable | tag.Writable, Memory: true}
	}
	return defs
}

// TestLargeFolder browses 10,000 tags 7 at a time, twice at once: each walk meets each of them once, in one order.
func TestLargeFolder(t *testing.T) {
	f := startWith(t, largeDefs(), nil)
	p := f.login(t)
	type walk struct {
		names []string
		point []byte
	}
	var walks [2]walk
	take := func(w *walk, r *ua.BrowseResult) {
		if r.StatusCode != ua.StatusGood || len(r.References) > 7 || len(r.References) == 0 {
			t.Fatalf("%v with %d references", r.StatusCode, len(r.References))
		}
		w.names, w.point = append(w.names, names(r.References)...), r.ContinuationPoint
	}
	for i := range walks {
		take(&walks[i], must[*ua.BrowseResponse](p, browseRequest(7, browseOf(plantID("large")))).Results[0])
	}
	for step := 0; walks[0].point != nil || walks[1].point != nil; step++ {
		for i := range walks {
			w := &walks[i]
			if w.point != nil && (i == 0 || step%3 != 0 || walks[0].point == nil) { // not in step
				take(w, must[*ua.BrowseNextResponse](p, nextRequest(false, w.point)).Results[0])
			}
		}
	}
	seen := map[string]int{}
	for _, n := range walks[0].names {
		seen[n]++
	}
	for _, def := range largeDefs() {
		if seen[def.Name] != 1 {
			t.Fatalf("%s was met %d times", def.Name, seen[def.Name])
		}
	}
	if fmt.Sprint(walks[0].names) != fmt.Sprint(walks[1].names) {
		t.Error("the walks differ")
	}
	all := pathOf("")
	all.StartingNode = plantID("large")
	if r := must[*ua.TranslateBrowsePathsToNodeIDsResponse](p, &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{all}}).Results[0]; r.StatusCode != ua.StatusBadTooManyMatches {
		t.Errorf("5.9.4 every tag as a target: %v, %d targets", r.StatusCode, len(r.Targets))
	}
}
