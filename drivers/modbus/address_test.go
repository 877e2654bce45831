package modbus

import (
	"strings"
	"testing"
)

func TestD9Addresses(t *testing.T) {
	for _, row := range []struct {
		text, want string // want "" is a refusal
		reason     string
	}{
		{"holding:0", "holding:0", ""},
		{"holding:20", "holding:20", ""},
		{"40021", "holding:20", ""},
		{"400021", "holding:20", ""},
		{"465536", "holding:65535", ""},
		{"40001", "holding:0", ""},
		{"30001", "input:0", ""},
		{"10001", "discrete:0", ""},
		{"00001", "coil:0", ""},
		{"000022", "coil:21", ""},
		{"holding:40021", "holding:40021", ""}, // named: it is zero-based, whatever it looks like
		{"holding:30.4", "holding:30.4", ""},
		{"40031.15", "holding:30.15", ""},
		{"holding:65535", "holding:65535", ""},
		{"holding:65536", "", "from 0 to 65535"},
		{"465537", "", "from 1 to 65536"},
		{"40000", "", "from 1 to"},
		{"400000", "", "from 1 to"},
		{"4001", "", "ambiguous"},
		{"21", "", "ambiguous"},
		{"4000021", "", "ambiguous"},
		{"20001", "", "first digit of 2"},
		{"50001", "", "first digit of 5"},
		{"register:3", "", "table \"register\""},
		{"holding:-1", "", "not a number"},
		{"holding:", "", "not a number"},
		{"holding:1.16", "", "bit \"16\""},
		{"holding:1.", "", "bit \"\""},
		{"coil:3.1", "", "one bit already"},
		{"", "", "not an address"},
		{"temperature", "", "not an address"},
		{"+40021", "", "not an address"},
	} {
		a, err := ParseAddress(row.text)
		switch {
		case row.want == "" && err == nil:
			t.Errorf("%q was taken for %v", row.text, a)
		case row.want == "" && !strings.Contains(err.Error(), row.reason):
			t.Errorf("%q: %v; it does not say %q", row.text, err, row.reason)
		case row.want != "" && (err != nil || a.String() != row.want):
			t.Errorf("%q: %v, %v; want %s", row.text, a, err, row.want)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"holding:20", "40021", "400021", "holding:30.4", "coil:", "4.5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text)
		if err != nil {
			return
		}
		if a.Number < 0 || a.Number > lastAddress || a.Bit < -1 || a.Bit > 15 {
			t.Fatalf("%q: %+v", text, a)
		}
		if b, err := ParseAddress(a.String()); err != nil || b != a {
			t.Fatalf("%q is %v, and that is %v, %v", text, a, b, err)
		}
	})
}

func TestParseSpan(t *testing.T) {
	for text, want := range map[string]span{
		"holding:12-19": {Holding, 12, 20},
		"coil:3":        {Coils, 3, 4},
		"40013-19":      {Holding, 12, 20},
		"holding:19-12": {}, "holding:1-": {}, "holding:1-70000": {}, "holding:1.3": {}, "12-19": {},
	} {
		s, err := parseSpan(text)
		if s != want || (err == nil) != (want != span{}) {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
}
