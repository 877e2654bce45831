package uaserver

import (
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
)

// TestCertificateDaysLeft is C9: the own certificate's end as a node.
func TestCertificateDaysLeft(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	node := ua.NewStringNodeID(1, "certificate.daysLeft")
	days := int32(f.own.DaysLeft(time.Now()))
	for _, row := range []struct {
		name, index string
		want        ua.StatusCode
	}{{"C9 days", "", ua.StatusOK}, {"C9 no part of a number", "0:1", ua.StatusBadIndexRangeNoData}} {
		r := must[*ua.ReadResponse](p, &ua.ReadRequest{NodesToRead: []*ua.ReadValueID{{NodeID: node, AttributeID: ua.AttributeIDValue, IndexRange: row.index, DataEncoding: &ua.QualifiedName{}}}})
		v := r.Results[0]
		if v.Status != row.want {
			t.Errorf("%s: %v", row.name, v.Status)
		}
		if row.want == ua.StatusOK && (v.Value.Value() != days || days < 3600) {
			t.Errorf("%s: %v, want %d", row.name, v.Value.Value(), days)
		}
	}
	w := must[*ua.WriteResponse](p, &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{NodeID: node, AttributeID: ua.AttributeIDValue,
		Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(int32(1))}}}})
	if w.Results[0] != ua.StatusBadNotWritable {
		t.Errorf("C9 written: %v", w.Results[0])
	}
}
