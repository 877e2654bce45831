package main

import (
	"fmt"

	"edged/uaserver/wire"
)

// Binary encodings of the two kinds of DataTypeDefinition (Part 3, 8.47 to 8.50).
const (
	structureDefinition = 122
	enumDefinition      = 123
)

// unionType is the data type Union, whose subtypes hold one field at a time.
const unionType = 12756

// Values of StructureType (Part 3, 8.48).
const (
	plainStructure = iota
	optionalFields
	union
	subtypedValues
	unionWithSubtypedValues
)

// define sets the DataTypeDefinition of each data type that has one, as the node's value.
func (m *model) define() error {
	for _, n := range m.nodes {
		if n.class != classBits["UADataType"] {
			continue
		}
		var err error
		if m.under(n.id, structure) {
			err = m.defineStructure(n)
		} else if n.x.Definition != nil && len(n.x.Definition.Fields) > 0 {
			err = m.defineEnum(n)
		}
		if err != nil {
			return fmt.Errorf("i=%d: definition: %w", n.id, err)
		}
	}
	return nil
}

// fieldsOf lists a structure's fields, its super types' first (Part 3, 8.48).
func (m *model) fieldsOf(id uint32) []xmlField {
	var fields []xmlField
	if up, ok := m.super(id); ok && m.under(up, structure) {
		fields = m.fieldsOf(up)
	}
	if d := m.byID[id].x.Definition; d != nil {
		fields = append(fields[:len(fields):len(fields)], d.Fields...)
	}
	return fields
}

func (m *model) defineStructure(n *node) error {
	fields := m.fieldsOf(n.id)
	if n.x.IsAbstract && len(fields) == 0 {
		return nil // nothing to tell: Structure, Union
	}
	kind := uint32(plainStructure)
	isUnion := m.under(n.id, unionType)
	for _, f := range fields {
		if f.AllowSubTypes {
			kind = subtypedValues
		} else if f.IsOptional && kind == plainStructure {
			kind = optionalFields
		}
	}
	switch {
	case isUnion && kind == subtypedValues:
		kind = unionWithSubtypedValues
	case isUnion:
		kind = union
	}
	super, _ := m.super(n.id)
	b := &builder{}
	b.dst = wire.AppendNodeID(b.dst, wire.NumericID(0, m.binaryEncoding(n)))
	b.dst = wire.AppendNodeID(b.dst, wire.NumericID(0, super))
	b.dst = wire.AppendUint32(b.dst, kind)
	b.dst = wire.AppendUint32(b.dst, uint32(len(fields)))
	for i := range fields {
		if err := m.structureField(b, &fields[i], kind); err != nil {
			return err
		}
	}
	out := &builder{dst: []byte{22}}
	out.extension(structureDefinition, b.dst)
	n.value = out.dst
	return nil
}

// structureField appends a StructureField (Part 3, 8.51). Its last member says "optional", or, in a structure that
// takes subtypes, "subtypes allowed".
func (m *model) structureField(b *builder, f *xmlField, kind uint32) error {
	dataType, err := m.dataTypeOf(f.DataType)
	if err != nil {
		return err
	}
	dims, err := dimensions(f.ArrayDimensions)
	if err != nil {
		return err
	}
	rank := int32(-1)
	if f.ValueRank != nil {
		rank = *f.ValueRank
	}
	b.dst = wire.AppendString(b.dst, f.Name)
	b.dst = wire.AppendLocalizedText(b.dst, "", first(f.Description))
	b.dst = wire.AppendNodeID(b.dst, wire.NumericID(0, dataType))
	b.dst = wire.AppendUint32(b.dst, uint32(rank))
	b.dst = wire.AppendUint32(b.dst, uint32(len(dims)))
	for _, d := range dims {
		b.dst = wire.AppendUint32(b.dst, d)
	}
	b.dst = wire.AppendUint32(b.dst, f.MaxStringLength)
	last := f.IsOptional
	if kind == subtypedValues || kind == unionWithSubtypedValues {
		last = f.AllowSubTypes
	}
	b.dst = wire.AppendBool(b.dst, last)
	return nil
}

// defineEnum encodes the EnumDefinition of an enumeration or an option set (Part 3, 8.50 and 8.52).
func (m *model) defineEnum(n *node) error {
	fields := n.x.Definition.Fields
	b := &builder{}
	b.dst = wire.AppendUint32(b.dst, uint32(len(fields)))
	for i := range fields {
		f := &fields[i]
		if f.Value == nil {
			return fmt.Errorf("field %s has no value", f.Name)
		}
		display := first(f.DisplayName)
		if display == "" {
			display = f.Name
		}
		b.dst = wire.AppendUint64(b.dst, uint64(*f.Value))
		b.dst = wire.AppendLocalizedText(b.dst, "", display)
		b.dst = wire.AppendLocalizedText(b.dst, "", first(f.Description))
		b.dst = wire.AppendString(b.dst, f.Name)
	}
	out := &builder{dst: []byte{22}}
	out.extension(enumDefinition, b.dst)
	n.value = out.dst
	return nil
}

// binaryEncoding is the id of a structure's Default Binary encoding, 0 if it has none.
func (m *model) binaryEncoding(n *node) uint32 {
	for _, e := range n.forward {
		if e.kind == hasEncoding && m.byID[e.target].name == "Default Binary" {
			return e.target
		}
	}
	return 0
}
