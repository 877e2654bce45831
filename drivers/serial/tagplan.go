package serial

import (
	"bytes"
	"strconv"
	"strings"

	"edged/drivers/tag"
)

// ready makes a tag ready.
func (t *Tag) ready(c *Config, messages []*message) (*field, []*FieldError) {
	p := tagPlan{t: t, c: c, f: &field{ref: t.Ref, name: t.Name, bit: -1, access: t.Access, hasRange: t.HasRange, low: t.Low, high: t.High}}
	p.findMessage(messages)
	p.findPlace()
	if len(p.errs) == 0 {
		p.findType()
	}
	if len(p.errs) == 0 {
		p.findOrder()
	}
	return p.f, p.errs
}

type tagPlan struct {
	t    *Tag
	c    *Config
	f    *field
	errs []*FieldError
}

func (p *tagPlan) wrong(key, format string, args ...any) {
	p.errs = append(p.errs, wrong(key, format, args...))
}

func (p *tagPlan) findMessage(messages []*message) {
	t := p.t
	if t.Access == tag.Writable {
		return
	}
	if t.Message == "" && len(messages) == 1 {
		p.f.message = messages[0]
		return
	}
	var names []string
	for _, m := range messages {
		if m.name == t.Message {
			p.f.message = m
			return
		}
		names = append(names, m.name)
	}
	switch {
	case t.Message == "":
		p.wrong("message", "of which message is it? The instrument has %s", strings.Join(names, ", "))
	default:
		p.wrong("message", "%q is no message of this instrument: it has %s", t.Message, strings.Join(names, ", "))
	}
}

func (p *tagPlan) findPlace() {
	t, f := p.t, p.f
	ways := 0
	for _, way := range []struct {
		given bool
		place uint8
	}{{t.Field != "", inField}, {t.Columns != "", inColumns}, {t.At != "", inBytes}, {t.Pattern != "", inPattern}, {t.Counts, inCount}} {
		if way.given {
			f.place = way.place
			ways++
		}
	}
	switch {
	case f.message == nil && ways > 0 && len(p.errs) == 0:
		p.wrong("access", "a tag that is only written stands in no message: remove its place, or give access readwrite")
	case ways > 1:
		p.wrong("field", "give one of field, columns, at, pattern and counts")
	case f.message == nil:
		return
	case ways == 0 && f.message.groups() == 1:
		f.place, f.fields = inField, []int{1}
	case ways == 0 && f.message.groups() == 0:
		f.place = inColumns // all of it
	case ways == 0:
		p.wrong("field", "where in message %s does it stand? Give field, columns, at or pattern", f.message.name)
	}
	if len(p.errs) > 0 {
		return
	}
	p.readPlace()
}

func (p *tagPlan) readPlace() {
	t, f := p.t, p.f
	number := func(key, text string) int {
		n, err := f.message.fieldNumber(text)
		if err != nil {
			p.wrong(key, "%v", err)
		}
		return n
	}
	if t.Field != "" {
		for part := range strings.SplitSeq(t.Field, ",") {
			f.fields = append(f.fields, number("field", part))
		}
	}
	if t.Sign != "" {
		f.sign = number("sign", t.Sign)
	}
	switch {
	case t.Columns != "":
		first, last, dash := strings.Cut(t.Columns, "-")
		from, err := strconv.Atoi(strings.TrimSpace(first))
		to := from
		if err == nil && dash && strings.TrimSpace(last) != "" {
			to, err = strconv.Atoi(strings.TrimSpace(last))
		} else if dash {
			to = 0
		}
		if err != nil || from < 1 || to != 0 && to < from || to > maxFrame {
			p.wrong("columns", "%q is not FIRST-LAST, counted from 1, such as 5-12 or 5-", t.Columns)
		}
		f.from, f.to = from-1, to
	case t.At != "":
		at, bit, dot := strings.Cut(t.At, ".")
		n, err := strconv.Atoi(at)
		if err == nil && dot {
			f.bit, err = strconv.Atoi(bit)
		}
		if f.at = n; err != nil || n < 0 || n > maxFrame || dot && (f.bit < 0 || f.bit > 63) {
			p.wrong("at", "%q is not a byte of the frame, from 0, or a bit of it such as 3.4", t.At)
		}
	case t.Pattern != "":
		var err error
		if f.pattern, err = p.c.pattern(t.Pattern); err != nil {
			p.wrong("pattern", "%v", err)
		} else if f.pattern.groups() > 1 {
			f.group = 1
		}
	}
}

// The words of Tag.Format and Tag.Type that are not those of others.
const (
	typeTime                            = "time"
	formatHex, formatDegrees, formatBCD = "hex", "degrees_minutes", "bcd"
)

func (p *tagPlan) findType() {
	t, f := p.t, p.f
	name := t.Type
	if name == "" {
		switch {
		case f.place == inCount:
			name = "uint32"
		case f.bit >= 0:
			name = "bool"
		case f.place == inBytes:
			name = "uint8"
		case t.Access == tag.Writable && !strings.Contains(t.Send, "{value"):
			name = "bool"
		default:
			name = "float64"
		}
	}
	if name == typeTime {
		f.kind = tag.DateTime
	} else {
		typ, err := tag.ParseType(name)
		if err != nil || typ.Len > 0 {
			p.wrong("type", "%q is not known: use time, or a type of %s without a list", name, "bool, int8 to uint64, float32, float64, string(N), bytes(N)")
			return
		}
		f.kind, f.size = typ.Kind, typ.Size
	}
	if f.place == inCount && f.kind != tag.Uint32 {
		p.wrong("type", "what is counted is uint32")
	}
	p.findFormat()
	var bad *FieldError
	if f.scaling, bad = newScaling(t.Scale, t.Offset, t.Decimals); bad != nil {
		p.errs = append(p.errs, bad)
	}
	if (f.scaling.active || t.Decimals != "") && !f.kind.Number() {
		p.wrong("scale", "scale, offset and decimals are of numbers, and this is %s", name)
	} else if f.scaling.active && t.Type == "" {
		f.kind = tag.Float64
		if f.place == inBytes {
			p.wrong("type", "which bytes are scaled? Give the type that they have")
		}
	}
	if f.place == inBytes {
		p.findWidth()
	}
	for _, text := range t.Sentinel {
		f.sentinel = append(f.sentinel, []byte(text))
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			f.numbers = append(f.numbers, n)
		}
	}
	p.findValues()
}

func (p *tagPlan) findFormat() {
	t, f := p.t, p.f
	switch {
	case f.kind == tag.DateTime:
		var err error
		if f.layout, err = newLayout(t.Format); err != nil {
			p.wrong("format", "%v", err)
		}
		f.format = asTime
	case t.Format == "":
	case t.Format == formatHex && f.kind.Number() && f.place != inBytes:
		f.format = asHex
	case t.Format == formatDegrees && (f.kind == tag.Float64 || f.kind == tag.Float32) && f.place != inBytes:
		f.format = asDegrees
	case t.Format == formatBCD && f.place == inBytes && f.kind.Number():
		f.format = asBCD
	default:
		p.wrong("format", "%q is not known here: use hex or degrees_minutes of a number, bcd of bytes, or the layout of a time such as YYMMDDhhmmss", t.Format)
	}
}

// widths are the bytes of a kind.
var widths = map[tag.Kind]int{tag.Bool: 1, tag.Int8: 1, tag.Uint8: 1, tag.Int16: 2, tag.Uint16: 2, tag.Int32: 4, tag.Uint32: 4, tag.Float32: 4,
	tag.Int64: 8, tag.Uint64: 8, tag.Float64: 8}

func (p *tagPlan) findWidth() {
	t, f := p.t, p.f
	f.size = max(f.size, widths[f.kind])
	switch {
	case f.size == 0:
		p.wrong("type", "%q at a byte has no length: write string(N) or bytes(N)", t.Type)
	case f.bit >= 0 && f.kind != tag.Bool:
		p.wrong("at", "a bit is a bool: remove type, or the bit")
	case f.kind == tag.DateTime:
		p.wrong("type", "a time stands in a text: give field, columns or pattern")
	case f.bit >= 8:
		f.size = f.bit/8 + 1
	}
	f.order = t.Order
	for i := range f.order {
		if len(f.order) != f.size || f.kind == tag.String || f.kind == tag.ByteString || !strings.ContainsRune(f.order, rune('A'+i)) {
			p.wrong("order", "%q is no order of %d bytes, such as %s", f.order, f.size, "ABCDEFGH"[:min(8, f.size)])
			return
		}
	}
}

func (p *tagPlan) findValues() {
	for _, v := range p.t.Values {
		text, err := unescape(v.Text)
		if err != nil {
			p.wrong("values", "%v", err)
			continue
		}
		value, ok := p.f.literal(v.Value)
		if !ok {
			p.wrong("values", "%q: %q is no %s", v.Text, v.Value, p.f.kind)
			continue
		}
		p.f.values = append(p.f.values, mapped{bytes.TrimSpace(text), value})
	}
}

// literal reads a value of the site file.
func (f *field) literal(text string) (tag.Value, bool) {
	switch f.kind {
	case tag.Bool:
		return tag.Of(text == "true"), text == "true" || text == "false"
	case tag.String:
		return tag.Of(text), true
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !f.kind.Number() {
		return tag.Value{}, false
	}
	return toKind(f.kind, n)
}

func (p *tagPlan) findOrder() {
	t, f := p.t, p.f
	writable := t.Access&tag.Writable != 0
	switch {
	case writable && t.Send == "":
		p.wrong("access", "what is sent to write it? Give send, or access read")
	case !writable && t.Send+t.Done+t.Busy+t.Refused != "":
		p.wrong("access", "send, done, busy and refused are of a tag that is written: give access write or readwrite")
	}
	if !writable || len(p.errs) > 0 {
		return
	}
	o := &order{timeout: t.Timeout}
	var err error
	if o.send, err = p.c.template(t.Send); err == nil {
		err = o.send.fits(f.kind, len(f.values) > 0)
	}
	if err != nil {
		p.wrong("send", "%v", err)
	}
	if !o.send.hasValue() && f.kind != tag.Bool && len(f.values) == 0 {
		p.wrong("send", "it says nothing of the value: write {value} where it belongs, or make it a bool, of which true sends it")
	}
	for _, one := range []struct {
		key, text string
		to        **pattern
	}{{"done", t.Done, &o.done}, {"busy", t.Busy, &o.busy}, {"refused", t.Refused, &o.refused}} {
		if *one.to, err = p.c.pattern(one.text); err != nil {
			p.wrong(one.key, "%v", err)
		}
	}
	if o.done == nil && (o.busy != nil || o.refused != nil) {
		p.wrong("done", "an instrument that refuses says too when it is done: give done")
	}
	f.write = o
}
