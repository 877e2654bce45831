package main

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"edged/drivers/memory"
	"edged/drivers/modbus"
	"edged/drivers/tag"
)

// maxHold bounds how long a value may outlive its device's silence.
const maxHold = 24 * time.Hour

// maxDecimals are the places of a memory tag that may be worth showing: a float64 holds no more of them.
const maxDecimals = 15

// tagReader reads one entry of a device's tags.
type tagReader struct {
	*deviceReader
	what   string // for messages
	def    tag.Def
	states []pair // as written: which values there may be depends on the type
	repeat int
}

func (d *deviceReader) readTags(n *node) {
	if n.kind != listNode {
		d.fault(n, "%s: tags is %s here: it is a list, each entry begins with a dash", d.what, n.kind)
		return
	}
	if len(n.items) == 0 {
		d.fault(n, "%s: tags is empty: a device has at least one", d.what)
	}
	for _, v := range n.items {
		t := tagReader{deviceReader: d, what: d.tagName(v), repeat: 1}
		t.def = tag.Def{Device: d.settings.Name, Access: tag.Readable, Poll: d.poll}
		switch {
		case d.settings.Modbus != nil:
			t.readModbus(v)
		case d.settings.Serial != nil:
			t.readSerial(v)
		default:
			t.readMemory(v)
		}
	}
	d.checkFolders()
}

// tagName is what messages call a tag.
func (d *deviceReader) tagName(n *node) string {
	return d.label() + "." + nameOf(n)
}

// label is the device's name for messages.
func (d *deviceReader) label() string {
	if d.settings.Name == "" {
		return "?"
	}
	return d.settings.Name
}

// common are the keys that tags of every driver have.
func (t *tagReader) common() []key {
	return []key{
		{"name", t.readName},
		{"repeat", func(v *node) { t.repeat = t.integer(v, t.what+": repeat", 1, maxTags) }},
		{"unit", func(v *node) { t.def.Unit = t.text(v, t.what+": unit", 50) }},
		{"description", func(v *node) { t.def.Description = t.text(v, t.what+": description", 1000) }},
		{"range", func(v *node) {
			span := t.readSpan(v, "range")
			t.def.Low, t.def.High, t.def.HasRange = span.Low, span.High, span != tag.Span{}
		}},
		{"instrument_range", func(v *node) { t.def.Instrument = t.readSpan(v, "instrument_range") }},
		{"states", t.readStates},
		{"access", t.readAccess},
		{"history", func(v *node) { t.def.History = t.boolean(v, t.what+": history") }},
		{"deadband", t.readDeadband},
	}
}

func (t *tagReader) readName(n *node) {
	name := t.siteReader.name(n, "tag", "/")
	switch {
	case name == "":
		return
	case strings.HasPrefix(name, "$") || strings.Contains(name, ".$"):
		t.fault(n, "tag name %s or a part of it begins with $, which is for the gateway's own nodes: choose another", name)
		return
	case strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, ".."):
		t.fault(n, "tag name %s has an empty part between its dots: a dot makes a folder, and a folder has a name", name)
		return
	}
	t.def.Name = name
}

func (t *tagReader) readDeadband(n *node) {
	if t.def.Deadband = t.number(n, t.what+": deadband"); t.def.Deadband < 0 {
		t.fault(n, "%s: deadband is %s: it is 0 or more, in the tag's unit", t.what, n.text)
		t.def.Deadband = 0
	}
}

// readSpan reads a list of two numbers, low and high. A wrong one is told, and gives the zero Span.
func (t *tagReader) readSpan(n *node, key string) (span tag.Span) {
	if s, ok := t.sketching(); ok {
		s.Type, s.Items, s.MinItems, s.MaxItems = typeList, &schema{Type: typeNumber}, 2, 2
		return span
	}
	what := t.what + ": " + key
	if n.kind != listNode || len(n.items) != 2 {
		t.fault(n, "%s is a list of two numbers, low and high, such as [0, 150]", what)
		return span
	}
	before := len(t.mistakes) + t.more
	span = tag.Span{Low: t.number(n.items[0], what), High: t.number(n.items[1], what)}
	if before == len(t.mistakes)+t.more && span.Low >= span.High {
		t.fault(n, "%s is [%s, %s]: the first number must be the lower", what, n.items[0].text, n.items[1].text)
		return tag.Span{}
	}
	return span
}

var accessWords = map[string]tag.Access{
	"read": tag.Readable, "write": tag.Writable, "readwrite": tag.Readable | tag.Writable,
}

func (t *tagReader) readAccess(n *node) {
	if word := t.choice(n, t.what+": access", "read", "write", "readwrite"); word != "" {
		t.def.Access = accessWords[word]
	}
}

// raw is a value as it is written, for the driver to read.
func (t *tagReader) raw(n *node, key string) string {
	s, _ := t.scalar(n, t.what+": "+key, "1")
	return s
}

func (t *tagReader) readModbus(n *node) {
	m := modbus.Tag{}
	text := func(name string, to *string) key {
		return key{name, func(v *node) { *to = t.raw(v, name) }}
	}
	before := len(t.mistakes) + t.more
	t.section(n, t.what, append(t.common(),
		text("address", &m.Address), text("type", &m.Type), text("order", &m.Order),
		text("scale", &m.Scale), text("offset", &m.Offset), text("decimals", &m.Decimals), text("nan", &m.NaN),
		key{"sentinel", func(v *node) { m.Sentinel = t.texts(v, t.what+": sentinel") }},
		key{"poll", func(v *node) { t.def.Poll = t.readPoll(v, t.what) }},
		key{"hold", func(v *node) { m.Hold = t.duration(v, t.what+": hold", 0, maxHold) }},
		key{"verify", func(v *node) { m.Verify = t.boolean(v, t.what+": verify") }},
		t.later("value"), t.later("wave"), t.later("retain"),
	))
	t.need(n, t.what, "name", "address")
	if n.kind != mapNode || n.get("address") == nil {
		return
	}
	m.Access, m.HasRange, m.Low, m.High = t.def.Access, t.def.HasRange, t.def.Low, t.def.High
	m.Poll, m.Name = t.def.Poll, t.def.Name
	for _, e := range m.Check(t.settings.Modbus) {
		t.fieldFault(n, t.what, e.Field, e.Index, e.Msg)
	}
	if before != len(t.mistakes)+t.more {
		return
	}
	t.def.Kind, t.def.Len = m.Shape(t.settings.Modbus)
	if !t.checkType(n) {
		return
	}
	if places, err := strconv.ParseUint(m.Decimals, 10, 8); err == nil && places < 0xFF {
		t.def.Decimals = 1 + uint8(places)
	}
	t.settings.note(m, t.repeat)
	t.settings.Modbus.Tags = slices.Grow(t.settings.Modbus.Tags, t.repeat)
	t.expand(n, func(i int, def *tag.Def, ref tag.Ref) bool {
		one := m
		one.Ref, one.Name = ref, def.Name
		if i > 0 {
			address, err := m.Repeat(t.settings.Modbus, i)
			if err != nil {
				t.fault(n.get("repeat"), "%s: repeat: %v", t.what, err)
				return false
			}
			one.Address = address
		}
		def.How, def.Place = one.Definition(t.settings.Modbus)
		t.settings.Modbus.Tags = append(t.settings.Modbus.Tags, one)
		return true
	})
}

func (t *tagReader) readMemory(n *node) {
	m := memory.Tag{}
	before := len(t.mistakes) + t.more
	t.section(n, t.what, append(t.common(),
		key{"type", func(v *node) { m.Type = t.raw(v, "type") }},
		key{"value", func(v *node) { m.Value = t.plain(v, t.what+": value") }},
		key{"decimals", func(v *node) { t.def.Decimals = 1 + uint8(t.integer(v, t.what+": decimals", 0, maxDecimals)) }},
		key{"wave", func(v *node) { m.Wave = t.readWave(v) }},
		key{"retain", func(v *node) { m.Retain = t.boolean(v, t.what+": retain") }},
	))
	t.need(n, t.what, "name")
	if n.kind != mapNode {
		return
	}
	m.Access, m.HasRange, m.Low, m.High, m.Name = t.def.Access, t.def.HasRange, t.def.Low, t.def.High, t.def.Name
	t.def.Memory, t.def.Retain = true, m.Retain
	for _, e := range m.Check() {
		t.fieldFault(n, t.what, e.Field, -1, e.Msg)
	}
	if before != len(t.mistakes)+t.more {
		return
	}
	t.def.Kind, t.def.Len = m.Shape()
	if v := n.get("decimals"); v != nil && t.def.Kind != tag.Float32 && t.def.Kind != tag.Float64 {
		t.fault(v, "%s: decimals is of float32 and float64, and this is %s: remove it", t.what, tag.Type{Kind: t.def.Kind, Len: t.def.Len})
		return
	}
	if !t.checkType(n) {
		return
	}
	entry := m
	if entry.Wave = nil; m.Wave != nil {
		t.settings.note(*m.Wave)
	}
	t.settings.note(entry, t.repeat)
	t.settings.Memory = slices.Grow(t.settings.Memory, t.repeat)
	t.expand(n, func(_ int, def *tag.Def, ref tag.Ref) bool {
		one := m
		one.Ref, one.Name = ref, def.Name
		t.settings.Memory = append(t.settings.Memory, one)
		return true
	})
}

func (t *tagReader) readWave(n *node) *memory.Wave {
	var w memory.Wave
	what := t.what + ": wave"
	t.section(n, what, []key{
		{"kind", func(v *node) { w.Kind = t.raw(v, "wave.kind") }},
		{"every", func(v *node) { w.Every = t.duration(v, what+": every", time.Millisecond, 24*time.Hour) }},
		{"phase", func(v *node) { w.Phase = t.duration(v, what+": phase", 0, 24*time.Hour) }},
		{"period", func(v *node) { w.Period = t.duration(v, what+": period", time.Millisecond, 24*time.Hour) }},
		{"min", func(v *node) { w.Min = t.number(v, what+": min") }},
		{"max", func(v *node) { w.Max = t.number(v, what+": max") }},
	})
	t.need(n, what, "kind")
	return &w
}

// expand makes the tags of an entry: one, or as many as repeat says, {n} in the name counting from 0.
func (t *tagReader) expand(n *node, add func(i int, def *tag.Def, ref tag.Ref) bool) {
	if t.repeat > 1 && !strings.Contains(t.def.Name, "{n}") {
		t.fault(n.get("name"), "%s: repeat makes %d tags of one name: put {n} where the number belongs", t.what, t.repeat)
		return
	}
	if t.fullWith(n, t.repeat) {
		return
	}
	t.site.Tags = slices.Grow(t.site.Tags, t.repeat) // one entry with a repeat is often all of the site
	for i := range t.repeat {
		def := t.def
		if n.get("repeat") != nil {
			def.Name = strings.ReplaceAll(def.Name, "{n}", strconv.Itoa(i))
		}
		at := n.get("name")
		if first, twice := t.names[def.Name]; twice {
			t.fault(at, "tag %s is defined twice, the first is on line %d: give each its own name", def.FullName(), first.line)
			return
		}
		t.names[def.Name] = at
		if !add(i, &def, tag.Ref(len(t.site.Tags)+1)) {
			return
		}
		t.site.Tags = append(t.site.Tags, def)
	}
}

// checkFolders refuses a name that is a tag and a folder at once: both would be the same node.
func (d *deviceReader) checkFolders() {
	told := map[string]bool{}
	for i := range d.site.Tags[d.first:] {
		name := d.site.Tags[d.first+i].Name
		for end := range len(name) {
			folder := name[:end]
			if name[end] != '.' || told[folder] || d.names[folder] == nil {
				continue
			}
			told[folder] = true
			at, other, also := d.names[name], d.names[folder], folder
			if at.before(other) {
				at, other, also = other, at, name
			}
			d.fault(at, "%s.%s is a tag and, because of %s.%s, a folder (%s is on line %d): rename one",
				d.label(), folder, d.label(), name, also, other.line)
		}
	}
}
