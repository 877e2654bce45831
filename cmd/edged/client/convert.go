package client

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"
)

// typeAliases are the names that a site file has for types.
var typeAliases = map[string]ua.TypeID{
	"bool": ua.TypeIDBoolean, "int8": ua.TypeIDSByte, "uint8": ua.TypeIDByte, "float32": ua.TypeIDFloat, "float64": ua.TypeIDDouble,
	"bytes": ua.TypeIDByteString,
}

// ParseType reads the name of a built-in type, in any case, or the site file's name of it; [] behind it makes it a list.
// The error is a Mistake.
func ParseType(text string) (shape, error) {
	name, isList := strings.CutSuffix(strings.ToLower(text), "[]")
	if of, ok := typeAliases[name]; ok {
		return shape{of, isList}, nil
	}
	i := slices.IndexFunc(typeNameList[:], func(n string) bool { return strings.EqualFold(n, name) })
	if i <= 0 || parsers[ua.TypeID(i)] == nil {
		var known []string
		for of, n := range typeNameList {
			if parsers[ua.TypeID(of)] != nil {
				known = append(known, n)
			}
		}
		return shape{}, mistake("--type %s: it is one of %s, with [] behind it for a list", text, strings.Join(known, ", "))
	}
	return shape{ua.TypeID(i), isList}, nil
}

// convert turns text into a value. A type that is not known is guessed from the text.
func convert(text string, s shape) (*ua.Variant, error) {
	if s.of == 0 {
		s.of = guess(text)
	}
	parse := parsers[s.of]
	if parse == nil {
		return nil, fmt.Errorf("a value of type %s cannot be given as text", TypeName(s.of))
	}
	if !s.list {
		v, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%q is no %s: %w", oneLine(text), TypeName(s.of), err)
		}
		return ua.NewVariant(v)
	}
	parts, err := elements(text)
	if err != nil {
		return nil, err
	}
	values := make([]any, len(parts))
	for i, p := range parts {
		if values[i], err = parse(p); err != nil {
			return nil, fmt.Errorf("element %d, %q, is no %s: %w", i, oneLine(p), TypeName(s.of), err)
		}
	}
	return lists[s.of](values)
}

// guess is the type that a text looks like: Boolean, Int64, Double or String.
func guess(text string) ua.TypeID {
	if text == "true" || text == "false" {
		return ua.TypeIDBoolean
	}
	if _, err := strconv.ParseInt(text, 0, 64); err == nil {
		return ua.TypeIDInt64
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return ua.TypeIDDouble
	}
	return ua.TypeIDString
}

// elements cuts 1,2,3 or [1, 2, 3]; texts that hold a comma are quoted as in JSON, all of them.
func elements(text string) ([]string, error) {
	inner := strings.TrimSpace(text)
	if strings.HasPrefix(inner, "[") != strings.HasSuffix(inner, "]") {
		return nil, fmt.Errorf("%q has a bracket without the other", oneLine(text))
	}
	inner = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(inner, "["), "]"))
	if inner == "" {
		return nil, nil
	}
	if strings.HasPrefix(inner, `"`) {
		var out []string
		if err := json.Unmarshal([]byte("["+inner+"]"), &out); err != nil {
			return nil, fmt.Errorf("%q is no list of quoted texts such as \"a\",\"b\"", oneLine(text))
		}
		return out, nil
	}
	out := strings.Split(inner, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out, nil
}

// parsers make a value of a built-in type from text.
var parsers = map[ua.TypeID]func(string) (any, error){
	ua.TypeIDBoolean:       func(s string) (any, error) { return parseBool(s) },
	ua.TypeIDSByte:         signed[int8](8),
	ua.TypeIDInt16:         signed[int16](16),
	ua.TypeIDInt32:         signed[int32](32),
	ua.TypeIDInt64:         signed[int64](64),
	ua.TypeIDByte:          unsigned[uint8](8),
	ua.TypeIDUint16:        unsigned[uint16](16),
	ua.TypeIDUint32:        unsigned[uint32](32),
	ua.TypeIDUint64:        unsigned[uint64](64),
	ua.TypeIDFloat:         func(s string) (any, error) { v, err := parseFloat(s, 32); return float32(v), err },
	ua.TypeIDDouble:        func(s string) (any, error) { return parseFloat(s, 64) },
	ua.TypeIDString:        func(s string) (any, error) { return s, nil },
	ua.TypeIDDateTime:      func(s string) (any, error) { return parseTime(s) },
	ua.TypeIDGUID:          parseGUID,
	ua.TypeIDByteString:    func(s string) (any, error) { return parseBytes(s) },
	ua.TypeIDNodeID:        func(s string) (any, error) { return parseNode(s, nil) },
	ua.TypeIDStatusCode:    func(s string) (any, error) { return parseStatus(s) },
	ua.TypeIDQualifiedName: parseQualified,
	ua.TypeIDLocalizedText: func(s string) (any, error) { return ua.NewLocalizedText(s), nil },
}

// lists make an array of values that all have the type.
var lists = map[ua.TypeID]func([]any) (*ua.Variant, error){
	ua.TypeIDBoolean: listOf[bool], ua.TypeIDSByte: listOf[int8], ua.TypeIDInt16: listOf[int16], ua.TypeIDInt32: listOf[int32],
	ua.TypeIDInt64: listOf[int64], ua.TypeIDByte: byteList, ua.TypeIDUint16: listOf[uint16], ua.TypeIDUint32: listOf[uint32],
	ua.TypeIDUint64: listOf[uint64], ua.TypeIDFloat: listOf[float32], ua.TypeIDDouble: listOf[float64], ua.TypeIDString: listOf[string],
	ua.TypeIDDateTime: listOf[time.Time], ua.TypeIDGUID: listOf[*ua.GUID], ua.TypeIDByteString: listOf[[]byte],
	ua.TypeIDNodeID: listOf[*ua.NodeID], ua.TypeIDStatusCode: listOf[ua.StatusCode], ua.TypeIDQualifiedName: listOf[*ua.QualifiedName],
	ua.TypeIDLocalizedText: listOf[*ua.LocalizedText],
}

func listOf[T any](values []any) (*ua.Variant, error) {
	out := make([]T, len(values))
	for i, v := range values {
		out[i] = v.(T)
	}
	return ua.NewVariant(out)
}

// byteList keeps the library from taking bytes for a ByteString.
func byteList(values []any) (*ua.Variant, error) {
	out := make(ua.ByteArray, len(values))
	for i, v := range values {
		out[i] = v.(uint8)
	}
	return ua.NewVariant(out)
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "1", "on":
		return true, nil
	case "false", "0", "off":
		return false, nil
	}
	return false, fmt.Errorf("write true or false")
}

func signed[T int8 | int16 | int32 | int64](bits int) func(string) (any, error) {
	return func(s string) (any, error) {
		v, err := strconv.ParseInt(s, 0, bits)
		if err != nil {
			return nil, fmt.Errorf("write a whole number from %d to %d", int64(math.MinInt64)>>(64-bits), int64(math.MaxInt64)>>(64-bits))
		}
		return T(v), nil
	}
}

func unsigned[T uint8 | uint16 | uint32 | uint64](bits int) func(string) (any, error) {
	return func(s string) (any, error) {
		v, err := strconv.ParseUint(s, 0, bits)
		if err != nil {
			return nil, fmt.Errorf("write a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-bits))
		}
		return T(v), nil
	}
}

func parseFloat(s string, bits int) (float64, error) {
	v, err := strconv.ParseFloat(s, bits)
	if err != nil {
		return 0, fmt.Errorf("write a number such as 71.5, with a point")
	}
	return v, nil
}

func parseTime(s string) (time.Time, error) {
	if s == "now" {
		return time.Now().UTC(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("write 2026-01-31T12:00:00Z or now")
}

func parseGUID(s string) (any, error) {
	if !isGUID(s) {
		return nil, fmt.Errorf("write 09087e75-8e5e-499b-954f-f2a9603db28a")
	}
	return ua.NewGUID(s), nil
}

func parseBytes(s string) ([]byte, error) {
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		if b, err := hex.DecodeString(digits); err == nil {
			return b, nil
		}
	} else if text, ok := strings.CutPrefix(s, "base64:"); ok {
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			return b, nil
		}
	}
	return nil, fmt.Errorf("write 0x and two digits a byte, or base64: and the bytes in base 64")
}

func parseStatus(s string) (ua.StatusCode, error) {
	if v, err := strconv.ParseUint(s, 0, 32); err == nil {
		return ua.StatusCode(v), nil
	}
	if s == "Good" {
		return ua.StatusOK, nil
	}
	for code, d := range ua.StatusCodes {
		if strings.EqualFold(strings.TrimPrefix(d.Name, "Status"), s) {
			return code, nil
		}
	}
	return 0, fmt.Errorf("write the name of a status such as BadOutOfRange, or its number")
}

func parseQualified(s string) (any, error) {
	if ns, name, ok := strings.Cut(s, ":"); ok {
		if n, err := strconv.ParseUint(ns, 10, 16); err == nil {
			return &ua.QualifiedName{NamespaceIndex: uint16(n), Name: name}, nil
		}
	}
	return &ua.QualifiedName{Name: s}, nil
}
