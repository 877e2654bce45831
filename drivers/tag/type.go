package tag

import (
	"fmt"
	"strconv"
	"strings"
)

// Type is a tag's type as the site file writes it: a scalar such as int16, string(8) or bytes(16), or an array of it
// such as uint16[4].
type Type struct {
	Kind Kind
	Len  int // elements of an array; 0 is a scalar
	Size int // bytes of a string or of bytes; 0 where the type gives none
}

// The bounds of a type's numbers: what one Variant of 64 KiB can hold.
const (
	maxTypeLen  = 8192
	maxTypeSize = 65535
)

var typeKinds = map[string]Kind{
	"bool": Bool, "int8": Int8, "uint8": Uint8, "int16": Int16, "uint16": Uint16, "int32": Int32, "uint32": Uint32,
	"int64": Int64, "uint64": Uint64, "float32": Float32, "float64": Float64, "string": String, "bytes": ByteString,
}

const typeHelp = "use bool, int16, uint16, int32, uint32, int64, uint64, float32, float64, string(N), bytes(N), or TYPE[N]"

// ParseType reads a type.
func ParseType(text string) (Type, error) {
	var t Type
	rest := text
	if i := strings.IndexByte(rest, '['); i >= 0 {
		n, err := strconv.Atoi(strings.TrimSuffix(rest[i+1:], "]"))
		if err != nil || !strings.HasSuffix(rest, "]") || n < 1 || n > maxTypeLen {
			return Type{}, fmt.Errorf("%q: an array is TYPE[N], N from 1 to %d", text, maxTypeLen)
		}
		t.Len, rest = n, rest[:i]
	}
	if i := strings.IndexByte(rest, '('); i >= 0 {
		n, err := strconv.Atoi(strings.TrimSuffix(rest[i+1:], ")"))
		if err != nil || !strings.HasSuffix(rest, ")") || n < 1 || n > maxTypeSize {
			return Type{}, fmt.Errorf("%q: a length in bytes from 1 to %d belongs into the brackets", text, maxTypeSize)
		}
		t.Size, rest = n, rest[:i]
	}
	kind, ok := typeKinds[rest]
	if !ok {
		return Type{}, fmt.Errorf("type %q is not known: %s", text, typeHelp)
	}
	if t.Size > 0 && kind != String && kind != ByteString {
		return Type{}, fmt.Errorf("%q: only string and bytes have a length in brackets", text)
	}
	t.Kind = kind
	return t, nil
}

// String is the type as the site file writes it.
func (t Type) String() string {
	var s string
	for name, k := range typeKinds {
		if k == t.Kind {
			s = name
		}
	}
	if t.Size > 0 {
		s += "(" + strconv.Itoa(t.Size) + ")"
	}
	if t.Len > 0 {
		s += "[" + strconv.Itoa(t.Len) + "]"
	}
	return s
}
