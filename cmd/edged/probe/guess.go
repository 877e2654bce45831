package probe

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strings"
)

// Hint is a guess about what was heard.
type Hint struct {
	What string `json:"guess"`
	Why  string `json:"why"`
	Sure int    `json:"sure"` // percent
}

const (
	// Idle is the guess for a line on which nothing comes.
	Idle = "an idle line"
	// SureEnough is the percentage from which on no other setting need be tried.
	SureEnough = 80
	leastNoise = 24 // bytes that a guess about speed and parity needs
)

// guesses are the detectors. Each looks at all bytes and at their lines, and gives 0 for what it is not.
var guesses = []func(b []byte, lines []string) Hint{
	guessNMEA, guessMeter, guessSICS, guessASCII, guessRTU, guessSML, guessMBus, guessCodes, guessWeight, guessParity, guessText,
	guessFramed, guessBaud,
}

// Hear tells what the bytes may be, the likeliest first.
func Hear(b []byte) []Hint {
	if len(b) == 0 {
		return []Hint{{Idle, "nothing came: the instrument may be off, its line turned around (TX and RX), or it waits to be asked", 100}}
	}
	lines := strings.FieldsFunc(string(b), func(r rune) bool { return r == '\r' || r == '\n' })
	var out []Hint
	for _, g := range guesses {
		if h := g(b, lines); h.Sure > 0 {
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b Hint) int { return b.Sure - a.Sure })
	if len(out) == 0 {
		return []Hint{{"nothing that is known", fmt.Sprintf("%d bytes fit no guess: listen longer, or try other speeds (--scan)", len(b)), 0}}
	}
	return out
}

// share is how many of n are ok, in percent.
func share(ok, n int) int {
	if n == 0 {
		return 0
	}
	return 100 * ok / n
}

// whole are the lines but for the first and the last, of which listening may have cut a part.
func whole(lines []string) []string {
	if len(lines) > 2 {
		return lines[1 : len(lines)-1]
	}
	return lines
}

// guessNMEA knows NMEA 0183: $ or !, an address, fields, and after * the exclusive or of what lies between.
func guessNMEA(_ []byte, lines []string) Hint {
	good, bad := 0, 0
	kinds := map[string]bool{}
	for _, l := range whole(lines) {
		i := strings.LastIndexAny(l, "$!")
		star := strings.LastIndexByte(l, '*')
		if i < 0 || star < i+6 || star+3 > len(l) {
			continue
		}
		var sum byte
		for _, c := range []byte(l[i+1 : star]) {
			sum ^= c
		}
		if want, err := hex.DecodeString(l[star+1 : star+3]); err != nil || want[0] != sum {
			bad++
			continue
		}
		good++
		kinds[strings.SplitN(l[i+1:star], ",", 2)[0]] = true
	}
	if good == 0 {
		return Hint{}
	}
	return Hint{"NMEA 0183 (GPS, weather, marine instruments)", fmt.Sprintf("%d sentences with a right check sum, %d with a wrong one: %s",
		good, bad, few(kinds)), min(99, 60+share(good, good+bad)*4/10)}
}

func few(set map[string]bool) string {
	all := slices.Sorted(maps.Keys(set))
	if len(all) > 8 {
		return strings.Join(all[:8], ", ") + " ..."
	}
	return strings.Join(all, ", ")
}

var (
	meterHead = regexp.MustCompile(`/[A-Za-z]{3}[0-9A-Za-z][^\r\n]{0,40}\r?\n`)
	obis      = regexp.MustCompile(`(?m)^\d{1,3}-\d{1,3}:[0-9A-F]+\.\d+(\.\d+)?(\*\d+)?\(`)
	meterEnd  = regexp.MustCompile(`![0-9A-Fa-f]{4}\r?\n`)
	shortObis = regexp.MustCompile(`(?m)^(\d-\d:)?[0-9CFLP]\.\d+\.?\d*(\*\d+)?\(`)
)

// guessMeter knows IEC 62056-21 and DSMR P1, which adds a CRC of everything from / to !.
func guessMeter(b []byte, _ []string) Hint {
	head := meterHead.FindIndex(b)
	rows := len(obis.FindAll(b, -1))
	if rows == 0 {
		rows = len(shortObis.FindAll(b, -1))
	}
	if head == nil {
		if rows < 2 {
			return Hint{}
		}
		return Hint{"an electricity, gas or heat meter (IEC 62056-21 or DSMR P1)", fmt.Sprintf("%d OBIS lines; the head of a telegram did not come yet: listen longer", rows), 70}
	}
	if end := meterEnd.FindIndex(b[head[0]:]); end != nil {
		telegram := b[head[0] : head[0]+end[0]+1]
		sum := crc(0, telegram)
		if strings.EqualFold(fmt.Sprintf("%04X", sum), string(b[head[0]+end[0]+1:][:4])) {
			return Hint{"a DSMR P1 meter", fmt.Sprintf("a telegram of %d OBIS lines with a right CRC", rows), 99}
		}
		return Hint{"a DSMR P1 meter", fmt.Sprintf("a telegram of %d OBIS lines, and its CRC is wrong: noise, or a wrong speed or parity", rows), 70}
	}
	return Hint{"a meter (IEC 62056-21)", fmt.Sprintf("the head of a telegram and %d OBIS lines", rows), 50 + min(40, 8*rows)}
}

// crc is the CRC with the reversed polynomial 0xA001: from 0xFFFF it is that of Modbus RTU, from 0 that of DSMR P1.
func crc(c uint16, b []byte) uint16 {
	for _, v := range b {
		c ^= uint16(v)
		for range 8 {
			if c&1 == 1 {
				c = c>>1 ^ 0xA001
			} else {
				c >>= 1
			}
		}
	}
	return c
}

var (
	sics   = regexp.MustCompile(`^(S|SI|SU|SNR|ST) ([SDI+-]|[A-Z])( +-?\d+(\.\d+)? +\S+)?\s*$|^(I\d|T|TI|TA|Z|ZI|D|M\d\d) [ABDISL+-]\b.*$|^(ES|EL|ET)$`)
	weight = regexp.MustCompile(`(?i)[+-]?\s*\d+([.,]\d+)?\s*(kg|g|mg|lb|oz|t|ct|N|mm|°?C|bar)\b`)
)

// guessSICS knows the answers of Mettler Toledo's MT-SICS.
func guessSICS(_ []byte, lines []string) Hint {
	n := 0
	example := ""
	for _, l := range lines {
		if sics.MatchString(strings.TrimSpace(l)) {
			n++
			example = l
		}
	}
	if n == 0 || share(n, len(lines)) < 50 {
		return Hint{}
	}
	return Hint{"a scale that talks MT-SICS", fmt.Sprintf("%d of %d lines, such as %q", n, len(lines), clip(example)), min(95, 60+share(n, len(lines))*35/100)}
}

// guessWeight knows instruments that print a value with its unit.
func guessWeight(_ []byte, lines []string) Hint {
	n := 0
	example := ""
	for _, l := range lines {
		if weight.MatchString(l) {
			n++
			example = l
		}
	}
	if n == 0 || share(n, len(lines)) < 50 {
		return Hint{}
	}
	return Hint{"a scale or gauge that sends lines", fmt.Sprintf("%d of %d lines have a number with a unit, such as %q", n, len(lines), clip(example)), 65}
}

// guessCodes knows readers of article numbers, by their check digit (GTIN).
func guessCodes(_ []byte, lines []string) Hint {
	n := 0
	for _, l := range lines {
		if gtin(strings.Trim(l, "\x02\x03 ")) {
			n++
		}
	}
	if n == 0 || share(n, len(lines)) < 60 {
		return Hint{}
	}
	return Hint{"a barcode reader", fmt.Sprintf("%d of %d lines are article numbers with a right check digit", n, len(lines)), min(95, 70+5*n)}
}

func gtin(s string) bool {
	if n := len(s); n != 8 && n != 12 && n != 13 && n != 14 {
		return false
	}
	sum := 0
	for i := range len(s) {
		c := s[len(s)-1-i]
		if c < '0' || c > '9' {
			return false
		}
		if d := int(c - '0'); i%2 == 1 {
			sum += 3 * d
		} else {
			sum += d
		}
	}
	return sum%10 == 0
}

// guessASCII knows Modbus ASCII: a colon, hexadecimal digits, and the LRC with which the sum of all bytes is 0.
func guessASCII(_ []byte, lines []string) Hint {
	units, n := map[string]bool{}, 0
	for _, l := range lines {
		_, digits, colon := strings.Cut(l, ":")
		b, err := hex.DecodeString(digits)
		if !colon || err != nil || len(b) < 4 {
			continue
		}
		var sum byte
		for _, v := range b {
			sum += v
		}
		if sum == 0 {
			n++
			units[fmt.Sprint(b[0])] = true
		}
	}
	if n == 0 {
		return Hint{}
	}
	return Hint{"Modbus ASCII: somebody asks devices on this line", fmt.Sprintf("%d frames with a right LRC, units %s", n, few(units)), 95}
}

// guessRTU knows Modbus RTU by its CRC.
func guessRTU(b []byte, _ []string) Hint {
	units, frames, covered := map[string]bool{}, 0, 0
	for i := 0; i+4 <= len(b); {
		n := rtuSize(b[i:])
		if n == 0 {
			i++
			continue
		}
		units[fmt.Sprint(b[i])] = true
		frames, covered, i = frames+1, covered+n, i+n
	}
	// One frame of four bytes in noise is a matter of 65,536 tries; a row of them is none of chance.
	if frames == 0 {
		return Hint{}
	}
	sure := 50 + min(45, 15*frames)
	if share(covered, len(b)) < 50 && frames < 3 {
		sure = 30
	}
	return Hint{"Modbus RTU: somebody asks devices on this line", fmt.Sprintf("%d frames with a right CRC, units %s", frames, few(units)), sure}
}

// rtuSize is the length of the RTU frame at the start of b, a request or an answer, or 0.
func rtuSize(b []byte) int {
	sizes := []int{}
	switch f := b[1]; {
	case f >= 0x81 && f <= 0xAB:
		sizes = append(sizes, 5)
	case f >= 1 && f <= 4:
		sizes = append(sizes, 8, 5+int(b[2]))
	case f == 5, f == 6:
		sizes = append(sizes, 8)
	case f == 15, f == 16:
		sizes = append(sizes, 8)
		if len(b) > 6 {
			sizes = append(sizes, 9+int(b[6]))
		}
	case f == 22:
		sizes = append(sizes, 10)
	case f == 23:
		sizes = append(sizes, 5+int(b[2]))
		if len(b) > 10 {
			sizes = append(sizes, 13+int(b[10]))
		}
	case f == 43:
		sizes = append(sizes, 7)
	}
	for _, n := range sizes {
		if n <= len(b) && n <= 256 && crc(0xFFFF, b[:n-2]) == uint16(b[n-2])|uint16(b[n-1])<<8 {
			return n
		}
	}
	return 0
}

var smlStart = []byte{0x1B, 0x1B, 0x1B, 0x1B, 1, 1, 1, 1}

// guessSML knows the Smart Message Language of German meters, by its escape sequence.
func guessSML(b []byte, _ []string) Hint {
	if n := bytes.Count(b, smlStart); n > 0 {
		return Hint{"a meter that sends SML", fmt.Sprintf("%d times the start of a message, 1b1b1b1b 01010101", n), 95}
	}
	return Hint{}
}

// guessMBus knows long frames of M-Bus (EN 13757-2): 68 L L 68, L bytes, their sum, 16.
func guessMBus(b []byte, _ []string) Hint {
	for i := 0; i+6 <= len(b); i++ {
		n := int(b[i+1])
		if b[i] != 0x68 || b[i+2] != b[i+1] || b[i+3] != 0x68 || n < 3 || i+n+6 > len(b) || b[i+n+5] != 0x16 {
			continue
		}
		var sum byte
		for _, v := range b[i+4 : i+4+n] {
			sum += v
		}
		if sum == b[i+4+n] {
			return Hint{"M-Bus", fmt.Sprintf("a long frame of %d bytes with a right check sum", n), 95}
		}
	}
	return Hint{}
}

// printable is how many of the bytes are readable.
func printable(b []byte) (n int) {
	for _, c := range b {
		if c >= ' ' && c <= '~' || c == '\r' || c == '\n' || c == '\t' {
			n++
		}
	}
	return n
}

// guessText is for lines of text of any kind.
func guessText(b []byte, lines []string) Hint {
	if share(printable(b), len(b)) < 95 {
		return Hint{}
	}
	end := "no line end"
	switch {
	case bytes.Contains(b, []byte("\r\n")):
		end = "CR LF"
	case bytes.IndexByte(b, '\r') >= 0:
		end = "CR"
	case bytes.IndexByte(b, '\n') >= 0:
		end = "LF"
	}
	example := lines
	if w := whole(lines); len(w) > 0 {
		example = w
	}
	if len(example) == 0 {
		return Hint{}
	}
	return Hint{"lines of text", fmt.Sprintf("%d lines, ended by %s, such as %q: speed and parity are right", len(lines), end, clip(example[0])), 50}
}

// guessFramed is for frames between STX and ETX.
func guessFramed(b []byte, _ []string) Hint {
	starts, n := 0, 0
	for rest := b; ; {
		i := bytes.IndexByte(rest, 0x02)
		if i < 0 {
			break
		}
		starts++
		end := bytes.IndexAny(rest[i:], "\x03\r")
		if end < 0 {
			break
		}
		if part := rest[i+1 : i+end]; len(part) > 0 && share(printable(part), len(part)) > 90 {
			n++
		}
		rest = rest[i+end:]
	}
	if n == 0 || 2*n < starts {
		return Hint{}
	}
	return Hint{"frames of text that begin with STX (02)", fmt.Sprintf("%d of them, ended by ETX (03) or CR", n), 60}
}

// guessParity knows 7 data bits with parity that are heard as 8 without: without the eighth bit it is text, and the bit
// is its parity.
func guessParity(b []byte, _ []string) Hint {
	if len(b) < leastNoise || share(printable(b), len(b)) >= 95 {
		return Hint{}
	}
	plain := make([]byte, len(b))
	even := 0
	for i, c := range b {
		plain[i] = c & 0x7F
		even += 1 - bits.OnesCount8(c)&1
	}
	if share(printable(plain), len(b)) < 95 {
		return Hint{}
	}
	switch {
	case share(even, len(b)) >= 98:
		return Hint{"text with 7 data bits and even parity", "without its eighth bit it is text, and that bit is the parity: try data=7&parity=even", 90}
	case share(even, len(b)) <= 2:
		return Hint{"text with 7 data bits and odd parity", "without its eighth bit it is text, and that bit is the parity: try data=7&parity=odd", 90}
	}
	return Hint{}
}

// guessBaud knows what a wrong speed makes of any line. One that is read too fast shows long rows of equal bits; one
// that is read too slow, or with a wrong parity, no text and no pattern.
func guessBaud(b []byte, _ []string) Hint {
	if len(b) < leastNoise || share(printable(b), len(b)) > 60 {
		return Hint{}
	}
	rows := 0
	for _, c := range b {
		// A row of equal bits from either end: 00, 80, c0, ... ff, and 01, 03, ... 7f.
		if n := int(c); n&(n+1) == 0 || ^n&0xFF&((^n&0xFF)+1) == 0 {
			rows++
		}
	}
	if share(rows, len(b)) >= 50 {
		return Hint{"a wrong speed: the line is read too fast", fmt.Sprintf("%d of %d bytes are long rows of equal bits: try lower speeds (--scan)", rows, len(b)), 70}
	}
	return Hint{"a wrong speed or parity, or a binary protocol that is not known", fmt.Sprintf("only %d of %d bytes are readable: try other speeds (--scan)",
		printable(b), len(b)), 40}
}

// clip bounds an example.
func clip(s string) string {
	if len(s) > 60 {
		return s[:57] + "..."
	}
	return s
}
