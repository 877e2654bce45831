package wire

import (
	"strings"
	"time"
	"unsafe"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// This file joins the generated codec to the built-in types as gopcua's ua has them. All that its readers return owns
// its memory and was charged to the Reader's budget; after an error they return nil and allocate nothing.

// one reads a structure into memory of its own.
func one[T any](r *Reader, decode func(*Reader, *T)) *T {
	if !r.charge(int(unsafe.Sizeof(*new(T)))) {
		return nil
	}
	v := new(T)
	decode(r, v)
	return v
}

// structs reads an array of structures that take at least size bytes each. Null is nil.
func structs[T any](r *Reader, size int, decode func(*Reader, *T)) []*T {
	n := r.Count(size)
	if n < 0 || !r.charge(n*int(unsafe.Sizeof(*new(T))+unsafe.Sizeof(new(T)))) {
		return nil
	}
	slab, s := make([]T, n), make([]*T, n)
	for i := range s {
		if r.err != nil {
			return nil
		}
		s[i] = &slab[i]
		decode(r, s[i])
	}
	return s
}

// values reads an array of built-in values that take at least size bytes each. Null is nil.
func values[T any](r *Reader, size int, read func(*Reader) T) []T {
	return elements(r, r.Count(size), read)
}

// elements reads n values; nil if n is negative.
func elements[T any](r *Reader, n int, read func(*Reader) T) []T {
	if n < 0 || !r.charge(n*int(unsafe.Sizeof(*new(T)))) {
		return nil
	}
	s := make([]T, n)
	for i := range s {
		if s[i] = read(r); r.err != nil {
			return nil
		}
	}
	return s
}

// appendList appends an array; nil is null.
func appendList[T any](dst []byte, s []T, add func([]byte, T) []byte) []byte {
	if s == nil {
		return AppendNull(dst)
	}
	return appendEach(AppendUint32(dst, uint32(len(s))), s, add)
}

func appendEach[T any](dst []byte, s []T, add func([]byte, T) []byte) []byte {
	for _, v := range s {
		dst = add(dst, v)
	}
	return dst
}

func (r *Reader) int8() int8                { return int8(r.Uint8()) }
func (r *Reader) int16() int16              { return int16(r.Uint16()) }
func (r *Reader) int64() int64              { return int64(r.Uint64()) }
func (r *Reader) statusCode() ua.StatusCode { return ua.StatusCode(r.Uint32()) }
func (r *Reader) goTime() time.Time         { return r.Time().Time() }
func (r *Reader) ownText() string           { return strings.Clone(r.String()) }
func (r *Reader) ownBytes() []byte          { return cloneBytes(r.ByteString()) }
func (r *Reader) xmlElement() ua.XMLElement { return ua.XMLElement(r.ownText()) }

func appendUint8(dst []byte, v uint8) []byte              { return append(dst, v) }
func appendInt8(dst []byte, v int8) []byte                { return append(dst, byte(v)) }
func appendInt16(dst []byte, v int16) []byte              { return AppendUint16(dst, uint16(v)) }
func appendInt32(dst []byte, v int32) []byte              { return AppendUint32(dst, uint32(v)) }
func appendInt64(dst []byte, v int64) []byte              { return AppendUint64(dst, uint64(v)) }
func appendStatusCode(dst []byte, v ua.StatusCode) []byte { return AppendUint32(dst, uint32(v)) }
func appendXMLElement(dst []byte, v ua.XMLElement) []byte { return AppendString(dst, string(v)) }
func appendGoTime(dst []byte, v time.Time) []byte         { return AppendTime(dst, tag.TimeOf(v)) }

// appendText appends a String of a structure: there "" means that nothing was said, which is null.
func appendText(dst []byte, s string) []byte {
	if s == "" {
		return AppendNull(dst)
	}
	return AppendString(dst, s)
}

func (r *Reader) uaGUID() *ua.GUID {
	g := r.GUID()
	if !r.charge(int(unsafe.Sizeof(ua.GUID{})) + 8) {
		return nil
	}
	return &ua.GUID{
		Data1: uint32(g[0]) | uint32(g[1])<<8 | uint32(g[2])<<16 | uint32(g[3])<<24,
		Data2: uint16(g[4]) | uint16(g[5])<<8,
		Data3: uint16(g[6]) | uint16(g[7])<<8,
		Data4: append([]byte(nil), g[8:]...),
	}
}

func appendUAGUID(dst []byte, v *ua.GUID) []byte {
	if v == nil {
		return AppendGUID(dst, [16]byte{})
	}
	dst = AppendUint16(AppendUint16(AppendUint32(dst, v.Data1), v.Data2), v.Data3)
	var d [8]byte
	copy(d[:], v.Data4)
	return append(dst, d[:]...)
}

// uaIDSize is what one *ua.NodeID may take beside its text: the struct, and a GUID with its bytes.
const uaIDSize = int(unsafe.Sizeof(ua.NodeID{}))

func (r *Reader) uaNodeID() *ua.NodeID {
	id := r.NodeID()
	if !r.chargeID(id) {
		return nil
	}
	return ToUA(id)
}

func (r *Reader) chargeID(id NodeID) bool {
	if id.Type == GUID {
		return r.charge(uaIDSize + int(unsafe.Sizeof(ua.GUID{})) + 16)
	}
	return r.charge(uaIDSize)
}

func appendUANodeID(dst []byte, n *ua.NodeID) []byte { return appendUAID(dst, n, 0) }

func appendUAID(dst []byte, n *ua.NodeID, flags byte) []byte {
	if n == nil {
		return append(dst, flags, 0)
	}
	switch n.Type() {
	case ua.NodeIDTypeTwoByte, ua.NodeIDTypeFourByte, ua.NodeIDTypeNumeric:
		return appendNodeID(dst, NumericID(n.Namespace(), n.IntID()), flags)
	}
	return appendNodeID(dst, FromUA(n), flags)
}

func (r *Reader) uaExpandedNodeID() *ua.ExpandedNodeID {
	id, uri, server := r.ExpandedID()
	if !r.chargeID(id) || !r.charge(int(unsafe.Sizeof(ua.ExpandedNodeID{}))) {
		return nil
	}
	return ua.NewExpandedNodeID(ToUA(id), strings.Clone(uri), server)
}

func appendUAExpandedNodeID(dst []byte, v *ua.ExpandedNodeID) []byte {
	if v == nil {
		return append(dst, 0, 0)
	}
	var flags byte
	if v.NamespaceURI != "" {
		flags |= 0x80
	}
	if v.ServerIndex != 0 {
		flags |= 0x40
	}
	dst = appendUAID(dst, v.NodeID, flags)
	if flags&0x80 != 0 {
		dst = AppendString(dst, v.NamespaceURI)
	}
	if flags&0x40 != 0 {
		dst = AppendUint32(dst, v.ServerIndex)
	}
	return dst
}

func (r *Reader) uaQualifiedName() *ua.QualifiedName {
	ns, name := r.QualifiedName()
	if !r.charge(int(unsafe.Sizeof(ua.QualifiedName{}))) {
		return nil
	}
	return &ua.QualifiedName{NamespaceIndex: ns, Name: strings.Clone(name)}
}

func appendUAQualifiedName(dst []byte, v *ua.QualifiedName) []byte {
	if v == nil {
		return AppendNull(AppendUint16(dst, 0))
	}
	return appendText(AppendUint16(dst, v.NamespaceIndex), v.Name)
}

func (r *Reader) uaLocalizedText() *ua.LocalizedText {
	locale, text := r.LocalizedText()
	if !r.charge(int(unsafe.Sizeof(ua.LocalizedText{}))) {
		return nil
	}
	return ua.NewLocalizedTextWithLocale(strings.Clone(text), strings.Clone(locale))
}

// appendUALocalizedText goes by the texts, not by the mask, which is easily forgotten.
func appendUALocalizedText(dst []byte, v *ua.LocalizedText) []byte {
	if v == nil {
		return append(dst, 0)
	}
	return AppendLocalizedText(dst, v.Locale, v.Text)
}

func (r *Reader) uaDataValue() *ua.DataValue {
	if !r.charge(int(unsafe.Sizeof(ua.DataValue{}))) || !r.enter() {
		return nil
	}
	defer r.leave()
	v := &ua.DataValue{EncodingMask: r.Uint8()}
	if v.Has(ua.DataValueValue) {
		v.Value = r.uaVariant()
	}
	if v.Has(ua.DataValueStatusCode) {
		v.Status = r.statusCode()
	}
	if v.Has(ua.DataValueSourceTimestamp) {
		v.SourceTimestamp = r.goTime()
	}
	if v.Has(ua.DataValueSourcePicoseconds) {
		v.SourcePicoseconds = r.Uint16()
	}
	if v.Has(ua.DataValueServerTimestamp) {
		v.ServerTimestamp = r.goTime()
	}
	if v.Has(ua.DataValueServerPicoseconds) {
		v.ServerPicoseconds = r.Uint16()
	}
	return v
}

// appendUADataValue goes by the mask; without one, by what is set.
func appendUADataValue(dst []byte, v *ua.DataValue) []byte {
	if v == nil {
		return append(dst, 0)
	}
	if v.EncodingMask == 0 {
		c := *v
		c.UpdateMask()
		v = &c
	}
	dst = append(dst, v.EncodingMask&0x3F) // the rest is reserved
	if v.Has(ua.DataValueValue) {
		dst = appendUAVariant(dst, v.Value)
	}
	if v.Has(ua.DataValueStatusCode) {
		dst = appendStatusCode(dst, v.Status)
	}
	if v.Has(ua.DataValueSourceTimestamp) {
		dst = appendGoTime(dst, v.SourceTimestamp)
	}
	if v.Has(ua.DataValueSourcePicoseconds) {
		dst = AppendUint16(dst, v.SourcePicoseconds)
	}
	if v.Has(ua.DataValueServerTimestamp) {
		dst = appendGoTime(dst, v.ServerTimestamp)
	}
	if v.Has(ua.DataValueServerPicoseconds) {
		dst = AppendUint16(dst, v.ServerPicoseconds)
	}
	return dst
}

func (r *Reader) uaDiagnosticInfo() *ua.DiagnosticInfo {
	if !r.charge(int(unsafe.Sizeof(ua.DiagnosticInfo{}))) || !r.enter() {
		return nil
	}
	defer r.leave()
	v := &ua.DiagnosticInfo{EncodingMask: r.Uint8()}
	if v.Has(ua.DiagnosticInfoSymbolicID) {
		v.SymbolicID = r.Int32()
	}
	if v.Has(ua.DiagnosticInfoNamespaceURI) {
		v.NamespaceURI = r.Int32()
	}
	if v.Has(ua.DiagnosticInfoLocale) {
		v.Locale = r.Int32()
	}
	if v.Has(ua.DiagnosticInfoLocalizedText) {
		v.LocalizedText = r.Int32()
	}
	if v.Has(ua.DiagnosticInfoAdditionalInfo) {
		v.AdditionalInfo = r.ownText()
	}
	if v.Has(ua.DiagnosticInfoInnerStatusCode) {
		v.InnerStatusCode = r.statusCode()
	}
	if v.Has(ua.DiagnosticInfoInnerDiagnosticInfo) {
		v.InnerDiagnosticInfo = r.uaDiagnosticInfo()
	}
	return v
}

// appendUADiagnosticInfo goes by the mask; without one, by what is set.
func appendUADiagnosticInfo(dst []byte, v *ua.DiagnosticInfo) []byte {
	if v == nil {
		return append(dst, 0)
	}
	if v.EncodingMask == 0 {
		c := *v
		c.UpdateMask()
		v = &c
	}
	dst = append(dst, v.EncodingMask&0x7F) // the rest is reserved
	if v.Has(ua.DiagnosticInfoSymbolicID) {
		dst = appendInt32(dst, v.SymbolicID)
	}
	if v.Has(ua.DiagnosticInfoNamespaceURI) {
		dst = appendInt32(dst, v.NamespaceURI)
	}
	if v.Has(ua.DiagnosticInfoLocale) {
		dst = appendInt32(dst, v.Locale)
	}
	if v.Has(ua.DiagnosticInfoLocalizedText) {
		dst = appendInt32(dst, v.LocalizedText)
	}
	if v.Has(ua.DiagnosticInfoAdditionalInfo) {
		dst = AppendString(dst, v.AdditionalInfo)
	}
	if v.Has(ua.DiagnosticInfoInnerStatusCode) {
		dst = appendStatusCode(dst, v.InnerStatusCode)
	}
	if v.Has(ua.DiagnosticInfoInnerDiagnosticInfo) {
		dst = appendUADiagnosticInfo(dst, v.InnerDiagnosticInfo)
	}
	return dst
}
