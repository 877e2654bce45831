package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

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

const guidText = "\x91\x2B\x96\x72\x75\xFA\xE6\x4A\x8D\x28\xB4\x04\xDC\x7D\xAF\x63"

// golden pairs values with their bytes. The rows of Part 6 are its own examples.
var golden = []struct {
	name string
	hex  string
	add  func([]byte) []byte
	read func(*Reader) any
	want any
}{
	{"Part 6 5.2.2.2 Integer 1000000000", "00 CA 9A 3B",
		func(b []byte) []byte { return AppendUint32(b, 1000000000) }, func(r *Reader) any { return r.Int32() }, int32(1000000000)},
	{"Part 6 5.2.2.3 Float -6.5", "00 00 D0 C0",
		func(b []byte) []byte { return AppendFloat32(b, -6.5) }, func(r *Reader) any { return r.Float32() }, float32(-6.5)},
	{"Part 6 5.2.2.4 String 水Boy", "06 00 00 00 E6 B0 B4 42 6F 79",
		func(b []byte) []byte { return AppendString(b, "水Boy") }, func(r *Reader) any { return r.String() }, "水Boy"},
	{"Part 6 5.2.2.5 DateTime 0", "00 00 00 00 00 00 00 00",
		func(b []byte) []byte { return AppendTime(b, 0) }, func(r *Reader) any { return r.Time() }, tag.Time(0)},
	{"Part 6 5.2.2.5 DateTime before 1601", "00 00 00 00 00 00 00 00",
		func(b []byte) []byte { return AppendTime(b, -1) }, func(r *Reader) any { return r.Time() }, tag.Time(0)},
	{"Part 6 5.2.2.5 DateTime after 9999", "FF FF FF FF FF FF FF 7F",
		func(b []byte) []byte { return AppendTime(b, tag.MaxTime) }, func(r *Reader) any { return r.Time() }, tag.MaxTime},
	{"Part 6 5.2.2.6 Guid 72962B91-FA75-4AE6-8D28-B404DC7DAF63", "91 2B 96 72 75 FA E6 4A 8D 28 B4 04 DC 7D AF 63",
		func(b []byte) []byte { return AppendGUID(b, [16]byte([]byte(guidText))) }, func(r *Reader) any { return r.GUID() }, [16]byte([]byte(guidText))},
	{"Part 6 5.2.2.7 null ByteString", "FF FF FF FF",
		func(b []byte) []byte { return AppendByteString(b, nil) }, func(r *Reader) any { return r.ByteString() }, []byte(nil)},
	{"Part 6 5.2.2.7 empty ByteString", "00 00 00 00",
		func(b []byte) []byte { return AppendByteString(b, []byte{}) }, func(r *Reader) any { return r.ByteString() }, []byte{}},
	{"Part 6 5.2.2.9 two-byte NodeId 72", "00 48",
		func(b []byte) []byte { return AppendNodeID(b, NumericID(0, 72)) }, func(r *Reader) any { return r.NodeID() }, NumericID(0, 72)},
	{"Part 6 5.2.2.9 four-byte NodeId 1025 of 5", "01 05 01 04",
		func(b []byte) []byte { return AppendNodeID(b, NumericID(5, 1025)) }, func(r *Reader) any { return r.NodeID() }, NumericID(5, 1025)},
	{"Part 6 5.2.2.9 numeric NodeId of a late namespace", "02 00 01 01 00 00 00",
		func(b []byte) []byte { return AppendNodeID(b, NumericID(256, 1)) }, func(r *Reader) any { return r.NodeID() }, NumericID(256, 1)},
	{"Part 6 5.2.2.9 numeric NodeId of 32 bits", "02 01 00 00 00 01 00",
		func(b []byte) []byte { return AppendNodeID(b, NumericID(1, 65536)) }, func(r *Reader) any { return r.NodeID() }, NumericID(1, 65536)},
	{"Part 6 5.2.2.9 string NodeId Hot水 of 1", "03 01 00 06 00 00 00 48 6F 74 E6 B0 B4",
		func(b []byte) []byte { return AppendNodeID(b, TextID(1, "Hot水")) }, func(r *Reader) any { return r.NodeID() }, TextID(1, "Hot水")},
	{"Part 6 5.2.2.9 Guid NodeId", "04 04 00 91 2B 96 72 75 FA E6 4A 8D 28 B4 04 DC 7D AF 63",
		func(b []byte) []byte { return AppendNodeID(b, NodeID{NS: 4, Type: GUID, Str: guidText}) },
		func(r *Reader) any { return r.NodeID() }, NodeID{NS: 4, Type: GUID, Str: guidText}},
	{"Part 6 5.2.2.9 opaque NodeId", "05 02 00 02 00 00 00 DE AD",
		func(b []byte) []byte { return AppendNodeID(b, NodeID{NS: 2, Type: Opaque, Str: "\xDE\xAD"}) },
		func(r *Reader) any { return r.NodeID() }, NodeID{NS: 2, Type: Opaque, Str: "\xDE\xAD"}},
	{"Part 6 5.2.2.10 ExpandedNodeId with URI and server", "C0 48 01 00 00 00 75 07 00 00 00", nil,
		func(r *Reader) any { n, uri, srv := r.ExpandedID(); return []any{n, uri, srv} }, []any{NumericID(0, 72), "u", uint32(7)}},
	{"Part 6 5.2.2.13 QualifiedName", "02 00 01 00 00 00 78",
		func(b []byte) []byte { return AppendQualifiedName(b, 2, "x") },
		func(r *Reader) any { ns, s := r.QualifiedName(); return []any{ns, s} }, []any{uint16(2), "x"}},
	{"Part 6 5.2.2.14 LocalizedText", "03 02 00 00 00 65 6E 01 00 00 00 78",
		func(b []byte) []byte { return AppendLocalizedText(b, "en", "x") },
		func(r *Reader) any { l, s := r.LocalizedText(); return []any{l, s} }, []any{"en", "x"}},
	{"Part 6 5.2.2.14 empty LocalizedText", "00",
		func(b []byte) []byte { return AppendLocalizedText(b, "", "") },
		func(r *Reader) any { l, s := r.LocalizedText(); return []any{l, s} }, []any{"", ""}},
	{"Part 6 5.2.2.15 ExtensionObject without body", "00 00 00",
		func(b []byte) []byte { return AppendExtension(b, &Extension{}) },
		func(r *Reader) any { return r.Extension() }, Extension{}},
	{"Part 6 5.2.2.15 ExtensionObject", "01 00 D4 02 01 02 00 00 00 0A 0B",
		func(b []byte) []byte {
			b, at := BeginExtension(b, id.DataChangeFilter_Encoding_DefaultBinary)
			return EndExtension(append(b, 10, 11), at)
		},
		func(r *Reader) any { return r.Extension() },
		Extension{NumericID(0, id.DataChangeFilter_Encoding_DefaultBinary), BinaryBody, []byte{10, 11}}},
	{"Part 6 5.2.2.16 null Variant", "00",
		func(b []byte) []byte { return AppendVariant(b, tag.Value{}) }, func(r *Reader) any { return r.Variant() }, tag.Value{}},
	{"Part 6 5.2.2.16 Raw without bytes is the null Variant", "00",
		func(b []byte) []byte { return AppendVariant(b, tag.OfRaw(nil)) }, func(r *Reader) any { return r.Variant() }, tag.Value{}},
	{"Part 6 5.2.2.16 Variant of Int16", "04 FE FF",
		func(b []byte) []byte { return AppendVariant(b, tag.Of(int16(-2))) }, func(r *Reader) any { return r.Variant() }, tag.Of(int16(-2))},
	{"Part 6 5.2.2.16 Variant of DateTime", "0D FF FF FF FF FF FF FF 7F",
		func(b []byte) []byte { return AppendVariant(b, tag.Of(tag.MaxTime)) }, func(r *Reader) any { return r.Variant() }, tag.Of(tag.MaxTime)},
	{"Part 6 5.2.2.16 Variant of an array of Boolean", "81 02 00 00 00 01 00",
		func(b []byte) []byte { return AppendVariant(b, tag.OfSlice([]bool{true, false})) },
		func(r *Reader) any { return r.Variant() }, tag.OfSlice([]bool{true, false})},
	{"Part 6 5.2.2.16 Variant of an array of Int32", "86 02 00 00 00 01 00 00 00 FF FF FF FF",
		func(b []byte) []byte { return AppendVariant(b, tag.OfSlice([]int32{1, -1})) },
		func(r *Reader) any { return r.Variant() }, tag.OfSlice([]int32{1, -1})},
	{"Part 6 5.2.2.16 Variant of an array of String", "8C 02 00 00 00 01 00 00 00 61 00 00 00 00",
		func(b []byte) []byte { return AppendVariant(b, tag.OfSlice([]string{"a", ""})) },
		func(r *Reader) any { return r.Variant() }, tag.OfSlice([]string{"a", ""})},
	{"Part 6 5.2.2.17 DataValue", "0F 06 2A 00 00 00 00 00 0A 80 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00",
		func(b []byte) []byte {
			return AppendDataValue(b, &DataValue{tag.Of(int32(42)), 0x800A0000, 1, 2, 0})
		},
		func(r *Reader) any { return r.DataValue() }, DataValue{tag.Of(int32(42)), 0x800A0000, 1, 2, 0x0F}},
	{"Part 6 5.2.2.17 DataValue with picoseconds", "3D 01 01 01 00 00 00 00 00 00 00 07 00 02 00 00 00 00 00 00 00 08 00", nil,
		func(r *Reader) any { return r.DataValue() }, DataValue{tag.Of(true), 0, 1, 2, 0x3D}},
	{"Part 4 7.34 ResponseHeader", "01 00 8D 01 01 00 00 00 00 00 00 00 05 00 00 00 00 00 0A 80 00 FF FF FF FF 00 00 00",
		func(b []byte) []byte {
			return AppendResponseHeader(b, id.ServiceFault_Encoding_DefaultBinary, 5, ua.StatusBadTimeout, 1)
		},
		func(r *Reader) any {
			r.NodeID()
			m, err := DecodeMessage(id.ServiceFault_Encoding_DefaultBinary, r)
			if err != nil {
				return err
			}
			return m.(*ua.ServiceFault).ResponseHeader.ServiceResult
		}, ua.StatusBadTimeout},
	{"Part 4 7.33 RequestHeader", "00 07 01 00 00 00 00 00 00 00 05 00 00 00 0F 00 00 00 FF FF FF FF 10 27 00 00 00 00 00", nil,
		func(r *Reader) any { return r.RequestHeader() }, RequestHeader{NumericID(0, 7), 1, 5, 15, "", 10000}},
}

func TestGolden(t *testing.T) {
	for _, row := range golden {
		want := unhex(t, row.hex)
		if row.add != nil {
			if got := row.add([]byte("x")); !bytes.Equal(got, append([]byte("x"), want...)) {
				t.Errorf("%s: appended % X, want % X", row.name, got[1:], want)
			}
		}
		r := NewReader(want)
		got := row.read(&r)
		if v, ok := row.want.(tag.Value); ok {
			if !v.Equal(got.(tag.Value)) {
				t.Errorf("%s: read %v, want %v", row.name, got, v)
			}
		} else if v, ok := row.want.(DataValue); ok {
			g := got.(DataValue)
			if !v.Value.Equal(g.Value) || v.Status != g.Status || v.Source != g.Source || v.Server != g.Server || v.Mask != g.Mask {
				t.Errorf("%s: read %v, want %v", row.name, got, v)
			}
		} else if !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: read %#v, want %#v", row.name, got, row.want)
		}
		if r.Err() != nil || len(r.Rest()) != 0 {
			t.Errorf("%s: %v, %d bytes left", row.name, r.Err(), len(r.Rest()))
		}
		for n := range want { // no part of it can be read
			r := NewReader(want[:n])
			if row.read(&r); r.Err() == nil {
				t.Errorf("%s: %d bytes of it were read without an error", row.name, n)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	variant := func(r *Reader) { r.Variant() }
	for _, row := range []struct {
		name string
		hex  string
		read func(*Reader)
		want error
	}{
		{"Part 6 5.2.2.9 NodeId of an unknown encoding", "06 00", func(r *Reader) { r.NodeID() }, ErrValue},
		{"Part 6 5.2.2.10 a NodeId has no server index", "40 01 00 00 00 00", func(r *Reader) { r.NodeID() }, ErrValue},
		{"Part 6 5.2.2.15 ExtensionObject of an unknown encoding", "00 00 03", func(r *Reader) { r.Extension() }, ErrValue},
		{"Part 6 5.2.2.16 dimensions without array", "46 01 00 00 00", variant, ErrValue},
		{"Part 6 5.2.2.16 array of nothing", "80 01 00 00 00", variant, ErrValue},
		{"Part 6 5.2.2.16 Variant in a Variant", "18 01 01", variant, ErrValue},
		{"Part 6 5.2.2.16 type 32", "20 01", variant, ErrValue},
		{"Part 6 5.2.2.16 product of dimensions", "C3 02 00 00 00 01 02 02 00 00 00 02 00 00 00 02 00 00 00", variant, ErrValue},
		{"Part 6 5.2.2.16 product of dimensions overflows", "C3 00 00 00 00 03 00 00 00 00 00 01 00 00 00 01 00 00 00 01 00", variant, ErrValue},
		{"Part 6 5.2.2.16 negative dimension", "C3 01 00 00 00 01 02 00 00 00 FF FF FF FF FF FF FF FF", variant, ErrValue},
		{"count beyond the message", "86 00 00 00 40 00 00 00 00", variant, ErrShort},
		{"count of strings beyond the message", "8C 03 00 00 00 FF FF FF FF FF FF FF FF", variant, ErrShort},
		{"length beyond the message", "05 00 00 00 61", func(r *Reader) { r.ByteString() }, ErrShort},
	} {
		r := NewReader(unhex(t, row.hex))
		row.read(&r)
		if r.Err() != row.want {
			t.Errorf("%s: error %v, want %v", row.name, r.Err(), row.want)
		}
		if r.Rest() != nil || r.Uint32() != 0 || r.String() != "" {
			t.Errorf("%s: reads on after its error", row.name)
		}
		if row.want != ErrShort && row.name[:10] == "Part 6 5.2" {
			r = NewReader(unhex(t, row.hex))
			if r.uaVariant(); strings.Contains(row.name, "5.2.2.16") && r.Err() != row.want {
				t.Errorf("%s: gopcua's Variant: error %v, want %v", row.name, r.Err(), row.want)
			}
		}
	}
}

func TestNullArrays(t *testing.T) {
	for _, n := range []int32{-1, -2, math.MinInt32} { // any negative length is null (Part 6, 5.2.5)
		r := NewReader(AppendUint32([]byte{0x86}, uint32(n)))
		if v := r.Variant(); r.Err() != nil || !v.IsArray() || v.Len() != 0 {
			t.Errorf("length %d: %v, %v", n, v, r.Err())
		}
	}
	r := NewReader([]byte{0x8C, 0xFF, 0xFF, 0xFF, 0xFF})
	v := r.uaVariant()
	if s, ok := v.Value().([]string); r.Err() != nil || !ok || s != nil {
		t.Errorf("null array of String: %v, %v", v.Value(), r.Err())
	}
	if b := appendUAVariant(nil, v); !bytes.Equal(b, []byte{0x8C, 0xFF, 0xFF, 0xFF, 0xFF}) {
		t.Errorf("null array of String became % X", b)
	}
}

// TestReservedTypes: types 26 to 31 are read as ByteStrings (Part 6, 5.2.2.16).
func TestReservedTypes(t *testing.T) {
	for k := byte(26); k <= 31; k++ {
		b := []byte{k, 1, 0, 0, 0, 0xAB}
		r := NewReader(b)
		if v := r.Variant(); r.Err() != nil || v.Kind() != tag.Raw || !bytes.Equal(v.Bytes(), b) {
			t.Errorf("type %d: %v, %v", k, v, r.Err())
		}
		r = NewReader(b)
		if v := r.uaVariant(); r.Err() != nil || !bytes.Equal(v.ByteString(), b[5:]) {
			t.Errorf("type %d: gopcua's %v, %v", k, v, r.Err())
		}
	}
}

func TestNodeIDText(t *testing.T) {
	for _, row := range []struct {
		id   NodeID
		text string
		null bool
	}{
		{NodeID{}, "i=0", true},
		{NumericID(0, 84), "i=84", false},
		{TextID(2, "boiler.$state"), "ns=2;s=boiler.$state", false},
		{TextID(0, ""), "s=", true},
		{NodeID{Type: GUID}, "g=00000000-0000-0000-0000-000000000000", true},
		{NodeID{Type: GUID, Str: nullGUID}, "g=00000000-0000-0000-0000-000000000000", true},
		{NodeID{NS: 4, Type: GUID, Str: guidText}, "ns=4;g=72962b91-fa75-4ae6-8d28-b404dc7daf63", false},
		{NodeID{NS: 1, Type: Opaque, Str: "\x01\x02\x03"}, "ns=1;b=AQID", false},
	} {
		if row.id.String() != row.text || row.id.IsNull() != row.null {
			t.Errorf("%#v is %v, null %v; want %s", row.id, row.id, row.id.IsNull(), row.text)
		}
		n := ToUA(row.id)
		want := row.id
		if want.Type == GUID && want.Str == "" {
			want.Str = nullGUID
		}
		if FromUA(n) != want || !strings.EqualFold(n.String(), row.text) && want.Type != Opaque {
			t.Errorf("%v: %v there and %v back", row.id, n, FromUA(n))
		}
	}
	if FromUA(nil) != (NodeID{}) {
		t.Error("nil is not the null NodeId")
	}
}

func TestCloneOutlivesTheBuffer(t *testing.T) {
	b := AppendNodeID(nil, TextID(2, "boiler"))
	r := NewReader(b)
	n := r.NodeID()
	kept := n.Clone()
	clear(b)
	if kept != TextID(2, "boiler") || n == kept {
		t.Errorf("kept %v of %v", kept, n)
	}
}

func TestVariantsOfGopcua(t *testing.T) {
	for _, v := range []any{nil, true, int8(-1), "", "x", []string{"", "a"}, [][]byte{{1}, {2, 3}, nil}, ua.ByteArray{1, 2},
		[][]int32{{1, 2}, {3, 4}}, time.Unix(1, 0).UTC(), ua.StatusBadTimeout, math.Inf(1)} {
		var m *ua.Variant
		if s, ok := v.([][]byte); ok { // gopcua refuses strings of different lengths
			r := NewReader(AppendVariant(nil, tag.OfSlice(s)))
			if m = r.uaVariant(); r.Err() != nil {
				t.Fatal(r.Err())
			}
		} else {
			m = ua.MustVariant(v)
		}
		x := FromVariant(m)
		back, ok := ToVariant(x)
		if !ok || !reflect.DeepEqual(back.Value(), v) || !reflect.DeepEqual(m.Value(), v) {
			t.Errorf("%v: became %v, and %v", v, x, back.Value())
		}
	}
	if _, ok := ToVariant(tag.OfRaw([]byte{0x20})); ok {
		t.Error("an impossible Variant was converted")
	}
}

func TestExtensions(t *testing.T) {
	f := ua.NewExtensionObject(&ua.DataChangeFilter{Trigger: 1, DeadbandType: 2, DeadbandValue: 5})
	r := NewReader(appendUAExtensionObject(nil, f))
	e := r.Extension()
	if got, ok, err := e.DataChangeFilter(); got != (DataChangeFilter{1, 2, 5}) || !ok || err != nil || e.IsNull() {
		t.Errorf("DataChangeFilter: %v, %v, %v", got, ok, err)
	}
	if v, err := e.Value(); err != nil || !reflect.DeepEqual(v, f.Value) {
		t.Errorf("Value: %v, %v", v, err)
	}
	e.Body = e.Body[:7]
	if _, ok, err := e.DataChangeFilter(); ok || err != ErrShort {
		t.Errorf("short DataChangeFilter: %v, %v", ok, err)
	}
	if _, err := e.Value(); err != ErrShort {
		t.Errorf("short Value: %v", err)
	}

	own := &Extension{TextID(3, "mine"), BinaryBody, []byte{1, 2, 3}}
	b := AppendExtension(nil, own)
	r = NewReader(b)
	x := r.uaExtensionObject()
	if raw, ok := x.Value.(RawBody); !ok || !bytes.Equal(raw, own.Body) || !bytes.Equal(appendUAExtensionObject(nil, x), b) {
		t.Errorf("a type of the application: %v, %v", x, r.Err())
	}

	longer := AppendExtension(nil, &Extension{NumericID(0, id.Range_Encoding_DefaultBinary), BinaryBody, make([]byte, 20)})
	r = NewReader(append(longer, 0xAA))
	if x := r.uaExtensionObject(); r.Uint8() != 0xAA || x.Value.(*ua.Range).High != 0 {
		t.Errorf("a body of a later version: %v, %v", x, r.Err())
	}

	xml := unhex(t, "00 05 02 04 00 00 00 3C 61 2F 3E")
	r = NewReader(xml)
	if x := r.uaExtensionObject(); r.Err() != nil || *x.Value.(*ua.XMLElement) != "<a/>" || !bytes.Equal(appendUAExtensionObject(nil, x), xml) {
		t.Errorf("an XML body: %v, %v", x, r.Err())
	}
}

func TestUnknownMessages(t *testing.T) {
	r := NewReader([]byte(header))
	if m, err := DecodeMessage(1, &r); m != nil || !errors.Is(err, ErrUnknown) {
		t.Errorf("type 1: %v, %v", m, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("what is no message was appended")
		}
	}()
	AppendMessage(nil, &ua.Range{})
}

// TestStructuredValues: values that package tag has no kind for are those that gopcua would send.
func TestStructuredValues(t *testing.T) {
	structure, ok := ValueOf(&ua.Range{Low: 1, High: 2})
	if _, known := ValueOf(&ua.ReadRequest{}); !ok || known {
		t.Errorf("a Range has a value: %v; a message has one: %v", ok, known)
	}
	for _, row := range []struct {
		name  string
		value tag.Value
		want  any
	}{
		{"NodeId", NodeIDValue(TextID(2, "boiler")), ua.NewStringNodeID(2, "boiler")},
		{"QualifiedName", QualifiedNameValue(2, "boiler"), &ua.QualifiedName{NamespaceIndex: 2, Name: "boiler"}},
		{"LocalizedText", LocalizedTextValue("de", "Kessel"), ua.NewLocalizedTextWithLocale("Kessel", "de")},
		{"structure", structure, &ua.ExtensionObject{EncodingMask: ua.ExtensionObjectBinary, Value: &ua.Range{Low: 1, High: 2},
			TypeID: ua.NewFourByteExpandedNodeID(0, id.Range_Encoding_DefaultBinary)}},
	} {
		m, ok := ToVariant(row.value)
		if !ok || !reflect.DeepEqual(m.Value(), row.want) {
			t.Errorf("%s: %v", row.name, m.Value())
		}
		if back := FromVariant(m); !back.Equal(row.value) {
			t.Errorf("%s: %v became %v", row.name, row.value, back)
		}
	}
}

// TestSkipBuiltin passes over each built-in type, as one and as the elements of an array.
func TestSkipBuiltin(t *testing.T) {
	for seed := range uint64(2000) {
		b := appendUAVariant(nil, newFiller(seed).variant(0))
		r := NewReader(b[1:])
		switch {
		case b[0] == 0 || b[0]&0x40 != 0:
			continue
		case b[0]&0x80 == 0:
			r.SkipBuiltin(b[0])
		default:
			for range r.Count(1) {
				r.SkipBuiltin(b[0] & 0x3F)
			}
		}
		if r.Err() != nil || len(r.Rest()) != 0 {
			t.Fatalf("% X: %v, %d bytes left", b, r.Err(), len(r.Rest()))
		}
	}
	for _, k := range []uint8{32, 64, 255} {
		r := NewReader(make([]byte, 100))
		if r.SkipBuiltin(k); r.Err() != ErrValue {
			t.Errorf("type %d: %v", k, r.Err())
		}
	}
}

// TestBigEndian: the machines at hand are little endian, so the other order is pretended.
func TestBigEndian(t *testing.T) {
	defer func(v bool) { bigEndian = v }(bigEndian)
	bigEndian = true
	b := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	littleEndian(b, 4)
	if !bytes.Equal(b, []byte{4, 3, 2, 1, 8, 7, 6, 5}) {
		t.Errorf("% X", b)
	}
}
