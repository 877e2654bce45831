package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"edged/drivers"
	"edged/drivers/modbus"
	"edged/drivers/port"
	"edged/drivers/sim"
	"edged/drivers/tag"
)

// transport is how a plant and the driver reach each other, over a wire in memory, so that a whole day of the field goes by in a
// minute.
type transport struct {
	name    string
	url     string // of the plant's line
	framing modbus.Framing
	mode    port.Mode // zero: characters take no time
	lanes   int
	serve   func(l *sim.Line, c net.Conn)
}

var slow = port.Mode{Baud: 19200, Data: 8, Parity: "even", Stop: 1}

var transports = []transport{
	{"tcp", "tcp://127.0.0.1:0", modbus.TCP, port.Mode{}, 1, func(l *sim.Line, c net.Conn) { l.ServeTCP(c) }},
	{"pipelined", "tcp://127.0.0.1:0", modbus.TCP, port.Mode{}, 2, func(l *sim.Line, c net.Conn) { l.ServeTCP(c) }},
	{"rtu", "rtu:?baud=19200&parity=even", modbus.RTU, slow, 1, func(l *sim.Line, c net.Conn) { l.ServeRTU(c) }},
	{"rtuovertcp", "rtuovertcp://127.0.0.1:0", modbus.RTU, port.Mode{}, 1, func(l *sim.Line, c net.Conn) { l.ServeRTU(c) }},
	{"ascii", "ascii:?baud=19200", modbus.ASCII, slow, 1, func(l *sim.Line, c net.Conn) { l.ServeASCII(c) }},
}

// Tags of each device: a counter that no two polls find alike, a total that never changes, and a set point.
const (
	counterTag = iota
	totalTag
	setpointTag
	tagsOfUnit
)

const (
	theTotal = 12345
	period   = 100 * time.Millisecond
)

// ref is a tag of a unit, from 0 on.
func ref(unit, which int) tag.Ref { return tag.Ref(unit*tagsOfUnit + which + 1) }

// judge hears what devices say and what is published, and holds one against the other: every value that is published is
// one that its device has said, and they come in the order in which they were said.
type judge struct {
	mu        sync.Mutex // guards the fields below
	said      [][]uint64 // by Ref-1: not yet passed by a published one
	went      [][]tag.Status
	at        [][]time.Time // of went
	good      []int
	last      []uint64
	published int
	wrong     []string
}

func newJudge(units int) *judge {
	n := units * tagsOfUnit
	return &judge{said: make([][]uint64, n), went: make([][]tag.Status, n), at: make([][]time.Time, n), good: make([]int, n), last: make([]uint64, n)}
}

// hear notes what an answer says of each tag.
func (j *judge) hear(a *sim.Answer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	unit := a.Device.Unit() - 1
	if a.Function > 4 {
		return
	}
	if high, ok := a.Register(0); ok {
		if low, ok := a.Register(1); ok {
			j.say(ref(unit, counterTag), uint64(high)<<16|uint64(low))
		}
	}
	if v, ok := a.Register(2); ok {
		j.say(ref(unit, totalTag), uint64(v))
	}
	if v, ok := a.Register(10); ok {
		j.say(ref(unit, setpointTag), uint64(v))
	}
}

func (j *judge) say(r tag.Ref, v uint64) { j.said[r-1] = append(j.said[r-1], v) }

// Publish implements tag.Sink.
func (j *judge) Publish(batch []tag.Sample) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range batch {
		s := &batch[i]
		r := s.Ref - 1
		j.published++
		if w := j.went[r]; len(w) == 0 || w[len(w)-1] != s.Status {
			j.went[r], j.at[r] = append(w, s.Status), append(j.at[r], time.Now())
		}
		if !s.Status.IsGood() {
			if !s.Value.IsNull() {
				j.blame("tag %d was published with %v and a value", s.Ref, s.Status)
			}
			continue
		}
		j.good[r]++
		v := s.Value.Bits()
		at := slices.Index(j.said[r], v)
		if at < 0 {
			j.blame("%v: tag %d was published as %d, which its device has not said since the value before", time.Now().Format(time.TimeOnly), s.Ref, v)
			continue
		}
		j.said[r], j.last[r] = j.said[r][at+1:], v
	}
}

func (j *judge) blame(format string, args ...any) {
	if len(j.wrong) < 10 {
		j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
	}
}

// outcome is what a tag went through since the moment, and when it was good again.
func (j *judge) outcome(r tag.Ref, since time.Time) (went []tag.Status, recovered time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, s := range j.went[r-1] {
		if !j.at[r-1][i].Before(since) {
			went = append(went, s)
			if s.IsGood() {
				recovered = j.at[r-1][i]
			}
		}
	}
	return went, recovered
}

// rig is a plant and a fleet that polls it, over one transport.
type rig struct {
	*drivers.Fleet
	plant *sim.Plant
	line  *sim.Line
	judge *judge
	stop  func()

	mu     sync.Mutex // guards the fields below
	cut    bool
	opened int
}

func newRig(t *testing.T, tr *transport, units int, timeout time.Duration) *rig {
	t.Helper()
	plan := sim.Config{Lines: []sim.LineConfig{{Name: "line", URL: tr.url, Pace: tr.mode.Baud > 0}}}
	for i := range units {
		plan.Devices = append(plan.Devices, sim.DeviceConfig{Name: fmt.Sprint("u", i), Line: "line", Unit: i + 1, Delay: 2 * time.Millisecond,
			Points: []sim.PointConfig{
				{Address: "holding:0", Type: "uint32", Wave: sim.Wave{Kind: "counter", Every: period / 50}},
				{Address: "holding:2", Value: theTotal},
				{Address: "holding:10", Value: 1},
			}})
	}
	r := &rig{judge: newJudge(units)}
	var err error
	if r.plant, err = sim.New(plan); err != nil {
		t.Fatal(err)
	}
	r.plant.OnAnswer = r.judge.hear
	r.line = r.plant.Line("line")
	var open port.Opener = port.OpenFunc(func(context.Context) (port.Port, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.cut {
			return nil, errors.New("the line is cut")
		}
		r.opened++
		near, far := newWire()
		go tr.serve(r.line, far)
		return port.FromConn(near), nil
	})
	if tr.lanes > 1 {
		open = modbus.NewShared(open)
	}
	bus := drivers.BusConfig{Name: "line", Retries: 1}
	var links []*modbus.Link
	for range tr.lanes {
		l := modbus.NewLink(modbus.LinkConfig{Open: open, Framing: tr.framing, Mode: tr.mode, Timeout: timeout})
		links, bus.Links = append(links, l), append(bus.Links, l)
	}
	cfg := drivers.Config{Buses: []drivers.BusConfig{bus}, Sink: r.judge, Log: slog.New(slog.DiscardHandler)}
	var defs []tag.Def
	for i := range units {
		name := fmt.Sprint("u", i)
		d, err := modbus.New(modbus.Config{Name: name, Unit: i + 1, Poll: period, Tags: []modbus.Tag{
			{Ref: ref(i, counterTag), Name: "counter", Address: "holding:0", Type: "uint32", Access: tag.Readable},
			{Ref: ref(i, totalTag), Name: "total", Address: "holding:2", Access: tag.Readable},
			{Ref: ref(i, setpointTag), Name: "setpoint", Address: "holding:10", Access: tag.Readable | tag.Writable},
		}}, links...)
		if err != nil {
			t.Fatal(err)
		}
		defs = append(defs, tag.Def{Device: name, Name: "counter", Kind: tag.Uint32, Access: tag.Readable},
			tag.Def{Device: name, Name: "total", Kind: tag.Uint16, Access: tag.Readable},
			tag.Def{Device: name, Name: "setpoint", Kind: tag.Uint16, Access: tag.Readable | tag.Writable})
		cfg.Devices = append(cfg.Devices, drivers.DeviceConfig{Name: name, Bus: "line", Driver: d})
	}
	if cfg.Table, err = tag.NewTable(defs); err != nil {
		t.Fatal(err)
	}
	if r.Fleet, err = drivers.NewFleet(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	r.stop = func() {
		cancel()
		<-ended
		r.plant.Close()
	}
	return r
}

// setCut cuts the line, or joins it again.
func (r *rig) setCut(cut bool) {
	r.mu.Lock()
	r.cut = cut
	r.mu.Unlock()
	if cut {
		r.line.Drop()
	}
}

// check reports what the judge found.
func (r *rig) check(t *testing.T) {
	t.Helper()
	r.judge.mu.Lock()
	defer r.judge.mu.Unlock()
	for _, w := range r.judge.wrong {
		t.Error(w)
	}
}
