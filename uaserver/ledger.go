package uaserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/subscription"
	"edged/uaserver/wire"
)

// ledgerNodes is the NodeManager of the ledger: what became of every notification, and what clients can do about losses.
// Its values are made when they are read, at most once a ledgerAge, since that looks at every MonitoredItem.
type ledgerNodes struct {
	engine *subscription.Engine

	mu     sync.Mutex // guards all below; held while the report is made
	made   time.Time
	at     tag.Time // of made
	report subscription.Report
}

const (
	ledgerAge  = time.Second
	ledgerRows = 100 // of each list at most
)

// ledgerNode is one variable of the ledger.
type ledgerNode struct {
	name     string
	dataType uint32
	rank     int32
	about    string
	value    func(r *subscription.Report) tag.Value
}

// count is a variable that counts.
func count(name, about string, of func(r *subscription.Report) uint64) ledgerNode {
	return ledgerNode{name, id.UInt64, -1, about, func(r *subscription.Report) tag.Value { return tag.Of(of(r)) }}
}

// rows is a variable with a text a row.
func rows(name, about string, of func(r *subscription.Report) []string) ledgerNode {
	return ledgerNode{name, id.String, 1, about, func(r *subscription.Report) tag.Value { return tag.OfSlice(of(r)) }}
}

// ledgerVariables are the variables, by Token; their names are those of the metrics.
var ledgerVariables = [...]ledgerNode{
	count("unaccounted", "Notifications that the ledger cannot account for; anything but 0 is a fault of the gateway.",
		func(r *subscription.Report) uint64 { return r.Unaccounted }),
	{"samples", id.String, -1, "new = unchanged + filtered + sampled out + queued; queued = sent + waiting + what is lost.",
		func(r *subscription.Report) tag.Value { return tag.Of(r.Counts.String()) }},
	{"messages", id.String, -1, "sent = acknowledged + evicted + abandoned + held; notifications in messages.",
		func(r *subscription.Report) tag.Value { return tag.Of(r.Messages.String()) }},
	count("notifications_sent_total", "Notifications sent.", func(r *subscription.Report) uint64 { return r.Sent }),
	count("notifications_waiting", "Notifications that wait in queues.", func(r *subscription.Report) uint64 { return r.Waiting }),
	count("notifications_discarded_total.overflow", "Lost to queues longer than one, with the Overflow bit.",
		func(r *subscription.Report) uint64 { return r.Overflowed }),
	count("notifications_discarded_total.memory", "Lost though their queue had places, for want of memory, with the Overflow bit.",
		func(r *subscription.Report) uint64 { return r.Exhausted }),
	count("notifications_discarded_total.coalesced", "Overwritten by a newer one in queues of one.",
		func(r *subscription.Report) uint64 { return r.Overwritten }),
	count("notifications_discarded_total.lifetime", "Went with subscriptions whose lifetime ended.",
		func(r *subscription.Report) uint64 { return r.Expired }),
	count("notifications_discarded_total.disabled", "Went when their client disabled the item.",
		func(r *subscription.Report) uint64 { return r.Disabled }),
	count("notifications_discarded_total.deleted", "Went when their client deleted the item or the subscription.",
		func(r *subscription.Report) uint64 { return r.Deleted }),
	count("notifications_discarded_total.retransmission", "In messages that were given up before they were acknowledged.",
		func(r *subscription.Report) uint64 { return r.Messages.EvictedIn }),
	count("messages_held", "Messages that are kept for Republish.", func(r *subscription.Report) uint64 { return r.Messages.Held }),
	count("messages_republished_total", "Messages that were asked for again.", func(r *subscription.Report) uint64 { return r.Messages.Republished }),
	count("items_short", "Items of which more comes in a publishing interval than their queue holds.",
		func(r *subscription.Report) uint64 { return uint64(r.Short) }),
	{"time_to_loss_seconds", id.Double, -1, "Until the first loss of a client that is away; -1: none is away.",
		func(r *subscription.Report) tag.Value {
			if len(r.Away) == 0 {
				return tag.Of(-1.0)
			}
			return tag.Of(r.Away[0].Left.Seconds())
		}},
	rows("advice", "What clients lose, and what would keep them from it.", func(r *subscription.Report) []string {
		return texts(r.Advice, 0, func(a *subscription.Advice) string { return a.Text })
	}),
	rows("clients", "The ledger by client.", func(r *subscription.Report) []string {
		return texts(r.Clients, 0, (*subscription.ClientReport).String)
	}),
	rows("tags", "The ledger of the tags that lost something or whose queue is too short, the most lost first.",
		func(r *subscription.Report) []string { return texts(r.Tags, r.More, (*subscription.TagReport).String) }),
	rows("away", "Clients that are away, and how long until they lose something.", func(r *subscription.Report) []string {
		return texts(r.Away, 0, (*subscription.Away).String)
	}),
}

// texts are the rows of a list, with a last one that says how many are left out.
func texts[T any](list []T, more int, text func(*T) string) []string {
	if over := len(list) - ledgerRows; over > 0 {
		list, more = list[:ledgerRows], more+over
	}
	out := make([]string, 0, len(list)+1)
	for i := range list {
		out = append(out, strings.ToValidUTF8(text(&list[i]), "?"))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// describeLedger adds the ledger below VendorServerInfo (Part 5, 6.3.1).
func describeLedger(space *address.Space, engine *subscription.Engine) error {
	object := wire.TextID(address.NamespaceApplication, "ledger")
	link := func(from wire.NodeID, kind uint32, to wire.NodeID) address.Reference {
		return address.Reference{Source: from, Type: wire.NumericID(0, kind), Target: to}
	}
	nodes := []*address.Node{{
		ID: object, BrowseName: "ledger", Attributes: &address.Attributes{
			Class: ua.NodeClassObject, BrowseNS: address.NamespaceApplication,
			More: &address.More{Description: "What became of every notification."},
		},
	}}
	refs := []address.Reference{
		link(wire.NumericID(0, id.Server_VendorServerInfo), id.HasComponent, object),
		link(object, id.HasTypeDefinition, wire.NumericID(0, id.BaseObjectType)),
	}
	manager := &ledgerNodes{engine: engine}
	for i, v := range ledgerVariables {
		more := &address.More{Description: v.about}
		if v.rank == 1 {
			more.Dims = []uint32{0}
		}
		n := &address.Node{
			ID: wire.TextID(address.NamespaceApplication, "ledger."+v.name), BrowseName: v.name, Token: uint32(i),
			Attributes: &address.Attributes{
				Class: ua.NodeClassVariable, BrowseNS: address.NamespaceApplication, DataType: wire.NumericID(0, v.dataType),
				Rank: v.rank, Access: ua.AccessLevelTypeCurrentRead, MinSampling: float64(ledgerAge / time.Millisecond), Manager: manager, More: more,
			},
		}
		nodes = append(nodes, n)
		refs = append(refs, link(object, id.HasComponent, n.ID),
			link(n.ID, id.HasTypeDefinition, wire.NumericID(0, id.BaseDataVariableType)))
	}
	if err := space.Add(nodes, refs); err != nil {
		return fmt.Errorf("uaserver: nodes of the ledger: %w", err)
	}
	return nil
}

// now is the report, no older than ledgerAge. Whoever has it only reads it.
func (m *ledgerNodes) now() (*subscription.Report, tag.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made.IsZero() || time.Since(m.made) >= ledgerAge {
		m.report, m.made, m.at = m.engine.Report(ledgerRows), time.Now(), tag.Now()
	}
	r := m.report
	return &r, m.at
}

// Read implements address.NodeManager.
func (m *ledgerNodes) Read(_ context.Context, items []address.ReadItem) {
	report, at := m.now()
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
		it.Result.Value, it.Result.Status = address.ApplyRange(ledgerVariables[it.Node.Token].value(report), r)
		it.Result.Source, it.Result.Server = at, at
	}
}

// Write implements address.NodeManager: nothing of the ledger can be written.
func (*ledgerNodes) Write(_ context.Context, items []address.WriteItem) {
	for i := range items {
		items[i].Status = tag.BadNotWritable
	}
}

// Series implements address.NodeManager: the values are sampled by reading.
func (*ledgerNodes) Series(*address.Node) *address.Series { return nil }
