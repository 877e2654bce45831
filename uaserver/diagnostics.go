package uaserver

import (
	"math"
	"sync/atomic"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/channel"
	"edged/uaserver/subscription"
	"edged/uaserver/wire"
)

// counts are the requests of one session. Counting one is two additions.
type counts struct {
	total, errors, unauthorized atomic.Uint32
	requests                    []atomic.Uint32                 // by row of the table
	faults                      atomic.Pointer[[]atomic.Uint32] // likewise; nil: there was none
}

func newCounts(rows int) counts { return counts{requests: make([]atomic.Uint32, rows)} }

// received counts a request.
func (c *counts) received(row int) {
	c.total.Add(1)
	c.requests[row].Add(1)
}

// failed counts a ServiceFault.
func (c *counts) failed(row int) {
	c.errors.Add(1)
	if row >= len(c.requests) {
		return
	}
	faults := c.faults.Load()
	if faults == nil {
		made := make([]atomic.Uint32, len(c.requests))
		c.faults.CompareAndSwap(nil, &made)
		faults = c.faults.Load()
	}
	(*faults)[row].Add(1)
}

// counted are the requests that SessionDiagnosticsDataType counts one by one, in its order (Part 5, 12.11).
var counted = [...]uint32{
	id.ReadRequest_Encoding_DefaultBinary, id.HistoryReadRequest_Encoding_DefaultBinary, id.WriteRequest_Encoding_DefaultBinary,
	id.HistoryUpdateRequest_Encoding_DefaultBinary, id.CallRequest_Encoding_DefaultBinary,
	id.CreateMonitoredItemsRequest_Encoding_DefaultBinary, id.ModifyMonitoredItemsRequest_Encoding_DefaultBinary,
	id.SetMonitoringModeRequest_Encoding_DefaultBinary, id.SetTriggeringRequest_Encoding_DefaultBinary,
	id.DeleteMonitoredItemsRequest_Encoding_DefaultBinary, id.CreateSubscriptionRequest_Encoding_DefaultBinary,
	id.ModifySubscriptionRequest_Encoding_DefaultBinary, id.SetPublishingModeRequest_Encoding_DefaultBinary,
	id.PublishRequest_Encoding_DefaultBinary, id.RepublishRequest_Encoding_DefaultBinary,
	id.TransferSubscriptionsRequest_Encoding_DefaultBinary, id.DeleteSubscriptionsRequest_Encoding_DefaultBinary,
	id.AddNodesRequest_Encoding_DefaultBinary, id.AddReferencesRequest_Encoding_DefaultBinary,
	id.DeleteNodesRequest_Encoding_DefaultBinary, id.DeleteReferencesRequest_Encoding_DefaultBinary,
	id.BrowseRequest_Encoding_DefaultBinary, id.BrowseNextRequest_Encoding_DefaultBinary,
	id.TranslateBrowsePathsToNodeIDsRequest_Encoding_DefaultBinary, id.QueryFirstRequest_Encoding_DefaultBinary,
	id.QueryNextRequest_Encoding_DefaultBinary, id.RegisterNodesRequest_Encoding_DefaultBinary,
	id.UnregisterNodesRequest_Encoding_DefaultBinary,
}

// append appends the counter of a request; of a service that is not served it is zero.
func (c *counts) append(dst []byte, request uint32) []byte {
	row, served := byRequest[request]
	if !served || row >= len(c.requests) {
		return wire.AppendUint64(dst, 0)
	}
	dst = wire.AppendUint32(dst, c.requests[row].Load())
	if faults := c.faults.Load(); faults != nil {
		return wire.AppendUint32(dst, (*faults)[row].Load())
	}
	return wire.AppendUint32(dst, 0)
}

// maxDiscoveryURLs bounds what is kept of a ClientDescription.
const maxDiscoveryURLs = 8

// appendAbout appends what a client says of itself: an ApplicationDescription (Part 4, 7.2), the ServerUri and the
// EndpointUrl.
func appendAbout(dst []byte, req *ua.CreateSessionRequest) []byte {
	d := req.ClientDescription
	if d == nil {
		d = &ua.ApplicationDescription{}
	}
	dst = wire.AppendString(dst, clip(d.ApplicationURI))
	dst = wire.AppendString(dst, clip(d.ProductURI))
	name := d.ApplicationName
	if name == nil {
		name = &ua.LocalizedText{}
	}
	dst = wire.AppendLocalizedText(dst, clip(name.Locale), clip(name.Text))
	dst = wire.AppendUint32(dst, uint32(d.ApplicationType))
	dst = wire.AppendString(dst, clip(d.GatewayServerURI))
	dst = wire.AppendString(dst, clip(d.DiscoveryProfileURI))
	urls := d.DiscoveryURLs[:min(len(d.DiscoveryURLs), maxDiscoveryURLs)]
	dst = wire.AppendUint32(dst, uint32(len(urls)))
	for _, u := range urls {
		dst = wire.AppendString(dst, clip(u))
	}
	dst = wire.AppendString(dst, clip(req.ServerURI))
	return wire.AppendString(dst, clip(req.EndpointURL))
}

// array is a Variant with an array of structures of one type, in the making.
type array struct {
	encoding uint32
	n        uint32
	items    []byte
	body     []byte // of the item at hand
}

// end adds the item whose body was made.
func (a *array) end() {
	a.items = appendStructure(a.items, a.encoding, a.body)
	a.body = a.body[:0]
	a.n++
}

func (a *array) value() tag.Value {
	return tag.OfRaw(append(wire.AppendUint32([]byte{0x80 | 22}, a.n), a.items...))
}

func sessionID(num uint32) wire.NodeID {
	if num == 0 {
		return wire.NodeID{}
	}
	return wire.NumericID(address.NamespaceApplication, num)
}

// clients are the sessions that are activated.
func (s *Server) clients() (all []*client) {
	for _, se := range s.sessions.All() {
		if se.Activated() {
			all = append(all, se.Joined.(*client))
		}
	}
	return all
}

// sessionDiagnostics is the SessionDiagnosticsArray (Part 5, 6.3.4 and 12.11).
func (m *status) sessionDiagnostics(tag.Time) tag.Value {
	a := array{encoding: id.SessionDiagnosticsDataType_Encoding_DefaultBinary}
	for _, c := range m.s.clients() {
		a.body = c.appendDiagnostics(a.body)
		a.end()
	}
	return a.value()
}

func (c *client) appendDiagnostics(b []byte) []byte {
	b = wire.AppendNodeID(b, sessionID(c.ID))
	b = wire.AppendString(b, c.Peer.Name)
	b = append(b, c.about.Value()...)
	b = appendStrings(b, c.Locales())
	b = wire.AppendFloat64(b, millis(c.Timeout))
	b = wire.AppendUint32(b, c.Peer.MaxResponse)
	b = wire.AppendTime(b, tag.TimeOf(c.Created))
	b = wire.AppendTime(b, tag.TimeOf(c.LastContact()))
	subscriptions, items, publishes := c.pub.Load()
	for _, n := range []int{subscriptions, items, publishes} {
		b = wire.AppendUint32(b, uint32(n))
	}
	b = wire.AppendUint32(wire.AppendUint32(b, c.counts.total.Load()), c.counts.errors.Load())
	b = wire.AppendUint32(b, c.counts.unauthorized.Load())
	for _, request := range counted {
		b = c.counts.append(b, request)
	}
	return b
}

func appendStrings(dst []byte, list []string) []byte {
	dst = wire.AppendUint32(dst, uint32(len(list)))
	for _, text := range list {
		dst = wire.AppendString(dst, text)
	}
	return dst
}

// securityDiagnostics is the SessionSecurityDiagnosticsArray (Part 5, 6.3.4 and 12.12). Its node is read with
// address.MayAudit alone, which no anonymous client has.
func (m *status) securityDiagnostics(tag.Time) tag.Value {
	a := array{encoding: id.SessionSecurityDiagnosticsDataType_Encoding_DefaultBinary}
	for _, c := range m.s.clients() {
		m.s.mu.Lock()
		ch := c.ch
		m.s.mu.Unlock()
		if ch != nil && c.who.Load() != nil {
			a.body = appendSecurity(a.body, c, ch)
			a.end()
		}
	}
	return a.value()
}

func appendSecurity(b []byte, c *client, ch *channel.Channel) []byte {
	b = wire.AppendNodeID(b, sessionID(c.ID))
	who := c.who.Load()
	if who.by == byNobody {
		b = wire.AppendNull(b) // ClientUserIdOfSession: nobody's
		b = wire.AppendUint32(b, 0)
	} else {
		b = wire.AppendString(b, who.user)
		b = appendStrings(b, []string{who.user}) // ClientUserIdHistory: a session stays its user's
	}
	b = wire.AppendString(b, who.by)
	b = wire.AppendString(b, "UA Binary")
	b = wire.AppendString(b, "UA TCP")
	b = wire.AppendUint32(b, uint32(ch.Mode()))
	b = wire.AppendString(b, ch.PolicyURI())
	return wire.AppendByteString(b, ch.ClientCertificate())
}

// subscriptionDiagnostics is the SubscriptionDiagnosticsArray (Part 5, 6.3.3 and 12.15).
func (m *status) subscriptionDiagnostics(tag.Time) tag.Value {
	a := array{encoding: id.SubscriptionDiagnosticsDataType_Encoding_DefaultBinary}
	for _, d := range m.s.engine.Diagnostics(nil) {
		a.body = appendSubscription(a.body, &d)
		a.end()
	}
	return a.value()
}

func appendSubscription(b []byte, d *subscription.Diagnostics) []byte {
	b = wire.AppendNodeID(b, sessionID(d.Session))
	b = wire.AppendUint32(b, d.ID)
	b = append(b, d.Priority)
	b = wire.AppendFloat64(b, d.Publishing)
	for _, n := range []uint32{d.KeepAlive, d.Lifetime, d.Notifications} {
		b = wire.AppendUint32(b, n)
	}
	b = wire.AppendBool(b, d.Enabled)
	for _, n := range []uint32{
		d.Modified, d.Enables, d.Disables, d.RepublishRequests, d.RepublishRequests, d.Republished,
		d.TransferRequests, d.ToOther, d.ToSame,
		d.Publishes, count32(d.Sent), 0 /* events */, count32(d.Sent), d.Late, d.KeptAlive, d.LifetimeLeft,
		uint32(d.Held), count32(d.Evicted), uint32(d.Items), uint32(d.DisabledItems), count32(d.Overflowed), d.Next,
		0, // EventQueueOverflowCount
	} {
		b = wire.AppendUint32(b, n)
	}
	return b
}

// count32 is a counter as the standard has it: one that stands still is better than one that jumps back.
func count32(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }
