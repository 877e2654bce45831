package serial

import (
	"fmt"
	"strings"
	"time"

	"edged/drivers/tag"
)

// layout is how a time is written: YYYY or YY, MM, DD, hh, mm and ss, and X for the S (summer) or W (winter) of a meter
// that keeps Central European Time. Other characters stand for themselves. Digits after a point behind the last ss are a
// part of a second. Without X it is UTC.
type layout string

var layoutTokens = []string{"YYYY", "YY", "MM", "DD", "hh", "mm", "ss", "X"}

func newLayout(text string) (layout, error) {
	if !strings.Contains(text, "YY") || !strings.Contains(text, "MM") || !strings.Contains(text, "DD") {
		return "", fmt.Errorf("%q is no layout of a time: it needs YYYY or YY, MM and DD, such as YYMMDDhhmmss", text)
	}
	return layout(text), nil
}

// parse reads a time. Two digits of a year are of this century.
func (l layout) parse(b []byte) (tag.Time, bool) {
	year, month, day, hour, minute, second := 0, 0, 0, 0, 0, 0
	var zone time.Duration
	for l != "" {
		token := l.token()
		if len(b) < len(token) {
			return 0, false
		}
		n, digits := 0, true
		for _, c := range b[:len(token)] {
			digits = digits && c >= '0' && c <= '9'
			n = n*10 + int(c-'0')
		}
		switch token {
		case "YYYY":
			year = n
		case "YY":
			year = 2000 + n
		case "MM":
			month = n
		case "DD":
			day = n
		case "hh":
			hour = n
		case "mm":
			minute = n
		case "ss":
			second = n
		case "X":
			if digits = b[0] == 'S' || b[0] == 'W'; b[0] == 'S' {
				zone = 2 * time.Hour
			} else {
				zone = time.Hour
			}
		default:
			digits = string(b[:1]) == string(token)
		}
		if !digits {
			return 0, false
		}
		b, l = b[len(token):], l[len(token):]
	}
	part, ok := fraction(b)
	t := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	if !ok || month < 1 || month > 12 || t.Day() != day || hour > 23 || minute > 59 || second > 60 {
		return 0, false
	}
	return tag.TimeOf(t.Add(part - zone)), true
}

// token is the first of the layout's parts.
func (l layout) token() layout {
	for _, t := range layoutTokens {
		if strings.HasPrefix(string(l), t) {
			return layout(t)
		}
	}
	return l[:1]
}

// fraction reads a part of a second such as .25; nothing is 0.
func fraction(b []byte) (time.Duration, bool) {
	if len(b) == 0 {
		return 0, true
	}
	if b[0] != '.' {
		return 0, false
	}
	part, unit := time.Duration(0), time.Second
	for _, c := range b[1:] {
		if c < '0' || c > '9' {
			return 0, false
		}
		if unit /= 10; unit > 0 {
			part += unit * time.Duration(c-'0')
		}
	}
	return part, true
}
