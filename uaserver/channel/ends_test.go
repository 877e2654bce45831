package channel

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// gated answers with the request's bytes those requests that do not begin with 'q', each when the gate lets it.
type gated struct {
	echoing
	came, gate chan struct{}
}

func (g *gated) Serve(r *Request) {
	g.came <- struct{}{}
	<-g.gate
	if rest := r.Body.Rest(); rest[0] != 'q' {
		g.body = append(append(g.body[:0], 1, 0, byte(r.Type), byte(r.Type>>8)), rest...)
		r.Reply(&g.body) // which fails where the connection has ended
	}
}

// TestEndThatComesWithARequest: what the peer did to the connection right behind a request ends it as soon as the request
// was answered, although both are found by one look at the socket.
func TestEndThatComesWithARequest(t *testing.T) {
	for _, row := range []struct {
		name string
		text string // of the request; one of "q" gets no answer
		end  func(c *net.TCPConn)
		eof  bool // the client can see the answer and the end of the connection
	}{
		{"answered, then no more is sent", "answer", func(c *net.TCPConn) { c.CloseWrite() }, true},
		{"answered, closed", "answer", func(c *net.TCPConn) { c.Close() }, false},
		{"answered, reset", "answer", func(c *net.TCPConn) { c.SetLinger(0); c.Close() }, false},
		{"unanswered, then no more is sent", "q", func(c *net.TCPConn) { c.CloseWrite() }, true},
		{"unanswered, closed", "q", func(c *net.TCPConn) { c.Close() }, false},
		{"unanswered, reset", "q", func(c *net.TCPConn) { c.SetLinger(0); c.Close() }, false},
	} {
		t.Run(row.name, func(t *testing.T) { testEnd(t, row.text, row.end, row.eof, true) })
		t.Run(row.name+", one event", func(t *testing.T) {
			// With one processor the poller hears of the request when the end has come too.
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			testEnd(t, row.text, row.end, row.eof, false)
		})
	}
}

// testEnd sends a request and ends the connection; busy: while the read goroutine stands in an earlier request, else while
// it waits.
func testEnd(t *testing.T, text string, end func(c *net.TCPConn), eof, busy bool) {
	server, client := tcpPair(t)
	defer client.Close()
	g := &gated{came: make(chan struct{}), gate: make(chan struct{}, 2)}
	e := opened(t, g, server, client, ua.MessageSecurityModeNone)
	done := make(chan struct{})
	go func() {
		e.s.run(e.c)
		close(done)
	}()
	ask := func(text string) {
		if err := e.request(append([]byte{1, 0, 0x77, 0x02}, text...)); err != nil {
			t.Fatal(err)
		}
	}
	ask("qqq")
	<-g.came
	if busy {
		ask(text)
		end(client.(*net.TCPConn))
		g.gate <- struct{}{}
	} else {
		g.gate <- struct{}{}
		for range 100 {
			runtime.Gosched() // until it waits
		}
		ask(text)
		end(client.(*net.TCPConn))
	}
	g.gate <- struct{}{}
	<-g.came
	if eof {
		client.SetReadDeadline(time.Now().Add(10 * time.Second))
		got, err := io.ReadAll(client)
		if answered := text != "q"; err != nil || bytes.HasSuffix(got, []byte(text)) != answered {
			t.Errorf("read %q, %v", got, err)
		}
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the connection lives on")
		e.c.Close(ua.StatusOK)
		<-done
	}
}

// TestManyRequestsInOneLook: requests that came together are all answered, and so is one that came in two pieces.
func TestManyRequestsInOneLook(t *testing.T) {
	e := running(t, ua.MessageSecurityModeSign)
	plain := e.conn
	var all bytes.Buffer
	e.conn = writerConn{plain, &all}
	for i := range 50 {
		if err := e.request(request(i)); err != nil {
			t.Fatal(err)
		}
	}
	e.conn = plain
	b := all.Bytes()
	for _, piece := range [][]byte{b[:len(b)-100], b[len(b)-100 : len(b)-99], b[len(b)-99:]} {
		if _, err := plain.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	plain.SetReadDeadline(time.Now().Add(10 * time.Second))
	for i := range 50 {
		if got, err := e.response(); err != nil || len(got) != len(request(i)) {
			t.Fatalf("answer %d: %d bytes, %v", i, len(got), err)
		}
	}
}

// writerConn gathers what is written.
type writerConn struct {
	net.Conn
	w io.Writer
}

func (c writerConn) Write(b []byte) (int, error) { return c.w.Write(b) }

// TestAbortWaitsForNobody: a connection is closed while its handler works and while its read goroutine waits.
func TestAbortWaitsForNobody(t *testing.T) {
	server, client := tcpPair(t)
	defer client.Close()
	g := &gated{came: make(chan struct{}), gate: make(chan struct{})}
	e := opened(t, g, server, client, ua.MessageSecurityModeNone)
	done := make(chan struct{})
	go func() {
		e.s.run(e.c)
		close(done)
	}()
	if err := e.request(request(1)); err != nil {
		t.Fatal(err)
	}
	<-g.came
	e.c.out.mu.Lock()
	e.c.cut(slog.LevelDebug, "the test wants it") // as a failed write does, with the lock that the handler's answer needs
	e.c.out.mu.Unlock()
	g.gate <- struct{}{}
	<-done
	if err := e.c.Reply(1, &bytesBody{}); err != ErrClosed {
		t.Errorf("an answer after the end: %v", err)
	}

	server, client = tcpPair(t)
	defer client.Close()
	e = opened(t, g, server, client, ua.MessageSecurityModeNone)
	e.c.in.account, e.c.out.account = &tag.Budget{}, &tag.Budget{}
	ended := make(chan struct{})
	go func() {
		e.s.run(e.c)
		close(ended)
	}()
	e.c.abort()
	<-ended
}
