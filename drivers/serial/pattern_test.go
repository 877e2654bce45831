package serial

import (
	"regexp"
	"slices"
	"testing"
)

var patterns = []string{
	`^S (?P<state>[SD]) +(?P<value>-? *[0-9.]+) (?P<unit>\S+)`, `a*`, `(a|ab)(c|bcd)(d*)`, `(?i)gp(rmc|gga),`, `^$`, `x*?y`, `(a+)(b+)?$`,
	`\b\w+\b`, `(?m)^b$`, `1-0:1\.8\.1\(([0-9.]+)\*kWh\)`, `(a*)*b`, `[^,]*,([^,]*),`, `(|a)+`, `(?s).\n.`, `(a{2,3}){2}`,
}

// TestPatternIsRegexp compares the matcher with package regexp.
func TestPatternIsRegexp(t *testing.T) {
	for _, text := range patterns {
		for _, in := range []string{"", "a", "ab", "abcd", "S S   -  12.5 kg", "S D 1 g", "$GPRMC,1", "aab", "xxyy", "aaaaaa", "aaab", "a\nb\nc", "one two",
			"x1-0:1.8.1(001.5*kWh)", "a,b,c", "..1-0:1.8.1()1-0:1.8.1(2*kWh)"} {
			compare(t, text, in)
		}
	}
}

func compare(t *testing.T, text, in string) {
	t.Helper()
	p, err := newPattern(text)
	if err != nil {
		return
	}
	want := regexp.MustCompile(text).FindStringSubmatchIndex(in)
	var m matcher
	if found := m.find(p, []byte(in)); found != (want != nil) || found && !slices.Equal(m.caps, want) {
		t.Errorf("%q in %q: %v at %v, regexp has %v", text, in, found, m.caps, want)
	}
}

func FuzzPattern(f *testing.F) {
	for _, p := range patterns {
		f.Add(p, "aab,1-0:1.8.1(2*kWh)")
	}
	f.Fuzz(func(t *testing.T, text, in string) {
		if len(text) > 60 || len(in) > 200 {
			return
		}
		for _, s := range []string{text, in} {
			for _, r := range s {
				if r >= 0x80 { // bytes are characters here
					return
				}
			}
		}
		compare(t, text, in)
	})
}

func TestScanPattern(t *testing.T) {
	for _, row := range []struct {
		scan, in string
		want     []string // nil: no match
	}{
		{"S %c %f %s", "S S      -100.25 kg", []string{"S", "-100.25", "kg"}},
		{"S %c %f", "S S --- kg", nil},
		{"%d,%x", "  -12, 0aF", []string{"-12", "0aF"}},
		{"%*s %d%%", "load 57%", []string{"57"}},
		{"%3c%4f", "abc12.5xyz", []string{"abc", "12.5"}},
		{"w=%f", "w=+ 1e3", []string{"+ 1e3"}},
		{"w.%d", "wx1", nil},
	} {
		expr, err := scanPattern(row.scan)
		if err != nil {
			t.Fatal(err)
		}
		p, err := newPattern(expr)
		if err != nil {
			t.Fatal(err)
		}
		var m matcher
		var got []string
		if m.find(p, []byte(row.in)) {
			for i := 2; i < len(m.caps); i += 2 {
				got = append(got, row.in[m.caps[i]:m.caps[i+1]])
			}
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%q in %q: %q, want %q", row.scan, row.in, got, row.want)
		}
	}
	for _, bad := range []string{"%", "%q", "%*", "%**d", "%99999s"} {
		if _, err := scanPattern(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestPatternDoesNotAllocate(t *testing.T) {
	p, err := newPattern(patterns[0])
	if err != nil {
		t.Fatal(err)
	}
	var m matcher
	in := []byte("S S     100.25 kg")
	if n := testing.AllocsPerRun(200, func() { m.find(p, in) }); n != 0 {
		t.Errorf("%v allocations a search", n)
	}
}

func BenchmarkPattern(b *testing.B) {
	p, err := newPattern(patterns[0])
	if err != nil {
		b.Fatal(err)
	}
	in := []byte("S S     100.25 kg")
	b.Run("ours", func(b *testing.B) {
		var m matcher
		b.ReportAllocs()
		for b.Loop() {
			m.find(p, in)
		}
	})
	b.Run("regexp", func(b *testing.B) {
		re := regexp.MustCompile(patterns[0])
		b.ReportAllocs()
		for b.Loop() {
			re.FindSubmatchIndex(in)
		}
	})
}
