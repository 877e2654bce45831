package uaserver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/channel"
	"edged/uaserver/uatest"
)

// gopcuaClient connects gopcua's own client with a policy and mode.
func gopcuaClient(t *testing.T, f *fixture, policy string, mode ua.MessageSecurityMode) *opcua.Client {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	url := "opc.tcp://" + f.addr
	endpoints, err := opcua.GetEndpoints(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	ep, err := opcua.SelectEndpoint(endpoints, policy, mode)
	if err != nil {
		t.Fatal(err)
	}
	opts := []opcua.Option{opcua.SecurityFromEndpoint(ep, ua.UserTokenTypeAnonymous), opcua.AutoReconnect(false), opcua.ApplicationURI("urn:test:client")}
	if mode != ua.MessageSecurityModeNone {
		own := uatest.ClientIdentity(t)
		opts = append(opts, opcua.Certificate(own.DER), opcua.PrivateKey(own.Key))
	}
	c, err := opcua.NewClient(ep.EndpointURL, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	uatest.AwaitPublishLoop(t, c)
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		c.Close(ctx) // the server may be gone
	})
	return c
}

func TestGopcuaClient(t *testing.T) {
	all := []channel.Policy{none, secure}
	for _, uri := range []string{ua.SecurityPolicyURIAes128Sha256RsaOaep, ua.SecurityPolicyURIAes256Sha256RsaPss} {
		all = append(all, channel.Policy{URI: uri, Modes: secure.Modes})
	}
	for _, p := range all {
		for _, mode := range p.Modes {
			_, name, _ := strings.Cut(p.URI, "#")
			t.Run(name+" "+mode.String(), func(t *testing.T) {
				t.Parallel()
				f := start(t, func(cfg *Config) { cfg.Policies = all })
				c := gopcuaClient(t, f, p.URI, mode)
				ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
				defer stop()
				gopcuaBrowses(t, ctx, c)
				gopcuaReadsAndWrites(t, ctx, f, c)
				gopcuaSubscribes(t, ctx, f, c)
			})
		}
	}
}

func gopcuaBrowses(t *testing.T, ctx context.Context, c *opcua.Client) {
	t.Helper()
	refs, err := c.Node(ua.NewNumericNodeID(0, id.ObjectsFolder)).References(ctx, id.HierarchicalReferences, ua.BrowseDirectionForward, ua.NodeClassAll, true)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, r := range refs {
		found = found || r.NodeID.NodeID.String() == "ns=2;s=Devices"
	}
	if !found {
		t.Errorf("no Devices below Objects: %d references", len(refs))
	}
	node, err := c.Node(ua.NewNumericNodeID(0, id.ObjectsFolder)).TranslateBrowsePathInNamespaceToNodeID(ctx, 2, "Devices.boiler.temperature")
	if err != nil || node.String() != "ns=2;s=boiler.temperature" {
		t.Errorf("the path leads to %v: %v", node, err)
	}
}

func gopcuaReadsAndWrites(t *testing.T, ctx context.Context, f *fixture, c *opcua.Client) {
	t.Helper()
	write := func(name string, v any) ua.StatusCode {
		r, err := c.Write(ctx, writeOf(name, v))
		if err != nil {
			t.Fatal(err)
		}
		return r.Results[0]
	}
	if code := write("boiler.setpoint", 42.5); code != ua.StatusGood {
		t.Errorf("write: %v", code)
	}
	v, err := c.Node(plantID("boiler.setpoint")).Value(ctx)
	if err != nil || v.Value() != 42.5 {
		t.Errorf("read back %v: %v", v, err)
	}
	if code := write("boiler.setpoint", int32(1)); code != ua.StatusBadTypeMismatch {
		t.Errorf("write of another type: %v", code)
	}
	attrs, err := c.Node(plantID("boiler.temperature")).Attributes(ctx, ua.AttributeIDDataType, ua.AttributeIDDisplayName, ua.AttributeIDAccessLevel)
	if err != nil || attrs[0].Value.NodeID().IntID() != id.Float || attrs[1].Value.Value().(*ua.LocalizedText).Text != "temperature" {
		t.Errorf("attributes %+v: %v", attrs, err)
	}
}

// gopcuaSubscribes counts a counter's changes, all of them in order, with the shutdown at the end.
func gopcuaSubscribes(t *testing.T, ctx context.Context, f *fixture, c *opcua.Client) {
	t.Helper()
	notes := make(chan *opcua.PublishNotificationData, 100)
	sub, err := c.Subscribe(ctx, &opcua.SubscriptionParameters{Interval: 20 * time.Millisecond}, notes)
	if err != nil {
		t.Fatal(err)
	}
	item := func(n *ua.NodeID, handle uint32) *ua.MonitoredItemCreateRequest {
		r := opcua.NewMonitoredItemCreateRequestWithDefaults(n, ua.AttributeIDValue, handle)
		r.RequestedParameters.QueueSize = 100
		return r
	}
	events := item(ua.NewNumericNodeID(0, id.Server), 3)
	events.ItemToMonitor.AttributeID = ua.AttributeIDEventNotifier
	res, err := sub.Monitor(ctx, ua.TimestampsToReturnBoth, item(plantID("boiler.counter"), 1), item(ua.NewNumericNodeID(0, id.Server_ServerStatus_State), 2), events)
	if err != nil {
		t.Fatal(err)
	}
	if res.Results[0].StatusCode != ua.StatusGood || res.Results[1].StatusCode != ua.StatusGood || res.Results[2].StatusCode != ua.StatusBadEventFilterInvalid {
		t.Errorf("A6 items: %v %v %v", res.Results[0].StatusCode, res.Results[1].StatusCode, res.Results[2].StatusCode)
	}
	const last = 50
	go func() {
		ref, _ := f.table.Lookup("boiler.counter")
		for i := uint32(1); i <= last; i++ {
			f.tags.Publish([]tag.Sample{{Ref: ref, Value: tag.Of(i), At: tag.Now()}})
			time.Sleep(time.Millisecond)
		}
	}()
	want, states := uint32(0), ""
	for want <= last || states != "0 4 " {
		select {
		case n := <-notes:
			if n.Error != nil {
				t.Fatalf("after %d values and the states %s: %v", want, states, n.Error)
			}
			d, ok := n.Value.(*ua.DataChangeNotification)
			if !ok {
				continue
			}
			for _, it := range d.MonitoredItems {
				switch it.ClientHandle {
				case 1:
					if got := it.Value.Value.Value(); got != want {
						t.Fatalf("B1 got %v, want %d", got, want)
					}
					want++
				case 2:
					states += fmt.Sprint(it.Value.Value.Value(), " ")
				}
			}
		case <-ctx.Done():
			t.Fatalf("%d values, states %s, engine %+v, requests %v", want, states, f.engine.Stats(), f.Stats().Requests)
		}
		if want == last+1 && states == "0 " && f.State() == ua.ServerStateRunning {
			go f.Shutdown(context.Background(), "end of test", 500*time.Millisecond)
			for f.State() == ua.ServerStateRunning {
				time.Sleep(time.Millisecond)
			}
		}
	}
}
