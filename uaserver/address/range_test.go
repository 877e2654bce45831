package address

import (
	"bytes"
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
		{"encoded", texts("a", "b", "c"), texts("x", "y"), "1:2", texts("a", "x", "y"), tag.Good},
		{"encoded, too many", texts("a"), texts("b", "c"), "0", none, badIndexRangeDataMismatch},
		{"encoded, past the end", texts("a"), texts("b"), "1", none, tag.BadIndexRangeNoData},
		{"encoded, another type", texts("a"), tag.OfSlice([]string{"b"}), "0", none, tag.BadTypeMismatch},
		{"characters of elements", words("abc", "def", "ghi"), words("XY", "ZW"), "1:2,0:1", words("abc", "XYf", "ZWi"), tag.Good},
		{"characters of elements, too few", words("abc"), words("X"), "0,0:1", none, badIndexRangeDataMismatch},
		{"characters of elements, past the end", words("abc", "d"), words("X", "Y"), "0:1,1", none, tag.BadIndexRangeNoData},
		{"characters of elements that are not there", words("abc"), words("X", "Y"), "0:1,1", none, tag.BadIndexRangeNoData},
		{"bytes of elements", tag.OfSlice([][]byte{[]byte("abc")}), tag.OfSlice([][]byte{[]byte("X")}), "0,1", tag.OfSlice([][]byte{[]byte("aXc")}), tag.Good},
		{"three dimensions of two", words("abc"), words("X"), "0,0,0", none, tag.BadIndexRangeNoData},
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

func words(s ...string) tag.Value { return tag.OfSlice(s) }

// matrix is a value of several dimensions, from its elements in order.
func matrix(elements tag.Value, dims ...uint32) tag.Value {
	b := wire.AppendVariant(nil, elements)
	b[0] |= 0x40
	b = wire.AppendUint32(b, uint32(len(dims)))
	for _, d := range dims {
		b = wire.AppendUint32(b, d)
	}
	return tag.OfRaw(b)
}

func ints(n ...int32) tag.Value { return tag.OfSlice(n) }

// TestMatrices of 7.27: a range names every dimension; what is read keeps their number.
func TestMatrices(t *testing.T) {
	m := matrix(ints(0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32), 4, 3)
	cube := matrix(ints(0, 1, 10, 11, 100, 101, 110, 111), 2, 2, 2)
	names := matrix(words("abc", "def", "g", ""), 2, 2)
	none, noData := tag.Value{}, tag.BadIndexRangeNoData
	for _, row := range []struct {
		name string
		v    tag.Value
		r    string
		want tag.Value
		st   tag.Status
	}{
		{"a block", m, "1:2,0:1", matrix(ints(10, 11, 20, 21), 2, 2), tag.Good},
		{"one element", m, "1,1", matrix(ints(11), 1, 1), tag.Good},
		{"a row", m, "2,0:2", matrix(ints(20, 21, 22), 1, 3), tag.Good},
		{"a column", m, "0:3,2", matrix(ints(2, 12, 22, 32), 4, 1), tag.Good},
		{"past the ends", m, "3:9,1:9", matrix(ints(31, 32), 1, 2), tag.Good},
		{"beyond the first", m, "4,0", none, noData},
		{"beyond the second", m, "0,3", none, noData},
		{"a dimension short", m, "1", none, noData},
		{"a dimension more", m, "1,1,0", none, noData},
		{"three dimensions", cube, "0:1,1,0:1", matrix(ints(10, 11, 110, 111), 2, 1, 2), tag.Good},
		{"three dimensions, two given", cube, "0:1,1", none, noData},
		{"nine dimensions", cube, "0,0,0,0,0,0,0,0,0", none, noData},
		{"texts", names, "0,0:1", matrix(words("abc", "def"), 1, 2), tag.Good},
		{"characters of texts", names, "0:1,0,1:2", matrix(words("bc", ""), 2, 1), tag.Good},
		{"characters that no text has", names, "1,0:1,1", none, noData},
		{"a matrix of one dimension", matrix(ints(1, 2, 3), 3), "1:2", matrix(ints(2, 3), 2), tag.Good},
		{"an empty matrix", matrix(ints(), 0, 2), "0,0", none, noData},
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

func TestPartsOfMatricesAreReplaced(t *testing.T) {
	m := matrix(ints(0, 1, 2, 10, 11, 12, 20, 21, 22), 3, 3)
	names := matrix(words("abc", "def", "g", "hij"), 2, 2)
	none := tag.Value{}
	for _, row := range []struct {
		name      string
		old, part tag.Value
		r         string
		want      tag.Value
		st        tag.Status
	}{
		{"a block", m, matrix(ints(7, 8, 9, 6), 2, 2), "1:2,0:1", matrix(ints(0, 1, 2, 7, 8, 12, 9, 6, 22), 3, 3), tag.Good},
		{"one element", m, matrix(ints(7), 1, 1), "1,1", matrix(ints(0, 1, 2, 10, 7, 12, 20, 21, 22), 3, 3), tag.Good},
		{"the whole", m, m, "0:2,0:2", m, tag.Good},
		{"too few", m, matrix(ints(7, 8), 1, 2), "0:1,0:1", none, badIndexRangeDataMismatch},
		{"as many, of another shape", m, matrix(ints(7, 8), 2, 1), "0,0:1", none, badIndexRangeDataMismatch},
		{"past the end", m, matrix(ints(7, 8), 1, 2), "0,2:3", none, tag.BadIndexRangeNoData},
		{"an array for a matrix", m, ints(7, 8), "0,0:1", none, tag.BadTypeMismatch},
		{"a scalar for a matrix", m, tag.Of(int32(7)), "0,0", none, tag.BadTypeMismatch},
		{"another type", m, matrix(words("x"), 1, 1), "0,0", none, tag.BadTypeMismatch},
		{"a dimension short", m, ints(7), "0", none, tag.BadIndexRangeNoData},
		{"texts", names, matrix(words("X", "YZ"), 2, 1), "0:1,1", matrix(words("abc", "X", "g", "YZ"), 2, 2), tag.Good},
		{"characters of texts", names, matrix(words("X", "Y"), 1, 2), "0,0:1,1", matrix(words("aXc", "dYf", "g", "hij"), 2, 2), tag.Good},
		{"characters that a text lacks", names, matrix(words("X", "Y"), 1, 2), "1,0:1,1", none, tag.BadIndexRangeNoData},
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
	f.Add("0,0", []byte{6 | 0xC0, 1, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0})
	f.Add("0,0,1", []byte{12 | 0xC0, 1, 0, 0, 0, 2, 0, 0, 0, 'a', 'b', 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0})
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
		if st == tag.Good && r.Dims > 0 {
			same, st := ReplaceRange(v, part, r)
			partial := st == badIndexRangeDataMismatch || st == tag.BadIndexRangeNoData
			if st == tag.Good && !bytes.Equal(wire.AppendVariant(nil, same), wire.AppendVariant(nil, v)) || st != tag.Good && !partial {
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
