package serial

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"edged/drivers/port"
	"edged/drivers/tag"
)

// instrument is the other end of a line: it answers each line that comes.
type instrument struct {
	conn   net.Conn
	mu     sync.Mutex // guards asked
	asked  []string
	ends   chan struct{}
	answer func(line string) string
}

// rig is a device and its instrument, joined by a pipe.
func rig(t *testing.T, cfg Config, answer func(line string) string) (*Device, *instrument) {
	t.Helper()
	near, far := net.Pipe()
	in := &instrument{conn: far, ends: make(chan struct{}), answer: answer}
	link := NewLink(LinkConfig{Timeout: 200 * time.Millisecond, Open: port.OpenFunc(func(context.Context) (port.Port, error) { return port.FromConn(near), nil })})
	for i := range cfg.Tags {
		cfg.Tags[i].Ref = tag.Ref(i + 1)
		if cfg.Tags[i].Access == 0 {
			cfg.Tags[i].Access = tag.Readable
		}
	}
	cfg.Name = "instrument"
	d, err := New(cfg, link)
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	go in.serve()
	t.Cleanup(func() {
		link.Close()
		far.Close()
		<-in.ends
	})
	return d, in
}

func (in *instrument) serve() {
	defer close(in.ends)
	var line []byte
	var b [1]byte
	for {
		if _, err := in.conn.Read(b[:]); err != nil {
			return
		}
		if line = append(line, b[0]); b[0] != '\n' {
			continue
		}
		in.mu.Lock()
		in.asked = append(in.asked, string(line))
		in.mu.Unlock()
		if out := in.answer(string(line)); out != "" {
			if _, err := in.conn.Write([]byte(out)); err != nil {
				return
			}
		}
		line = line[:0]
	}
}

func (in *instrument) says(i int) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	if i >= len(in.asked) {
		return ""
	}
	return in.asked[i]
}

// always answers everything the same.
func always(text string) func(string) string { return func(string) string { return text } }
