package address

import (
	"context"
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

func TestWriteStatuses(t *testing.T) {
	s := newSpace(t)
	m := &recorder{}
	f := folder(t, s, "f", m, "v", "r")
	f[2].Access = ua.AccessLevelTypeCurrentRead
	static := variable("static", "static", nil)
	if err := s.Add([]*Node{static}, nil); err != nil {
		t.Fatal(err)
	}
	good := wire.DataValue{Value: tag.Of(1.0)}
	value := ua.AttributeIDValue
	for _, row := range []struct {
		name   string
		item   WriteItem
		rights Rights
		want   tag.Status
	}{
		{"5.10.4 unknown node", WriteItem{Attribute: value, Value: good}, allRights, tag.BadNodeIDUnknown},
		{"no such attribute", WriteItem{Node: f[1], Attribute: 99, Value: good}, allRights, badAttributeIDInvalid},
		{"attribute of another class", WriteItem{Node: f[0], Attribute: value, Value: good}, allRights, badAttributeIDInvalid},
		{"another attribute", WriteItem{Node: f[1], Attribute: ua.AttributeIDDisplayName, Value: good}, allRights, tag.BadNotWritable},
		{"variable type", WriteItem{Node: s.Find(n0(63)), Attribute: value, Value: good}, allRights, tag.BadNotWritable},
		{"read only", WriteItem{Node: f[2], Attribute: value, Value: good}, allRights, tag.BadNotWritable},
		{"read only comes before the user's rights", WriteItem{Node: f[2], Attribute: value, Value: good}, 0, tag.BadNotWritable},
		{"nobody takes it", WriteItem{Node: static, Attribute: value, Value: good}, allRights, tag.BadNotWritable},
		{"user may not write", WriteItem{Node: f[1], Attribute: value, Value: good}, MayRead, tag.BadUserAccessDenied},
		{"nonsense range", WriteItem{Node: f[1], Attribute: value, Value: good, Range: "2:1"}, allRights, tag.BadIndexRangeInvalid},
		{"range of a scalar", WriteItem{Node: f[1], Attribute: value, Value: good, Range: "1"}, allRights, tag.BadIndexRangeNoData},
		{"type", WriteItem{Node: f[1], Attribute: value, Value: wire.DataValue{Value: tag.Of(float32(1))}}, allRights, tag.BadTypeMismatch},
		{"an array for a scalar", WriteItem{Node: f[1], Attribute: value, Value: wire.DataValue{Value: tag.OfSlice([]float64{1})}}, allRights, tag.BadTypeMismatch},
		{"null", WriteItem{Node: f[1], Attribute: value}, allRights, tag.BadTypeMismatch},
		{"good", WriteItem{Node: f[1], Attribute: value, Value: good}, allRights, tag.Good},
	} {
		t.Run(row.name, func(t *testing.T) {
			m.writes = nil
			items := []WriteItem{row.item}
			s.Write(context.Background(), row.rights, items)
			if items[0].Status != row.want {
				t.Errorf("got %v", items[0].Status)
			}
			if reached := len(m.writes) > 0; reached != (row.want == tag.Good) {
				t.Errorf("reached its manager: %v", reached)
			}
		})
	}
}

func TestWriteRuns(t *testing.T) {
	s := newSpace(t)
	m, other := &recorder{}, &recorder{}
	f := folder(t, s, "f", m, "a", "b")
	g := folder(t, s, "g", other, "a")
	item := func(n *Node, v tag.Value) WriteItem {
		return WriteItem{Node: n, Attribute: ua.AttributeIDValue, Value: wire.DataValue{Value: v}}
	}
	items := []WriteItem{
		item(f[1], tag.Of(1.0)), item(f[2], tag.Of("no")), item(f[2], tag.Of(1.0)), item(g[1], tag.Of(1.0)), item(f[1], tag.Of(1.0)),
	}
	s.Write(context.Background(), allRights, items)
	if got := strings.Join(m.writes, ", "); got != "f.a x3, f.a x1" {
		t.Errorf("manager got %s", got)
	}
	if got := strings.Join(other.writes, ", "); got != "g.a x1" {
		t.Errorf("the other got %s", got)
	}
	if items[1].Status != tag.BadTypeMismatch {
		t.Errorf("item 1: %v", items[1].Status)
	}
}

// TestTypes of Part 3, 5.6.2 and Part 4, 5.10.4.2: what a variable of a data type takes.
func TestTypes(t *testing.T) {
	s := newSpace(t)
	raw := func(kind byte, body ...byte) tag.Value { return tag.OfRaw(append([]byte{kind}, body...)) }
	structure := raw(22, 0, 0, 0)
	matrix := raw(11|0xC0, append(wire.AppendUint32(nil, 0), 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)...)
	words := wire.AppendUint32(wire.AppendUint32(wire.AppendUint32(nil, 2), 0), 0) // an array of two texts of a matrix 2 x 1
	texts := tag.OfRaw(append(append([]byte{12 | 0xC0}, words...), 2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0))
	ok, no := tag.Good, tag.BadTypeMismatch
	for _, row := range []struct {
		name     string
		dataType uint32
		rank     int32
		dims     []uint32
		value    wire.DataValue
		want     tag.Status
	}{
		{"Double takes Double", 11, -1, nil, wire.DataValue{Value: tag.Of(1.0)}, ok},
		{"Double refuses Float", 11, -1, nil, wire.DataValue{Value: tag.Of(float32(1))}, no},
		{"Double refuses Int32", 11, -1, nil, wire.DataValue{Value: tag.Of(int32(1))}, no},
		{"Duration takes Double", 290, -1, nil, wire.DataValue{Value: tag.Of(1.0)}, ok},
		{"UtcTime takes DateTime", 294, -1, nil, wire.DataValue{Value: tag.Of(tag.Time(1))}, ok},
		{"UtcTime refuses Int64", 294, -1, nil, wire.DataValue{Value: tag.Of(int64(1))}, no},
		{"Number takes Byte", 26, -1, nil, wire.DataValue{Value: tag.Of(uint8(1))}, ok},
		{"Number takes Double", 26, -1, nil, wire.DataValue{Value: tag.Of(1.0)}, ok},
		{"Number refuses Boolean", 26, -1, nil, wire.DataValue{Value: tag.Of(true)}, no},
		{"Number refuses String", 26, -1, nil, wire.DataValue{Value: tag.Of("1")}, no},
		{"String takes text", 12, -1, nil, wire.DataValue{Value: tag.Of("\u00e9\x00")}, ok},
		{"Part 6, 5.2.2.4 String refuses what is not UTF-8", 12, -1, nil, wire.DataValue{Value: tag.Of("a\xff")}, no},
		{"an array of texts", 12, 1, nil, wire.DataValue{Value: tag.OfSlice([]string{"a", ""})}, ok},
		{"an array with one that is not UTF-8", 12, 1, nil, wire.DataValue{Value: tag.OfSlice([]string{"a", "\xed\xa0\x80"})}, no},
		{"anything refuses what is not UTF-8", 24, -1, nil, wire.DataValue{Value: tag.Of("\xff")}, no},
		{"Integer takes Int16", 27, -1, nil, wire.DataValue{Value: tag.Of(int16(1))}, ok},
		{"Integer refuses UInt16", 27, -1, nil, wire.DataValue{Value: tag.Of(uint16(1))}, no},
		{"UInteger takes UInt16", 28, -1, nil, wire.DataValue{Value: tag.Of(uint16(1))}, ok},
		{"enumeration takes Int32", 852, -1, nil, wire.DataValue{Value: tag.Of(int32(1))}, ok},
		{"enumeration refuses UInt32", 852, -1, nil, wire.DataValue{Value: tag.Of(uint32(1))}, no},
		{"BaseDataType takes String", 24, -1, nil, wire.DataValue{Value: tag.Of("x")}, ok},
		{"BaseDataType takes a structure", 24, -1, nil, wire.DataValue{Value: structure}, ok},
		{"BaseDataType takes null", 24, -1, nil, wire.DataValue{}, ok},
		{"a structure", 884, -1, nil, wire.DataValue{Value: structure}, ok},
		{"a structure refuses ByteString", 884, -1, nil, wire.DataValue{Value: tag.OfBytes([]byte{1})}, no},
		{"LocaleId takes String", 295, -1, nil, wire.DataValue{Value: tag.Of("en")}, ok},
		{"null", 11, -1, nil, wire.DataValue{}, no},
		{"null with a bad status", 11, -1, nil, wire.DataValue{Status: tag.BadNoCommunication}, ok},
		{"null with an uncertain status", 11, -1, nil, wire.DataValue{Status: tag.UncertainNoCommunicationLastUsableValue}, no},
		{"scalar refuses array", 11, -1, nil, wire.DataValue{Value: tag.OfSlice([]float64{1})}, no},
		{"array refuses scalar", 11, 1, nil, wire.DataValue{Value: tag.Of(1.0)}, no},
		{"array", 11, 1, nil, wire.DataValue{Value: tag.OfSlice([]float64{1})}, ok},
		{"array of its length", 11, 1, []uint32{2}, wire.DataValue{Value: tag.OfSlice([]float64{1, 2})}, ok},
		{"array too long", 11, 1, []uint32{1}, wire.DataValue{Value: tag.OfSlice([]float64{1, 2})}, no},
		{"array without bound", 11, 1, []uint32{0}, wire.DataValue{Value: tag.OfSlice([]float64{1, 2})}, ok},
		{"any rank, scalar", 11, -2, nil, wire.DataValue{Value: tag.Of(1.0)}, ok},
		{"any rank, matrix", 11, -2, nil, wire.DataValue{Value: matrix}, ok},
		{"scalar or one dimension refuses matrix", 11, -3, nil, wire.DataValue{Value: matrix}, no},
		{"scalar or one dimension, array", 11, -3, nil, wire.DataValue{Value: tag.OfSlice([]float64{1})}, ok},
		{"one or more, scalar", 11, 0, nil, wire.DataValue{Value: tag.Of(1.0)}, no},
		{"one or more, array", 11, 0, nil, wire.DataValue{Value: tag.OfSlice([]float64{1})}, ok},
		{"two dimensions", 11, 2, nil, wire.DataValue{Value: matrix}, ok},
		{"two dimensions of their lengths", 12, 2, []uint32{2, 1}, wire.DataValue{Value: texts}, ok},
		{"two dimensions, one free", 12, 2, []uint32{0, 1}, wire.DataValue{Value: texts}, ok},
		{"two dimensions, one too long", 12, 2, []uint32{1, 1}, wire.DataValue{Value: texts}, no},
		{"two dimensions of text", 12, 2, nil, wire.DataValue{Value: texts}, ok},
		{"three dimensions refuse two", 12, 3, nil, wire.DataValue{Value: texts}, no},
		{"two dimensions refuse one", 11, 2, nil, wire.DataValue{Value: tag.OfSlice([]float64{1})}, no},
		{"ByteString for an array of Byte", 3, 1, nil, wire.DataValue{Value: tag.OfBytes([]byte{1, 2})}, ok},
		{"ByteString for a Byte", 3, -1, nil, wire.DataValue{Value: tag.OfBytes([]byte{1})}, no},
		{"data type that the space lacks", 70000, -1, nil, wire.DataValue{Value: tag.Of("x")}, ok},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := &Node{Attributes: &Attributes{Class: ua.NodeClassVariable, DataType: n0(row.dataType), Rank: row.rank, More: &More{Dims: row.dims}}}
			if got := s.now.Load().accept(n, Range{}, &row.value); got != row.want {
				t.Errorf("got %v", got)
			}
		})
	}
	v := wire.DataValue{Value: tag.OfBytes([]byte{1, 2})}
	s.now.Load().accept(&Node{Attributes: &Attributes{DataType: n0(3), Rank: 1}}, Range{}, &v)
	if b, ok := tag.Slice[uint8](v.Value); !ok || len(b) != 2 {
		t.Error("the ByteString did not become an array of Byte for the manager")
	}
}

// TestParts of 7.27: the form of what is written with an IndexRange.
func TestParts(t *testing.T) {
	s := newSpace(t)
	for _, row := range []struct {
		name     string
		dataType uint32
		rank     int32
		r        string
		value    tag.Value
		want     tag.Status
	}{
		{"array", 11, 1, "1:2", tag.OfSlice([]float64{1, 2}), tag.Good},
		{"one element is an array too", 11, 1, "1", tag.Of(1.0), tag.BadTypeMismatch},
		{"of another type", 11, 1, "1:2", tag.OfSlice([]float32{1, 2}), tag.BadTypeMismatch},
		{"characters", 12, -1, "1:2", tag.Of("ab"), tag.Good},
		{"bytes", 15, -1, "1:2", tag.OfBytes([]byte("ab")), tag.Good},
		{"of a scalar", 11, -1, "0", tag.OfSlice([]float64{1}), tag.BadIndexRangeNoData},
		{"an array for characters", 12, -1, "0", tag.OfSlice([]string{"a"}), tag.Good},
		{"a block", 6, 2, "1:2,0", matrix(ints(1, 2), 2, 1), tag.Good},
		{"an array for a block", 6, 2, "1:2,0", ints(1, 2), tag.BadTypeMismatch},
		{"characters of elements", 12, 1, "0,1", words("a"), tag.Good},
		{"text for an array of text", 12, 1, "0", tag.Of("a"), tag.BadTypeMismatch},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := ParseRange(row.r)
			if err != nil {
				t.Fatal(err)
			}
			n := &Node{Attributes: &Attributes{Class: ua.NodeClassVariable, DataType: n0(row.dataType), Rank: row.rank}}
			if got := s.now.Load().accept(n, r, &wire.DataValue{Value: row.value}); got != row.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestWriteDoesNotAllocate(t *testing.T) {
	s := newSpace(t)
	f := folder(t, s, "f", &recorder{quiet: true}, "a")
	items := make([]WriteItem, 100)
	for i := range items {
		items[i] = WriteItem{Node: f[1], Attribute: ua.AttributeIDValue, Value: wire.DataValue{Value: tag.Of(1.0)}}
	}
	if a := testing.AllocsPerRun(100, func() { s.Write(context.Background(), allRights, items) }); a != 0 {
		t.Errorf("%v allocations in a write of 100 values", a)
	}
}
