package wire

import (
	"unsafe"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// The encodings of an ExtensionObject's body (Part 6, 5.2.2.15).
const (
	NoBody     = 0
	BinaryBody = 1
	XMLBody    = 2
)

// Extension is an ExtensionObject as it came: the id of its body's encoding, and the body, which nobody has looked into.
// Both alias the buffer.
type Extension struct {
	Type     NodeID
	Encoding uint8
	Body     []byte
}

// IsNull reports whether there is no body: the null ExtensionObject, or a type without fields.
func (e *Extension) IsNull() bool { return e.Encoding == NoBody }

// Is reports whether e is a binary body of the encoding id of namespace 0.
func (e *Extension) Is(typeID uint32) bool {
	return e.Encoding == BinaryBody && e.Type == NumericID(0, typeID)
}

// Extension reads an ExtensionObject (Part 6, 5.2.2.15).
func (r *Reader) Extension() (e Extension) {
	e.Type = r.NodeID()
	switch e.Encoding = r.Uint8(); e.Encoding {
	case NoBody:
	case BinaryBody, XMLBody:
		e.Body = r.ByteString()
	default:
		r.Fail(ErrValue)
	}
	return e
}

// AppendExtension appends an ExtensionObject whose body is there already.
func AppendExtension(dst []byte, e *Extension) []byte {
	dst = append(AppendNodeID(dst, e.Type), e.Encoding)
	if e.Encoding == NoBody {
		return dst
	}
	return AppendByteString(dst, e.Body)
}

// BeginExtension appends the head of an ExtensionObject with a binary body of the encoding id typeID of namespace 0. The
// body is appended next; then EndExtension is given the number returned here, and writes the body's length.
func BeginExtension(dst []byte, typeID uint32) ([]byte, int) {
	dst = append(AppendNodeID(dst, NumericID(0, typeID)), BinaryBody, 0, 0, 0, 0)
	return dst, len(dst)
}

// EndExtension writes the length of the body that began at dst[at].
func EndExtension(dst []byte, at int) []byte {
	AppendUint32(dst[:at-4], uint32(len(dst)-at))
	return dst
}

// Value decodes the body into gopcua's struct of its type: *ua.DataChangeFilter, *ua.EventFilter and the like. It is nil
// for an ExtensionObject without a body, and RawBody for a type that is not known here.
func (e *Extension) Value() (any, error) {
	if e.Encoding != BinaryBody {
		return nil, nil
	}
	r := NewReader(e.Body)
	v := r.body(e.Type)
	return v, r.err
}

// RawBody is the body of an ExtensionObject whose type is not known here. It is written as it came.
type RawBody []byte

// DataChangeFilter is Part 4's DataChangeFilter (7.22.2).
type DataChangeFilter struct {
	Trigger  ua.DataChangeTrigger
	Deadband ua.DeadbandType
	Value    float64 // of the deadband: absolute, or percent of EURange
}

// DataChangeFilter decodes the body without allocation. False: e is another kind of filter, or none; see Is and IsNull.
func (e *Extension) DataChangeFilter() (f DataChangeFilter, ok bool, err error) {
	if !e.Is(id.DataChangeFilter_Encoding_DefaultBinary) {
		return f, false, nil
	}
	r := NewReader(e.Body)
	f.Trigger = ua.DataChangeTrigger(r.Uint32())
	f.Deadband = ua.DeadbandType(r.Uint32())
	f.Value = r.Float64()
	return f, r.err == nil, r.err
}

// body reads the rest of r as the body of an encoding id.
func (r *Reader) body(typeID NodeID) any {
	if typeID.Type == Numeric && typeID.NS == 0 {
		if v := decodeBody(typeID.Num, r); v != nil || r.err != nil {
			return v
		}
	}
	if !r.charge(len(r.b) - r.off) {
		return nil
	}
	return RawBody(cloneBytes(r.take(len(r.b) - r.off)))
}

// uaExtensionObject reads an ExtensionObject and decodes its body, if the type is known. What a later version of the
// type appended to the body is passed over (Part 6, 5.2.2.15 gives the length for that).
func (r *Reader) uaExtensionObject() *ua.ExtensionObject {
	if !r.charge(int(unsafe.Sizeof(ua.ExtensionObject{})+unsafe.Sizeof(ua.ExpandedNodeID{}))) || !r.enter() {
		return nil
	}
	defer r.leave()
	e := r.Extension()
	if !r.chargeID(e.Type) {
		return nil
	}
	v := &ua.ExtensionObject{EncodingMask: e.Encoding, TypeID: &ua.ExpandedNodeID{NodeID: ToUA(e.Type)}}
	switch e.Encoding {
	case BinaryBody:
		whole, end := r.b, r.off
		r.b, r.off = whole[:end], end-len(e.Body)
		if v.Value = r.body(e.Type); r.err == nil {
			r.b, r.off = whole, end
		}
	case XMLBody:
		x := ua.XMLElement(e.Body)
		v.Value = &x
	}
	return v
}

// appendUAExtensionObject goes by the value, not by the mask, which is easily forgotten; so does the type's id, where
// there is none. A value of an unknown type is left out.
func appendUAExtensionObject(dst []byte, e *ua.ExtensionObject) []byte {
	if e == nil {
		return append(dst, 0, 0, NoBody)
	}
	if e.TypeID != nil && e.TypeID.NodeID != nil {
		dst = appendUANodeID(dst, e.TypeID.NodeID)
	} else {
		dst = AppendNodeID(dst, NumericID(0, bodyTypeID(e.Value)))
	}
	switch v := e.Value.(type) {
	case nil:
		return append(dst, NoBody)
	case *ua.XMLElement:
		return AppendString(append(dst, XMLBody), string(*v))
	case RawBody:
		return AppendByteString(append(dst, BinaryBody), v)
	}
	at := len(dst)
	dst = append(dst, BinaryBody, 0, 0, 0, 0)
	dst, ok := appendBody(dst, e.Value)
	if !ok {
		return append(dst[:at], NoBody)
	}
	return EndExtension(dst, at+5)
}
