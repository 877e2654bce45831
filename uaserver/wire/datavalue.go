package wire

import (
	"encoding/binary"

	"edged/drivers/tag"
)

// Mask bits of a DataValue (Part 6, 5.2.2.17).
const (
	HasValue      = 0x01
	HasStatus     = 0x02
	HasSource     = 0x04
	HasServer     = 0x08
	HasSourcePico = 0x10
	HasServerPico = 0x20
)

// DataValue is a value with its status and times.
type DataValue struct {
	Value  tag.Value
	Status tag.Status
	Source tag.Time // SourceTimestamp; zero: none
	Server tag.Time // ServerTimestamp; zero: none
	Mask   uint8    // what was in the message, when read from one
}

// plainValueSize is the most that a DataValue with a number needs: mask, Variant, status, two times. One more byte than
// the largest has makes it a power of two.
const plainValueSize = 32

// AppendDataValue appends a DataValue with what is set: a null value, a Good status and zero times are left out. Where
// there is room, a number with its status and times is written at once, without a look at the room for each part.
func AppendDataValue(dst []byte, v *DataValue) []byte {
	at := len(dst)
	if cap(dst)-at >= plainValueSize {
		if n := putPlainValue((*[plainValueSize]byte)(dst[at:at+plainValueSize]), v); n > 0 {
			return dst[:at+n]
		}
	}
	dst = append(dst, 0)
	var mask byte
	if !v.Value.IsNull() {
		mask |= HasValue
		dst = AppendVariant(dst, v.Value)
	}
	if v.Status != 0 {
		mask |= HasStatus
		dst = AppendUint32(dst, uint32(v.Status))
	}
	if v.Source != 0 {
		mask |= HasSource
		dst = AppendTime(dst, v.Source)
	}
	if v.Server != 0 {
		mask |= HasServer
		dst = AppendTime(dst, v.Server)
	}
	dst[at] = mask
	return dst
}

// putPlainValue writes a DataValue with a number, or with none, into b, and returns its length; 0: its value is another.
func putPlainValue(b *[plainValueSize]byte, v *DataValue) int {
	k, n := v.Value.Kind(), 1
	b[0] = 0
	if k != tag.Null {
		size := 0
		if k <= tag.Float64 && !v.Value.IsArray() {
			size = fixedSize(uint8(k))
		}
		if size == 0 {
			return 0
		}
		b[0], b[1] = HasValue, byte(k)
		binary.LittleEndian.PutUint64(b[2:], v.Value.Bits()) // what is too much is overwritten
		n = 2 + size
	}
	if v.Status != 0 {
		b[0] |= HasStatus
		binary.LittleEndian.PutUint32(b[n:], uint32(v.Status))
		n += 4
	}
	if v.Source != 0 {
		b[0] |= HasSource
		binary.LittleEndian.PutUint64(b[n:], wireTime(v.Source))
		n += 8
	}
	if v.Server != 0 {
		b[0] |= HasServer
		binary.LittleEndian.PutUint64(b[n:], wireTime(v.Server))
		n += 8
	}
	return n
}

// DataValue reads a DataValue. Its value owns its memory.
func (r *Reader) DataValue() (v DataValue) {
	v.Mask = r.Uint8()
	if v.Mask&HasValue != 0 {
		v.Value = r.Variant()
	}
	if v.Mask&HasStatus != 0 {
		v.Status = tag.Status(r.Uint32())
	}
	if v.Mask&HasSource != 0 {
		v.Source = r.Time()
	}
	if v.Mask&HasSourcePico != 0 {
		r.Uint16()
	}
	if v.Mask&HasServer != 0 {
		v.Server = r.Time()
	}
	if v.Mask&HasServerPico != 0 {
		r.Uint16()
	}
	return v
}
