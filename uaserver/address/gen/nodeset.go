package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// The parts of UANodeSet.xsd that namespace 0 uses (Part 6, Annex F). Absent attributes have the schema's defaults,
// which are not Go's zeros, hence the pointers.
type (
	xmlNode struct {
		XMLName         xml.Name
		ID              string         `xml:"NodeId,attr"`
		BrowseName      string         `xml:"BrowseName,attr"`
		DisplayName     []string       `xml:"DisplayName"`
		Description     []string       `xml:"Description"`
		InverseName     []string       `xml:"InverseName"`
		References      []xmlReference `xml:"References>Reference"`
		EventNotifier   uint8          `xml:"EventNotifier,attr"`
		DataType        *string        `xml:"DataType,attr"`
		ValueRank       *int32         `xml:"ValueRank,attr"`
		ArrayDimensions string         `xml:"ArrayDimensions,attr"`
		AccessLevel     *uint8         `xml:"AccessLevel,attr"`
		MinSampling     float64        `xml:"MinimumSamplingInterval,attr"`
		Historizing     bool           `xml:"Historizing,attr"`
		Executable      *bool          `xml:"Executable,attr"`
		IsAbstract      bool           `xml:"IsAbstract,attr"`
		Symmetric       bool           `xml:"Symmetric,attr"`
		Value           *xmlElement    `xml:"Value"`
		Definition      *xmlDefinition `xml:"Definition"`
	}
	xmlReference struct {
		Type    string `xml:"ReferenceType,attr"`
		Forward *bool  `xml:"IsForward,attr"`
		Target  string `xml:",chardata"`
	}
	xmlDefinition struct {
		Fields []xmlField `xml:"Field"`
	}
	xmlField struct {
		Name            string   `xml:"Name,attr"`
		DataType        *string  `xml:"DataType,attr"`
		ValueRank       *int32   `xml:"ValueRank,attr"`
		ArrayDimensions string   `xml:"ArrayDimensions,attr"`
		MaxStringLength uint32   `xml:"MaxStringLength,attr"`
		Value           *int64   `xml:"Value,attr"`
		IsOptional      bool     `xml:"IsOptional,attr"`
		AllowSubTypes   bool     `xml:"AllowSubTypes,attr"`
		DisplayName     []string `xml:"DisplayName"`
		Description     []string `xml:"Description"`
	}
	// xmlElement is any element: a Value's content.
	xmlElement struct {
		XMLName  xml.Name
		Children []xmlElement `xml:",any"`
		Text     string       `xml:",chardata"`
	}
	xmlSet struct {
		Aliases []struct {
			Name string `xml:"Alias,attr"`
			ID   string `xml:",chardata"`
		} `xml:"Aliases>Alias"`
		Nodes []xmlNode `xml:",any"`
	}
)

// Classes by the bit of their NodeClass (Part 3, 8.29).
var classBits = map[string]uint8{
	"UAObject": 0, "UAVariable": 1, "UAMethod": 2, "UAObjectType": 3, "UAVariableType": 4, "UAReferenceType": 5,
	"UADataType": 6, "UAView": 7,
}

// Ids that the generator itself has to know.
const (
	hasSubtype        = 45
	hasTypeDefinition = 40
	hasEncoding       = 38
	baseDataType      = 24
	enumeration       = 29
	structure         = 22
)

// node is one node of the model.
type node struct {
	id       uint32
	class    uint8
	name     string
	x        *xmlNode
	dataType uint32
	rank     int32
	dims     []uint32
	access   uint8
	value    []byte // an encoded Variant
	live     bool   // its value is the running server's to supply
	forward  []edge
}

// edge is a forward reference.
type edge struct{ kind, target uint32 }

// model is namespace 0, sorted by id.
type model struct {
	nodes   []*node
	byID    map[uint32]*node
	inverse map[uint32][]edge
	aliases map[string]uint32
}

func parse(r io.Reader) (*model, error) {
	var set xmlSet
	if err := xml.NewDecoder(r).Decode(&set); err != nil {
		return nil, err
	}
	m := &model{byID: map[uint32]*node{}, aliases: map[string]uint32{}}
	for _, a := range set.Aliases {
		id, err := numericID(a.ID)
		if err != nil {
			return nil, err
		}
		m.aliases[a.Name] = id
	}
	for i := range set.Nodes {
		if err := m.addNode(&set.Nodes[i]); err != nil {
			return nil, err
		}
	}
	if err := m.addReferences(); err != nil {
		return nil, err
	}
	slices.SortFunc(m.nodes, func(a, b *node) int { return int(a.id) - int(b.id) })
	return m, nil
}

func (m *model) addNode(x *xmlNode) error {
	class, ok := classBits[x.XMLName.Local]
	if !ok {
		return nil // Models, Extensions: no node
	}
	id, err := numericID(x.ID)
	if err != nil {
		return err
	}
	n := &node{id: id, class: class, x: x, name: unqualified(x.BrowseName), rank: -1, access: 1}
	if m.byID[id] != nil {
		return fmt.Errorf("i=%d: twice in the NodeSet", id)
	}
	if n.dataType, err = m.dataTypeOf(x.DataType); err != nil {
		return fmt.Errorf("i=%d: %w", id, err)
	}
	if x.ValueRank != nil {
		n.rank = *x.ValueRank
	}
	if x.AccessLevel != nil {
		n.access = *x.AccessLevel
	}
	if n.dims, err = dimensions(x.ArrayDimensions); err != nil {
		return fmt.Errorf("i=%d: %w", id, err)
	}
	if x.Value != nil {
		if n.value, err = variant(x.Value); err != nil {
			return fmt.Errorf("i=%d: value: %w", id, err)
		}
	}
	m.nodes = append(m.nodes, n)
	m.byID[id] = n
	return nil
}

// addReferences gives each node its forward references: first its own in their order, then those that only the other
// end names.
func (m *model) addReferences() error {
	seen := map[[3]uint32]bool{}
	add := func(source, kind, target uint32) {
		if k := [3]uint32{source, kind, target}; !seen[k] {
			seen[k] = true
			n := m.byID[source]
			n.forward = append(n.forward, edge{kind, target})
		}
	}
	for _, forward := range []bool{true, false} {
		for _, n := range m.nodes {
			for _, r := range n.x.References {
				if (r.Forward == nil || *r.Forward) != forward {
					continue
				}
				kind, err := m.resolve(r.Type)
				if err != nil {
					return err
				}
				other, err := m.resolve(r.Target)
				if err != nil {
					return err
				}
				if m.byID[other] == nil || m.byID[kind] == nil {
					return fmt.Errorf("i=%d: reference i=%d to i=%d, which the NodeSet lacks", n.id, kind, other)
				}
				if forward {
					add(n.id, kind, other)
				} else {
					add(other, kind, n.id)
				}
			}
		}
	}
	m.invert()
	return nil
}

// invert derives the inverse references.
func (m *model) invert() {
	m.inverse = map[uint32][]edge{}
	for _, n := range m.nodes {
		for _, e := range n.forward {
			m.inverse[e.target] = append(m.inverse[e.target], edge{e.kind, n.id})
		}
	}
}

// under reports whether a type is super or below it.
func (m *model) under(id, super uint32) bool {
	for {
		if id == super {
			return true
		}
		up, ok := m.super(id)
		if !ok {
			return false
		}
		id = up
	}
}

func (m *model) super(id uint32) (uint32, bool) {
	for _, e := range m.inverse[id] {
		if e.kind == hasSubtype {
			return e.target, true
		}
	}
	return 0, false
}

func (m *model) dataTypeOf(s *string) (uint32, error) {
	if s == nil {
		return baseDataType, nil
	}
	return m.resolve(*s)
}

// resolve turns an alias or an id into the id's number.
func (m *model) resolve(s string) (uint32, error) {
	if id, ok := m.aliases[s]; ok {
		return id, nil
	}
	return numericID(s)
}

func numericID(s string) (uint32, error) {
	t, ok := strings.CutPrefix(strings.TrimSpace(s), "i=")
	n, err := strconv.ParseUint(t, 10, 32)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is no numeric id of namespace 0", s)
	}
	return uint32(n), nil
}

// unqualified drops the "0:" of a qualified name.
func unqualified(s string) string { return strings.TrimPrefix(s, "0:") }

func dimensions(s string) ([]uint32, error) {
	if s == "" {
		return nil, nil
	}
	var dims []uint32
	for f := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseUint(f, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("ArrayDimensions %q: %w", s, err)
		}
		dims = append(dims, uint32(n))
	}
	return dims, nil
}

func first(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}
