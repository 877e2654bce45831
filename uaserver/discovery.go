package uaserver

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/channel"
	"edged/uaserver/pki"
)

const transportProfile = "http://opcfoundation.org/UA-Profile/Transport/uatcp-uasc-uabinary" // Part 7

// endpoint is one policy in one mode that sessions may use.
type endpoint struct {
	policy string
	mode   ua.MessageSecurityMode
	level  uint8 // SecurityLevel: the higher the better (Part 4, 7.14)
}

// securityLevel ranks policies for clients that take the best one; what is not here is worth nothing. Even their Sign is
// worth more than what the deprecated ones encrypt.
var securityLevel = map[string]uint8{
	ua.SecurityPolicyURIBasic128Rsa15:       2,
	ua.SecurityPolicyURIBasic256:            3,
	ua.SecurityPolicyURIBasic256Sha256:      10,
	ua.SecurityPolicyURIAes128Sha256RsaOaep: 20,
	ua.SecurityPolicyURIAes256Sha256RsaPss:  30,
}

// endpointsOf lists the endpoints, the best first: some clients take the first.
func endpointsOf(cfg *Config) (all []endpoint) {
	for _, p := range cfg.Policies {
		for _, m := range p.Modes {
			e := endpoint{policy: p.URI, mode: m, level: securityLevel[p.URI]}
			if m == ua.MessageSecurityModeSignAndEncrypt && e.level >= 10 {
				e.level += 5
			} else if m == ua.MessageSecurityModeSignAndEncrypt && e.level > 0 {
				e.level += 2
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b endpoint) int { return int(b.level) - int(a.level) })
	return all
}

// offers reports whether sessions may use the channel: one without security is accepted by every server for discovery,
// even where no endpoint has it (Part 4, 5.4.1).
func (s *Server) offers(ch *channel.Channel) bool {
	for i := range s.endpoints {
		if e := &s.endpoints[i]; e.mode == ch.Mode() && e.policy == ch.PolicyURI() {
			return true
		}
	}
	return false
}

// findServers lists this server alone (Part 4, 5.4.2). A filter on server URIs may leave it out.
func (s *Server) findServers(c *call, req *ua.FindServersRequest) (ua.Response, ua.StatusCode) {
	resp := &ua.FindServersResponse{}
	if len(req.ServerURIs) == 0 || slices.Contains(req.ServerURIs, s.cfg.ApplicationURI) {
		resp.Servers = []*ua.ApplicationDescription{s.application(s.urlFor(c.ch, req.EndpointURL))}
	}
	return resp, ua.StatusGood
}

// getEndpoints lists the endpoints (Part 4, 5.4.4), under the host name that the client used.
func (s *Server) getEndpoints(c *call, req *ua.GetEndpointsRequest) (ua.Response, ua.StatusCode) {
	resp := &ua.GetEndpointsResponse{}
	if len(req.ProfileURIs) == 0 || slices.Contains(req.ProfileURIs, transportProfile) {
		resp.Endpoints = s.describeEndpoints(s.urlFor(c.ch, req.EndpointURL))
	}
	return resp, ua.StatusGood
}

func (s *Server) application(url string) *ua.ApplicationDescription {
	return &ua.ApplicationDescription{
		ApplicationURI:  s.cfg.ApplicationURI,
		ProductURI:      s.cfg.Build.ProductURI,
		ApplicationName: ua.NewLocalizedText(s.cfg.Name),
		ApplicationType: ua.ApplicationTypeServer,
		DiscoveryURLs:   []string{url},
	}
}

func (s *Server) describeEndpoints(url string) []*ua.EndpointDescription {
	app := s.application(url)
	var own *pki.Own
	var der []byte
	if s.cfg.Certificate != nil {
		own = s.cfg.Certificate()
		der = own.DER()
	}
	all := make([]*ua.EndpointDescription, 0, len(s.endpoints))
	for _, e := range s.endpoints {
		if !channel.Fits(e.policy, own) {
			continue
		}
		all = append(all, &ua.EndpointDescription{
			EndpointURL: url, Server: app, ServerCertificate: der, SecurityMode: e.mode, SecurityPolicyURI: e.policy,
			UserIdentityTokens: s.tokenPolicies(e.policy), TransportProfileURI: transportProfile, SecurityLevel: e.level,
		})
	}
	return all
}

// urlFor is the URL under which the client reaches this server: the host and port that it used itself, since only
// those are known to work from where it stands; its Hello's, when the request has none; otherwise a configured host.
func (s *Server) urlFor(ch *channel.Channel, asked string) string {
	for _, u := range []string{asked, ch.EndpointURL()} {
		if host, ok := hostOf(u); ok {
			return "opc.tcp://" + host
		}
	}
	return s.ownURL()
}

// defaultPort is OPC UA's registered port (Part 6, 7.4).
const defaultPort = "4840"

// hostOf takes host and port out of an endpoint URL. Path, case and a missing port do not matter.
func hostOf(endpoint string) (string, bool) {
	if len(endpoint) > 4096 { // the longest URL of a Hello (Part 6, 7.1.2.3)
		return "", false
	}
	u, err := url.Parse(endpoint)
	if err != nil || !strings.EqualFold(u.Scheme, "opc.tcp") || !plainHost(u.Hostname()) {
		return "", false
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	return net.JoinHostPort(u.Hostname(), port), true
}

// plainHost reports whether a text is a host name or an address without a zone, which means nothing to others.
func plainHost(host string) bool {
	if strings.Contains(host, ":") {
		a, err := netip.ParseAddr(host)
		return err == nil && a.Zone() == ""
	}
	for _, r := range host {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_') {
			return false
		}
	}
	return host != ""
}
