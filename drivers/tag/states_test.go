package tag

import (
	"math"
	"testing"
)

func TestStates(t *testing.T) {
	s := States("").With(0, "off").With(-1, "not there").With(math.MaxInt64, "").With(0, "second")
	var got []string
	var values []int64
	for v, text := range s.All() {
		values, got = append(values, v), append(got, text)
	}
	want := []string{"off", "not there", "", "second"}
	for i := range want {
		if i >= len(got) || got[i] != want[i] || values[i] != []int64{0, -1, math.MaxInt64, 0}[i] {
			t.Fatalf("%v %q, want %q", values, got, want)
		}
	}
	for v, want := range map[int64]string{0: "off", -1: "not there", math.MaxInt64: ""} {
		if text, ok := s.Text(v); text != want || !ok {
			t.Errorf("%d is %q, %v", v, text, ok)
		}
	}
	if text, ok := s.Text(5); ok || text != "" {
		t.Errorf("a value without a text has %q", text)
	}
	if _, ok := States("").Text(0); ok {
		t.Error("no states have a text")
	}
}

func TestInt(t *testing.T) {
	for v, want := range map[Value]int64{
		Of(true): 1, Of(false): 0, Of(int8(-3)): -3, Of(uint8(200)): 200, Of(int64(math.MinInt64)): math.MinInt64, Of(uint64(7)): 7,
	} {
		if n, ok := v.Int(); n != want || !ok {
			t.Errorf("%v: %d, %v", v, n, ok)
		}
	}
	for _, v := range []Value{{}, Of(1.0), Of("1"), OfSlice([]int32{1}), Of(uint64(1 << 63)), Of(Time(1))} {
		if n, ok := v.Int(); ok {
			t.Errorf("%v is taken for %d", v, n)
		}
	}
}
