package uaserver

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/channel"
	"edged/uaserver/event"
	"edged/uaserver/wire"
)

// maxAudits is how many audit events a second are told one by one; what comes beyond that is one event with a count.
const maxAudits = 100

// auditor raises audit events (Part 4, 6.5), as far as somebody watches who may see them.
type auditor struct {
	hub *event.Hub

	mu    sync.Mutex // guards all below
	since time.Time
	told  int
	more  int
	timer *time.Timer // tells of more
}

// take is how many of n events there is room for.
func (a *auditor) take(n int) int {
	if !a.hub.Audited() {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.since) >= time.Second {
		a.since, a.told = now, 0
	}
	ok := min(n, max(0, maxAudits-a.told))
	a.told += ok
	if a.more += n - ok; a.more > 0 && a.timer == nil {
		a.timer = time.AfterFunc(time.Second, a.sum)
	}
	return ok
}

// sum tells how many events were left out.
func (a *auditor) sum() {
	a.mu.Lock()
	n := a.more
	a.more, a.timer = 0, nil
	a.mu.Unlock()
	a.hub.Raise(&event.Event{
		Type: event.Type(id.AuditEventType), Severity: 300, Audit: true,
		Message: fmt.Sprintf("%d more requests that are audited came in a second", n),
	})
}

// stop ends the timer.
func (a *auditor) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
}

// audit raises an event of that type about a request, with fields beside those of AuditEventType (Part 5, 6.4.3).
func (s *Server) audit(typ uint32, good bool, source *address.Node, user, entry, message string, fields ...event.Field) {
	severity := uint16(100)
	if !good {
		severity = 500
	}
	s.events.Raise(&event.Event{
		Type: event.Type(typ), Source: source, Severity: severity, Message: message, Audit: true,
		Fields: append(fields,
			event.Field{Path: "ActionTimeStamp", Value: tag.Of(tag.Now())},
			event.Field{Path: "Status", Value: tag.Of(good)},
			event.Field{Path: "ServerId", Value: tag.Of(s.cfg.ApplicationURI)},
			event.Field{Path: "ClientAuditEntryId", Value: tag.Of(entry)},
			event.Field{Path: "ClientUserId", Value: tag.Of(user)}),
	})
}

// sessionFields are what events about sessions have in common (Part 5, 6.4.7).
func sessionFields(session uint32, ch *channel.Channel) []event.Field {
	return []event.Field{
		{Path: "SessionId", Value: wire.NodeIDValue(wire.NumericID(address.NamespaceApplication, session))},
		{Path: "SecureChannelId", Value: tag.Of(fmt.Sprint(ch.ID()))},
	}
}

// Opened implements channel.Opener with an AuditOpenSecureChannelEvent (Part 5, 6.4.6).
func (h handler) Opened(ch *channel.Channel) {
	s := h.s
	if s.auditor.take(1) == 0 {
		return
	}
	s.audit(id.AuditOpenSecureChannelEventType, true, nil, "", "",
		fmt.Sprintf("OpenSecureChannel: %s, %s", ch.RemoteAddr(), ch.Mode()),
		append(certificateFields(ch.ClientCertificate()),
			event.Field{Path: "SecureChannelId", Value: tag.Of(fmt.Sprint(ch.ID()))},
			event.Field{Path: "RequestType", Value: tag.Of(int32(ua.SecurityTokenRequestTypeIssue))},
			event.Field{Path: "SecurityPolicyUri", Value: tag.Of(ch.PolicyURI())},
			event.Field{Path: "SecurityMode", Value: tag.Of(int32(ch.Mode()))})...)
}

// auditUntrusted tells of a user's certificate that was not taken (Part 5, 6.4.12 ff.).
func (s *Server) auditUntrusted(cert []byte, why error) {
	s.audit(id.AuditCertificateUntrustedEventType, false, nil, "", "", fmt.Sprintf("a user's certificate is not taken: %v", why),
		event.Field{Path: "Certificate", Value: tag.OfBytes(cert)})
}

// certificateFields are the ones of a client's certificate.
func certificateFields(cert []byte) []event.Field {
	if len(cert) == 0 {
		return nil
	}
	thumb := sha1.Sum(cert) // as the standard names certificates (Part 4, 7.2)
	return []event.Field{{Path: "ClientCertificate", Value: tag.OfBytes(cert)}, {Path: "ClientCertificateThumbprint", Value: tag.Of(hex.EncodeToString(thumb[:]))}}
}

// auditSession tells of a session that was made, activated or closed, or was to be.
func (s *Server) auditSession(typ uint32, ch *channel.Channel, cl *client, entry, user string, code ua.StatusCode) {
	if s.auditor.take(1) == 0 {
		return
	}
	var number uint32
	client := ch.RemoteAddr().String()
	if cl != nil {
		number = cl.ID
		client = cl.Peer.Name + " from " + client
	}
	fields := sessionFields(number, ch)
	fields = append(fields, event.Field{Path: "StatusCodeId", Value: tag.Of(tag.Status(code))})
	if typ == id.AuditCreateSessionEventType {
		fields = append(fields, certificateFields(ch.ClientCertificate())...)
		if cl != nil {
			fields = append(fields, event.Field{Path: "RevisedSessionTimeout", Value: tag.Of(millis(cl.Timeout))})
		}
	}
	what := map[uint32]string{
		id.AuditCreateSessionEventType: "CreateSession", id.AuditActivateSessionEventType: "ActivateSession", id.AuditSessionEventType: "CloseSession",
	}[typ]
	s.audit(typ, code == ua.StatusGood, nil, user, clip(entry), fmt.Sprintf("%s: %s: %s", what, client, tag.Status(code)), fields...)
}

// audited is a value before it is written.
type audited struct {
	item  int
	old   tag.Value
	part  string
	entry string // ClientAuditEntryId
}

// auditWrites notes the values before a Write for events about it. It is called where noteWrites is.
func (s *Server) auditWrites(c *call, w *writing) []audited {
	n := s.auditor.take(len(w.items))
	if n == 0 {
		return nil
	}
	notes := make([]audited, 0, n)
	entry := clip(c.header.AuditID)
	for i := range w.items[:n] {
		it := &w.items[i]
		if it.Node == nil {
			continue
		}
		a := audited{item: i, entry: entry, part: strings.Clone(it.Range[:min(len(it.Range), maxShown)])}
		if it.Node.Class == ua.NodeClassVariable {
			old := []address.ReadItem{{Node: it.Node, Attribute: ua.AttributeIDValue}}
			s.space.Read(s.ctx, address.MayRead.With(address.Everybody|address.Nobody), old)
			a.old = old[0].Result.Value
		}
		notes = append(notes, a)
	}
	return notes
}

// tellWrites raises AuditWriteUpdateEvents (Part 5, 6.4.26) of what a Write has done.
func (s *Server) tellWrites(c *call, w *writing, notes []audited) {
	for _, a := range notes {
		it := &w.items[a.item]
		s.audit(id.AuditWriteUpdateEventType, !it.Status.IsBad(), it.Node, c.client.userName(), a.entry,
			fmt.Sprintf("Write: %s: %s to %s: %s", it.Node.ID, shown(a.old), shown(it.Value.Value), it.Status),
			event.Field{Path: "AttributeId", Value: tag.Of(uint32(it.Attribute))},
			event.Field{Path: "IndexRange", Value: tag.Of(a.part)},
			event.Field{Path: "OldValue", Value: a.old},
			event.Field{Path: "NewValue", Value: it.Value.Value})
	}
}

// tellCalls raises AuditUpdateMethodEvents (Part 5, 6.4.27).
func (s *Server) tellCalls(c *call, w *calling) {
	for i := range w.items {
		it := &w.items[i]
		if it.Object == nil || it.Method == nil || s.auditor.take(1) == 0 {
			continue
		}
		s.audit(id.AuditUpdateMethodEventType, !it.Status.IsBad(), it.Object, c.client.userName(), w.entry,
			fmt.Sprintf("Call: %s: %s", it.Method.ID, it.Status),
			event.Field{Path: "MethodId", Value: wire.NodeIDValue(it.Method.ID)},
			event.Field{Path: "StatusCodeId", Value: tag.Of(it.Status)},
			event.Field{Path: "InputArguments", Value: variants(it.Inputs)},
			event.Field{Path: "OutputArguments", Value: variants(it.Outputs)})
	}
}

// variants is an array of Variants.
func variants(list []tag.Value) tag.Value {
	b := wire.AppendUint32([]byte{0x80 | 24}, uint32(len(list)))
	for _, v := range list {
		b = wire.AppendVariant(b, v)
	}
	return tag.OfRaw(b)
}
