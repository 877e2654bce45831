package modbus

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/port"
)

// gateway is a TCP device with many units behind it: each unit takes its time, all at once, and answers with its number
// in every register. Units in dead never answer.
type gateway struct {
	takes map[byte]time.Duration
	dead  map[byte]bool

	mu      sync.Mutex
	opened  int
	most    int // requests in flight at most
	flying  int
	reading sync.WaitGroup
	conns   []net.Conn
}

func (g *gateway) Open(context.Context) (port.Port, error) {
	near, far := net.Pipe()
	g.mu.Lock()
	g.opened++
	g.conns = append(g.conns, far)
	g.mu.Unlock()
	g.reading.Go(func() { g.serve(far) })
	return port.FromConn(near), nil
}

func (g *gateway) serve(c net.Conn) {
	var writing sync.Mutex
	var answers sync.WaitGroup
	defer answers.Wait()
	defer c.Close()
	for {
		request := make([]byte, 12)
		if _, err := io.ReadFull(c, request); err != nil {
			return
		}
		answers.Go(func() {
			unit := request[6]
			g.count(1)
			time.Sleep(g.takes[unit])
			g.count(-1)
			if g.dead[unit] {
				return
			}
			n := binary.BigEndian.Uint16(request[10:])
			pdu := []byte{3, byte(2 * n)}
			for range n {
				pdu = append(pdu, 0, unit)
			}
			writing.Lock()
			defer writing.Unlock()
			c.Write(tcpADU(binary.BigEndian.Uint16(request), unit, pdu))
		})
	}
}

func (g *gateway) count(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flying += n
	g.most = max(g.most, g.flying)
}

// lanesOf are devices of a gateway, each with a link of its own over one connection.
func lanesOf(t *testing.T, g *gateway, timeout time.Duration, units ...int) (devices []*Device, links []*Link) {
	t.Helper()
	shared := NewShared(g)
	for _, unit := range units {
		l := NewLink(LinkConfig{Open: shared, Framing: TCP, Timeout: timeout})
		d, err := New(Config{Name: "u", Unit: unit, Tags: []Tag{{Ref: 1, Name: "t", Address: "holding:0"}}}, l)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		devices, links = append(devices, d), append(links, l)
	}
	return devices, links
}

func TestPipelineOverOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{takes: map[byte]time.Duration{1: 10 * time.Millisecond, 2: 30 * time.Millisecond, 3: 50 * time.Millisecond, 4: 70 * time.Millisecond}}
		devices, links := lanesOf(t, g, time.Second, 1, 2, 3, 4)
		began := time.Now()
		var all sync.WaitGroup
		for i, d := range devices {
			all.Go(func() {
				for range 20 {
					s, err := d.Poll(t.Context(), 0, 0, nil)
					if err != nil || s[0].Value.Bits() != uint64(i+1) {
						t.Errorf("unit %d: %v, %v", i+1, s, err)
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("four transactions at a time took %v, as if one waited for the other", took)
		}
		if g.opened != 1 || g.most != 4 {
			t.Errorf("%d connections, %d requests at a time", g.opened, g.most)
		}
		for _, l := range links {
			l.Close()
		}
		g.reading.Wait()
	})
}

func TestD1LateAnswersOnASharedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{takes: map[byte]time.Duration{1: 130 * time.Millisecond, 2: 10 * time.Millisecond}}
		devices, links := lanesOf(t, g, 100*time.Millisecond, 1, 2)
		for range 3 {
			if s, err := devices[0].Poll(t.Context(), 0, 0, nil); err == nil {
				t.Errorf("a late answer was taken: %v", s)
			}
			s, err := devices[1].Poll(t.Context(), 0, 0, nil)
			if err != nil || s[0].Value.Bits() != 2 {
				t.Errorf("unit 2: %v, %v", s, err)
			}
		}
		for _, l := range links {
			l.Close()
		}
		g.reading.Wait()
	})
}

func TestEndOfASharedConnection(t *testing.T) {
	t.Run("the peer closes: every link hears of it, and they share the next one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := &gateway{}
			devices, links := lanesOf(t, g, time.Second, 1, 2)
			g.conns[0].Close()
			synctest.Wait()
			for i, d := range devices {
				if _, err := d.Poll(t.Context(), 0, 0, nil); err == nil {
					t.Errorf("link %d does not know of the end", i)
				}
				links[i].Close()
				if err := links[i].Open(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for _, d := range devices {
				if _, err := d.Poll(t.Context(), 0, 0, nil); err != nil {
					t.Error(err)
				}
			}
			if g.opened != 2 {
				t.Errorf("%d connections", g.opened)
			}
			for _, l := range links {
				l.Close()
			}
			g.reading.Wait()
		})
	})
	t.Run("D21 a link that is given up leaves a connection alive on which others are answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := &gateway{dead: map[byte]bool{1: true}}
			devices, links := lanesOf(t, g, 100*time.Millisecond, 1, 2)
			gaveUp := make(chan struct{})
			go func() { defer close(gaveUp); devices[0].Poll(t.Context(), 0, 0, nil) }()
			time.Sleep(50 * time.Millisecond)
			if _, err := devices[1].Poll(t.Context(), 0, 0, nil); err != nil {
				t.Error(err)
			}
			<-gaveUp
			links[0].Close()
			if _, err := devices[1].Poll(t.Context(), 0, 0, nil); err != nil {
				t.Errorf("its neighbour: %v", err)
			}
			if err := links[0].Open(t.Context()); err != nil || g.opened != 1 {
				t.Errorf("%d connections, %v", g.opened, err)
			}
			for _, l := range links {
				l.Close()
			}
			g.reading.Wait()
		})
	})
	t.Run("D21 one on which nobody hears anything goes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := &gateway{dead: map[byte]bool{1: true, 2: true}}
			devices, links := lanesOf(t, g, 100*time.Millisecond, 1, 2)
			devices[0].Poll(t.Context(), 0, 0, nil)
			links[0].Close()
			if _, err := devices[1].Poll(t.Context(), 0, 0, nil); err == nil {
				t.Error("the neighbour does not know of the end")
			}
			if err := links[0].Open(t.Context()); err != nil || g.opened != 2 {
				t.Errorf("%d connections, %v", g.opened, err)
			}
			for _, l := range links {
				l.Close()
			}
			g.reading.Wait()
		})
	})
}
