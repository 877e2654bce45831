package uaserver

import (
	"context"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// calling is one Call in the making, and the Body of its answer.
type calling struct {
	handle uint32
	items  []address.CallItem
	entry  string // ClientAuditEntryId
}

// callResultBytes is the size of a CallMethodResult without results of inputs and outputs.
const callResultBytes = 16

// callMethods answers Call (Part 4, 5.12.2). The whole request was read before any method is called. Methods are called in
// the order of the request; where one waits for a device, all of them have a goroutine of their own.
func (s *Server) callMethods(c *call) {
	w, waits, code := s.beginCall(c)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	if !waits {
		s.space.Call(c.invoker(s.ctx), c.client.may(), w.items)
		s.tellCalls(c, w)
		c.reply(w)
		s.logCalls(c, w)
		return
	}
	ok := s.apart(c, func(context.Context) {}, func(ctx context.Context, c *call) func() {
		s.space.Call(c.invoker(ctx), c.client.may(), w.items)
		return func() {
			s.tellCalls(c, w)
			c.reply(w) // also of a cancelled request: what was done is done, and the client is told
			s.logCalls(c, w)
		}
	})
	if !ok {
		c.fault(statusBadServerTooBusy)
	}
}

// beginCall reads the request, and tells whether carrying it out waits for a device. Nothing aliases the connection's
// buffer.
func (s *Server) beginCall(c *call) (w *calling, waits bool, code ua.StatusCode) {
	v := c.body.CallRequest()
	if err := c.body.Err(); err != nil {
		return nil, false, decodingStatus(err)
	}
	if code := operations(v.N, s.cfg.Limits.Methods); code != ua.StatusGood {
		return nil, false, code
	}
	if !c.fits(v.N, callResultBytes) {
		return nil, false, ua.StatusBadResponseTooLarge
	}
	w = &calling{handle: c.header.Handle, entry: clip(c.header.AuditID), items: make([]address.CallItem, 0, v.N)}
	for m, ok := v.Next(); ok; m, ok = v.Next() {
		it := address.CallItem{Object: c.node(&m.Object), Method: c.node(&m.Method), Inputs: m.Inputs}
		w.items = append(w.items, it)
		if it.Method != nil && !waits {
			d, ok := it.Method.Manager.(slow)
			waits = ok && d.Waits(it.Method)
		}
	}
	if err := c.body.Err(); err != nil {
		return nil, false, decodingStatus(err)
	}
	return w, waits, ua.StatusGood
}

// AppendTo appends the CallResponse.
func (w *calling) AppendTo(dst []byte) []byte {
	dst = wire.AppendResponseHeader(dst, id.CallResponse_Encoding_DefaultBinary, w.handle, ua.StatusGood, tag.Now())
	dst = wire.AppendUint32(dst, uint32(len(w.items)))
	for i := range w.items {
		it := &w.items[i]
		dst = wire.AppendUint32(dst, uint32(it.Status))
		dst = wire.AppendUint32(dst, uint32(len(it.InputStatus)))
		for _, st := range it.InputStatus {
			dst = wire.AppendUint32(dst, uint32(st))
		}
		dst = wire.AppendNull(dst) // InputArgumentDiagnosticInfos
		dst = wire.AppendUint32(dst, uint32(len(it.Outputs)))
		for _, v := range it.Outputs {
			dst = wire.AppendVariant(dst, v)
		}
	}
	return wire.AppendNull(dst) // no diagnostics
}

// logCalls tells who called what, and the result, as far as the log has room for lines about what clients do. The
// server's own methods change nothing but the caller's Subscriptions.
func (s *Server) logCalls(c *call, w *calling) {
	for i := range w.items {
		it := &w.items[i]
		if it.Object == nil || it.Method == nil || it.Method.Manager == s.status {
			continue
		}
		if !s.mayLog(c) {
			continue
		}
		s.log.Info("call", "object", it.Object.ID.String(), "method", it.Method.ID.String(), "status", it.Status.String(),
			"user", c.client.userName(), "session", c.client.Peer.Name, "client", c.client.Peer.ApplicationName, "from", c.ch.RemoteAddr())
	}
}

// mayLog counts one line about what a client does, and reports whether the log takes it.
func (s *Server) mayLog(c *call) bool {
	told, missed := c.client.writes.take(1, maxWritten)
	if told > 0 {
		told, _ = s.writes.take(1, maxWrittenAll)
	}
	if missed > 0 {
		s.log.Info("writes and calls came too fast for the log", "session", c.client.Peer.Name, "user", c.client.userName(), "lines left out", missed)
	}
	return told > 0
}

// callerKey is the context's key for what the server's own methods need of a request.
type callerKey struct{}

// ownCall is what they need.
type ownCall struct {
	client *client
	room   int // bytes that are left for outputs: few bytes ask for much
}

// invoker is ctx with who calls.
func (c *call) invoker(ctx context.Context) context.Context {
	who := address.Invoker{Rights: c.client.may(), Session: c.client.ID}
	if w := c.client.who.Load(); w != nil {
		who.User = w.user
	}
	ctx = context.WithValue(ctx, callerKey{}, &ownCall{c.client, c.room()})
	return address.WithInvoker(ctx, who)
}

// method is one method of the Server object.
type method struct {
	id  uint32
	run func(o *ownCall, it *address.CallItem) ua.StatusCode
}

// methods are what the Server object can do (Part 5, 6.3.1). SetSubscriptionDurable is not among them as long as no
// Subscription is durable: its node is taken out of namespace 0 (address/gen).
var methods = [...]method{
	{id.Server_GetMonitoredItems, getMonitoredItems},
	{id.Server_ResendData, resendData},
}

// ownMethods has status manage the methods. Each session may call them: they are about its own Subscriptions.
func (m *status) ownMethods() error {
	for i := range methods {
		node := wire.NumericID(0, methods[i].id)
		if err := m.s.space.Manage(node, m); err != nil {
			return err
		}
		n := m.s.space.Find(node)
		n.Token = uint32(i)
		n.Permissions = address.Permissions{Browse: address.Everybody, Call: address.Everybody}
	}
	return nil
}

// Call implements address.Caller.
func (m *status) Call(ctx context.Context, calls []address.CallItem) {
	o, ok := ctx.Value(callerKey{}).(*ownCall)
	for i := range calls {
		it := &calls[i]
		if !ok {
			it.Status = tag.BadUserAccessDenied // no session
			continue
		}
		it.Status = tag.Status(methods[it.Method.Token].run(o, it))
	}
}

// getMonitoredItems is GetMonitoredItems (Part 5, 9.1).
func getMonitoredItems(o *ownCall, it *address.CallItem) ua.StatusCode {
	ids, handles, code := o.client.pub.Items(uint32(it.Inputs[0].Bits()), o.room/8)
	if code == ua.StatusGood {
		o.room -= 8 * len(ids)
		it.Outputs = []tag.Value{tag.OfSlice(ids), tag.OfSlice(handles)}
	}
	return code
}

// resendData is ResendData (Part 5, 9.2).
func resendData(o *ownCall, it *address.CallItem) ua.StatusCode {
	return o.client.pub.Resend(uint32(it.Inputs[0].Bits()))
}
