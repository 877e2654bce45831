package main

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// structs names, for each structure that a Value of the NodeSet holds, its XML encoding's id, its binary encoding's id
// and how its body is written (Part 3, 8.6 and 8.40; Part 8, 5.6.4.3).
var structs = map[uint32]struct {
	binary uint32
	body   func(*builder, *xmlElement)
}{
	297:  {298, (*builder).argument},
	7616: {8251, (*builder).enumValue},
	888:  {889, (*builder).euInformation},
}

// builder encodes XML into UA Binary; its first error sticks.
type builder struct {
	dst []byte
	err error
}

// variant encodes a Value element (Part 6, 5.3.1.17).
func variant(v *xmlElement) ([]byte, error) {
	if len(v.Children) != 1 {
		return nil, fmt.Errorf("%d elements instead of one", len(v.Children))
	}
	e := &v.Children[0]
	name, list := strings.CutPrefix(e.XMLName.Local, "ListOf")
	kind, ok := kinds[name]
	if !ok {
		return nil, fmt.Errorf("type %s is not known to the generator", name)
	}
	b := &builder{}
	if !list {
		b.dst = append(b.dst, kind.id)
		kind.write(b, e)
		return b.dst, b.err
	}
	b.dst = wire.AppendUint32(append(b.dst, kind.id|0x80), uint32(len(e.Children)))
	for i := range e.Children {
		kind.write(b, &e.Children[i])
	}
	return b.dst, b.err
}

// kinds are the built-in types that the NodeSet's values are of.
var kinds map[string]struct {
	id    uint8
	write func(*builder, *xmlElement)
}

func init() {
	kinds = map[string]struct {
		id    uint8
		write func(*builder, *xmlElement)
	}{
		"Boolean": {1, func(b *builder, e *xmlElement) { b.dst = wire.AppendBool(b.dst, e.trim() == "true") }},
		"Int32":   {6, func(b *builder, e *xmlElement) { b.dst = wire.AppendUint32(b.dst, uint32(b.number(e, 32))) }},
		"UInt32":  {7, func(b *builder, e *xmlElement) { b.dst = wire.AppendUint32(b.dst, uint32(b.number(e, 33))) }},
		"String":  {12, func(b *builder, e *xmlElement) { b.dst = wire.AppendString(b.dst, e.Text) }},
		"DateTime": {13, func(b *builder, e *xmlElement) {
			t, err := time.Parse(time.RFC3339, e.trim())
			b.fail(err)
			b.dst = wire.AppendTime(b.dst, tag.TimeOf(t))
		}},
		"ByteString": {15, func(b *builder, e *xmlElement) {
			data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(e.Text), ""))
			b.fail(err)
			b.dst = wire.AppendByteString(b.dst, data)
		}},
		"LocalizedText":   {21, (*builder).localizedText},
		"ExtensionObject": {22, (*builder).extensionObject},
	}
}

func (b *builder) fail(err error) {
	if b.err == nil && err != nil {
		b.err = err
	}
}

func (b *builder) number(e *xmlElement, bits int) int64 {
	if e == nil || e.trim() == "" {
		return 0
	}
	n, err := strconv.ParseInt(e.trim(), 10, bits)
	b.fail(err)
	return n
}

func (e *xmlElement) trim() string { return strings.TrimSpace(e.Text) }

// child is the first element of that name, or nil.
func (e *xmlElement) child(name string) *xmlElement {
	if e == nil {
		return nil
	}
	for i := range e.Children {
		if e.Children[i].XMLName.Local == name {
			return &e.Children[i]
		}
	}
	return nil
}

func (e *xmlElement) text(name string) string {
	if c := e.child(name); c != nil {
		return c.trim()
	}
	return ""
}

// localizedText encodes a text; e may be nil. The locale is kept where the NodeSet gives one.
func (b *builder) localizedText(e *xmlElement) {
	b.dst = wire.AppendLocalizedText(b.dst, e.text("Locale"), e.text("Text"))
}

func (b *builder) nodeID(e *xmlElement) {
	id, err := numericID(e.text("Identifier"))
	b.fail(err)
	b.dst = wire.AppendNodeID(b.dst, wire.NumericID(0, id))
}

func (b *builder) extensionObject(e *xmlElement) {
	id, err := numericID(e.child("TypeId").text("Identifier"))
	b.fail(err)
	s, ok := structs[id]
	body := e.child("Body")
	if !ok || body == nil || len(body.Children) != 1 {
		b.fail(fmt.Errorf("structure i=%d is not known to the generator", id))
		return
	}
	inner := &builder{}
	s.body(inner, &body.Children[0])
	b.fail(inner.err)
	b.extension(s.binary, inner.dst)
}

// extension appends an ExtensionObject with a binary body (Part 6, 5.2.2.15).
func (b *builder) extension(encoding uint32, body []byte) {
	b.dst = wire.AppendNodeID(b.dst, wire.NumericID(0, encoding))
	b.dst = wire.AppendByteString(append(b.dst, 1), body)
}

func (b *builder) argument(e *xmlElement) {
	b.dst = wire.AppendString(b.dst, e.text("Name"))
	b.nodeID(e.child("DataType"))
	b.dst = wire.AppendUint32(b.dst, uint32(b.number(e.child("ValueRank"), 32)))
	dims := e.child("ArrayDimensions")
	if dims == nil || len(dims.Children) == 0 {
		b.dst = wire.AppendUint32(b.dst, 0)
	} else {
		b.dst = wire.AppendUint32(b.dst, uint32(len(dims.Children)))
		for i := range dims.Children {
			b.dst = wire.AppendUint32(b.dst, uint32(b.number(&dims.Children[i], 33)))
		}
	}
	b.localizedText(e.child("Description"))
}

func (b *builder) enumValue(e *xmlElement) {
	b.dst = wire.AppendUint64(b.dst, uint64(b.number(e.child("Value"), 64)))
	b.localizedText(e.child("DisplayName"))
	b.localizedText(e.child("Description"))
}

func (b *builder) euInformation(e *xmlElement) {
	b.dst = wire.AppendString(b.dst, e.text("NamespaceUri"))
	b.dst = wire.AppendUint32(b.dst, uint32(b.number(e.child("UnitId"), 32)))
	b.localizedText(e.child("DisplayName"))
	b.localizedText(e.child("Description"))
}
