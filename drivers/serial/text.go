package serial

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// unescape reads a text of the site file that stands for bytes: \r, \n, \t, \\ and \xHH are what they are in most
// languages, and what begins with hex: is bytes in hexadecimal, spaces ignored. A character beyond ASCII is its UTF-8.
func unescape(s string) ([]byte, error) {
	if digits, ok := strings.CutPrefix(s, "hex:"); ok {
		b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		if err != nil {
			return nil, fmt.Errorf("%q is no row of bytes such as hex:AA 55", s)
		}
		return b, nil
	}
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		i++
		if i == len(s) {
			return nil, fmt.Errorf("%q ends with a single backslash: write two for one", s)
		}
		switch s[i] {
		case 'r':
			out = append(out, '\r')
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case '\\':
			out = append(out, '\\')
		case 'x':
			if i+2 >= len(s) {
				return nil, fmt.Errorf("%q: \\x needs two hexadecimal digits", s)
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return nil, fmt.Errorf("%q: \\x needs two hexadecimal digits", s)
			}
			out = append(out, byte(n))
			i += 2
		default:
			return nil, fmt.Errorf("%q: \\%c is not known: use \\r, \\n, \\t, \\xHH or \\\\", s, s[i])
		}
	}
	return out, nil
}

// mostShown is how many bytes of what a device said messages show.
const mostShown = 80

// shown is what a device said, for people: bounded, control characters escaped.
func shown(b []byte) string {
	if len(b) > mostShown {
		return strconv.QuoteToASCII(latin(b[:mostShown])) + fmt.Sprintf(" and %d bytes more", len(b)-mostShown)
	}
	return strconv.QuoteToASCII(latin(b))
}

// latin takes each byte for the character of its number.
func latin(b []byte) string {
	r := make([]rune, len(b))
	for i, x := range b {
		r[i] = rune(x)
	}
	return string(r)
}
