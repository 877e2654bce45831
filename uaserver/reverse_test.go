package uaserver

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/channel"
	"edged/uaserver/uatest"
)

// TestReverseConnect is Part 6, 7.1.3 over sockets: a session on a connection that the server made, and the next one ready.
func TestReverseConnect(t *testing.T) {
	f := start(t, func(c *Config) { c.Hosts = []string{"gateway"} })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.ReverseConnect(ctx, []string{"opc.tcp://" + l.Addr().String()}) }()
	_, port, _ := net.SplitHostPort(f.addr)
	var peers []*peer
	for range 3 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		o := uatest.Options{}
		f.secured(t)(&o)
		c, err := uatest.New(conn, o)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		uri, url, err := c.ReverseHello()
		if want := "opc.tcp://gateway:" + port; err != nil || uri != appURI || url != want {
			t.Fatalf("ReverseHello of %s at %s, %v; want %s at %s", uri, url, err, appURI, want)
		}
		c.Options.URL = url
		if err := c.Hello(); err != nil {
			t.Fatal(err)
		}
		if err := c.Open(ua.SecurityTokenRequestTypeIssue); err != nil {
			t.Fatal(err)
		}
		p := &peer{Client: c, t: t, token: ua.NewTwoByteNodeID(0)}
		r := must[*ua.GetEndpointsResponse](p, &ua.GetEndpointsRequest{EndpointURL: url})
		if len(r.Endpoints) == 0 || r.Endpoints[0].EndpointURL != url {
			t.Errorf("endpoints %v", r.Endpoints)
		}
		peers = append(peers, p)
	}
	spare, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer spare.Close()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	// What was said Hello on lives on; the spare one is closed.
	for _, p := range peers {
		must[*ua.FindServersResponse](p, &ua.FindServersRequest{})
	}
	spare.SetDeadline(time.Now().Add(20 * time.Second))
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(spare); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the spare connection: %v", err)
	}
}

// TestReverseConnectTries is how a client that cannot be reached is tried, in the time of a bubble.
func TestReverseConnectTries(t *testing.T) {
	refused := errors.New("connection refused")
	closes := func(conn net.Conn) { conn.Close() }
	for _, row := range []struct {
		name   string
		client func(n int) (serve func(net.Conn), err error) // of the nth connection
		least  int                                           // connections in ten minutes
		most   int
		log    []string // a line each
	}{
		{"nobody listens", func(int) (func(net.Conn), error) { return nil, refused }, 15, 45, []string{"not reached"}},
		{"closed at once each time", func(int) (func(net.Conn), error) { return closes, nil }, 15, 45, []string{"not reached"}},
		{"held for 15 s and closed", func(int) (func(net.Conn), error) {
			return func(conn net.Conn) {
				go swallow(conn)
				time.Sleep(15 * time.Second)
				conn.Close()
			}, nil
		}, 35, 40, []string{"is ready"}},
		{"held, and no Hello", func(int) (func(net.Conn), error) { return swallow, nil }, 5, 6, []string{"is ready"}},
		{"there after a while", func(n int) (func(net.Conn), error) {
			if n < 4 {
				return nil, refused
			}
			return swallow, nil
		}, 8, 10, []string{"not reached", "is ready"}},
		{"gone after a while", func(n int) (func(net.Conn), error) {
			if n < 2 {
				return swallow, nil
			}
			return nil, refused
		}, 8, 45, []string{"is ready", "not reached"}},
		{"Hello and gone, again and again", func(int) (func(net.Conn), error) {
			return func(conn net.Conn) {
				if c, err := uatest.New(conn, uatest.Options{}); err == nil {
					if _, _, err := c.ReverseHello(); err == nil {
						c.Hello() // its end is the test's
					}
				}
				conn.Close()
			}, nil
		}, 1000, 6001, []string{"is ready"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s := &Server{cfg: Config{ApplicationURI: appURI, Hosts: []string{"gateway"}}, log: slog.New(slog.NewTextHandler(&log, nil))}
				s.channels = channel.New(channel.Config{Policies: []channel.Policy{none}, Log: slog.New(slog.DiscardHandler)}, handler{s})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				n := 0
				var clients sync.WaitGroup
				r := &reverse{s: s, client: "opc.tcp://scada:4843", dial: func(context.Context) (net.Conn, error) {
					serve, err := row.client(n)
					n++
					if err != nil {
						return nil, err
					}
					here, there := net.Pipe()
					clients.Go(func() { serve(there) })
					return here, nil
				}}
				r.run(ctx)
				if err := s.channels.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				clients.Wait()
				if n < row.least || n > row.most {
					t.Errorf("%d connections, want %d to %d", n, row.least, row.most)
				}
				lines := strings.Split(strings.TrimSpace(log.String()), "\n")
				if len(lines) != len(row.log) {
					t.Fatalf("%d lines are logged: %s", len(lines), log.String())
				}
				for i, want := range row.log {
					if !strings.Contains(lines[i], want) {
						t.Errorf("log %q, want %q", lines[i], want)
					}
				}
			})
		})
	}
}

// swallow reads until the other end closes.
func swallow(conn net.Conn) {
	new(bytes.Buffer).ReadFrom(conn) // its end is all that matters
	conn.Close()
}

func TestClientAddress(t *testing.T) {
	for _, row := range []struct{ client, want, fault string }{
		{"opc.tcp://scada:4843", "scada:4843", ""},
		{"OPC.TCP://10.0.0.9:4843/", "10.0.0.9:4843", ""},
		{"opc.tcp://[fd00::9]:4843", "[fd00::9]:4843", ""},
		{"opc.tcp://scada", "", "needs the port"},
		{"opc.tcp://scada:0", "", "needs the port"},
		{"opc.tcp://scada:65536", "", "needs the port"},
		{"opc.tcp://:4843", "", "URL of a client"},
		{"opc.tcp://user@scada:4843", "", "URL of a client"},
		{"https://scada:4843", "", "URL of a client"},
		{"scada:4843", "", "URL of a client"},
		{"", "", "URL of a client"},
	} {
		got, err := ClientAddress(row.client)
		if got != row.want || (err == nil) != (row.fault == "") || err != nil && !strings.Contains(err.Error(), row.fault) {
			t.Errorf("%q: %q, %v", row.client, got, err)
		}
	}
	f := start(t, nil)
	if err := f.ReverseConnect(t.Context(), []string{"scada"}); err == nil || !strings.Contains(err.Error(), "scada") {
		t.Errorf("%v", err)
	}
}
