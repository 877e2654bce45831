// Package wire turns bytes into messages and messages into bytes (OPC UA Part 6, 5.2: UA Binary).
// It hides every length, count and depth that a peer may lie about: decoding is bounded, encoding appends.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"edged/drivers/tag"
)

// Errors of a Reader. All of them are BadDecodingError to the peer, but ErrLimit, which is BadEncodingLimitsExceeded.
var (
	ErrShort = errors.New("wire: message ends too soon")
	ErrLimit = errors.New("wire: message exceeds a limit")
	ErrValue = errors.New("wire: message holds an impossible value")
)

// MaxDepth is how deep Variants, ExtensionObjects and DiagnosticInfos may nest (Part 6, 5.1.3 and 5.2.2.12 ask for at
// least 100 of DiagnosticInfo; deeper is refused before the stack can grow).
const MaxDepth = 100

// Reader decodes from a buffer. The first error sticks: every later call returns zero values, so that callers check
// Err once, at the end of a structure. Strings, byte strings and NodeIDs that it returns alias the buffer, and are
// good as long as the buffer is; Clone what must live longer.
type Reader struct {
	b     []byte
	off   int
	depth int
	err   error
}

// NewReader returns a Reader of b.
func NewReader(b []byte) Reader { return Reader{b: b} }

// Err is the first error.
func (r *Reader) Err() error { return r.err }

// Rest is what has not been read. It is nil after an error.
func (r *Reader) Rest() []byte {
	if r.err != nil {
		return nil
	}
	return r.b[r.off:]
}

// Offset is how many bytes have been read.
func (r *Reader) Offset() int { return r.off }

// Fail makes err stick unless there is one already.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// take returns the next n bytes, or nil.
func (r *Reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b)-r.off {
		r.Fail(ErrShort)
		return nil
	}
	p := r.b[r.off : r.off+n : r.off+n]
	r.off += n
	return p
}

// Skip passes over n bytes.
func (r *Reader) Skip(n int) { r.take(n) }

// Uint8 reads a Byte.
func (r *Reader) Uint8() uint8 {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

// Bool reads a Boolean: any byte but 0 is true (Part 6, 5.2.2.1).
func (r *Reader) Bool() bool { return r.Uint8() != 0 }

// Uint16 reads a UInt16.
func (r *Reader) Uint16() uint16 {
	if p := r.take(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

// Uint32 reads a UInt32.
func (r *Reader) Uint32() uint32 {
	if p := r.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// Uint64 reads a UInt64.
func (r *Reader) Uint64() uint64 {
	if p := r.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// Int32 reads an Int32.
func (r *Reader) Int32() int32 { return int32(r.Uint32()) }

// Float64 reads a Double.
func (r *Reader) Float64() float64 { return math.Float64frombits(r.Uint64()) }

// Float32 reads a Float.
func (r *Reader) Float32() float32 { return math.Float32frombits(r.Uint32()) }

// Time reads a DateTime.
func (r *Reader) Time() tag.Time { return tag.Time(r.Uint64()) }

// Count reads the length of an array whose elements take at least elem bytes each (elem > 0), and refuses one that the
// rest of the message cannot hold. Null (any negative length, Part 6, 5.2.5) is -1.
func (r *Reader) Count(elem int) int {
	n := int(r.Int32())
	if r.err != nil || n < 0 {
		return -1
	}
	if n > (len(r.b)-r.off)/elem {
		r.Fail(ErrShort)
		return -1
	}
	return n
}

// ByteString reads a ByteString; nil is null. It aliases the buffer.
func (r *Reader) ByteString() []byte {
	n := r.Count(1)
	if n < 0 {
		return nil
	}
	return r.take(n)
}

// String reads a String; null reads as "". It aliases the buffer.
func (r *Reader) String() string {
	b := r.ByteString()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// enter counts one level of nesting, and refuses one too many. Every enter that returned true needs a leave.
func (r *Reader) enter() bool {
	if r.depth >= MaxDepth {
		r.Fail(ErrLimit)
		return false
	}
	r.depth++
	return true
}

func (r *Reader) leave() { r.depth-- }

// IDType is the type of a NodeID's identifier (Part 6, 5.2.2.9 counts encodings; these are Part 3's IdType).
type IDType uint8

// The identifier types.
const (
	Numeric IDType = iota
	Text
	GUID
	Opaque
)

// NodeID names a node. It is comparable, and so a map's key. Str holds the text, the opaque bytes, or a GUID's 16 bytes
// as they are on the wire.
type NodeID struct {
	Str  string
	Num  uint32
	NS   uint16
	Type IDType
}

// NumericID is a NodeID with a number.
func NumericID(ns uint16, n uint32) NodeID { return NodeID{NS: ns, Num: n} }

// TextID is a NodeID with a string.
func TextID(ns uint16, s string) NodeID { return NodeID{NS: ns, Str: s, Type: Text} }

// IsNull reports whether the id is the null NodeId of its type (Part 6, 5.2.2.9): i=0, or no text.
func (n NodeID) IsNull() bool { return n.NS == 0 && n.Num == 0 && n.Str == "" }

// Clone copies what aliases a buffer.
func (n NodeID) Clone() NodeID {
	n.Str = string([]byte(n.Str))
	return n
}

// String is the id in the standard's text form: "i=84", "ns=2;s=boiler".
func (n NodeID) String() string {
	var s string
	switch n.Type {
	case Numeric:
		s = fmt.Sprintf("i=%d", n.Num)
	case Text:
		s = "s=" + n.Str
	case GUID:
		if len(n.Str) == 16 {
			b := []byte(n.Str)
			s = fmt.Sprintf("g=%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint16(b[4:]),
				binary.LittleEndian.Uint16(b[6:]), b[8:10], b[10:])
		}
	case Opaque:
		s = fmt.Sprintf("b=%x", n.Str)
	}
	if n.NS != 0 {
		s = fmt.Sprintf("ns=%d;%s", n.NS, s)
	}
	return s
}

// NodeID reads a NodeId (Part 6, 5.2.2.9). Its text aliases the buffer.
func (r *Reader) NodeID() NodeID {
	id, flags := r.nodeID()
	if flags != 0 {
		r.Fail(ErrValue)
	}
	return id
}

// ExpandedID reads an ExpandedNodeId (Part 6, 5.2.2.10): the id, the namespace's URI if it came with one, and the
// server's index.
func (r *Reader) ExpandedID() (id NodeID, uri string, server uint32) {
	id, flags := r.nodeID()
	if flags&0x80 != 0 {
		uri = r.String()
	}
	if flags&0x40 != 0 {
		server = r.Uint32()
	}
	return id, uri, server
}

func (r *Reader) nodeID() (id NodeID, flags uint8) {
	b := r.Uint8()
	flags = b & 0xC0
	switch b & 0x3F {
	case 0:
		id.Num = uint32(r.Uint8())
	case 1:
		id.NS = uint16(r.Uint8())
		id.Num = uint32(r.Uint16())
	case 2:
		id.NS = r.Uint16()
		id.Num = r.Uint32()
	case 3:
		id.Type, id.NS = Text, r.Uint16()
		id.Str = r.String()
	case 4:
		id.Type, id.NS = GUID, r.Uint16()
		p := r.take(16)
		id.Str = unsafe.String(unsafe.SliceData(p), len(p))
	case 5:
		id.Type, id.NS = Opaque, r.Uint16()
		id.Str = r.String()
	default:
		r.Fail(ErrValue)
	}
	return id, flags
}

// AppendBool appends a Boolean.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendUint16 appends a UInt16.
func AppendUint16(dst []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(dst, v) }

// AppendUint32 appends a UInt32, or an Int32, a StatusCode or an enumeration as one.
func AppendUint32(dst []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(dst, v) }

// AppendUint64 appends a UInt64, or an Int64 as one.
func AppendUint64(dst []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(dst, v) }

// AppendFloat32 appends a Float.
func AppendFloat32(dst []byte, v float32) []byte { return AppendUint32(dst, math.Float32bits(v)) }

// AppendFloat64 appends a Double.
func AppendFloat64(dst []byte, v float64) []byte { return AppendUint64(dst, math.Float64bits(v)) }

// AppendTime appends a DateTime.
func AppendTime(dst []byte, v tag.Time) []byte {
	if v >= tag.MaxTime {
		v = math.MaxInt64
	}
	return AppendUint64(dst, uint64(v))
}

// AppendNull appends the length of a null string, byte string or array.
func AppendNull(dst []byte) []byte { return append(dst, 0xFF, 0xFF, 0xFF, 0xFF) }

// AppendString appends a String. The empty text is written as such, not as null.
func AppendString(dst []byte, s string) []byte {
	return append(AppendUint32(dst, uint32(len(s))), s...)
}

// AppendByteString appends a ByteString; nil is null.
func AppendByteString(dst, b []byte) []byte {
	if b == nil {
		return AppendNull(dst)
	}
	return append(AppendUint32(dst, uint32(len(b))), b...)
}

// AppendNodeID appends a NodeId in its shortest encoding (Part 6, 5.2.2.9).
func AppendNodeID(dst []byte, id NodeID) []byte { return appendNodeID(dst, id, 0) }

// AppendExpandedID appends an ExpandedNodeId of this server, by namespace index (Part 6, 5.2.2.10).
func AppendExpandedID(dst []byte, id NodeID) []byte { return appendNodeID(dst, id, 0) }

func appendNodeID(dst []byte, id NodeID, flags byte) []byte {
	switch id.Type {
	case Numeric:
		switch {
		case id.NS == 0 && id.Num <= 0xFF:
			return append(dst, flags, byte(id.Num))
		case id.NS <= 0xFF && id.Num <= 0xFFFF:
			return append(dst, 1|flags, byte(id.NS), byte(id.Num), byte(id.Num>>8))
		}
		return AppendUint32(AppendUint16(append(dst, 2|flags), id.NS), id.Num)
	case GUID:
		return append(AppendUint16(append(dst, 4|flags), id.NS), id.Str...)
	case Opaque:
		return AppendString(AppendUint16(append(dst, 5|flags), id.NS), id.Str)
	}
	return AppendString(AppendUint16(append(dst, 3|flags), id.NS), id.Str)
}

// AppendQualifiedName appends a QualifiedName (Part 6, 5.2.2.13).
func AppendQualifiedName(dst []byte, ns uint16, name string) []byte {
	return AppendString(AppendUint16(dst, ns), name)
}

// AppendLocalizedText appends a LocalizedText (Part 6, 5.2.2.14); an empty locale or text is left out.
func AppendLocalizedText(dst []byte, locale, text string) []byte {
	at := len(dst)
	dst = append(dst, 0)
	if locale != "" {
		dst[at] |= 1
		dst = AppendString(dst, locale)
	}
	if text != "" {
		dst[at] |= 2
		dst = AppendString(dst, text)
	}
	return dst
}
