package modbus

import (
	"strings"
	"testing"
	"time"

	"edged/drivers/tag"
)

func TestTagCheckNamesTheKey(t *testing.T) {
	rw := tag.Readable | tag.Writable
	for _, row := range []struct {
		tag  Tag
		want string // "" is a good tag
	}{
		{Tag{Address: "holding:0"}, ""},
		{Tag{Address: "coil:0", Access: rw}, ""},
		{Tag{Address: "holding:0.3", Access: rw}, ""},
		{Tag{Address: "input:0", Type: "float32", Order: "CDAB"}, ""},
		{Tag{Address: "holding:0", Type: "float64", Order: "CDAB"}, ""},
		{Tag{Address: "holding:0", Type: "float32", Decimals: "2"}, ""},
		{Tag{Address: "4001"}, "address: "},
		{Tag{Address: "holding:65535", Type: "uint32"}, "address: "},
		{Tag{Address: "holding:0", Type: "uint17"}, "type: "},
		{Tag{Address: "holding:0", Type: "bool"}, "type: bool: holding:0 is a register: name one bit"},
		{Tag{Address: "holding:0", Type: "int8"}, "type: int8: registers have 16 bits: use int16"},
		{Tag{Address: "coil:0", Type: "uint16"}, "type: "},
		{Tag{Address: "holding:0.1", Type: "uint16"}, "type: "},
		{Tag{Address: "holding:0.1", Type: "bool[3]"}, "type: "},
		{Tag{Address: "holding:0", Type: "string"}, "type: "},
		{Tag{Address: "holding:0", Type: "uint16[126]"}, "type: "},
		{Tag{Address: "holding:0", Type: "uint16[124]", Access: rw}, "type: "},
		{Tag{Address: "holding:0", Order: "CADB"}, "order: "},
		{Tag{Address: "holding:0", Type: "float32", Order: "ABCDEFGH"}, "order: "},
		{Tag{Address: "coil:0", Order: "ABCD"}, "order: "},
		{Tag{Address: "holding:0", Type: "string(4)", Order: "CDAB"}, "order: "},
		{Tag{Address: "holding:0", Scale: "0,1"}, "scale: "},
		{Tag{Address: "holding:0", Scale: "0"}, "scale: 0 would lose every value"},
		{Tag{Address: "holding:0", Offset: "x"}, "offset: "},
		{Tag{Address: "coil:0", Scale: "2"}, "scale: "},
		{Tag{Address: "holding:0", Decimals: "2"}, "decimals: "},
		{Tag{Address: "holding:0", Scale: "0.1", Decimals: "-1"}, "decimals: "},
		{Tag{Address: "holding:0", Type: "int16", Sentinel: []string{"-32768", "40000"}}, "sentinel: "},
		{Tag{Address: "holding:0", Sentinel: []string{"0x10000"}}, "sentinel: "},
		{Tag{Address: "holding:0", Type: "float32", NaN: "ok"}, "nan: "},
		{Tag{Address: "input:0", Access: rw}, "access: "},
		{Tag{Address: "discrete:0", Access: rw}, "access: "},
		{Tag{Address: "holding:0", HasRange: true, Low: 3, High: 2}, "range: "},
		{Tag{Address: "holding:0", Poll: -1}, "poll: "},
		{Tag{Address: "holding:0", Hold: -1}, "hold: "},
		{Tag{Address: "holding:0", Verify: true}, "verify: "},
		{Tag{Address: "holding:0", Verify: true, Access: rw}, ""},
	} {
		errs := row.tag.Check(&Config{})
		switch {
		case row.want == "" && len(errs) > 0:
			t.Errorf("%+v: %v", row.tag, errs[0])
		case row.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), row.want)):
			t.Errorf("%+v: %v, want one that begins %q", row.tag, errs, row.want)
		}
	}
	both := Tag{Address: "holding:0", Order: "X", Scale: "y", Access: rw, HasRange: true, Low: 1}
	if errs := both.Check(&Config{}); len(errs) != 3 {
		t.Errorf("not every mistake is told: %v", errs)
	}
}

func TestShapeAndDefinition(t *testing.T) {
	tg := Tag{Address: "40021", Type: "int16", Scale: "0.1", Offset: "-40"}
	if k, n := tg.Shape(&Config{}); k != tag.Float64 || n != 0 {
		t.Errorf("%v, %d", k, n)
	}
	if how, place := tg.Definition(&Config{}); how.Definition(place) != "holding:20 int16 * 0.1 + -40" {
		t.Errorf("%q", how.Definition(place))
	}
	bit := Tag{Address: "holding:30.4"}
	if how, place := bit.Definition(&Config{}); how.Definition(place) != "holding:30.4" {
		t.Errorf("%q", how.Definition(place))
	}
	tg = Tag{Address: "holding:0", Type: "float32[3]"}
	if k, n := tg.Shape(&Config{}); k != tag.Float32 || n != 3 {
		t.Errorf("%v, %d", k, n)
	}
	tg = Tag{Address: "x"}
	if how, _ := tg.Definition(&Config{}); how != nil {
		t.Errorf("a wrong tag has the definition %v", how)
	}
	if k, _ := tg.Shape(&Config{}); k != tag.Null {
		t.Error("a wrong tag has a shape")
	}
}

func TestRepeat(t *testing.T) {
	for _, row := range []struct {
		address, typ string
		n            int
		want         string
	}{
		{"holding:10", "uint16", 3, "holding:13"},
		{"holding:10", "float32", 3, "holding:16"},
		{"40011", "float32", 1, "holding:12"},
		{"coil:7", "", 2, "coil:9"},
		{"holding:0.14", "", 3, "holding:1.1"},
		{"holding:65534", "uint16", 2, ""},
	} {
		tg := Tag{Address: row.address, Type: row.typ}
		if s, err := tg.Repeat(&Config{}, row.n); s != row.want || (err == nil) != (row.want != "") {
			t.Errorf("%s %s, number %d: %q, %v", row.address, row.typ, row.n, s, err)
		}
	}
}

func TestConfigCheck(t *testing.T) {
	tags := []Tag{
		{Name: "a", Address: "holding:0", Type: "float32"},
		{Name: "b", Address: "holding:30"},
		{Name: "c", Address: "input:0"},
		{Name: "d", Address: "holding:40", Poll: time.Minute},
		{Name: "e", Address: "holding:50", Access: tag.Writable},
	}
	for _, row := range []struct {
		cfg  Config
		want string
	}{
		{Config{Tags: tags, Together: [][]string{{"a", "b"}}}, ""},
		{Config{Tags: tags, Unit: 256}, "unit: "},
		{Config{Tags: tags, MaxRegisters: 126}, "max_registers: "},
		{Config{Tags: tags, MaxBits: 2001}, "max_bits: "},
		{Config{Tags: tags, Gaps: -1}, "gaps: "},
		{Config{Tags: tags, Writes: "any"}, "writes: "},
		{Config{Tags: tags, Holes: []string{"holding:5", "12-19"}}, "holes: "},
		{Config{Tags: tags, Holes: []string{"holding:1-3"}}, "holes: a at holding:0 lies in the hole holding:1-3"},
		{Config{Tags: tags, MaxRegisters: 1}, "max_registers: a needs 2"},
		{Config{Tags: tags, Together: [][]string{{"a", "c"}}}, "together: c is in another table"},
		{Config{Tags: tags, Together: [][]string{{"a", "x"}}}, "together: x is no tag"},
		{Config{Tags: tags, Together: [][]string{{"a", "d"}}}, "together: d is polled with another period"},
		{Config{Tags: tags, Together: [][]string{{"a", "e"}}}, "together: e is not readable"},
		{Config{Tags: tags, Together: [][]string{{"a", "a"}}}, "together: a is named twice"},
		{Config{Tags: tags, Together: [][]string{{"a", "b"}, {"b", "c"}}}, "together: b is in another group too"},
		{Config{Tags: tags, MaxRegisters: 20, Together: [][]string{{"a", "b"}}}, "together: a, b span 31"},
		{Config{Tags: tags, Holes: []string{"holding:5"}, Together: [][]string{{"a", "b"}}}, "together: the hole"},
	} {
		errs := row.cfg.Check()
		if row.want == "" && len(errs) > 0 || row.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), row.want)) {
			t.Errorf("%v, want one that begins %q", errs, row.want)
		}
	}
	row := Config{Tags: tags, Holes: []string{"holding:5", "12-19"}}
	if e := row.Check()[0]; e.Index != 1 {
		t.Errorf("the wrong hole is entry %d", e.Index)
	}
	if _, err := New(Config{Name: "x", Tags: []Tag{{Name: "t", Address: "?"}}}); err == nil {
		t.Error("New took a wrong tag")
	}
	line := NewLink(LinkConfig{Framing: RTU})
	if _, err := New(Config{Name: "x", Unit: 0, Tags: tags[:1]}, line); err == nil || !strings.Contains(err.Error(), "unit 0 is everybody") {
		t.Errorf("D15 a broadcast that is read: %v", err)
	}
	if _, err := New(Config{Name: "x", Unit: 0, Tags: tags[4:]}, line); err != nil {
		t.Errorf("D15 a broadcast that is written: %v", err)
	}
}
