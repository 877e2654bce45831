package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"edged/uaserver/wire"
)

// Flags of a node record; address.loadCore has the same.
const (
	hasDisplayName = 1 << iota
	hasDescription
	hasInverseName
	isAbstract
	isSymmetric
	hasValue
	isLive
	notExecutable
)

// blob collects texts and values, each once.
type blob struct {
	data []byte
	at   map[string]int
}

// append appends where s stands: offset and length.
func (b *blob) append(dst []byte, s string) []byte {
	at, ok := b.at[s]
	if !ok {
		at = len(b.data)
		b.at[s] = at
		b.data = append(b.data, s...)
	}
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(at)), uint64(len(s)))
}

// encode writes the form that address.loadCore describes.
func (m *model) encode() ([]byte, error) {
	kinds := m.kinds()
	kindIndex := map[uint32]int{}
	for i, id := range kinds {
		kindIndex[id] = i
	}
	index := map[uint32]int{}
	for i, n := range m.nodes {
		index[n.id] = i
	}
	texts := &blob{at: map[string]int{}}
	var records, edges []byte
	count, last := 0, uint32(0)
	for _, n := range m.nodes {
		var err error
		if records, err = n.encode(binary.AppendUvarint(records, uint64(n.id-last)), texts); err != nil {
			return nil, fmt.Errorf("i=%d: %w", n.id, err)
		}
		last = n.id
		edges = binary.AppendUvarint(edges, uint64(len(n.forward)))
		for _, e := range n.forward {
			edges = binary.AppendUvarint(edges, uint64(kindIndex[e.kind]))
			edges = binary.AppendUvarint(edges, uint64(index[e.target]))
			count++
		}
	}
	if len(m.nodes) >= math.MaxUint16 {
		return nil, fmt.Errorf("%d nodes do not fit 16-bit indexes", len(m.nodes))
	}
	var out []byte
	for _, n := range []int{len(m.nodes), int(last), count, len(kinds), len(records), len(edges), len(texts.data)} {
		out = wire.AppendUint32(out, uint32(n))
	}
	for _, id := range kinds {
		out = wire.AppendUint32(out, id)
	}
	return slices.Concat(out, records, edges, texts.data), nil
}

// kinds lists the reference types, the two first that the loader knows by index.
func (m *model) kinds() []uint32 {
	ids := []uint32{hasSubtype, hasTypeDefinition}
	for _, n := range m.nodes {
		if n.class == classBits["UAReferenceType"] && !slices.Contains(ids, n.id) {
			ids = append(ids, n.id)
		}
	}
	return ids
}

func (n *node) encode(dst []byte, texts *blob) ([]byte, error) {
	x := n.x
	display, description, inverse := first(x.DisplayName), first(x.Description), first(x.InverseName)
	flags := uint8(0)
	for bit, set := range map[uint8]bool{
		hasDisplayName: display != n.name && display != "", hasDescription: description != "", hasInverseName: inverse != "",
		isAbstract: x.IsAbstract, isSymmetric: x.Symmetric, hasValue: n.value != nil, isLive: n.live,
		notExecutable: x.Executable != nil && !*x.Executable,
	} {
		if set {
			flags |= bit
		}
	}
	dst = append(dst, n.class, flags)
	dst = texts.append(dst, n.name)
	for bit, s := range []string{display, description, inverse} {
		if flags&(1<<bit) != 0 {
			dst = texts.append(dst, s)
		}
	}
	switch n.class {
	case classBits["UAObject"]:
		dst = append(dst, x.EventNotifier)
	case classBits["UAVariable"], classBits["UAVariableType"]:
		if x.MinSampling != math.Trunc(x.MinSampling) || x.MinSampling < 0 || x.Historizing {
			return nil, fmt.Errorf("MinimumSamplingInterval %v or Historizing do not fit the compact form", x.MinSampling)
		}
		dst = binary.AppendUvarint(dst, uint64(n.dataType))
		dst = binary.AppendVarint(dst, int64(n.rank))
		dst = binary.AppendUvarint(dst, uint64(len(n.dims)))
		for _, d := range n.dims {
			dst = binary.AppendUvarint(dst, uint64(d))
		}
		dst = binary.AppendUvarint(append(dst, n.access), uint64(x.MinSampling))
	}
	if n.value != nil {
		dst = texts.append(dst, string(n.value))
	}
	return dst, nil
}
