package serial

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"edged/drivers"
	"edged/drivers/port"
	"edged/drivers/tag"
)

// memory is a sink that keeps the last reading of a tag.
type memory struct {
	mu   sync.Mutex // guards last
	last tag.Sample
}

func (m *memory) Publish(batch []tag.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = batch[len(batch)-1]
}

func (m *memory) await(t *testing.T, want tag.Status) {
	t.Helper()
	var got tag.Sample
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		m.mu.Lock()
		got = m.last
		m.mu.Unlock()
		if !got.At.IsZero() && got.Status == want {
			return
		}
	}
	t.Fatalf("the tag is %v %v, want %v", got.Status, got.Value, want)
}

// terminal is a pseudo terminal behind a link, on which an instrument that answers each line lives until gone is called.
func terminal(t *testing.T, link string) (gone func()) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(link)
	if err := os.Symlink(slave.Name(), link); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 64)
		for {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			if strings.Contains(string(buf[:n]), "\n") {
				master.WriteString("12.5\r\n")
			}
		}
	}()
	return sync.OnceFunc(func() {
		os.Remove(link)
		slave.Close()
		master.Close()
		<-ended
	})
}

// fleet runs a bus with one instrument until the test ends.
func fleet(t *testing.T, path string) (*memory, *drivers.Fleet) {
	t.Helper()
	a, err := port.Parse("serial://" + path + "?baud=115200")
	if err != nil {
		t.Fatal(err)
	}
	c := Links(a)
	c.Timeout = 2 * time.Second
	link := NewLink(c)
	d, err := New(Config{Name: "d", Poll: 5 * time.Millisecond, Messages: []Message{{Name: "m", Send: `?\r\n`}},
		Tags: []Tag{{Ref: 1, Name: "t", Access: tag.Readable}}}, link)
	if err != nil {
		t.Fatal(err)
	}
	table, err := tag.NewTable([]tag.Def{{Device: "d", Name: "t", Kind: tag.Float64, Access: tag.Readable}})
	if err != nil {
		t.Fatal(err)
	}
	sink := &memory{}
	f, err := drivers.NewFleet(drivers.Config{Table: table, Sink: sink, Log: slog.New(slog.DiscardHandler),
		Buses: []drivers.BusConfig{{Name: "b", Links: []drivers.Link{link}}}, Devices: []drivers.DeviceConfig{{Name: "d", Bus: "b", Driver: d}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return sink, f
}

// TestE2PortComesBack is E2: the terminal behind a link vanishes and comes back with another number.
func TestE2PortComesBack(t *testing.T) {
	link := filepath.Join(t.TempDir(), "instrument")
	gone := terminal(t, link)
	sink, _ := fleet(t, link)
	sink.await(t, tag.Good)
	gone()
	sink.await(t, tag.BadNoCommunication)
	t.Cleanup(terminal(t, link))
	sink.await(t, tag.Good)
}

// TestE3Signals is E3: signals while it polls are no errors.
func TestE3Signals(t *testing.T) {
	link := filepath.Join(t.TempDir(), "instrument")
	t.Cleanup(terminal(t, link))
	sink, f := fleet(t, link)
	sink.await(t, tag.Good)
	for range 200 {
		syscall.Kill(os.Getpid(), syscall.SIGURG)
		time.Sleep(time.Millisecond)
	}
	if s, ok := f.Device("d"); !ok || s.Errors != 0 || s.Requests == 0 {
		t.Errorf("%d errors of %d requests: %s", s.Errors, s.Requests, s.LastError)
	}
}

// TestE1Silent is E1: a device that says nothing is a time-out, and no busy loop.
func TestE1Silent(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	a, _ := port.Parse("serial://" + slave.Name())
	c := Links(a)
	c.Timeout = 300 * time.Millisecond
	link := NewLink(c)
	d, err := New(Config{Name: "d", Messages: []Message{{Name: "m", Send: `?\r\n`}}, Tags: []Tag{{Ref: 1, Name: "t", Access: tag.Readable}}}, link)
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	before := processTime()
	got, err := d.Poll(t.Context(), 0, 0, nil)
	var f *drivers.Fault
	if !errors.As(err, &f) || f.Kind != drivers.Mute || len(got) != 1 || got[0].Status != tag.BadNoCommunication {
		t.Errorf("%v: %v", got, err)
	}
	if used := processTime() - before; used > 100*time.Millisecond {
		t.Errorf("a silent device took %v of CPU in %v", used, c.Timeout)
	}
}

// TestE4E5Line is E4 and E5: a line that cannot do RS-485, one that is open already, and one without permission.
func TestE4E5Line(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	open := func(query string) error {
		a, err := port.Parse("serial://" + slave.Name() + query)
		if err != nil {
			t.Fatal(err)
		}
		l := NewLink(Links(a))
		t.Cleanup(func() { l.Close() })
		return l.Open(t.Context())
	}
	if err := open("?rs485=on"); err == nil || !strings.Contains(err.Error(), "485") {
		t.Errorf("E4: RS-485 on a terminal gives %v", err)
	}
	if err := open(""); err != nil {
		t.Fatal(err)
	}
	if err := open(""); err == nil || !strings.Contains(err.Error(), "in use by another program") {
		t.Errorf("E5: opened twice it gives %v", err)
	}
}
