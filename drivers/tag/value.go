package tag

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unsafe"
)

// Kind is the type of a Value. Its numbers are those of OPC UA's built-in types (Part 6, 5.1.2), so that no layer
// translates them.
type Kind uint8

// The kinds. Raw is the only one that is not a built-in type.
const (
	Null       Kind = 0
	Bool       Kind = 1
	Int8       Kind = 2
	Uint8      Kind = 3
	Int16      Kind = 4
	Uint16     Kind = 5
	Int32      Kind = 6
	Uint32     Kind = 7
	Int64      Kind = 8
	Uint64     Kind = 9
	Float32    Kind = 10
	Float64    Kind = 11
	String     Kind = 12
	DateTime   Kind = 13 // a Time
	ByteString Kind = 15
	StatusCode Kind = 19
	// Raw holds one OPC UA Variant, already encoded: the values that only the client side knows (structures, localized
	// texts, matrices).
	Raw Kind = 64
)

var kindNames = map[Kind]string{
	Null: "Null", Bool: "Boolean", Int8: "SByte", Uint8: "Byte", Int16: "Int16", Uint16: "UInt16", Int32: "Int32",
	Uint32: "UInt32", Int64: "Int64", Uint64: "UInt64", Float32: "Float", Float64: "Double", String: "String",
	DateTime: "DateTime", ByteString: "ByteString", StatusCode: "StatusCode", Raw: "Variant",
}

// String is the OPC UA name of the kind.
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// Number reports whether values of the kind can be compared and scaled as numbers.
func (k Kind) Number() bool { return k >= Int8 && k <= Float64 }

// Value is one value: a kind and 64 bits, and a pointer for text, bytes and arrays, so that a number never allocates.
// The zero Value is null. Values are immutable: whoever makes one from a slice gives that slice away, and whoever gets
// a slice out of one only reads it.
type Value struct {
	p    unsafe.Pointer // first byte or element of text, bytes and arrays; the only unsafe code of the field side is in this file
	bits uint64
	n    uint32 // length of what p points to
	form
}

// form is what a Value is of. It is a struct of its own because the compiler keeps a struct of at most four fields in
// registers. A Value of five went over the stack each time: written in parts, and then read as a whole, which a
// processor has to wait for. A Write of 100 numbers takes 19.2 us of CPU so, and 22.6 otherwise.
type form struct {
	kind  Kind
	array bool
}

// Of makes a scalar Value.
func Of[T bool | int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64 | string | Time | Status](v T) Value {
	switch v := any(v).(type) {
	case bool:
		if v {
			return Value{form: form{kind: Bool}, bits: 1}
		}
		return Value{form: form{kind: Bool}}
	case int8:
		return Value{form: form{kind: Int8}, bits: uint64(int64(v))}
	case uint8:
		return Value{form: form{kind: Uint8}, bits: uint64(v)}
	case int16:
		return Value{form: form{kind: Int16}, bits: uint64(int64(v))}
	case uint16:
		return Value{form: form{kind: Uint16}, bits: uint64(v)}
	case int32:
		return Value{form: form{kind: Int32}, bits: uint64(int64(v))}
	case uint32:
		return Value{form: form{kind: Uint32}, bits: uint64(v)}
	case int64:
		return Value{form: form{kind: Int64}, bits: uint64(v)}
	case uint64:
		return Value{form: form{kind: Uint64}, bits: v}
	case float32:
		return Value{form: form{kind: Float32}, bits: uint64(math.Float32bits(v))}
	case float64:
		return Value{form: form{kind: Float64}, bits: math.Float64bits(v)}
	case string:
		return Value{form: form{kind: String}, p: unsafe.Pointer(unsafe.StringData(v)), n: uint32(len(v))}
	case Time:
		return Value{form: form{kind: DateTime}, bits: uint64(v)}
	case Status:
		return Value{form: form{kind: StatusCode}, bits: uint64(v)}
	}
	panic("unreachable")
}

// FromBits makes a scalar Value of a numeric kind, Bool, DateTime or StatusCode from the 64 bits that Bits returns:
// integers sign-extended, floats as their IEEE 754 bits, Float32 in the lower half.
func FromBits(k Kind, bits uint64) Value { return Value{form: form{kind: k}, bits: bits} }

// OfBytes makes a ByteString. A nil slice is the null ByteString, which is not the empty one (Part 6, 5.2.2.7).
func OfBytes(b []byte) Value {
	return Value{form: form{kind: ByteString}, p: unsafe.Pointer(unsafe.SliceData(b)), n: uint32(len(b))}
}

// OfRaw makes a Value of one encoded OPC UA Variant.
func OfRaw(b []byte) Value {
	return Value{form: form{kind: Raw}, p: unsafe.Pointer(unsafe.SliceData(b)), n: uint32(len(b))}
}

// Element lists the types that an array Value can hold.
type Element interface {
	bool | int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64 | string | Time | Status | []byte
}

// OfSlice makes a one-dimensional array. A nil slice is an array without elements. Note that bytes are an array of
// Byte here; OfBytes makes a ByteString.
func OfSlice[T Element](v []T) Value {
	return Value{form: form{kindOf[T](), true}, p: unsafe.Pointer(unsafe.SliceData(v)), n: uint32(len(v))}
}

// Slice returns the elements of an array of T, and false if v is something else.
func Slice[T Element](v Value) ([]T, bool) {
	if !v.array || v.kind != kindOf[T]() {
		return nil, false
	}
	return unsafe.Slice((*T)(v.p), v.n), true
}

func kindOf[T Element]() Kind {
	var z T
	switch any(z).(type) {
	case bool:
		return Bool
	case int8:
		return Int8
	case uint8:
		return Uint8
	case int16:
		return Int16
	case uint16:
		return Uint16
	case int32:
		return Int32
	case uint32:
		return Uint32
	case int64:
		return Int64
	case uint64:
		return Uint64
	case float32:
		return Float32
	case float64:
		return Float64
	case string:
		return String
	case Time:
		return DateTime
	case Status:
		return StatusCode
	}
	return ByteString
}

// Kind is the kind of the value, or of an array's elements.
func (v Value) Kind() Kind { return v.kind }

// IsNull reports whether there is no value.
func (v Value) IsNull() bool { return v.kind == Null }

// IsArray reports whether v is a one-dimensional array.
func (v Value) IsArray() bool { return v.array }

// Len is the number of elements of an array, and of bytes of a String, ByteString or Raw; 0 for all others.
func (v Value) Len() int { return int(v.n) }

// Bits returns a scalar's 64 bits; see FromBits.
func (v Value) Bits() uint64 { return v.bits }

// Bool is the value of a Boolean, and whether any other scalar's bits are not zero.
func (v Value) Bool() bool { return v.bits != 0 }

// Text is the text of a String.
func (v Value) Text() string {
	if v.kind != String || v.array {
		return ""
	}
	return unsafe.String((*byte)(v.p), v.n)
}

// Bytes are those of a ByteString or Raw. Nil is the null ByteString.
func (v Value) Bytes() []byte {
	if (v.kind != ByteString && v.kind != Raw) || v.array || v.p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(v.p), v.n)
}

// Float is a numeric scalar as a float64, and false if v is something else. A Boolean counts as 0 or 1.
func (v Value) Float() (float64, bool) {
	if v.array {
		return 0, false
	}
	switch v.kind {
	case Bool, Uint8, Uint16, Uint32, Uint64:
		return float64(v.bits), true
	case Int8, Int16, Int32, Int64:
		return float64(int64(v.bits)), true
	case Float32:
		return float64(math.Float32frombits(uint32(v.bits))), true
	case Float64:
		return math.Float64frombits(v.bits), true
	}
	return 0, false
}

// Equal reports whether both are the same value of the same kind. Two NaN of the same bits are equal here: what
// has not moved is no change.
func (v Value) Equal(w Value) bool {
	if v.kind != w.kind || v.array != w.array || v.bits != w.bits || v.n != w.n {
		return false
	}
	if v.p == w.p {
		return true
	}
	if !v.array {
		if v.n == 0 {
			return (v.p == nil) == (w.p == nil) || v.kind == String
		}
		return bytes.Equal(unsafe.Slice((*byte)(v.p), v.n), unsafe.Slice((*byte)(w.p), w.n))
	}
	switch v.kind {
	case String:
		return slices.Equal(unsafe.Slice((*string)(v.p), v.n), unsafe.Slice((*string)(w.p), w.n))
	case ByteString:
		return slices.EqualFunc(unsafe.Slice((*[]byte)(v.p), v.n), unsafe.Slice((*[]byte)(w.p), w.n), bytes.Equal)
	}
	n := int(v.n) * elementSize(v.kind)
	return bytes.Equal(unsafe.Slice((*byte)(v.p), n), unsafe.Slice((*byte)(w.p), n))
}

func elementSize(k Kind) int {
	switch k {
	case Bool, Int8, Uint8:
		return 1
	case Int16, Uint16:
		return 2
	case Int32, Uint32, Float32, StatusCode:
		return 4
	}
	return 8
}

// Size is what the value holds beside itself, in bytes: text, bytes and array elements. It is what an Account is
// charged.
func (v Value) Size() int {
	if !v.array {
		return int(v.n)
	}
	switch v.kind {
	case String:
		n := 16 * int(v.n)
		for _, s := range unsafe.Slice((*string)(v.p), v.n) {
			n += len(s)
		}
		return n
	case ByteString:
		n := 24 * int(v.n)
		for _, s := range unsafe.Slice((*[]byte)(v.p), v.n) {
			n += len(s)
		}
		return n
	}
	return int(v.n) * elementSize(v.kind)
}

// Any is the value as the plain Go type of its kind: for logs, JSON and tests, not for hot paths.
func (v Value) Any() any {
	if v.array {
		switch v.kind {
		case Bool:
			return anySlice[bool](v)
		case Int8:
			return anySlice[int8](v)
		case Uint8:
			return anySlice[uint8](v)
		case Int16:
			return anySlice[int16](v)
		case Uint16:
			return anySlice[uint16](v)
		case Int32:
			return anySlice[int32](v)
		case Uint32:
			return anySlice[uint32](v)
		case Int64:
			return anySlice[int64](v)
		case Uint64:
			return anySlice[uint64](v)
		case Float32:
			return anySlice[float32](v)
		case Float64:
			return anySlice[float64](v)
		case String:
			return anySlice[string](v)
		case DateTime:
			return anySlice[Time](v)
		case StatusCode:
			return anySlice[Status](v)
		}
		return anySlice[[]byte](v)
	}
	switch v.kind {
	case Null:
		return nil
	case Bool:
		return v.bits != 0
	case Int8:
		return int8(v.bits)
	case Uint8:
		return uint8(v.bits)
	case Int16:
		return int16(v.bits)
	case Uint16:
		return uint16(v.bits)
	case Int32:
		return int32(v.bits)
	case Uint32:
		return uint32(v.bits)
	case Int64:
		return int64(v.bits)
	case Uint64:
		return v.bits
	case Float32:
		return math.Float32frombits(uint32(v.bits))
	case Float64:
		return math.Float64frombits(v.bits)
	case String:
		return v.Text()
	case DateTime:
		return Time(v.bits)
	case StatusCode:
		return Status(v.bits)
	}
	return v.Bytes()
}

func anySlice[T Element](v Value) any {
	s, _ := Slice[T](v)
	return s
}

// String is the value as a person reads it.
func (v Value) String() string {
	if v.kind == Null {
		return "null"
	}
	if v.kind == Float32 && !v.array {
		return strconv.FormatFloat(float64(math.Float32frombits(uint32(v.bits))), 'g', -1, 32)
	}
	return fmt.Sprint(v.Any())
}
