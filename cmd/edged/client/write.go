package client

import (
	"context"
	"fmt"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// Written is the outcome of one assignment.
type Written struct {
	Node   *ua.NodeID
	Value  any // as it was sent
	Type   string
	Status ua.StatusCode
}

// Write turns each value's text into the data type of its node, or into typeName where that is given, and writes them
// together. A text that is no value of its type is a Mistake, and then nothing is written.
func (c *Conn) Write(ctx context.Context, list []Assignment, typeName string) ([]Written, error) {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.Node
	}
	nodes, err := c.Nodes(texts)
	if err != nil {
		return nil, err
	}
	shapes, err := c.shapes(ctx, nodes, typeName)
	if err != nil {
		return nil, err
	}
	out := make([]Written, len(list))
	values := make([]*ua.WriteValue, len(list))
	for i, a := range list {
		v, err := convert(a.Value, shapes[i])
		if err != nil {
			return nil, mistake("%s: %w", a.Node, err)
		}
		out[i] = Written{Node: nodes[i], Value: v.Value(), Type: variantType(v)}
		values[i] = &ua.WriteValue{NodeID: nodes[i], AttributeID: ua.AttributeIDValue,
			Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: v}}
	}
	err = inBatches(len(values), mostNodes, func(from, to int) error {
		r, err := call[*ua.WriteResponse](ctx, c, c.timeout, &ua.WriteRequest{NodesToWrite: values[from:to]})
		if err == nil {
			err = counts("Write", len(r.Results), to-from)
		}
		if err != nil {
			return err
		}
		for i, s := range r.Results {
			out[from+i].Status = s
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w; what was written is not known: read the nodes", c.trouble(err))
	}
	return out, nil
}

// shape is what a node's value looks like: a built-in type, perhaps in a list. The zero type is not known.
type shape struct {
	of   ua.TypeID
	list bool
}

// shapes finds what each node takes: by name, or by the nodes' data types and ranks. A data type that is not built in
// is traced to the one that it comes from; an abstract one (Number) to that of the present value.
func (c *Conn) shapes(ctx context.Context, nodes []*ua.NodeID, typeName string) ([]shape, error) {
	out := make([]shape, len(nodes))
	if typeName != "" {
		s, err := ParseType(typeName)
		for i := range out {
			out[i] = s
		}
		return out, err
	}
	types, err := c.attributes(ctx, nodes, ua.AttributeIDDataType)
	if err != nil {
		return nil, c.trouble(err)
	}
	ranks, err := c.attributes(ctx, nodes, ua.AttributeIDValueRank)
	if err != nil {
		return nil, c.trouble(err)
	}
	values, err := c.attributes(ctx, nodes, ua.AttributeIDValue)
	if err != nil {
		return nil, c.trouble(err)
	}
	for i := range out {
		present, _ := ParseType(values[i].Type)
		if t, ok := types[i].Value.(*ua.NodeID); ok && t != nil {
			if out[i].of, err = c.builtin(ctx, t); err != nil {
				return nil, c.trouble(err)
			}
		}
		if out[i].of == 0 {
			out[i].of = present.of
		}
		// Ranks below zero leave it to the value whether it is a list (Part 3, 5.6.2).
		rank, _ := ranks[i].Value.(int32)
		out[i].list = rank > 0 || (rank < -1 && present.list)
		if rank > 1 {
			return nil, mistake("%s is a matrix of %d dimensions: this command writes single values and lists", nodes[i], rank)
		}
	}
	return out, nil
}

// abstract are the data types that have no encoding of their own, but for enumerations, which are Int32 (Part 6, 5.2.4).
var abstract = map[uint32]ua.TypeID{uint32(ua.TypeIDVariant): 0, id.Number: 0, id.Integer: 0, id.UInteger: 0, id.Enumeration: ua.TypeIDInt32}

// mostSupertypes bounds the way from a data type to the one that it comes from.
const mostSupertypes = 20

// builtin follows a data type up to the built-in type that carries it, or 0 for an abstract one.
func (c *Conn) builtin(ctx context.Context, t *ua.NodeID) (ua.TypeID, error) {
	for range mostSupertypes {
		if t.Namespace() == 0 {
			if b, ok := abstract[t.IntID()]; ok {
				return b, nil
			}
			if n := t.IntID(); n > 0 && n <= uint32(ua.TypeIDDiagnosticInfo) {
				return ua.TypeID(n), nil
			}
		}
		req := &ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, NodesToBrowse: []*ua.BrowseDescription{{
			NodeID: t, BrowseDirection: ua.BrowseDirectionInverse, ReferenceTypeID: ua.NewNumericNodeID(0, id.HasSubtype),
			IncludeSubtypes: true, ResultMask: uint32(ua.BrowseResultMaskNone),
		}}}
		r, err := call[*ua.BrowseResponse](ctx, c, c.timeout, req)
		if err != nil {
			return 0, err
		}
		if len(r.Results) != 1 || r.Results[0] == nil || len(r.Results[0].References) == 0 || r.Results[0].References[0].NodeID == nil {
			return 0, nil
		}
		t = ua.NewNodeIDFromExpandedNodeID(r.Results[0].References[0].NodeID)
	}
	return 0, nil
}
