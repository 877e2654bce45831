package wire

import "edged/drivers/tag"

// NodeIDValue is the value of an attribute that is a NodeId.
func NodeIDValue(id NodeID) tag.Value {
	return tag.OfRaw(AppendNodeID([]byte{17}, id))
}

// QualifiedNameValue is the value of an attribute that is a QualifiedName.
func QualifiedNameValue(ns uint16, name string) tag.Value {
	return tag.OfRaw(AppendQualifiedName([]byte{20}, ns, name))
}

// LocalizedTextValue is the value of an attribute or variable that is a LocalizedText; "" is left out.
func LocalizedTextValue(locale, text string) tag.Value {
	return tag.OfRaw(AppendLocalizedText([]byte{21}, locale, text))
}

// StructureValue is the value of a variable that is a structure of namespace 0: the id of its binary encoding, and its
// encoded fields.
func StructureValue(typeID uint32, body []byte) tag.Value {
	return tag.OfRaw(AppendExtension([]byte{22}, &Extension{Type: NumericID(0, typeID), Encoding: BinaryBody, Body: body}))
}

// ValueOf is the value of a variable that is one of gopcua's structs: *ua.Range, *ua.EUInformation and the like. False:
// its encoding is not known here.
func ValueOf(v any) (tag.Value, bool) {
	body, ok := appendBody(nil, v)
	if !ok {
		return tag.Value{}, false
	}
	return StructureValue(bodyTypeID(v), body), true
}
