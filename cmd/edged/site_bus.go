package main

import (
	"path/filepath"
	"strings"
	"time"

	"edged/drivers/modbus"
	"edged/drivers/port"
)

// busSettings are one entry of the file's buses.
type busSettings struct {
	Name         string
	Address      port.Address
	Timeout      time.Duration // of one request
	Retries      int           // of a read
	WriteRetries int           // of a write: zero, since a repeated write may happen twice
	Turnaround   time.Duration // silence between an answer and the next request; a serial line has at least its 3.5 characters
	Broadcast    time.Duration // how long a broadcast write is given
	Echo         bool          // the line brings back what is sent
	Pipeline     int           // transactions in flight
	Overbook     string        // refuse or warn: what becomes of a serial line that has no time for its tags
}

// mostLanes is how many transactions a bus may have in flight: devices allow 1 to 16 (Messaging on TCP/IP, 4.4.1.2).
const mostLanes = 16

// lanes is how many devices of the bus are asked at the same time.
func (b *busSettings) lanes() int { return max(1, b.Pipeline) }

// defaultBus is a bus before its keys are read.
func defaultBus() busSettings {
	return busSettings{Timeout: 500 * time.Millisecond, Retries: 1, Broadcast: 100 * time.Millisecond, Pipeline: 1, Overbook: overbookRefuse}
}

// line is the first bus on a serial device or at a host and port.
type line struct {
	bus  string
	at   int // line of the file
	mode port.Mode
}

func (r *siteReader) readBuses(n *node) {
	if n.kind != listNode {
		r.fault(n, "buses is %s here: it is a list, each entry begins with a dash", n.kind)
		return
	}
	names := map[string]int{}
	for i, v := range n.items {
		b := r.bus(v)
		if b.Name == "" {
			continue
		}
		at := v.get("name")
		if first, twice := names[b.Name]; twice {
			r.fault(at, "bus %s is defined twice, the first is on line %d: give each its own name", b.Name, first)
			continue
		}
		names[b.Name] = at.line
		r.busItems[b.Name] = i
		r.buses[b.Name] = len(r.site.Buses)
		r.site.Buses = append(r.site.Buses, b)
	}
}

func (r *siteReader) bus(n *node) busSettings {
	b := defaultBus()
	what := "bus " + nameOf(n)
	r.section(n, what, []key{
		{"name", func(v *node) { b.Name = r.name(v, "bus", ".$/") }},
		{"url", func(v *node) { b.Address = r.busURL(v, what, nameOf(n)) }},
		{"timeout", func(v *node) { b.Timeout = r.duration(v, what+": timeout", time.Millisecond, time.Minute) }},
		{"retries", func(v *node) { b.Retries = r.integer(v, what+": retries", 0, 10) }},
		{"write_retries", func(v *node) { b.WriteRetries = r.integer(v, what+": write_retries", 0, 10) }},
		{"turnaround", func(v *node) { b.Turnaround = r.duration(v, what+": turnaround", 0, 10*time.Second) }},
		{"broadcast", func(v *node) { b.Broadcast = r.duration(v, what+": broadcast", time.Millisecond, 10*time.Second) }},
		{"echo", func(v *node) { b.Echo = r.boolean(v, what+": echo") }},
		{"pipeline", func(v *node) { b.Pipeline = r.integer(v, what+": pipeline", 1, mostLanes) }},
		{"overbook", func(v *node) { b.Overbook = r.choice(v, what+": overbook", overbookRefuse, overbookWarn) }},
	})
	r.need(n, what, "name", "url")
	if b.Pipeline > 1 && b.Address.Host != "" && (b.Address.Instruments() || modbus.Links(b.Address).Framing != modbus.TCP) || b.Pipeline > 1 && b.Address.Serial() {
		r.fault(n.get("pipeline"), "%s: pipeline %d: frames of a serial line have no transaction ids, so that one is in flight at a time: write 1, or remove the key",
			what, b.Pipeline)
	}
	return b
}

func (r *siteReader) busURL(n *node, what, name string) port.Address {
	s, ok := r.scalar(n, what+": url", `"tcp://10.0.0.5:502"`)
	if !ok {
		return port.Address{}
	}
	a, err := port.Parse(s)
	if err != nil {
		r.fault(n, "%s: url %v", what, err)
		return port.Address{}
	}
	a.TLS.Beside(filepath.Dir(r.site.File))
	first, taken := r.lines[a.Key()]
	switch {
	case !taken:
		r.lines[a.Key()] = line{name, n.line, a.Mode}
	case a.Serial() && first.mode != a.Mode:
		r.fault(n, "%s: serial line %s runs at %s here and at %s for bus %s on line %d: a line has one setting; put its devices on one bus",
			what, a.Key(), a.Mode, first.mode, first.bus, first.at)
	case a.Serial():
		r.fault(n, "%s: serial line %s is bus %s already, on line %d: put its devices on one bus", what, a.Key(), first.bus, first.at)
	default:
		r.note(what + ": " + a.Host + " is bus " + first.bus + " too: the device must take two connections")
	}
	return a
}

// checkLines reports what the devices' buses do not do for them.
func (r *siteReader) checkLines(devices *node) {
	item := func(d *deviceSettings) *node {
		for _, n := range devices.items {
			if name := n.get("name"); name != nil && name.text == d.Name {
				return n
			}
		}
		return devices
	}
	r.checkTalkers(item)
	for i := range r.site.Devices {
		d := &r.site.Devices[i]
		at, known := r.buses[d.Bus]
		if !known {
			continue
		}
		if url := r.site.Buses[at].Address; (d.Serial != nil) != url.Instruments() {
			n := item(d)
			if d.Serial != nil {
				r.fault(n.get("bus"), "device %s: bus %s is of scheme %s: an instrument needs serial or serial+tcp", d.Name, d.Bus, url.Scheme)
			} else {
				r.fault(n.get("bus"), "device %s: bus %s is of instruments, and this is driver modbus: add driver: serial, or give the bus another scheme", d.Name, d.Bus)
			}
			continue
		}
		if d.Modbus == nil {
			continue
		}
		for _, e := range d.Modbus.CheckLine(modbus.Links(r.site.Buses[at].Address).Framing, r.site.Buses[at].Pipeline) {
			r.fieldFault(item(d), "device "+d.Name, e.Field, e.Index, e.Msg)
		}
	}
}

// nameOf is the name of an entry for messages, before it was checked.
func nameOf(n *node) string {
	if n.kind == mapNode {
		if v := n.get("name"); v != nil && v.kind == scalarNode && v.text != "" {
			return clip(v.text)
		}
	}
	return "without a name"
}

// name reads the name of a bus, a device or a tag; banned lists the characters that it may not hold.
func (d *document) name(n *node, what, banned string) string {
	if s, ok := d.sketching(); ok {
		s.text(maxName)
		s.excluding(banned)
		return ""
	}
	s := d.text(n, what+" name", maxName)
	switch i := strings.IndexAny(s, banned); {
	case s == "" && n.kind == scalarNode && n.text == "":
		d.fault(n, "a %s name is empty: give it one", what)
	case s != strings.TrimSpace(s):
		d.fault(n, "%s name %q begins or ends with a space: remove it", what, s)
	case i >= 0:
		d.fault(n, "%s name %s holds %q: names hold none of %s", what, s, s[i:i+1], strings.Join(strings.Split(banned, ""), " "))
	default:
		return s
	}
	return ""
}
