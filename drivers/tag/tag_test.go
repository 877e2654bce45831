package tag

import (
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"
)

func TestValueKeepsWhatItWasMadeOf(t *testing.T) {
	for _, c := range []struct {
		v    Value
		kind Kind
		any  any
		text string
	}{
		{Value{}, Null, nil, "null"},
		{Of(true), Bool, true, "true"},
		{Of(int8(-3)), Int8, int8(-3), "-3"},
		{Of(uint8(250)), Uint8, uint8(250), "250"},
		{Of(int16(math.MinInt16)), Int16, int16(math.MinInt16), "-32768"},
		{Of(uint16(65535)), Uint16, uint16(65535), "65535"},
		{Of(int32(-70000)), Int32, int32(-70000), "-70000"},
		{Of(uint32(math.MaxUint32)), Uint32, uint32(math.MaxUint32), "4294967295"},
		{Of(int64(math.MinInt64)), Int64, int64(math.MinInt64), "-9223372036854775808"},
		{Of(uint64(math.MaxUint64)), Uint64, uint64(math.MaxUint64), "18446744073709551615"},
		{Of(float32(0.1)), Float32, float32(0.1), "0.1"},
		{Of(-2.5), Float64, -2.5, "-2.5"},
		{Of("kg"), String, "kg", "kg"},
		{Of(""), String, "", ""},
		{Of(BadTimeout), StatusCode, BadTimeout, "BadTimeout"},
		{OfBytes([]byte{1, 2}), ByteString, []byte{1, 2}, "[1 2]"},
		{OfBytes(nil), ByteString, []byte(nil), "[]"},
		{OfSlice([]int16{1, -1}), Int16, []int16{1, -1}, "[1 -1]"},
		{OfSlice([]bool{true, false}), Bool, []bool{true, false}, "[true false]"},
		{OfSlice([]string{"a", ""}), String, []string{"a", ""}, "[a ]"},
		{OfSlice([][]byte{{1}, nil}), ByteString, [][]byte{{1}, nil}, "[[1] []]"},
		{OfSlice([]float64{}), Float64, []float64{}, "[]"},
	} {
		if c.v.Kind() != c.kind || !reflect.DeepEqual(c.v.Any(), c.any) || c.v.String() != c.text {
			t.Errorf("%v: kind %v, any %#v, text %q; want %v, %#v, %q", c.any, c.v.Kind(), c.v.Any(), c.v, c.kind, c.any, c.text)
		}
		if !c.v.Equal(c.v) {
			t.Errorf("%v does not equal itself", c.any)
		}
	}
}

func TestEqualTellsValuesApart(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name string
		a, b Value
		same bool
	}{
		{"equal texts in different memory", Of("ab" + string([]byte{'c'})), Of("abc"), true},
		{"texts of one length", Of("abc"), Of("abd"), false},
		{"empty text and null", Of(""), Value{}, false},
		{"null and empty ByteString differ (Part 6, 5.2.2.7)", OfBytes(nil), OfBytes([]byte{}), false},
		{"kinds", Of(int32(1)), Of(uint32(1)), false},
		{"scalar and array", Of(uint8(1)), OfSlice([]uint8{1}), false},
		{"the same NaN has not moved", Of(nan), Of(nan), true},
		{"zero and minus zero", Of(0.0), Of(math.Copysign(0, -1)), false},
		{"arrays", OfSlice([]uint32{1, 2}), OfSlice([]uint32{1, 3}), false},
		{"equal arrays", OfSlice([]uint32{1, 2}), OfSlice([]uint32{1, 2}), true},
		{"text arrays", OfSlice([]string{"a", "b"}), OfSlice([]string{"a", "b"}), true},
		{"byte string arrays", OfSlice([][]byte{{1}}), OfSlice([][]byte{{2}}), false},
		{"raw", OfRaw([]byte{1, 1}), OfRaw([]byte{1, 0}), false},
	} {
		if c.a.Equal(c.b) != c.same || c.b.Equal(c.a) != c.same {
			t.Errorf("%s: Equal is not %v", c.name, c.same)
		}
	}
}

func TestSliceRefusesAnotherType(t *testing.T) {
	if _, ok := Slice[int16](OfSlice([]uint16{1})); ok {
		t.Error("a UInt16 array was given out as Int16")
	}
	if _, ok := Slice[uint16](Of(uint16(1))); ok {
		t.Error("a scalar was given out as an array")
	}
	if s, ok := Slice[Time](OfSlice([]Time{5})); !ok || s[0] != 5 {
		t.Errorf("Slice[Time] = %v, %v", s, ok)
	}
}

func TestFloatOfEachNumber(t *testing.T) {
	for v, want := range map[Value]float64{
		Of(int8(-1)): -1, Of(uint64(1 << 63)): 1 << 63, Of(int64(-5)): -5, Of(float32(0.5)): 0.5, Of(true): 1,
	} {
		if f, ok := v.Float(); !ok || f != want {
			t.Errorf("%v: %v, %v", v, f, ok)
		}
	}
	for _, v := range []Value{{}, Of("1"), OfSlice([]int16{1}), Of(Now())} {
		if _, ok := v.Float(); ok {
			t.Errorf("%v counts as a number", v)
		}
	}
}

func TestANumberDoesNotAllocate(t *testing.T) {
	var v Value
	x := 1.5
	if n := testing.AllocsPerRun(100, func() { x++; v = Of(x); v = Of(int16(x)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	_ = v
}

func TestSizeIsWhatAnAccountIsCharged(t *testing.T) {
	for _, c := range []struct {
		v    Value
		want int
	}{{Of(1.0), 0}, {Of("four"), 4}, {OfSlice([]int32{1, 2}), 8}, {OfSlice([]string{"ab"}), 18}, {OfSlice([][]byte{{1}}), 25}, {OfRaw(make([]byte, 7)), 7}} {
		if got := c.v.Size(); got != c.want {
			t.Errorf("%v: %d bytes, want %d", c.v, got, c.want)
		}
	}
}

// Part 6, 5.2.2.5: 100 ns since 1601-01-01, cut at both ends.
func TestTime(t *testing.T) {
	for _, c := range []struct {
		text string
		want Time
	}{
		{"1601-01-01T00:00:00Z", 0},
		{"1600-01-01T00:00:00Z", 0},
		{"1970-01-01T00:00:00Z", 116444736000000000},
		{"1969-12-31T23:59:59.9999999Z", 116444735999999999},
		{"2026-07-01T12:00:00.1234567Z", 134273808001234567},
		{"9999-12-31T23:59:59Z", MaxTime},
	} {
		in, err := time.Parse(time.RFC3339Nano, c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := TimeOf(in); got != c.want {
			t.Errorf("%s: %d, want %d", c.text, got, c.want)
		}
		if c.want != 0 && !c.want.Time().Equal(in) {
			t.Errorf("%s comes back as %s", c.text, c.want.Time())
		}
	}
	if TimeOf(time.Time{}) != 0 || !Time(0).Time().IsZero() {
		t.Error("the unknown time is not kept")
	}
	if d := MaxTime.Sub(0); d <= 0 {
		t.Errorf("a long difference wraps: %v", d)
	}
	if got := Time(0).Add(time.Second).Sub(0); got != time.Second {
		t.Errorf("Add and Sub disagree: %v", got)
	}
}

func TestStatusSeverity(t *testing.T) {
	if !Good.IsGood() || !UncertainNoCommunicationLastUsableValue.IsUncertain() || !BadTimeout.IsBad() || BadTimeout.IsGood() {
		t.Error("severities are mixed up")
	}
	if s := (BadTimeout | 0x480).String(); s != "BadTimeout" {
		t.Errorf("info bits change the name: %s", s)
	}
}

func TestTableKeepsSlots(t *testing.T) {
	def := func(name string) Def { return Def{Device: "boiler", Name: name, Kind: Float32, Access: Readable} }
	one, err := NewTable([]Def{def("a"), def("b")})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := one.Lookup("boiler.b")

	two, diff, err := one.Apply([]Def{def("c"), def("a")})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(diff, Diff{Added: []Ref{3}, Removed: []Ref{b}}) {
		t.Errorf("diff %+v", diff)
	}
	if _, ok := two.Lookup("boiler.b"); ok || two.Tag(b) != nil || two.Len() != 2 {
		t.Error("a removed tag is still there")
	}
	if one.Tag(b) == nil {
		t.Error("Apply changed the older table")
	}

	wider := def("a")
	wider.Kind = Float64
	three, diff, err := two.Apply([]Def{wider, def("b")})
	if err != nil {
		t.Fatal(err)
	}
	if ref, ok := three.Lookup("boiler.b"); !ok || ref != b {
		t.Errorf("a returned tag has slot %d, not %d", ref, b)
	}
	if !reflect.DeepEqual(diff, Diff{Added: []Ref{b}, Changed: []Ref{1}, Removed: []Ref{3}}) {
		t.Errorf("diff %+v", diff)
	}
	if three.Slots() != 3 {
		t.Errorf("%d slots", three.Slots())
	}
	var seen []Ref
	for ref := range three.All() {
		seen = append(seen, ref)
	}
	if !reflect.DeepEqual(seen, []Ref{1, 2}) {
		t.Errorf("All yields %v", seen)
	}
	if _, _, err := three.Apply([]Def{def("a"), def("a")}); err == nil {
		t.Error("one name twice was taken")
	}
}

func TestBudget(t *testing.T) {
	b := Budget{Limit: 10}
	if !b.Take(10) || b.Take(1) || b.Used() != 10 {
		t.Errorf("the limit does not hold: %d used", b.Used())
	}
	b.Give(4)
	if !b.Take(4) {
		t.Error("what was given back is not to be had")
	}
	if none := (&Budget{}); !none.Take(1 << 40) {
		t.Error("no limit limits")
	}
}

func TestLookup(t *testing.T) {
	var defs []Def
	for _, device := range []string{"d", "d1", "d10", "d2", "d!", "e"} {
		for _, name := range []string{"a", "b", "a.b", "a!b", "a1", ""} {
			defs = append(defs, Def{Device: device, Name: name})
		}
	}
	table, err := NewTable(defs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range defs {
		if ref, ok := table.Lookup(defs[i].FullName()); !ok || ref != Ref(i+1) {
			t.Errorf("%s has slot %d, want %d", defs[i].FullName(), ref, i+1)
		}
	}
	for _, name := range []string{"", "d", "d.", "d1", "d1.z", "e.a.b.c", "c.a", "f", "d10.a."} {
		want := false
		for i := range defs {
			want = want || defs[i].FullName() == name
		}
		if _, ok := table.Lookup(name); ok != want {
			t.Errorf("%q is found: %v", name, ok)
		}
	}
	if _, _, err := table.Apply(append(defs[:1:1], Def{Device: "n", Name: "x"}, Def{Device: "n", Name: "x"})); err == nil {
		t.Error("a new name twice was taken")
	}
}

type addressed string

func (a addressed) Definition(place uint32) string { return string(a) + strconv.Itoa(int(place)) }

func TestTagsShareWhatIsTheSame(t *testing.T) {
	defs := []Def{
		{Device: "d", Name: "a.b", Unit: "bar", How: addressed("holding:"), Place: 3},
		{Device: "d", Name: "c", Unit: "bar", How: addressed("holding:"), Place: 4},
		{Device: "d", Name: "d", Unit: "K"},
		{Device: "d", Name: "e", Unit: "bar", How: addressed("holding:"), Place: 3},
	}
	table, err := NewTable(defs)
	if err != nil {
		t.Fatal(err)
	}
	a, c, d, e := table.Tag(1), table.Tag(2), table.Tag(3), table.Tag(4)
	if a.Def != c.Def || a.Def != e.Def || a.Def == d.Def {
		t.Error("what tags have in common is not there once")
	}
	if a.Name() != "a.b" || a.FullName() != "d.a.b" || a.Unit != "bar" || a.Definition() != "holding:3" || c.Definition() != "holding:4" {
		t.Errorf("%s is %s, %s", a.FullName(), a.Name(), a.Definition())
	}
	if d.Definition() != "" {
		t.Errorf("nothing is known of it but %s", d.Definition())
	}
	defs[1].Place, defs[2].Unit = 5, "bar"
	_, diff, err := table.Apply(defs)
	if err != nil || !reflect.DeepEqual(diff, Diff{Changed: []Ref{2, 3}}) {
		t.Errorf("%+v, %v", diff, err)
	}
}
