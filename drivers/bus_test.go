package drivers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"edged/drivers/tag"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	link *wire
	sink *record
	log  *bytes.Buffer
	logM sync.Mutex
	stop func()
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

func TestScansKeepTheirGrid(t *testing.T) {
	for _, row := range []struct {
		name           string
		period, takes  time.Duration
		run            time.Duration
		every          time.Duration
		polls, overrun int
	}{
		{"exchange shorter than the period: no drift", 100 * time.Millisecond, 7 * time.Millisecond, 10 * time.Second, 100 * time.Millisecond, 101, 0},
		{"exchange of two and a half periods: on the grid, two left out", 100 * time.Millisecond, 250 * time.Millisecond, 3 * time.Second, 300 * time.Millisecond, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant(row.period, 1)
				p.takes = func() time.Duration { return row.takes }
				r := newRig(t, BusConfig{}, p)
				began := time.Now()
				r.start(t)
				time.Sleep(row.run + row.takes)
				r.stop()
				for i, at := range p.polled {
					if off := at.Sub(began) % row.period; i > 0 && row.takes < row.period && off != 0 {
						t.Fatalf("poll %d began %v off the grid", i, off)
					}
				}
				if row.polls > 0 && len(p.polled) != row.polls {
					t.Errorf("%d polls, want %d", len(p.polled), row.polls)
				}
				if s, _ := r.Device("d0"); (s.Overruns > 0) != (row.overrun > 0) {
					t.Errorf("%d overruns counted", s.Overruns)
				}
				if n := r.logged("too slow"); n != row.overrun {
					t.Errorf("overruns were told %d times", n)
				}
			})
		})
	}
}

func TestScanDone(t *testing.T) {
	const p = 100 * time.Millisecond
	for _, row := range []struct {
		due, now, next time.Duration
		missed         uint64
	}{
		{0, 10 * time.Millisecond, p, 0},
		{0, p, p, 0},
		{0, 199 * time.Millisecond, p, 0},
		{0, 200 * time.Millisecond, 2 * p, 1},
		{p, 570 * time.Millisecond, 5 * p, 3},
	} {
		s := scan{period: p, due: row.due, next: 2}
		if missed := s.done(row.now); missed != row.missed || s.due != row.next || s.next != 0 {
			t.Errorf("due %v, done at %v: next %v, missed %d; want %v, %d", row.due, row.now, s.due, missed, row.next, row.missed)
		}
	}
	s := scan{period: p, due: 7 * p}
	if s.catchUp(333 * time.Millisecond); s.due != 3*p {
		t.Errorf("caught up at %v", s.due)
	}
	if s.skip(333 * time.Millisecond); s.due != 4*p {
		t.Errorf("skipped to %v", s.due)
	}
}

func TestCommandComesRightAfterTheExchangeInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Millisecond, 1) // the line is never free
		p.takes = func() time.Duration { return 50 * time.Millisecond }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(time.Second + 20*time.Millisecond)
		began := time.Now()
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(7))}}
		r.Execute(t.Context(), cmds)
		// The exchange in flight, the write, one poll that may come between, the confirming reading.
		if took := time.Since(began); cmds[0].Status != tag.Good || took > 200*time.Millisecond {
			t.Errorf("status %v after %v", cmds[0].Status, took)
		}
		if last := r.sink.of(1); !last[len(last)-1].Value.Equal(tag.Of(uint16(7))) {
			t.Errorf("the confirming reading was not published before the answer: %v", last[len(last)-1].Value)
		}
		r.stop()
	})
}

func TestCommandsDoNotStarvePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.takes = func() time.Duration { return 10 * time.Millisecond }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					r.Execute(ctx, []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}})
				}
			})
		}
		wg.Wait()
		r.stop()
		if len(p.polled) < 100 {
			t.Errorf("%d polls of 100 in ten seconds", len(p.polled))
		}
		if len(p.writes) < 300 {
			t.Errorf("only %d commands got through", len(p.writes))
		}
	})
}

func TestMuteUnitDoesNotStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var plants []*plant
		for i := range 8 {
			p := newPlant(200*time.Millisecond, tag.Ref(i+1))
			p.takes = func() time.Duration { return 20 * time.Millisecond }
			plants = append(plants, p)
		}
		var dead time.Time
		plants[3].takes = func() time.Duration {
			if time.Now().After(dead) {
				return 200 * time.Millisecond
			}
			return 20 * time.Millisecond
		}
		plants[3].poll = func(int) error {
			if time.Now().After(dead) {
				return mute()
			}
			return nil
		}
		r := newRig(t, BusConfig{Retries: 1}, plants...)
		dead = time.Now().Add(time.Second)
		r.start(t)
		time.Sleep(61 * time.Second)
		r.stop()
		for i, p := range plants {
			if i == 3 {
				continue
			}
			if want := 61 * 5 * 9 / 10; len(p.polled) < want {
				t.Errorf("unit %d was polled %d times, want at least %d", i, len(p.polled), want)
			}
		}
		if n := len(plants[3].polled); n > 20 {
			t.Errorf("the mute unit was asked %d times in a minute", n)
		}
		if got := r.sink.statuses(4); !slices.Equal(got, []tag.Status{tag.Good, tag.BadNoCommunication}) {
			t.Errorf("the mute unit's tag went %v", got)
		}
		if n := len(r.sink.of(4)); n > 7 {
			t.Errorf("the outage was published %d times", n-6)
		}
		if n := r.logged("does not answer"); n != 1 {
			t.Errorf("the log says %d times that the unit is mute", n)
		}
		if s, _ := r.Device("d3"); s.State != Offline || s.Faults[Mute] == 0 || s.LastError == "" {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestLinkDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1, 2)
		r := newRig(t, BusConfig{}, p)
		var cut, back time.Time
		gone := func() bool { return time.Now().After(cut) && time.Now().Before(back) }
		r.link.open = func(int) error {
			if gone() {
				return errors.New("refused")
			}
			return nil
		}
		p.poll = func(int) error {
			if gone() {
				return errors.New("reset by peer")
			}
			return nil
		}
		cut = time.Now().Add(time.Second)
		back = cut.Add(time.Minute)
		r.start(t)
		time.Sleep(30 * time.Second)
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}}
		began := time.Now()
		r.Execute(t.Context(), cmds)
		if cmds[0].Status != tag.BadNoCommunication || time.Since(began) > time.Second {
			t.Errorf("a write to a line that is down: %v after %v", cmds[0].Status, time.Since(began))
		}
		if b := r.Buses()[0]; b.Up || b.LastError == "" {
			t.Errorf("bus %+v", b)
		}
		time.Sleep(80 * time.Second)
		r.stop()
		for ref := tag.Ref(1); ref <= 2; ref++ {
			if got := r.sink.statuses(ref); !slices.Equal(got, []tag.Status{tag.Good, tag.BadNoCommunication, tag.Good}) {
				t.Errorf("tag %d went %v", ref, got)
			}
			bad := 0
			for _, s := range r.sink.of(ref) {
				if s.Status == tag.BadNoCommunication {
					bad++
					if !s.Value.IsNull() {
						t.Errorf("D12 the outage has the value %v", s.Value)
					}
				}
			}
			if bad != 1 {
				t.Errorf("the outage was published %d times", bad)
			}
		}
		if n := r.link.attempts(); n > 12 {
			t.Errorf("D20 %d attempts in a minute", n)
		}
		if down, up := r.logged("line is down"), r.logged("line is up"); down != 1 || up != 2 {
			t.Errorf("logged down %d times, up %d times", down, up)
		}
	})
}

func TestBeforeTheFirstAnswerNothingIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		r := newRig(t, BusConfig{}, p)
		r.link.open = func(int) error { return errors.New("no route to host") }
		r.start(t)
		time.Sleep(time.Minute)
		r.stop()
		if len(r.sink.samples) != 0 {
			t.Errorf("published %v", r.sink.samples)
		}
		if n := r.logged("line is down"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestHostThatDropsEachConnectionIsNotUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.poll = func(int) error { return errors.New("closed") }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(time.Minute)
		r.stop()
		if n := r.link.attempts(); n > 12 {
			t.Errorf("%d connections in a minute", n)
		}
		if n := r.logged("line is"); n != 1 {
			t.Errorf("logged %d changes", n)
		}
	})
}

func TestD20IdleCloseIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(10*time.Second, 1)
		closes := 0
		p.poll = func(int) error {
			if closes++; closes%2 == 0 { // each second exchange finds the connection closed
				return fmt.Errorf("closed while idle: %w", ErrUnsent)
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(60*time.Second + 10*time.Millisecond)
		r.stop()
		if got := r.sink.statuses(1); !slices.Equal(got, []tag.Status{tag.Good}) {
			t.Errorf("the tag went %v", got)
		}
		if n := len(r.sink.of(1)); n != 7 {
			t.Errorf("%d readings of 7", n)
		}
	})
}

func TestWriteOutcomes(t *testing.T) {
	lost := errors.New("connection reset")
	for _, row := range []struct {
		name    string
		config  BusConfig
		write   func(n int, c *tag.Command) error
		status  tag.Status
		writes  int
		unknown bool // the log says that it may have happened
	}{
		{"confirmed", BusConfig{}, nil, tag.Good, 1, false},
		{"refused", BusConfig{}, func(_ int, c *tag.Command) error {
			c.Status = tag.BadOutOfRange
			return &Fault{Kind: Refused, Err: errors.New("exception 3")}
		}, tag.BadOutOfRange, 1, false},
		{"sent and unanswered, sent once", BusConfig{Retries: 3}, func(_ int, c *tag.Command) error {
			c.Status = tag.BadTimeout
			return mute()
		}, tag.BadTimeout, 1, true},
		{"sent and unanswered, retries of writes set", BusConfig{WriteRetries: 2}, func(_ int, c *tag.Command) error {
			c.Status = tag.BadTimeout
			return mute()
		}, tag.BadTimeout, 3, true},
		{"answered at the second try", BusConfig{WriteRetries: 2}, func(n int, c *tag.Command) error {
			if n > 0 {
				return nil
			}
			c.Status = tag.BadTimeout
			return mute()
		}, tag.Good, 2, false},
		{"nothing was sent: tried again on a new link", BusConfig{}, func(n int, c *tag.Command) error {
			if n > 0 {
				return nil
			}
			return fmt.Errorf("closed while idle: %w", ErrUnsent)
		}, tag.Good, 2, false},
		{"link lost after it was sent", BusConfig{}, func(_ int, c *tag.Command) error {
			c.Status = tag.BadTimeout
			return lost
		}, tag.BadTimeout, 1, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant(time.Second, 1)
				n := 0
				if row.write != nil {
					p.write = func(c *tag.Command) error { n++; return row.write(n-1, c) }
				}
				r := newRig(t, row.config, p)
				r.start(t)
				time.Sleep(10 * time.Millisecond)
				cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(42))}}
				r.Execute(t.Context(), cmds)
				r.stop()
				if cmds[0].Status != row.status || len(p.writes) != row.writes {
					t.Errorf("%v after %d writes, want %v after %d", cmds[0].Status, len(p.writes), row.status, row.writes)
				}
				if told := r.logged("it may have happened") == 1; told != row.unknown {
					t.Errorf("the log tells of an unknown outcome: %v\n%s", told, r.log)
				}
			})
		})
	}
}

func TestCommandOfAClientThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Hour, 1, 2)
		p.takes = func() time.Duration { return time.Second }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}, {Ref: 2, Value: tag.Of(uint16(2))}}
		r.Execute(ctx, cmds)
		if cmds[0].Status != tag.BadTimeout || cmds[1].Status != tag.BadNoCommunication {
			t.Errorf("statuses %v, %v", cmds[0].Status, cmds[1].Status)
		}
		time.Sleep(10 * time.Second)
		r.stop()
		if !slices.Equal(p.writes, []tag.Ref{1}) {
			t.Errorf("written: %v; what waited must never be carried out", p.writes)
		}
		if r.logged("it may have happened") != 1 {
			t.Error("the log does not tell of the unknown outcome")
		}
	})
}

func TestCommandsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPlant(time.Hour, 1, 2), newPlant(time.Hour, 3, 4)
		r := newRig(t, BusConfig{}, a, b)
		var order []tag.Ref
		keep := func(c *tag.Command) error { order = append(order, c.Ref); return nil }
		a.write, b.write = keep, keep
		r.start(t)
		var cmds []tag.Command
		want := []tag.Ref{3, 1, 4, 2, 1, 3}
		for i, ref := range want {
			cmds = append(cmds, tag.Command{Ref: ref, Value: tag.Of(uint16(i))})
		}
		cmds = append(cmds, tag.Command{Ref: 99})
		r.Execute(t.Context(), cmds)
		r.stop()
		if !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		for i := range want {
			if cmds[i].Status != tag.Good {
				t.Errorf("command %d: %v", i, cmds[i].Status)
			}
		}
		if cmds[6].Status != tag.BadNodeIDUnknown {
			t.Errorf("unknown tag: %v", cmds[6].Status)
		}
	})
}

func TestReadersShareARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Hour, 1, 2)
		p.takes = func() time.Duration { return 100 * time.Millisecond }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(50 * time.Millisecond) // the first poll is under way
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if s := r.Refresh(t.Context(), []tag.Ref{tag.Ref(i%2 + 1)}); s != tag.Good {
					t.Errorf("refresh: %v", s)
				}
			})
		}
		wg.Wait()
		r.stop()
		if p.reads != 1 {
			t.Errorf("%d exchanges for 100 readers", p.reads)
		}
	})
}

func TestHoldKeepsTheLastGoodValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1, 2)
		p.values[1] = 12345
		var dead time.Time
		p.poll = func(int) error {
			if time.Now().After(dead) {
				return mute()
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.devices[0].held = map[tag.Ref]*held{1: {keep: 5 * time.Second, goodAt: -1}}
		began := time.Now()
		dead = began.Add(1050 * time.Millisecond)
		r.start(t)
		time.Sleep(20 * time.Second)
		r.stop()
		want := []tag.Status{tag.Good, tag.UncertainNoCommunicationLastUsableValue, tag.BadNoCommunication}
		if got := r.sink.statuses(1); !slices.Equal(got, want) {
			t.Errorf("the held tag went %v", got)
		}
		if got := r.sink.statuses(2); !slices.Equal(got, []tag.Status{tag.Good, tag.BadNoCommunication}) {
			t.Errorf("the other tag went %v", got)
		}
		for _, s := range r.sink.of(1) {
			switch {
			case s.Status.IsUncertain() && s.Value.Bits() != 12345:
				t.Errorf("held as %v", s.Value)
			case s.Status.IsBad():
				if at := s.At.Time().Sub(began); at < 5900*time.Millisecond || at > 6200*time.Millisecond {
					t.Errorf("held until %v after the start", at)
				}
			}
		}
	})
}

func TestD11BusyIsGivenTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(time.Second, 1)
		n := 0
		p.poll = func(int) error {
			if n++; n <= 2 {
				return &Fault{Kind: Busy, Err: errors.New("exception 6")}
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(500 * time.Millisecond)
		r.stop()
		if got := r.sink.statuses(1); !slices.Equal(got, []tag.Status{tag.Good}) {
			t.Errorf("the tag went %v", got)
		}
	})
}

func TestFailingRequestMakesTheDeviceDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.requests = [][]int{{0, 1}}
		healed := time.Now().Add(time.Second)
		p.poll = func(request int) error {
			if request == 1 && time.Now().Before(healed) {
				return &Fault{Kind: Refused, Err: errors.New("exception 4")}
			}
			return nil
		}
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(500 * time.Millisecond)
		if s, _ := r.Device("d0"); s.State != Degraded || !strings.Contains(s.LastError, "exception 4") {
			t.Errorf("state %v, last error %q", s.State, s.LastError)
		}
		time.Sleep(time.Second)
		if s, _ := r.Device("d0"); s.State != Online {
			t.Errorf("state %v after it healed", s.State)
		}
		r.stop()
		if n := r.logged("request fails"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestOperate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(time.Second)
		if s := r.Operate(t.Context(), "d0", tag.Disable); s != tag.Good {
			t.Fatalf("disable: %v", s)
		}
		n := len(p.polled)
		time.Sleep(time.Second)
		if len(p.polled) != n {
			t.Error("a device that is off was polled")
		}
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(1))}}
		if r.Execute(t.Context(), cmds); cmds[0].Status != tag.BadOutOfService {
			t.Errorf("write to a device that is off: %v", cmds[0].Status)
		}
		if s := r.Operate(t.Context(), "d0", tag.Enable); s != tag.Good {
			t.Fatalf("enable: %v", s)
		}
		time.Sleep(time.Second)
		r.Operate(t.Context(), "d0", tag.ResetCounters)
		if s, _ := r.Device("d0"); s.Requests != 0 || s.State != Online {
			t.Errorf("after the reset: %+v", s)
		}
		if s := r.Operate(t.Context(), "d0", tag.Poll); s != tag.Good || p.reads != 1 {
			t.Errorf("poll: %v, %d readings", s, p.reads)
		}
		if s := r.Operate(t.Context(), "nobody", tag.Poll); s != tag.BadNodeIDUnknown {
			t.Errorf("unknown device: %v", s)
		}
		r.stop()
		if got := r.sink.statuses(1); !slices.Equal(got, []tag.Status{tag.Good, tag.BadOutOfService, tag.Good}) {
			t.Errorf("the tag went %v", got)
		}
		cmds[0].Status = tag.Good
		if r.Execute(t.Context(), cmds); cmds[0].Status != tag.BadNoCommunication {
			t.Errorf("write after the end: %v", cmds[0].Status)
		}
		if s := r.Refresh(t.Context(), []tag.Ref{1}); s != tag.BadShutdown {
			t.Errorf("refresh after the end: %v", s)
		}
	})
}

func TestUtilization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(100*time.Millisecond, 1)
		p.takes = func() time.Duration { return 25 * time.Millisecond }
		r := newRig(t, BusConfig{}, p)
		r.start(t)
		time.Sleep(35 * time.Second)
		b := r.Buses()[0]
		r.stop()
		if b.Utilization < 0.24 || b.Utilization > 0.26 {
			t.Errorf("utilization %v, want 0.25", b.Utilization)
		}
		if b.Polls[5] != 350 {
			t.Errorf("exchanges by duration %v", b.Polls)
		}
	})
}

func TestLanesWorkAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, err := tag.NewTable([]tag.Def{{Device: "a", Name: "t", Access: tag.Readable}, {Device: "b", Name: "t", Access: tag.Readable}})
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Table: table, Sink: &record{}, Log: slog.New(slog.DiscardHandler),
			Buses: []BusConfig{{Name: "line", Links: []Link{&wire{}, &wire{}}}}}
		var plants []*plant
		for i, name := range []string{"a", "b"} {
			p := newPlant(100*time.Millisecond, tag.Ref(i+1))
			p.takes = func() time.Duration { return 90 * time.Millisecond }
			plants = append(plants, p)
			cfg.Devices = append(cfg.Devices, DeviceConfig{Name: name, Bus: "line", Driver: p})
		}
		f, err := NewFleet(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		f.Run(ctx)
		for _, p := range plants {
			if len(p.polled) < 99 {
				t.Errorf("%d polls of 100: two devices waited for one lane", len(p.polled))
			}
		}
		if b := f.Buses()[0]; b.Opened != 2 || b.Overruns != 0 {
			t.Errorf("%+v", b)
		}
	})
}

func TestFleetRefusesAWrongConfiguration(t *testing.T) {
	table, _ := tag.NewTable([]tag.Def{{Device: "d", Name: "t"}})
	p := newPlant(time.Second, 1)
	bus := BusConfig{Name: "line", Links: []Link{&wire{}}}
	for _, row := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no sink", Config{Table: table}, "sink"},
		{"two buses of a name", Config{Table: table, Sink: &record{}, Buses: []BusConfig{bus, bus}}, "bus line is defined twice"},
		{"no link", Config{Table: table, Sink: &record{}, Buses: []BusConfig{{Name: "x"}}}, "has no link"},
		{"unknown bus", Config{Table: table, Sink: &record{}, Devices: []DeviceConfig{{Name: "d", Bus: "b", Driver: p}}}, `bus "b"`},
		{"no driver", Config{Table: table, Sink: &record{}, Devices: []DeviceConfig{{Name: "d"}}}, "one driver"},
		{"tag beyond the table", Config{Table: table, Sink: &record{}, Buses: []BusConfig{bus},
			Devices: []DeviceConfig{{Name: "d", Bus: "line", Driver: newPlant(time.Second, 7)}}}, "tag 7"},
	} {
		if _, err := NewFleet(row.cfg); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
