package uaserver

import (
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

func ledgerID(name string) *ua.NodeID { return ua.NewStringNodeID(1, "ledger."+name) }

// ledger reads all variables of the ledger, as a client that browses for them does.
func (p *peer) ledger() map[string]any {
	p.t.Helper()
	r := must[*ua.BrowseResponse](p, &ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, NodesToBrowse: []*ua.BrowseDescription{{
		NodeID: ua.NewStringNodeID(1, "ledger"), ReferenceTypeID: ua.NewNumericNodeID(0, id.HasComponent), ResultMask: 63,
	}}})
	out := map[string]any{}
	for _, ref := range r.Results[0].References {
		v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(ref.NodeID.NodeID)}})[0]
		if v.Status != ua.StatusOK {
			p.t.Errorf("%v: %v", ref.NodeID, v.Status)
			continue
		}
		out[ref.BrowseName.Name] = v.Value.Value()
	}
	return out
}

// TestLedgerNodes: what became of every notification, as a client reads it.
func TestLedgerNodes(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	sub := p.subscription()
	must[*ua.CreateMonitoredItemsResponse](p, createItems(sub, itemRequest(plantID("boiler.counter"), 1, 3)))
	p.post(publishRequest())
	p.published()
	for i := range uint32(10) {
		f.tags.Publish([]tag.Sample{{Ref: f.ref(t, "boiler.counter"), Value: tag.Of(i + 1000), At: tag.Now()}})
	}
	time.Sleep(ledgerAge) // its values are as old as that
	got := p.ledger()
	if len(got) != len(ledgerVariables) {
		t.Fatalf("%d variables, want %d: %v", len(got), len(ledgerVariables), got)
	}
	for name, want := range map[string]any{
		"unaccounted": uint64(0), "notifications_sent_total": uint64(1), "notifications_waiting": uint64(3),
		"notifications_discarded_total.overflow": uint64(7), "notifications_discarded_total.coalesced": uint64(0),
		"messages_held": uint64(1),
		"samples": "new 11 = unchanged 0 + filtered 0 + sampled out 0 + queued 11; queued = sent 1 + waiting 3 + " +
			"overwritten 0 + overflowed 7 + out of memory 0 + disabled 0 + deleted 0 + expired 0",
		"messages": "sent = acknowledged 0 + evicted 0 + abandoned 0 + held 1",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if left, ok := got["time_to_loss_seconds"].(float64); !ok || left < 0 || left > 60 {
		t.Errorf("time_to_loss_seconds is %v: nobody publishes", got["time_to_loss_seconds"])
	}
	for name, want := range map[string]string{"clients": "1 items", "tags": "boiler.counter: lost 7", "away": "no Publish request for"} {
		if list, ok := got[name].([]string); !ok || len(list) != 1 || !strings.Contains(list[0], want) {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	// The loss is drained, and with it comes the advice.
	p.post(publishRequest())
	if n := changes(p.published()); len(n) != 3 || n[0].Value.Status != 0x480 {
		t.Errorf("%d notifications, the first %v", len(n), n[0].Value.Status)
	}
	time.Sleep(ledgerAge)
	if list, _ := p.ledger()["advice"].([]string); len(list) != 1 || !strings.Contains(list[0], "boiler.counter") {
		t.Errorf("advice is %v", list)
	}
	part := value(ledgerID("clients"))
	part.IndexRange = "0"
	whole := value(ledgerID("clients"))
	whole.IndexRange = "x"
	r := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{part, whole}})
	if list, ok := r[0].Value.Value().([]string); !ok || len(list) != 1 || r[1].Status != ua.StatusBadIndexRangeInvalid {
		t.Errorf("ranges: %v, %v", r[0].Value, r[1].Status)
	}
	w := must[*ua.WriteResponse](p, &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{NodeID: ledgerID("unaccounted"), AttributeID: ua.AttributeIDValue,
		Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(uint64(1))}}}})
	if w.Results[0] != ua.StatusBadNotWritable {
		t.Errorf("written: %v", w.Results[0])
	}
}

// TestLedgerRowsAreBounded: a list says how much of it is left out.
func TestLedgerRowsAreBounded(t *testing.T) {
	list := make([]int, 250)
	got := texts(list, 7, func(*int) string { return "a\xffb" })
	if len(got) != ledgerRows+1 || got[ledgerRows] != "and 157 more" || got[0] != "a?b" {
		t.Errorf("%d rows, the last %s", len(got), got[len(got)-1])
	}
}
