package uaserver

import (
	"net"
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/channel"
	"edged/uaserver/uatest"
)

func TestDiscovery(t *testing.T) {
	f := start(t, func(c *Config) { c.Policies = []channel.Policy{secure} })
	p := f.dial(t, nil) // on a channel without security, where sessions need it
	for _, row := range []struct {
		name string
		uris []string
		want int
	}{
		{"A2 no filter", nil, 1}, {"A2 our URI", []string{"urn:other", appURI}, 1}, {"A2 another URI", []string{"urn:other"}, 0},
	} {
		r := must[*ua.FindServersResponse](p, &ua.FindServersRequest{EndpointURL: "opc.tcp://plant:4840", ServerURIs: row.uris})
		if len(r.Servers) != row.want {
			t.Errorf("%s: %d servers", row.name, len(r.Servers))
			continue
		}
		if row.want == 1 {
			s := r.Servers[0]
			if s.ApplicationURI != appURI || s.ApplicationType != ua.ApplicationTypeServer || len(s.DiscoveryURLs) != 1 || s.DiscoveryURLs[0] != "opc.tcp://plant:4840" {
				t.Errorf("%s: %+v", row.name, s)
			}
		}
	}
	r := must[*ua.GetEndpointsResponse](p, &ua.GetEndpointsRequest{EndpointURL: "opc.tcp://plant:4840"})
	if len(r.Endpoints) != 2 {
		t.Fatalf("%d endpoints", len(r.Endpoints))
	}
	best := r.Endpoints[0]
	if best.SecurityMode != ua.MessageSecurityModeSignAndEncrypt || best.SecurityPolicyURI != ua.SecurityPolicyURIBasic256Sha256 ||
		best.SecurityLevel <= r.Endpoints[1].SecurityLevel || string(best.ServerCertificate) != string(f.own.DER()) ||
		len(best.UserIdentityTokens) != 1 || best.UserIdentityTokens[0].PolicyID != anonymousPolicy || best.TransportProfileURI != transportProfile {
		t.Errorf("best endpoint %+v", best)
	}
	if r := must[*ua.GetEndpointsResponse](p, &ua.GetEndpointsRequest{ProfileURIs: []string{"urn:other"}}); len(r.Endpoints) != 0 {
		t.Errorf("another transport: %d endpoints", len(r.Endpoints))
	}
	if _, code := p.call(createRequest()); code != ua.StatusBadSecurityPolicyRejected {
		t.Errorf("A2 a session without security: %v", code)
	}
	if _, code := p.call(&ua.ReadRequest{}); code != ua.StatusBadSecurityPolicyRejected {
		t.Errorf("A2 a Read without security: %v", code)
	}
	must[*ua.FindServersResponse](p, &ua.FindServersRequest{})
}

func TestEndpointURL(t *testing.T) {
	f := start(t, func(c *Config) { c.Hosts = []string{"gateway"} })
	p := f.dial(t, nil)
	for _, row := range []struct{ name, asked, want string }{
		{"the caller's host and port", "opc.tcp://plant.example:14840", "opc.tcp://plant.example:14840"},
		{"a path and a trailing slash", "opc.tcp://plant:4840/UA/Discovery/", "opc.tcp://plant:4840"},
		{"case", "OPC.TCP://Plant:4840", "opc.tcp://Plant:4840"},
		{"no port", "opc.tcp://plant", "opc.tcp://plant:4840"},
		{"IPv6", "opc.tcp://[::1]:4841", "opc.tcp://[::1]:4841"},
		{"none: the Hello's", "", "opc.tcp://" + f.addr},
		{"nonsense: the Hello's", "plant", "opc.tcp://" + f.addr},
		{"another scheme", "https://plant:443", "opc.tcp://" + f.addr},
		{"a zone: the Hello's", "opc.tcp://[fe80::1%25eth0]:4840", "opc.tcp://" + f.addr},
		{"no host name: the Hello's", "opc.tcp://a%20b:4840", "opc.tcp://" + f.addr},
		{"too long", "opc.tcp://" + strings.Repeat("a", 5000), "opc.tcp://" + f.addr},
	} {
		r := must[*ua.GetEndpointsResponse](p, &ua.GetEndpointsRequest{EndpointURL: row.asked})
		for _, e := range r.Endpoints {
			if e.EndpointURL != row.want || e.Server.DiscoveryURLs[0] != row.want {
				t.Errorf("%s: %s, want %s", row.name, e.EndpointURL, row.want)
			}
		}
	}
}

func TestEndpointURLWithoutAnyFromTheClient(t *testing.T) {
	f := start(t, func(c *Config) { c.Hosts = []string{"gateway"} })
	p := f.dial(t, func(o *uatest.Options) { o.URL = "nonsense" })
	_, port, _ := net.SplitHostPort(f.addr)
	r := must[*ua.GetEndpointsResponse](p, &ua.GetEndpointsRequest{})
	if want := "opc.tcp://gateway:" + port; r.Endpoints[0].EndpointURL != want {
		t.Errorf("%s, want %s", r.Endpoints[0].EndpointURL, want)
	}
}
