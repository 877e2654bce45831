package wire

import (
	"encoding/binary"
	"unsafe"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// This file has the views of Read and Write. A request has a hundred items as often as one, so they are not read twice:
// the caller gathers what Next gives, looks at the Reader's Err when there is no more, and only then carries anything
// out. What nearly every client sends (an id with a number or a text, no range, no encoding, a number for a value) is
// read with one check of its length; anything else is left to the methods of Reader.

// ReadValueID is one attribute to read or to monitor (Part 4, 7.29).
type ReadValueID struct {
	Node       NodeID
	Attribute  ua.AttributeID
	Range      string // IndexRange; "" is all
	EncodingNS uint16 // DataEncoding's namespace
	Encoding   string // DataEncoding; "" is the default
}

// ReadValueID reads a ReadValueId. It aliases the buffer.
func (r *Reader) ReadValueID() (v ReadValueID) {
	v.Node = r.NodeID()
	v.Attribute = ua.AttributeID(r.Uint32())
	v.Range = r.String()
	v.EncodingNS, v.Encoding = r.QualifiedName()
	return v
}

func (r *Reader) skipReadValueID() {
	r.NodeID()
	r.take(4)
	r.ByteString()
	r.QualifiedName()
}

// ReadRequest is a view of Read (Part 4, 5.11.2).
type ReadRequest struct {
	MaxAge     float64 // milliseconds
	Timestamps ua.TimestampsToReturn
	N          int // NodesToRead
	items      *Reader
	left       int
}

// ReadRequest reads a ReadRequest up to its first item.
func (r *Reader) ReadRequest() (v ReadRequest) {
	v.MaxAge = r.Float64()
	v.Timestamps = ua.TimestampsToReturn(r.Uint32())
	v.N = max(r.Count(readValueIDSize), 0)
	v.items, v.left = r, v.N
	return v
}

// Next reads the next node to read; false: there is none, or the Reader has an error.
func (v *ReadRequest) Next(id *ReadValueID) bool {
	if v.left == 0 {
		return false
	}
	v.left--
	r := v.items
	if r.plainReadValueID(id) {
		return true
	}
	*id = r.ReadValueID()
	return r.err == nil
}

// plainReadValueID reads a ReadValueId without range and encoding; false: it is another, or there is none, and nothing
// was read.
func (r *Reader) plainReadValueID(v *ReadValueID) bool {
	const tail = 4 + 4 + 2 + 4 // behind the NodeId
	b := plainNodeID(r.b[r.off:], &v.Node)
	if len(b) < tail {
		return false
	}
	t := (*[tail]byte)(b)
	if length(t[4:]) > 0 || length(t[10:]) > 0 {
		return false
	}
	v.Attribute = ua.AttributeID(binary.LittleEndian.Uint32(t[:]))
	v.EncodingNS = binary.LittleEndian.Uint16(t[8:])
	v.Range, v.Encoding = "", ""
	r.off = len(r.b) - len(b) + tail
	return true
}

// plainNodeID reads a NodeId with a number or a text, and returns what stands behind it; nil: it is another.
func plainNodeID(b []byte, id *NodeID) []byte {
	const numeric, text = 1 + 2 + 4, 1 + 2 + 4 // the latter without its bytes
	if len(b) < numeric {
		return nil
	}
	switch b[0] {
	case 1:
		*id = NodeID{NS: uint16(b[1]), Num: uint32(binary.LittleEndian.Uint16(b[2:]))}
		return b[4:]
	case 2:
		*id = NodeID{NS: binary.LittleEndian.Uint16(b[1:]), Num: binary.LittleEndian.Uint32(b[3:])}
		return b[numeric:]
	case 3:
		n := max(length(b[3:]), 0)
		if n > len(b)-text {
			return nil
		}
		*id = NodeID{Type: Text, NS: binary.LittleEndian.Uint16(b[1:]), Str: unsafe.String(unsafe.SliceData(b[text:]), n)}
		return b[text+n:]
	}
	return nil
}

// length is the length at the beginning of a text, of bytes, or of an array; negative is null.
func length(b []byte) int { return int(int32(binary.LittleEndian.Uint32(b))) }

// WriteValue is one attribute to write (Part 4, 5.11.4), without its value. It aliases the buffer.
type WriteValue struct {
	Node      NodeID
	Attribute ua.AttributeID
	Range     string // IndexRange; "" is all
}

// WriteRequest is a view of Write (Part 4, 5.11.4).
type WriteRequest struct {
	N     int // NodesToWrite
	items *Reader
	left  int
}

// WriteRequest reads a WriteRequest up to its first item.
func (r *Reader) WriteRequest() (v WriteRequest) {
	v.N = max(r.Count(writeValueSize), 0)
	v.items, v.left = r, v.N
	return v
}

// Next reads the next value to write into w and d; false: there is none, or the Reader has an error. A value that is
// text, bytes or an array is copied. It goes to where it is to stay: copying it later, whole, waits for its parts.
func (v *WriteRequest) Next(w *WriteValue, d *DataValue) bool {
	if v.left == 0 {
		return false
	}
	v.left--
	r := v.items
	if r.plainWriteValue(w, d) {
		return true
	}
	w.Node = r.NodeID()
	w.Attribute = ua.AttributeID(r.Uint32())
	w.Range = r.String()
	*d = r.DataValue()
	return r.err == nil
}

// plainWriteValue reads a WriteValue of one number without a range, status and times; false: it is another, or there is
// none, and nothing was read.
func (r *Reader) plainWriteValue(w *WriteValue, d *DataValue) bool {
	const head = 4 + 4 + 1 + 1 // behind the NodeId: attribute, no range, what the DataValue has, the Variant's kind
	b := plainNodeID(r.b[r.off:], &w.Node)
	if len(b) < head {
		return false
	}
	h := (*[head]byte)(b)
	if length(h[4:]) > 0 || h[8] != HasValue {
		return false
	}
	v, n := plainNumber(h[9], b[head:])
	if n == 0 {
		return false
	}
	w.Attribute = ua.AttributeID(binary.LittleEndian.Uint32(h[:]))
	w.Range = ""
	// Part by part: a literal would be made elsewhere and then copied.
	d.Value, d.Status, d.Source, d.Server, d.Mask = v, 0, 0, 0, HasValue
	r.off = len(r.b) - len(b) + head + n
	return true
}

// plainNumber reads a number of 16 bits or more, and returns how many bytes it has; 0: it is none.
func plainNumber(encoding byte, b []byte) (tag.Value, int) {
	k := tag.Kind(encoding)
	switch {
	case len(b) < 8: // the last of a message may be shorter: it goes the longer way
	case k == tag.Int16:
		return tag.FromBits(k, uint64(int64(int16(binary.LittleEndian.Uint16(b))))), 2
	case k == tag.Uint16:
		return tag.FromBits(k, uint64(binary.LittleEndian.Uint16(b))), 2
	case k == tag.Int32:
		return tag.FromBits(k, uint64(int64(int32(binary.LittleEndian.Uint32(b))))), 4
	case k == tag.Uint32, k == tag.Float32:
		return tag.FromBits(k, uint64(binary.LittleEndian.Uint32(b))), 4
	case k >= tag.Int64 && k <= tag.Float64: // Int64, UInt64, Float, Double
		return tag.FromBits(k, binary.LittleEndian.Uint64(b)), 8
	}
	return tag.Value{}, 0
}
