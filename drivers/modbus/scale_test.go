package modbus

import (
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"edged/drivers/tag"
)

// scaledField is the field of a holding register with scale and offset.
func scaledField(t testing.TB, typ, scale, offset, decimals string) *field {
	t.Helper()
	tg := Tag{Name: "t", Address: "holding:0", Type: typ, Scale: scale, Offset: offset, Decimals: decimals,
		Access: tag.Readable | tag.Writable}
	f, errs := tg.field(&Config{})
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	return f
}

func TestScaleIsExactInDecimal(t *testing.T) {
	for _, row := range []struct {
		typ, scale, offset, decimals string
		raw                          uint64
		want                         float64
	}{
		{"uint16", "0.1", "", "", 68, 6.8},
		{"uint16", "0.01", "", "", 2999, 29.99},
		{"uint16", "0.1", "-40", "", 655, 25.5},
		{"int16", "0.1", "-273.15", "", 0xFFFF, -273.25},
		{"int16", "-0.5", "", "", 3, -1.5},
		{"uint16", "1e-3", "", "", 1234, 1.234},
		{"uint16", "2.5e2", "", "", 3, 750},
		{"uint16", "", "0.1", "", 7, 7.1},
		{"uint16", "0.001", "", "1", 1251, 1.3},
		{"int16", "0.001", "", "1", 0x10000 - 1251, -1.3},
		{"uint32", "0.001", "", "", 4294967295, 4294967.295},
		{"int64", "0.001", "", "", 9007199254740993, 9007199254740.993},
		{"uint64", "0.1", "", "", math.MaxUint64, 1844674407370955161.5},
		{"float32", "10", "", "1", uint64(math.Float32bits(2.34)), 23.4},
	} {
		f := scaledField(t, row.typ, row.scale, row.offset, row.decimals)
		bits, status := f.number(row.raw)
		if v := math.Float64frombits(bits); status != tag.Good || v != row.want {
			t.Errorf("%s %d * %s + %s: %s, want %s", row.typ, row.raw, row.scale, row.offset,
				strconv.FormatFloat(v, 'g', -1, 64), strconv.FormatFloat(row.want, 'g', -1, 64))
		}
	}
}

func TestScaleIdentityForEvery16BitRaw(t *testing.T) {
	for _, typ := range []string{"uint16", "int16"} {
		for _, s := range [][2]string{{"0.1", "-40"}, {"0.001", ""}, {"-0.5", "273.15"}, {"0.0625", ""}, {"1.8", "32"}, {"0.3", "0.7"}} {
			f := scaledField(t, typ, s[0], s[1], "")
			for raw := range uint64(1 << 16) {
				v, _ := f.number(raw)
				back, status := f.rawOf(v)
				if status != tag.Good || back&0xFFFF != raw {
					t.Fatalf("%s %d * %s + %s is %v, and that is %d (%v)", typ, raw, s[0], s[1], math.Float64frombits(v), back&0xFFFF, status)
				}
				if raw%61 != 0 {
					continue
				}
				if text := strconv.FormatFloat(math.Float64frombits(v), 'f', -1, 64); len(text) > 14 {
					t.Fatalf("%s %d * %s + %s reads %s", typ, raw, s[0], s[1], text)
				}
			}
		}
	}
}

func TestScaleIdentityProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(0, 6).Draw(t, "places")
		mantissa := rapid.Int64Range(-100000, 100000).Filter(func(n int64) bool { return n != 0 }).Draw(t, "scale")
		offset := rapid.Int64Range(-1000000, 1000000).Draw(t, "offset")
		s, err := newScaling(decimal{mantissa, places}, decimal{offset, places}, -1)
		if err != nil {
			t.Fatal(err)
		}
		raw := rapid.Int32().Draw(t, "raw")
		got, _, ok := s.raw(s.value(int64(raw)))
		if !ok || int64(got) != int64(raw) {
			t.Fatalf("%d -> %v -> %d", raw, s.value(int64(raw)), int64(got))
		}
	})
}

func TestRangeOfScaledWrites(t *testing.T) {
	for _, row := range []struct {
		typ, scale string
		value      float64
		status     tag.Status
		raw        uint64
	}{
		{"uint16", "0.1", 6.8, tag.Good, 68},
		{"uint16", "0.1", 6.84, tag.Good, 68},
		{"uint16", "0.1", 6553.5, tag.Good, 65535},
		{"uint16", "0.1", 6553.6, tag.BadOutOfRange, 0},
		{"uint16", "0.1", -0.1, tag.BadOutOfRange, 0},
		{"int16", "0.1", -3276.8, tag.Good, 0xFFFFFFFFFFFF8000},
		{"int16", "0.1", -3276.9, tag.BadOutOfRange, 0},
		{"int16", "0.1", 3276.8, tag.BadOutOfRange, 0},
		{"uint64", "0.1", 1e30, tag.BadOutOfRange, 0},
		{"uint64", "1", 18446744073709549568, tag.Good, 18446744073709549568},
		{"int64", "1", -9223372036854775808, tag.Good, 1 << 63},
		{"uint16", "0.1", math.NaN(), tag.BadOutOfRange, 0},
		{"uint16", "0.1", math.Inf(1), tag.BadOutOfRange, 0},
		{"float32", "0.1", 1e300, tag.BadOutOfRange, 0},
		{"float64", "0.5", 1, tag.Good, math.Float64bits(2)},
		{"float64", "1e-15", 1e308, tag.BadOutOfRange, 0},
	} {
		f := scaledField(t, row.typ, row.scale, "", "")
		raw, status := f.rawOf(math.Float64bits(row.value))
		if status != row.status || status == tag.Good && raw != row.raw {
			t.Errorf("%s %v / %s: %x, %v; want %x, %v", row.typ, row.value, row.scale, raw, status, row.raw, row.status)
		}
	}
}

func TestParseDecimal(t *testing.T) {
	for text, want := range map[string]decimal{
		"0.1": {1, 1}, "-40": {-40, 0}, "-0.5": {-5, 1}, "1.50": {15, 1}, "1e3": {1000, 0}, "2.5e-3": {25, 4}, ".5": {5, 1}, "-.25": {-25, 2},
	} {
		if d, err := parseDecimal(text); err != nil || d != want {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "x", "1.", "1.2.3", "0.+1", "1e99", "1e", "--1", "0x1", "NaN", "0.0000000000000001", "99999999999999999999"} {
		if d, err := parseDecimal(text); err == nil {
			t.Errorf("%q was taken for %v", text, d)
		}
	}
}

func FuzzParseDecimal(f *testing.F) {
	f.Add("0.1", int64(68))
	f.Add("-2.5e3", int64(-1))
	f.Fuzz(func(t *testing.T, text string, raw int64) {
		d, err := parseDecimal(text)
		if err != nil || d.mantissa == 0 {
			return
		}
		s, err := newScaling(d, decimal{}, -1)
		if err != nil {
			return
		}
		if v := s.value(raw); math.IsNaN(v) {
			t.Fatalf("%d * %q is NaN", raw, text)
		}
	})
}
