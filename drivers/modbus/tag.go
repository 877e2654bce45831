package modbus

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"edged/drivers/tag"
)

// Tag is one tag as the site file describes it. Texts are as written there; empty is not given.
type Tag struct {
	Ref       tag.Ref // set before New; the checks do without it
	Name      string
	Address   string   // "holding:20", "coil:3", "holding:30.4", "40021"
	Type      string   // "int16", "float32", "string(8)", "uint16[4]"; default: bool for bits, uint16 for registers
	Order     string   // "ABCD", "DCBA", "BADC", "CDAB" or an eight-letter form; default ABCD
	Scale     string   // decimal
	Offset    string   // decimal
	Decimals  string   // places that the value is rounded to
	Sentinel  []string // raw values that mean "not available": decimal, or 0x for the bits
	NaN       string   // "good" takes NaN as a value, "bad" is the default
	Access    tag.Access
	HasRange  bool
	Low, High float64 // limits of a write, in engineering units
	Poll      time.Duration
	Hold      time.Duration
	Verify    bool // a confirming reading that differs from what was written makes the write BadDeviceFailure
}

// Shape is what others see of a tag's type, on device c. It is zero for a tag that Check refuses.
func (t *Tag) Shape(c *Config) (kind tag.Kind, length int) {
	f, errs := t.field(c)
	if len(errs) > 0 {
		return tag.Null, 0
	}
	return f.outKind(), f.array
}

// Check reports everything that is wrong with the tag's keys.
func (t *Tag) Check(c *Config) []*FieldError {
	_, errs := t.field(c)
	return errs
}

// Definition tells people how the value comes about, with the tag's place. It is nil for a tag that Check refuses.
func (t *Tag) Definition(c *Config) (how tag.Definer, place uint32) {
	f, errs := t.field(c)
	if len(errs) > 0 {
		return nil, 0
	}
	d := definition{table: f.table, bit: f.bit >= 0}
	for _, part := range []struct{ sign, text string }{{" ", t.Type}, {" ", t.Order}, {" * ", t.Scale}, {" + ", t.Offset}} {
		if part.text != "" {
			d.rest += part.sign + part.text
		}
	}
	return d, uint32(f.start*registerBits + max(0, f.written(c)))
}

// definition is a tag.Definer. A tag's place is the number of its first register or bit in the table, times
// registerBits, plus the bit of the register.
type definition struct {
	table Table
	bit   bool // of a register
	rest  string
}

func (d definition) Definition(place uint32) string {
	a := Address{d.table, int(place / registerBits), -1}
	if d.bit {
		a.Bit = int(place % registerBits)
	}
	return a.String() + d.rest
}

// Repeat is the address of the n-th tag, from 0, of a row in which each begins behind the one before.
func (t *Tag) Repeat(c *Config, n int) (string, error) {
	f, errs := t.field(c)
	if len(errs) > 0 {
		return "", errs[0]
	}
	a := Address{f.table, f.start + n*f.count, f.written(c)}
	if f.bit >= 0 {
		at := a.Bit + n
		a.Number, a.Bit = f.start+at/registerBits, at%registerBits
	}
	if a.Number+f.count-1 > lastAddress {
		return "", fmt.Errorf("tag %d of the row lies at %s, beyond the last address %d", n, a, lastAddress)
	}
	return a.String(), nil
}

// written is the field's bit as the site file numbers it on device c.
func (f *field) written(c *Config) int {
	if f.bit >= 0 && c.Quirks.HighBitZero {
		return registerBits - 1 - int(f.bit)
	}
	return int(f.bit)
}

// builder gathers what is wrong while it makes a field.
type builder struct {
	t    *Tag
	f    *field
	q    *Quirks
	errs []*FieldError
}

func (b *builder) wrong(key, format string, args ...any) {
	b.errs = append(b.errs, wrong(key, format, args...))
}

// field makes the field of a tag of device c, or says what is wrong.
func (t *Tag) field(c *Config) (*field, []*FieldError) {
	b := builder{t: t, f: &field{ref: t.Ref, bit: -1, form: &form{shape: shape{
		decimals: -1, access: t.Access, hasRange: t.HasRange, low: t.Low, high: t.High,
		verify: t.Verify, nanGood: t.NaN == "good",
	}}}}
	writes := cmp.Or(c.Writes, c.Quirks.Writes)
	b.f.singleOnly, b.f.multiOnly = writes == writesSingle, writes == writesMultiple
	b.f.both = writes == writesBoth
	b.q = &c.Quirks
	addr, err := ParseAddress(t.Address)
	if err != nil {
		b.wrong("address", "%v", err)
	}
	typ, ok := b.typed(addr, err == nil)
	if !ok || err != nil {
		return nil, b.errs
	}
	b.f.table, b.f.start, b.f.bit, b.f.kind, b.f.array = addr.Table, addr.Number, int8(addr.Bit), typ.Kind, typ.Len
	if addr.Bit >= 0 && b.q.HighBitZero {
		b.f.bit = int8(registerBits - 1 - addr.Bit)
	}
	b.sized(addr, typ)
	b.ordered()
	b.scaled()
	b.limited()
	if len(b.errs) > 0 {
		return nil, b.errs
	}
	if typ.Kind == tag.String || typ.Kind == tag.ByteString || typ.Len > 0 {
		b.f.rare = &rare{}
	}
	return b.f, nil
}

// typed reads the type, with its default by table, and refuses what the address cannot hold.
func (b *builder) typed(a Address, known bool) (tag.Type, bool) {
	text := b.t.Type
	bit := known && (a.Table.Bits() || a.Bit >= 0)
	if text == "" {
		if bit {
			return tag.Type{Kind: tag.Bool}, true
		}
		return tag.Type{Kind: tag.Uint16}, true
	}
	typ, err := tag.ParseType(text)
	switch {
	case err != nil:
		b.wrong("type", "%v", err)
	case bit && typ.Kind != tag.Bool:
		b.wrong("type", "%s: %s is one bit, so that its type is bool", text, a)
	case a.Bit >= 0 && typ.Len > 0:
		b.wrong("type", "%s: an array of bits of a register is not possible: read the register", text)
	case known && !bit && typ.Kind == tag.Bool:
		b.wrong("type", "bool: %s is a register: name one bit of it, such as %s.0, or use a number type", a, a)
	case typ.Kind == tag.Int8 || typ.Kind == tag.Uint8:
		b.wrong("type", "%s: registers have 16 bits: use %s", text, strings.Replace(text, "8", "16", 1))
	case (typ.Kind == tag.String || typ.Kind == tag.ByteString) && (typ.Size == 0 || typ.Len > 0):
		b.wrong("type", "%s: give its length in bytes, such as string(8); arrays of them are not possible", text)
	default:
		return typ, true
	}
	return tag.Type{}, false
}

var widths = map[tag.Kind]int{tag.Int16: 2, tag.Uint16: 2, tag.Int32: 4, tag.Uint32: 4, tag.Float32: 4,
	tag.Int64: 8, tag.Uint64: 8, tag.Float64: 8}

// sized finds how much of the table the value takes.
func (b *builder) sized(a Address, typ tag.Type) {
	f := b.f
	most, mostWrite := mostReadRegisters, mostWriteRegisters
	if f.both {
		mostWrite = mostBothRegisters
	}
	switch {
	case a.Table.Bits():
		f.count = max(1, typ.Len)
		most, mostWrite = mostReadBits, mostWriteBits
	case typ.Kind == tag.Bool:
		f.count = 1
	case typ.Kind == tag.String || typ.Kind == tag.ByteString:
		f.width, f.count = typ.Size, (typ.Size+1)/2
		if f.half = map[string]int8{bytesHigh: 1, bytesLow: 2}[b.q.StringBytes]; f.half > 0 {
			f.count = typ.Size
		}
		f.spaces = b.q.StringFill == fillSpace && typ.Kind == tag.String
		f.swapBytes = b.q.StringSwapped && f.half == 0
	default:
		f.width = widths[typ.Kind]
		f.count = f.width / 2 * max(1, typ.Len)
	}
	if f.end()-1 > lastAddress {
		b.wrong("address", "%s: %s takes %d, beyond the last address %d", b.t.Address, typ, f.count, lastAddress)
	}
	if f.count > most {
		b.wrong("type", "%s: one read brings at most %d: make several tags of it", typ, most)
	} else if f.access&tag.Writable != 0 && f.count > mostWrite {
		b.wrong("type", "%s: one write carries at most %d: make several tags of it", typ, mostWrite)
	}
}

// orders are the byte orders by name: A is the most significant byte.
var orders = map[string]struct{ bytes, words bool }{
	"AB": {}, "ABCD": {}, "ABCDEFGH": {},
	"BA": {true, false}, "BADC": {true, false}, "BADCFEHG": {true, false},
	"CDAB": {false, true}, "GHEFCDAB": {false, true},
	"DCBA": {true, true}, "HGFEDCBA": {true, true},
}

func (b *builder) ordered() {
	f, text := b.f, b.t.Order
	if text == "" {
		return
	}
	o, ok := orders[text]
	isText := f.kind == tag.String || f.kind == tag.ByteString
	switch {
	case !ok:
		b.wrong("order", "%q is not one of ABCD (most significant byte first), DCBA, BADC, CDAB, ABCDEFGH, HGFEDCBA, BADCFEHG, GHEFCDAB", text)
	case f.width == 0:
		b.wrong("order", "a bit has no order")
	case !isText && len(text) == 8 && f.width != 8, !isText && len(text) == 2 && f.width != 2:
		b.wrong("order", "%s is for %d bytes, and the type has %d", text, len(text), f.width)
	case isText && f.half > 0:
		b.wrong("order", "%s: with quirks.string_bytes a register holds one character", text)
	case isText && o.words:
		b.wrong("order", "%s: text is ABCD, or BADC where the two bytes of each register are swapped", text)
	default:
		f.swapBytes, f.swapWords = o.bytes, o.words
	}
}

// scaled reads scale, offset, decimals, sentinel and nan.
func (b *builder) scaled() {
	t, f := b.t, b.f
	number := f.kind.Number()
	for _, key := range []struct{ name, text string }{{"scale", t.Scale}, {"offset", t.Offset}, {"decimals", t.Decimals}, {"nan", t.NaN}} {
		if key.text != "" && !number {
			b.wrong(key.name, "only a number has one")
		}
	}
	if len(t.Sentinel) > 0 && !number {
		b.wrong("sentinel", "only a number has one")
	}
	if t.NaN != "" && t.NaN != "good" && t.NaN != "bad" {
		b.wrong("nan", "%q is not good or bad", t.NaN)
	}
	if !number {
		return
	}
	decimals := -1
	if t.Decimals != "" {
		n, err := strconv.Atoi(t.Decimals)
		if err != nil || n < 0 || n > maxPlaces {
			b.wrong("decimals", "%q is not a whole number from 0 to %d", t.Decimals, maxPlaces)
			return
		}
		decimals = n
	}
	b.scale(decimals)
	for i, text := range t.Sentinel {
		raw, err := parseSentinel(f.kind, text)
		if err != nil {
			b.errs = append(b.errs, &FieldError{Field: "sentinel", Index: i, Msg: err.Error()})
			continue
		}
		f.sentinels = append(f.sentinels, raw)
	}
}

func (b *builder) scale(decimals int) {
	t, f := b.t, b.f
	if t.Scale == "" && t.Offset == "" {
		if decimals >= 0 && f.kind != tag.Float32 && f.kind != tag.Float64 {
			b.wrong("decimals", "a whole number without scale has none: remove it, or give scale")
		}
		f.decimals = decimals
		return
	}
	scale, offset := decimal{mantissa: 1}, decimal{}
	var err error
	if t.Scale != "" {
		if scale, err = parseDecimal(t.Scale); err != nil {
			b.wrong("scale", "%v", err)
			return
		}
		if scale.mantissa == 0 {
			b.wrong("scale", "0 would lose every value")
			return
		}
	}
	if t.Offset != "" {
		if offset, err = parseDecimal(t.Offset); err != nil {
			b.wrong("offset", "%v", err)
			return
		}
	}
	if f.scaling, err = newScaling(scale, offset, decimals); err != nil {
		b.wrong("scale", "%v", err)
	}
}

// parseSentinel gives the raw bits of one element.
func parseSentinel(k tag.Kind, text string) (uint64, error) {
	bits := 8 * widths[k]
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		raw, err := strconv.ParseUint(hex, 16, bits)
		if err != nil {
			return 0, fmt.Errorf("%q is not a hexadecimal number of %d bits", text, bits)
		}
		return raw, nil
	}
	mask := ^uint64(0) >> (64 - bits)
	switch k {
	case tag.Float32, tag.Float64:
		v, err := strconv.ParseFloat(text, bits)
		if err != nil {
			return 0, fmt.Errorf("%q is not a number", text)
		}
		if k == tag.Float32 {
			return uint64(math.Float32bits(float32(v))), nil
		}
		return math.Float64bits(v), nil
	case tag.Int16, tag.Int32, tag.Int64:
		v, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return 0, fmt.Errorf("%q is not a raw value of the type: sentinels are compared before scaling", text)
		}
		return uint64(v) & mask, nil
	}
	v, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a raw value of the type: sentinels are compared before scaling", text)
	}
	return v, nil
}

// limited checks access, range and times.
func (b *builder) limited() {
	t, f := b.t, b.f
	if f.access == 0 {
		f.access = tag.Readable
	}
	if f.access&tag.Writable != 0 && !f.table.Writable() {
		b.wrong("access", "the table %s cannot be written: use access read", f.table)
	}
	if t.HasRange && !(t.Low <= t.High) {
		b.wrong("range", "%v is above %v: give the lower limit first", t.Low, t.High)
	}
	if t.Poll < 0 {
		b.wrong("poll", "%v is negative", t.Poll)
	}
	if t.Hold < 0 {
		b.wrong("hold", "%v is negative", t.Hold)
	}
	if t.Verify && f.access != tag.Readable|tag.Writable {
		b.wrong("verify", "only a tag of access readwrite can be read back")
	}
}
