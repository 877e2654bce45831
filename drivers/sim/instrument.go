package sim

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// InstrumentConfig is one instrument that speaks lines of its own, alone on a line with the scheme serial or serial+tcp.
type InstrumentConfig struct {
	Name string `yaml:"name"`
	Line string `yaml:"line"`
	// Kind is nmea-gps, mt-sics, dsmr-p1 or barcode: the profiles that ship.
	Kind string `yaml:"kind"`
	// Every is the time between two things that it says unasked; 0 is 1 s. A scale says nothing unasked.
	Every time.Duration `yaml:"every"`
	// Load is what lies on a scale, in grams, and Tare what it subtracts at the start.
	Load float64 `yaml:"load"`
	Tare float64 `yaml:"tare"`
	// Garble spoils a byte of each so many messages; 0: of none.
	Garble int `yaml:"garble"`
}

// Instrument is one simulated instrument. Its methods are safe for concurrent use.
type Instrument struct {
	cfg   InstrumentConfig
	plant *Plant

	mu         sync.Mutex // guards the fields below
	load, tare float64
	zero       float64
	moving     bool
	said       int // messages
	heard      []string
}

// kinds are what instruments say unasked, by number, and what they answer; nil: nothing.
var kinds = map[string]struct {
	says    func(i *Instrument, n int) []byte
	answers func(i *Instrument, line string) string
}{
	"nmea-gps": {says: (*Instrument).sentences},
	"dsmr-p1":  {says: (*Instrument).telegram},
	"barcode":  {says: (*Instrument).code},
	"mt-sics":  {answers: (*Instrument).scale},
}

// check reports what is wrong with an instrument, and with which key.
func (c *InstrumentConfig) check(l *lineURL) (key, text string) {
	_, known := kinds[c.Kind]
	switch {
	case c.Name == "":
		return "", "an instrument needs a name"
	case l == nil:
		return ".line", fmt.Sprintf("no line is named %q", c.Line)
	case !l.instruments():
		return ".line", fmt.Sprintf("line %s is of scheme %s: an instrument needs serial or serial+tcp", c.Line, l.scheme)
	case !known:
		return ".kind", fmt.Sprintf("%q is no kind of instrument: give nmea-gps, mt-sics, dsmr-p1 or barcode", c.Kind)
	case c.Every < 0 || c.Garble < 0:
		return "", "every and garble are 0 or more"
	}
	return "", ""
}

func newInstrument(p *Plant, c *InstrumentConfig) *Instrument {
	i := &Instrument{cfg: *c, plant: p, load: c.Load, tare: c.Tare}
	if i.cfg.Every == 0 {
		i.cfg.Every = time.Second
	}
	return i
}

// Name is the instrument's name.
func (i *Instrument) Name() string { return i.cfg.Name }

// Put lays something on a scale, in grams. moving: it does not stand still.
func (i *Instrument) Put(load float64, moving bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.load, i.moving = load, moving
}

// Heard lists what was sent to the instrument, without line ends.
func (i *Instrument) Heard() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.heard)
}

// maxHeard is how much of what was sent an instrument keeps.
const maxHeard = 10_000

// ServeInstrument has the line's instrument talk to the gateway at the other end of a stream until it leaves or the plant
// is closed. It closes the stream.
func (l *Line) ServeInstrument(s stream) {
	if !l.enter(s, nil) {
		s.Close()
		return
	}
	l.talkInstrument(s)
}

// talkInstrument serves the gateway at the other end until it leaves or the plant is closed.
func (l *Line) talkInstrument(s stream) {
	defer l.leave(s)
	i := l.instrument
	if i == nil {
		return
	}
	kind := kinds[i.cfg.Kind]
	if kind.says != nil {
		left := make(chan struct{})
		defer func() { <-left }()
		if !l.plant.join(func() { defer close(left); i.talk(s, kind.says) }) {
			close(left)
			return
		}
	}
	defer s.Close() // ends talk
	i.listen(s, kind.answers)
}

// talk says something each so often. A line whose other end is not open takes what its buffer holds, and loses the rest.
func (i *Instrument) talk(s stream, says func(*Instrument, int) []byte) {
	for n := 0; i.plant.pause(i.cfg.Every); n++ {
		if _, err := s.Write(i.garble(says(i, n))); err != nil {
			return
		}
	}
}

// garble spoils a byte of each so many messages.
func (i *Instrument) garble(b []byte) []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.said++; i.cfg.Garble > 0 && i.said%i.cfg.Garble == 0 && len(b) > 8 {
		b[len(b)/2] ^= 0x11
	}
	return b
}

func (i *Instrument) listen(s stream, answers func(*Instrument, string) string) {
	var buf [256]byte
	held := 0
	for {
		s.SetReadDeadline(time.Time{})
		n, err := s.Read(buf[held:])
		if err != nil {
			return
		}
		held += n
		for {
			end := bytes.IndexByte(buf[:held], '\n')
			if end < 0 {
				break
			}
			line := string(bytes.TrimRight(buf[:end], "\r"))
			held = copy(buf[:], buf[end+1:held])
			i.mu.Lock()
			if len(i.heard) < maxHeard {
				i.heard = append(i.heard, line)
			}
			i.mu.Unlock()
			if answers == nil {
				continue
			}
			if out := answers(i, line); out != "" {
				if _, err := s.Write(i.garble([]byte(out + "\r\n"))); err != nil {
					return
				}
			}
		}
		if held == len(buf) {
			held = 0 // no command is that long
		}
	}
}

// scale answers MT-SICS commands of level 0 and 1.
func (i *Instrument) scale(line string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	net := i.load - i.zero - i.tare
	state := "S"
	if i.moving {
		state = "D"
	}
	switch line {
	case "SI", "S":
		switch {
		case i.load > 5000:
			return "S +"
		case i.moving && line == "S":
			return "S I"
		}
		return fmt.Sprintf("S %s %10.2f g", state, net)
	case "T":
		if i.moving {
			return "T I"
		}
		i.tare = i.load - i.zero
		return fmt.Sprintf("T S %10.2f g", i.tare)
	case "TA":
		return fmt.Sprintf("TA A %10.2f g", i.tare)
	case "Z":
		if i.moving {
			return "Z I"
		}
		i.zero, i.tare = i.load, 0
		return "Z A"
	}
	return "ES"
}

// sentences are an RMC, a GGA and a sentence that nobody asks for, of a receiver that goes round the spot of the
// standard's example each minute.
func (i *Instrument) sentences(n int) []byte {
	now := i.plant.epoch.Add(time.Duration(n) * i.cfg.Every).UTC()
	angle := 2 * math.Pi * float64(now.Second()) / 60
	north, east := 7.038+0.01*math.Sin(angle), 31.0+0.01*math.Cos(angle)
	var out []byte
	for _, body := range []string{
		fmt.Sprintf("GPRMC,%s,A,48%06.3f,N,011%06.3f,E,022.4,084.4,%s,003.1,W", now.Format("150405.00"), north, east, now.Format("020106")),
		fmt.Sprintf("GPGGA,%s,48%06.3f,N,011%06.3f,E,1,08,0.9,545.4,M,46.9,M,,", now.Format("150405.00"), north, east),
		"GPGSV,1,1,01,21,44,124,40",
	} {
		var sum byte
		for k := range len(body) {
			sum ^= body[k]
		}
		out = fmt.Appendf(out, "$%s*%02X\r\n", body, sum)
	}
	return out
}

// telegram is one of a meter that imports 1.2 kW (DSMR P1 Companion Standard 5, 6.12).
func (i *Instrument) telegram(n int) []byte {
	now := i.plant.epoch.Add(time.Duration(n) * i.cfg.Every).UTC().Add(time.Hour)
	out := fmt.Appendf(nil, "/EDG5sim-meter\r\n\r\n1-3:0.2.8(50)\r\n0-0:1.0.0(%sW)\r\n1-0:1.8.1(%010.3f*kWh)\r\n1-0:1.8.2(000456.789*kWh)\r\n"+
		"1-0:2.8.1(000000.000*kWh)\r\n1-0:2.8.2(000012.500*kWh)\r\n0-0:96.14.0(0002)\r\n1-0:1.7.0(01.200*kW)\r\n1-0:2.7.0(00.000*kW)\r\n"+
		"1-0:32.7.0(230.1*V)\r\n1-0:31.7.0(005*A)\r\n!", now.Format("060102150405"), 123.456+float64(n)/1000)
	c := uint16(0)
	for _, x := range out {
		c = c>>8 ^ crcTable[byte(c)^x]
	}
	return fmt.Appendf(out, "%04X\r\n", c)
}

// code is one of a few codes, each of which comes twice.
func (i *Instrument) code(n int) []byte {
	return fmt.Appendf(nil, "40062%08d\r\n", n/2%5)
}
