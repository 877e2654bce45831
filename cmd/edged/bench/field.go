package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"edged/drivers/port"
	"edged/drivers/sim"
)

// The field workloads turn the load around: this process is the plant, and a gateway of its own polls it. What the gateway
// does is seen from outside, by when its requests come.
const (
	fieldRTU = "field-rtu"
	fieldTCP = "field-tcp"
)

var fieldHelps = []struct{ name, help string }{
	{fieldRTU, "a gateway polls 8 units on a serial line that keeps its bit times, at 9,600, 19,200 and 115,200 baud"},
	{fieldTCP, "a gateway polls 10,000 tags of 100 TCP devices every 100 ms"},
}

// plan checks what a field workload can be told.
func (c *Config) planField() error {
	if c.Scale == 0 {
		c.Scale = 1
	}
	switch {
	case c.URL != "" || c.Nodes != "" || c.Metrics != "" || c.PID != 0:
		return usage("%s starts a gateway of its own: leave url, nodes, metrics and pid out", c.Workload)
	case c.Scale < 0 || c.Scale > 100:
		return usage("scale %v: it may be up to 100, and 1 is the workload as it is", c.Scale)
	case c.Duration < 0 || c.Rounds < 0:
		return usage("duration and rounds are positive")
	}
	return nil
}

// times are warm-up and measured time of a field workload.
func (c *Config) times(warmup, duration time.Duration) (time.Duration, time.Duration) {
	if c.Warmup != 0 {
		warmup = max(0, c.Warmup)
	}
	if c.Duration != 0 {
		duration = c.Duration
	} else {
		duration = time.Duration(float64(duration) * c.Scale)
	}
	return warmup, duration
}

// arrivals hears when requests of each device are answered.
type arrivals struct {
	mu   sync.Mutex // guards at
	at   map[string][]time.Time
	only byte // function code
}

func (a *arrivals) hear(answer *sim.Answer) {
	if answer.Function != a.only {
		return
	}
	now := time.Now()
	a.mu.Lock()
	a.at[answer.Device.Name()] = append(a.at[answer.Device.Name()], now)
	a.mu.Unlock()
}

// between are the moments of a device from one time to another.
func (a *arrivals) between(device string, from, to time.Time) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.at[device]
	i, _ := slices.BinarySearchFunc(all, from, time.Time.Compare)
	j, _ := slices.BinarySearchFunc(all, to, time.Time.Compare)
	return slices.Clone(all[i:j])
}

const siteOfField = `server:
  listen: 127.0.0.1:0
  name: edged bench
  security: {policies: [None], anonymous: read}
web: {listen: "127.0.0.1:0"}
`

// stage is a plant in this process and a gateway of its own that polls it.
type stage struct {
	plant *sim.Plant
	heard *arrivals
	*server
	probe probe
}

// newStage starts both; site makes the gateway's buses and devices from the plant as it listens.
func newStage(ctx context.Context, cfg *Config, plan sim.Config, site func(p *sim.Plant) string) (*stage, error) {
	plant, err := sim.New(plan)
	if err != nil {
		return nil, err
	}
	s := &stage{plant: plant, heard: &arrivals{at: map[string][]time.Time{}, only: 3}}
	plant.OnAnswer = s.heard.hear
	if err := plant.Start(); err != nil {
		return nil, err
	}
	if s.server, err = startServer(ctx, cfg.Program, siteOfField+site(plant)); err != nil {
		plant.Close()
		return nil, err
	}
	s.probe = probe{pid: s.cmd.Process.Pid, metrics: s.server.metrics}
	return s, nil
}

func (s *stage) close() {
	s.server.stop()
	s.plant.Close()
}

// figures is a row of a field workload: names and values in the order of its columns.
type figures []struct {
	name     string
	value    float64
	decimals int
}

func (f *figures) add(name string, value float64, decimals int) {
	*f = append(*f, struct {
		name     string
		value    float64
		decimals int
	}{name, value, decimals})
}

// print writes rows, for people or for scripts.
func (f figures) print(out io.Writer, workload string, asJSON, first bool, verdict string) {
	if asJSON {
		var parts []string
		for _, c := range f {
			parts = append(parts, fmt.Sprintf("%q:%s", c.name, number(c.value, c.decimals, "null")))
		}
		fmt.Fprintf(out, "{\"workload\":%q,%s,\"verdict\":%q}\n", workload, strings.Join(parts, ","), verdict)
		return
	}
	if first {
		for _, c := range f {
			fmt.Fprintf(out, "%*s", f.width(c.name), c.name)
		}
		fmt.Fprintln(out)
	}
	for _, c := range f {
		fmt.Fprintf(out, "%*s", f.width(c.name), number(c.value, c.decimals, "-"))
	}
	fmt.Fprintf(out, "  %s\n", verdict)
}

func (f figures) width(name string) int { return max(10, len(name)+2) }

func number(v float64, decimals int, unknown string) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return unknown
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

// runField carries out a field workload.
func runField(ctx context.Context, cfg Config) error {
	if err := cfg.planField(); err != nil {
		return err
	}
	if cfg.Workload == fieldTCP {
		return runFieldTCP(ctx, &cfg)
	}
	return runFieldRTU(ctx, &cfg)
}

// verdict of a row whose figures keep their bounds.
func verdictOf(ok bool) string {
	if ok {
		return "PASS"
	}
	return "FAIL"
}

// The line of field-rtu: units, the registers of each, and how much longer than its bit times a cycle may be.
const (
	rtuUnits     = 8
	rtuRegisters = 10
)

var rtuRates = []struct {
	baud  int
	limit float64 // percent
}{{9600, 3}, {19200, 3}, {115200, 8}}

func runFieldRTU(ctx context.Context, cfg *Config) error {
	warmup, duration := cfg.times(6*time.Second, 15*time.Second)
	if !cfg.JSON {
		fmt.Fprintf(cfg.Out, "%s: %d units with %d registers each, %v after %v of warm-up; ideal: characters of 11 bits, 3.5 of them between frames, 1.75 ms above 19,200 baud\n",
			cfg.Workload, rtuUnits, rtuRegisters, duration, warmup)
	}
	missed := false
	for round := range max(1, cfg.Rounds) {
		for i, rate := range rtuRates {
			f, over, err := fieldRTURate(ctx, cfg, rate.baud, warmup, duration)
			if err != nil {
				return fmt.Errorf("%d baud: %w", rate.baud, err)
			}
			f.add("limit_%", rate.limit, 0)
			ok := over <= rate.limit
			missed = missed || !ok
			f.print(cfg.Out, cfg.Workload, cfg.JSON, round+i == 0, verdictOf(ok))
		}
	}
	if missed {
		return fmt.Errorf("%s: a cycle took longer than its limit", cfg.Workload)
	}
	return nil
}

// fieldRTURate measures the line at one rate.
func fieldRTURate(ctx context.Context, cfg *Config, baud int, warmup, duration time.Duration) (f figures, over float64, err error) {
	mode := port.DefaultMode
	mode.Baud = baud
	plan := sim.Config{Lines: []sim.LineConfig{{Name: "line", URL: fmt.Sprintf("rtu:?baud=%d&parity=even", baud), Pace: true}}}
	for i := range rtuUnits {
		plan.Devices = append(plan.Devices, sim.DeviceConfig{Name: unitName(i), Line: "line", Unit: i + 1,
			Points: []sim.PointConfig{{Address: "holding:0", Repeat: rtuRegisters, Wave: sim.Wave{Kind: "counter"}}}})
	}
	s, err := newStage(ctx, cfg, plan, func(p *sim.Plant) string {
		var b strings.Builder
		fmt.Fprintf(&b, "buses: [{name: line, url: %q, overbook: warn}]\ndevices:\n", p.Line("line").URL())
		for i := range rtuUnits {
			// Each scan is over before it is due again: the line is never idle.
			fmt.Fprintf(&b, "- {name: %s, bus: line, unit: %d, poll: 1ms, tags: [{name: \"r{n}\", repeat: %d, address: \"holding:0\"}]}\n", unitName(i), i+1, rtuRegisters)
		}
		return b.String()
	})
	if err != nil {
		return nil, 0, err
	}
	defer s.close()
	from := time.Now().Add(warmup)
	to := from.Add(duration)
	before := s.probe.at(ctx, from, true)
	lateBefore, sentBefore := s.plant.Line("line").Late()
	after := s.probe.at(ctx, to, false)
	late, sent := s.plant.Line("line").Late()
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	var cycles []time.Duration
	times := s.heard.between(unitName(0), from, to)
	for i := range max(0, len(times)-1) {
		cycles = append(cycles, times[i+1].Sub(times[i]))
	}
	if len(cycles) == 0 {
		return nil, 0, fmt.Errorf("no cycle was completed in %v", duration)
	}
	mean := times[len(times)-1].Sub(times[0]) / time.Duration(len(cycles))
	slices.Sort(cycles)
	gap := mode.Chars(7) / 2
	if baud > 19200 {
		gap = 1750 * time.Microsecond
	}
	const asks, counts, frame = 8, 5, 2 // characters: a request; an answer but for its registers; one of those
	ideal := rtuUnits * (mode.Chars(asks+counts+frame*rtuRegisters) + 2*gap)
	// The median: a machine with other work to do adds to single cycles, and line_late tells how much.
	over = 100 * (float64(cycles[len(cycles)/2])/float64(ideal) - 1)
	f.add("baud", float64(baud), 0)
	f.add("cycles", float64(len(cycles)), 0)
	f.add("ideal_ms", ideal.Seconds()*1e3, 2)
	f.add("mean_ms", mean.Seconds()*1e3, 2)
	f.add("p10_ms", cycles[len(cycles)/10].Seconds()*1e3, 2)
	f.add("p50_ms", cycles[len(cycles)/2].Seconds()*1e3, 2)
	f.add("p99_ms", cycles[len(cycles)*99/100].Seconds()*1e3, 2)
	f.add("over_%", over, 2)
	f.add("line_late_us", (late-lateBefore).Seconds()*1e6/float64(max(1, sent-sentBefore)), 1)
	f.add("cores", (after.cpu-before.cpu)/duration.Seconds(), 3)
	return f, over, nil
}

func unitName(i int) string { return fmt.Sprintf("unit%d", i) }

// The plant of field-tcp, and what polling it may take.
const (
	tcpDevices = 100
	tcpTags    = 100 // of each
	tcpPeriod  = 100 * time.Millisecond
	mostCores  = 0.15
	mostRSS    = 64 << 20
	mostMalloc = 0.1 // a value: fewer than ten a request
)

func runFieldTCP(ctx context.Context, cfg *Config) error {
	warmup, duration := cfg.times(5*time.Second, 20*time.Second)
	plan := sim.Config{}
	for i := range tcpDevices {
		plan.Lines = append(plan.Lines, sim.LineConfig{Name: unitName(i), URL: "tcp://127.0.0.1:0"})
		plan.Devices = append(plan.Devices, sim.DeviceConfig{Name: unitName(i), Line: unitName(i), Unit: 1,
			Points: []sim.PointConfig{{Address: "holding:0", Repeat: tcpTags, Wave: sim.Wave{Kind: "counter", Every: tcpPeriod}}}})
	}
	s, err := newStage(ctx, cfg, plan, func(p *sim.Plant) string {
		var buses, devices strings.Builder
		for i := range tcpDevices {
			fmt.Fprintf(&buses, "- {name: %s, url: %q}\n", unitName(i), p.Line(unitName(i)).URL())
			fmt.Fprintf(&devices, "- {name: %s, bus: %s, unit: 1, poll: %v, tags: [{name: \"r{n}\", repeat: %d, address: \"holding:0\"}]}\n", unitName(i), unitName(i), tcpPeriod, tcpTags)
		}
		return "buses:\n" + buses.String() + "devices:\n" + devices.String()
	})
	if err != nil {
		return err
	}
	defer s.close()
	if !cfg.JSON {
		fmt.Fprintf(cfg.Out, "%s: %d tags of %d devices every %v, all of them change each time; %v after %v of warm-up; limits: %v cores, %d MiB, %v allocations a value, no scan left out\n",
			cfg.Workload, tcpDevices*tcpTags, tcpDevices, tcpPeriod, duration, warmup, mostCores, mostRSS>>20, mostMalloc)
	}
	missed := false
	for round := range max(1, cfg.Rounds) {
		ok, err := s.fieldTCPRound(ctx, cfg, round, warmup, duration)
		if err != nil {
			return err
		}
		warmup, missed = time.Second, missed || !ok
	}
	if missed {
		return fmt.Errorf("%s: a limit was not kept", cfg.Workload)
	}
	return nil
}

func (s *stage) fieldTCPRound(ctx context.Context, cfg *Config, round int, warmup, duration time.Duration) (bool, error) {
	from := time.Now().Add(warmup)
	to := from.Add(duration)
	before := s.probe.at(ctx, from, true)
	after := s.probe.at(ctx, to, false)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	scans, left := 0, 0
	var off []float64 // of the grid, in ms
	for i := range tcpDevices {
		times := s.heard.between(unitName(i), from, to)
		scans += len(times)
		o, skipped := offGrid(times, tcpPeriod)
		off, left = append(off, o...), left+skipped
	}
	if scans == 0 {
		return false, fmt.Errorf("%s: no device was asked", cfg.Workload)
	}
	slices.Sort(off)
	values := float64(scans * tcpTags)
	cores := (after.cpu - before.cpu) / duration.Seconds()
	mallocs := max(0, after.mallocs-before.mallocs) / values
	f := figures{}
	f.add("scans/s", float64(scans)/duration.Seconds(), 1)
	f.add("values/s", values/duration.Seconds(), 0)
	f.add("left_out", float64(left), 0)
	f.add("off_p50_ms", off[len(off)/2], 2)
	f.add("off_p99_ms", off[len(off)*99/100], 2)
	f.add("off_max_ms", off[len(off)-1], 2)
	f.add("cores", cores, 3)
	f.add("cpu_us/scan", 1e6*(after.cpu-before.cpu)/float64(scans), 1)
	f.add("allocs/value", mallocs, 3)
	f.add("alloc_B/value", max(0, after.alloc-before.alloc)/values, 1)
	f.add("rss_MiB", after.rss/(1<<20), 1)
	f.add("plant_cores", (after.client-before.client)/duration.Seconds(), 2)
	ok := left == 0 && cores <= mostCores && after.rss <= mostRSS && mallocs <= mostMalloc
	f.print(cfg.Out, cfg.Workload, cfg.JSON, round == 0, verdictOf(ok))
	runtime.GC() // what the plant heard
	return ok, nil
}

// offGrid tells how far, in ms, each moment is from a grid of the period, whose origin is the moment that makes the others
// come last, and how many points of the grid have none.
func offGrid(times []time.Time, period time.Duration) (off []float64, skipped int) {
	if len(times) == 0 {
		return nil, 0
	}
	// A request may come late, never early: the earliest within its period is the grid's own.
	origin := times[0]
	earliest := time.Duration(0)
	for _, t := range times {
		d := t.Sub(origin)
		e := d - d.Round(period)
		earliest = min(earliest, e)
	}
	origin = origin.Add(earliest)
	last := int64(-1)
	for _, t := range times {
		d := t.Sub(origin)
		n := int64(d / period)
		off = append(off, float64(d-time.Duration(n)*period)/float64(time.Millisecond))
		if last >= 0 && n > last+1 {
			skipped += int(n - last - 1)
		}
		last = n
	}
	return off, skipped
}
