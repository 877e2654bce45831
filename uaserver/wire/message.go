package wire

import (
	"fmt"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// RequestHeader is what every request begins with (Part 4, 7.33). Token and AuditID alias the buffer.
type RequestHeader struct {
	Token       NodeID // AuthenticationToken: the session
	Timestamp   tag.Time
	Handle      uint32
	Diagnostics uint32 // ReturnDiagnostics
	AuditID     string
	TimeoutHint uint32 // milliseconds; 0: none
}

// RequestHeader reads a RequestHeader. Its AdditionalHeader is checked and passed over.
func (r *Reader) RequestHeader() (h RequestHeader) {
	h.Token = r.NodeID()
	h.Timestamp = r.Time()
	h.Handle = r.Uint32()
	h.Diagnostics = r.Uint32()
	h.AuditID = r.String()
	h.TimeoutHint = r.Uint32()
	r.Extension()
	return h
}

// AppendResponseHeader begins a response: the id of the message's type, and a ResponseHeader (Part 4, 7.34) without
// diagnostics, string table and additional header.
func AppendResponseHeader(dst []byte, typeID, handle uint32, status ua.StatusCode, at tag.Time) []byte {
	dst = appendTypeID(dst, typeID)
	dst = AppendTime(dst, at)
	dst = AppendUint32(dst, handle)
	dst = AppendUint32(dst, uint32(status))
	dst = append(dst, 0)
	dst = AppendNull(dst)
	return append(dst, 0, 0, NoBody)
}

func appendTypeID(dst []byte, typeID uint32) []byte { return AppendNodeID(dst, NumericID(0, typeID)) }

// DecodeMessage reads a message from its header on, into gopcua's struct of the type: *ua.BrowseRequest and the like. The
// result owns its memory. An id that is no message's gives ErrUnknown; see Reader for the other errors.
func DecodeMessage(typeID uint32, r *Reader) (any, error) { return r.message(typeID, true) }

// DecodeRequest is DecodeMessage for a Reader that stands behind the RequestHeader; that of the result is nil.
func DecodeRequest(typeID uint32, r *Reader) (any, error) { return r.message(typeID, false) }

func (r *Reader) message(typeID uint32, header bool) (any, error) {
	msg := decodeMessage(typeID, r, header)
	switch {
	case r.err != nil:
		return nil, r.err
	case msg == nil:
		return nil, fmt.Errorf("%w: i=%d", ErrUnknown, typeID)
	}
	return msg, nil
}

// AppendMessage appends a message of gopcua's, from its type's id on. It panics if msg is none.
func AppendMessage(dst []byte, msg any) []byte {
	dst, ok := appendMessage(dst, msg)
	if !ok {
		panic(fmt.Sprintf("wire: %T is not a message", msg))
	}
	return dst
}
