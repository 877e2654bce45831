package address

import (
	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// rawRange cuts a one-dimensional array that is kept encoded: of localized texts, names, ids or structures. A matrix
// and a scalar have no such part.
func rawRange(v tag.Value, r Range) (tag.Value, tag.Status) {
	b := v.Bytes()
	if r.Dims != 1 || len(b) < 5 || b[0]&0xC0 != 0x80 {
		return tag.Value{}, tag.BadIndexRangeNoData
	}
	rd := wire.NewReader(b[1:])
	n := rd.Count(1)
	if n < 0 || uint64(r.Low) >= uint64(n) {
		return tag.Value{}, tag.BadIndexRangeNoData
	}
	last := min(uint64(r.High), uint64(n-1))
	from := 0
	for i := uint64(0); i <= last; i++ {
		if i == uint64(r.Low) {
			from = rd.Offset()
		}
		if !skipElement(&rd, b[0]&0x3F) {
			return tag.Value{}, tag.BadIndexRangeNoData
		}
	}
	out := wire.AppendUint32([]byte{b[0]}, uint32(last)-r.Low+1)
	return tag.OfRaw(append(out, b[1+from:1+rd.Offset()]...)), tag.Good
}

// skipElement passes over one element of an encoded array (Part 6, 5.1.2).
func skipElement(r *wire.Reader, kind uint8) bool {
	switch kind {
	case 1, 2, 3:
		r.Skip(1)
	case 4, 5:
		r.Skip(2)
	case 6, 7, 10, 19:
		r.Skip(4)
	case 8, 9, 11, 13:
		r.Skip(8)
	case 14: // Guid
		r.Skip(16)
	case 12, 15, 16: // String, ByteString, XmlElement
		r.ByteString()
	case 17:
		r.NodeID()
	case 18:
		r.ExpandedID()
	case 20: // QualifiedName
		r.Skip(2)
		r.ByteString()
	case 21: // LocalizedText
		mask := r.Uint8()
		if mask&1 != 0 {
			r.ByteString()
		}
		if mask&2 != 0 {
			r.ByteString()
		}
	case 22: // ExtensionObject
		r.NodeID()
		if r.Uint8() != 0 {
			r.ByteString()
		}
	case 23:
		r.DataValue()
	case 24:
		r.Variant()
	default:
		return false
	}
	return r.Err() == nil
}
