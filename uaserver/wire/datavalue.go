package wire

import "edged/drivers/tag"

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

// AppendDataValue appends a DataValue with what is set: a null value, a Good status and zero times are left out.
func AppendDataValue(dst []byte, v *DataValue) []byte {
	at := len(dst)
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
