package event

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// The built-in types that package tag keeps as tag.Raw.
const (
	kindGUID      = tag.Kind(14)
	kindNodeID    = tag.Kind(17)
	kindExpanded  = tag.Kind(18)
	kindQualified = tag.Kind(20)
	kindText      = tag.Kind(21)
)

// kindOf is the built-in type of a value, and whether it is an array.
func kindOf(v tag.Value) (k tag.Kind, array bool) {
	if v.Kind() != tag.Raw {
		return v.Kind(), v.IsArray()
	}
	b := v.Bytes()
	if len(b) == 0 {
		return tag.Null, false
	}
	return tag.Kind(b[0] & 0x3F), b[0]&0x80 != 0
}

// ranks are the types by their precedence (Part 4, table 126): of two operands the one with the higher rank is converted
// to the type of the other. Types that are not there are converted to none.
var ranks = map[tag.Kind]int{
	tag.Float64: 1, tag.Float32: 2, tag.Int64: 3, tag.Uint64: 4, tag.Int32: 5, tag.Uint32: 6, tag.StatusCode: 7, tag.Int16: 8,
	tag.Uint16: 9, tag.Int8: 10, tag.Uint8: 11, tag.Bool: 12, kindGUID: 13, tag.String: 14, kindExpanded: 15, kindNodeID: 16,
	kindText: 17, kindQualified: 18,
}

func rank(k tag.Kind) int { return ranks[k] }

// common converts two values to one type (Part 4, 7.7.3); false: there is none.
func common(a, b tag.Value) (_, _ tag.Value, ok bool) {
	ka, arrayA := kindOf(a)
	kb, arrayB := kindOf(b)
	switch {
	case ka == tag.Null || kb == tag.Null || arrayA != arrayB:
		return a, b, false
	case ka == kb:
		return a, b, true
	case arrayA || rank(ka) == 0 || rank(kb) == 0:
		return a, b, false
	case rank(ka) < rank(kb):
		b, ok = convert(b, ka, false)
	default:
		a, ok = convert(a, kb, false)
	}
	return a, b, ok
}

// equal reports whether two values are, after conversion.
func equal(a, b tag.Value) bool {
	a, b, ok := common(a, b)
	if !ok {
		return false
	}
	k, array := kindOf(a)
	switch {
	case array:
		return a.Equal(b)
	case k == tag.Float64 || k == tag.Float32:
		x, _ := a.Float()
		y, _ := b.Float()
		return x == y
	case k == kindText:
		la, ta := textIn(a)
		lb, tb := textIn(b)
		return ta == tb && (la == lb || la == "" || lb == "")
	case k == kindNodeID || k == kindExpanded:
		x, ok1 := nodeIn(a)
		y, ok2 := nodeIn(b)
		return ok1 && ok2 && x == y
	case a.Kind() == tag.Raw:
		return b.Kind() == tag.Raw && bytes.Equal(a.Bytes(), b.Bytes())
	}
	return a.Equal(b)
}

// compare orders two values, after conversion; false: they have no order.
func compare(a, b tag.Value) (int, bool) {
	a, b, ok := common(a, b)
	k, array := kindOf(a)
	if !ok || array {
		return 0, false
	}
	switch {
	case k == tag.Float64 || k == tag.Float32:
		x, _ := a.Float()
		y, _ := b.Float()
		return cmp.Compare(x, y), x == x && y == y
	case k >= tag.Int8 && k <= tag.Uint64 && signed(k), k == tag.DateTime:
		return cmp.Compare(int64(a.Bits()), int64(b.Bits())), true
	case k >= tag.Int8 && k <= tag.Uint64, k == tag.StatusCode:
		return cmp.Compare(a.Bits(), b.Bits()), true
	case k == tag.String:
		return strings.Compare(a.Text(), b.Text()), true
	case k == kindText:
		_, x := textIn(a)
		_, y := textIn(b)
		return strings.Compare(x, y), true
	}
	return 0, false
}

// convert makes a scalar one of another type (Part 4, table 125): implicitly, or also explicitly, as a Cast does. False:
// there is no such conversion, or the value does not fit.
func convert(v tag.Value, to tag.Kind, explicit bool) (tag.Value, bool) {
	from, array := kindOf(v)
	switch {
	case from == tag.Null || array:
		return tag.Value{}, false
	case from == to:
		return v, true
	case from == tag.String:
		return fromText(v.Text(), to, explicit)
	case to == tag.String:
		return toText(v, from, explicit)
	case from == kindQualified && to == kindText:
		_, name := qualifiedIn(v)
		return wire.LocalizedTextValue("", name), true
	case from == kindNodeID && to == kindExpanded, from == kindExpanded && to == kindNodeID && explicit:
		n, ok := nodeIn(v)
		return relabel(wire.NodeIDValue(n), to), ok
	case from == kindGUID && to == tag.ByteString && explicit:
		return tag.OfBytes(v.Bytes()[1:]), true
	case from == tag.ByteString && to == kindGUID && explicit && v.Len() == 16:
		return tag.OfRaw(append([]byte{byte(kindGUID)}, v.Bytes()...)), true
	case numberLike(from) && numberLike(to):
		return toNumber(v, from, to, explicit)
	}
	return tag.Value{}, false
}

// relabel gives an encoded value another type of the same form.
func relabel(v tag.Value, to tag.Kind) tag.Value {
	b := bytes.Clone(v.Bytes())
	b[0] = byte(to)
	return tag.OfRaw(b)
}

func numberLike(k tag.Kind) bool { return k >= tag.Bool && k <= tag.Float64 || k == tag.StatusCode }

// toNumber converts between numbers, Boolean and StatusCode. What is implicit goes to a type of higher precedence.
func toNumber(v tag.Value, from, to tag.Kind, explicit bool) (tag.Value, bool) {
	switch {
	case !explicit && rank(to) > rank(from) && !(from == tag.StatusCode && width4(to)):
		return tag.Value{}, false
	case from == tag.StatusCode && !(to >= tag.Int32 && to <= tag.Uint64 || to == tag.Uint16 && explicit),
		to == tag.StatusCode && from != tag.Uint16 && !(from >= tag.Int32 && from <= tag.Uint64 && explicit):
		return tag.Value{}, false
	case from == tag.StatusCode && to == tag.Uint16: // its upper half
		return tag.Of(uint16(v.Bits() >> 16)), true
	case from == tag.Uint16 && to == tag.StatusCode:
		return tag.Of(tag.Status(v.Bits() << 16)), true
	case from == tag.StatusCode && to == tag.Int32:
		return tag.Of(int32(uint32(v.Bits()))), true
	}
	switch to {
	case tag.Float64:
		x, ok := float(v, from)
		return tag.Of(x), ok
	case tag.Float32:
		x, ok := float(v, from)
		return tag.Of(float32(x)), ok && (math.Abs(x) <= math.MaxFloat32 || math.IsInf(x, 0) || x != x)
	case tag.Bool:
		x, ok := float(v, from)
		return tag.Of(x != 0), ok
	}
	if from == tag.Float64 || from == tag.Float32 {
		x, _ := v.Float()
		if x = math.Floor(x + 0.5); !(x >= -(1<<63) && x < 1<<64) {
			return tag.Value{}, false
		}
		if x < 0 {
			return fit(true, uint64(int64(x)), to)
		}
		return fit(false, uint64(x), to)
	}
	bits := v.Bits()
	return fit(signed(from) && int64(bits) < 0, bits, to)
}

func width4(k tag.Kind) bool {
	return k == tag.Int32 || k == tag.Uint32 || k == tag.Int64 || k == tag.Uint64
}

// float is a number, a Boolean or a StatusCode as a Double.
func float(v tag.Value, from tag.Kind) (float64, bool) {
	if from == tag.Bool {
		return float64(v.Bits()), true
	}
	return v.Float()
}

// fit makes 64 bits an integer of a type, if it has the range.
func fit(negative bool, b uint64, to tag.Kind) (tag.Value, bool) {
	if to == tag.StatusCode {
		return tag.Of(tag.Status(b)), !negative && b <= math.MaxUint32
	}
	w := width(to)
	switch {
	case signed(to) && negative:
		return tag.FromBits(to, b), int64(b) >= -1<<(w-1)
	case signed(to):
		return tag.FromBits(to, b), b < 1<<(w-1)
	}
	return tag.FromBits(to, b), !negative && (w == 64 || b < 1<<w)
}

// fromText converts a String: to numbers, Boolean and Guid implicitly.
func fromText(s string, to tag.Kind, explicit bool) (tag.Value, bool) {
	switch {
	case to == tag.Bool:
		switch strings.ToLower(s) {
		case "true", "1":
			return tag.Of(true), true
		case "false", "0":
			return tag.Of(false), true
		}
		return tag.Value{}, false
	case to == tag.Float64 || to == tag.Float32:
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return tag.Value{}, false
		}
		if to == tag.Float32 {
			return tag.Of(float32(x)), true
		}
		return tag.Of(x), true
	case to >= tag.Int8 && to <= tag.Uint64:
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return fit(n < 0, uint64(n), to)
		}
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return tag.Value{}, false
		}
		return fit(false, n, to)
	case to == kindGUID:
		return guidOf(s)
	case !explicit:
		return tag.Value{}, false
	case to == tag.DateTime:
		t, err := time.Parse(time.RFC3339Nano, s)
		return tag.Of(tag.TimeOf(t)), err == nil
	case to == kindText:
		return wire.LocalizedTextValue("", s), true
	case to == kindQualified:
		ns, name, ok := strings.Cut(s, ":")
		n, err := strconv.ParseUint(ns, 10, 16)
		if !ok || err != nil {
			return wire.QualifiedNameValue(0, s), true
		}
		return wire.QualifiedNameValue(uint16(n), name), true
	case to == kindNodeID || to == kindExpanded:
		n, ok := parseNode(s)
		return relabel(wire.NodeIDValue(n), to), ok
	}
	return tag.Value{}, false
}

// toText converts to a String: node ids, names and localized texts implicitly.
func toText(v tag.Value, from tag.Kind, explicit bool) (tag.Value, bool) {
	switch from {
	case kindText:
		_, text := textIn(v)
		return tag.Of(text), true
	case kindQualified:
		ns, name := qualifiedIn(v)
		if ns != 0 {
			name = strconv.Itoa(int(ns)) + ":" + name
		}
		return tag.Of(name), true
	case kindNodeID, kindExpanded:
		n, ok := nodeIn(v)
		return tag.Of(n.String()), ok
	}
	switch {
	case !explicit:
		return tag.Value{}, false
	case from == tag.Bool, from.Number():
		return tag.Of(v.String()), true
	case from == tag.DateTime:
		return tag.Of(tag.Time(v.Bits()).Time().UTC().Format(time.RFC3339Nano)), true
	case from == kindGUID:
		n := wire.NodeID{Type: wire.GUID, Str: string(v.Bytes()[1:])}
		return tag.Of(strings.TrimPrefix(n.String(), "g=")), true
	}
	return tag.Value{}, false
}

// guidOf reads a Guid's text form (Part 6, 5.1.3).
func guidOf(s string) (tag.Value, bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return tag.Value{}, false
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != 16 {
		return tag.Value{}, false
	}
	out := []byte{byte(kindGUID)}
	out = binary.LittleEndian.AppendUint32(out, binary.BigEndian.Uint32(b))
	out = binary.LittleEndian.AppendUint16(out, binary.BigEndian.Uint16(b[4:]))
	out = binary.LittleEndian.AppendUint16(out, binary.BigEndian.Uint16(b[6:]))
	return tag.OfRaw(append(out, b[8:]...)), true
}

// parseNode reads a NodeId's text form (Part 6, 5.3.1.10), but for Guids and opaque ones.
func parseNode(s string) (n wire.NodeID, ok bool) {
	if rest, found := strings.CutPrefix(s, "ns="); found {
		ns, id, cut := strings.Cut(rest, ";")
		k, err := strconv.ParseUint(ns, 10, 16)
		if err != nil || !cut {
			return n, false
		}
		n.NS, s = uint16(k), id
	}
	if text, found := strings.CutPrefix(s, "s="); found {
		return wire.TextID(n.NS, text), true
	}
	num, found := strings.CutPrefix(s, "i=")
	k, err := strconv.ParseUint(num, 10, 32)
	return wire.NumericID(n.NS, uint32(k)), found && err == nil
}

// nodeIn is the id of an encoded NodeId or ExpandedNodeId of this server.
func nodeIn(v tag.Value) (wire.NodeID, bool) {
	if v.Kind() != tag.Raw || v.Len() == 0 {
		return wire.NodeID{}, false
	}
	r := wire.NewReader(v.Bytes()[1:])
	n, uri, server := r.ExpandedID()
	return n, r.Err() == nil && uri == "" && server == 0
}

func textIn(v tag.Value) (locale, text string) {
	r := wire.NewReader(v.Bytes()[1:])
	return r.LocalizedText()
}

func qualifiedIn(v tag.Value) (ns uint16, name string) {
	r := wire.NewReader(v.Bytes()[1:])
	return r.QualifiedName()
}

// like matches the wildcards of Part 4, table 124: % any text, _ one character, [] one of a list or range, [^] none of
// it, and \ takes the next one as it is.
func like(s, pattern string) bool {
	return likeRunes([]rune(s), []rune(pattern))
}

func likeRunes(s, p []rune) bool {
	// As with any glob, only the last % is ever gone back to.
	si, pi, star, from := 0, 0, -1, 0
	for si < len(s) {
		if pi < len(p) && p[pi] == '%' {
			star, from = pi, si
			pi++
			continue
		}
		if n := matchOne(s[si], p[pi:]); n > 0 {
			si, pi = si+1, pi+n
			continue
		}
		if star < 0 {
			return false
		}
		from++
		si, pi = from, star+1
	}
	for pi < len(p) && p[pi] == '%' {
		pi++
	}
	return pi == len(p)
}

// matchOne is how much of the pattern the character matches; 0: it does not.
func matchOne(c rune, p []rune) int {
	switch {
	case len(p) == 0:
		return 0
	case p[0] == '_':
		return 1
	case p[0] == '\\' && len(p) > 1:
		if p[1] == c {
			return 2
		}
		return 0
	case p[0] == '[':
		return matchList(c, p)
	case p[0] == c:
		return 1
	}
	return 0
}

// matchList matches a list in brackets; one that is not closed is a character as any other.
func matchList(c rune, p []rune) int {
	i := 1
	not := i < len(p) && p[i] == '^'
	if not {
		i++
	}
	in := false
	for first := true; i < len(p) && (first || p[i] != ']'); first = false {
		if p[i] == '\\' && i+1 < len(p) {
			i++
		}
		low := p[i]
		high := low
		if i+2 < len(p) && p[i+1] == '-' && p[i+2] != ']' {
			high = p[i+2]
			i += 2
		}
		in = in || low <= c && c <= high
		i++
	}
	switch {
	case i >= len(p):
		if c == '[' {
			return 1
		}
		return 0
	case in == not:
		return 0
	}
	return i + 1
}
