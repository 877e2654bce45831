package channel_test

import (
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"edged/drivers/tag"
	"edged/uaserver/uatest"
)

// TestStorm: many peers send nothing, half a Hello, or chunks that they never finish. An honest client is served at once,
// those with a session go on, and what the peers hold is bounded.
func TestStorm(t *testing.T) {
	cfg := config(t)
	cfg.Limits.Connections = 60
	account := &tag.Budget{Limit: 16 << 20}
	cfg.Account = account
	var told lines
	cfg.Log = slog.New(slog.NewTextHandler(&told, nil))
	s, addr := listen(t, cfg, trusting)
	old := connect(t, addr, secured(t, cfg, both[1]))
	echo(t, old, 1, 100)
	hello := []byte("HELF\x20\x00\x00\x00\x00\x00\x00\x00")
	for i := range 300 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		switch i % 3 {
		case 1:
			conn.Write(hello)
		case 2:
			c, err := uatest.Connect(conn, uatest.Options{})
			if err != nil {
				continue // it gave way
			}
			b, err := c.Chunk("MSGC", 1, body(60_000))
			if err == nil {
				conn.Write(b)
			}
		}
	}
	start := time.Now()
	honest := connect(t, addr, secured(t, cfg, both[0]))
	echo(t, honest, 1, 100)
	if d := time.Since(start); d > time.Second {
		t.Errorf("an honest client waited %v", d)
	}
	echo(t, old, 2, 100)
	if n := s.Connections(); n > 60 {
		t.Errorf("%d connections", n)
	}
	if n := account.Used(); n > 60*128*1024 {
		t.Errorf("unfinished requests hold %d bytes", n)
	}
	if n := told.n.Load(); n > 10 {
		t.Errorf("H5 peers without a session filled %d lines of the log", n)
	}
}

// lines counts the lines of a log.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(b []byte) (int, error) {
	l.n.Add(1)
	return len(b), nil
}
