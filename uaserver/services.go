package uaserver

import (
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/channel"
	"edged/uaserver/wire"
)

// statusBadServerTooBusy is BadServerTooBusy (Part 4, 7.39), which package ua does not name.
const statusBadServerTooBusy = ua.StatusCode(0x80EE0000)

// need is what a service asks of its caller.
type need uint8

const (
	anybody   need = iota // no session, and any channel: discovery (Part 4, 5.4.1)
	secured               // a channel of a configured policy; the service looks for the session itself
	activated             // a session that is activated and bound to this channel
)

// service is one row of the table.
type service struct {
	name    string // as a metric names it
	request uint32 // type id of the request: the number of its binary encoding in namespace 0
	needs   need
	run     func(s *Server, c *call)
}

// services is what the server answers. A request that is not here gets BadServiceUnsupported, and the link is kept.
var services = [...]service{
	{"FindServers", id.FindServersRequest_Encoding_DefaultBinary, anybody, cold((*Server).findServers)},
	{"GetEndpoints", id.GetEndpointsRequest_Encoding_DefaultBinary, anybody, cold((*Server).getEndpoints)},
	{"CreateSession", id.CreateSessionRequest_Encoding_DefaultBinary, secured, cold((*Server).createSession)},
	{"ActivateSession", id.ActivateSessionRequest_Encoding_DefaultBinary, secured, cold((*Server).activateSession)},
	{"CloseSession", id.CloseSessionRequest_Encoding_DefaultBinary, secured, cold((*Server).closeSession)},
	{"Cancel", id.CancelRequest_Encoding_DefaultBinary, activated, cold((*Server).cancelRequests)},
	{"Read", id.ReadRequest_Encoding_DefaultBinary, activated, (*Server).read},
	{"HistoryRead", id.HistoryReadRequest_Encoding_DefaultBinary, activated, cold((*Server).historyRead)},
	{"Write", id.WriteRequest_Encoding_DefaultBinary, activated, (*Server).write},
	{"Browse", id.BrowseRequest_Encoding_DefaultBinary, activated, (*Server).browse},
	{"BrowseNext", id.BrowseNextRequest_Encoding_DefaultBinary, activated, (*Server).browseNext},
	{"TranslateBrowsePathsToNodeIds", id.TranslateBrowsePathsToNodeIDsRequest_Encoding_DefaultBinary, activated, cold((*Server).translate)},
	{"RegisterNodes", id.RegisterNodesRequest_Encoding_DefaultBinary, activated, cold((*Server).registerNodes)},
	{"UnregisterNodes", id.UnregisterNodesRequest_Encoding_DefaultBinary, activated, cold((*Server).unregisterNodes)},
	{"Call", id.CallRequest_Encoding_DefaultBinary, activated, (*Server).callMethods},
	{"CreateSubscription", id.CreateSubscriptionRequest_Encoding_DefaultBinary, activated, (*Server).createSubscription},
	{"ModifySubscription", id.ModifySubscriptionRequest_Encoding_DefaultBinary, activated, (*Server).modifySubscription},
	{"SetPublishingMode", id.SetPublishingModeRequest_Encoding_DefaultBinary, activated, (*Server).setPublishingMode},
	{"Publish", id.PublishRequest_Encoding_DefaultBinary, activated, (*Server).publish},
	{"Republish", id.RepublishRequest_Encoding_DefaultBinary, activated, (*Server).republish},
	{"TransferSubscriptions", id.TransferSubscriptionsRequest_Encoding_DefaultBinary, activated, (*Server).transferSubscriptions},
	{"DeleteSubscriptions", id.DeleteSubscriptionsRequest_Encoding_DefaultBinary, activated, (*Server).deleteSubscriptions},
	{"CreateMonitoredItems", id.CreateMonitoredItemsRequest_Encoding_DefaultBinary, activated, (*Server).createMonitoredItems},
	{"ModifyMonitoredItems", id.ModifyMonitoredItemsRequest_Encoding_DefaultBinary, activated, (*Server).modifyMonitoredItems},
	{"SetMonitoringMode", id.SetMonitoringModeRequest_Encoding_DefaultBinary, activated, (*Server).setMonitoringMode},
	{"SetTriggering", id.SetTriggeringRequest_Encoding_DefaultBinary, activated, (*Server).setTriggering},
	{"DeleteMonitoredItems", id.DeleteMonitoredItemsRequest_Encoding_DefaultBinary, activated, (*Server).deleteMonitoredItems},
}

// byRequest is the index into services of a request's type id. It is made in init, because handlers look into it.
var byRequest map[uint32]int

func init() {
	byRequest = make(map[uint32]int, len(services))
	for i := range services {
		byRequest[services[i].request] = i
	}
}

// call is one request that is being answered. It is good until its handler returns; whoever answers later keeps ch, id
// and header.Handle.
type call struct {
	s      *Server
	ch     *channel.Channel
	id     uint32 // of the request, for Reply
	header wire.RequestHeader
	client *client     // nil where no session is needed
	body   wire.Reader // behind the RequestHeader
	typ    uint32      // type id of the request
	row    int         // of its service
}

var calls = sync.Pool{New: func() any { return new(call) }}

// handler is the Server as its channels know it.
type handler struct{ s *Server }

// Serve answers one request in the connection's read goroutine.
func (h handler) Serve(r *channel.Request) {
	s := h.s
	c := calls.Get().(*call)
	*c = call{s: s, ch: r.Channel, id: r.ID, body: r.Body, typ: r.Type}
	defer s.contain(r.Channel)
	s.dispatch(c)
	*c = call{}
	calls.Put(c)
}

// contain is the boundary of a request that panics: its connection is closed, all others go on.
func (s *Server) contain(ch *channel.Channel) {
	if p := recover(); p != nil {
		s.panics.Add(1)
		s.log.Error("request panicked; its connection is closed", "from", ch.RemoteAddr(), "panic", p,
			"stack", string(debug.Stack()))
		ch.Close(ua.StatusBadInternalError)
	}
}

// dispatch finds the service, checks channel and session once for all of them, and runs it.
func (s *Server) dispatch(c *call) {
	c.header = c.body.RequestHeader()
	i, known := byRequest[c.typ]
	switch {
	case c.body.Err() != nil:
		c.fault(decodingStatus(c.body.Err()))
		return
	case !known:
		s.unknown.Add(1)
		c.fault(ua.StatusBadServiceUnsupported)
		return
	}
	s.requests[i].Add(1)
	sv := &services[i]
	if sv.needs >= secured && !s.offers(c.ch) {
		s.rejected.securityRequests.Add(1)
		c.fault(ua.StatusBadSecurityPolicyRejected)
		return
	}
	if sv.needs == activated {
		if code := s.admit(c); code != ua.StatusGood {
			s.rejected.securityRequests.Add(1)
			c.fault(code)
			return
		}
		c.row = i
		c.client.counts.received(i)
	}
	sv.run(s, c)
}

// admit finds the session of a request (Part 4, 5.6.2 and 5.6.3). A session that is used before it is activated is
// closed.
func (s *Server) admit(c *call) ua.StatusCode {
	cl, code := s.find(c)
	switch {
	case code != ua.StatusGood:
		return code
	case cl.Channel() != c.ch.ID():
		cl.counts.unauthorized.Add(1)
		return ua.StatusBadSecureChannelIDInvalid
	case !cl.Activated():
		s.sessions.Close(cl.Session, true)
		return ua.StatusBadSessionNotActivated
	}
	c.client = cl
	return ua.StatusGood
}

// find looks for the session of the request's AuthenticationToken.
func (s *Server) find(c *call) (*client, ua.StatusCode) {
	t := &c.header.Token
	if t.Type != wire.Opaque || t.NS != 0 {
		return nil, ua.StatusBadSessionIDInvalid
	}
	se := s.sessions.Find(t.Str)
	if se == nil {
		return nil, ua.StatusBadSessionIDInvalid
	}
	return se.Joined.(*client), ua.StatusGood
}

// decodingStatus is the service result for a message that cannot be read.
func decodingStatus(err error) ua.StatusCode {
	if errors.Is(err, wire.ErrLimit) {
		return ua.StatusBadEncodingLimitsExceeded
	}
	return ua.StatusBadDecodingError
}

// cold makes a handler of a service that decodes into package ua's types. The handler returns the response without its
// header, or a status for a ServiceFault; neither where it answers later.
func cold[Req any](f func(*Server, *call, Req) (ua.Response, ua.StatusCode)) func(*Server, *call) {
	return func(s *Server, c *call) {
		m, err := wire.DecodeRequest(c.typ, &c.body)
		if err != nil {
			c.fault(decodingStatus(err))
			return
		}
		req, ok := m.(Req)
		if !ok {
			c.fault(ua.StatusBadDecodingError)
			return
		}
		resp, code := f(s, c, req)
		if code != ua.StatusGood {
			c.fault(code)
			return
		}
		if resp != nil {
			c.respond(resp)
		}
	}
}

// message is a Body of package ua's types.
type message struct{ m any }

// AppendTo appends the message.
func (m message) AppendTo(dst []byte) []byte { return wire.AppendMessage(dst, m.m) }

// respond sends a response of package ua's types, with its header.
func (c *call) respond(resp ua.Response) {
	resp.SetHeader(responseHeader(c.header.Handle, ua.StatusGood))
	c.reply(message{resp})
}

// responseHeader is the header of a response or a ServiceFault.
func responseHeader(handle uint32, code ua.StatusCode) *ua.ResponseHeader {
	return &ua.ResponseHeader{Timestamp: time.Now().UTC(), RequestHandle: handle, ServiceResult: code}
}

// room is how many bytes an answer may have that can be cut to it: three quarters of what the client takes, for the
// response's header and the last entry, and at most a megabyte, so that no request makes the server hold much.
func (c *call) room() int { return min(c.most(), 1<<20) / 4 * 3 }

// most is how many bytes an answer may have, for the connection and for the session.
func (c *call) most() int {
	most := c.ch.MaxResponse()
	if m := c.client.Peer.MaxResponse; m > 0 && uint64(m) < uint64(most) {
		most = int(m)
	}
	return most
}

// around is more than what a response with one list has around it, in bytes.
const around = 64

// fits reports whether the client can take an answer of n results of that many bytes. A service that changes something
// asks before it does: a client that is told of a fault takes it that nothing was done.
func (c *call) fits(n, size int) bool { return around+n*size <= c.most() }

// send sends the answer, within what the client's session takes (Part 4, 5.7.2.2, maxResponseMessageSize).
func (c *call) send(b channel.Body) error {
	if c.client == nil {
		return c.ch.Reply(c.id, b)
	}
	return c.ch.ReplyWithin(c.id, b, c.client.Peer.MaxResponse)
}

// reply sends the answer. One that the client cannot take becomes a ServiceFault (Part 4, 5.3).
func (c *call) reply(b channel.Body) { c.unsent(c.send(b)) }

// unsent tells the client that the answer does not fit, if that is what err says.
func (c *call) unsent(err error) {
	if errors.Is(err, channel.ErrTooLarge) {
		c.fault(ua.StatusBadResponseTooLarge)
	}
}

// fault answers with a ServiceFault.
func (c *call) fault(code ua.StatusCode) {
	c.s.rejected.requests.Add(1)
	if c.client != nil {
		c.client.counts.failed(c.row)
	}
	_ = c.ch.Reply(c.id, &fault{c.header.Handle, code}) // a closed channel has nobody left to tell
}

// fault is the Body of a ServiceFault: a ResponseHeader and nothing else (Part 4, 7.35).
type fault struct {
	handle uint32
	code   ua.StatusCode
}

// AppendTo appends the ServiceFault.
func (f *fault) AppendTo(dst []byte) []byte {
	return wire.AppendResponseHeader(dst, id.ServiceFault_Encoding_DefaultBinary, f.handle, f.code, tag.Now())
}
