// Package event is what happened, for whoever asked: events, the filters that clients select and restrict them with, and
// the feeds from which monitored items take them. It hides how an event is evaluated and encoded once a distinct filter.
package event

import (
	"github.com/gopcua/opcua/id"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// Event is one event (Part 5, 6.4). It is immutable once it was raised.
type Event struct {
	Type     wire.NodeID   // an event type of namespace 0
	Source   *address.Node // nil: the Server object
	Time     tag.Time      // when it happened; 0: when it is raised
	Severity uint16        // 1 to 1000
	Message  string
	// Audit keeps the event from whoever may not see what concerns security.
	Audit  bool
	Fields []Field // beside those of BaseEventType

	id      [16]byte
	receive tag.Time
}

// Field is a field of an event, named by its browse path below the event's type: names of namespace 0, with a slash
// between them.
type Field struct {
	Path  string
	Value tag.Value
}

// Type is the id of a type of namespace 0.
func Type(n uint32) wire.NodeID { return wire.NumericID(0, n) }

var (
	baseEventType = wire.NumericID(0, id.BaseEventType)
	serverID      = wire.NumericID(0, id.Server)
)

// The fields that every event has (Part 5, 6.4.2).
type base uint8

const (
	other base = iota
	eventID
	eventType
	sourceNode
	sourceName
	eventTime
	receiveTime
	message
	severity
)

var bases = map[string]base{
	"EventId": eventID, "EventType": eventType, "SourceNode": sourceNode, "SourceName": sourceName, "Time": eventTime,
	"ReceiveTime": receiveTime, "Message": message, "Severity": severity,
}

// value is a field of the event; null: it has none of that name.
func (e *Event) value(of base, path string) tag.Value {
	switch of {
	case eventID:
		return tag.OfBytes(e.id[:])
	case eventType:
		return wire.NodeIDValue(e.Type)
	case sourceNode:
		if e.Source == nil {
			return wire.NodeIDValue(serverID)
		}
		return wire.NodeIDValue(e.Source.ID)
	case sourceName:
		if e.Source == nil {
			return tag.Of("Server")
		}
		return tag.Of(e.Source.BrowseName)
	case eventTime:
		return tag.Of(e.Time)
	case receiveTime:
		return tag.Of(e.receive)
	case message:
		return wire.LocalizedTextValue("en", e.Message)
	case severity:
		return tag.Of(e.Severity)
	}
	for i := range e.Fields {
		if e.Fields[i].Path == path {
			return e.Fields[i].Value
		}
	}
	return tag.Value{}
}
