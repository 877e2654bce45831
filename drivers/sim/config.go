package sim

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"edged/drivers/port"
	"edged/drivers/tag"
)

// Config is a plant as its file describes it.
type Config struct {
	Lines       []LineConfig       `yaml:"lines"`
	Devices     []DeviceConfig     `yaml:"devices"`
	Instruments []InstrumentConfig `yaml:"instruments"`
}

// LineConfig is one listening socket or one serial line.
type LineConfig struct {
	Name string `yaml:"name"`
	// URL is where the line is to be had: tcp://HOST:PORT (port 0: any free one), rtuovertcp://HOST:PORT, or
	// tcp+tls://HOST:PORT?cert=FILE&key=FILE&ca=FILE (ca: clients need a certificate that it signed), or
	// rtu:///PATH?baud=19200&data=8&parity=even&stop=1 and ascii:///PATH, where PATH is the link to a new pseudo terminal
	// ("rtu:" alone: in a new temporary folder). serial:///PATH?baud=9600 and serial+tcp://HOST:PORT are for an instrument.
	URL string `yaml:"url"`
	// Pace keeps the line's bit times on a pseudo terminal, which by itself has none.
	Pace bool `yaml:"pace"`
	// Clients is how many connections a tcp line takes at once; 0 is any number. One more is closed when it comes.
	Clients int `yaml:"clients"`
	// Idle closes a connection without a request for that long; 0 never does.
	Idle time.Duration `yaml:"idle"`
}

// DeviceConfig is one device on a line.
type DeviceConfig struct {
	Name string `yaml:"name"`
	Line string `yaml:"line"`
	Unit int    `yaml:"unit"` // 0 to 255 on tcp, 1 to 247 on a serial line
	// MaxRegisters and MaxBits are the largest request that the device takes; 0 is what the protocol allows.
	MaxRegisters int `yaml:"max_registers"`
	MaxBits      int `yaml:"max_bits"`
	// Functions lists the function codes that the device knows; empty is all that sim knows.
	Functions []int `yaml:"functions"`
	// Delay passes between each request and its answer.
	Delay    time.Duration `yaml:"delay"`
	Identity []string      `yaml:"identity"` // function 43/14: vendor, product code, revision, and up to four more (objects 3 to 6)
	Quirks   Quirks        `yaml:"quirks"`
	Points   []PointConfig `yaml:"points"`
	Faults   []Fault       `yaml:"faults"`
}

// PointConfig is one value, or a row of equal ones, in a register table.
type PointConfig struct {
	// Address is coil:, discrete:, input: or holding: with a number from 0.
	Address string `yaml:"address"`
	// Type is bool (the default of coils and discrete inputs), int16, uint16 (the default of registers), int32, uint32,
	// int64, uint64, float32, float64, string(n) or bytes(n) with n in bytes.
	Type string `yaml:"type"`
	// Order is ABCD (the default), DCBA, BADC or CDAB, or its eight-byte form.
	Order string `yaml:"order"`
	// Repeat makes that many values, each after the one before; 0 is one.
	Repeat int `yaml:"repeat"`
	// Value is what the point holds at the start, when it has no wave.
	Value any  `yaml:"value"`
	Wave  Wave `yaml:"wave"`
	// ReadOnly refuses writes with exception 2, as any point with a wave does.
	ReadOnly bool `yaml:"readonly"`
}

// Problem is one mistake in a Config. Path is where, as a YAML path: $.devices[0].points[2].type
type Problem struct {
	Path string
	Text string
}

// Problems lists every mistake in c.
func (c *Config) Problems() []Problem {
	k := check{lines: make(map[string]*lineURL)}
	if len(c.Lines) == 0 {
		k.add("$", "a plant needs at least one line: lines: [{name: line1, url: \"tcp://127.0.0.1:5020\"}]")
	}
	for i := range c.Lines {
		k.line(fmt.Sprintf("$.lines[%d]", i), &c.Lines[i])
	}
	names := make(map[string]bool)
	units := make(map[string]string)
	for i := range c.Devices {
		d := &c.Devices[i]
		path := fmt.Sprintf("$.devices[%d]", i)
		if d.Name == "" {
			k.add(path, "a device needs a name")
		} else if names[d.Name] {
			k.add(path+".name", "device %s is defined twice", d.Name)
		}
		names[d.Name] = true
		k.device(path, d)
		at := d.Line + "\x00" + strconv.Itoa(d.Unit)
		if other, taken := units[at]; taken {
			k.add(path+".unit", "unit %d of line %s is device %s already", d.Unit, d.Line, other)
		}
		units[at] = d.Name
	}
	taken := make(map[string]string)
	for i := range c.Instruments {
		n := &c.Instruments[i]
		path := fmt.Sprintf("$.instruments[%d]", i)
		if key, text := n.check(k.lines[n.Line]); text != "" {
			k.add(path+key, "%s", text)
		}
		if names[n.Name] {
			k.add(path+".name", "device %s is defined twice", n.Name)
		}
		names[n.Name] = true
		if other := taken[n.Line]; other != "" {
			k.add(path+".line", "line %s has instrument %s already", n.Line, other)
		}
		taken[n.Line] = n.Name
	}
	return k.problems
}

type check struct {
	lines    map[string]*lineURL
	problems []Problem
}

func (k *check) add(path, format string, args ...any) {
	k.problems = append(k.problems, Problem{path, fmt.Sprintf(format, args...)})
}

func (k *check) line(path string, c *LineConfig) {
	if c.Name == "" {
		k.add(path, "a line needs a name")
	} else if _, taken := k.lines[c.Name]; taken {
		k.add(path+".name", "line %s is defined twice", c.Name)
	}
	u, err := parseLineURL(c.URL)
	if err != nil {
		k.add(path+".url", "%v", err)
		u = &lineURL{mode: port.DefaultMode}
	}
	if c.Clients < 0 {
		k.add(path+".clients", "%d clients: give 0 (any number) or more", c.Clients)
	}
	if c.Idle < 0 {
		k.add(path+".idle", "idle %v: give 0 (never) or more", c.Idle)
	}
	k.lines[c.Name] = u
}

func (k *check) device(path string, c *DeviceConfig) {
	l, known := k.lines[c.Line]
	lowest, highest := 0, 255
	switch {
	case !known:
		k.add(path+".line", "no line is named %q", c.Line)
	case l.instruments():
		k.add(path+".line", "line %s is of instruments: a device needs tcp, tcp+tls, rtuovertcp, rtu or ascii", c.Line)
	case l.serial() || l.scheme == "rtuovertcp":
		lowest, highest = 1, 247 // Serial Line V1.02, 2.2: 0 is broadcast
	}
	if c.Unit < lowest || c.Unit > highest {
		k.add(path+".unit", "unit %d: give %d to %d", c.Unit, lowest, highest)
	}
	if c.MaxRegisters < 0 || c.MaxRegisters > maxReadRegisters {
		k.add(path+".max_registers", "%d registers: give 1 to %d", c.MaxRegisters, maxReadRegisters)
	}
	if c.MaxBits < 0 || c.MaxBits > maxReadBits {
		k.add(path+".max_bits", "%d bits: give 1 to %d", c.MaxBits, maxReadBits)
	}
	for i, f := range c.Functions {
		if f < 0 || f >= len(functions) || functions[f].parse == nil {
			k.add(fmt.Sprintf("%s.functions[%d]", path, i), "function %d: sim knows 1 to 6, 15, 16, 22, 23 and 43", f)
		}
	}
	if len(c.Identity) > maxIdentity {
		k.add(path+".identity", "%d objects: give at most %d", len(c.Identity), maxIdentity)
	}
	for i, s := range c.Identity {
		if len(s) > maxObject {
			k.add(fmt.Sprintf("%s.identity[%d]", path, i), "%d bytes: give at most %d", len(s), maxObject)
		}
	}
	if err := c.Quirks.check(); err != nil {
		k.add(path+".quirks", "%v", err)
	}
	for i := range c.Faults {
		if err := c.Faults[i].check(); err != nil {
			k.add(fmt.Sprintf("%s.faults[%d]", path, i), "%v", err)
		}
	}
	k.points(path, c)
	k.processes(path, c)
}

// processes reports processes without a set point.
func (k *check) processes(path string, c *DeviceConfig) {
	for i := range c.Points {
		w := &c.Points[i].Wave
		if w.Kind != waveNames[following] {
			continue
		}
		bank, at, err := parseAddress(w.Of)
		if err != nil {
			continue // told with its point
		}
		found := false
		for j := range c.Points {
			p, _, err := newPoint(&c.Points[j])
			found = found || err == nil && p.bank == bank && p.start <= at && at < p.end && p.wave.kind == still && p.kind != tag.String
		}
		if !found {
			k.add(fmt.Sprintf("%s.points[%d].wave", path, i), "of %s: the device has no number there that can be set", w.Of)
		}
	}
}

func (k *check) points(path string, c *DeviceConfig) {
	var tables [4][]point
	for i := range c.Points {
		at := fmt.Sprintf("%s.points[%d]", path, i)
		p, key, err := newPoint(&c.Points[i])
		if err != nil {
			k.add(at+key, "%v", err)
			continue
		}
		for j := range tables[p.bank] {
			if o := &tables[p.bank][j]; p.start < o.end && o.start < p.end {
				k.add(at+".address", "%v:%d-%d overlaps %v:%d-%d", p.bank, p.start, p.end-1, o.bank, o.start, o.end-1)
				break
			}
		}
		tables[p.bank] = append(tables[p.bank], p)
	}
}

// newPoint checks c and makes its point; key is the YAML key to blame for the error.
func newPoint(c *PointConfig) (_ point, key string, _ error) {
	bank, start, err := parseAddress(c.Address)
	if err != nil {
		return point{}, ".address", err
	}
	p := point{bank: bank, start: start, writable: !c.ReadOnly && c.Wave.Kind == "" && (bank == Coil || bank == Holding)}
	if err := p.setType(c.Type); err != nil {
		return point{}, ".type", err
	}
	if p.order, err = parseOrder(c.Order, p.width); err != nil {
		return point{}, ".order", err
	}
	p.n = max(1, c.Repeat)
	if c.Repeat < 0 || int(start)+p.n*p.width > 1<<16 {
		return point{}, ".repeat", fmt.Errorf("%d values from %s on reach beyond address 65535", c.Repeat, c.Address)
	}
	p.end = start + uint32(p.n*p.width)
	if c.Wave.Kind != "" {
		if c.Value != nil {
			return point{}, ".value", fmt.Errorf("a point has a value or a wave, not both: use the wave's min as its start")
		}
		if p.wave, err = newWave(&c.Wave, p.kind); err != nil {
			return point{}, ".wave", err
		}
		return p, "", nil
	}
	if err := p.setValue(c.Value); err != nil {
		return point{}, ".value", err
	}
	return p, "", nil
}

var bankNames = [...]string{Coil: "coil", Discrete: "discrete", Input: "input", Holding: "holding"}

func parseAddress(s string) (Bank, uint32, error) {
	name, number, found := strings.Cut(s, ":")
	bank := slices.Index(bankNames[:], name)
	n, err := strconv.ParseUint(number, 10, 16)
	if !found || bank < 0 || err != nil {
		return 0, 0, fmt.Errorf("address %q: give coil:, discrete:, input: or holding: with a number from 0 to 65535, like holding:20", s)
	}
	return Bank(bank), uint32(n), nil
}

var typeNames = map[string]tag.Kind{
	"bool": tag.Bool, "int16": tag.Int16, "uint16": tag.Uint16, "int32": tag.Int32, "uint32": tag.Uint32,
	"int64": tag.Int64, "uint64": tag.Uint64, "float32": tag.Float32, "float64": tag.Float64,
}

// setType sets kind and width from the name of a type.
func (p *point) setType(name string) error {
	bits := p.bank == Coil || p.bank == Discrete
	switch {
	case name == "" && bits:
		name = "bool"
	case name == "":
		name = "uint16"
	}
	if head, rest, found := strings.Cut(name, "("); found {
		n, err := strconv.Atoi(strings.TrimSuffix(rest, ")"))
		if (head != "string" && head != "bytes") || err != nil || n < 1 || n > 2*maxReadRegisters || bits {
			return fmt.Errorf("type %q: give string(n) or bytes(n) with n from 1 to %d, in input or holding", name, 2*maxReadRegisters)
		}
		p.kind, p.width = tag.String, (n+1)/2
		return nil
	}
	kind, known := typeNames[name]
	if !known {
		return fmt.Errorf("type %q: give bool, int16, uint16, int32, uint32, int64, uint64, float32, float64, string(n) or bytes(n)", name)
	}
	if bits != (kind == tag.Bool) {
		return fmt.Errorf("type %s does not fit %v: coils and discrete inputs are bool, registers are numbers or text", name, p.bank)
	}
	p.kind, p.width = kind, kindWidth(kind)
	return nil
}

// lineURL is a line's address, parsed.
type lineURL struct {
	scheme string
	host   string // of tcp and rtuovertcp, with the port
	path   string // of rtu and ascii; empty: in a new temporary folder
	query  string
	mode   port.Mode
	tls    port.TLS
}

// serial reports whether the line is a pseudo terminal.
func (l *lineURL) serial() bool {
	return l.scheme == "rtu" || l.scheme == "ascii" || l.scheme == "serial"
}

// instruments reports whether the line is of an instrument.
func (l *lineURL) instruments() bool { return l.scheme == "serial" || l.scheme == "serial+tcp" }

func parseLineURL(s string) (*lineURL, error) {
	const usage = "give tcp://HOST:PORT, tcp+tls://HOST:PORT?cert=FILE&key=FILE, rtuovertcp://HOST:PORT, rtu:///PATH?baud=19200&parity=even, ascii:///PATH, serial:///PATH?baud=9600 or serial+tcp://HOST:PORT"
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("url %q is none: %s", s, usage)
	}
	l := &lineURL{scheme: u.Scheme, host: u.Host, path: u.Path, query: u.RawQuery, mode: port.DefaultMode}
	switch u.Scheme {
	case "tcp", "rtuovertcp", "serial+tcp":
		if u.Port() == "" || u.Path != "" || u.RawQuery != "" {
			return nil, fmt.Errorf("url %q: %s", s, usage)
		}
	case "tcp+tls":
		q := u.Query()
		l.tls = port.TLS{CA: q.Get("ca"), Cert: q.Get("cert"), Key: q.Get("key")}
		if u.Port() == "" || u.Path != "" || l.tls.Cert == "" || l.tls.Key == "" {
			return nil, fmt.Errorf("url %q: %s", s, usage)
		}
	case "rtu", "ascii", "serial":
		path := u.Path
		if path == "" {
			path = "/new"
		}
		a, err := port.Parse(u.Scheme + "://" + path + "?" + u.RawQuery)
		if err != nil {
			return nil, err
		}
		l.mode = a.Mode
	default:
		return nil, fmt.Errorf("url %q: %s", s, usage)
	}
	return l, nil
}
