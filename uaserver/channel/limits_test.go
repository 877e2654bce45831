package channel_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/channel"
	"edged/uaserver/uatest"
)

func TestClientLimits(t *testing.T) {
	cfg := config(t)
	sent := make(chan error, 10)
	var most atomic.Int64
	_, addr := listen(t, cfg, handler{serve: func(r *channel.Request) {
		most.Store(int64(r.Channel.MaxResponse()))
		b := append(typeID(r), r.Body.Rest()...)
		err := r.Reply(raw(append(b, b...)))
		if err != nil {
			r.Reply(raw(b[:4])) // the fault
		}
		sent <- err
	}})
	for _, row := range []struct {
		name string
		o    uatest.Options
		n    int // of the response
		want error
	}{
		{"A4 MaxMessageSize reached", uatest.Options{MaxSize: 20_000}, 20_000, nil},
		{"A4 MaxMessageSize exceeded", uatest.Options{MaxSize: 20_000}, 20_002, channel.ErrTooLarge},
		{"A4 MaxChunkCount reached", uatest.Options{Receive: 8192, MaxChunks: 2}, 2 * 8168, nil},
		{"A4 MaxChunkCount exceeded", uatest.Options{Receive: 8192, MaxChunks: 2}, 2*8168 + 2, channel.ErrTooLarge},
		{"A4 zero is no limit", uatest.Options{}, 120_000, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := connect(t, addr, row.o)
			for _, size := range []int{row.n, 10} { // the channel lives, and its sequence numbers go on
				if err := c.Send(1, body(size/2-4)); err != nil {
					t.Fatal(err)
				}
				m, err := c.Receive()
				if err != nil {
					t.Fatal(err)
				}
				want := row.want
				if size == 10 {
					want = nil
				}
				if fits := size <= int(most.Load()); fits != (want == nil) {
					t.Errorf("MaxResponse %d for a response of %d bytes", most.Load(), size)
				}
				if err := <-sent; err != want {
					t.Errorf("Reply of %d bytes: %v, want %v", size, err, want)
				}
				if want == nil && len(m.Body) != size {
					t.Errorf("response of %d bytes, want %d", len(m.Body), size)
				}
			}
		})
	}
}

func TestRequestLimits(t *testing.T) {
	cfg := config(t)
	cfg.Limits.Request = 1 << 20
	account := &tag.Budget{Limit: 3 << 20}
	cfg.Account = account
	_, addr := listen(t, cfg, handler{serve: func(r *channel.Request) {
		r.Channel.Trusted()
		r.Reply(raw(typeID(r)))
	}})
	connectTrusted := func() *uatest.Client {
		c := connect(t, addr, uatest.Options{})
		if err := c.Send(1, body(0)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Receive(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := connectTrusted()
	if c.Ack[3] != 1<<20 {
		t.Errorf("MaxMessageSize %d", c.Ack[3])
	}
	if err := c.Send(2, body(1<<20-4)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(); err != nil {
		t.Errorf("request of the largest size: %v", err)
	}
	c.Send(3, body(1<<20-3))
	wantError(t, c, ua.StatusBadTCPMessageTooLarge)

	// C4: requests that are never finished are refused when the account is empty, and others go on.
	ok, refused := connectTrusted(), 0
	for range 4 {
		c := connectTrusted()
		chunks, err := c.Chunks(4, body(1<<20-4))
		if err != nil {
			t.Fatal(err)
		}
		c.Conn.Write(bytes.Join(chunks[:len(chunks)-1], nil))
		c.Conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, err = c.Receive()
		var e *uatest.Error
		if errors.As(err, &e) && e.Code == ua.StatusBadTCPNotEnoughResources {
			refused++
		}
		if n := account.Used(); n > account.Limit {
			t.Errorf("account holds %d of %d", n, account.Limit)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	if err := ok.Send(5, body(10)); err != nil {
		t.Fatal(err)
	}
	if _, err := ok.Receive(); err != nil {
		t.Errorf("bystander: %v", err)
	}
}

func TestConnectionLimits(t *testing.T) {
	cfg := config(t)
	cfg.Limits.Connections = 3
	s, addr := listen(t, cfg, trusting)
	first := connect(t, addr, uatest.Options{})
	echo(t, first, 1, 1)
	idle := dial(t, addr)
	second := connect(t, addr, uatest.Options{}) // has a channel and no session
	honest := connect(t, addr, uatest.Options{})
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("the oldest without a session did not give way")
	}
	echo(t, honest, 1, 1)
	echo(t, second, 1, 1)
	echo(t, first, 2, 1)
	c, err := uatest.New(dial(t, addr), uatest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, c, ua.StatusBadTCPServerTooBusy) // all three have sessions
	if n := s.Connections(); n != 3 {
		t.Errorf("%d connections", n)
	}
	first.Close()
	for s.Connections() == 3 {
		time.Sleep(time.Millisecond)
	}
	connect(t, addr, uatest.Options{})
}

func TestConnectionsPerAddress(t *testing.T) {
	cfg := config(t)
	cfg.Limits.PerAddress = 1
	_, addr := listen(t, cfg, handler{})
	first := dial(t, addr)
	second := connect(t, addr, uatest.Options{})
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("the first of the address did not give way")
	}
	echo(t, second, 1, 1)
	local := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := local.Dial("tcp", addr)
	if err != nil {
		t.Skip("no second loopback address:", err)
	}
	defer conn.Close()
	if _, err := uatest.Connect(conn, uatest.Options{}); err != nil {
		t.Errorf("another address: %v", err)
	}
	echo(t, second, 2, 1)
}

// TestFloodFromOneAddress: a peer that comes again and again drives out its own connections, not that of another address
// which is about to make a session.
func TestFloodFromOneAddress(t *testing.T) {
	cfg := config(t)
	cfg.Limits.Connections = 4
	_, addr := listen(t, cfg, trusting)
	local := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := local.Dial("tcp", addr)
	if err != nil {
		t.Skip("no second loopback address:", err)
	}
	t.Cleanup(func() { conn.Close() })
	honest, err := uatest.Connect(conn, uatest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		dial(t, addr)
	}
	last := connect(t, addr, uatest.Options{}) // all before it were accepted
	echo(t, honest, 1, 1)
	echo(t, last, 1, 1)
}

func TestPolicyThatCannotBeOffered(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*channel.Config)
	}{
		{"no certificate", func(c *channel.Config) { c.Certificate = nil }},
		{"no trust list", func(c *channel.Config) { c.Trust = nil }},
		{"a key that is too large", func(c *channel.Config) {
			c.Policies[0].URI, c.Certificate = ua.SecurityPolicyURIBasic256, ownOf(t, 3072).Itself
		}},
	} {
		cfg := config(t)
		log := &logs{}
		cfg.Log = slog.New(slog.NewTextHandler(log, nil))
		row.change(&cfg)
		policy, server := cfg.Policies[0].URI, ownOf(t, 2048).DER()
		_, addr := listen(t, cfg, handler{})
		if !strings.Contains(log.String(), policy) {
			t.Errorf("%s: nothing in the log", row.name)
		}
		c, err := uatest.New(dial(t, addr), uatest.Options{Policy: policy, Mode: both[0], Identity: uatest.ClientIdentity(t), Server: server})
		if err == nil {
			err = c.Hello()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.SendOpen(ua.SecurityTokenRequestTypeIssue)
		write(t, c, nil, err)
		wantError(t, c, ua.StatusBadSecurityPolicyRejected)
		echo(t, connect(t, addr, uatest.Options{}), 1, 1) // discovery goes on
	}
}
