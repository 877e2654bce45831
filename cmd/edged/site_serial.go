package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"edged/drivers/serial"
	"edged/drivers/tag"
)

// serialKeys are the keys of an instrument.
func (d *deviceReader) serialKeys() []key {
	c := d.settings.Serial
	return []key{
		{"bus", func(v *node) { d.settings.Bus = d.bus(v) }},
		{"profile", func(v *node) { d.scalar(v, d.what+": profile", "mt-sics") }}, // read before, by withProfile
		{"address", func(v *node) { c.Address = d.text(v, d.what+": address", 50) }},
		{"poll", func(v *node) { d.poll = d.readPoll(v, d.what) }},
		{"stale", func(v *node) { c.Stale = d.duration(v, d.what+": stale", 0, 24*time.Hour) }},
		{"frame", d.readFrame},
		{"ignore", func(v *node) { c.Ignore = d.text(v, d.what+": ignore", maxPattern) }},
		{"messages", d.readMessages},
	}
}

// maxPattern bounds a pattern or a template of the site file, in bytes.
const maxPattern = 1000

// longestTimeout is how long an instrument may take to answer: a scale waits until its load stands still.
const longestTimeout = time.Minute

func (d *deviceReader) readFrame(n *node) {
	f, what := &d.settings.Serial.Frame, d.what+": frame"
	d.section(n, what, []key{
		{"start", func(v *node) { f.Start = d.bytes(v, what+": start") }},
		{"end", func(v *node) { f.End = d.bytes(v, what+": end") }},
		{"length", func(v *node) { d.readLength(v, what+": length", &f.Length) }},
		{"silence", func(v *node) { f.Silence = d.duration(v, what+": silence", time.Millisecond, 10*time.Second) }},
		{"max", func(v *node) { f.Max = d.integer(v, what+": max", 1, 64<<10) }},
		{"checksum", func(v *node) { d.readChecksum(v, what+": checksum", &f.Checksum) }},
	})
}

// bytes reads a text that stands for bytes. What an editor of YAML has made control characters of is taken as such.
func (d *document) bytes(n *node, what string) string {
	if s, ok := d.sketching(); ok {
		s.scalar()
		s.MaxLength = maxPattern
		return ""
	}
	s, ok := d.scalar(n, what, `'\r\n'`)
	if ok && len(s) > maxPattern {
		d.fault(n, "%s has %d bytes: at most %d", what, len(s), maxPattern)
		return ""
	}
	return s
}

// readLength reads a number of bytes, or where in the frame it stands.
func (d *deviceReader) readLength(n *node, what string, to *serial.Length) {
	if s, ok := d.sketching(); ok {
		number, place := &schema{}, &schema{}
		d.within(number, func() { d.integer(n, what, 1, 64<<10) })
		d.within(place, func() { d.readLengthPlace(n, what, to) })
		s.AnyOf = []*schema{number, place}
		return
	}
	if n.kind == scalarNode {
		to.Fixed = d.integer(n, what, 1, 64<<10)
		return
	}
	d.readLengthPlace(n, what, to)
}

func (d *deviceReader) readLengthPlace(n *node, what string, to *serial.Length) {
	to.Size = 1
	d.section(n, what, []key{
		{"at", func(v *node) { to.At = d.integer(v, what+": at", 0, 1000) }},
		{"size", func(v *node) { to.Size = d.integer(v, what+": size", 1, 2) }},
		{"order", func(v *node) { to.Order = d.choice(v, what+": order", "high_first", "low_first") }},
		{"plus", func(v *node) { to.Plus = d.integer(v, what+": plus", -1000, 1000) }},
	})
	d.need(n, what, "at")
}

func (d *deviceReader) readChecksum(n *node, what string, to *serial.Checksum) {
	d.section(n, what, []key{
		{"kind", func(v *node) {
			to.Kind = d.choice(v, what+": kind", "sum8", "sum16", "xor", "lrc", "crc16-modbus", "crc16-arc", "crc16-ccitt", "crc16-xmodem", "crc16-kermit", "crc16-x25")
		}},
		{"form", func(v *node) { to.Form = d.choice(v, what+": form", "binary", "hex") }},
		{"order", func(v *node) { to.Order = d.choice(v, what+": order", "high_first", "low_first") }},
		{"place", func(v *node) { to.Place = d.choice(v, what+": place", "before_end", "behind_end") }},
		{"mark", func(v *node) { to.Mark = d.bytes(v, what+": mark") }},
		{"from", func(v *node) { to.From = d.integer(v, what+": from", 0, 1000) }},
		{"optional", func(v *node) { to.Optional = d.boolean(v, what+": optional") }},
	})
	d.need(n, what, "kind")
}

func (d *deviceReader) readMessages(n *node) {
	if s, ok := d.sketching(); ok {
		item := &schema{}
		s.Type, s.Items = typeList, item
		d.within(item, func() { d.readMessage(n) })
		return
	}
	if n.kind != listNode {
		d.fault(n, "%s: messages is %s here: it is a list, each entry begins with a dash", d.what, n.kind)
		return
	}
	names := map[string]int{}
	for _, v := range n.items {
		m := d.readMessage(v)
		if m.Name == "" {
			continue
		}
		at := v.get("name")
		if first, twice := names[m.Name]; twice {
			d.fault(at, "%s: message %s is defined twice, the first is on line %d: give each its own name", d.what, m.Name, first)
			continue
		}
		names[m.Name] = at.line
		d.settings.Serial.Messages = append(d.settings.Serial.Messages, m)
		d.messages = append(d.messages, v)
	}
}

func (d *deviceReader) readMessage(n *node) (m serial.Message) {
	what := d.what + ": message " + nameOf(n)
	text := func(name string, to *string) key {
		return key{name, func(v *node) { *to = d.bytes(v, what+": "+name) }}
	}
	d.section(n, what, []key{
		{"name", func(v *node) { m.Name = d.siteReader.name(v, "message", ".$/") }},
		text("send", &m.Send),
		{"unasked", func(v *node) { m.Unasked = d.boolean(v, what+": unasked") }},
		{"poll", func(v *node) { m.Poll = d.readPoll(v, what) }},
		{"timeout", func(v *node) { m.Timeout = d.duration(v, what+": timeout", time.Millisecond, longestTimeout) }},
		text("begins", &m.Begins), text("pattern", &m.Pattern), text("scan", &m.Scan), text("split", &m.Split),
		text("none", &m.None), text("busy", &m.Busy), text("refused", &m.Refused),
	})
	d.need(n, what, "name")
	return m
}

// checkInstrument reports what the driver has to say about the keys of an instrument.
func (d *deviceReader) checkInstrument(n *node) {
	c := d.settings.Serial
	for _, e := range c.Check() {
		d.fieldFault(n, d.what, e.Field, -1, e.Msg)
	}
	for i, v := range d.messages {
		for _, e := range c.CheckMessage(i) {
			d.fieldFault(v, d.what+": message "+c.Messages[i].Name, e.Field, -1, e.Msg)
		}
	}
}

// checkTalkers refuses what shares a line with an instrument that talks unasked: nothing keeps the two from talking at
// the same time.
func (r *siteReader) checkTalkers(item func(*deviceSettings) *node) {
	first := map[string]*deviceSettings{}
	talks := map[string]string{}
	for i := range r.site.Devices {
		d := &r.site.Devices[i]
		if d.Serial == nil {
			continue
		}
		if d.Serial.Talks() {
			talks[d.Bus] = d.Name
		}
		if first[d.Bus] == nil {
			first[d.Bus] = d
		} else if talker := talks[d.Bus]; talker != "" {
			r.fault(item(d), "device %s: bus %s has %s too, and %s talks unasked: give it a bus of its own", d.Name, d.Bus, first[d.Bus].Name, talker)
		}
	}
}

// readSerial reads a tag of an instrument.
func (t *tagReader) readSerial(n *node) {
	m := serial.Tag{}
	c := t.settings.Serial
	text := func(name string, to *string) key {
		return key{name, func(v *node) { *to = t.bytes(v, t.what+": "+name) }}
	}
	before := len(t.mistakes) + t.more
	t.section(n, t.what, append(t.common(),
		text("message", &m.Message), text("field", &m.Field), text("columns", &m.Columns), text("at", &m.At), text("pattern", &m.Pattern),
		key{"counts", func(v *node) { m.Counts = t.boolean(v, t.what+": counts") }},
		text("type", &m.Type), text("format", &m.Format), text("sign", &m.Sign),
		text("order", &m.Order), text("scale", &m.Scale), text("offset", &m.Offset), text("decimals", &m.Decimals),
		key{"sentinel", func(v *node) { m.Sentinel = t.texts(v, t.what+": sentinel") }},
		key{"values", func(v *node) { m.Values = t.readTexts(v) }},
		key{"hold", func(v *node) { m.Hold = t.duration(v, t.what+": hold", 0, maxHold) }},
		text("send", &m.Send), text("done", &m.Done), text("busy", &m.Busy), text("refused", &m.Refused),
		key{"timeout", func(v *node) { m.Timeout = t.duration(v, t.what+": timeout", time.Millisecond, longestTimeout) }},
	))
	t.need(n, t.what, "name")
	if n.kind != mapNode {
		return
	}
	m.Name, m.Access = t.def.Name, t.def.Access
	m.HasRange, m.Low, m.High = t.def.HasRange, t.def.Low, t.def.High
	if v := n.get("repeat"); v != nil {
		t.fault(v, "%s: repeat is not of driver serial: each tag has a place of its own", t.what)
	}
	if before != len(t.mistakes)+t.more {
		return
	}
	for _, e := range m.Check(c) {
		t.fieldFault(n, t.what, e.Field, -1, e.Msg)
	}
	if before != len(t.mistakes)+t.more {
		return
	}
	t.def.Kind, t.def.Poll = m.Shape(c), m.Poll(c)
	if !t.checkType(n) {
		return
	}
	if m.Decimals != "" {
		t.def.Decimals = 1 + m.Decimals[0] - '0'
		if len(m.Decimals) == 2 {
			t.def.Decimals = 1 + 10*(m.Decimals[0]-'0') + m.Decimals[1] - '0'
		}
	}
	t.settings.note(m)
	t.expand(n, func(_ int, def *tag.Def, ref tag.Ref) bool {
		m.Ref, def.How = ref, m.Definition()
		c.Tags = append(c.Tags, m)
		return true
	})
}

// readTexts reads texts of an instrument and the values that they stand for.
func (t *tagReader) readTexts(n *node) []serial.Text {
	what := t.what + ": values"
	if s, ok := t.sketching(); ok {
		s.keyed(`^.*$`, &schema{Type: []string{typeText, typeNumber, typeBoolean}})
		return nil
	}
	if n.kind != mapNode || len(n.pairs) == 0 || len(n.pairs) > maxStates {
		t.fault(n, "%s is a map of up to %d texts and their values, such as {S: true, D: false}", what, maxStates)
		return nil
	}
	var out []serial.Text
	for _, p := range n.pairs {
		if value, ok := t.scalar(p.value, what, "true"); ok {
			out = append(out, serial.Text{Text: p.key.text, Value: value})
		}
	}
	return out
}

// profileNames are the profiles that ship.
func profileNames() []string {
	files, _ := serial.Profiles.ReadDir("profiles") // it is in the program
	var out []string
	for _, f := range files {
		out = append(out, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return out
}

// withProfile is a device with what its profile adds to it: keys that it has itself stay, and so do its messages and
// tags of the same names. Nil: the profile cannot be read, and the mistakes say why.
func (d *deviceReader) withProfile(n *node) *node {
	v := n.get("profile")
	if v == nil {
		return n
	}
	name, ok := d.scalar(v, d.what+": profile", "mt-sics")
	if !ok {
		return nil
	}
	file, text, err := d.openProfile(name)
	if err != nil {
		d.fault(v, "%s: profile %v", d.what, err)
		return nil
	}
	p := document{file: file}
	root := p.parse(text)
	d.mistakes = append(d.mistakes, p.mistakes...)
	if root == nil || len(p.mistakes) > 0 {
		return nil
	}
	if root.kind != mapNode {
		d.fault(v, "%s: profile %s is %s: it holds the keys of a device", d.what, file, root.kind)
		return nil
	}
	root.from(&file)
	out := *n
	out.pairs = slices.Clone(n.pairs)
	for _, pair := range root.pairs {
		name := pair.key.text
		own := n.get(name)
		switch {
		case name == "name" || name == "bus" || name == "driver" || name == "profile":
			d.fault(pair.key, "a profile has no %s: it belongs to the device in the site file", name)
		case own == nil:
			out.pairs = append(out.pairs, pair)
		case (name == "tags" || name == "messages") && own.kind == listNode && pair.value.kind == listNode:
			for i := range out.pairs {
				if out.pairs[i].key.text == name {
					out.pairs[i].value = joinNamed(pair.value, own)
				}
			}
		}
	}
	return &out
}

// from notes that a node and all below it are of another file.
func (n *node) from(file *string) {
	n.file = file
	for _, p := range n.pairs {
		p.key.from(file)
		p.value.from(file)
	}
	for _, v := range n.items {
		v.from(file)
	}
}

// joinNamed is a list with the entries of another in the place of those of the same name, and its further ones behind.
func joinNamed(base, own *node) *node {
	out := *own
	mine := map[string]*node{}
	for _, v := range own.items {
		mine[nameOf(v)] = v
	}
	out.items = nil
	for _, v := range base.items {
		if o := mine[nameOf(v)]; o != nil {
			v = o
		}
		out.items = append(out.items, v)
	}
	for _, v := range own.items {
		if !slices.Contains(out.items, v) {
			out.items = append(out.items, v)
		}
	}
	return &out
}

// openProfile reads a profile: one that ships, by its name, or a file beside the site file, by its path.
func (d *deviceReader) openProfile(name string) (file string, text []byte, err error) {
	if !strings.ContainsAny(name, "./\\") {
		text, err := serial.Profiles.ReadFile("profiles/" + name + ".yaml")
		if err == nil {
			return "profile " + name, text, nil
		}
		hint := "there are " + strings.Join(profileNames(), ", ")
		if near := nearest(name, profileNames()); near != "" {
			hint = "did you mean " + near + "?"
		}
		return "", nil, fmt.Errorf("%q is not known: %s; a file of your own has a path, such as ./%s.yaml", clip(name), hint, clip(name))
	}
	if file = name; !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(d.site.File), file)
	}
	text, err = readBounded(file)
	return file, text, err
}

// profilesCommand shows the profiles that ship.
type profilesCommand struct {
	Name string `arg:"" optional:"" help:"Print this one, to be copied and changed."`
}

// Run lists the profiles, each with its first line, or prints one.
func (c *profilesCommand) Run(p *program) error {
	if c.Name != "" {
		text, err := serial.Profiles.ReadFile("profiles/" + c.Name + ".yaml")
		if err != nil {
			return fmt.Errorf("there is no profile %q: there are %s", c.Name, strings.Join(profileNames(), ", "))
		}
		_, err = p.stdout.Write(text)
		return err
	}
	for _, name := range profileNames() {
		text, err := serial.Profiles.ReadFile("profiles/" + name + ".yaml")
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(string(text), "\n")
		fmt.Fprintf(p.stdout, "%s\t%s\n", name, strings.TrimPrefix(first, "# "))
	}
	return nil
}
