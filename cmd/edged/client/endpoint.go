package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"
)

// defaultPort is the one that IANA registered for OPC UA.
const defaultPort = "4840"

// Securities are the words of Options.Security: auto takes the most secure endpoint that is offered.
var Securities = []string{"auto", "none", "sign", "encrypt"}

// Modes are the words of Options.Mode.
var Modes = []string{"None", "Sign", "SignAndEncrypt"}

// policies are the security policies that the library can speak, the most secure first.
var policies = []string{
	ua.SecurityPolicyURIAes256Sha256RsaPss, ua.SecurityPolicyURIAes128Sha256RsaOaep, ua.SecurityPolicyURIBasic256Sha256,
	ua.SecurityPolicyURIBasic256, ua.SecurityPolicyURIBasic128Rsa15,
}

// binaryTransport is the profile of opc.tcp (Part 7, UA-TCP UA-SC UA-Binary).
const binaryTransport = "http://opcfoundation.org/UA-Profile/Transport/uatcp-uasc-uabinary"

// parseURL reads opc.tcp://HOST:PORT/PATH, HOST:PORT or HOST.
func parseURL(text string) (string, error) {
	const form = "write HOST, HOST:PORT or opc.tcp://HOST:PORT"
	rest, path := text, ""
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		if scheme != "opc.tcp" {
			return "", mistake("%s: %s:// is not spoken here: %s", text, scheme, form)
		}
		rest = after
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		rest, path = rest[:i], rest[i:]
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		host, port = rest, defaultPort
		if strings.HasPrefix(rest, "[") && strings.HasSuffix(rest, "]") {
			host = rest[1 : len(rest)-1]
		}
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", mistake("%s is not the address of a server: %s", text, form)
		}
	}
	n, err := strconv.Atoi(port)
	switch {
	case host == "" || strings.ContainsAny(host, " \t@\\?#%=[]") || strings.ContainsFunc(host, unprintable):
		return "", mistake("%q is not the address of a server: %s", text, form)
	case err != nil || n < 1 || n > 65535:
		return "", mistake("%s: the port is a number from 1 to 65535: %s", text, form)
	}
	out := "opc.tcp://" + net.JoinHostPort(host, strconv.Itoa(n)) + path
	if _, err := url.Parse(out); err != nil || strings.ContainsAny(path, " ?#") || strings.ContainsFunc(path, unprintable) {
		return "", mistake("%q is not the address of a server: %s", text, form)
	}
	return out, nil
}

// withPath is the user's URL with the endpoint's path where the user gave none: the user's host is the one that was
// reached, whatever the server calls itself.
func withPath(text string, ep *ua.EndpointDescription) string {
	mine, err := url.Parse(text)
	theirs, err2 := url.Parse(ep.EndpointURL)
	if err != nil || err2 != nil || strings.Trim(mine.Path, "/") != "" {
		return text
	}
	mine.Path = theirs.Path
	return mine.String()
}

// discover asks a server for its endpoints, without any security.
func discover(ctx context.Context, url string, timeout time.Duration) (list []*ua.EndpointDescription, err error) {
	err = guarded(func() (err error) {
		list, err = opcua.GetEndpoints(ctx, url, opcua.DialTimeout(timeout), opcua.RequestTimeout(timeout))
		return err
	})
	return list, err
}

// choose takes the most secure endpoint of those that fit. Nothing less secure is tried when it fails: who wants less
// says so.
func choose(url string, endpoints []*ua.EndpointDescription, o Options, login ua.UserTokenType) (*ua.EndpointDescription, error) {
	modes := map[string][]ua.MessageSecurityMode{
		"auto":    {ua.MessageSecurityModeSignAndEncrypt, ua.MessageSecurityModeSign, ua.MessageSecurityModeNone},
		"none":    {ua.MessageSecurityModeNone},
		"sign":    {ua.MessageSecurityModeSign},
		"encrypt": {ua.MessageSecurityModeSignAndEncrypt},
	}[o.Security]
	if modes == nil {
		return nil, mistake("--security %s: it is one of %s", o.Security, strings.Join(Securities, ", "))
	}
	if o.Mode != "" {
		if !slices.Contains(Modes, o.Mode) {
			return nil, mistake("--mode %s: it is one of %s", o.Mode, strings.Join(Modes, ", "))
		}
		modes = []ua.MessageSecurityMode{ua.MessageSecurityModeFromString(o.Mode)}
	}
	only := ua.FormatSecurityPolicyURI(o.Policy)
	if o.Policy != "" && only != ua.SecurityPolicyURINone && !slices.Contains(policies, only) {
		return nil, mistake("--policy %s: this client knows None, Aes256_Sha256_RsaPss, Aes128_Sha256_RsaOaep, Basic256Sha256, Basic256 and Basic128Rsa15", o.Policy)
	}
	for _, mode := range modes {
		wanted := policies
		if mode == ua.MessageSecurityModeNone {
			wanted = []string{ua.SecurityPolicyURINone}
		}
		for _, policy := range wanted {
			if o.Policy != "" && policy != only {
				continue
			}
			for _, ep := range endpoints {
				if usable(ep) && ep.SecurityMode == mode && ep.SecurityPolicyURI == policy && takes(ep, login) {
					return ep, nil
				}
			}
		}
	}
	asked := "--security " + o.Security
	if o.Policy != "" {
		asked += " --policy " + o.Policy
	}
	if o.Mode != "" {
		asked += " --mode " + o.Mode
	}
	who := map[ua.UserTokenType]string{
		ua.UserTokenTypeAnonymous: "a client without a user", ua.UserTokenTypeUserName: "a user with a password", ua.UserTokenTypeCertificate: "a user with a certificate",
	}[login]
	return nil, fmt.Errorf("%s offers no endpoint for %s and %s; it offers %s", url, asked, who, offers(endpoints))
}

func usable(ep *ua.EndpointDescription) bool {
	return ep != nil && (ep.TransportProfileURI == "" || ep.TransportProfileURI == binaryTransport)
}

// takes reports whether an endpoint takes a kind of token.
func takes(ep *ua.EndpointDescription, kind ua.UserTokenType) bool {
	return slices.ContainsFunc(ep.UserIdentityTokens, func(t *ua.UserTokenPolicy) bool { return t != nil && t.TokenType == kind })
}

// endpointName is the policy and mode of an endpoint, such as Basic256Sha256 SignAndEncrypt.
func endpointName(ep *ua.EndpointDescription) string {
	policy := strings.TrimPrefix(ep.SecurityPolicyURI, "http://opcfoundation.org/UA/SecurityPolicy#")
	if ep.SecurityMode == ua.MessageSecurityModeNone {
		return policy
	}
	return policy + " " + strings.TrimPrefix(ep.SecurityMode.String(), "MessageSecurityMode")
}

var tokenNames = map[ua.UserTokenType]string{
	ua.UserTokenTypeAnonymous: "anonymous", ua.UserTokenTypeUserName: "user name", ua.UserTokenTypeCertificate: "certificate",
	ua.UserTokenTypeIssuedToken: "issued token",
}

// offers lists endpoints with the ways to log in at each.
func offers(endpoints []*ua.EndpointDescription) string {
	var list []string
	for _, ep := range endpoints {
		if !usable(ep) {
			continue
		}
		var ways []string
		for _, t := range ep.UserIdentityTokens {
			if t != nil && !slices.Contains(ways, tokenNames[t.TokenType]) {
				ways = append(ways, tokenNames[t.TokenType])
			}
		}
		if len(ways) == 0 {
			ways = []string{"no login"}
		}
		if one := endpointName(ep) + " (" + strings.Join(ways, ", ") + ")"; !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	if len(list) == 0 {
		return "none of opc.tcp at all"
	}
	return strings.Join(list, ", ")
}

// explain says why a server could not be reached, and the way out.
func explain(server string, err error) error {
	host := server
	if u, parsed := url.Parse(server); parsed == nil {
		host = u.Host
	}
	var dns *net.DNSError
	var timeout net.Error
	var theirs *uacp.Error
	switch {
	case errors.As(err, &dns), strings.Contains(err.Error(), "no such host"):
		return fmt.Errorf("%s: this name is not known: check its spelling, or give the server's IP address", host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s refuses connections: check that the server runs and that this is its port", host)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Errorf("%s cannot be reached from this network: check the address, the cable and the route", host)
	case errors.As(err, &theirs):
		reason := StatusName(ua.StatusCode(theirs.ErrorCode))
		if theirs.Reason != "" {
			reason += " (" + oneLine(theirs.Reason) + ")"
		}
		return fmt.Errorf("%s refuses the connection: %s", host, reason)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, ua.StatusBadTimeout),
		errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s does not answer: check the address and that no firewall is between, or wait longer with --timeout", host)
	case errors.Is(err, context.Canceled):
		return err
	}
	var code ua.StatusCode
	if errors.As(err, &code) {
		return fmt.Errorf("%s: %w", host, statusError(code))
	}
	return fmt.Errorf("%s does not speak OPC UA on this port (%s): check the port, 4840 is the usual one", host, oneLine(err.Error()))
}

// refused says why a server that was reached opened no session.
func refused(url string, ep *ua.EndpointDescription, all []*ua.EndpointDescription, own string, login *login, err error) error {
	var code ua.StatusCode
	switch ok := errors.As(err, &code); {
	case !ok && own != "" && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		// The library loses the reason that a server gives before it hangs up; while a channel is opened it is this one.
		code = ua.StatusBadSecurityChecksFailed
	case !ok:
		return explain(url, err)
	}
	switch code {
	case ua.StatusBadSecurityChecksFailed, ua.StatusBadCertificateUntrusted, ua.StatusBadCertificateInvalid,
		ua.StatusBadCertificateChainIncomplete, ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateURIInvalid,
		ua.StatusBadCertificateTimeInvalid:
		if own == "" {
			break
		}
		way := ""
		if slices.ContainsFunc(all, func(e *ua.EndpointDescription) bool {
			return usable(e) && e.SecurityMode == ua.MessageSecurityModeNone && takes(e, login.kind)
		}) {
			way = "; or go without security: --security none"
		}
		return fmt.Errorf("%s does not trust this client's certificate (%s): copy %s into the server's trusted certificates (on an edged gateway it waits in DIR/pki/rejected: move it to DIR/pki/trusted) and try again%s",
			url, StatusName(code), own, way)
	case ua.StatusBadIdentityTokenRejected, ua.StatusBadIdentityTokenInvalid, ua.StatusBadUserAccessDenied, ua.StatusBadUserSignatureInvalid:
		if login.kind != ua.UserTokenTypeAnonymous {
			return fmt.Errorf("%s does not let %s in (%s): check name and secret; after some wrong ones a server may refuse right ones for a while", url, login.name, StatusName(code))
		}
		return fmt.Errorf("%s lets nobody in without a user (%s): allow it there (on an edged gateway server.security.anonymous: read or write)", url, StatusName(code))
	case ua.StatusBadTooManySessions, ua.StatusBadTCPNotEnoughResources, ua.StatusBadResourceUnavailable:
		return fmt.Errorf("%s has no room for one more client (%s): end one, or try again later", url, StatusName(code))
	}
	return fmt.Errorf("%s opens no session with %s: %w", url, endpointName(ep), statusError(code))
}

// oneLine is text of a peer, short and printable.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unprintable(r) {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "..."
	}
	return s
}

func unprintable(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }
