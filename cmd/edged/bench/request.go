package bench

import (
	"encoding/binary"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// request is a message whose bytes are made once; each sending sets its handle and its time in place.
type request struct {
	body   []byte // type id and request
	time   int    // where the RequestHeader's Timestamp and RequestHandle lie
	handle int
	answer uint32 // type id of the response
	items  int    // results that the response must hold
	scan   scanner
	values []int // of a Write: where the values lie
}

// begin is a request up to the end of its RequestHeader (Part 4, 7.33).
func begin(session wire.NodeID, typeID, answer uint32) *request {
	q := &request{answer: answer}
	b := wire.AppendNodeID(nil, wire.NumericID(0, typeID))
	b = wire.AppendNodeID(b, session)
	q.time = len(b)
	b = wire.AppendTime(b, tag.Now())
	q.handle = len(b)
	b = wire.AppendUint32(b, 0)
	b = wire.AppendUint32(b, 0) // no diagnostics
	b = wire.AppendNull(b)      // AuditEntryId
	b = wire.AppendUint32(b, uint32(patience.Milliseconds()))
	q.body = append(b, 0, 0, wire.NoBody) // AdditionalHeader
	return q
}

// readRequest reads the Value of nodes, with both timestamps.
func readRequest(session wire.NodeID, nodes []wire.NodeID) *request {
	q := begin(session, id.ReadRequest_Encoding_DefaultBinary, id.ReadResponse_Encoding_DefaultBinary)
	q.items, q.scan = len(nodes), scanRead
	b := wire.AppendFloat64(q.body, 0) // MaxAge
	b = wire.AppendUint32(b, uint32(ua.TimestampsToReturnBoth))
	b = wire.AppendUint32(b, uint32(len(nodes)))
	for _, n := range nodes {
		b = appendValueOf(b, n)
		b = wire.AppendNull(wire.AppendUint16(b, 0)) // DataEncoding
	}
	q.body = b
	return q
}

// appendValueOf appends what a ReadValueId and a WriteValue begin with: the node, its Value, the whole of it.
func appendValueOf(b []byte, n wire.NodeID) []byte {
	b = wire.AppendNodeID(b, n)
	b = wire.AppendUint32(b, uint32(ua.AttributeIDValue))
	return wire.AppendNull(b) // IndexRange
}

// writeRequest writes the Value of nodes; number is written as each node's kind.
func writeRequest(session wire.NodeID, nodes []wire.NodeID, kinds []tag.Kind, number uint16) *request {
	q := begin(session, id.WriteRequest_Encoding_DefaultBinary, id.WriteResponse_Encoding_DefaultBinary)
	q.items, q.scan = len(nodes), scanStatuses
	b := wire.AppendUint32(q.body, uint32(len(nodes)))
	for i, n := range nodes {
		b = appendValueOf(b, n)
		b = append(b, 1) // a DataValue with a value alone
		q.values = append(q.values, len(b)+1)
		b = wire.AppendVariant(b, tag.FromBits(kinds[i], uint64(number)))
	}
	q.body = b
	return q
}

// setValues puts another number into all values of a Write. Its 16 bits are the low ones of every whole-number kind,
// because numbers are little endian.
func (q *request) setValues(number uint16) {
	for _, at := range q.values {
		binary.LittleEndian.PutUint16(q.body[at:], number)
	}
}

// browseRequest asks for the hierarchical references of a node, with all that is to be had of each (Part 4, 5.9.2).
func browseRequest(session wire.NodeID, node wire.NodeID) *request {
	q := begin(session, id.BrowseRequest_Encoding_DefaultBinary, id.BrowseResponse_Encoding_DefaultBinary)
	q.items, q.scan = 1, scanBrowse
	b := wire.AppendNodeID(q.body, wire.NodeID{}) // no view
	b = wire.AppendUint64(b, 0)
	b = wire.AppendUint32(b, 0)
	b = wire.AppendUint32(b, 0) // as many references as there are
	b = wire.AppendUint32(b, 1)
	b = wire.AppendNodeID(b, node)
	b = wire.AppendUint32(b, uint32(ua.BrowseDirectionForward))
	b = wire.AppendNodeID(b, wire.NumericID(0, id.HierarchicalReferences))
	b = wire.AppendBool(b, true) // IncludeSubtypes
	b = wire.AppendUint32(b, 0)  // nodes of all classes
	q.body = wire.AppendUint32(b, uint32(ua.BrowseResultMaskAll))
	return q
}
