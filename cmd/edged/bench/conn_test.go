package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/channel"
	"edged/uaserver/pki"
	"edged/uaserver/uatest"
	"edged/uaserver/wire"
)

// memory is a connection whose ends are buffers.
type memory struct {
	net.Conn // nil: nothing else is called
	in, out  []byte
}

func (m *memory) Write(b []byte) (int, error) {
	m.out = append(m.out, b...)
	return len(b), nil
}

// Read gives few bytes at a time, so that chunks come in pieces.
func (m *memory) Read(b []byte) (int, error) {
	if len(m.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 13)], m.in)
	m.in = m.in[n:]
	return n, nil
}

// answering answers each Read with so many values.
type answering struct{ values int }

func (a *answering) Serve(r *channel.Request) {
	r.Channel.Trusted() // as after a login: no bound on requests but the usual one
	if h := r.Body.RequestHeader(); r.Type == id.ReadRequest_Encoding_DefaultBinary {
		r.Reply(body(func(b []byte) []byte {
			b = wire.AppendResponseHeader(b, id.ReadResponse_Encoding_DefaultBinary, h.Handle, ua.StatusOK, tag.Now())
			b = wire.AppendUint32(b, uint32(a.values))
			for i := range a.values {
				b = wire.AppendDataValue(b, &wire.DataValue{Value: tag.Of(int32(i))})
			}
			return wire.AppendNull(b)
		}))
	}
}

func (*answering) Closed(*channel.Channel) {}

type body func([]byte) []byte

func (b body) AppendTo(dst []byte) []byte { return b(dst) }

// server is a channel server without sessions, and its certificate.
func channelServer(t *testing.T, h channel.Handler, limits channel.Limits) (url string, der []byte) {
	t.Helper()
	own := uatest.NewIdentity(t, uatest.Key(t, 2048, 0), nil, nil)
	s := channel.New(channel.Config{
		Certificate: pki.NewOwn(own.Cert, own.Key).Itself, Trust: pki.TrustAll(slog.New(slog.DiscardHandler)), Limits: limits,
		Policies: []channel.Policy{{URI: ua.SecurityPolicyURIBasic256Sha256, Modes: []ua.MessageSecurityMode{ua.MessageSecurityModeSignAndEncrypt}}},
		Log:      slog.New(slog.DiscardHandler),
	}, h)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Shutdown(t.Context())
		<-ended
	})
	return "opc.tcp://" + l.Addr().String(), own.DER
}

// peers are a server without and with security.
func peers(t *testing.T, url string, der []byte) map[string]*peer {
	t.Helper()
	plain, err := newPeer(t.Context(), url, SecurityNone)
	if err != nil {
		t.Fatal(err)
	}
	secure := *plain
	secure.uri, secure.mode = ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSignAndEncrypt
	if err := secure.certificates(der); err != nil {
		t.Fatal(err)
	}
	return map[string]*peer{"None": plain, "Basic256Sha256": &secure}
}

// Requests and answers of one and of many chunks, across renewals of the token.
func TestConversation(t *testing.T) {
	const values = 20_000 // 120 kB: two chunks
	url, der := channelServer(t, &answering{values}, channel.Limits{})
	for name, p := range peers(t, url, der) {
		t.Run(name, func(t *testing.T) {
			c, err := p.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.sock.Close()
			c.sock.SetDeadline(time.Now().Add(patience))
			if c.session, c.renewal = wire.NumericID(1, 1), time.Now().Add(time.Hour); !c.renewal.After(time.Now()) {
				t.Fatal("a new token is to be renewed at once")
			}
			if _, _, err := c.ask(readRequest(c.session, nil), time.Now()); err != nil {
				t.Fatal(err)
			}
			q := readRequest(c.session, make([]wire.NodeID, values)) // 320 kB: five chunks
			tokens := map[uint32]bool{}
			for i := range 6 {
				if i%2 == 1 {
					c.renewal = time.Now().Add(-time.Second)
				}
				handle, b, err := c.ask(q, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				v := q.check(b, handle)
				if err := v.err(q); err != nil {
					t.Fatal(err)
				}
				tokens[c.send.id] = true
			}
			if len(tokens) != 4 {
				t.Errorf("%d tokens, want the first and 3 renewed ones", len(tokens))
			}
			if wait := time.Until(c.renewal); wait <= 0 || wait > lifetime*3/4 {
				t.Errorf("the next renewal is in %v", wait)
			}
		})
	}
}

// The hot path: a request and its answer allocate nothing, whatever secures them.
func TestAskAllocatesNothing(t *testing.T) {
	url, der := channelServer(t, &answering{100}, channel.Limits{})
	for name, p := range peers(t, url, der) {
		t.Run(name, func(t *testing.T) {
			c, err := p.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.sock.Close()
			c.sock.SetDeadline(time.Now().Add(patience))
			q := readRequest(wire.NumericID(1, 1), make([]wire.NodeID, 100))
			now := time.Now()
			// The client alone: its answer is opened from a copy, as the server is in this process, too.
			handle, err := c.post(q, now)
			if err != nil {
				t.Fatal(err)
			}
			chunk, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			answer := bytes.Clone(chunk)
			c.sock.Close()
			m := &memory{}
			c.sock = newSocket(m)
			copyOf := bytes.Clone(answer)
			if n := testing.AllocsPerRun(50, func() {
				copy(copyOf, answer)
				c.last, m.out, m.in = 0, m.out[:0], copyOf
				c.post(q, now)
				_, b, err := c.receive()
				if v := q.check(b, handle); err != nil || v.items != 100 {
					t.Fatal(err, v)
				}
			}); n != 0 && !raceEnabled {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// chunk is one chunk as a server without security sends it.
func chunk(kind string, token, seq, request uint32, part []byte) []byte {
	b := make([]byte, channel.HeaderSize, channel.HeaderSize+len(part))
	b = append(b, part...)
	channel.PutHeader(b, kind, 1, token, seq, request)
	return b
}

func errorMessage(code ua.StatusCode, reason string) []byte {
	b := wire.AppendString(wire.AppendUint32([]byte("ERRF\x00\x00\x00\x00"), uint32(code)), reason)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	return b
}

// A server may break each rule; the client names it and does not fail otherwise.
func TestReceive(t *testing.T) {
	abort := wire.AppendString(wire.AppendUint32(nil, uint32(ua.StatusBadResponseTooLarge)), "too large")
	whole := chunk("MSGF", 9, 5, 2, []byte("answer"))
	sized := func(n uint32) []byte {
		b := chunk("MSGF", 9, 5, 2, nil)
		binary.LittleEndian.PutUint32(b[4:], n)
		return b
	}
	rows := []struct {
		name string
		in   [][]byte
		want string // body, if err is empty
		err  string
	}{
		{"one chunk", [][]byte{whole}, "answer", ""},
		{"6.7.2 several chunks", [][]byte{chunk("MSGC", 9, 5, 2, []byte("an")), chunk("MSGC", 9, 6, 2, []byte("sw")), chunk("MSGF", 9, 7, 2, []byte("er"))}, "answer", ""},
		{"6.7.3 the token before the last", [][]byte{chunk("MSGF", 8, 5, 2, []byte("answer"))}, "answer", ""},
		{"6.7.3 a token that was never given", [][]byte{chunk("MSGF", 7, 5, 2, nil)}, "", "token 7 was never given"},
		{"6.7.2.4 a sequence number is left out", [][]byte{chunk("MSGF", 9, 6, 2, nil)}, "", "sequence number out of order: 6 after 4"},
		{"6.7.2.4 a sequence number comes twice", [][]byte{chunk("MSGC", 9, 5, 2, nil), chunk("MSGF", 9, 5, 2, nil)}, "", "5 after 5"},
		{"6.7.3 an abort", [][]byte{chunk("MSGC", 9, 5, 2, []byte("an")), chunk("MSGA", 9, 6, 2, abort)}, "", "StatusBadResponseTooLarge (0x80B90000): too large"},
		{"7.1.2.5 an Error message", [][]byte{errorMessage(ua.StatusBadTCPServerTooBusy, "busy")}, "", "busy"},
		{"an Error message that is cut off", [][]byte{{'E', 'R', 'R', 'F', 9, 0, 0, 0, 1}}, "", errCut.Error()},
		{"a size above what was agreed", [][]byte{sized(bufferSize + 1)}, "", "a chunk of 65537 bytes where at most 65536 were agreed"},
		{"a size below its header", [][]byte{sized(7)}, "", "a chunk of 7 bytes"},
		{"a chunk without a sequence header", [][]byte{sized(16)}, "", errCut.Error()},
		{"the end in the middle", [][]byte{whole[:20]}, "", io.EOF.Error()},
		{"no message of a server", [][]byte{append([]byte("HELF"), whole[4:]...)}, "", ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c := &conn{
				sock: newSocket(&memory{in: bytes.Join(row.in, nil)}), peer: &peer{mode: ua.MessageSecurityModeNone}, in: make([]byte, bufferSize),
				recv: [2]token{{id: 9}, {id: 8}}, last: 4,
			}
			id, b, err := c.receive()
			switch {
			case row.want != "" && (err != nil || id != 2 || string(b) != row.want):
				t.Errorf("%q for request %d, %v", b, id, err)
			case row.want == "" && (err == nil || !strings.Contains(err.Error(), row.err)):
				t.Errorf("error %v, want %q", err, row.err)
			}
		})
	}
	t.Run("6.7.2.4 numbers begin anew", func(t *testing.T) {
		c := &conn{last: 1<<32 - 1000}
		if err := c.order(3); err != nil {
			t.Error(err)
		}
		if err := c.order(3); !errors.Is(err, errOrder) {
			t.Errorf("error %v for a number that comes twice", err)
		}
	})
}

// Chunks that come in one packet are taken one after the other.
func TestReceiveSeveralMessages(t *testing.T) {
	var in []byte
	for i := range uint32(5000) {
		in = append(in, chunk("MSGF", 9, i+1, i, bytes.Repeat([]byte{byte(i)}, int(i%70)))...)
	}
	c := &conn{sock: newSocket(&memory{in: in}), peer: &peer{mode: ua.MessageSecurityModeNone}, in: make([]byte, 256), recv: [2]token{{id: 9}}}
	for i := range uint32(5000) {
		id, b, err := c.receive()
		if err != nil || id != i || len(b) != int(i%70) {
			t.Fatalf("message %d: %d bytes for request %d, %v", i, len(b), id, err)
		}
	}
}

func TestTamperedAnswersAreRefused(t *testing.T) {
	url, der := channelServer(t, &answering{1}, channel.Limits{})
	p := peers(t, url, der)["Basic256Sha256"]
	c, err := p.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.sock.Close()
	c.sock.SetDeadline(time.Now().Add(patience))
	q := readRequest(wire.NumericID(1, 1), make([]wire.NodeID, 1))
	if _, err := c.post(q, time.Now()); err != nil {
		t.Fatal(err)
	}
	b, err := c.next()
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-20] ^= 1
	if _, _, err := c.open(b); !errors.Is(err, errInsecure) {
		t.Errorf("error %v", err)
	}
}
