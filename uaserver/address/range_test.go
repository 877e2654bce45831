package address

import (
	"fmt"
	"testing"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

func TestA11ParseRange(t *testing.T) {
	for _, row := range []struct {
		text string
		want string // "" is an error
	}{
		{"", "0 0-0"}, {"0", "1 0-0"}, {"6", "1 6-6"}, {"5:7", "1 5-7"}, {"1:2,0:1", "2 1-2"}, {"1,1", "2 1-1"},
		{"4294967295", "1 4294967295-4294967295"}, {"1,2,3", "3 1-1"},
		{"7:5", ""}, {"5:5", ""}, {"4294967296", ""}, {"99999999999999999999", ""}, {"-1", ""}, {"a", ""}, {" 1", ""}, {"1 ", ""},
		{"1:", ""}, {":1", ""}, {"1:2:3", ""}, {"1,", ""}, {",1", ""}, {",", ""}, {"1,,2", ""}, {"1;2", ""}, {"1:a", ""}, {"+1", ""},
	} {
		r, err := ParseRange(row.text)
		got := ""
		if err == nil {
			got = fmt.Sprintf("%d %d-%d", r.Dims, r.Low, r.High)
		}
		if got != row.want {
			t.Errorf("%q: %q, want %q", row.text, got, row.want)
		}
	}
}

func texts(texts ...string) tag.Value {
	b := wire.AppendUint32([]byte{21 | 0x80}, uint32(len(texts)))
	for _, s := range texts {
		b = wire.AppendLocalizedText(b, "en", s)
	}
	return tag.OfRaw(b)
}

func TestA11ApplyRange(t *testing.T) {
	numbers := tag.OfSlice([]int16{10, 11, 12, 13})
	none := tag.Value{}
	noData, good := tag.BadIndexRangeNoData, tag.Good
	for _, row := range []struct {
		name string
		v    tag.Value
		r    string
		want tag.Value
		st   tag.Status
	}{
		{"whole", numbers, "", numbers, good},
		{"one element is an array", numbers, "2", tag.OfSlice([]int16{12}), good},
		{"span", numbers, "1:3", tag.OfSlice([]int16{11, 12, 13}), good},
		{"span past the end is partial", numbers, "3:9", tag.OfSlice([]int16{13}), good},
		{"to the last index there is", numbers, "3:4294967295", tag.OfSlice([]int16{13}), good},
		{"beyond", numbers, "4", none, noData},
		{"empty array", tag.OfSlice([]int16{}), "0", none, noData},
		{"scalar", tag.Of(1.5), "0", none, noData},
		{"null", none, "0", none, noData},
		{"second dimension that is not there", numbers, "0,0", none, noData},
		{"text", tag.Of("abcd"), "1:2", tag.Of("bc"), good},
		{"text by characters", tag.Of("aäöb"), "1:2", tag.Of("äö"), good},
		{"last character", tag.Of("aäö"), "2", tag.Of("ö"), good},
		{"text past the end", tag.Of("ab"), "1:5", tag.Of("b"), good},
		{"text beyond", tag.Of("ab"), "2", none, noData},
		{"empty text", tag.Of(""), "0", none, noData},
		{"bytes", tag.OfBytes([]byte("abcd")), "1:2", tag.OfBytes([]byte("bc")), good},
		{"bytes beyond", tag.OfBytes([]byte("ab")), "7", none, noData},
		{"null bytes", tag.OfBytes(nil), "0", none, noData},
		{"characters of elements", tag.OfSlice([]string{"abc", "d", "efg"}), "0:2,1:2", tag.OfSlice([]string{"bc", "", "fg"}), good},
		{"characters that no element has", tag.OfSlice([]string{"a"}), "0,4", none, noData},
		{"bytes of elements", tag.OfSlice([][]byte{[]byte("abc")}), "0,2", tag.OfSlice([][]byte{[]byte("c")}), good},
		{"three dimensions", tag.OfSlice([]string{"abc"}), "0,0,0", none, noData},
		{"booleans", tag.OfSlice([]bool{true, false}), "1", tag.OfSlice([]bool{false}), good},
		{"bytes as an array", tag.OfSlice([]uint8{1, 2}), "1", tag.OfSlice([]uint8{2}), good},
		{"times", tag.OfSlice([]tag.Time{1, 2}), "1", tag.OfSlice([]tag.Time{2}), good},
		{"statuses", tag.OfSlice([]tag.Status{1, 2}), "1", tag.OfSlice([]tag.Status{2}), good},
		{"localized texts", texts("a", "b", "c"), "1:2", texts("b", "c"), good},
		{"localized texts past the end", texts("a", "b"), "1:9", texts("b"), good},
		{"localized texts beyond", texts("a"), "1", none, noData},
		{"encoded scalar", tag.OfRaw([]byte{21, 0}), "0", none, noData},
		{"encoded and cut short", tag.OfRaw([]byte{21 | 0x80, 2, 0, 0, 0, 2}), "0:1", none, noData},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := ParseRange(row.r)
			if err != nil {
				t.Fatal(err)
			}
			if got, st := ApplyRange(row.v, r); st != row.st || !got.Equal(row.want) {
				t.Errorf("got %v, %v", got, st)
			}
		})
	}
}

func TestA11ReplaceRange(t *testing.T) {
	none := tag.Value{}
	numbers := tag.OfSlice([]int32{10, 11, 12})
	for _, row := range []struct {
		name      string
		old, part tag.Value
		r         string
		want      tag.Value
		st        tag.Status
	}{
		{"whole", numbers, tag.OfSlice([]int32{1}), "", tag.OfSlice([]int32{1}), tag.Good},
		{"one element", numbers, tag.OfSlice([]int32{1}), "2", tag.OfSlice([]int32{10, 11, 1}), tag.Good},
		{"span", numbers, tag.OfSlice([]int32{1, 2}), "0:1", tag.OfSlice([]int32{1, 2, 12}), tag.Good},
		{"too few", numbers, tag.OfSlice([]int32{1}), "0:1", none, badIndexRangeDataMismatch},
		{"too many", numbers, tag.OfSlice([]int32{1, 2}), "0", none, badIndexRangeDataMismatch},
		{"past the end", numbers, tag.OfSlice([]int32{1, 2}), "2:3", none, tag.BadIndexRangeNoData},
		{"widest", numbers, tag.OfSlice([]int32{1, 2}), "0:4294967295", none, badIndexRangeDataMismatch},
		{"another type", numbers, tag.OfSlice([]int16{1}), "0", none, tag.BadTypeMismatch},
		{"scalar", numbers, tag.Of(int32(1)), "0", none, tag.BadTypeMismatch},
		{"of a scalar", tag.Of(int32(1)), tag.Of(int32(1)), "0", none, tag.BadIndexRangeNoData},
		{"two dimensions", numbers, tag.OfSlice([]int32{1}), "0,0", none, tag.BadIndexRangeNoData},
		{"of nothing", none, none, "0", none, tag.BadIndexRangeNoData},
		{"characters", tag.Of("aäb"), tag.Of("ö"), "1", tag.Of("aöb"), tag.Good},
		{"characters past the end", tag.Of("a"), tag.Of("ö"), "1", none, tag.BadIndexRangeNoData},
		{"characters too few", tag.Of("abc"), tag.Of("ö"), "1:2", none, badIndexRangeDataMismatch},
		{"an array for characters", tag.Of("abc"), tag.OfSlice([]string{"ö"}), "1", none, tag.BadTypeMismatch},
		{"bytes", tag.OfBytes([]byte("abc")), tag.OfBytes([]byte("xy")), "1:2", tag.OfBytes([]byte("axy")), tag.Good},
		{"texts", tag.OfSlice([]string{"a", "b"}), tag.OfSlice([]string{"x"}), "1", tag.OfSlice([]string{"a", "x"}), tag.Good},
		{"encoded", texts("a"), texts("b"), "0", none, tag.BadIndexRangeNoData},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := ParseRange(row.r)
			if err != nil {
				t.Fatal(err)
			}
			before := row.old.String()
			if got, st := ReplaceRange(row.old, row.part, r); st != row.st || !got.Equal(row.want) {
				t.Errorf("got %v, %v", got, st)
			}
			if row.old.String() != before {
				t.Error("the old value changed")
			}
		})
	}
}

func TestParseRangeDoesNotAllocate(t *testing.T) {
	if a := testing.AllocsPerRun(100, func() {
		if _, err := ParseRange("10:20"); err != nil {
			t.Fatal(err)
		}
	}); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

// FuzzRange looks for a range that panics or cuts more than there is.
func FuzzRange(f *testing.F) {
	f.Add("1:2", []byte{21 | 0x80, 1, 0, 0, 0, 2, 1, 0, 0, 0, 'a'})
	f.Add("0,1", []byte{12 | 0x80, 1, 0, 0, 0, 1, 0, 0, 0, 'a'})
	f.Add("3", []byte{12, 4, 0, 0, 0, 'a', 0xC3, 'b', 'c'})
	f.Add("0:4294967295", []byte{22 | 0xC0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, text string, variant []byte) {
		r, err := ParseRange(text)
		if err != nil {
			return
		}
		rd := wire.NewReader(variant)
		v := rd.Variant()
		if rd.Err() != nil {
			return
		}
		shapeOf(v)
		part, st := ApplyRange(v, r)
		if st != tag.Good && !part.IsNull() {
			t.Fatalf("%v with a value", st)
		}
		if st == tag.Good && part.IsArray() && uint64(part.Len()) > uint64(r.High-r.Low)+1 && r.Dims > 0 {
			t.Fatalf("%q of %v is %v", text, v, part)
		}
		if st == tag.Good && r.Dims == 1 && v.Kind() != tag.Raw && uint64(part.Len()) == uint64(r.High-r.Low)+1 && v.IsArray() {
			if same, st := ReplaceRange(v, part, r); st != tag.Good || !same.Equal(v) {
				t.Fatalf("putting back %q of %v gives %v, %v", text, v, same, st)
			}
		}
		encoded := wire.AppendVariant(nil, part)
		again := wire.NewReader(encoded)
		if again.Variant(); again.Err() != nil {
			t.Fatalf("%q of %x is no Variant: %x", text, variant, encoded)
		}
	})
}
