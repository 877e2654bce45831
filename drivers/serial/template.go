package serial

import (
	"fmt"
	"strconv"
	"strings"

	"edged/drivers/tag"
)

// template is what is sent: bytes with places for what is only known then.
type template struct {
	parts []part
	frame *cut // whose checksum {checksum} is
}

// part is one piece of a template.
type part struct {
	text []byte
	slot uint8
	verb string // of a value, as package fmt has it; empty: shortest
}

// The slots of a template.
const (
	slotText uint8 = iota
	slotValue
	slotChecksum
)

// template reads what is to be sent.
func (c *Config) template(text string) (*template, error) {
	t := &template{}
	hexa := strings.HasPrefix(text, "hex:")
	text = strings.TrimPrefix(text, "hex:")
	for text != "" {
		open := strings.IndexByte(text, '{')
		before := text
		if open >= 0 {
			before = text[:open]
		}
		if hexa {
			before = "hex:" + before
		}
		b, err := unescape(before)
		if err != nil {
			return t, err
		}
		t.literal(b)
		if open < 0 {
			break
		}
		if strings.HasPrefix(text[open:], "{{") {
			t.literal([]byte{'{'})
			text = text[open+2:]
			continue
		}
		name, rest, closed := strings.Cut(text[open+1:], "}")
		if !closed {
			return t, fmt.Errorf("%q has a { without a }: write {{ for one", text)
		}
		text = rest
		if err := t.slot(c, name); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (t *template) literal(b []byte) {
	if len(b) > 0 {
		t.parts = append(t.parts, part{text: b})
	}
}

func (t *template) slot(c *Config, name string) error {
	name, verb, _ := strings.Cut(name, ":")
	switch {
	case name == "address" && verb == "":
		t.literal([]byte(c.Address))
	case name == "value":
		t.parts = append(t.parts, part{slot: slotValue, verb: verb})
	case name == "checksum" && verb == "":
		frame, _ := c.Frame.ready()
		if frame.check == nil {
			return fmt.Errorf("{checksum}: the frame has none: give frame.checksum")
		}
		t.frame = frame
		t.parts = append(t.parts, part{slot: slotChecksum})
	default:
		return fmt.Errorf("{%s} is not known: use {value}, {value:%%.2f}, {address} or {checksum}, and {{ for a brace", name)
	}
	return nil
}

// hasValue reports whether the value is part of what is sent.
func (t *template) hasValue() bool {
	for _, p := range t.parts {
		if p.slot == slotValue {
			return true
		}
	}
	return false
}

// fits reports what is wrong with the verbs of values of a kind. mapped: they are texts of their own.
func (t *template) fits(k tag.Kind, mapped bool) error {
	for _, p := range t.parts {
		if p.slot != slotValue || p.verb == "" {
			continue
		}
		var sample any = 1.5
		kinds := "feg"
		switch {
		case mapped || k == tag.String:
			sample, kinds = "text", "s"
		case k != tag.Float32 && k != tag.Float64:
			sample, kinds = int64(1), "dxX"
		}
		text := fmt.Sprintf(p.verb, sample)
		if !strings.HasPrefix(p.verb, "%") || strings.Contains(text, "%!") || !strings.Contains(kinds, p.verb[len(p.verb)-1:]) || len(text) > maxText {
			return fmt.Errorf("{value:%s}: %s is formatted by %% and one of %s, such as %%08.2f", p.verb, k, kinds)
		}
	}
	return nil
}

// append adds the bytes. value is its text.
func (t *template) append(dst []byte, f *field, v tag.Value) ([]byte, tag.Status) {
	start := len(dst)
	for i := range t.parts {
		p := &t.parts[i]
		switch p.slot {
		case slotText:
			dst = append(dst, p.text...)
		case slotChecksum:
			at := len(dst) - len(t.frame.check.mark)
			if at < start || string(dst[at:]) != string(t.frame.check.mark) {
				at = len(dst)
			}
			dst = t.frame.check.append(dst, dst[start:at])
		case slotValue:
			var status tag.Status
			if dst, status = f.appendValue(dst, v, p.verb); status != tag.Good {
				return dst, status
			}
		}
	}
	return dst, tag.Good
}

// appendValue writes a value as the instrument has it.
func (f *field) appendValue(dst []byte, v tag.Value, verb string) ([]byte, tag.Status) {
	for _, m := range f.values {
		if m.value.Equal(v) {
			return appendText(dst, string(m.text), verb)
		}
	}
	switch {
	case len(f.values) > 0:
		return dst, tag.BadOutOfRange
	case f.kind == tag.Bool && v.Bool():
		return append(dst, '1'), tag.Good
	case f.kind == tag.Bool:
		return append(dst, '0'), tag.Good
	case f.kind == tag.String:
		return appendText(dst, v.Text(), verb)
	case f.scaling.active || f.kind == tag.Float32 || f.kind == tag.Float64:
		x, _ := v.Float()
		if x = f.scaling.raw(x); x != x || x-x != 0 {
			return dst, tag.BadOutOfRange
		}
		if verb == "" {
			bits := 64
			if f.kind == tag.Float32 && !f.scaling.active {
				bits = 32
			}
			return strconv.AppendFloat(dst, x, 'f', f.scaling.decimals, bits), tag.Good
		}
		return fmt.Appendf(dst, verb, x), tag.Good
	case verb == "" && f.kind == tag.Uint64:
		return strconv.AppendUint(dst, v.Bits(), 10), tag.Good
	case verb == "":
		return strconv.AppendInt(dst, int64(v.Bits()), 10), tag.Good
	}
	return fmt.Appendf(dst, verb, int64(v.Bits())), tag.Good
}

// appendText writes a text that a client may have made: a control character in it could end the command and begin
// another.
func appendText(dst []byte, text, verb string) ([]byte, tag.Status) {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7F }) {
		return dst, tag.BadOutOfRange
	}
	if verb == "" {
		return append(dst, text...), tag.Good
	}
	return fmt.Appendf(dst, verb, text), tag.Good
}
