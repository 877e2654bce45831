package channel

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

var modes = []ua.MessageSecurityMode{ua.MessageSecurityModeNone, ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt}

// echoing answers with the bytes of the request.
type echoing struct{ body bytesBody }

func (e *echoing) Serve(r *Request) {
	e.body = append(append(e.body[:0], 1, 0, byte(r.Type), byte(r.Type>>8)), r.Body.Rest()...)
	if err := r.Reply(&e.body); err != nil {
		panic(err)
	}
}

func (*echoing) Closed(*Channel) {}

type bytesBody []byte

func (b *bytesBody) AppendTo(dst []byte) []byte { return append(dst, *b...) }

// ends are both ends of an open channel: the server's, and what a client needs to take part without allocating.
type ends struct {
	s     *Server
	c     *Channel
	conn  net.Conn
	mode  ua.MessageSecurityMode
	keys  *PeerKeys
	seq   uint32
	chunk []byte
	in    []byte
}

// opened runs a channel over conn that is open already, so that a test can begin where the hot path does.
func opened(tb testing.TB, h Handler, server, client net.Conn, mode ua.MessageSecurityMode) *ends {
	tb.Helper()
	s := New(Config{Log: slog.New(slog.DiscardHandler), Account: &tag.Budget{}}, h)
	c := s.admit(server)
	c.id, c.mode, c.policy = 7, mode, strong
	c.chunk, c.maxChunk = 65535, 65535
	c.body = ChunkBody(c.chunk, mode)
	t := &token{id: 3, created: time.Now(), life: time.Hour}
	e := &ends{s: s, c: c, conn: client, mode: mode, chunk: make([]byte, 0, 1<<20), in: make([]byte, 1<<20)}
	p := policies[ua.SecurityPolicyURIBasic256Sha256]
	mine, theirs := bytes.Repeat([]byte{1}, p.nonce), bytes.Repeat([]byte{2}, p.nonce)
	var err error
	if e.keys, err = NewPeerKeys(p.uri, theirs, mine, mode); err != nil {
		tb.Fatal(err)
	}
	if err := t.recv.derive(p, mine, theirs, mode, cipher.NewCBCDecrypter); err != nil {
		tb.Fatal(err)
	}
	if err := t.send.derive(p, theirs, mine, mode, cipher.NewCBCEncrypter); err != nil {
		tb.Fatal(err)
	}
	c.in.token, c.out.token, c.in.hello, c.in.expire = t, t, true, t.end()
	return e
}

// request sends one chunk around body.
func (e *ends) request(body []byte) error {
	b := e.chunk[:ChunkSize(len(body), e.mode)]
	copy(b[HeaderSize:], body)
	e.seq++
	PutHeader(b, "MSGF", 7, 3, e.seq, e.seq)
	e.keys.Seal(b, len(body))
	_, err := e.conn.Write(b)
	return err
}

// response reads one chunk and returns its body.
func (e *ends) response() ([]byte, error) {
	if _, err := io.ReadFull(e.conn, e.in[:8]); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(e.in[4:]))
	if _, err := io.ReadFull(e.conn, e.in[8:n]); err != nil {
		return nil, err
	}
	plain, ok := e.keys.Open(e.in[:n])
	if !ok {
		return nil, io.ErrUnexpectedEOF
	}
	return plain[seqSize:], nil
}

func tcpPair(tb testing.TB) (server, client net.Conn) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		tb.Fatal(err)
	}
	return server, client
}

// running is opened with its read goroutine, over a loopback connection.
func running(tb testing.TB, mode ua.MessageSecurityMode) *ends {
	server, client := tcpPair(tb)
	e := opened(tb, &echoing{}, server, client, mode)
	done := make(chan struct{})
	go func() {
		e.s.run(e.c)
		close(done)
	}()
	tb.Cleanup(func() {
		client.Close()
		<-done
	})
	return e
}

func request(n int) []byte {
	return append([]byte{1, 0, 0x77, 0x02}, bytes.Repeat([]byte("x"), n)...)
}

// TestRoundTripAllocatesNothing: receiving, serving, framing, securing and sending a message.
func TestRoundTripAllocatesNothing(t *testing.T) {
	for _, mode := range modes {
		for _, n := range []int{100, 7000, 60_000} {
			e := running(t, mode)
			body := request(n)
			round := func() {
				if err := e.request(body); err != nil {
					t.Fatal(err)
				}
				if got, err := e.response(); err != nil || !bytes.Equal(got, body) {
					t.Fatalf("response of %d bytes: %v", len(got), err)
				}
			}
			for range 10 {
				round()
			}
			if allocs := testing.AllocsPerRun(200, round); allocs >= 1 && !raceEnabled {
				t.Errorf("%v, %d bytes: %v allocations a message", mode, n, allocs)
			}
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, mode := range modes {
		for _, size := range []struct {
			name string
			n    int
		}{{"100B", 100}, {"8kB", 8000}, {"60kB", 60_000}} {
			b.Run(mode.String()[len("MessageSecurityMode"):]+"/"+size.name, func(b *testing.B) {
				e := running(b, mode)
				body := request(size.n)
				b.ReportAllocs()
				b.SetBytes(int64(2 * len(body)))
				for b.Loop() {
					if err := e.request(body); err != nil {
						b.Fatal(err)
					}
					if _, err := e.response(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSeal is what security costs a response, without the socket.
func BenchmarkSeal(b *testing.B) {
	for _, mode := range modes[1:] {
		b.Run(mode.String()[len("MessageSecurityMode"):], func(b *testing.B) {
			server, client := net.Pipe()
			defer client.Close()
			defer server.Close()
			e := opened(b, &echoing{}, server, client, mode)
			buf := make([]byte, ChunkSize(8000, mode))
			b.ReportAllocs()
			b.SetBytes(8000)
			for b.Loop() {
				e.keys.Seal(buf, 8000)
			}
		})
	}
}

// TestIdleConnectionIsCheap bounds what an idle secured connection holds, here with a Server and the client's keys and socket of
// its own: less than 16 KiB, and so no read buffer and no writer.
func TestIdleConnectionIsCheap(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has its own memory")
	}
	const n = 100
	all := make([]*ends, 0, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		e := running(t, ua.MessageSecurityModeSignAndEncrypt)
		body := request(1000)
		if err := e.request(body); err != nil {
			t.Fatal(err)
		}
		if _, err := e.response(); err != nil {
			t.Fatal(err)
		}
		e.chunk, e.in = nil, nil
		all = append(all, e)
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)) / n
	t.Logf("%d bytes a connection, with its Server and its client's end", each)
	if each > 16*1024 {
		t.Errorf("an idle connection holds %d bytes", each)
	}
	runtime.KeepAlive(all)
}

// TestSequenceNumbers is 6.7.2.4, for both directions.
func TestSequenceNumbers(t *testing.T) {
	for _, row := range []struct {
		last, next uint32
		ok         bool
	}{
		{0, 1, true}, {1, 2, true}, {1, 1, false}, {2, 1, false}, {1, 3, false},
		{wrapAfter, wrapAfter + 1, true}, {wrapAfter, 0, false}, {wrapAfter, 1, false},
		{wrapAfter + 1, 0, true}, {wrapAfter + 1, 1023, true}, {wrapAfter + 1, 1024, false},
		{1<<32 - 1, 0, true}, {1<<32 - 1, 1, true}, {1<<32 - 1, 1<<32 - 1, false},
	} {
		in := input{seq: row.last}
		if err := in.sequence(row.next); (err == nil) != row.ok {
			t.Errorf("%d after %d: %v", row.next, row.last, err)
		}
	}
	o := output{seq: wrapAfter - 1}
	for _, want := range []uint32{wrapAfter, wrapAfter + 1, 1, 2} {
		if got := o.nextSeq(); got != want {
			t.Errorf("sent %d, want %d", got, want)
		}
	}
}

// TestBodyFitsItsChunk: the largest body fills a chunk, and one byte more does not fit.
func TestBodyFitsItsChunk(t *testing.T) {
	for _, mode := range modes {
		for limit := minChunk; limit < minChunk+64; limit++ {
			n := ChunkBody(limit, mode)
			if ChunkSize(n, mode) > limit || ChunkSize(n+1, mode) <= limit {
				t.Errorf("%v, chunk of %d: body %d gives %d, one more %d", mode, limit, n, ChunkSize(n, mode), ChunkSize(n+1, mode))
			}
		}
	}
}

// TestPadding is 6.7.2.5, with PaddingSize and ExtraPaddingSize.
func TestPadding(t *testing.T) {
	seq := make([]byte, seqSize)
	for _, row := range []struct {
		name  string
		tail  []byte
		width int
		body  int // after the sequence header; -1: refused
	}{
		{"none", []byte{0}, 1, 0},
		{"three", []byte{9, 9, 3, 3, 3, 3}, 1, 2},
		{"longer than the message", []byte{9, 200}, 1, -1},
		{"into the sequence header", []byte{1}, 1, -1},
		{"another value", []byte{3, 3, 4, 3}, 1, -1},
		{"extra none", []byte{0, 0}, 2, 0},
		{"extra two", []byte{9, 2, 2, 2, 0}, 2, 1},
		{"extra 258", append(bytes.Repeat([]byte{2}, 259), 1), 2, 0},
		{"extra longer than the message", []byte{0, 200}, 2, -1},
		{"extra another value", []byte{2, 1, 2, 0}, 2, -1},
		{"too short", nil, 1, -1},
	} {
		got, ok := unpad(append(bytes.Clone(seq), row.tail...), row.width)
		if ok != (row.body >= 0) || ok && len(got) != seqSize+row.body {
			t.Errorf("%s: %d bytes, %v", row.name, len(got), ok)
		}
	}
}

// TestKeysOfRFC5246 is a known answer of P_SHA256 (published with the test vectors of TLS 1.2's PRF, label and seed joined).
func TestKeysOfRFC5246(t *testing.T) {
	secret := []byte{0x9b, 0xbe, 0x43, 0x6b, 0xa9, 0x40, 0xf0, 0x17, 0xb1, 0x76, 0x52, 0x84, 0x9a, 0x71, 0xdb, 0x35}
	seed := append([]byte("test label"), 0xa0, 0xba, 0x9f, 0x93, 0x6c, 0xda, 0x31, 0x18, 0x27, 0xa6, 0xf7, 0x96, 0xff, 0xd5, 0x19, 0x8c)
	want := []byte{0xe3, 0xf2, 0x29, 0xba, 0x72, 0x7b, 0xe1, 0x7b, 0x8d, 0x12, 0x26, 0x20, 0x55, 0x7c, 0xd4, 0x53}
	if got := hmacSHA256.derive(secret, seed, 100); len(got) != 100 || !bytes.Equal(got[:16], want) {
		t.Errorf("%d bytes, %x", len(got), got[:16])
	}
}

func TestBuffers(t *testing.T) {
	for _, n := range []int{0, 1, 4095, 4096, 4097, 8192, 65535, 65536, 65537, 1 << 20, 1<<20 + 1, 5 << 20} {
		b := take(n)
		if len(b.b) != 0 || cap(b.b) < n {
			t.Errorf("take(%d): %d of %d", n, len(b.b), cap(b.b))
		}
		b.off = 3
		b.release()
	}
	grown := take(10)
	grown.b = append(grown.b, make([]byte, 100_000)...)
	grown.release()
	for range 100 {
		if b := take(65536); cap(b.b) < 65536 || len(b.b) != 0 || b.off != 0 {
			t.Fatalf("%d of %d from %d", len(b.b), cap(b.b), b.off)
		}
	}
}
