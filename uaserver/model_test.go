package uaserver

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// said is a Definer that says one thing.
type said string

func (s said) Definition(uint32) string { return string(s) }

// modelDefs is a tag of each type of Part 8.
var modelDefs = []tag.Def{
	{Device: "model", Name: "flow", Kind: tag.Float64, Access: tag.Readable, Unit: "m3/h", HasRange: true, Low: 0, High: 200,
		Instrument: tag.Span{Low: -20, High: 250}, Decimals: 3, How: said("holding:4 int16 * 0.01")},
	{Device: "model", Name: "valve", Kind: tag.Bool, Access: tag.Readable, States: tag.States("").With(0, "closed").With(1, "open")},
	{Device: "model", Name: "mode", Kind: tag.Uint16, Access: tag.Readable, States: tag.States("").With(0, "off").With(5, "heating")},
}

// TestI4Properties browses and reads the properties of tags with a stock client.
func TestI4Properties(t *testing.T) {
	f := start(t, nil)
	c := gopcuaClient(t, f, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	f.tags.Publish([]tag.Sample{{Ref: f.ref(t, "model.mode"), Value: tag.Of(uint16(5)), At: tag.Now()}})
	for _, row := range []struct {
		tag        string
		definition uint32
		properties map[string]func(v any) bool
	}{
		{"flow", id.AnalogUnitRangeType, map[string]func(v any) bool{
			"EURange":          func(v any) bool { return *v.(*ua.ExtensionObject).Value.(*ua.Range) == ua.Range{Low: 0, High: 200} },
			"InstrumentRange":  func(v any) bool { return *v.(*ua.ExtensionObject).Value.(*ua.Range) == ua.Range{Low: -20, High: 250} },
			"EngineeringUnits": func(v any) bool { return v.(*ua.ExtensionObject).Value.(*ua.EUInformation).UnitID == 5067080 },
			"Definition":       func(v any) bool { return v == "holding:4 int16 * 0.01" },
			"ValuePrecision":   func(v any) bool { return v == 2.0 },
		}},
		{"valve", id.TwoStateDiscreteType, map[string]func(v any) bool{
			"TrueState":  func(v any) bool { return v.(*ua.LocalizedText).Text == "open" },
			"FalseState": func(v any) bool { return v.(*ua.LocalizedText).Text == "closed" },
		}},
		{"mode", id.MultiStateValueDiscreteType, map[string]func(v any) bool{
			"EnumValues": func(v any) bool {
				list := v.([]*ua.ExtensionObject)
				return len(list) == 2 && list[1].Value.(*ua.EnumValueType).Value == 5 && list[1].Value.(*ua.EnumValueType).DisplayName.Text == "heating"
			},
			"ValueAsText": func(v any) bool { return v.(*ua.LocalizedText).Text == "heating" },
		}},
	} {
		n := c.Node(plantID("model." + row.tag))
		types, err := n.ReferencedNodes(ctx, id.HasTypeDefinition, ua.BrowseDirectionForward, ua.NodeClassAll, true)
		if err != nil || len(types) != 1 || types[0].ID.IntID() != row.definition {
			t.Errorf("I4 %s is of type %v, want %d: %v", row.tag, types, row.definition, err)
		}
		props, err := n.ReferencedNodes(ctx, id.HasProperty, ua.BrowseDirectionForward, ua.NodeClassVariable, true)
		if err != nil || len(props) != len(row.properties) {
			t.Errorf("I4 %s has %d properties, want %d: %v", row.tag, len(props), len(row.properties), err)
		}
		for _, p := range props {
			name, err := p.BrowseName(ctx)
			if err != nil || p.ID.String() != "ns=2;s=model."+row.tag+".$"+name.Name || name.NamespaceIndex != 0 {
				t.Errorf("I4 %s is called %v: %v", p.ID, name, err)
				continue
			}
			back, err := p.ReferencedNodes(ctx, id.HasProperty, ua.BrowseDirectionInverse, ua.NodeClassAll, true)
			if err != nil || len(back) != 1 || back[0].ID.String() != n.ID.String() {
				t.Errorf("I4 %s belongs to %v: %v", p.ID, back, err)
			}
			v, err := p.Value(ctx)
			if check := row.properties[name.Name]; err != nil || check == nil || !check(v.Value()) {
				t.Errorf("I4 %s is %v: %v", p.ID, v, err)
			}
			path, err := n.TranslateBrowsePathInNamespaceToNodeID(ctx, 0, name.Name)
			if err != nil || path.String() != p.ID.String() {
				t.Errorf("I4 the path to %s leads to %v: %v", p.ID, path, err)
			}
		}
	}
}

// TestI4PercentDeadband: percent are of the EURange that the site file gives (Part 8, 7.2).
func TestI4PercentDeadband(t *testing.T) {
	f := start(t, nil)
	c := gopcuaClient(t, f, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	notes := make(chan *opcua.PublishNotificationData, 100)
	sub, err := c.Subscribe(ctx, &opcua.SubscriptionParameters{Interval: 20 * time.Millisecond}, notes)
	if err != nil {
		t.Fatal(err)
	}
	item := opcua.NewMonitoredItemCreateRequestWithDefaults(plantID("model.flow"), ua.AttributeIDValue, 1)
	item.RequestedParameters.QueueSize = 100
	item.RequestedParameters.Filter = ua.NewExtensionObject(&ua.DataChangeFilter{
		Trigger: ua.DataChangeTriggerStatusValue, DeadbandType: uint32(ua.DeadbandTypePercent), DeadbandValue: 10,
	})
	ref := f.ref(t, "model.flow")
	publish := func(values ...float64) {
		for _, v := range values {
			f.tags.Publish([]tag.Sample{{Ref: ref, Value: tag.Of(v), At: tag.Now()}})
		}
	}
	publish(100)
	res, err := sub.Monitor(ctx, ua.TimestampsToReturnBoth, item)
	if err != nil || res.Results[0].StatusCode != ua.StatusGood {
		t.Fatalf("I4 the item: %+v, %v", res, err)
	}
	publish(119, 81, 121, 140, 142, 100) // a tenth of the range is 20
	var got []float64
	for !slices.Contains(got[min(len(got), 1):], 100) {
		select {
		case n := <-notes:
			if d, ok := n.Value.(*ua.DataChangeNotification); ok {
				for _, it := range d.MonitoredItems {
					got = append(got, it.Value.Value.Value().(float64))
				}
			}
		case <-ctx.Done():
			t.Fatalf("I4 got %v", got)
		}
	}
	if want := []float64{100, 121, 142, 100}; !slices.Equal(got, want) {
		t.Errorf("I4 got %v, want %v", got, want)
	}
}
