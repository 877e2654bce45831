// Package wire turns bytes into messages and messages into bytes (OPC UA Part 6, 5.2: UA Binary).
// It hides every length, count and depth that a peer may lie about: decoding is bounded, encoding appends.
package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"unsafe"

	"edged/drivers/tag"
)

//go:generate go run ./gen

// Errors of a Reader. All of them are BadDecodingError to the peer, but ErrLimit, which is BadEncodingLimitsExceeded.
var (
	ErrShort = errors.New("wire: message ends too soon")
	ErrLimit = errors.New("wire: message exceeds a limit")
	ErrValue = errors.New("wire: message holds an impossible value")
	// ErrUnknown is BadServiceUnsupported: no message has this id.
	ErrUnknown = errors.New("wire: message of an unknown type")
)

// MaxDepth is how deep Variants, ExtensionObjects and DiagnosticInfos may nest (Part 6, 5.1.3 and 5.2.2.12 ask for at
// least 100 of DiagnosticInfo; deeper is refused before the stack can grow).
const MaxDepth = 100

// What decoding may allocate for a message of N bytes is memoryBase + memoryPerByte*N: a null Variant is one byte on the
// wire and 100 in memory, a null NodeId two and 60, so that the worst messages would grow a hundredfold. The messages of
// honest clients stay below a tenth of it.
const (
	memoryBase    = 64 << 10
	memoryPerByte = 32
)

// Reader decodes from a buffer. The first error sticks: every later call returns zero values, so that callers check
// Err once, at the end of a structure. Strings, byte strings and NodeIDs that it returns alias the buffer, and are
// good as long as the buffer is; Clone what must live longer.
type Reader struct {
	b     []byte
	off   int
	depth int
	mem   int // bytes that may still be allocated
	err   error
}

// NewReader returns a Reader of b.
func NewReader(b []byte) Reader { return Reader{b: b, mem: memoryBase + memoryPerByte*len(b)} }

// Err is the first error.
func (r *Reader) Err() error { return r.err }

// Rest is what has not been read. It is nil after an error.
func (r *Reader) Rest() []byte {
	if r.err != nil {
		return nil
	}
	return r.b[r.off:]
}

// Offset is how many bytes have been read.
func (r *Reader) Offset() int { return r.off }

// Fail makes err stick unless there is one already. It leaves nothing to be read, so that take has one thing to check.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = r.b[:r.off]
}

// take returns the next n bytes; nil: there are less.
func (r *Reader) take(n int) []byte {
	end := r.off + n
	if uint(n) > uint(len(r.b)-r.off) {
		r.Fail(ErrShort)
		return nil
	}
	p := r.b[r.off:end:end]
	r.off = end
	return p
}

// Skip passes over n bytes.
func (r *Reader) Skip(n int) { r.take(n) }

// Uint8 reads a Byte.
func (r *Reader) Uint8() uint8 {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

// Bool reads a Boolean: any byte but 0 is true (Part 6, 5.2.2.1).
func (r *Reader) Bool() bool { return r.Uint8() != 0 }

// Uint16 reads a UInt16.
func (r *Reader) Uint16() uint16 {
	if p := r.take(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

// Uint32 reads a UInt32.
func (r *Reader) Uint32() uint32 {
	if p := r.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// Uint64 reads a UInt64.
func (r *Reader) Uint64() uint64 {
	if p := r.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// Int32 reads an Int32.
func (r *Reader) Int32() int32 { return int32(r.Uint32()) }

// Float64 reads a Double.
func (r *Reader) Float64() float64 { return math.Float64frombits(r.Uint64()) }

// Float32 reads a Float.
func (r *Reader) Float32() float32 { return math.Float32frombits(r.Uint32()) }

// Time reads a DateTime. What lies before 1601 or after 9999 is cut to that (Part 6, 5.2.2.5).
func (r *Reader) Time() tag.Time { return cutTime(r.Uint64()) }

func cutTime(v uint64) tag.Time { return min(max(tag.Time(v), 0), tag.MaxTime) }

// Count reads the length of an array whose elements take at least elem bytes each (elem > 0), and refuses one that the
// rest of the message cannot hold. Null (any negative length, Part 6, 5.2.5) is -1.
func (r *Reader) Count(elem int) int {
	n := int(r.Int32())
	if r.err != nil || n < 0 {
		return -1
	}
	if n > (len(r.b)-r.off)/elem {
		r.Fail(ErrShort)
		return -1
	}
	return n
}

// ByteString reads a ByteString; nil is null. It aliases the buffer.
func (r *Reader) ByteString() []byte {
	n := int(r.Int32()) // not Count, which divides
	if n < 0 || r.err != nil {
		return nil
	}
	return r.take(n)
}

// String reads a String; null reads as "". It aliases the buffer.
func (r *Reader) String() string {
	b := r.ByteString()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// enter counts one level of nesting, and refuses one too many. Every enter that returned true needs a leave.
func (r *Reader) enter() bool {
	if r.depth >= MaxDepth {
		r.Fail(ErrLimit)
		return false
	}
	r.depth++
	return true
}

func (r *Reader) leave() { r.depth-- }

// charge counts n bytes that are about to be allocated, and reports whether they may be.
func (r *Reader) charge(n int) bool {
	if r.err != nil {
		return false
	}
	if n > r.mem {
		r.Fail(ErrLimit)
		return false
	}
	r.mem -= n
	return true
}

// AppendBool appends a Boolean.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendUint16 appends a UInt16.
func AppendUint16(dst []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(dst, v) }

// AppendUint32 appends a UInt32, or an Int32, a StatusCode or an enumeration as one.
func AppendUint32(dst []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(dst, v) }

// AppendUint64 appends a UInt64, or an Int64 as one.
func AppendUint64(dst []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(dst, v) }

// AppendFloat32 appends a Float.
func AppendFloat32(dst []byte, v float32) []byte { return AppendUint32(dst, math.Float32bits(v)) }

// AppendFloat64 appends a Double.
func AppendFloat64(dst []byte, v float64) []byte { return AppendUint64(dst, math.Float64bits(v)) }

// AppendTime appends a DateTime: the last moment is the largest Int64, what lies before 1601 is 0 (Part 6, 5.2.2.5).
func AppendTime(dst []byte, v tag.Time) []byte { return AppendUint64(dst, wireTime(v)) }

func wireTime(v tag.Time) uint64 {
	if v = max(v, 0); v >= tag.MaxTime {
		v = math.MaxInt64
	}
	return uint64(v)
}

// AppendNull appends the length of a null string, byte string or array.
func AppendNull(dst []byte) []byte { return append(dst, 0xFF, 0xFF, 0xFF, 0xFF) }

// AppendString appends a String. The empty text is written as such, not as null.
func AppendString(dst []byte, s string) []byte {
	return append(AppendUint32(dst, uint32(len(s))), s...)
}

// AppendByteString appends a ByteString; nil is null.
func AppendByteString(dst, b []byte) []byte {
	if b == nil {
		return AppendNull(dst)
	}
	return append(AppendUint32(dst, uint32(len(b))), b...)
}

// AppendQualifiedName appends a QualifiedName (Part 6, 5.2.2.13).
func AppendQualifiedName(dst []byte, ns uint16, name string) []byte {
	return AppendString(AppendUint16(dst, ns), name)
}

// AppendLocalizedText appends a LocalizedText (Part 6, 5.2.2.14); an empty locale or text is left out.
func AppendLocalizedText(dst []byte, locale, text string) []byte {
	at := len(dst)
	dst = append(dst, 0)
	if locale != "" {
		dst[at] |= 1
		dst = AppendString(dst, locale)
	}
	if text != "" {
		dst[at] |= 2
		dst = AppendString(dst, text)
	}
	return dst
}

// QualifiedName reads a QualifiedName. Its name aliases the buffer.
func (r *Reader) QualifiedName() (ns uint16, name string) {
	ns = r.Uint16()
	return ns, r.String()
}

// LocalizedText reads a LocalizedText; what is left out reads as "". Both alias the buffer.
func (r *Reader) LocalizedText() (locale, text string) {
	mask := r.Uint8()
	if mask&1 != 0 {
		locale = r.String()
	}
	if mask&2 != 0 {
		text = r.String()
	}
	return locale, text
}

// GUID reads a Guid as its 16 bytes on the wire (Part 6, 5.2.2.6).
func (r *Reader) GUID() (g [16]byte) {
	copy(g[:], r.take(16))
	return g
}

// AppendGUID appends a Guid from its 16 bytes on the wire.
func AppendGUID(dst []byte, g [16]byte) []byte { return append(dst, g[:]...) }
