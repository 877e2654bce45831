package wire

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unsafe"

	"github.com/gopcua/opcua/ua"
)

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

// IsNull reports whether the id is the null NodeId of its type (Part 6, 5.2.2.9): i=0, no text or bytes, a GUID of zeros.
func (n NodeID) IsNull() bool {
	return n.NS == 0 && n.Num == 0 && (n.Str == "" || n.Type == GUID && n.Str == nullGUID)
}

const nullGUID = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// Clone copies what aliases a buffer.
func (n NodeID) Clone() NodeID {
	n.Str = strings.Clone(n.Str)
	return n
}

// String is the id in the standard's text form (Part 6, 5.3.1.10): "i=84", "ns=2;s=boiler".
func (n NodeID) String() string {
	var s string
	switch n.Type {
	case Numeric:
		s = fmt.Sprintf("i=%d", n.Num)
	case Text:
		s = "s=" + n.Str
	case GUID:
		b := guidBytes(n.Str)
		s = fmt.Sprintf("g=%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(b[:]), binary.LittleEndian.Uint16(b[4:]),
			binary.LittleEndian.Uint16(b[6:]), b[8:10], b[10:])
	case Opaque:
		s = "b=" + base64.StdEncoding.EncodeToString([]byte(n.Str))
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
		return AppendGUID(AppendUint16(append(dst, 4|flags), id.NS), guidBytes(id.Str))
	case Opaque:
		return AppendString(AppendUint16(append(dst, 5|flags), id.NS), id.Str)
	}
	return AppendString(AppendUint16(append(dst, 3|flags), id.NS), id.Str)
}

// guidBytes are the 16 bytes of a GUID's identifier, zeros where there are none.
func guidBytes(s string) (g [16]byte) {
	copy(g[:], s)
	return g
}

// FromUA converts an id of gopcua; nil gives the null NodeId. The result owns its memory.
func FromUA(n *ua.NodeID) NodeID {
	if n == nil {
		return NodeID{}
	}
	id := NodeID{NS: n.Namespace()}
	switch n.Type() {
	case ua.NodeIDTypeString:
		id.Type, id.Str = Text, n.StringID()
	case ua.NodeIDTypeGUID:
		b, _ := hex.DecodeString(strings.ReplaceAll(n.StringID(), "-", ""))
		g := guidBytes(string(b))
		swapGUID(&g)
		id.Type, id.Str = GUID, string(g[:])
	case ua.NodeIDTypeByteString:
		b, _ := base64.StdEncoding.DecodeString(n.StringID())
		id.Type, id.Str = Opaque, string(b)
	default:
		id.Num = n.IntID()
	}
	return id
}

// ToUA converts an id to gopcua's, in its shortest encoding. The result owns its memory.
func ToUA(id NodeID) *ua.NodeID {
	switch id.Type {
	case Text:
		return ua.NewStringNodeID(id.NS, id.Str)
	case GUID:
		g := guidBytes(id.Str)
		swapGUID(&g)
		return ua.NewGUIDNodeID(id.NS, hex.EncodeToString(g[:]))
	case Opaque:
		return ua.NewByteStringNodeID(id.NS, []byte(id.Str))
	}
	switch {
	case id.NS == 0 && id.Num <= 0xFF:
		return ua.NewTwoByteNodeID(uint8(id.Num))
	case id.NS <= 0xFF && id.Num <= 0xFFFF:
		return ua.NewFourByteNodeID(uint8(id.NS), uint16(id.Num))
	}
	return ua.NewNumericNodeID(id.NS, id.Num)
}

// swapGUID turns the wire's order of a Guid's bytes into that of its text, and back: the first three fields are little
// endian on the wire (Part 6, 5.2.2.6).
func swapGUID(g *[16]byte) {
	g[0], g[1], g[2], g[3] = g[3], g[2], g[1], g[0]
	g[4], g[5] = g[5], g[4]
	g[6], g[7] = g[7], g[6]
}
