package wire

import (
	"reflect"
	"time"
	"unsafe"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// maxDims is how many dimensions a Variant of a cold message may have: each is a Go type that reflection keeps for
// good.
const maxDims = 8

// uaVariantSize is what a *ua.Variant takes: the struct, its boxed value, and what NewVariant allocates on the way.
const uaVariantSize = int(unsafe.Sizeof(ua.Variant{})) + 32

// uaVariant reads a Variant (Part 6, 5.2.2.16).
func (r *Reader) uaVariant() *ua.Variant {
	if !r.charge(uaVariantSize) || !r.enter() {
		return nil
	}
	defer r.leave()
	mask := r.Uint8()
	k := mask & 0x3F
	if k >= 26 && k <= 31 { // kept for later built-in types: read as a ByteString
		k = uint8(tag.ByteString)
	}
	if mask&0xC0 == 0x40 || k > 25 {
		r.Fail(ErrValue)
	}
	if r.err != nil {
		return nil
	}
	var v any
	if mask&0x80 != 0 {
		v = r.uaArray(k, mask&0x40 != 0)
	} else {
		v = r.uaScalar(k)
	}
	if r.err != nil {
		return nil
	}
	if b, ok := v.(byteStrings); ok {
		return b.variant(r)
	}
	m, err := ua.NewVariant(v)
	if err != nil {
		r.Fail(ErrValue)
		return nil
	}
	return m
}

// uaScalar reads the value of a Variant that is no array. A Variant holds no single Variant (Part 6, 5.2.2.16).
func (r *Reader) uaScalar(k uint8) any {
	switch k {
	case 0:
		return nil
	case 1:
		return r.Bool()
	case 2:
		return r.int8()
	case 3:
		return r.Uint8()
	case 4:
		return r.int16()
	case 5:
		return r.Uint16()
	case 6:
		return r.Int32()
	case 7:
		return r.Uint32()
	case 8:
		return r.int64()
	case 9:
		return r.Uint64()
	case 10:
		return r.Float32()
	case 11:
		return r.Float64()
	case 12:
		return r.ownText()
	case 13:
		return r.goTime()
	case 14:
		return r.uaGUID()
	case 15:
		return r.ownBytes()
	case 16:
		return r.xmlElement()
	case 17:
		return r.uaNodeID()
	case 18:
		return r.uaExpandedNodeID()
	case 19:
		return r.statusCode()
	case 20:
		return r.uaQualifiedName()
	case 21:
		return r.uaLocalizedText()
	case 22:
		return r.uaExtensionObject()
	case 23:
		return r.uaDataValue()
	case 25:
		return r.uaDiagnosticInfo()
	}
	r.Fail(ErrValue)
	return nil
}

// uaArray reads the elements and dimensions of a Variant.
func (r *Reader) uaArray(k uint8, dims bool) any {
	if k == 0 {
		r.Fail(ErrValue)
		return nil
	}
	n := r.Count(leastSize(k))
	switch k {
	case 1:
		return shape(r, elements(r, n, (*Reader).Bool), dims)
	case 2:
		return shape(r, elements(r, n, (*Reader).int8), dims)
	case 3:
		b := r.elementBytes(n, 1)
		if n < 0 {
			b = nil
		}
		return shape(r, ua.ByteArray(b), dims)
	case 4:
		return shape(r, elements(r, n, (*Reader).int16), dims)
	case 5:
		return shape(r, elements(r, n, (*Reader).Uint16), dims)
	case 6:
		return shape(r, elements(r, n, (*Reader).Int32), dims)
	case 7:
		return shape(r, elements(r, n, (*Reader).Uint32), dims)
	case 8:
		return shape(r, elements(r, n, (*Reader).int64), dims)
	case 9:
		return shape(r, elements(r, n, (*Reader).Uint64), dims)
	case 10:
		return shape(r, elements(r, n, (*Reader).Float32), dims)
	case 11:
		return shape(r, elements(r, n, (*Reader).Float64), dims)
	case 12:
		return shape(r, elements(r, n, (*Reader).ownText), dims)
	case 13:
		return shape(r, elements(r, n, (*Reader).goTime), dims)
	case 14:
		return shape(r, elements(r, n, (*Reader).uaGUID), dims)
	case 15:
		flat := elements(r, n, (*Reader).ownBytes)
		empty := make([][]byte, len(flat))
		if flat == nil {
			empty = nil
		}
		return byteStrings{shape(r, empty, dims), flat, empty}
	case 16:
		return shape(r, elements(r, n, (*Reader).xmlElement), dims)
	case 17:
		return shape(r, elements(r, n, (*Reader).uaNodeID), dims)
	case 18:
		return shape(r, elements(r, n, (*Reader).uaExpandedNodeID), dims)
	case 19:
		return shape(r, elements(r, n, (*Reader).statusCode), dims)
	case 20:
		return shape(r, elements(r, n, (*Reader).uaQualifiedName), dims)
	case 21:
		return shape(r, elements(r, n, (*Reader).uaLocalizedText), dims)
	case 22:
		return shape(r, elements(r, n, (*Reader).uaExtensionObject), dims)
	case 23:
		return shape(r, elements(r, n, (*Reader).uaDataValue), dims)
	case 24:
		return shape(r, elements(r, n, (*Reader).uaVariant), dims)
	}
	return shape(r, elements(r, n, (*Reader).uaDiagnosticInfo), dims)
}

// elementBytes copies n elements of size bytes.
func (r *Reader) elementBytes(n, size int) []byte {
	if n < 0 {
		return nil
	}
	return cloneBytes(r.take(n * size))
}

// byteStrings is an array of ByteStrings on its way into a Variant. NewVariant takes strings of different lengths for
// the rows of an uneven matrix, and so gets empty ones, which are filled afterwards.
type byteStrings struct {
	shaped      any
	flat, empty [][]byte // what was read; what shaped is made of
}

func (b byteStrings) variant(r *Reader) *ua.Variant {
	m, err := ua.NewVariant(b.shaped)
	if err != nil {
		r.Fail(ErrValue)
		return nil
	}
	copy(b.empty, b.flat)
	return m
}

// shape reads the dimensions, if the Variant has them, and folds the elements into nested slices over the same memory.
// A matrix without elements becomes a plain empty array, as gopcua has no other.
func shape[S ~[]E, E any](r *Reader, flat S, dims bool) any {
	if !dims {
		return flat
	}
	d := r.dimensions(len(flat))
	if len(d) < 2 || len(flat) == 0 || r.err != nil {
		return flat
	}
	if len(d) > maxDims || !r.charge(len(flat)*len(d)*24) {
		r.Fail(ErrLimit)
		return nil
	}
	v := reflect.ValueOf(flat)
	for i := len(d) - 1; i > 0; i-- {
		row := int(d[i])
		outer := reflect.MakeSlice(reflect.SliceOf(v.Type()), v.Len()/row, v.Len()/row)
		for j := range outer.Len() {
			outer.Index(j).Set(v.Slice3(j*row, (j+1)*row, (j+1)*row))
		}
		v = outer
	}
	return v.Interface()
}

// dimensions reads ArrayDimensions, whose product must be n.
func (r *Reader) dimensions(n int) []int32 {
	c := r.Count(4)
	if c <= 0 || !r.charge(4*c) {
		return nil
	}
	d := make([]int32, c)
	product := uint64(1)
	for i := range d {
		d[i] = r.Int32()
		product = r.dimension(product, d[i])
	}
	r.checkProduct(product, n)
	return d
}

// appendUAVariant appends a Variant; nil is the null Variant.
func appendUAVariant(dst []byte, v *ua.Variant) []byte {
	if v == nil || v.Type() == ua.TypeIDNull {
		return append(dst, 0)
	}
	dst = append(dst, v.EncodingMask())
	if !v.Has(ua.VariantArrayValues) {
		return appendUAScalar(dst, v.Value())
	}
	dst = appendInt32(dst, v.ArrayLength())
	dst = appendUAElements(dst, v.Value())
	if v.Has(ua.VariantArrayDimensions) {
		dst = appendList(dst, v.ArrayDimensions(), appendInt32)
	}
	return dst
}

func appendUAScalar(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return AppendBool(dst, v)
	case int8:
		return appendInt8(dst, v)
	case uint8:
		return append(dst, v)
	case int16:
		return appendInt16(dst, v)
	case uint16:
		return AppendUint16(dst, v)
	case int32:
		return appendInt32(dst, v)
	case uint32:
		return AppendUint32(dst, v)
	case int64:
		return appendInt64(dst, v)
	case uint64:
		return AppendUint64(dst, v)
	case float32:
		return AppendFloat32(dst, v)
	case float64:
		return AppendFloat64(dst, v)
	case string:
		return AppendString(dst, v)
	case time.Time:
		return appendGoTime(dst, v)
	case *ua.GUID:
		return appendUAGUID(dst, v)
	case []byte:
		return AppendByteString(dst, v)
	case ua.XMLElement:
		return appendXMLElement(dst, v)
	case *ua.NodeID:
		return appendUANodeID(dst, v)
	case *ua.ExpandedNodeID:
		return appendUAExpandedNodeID(dst, v)
	case ua.StatusCode:
		return appendStatusCode(dst, v)
	case *ua.QualifiedName:
		return appendUAQualifiedName(dst, v)
	case *ua.LocalizedText:
		return appendUALocalizedText(dst, v)
	case *ua.ExtensionObject:
		return appendUAExtensionObject(dst, v)
	case *ua.DataValue:
		return appendUADataValue(dst, v)
	case *ua.Variant:
		return appendUAVariant(dst, v)
	case *ua.DiagnosticInfo:
		return appendUADiagnosticInfo(dst, v)
	}
	return dst
}

// appendUAElements appends the elements of an array. A matrix is walked by reflection, row by row.
func appendUAElements(dst []byte, v any) []byte {
	switch v := v.(type) {
	case []bool:
		return appendEach(dst, v, AppendBool)
	case []int8:
		return appendEach(dst, v, appendInt8)
	case ua.ByteArray:
		return append(dst, v...)
	case []int16:
		return appendEach(dst, v, appendInt16)
	case []uint16:
		return appendEach(dst, v, AppendUint16)
	case []int32:
		return appendEach(dst, v, appendInt32)
	case []uint32:
		return appendEach(dst, v, AppendUint32)
	case []int64:
		return appendEach(dst, v, appendInt64)
	case []uint64:
		return appendEach(dst, v, AppendUint64)
	case []float32:
		return appendEach(dst, v, AppendFloat32)
	case []float64:
		return appendEach(dst, v, AppendFloat64)
	case []string:
		return appendEach(dst, v, AppendString)
	case []time.Time:
		return appendEach(dst, v, appendGoTime)
	case [][]byte:
		return appendEach(dst, v, AppendByteString)
	case []*ua.NodeID:
		return appendEach(dst, v, appendUANodeID)
	case []*ua.LocalizedText:
		return appendEach(dst, v, appendUALocalizedText)
	case []*ua.ExtensionObject:
		return appendEach(dst, v, appendUAExtensionObject)
	case []*ua.Variant:
		return appendEach(dst, v, appendUAVariant)
	}
	s := reflect.ValueOf(v)
	if s.Kind() != reflect.Slice {
		return appendUAScalar(dst, v)
	}
	for i := range s.Len() {
		dst = appendUAElements(dst, s.Index(i).Interface())
	}
	return dst
}

// ToVariant converts a value to gopcua's Variant. It is for cold services: it encodes and decodes. A Raw value of a form
// that gopcua has no type for gives false.
func ToVariant(v tag.Value) (*ua.Variant, bool) {
	r := NewReader(AppendVariant(nil, v))
	m := r.uaVariant()
	return m, r.err == nil
}

// FromVariant converts a Variant of gopcua's to a value, by way of its encoding.
func FromVariant(m *ua.Variant) tag.Value {
	r := NewReader(appendUAVariant(nil, m))
	return r.Variant()
}
