package modbus

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"edged/drivers/tag"
)

func mustField(t testing.TB, tg Tag) *field {
	t.Helper()
	if tg.Access == 0 {
		tg.Access = tag.Readable | tag.Writable
	}
	f, errs := tg.field(&Config{})
	if len(errs) > 0 {
		t.Fatalf("%+v: %v", tg, errs[0])
	}
	return f
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestD6OrdersAndTypes(t *testing.T) {
	for _, row := range []struct {
		typ, order, registers string
		want                  tag.Value
	}{
		{"float32", "ABCD", "429B 077A", tag.Of(float32(77.51460266113281))},
		{"float32", "DCBA", "7A07 9B42", tag.Of(float32(77.51460266113281))},
		{"float32", "BADC", "9B42 7A07", tag.Of(float32(77.51460266113281))},
		{"float32", "CDAB", "077A 429B", tag.Of(float32(77.51460266113281))},
		{"uint32", "", "0102 0304", tag.Of(uint32(0x01020304))},
		{"int32", "CDAB", "FFFE FFFF", tag.Of(int32(-2))},
		{"uint64", "ABCDEFGH", "0102 0304 0506 0708", tag.Of(uint64(0x0102030405060708))},
		{"uint64", "HGFEDCBA", "0807 0605 0403 0201", tag.Of(uint64(0x0102030405060708))},
		{"uint64", "BADCFEHG", "0201 0403 0605 0807", tag.Of(uint64(0x0102030405060708))},
		{"uint64", "GHEFCDAB", "0708 0506 0304 0102", tag.Of(uint64(0x0102030405060708))},
		{"uint64", "CDAB", "0708 0506 0304 0102", tag.Of(uint64(0x0102030405060708))},
		{"int64", "", "FFFF FFFF FFFF FFFE", tag.Of(int64(-2))},
		{"float64", "", "3FF8 0000 0000 0000", tag.Of(1.5)},
		{"uint16", "", "0102", tag.Of(uint16(0x0102))},
		{"uint16", "BA", "0201", tag.Of(uint16(0x0102))},
		{"int16", "", "8000", tag.Of(int16(-32768))},
		{"string(6)", "", "4142 4344 0000", tag.Of("ABCD")},
		{"string(4)", "BADC", "4241 4443", tag.Of("ABCD")},
		{"string(3)", "", "4142 4300", tag.Of("ABC")},
		{"bytes(4)", "", "00FF 0001", tag.OfBytes([]byte{0, 255, 0, 1})},
		{"uint16[3]", "", "0001 0002 0003", tag.OfSlice([]uint16{1, 2, 3})},
		{"int16[2]", "BA", "FFFF 0100", tag.OfSlice([]int16{-1, 1})},
		{"int32[2]", "CDAB", "FFFF FFFF 0001 0000", tag.OfSlice([]int32{-1, 1})},
		{"uint32[1]", "", "0001 0000", tag.OfSlice([]uint32{65536})},
		{"int64[1]", "", "FFFF FFFF FFFF FFFF", tag.OfSlice([]int64{-1})},
		{"uint64[1]", "", "0000 0000 0000 0009", tag.OfSlice([]uint64{9})},
		{"float32[2]", "", "3F80 0000 4000 0000", tag.OfSlice([]float32{1, 2})},
		{"float64[1]", "", "3FF0 0000 0000 0000", tag.OfSlice([]float64{1})},
	} {
		f := mustField(t, Tag{Address: "holding:5", Type: row.typ, Order: row.order})
		data := unhex(row.registers)
		if len(data) != 2*f.count {
			t.Fatalf("%s takes %d registers", row.typ, f.count)
		}
		v, status := f.decode(append([]byte{9, 9}, data...), 4)
		if status != tag.Good || !v.Equal(row.want) {
			t.Errorf("%s %s %s: %v, %v; want %v", row.typ, row.order, row.registers, v, status, row.want)
		}
		if again, _ := f.decode(data, 5); !again.Equal(v) {
			t.Errorf("%s: a second reading is %v", row.typ, again)
		}
		w, status := f.encode(&tag.Command{Value: row.want}, nil)
		if status != tag.Good || !bytes.Equal(w.data, data) || w.start != 5 || w.count != f.count {
			t.Errorf("%s %s: written as % x, %v; want % x", row.typ, row.order, w.data, status, data)
		}
	}
}

func TestD7CoilsAnywhere(t *testing.T) {
	// Coils 3 to 21; those of prime numbers are on.
	primes := map[int]bool{3: true, 5: true, 7: true, 11: true, 13: true, 17: true, 19: true}
	data := []byte{0, 0, 0xF8} // the spare bits of the last byte are noise
	for n := 3; n <= 21; n++ {
		if primes[n] {
			data[(n-3)/8] |= 1 << ((n - 3) % 8)
		}
	}
	for n := 3; n <= 21; n++ {
		f := mustField(t, Tag{Address: Address{Coils, n, -1}.String()})
		if v, _ := f.decode(data, 3); v.Kind() != tag.Bool || v.Bool() != primes[n] {
			t.Errorf("coil %d is %v", n, v)
		}
	}
	f := mustField(t, Tag{Address: "coil:9", Type: "bool[11]"})
	v, _ := f.decode(data, 3)
	got, _ := tag.Slice[bool](v)
	for i, on := range got {
		if on != primes[9+i] {
			t.Errorf("coil %d of the array is %v", 9+i, on)
		}
	}
	w, status := f.encode(&tag.Command{Value: v}, nil)
	if status != tag.Good || w.count != 11 || !bytes.Equal(w.data, []byte{0b00010100, 0b101}) {
		t.Errorf("written as % x, %v", w.data, status)
	}
}

func TestD13NotAvailable(t *testing.T) {
	for _, row := range []struct {
		typ, sentinel, nan, registers string
		status                        tag.Status
	}{
		{"int16", "0x8000", "", "8000", tag.BadOutOfRange},
		{"int16", "-32768", "", "8000", tag.BadOutOfRange},
		{"int16", "0x8000", "", "8001", tag.Good},
		{"uint16", "65535", "", "FFFF", tag.BadOutOfRange},
		{"int32", "0x80000000", "", "8000 0000", tag.BadOutOfRange},
		{"float32", "", "", "7FC0 0000", tag.BadOutOfRange},
		{"float32", "", "good", "7FC0 0000", tag.Good},
		{"float32", "", "", "7F80 0000", tag.Good}, // +Inf is published as such
		{"float32", "-9999", "", "C61C 3C00", tag.BadOutOfRange},
		{"float64", "", "", "7FF8 0000 0000 0000", tag.BadOutOfRange},
		{"uint16[2]", "0xFFFF", "", "0001 FFFF", tag.BadOutOfRange},
	} {
		tg := Tag{Address: "holding:0", Type: row.typ, NaN: row.nan}
		if row.sentinel != "" {
			tg.Sentinel = []string{"7", row.sentinel}
		}
		v, status := mustField(t, tg).decode(unhex(row.registers), 0)
		if status != row.status || status.IsBad() && !v.IsNull() {
			t.Errorf("%s %s, sentinel %s: %v, %v; want %v", row.typ, row.registers, row.sentinel, v, status, row.status)
		}
	}
	scaled := mustField(t, Tag{Address: "holding:0", Type: "int16", Scale: "0.1", Sentinel: []string{"0x8000"}})
	if _, status := scaled.decode(unhex("8000"), 0); status != tag.BadOutOfRange {
		t.Errorf("the sentinel is compared after scaling: %v", status)
	}
}

func TestWritesThatAreRefused(t *testing.T) {
	rw := tag.Readable | tag.Writable
	for _, row := range []struct {
		name string
		tag  Tag
		cmd  tag.Command
		want tag.Status
	}{
		{"another type", Tag{Type: "uint16", Access: rw}, tag.Command{Value: tag.Of(int16(1))}, tag.BadTypeMismatch},
		{"no conversion to the scaled type", Tag{Type: "uint16", Scale: "0.1", Access: rw}, tag.Command{Value: tag.Of(uint16(1))}, tag.BadTypeMismatch},
		{"null", Tag{Type: "uint16", Access: rw}, tag.Command{}, tag.BadTypeMismatch},
		{"an array for a scalar", Tag{Type: "uint16", Access: rw}, tag.Command{Value: tag.OfSlice([]uint16{1})}, tag.BadTypeMismatch},
		{"a scalar for an array", Tag{Type: "uint16[2]", Access: rw}, tag.Command{Value: tag.Of(uint16(1))}, tag.BadTypeMismatch},
		{"an array of another length", Tag{Type: "uint16[2]", Access: rw}, tag.Command{Value: tag.OfSlice([]uint16{1})}, tag.BadTypeMismatch},
		{"above the range", Tag{Type: "uint16", Access: rw, HasRange: true, High: 120}, tag.Command{Value: tag.Of(uint16(121))}, tag.BadOutOfRange},
		{"below the range, one element", Tag{Type: "int16[2]", Access: rw, HasRange: true, High: 120}, tag.Command{Value: tag.OfSlice([]int16{3, -1})}, tag.BadOutOfRange},
		{"NaN against a range", Tag{Type: "float32", Access: rw, HasRange: true, High: 120}, tag.Command{Value: tag.Of(float32(math.NaN()))}, tag.BadOutOfRange},
		{"a range counts in engineering units", Tag{Type: "uint16", Scale: "0.1", Access: rw, HasRange: true, High: 120}, tag.Command{Value: tag.Of(120.1)}, tag.BadOutOfRange},
		{"text too long", Tag{Type: "string(3)", Access: rw}, tag.Command{Value: tag.Of("abcd")}, tag.BadOutOfRange},
		{"bytes too short", Tag{Type: "bytes(3)", Access: rw}, tag.Command{Value: tag.OfBytes([]byte{1})}, tag.BadOutOfRange},
		{"read only", Tag{Type: "uint16", Access: tag.Readable}, tag.Command{Value: tag.Of(uint16(1))}, tag.BadNotWritable},
		{"a status", Tag{Type: "uint16", Access: rw}, tag.Command{Value: tag.Of(uint16(1)), Put: tag.BadTimeout}, tag.BadWriteNotSupported},
		{"a time", Tag{Type: "uint16", Access: rw}, tag.Command{Value: tag.Of(uint16(1)), At: 1}, tag.BadWriteNotSupported},
		{"a part of a scalar", Tag{Type: "uint16", Access: rw}, tag.Command{Value: tag.Of(uint16(1)), Part: true}, tag.BadWriteNotSupported},
		{"a part beyond the end", Tag{Type: "uint16[4]", Access: rw}, tag.Command{Value: tag.OfSlice([]uint16{1, 2}), Part: true, From: 3}, tag.BadIndexRangeNoData},
	} {
		row.tag.Address = "holding:0"
		if _, status := mustField(t, row.tag).encode(&row.cmd, nil); status != row.want {
			t.Errorf("%s: %v, want %v", row.name, status, row.want)
		}
	}
}

func TestPartOfAnArrayTouchesOnlyItsRegisters(t *testing.T) {
	f := mustField(t, Tag{Address: "holding:10", Type: "uint32[4]"})
	w, status := f.encode(&tag.Command{Value: tag.OfSlice([]uint32{7, 8}), Part: true, From: 1}, nil)
	if status != tag.Good || w.start != 12 || w.count != 4 || !bytes.Equal(w.data, unhex("0000 0007 0000 0008")) {
		t.Errorf("%+v, %v", w, status)
	}
}

func TestMasks(t *testing.T) {
	for bit := range 16 {
		for _, on := range []bool{true, false} {
			and, or := masks(bit, on)
			for _, before := range []uint16{0, 0xFFFF, 0xA5C3} {
				// The device's own rule (Application Protocol, 6.16).
				after := before&and | or&^and
				want := before &^ (1 << bit)
				if on {
					want |= 1 << bit
				}
				if after != want || withBit([]byte{byte(before >> 8), byte(before)}, bit, on) != want {
					t.Errorf("bit %d %v of %04x: %04x", bit, on, before, after)
				}
			}
		}
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	var fields []*field
	for _, typ := range []string{"uint16", "int32", "float32", "float64", "string(8)", "uint16[8]"} {
		fields = append(fields, mustField(t, Tag{Address: "holding:0", Type: typ}))
	}
	fields = append(fields, mustField(t, Tag{Address: "holding:0", Type: "int16", Scale: "0.1", Offset: "-40"}),
		mustField(t, Tag{Address: "holding:3.7"}))
	data := bytes.Repeat([]byte{0x41}, 32)
	dst := make([]tag.Sample, 0, len(fields))
	if n := testing.AllocsPerRun(100, func() { dst = decodeAll(fields, 0, 16, data, dst[:0]) }); n != 0 {
		t.Errorf("%v allocations a reading of %d values", n, len(dst))
	}
	if len(dst) != len(fields) {
		t.Errorf("%d values of %d", len(dst), len(fields))
	}
}

func BenchmarkDecode120(b *testing.B) {
	var fields []*field
	for i := range 120 {
		fields = append(fields, mustField(b, Tag{Address: Address{Holding, i, -1}.String(), Type: "int16", Scale: "0.1"}))
	}
	data := bytes.Repeat([]byte{0x12, 0x34}, 120)
	var dst []tag.Sample
	b.ReportAllocs()
	for b.Loop() {
		dst = decodeAll(fields, 0, 120, data, dst[:0])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/120, "ns/value")
}
