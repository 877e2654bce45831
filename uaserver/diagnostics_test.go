package uaserver

import (
	"bytes"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/uatest"
	"edged/uaserver/wire"
)

const (
	sessionArray      = id.Server_ServerDiagnostics_SessionsDiagnosticsSummary_SessionDiagnosticsArray
	securityArray     = id.Server_ServerDiagnostics_SessionsDiagnosticsSummary_SessionSecurityDiagnosticsArray
	subscriptionArray = id.Server_ServerDiagnostics_SubscriptionDiagnosticsArray
)

// structures reads a variable that is an array of structures.
func structures[T any](t *testing.T, p *peer, node uint32) (out []*T) {
	t.Helper()
	v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(ua.NewNumericNodeID(0, node))}})[0]
	if v.Status != ua.StatusGood {
		t.Fatalf("i=%d: %v", node, v.Status)
	}
	for _, x := range v.Value.Value().([]*ua.ExtensionObject) {
		d, ok := x.Value.(*T)
		if !ok {
			t.Fatalf("i=%d has a %T", node, x.Value)
		}
		out = append(out, d)
	}
	return out
}

func TestSessionDiagnostics(t *testing.T) {
	f := start(t, nil)
	p := f.dial(t, nil)
	req := createRequest()
	req.SessionName, req.ServerURI, req.MaxResponseMessageSize = "watcher", appURI, 1<<20
	req.ClientDescription.ProductURI = "urn:test:product"
	req.ClientDescription.DiscoveryURLs = []string{"opc.tcp://there:1"}
	created := must[*ua.CreateSessionResponse](p, req)
	p.token = created.AuthenticationToken
	activate := activateRequest(anonymous())
	activate.LocaleIDs = []string{"de", "en"}
	must[*ua.ActivateSessionResponse](p, activate)
	f.dial(t, nil).create() // never activated: no session of the array

	p.subscription()
	p.call(&ua.ReadRequest{}) // BadNothingToDo
	p.call(&ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}})
	all := structures[ua.SessionDiagnosticsDataType](t, p, sessionArray)
	if len(all) != 1 {
		t.Fatalf("%d sessions", len(all))
	}
	d := all[0]
	if d.SessionID.String() != created.SessionID.String() || d.SessionName != "watcher" || d.ServerURI != appURI ||
		d.EndpointURL != req.EndpointURL || len(d.LocaleIDs) != 2 || d.ActualSessionTimeout != 60000 || d.MaxResponseMessageSize != 1<<20 {
		t.Errorf("12.11 %+v", d)
	}
	if c := d.ClientDescription; c.ApplicationURI != "urn:test:client" || c.ProductURI != "urn:test:product" ||
		c.ApplicationName.Text != "test" || c.ApplicationType != ua.ApplicationTypeClient || len(c.DiscoveryURLs) != 1 {
		t.Errorf("12.11 client %+v", c)
	}
	if time.Since(d.ClientConnectionTime) > time.Minute || d.ClientLastContactTime.Before(d.ClientConnectionTime) {
		t.Errorf("12.11 connected %v, last contact %v", d.ClientConnectionTime, d.ClientLastContactTime)
	}
	if d.CurrentSubscriptionsCount != 1 || d.CurrentMonitoredItemsCount != 0 || d.CurrentPublishRequestsInQueue != 0 {
		t.Errorf("12.11 %d subscriptions, %d items, %d publish requests", d.CurrentSubscriptionsCount, d.CurrentMonitoredItemsCount, d.CurrentPublishRequestsInQueue)
	}
	for name, row := range map[string]struct {
		got           *ua.ServiceCounterDataType
		total, errors uint32
	}{
		"all": {d.TotalRequestCount, 4, 2}, "Read": {d.ReadCount, 2, 1}, "Browse": {d.BrowseCount, 1, 1},
		"CreateSubscription": {d.CreateSubscriptionCount, 1, 0}, "Write": {d.WriteCount, 0, 0},
		"Unregister": {d.UnregisterNodesCount, 0, 0}, "Call": {d.CallCount, 0, 0},
	} {
		if row.got.TotalCount != row.total || row.got.ErrorCount != row.errors {
			t.Errorf("12.13 %s: %+v, want %d and %d", name, *row.got, row.total, row.errors)
		}
	}
}

// loginSecurely makes and activates a session on an encrypted channel.
func (f *fixture) loginSecurely(t *testing.T) (*peer, *uatest.Identity) {
	t.Helper()
	own := uatest.ClientIdentity(t)
	p := f.dial(t, func(o *uatest.Options) { f.secured(t)(o); o.Identity = own })
	req := createRequest()
	req.ClientCertificate = own.DER
	resp := must[*ua.CreateSessionResponse](p, req)
	p.token, p.nonce = resp.AuthenticationToken, resp.ServerNonce
	if code := p.signed(t, own, f.own.DER(), p.nonce); code != ua.StatusGood {
		t.Fatal(code)
	}
	return p, own
}

func TestSecurityDiagnosticsAreForNobodyYet(t *testing.T) {
	f := start(t, func(c *Config) { c.Anonymous |= address.MayAudit })
	node := ua.NewNumericNodeID(0, securityArray)
	encrypted, own := f.loginSecurely(t)
	for _, p := range []*peer{f.login(t), encrypted} {
		level := &ua.ReadValueID{NodeID: node, AttributeID: ua.AttributeIDUserAccessLevel, DataEncoding: &ua.QualifiedName{}}
		v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(node), level}})
		if v[0].Status != ua.StatusBadUserAccessDenied || v[1].Value.Value() != uint8(0) {
			t.Errorf("6.3.4: %v, UserAccessLevel %v", v[0].Status, v[1].Value)
		}
	}
	raw := f.status.securityDiagnostics(0)
	r := wire.NewReader(raw.Bytes()[1:])
	if r.Count(1) != 2 {
		t.Fatal("6.3.4: not an entry for each active session")
	}
	var modes []ua.MessageSecurityMode
	for range 2 {
		x := r.Extension()
		d := new(ua.SessionSecurityDiagnosticsDataType)
		if _, err := ua.Decode(x.Body, d); err != nil || !x.Is(id.SessionSecurityDiagnosticsDataType_Encoding_DefaultBinary) {
			t.Fatal(err)
		}
		modes = append(modes, d.SecurityMode)
		if d.SecurityMode == ua.MessageSecurityModeSignAndEncrypt &&
			(d.SecurityPolicyURI != ua.SecurityPolicyURIBasic256Sha256 || !bytes.Equal(d.ClientCertificate, own.DER)) {
			t.Errorf("12.12 %+v", d)
		}
	}
	if r.Err() != nil || modes[0] == modes[1] {
		t.Errorf("12.12 modes %v, %v", modes, r.Err())
	}
}

func TestSubscriptionDiagnostics(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	sub := p.subscription()
	items := make([]*ua.MonitoredItemCreateRequest, 3)
	for i := range items {
		items[i] = itemRequest(plantID("scratch.m00"+string(rune('0'+i))), uint32(i), 2)
	}
	items[2].MonitoringMode = ua.MonitoringModeDisabled
	must[*ua.CreateMonitoredItemsResponse](p, &ua.CreateMonitoredItemsRequest{SubscriptionID: sub, ItemsToCreate: items})
	must[*ua.SetPublishingModeResponse](p, &ua.SetPublishingModeRequest{SubscriptionIDs: []uint32{sub}})
	must[*ua.ModifySubscriptionResponse](p, &ua.ModifySubscriptionRequest{
		SubscriptionID: sub, RequestedPublishingInterval: 50, RequestedLifetimeCount: 900, RequestedMaxKeepAliveCount: 300,
		MaxNotificationsPerPublish: 7, Priority: 9,
	})
	ref := f.ref(t, "scratch.m000")
	for i := range 5 { // with what it begins with six, of which the queue holds two
		f.tags.Publish([]tag.Sample{{Ref: ref, Value: tag.Of(float64(i + 1)), At: tag.Now()}})
	}
	must[*ua.SetPublishingModeResponse](p, &ua.SetPublishingModeRequest{SubscriptionIDs: []uint32{sub}, PublishingEnabled: true})
	p.post(publishRequest())
	p.published()
	p.call(&ua.RepublishRequest{SubscriptionID: sub, RetransmitSequenceNumber: 1})
	p.call(&ua.RepublishRequest{SubscriptionID: sub, RetransmitSequenceNumber: 99})
	d := structures[ua.SubscriptionDiagnosticsDataType](t, p, subscriptionArray)[0]
	want := ua.SubscriptionDiagnosticsDataType{
		SessionID: d.SessionID, SubscriptionID: sub, Priority: 9, PublishingInterval: 50, MaxKeepAliveCount: 300,
		MaxLifetimeCount: 900, MaxNotificationsPerPublish: 7, PublishingEnabled: true,
		ModifyCount: 1, EnableCount: 1, DisableCount: 1,
		RepublishRequestCount: 2, RepublishMessageRequestCount: 2, RepublishMessageCount: 1,
		PublishRequestCount: 1, DataChangeNotificationsCount: 3, NotificationsCount: 3,
		LatePublishRequestCount: d.LatePublishRequestCount, CurrentKeepAliveCount: d.CurrentKeepAliveCount,
		CurrentLifetimeCount: d.CurrentLifetimeCount, UnacknowledgedMessageCount: 1,
		MonitoredItemCount: 3, DisabledMonitoredItemCount: 1, MonitoringQueueOverflowCount: 4, NextSequenceNumber: 2,
	}
	if *d != want {
		t.Errorf("12.15\n got %+v\nwant %+v", *d, want)
	}
	own := structures[ua.SessionDiagnosticsDataType](t, p, sessionArray)[0]
	if d.SessionID.String() != own.SessionID.String() || own.CurrentMonitoredItemsCount != 3 || own.PublishCount.TotalCount != 1 || own.RepublishCount.ErrorCount != 1 {
		t.Errorf("12.15 session %v; %+v", d.SessionID, own)
	}
	if d.CurrentLifetimeCount == 0 || d.CurrentLifetimeCount > 900 {
		t.Errorf("CurrentLifetimeCount %d", d.CurrentLifetimeCount)
	}

	must[*ua.CloseSessionResponse](p, &ua.CloseSessionRequest{}) // the subscription lives on
	if d := structures[ua.SubscriptionDiagnosticsDataType](t, f.login(t), subscriptionArray)[0]; d.SubscriptionID != sub || d.SessionID.String() != "i=0" {
		t.Errorf("of a session that has ended: %+v", d)
	}
}

func TestNamespaceMetadata(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	refs := must[*ua.BrowseResponse](p, browseRequest(0, browseOf(ua.NewNumericNodeID(0, id.Server_Namespaces)))).Results[0].References
	found := map[string]bool{}
	for _, r := range refs {
		if r.TypeDefinition.NodeID.IntID() != id.NamespaceMetadataType {
			continue
		}
		props := map[string]any{}
		for _, pr := range must[*ua.BrowseResponse](p, browseRequest(0, browseOf(r.NodeID.NodeID))).Results[0].References {
			v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(pr.NodeID.NodeID)}})[0]
			if v.Status != ua.StatusGood {
				t.Errorf("%s.%s: %v", r.BrowseName.Name, pr.BrowseName.Name, v.Status)
			}
			props[pr.BrowseName.Name] = v.Value.Value()
		}
		uri, _ := props["NamespaceUri"].(string)
		found[uri] = true
		if len(props) != 7 || r.BrowseName.Name != uri {
			t.Errorf("6.3.14 %s: %v", r.BrowseName.Name, props)
		}
		if props["IsNamespaceSubset"] != (uri == address.URIOfUA) {
			t.Errorf("6.3.14 %s: IsNamespaceSubset %v", uri, props["IsNamespaceSubset"])
		}
	}
	for _, uri := range f.space.Namespaces() {
		if !found[uri] {
			t.Errorf("no metadata of %s", uri)
		}
	}
}

// TestMaxResponseMessageSize of 5.7.2.2: the session's bound on answers, beside that of the connection.
func TestMaxResponseMessageSize(t *testing.T) {
	f := start(t, nil)
	p := f.dial(t, nil)
	req := createRequest()
	req.MaxResponseMessageSize = 9000
	p.token = must[*ua.CreateSessionResponse](p, req).AuthenticationToken
	must[*ua.ActivateSessionResponse](p, activateRequest(anonymous()))
	read := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth}
	for range 1000 {
		read.NodesToRead = append(read.NodesToRead, value(plantID("scratch.m000")))
	}
	if _, code := p.call(read); code != ua.StatusBadResponseTooLarge {
		t.Errorf("Read: %v", code)
	}
	read.NodesToRead = read.NodesToRead[:100]
	p.read(read)
	r := must[*ua.BrowseResponse](p, browseRequest(0, browseOf(plantID("scratch")))).Results[0]
	if r.StatusCode != ua.StatusGood || r.ContinuationPoint == nil || len(r.References) < 10 {
		t.Errorf("Browse: %v, %d references", r.StatusCode, len(r.References))
	}
	sub := p.subscription()
	for from := 0; from < 400; from += 200 {
		create := &ua.CreateMonitoredItemsRequest{SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth}
		for i := from; i < from+200; i++ {
			create.ItemsToCreate = append(create.ItemsToCreate, itemRequest(plantID("scratch."+testDefs[6+i].Name), uint32(i), 1))
		}
		must[*ua.CreateMonitoredItemsResponse](p, create)
	}
	// Nothing is done whose results would not reach the client.
	many := &ua.CreateMonitoredItemsRequest{SubscriptionID: sub, ItemsToCreate: times(400, itemRequest(plantID("scratch.m000"), 1, 1))}
	if _, code := p.call(many); code != ua.StatusBadResponseTooLarge || f.engine.Stats().Items != 400 {
		t.Errorf("CreateMonitoredItems: %v, %d items", code, f.engine.Stats().Items)
	}
	f.field.commands()
	if _, code := p.call(&ua.WriteRequest{NodesToWrite: times(3000, writeOf("scratch.m000", 1.0).NodesToWrite[0])}); code != ua.StatusBadResponseTooLarge || len(f.field.commands()) != 0 {
		t.Errorf("Write: %v", code)
	}
	got := 0
	for messages := 0; got < 400 && messages < 20; messages++ {
		p.post(publishRequest())
		for _, x := range p.published().NotificationMessage.NotificationData {
			got += len(x.Value.(*ua.DataChangeNotification).MonitoredItems)
		}
	}
	if got != 400 {
		t.Errorf("Publish: %d notifications of 400", got)
	}
}

// TestLimitsAreTold of Part 5, 6.3.2 and 6.3.11: every limit that is enforced can be read, and no other.
func TestLimitsAreTold(t *testing.T) {
	f := start(t, func(c *Config) {
		c.Limits.Sessions, c.Limits.Nodes, c.Limits.MonitoredItems, c.Limits.Continuations = 11, 12, 13, 14
		c.Limits.Methods, c.Limits.HistoryNodes, c.Limits.HistoryContinuations = 18, 19, 20
		c.Subscription.Subscriptions, c.Subscription.Items, c.Subscription.Queue = 15, 16, 17
	})
	p := f.login(t)
	for node, want := range map[uint32]any{
		id.Server_ServerCapabilities_MaxSessions: uint32(11), id.Server_ServerCapabilities_MaxSubscriptions: uint32(15),
		id.Server_ServerCapabilities_MaxSubscriptionsPerSession: uint32(15), id.Server_ServerCapabilities_MaxMonitoredItems: uint32(16),
		id.Server_ServerCapabilities_MaxMonitoredItemsPerSubscription: uint32(16), id.Server_ServerCapabilities_MaxMonitoredItemsQueueSize: uint32(17),
		id.Server_ServerCapabilities_MaxBrowseContinuationPoints: uint16(14), id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead: uint32(12),
		id.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall:   uint32(13),
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerMethodCall:      uint32(18),
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerHistoryReadData: uint32(19), id.Server_ServerCapabilities_MaxHistoryContinuationPoints: uint16(20),
	} {
		if v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(ua.NewNumericNodeID(0, node))}})[0]; v.Status != ua.StatusGood || v.Value.Value() != want {
			t.Errorf("i=%d: %v %v, want %v", node, v.Status, v.Value, want)
		}
	}
	for _, node := range []uint32{
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerHistoryReadEvents,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerNodeManagement, id.Server_LocalTime,
	} {
		if v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(ua.NewNumericNodeID(0, node))}})[0]; v.Status != ua.StatusBadNodeIDUnknown {
			t.Errorf("i=%d, which is not served: %v", node, v.Status)
		}
	}
}
