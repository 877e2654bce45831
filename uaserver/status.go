package uaserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/event"
	"edged/uaserver/wire"
)

// status is the NodeManager of the Server object's live variables (Part 5, 6.3). Clients that monitor them sample
// them by reading, so that a shutdown is told to every subscriber.
type status struct {
	s       *Server
	started tag.Time

	mu     sync.Mutex // guards all below
	now    ua.ServerState
	since  tag.Time // of now
	reason string
	ends   time.Time // of the shutdown
}

// live is one variable whose value is made when it is read.
type live struct {
	id    uint32
	value func(m *status, at tag.Time) tag.Value
}

var liveVariables = [...]live{
	{id.Server_ServerStatus, (*status).serverStatus},
	{id.Server_ServerStatus_CurrentTime, func(_ *status, at tag.Time) tag.Value { return tag.Of(at) }},
	{id.Server_ServerStatus_State, func(m *status, _ tag.Time) tag.Value { return tag.Of(int32(m.state())) }},
	{id.Server_ServerStatus_SecondsTillShutdown, func(m *status, _ tag.Time) tag.Value { return tag.Of(m.secondsLeft()) }},
	{id.Server_ServerStatus_ShutdownReason, func(m *status, _ tag.Time) tag.Value { return localized(m.shutdownReason()) }},
	{id.Server_ServiceLevel, (*status).serviceLevel},
	{id.Server_ServerDiagnostics_SessionsDiagnosticsSummary_SessionDiagnosticsArray, (*status).sessionDiagnostics},
	{id.Server_ServerDiagnostics_SessionsDiagnosticsSummary_SessionSecurityDiagnosticsArray, (*status).securityDiagnostics},
	{id.Server_ServerDiagnostics_SubscriptionDiagnosticsArray, (*status).subscriptionDiagnostics},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary, (*status).summary},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_ServerViewCount, counter(0)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CurrentSessionCount, counter(1)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CumulatedSessionCount, counter(2)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_SecurityRejectedSessionCount, counter(3)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_RejectedSessionCount, counter(4)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_SessionTimeoutCount, counter(5)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_SessionAbortCount, counter(6)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CurrentSubscriptionCount, counter(7)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CumulatedSubscriptionCount, counter(8)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_PublishingIntervalCount, counter(9)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_SecurityRejectedRequestsCount, counter(10)},
	{id.Server_ServerDiagnostics_ServerDiagnosticsSummary_RejectedRequestsCount, counter(11)},
}

// newStatus takes over the live variables and sets those that stay as they are.
func newStatus(s *Server) (*status, error) {
	m := &status{s: s, started: tag.Now(), now: ua.ServerStateRunning}
	m.since = m.started
	for i := range liveVariables {
		node := wire.NumericID(0, liveVariables[i].id)
		if err := s.space.Manage(node, m); err != nil {
			return nil, fmt.Errorf("uaserver: namespace 0: %w", err)
		}
		s.space.Find(node).Token = uint32(i)
	}
	s.space.Find(wire.NumericID(0, id.Server_ServerDiagnostics_SessionsDiagnosticsSummary_SessionSecurityDiagnosticsArray)).Audit = true
	if err := m.ownMethods(); err != nil {
		return nil, fmt.Errorf("uaserver: namespace 0: %w", err)
	}
	for node, value := range m.fixed() {
		n := s.space.Find(wire.NumericID(0, node))
		if n == nil {
			return nil, fmt.Errorf("uaserver: namespace 0: node i=%d is missing", node)
		}
		n.Value = value
		n.Access |= ua.AccessLevelTypeCurrentRead // of those that have no value of their own
	}
	if err := describeNamespaces(s.space, s.cfg.Build.Version); err != nil {
		return nil, err
	}
	if err := describeLedger(s.space, s.engine); err != nil || s.cfg.Certificate == nil {
		return m, err
	}
	return m, describeCertificate(s.space, s.cfg.Certificate)
}

// profiles are the facets of Part 7 that the server passes; ServerProfileArray claims nothing else.
func (s *Server) profiles() []string {
	list := []string{
		"http://opcfoundation.org/UA-Profile/Server/StandardDataChangeSubscription2017",
		"http://opcfoundation.org/UA-Profile/Server/Methods",
		"http://opcfoundation.org/UA-Profile/Server/DataAccess",
		transportProfile,
	}
	for _, p := range s.cfg.Policies {
		list = append(list, p.URI)
	}
	return list
}

// fixed are the values that do not change while the server runs. Each limit is the one that is enforced.
func (m *status) fixed() map[uint32]tag.Value {
	s, l, sub := m.s, &m.s.cfg.Limits, &m.s.cfg.Subscription
	subscriptions, items := tag.Of(uint32(sub.Subscriptions)), tag.Of(uint32(sub.Items))
	nodes, none, no := tag.Of(uint32(l.Nodes)), tag.Of(uint16(0)), tag.Of(false)
	longest := tag.Of(l.Message) // what a message can hold
	b := &s.cfg.Build
	return map[uint32]tag.Value{
		id.Server_ServerCapabilities_MaxSessions:                                              tag.Of(uint32(l.Sessions)),
		id.Server_ServerCapabilities_MaxSubscriptions:                                         subscriptions,
		id.Server_ServerCapabilities_MaxSubscriptionsPerSession:                               subscriptions,
		id.Server_ServerCapabilities_MaxMonitoredItems:                                        items,
		id.Server_ServerCapabilities_MaxMonitoredItemsPerSubscription:                         items,
		id.Server_ServerCapabilities_MaxMonitoredItemsQueueSize:                               tag.Of(uint32(sub.Queue)),
		id.Server_ServerCapabilities_MaxSelectClauseParameters:                                tag.Of(uint32(event.MaxSelect)),
		id.Server_ServerCapabilities_MaxWhereClauseParameters:                                 tag.Of(uint32(event.MaxWhere)),
		id.Server_ServerArray:                                                                 tag.OfSlice([]string{s.cfg.ApplicationURI}),
		id.Server_Auditing:                                                                    tag.Of(false),
		id.Server_ServerRedundancy_RedundancySupport:                                          tag.Of(int32(ua.RedundancySupportNone)),
		id.Server_ServerStatus_StartTime:                                                      tag.Of(m.started),
		id.Server_ServerStatus_BuildInfo:                                                      structure(id.BuildInfo_Encoding_DefaultBinary, m.appendBuild(nil)),
		id.Server_ServerStatus_BuildInfo_ProductURI:                                           tag.Of(b.ProductURI),
		id.Server_ServerStatus_BuildInfo_ManufacturerName:                                     tag.Of(b.Manufacturer),
		id.Server_ServerStatus_BuildInfo_ProductName:                                          tag.Of(b.Product),
		id.Server_ServerStatus_BuildInfo_SoftwareVersion:                                      tag.Of(b.Version),
		id.Server_ServerStatus_BuildInfo_BuildNumber:                                          tag.Of(b.Number),
		id.Server_ServerStatus_BuildInfo_BuildDate:                                            tag.Of(tag.TimeOf(b.Date)),
		id.Server_ServerDiagnostics_EnabledFlag:                                               tag.Of(true), // they cost nothing until they are read
		id.OPCUANamespaceMetadata_IsNamespaceSubset:                                           tag.Of(true), // what is not served is left out
		id.Server_ServerCapabilities_ServerProfileArray:                                       tag.OfSlice(s.profiles()),
		id.Server_ServerCapabilities_LocaleIDArray:                                            tag.OfSlice([]string{"en"}),
		id.Server_ServerCapabilities_MinSupportedSampleRate:                                   tag.Of(0.0), // changes of tags are reported as they come
		id.Server_ServerCapabilities_SoftwareCertificates:                                     tag.OfRaw(wire.AppendUint32([]byte{0x80 | 22}, 0)),
		id.Server_ServerCapabilities_MaxArrayLength:                                           longest,
		id.Server_ServerCapabilities_MaxStringLength:                                          longest,
		id.Server_ServerCapabilities_MaxByteStringLength:                                      longest,
		id.Server_ServerCapabilities_MaxQueryContinuationPoints:                               none,
		id.Server_ServerCapabilities_MaxHistoryContinuationPoints:                             tag.Of(uint16(min(l.HistoryContinuations, 0xFFFF))),
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerHistoryReadData:               tag.Of(uint32(l.HistoryNodes)),
		id.HistoryServerCapabilities_AccessHistoryDataCapability:                              tag.Of(s.cfg.History),
		id.HistoryServerCapabilities_AccessHistoryEventsCapability:                            no,
		id.HistoryServerCapabilities_MaxReturnDataValues:                                      tag.Of(uint32(0)), // what fits into an answer
		id.HistoryServerCapabilities_InsertDataCapability:                                     no,
		id.HistoryServerCapabilities_ReplaceDataCapability:                                    no,
		id.HistoryServerCapabilities_UpdateDataCapability:                                     no,
		id.HistoryServerCapabilities_DeleteRawCapability:                                      no,
		id.HistoryServerCapabilities_DeleteAtTimeCapability:                                   no,
		id.HistoryServerCapabilities_InsertEventCapability:                                    no,
		id.HistoryServerCapabilities_ReplaceEventCapability:                                   no,
		id.HistoryServerCapabilities_UpdateEventCapability:                                    no,
		id.HistoryServerCapabilities_DeleteEventCapability:                                    no,
		id.HistoryServerCapabilities_InsertAnnotationCapability:                               no,
		id.HistoryServerCapabilities_ServerTimestampSupported:                                 no,
		id.Server_ServerCapabilities_MaxBrowseContinuationPoints:                              tag.Of(uint16(min(l.Continuations, 0xFFFF))),
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead:                          nodes,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerWrite:                         nodes,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerBrowse:                        nodes,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerMethodCall:                    tag.Of(uint32(l.Methods)),
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRegisterNodes:                 nodes,
		id.Server_ServerCapabilities_OperationLimits_MaxNodesPerTranslateBrowsePathsToNodeIDs: nodes,
		id.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall:                 tag.Of(uint32(l.MonitoredItems)),
	}
}

// Read makes the values, each once, however often it is asked for.
func (m *status) Read(_ context.Context, items []address.ReadItem) {
	at := tag.Now()
	var made [len(liveVariables)]tag.Value
	for i := range items {
		it := &items[i]
		if it.Result.Status.IsBad() {
			continue
		}
		r, err := address.ParseRange(it.Range)
		if err != nil {
			it.Result.Status, it.Result.Server = tag.BadIndexRangeInvalid, at
			continue
		}
		l, v := &liveVariables[it.Node.Token], &made[it.Node.Token]
		if v.IsNull() {
			*v = l.value(m, at)
		}
		it.Result.Value, it.Result.Status = address.ApplyRange(*v, r)
		it.Result.Source, it.Result.Server = at, at
		if l.id == id.Server_ServerStatus_State {
			m.mu.Lock()
			it.Result.Source = m.since
			m.mu.Unlock()
		}
	}
}

// Write refuses: nothing here is writable.
func (m *status) Write(_ context.Context, items []address.WriteItem) {
	for i := range items {
		items[i].Status = tag.BadNotWritable
	}
}

// Series is nil: the values are sampled by reading.
func (m *status) Series(*address.Node) *address.Series { return nil }

// shutdown announces the end of the server.
func (m *status) shutdown(reason string, after time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now, m.since, m.reason, m.ends = ua.ServerStateShutdown, tag.Now(), reason, time.Now().Add(after)
}

func (m *status) state() ua.ServerState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *status) shutdownReason() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reason
}

// secondsLeft is SecondsTillShutdown, which means something in the state Shutdown alone (Part 5, 12.10).
func (m *status) secondsLeft() uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now != ua.ServerStateShutdown {
		return 0
	}
	return uint32(max(0, (time.Until(m.ends)+time.Second-1)/time.Second))
}

// serviceLevel is 255 while the server runs; 0 tells that it will stop (Part 4, 6.6.2.4.2: Maintenance).
func (m *status) serviceLevel(tag.Time) tag.Value {
	if m.state() == ua.ServerStateRunning {
		return tag.Of(uint8(255))
	}
	return tag.Of(uint8(0))
}

// serverStatus is a ServerStatusDataType (Part 5, 12.10).
func (m *status) serverStatus(at tag.Time) tag.Value {
	b := wire.AppendTime(nil, m.started)
	b = wire.AppendTime(b, at)
	b = wire.AppendUint32(b, uint32(m.state()))
	b = m.appendBuild(b)
	b = wire.AppendUint32(b, m.secondsLeft())
	b = wire.AppendLocalizedText(b, "", m.shutdownReason())
	return structure(id.ServerStatusDataType_Encoding_DefaultBinary, b)
}

// appendBuild appends a BuildInfo (Part 5, 12.4).
func (m *status) appendBuild(dst []byte) []byte {
	b := &m.s.cfg.Build
	for _, text := range []string{b.ProductURI, b.Manufacturer, b.Product, b.Version, b.Number} {
		dst = wire.AppendString(dst, text)
	}
	return wire.AppendTime(dst, tag.TimeOf(b.Date))
}

// counters are the fields of a ServerDiagnosticsSummaryDataType, in its order (Part 5, 12.9).
func (m *status) counters() [12]uint32 {
	s := m.s
	c := s.sessions.Counts()
	subscriptions, created, intervals := s.subscriptionCounts()
	return [12]uint32{
		0, // views
		uint32(c.Current), uint32(c.Total), uint32(s.rejected.securitySessions.Load()), uint32(s.rejected.sessions.Load()),
		uint32(c.TimedOut), 0, // sessions closed by network errors: none, they outlive their channels
		subscriptions, created, intervals,
		uint32(s.rejected.securityRequests.Load()), uint32(s.rejected.requests.Load()),
	}
}

func (m *status) summary(tag.Time) tag.Value {
	var b []byte
	for _, n := range m.counters() {
		b = wire.AppendUint32(b, n)
	}
	return structure(id.ServerDiagnosticsSummaryDataType_Encoding_DefaultBinary, b)
}

func counter(i int) func(*status, tag.Time) tag.Value {
	return func(m *status, _ tag.Time) tag.Value { return tag.Of(m.counters()[i]) }
}

// structure is a Variant with an ExtensionObject (Part 6, 5.2.2.15).
func structure(encoding uint32, body []byte) tag.Value {
	return tag.OfRaw(appendStructure([]byte{22}, encoding, body))
}

// appendStructure appends an ExtensionObject with a binary body.
func appendStructure(dst []byte, encoding uint32, body []byte) []byte {
	dst = wire.AppendNodeID(dst, wire.NumericID(0, encoding))
	return wire.AppendByteString(append(dst, 1), body)
}

func localized(text string) tag.Value {
	return tag.OfRaw(wire.AppendLocalizedText([]byte{21}, "", text))
}
