package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"edged/cmd/edged/probe"
	"edged/drivers/modbus"
	"edged/drivers/port"
)

type probeCommand struct {
	URL     string        `arg:"" name:"url" help:"Line as in a site file: tcp://HOST:PORT, rtu:///dev/NAME?baud=19200&parity=even, rtuovertcp://HOST:PORT, serial:///dev/NAME?baud=9600 to listen only, ..."`
	Unit    int           `default:"1" help:"Unit to look at, 0 to 255 (default: ${default})."`
	Scan    bool          `help:"Find out which units answer, and on a serial line at which of the speeds and parities that the url leaves open. With --learn: look at all that were found."`
	Learn   bool          `help:"Learn limits, holes, answer times, types and byte orders too, and write the device's section of a site file."`
	Units   string        `default:"1-247" placeholder:"FIRST-LAST" help:"Units that --scan asks (default: ${default})."`
	Range   string        `default:"0-999" placeholder:"FIRST-LAST" help:"Addresses of each table that are looked at one by one; beyond, round numbers are (default: ${default})."`
	Table   []string      `placeholder:"TABLE" help:"Tables to look at: holding, input, coil, discrete (default: all)."`
	Budget  time.Duration `default:"2m" help:"How long looking for addresses may take; where it is too short for all, each 2nd, 4th ... is looked at (default: ${default})."`
	Timeout time.Duration `placeholder:"TIME" help:"How long an answer may take (default: 1s, in a scan of a serial line 200ms)."`
	Watch   time.Duration `default:"1s" help:"How long --learn watches the values move (default: ${default}; 0s: they are read once)."`
	For     time.Duration `default:"10s" help:"How long to listen to an unknown instrument, at each setting with --scan (default: ${default})."`
	Echo    bool          `help:"The line brings back what is sent."`
	Force   bool          `help:"Ask on a serial line even while somebody else does."`
	Output  string        `short:"o" placeholder:"FILE" help:"File for the section that --learn writes (default: standard output). It is never overwritten."`
	JSON    bool          `name:"json" help:"One JSON object a line instead of text."`

	open func(port.Address) port.Opener // of tests; nil: the line itself
}

// The time-outs where none is given.
const (
	probeTimeout    = time.Second
	lineScanTimeout = 200 * time.Millisecond
	// A serial line is heard this long before anything is asked: two who ask disturb each other.
	hearFirst = 500 * time.Millisecond
)

// probing is one run of the command.
type probing struct {
	*probeCommand
	*program
	address port.Address
	listens bool // the url is of an instrument, not of Modbus
	units   []int
	ranges  probe.Range
	show    progress
	results io.Writer // of the findings as text
}

// Run looks at a line and prints what it finds.
func (c *probeCommand) Run(p *program) error {
	g := &probing{probeCommand: c, program: p, results: p.stdout, show: progress{out: p.stderr, shown: isTerminal(p.stderr)}}
	if err := g.check(); err != nil {
		return usageError{err}
	}
	if c.Learn && c.Output == "" && !c.JSON {
		g.results = p.stderr // the section alone is the result
	}
	err := g.run()
	g.show.clear()
	if errors.Is(err, context.Canceled) {
		return errors.New("probe: interrupted: what it has found until then is above")
	}
	return err
}

func (g *probing) run() error {
	switch {
	case g.listens:
		return g.listen()
	case g.Scan:
		return g.scan()
	}
	if err := g.quiet(g.address); err != nil {
		return err
	}
	return g.look(g.address, []int{g.Unit})
}

// check reads the flags.
func (g *probing) check() (err error) {
	if g.address, g.listens, err = probeAddress(g.URL); err != nil {
		return err
	}
	last := 247
	if g.address.Scheme == "tcp" || g.address.Scheme == "tcp+tls" {
		last = 255
	}
	first, end, err := parseRange("--units", g.Units, 0, last)
	if err != nil {
		return err
	}
	for id := first; id <= end; id++ {
		g.units = append(g.units, id)
	}
	g.ranges.Budget = g.Budget
	if g.ranges.First, g.ranges.Last, err = parseRange("--range", g.Range, 0, 65535); err != nil {
		return err
	}
	for _, t := range probe.AllTables {
		if len(g.Table) == 0 || slices.Contains(g.Table, t.String()) {
			g.ranges.Tables = append(g.ranges.Tables, t)
		}
	}
	for _, name := range g.Table {
		if !slices.ContainsFunc(probe.AllTables, func(t modbus.Table) bool { return t.String() == name }) {
			return fmt.Errorf("--table %s: it is holding, input, coil or discrete", name)
		}
	}
	switch {
	case g.Unit < 0 || g.Unit > last:
		return fmt.Errorf("--unit %d: it is 0 to %d on this line", g.Unit, last)
	case last == 247 && !g.listens && (g.Unit == 0 && !g.Scan || g.Scan && first == 0):
		return errors.New("unit 0 is everybody on a serial line, and nobody answers: give a unit from 1")
	case g.Budget <= 0 || g.For <= 0 || g.Timeout < 0 || g.Watch < 0:
		return errors.New("--budget, --for, --timeout and --watch are times such as 10s")
	case g.listens && g.Learn:
		return fmt.Errorf("--learn is for Modbus devices: %s is listened to only", g.URL)
	case g.Output != "" && !g.Learn:
		return errors.New("-o is for the section that --learn writes: add --learn")
	case g.Output != "":
		if _, err := os.Lstat(g.Output); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("-o %s: there is such a file, and it is not overwritten: choose another name", g.Output)
		}
	}
	return nil
}

// probeAddress reads the url; listens is true for an instrument that is no Modbus device.
func probeAddress(text string) (a port.Address, listens bool, err error) {
	a, err = port.Parse(text)
	return a, a.Scheme == "serial" || a.Scheme == "serial+tcp", err
}

// parseRange reads FIRST-LAST, or one number.
func parseRange(flag, text string, low, high int) (first, last int, err error) {
	from, to, two := strings.Cut(text, "-")
	if !two {
		to = from
	}
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if err := errors.Join(err1, err2); err != nil || first < low || last > high || first > last {
		return 0, 0, fmt.Errorf("%s %s: it is FIRST-LAST, from %d to %d", flag, text, low, high)
	}
	return first, last, nil
}

func (g *probing) config(a port.Address, timeout time.Duration) probe.Config {
	if g.Timeout > 0 {
		timeout = g.Timeout
	}
	return probe.Config{Address: a, Open: g.open, Timeout: timeout, Echo: g.Echo, Progress: g.show.say}
}

// opener opens a line to listen to it.
func (g *probing) opener(a port.Address) port.Opener {
	if g.open != nil {
		return g.open(a)
	}
	return a
}

// tell prints a finding: as text, or as an object whose first key says what it is.
func (g *probing) tell(found, text string, more ...column) {
	g.show.clear()
	if g.JSON {
		t := table{out: g.stdout, json: true}
		t.object(append([]column{{name: "found", json: found}}, more...))
		return
	}
	fmt.Fprintln(g.results, text)
}

// note tells a person what is about to be done, and why; it is no result.
func (g *probing) note(format string, args ...any) {
	g.show.clear()
	fmt.Fprintf(g.stderr, format+"\n", args...)
}

// quiet reports as an error that somebody talks on a serial line. It tells nothing of lines that cannot be opened: the
// next who opens them does.
func (g *probing) quiet(a port.Address) error {
	if !a.Serial() || g.Force {
		return nil
	}
	g.show.say("listening whether the line is quiet")
	heard, err := probe.Listen(g.ctx, g.opener(a), hearFirst, func(probe.Burst) {})
	if err != nil || len(heard) == 0 {
		return err
	}
	all := probe.All(heard)
	h := probe.Hear(all)[0]
	return fmt.Errorf("%s is not quiet: %d bytes came in %v, %s (%s): stop who talks there, or ask all the same with --force", a, len(all), hearFirst, h.What, h.Why)
}

// scan looks for units, and with --learn at each of them.
func (g *probing) scan() error {
	cfg := g.config(g.address, probeTimeout)
	tell := func(f probe.Found) {
		g.tell("unit", f.Text(), column{name: "unit", json: f.Unit}, column{name: "mode", json: optional(f.Mode)},
			column{name: "answer", json: f.Answer}, column{name: "ms", json: f.Millis})
	}
	var s probe.Scanned
	var err error
	if g.address.Serial() {
		if err := g.quiet(g.address); err != nil {
			return err
		}
		cfg = g.config(g.address, lineScanTimeout)
		keys := urlKeys(g.URL)
		modes := probe.Modes(g.address, keys.Has("baud"), keys.Has("parity"))
		g.note("scanning %s with %s: %s at most (%v each that does not answer)", counted(len(g.units), "unit", "units"),
			counted(len(modes), "setting", "settings"), probe.Short(probe.ScanTime(g.address, cfg.Timeout, modes, len(g.units))), cfg.Timeout)
		s, err = probe.ScanModes(g.ctx, cfg, modes, g.units, tell)
	} else {
		g.note("scanning %s: %s at most (%v each that does not answer)", counted(len(g.units), "unit", "units"),
			probe.Short(probe.ScanTime(g.address, cfg.Timeout, nil, len(g.units))), cfg.Timeout)
		line := probe.NewLine(cfg)
		s, err = line.Units(g.ctx, g.units, tell)
		line.Close()
	}
	if err != nil {
		return err
	}
	return g.scanned(s)
}

func (g *probing) scanned(s probe.Scanned) error {
	if s.Any {
		g.tell("any", "every unit gives the same answer: the device does not look at the number", column{name: "any", json: true})
	}
	if len(s.Garbled) > 0 && len(s.Units) == 0 {
		texts := make([]string, len(s.Garbled))
		for i, m := range s.Garbled {
			texts[i] = m.String()
		}
		return fmt.Errorf("no unit of %s gives a proper answer on %s, and something came at %s: look for a second master, noise or a wrong polarity", g.Units, g.address.Key(), strings.Join(texts, ", "))
	}
	if len(s.Units) == 0 {
		return fmt.Errorf("no unit of %s answers on %s: check power, wiring (A and B turned around?) and the url; a slow device needs a longer --timeout", g.Units, g.address.Key())
	}
	if !g.Learn {
		return nil
	}
	ids := make([]int, len(s.Units))
	for i, f := range s.Units {
		ids[i] = f.Unit
	}
	a := g.address
	a.Mode = s.Mode
	return g.look(a, ids)
}

// look looks at units one after the other, and with --learn writes the section for them.
func (g *probing) look(a port.Address, ids []int) error {
	line := probe.NewLine(g.config(a, probeTimeout))
	defer line.Close()
	section := probe.Section{Bus: "line1", URL: g.settled(a), Exchange: line.Exchange}
	var failed error
	for _, id := range ids {
		d, err := g.unit(line, id)
		if d != nil && len(d.Tables) > 0 {
			section.Devices = append(section.Devices, d)
		}
		if failed = err; err != nil {
			section.Part = true
			break
		}
	}
	if !g.Learn || len(section.Devices) == 0 {
		return failed
	}
	return errors.Join(failed, g.write(section.Text()))
}

// unit looks at one unit.
func (g *probing) unit(line *probe.Line, id int) (*probe.Device, error) {
	u, err := line.Unit(id)
	if err != nil {
		return nil, err
	}
	steps := probe.Steps{Range: g.ranges}
	if g.Learn {
		steps.Watch = g.Watch
	}
	steps.Estimate = func(stride, n int, d time.Duration) {
		each := "each address"
		if stride > 1 {
			each = fmt.Sprintf("one of %d addresses", stride)
		}
		g.note("unit %d: looking at %s of %s and at round numbers beyond: at most %s, %s", id, each, g.Range, counted(n, "request", "requests"), probe.Short(d))
	}
	steps.Tell = func(text string, t *probe.Table) {
		limit, known := t.Limit()
		cols := []column{{name: "unit", json: id}, {name: "table", json: t.Table.String()}, {name: "ranges", json: t.Ranges()}}
		if limit > 0 {
			cols = append(cols, column{name: "limit", json: limit}, column{name: "limit_known", json: known})
		}
		cols = append(cols, column{name: "whole", json: t.Whole}, column{name: "why", json: optional(t.Why)})
		g.tell("table", text, cols...)
	}
	d, err := u.Learn(g.ctx, steps)
	if len(d.Tables) > 0 {
		g.describe(d)
	}
	return d, err
}

// describe prints what was learnt of a device beside its tables.
func (g *probing) describe(d *probe.Device) {
	if id := d.Identity; id.Manufacturer+id.Model+id.SoftwareRevision != "" {
		g.tell("identity", fmt.Sprintf("identification: %q %q %q", id.Manufacturer, id.Model, id.SoftwareRevision), column{name: "unit", json: d.Unit},
			column{name: "manufacturer", json: id.Manufacturer}, column{name: "model", json: id.Model}, column{name: "revision", json: id.SoftwareRevision})
	} else if d.Silent != probe.Answered {
		g.tell("identity", fmt.Sprintf("identification: none (43/14: %v)", d.Silent), column{name: "unit", json: d.Unit}, column{name: "why", json: d.Silent.String()})
	}
	g.tell("time", fmt.Sprintf("answer time: %s, the longest %s: timeout: %v fits", probe.Short(d.Median), probe.Short(d.Longest), d.Timeout()),
		column{name: "unit", json: d.Unit}, column{name: "median_ms", json: float64(d.Median) / 1e6}, column{name: "longest_ms", json: float64(d.Longest) / 1e6},
		column{name: "timeout", json: d.Timeout().String()}, column{name: "requests", json: d.Asked}, column{name: "mutes", json: d.Mutes})
	if d.Mutes > 0 {
		g.tell("mutes", fmt.Sprintf("%s got no answer at all, where others were answered right after", counted(d.Mutes, "request", "requests")),
			column{name: "unit", json: d.Unit}, column{name: "mutes", json: d.Mutes})
	}
	if d.Guess.Decided && len(d.Guess.For) > 0 {
		var texts []string
		for _, e := range d.Guess.For {
			texts = append(texts, e.Text())
		}
		g.tell("order", fmt.Sprintf("order of longer values: likely %v\n  %s", d.Guess.Order, strings.Join(texts, "\n  ")), column{name: "unit", json: d.Unit},
			column{name: "order", json: d.Guess.Order.String()}, column{name: "evidence", json: texts})
	}
	if !g.Learn || g.JSON { // the section has them too
		g.values(d)
	}
	for _, f := range d.Moving() {
		g.tell("moving", fmt.Sprintf("%s:%d moves: %s", f.Table, f.At, f.Seen()), column{name: "unit", json: d.Unit},
			column{name: "address", json: fmt.Sprintf("%s:%d", f.Table, f.At)}, column{name: "type", json: f.Type()},
			column{name: "values", json: f.Looks}, column{name: "rate", json: f.Rate})
	}
}

// mostValues is how many values are shown without --learn.
const mostValues = 100

// values prints what the registers and bits hold.
func (g *probing) values(d *probe.Device) {
	all := d.Values()
	for i, f := range all {
		if i == mostValues && !g.JSON {
			g.tell("more", fmt.Sprintf("and %d more: --json and --learn show all", len(all)-i))
			return
		}
		address := fmt.Sprintf("%s:%d", f.Table, f.At)
		text := fmt.Sprintf("%s %s", address, f.Type())
		if o := f.OrderName(); o != "" {
			text += " " + o
		}
		if f.Count > 1 {
			text += fmt.Sprintf(" x %d", f.Count)
		}
		g.tell("value", text+": "+f.Seen(), column{name: "unit", json: d.Unit}, column{name: "address", json: address}, column{name: "type", json: f.Type()},
			column{name: "order", json: optional(f.OrderName())}, column{name: "count", json: f.Count}, column{name: "values", json: f.Looks})
	}
}

// write writes the section. What is learnt is not lost when the file cannot be written.
func (g *probing) write(text string) error {
	g.show.clear()
	if g.Output != "" {
		f, err := os.OpenFile(g.Output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err == nil {
			g.tell("section", "written: "+g.Output+"; check it with: edged check --connect --config "+g.Output, column{name: "file", json: g.Output})
			return nil
		}
		io.WriteString(g.stdout, text)
		return fmt.Errorf("-o %s: %w: the section is on standard output instead", g.Output, err)
	}
	if g.JSON {
		g.tell("section", "", column{name: "text", json: text})
		return nil
	}
	_, err := io.WriteString(g.stdout, text)
	return err
}

// settled is the url with the settings that a scan has found.
func (g *probing) settled(a port.Address) string {
	if a.Mode == g.address.Mode {
		return g.URL
	}
	q := urlKeys(g.URL)
	q.Set("baud", strconv.Itoa(a.Mode.Baud))
	q.Set("parity", a.Mode.Parity)
	base, _, _ := strings.Cut(g.URL, "?")
	return base + "?" + q.Encode()
}

// urlKeys are the keys of a url that was parsed before.
func urlKeys(text string) url.Values {
	_, query, _ := strings.Cut(text, "?")
	q, _ := url.ParseQuery(query)
	return q
}

// listen shows what an unknown instrument sends.
func (g *probing) listen() error {
	modes := []port.Mode{g.address.Mode}
	if g.Scan && g.address.Serial() {
		keys := urlKeys(g.URL)
		modes = probe.Modes(g.address, keys.Has("baud"), keys.Has("parity"))
		g.note("listening at %s, %v each: %v at most", counted(len(modes), "setting", "settings"), g.For, time.Duration(len(modes))*g.For)
	}
	var last []probe.Hint
	for _, m := range modes {
		a := g.address
		a.Mode = m
		hints, err := g.hear(a)
		if err != nil {
			return err
		}
		if last = hints; hints[0].Sure >= probe.SureEnough && hints[0].What != probe.Idle {
			break
		}
	}
	if last[0].What == probe.Idle {
		return fmt.Errorf("nothing came on %s: %s", g.address.Key(), last[0].Why)
	}
	return nil
}

// hear listens at one setting.
func (g *probing) hear(a port.Address) ([]probe.Hint, error) {
	g.show.say(fmt.Sprintf("listening to %s", a))
	heard, err := probe.Listen(g.ctx, g.opener(a), g.For, func(b probe.Burst) {
		g.tell("bytes", strings.TrimRight(b.Dump(), "\n"), column{name: "at", json: b.At.Seconds()}, column{name: "hex", json: hex.EncodeToString(b.Data)},
			column{name: "text", json: probe.Printable(b.Data)})
		g.show.say(fmt.Sprintf("listening to %s", a))
	})
	if err != nil && len(heard) == 0 {
		return nil, err
	}
	hints := probe.Hear(probe.All(heard))
	for i, h := range hints {
		if i > 0 && h.Sure < hints[0].Sure/2 {
			break
		}
		g.tell("guess", fmt.Sprintf("%s: %s (%d %%): %s", a, h.What, h.Sure, h.Why), column{name: "line", json: a.String()}, column{name: "guess", json: h.What},
			column{name: "why", json: h.Why}, column{name: "sure", json: h.Sure})
	}
	return hints, err
}

// progress is one line on a terminal that tells what is being done.
type progress struct {
	out   io.Writer
	shown bool // there is a terminal
	dirty bool
	last  time.Time
}

const (
	progressEvery = 100 * time.Millisecond
	progressWidth = 78
)

func (p *progress) say(text string) {
	if now := time.Now(); p.shown && now.Sub(p.last) >= progressEvery {
		p.last, p.dirty = now, true
		fmt.Fprintf(p.out, "\r\x1b[K%.*s", progressWidth, text)
	}
}

func (p *progress) clear() {
	if p.dirty {
		p.dirty = false
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
