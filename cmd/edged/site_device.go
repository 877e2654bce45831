package main

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"time"

	"edged/drivers/memory"
	"edged/drivers/modbus"
	"edged/drivers/serial"
)

// deviceSettings are one entry of the file's devices, as its driver wants them.
type deviceSettings struct {
	Name   string
	Bus    string         // "" for a device without a line
	Modbus *modbus.Config // of driver modbus
	Serial *serial.Config // of driver serial
	Memory []memory.Tag   // of driver memory
	// Sum is of the tags as the file has them, repeats not expanded: it tells a device from another of its name when the
	// tags of its driver have gone.
	Sum [sha256.Size]byte
}

// note adds one entry of the file's tags to Sum. Its parts hold no pointers.
func (d *deviceSettings) note(parts ...any) {
	h := sha256.New()
	h.Write(d.Sum[:])
	fmt.Fprintf(h, "%#v", parts)
	h.Sum(d.Sum[:0])
}

// same reports whether the driver of one device does for the other.
func (d *deviceSettings) same(o *deviceSettings) bool {
	return reflect.DeepEqual(d.withoutTags(), o.withoutTags())
}

// withoutTags is d with their sum alone. A driver has its tags of its own, so that hundreds of thousands need not be
// kept here too.
func (d *deviceSettings) withoutTags() deviceSettings {
	out := *d
	out.Memory = nil
	if d.Modbus != nil {
		c := *d.Modbus
		c.Tags = nil
		out.Modbus = &c
	}
	if d.Serial != nil {
		c := *d.Serial
		c.Tags = nil
		out.Serial = &c
	}
	return out
}

// The drivers.
const (
	driverModbus = "modbus"
	driverSerial = "serial"
	driverMemory = "memory"
)

// defaultPoll is the poll period of tags whose device and self give none.
const defaultPoll = time.Second

// The poll periods that a tag may have.
const (
	fastestPoll = time.Millisecond
	slowestPoll = 24 * time.Hour
)

// reservedDevice is the folder that organizes the devices, among whose names it stands.
const reservedDevice = "Devices"

func (r *siteReader) readDevices(n *node) {
	switch {
	case n.kind != listNode:
		r.fault(n, "devices is %s here: it is a list, each entry begins with a dash", n.kind)
		return
	case len(n.items) == 0:
		r.fault(n, "devices is empty: a gateway has at least one")
	case len(n.items) > maxDevices:
		r.fault(n, "devices has %d entries: at most %d", len(n.items), maxDevices)
		return
	}
	for _, v := range n.items {
		r.device(v)
	}
}

// device reads one device. Which keys it may have depends on its driver.
func (r *siteReader) device(n *node) {
	d := deviceReader{siteReader: r, what: "device " + nameOf(n), names: map[string]*node{}, poll: defaultPoll,
		first: len(r.site.Tags)}
	if n.kind != mapNode {
		r.fault(n, "a device is %s here: it is a map of keys such as name, driver, tags", n.kind)
		return
	}
	driver := driverModbus
	if v := n.get("driver"); v != nil {
		driver = d.driver(v)
	}
	if driver == "" {
		return // the driver is wrong: which keys are right is not known
	}
	if driver == driverSerial {
		if n = d.withProfile(n); n == nil {
			return // told: which tags the device has is not known
		}
	}
	d.keys(n, driver)
	if c := d.settings.Serial; c != nil {
		c.Name, c.Poll = d.settings.Name, d.poll
	}
	if d.tags != nil {
		d.readTags(d.tags)
	}
	if d.settings.Serial != nil {
		d.checkInstrument(n)
	}
	if c := d.settings.Modbus; c != nil {
		c.Name, c.Poll = d.settings.Name, d.poll
		for _, e := range c.Check() {
			d.fieldFault(n, d.what, e.Field, e.Index, e.Msg)
		}
	}
	r.site.Devices = append(r.site.Devices, d.settings)
}

// keys reads the keys of a device with a driver, but for what is in tags.
func (d *deviceReader) keys(n *node, driver string) {
	common := []key{
		{"name", d.name},
		{"driver", func(v *node) {
			if _, ok := d.sketching(); ok { // otherwise read before: the other keys depend on it
				d.driver(v)
			}
		}},
		{"tags", func(v *node) { d.tags = v }},
	}
	switch driver {
	case driverModbus:
		d.settings.Modbus = &modbus.Config{}
		d.section(n, d.what, append(common, d.modbusKeys()...))
		d.need(n, d.what, "name", "bus", "tags")
	case driverSerial:
		d.settings.Serial = &serial.Config{}
		d.section(n, d.what, append(common, d.serialKeys()...))
		if _, ok := d.sketching(); ok {
			d.need(n, d.what, "name", "bus", "driver") // a profile may have the tags
		} else {
			d.need(n, d.what, "name", "bus", "tags")
		}
	case driverMemory:
		d.poll = 0 // a memory tag is there the moment it is written
		d.section(n, d.what, common)
		d.need(n, d.what, "name", "tags")
	}
}

func (d *deviceReader) driver(n *node) string {
	return d.choice(n, d.what+": driver", driverModbus, driverSerial, driverMemory)
}

// deviceReader reads one device.
type deviceReader struct {
	*siteReader
	what     string // for messages
	settings deviceSettings
	poll     time.Duration    // default of its tags
	tags     *node            // nil: none
	names    map[string]*node // the name of each of its tags, where it stands
	first    int              // its first tag among the site's
	messages []*node          // of an instrument, as in its settings
}

func (d *deviceReader) name(n *node) {
	name := d.siteReader.name(n, "device", ".$/")
	switch first, twice := d.devices[name]; {
	case name == "":
		return
	case name == reservedDevice:
		d.fault(n, "device name %s is reserved for the folder of all devices: choose another", name)
		return
	case twice:
		d.fault(n, "device %s is defined twice, the first is on line %d: give each its own name", name, first)
		return
	}
	d.devices[name] = n.line
	d.settings.Name = name
}

func (d *deviceReader) readPoll(n *node, what string) time.Duration {
	return d.duration(n, what+": poll", fastestPoll, slowestPoll)
}

func (d *deviceReader) modbusKeys() []key {
	c := d.settings.Modbus
	return []key{
		{"bus", func(v *node) { d.settings.Bus = d.bus(v) }},
		{"unit", func(v *node) { c.Unit = d.integer(v, d.what+": unit", 0, 255) }},
		{"writes", func(v *node) { c.Writes = d.choice(v, d.what+": writes", "auto", "single", "multiple", "both") }},
		{"poll", func(v *node) { d.poll = d.readPoll(v, d.what) }},
		{"max_registers", func(v *node) { c.MaxRegisters = d.integer(v, d.what+": max_registers", 1, 125) }},
		{"max_bits", func(v *node) { c.MaxBits = d.integer(v, d.what+": max_bits", 1, 2000) }},
		{"gaps", func(v *node) { c.Gaps = d.integer(v, d.what+": gaps", 0, 2000) }},
		{"holes", func(v *node) { c.Holes = d.texts(v, d.what+": holes") }},
		{"together", func(v *node) { c.Together = d.groups(v, d.what+": together") }},
		{"quirks", d.quirks},
	}
}

func (d *deviceReader) bus(n *node) string {
	name, ok := d.scalar(n, d.what+": bus", "line1")
	if !ok {
		return ""
	}
	if _, known := d.buses[name]; !known {
		names := make([]string, 0, len(d.buses))
		for _, b := range d.site.Buses {
			names = append(names, b.Name)
		}
		hint := "buses has none"
		if near := nearest(name, names); near != "" {
			hint = "did you mean " + near + "?"
		} else if len(names) > 0 {
			hint = "known are " + strings.Join(names[:min(len(names), 10)], ", ")
		}
		d.fault(n, "%s: there is no bus %q; %s", d.what, clip(name), hint)
		return ""
	}
	return name
}

func (d *document) texts(n *node, what string) []string {
	var out []string
	for _, v := range d.list(n, what) {
		if s, ok := d.scalar(v, what, `"holding:12-19"`); ok {
			out = append(out, s)
		}
	}
	return out
}

func (d *document) groups(n *node, what string) [][]string {
	if s, ok := d.sketching(); ok {
		item := &schema{}
		s.Type, s.Items = typeList, &schema{Type: typeList, Items: item}
		item.scalar()
		return nil
	}
	if n.kind != listNode {
		d.fault(n, "%s is %s here: it is a list of lists such as [[temperature, counter]]", what, n.kind)
		return nil
	}
	var out [][]string
	for _, v := range n.items {
		if v.kind != listNode {
			d.fault(v, "%s is %s here: it is a list of lists such as [[temperature, counter]]", what, v.kind)
			continue
		}
		out = append(out, d.texts(v, what))
	}
	return out
}

// fullWith reports whether so many more tags do not fit, and says so once.
func (d *deviceReader) fullWith(n *node, more int) bool {
	if len(d.site.Tags)+more <= maxTags {
		return false
	}
	if !d.full {
		d.full = true
		d.fault(n, "the site has more than %d tags with this one: share the plant between gateways", maxTags)
	}
	return true
}

// fieldFault notes what a driver has to say about one key of n, at the place of that key, or of its entry index.
func (d *document) fieldFault(n *node, what, field string, index int, msg string) {
	at := n
	for part := range strings.SplitSeq(field, ".") {
		if at.kind != mapNode || at.get(part) == nil {
			break
		}
		at = at.get(part)
	}
	if at.kind == listNode && index >= 0 && index < len(at.items) {
		at = at.items[index]
	}
	d.fault(at, "%s: %s: %s", what, field, msg)
}
