package subscription

import (
	"encoding/binary"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// overflow is the InfoType DataValue and its Overflow bit (Part 4, 7.39.1).
const overflow = tag.Status(0x0480)

// Response answers one Publish request: with a NotificationMessage, or with a fault. It is good until Sender.Respond
// returns.
type Response struct {
	handle  uint32
	status  ua.StatusCode // other than Good: a ServiceFault
	at      tag.Time
	sub     uint32
	held    []held // AvailableSequenceNumbers
	more    bool
	message []byte // an encoded NotificationMessage
	results []ua.StatusCode
}

// Status is Good, or the result of the ServiceFault that the response is.
func (r *Response) Status() ua.StatusCode { return r.status }

// Handle is the RequestHandle of the request.
func (r *Response) Handle() uint32 { return r.handle }

// AppendTo appends the PublishResponse (Part 4, 5.14.5) or the ServiceFault.
func (r *Response) AppendTo(dst []byte) []byte {
	if r.status != ua.StatusGood {
		return wire.AppendResponseHeader(dst, id.ServiceFault_Encoding_DefaultBinary, r.handle, r.status, r.at)
	}
	dst = wire.AppendResponseHeader(dst, id.PublishResponse_Encoding_DefaultBinary, r.handle, r.status, r.at)
	dst = wire.AppendUint32(dst, r.sub)
	dst = wire.AppendUint32(dst, uint32(len(r.held)))
	for i := range r.held {
		dst = wire.AppendUint32(dst, r.held[i].sequence)
	}
	dst = wire.AppendBool(dst, r.more)
	dst = append(dst, r.message...)
	dst = wire.AppendUint32(dst, uint32(len(r.results)))
	for _, s := range r.results {
		dst = wire.AppendUint32(dst, uint32(s))
	}
	return wire.AppendNull(dst) // DiagnosticInfos
}

// appendKeepAlive appends a NotificationMessage without notifications (Part 4, 7.26).
func appendKeepAlive(dst []byte, sequence uint32, at tag.Time) []byte {
	return wire.AppendUint32(wire.AppendTime(wire.AppendUint32(dst, sequence), at), 0)
}

// appendStatusChange appends a NotificationMessage with a StatusChangeNotification (Part 4, 7.25.4).
func appendStatusChange(dst []byte, sequence uint32, at tag.Time, code ua.StatusCode) []byte {
	dst, body := openExtension(openMessage(dst, sequence, at), id.StatusChangeNotification_Encoding_DefaultBinary)
	dst = wire.AppendUint32(dst, uint32(code))
	dst = append(dst, 0) // a null DiagnosticInfo
	return closeExtension(dst, body)
}

// openMessage appends the head of a NotificationMessage with one ExtensionObject.
func openMessage(dst []byte, sequence uint32, at tag.Time) []byte {
	return wire.AppendUint32(wire.AppendTime(wire.AppendUint32(dst, sequence), at), 1)
}

// openExtension begins an ExtensionObject; its body starts at the offset that is returned (Part 6, 5.2.2.15).
func openExtension(dst []byte, encoding uint32) ([]byte, int) {
	dst = wire.AppendNodeID(dst, wire.NumericID(0, encoding))
	dst = append(dst, 1, 0, 0, 0, 0)
	return dst, len(dst)
}

// closeExtension writes the length of the body that begins there.
func closeExtension(dst []byte, body int) []byte {
	binary.LittleEndian.PutUint32(dst[body-4:], uint32(len(dst)-body))
	return dst
}

// Which timestamps an item returns; the bits are those of a DataValue's mask.
const (
	noTimes     = 0
	sourceTime  = wire.HasSource
	serverTime  = wire.HasServer
	bothTimes   = wire.HasSource | wire.HasServer
	fixedPrefix = 5 // bytes of a MonitoredItemNotification before the value: client handle and mask
)

// timesOf is the mask bits for a TimestampsToReturn; false: there is no such choice.
func timesOf(t ua.TimestampsToReturn) (uint8, bool) {
	switch t {
	case ua.TimestampsToReturnSource:
		return sourceTime, true
	case ua.TimestampsToReturnServer:
		return serverTime, true
	case ua.TimestampsToReturnBoth:
		return bothTimes, true
	case ua.TimestampsToReturnNeither:
		return noTimes, true
	}
	return 0, false
}

// appendNotification appends a MonitoredItemNotification (Part 4, 7.25.2): what applies of value, status and times.
func appendNotification(dst []byte, handle uint32, v *tag.Sample, server tag.Time, times uint8) []byte {
	at := len(dst)
	dst = append(dst, byte(handle), byte(handle>>8), byte(handle>>16), byte(handle>>24), 0)
	mask := uint8(0)
	if !v.Value.IsNull() {
		mask = wire.HasValue
		dst = wire.AppendVariant(dst, v.Value)
	}
	if v.Status != 0 {
		mask |= wire.HasStatus
		dst = wire.AppendUint32(dst, uint32(v.Status))
	}
	if times&sourceTime != 0 && v.At != 0 {
		mask |= wire.HasSource
		dst = wire.AppendTime(dst, v.At)
	}
	if times&serverTime != 0 && server != 0 {
		mask |= wire.HasServer
		dst = wire.AppendTime(dst, server)
	}
	dst[at+fixedPrefix-1] = mask
	return dst
}
