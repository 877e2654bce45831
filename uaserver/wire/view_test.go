package wire

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// views are all views, each as a function that reads the body behind the RequestHeader and returns what gopcua's struct
// would hold, one line an element.
var views = []struct {
	typeID uint32
	walk   func(*Reader) []string
	same   func(any) []string
}{
	{id.ReadRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.ReadRequest()
		out := []string{fmt.Sprint(v.MaxAge, v.Timestamps, v.N)}
		for i := (ReadValueID{}); v.Next(&i); {
			out = append(out, readLine(i))
		}
		return out
	}, func(m any) []string {
		q := m.(*ua.ReadRequest)
		out := []string{fmt.Sprint(q.MaxAge, q.TimestampsToReturn, len(q.NodesToRead))}
		for _, n := range q.NodesToRead {
			out = append(out, uaReadLine(n))
		}
		return out
	}},
	{id.WriteRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.WriteRequest()
		out := []string{fmt.Sprint(v.N)}
		var d DataValue
		for i := (WriteValue{}); v.Next(&i, &d); {
			out = append(out, fmt.Sprintf("%v %d %q %x %v", i.Node, i.Attribute, i.Range, AppendVariant(nil, d.Value), ua.StatusCode(d.Status)))
		}
		return out
	}, func(m any) []string {
		q := m.(*ua.WriteRequest)
		out := []string{fmt.Sprint(len(q.NodesToWrite))}
		for _, n := range q.NodesToWrite {
			out = append(out, fmt.Sprintf("%v %d %q %x %v", FromUA(n.NodeID), n.AttributeID, n.IndexRange, appendUAVariant(nil, n.Value.Value), n.Value.Status))
		}
		return out
	}},
	{id.BrowseRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.BrowseRequest()
		out := []string{fmt.Sprint(v.View.ID, cutTime(v.View.Timestamp), v.View.Version, v.MaxReferences, v.N)}
		for d, ok := v.Next(); ok; d, ok = v.Next() {
			out = append(out, fmt.Sprint(d.Node, d.Direction, d.ReferenceType, d.Subtypes, d.ClassMask, d.ResultMask))
		}
		return out
	}, func(m any) []string {
		q := m.(*ua.BrowseRequest)
		at := NewReader(appendGoTime(nil, q.View.Timestamp))
		out := []string{fmt.Sprint(FromUA(q.View.ViewID), at.Time(), q.View.ViewVersion, q.RequestedMaxReferencesPerNode, len(q.NodesToBrowse))}
		for _, n := range q.NodesToBrowse {
			out = append(out, fmt.Sprint(FromUA(n.NodeID), n.BrowseDirection, FromUA(n.ReferenceTypeID), n.IncludeSubtypes, n.NodeClassMask, n.ResultMask))
		}
		return out
	}},
	{id.BrowseNextRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.BrowseNextRequest()
		out := []string{fmt.Sprint(v.Release, v.N)}
		for p, ok := v.Next(); ok; p, ok = v.Next() {
			out = append(out, fmt.Sprintf("%x", p))
		}
		return out
	}, func(m any) []string {
		q := m.(*ua.BrowseNextRequest)
		out := []string{fmt.Sprint(q.ReleaseContinuationPoints, len(q.ContinuationPoints))}
		for _, p := range q.ContinuationPoints {
			out = append(out, fmt.Sprintf("%x", p))
		}
		return out
	}},
	{id.PublishRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.PublishRequest()
		out := []string{fmt.Sprint(v.N)}
		for a, ok := v.Next(); ok; a, ok = v.Next() {
			out = append(out, fmt.Sprint(a.Subscription, a.Sequence))
		}
		return out
	}, func(m any) []string {
		q := m.(*ua.PublishRequest)
		out := []string{fmt.Sprint(len(q.SubscriptionAcknowledgements))}
		for _, a := range q.SubscriptionAcknowledgements {
			out = append(out, fmt.Sprint(a.SubscriptionID, a.SequenceNumber))
		}
		return out
	}},
	{id.CreateMonitoredItemsRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.CreateMonitoredItemsRequest()
		out := []string{fmt.Sprint(v.Subscription, v.Timestamps, v.N)}
		for c, ok := v.Next(); ok; c, ok = v.Next() {
			out = append(out, fmt.Sprint(readLine(c.Item), c.Mode, parameterLine(c.Parameters)))
		}
		return out
	}, func(m any) []string {
		q := m.(*ua.CreateMonitoredItemsRequest)
		out := []string{fmt.Sprint(q.SubscriptionID, q.TimestampsToReturn, len(q.ItemsToCreate))}
		for _, c := range q.ItemsToCreate {
			out = append(out, fmt.Sprint(uaReadLine(c.ItemToMonitor), c.MonitoringMode, uaParameterLine(c.RequestedParameters)))
		}
		return out
	}},
	{id.ModifyMonitoredItemsRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.ModifyMonitoredItemsRequest()
		out := []string{fmt.Sprint(v.Subscription, v.Timestamps, v.N)}
		for c, ok := v.Next(); ok; c, ok = v.Next() {
			out = append(out, fmt.Sprint(c.ID, parameterLine(c.Parameters)))
		}
		return out
	}, func(m any) []string {
		q := m.(*ua.ModifyMonitoredItemsRequest)
		out := []string{fmt.Sprint(q.SubscriptionID, q.TimestampsToReturn, len(q.ItemsToModify))}
		for _, c := range q.ItemsToModify {
			out = append(out, fmt.Sprint(c.MonitoredItemID, uaParameterLine(c.RequestedParameters)))
		}
		return out
	}},
	{id.DeleteMonitoredItemsRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.DeleteMonitoredItemsRequest()
		return idLines(fmt.Sprint(v.Subscription, v.N), v.Next)
	}, func(m any) []string {
		q := m.(*ua.DeleteMonitoredItemsRequest)
		return uaIDLines(fmt.Sprint(q.SubscriptionID, len(q.MonitoredItemIDs)), q.MonitoredItemIDs)
	}},
	{id.SetMonitoringModeRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.SetMonitoringModeRequest()
		return idLines(fmt.Sprint(v.Subscription, v.Mode, v.N), v.Next)
	}, func(m any) []string {
		q := m.(*ua.SetMonitoringModeRequest)
		return uaIDLines(fmt.Sprint(q.SubscriptionID, q.MonitoringMode, len(q.MonitoredItemIDs)), q.MonitoredItemIDs)
	}},
	{id.SetPublishingModeRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.SetPublishingModeRequest()
		return idLines(fmt.Sprint(v.Enabled, v.N), v.Next)
	}, func(m any) []string {
		q := m.(*ua.SetPublishingModeRequest)
		return uaIDLines(fmt.Sprint(q.PublishingEnabled, len(q.SubscriptionIDs)), q.SubscriptionIDs)
	}},
	{id.TransferSubscriptionsRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.TransferSubscriptionsRequest()
		return idLines(fmt.Sprint(v.Initial, v.N), v.Next)
	}, func(m any) []string {
		q := m.(*ua.TransferSubscriptionsRequest)
		return uaIDLines(fmt.Sprint(q.SendInitialValues, len(q.SubscriptionIDs)), q.SubscriptionIDs)
	}},
	{id.SetTriggeringRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.SetTriggeringRequest()
		return idLines(fmt.Sprint(v.Subscription, v.Item, v.N, v.Removed), v.Next)
	}, func(m any) []string {
		q := m.(*ua.SetTriggeringRequest)
		return uaIDLines(fmt.Sprint(q.SubscriptionID, q.TriggeringItemID, len(q.LinksToAdd), len(q.LinksToRemove)), append(q.LinksToAdd, q.LinksToRemove...))
	}},
	{id.CallRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.CallRequest()
		out := []string{fmt.Sprint(v.N)}
		for c, ok := v.Next(); ok; c, ok = v.Next() {
			line := fmt.Sprint(c.Object, c.Method, len(c.Inputs))
			for _, x := range c.Inputs {
				line += fmt.Sprintf(" %x", AppendVariant(nil, x))
			}
			out = append(out, line)
		}
		return out
	}, func(m any) []string {
		q := m.(*ua.CallRequest)
		out := []string{fmt.Sprint(len(q.MethodsToCall))}
		for _, c := range q.MethodsToCall {
			line := fmt.Sprint(FromUA(c.ObjectID), FromUA(c.MethodID), len(c.InputArguments))
			for _, x := range c.InputArguments {
				line += fmt.Sprintf(" %x", appendUAVariant(nil, x))
			}
			out = append(out, line)
		}
		return out
	}},
	{id.DeleteSubscriptionsRequest_Encoding_DefaultBinary, func(r *Reader) []string {
		v := r.DeleteSubscriptionsRequest()
		return idLines(fmt.Sprint(v.N), v.Next)
	}, func(m any) []string {
		q := m.(*ua.DeleteSubscriptionsRequest)
		return uaIDLines(fmt.Sprint(len(q.SubscriptionIDs)), q.SubscriptionIDs)
	}},
}

func readLine(v ReadValueID) string {
	return fmt.Sprintf("%v %d %q %d %q", v.Node, v.Attribute, v.Range, v.EncodingNS, v.Encoding)
}

func uaReadLine(v *ua.ReadValueID) string {
	return fmt.Sprintf("%v %d %q %d %q", FromUA(v.NodeID), v.AttributeID, v.IndexRange, v.DataEncoding.NamespaceIndex, v.DataEncoding.Name)
}

func parameterLine(p MonitoringParameters) string {
	return fmt.Sprintf("%d %v %x %d %v", p.ClientHandle, p.Sampling, AppendExtension(nil, &p.Filter), p.QueueSize, p.DiscardOldest)
}

func uaParameterLine(p *ua.MonitoringParameters) string {
	return fmt.Sprintf("%d %v %x %d %v", p.ClientHandle, p.SamplingInterval, appendUAExtensionObject(nil, p.Filter), p.QueueSize, p.DiscardOldest)
}

func idLines(head string, next func() (uint32, bool)) []string {
	out := []string{head}
	for n, ok := next(); ok; n, ok = next() {
		out = append(out, fmt.Sprint(n))
	}
	return out
}

func uaIDLines(head string, ids []uint32) []string {
	out := []string{head}
	for _, n := range ids {
		out = append(out, fmt.Sprint(n))
	}
	return out
}

// request is a filled message of the type, and its bytes from the header on.
func request(typeID uint32, seed uint64) (any, []byte) {
	msg := decodeMessage(typeID, &Reader{}, true)
	newFiller(seed).fill(reflect.ValueOf(msg).Elem(), 0)
	r := NewReader(AppendMessage(nil, msg))
	r.NodeID()
	return msg, r.Rest()
}

func TestViewsAgainstStructs(t *testing.T) {
	for _, v := range views {
		for seed := range uint64(50) {
			msg, b := request(v.typeID, seed)
			r := NewReader(b)
			h := r.RequestHeader()
			if u := msg.(ua.Request).Header(); h.Handle != u.RequestHandle || h.Token != FromUA(u.AuthenticationToken) ||
				h.AuditID != u.AuditEntryID || h.TimeoutHint != u.TimeoutHint || h.Diagnostics != u.ReturnDiagnostics {
				t.Fatalf("%T seed %d: header %v of %v", msg, seed, h, u)
			}
			body := r
			got, want := v.walk(&r), v.same(msg)
			if !reflect.DeepEqual(got, want) || r.Err() != nil || len(r.Rest()) != 0 {
				t.Fatalf("%T seed %d: %v, %d bytes left\n got %q\nwant %q", msg, seed, r.Err(), len(r.Rest()), got, want)
			}
			if m, err := DecodeRequest(v.typeID, &body); err != nil || !reflect.DeepEqual(v.same(m), want) {
				t.Fatalf("%T seed %d: read behind the header: %v", msg, seed, err)
			}
		}
	}
}

// walkedOnce are the views whose callers gather all items before they look at the Reader's Err.
var walkedOnce = map[uint32]bool{id.ReadRequest_Encoding_DefaultBinary: true, id.WriteRequest_Encoding_DefaultBinary: true}

// TestViewsAreWhole: a request that is malformed anywhere offers no element at all, so that nothing of it is executed. One
// of those that are walked once has an error at the end, and offers no element behind it.
func TestViewsAreWhole(t *testing.T) {
	for _, v := range views {
		msg, b := request(v.typeID, 3)
		for n := range b {
			r := NewReader(b[:n])
			r.RequestHeader()
			if r.Err() != nil {
				continue
			}
			if got := v.walk(&r); r.Err() == nil || len(got) != 1 && !walkedOnce[v.typeID] || len(got) >= len(v.same(msg)) && len(got) > 1 {
				t.Errorf("%T cut to %d of %d bytes: %v, elements %q", msg, n, len(b), r.Err(), got)
			}
		}
	}
}
