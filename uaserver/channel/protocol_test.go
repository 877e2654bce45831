package channel_test

import (
	"bytes"
	"crypto/x509"
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

// stage is how far the conversation has come when a rule is broken.
type stage int

const (
	connected stage = iota
	greeted
	opened
)

// put overwrites a UInt32 of a message.
func put(b []byte, at int, v uint32) []byte {
	binary.LittleEndian.PutUint32(b[at:], v)
	return b
}

func write(t *testing.T, c *uatest.Client, b []byte, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// violation breaks one rule. The server must answer with code, close that connection and go on with the others.
type violation struct {
	name    string
	at      stage
	break_  func(t *testing.T, c *uatest.Client)
	code    ua.StatusCode
	secured bool // on a channel with SignAndEncrypt as well
}

var violations = []violation{
	{"7.1.2.2 message type unknown", connected, func(t *testing.T, c *uatest.Client) {
		write(t, c, []byte("GET / HTTP/1.1\r\n\r\n"), nil)
	}, ua.StatusBadTCPMessageTypeInvalid, false},
	{"7.1.2.2 message before Hello", connected, func(t *testing.T, c *uatest.Client) {
		b, err := c.Chunk("MSGF", 1, body(1))
		write(t, c, b, err)
	}, ua.StatusBadTCPMessageTypeInvalid, false},
	{"7.1.2.2 open before Hello", connected, func(t *testing.T, c *uatest.Client) {
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadTCPMessageTypeInvalid, false},
	{"7.1.2.3 Hello in chunks", connected, func(t *testing.T, c *uatest.Client) {
		b := c.HelloMessage()
		b[3] = 'C'
		write(t, c, b, nil)
	}, ua.StatusBadTCPMessageTypeInvalid, false},
	{"7.1.2.3 Hello twice", greeted, func(t *testing.T, c *uatest.Client) {
		write(t, c, c.HelloMessage(), nil)
	}, ua.StatusBadTCPMessageTypeInvalid, false},
	{"7.1.2.3 Hello on an open channel", opened, func(t *testing.T, c *uatest.Client) {
		write(t, c, c.HelloMessage(), nil)
	}, ua.StatusBadTCPMessageTypeInvalid, true},
	{"7.1.2.3 receive buffer below 8192", connected, func(t *testing.T, c *uatest.Client) {
		write(t, c, put(c.HelloMessage(), 12, 8191), nil)
	}, ua.StatusBadConnectionRejected, false},
	{"7.1.2.3 send buffer below 8192", connected, func(t *testing.T, c *uatest.Client) {
		write(t, c, put(c.HelloMessage(), 16, 0), nil)
	}, ua.StatusBadConnectionRejected, false},
	{"7.1.2.3 EndpointUrl above 4096", connected, func(t *testing.T, c *uatest.Client) {
		c.Options.URL = strings.Repeat("x", 4097)
		write(t, c, c.HelloMessage(), nil)
	}, ua.StatusBadTCPEndpointURLInvalid, false},
	{"7.1.2.3 EndpointUrl beyond the message", connected, func(t *testing.T, c *uatest.Client) {
		write(t, c, put(c.HelloMessage(), 28, 1<<31-1), nil)
	}, ua.StatusBadDecodingError, false},
	{"7.1.2.3 Hello too short", connected, func(t *testing.T, c *uatest.Client) {
		write(t, c, put(c.HelloMessage(), 4, 8), nil)
	}, ua.StatusBadDecodingError, false},
	{"7.1.2.3 Hello of 4 GiB", connected, func(t *testing.T, c *uatest.Client) {
		write(t, c, put(c.HelloMessage(), 4, 1<<32-1), nil)
	}, ua.StatusBadTCPMessageTooLarge, false},
	{"7.1.3 message before open", greeted, func(t *testing.T, c *uatest.Client) {
		b, err := c.Chunk("MSGF", 1, body(1))
		write(t, c, b, err)
	}, ua.StatusBadTCPSecureChannelUnknown, false},
	{"6.7.2.2 chunk type unknown", opened, func(t *testing.T, c *uatest.Client) {
		b, err := c.Chunk("MSGX", 1, body(1))
		write(t, c, b, err)
	}, ua.StatusBadTCPMessageTypeInvalid, true},
	{"6.7.2.2 open in chunks", greeted, func(t *testing.T, c *uatest.Client) {
		b, err := c.OpenChunk(1, body(1))
		b[3] = 'C'
		write(t, c, b, err)
	}, ua.StatusBadTCPMessageTypeInvalid, false},
	{"6.7.2.2 chunk above the buffer", opened, func(t *testing.T, c *uatest.Client) {
		b, err := c.Chunk("MSGF", 1, body(1))
		write(t, c, put(b, 4, 65536), err)
	}, ua.StatusBadTCPMessageTooLarge, true},
	{"6.7.2.2 chunk below its headers", opened, func(t *testing.T, c *uatest.Client) {
		b, err := c.Chunk("MSGF", 1, body(1))
		write(t, c, put(b, 4, 23), err)
	}, ua.StatusBadDecodingError, true},
	{"6.7.2.2 chunk of another request between", opened, func(t *testing.T, c *uatest.Client) {
		for i, kind := range []string{"MSGC", "MSGF"} {
			b, err := c.Chunk(kind, uint32(i), body(1))
			write(t, c, b, err)
		}
	}, ua.StatusBadTCPMessageTypeInvalid, true},
	{"6.7.7 another SecureChannelId", opened, func(t *testing.T, c *uatest.Client) {
		c.Channel++
		b, err := c.Chunk("MSGF", 1, body(1))
		write(t, c, b, err)
	}, ua.StatusBadTCPSecureChannelUnknown, true},
	{"6.7.7 unknown TokenId", opened, func(t *testing.T, c *uatest.Client) {
		c.Token += 7
		b, err := c.Chunk("MSGF", 1, body(1))
		write(t, c, b, err)
	}, ua.StatusBadSecureChannelTokenUnknown, true},
	{"6.7.2.4 sequence number repeated", opened, func(t *testing.T, c *uatest.Client) {
		c.Seq--
		b, err := c.Chunk("MSGF", 1, body(1))
		write(t, c, b, err)
	}, ua.StatusBadSecurityChecksFailed, true},
	{"6.7.2.4 sequence number left out", opened, func(t *testing.T, c *uatest.Client) {
		c.Seq++
		b, err := c.Chunk("MSGF", 1, body(1))
		write(t, c, b, err)
	}, ua.StatusBadSecurityChecksFailed, true},
	{"6.7.2.4 sequence number wraps too soon", opened, func(t *testing.T, c *uatest.Client) {
		c.Seq = 1<<32 - 1
		b, err := c.Chunk("MSGF", 1, body(1))
		write(t, c, b, err)
	}, ua.StatusBadSecurityChecksFailed, true},
	{"6.7.2.4 sequence number of a renewal", opened, func(t *testing.T, c *uatest.Client) {
		c.Seq += 5
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeRenew)
		write(t, c, nil, err)
	}, ua.StatusBadSecurityChecksFailed, true},
	{"6.7.4 issued twice", opened, func(t *testing.T, c *uatest.Client) {
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadTCPSecureChannelUnknown, true},
	{"6.7.4 renewed before it was issued", greeted, func(t *testing.T, c *uatest.Client) {
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeRenew)
		write(t, c, nil, err)
	}, ua.StatusBadTCPSecureChannelUnknown, true},
	{"6.7.4 issue for a channel of before", greeted, func(t *testing.T, c *uatest.Client) {
		c.Channel = 77
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeRenew)
		write(t, c, nil, err)
	}, ua.StatusBadTCPSecureChannelUnknown, true},
	{"Part 4, 5.5.2 request type unknown", greeted, func(t *testing.T, c *uatest.Client) {
		_, err := c.SendOpen(2)
		write(t, c, nil, err)
	}, ua.StatusBadRequestTypeInvalid, true},
	{"Part 4, 5.5.2 security policy unknown", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Policy = "http://opcfoundation.org/UA/SecurityPolicy#Best"
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadSecurityPolicyRejected, true},
	{"Part 4, 5.5.2 security policy known and not offered", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Policy = ua.SecurityPolicyURIBasic256
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadSecurityPolicyRejected, false},
	{"Part 4, 5.5.2 security mode invalid", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Mode = 4
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadSecurityModeRejected, true},
	{"Part 4, 5.5.2 security mode changed by renewal", opened, func(t *testing.T, c *uatest.Client) {
		c.Options.Mode = ua.MessageSecurityModeSign
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeRenew)
		write(t, c, nil, err)
	}, ua.StatusBadSecurityModeRejected, true},
	{"6.7.2.3 SecurityPolicyUri above 255", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Policy = strings.Repeat("x", 256)
		b, err := c.OpenChunk(1, body(1))
		write(t, c, b, err)
	}, ua.StatusBadDecodingError, false},
	{"6.7.2.3 lengths beyond the message", greeted, func(t *testing.T, c *uatest.Client) {
		b, err := c.OpenChunk(1, body(1))
		write(t, c, put(b, 12, 1<<30), err)
	}, ua.StatusBadDecodingError, false},
	{"6.7.4 body is another request", greeted, func(t *testing.T, c *uatest.Client) {
		b, err := c.OpenChunk(1, body(100))
		write(t, c, b, err)
	}, ua.StatusBadTCPMessageTypeInvalid, true},
	{"6.7.4 body ends too soon", greeted, func(t *testing.T, c *uatest.Client) {
		b, err := c.OpenChunk(1, []byte{1, 0, 0xBE, 0x01, 0, 0})
		write(t, c, b, err)
	}, ua.StatusBadDecodingError, true},
	{"5.2.2.9 request type id unreadable", opened, func(t *testing.T, c *uatest.Client) {
		b, err := c.Chunk("MSGF", 1, []byte{0x3F})
		write(t, c, b, err)
	}, ua.StatusBadDecodingError, true},
	{"field report C4 chunks without end", opened, func(t *testing.T, c *uatest.Client) {
		for range 20 {
			b, err := c.Chunk("MSGC", 1, body(10))
			write(t, c, b, err)
		}
	}, ua.StatusBadTCPMessageTooLarge, true},
	{"request before login above 64 KiB", opened, func(t *testing.T, c *uatest.Client) {
		if err := c.Send(1, body(65537-4)); err != nil {
			t.Fatal(err)
		}
	}, ua.StatusBadTCPMessageTooLarge, true},
}

var securedViolations = []violation{
	{"6.7.5 altered", opened, func(t *testing.T, c *uatest.Client) {
		b, err := c.Chunk("MSGF", 1, body(100))
		b[len(b)/2]++
		write(t, c, b, err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"6.7.5 signature altered", opened, func(t *testing.T, c *uatest.Client) {
		b, err := c.Chunk("MSGF", 1, body(100))
		b[len(b)-1]++
		write(t, c, b, err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"6.7.5 not a multiple of the block", opened, func(t *testing.T, c *uatest.Client) {
		b, err := c.Chunk("MSGF", 1, body(100))
		b = append(b, 0)
		write(t, c, put(b, 4, uint32(len(b))), err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"6.7.5 shorter than a signature", opened, func(t *testing.T, c *uatest.Client) {
		b, err := c.Chunk("MSGF", 1, body(100))
		write(t, c, put(b[:32], 4, 32), err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"Part 7 nonce too short", greeted, func(t *testing.T, c *uatest.Client) {
		c.Nonce = make([]byte, 31)
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadNonceInvalid, false},
	{"Part 7 nonce empty", greeted, func(t *testing.T, c *uatest.Client) {
		c.Nonce = []byte{}
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadNonceInvalid, false},
	{"6.7.7 thumbprint of another receiver", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Server = bytes.Clone(c.Options.Server)
		c.Options.Server[100]++
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadCertificateInvalid, false},
	{"6.7.4 signature of the request altered", greeted, func(t *testing.T, c *uatest.Client) {
		b, err := c.OpenChunk(1, body(100))
		b[len(b)-1]++
		write(t, c, b, err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"6.7.4 request not a multiple of the key", greeted, func(t *testing.T, c *uatest.Client) {
		b, err := c.OpenChunk(1, body(100))
		b = b[:len(b)-1]
		write(t, c, put(b, 4, uint32(len(b))), err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"6.7.4 request of too many RSA blocks", greeted, func(t *testing.T, c *uatest.Client) {
		b, err := c.OpenChunk(1, body(17*214))
		write(t, c, b, err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"6.7.4 signed by another key", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Identity = uatest.NewIdentity(t, uatest.Key(t, 2048, 2), nil, nil)
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"6.7.3 renewed with another certificate", opened, func(t *testing.T, c *uatest.Client) {
		c.Options.Identity = uatest.NewIdentity(t, c.Options.Identity.Key, nil, nil)
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeRenew)
		write(t, c, nil, err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"6.7.3 renewed with the same nonce", greeted, func(t *testing.T, c *uatest.Client) {
		c.Nonce = bytes.Repeat([]byte{7}, 32)
		if err := c.Open(ua.SecurityTokenRequestTypeIssue); err != nil {
			t.Fatal(err)
		}
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeRenew)
		write(t, c, nil, err)
	}, ua.StatusBadNonceInvalid, false},
	{"6.7.7 renewed with another policy", opened, func(t *testing.T, c *uatest.Client) {
		b := []byte("OPNF\x00\x00\x00\x00")
		b = binary.LittleEndian.AppendUint32(b, c.Channel)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(ua.SecurityPolicyURINone)))
		b = append(b, ua.SecurityPolicyURINone...)
		b = append(b, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF)
		write(t, c, put(b, 4, uint32(len(b))), nil)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"Part 4, 6.1.3 no certificate", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Identity = &uatest.Identity{Key: c.Options.Identity.Key}
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"Part 4, 6.1.3 certificate is garbage", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Identity = &uatest.Identity{Key: c.Options.Identity.Key, DER: body(700)}
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadSecurityChecksFailed, false},
	{"Part 4, 6.1.3 certificate has expired", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Identity = uatest.NewIdentity(t, c.Options.Identity.Key, nil, func(x *x509.Certificate) { x.NotAfter = time.Now().Add(-time.Minute) })
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadCertificateTimeInvalid, false},
	{"Part 4, 6.1.3 certificate is for other uses", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Identity = uatest.NewIdentity(t, c.Options.Identity.Key, nil, func(x *x509.Certificate) { x.KeyUsage = x509.KeyUsageCRLSign })
		_, err := c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
	}, ua.StatusBadCertificateUseNotAllowed, false},
	{"Part 7 key of 1024 bits", greeted, func(t *testing.T, c *uatest.Client) {
		c.Options.Identity = uatest.NewIdentity(t, uatest.Key(t, 1024, 0), nil, nil)
		b, err := c.OpenChunk(1, body(100))
		write(t, c, b, err)
	}, ua.StatusBadCertificatePolicyCheckFailed, false},
}

func TestViolations(t *testing.T) {
	cfg := config(t)
	_, addr := listen(t, cfg, handler{})
	bystander := connect(t, addr, secured(t, cfg, ua.MessageSecurityModeSignAndEncrypt))
	id := uint32(0)
	run := func(name string, v violation, o uatest.Options) {
		t.Run(name, func(t *testing.T) {
			c, err := uatest.New(dial(t, addr), o)
			if err == nil && v.at >= greeted {
				err = c.Hello()
			}
			if err == nil && v.at >= opened {
				err = c.Open(ua.SecurityTokenRequestTypeIssue)
			}
			if err != nil {
				t.Fatal(err)
			}
			v.break_(t, c)
			if e := wantError(t, c, v.code); v.code == ua.StatusBadSecurityChecksFailed && e.Reason != "" {
				t.Errorf("peer was told why: %q (Part 6, 6.7.7)", e.Reason)
			}
			if _, err := c.Receive(); err == nil {
				t.Error("connection is still open")
			}
			c.Close()
			id++
			echo(t, bystander, id, 100)
		})
	}
	for _, v := range violations {
		run(v.name, v, uatest.Options{})
		if v.secured {
			run(v.name+", secured", v, secured(t, cfg, ua.MessageSecurityModeSignAndEncrypt))
		}
	}
	for _, v := range securedViolations {
		run(v.name, v, secured(t, cfg, ua.MessageSecurityModeSignAndEncrypt))
	}
}

func TestUntrustedCertificate(t *testing.T) {
	dir := t.TempDir()
	trust, err := pki.OpenFolder(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t)
	log := &logs{}
	cfg.Trust, cfg.Log = trust, slog.New(slog.NewTextHandler(log, nil))
	_, addr := listen(t, cfg, handler{})
	o := secured(t, cfg, ua.MessageSecurityModeSign)
	c, err := uatest.New(dial(t, addr), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Hello(); err != nil {
		t.Fatal(err)
	}
	_, err = c.SendOpen(ua.SecurityTokenRequestTypeIssue)
	write(t, c, nil, err)
	if e := wantError(t, c, ua.StatusBadSecurityChecksFailed); e.Reason != "" {
		t.Errorf("peer was told %q", e.Reason)
	}
	if print := pki.ThumbprintOf(o.Identity.DER).String(); !strings.Contains(log.String(), print) || !strings.Contains(log.String(), "not trusted") {
		t.Errorf("log does not name the certificate %s:\n%s", print, log)
	}
}

func TestAbortedRequest(t *testing.T) {
	cfg := config(t)
	_, addr := listen(t, cfg, handler{})
	for _, o := range []uatest.Options{{}, secured(t, cfg, ua.MessageSecurityModeSignAndEncrypt)} {
		c := connect(t, addr, o)
		for i, kind := range []string{"MSGC", "MSGC", "MSGA"} {
			b, err := c.Chunk(kind, 5, body(i*100))
			write(t, c, b, err)
		}
		echo(t, c, 6, 50) // the next answer is to the next request (Part 6, 6.7.2.2)
	}
}
