package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/uaserver"
	"edged/uaserver/address"
	"edged/uaserver/channel"
)

// serve runs a server with namespace 0 alone and limits, and opens a session there. cut breaks every connection.
func serve(t *testing.T, limits uaserver.Limits) (c *Conn, cut func()) {
	t.Helper()
	space, err := address.New("urn:edged:test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := uaserver.New(uaserver.Config{
		Name: "test", ApplicationURI: "urn:edged:test", Limits: limits, Space: space, Log: slog.New(slog.DiscardHandler),
		Policies:  []channel.Policy{{URI: ua.SecurityPolicyURINone, Modes: []ua.MessageSecurityMode{ua.MessageSecurityModeNone}}},
		Anonymous: address.MayBrowse | address.MayRead | address.MayWrite,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	between := relay(t, l.Addr().String())
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	c, err = Dial(t.Context(), Options{URL: between.Addr().String(), Security: "auto", Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		s.Shutdown(ctx, "end of test", 0)
		<-done
	})
	return c, between.cut
}

// relayed hands bytes on between clients and a server, until it is cut.
type relayed struct {
	net.Listener
	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func relay(t *testing.T, to string) *relayed {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relayed{Listener: l}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				return
			}
			r.mu.Lock()
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				all.Go(func() { io.Copy(way[0], way[1]); way[0].Close() })
			}
		}
	})
	t.Cleanup(func() { l.Close(); r.cut(); all.Wait() })
	return r
}

// cut resets every connection, as a router does that was restarted.
func (r *relayed) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

func tree(t *testing.T, c *Conn, from *ua.NodeID) (out []Browsed) {
	t.Helper()
	err := c.Browse(t.Context(), []*ua.NodeID{from}, BrowseOptions{All: true}, func(b *Browsed) error {
		one := *b
		one.Value = nil // times and counters move
		out = append(out, one)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSmallServer walks, reads and watches by way of a server that allows a handful of everything, and one that does not.
func TestSmallServer(t *testing.T) {
	large, _ := serve(t, uaserver.Limits{})
	small, _ := serve(t, uaserver.Limits{Nodes: 7, References: 3, Continuations: 2, MonitoredItems: 2})
	root := ua.NewNumericNodeID(0, id.TypesFolder)
	want, got := tree(t, large, root), tree(t, small, root)
	if len(want) < 500 || len(got) != len(want) {
		t.Fatalf("the trees have %d and %d nodes", len(want), len(got))
	}
	for i := range want {
		if !reflect.DeepEqual(want[i], got[i]) {
			t.Fatalf("node %d is\n%+v\nand with limits\n%+v", i, want[i], got[i])
		}
	}
	var times []*ua.NodeID
	for range 20 {
		times = append(times, ua.NewNumericNodeID(0, id.Server_ServerStatus_CurrentTime))
	}
	readings, err := small.Read(t.Context(), times, []ua.AttributeID{ua.AttributeIDValue, ua.AttributeIDBrowseName})
	if err != nil || len(readings) != 40 || readings[38].Type != "DateTime" || readings[39].Type != "QualifiedName" {
		t.Errorf("%d readings, %v", len(readings), err)
	}
	errSeen := errors.New("all were seen")
	seen := map[int]bool{}
	err = small.Watch(t.Context(), times, WatchOptions{Interval: 20 * time.Millisecond, Queue: 1}, func(items []Item) error {
		for i, item := range items {
			if item.Status != ua.StatusOK {
				t.Errorf("item %d: %v", i, item.Status)
			}
		}
		return nil
	}, func(v Change) error {
		if seen[v.Item] = true; len(seen) == len(times) {
			return errSeen
		}
		return nil
	})
	if err != errSeen {
		t.Errorf("%d of 20 were seen: %v", len(seen), err)
	}
}

// TestCarriers finds the built-in type that carries a data type.
func TestCarriers(t *testing.T) {
	c, _ := serve(t, uaserver.Limits{})
	for _, row := range []struct {
		dataType uint32
		want     ua.TypeID
	}{
		{id.Double, ua.TypeIDDouble}, {id.Duration, ua.TypeIDDouble}, {id.UtcTime, ua.TypeIDDateTime}, {id.LocaleID, ua.TypeIDString},
		{id.ServerState, ua.TypeIDInt32}, {id.Enumeration, ua.TypeIDInt32}, {id.Counter, ua.TypeIDUint32}, {id.Image, ua.TypeIDByteString},
		{id.Number, 0}, {id.UInteger, 0}, {id.BaseDataType, 0}, {id.Range, ua.TypeIDExtensionObject}, {9_999_999, 0},
	} {
		got, err := c.builtin(t.Context(), ua.NewNumericNodeID(0, row.dataType))
		if err != nil || got != row.want {
			t.Errorf("data type i=%d is carried by %v, %v; want %v", row.dataType, got, err, row.want)
		}
	}
}

// TestLostConnection cuts the wire: what waits hears of it at once, and so does what is asked later.
func TestLostConnection(t *testing.T) {
	c, cut := serve(t, uaserver.Limits{})
	clock := []*ua.NodeID{ua.NewNumericNodeID(0, id.Server_ServerStatus_CurrentTime)}
	start := time.Now()
	err := c.Watch(t.Context(), clock, WatchOptions{Interval: time.Hour, Queue: 1}, func([]Item) error { cut(); return nil }, func(Change) error { return nil })
	if !errors.Is(err, errLost) || time.Since(start) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	if _, err := c.Read(t.Context(), clock, []ua.AttributeID{ua.AttributeIDValue}); !errors.Is(err, errLost) {
		t.Errorf("a request over a lost connection: %v", err)
	}
}

// TestEndOfContext ends each command in its middle.
func TestEndOfContext(t *testing.T) {
	c, _ := serve(t, uaserver.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	clock := []*ua.NodeID{ua.NewNumericNodeID(0, id.Server_ServerStatus_CurrentTime)}
	err := c.Watch(ctx, clock, WatchOptions{Interval: time.Hour, Queue: 1}, func([]Item) error { cancel(); return nil }, func(Change) error { return nil })
	if err != nil {
		t.Errorf("Watch: %v", err)
	}
	if _, err := c.Read(ctx, clock, []ua.AttributeID{ua.AttributeIDValue}); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: %v", err)
	}
	if err := c.Browse(ctx, nil, BrowseOptions{}, func(*Browsed) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Browse: %v", err)
	}
	_, err = Dial(ctx, Options{URL: c.URL, Security: "auto", Timeout: time.Second, Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Dial: %v", err)
	}
}

// TestPanicsAreErrors is what the library's panics become.
func TestPanicsAreErrors(t *testing.T) {
	says(t, "a panic", guarded(func() error { panic(fmt.Sprintf("index %d out of range", 5)) }), "cannot be understood|index 5")
}
