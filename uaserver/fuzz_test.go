package uaserver

import (
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/uatest"
	"edged/uaserver/wire"
)

// FuzzServices sends every service what a peer that is logged in may send behind a proper RequestHeader. Whatever comes,
// the link is kept, another request is answered, and nothing panics.
func FuzzServices(f *testing.F) {
	read := &ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}}
	seeds := []ua.Request{
		read, writeOf("scratch.m000", 5.0), browseRequest(3, browseOf(plantID("scratch"))), nextRequest(false, make([]byte, 16)),
		&ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{pathOf("Devices", "boiler")}},
		&ua.RegisterNodesRequest{NodesToRegister: manyIDs(2)}, &ua.CancelRequest{RequestHandle: 7},
		&ua.FindServersRequest{ServerURIs: []string{"x"}}, &ua.GetEndpointsRequest{EndpointURL: "opc.tcp://a:1/b"},
		createRequest(), activateRequest(anonymous()), &ua.CloseSessionRequest{},
		&ua.CreateSubscriptionRequest{RequestedPublishingInterval: 10, RequestedLifetimeCount: 30, RequestedMaxKeepAliveCount: 10},
		&ua.PublishRequest{SubscriptionAcknowledgements: []*ua.SubscriptionAcknowledgement{{SubscriptionID: 1, SequenceNumber: 1}}},
	}
	for _, req := range seeds {
		req.SetHeader((&peer{token: ua.NewTwoByteNodeID(0)}).header())
		b, err := uatest.Encode(req)
		if err != nil {
			f.Fatal(err)
		}
		r := wire.NewReader(b)
		node := r.NodeID()
		r.RequestHeader()
		if r.Err() != nil {
			f.Fatal(r.Err())
		}
		f.Add(byRequest[node.Num], r.Rest())
	}
	srv := start(f, nil)
	f.Fuzz(func(t *testing.T, service int, rest []byte) {
		if len(rest) > 32<<10 {
			t.Skip("beyond the limit before login")
		}
		p := srv.login(t)
		row := &services[(service%len(services)+len(services))%len(services)]
		h, err := ua.Encode(p.header())
		if err != nil {
			t.Fatal(err)
		}
		body := append(wire.AppendNodeID(nil, wire.NumericID(0, row.request)), h...)
		if err := p.Send(p.number, append(body, rest...)); err != nil {
			t.Fatal(err)
		}
		must[*ua.FindServersResponse](p, &ua.FindServersRequest{})
		if n := srv.panics.Load(); n != 0 {
			t.Fatalf("%s panicked", row.name)
		}
		for _, se := range srv.sessions.All() {
			srv.sessions.Close(se, true)
		}
	})
}

// FuzzHost finds no endpoint URL that breaks, and what is taken from one is a URL again.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"opc.tcp://a:1/b", "opc.tcp://[::1]", "OPC.TCP://x", "http://x", "", "opc.tcp://[fe80::1%25eth0]:4840", "opc.tcp://u:p@h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, ok := hostOf(s)
		if !ok {
			return
		}
		if again, ok := hostOf("opc.tcp://" + host); !ok || again != host {
			t.Errorf("%q gives %q, which gives %q, %v", s, host, again, ok)
		}
	})
}
