package tag

import "testing"

func TestParseType(t *testing.T) {
	for text, want := range map[string]Type{
		"bool": {Kind: Bool}, "int8": {Kind: Int8}, "uint64": {Kind: Uint64}, "float32": {Kind: Float32},
		"string": {Kind: String}, "string(8)": {Kind: String, Size: 8}, "bytes(1)": {Kind: ByteString, Size: 1},
		"uint16[4]": {Kind: Uint16, Len: 4}, "bool[2000]": {Kind: Bool, Len: 2000}, "string(3)[2]": {Kind: String, Size: 3, Len: 2},
	} {
		got, err := ParseType(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if got.String() != text {
			t.Errorf("%q is written %q", text, got)
		}
	}
	for _, text := range []string{"", "int", "Int16", "int16[]", "int16[0]", "int16[-1]", "int16[4", "int16[4]x", "int16[9999]", "int16(2)",
		"string()", "string(0)", "string(8", "string(99999)", "bool[2][2]"} {
		if got, err := ParseType(text); err == nil {
			t.Errorf("%q was taken for %+v", text, got)
		}
	}
}

func TestSplice(t *testing.T) {
	for _, row := range []struct {
		v, part Value
		from    int
		want    string // "" is a refusal
	}{
		{OfSlice([]int32{1, 2, 3}), OfSlice([]int32{8, 9}), 1, "[1 8 9]"},
		{OfSlice([]int32{1, 2, 3}), OfSlice([]int32{7, 8, 9}), 0, "[7 8 9]"},
		{OfSlice([]bool{true, true}), OfSlice([]bool{false}), 1, "[true false]"},
		{OfSlice([]int8{1, 2}), OfSlice([]int8{3}), 0, "[3 2]"},
		{OfSlice([]uint8{1, 2}), OfSlice([]uint8{3}), 0, "[3 2]"},
		{OfSlice([]int16{1, 2}), OfSlice([]int16{3}), 0, "[3 2]"},
		{OfSlice([]uint16{1, 2}), OfSlice([]uint16{3}), 0, "[3 2]"},
		{OfSlice([]uint32{1, 2}), OfSlice([]uint32{3}), 0, "[3 2]"},
		{OfSlice([]int64{1, 2}), OfSlice([]int64{3}), 0, "[3 2]"},
		{OfSlice([]uint64{1, 2}), OfSlice([]uint64{3}), 0, "[3 2]"},
		{OfSlice([]float32{1, 2}), OfSlice([]float32{3}), 0, "[3 2]"},
		{OfSlice([]float64{1, 2}), OfSlice([]float64{3}), 0, "[3 2]"},
		{OfSlice([]string{"a", "b"}), OfSlice([]string{"c"}), 0, "[c b]"},
		{OfSlice([]Status{Good, Good}), OfSlice([]Status{BadTimeout}), 0, "[BadTimeout Good]"},
		{OfSlice([]Time{0, 0}), OfSlice([]Time{0}), 1, "[never never]"},
		{OfSlice([][]byte{{1}, {2}}), OfSlice([][]byte{{3}}), 1, "[[1] [3]]"},
		{OfSlice([]int32{1, 2, 3}), OfSlice([]int32{8, 9}), 2, ""},
		{OfSlice([]int32{1, 2, 3}), OfSlice([]int32{8}), -1, ""},
		{OfSlice([]int32{1, 2, 3}), OfSlice([]int32{}), 0, ""},
		{OfSlice([]int32{1, 2, 3}), OfSlice([]uint32{8}), 0, ""},
		{OfSlice([]int32{1, 2, 3}), Of(int32(8)), 0, ""},
		{Of(int32(1)), OfSlice([]int32{8}), 0, ""},
		{Value{}, Value{}, 0, ""},
	} {
		before := row.v.String()
		got, ok := Splice(row.v, row.part, row.from)
		if ok != (row.want != "") || ok && (got.String() != row.want || got.Kind() != row.v.Kind()) {
			t.Errorf("%v with %v from %d: %v, %v", before, row.part, row.from, got, ok)
		}
		if row.v.String() != before {
			t.Errorf("%v became %v", before, row.v)
		}
	}
}
