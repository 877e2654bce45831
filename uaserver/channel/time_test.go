package channel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/channel"
	"edged/uaserver/uatest"
)

// pipe runs f in a bubble with a server behind one in-memory connection, and checks that nothing is held afterwards.
func pipe(t *testing.T, cfg channel.Config, h channel.Handler, f func(t *testing.T, conn net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		account := &tag.Budget{}
		cfg.Account = account
		s := channel.New(cfg, h)
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() {
			s.ServeConn(there)
			close(done)
		}()
		f(t, here)
		here.Close()
		<-done
		if n := account.Used(); n != 0 {
			t.Errorf("account still holds %d bytes", n)
		}
		if n := s.Connections(); n != 0 {
			t.Errorf("%d connections left", n)
		}
	})
}

func TestHandshakeTime(t *testing.T) {
	cfg := config(t)
	for _, row := range []struct {
		name  string
		begin func(c *uatest.Client) error
	}{
		{"nothing is sent", func(c *uatest.Client) error { return nil }},
		{"a byte is sent", func(c *uatest.Client) error { return send(c, c.HelloMessage()[:1]) }},
		{"hello is not finished", func(c *uatest.Client) error { return send(c, c.HelloMessage()[:20]) }},
		{"hello and no open", func(c *uatest.Client) error { return c.Hello() }},
		{"open is not finished", func(c *uatest.Client) error {
			if err := c.Hello(); err != nil {
				return err
			}
			b, err := c.OpenChunk(1, body(100))
			if err != nil {
				return err
			}
			return send(c, b[:50])
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			pipe(t, cfg, handler{}, func(t *testing.T, conn net.Conn) {
				c, err := uatest.New(conn, uatest.Options{})
				if err == nil {
					err = row.begin(c)
				}
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				wantError(t, c, ua.StatusBadTimeout)
				if d := time.Since(start); d != 10*time.Second {
					t.Errorf("after %v", d)
				}
			})
		})
	}
}

func send(c *uatest.Client, b []byte) error {
	_, err := c.Conn.Write(b)
	return err
}

func TestUnfinishedRequest(t *testing.T) {
	cfg := config(t)
	for _, row := range []struct {
		name    string
		trusted bool
		every   time.Duration // between bytes; 0: nothing more
		after   time.Duration
	}{
		{"C4 before login nothing more", false, 0, 10 * time.Second},
		{"C4 before login a byte a second", false, time.Second, 10 * time.Second},
		{"C4 afterwards nothing more", true, 0, time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			pipe(t, cfg, handler{serve: func(r *channel.Request) {
				if row.trusted {
					r.Channel.Trusted()
				}
				handler{}.Serve(r)
			}}, func(t *testing.T, conn net.Conn) {
				c, err := uatest.Connect(conn, uatest.Options{})
				if err != nil {
					t.Fatal(err)
				}
				echo(t, c, 1, 1)
				time.Sleep(time.Minute) // idle is no fault
				echo(t, c, 2, 1)
				b, err := c.Chunk("MSGC", 3, body(5000))
				write(t, c, b, err)
				b, err = c.Chunk("MSGF", 3, body(5000))
				write(t, c, b[:100], err)
				start := time.Now()
				if row.every > 0 {
					go func() {
						for i := 100; ; i++ {
							time.Sleep(row.every)
							if _, err := c.Conn.Write(b[i : i+1]); err != nil {
								return
							}
						}
					}()
				}
				wantError(t, c, ua.StatusBadTimeout)
				if d := time.Since(start); d != row.after {
					t.Errorf("after %v, want %v", d, row.after)
				}
				time.Sleep(2 * row.every) // the sender ends
			})
		})
	}
}

func TestTokenLifetime(t *testing.T) {
	cfg := config(t)
	for _, row := range []struct{ asked, want time.Duration }{
		{time.Millisecond, 2 * time.Second}, {20 * time.Second, 20 * time.Second}, {3 * time.Hour, time.Hour},
	} {
		pipe(t, cfg, handler{}, func(t *testing.T, conn net.Conn) {
			o := secured(t, cfg, ua.MessageSecurityModeSign)
			o.Lifetime = row.asked
			c, err := uatest.Connect(conn, o)
			if err != nil {
				t.Fatal(err)
			}
			if c.Lifetime != row.want {
				t.Errorf("%v revised to %v, want %v", row.asked, c.Lifetime, row.want)
			}
			echo(t, c, 1, 1)
			start := time.Now()
			wantError(t, c, ua.StatusBadSecureChannelClosed) // a quarter of the lifetime after its end (6.7.3)
			if d := time.Since(start); d != row.want*5/4 {
				t.Errorf("closed after %v", d)
			}
		})
	}
}

// TestTokensOverlap follows 6.7.3 with a lifetime of 20 s: an old token ends when the new one is used, or 5 s after its own end.
func TestTokensOverlap(t *testing.T) {
	cfg := config(t)
	for _, row := range []struct {
		name    string
		wait    time.Duration // after the renewal, which is at 15 s
		useNew  bool
		sent    bool   // the old token is still taken
		answers uint32 // token of the answer
	}{
		{"6.7.3 old token before the new one is used", 0, false, true, 1},
		{"6.7.3 old token after the new one was used", 0, true, false, 0},
		{"6.7.3 old token after its end", 6 * time.Second, false, true, 2},
		{"6.7.3 old token a quarter after its end", 11 * time.Second, false, false, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			pipe(t, cfg, handler{}, func(t *testing.T, conn net.Conn) {
				o := secured(t, cfg, ua.MessageSecurityModeSignAndEncrypt)
				o.Lifetime = 20 * time.Second
				c, err := uatest.Connect(conn, o)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(15 * time.Second)
				old := c.Token
				if err := c.Open(ua.SecurityTokenRequestTypeRenew); err != nil {
					t.Fatal(err)
				}
				time.Sleep(row.wait)
				if row.useNew {
					if m := echo(t, c, 1, 100); m.Token != 2 {
						t.Errorf("new token answered with %d", m.Token)
					}
				}
				c.Token = old
				if !row.sent {
					b, err := c.Chunk("MSGF", 2, body(10))
					write(t, c, b, err)
					wantError(t, c, ua.StatusBadSecureChannelTokenUnknown)
					return
				}
				if m := echo(t, c, 2, 100); m.Token != row.answers {
					t.Errorf("answered with token %d, want %d", m.Token, row.answers)
				}
				c.Token = 2
				if m := echo(t, c, 3, 100); m.Token != 2 {
					t.Errorf("new token answered with %d", m.Token)
				}
				time.Sleep(15 * time.Second)
				echo(t, c, 4, 100) // the channel lives as long as its newest token
			})
		})
	}
}

func TestRenewalUnderTraffic(t *testing.T) {
	cfg := config(t)
	_, addr := listen(t, cfg, handler{})
	for _, mode := range both {
		c := connect(t, addr, secured(t, cfg, mode))
		const requests, every = 2000, 100
		nonces := make(chan []byte, requests)
		tokens := make(chan uint32, requests)
		go func() {
			for i := range uint32(requests) {
				if i%every == every/2 {
					nonce, err := c.SendOpen(ua.SecurityTokenRequestTypeRenew)
					if err != nil {
						t.Error(err)
						return
					}
					nonces <- nonce
				}
				if i%every == every-1 { // meanwhile the old one was used
					c.Token = <-tokens
				}
				if err := c.Send(i, body(int(i))); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		renewed := 0
		for next := uint32(0); next < requests; {
			m, err := c.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if !m.IsOpen() {
				if m.ID != next || len(m.Body) != int(next)+4 {
					t.Fatalf("answer %d of %d bytes, want %d", m.ID, len(m.Body), next)
				}
				next++
				continue
			}
			token, err := c.Opened(m, <-nonces)
			if err != nil {
				t.Fatal(err)
			}
			renewed++
			tokens <- token
		}
		if renewed != requests/every {
			t.Errorf("%d renewals", renewed)
		}
	}
}

// TestReplyNeverWaits answers while nobody reads: on a pipe, whose writes wait for a reader, and where time stands still.
func TestReplyNeverWaits(t *testing.T) {
	cfg := config(t)
	cfg.Limits.Output = 64 * 1024
	var sent atomic.Int32
	pipe(t, cfg, handler{serve: func(r *channel.Request) {
		start := time.Now()
		for r.Reply(raw(body(10_000))) == nil {
			sent.Add(1)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("waited %v", d)
		}
		if err := r.Reply(raw(body(1))); err != channel.ErrClosed {
			t.Errorf("Reply on a dropped connection: %v", err)
		}
	}}, func(t *testing.T, conn net.Conn) {
		c, err := uatest.Connect(conn, uatest.Options{})
		if err == nil {
			err = c.Send(1, body(1))
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := sent.Load(); n < 6 || n > 8 {
			t.Errorf("%d responses of 10 kB were kept for a bound of 64 KiB", n)
		}
		if _, err := c.Receive(); err == nil {
			t.Error("connection was not dropped")
		}
	})
}

func TestSlowReaderIsDroppedInTheEnd(t *testing.T) {
	cfg := config(t)
	pipe(t, cfg, handler{}, func(t *testing.T, conn net.Conn) {
		c, err := uatest.Connect(conn, uatest.Options{})
		if err == nil {
			err = c.Send(1, body(1000))
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		if _, err := c.Receive(); err != nil {
			t.Fatalf("within a minute: %v", err)
		}
		if err := c.Send(2, body(1000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second)
		if _, err := c.Receive(); err == nil {
			t.Error("a client that did not read for more than a minute is still connected")
		}
	})
}

func TestSlowReaderOverTCP(t *testing.T) {
	cfg := config(t)
	cfg.Limits.Output = 256 * 1024
	closed := make(chan *channel.Channel, 2)
	_, addr := listen(t, cfg, handler{
		serve: func(r *channel.Request) {
			if r.ID == 0 {
				for r.Reply(raw(body(60_000))) == nil {
				}
				return
			}
			handler{}.Serve(r)
		},
		closed: func(c *channel.Channel) { closed <- c },
	})
	for _, o := range []uatest.Options{{}, secured(t, cfg, ua.MessageSecurityModeSignAndEncrypt)} {
		bystander := connect(t, addr, o)
		slow := connect(t, addr, o)
		if err := slow.Send(0, body(1)); err != nil {
			t.Fatal(err)
		}
		if ch := <-closed; ch.ID() != slow.Channel {
			t.Errorf("channel %d was dropped instead of %d", ch.ID(), slow.Channel)
		}
		echo(t, bystander, 1, 10_000)
		bystander.Close()
		<-closed
	}
}

// TestWaitingResponsesKeepTheirOrder sends more than the socket takes at once, and reads it all.
func TestWaitingResponsesKeepTheirOrder(t *testing.T) {
	cfg := config(t)
	cfg.Limits.Output = 64 << 20
	const n = 300
	_, addr := listen(t, cfg, handler{serve: func(r *channel.Request) {
		if r.ID == 0 {
			handler{}.Serve(r)
			return
		}
		for i := range n {
			if err := r.Channel.Reply(uint32(i), raw(body(60_000+i))); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	}})
	c := connect(t, addr, secured(t, cfg, ua.MessageSecurityModeSign))
	if err := c.Send(1, body(1)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // let the socket fill
	for i := range n {
		m, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if m.ID != uint32(i) || len(m.Body) != 60_004+i {
			t.Fatalf("message %d of %d bytes at place %d", m.ID, len(m.Body), i)
		}
	}
	echo(t, c, 0, 10) // direct writes work again
}

func TestShutdown(t *testing.T) {
	cfg := config(t)
	var ch *channel.Channel
	s, addr := listen(t, cfg, handler{serve: func(r *channel.Request) {
		ch = r.Channel
		handler{}.Serve(r)
	}})
	idle := connect(t, addr, uatest.Options{})
	c := connect(t, addr, uatest.Options{})
	echo(t, c, 1, 10)
	for i := range 20 {
		if err := ch.Reply(uint32(i), raw(body(60_000))); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error)
	go func() { ended <- s.Shutdown(context.Background()) }()
	for i := range 20 {
		if m, err := c.Receive(); err != nil || m.ID != uint32(i) {
			t.Fatalf("response %d: %v", i, err)
		}
	}
	wantError(t, c, ua.StatusBadServerHalted)
	wantError(t, idle, ua.StatusBadServerHalted)
	c.Close()
	idle.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("still listening")
	}
	here, there := net.Pipe()
	s.ServeConn(there)
	if _, err := here.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("connection after Shutdown: %v", err)
	}
}

func TestShutdownDoesNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t)
		release := make(chan struct{})
		s := channel.New(cfg, handler{serve: func(r *channel.Request) { <-release }})
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() {
			s.ServeConn(there)
			close(done)
		}()
		c, err := uatest.Connect(here, uatest.Options{})
		if err == nil {
			err = c.Send(1, body(1))
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		close(release)
		<-done
	})
}

// TestGarbageWhileOthersWork is C11: peers that send anything end alone.
func TestGarbageWhileOthersWork(t *testing.T) {
	cfg := config(t)
	s, addr := listen(t, cfg, handler{})
	good := connect(t, addr, secured(t, cfg, ua.MessageSecurityModeSignAndEncrypt))
	for i := range 50 {
		conn := dial(t, addr)
		conn.Write(bytes.Repeat(body(100), 1+i))
		conn.Close()
		echo(t, good, uint32(i), 100)
	}
	for s.Connections() > 1 {
		time.Sleep(time.Millisecond)
	}
}
