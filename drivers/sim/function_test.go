package sim

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"testing"

	"edged/drivers/tag"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// specDevice holds what the rows of exchanges read and write.
func specDevice(t testing.TB) *Device {
	t.Helper()
	bits := func(first int, octets ...byte) (points []PointConfig) {
		for i := range 8 * len(octets) {
			points = append(points, PointConfig{Address: "coil:" + strconv.Itoa(first+i), Value: octets[i/8]>>(i%8)&1 == 1})
			points = append(points, PointConfig{Address: "discrete:" + strconv.Itoa(1000+first+i), Value: octets[i/8]>>(i%8)&1 == 1})
		}
		return points
	}
	points := bits(19, 0xCD, 0x6B, 0x05)
	points = append(points,
		PointConfig{Address: "coil:172", Repeat: 10},
		PointConfig{Address: "holding:0", Repeat: 20},
		PointConfig{Address: "holding:107", Value: 0x022B},
		PointConfig{Address: "holding:108", Repeat: 2},
		PointConfig{Address: "input:8", Value: 0x000A},
		PointConfig{Address: "holding:200", Value: 7, ReadOnly: true},
		PointConfig{Address: "holding:300", Wave: Wave{Kind: "counter"}},
		PointConfig{Address: "input:65535", Value: 0xBEEF},
		PointConfig{Address: "input:1000", Repeat: 125},
	)
	p, err := New(Config{
		Lines: []LineConfig{{Name: "line", URL: "tcp://127.0.0.1:0"}},
		Devices: []DeviceConfig{{Name: "spec", Line: "line", Unit: 1, Points: points,
			Identity: []string{"Company identification", "Product code XX", "V2.11"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := p.Device("spec")
	d.Set(Holding, 4, 0x0012)
	return d
}

func (d *Device) exchange(pdu []byte) []byte {
	var r request
	refused := parseRequest(&r, pdu)
	d.mu.Lock()
	defer d.mu.Unlock()
	answer, _ := d.carryOut(nil, &r, refused)
	return answer
}

// Each row is a request and the answer that the named section of Application Protocol V1.1b3 asks for. The addresses and
// values are chosen here; the examples that the sections print are in TestStandardExamples.
var exchanges = []struct{ name, request, answer string }{
	{"6.1 read coils 20-38", "01 0013 0013", "01 03 CD6B05"},
	{"6.2 read discrete inputs", "02 03FB 0013", "02 03 CD6B05"},
	{"6.3 read holding registers 108-110", "03 006B 0003", "03 06 022B 0000 0000"},
	{"6.4 read input register 9", "04 0008 0001", "04 02 000A"},
	{"6.5 write coil 173 on", "05 00AC FF00", "05 00AC FF00"},
	{"6.5 write coil off", "05 00AC 0000", "05 00AC 0000"},
	{"6.6 write register 2", "06 0001 0003", "06 0001 0003"},
	{"6.11 write ten coils", "0F 00AC 000A 02 CD01", "0F 00AC 000A"},
	{"6.12 write two registers", "10 0001 0002 04 000A 0102", "10 0001 0002"},
	{"6.16 mask write register 5", "16 0004 00F2 0025", "16 0004 00F2 0025"},
	{"6.17 read/write registers", "17 0003 0006 000E 0003 06 00FF 00FF 00FF", "17 0C 0000 0012 0000 0000 0000 0000"},
	{"6.21 basic identification", "2B 0E 01 00", "2B 0E 01 82 00 00 03" +
		"00 16 436F6D70616E79206964656E74696669636174696F6E 01 0F 50726F6475637420636F6465205858 02 05 56322E3131"},
	{"6.21 one object", "2B 0E 04 02", "2B 0E 04 82 00 00 01 02 05 56322E3131"},
	{"6.21 the stream begins anew", "2B 0E 01 50", "2B 0E 01 82 00 00 03" +
		"00 16 436F6D70616E79206964656E74696669636174696F6E 01 0F 50726F6475637420636F6465205858 02 05 56322E3131"},
	{"6.21 unknown object", "2B 0E 04 09", "AB 02"},
	{"6.21 unknown access", "2B 0E 05 00", "AB 03"},
	{"6.21 other MEI", "2B 0D 01 00", "AB 03"},
	{"D7 coils from the middle of an octet", "01 0016 0009", "01 02 7901"},
	{"last address", "04 FFFF 0001", "04 02 BEEF"},
	{"7 unknown function", "08 0000 0000", "88 01"},
	{"7 unknown function above the table", "64", "E4 01"},
	{"7 address not there", "03 0014 0001", "83 02"},
	{"7 block leaves the addresses there are", "03 0012 0003", "83 02"},
	{"7 address beyond the table", "04 FFFF 0002", "84 02"},
	{"7 no registers", "03 0000 0000", "83 03"},
	{"7 more registers than fit", "03 0000 007E", "83 03"},
	{"6.4 most registers", "04 03E8 007D", "04 FA" + strings.Repeat("0000", 125)},
	{"7 more bits than fit", "01 0013 07D1", "81 03"},
	{"7 coil neither on nor off", "05 00AC 0001", "85 03"},
	{"7 byte count differs", "10 0001 0002 03 000A 0102", "90 03"},
	{"7 data short of the byte count", "10 0001 0002 04 000A", "90 03"},
	{"7 data beyond the byte count", "0F 00AC 000A 02 CD0100", "8F 03"},
	{"7 read-only register", "06 00C8 0001", "86 02"},
	{"7 register with a wave", "06 012C 0001", "86 02"},
	{"7 cut request", "03 00", "83 03"},
	{"7 function alone", "17", "97 03"},
}

func TestFunctions(t *testing.T) {
	for _, row := range exchanges {
		t.Run(row.name, func(t *testing.T) {
			got := specDevice(t).exchange(unhex(t, row.request))
			if want := unhex(t, row.answer); !bytes.Equal(got, want) {
				t.Errorf("answer % X, want % X", got, want)
			}
		})
	}
}

// The examples that Application Protocol V1.1b3 prints in its sections, byte for byte. 43/14 is not among
// them: its rows above are ours alone.
func TestStandardExamples(t *testing.T) {
	row := func(address string, values ...int) (points []PointConfig) {
		table, first, _ := strings.Cut(address, ":")
		at, err := strconv.Atoi(first)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			points = append(points, PointConfig{Address: table + ":" + strconv.Itoa(at+i), Value: v})
		}
		return points
	}
	bits := func(table string, first, n int, octets ...byte) (points []PointConfig) {
		for i := range n {
			on := octets[i/8]>>(i%8)&1 == 1
			points = append(points, PointConfig{Address: table + ":" + strconv.Itoa(first+i), Value: on})
		}
		return points
	}
	for _, example := range []struct {
		name, request, answer string
		device                []PointConfig
		bank                  Bank
		address               int
		after                 []uint16 // what the table holds from address on
	}{
		{"6.1", "01 0013 0013", "01 03 CD6B05", bits("coil", 0x13, 19, 0xCD, 0x6B, 0x05), 0, 0, nil},
		{"6.2", "02 00C4 0016", "02 03 ACDB35", bits("discrete", 0xC4, 22, 0xAC, 0xDB, 0x35), 0, 0, nil},
		{"6.3", "03 006B 0003", "03 06 022B 0000 0064", row("holding:107", 0x022B, 0, 0x64), 0, 0, nil},
		{"6.4", "04 0008 0001", "04 02 000A", row("input:8", 0x0A), 0, 0, nil},
		{"6.5", "05 00AC FF00", "05 00AC FF00", bits("coil", 0xAC, 1, 0), Coil, 0xAC, []uint16{1}},
		{"6.6", "06 0001 0003", "06 0001 0003", row("holding:1", 0), Holding, 1, []uint16{3}},
		{"6.11", "0F 0013 000A 02 CD01", "0F 0013 000A", bits("coil", 0x13, 10, 0, 0), Coil, 0x13,
			[]uint16{1, 0, 1, 1, 0, 0, 1, 1, 1, 0}},
		{"6.12", "10 0001 0002 04 000A 0102", "10 0001 0002", row("holding:1", 0, 0), Holding, 1, []uint16{0x0A, 0x0102}},
		{"6.16", "16 0004 00F2 0025", "16 0004 00F2 0025", row("holding:4", 0x12), Holding, 4, []uint16{0x17}},
		{"6.17", "17 0003 0006 000E 0003 06 00FF 00FF 00FF", "17 0C 00FE 0ACD 0001 0003 000D 00FF",
			append(row("holding:3", 0xFE, 0x0ACD, 1, 3, 0x0D, 0xFF), row("holding:14", 0, 0, 0)...), Holding, 14,
			[]uint16{0xFF, 0xFF, 0xFF}},
		{"7", "01 04A1 0001", "81 02", row("holding:0", 0), 0, 0, nil},
	} {
		t.Run(example.name, func(t *testing.T) {
			p, err := New(Config{
				Lines:   []LineConfig{{Name: "line", URL: "tcp://127.0.0.1:0"}},
				Devices: []DeviceConfig{{Name: "d", Line: "line", Points: example.device}},
			})
			if err != nil {
				t.Fatal(err)
			}
			d := p.Device("d")
			if got, want := d.exchange(unhex(t, example.request)), unhex(t, example.answer); !bytes.Equal(got, want) {
				t.Errorf("answer % X, want % X", got, want)
			}
			for i, want := range example.after {
				if got := d.Value(example.bank, example.address+i); got.Bits() != uint64(want) {
					t.Errorf("%v:%d holds %v, want %d", example.bank, example.address+i, got, want)
				}
			}
		})
	}
}

func TestWritesAreStored(t *testing.T) {
	d := specDevice(t)
	rows := []struct {
		name, request string
		bank          Bank
		address       int
		want          []uint16
	}{
		{"6.5 coil", "05 00AC FF00", Coil, 172, []uint16{1}},
		{"6.6 register", "06 0001 0003", Holding, 1, []uint16{3}},
		{"6.11 coils", "0F 00AC 000A 02 CD01", Coil, 172, []uint16{1, 0, 1, 1, 0, 0, 1, 1, 1, 0}},
		{"6.12 registers", "10 0001 0002 04 000A 0102", Holding, 1, []uint16{0x0A, 0x0102}},
		{"6.16 mask", "16 0004 00F2 0025", Holding, 4, []uint16{0x0017}},
		{"6.17 read/write", "17 0003 0006 000E 0003 06 00FF 00FE 00FD", Holding, 14, []uint16{0xFF, 0xFE, 0xFD}},
	}
	for i, row := range rows {
		request := unhex(t, row.request)
		d.exchange(request)
		writes, dropped := d.Writes()
		if len(writes) != i+1 || dropped != 0 {
			t.Fatalf("%s: %d writes in the log, %d dropped", row.name, len(writes), dropped)
		}
		w := writes[i]
		if w.Bank != row.bank || w.Address != row.address || w.Function != request[0] || !slices.Equal(w.Values, row.want) {
			t.Errorf("%s: logged %+v", row.name, w)
		}
		for n, v := range row.want {
			if got := d.Value(row.bank, row.address+n); got.Bits() != uint64(v) {
				t.Errorf("%s: %v:%d is %v, want %d", row.name, row.bank, row.address+n, got, v)
			}
		}
	}
	if got := d.Value(Holding, 9999); !got.IsNull() {
		t.Errorf("an address that is not there holds %v", got)
	}
}

func TestRefusedWriteChangesNothing(t *testing.T) {
	d := specDevice(t)
	d.exchange(unhex(t, "10 0012 0003 06 0001 0002 0003")) // 18 and 19 exist, 20 does not
	d.exchange(unhex(t, "17 0014 0001 0001 0001 02 0009")) // what it reads does not exist
	if writes, _ := d.Writes(); len(writes) != 0 {
		t.Errorf("refused writes were logged: %+v", writes)
	}
	for _, at := range []int{1, 18, 19} {
		if v := d.Value(Holding, at); v.Bits() != 0 {
			t.Errorf("holding:%d holds %v after a refused write", at, v)
		}
	}
}

func TestDeviceLimits(t *testing.T) {
	p, err := New(Config{
		Lines: []LineConfig{{Name: "line", URL: "tcp://127.0.0.1:0"}},
		Devices: []DeviceConfig{{Name: "small", Line: "line", MaxRegisters: 20, MaxBits: 8, Functions: []int{1, 3, 16},
			Points: []PointConfig{{Address: "holding:0", Repeat: 100}, {Address: "coil:0", Repeat: 16}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, request, answer string }{
		{"D5 as many as it takes", "03 0000 0014", "03 28" + strings.Repeat("0000", 20)},
		{"D5 one more", "03 0000 0015", "83 03"},
		{"D5 bits", "01 0000 0009", "81 03"},
		{"D8 only function 16 writes", "06 0000 0001", "86 01"},
		{"D8 function 16", "10 0000 0001 02 0001", "10 0000 0001"},
		{"no identification", "2B 0E 01 00", "AB 01"},
	} {
		if got := p.Device("small").exchange(unhex(t, row.request)); !bytes.Equal(got, unhex(t, row.answer)) {
			t.Errorf("%s: answer % X, want %s", row.name, got, row.answer)
		}
	}
}

func TestIdentityMoreFollows(t *testing.T) {
	long := strings.Repeat("x", 120)
	p, err := New(Config{
		Lines:   []LineConfig{{Name: "line", URL: "tcp://127.0.0.1:0"}},
		Devices: []DeviceConfig{{Name: "d", Line: "line", Identity: []string{long, long, long}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	first := p.Device("d").exchange([]byte{43, 14, 1, 0})
	if len(first) > maxPDU || first[4] != 0xFF || first[5] != 2 || first[6] != 2 {
		t.Fatalf("first answer of %d bytes says more %#x, next %d, objects %d", len(first), first[4], first[5], first[6])
	}
	second := p.Device("d").exchange([]byte{43, 14, 1, first[5]})
	if second[4] != 0 || second[6] != 1 || string(second[9:]) != long {
		t.Fatalf("second answer % X", second)
	}
}

func TestWriteLogIsBounded(t *testing.T) {
	d := specDevice(t)
	for i := range maxWrites + 10 {
		d.exchange([]byte{6, 0, 1, byte(i >> 8), byte(i)})
	}
	writes, dropped := d.Writes()
	if len(writes) > maxWrites || len(writes)+dropped != maxWrites+10 {
		t.Fatalf("%d writes kept, %d dropped", len(writes), dropped)
	}
	if last := writes[len(writes)-1].Values[0]; last != maxWrites+9 {
		t.Errorf("the last write kept is %d", last)
	}
	if w := writes[0]; int(w.Values[0]) != dropped || w.At < tag.Now().Add(-60e9) {
		t.Errorf("the oldest kept is %+v after %d dropped", w, dropped)
	}
}

func FuzzRequest(f *testing.F) {
	for _, row := range exchanges {
		f.Add(unhex(f, row.request))
	}
	d := specDevice(f)
	f.Fuzz(func(t *testing.T, pdu []byte) {
		if len(pdu) == 0 || len(pdu) > maxPDU {
			return
		}
		answer := d.exchange(pdu)
		if len(answer) < 2 || len(answer) > maxPDU {
			t.Fatalf("% X is answered with %d bytes", pdu, len(answer))
		}
		if answer[0] == pdu[0]|0x80 && len(answer) == 2 && answer[1] >= 1 && answer[1] <= 4 {
			return
		}
		if answer[0] != pdu[0] {
			t.Fatalf("function %d is answered as %d", pdu[0], answer[0])
		}
		var r request
		if parseRequest(&r, pdu) != 0 {
			t.Fatalf("% X does not parse and is answered % X", pdu, answer)
		}
		switch n := int(r.end - r.at); r.function {
		case 1, 2:
			if len(answer) != 2+(n+7)/8 {
				t.Fatalf("%d bits in %d bytes", n, len(answer)-2)
			}
		case 3, 4, 23:
			if len(answer) != 2+2*n {
				t.Fatalf("%d registers in %d bytes", n, len(answer)-2)
			}
		}
	})
}
