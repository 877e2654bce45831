package client

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// typeNameList are the built-in types by their numbers (Part 6, 5.1.2).
var typeNameList = [...]string{
	"Null", "Boolean", "SByte", "Byte", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double", "String",
	"DateTime", "Guid", "ByteString", "XmlElement", "NodeId", "ExpandedNodeId", "StatusCode", "QualifiedName", "LocalizedText",
	"Structure", "DataValue", "BaseDataType", "DiagnosticInfo",
}

// TypeName is the standard's name of a built-in type.
func TypeName(t ua.TypeID) string {
	if int(t) < len(typeNameList) {
		return typeNameList[t]
	}
	return "type " + strconv.Itoa(int(t))
}

// StatusName is the standard's name of a status code, without its info bits.
func StatusName(s ua.StatusCode) string {
	if name := tag.Status(s).String(); !strings.HasPrefix(name, "0x") {
		return name
	}
	if d, ok := ua.StatusCodes[s&0xFFFF0000]; ok {
		return standardCase.Replace(strings.TrimPrefix(d.Name, "Status"))
	}
	return fmt.Sprintf("0x%08X", uint32(s))
}

// standardCase turns the library's names of status codes into the standard's (Part 6, A.2).
var standardCase = strings.NewReplacer("ID", "Id", "URI", "Uri", "URL", "Url", "TCP", "Tcp")

// IsBad reports a severity of Bad.
func IsBad(s ua.StatusCode) bool { return s>>31 == 1 }

// Overflowed reports that values before this one were lost in the item's queue (Part 4, 7.39.1: the info type is
// DataValue and the overflow bit is set).
func Overflowed(s ua.StatusCode) bool { return s&0xC00 == 0x400 && s&0x80 != 0 }

var hints = map[ua.StatusCode]string{
	ua.StatusBadNodeIDUnknown:            "there is no such node: `edged browse URL` lists them",
	ua.StatusBadNodeIDInvalid:            "the server does not understand this node id: `edged browse URL` lists them",
	ua.StatusBadAttributeIDInvalid:       "this node has no such attribute: `edged browse URL --all` shows what it is",
	ua.StatusBadNotReadable:              "this value can only be written",
	ua.StatusBadNotWritable:              "this value can only be read",
	ua.StatusBadUserAccessDenied:         "a client without a user may not do this: allow it on the server (an edged gateway: server.security.anonymous: write)",
	ua.StatusBadTypeMismatch:             "the value has another type than the node: name the node's with --type",
	ua.StatusBadOutOfRange:               "the value is outside of what the node or its device takes",
	ua.StatusBadTimeout:                  "the device did not answer in time; what became of a write is unknown",
	ua.StatusBadNoCommunication:          "the server cannot talk to the device",
	ua.StatusBadDeviceFailure:            "the device refuses or holds something else than was written",
	ua.StatusBadWaitingForInitialData:    "the device has not answered yet",
	ua.StatusBadConfigurationError:       "the server's configuration does not fit the device",
	ua.StatusBadServiceUnsupported:       "the server does not know this service",
	ua.StatusBadTooManySubscriptions:     "the server allows no more subscriptions: end one",
	ua.StatusBadTooManyMonitoredItems:    "the server allows no more monitored items: watch fewer nodes",
	ua.StatusBadSessionClosed:            "the server ended the session",
	ua.StatusBadSessionIDInvalid:         "the server ended the session",
	ua.StatusBadShutdown:                 "the server is shutting down",
	ua.StatusBadServerHalted:             "the server has stopped",
	ua.StatusBadWriteNotSupported:        "the server does not take this form of the value",
	ua.StatusBadSecurityModeInsufficient: "the server wants more security for this: leave --security out",
}

// Hint says in a few words what a status means for who typed the command, or "".
func Hint(s ua.StatusCode) string { return hints[s&0xFFFF0000] }

// timeLayout has the resolution that people compare by; OPC UA's own is 100 ns.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// TimeText is a time in UTC, or "" for none.
func TimeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeLayout)
}

// mostText bounds one value on a line.
const mostText = 4096

// ValueText writes a value on one line.
func ValueText(v any) string {
	s := oneValue(v)
	if r := []rune(s); len(r) > mostText {
		return string(r[:mostText]) + "..."
	}
	return s
}

func oneValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return printable(v)
	case ua.XMLElement:
		return printable(string(v))
	case float32:
		return number(float64(v), 32)
	case float64:
		return number(v, 64)
	case time.Time:
		if v.IsZero() {
			return "never"
		}
		return v.UTC().Format(time.RFC3339Nano)
	case []byte:
		return "0x" + hex.EncodeToString(v)
	case ua.ByteArray:
		return list(reflect.ValueOf(v))
	case ua.StatusCode:
		return StatusName(v)
	case *ua.LocalizedText:
		if v == nil {
			return ""
		}
		return printable(v.Text)
	case *ua.QualifiedName:
		if v == nil {
			return ""
		}
		if v.NamespaceIndex == 0 {
			return printable(v.Name)
		}
		return strconv.Itoa(int(v.NamespaceIndex)) + ":" + printable(v.Name)
	case *ua.ExtensionObject:
		return structure(v)
	case *ua.Variant:
		if v == nil {
			return "null"
		}
		return oneValue(v.Value())
	case *ua.NodeID, *ua.ExpandedNodeID, *ua.GUID:
		return printable(fmt.Sprint(v))
	}
	return anyValue(reflect.ValueOf(v))
}

// number writes the shortest text that means v, without an exponent where people would write none.
func number(v float64, bits int) string {
	form := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e15) {
		form = 'g'
	}
	return strconv.FormatFloat(v, form, -1, bits)
}

func anyValue(r reflect.Value) string {
	switch r.Kind() {
	case reflect.Slice, reflect.Array:
		return list(r)
	case reflect.Pointer:
		if r.IsNil() {
			return "null"
		}
		return anyValue(r.Elem())
	case reflect.Struct:
		var parts []string
		for i := range r.NumField() {
			if r.Type().Field(i).IsExported() && r.Type().Field(i).Name != "EncodingMask" {
				parts = append(parts, r.Type().Field(i).Name+": "+oneValue(r.Field(i).Interface()))
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return printable(fmt.Sprint(r.Interface()))
}

func list(r reflect.Value) string {
	parts := make([]string, r.Len())
	for i := range parts {
		if s, ok := r.Index(i).Interface().(string); ok {
			parts[i] = strconv.Quote(s)
		} else {
			parts[i] = oneValue(r.Index(i).Interface())
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func structure(v *ua.ExtensionObject) string {
	switch {
	case v == nil:
		return "null"
	case v.Value != nil:
		return oneValue(v.Value)
	case v.TypeID != nil && v.TypeID.NodeID != nil:
		return "structure " + v.TypeID.NodeID.String()
	}
	return "structure"
}

// printable keeps a value on its line.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		q := strconv.Quote(s)
		return q[1 : len(q)-1]
	}
	return s
}

// ValueJSON is a value for encoding/json: numbers, booleans, texts and lists as such, all else as its text. Numbers that
// JSON does not have (NaN, infinities) are texts.
func ValueJSON(v any) any {
	switch v := v.(type) {
	case nil, bool, string, int8, uint8, int16, uint16, int32, uint32, int64, uint64:
		return v
	case float32:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return oneValue(v)
		}
		return v
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return oneValue(v)
		}
		return v
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case *ua.ExtensionObject, *ua.Variant, time.Time:
		return oneValue(v)
	}
	if r := reflect.ValueOf(v); r.Kind() == reflect.Slice {
		out := make([]any, r.Len())
		for i := range out {
			out[i] = ValueJSON(r.Index(i).Interface())
		}
		return out
	}
	return oneValue(v)
}
