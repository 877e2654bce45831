package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mistaken reports whether an error is a Mistake that says all words.
func mistaken(t *testing.T, what string, err error, want string) {
	t.Helper()
	var m Mistake
	if !errors.As(err, &m) {
		t.Errorf("%s: %v, want a mistake", what, err)
		return
	}
	says(t, what, err, want)
}

func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	for word := range strings.SplitSeq(want, "|") {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %q lacks %q", what, err, word)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("%s: more than a line: %q", what, err)
	}
}

func TestURL(t *testing.T) {
	for _, row := range []struct{ text, want, wrong string }{
		{"plc", "opc.tcp://plc:4840", ""},
		{"plc:4841", "opc.tcp://plc:4841", ""},
		{"10.0.0.5", "opc.tcp://10.0.0.5:4840", ""},
		{"opc.tcp://plc", "opc.tcp://plc:4840", ""},
		{"opc.tcp://plc:4841/UA/Server", "opc.tcp://plc:4841/UA/Server", ""},
		{"plc/UA", "opc.tcp://plc:4840/UA", ""},
		{"::1", "opc.tcp://[::1]:4840", ""},
		{"[::1]", "opc.tcp://[::1]:4840", ""},
		{"[fe80::1]:4841", "opc.tcp://[fe80::1]:4841", ""},
		{"http://plc:4840", "", "http://|HOST:PORT"},
		{"opc.https://plc", "", "opc.https://"},
		{"", "", "HOST"},
		{":4840", "", "HOST"},
		{"opc.tcp://", "", "HOST"},
		{"plc:0", "", "65535"},
		{"plc:70000", "", "65535"},
		{"plc:opc", "", "65535"},
		{"a:b:c", "", "HOST"},
		{"user@plc", "", "HOST"},
		{"ns=2;s=boiler", "", "HOST"},
		{"two words", "", "HOST"},
	} {
		got, err := parseURL(row.text)
		if row.wrong != "" {
			mistaken(t, row.text, err, row.wrong)
		} else if err != nil || got != row.want {
			t.Errorf("%q is %q, %v; want %q", row.text, got, err, row.want)
		}
	}
}

func TestPathOfTheEndpoint(t *testing.T) {
	for _, row := range []struct{ mine, theirs, want string }{
		{"opc.tcp://10.0.0.5:4840", "opc.tcp://plc:4840/UA/Server", "opc.tcp://10.0.0.5:4840/UA/Server"},
		{"opc.tcp://10.0.0.5:4840/mine", "opc.tcp://plc:4840/UA/Server", "opc.tcp://10.0.0.5:4840/mine"},
		{"opc.tcp://10.0.0.5:4840", "opc.tcp://plc:1", "opc.tcp://10.0.0.5:4840"},
		{"opc.tcp://10.0.0.5:4840", "%zz://", "opc.tcp://10.0.0.5:4840"},
	} {
		if got := withPath(row.mine, &ua.EndpointDescription{EndpointURL: row.theirs}); got != row.want {
			t.Errorf("%s with the path of %s is %s, want %s", row.mine, row.theirs, got, row.want)
		}
	}
}

func TestNodes(t *testing.T) {
	uris := []string{"http://opcfoundation.org/UA/", "urn:gateway", "urn:edged:plant", "urn:a;b%c"}
	for _, row := range []struct{ text, want, wrong string }{
		{"boiler.temperature", "ns=2;s=boiler.temperature", ""},
		{"boiler.$state", "ns=2;s=boiler.$state", ""},
		{"a b", "ns=2;s=a b", ""},
		{"i=2258", "i=2258", ""},
		{"ns=0;i=2258", "i=2258", ""},
		{"ns=1;i=1000", "ns=1;i=1000", ""},
		{"ns=2;s=boiler.temperature", "ns=2;s=boiler.temperature", ""},
		{"ns=2;s=a=b;c", "ns=2;s=a=b;c", ""},
		{"s=x", "s=x", ""},
		{"nsu=urn:edged:plant;s=boiler", "ns=2;s=boiler", ""},
		{"nsu=urn:a%3Bb%25c;i=7", "ns=3;i=7", ""},
		{"g=09087e75-8e5e-499b-954f-f2a9603db28a", "g=09087e75-8e5e-499b-954f-f2a9603db28a", ""},
		{"ns=3;b=aGk=", "ns=3;b=aGk=", ""},
		{"i=4294967296", "", "4294967295"},
		{"i=-1", "", "after i="},
		{"i=", "", "no identifier"},
		{"", "", "no identifier"},
		{"ns=2", "", "semicolon"},
		{"ns=65536;i=1", "", "65535"},
		{"ns=x;i=1", "", "after ns="},
		{"ns=2;boiler", "", "begins with i="},
		{"ns=2;x=1", "", "begins with i="},
		{"g=1234", "", "GUID"},
		{"b=?", "", "base 64"},
		{"nsu=urn:nowhere;s=x", "", "urn:nowhere|urn:edged:plant"},
		{"nsu=;s=x", "", "after nsu="},
	} {
		got, err := parseNode(row.text, uris)
		if row.wrong != "" {
			mistaken(t, row.text, err, row.wrong)
		} else if err != nil || !strings.EqualFold(got.String(), row.want) {
			t.Errorf("%q is %v, %v; want %s", row.text, got, err, row.want)
		}
	}
	if err := CheckNodes([]string{"boiler", "nsu=urn:only-the-server-knows;s=x"}); err != nil {
		t.Error(err)
	}
	mistaken(t, "CheckNodes", CheckNodes([]string{"boiler", "i=x"}), "i=x")
}

func TestAssignments(t *testing.T) {
	for _, row := range []struct{ text, node, value, wrong string }{
		{"boiler.setpoint=71.5", "boiler.setpoint", "71.5", ""},
		{"ns=2;s=boiler.setpoint=71.5", "ns=2;s=boiler.setpoint", "71.5", ""},
		{"i=5=6", "i=5", "6", ""},
		{"nsu=urn:a?b=c;s=x=1", "nsu=urn:a?b=c;s=x", "1", ""},
		{"t=a=b", "t", "a=b", ""}, // names of one letter, but for those of identifiers
		{"i=a", "", "", "NODE=VALUE"},
		{"text=a=b", "text", "a=b", ""},
		{"text=", "text", "", ""},
		{"ns=1;b=aGk==5", "ns=1;b=aGk=", "5", ""},
		{"ns=1;b=YWJj=5", "ns=1;b=YWJj", "5", ""},
		{"boiler.setpoint", "", "", "NODE=VALUE"},
		{"=5", "", "", "NODE=VALUE"},
		{"ns=2;s==5", "", "", "NODE=VALUE"},
		{"ns=2;s=boiler", "", "", "NODE=VALUE"},
		{"", "", "", "NODE=VALUE"},
	} {
		got, err := SplitAssignment(row.text)
		if row.wrong != "" {
			mistaken(t, row.text, err, row.wrong)
		} else if err != nil || got != (Assignment{row.node, row.value}) {
			t.Errorf("%q is %+v, %v", row.text, got, err)
		}
	}
}

func TestConvert(t *testing.T) {
	for _, row := range []struct {
		kind, text string
		want       any
		wrong      string
	}{
		{"Boolean", "true", true, ""},
		{"bool", "0", false, ""},
		{"Boolean", "yes", nil, "true or false"},
		{"SByte", "-128", int8(-128), ""},
		{"SByte", "128", nil, "from -128 to 127"},
		{"Byte", "0xff", uint8(255), ""},
		{"uint16", "65535", uint16(65535), ""},
		{"UInt16", "65536", nil, "from 0 to 65535"},
		{"UInt16", "-1", nil, "from 0 to 65535"},
		{"Int32", "1.5", nil, "whole number"},
		{"Int64", "-9223372036854775808", int64(math.MinInt64), ""},
		{"UInt64", "18446744073709551615", uint64(math.MaxUint64), ""},
		{"float32", "0.1", float32(0.1), ""},
		{"Float", "1e39", nil, "number"},
		{"Double", "71.5", 71.5, ""},
		{"Double", "71,5", nil, "with a point"},
		{"Double", "hot", nil, "with a point"},
		{"String", "a=b", "a=b", ""},
		{"String", "", "", ""},
		{"DateTime", "2026-01-31T12:00:00+01:00", time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC), ""},
		{"DateTime", "yesterday", nil, "or now"},
		{"ByteString", "0x0aff", []byte{10, 255}, ""},
		{"bytes", "base64:aGk=", []byte("hi"), ""},
		{"ByteString", "hi", nil, "0x"},
		{"Guid", "x", nil, "write 0908"},
		{"StatusCode", "BadOutOfRange", ua.StatusBadOutOfRange, ""},
		{"StatusCode", "BadNodeIdUnknown", ua.StatusBadNodeIDUnknown, ""},
		{"StatusCode", "Worse", nil, "name of a status"},
		{"Int16[]", "1,2, -3", []int16{1, 2, -3}, ""},
		{"Int16[]", "[1, 2]", []int16{1, 2}, ""},
		{"Int16[]", "[]", []int16{}, ""},
		{"Int16[]", "[1", nil, "bracket"},
		{"Int16[]", "1,x", nil, "element 1"},
		{"Byte[]", "1,2", ua.ByteArray{1, 2}, ""},
		{"String[]", "a,b", []string{"a", "b"}, ""},
		{"String[]", `["a,b","c"]`, []string{"a,b", "c"}, ""},
		{"String[]", `"a,b`, nil, "quoted texts"},
		{"Boolean[]", "true,off", []bool{true, false}, ""},
	} {
		s, err := ParseType(row.kind)
		if err != nil {
			t.Errorf("%s: %v", row.kind, err)
			continue
		}
		v, err := convert(row.text, s)
		if row.wrong != "" {
			says(t, row.kind+" "+row.text, err, row.wrong)
		} else if err != nil || fmt.Sprintf("%T %v", v.Value(), v.Value()) != fmt.Sprintf("%T %v", row.want, row.want) {
			t.Errorf("%s %q is %v, %v; want %T %v", row.kind, row.text, v, err, row.want, row.want)
		}
	}
	for _, name := range []string{"", "Int", "Structure", "Variant", "float65", "[]", "Null"} {
		_, err := ParseType(name)
		mistaken(t, name, err, "--type|Int16")
	}
	for text, want := range map[string]any{"true": true, "7": int64(7), "7.5": 7.5, "x": "x"} {
		if v, err := convert(text, shape{}); err != nil || v.Value() != want {
			t.Errorf("%q is taken for %v, %v", text, v, err)
		}
	}
	if len(parsers) != len(lists) {
		t.Error("a type can be written alone and not in a list")
	}
}

func TestValueText(t *testing.T) {
	for _, row := range []struct {
		v    any
		want string
	}{
		{nil, "null"}, {float32(0.1), "0.1"}, {1e6, "1000000"}, {-2.5e-7, "-2.5e-07"}, {math.Inf(-1), "-Inf"}, {1e300, "1e+300"}, {math.NaN(), "NaN"}, {"a\nb", `a\nb`}, {[]byte{1, 255}, "0x01ff"},
		{[]string{"a,b", "c"}, `["a,b", "c"]`}, {[]float64{1, 2.5}, "[1, 2.5]"}, {[][]int32{{1, 2}, {3, 4}}, "[[1, 2], [3, 4]]"},
		{ua.ByteArray{1, 2}, "[1, 2]"}, {ua.StatusBadNodeIDUnknown, "BadNodeIdUnknown"}, {ua.StatusOK, "Good"},
		{time.Date(2026, 1, 31, 12, 0, 0, 500, time.FixedZone("", 3600)), "2026-01-31T11:00:00.0000005Z"}, {time.Time{}, "never"},
		{&ua.QualifiedName{NamespaceIndex: 2, Name: "x"}, "2:x"}, {(*ua.QualifiedName)(nil), ""}, {ua.NewLocalizedText("hi"), "hi"},
		{(*ua.ExtensionObject)(nil), "null"}, {&ua.ExtensionObject{}, "structure"},
		{&ua.ExtensionObject{TypeID: ua.NewFourByteExpandedNodeID(0, 300)}, "structure i=300"},
		{&ua.ExtensionObject{Value: &ua.Range{Low: 1, High: 2}}, "{Low: 1, High: 2}"},
		{[]*ua.NodeID{ua.NewNumericNodeID(0, 1), nil}, "[i=1, ]"}, {[]*ua.Variant{nil, ua.MustVariant(int16(3))}, "[null, 3]"},
		{strings.Repeat("x", 2*mostText), strings.Repeat("x", mostText) + "..."},
	} {
		if got := ValueText(row.v); got != row.want {
			t.Errorf("%T %v is %q, want %q", row.v, row.v, got, row.want)
		}
	}
	for _, row := range []struct{ v, want any }{
		{math.Inf(1), "+Inf"}, {float32(math.NaN()), "NaN"}, {uint64(1 << 63), uint64(1 << 63)}, {[]byte("hi"), "aGk="},
		{ua.StatusBadTimeout, "BadTimeout"},
	} {
		if got := ValueJSON(row.v); got != row.want {
			t.Errorf("%v is %v in JSON, want %v", row.v, got, row.want)
		}
	}
}

// endpoint makes an endpoint for choose.
func endpoint(policy string, mode ua.MessageSecurityMode, tokens ...ua.UserTokenType) *ua.EndpointDescription {
	ep := &ua.EndpointDescription{SecurityPolicyURI: policy, SecurityMode: mode, TransportProfileURI: binaryTransport}
	for _, t := range tokens {
		ep.UserIdentityTokens = append(ep.UserIdentityTokens, &ua.UserTokenPolicy{TokenType: t})
	}
	return ep
}

func TestChoice(t *testing.T) {
	const anon, user ua.UserTokenType = ua.UserTokenTypeAnonymous, ua.UserTokenTypeUserName
	none := endpoint(ua.SecurityPolicyURINone, ua.MessageSecurityModeNone, anon)
	sign := endpoint(ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSign, anon)
	encrypt := endpoint(ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSignAndEncrypt, anon, user)
	aes := endpoint(ua.SecurityPolicyURIAes128Sha256RsaOaep, ua.MessageSecurityModeSignAndEncrypt, anon)
	pss := endpoint(ua.SecurityPolicyURIAes256Sha256RsaPss, ua.MessageSecurityModeSignAndEncrypt, anon)
	unknown := endpoint("http://x#Quantum", ua.MessageSecurityModeSignAndEncrypt, anon)
	users := endpoint(ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSignAndEncrypt, user)
	https := endpoint(ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSignAndEncrypt, anon)
	https.TransportProfileURI = "http://opcfoundation.org/UA-Profile/Transport/https-uabinary"
	for _, row := range []struct {
		name     string
		offered  []*ua.EndpointDescription
		security string // with, behind a comma, the words of --policy, --mode and --user
		want     *ua.EndpointDescription
		wrong    string
	}{
		{"the policy that is named", []*ua.EndpointDescription{pss, encrypt, sign}, "auto,Basic256Sha256", encrypt, ""},
		{"the mode that is named", []*ua.EndpointDescription{pss, encrypt, sign, none}, "auto,,Sign", sign, ""},
		{"both", []*ua.EndpointDescription{pss, aes, encrypt, sign}, "auto,Basic256Sha256,Sign", sign, ""},
		{"policy None", []*ua.EndpointDescription{pss, none}, "auto,None", none, ""},
		{"a policy that is not offered", []*ua.EndpointDescription{encrypt}, "auto,Aes256_Sha256_RsaPss", nil, "--policy Aes256_Sha256_RsaPss|it offers Basic256Sha256"},
		{"a policy that there is not", nil, "auto,Quantum", nil, "--policy Quantum: this client knows"},
		{"a mode that there is not", nil, "auto,,Scramble", nil, "--mode Scramble: it is one of"},
		{"for a user", []*ua.EndpointDescription{pss, users}, "auto,,,user", users, ""},
		{"for a user, and none", []*ua.EndpointDescription{pss, none}, "auto,,,user", nil, "a user with a password|it offers Aes256_Sha256_RsaPss"},
		{"the most secure", []*ua.EndpointDescription{none, sign, encrypt, aes, pss}, "auto", pss, ""},
		{"another policy", []*ua.EndpointDescription{none, sign, encrypt, aes}, "auto", aes, ""},
		{"one policy", []*ua.EndpointDescription{none, sign, encrypt}, "auto", encrypt, ""},
		{"sign before none", []*ua.EndpointDescription{none, sign}, "auto", sign, ""},
		{"none is all", []*ua.EndpointDescription{none}, "auto", none, ""},
		{"none asked for", []*ua.EndpointDescription{encrypt, none}, "none", none, ""},
		{"sign asked for", []*ua.EndpointDescription{encrypt, none, sign}, "sign", sign, ""},
		{"a policy that nobody knows", []*ua.EndpointDescription{unknown, sign}, "auto", sign, ""},
		{"users alone", []*ua.EndpointDescription{users, none}, "encrypt", nil, "Basic256Sha256 SignAndEncrypt (user name)|None (anonymous)"},
		{"not offered", []*ua.EndpointDescription{none}, "sign", nil, "--security sign|it offers None (anonymous)"},
		{"another transport", []*ua.EndpointDescription{https}, "auto", nil, "none of opc.tcp"},
		{"nothing", nil, "auto", nil, "none of opc.tcp"},
		{"holes", []*ua.EndpointDescription{nil, endpoint("", 0)}, "auto", nil, "no login"},
		{"a word", nil, "strong", nil, "auto, none, sign, encrypt"},
	} {
		words := append(strings.Split(row.security, ","), "", "", "")
		login := anon
		if words[3] != "" {
			login = user
		}
		got, err := choose("opc.tcp://plc:4840", row.offered, Options{Security: words[0], Policy: words[1], Mode: words[2]}, login)
		if row.wrong != "" {
			says(t, row.name, err, row.wrong)
		} else if err != nil || got != row.want {
			t.Errorf("%s: %v, %v", row.name, got, err)
		}
	}
}

func TestReasons(t *testing.T) {
	for _, row := range []struct {
		err  error
		want string
	}{
		{&net.DNSError{Err: "no such host", Name: "plc"}, "plc:4840|spelling"},
		{fmt.Errorf("dial: %w", syscall.ECONNREFUSED), "refuses connections|port"},
		{syscall.EHOSTUNREACH, "cannot be reached"},
		{&uacp.Error{ErrorCode: uint32(ua.StatusBadTCPServerTooBusy), Reason: "full\nhouse"}, "BadTcpServerTooBusy (full house)"},
		{context.DeadlineExceeded, "does not answer|--timeout"},
		{os.ErrDeadlineExceeded, "does not answer"},
		{ua.StatusBadServiceUnsupported, "BadServiceUnsupported: the server does not know"},
		{errors.New("uacp: invalid\nmessage"), "does not speak OPC UA|4840"},
	} {
		says(t, fmt.Sprint(row.err), explain("opc.tcp://plc:4840", row.err), row.want)
	}
	secure := endpoint(ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSign, ua.UserTokenTypeAnonymous)
	none := endpoint(ua.SecurityPolicyURINone, ua.MessageSecurityModeNone, ua.UserTokenTypeAnonymous)
	for _, row := range []struct {
		err  error
		all  []*ua.EndpointDescription
		want string
		not  string
	}{
		{ua.StatusBadSecurityChecksFailed, []*ua.EndpointDescription{secure}, "own.der|pki/trusted", "--security none"},
		{ua.StatusBadCertificateUntrusted, []*ua.EndpointDescription{secure, none}, "own.der|--security none", "\n"},
		{ua.StatusBadIdentityTokenRejected, nil, "anonymous|BadIdentityTokenRejected", "\n"},
		{ua.StatusBadTooManySessions, nil, "no room", "\n"},
		{ua.StatusBadNonceInvalid, nil, "Basic256Sha256 Sign|BadNonceInvalid", "\n"},
		{syscall.ECONNREFUSED, nil, "refuses connections", "\n"},
		{io.EOF, nil, "own.der|BadSecurityChecksFailed", "\n"},
	} {
		err := refused("opc.tcp://plc:4840", secure, row.all, "own.der", &login{kind: ua.UserTokenTypeAnonymous}, row.err)
		says(t, fmt.Sprint(row.err), err, row.want)
		if strings.Contains(err.Error(), row.not) {
			t.Errorf("%v: %q has %q", row.err, err, row.not)
		}
	}
}

func TestBatches(t *testing.T) {
	for _, allowed := range []int{1, 3, 7, 1000} {
		var got []int
		err := inBatches(20, 16, func(from, to int) error {
			if to-from > allowed {
				return fmt.Errorf("refused: %w", ua.StatusBadTooManyOperations)
			}
			for i := from; i < to; i++ {
				got = append(got, i)
			}
			return nil
		})
		if err != nil || len(got) != 20 || !slices.IsSorted(got) {
			t.Errorf("with %d allowed: %v, %v", allowed, got, err)
		}
	}
	if err := inBatches(5, 4, func(_, _ int) error { return ua.StatusBadTooManyOperations }); !errors.Is(err, ua.StatusBadTooManyOperations) {
		t.Errorf("a server that takes nothing: %v", err)
	}
}

func TestStatus(t *testing.T) {
	for code, want := range map[ua.StatusCode]string{
		0: "Good", 0x480: "Good", ua.StatusBadSubscriptionIDInvalid: "BadSubscriptionIdInvalid", 0x40000000: "Uncertain", 0x8FFF0000: "0x8FFF0000",
	} {
		if got := StatusName(code); got != want {
			t.Errorf("%08X is %s, want %s", uint32(code), got, want)
		}
	}
	for code, want := range map[ua.StatusCode]bool{0x480: true, 0x80: false, 0x400: false, 0x80000480: true, 0xC80: false} {
		if Overflowed(code) != want {
			t.Errorf("%08X: overflow %v", uint32(code), !want)
		}
	}
}

func TestAttributes(t *testing.T) {
	for text, want := range map[string]ua.AttributeID{"Value": ua.AttributeIDValue, "displayname": ua.AttributeIDDisplayName, "13": 13, "AccessLevelEx": 27} {
		if got, err := Attributes(text); err != nil || len(got) != 1 || got[0] != want || (text != "13" && !strings.EqualFold(AttributeName(got[0]), text)) {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	if all, err := Attributes("all"); err != nil || len(all) != 27 {
		t.Errorf("all are %v, %v", all, err)
	}
	for _, text := range []string{"", "0", "colour", "-1"} {
		_, err := Attributes(text)
		mistaken(t, text, err, "--attribute|DisplayName")
	}
}

// TestStrangers dials what is no OPC UA server: each is told within the time-out, in one sentence.
func TestStrangers(t *testing.T) {
	for _, row := range []struct {
		name string
		talk func(net.Conn)
		want string
	}{
		{"mute", func(c net.Conn) { c.Read(make([]byte, 1)); time.Sleep(2 * time.Second) }, "does not answer"},
		{"hangs up", func(net.Conn) {}, "does not speak OPC UA"},
		{"SSH", func(c net.Conn) { c.Write([]byte("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")); c.Read(make([]byte, 100)) }, "does not speak OPC UA"},
		{"HTTP", func(c net.Conn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")) }, "does not speak OPC UA"},
		{"an error message", func(c net.Conn) {
			c.Read(make([]byte, 100))
			c.Write([]byte("ERRF\x14\x00\x00\x00\x00\x00\x7d\x80\x04\x00\x00\x00full"))
			c.Read(make([]byte, 1))
		}, "refuses the connection: BadTcpServerTooBusy (full)"},
		{"a hello of no use", func(c net.Conn) {
			c.Read(make([]byte, 100))
			c.Write([]byte("ACKF\x08\x00\x00\x00"))
			c.Read(make([]byte, 1))
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				row.talk(c)
			}()
			start := time.Now()
			_, err = Dial(t.Context(), Options{URL: l.Addr().String(), Security: "auto", Timeout: time.Second, Log: slog.New(slog.DiscardHandler)})
			l.Close()
			<-done
			says(t, row.name, err, row.want)
			if time.Since(start) > 20*time.Second {
				t.Errorf("told after %v", time.Since(start))
			}
		})
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"ns=2;s=a=1", "nsu=u;g=x", "opc.tcp://[::1]:1/x", "b=aGk==", "[1,2]", `["a"]`, "0x", "Int16[]", "1e400"} {
		f.Add(s, "Double[]")
	}
	f.Fuzz(func(t *testing.T, text, kind string) {
		if url, err := parseURL(text); err == nil {
			if again, err := parseURL(url); err != nil || again != url {
				t.Errorf("%q is %q, which is %q, %v", text, url, again, err)
			}
		}
		if n, err := parseNode(text, []string{"u"}); err == nil {
			if again, err := parseNode(n.String(), nil); err != nil || again.String() != n.String() {
				t.Errorf("%q is %v, which is %v, %v", text, n, again, err)
			}
		}
		if a, err := SplitAssignment(text); err == nil && a.Node+"="+a.Value != text {
			t.Errorf("%q was cut into %+v", text, a)
		}
		if s, err := ParseType(kind); err == nil {
			if v, err := convert(text, s); err == nil {
				if strings.ContainsAny(ValueText(v.Value()), "\n\r") {
					t.Errorf("%q is more than a line", text)
				}
				if _, err := v.Encode(); err != nil {
					t.Errorf("%q as %s cannot be sent: %v", text, kind, err)
				}
			}
		}
	})
}
