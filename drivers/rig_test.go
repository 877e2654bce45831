package drivers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"edged/drivers/tag"
)

// plant is a device on paper: an exchange takes as long as it says, and fails as it says.
type plant struct {
	refs     []tag.Ref
	scans    []time.Duration
	requests [][]int
	takes    func() time.Duration
	poll     func(request int) error // nil: good
	write    func(c *tag.Command) error
	values   map[tag.Ref]uint16

	mu     sync.Mutex // guards the fields below
	polled []time.Time
	writes []tag.Ref
	reads  int
}

func newPlant(period time.Duration, refs ...tag.Ref) *plant {
	return &plant{refs: refs, scans: []time.Duration{period}, requests: [][]int{{0}},
		takes: func() time.Duration { return time.Millisecond }, values: map[tag.Ref]uint16{}}
}

func (p *plant) Tags() []tag.Ref        { return p.refs }
func (p *plant) Scans() []time.Duration { return p.scans }
func (p *plant) Requests(scan int) []int {
	return p.requests[scan]
}

func (p *plant) Poll(ctx context.Context, lane, request int, dst []tag.Sample) ([]tag.Sample, error) {
	p.mu.Lock()
	p.polled = append(p.polled, time.Now())
	p.mu.Unlock()
	time.Sleep(p.takes())
	return p.read(p.refs, request, dst)
}

func (p *plant) read(refs []tag.Ref, request int, dst []tag.Sample) ([]tag.Sample, error) {
	var err error
	if p.poll != nil {
		err = p.poll(request)
	}
	status := tag.Good
	if err != nil {
		if _, ok := isFault(err); !ok {
			return dst, err
		}
		status = tag.BadNoCommunication
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ref := range refs {
		s := tag.Sample{Ref: ref, Status: status, At: tag.Now()}
		if status == tag.Good {
			s.Value = tag.Of(p.values[ref])
		}
		dst = append(dst, s)
	}
	return dst, err
}

func (p *plant) Refresh(ctx context.Context, lane int, refs []tag.Ref, dst []tag.Sample) ([]tag.Sample, error) {
	p.mu.Lock()
	p.reads++
	p.mu.Unlock()
	time.Sleep(p.takes())
	return p.read(refs, 0, dst)
}

func (p *plant) Write(ctx context.Context, lane int, cmds []tag.Command) error {
	time.Sleep(p.takes())
	for i := range cmds {
		c := &cmds[i]
		p.mu.Lock()
		p.writes = append(p.writes, c.Ref)
		p.mu.Unlock()
		if p.write != nil {
			if err := p.write(c); err != nil {
				return err
			}
		}
		p.mu.Lock()
		p.values[c.Ref] = uint16(c.Value.Bits())
		p.mu.Unlock()
		c.Status = tag.Good
	}
	return nil
}

// wire is a link on paper.
type wire struct {
	mu     sync.Mutex
	open   func(n int) error // n counts from 0; nil: good
	opened []time.Time
	closed int
}

func (w *wire) Open(context.Context) error {
	w.mu.Lock()
	n := len(w.opened)
	w.opened = append(w.opened, time.Now())
	w.mu.Unlock()
	if w.open != nil {
		return w.open(n)
	}
	return nil
}

func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
	return nil
}

func (w *wire) attempts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.opened)
}

// record is a sink that keeps what it hears.
type record struct {
	mu      sync.Mutex
	samples []tag.Sample
}

func (r *record) Publish(batch []tag.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples = append(r.samples, batch...)
}

func (r *record) of(ref tag.Ref) []tag.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []tag.Sample
	for _, s := range r.samples {
		if s.Ref == ref {
			out = append(out, s)
		}
	}
	return out
}

func (r *record) statuses(ref tag.Ref) []tag.Status {
	var out []tag.Status
	for _, s := range r.of(ref) {
		if len(out) == 0 || out[len(out)-1] != s.Status {
			out = append(out, s.Status)
		}
	}
	return out
}

// rig is a fleet on paper: one bus, and a device for each plant with tags 1, 2, ... in order.
type rig struct {
	*Fleet
	config Config // as it is applied
	link   *wire
	sink   *record
	log    *bytes.Buffer
	logM   sync.Mutex
	stop   func()
}

func (r *rig) Write(p []byte) (int, error) {
	r.logM.Lock()
	defer r.logM.Unlock()
	return r.log.Write(p)
}

// logged counts the lines that hold text.
func (r *rig) logged(text string) int {
	r.logM.Lock()
	defer r.logM.Unlock()
	return strings.Count(r.log.String(), text)
}

func newRig(t *testing.T, bus BusConfig, plants ...*plant) *rig {
	t.Helper()
	r := &rig{link: &wire{}, sink: &record{}, log: &bytes.Buffer{}}
	bus.Name, bus.Links = "line", []Link{r.link}
	cfg := Config{Buses: []BusConfig{bus}, Sink: r.sink, Log: slog.New(slog.NewTextHandler(r, nil))}
	var defs []tag.Def
	for i, p := range plants {
		name := fmt.Sprintf("d%d", i)
		for range p.refs {
			defs = append(defs, tag.Def{Device: name, Name: fmt.Sprintf("t%d", len(defs)+1), Kind: tag.Uint16, Access: tag.Readable | tag.Writable})
		}
		cfg.Devices = append(cfg.Devices, DeviceConfig{Name: name, Bus: "line", Driver: p})
	}
	table, err := tag.NewTable(defs)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Table = table
	r.config = cfg
	if r.Fleet, err = NewFleet(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs the fleet until the test ends it.
func (r *rig) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	r.stop = func() { cancel(); <-ended }
}

func mute() error { return &Fault{Kind: Mute, Err: errors.New("no answer")} }
