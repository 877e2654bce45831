package channel_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/channel"
	"edged/uaserver/uatest"
)

// TestReverse is Part 6, 7.1.3: what a client makes of a connection that the gateway made to it.
func TestReverse(t *testing.T) {
	cfg := config(t)
	errorMessage := []byte("ERRF\x18\x00\x00\x00\x00\x00\x83\x80\x08\x00\x00\x00not mine")
	for _, row := range []struct {
		name   string
		client func(c *uatest.Client) error // after the ReverseHello
		after  time.Duration                // when the connection ends
		heard  bool
		want   string // in the error; "": none
		log    bool   // something is logged as a warning
	}{
		{"7.1.3 a channel", func(c *uatest.Client) error {
			time.Sleep(90 * time.Second) // the Hello may come late; the time for a channel begins with it
			if err := c.Hello(); err != nil {
				return err
			}
			time.Sleep(9 * time.Second)
			if err := c.Open(ua.SecurityTokenRequestTypeIssue); err != nil {
				return err
			}
			time.Sleep(time.Minute)
			c.Close()
			return nil
		}, 159 * time.Second, true, "", false},
		{"7.1.3 hello and no channel", func(c *uatest.Client) error { return c.Hello() }, 10 * time.Second, true, "", true},
		{"7.1.3 no hello", func(c *uatest.Client) error { return nil }, 2 * time.Minute, false, channel.ErrNoHello.Error(), false},
		{"7.1.3 half a hello", func(c *uatest.Client) error { return send(c, c.HelloMessage()[:20]) }, 2 * time.Minute, false, channel.ErrNoHello.Error(), false},
		{"7.1.3 closed by the client", func(c *uatest.Client) error { c.Close(); return nil }, 0, false, io.EOF.Error(), false},
		{"7.1.2.6 refused by the client", func(c *uatest.Client) error { return send(c, errorMessage) }, 0, false, `BadTCPEndpointURLInvalid "not mine"`, false},
		{"7.1.2.6 an Error that is cut short", func(c *uatest.Client) error {
			return send(c, []byte("ERRF\x11\x00\x00\x00\x00\x00\x83\x80\x08\x00\x00\x00x"))
		}, 0, false, "cannot be read", true},
		{"7.1.2.2 something else", func(c *uatest.Client) error { return send(c, []byte("ACKF\x1C\x00\x00\x00")) }, 0, false, "cannot come here", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account, log := &tag.Budget{}, &logs{}
				cfg := cfg
				cfg.Account, cfg.Log = account, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
				s := channel.New(cfg, handler{})
				here, there := net.Pipe()
				heard, done := false, make(chan error, 1)
				begin := time.Now()
				go func() {
					done <- s.ServeReverse(there, channel.Reverse{ServerURI: "urn:edged:test", EndpointURL: "opc.tcp://gateway:4840", Wait: 2 * time.Minute, Heard: func() { heard = true }})
				}()
				c, err := uatest.New(here, uatest.Options{})
				if err != nil {
					t.Fatal(err)
				}
				uri, url, err := c.ReverseHello()
				if err != nil || uri != "urn:edged:test" || url != "opc.tcp://gateway:4840" {
					t.Fatalf("ReverseHello of %q at %q, %v", uri, url, err)
				}
				if err := row.client(c); err != nil {
					t.Fatal(err)
				}
				go io.Copy(io.Discard, here)
				synctest.Wait()
				err = <-done
				if heard != row.heard || (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
					t.Errorf("heard %v, ended with %v", heard, err)
				}
				if d := time.Since(begin); d < row.after || d > row.after+time.Second { // a peer has a second to take an Error
					t.Errorf("ended after %v, want %v", d, row.after)
				}
				if (log.String() != "") != row.log {
					t.Errorf("log %q", log)
				}
				here.Close()
				if account.Used() != 0 || s.Connections() != 0 {
					t.Errorf("%d bytes and %d connections left", account.Used(), s.Connections())
				}
			})
		})
	}
}

// TestReverseAfterShutdown is a connection that comes too late, and one that waits when the end comes.
func TestReverseAfterShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := channel.New(config(t), handler{})
		here, there := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- s.ServeReverse(there, channel.Reverse{Wait: time.Minute}) }()
		c, err := uatest.New(here, uatest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.ReverseHello(); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, here)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, channel.ErrClosed) {
			t.Errorf("one that waited: %v", err)
		}
		here.Close()
		_, late := net.Pipe()
		if err := s.ServeReverse(late, channel.Reverse{Wait: time.Minute}); !errors.Is(err, channel.ErrClosed) {
			t.Errorf("one that came too late: %v", err)
		}
	})
}
