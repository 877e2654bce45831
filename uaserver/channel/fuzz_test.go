package channel

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

// counting answers each request with a byte string of the request's length, and counts the channels that were closed.
type counting struct{ served, closed int }

func (h *counting) Serve(r *Request) {
	h.served++
	r.Channel.Trusted()
	b := bytesBody(append([]byte{0, 0}, r.Body.Rest()...))
	r.Reply(&b)
}

func (h *counting) Closed(*Channel) { h.closed++ }

func fuzzServer(tb testing.TB, h Handler) (*Server, *tag.Budget) {
	tb.Helper()
	key := uatest.Key(tb, 2048, 0)
	der, err := pki.Make(key, pki.Identity{ApplicationURI: "urn:edged:fuzz"}, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	account := &tag.Budget{Limit: 1 << 20}
	return New(Config{
		Certificate: pki.NewOwn(cert, key).Itself, Trust: pki.TrustAll(quiet), Account: account, Log: quiet,
		Policies: []Policy{
			{URI: securePolicies[0], Modes: modes[1:]}, {URI: securePolicies[1], Modes: modes[1:]}, {URI: securePolicies[2], Modes: modes[1:]},
			{URI: deprecatedPolicies[0], Modes: modes[1:]}, {URI: deprecatedPolicies[1], Modes: modes[1:]},
		},
		Limits: Limits{Request: 256 * 1024, Output: 64 * 1024},
	}, h), account
}

// recorded is what a client sends from Hello to CloseSecureChannel with policy None.
func recorded(tb testing.TB) []byte {
	tb.Helper()
	c, err := uatest.New(nil, uatest.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	req, err := uatest.Encode(&ua.OpenSecureChannelRequest{
		RequestHeader:     &ua.RequestHeader{AuthenticationToken: ua.NewTwoByteNodeID(0), AdditionalHeader: ua.NewExtensionObject(nil)},
		SecurityMode:      ua.MessageSecurityModeNone,
		RequestedLifetime: 60_000,
	})
	if err != nil {
		tb.Fatal(err)
	}
	all := c.HelloMessage()
	open, err := c.OpenChunk(1, req)
	all = append(all, open...)
	c.Channel, c.Token = 1, 1
	for _, kind := range []string{"MSGF", "MSGC", "MSGC", "MSGA", "MSGC", "MSGF", "CLOF"} {
		b, cerr := c.Chunk(kind, 2, []byte{1, 0, 0x77, 0x02, 1, 2, 3})
		if cerr != nil {
			err = cerr
		}
		all = append(all, b...)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// FuzzServeConn is any bytes at a connection, in two writes. The conversation ends, gives back what it held, and closed
// what it opened. The channel's id is 1, so that messages reach it.
func FuzzServeConn(f *testing.F) {
	whole := recorded(f)
	f.Add(whole, 10)
	f.Add(whole[:len(whole)-5], 100)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		h := &counting{}
		s, account := fuzzServer(t, h)
		s.ids.Store(0)
		s.linger = 10 * time.Millisecond
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() {
			s.ServeConn(there)
			close(done)
		}()
		go io.Copy(io.Discard, here)
		cut = max(0, min(cut, len(b)))
		here.Write(b[:cut])
		here.Write(b[cut:])
		here.Close()
		<-done
		if h.served > 0 && h.closed != 1 || h.closed > 1 {
			t.Errorf("%d requests served, %d channels closed", h.served, h.closed)
		}
		if n := account.Used(); n != 0 {
			t.Errorf("account holds %d bytes", n)
		}
	})
}

// FuzzChunk is any chunks on an open channel: they are framed from the input as length byte, kind and body, so that the
// fuzzer reaches what lies behind header and signature.
func FuzzChunk(f *testing.F) {
	f.Add([]byte{4, 'F', 1, 0, 0x77, 2, 4, 'C', 1, 0, 0x77, 2, 1, 'F', 3}, uint8(2), false)
	f.Add([]byte{4, 'C', 1, 0, 0x77, 2, 4, 'A', 1, 0, 0x77, 2, 0, 'F'}, uint8(0), true)
	f.Fuzz(func(t *testing.T, b []byte, kind uint8, flip bool) {
		h := &counting{}
		here, there := net.Pipe()
		defer here.Close()
		e := opened(t, h, there, here, modes[kind%3])
		e.s.linger = 10 * time.Millisecond
		account := e.s.cfg.Account.(*tag.Budget)
		done := make(chan struct{})
		go func() {
			e.s.run(e.c)
			close(done)
		}()
		go io.Copy(io.Discard, here)
		for len(b) >= 2 {
			n := min(int(b[0]), len(b)-2)
			chunk := e.chunk[:ChunkSize(n, e.mode)]
			copy(chunk[headerSize:], b[2:2+n])
			e.seq++
			putHeader(chunk, "MSG"+string(rune(b[1]&0x7F)), 7, 3, e.seq, 1)
			e.keys.Seal(chunk, n)
			b = b[2+n:]
			if flip && len(b) < 2 {
				chunk[len(chunk)-1] ^= 1
			}
			if _, err := here.Write(chunk); err != nil {
				break
			}
		}
		here.Close()
		<-done
		if h.closed != 1 {
			t.Errorf("closed %d times", h.closed)
		}
		if n := account.Used(); n != 0 {
			t.Errorf("account holds %d bytes", n)
		}
	})
}

var allSecure = append(slices.Clone(securePolicies), deprecatedPolicies...)

// FuzzOpenSecured is any body of an OpenSecureChannel request that was signed and encrypted as it should be, by any
// certificate: what crypto/rsa gets to see of a peer.
func FuzzOpenSecured(f *testing.F) {
	me := uatest.ClientIdentity(f)
	f.Add([]byte{1, 0, 0xBE, 0x01, 0, 0}, me.DER)
	f.Add(bytes.Repeat([]byte{0xFF}, 600), append(bytes.Clone(me.DER), me.DER...))
	f.Fuzz(func(t *testing.T, body, der []byte) {
		s, account := fuzzServer(t, &counting{})
		s.linger = 10 * time.Millisecond
		id := *me
		id.DER = der
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() {
			s.ServeConn(there)
			close(done)
		}()
		c, err := uatest.New(here, uatest.Options{
			Policy: allSecure[len(body)%len(allSecure)], Mode: ua.MessageSecurityModeSign, Identity: &id, Server: s.own().DER(),
		})
		if err == nil {
			err = c.Hello()
		}
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, here)
		if b, err := c.OpenChunk(1, body); err == nil {
			here.Write(b)
		}
		here.Close()
		<-done
		if n := account.Used(); n != 0 {
			t.Errorf("account holds %d bytes", n)
		}
	})
}

// FuzzUnseal is any bytes as a sealed chunk: nothing but what the key's holder sealed opens.
func FuzzUnseal(f *testing.F) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	var all [3]*ends
	for i, mode := range modes {
		all[i] = opened(f, &counting{}, there, here, mode)
		b := make([]byte, ChunkSize(50, mode))
		rand.Read(b)
		putHeader(b, "MSGF", 7, 3, 1, 1)
		all[i].keys.Seal(b, 50)
		f.Add(b, uint8(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, kind uint8) {
		if len(b) < headerSize {
			return
		}
		e := all[kind%3]
		plain, ok := e.c.in.token.recv.open(bytes.Clone(b), e.mode)
		if !ok {
			return
		}
		if len(plain) < seqSize {
			t.Fatalf("%d bytes", len(plain))
		}
		again := make([]byte, ChunkSize(len(plain)-seqSize, e.mode))
		copy(again, b[:secureFrom])
		copy(again[secureFrom:], plain)
		if e.keys.Seal(again, len(plain)-seqSize); e.mode == ua.MessageSecurityModeSign && !bytes.Equal(again, b) {
			t.Error("sealing what was opened gives other bytes")
		}
	})
}

// heard runs one conversation on a pipe with the bytes, and returns the server when it has ended.
func heard(t *testing.T, prepare func(s *Server), b []byte) *counting {
	t.Helper()
	h := &counting{}
	s, account := fuzzServer(t, h)
	s.linger = 10 * time.Millisecond
	prepare(s)
	here, there := net.Pipe()
	done := make(chan struct{})
	go func() {
		s.ServeConn(there)
		close(done)
	}()
	go io.Copy(io.Discard, here)
	here.Write(b) // which fails where the server has heard enough
	here.Close()
	<-done
	if n := account.Used(); n != 0 {
		t.Errorf("account holds %d bytes", n)
	}
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections", n)
	}
	return h
}

// FuzzHello is any Hello: its sizes and its URL (Part 6, 7.1.2.3), with a header that fits, and a channel that is opened
// behind it. What the client said that it takes is kept to.
func FuzzHello(f *testing.F) {
	whole := recorded(f)
	hello := int(whole[4])
	f.Add(whole[8:hello])
	f.Add(append(bytes.Repeat([]byte{0xFF}, 20), 0xFF, 0xFF, 0xFF, 0xFF))
	f.Add(append(bytes.Repeat([]byte{0}, 20), 0xFF, 0xFF, 0xFF, 0x7F))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2*minChunk {
			return
		}
		msg := append([]byte("HELF\x00\x00\x00\x00"), b...)
		binary.LittleEndian.PutUint32(msg[4:], uint32(len(msg)))
		if h := heard(t, func(s *Server) { s.ids.Store(0) }, append(msg, whole[hello:]...)); h.closed > 1 {
			t.Errorf("%d channels closed", h.closed)
		}
		c := &Channel{s: &Server{cfg: Config{Limits: Limits{}.withDefaults(), Log: slog.New(slog.DiscardHandler)}}}
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		c.conn, c.policy = there, policies[ua.SecurityPolicyURINone]
		go io.Copy(io.Discard, here)
		if err := c.hello(msg); err != nil {
			return
		}
		c.body = c.policy.bodySize(c.chunk, ua.MessageSecurityModeNone) // as opening does
		receive, send := binary.LittleEndian.Uint32(msg[12:]), binary.LittleEndian.Uint32(msg[16:])
		if c.chunk < minChunk || c.maxChunk < minChunk || uint32(c.chunk) > receive || uint32(c.maxChunk) > send || c.MaxResponse() <= 0 {
			t.Errorf("client's buffers %d and %d: chunks of %d and %d bytes", receive, send, c.chunk, c.maxChunk)
		}
		there.Close()
		c.out.writer.Wait()
	})
}

// FuzzChunkHeader is any message header at each stage of a conversation (Part 6, 7.1.2.2): no chunk is waited for that is
// larger than what may come.
func FuzzChunkHeader(f *testing.F) {
	for _, kind := range []string{"HELF", "OPNF", "MSGF", "MSGC", "MSGA", "CLOF", "ERRF", "RHEF", "GET "} {
		for stage := range uint8(3) {
			f.Add([]byte(kind+"\x20\x00\x00\x00"), stage)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, stage uint8) {
		if len(b) < messageHeader {
			return
		}
		c := &Channel{s: &Server{cfg: Config{Limits: Limits{}.withDefaults(), Log: slog.New(slog.DiscardHandler)}}, maxChunk: 65535}
		c.in.hello = stage%3 > 0
		if stage%3 > 1 {
			c.id = 7
		}
		c.in.buf = full(take(firstRead))
		defer c.in.drop()
		c.in.w = copy(c.in.buf.b, b)
		account := &tag.Budget{Limit: 1 << 20}
		c.in.account = account
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		c.conn, c.began = there, time.Now()
		chunk, err := c.nextChunk()
		if size := binary.LittleEndian.Uint32(b[4:]); err == nil && (size < messageHeader || size > uint32(c.maxChunk)) {
			t.Fatalf("%q of %d bytes is taken", b[:4], size)
		} else if err == nil && chunk != nil && len(chunk) != int(size) {
			t.Fatalf("%d bytes of a chunk of %d", len(chunk), size)
		}
		if n := len(c.in.buf.b); n > 2*(c.maxChunk+1) {
			t.Fatalf("a buffer of %d bytes", n)
		}
	})
}

// FuzzSecurityHeader is any asymmetric security header with what follows it (Part 6, 6.7.2.3), behind a Hello.
func FuzzSecurityHeader(f *testing.F) {
	whole := recorded(f)
	hello := int(whole[4])
	size := int(binary.LittleEndian.Uint32(whole[hello+4:]))
	f.Add(whole[hello+12 : hello+size])
	me := uatest.ClientIdentity(f)
	s, _ := fuzzServer(f, &counting{})
	for _, uri := range allSecure {
		c, err := uatest.New(nil, uatest.Options{Policy: allSecure[0], Mode: ua.MessageSecurityModeSign, Identity: me, Server: s.own().DER()})
		if err != nil {
			f.Fatal(err)
		}
		c.Options.Policy = uri
		b, err := c.OpenChunk(1, []byte("request"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[12:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		msg := append([]byte("OPNF\x00\x00\x00\x00\x00\x00\x00\x00"), b...)
		binary.LittleEndian.PutUint32(msg[4:], uint32(len(msg)))
		if h := heard(t, func(*Server) {}, append(bytes.Clone(whole[:hello]), msg...)); h.served > 0 {
			t.Errorf("%d requests were served", h.served)
		}
	})
}
