package serial

import "fmt"

// Checksum is how a frame says that it is whole. The zero Checksum is none.
type Checksum struct {
	Kind     string // sum8, sum16, xor (the BCC of many instruments), lrc, or a CRC-16 by its usual name, such as crc16-modbus
	Form     string // binary (default), or hex: as hexadecimal digits
	Order    string // high_first or low_first; default: what is usual for the kind, and high_first as digits
	Place    string // before_end (default): directly before the frame's end; behind_end: after it
	Mark     string // text between what is covered and the checksum, itself not covered
	From     int    // bytes at the frame's beginning that are not covered
	Optional bool   // a frame without Mark has no checksum
}

// sumKind is one way to compute a checksum.
type sumKind struct {
	size     int // bytes
	lowFirst bool
	of       func(b []byte) uint16
}

// The words of Checksum.
const (
	formBinary, formHex                = "binary", "hex"
	orderHigh, orderLow                = "high_first", "low_first"
	placeBeforeEnd, placeBehind        = "before_end", "behind_end"
	sumKinds                           = "sum8, sum16, xor, lrc, crc16-modbus, crc16-arc, crc16-ccitt, crc16-xmodem, crc16-kermit, crc16-x25"
	polyModbus, polyCCITT              = 0xA001, 0x1021 // reflected, straight
	polyKermit, noXor, fullXor         = 0x8408, 0, 0xFFFF
	startZero, startOnes        uint16 = 0, 0xFFFF
)

// The names of the CRCs are those of the catalogue of parametrised CRC algorithms: crc16-ccitt is IBM-3740 there
// ("CCITT-FALSE"), crc16-x25 is IBM-SDLC.
var sums = map[string]sumKind{
	"sum8":         {1, false, func(b []byte) uint16 { return uint16(byte(sum(b))) }},
	"sum16":        {2, false, sum},
	"xor":          {1, false, xor},
	"lrc":          {1, false, func(b []byte) uint16 { return uint16(-byte(sum(b))) }},
	"crc16-modbus": {2, true, reflected(polyModbus, startOnes, noXor)},
	"crc16-arc":    {2, true, reflected(polyModbus, startZero, noXor)},
	"crc16-ccitt":  {2, false, straight(polyCCITT, startOnes)},
	"crc16-xmodem": {2, false, straight(polyCCITT, startZero)},
	"crc16-kermit": {2, true, reflected(polyKermit, startZero, noXor)},
	"crc16-x25":    {2, true, reflected(polyKermit, startOnes, fullXor)},
}

func sum(b []byte) (s uint16) {
	for _, x := range b {
		s += uint16(x)
	}
	return s
}

func xor(b []byte) uint16 {
	var s byte
	for _, x := range b {
		s ^= x
	}
	return uint16(s)
}

// reflected is a CRC that takes the least significant bit first.
func reflected(poly, start, end uint16) func([]byte) uint16 {
	var table [256]uint16
	for i := range table {
		c := uint16(i)
		for range 8 {
			if c&1 != 0 {
				c = c>>1 ^ poly
			} else {
				c >>= 1
			}
		}
		table[i] = c
	}
	return func(b []byte) uint16 {
		c := start
		for _, x := range b {
			c = c>>8 ^ table[byte(c)^x]
		}
		return c ^ end
	}
}

// straight is a CRC that takes the most significant bit first.
func straight(poly, start uint16) func([]byte) uint16 {
	var table [256]uint16
	for i := range table {
		c := uint16(i) << 8
		for range 8 {
			if c&0x8000 != 0 {
				c = c<<1 ^ poly
			} else {
				c <<= 1
			}
		}
		table[i] = c
	}
	return func(b []byte) uint16 {
		c := start
		for _, x := range b {
			c = c<<8 ^ table[byte(c>>8)^x]
		}
		return c
	}
}

// check is a Checksum made ready.
type check struct {
	sumKind
	hex, behind, optional bool
	mark                  []byte
	from                  int
}

// ready reads the words of a Checksum; nil without an error: there is none.
func (c *Checksum) ready() (*check, *FieldError) {
	if c.Kind == "" {
		if *c != (Checksum{}) {
			return nil, wrong("frame.checksum", "kind is missing: it is one of %s", sumKinds)
		}
		return nil, nil
	}
	kind, ok := sums[c.Kind]
	if !ok {
		return nil, wrong("frame.checksum.kind", "%q is not one of %s", c.Kind, sumKinds)
	}
	out := &check{sumKind: kind, hex: c.Form == formHex, behind: c.Place == placeBehind, optional: c.Optional, from: c.From}
	mark, err := unescape(c.Mark)
	switch {
	case err != nil:
		return nil, wrong("frame.checksum.mark", "%v", err)
	case c.Optional && len(mark) == 0:
		return nil, wrong("frame.checksum.optional", "only a mark tells that there is no checksum: give one, or remove optional")
	case out.behind && len(mark) > 0:
		return nil, wrong("frame.checksum.mark", "the frame's end stands before a checksum that is behind it: remove mark")
	case c.From < 0 || c.From > maxFrame:
		return nil, wrong("frame.checksum.from", "%d is not from 0 to %d", c.From, maxFrame)
	}
	out.mark = mark
	if out.hex {
		out.size *= 2
		out.lowFirst = false
	}
	if c.Order != "" {
		out.lowFirst = c.Order == orderLow
	}
	return out, nil
}

// append adds the checksum of b, of which the first from bytes are not covered.
func (c *check) append(dst, b []byte) []byte {
	v := c.of(b[min(c.from, len(b)):])
	bytes := [2]byte{byte(v >> 8), byte(v)}
	if c.lowFirst {
		bytes[0], bytes[1] = bytes[1], bytes[0]
	}
	part := bytes[:]
	switch {
	case c.width() == 2:
	case c.lowFirst:
		part = bytes[:1]
	default:
		part = bytes[1:]
	}
	for _, x := range part {
		if c.hex {
			const digits = "0123456789ABCDEF"
			dst = append(dst, digits[x>>4], digits[x&15])
		} else {
			dst = append(dst, x)
		}
	}
	return dst
}

// width is the checksum's bytes, whatever its form.
func (c *check) width() int {
	if c.hex {
		return c.size / 2
	}
	return c.size
}

// verify looks at a frame's checksum, which stands at at. body is where what it covers ends. whole is false if it is
// wrong.
func (c *check) verify(frame []byte, at int) (body int, err error) {
	body = at - len(c.mark)
	if body < 0 || at+c.size > len(frame) || string(frame[body:at]) != string(c.mark) {
		return 0, errNoChecksum
	}
	var room [4]byte
	want := c.append(room[:0], frame[:body])
	for i, x := range frame[at : at+c.size] {
		if c.hex && x >= 'a' && x <= 'f' {
			x -= 'a' - 'A'
		}
		if x != want[i] {
			return 0, errChecksum
		}
	}
	return body, nil
}

var (
	errChecksum   = fmt.Errorf("the checksum is wrong")
	errNoChecksum = fmt.Errorf("there is no checksum where it belongs")
)
