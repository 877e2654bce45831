package client

import (
	"context"
	"strings"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// Browsed is one node of a tree.
type Browsed struct {
	Depth  int // 0 for the node where the walk began
	Name   string
	Node   string // as it can be given to the other commands
	Class  string
	Type   string        // data type of a variable
	Value  any           // of a variable; nil: none
	Status ua.StatusCode // of the value, or of the node that could not be browsed
	Again  bool          // the tree has this node above already: it is not followed a second time
}

// BrowseOptions say how far a walk goes.
type BrowseOptions struct {
	Depth int  // levels below the first node; 0: without end
	All   bool // properties too, and what is below the Server object
}

// Browse walks from the nodes along hierarchical references, calling visit with each node as it is found, deepest first.
// Without nodes it begins at the Objects folder. visit ends the walk by an error.
func (c *Conn) Browse(ctx context.Context, nodes []*ua.NodeID, o BrowseOptions, visit func(*Browsed) error) error {
	w := walk{Conn: c, options: o, visit: visit, seen: map[string]bool{}}
	whole := len(nodes) == 0
	if whole {
		nodes = []*ua.NodeID{rootFolder}
	}
	first, err := w.starts(ctx, nodes)
	if err != nil {
		return c.trouble(err)
	}
	// What the user named is followed even if it is what is left out elsewhere.
	w.serverToo = o.All || !whole
	return c.trouble(w.level(ctx, first, 0))
}

// walk is one walk through the address space. Owned by one goroutine.
type walk struct {
	*Conn
	options   BrowseOptions
	serverToo bool
	visit     func(*Browsed) error
	seen      map[string]bool // nodes that were followed
}

// found is a node that is not visited yet.
type found struct {
	Browsed
	id       *ua.NodeID // nil: on another server
	class    ua.NodeClass
	children []*found
	browsed  ua.StatusCode // how the search for children ended
}

// starts reads what a reference would have told of the first nodes.
func (w *walk) starts(ctx context.Context, nodes []*ua.NodeID) ([]*found, error) {
	classes, err := w.attributes(ctx, nodes, ua.AttributeIDNodeClass)
	if err != nil {
		return nil, err
	}
	names, err := w.attributes(ctx, nodes, ua.AttributeIDBrowseName)
	if err != nil {
		return nil, err
	}
	out := make([]*found, len(nodes))
	for i, n := range nodes {
		f := &found{id: n, Browsed: Browsed{Node: n.String(), Status: classes[i].Status}}
		if v, ok := classes[i].Value.(int32); ok {
			f.class = ua.NodeClass(v)
		}
		if q, ok := names[i].Value.(*ua.QualifiedName); ok && q != nil {
			f.Name = printable(q.Name)
		}
		out[i] = f
	}
	return out, nil
}

// level visits nodes in their order, each with all below it. Their children are asked for together: a request a node
// would take a plant's worth of round trips.
func (w *walk) level(ctx context.Context, nodes []*found, depth int) error {
	for len(nodes) > 0 {
		part := nodes[:min(mostNodes, len(nodes))]
		nodes = nodes[len(part):]
		if err := w.variables(ctx, part); err != nil {
			return err
		}
		follow := part[:0:0]
		for _, n := range part {
			if w.follows(n, depth) {
				follow = append(follow, n)
			}
		}
		if err := w.childrenOf(ctx, follow); err != nil {
			return err
		}
		for _, n := range part {
			if err := w.one(ctx, n, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// follows reports whether what is below a node is wanted, and remembers that it was.
func (w *walk) follows(n *found, depth int) bool {
	if n.id == nil || (w.options.Depth > 0 && depth >= w.options.Depth) || IsBad(n.Status) && n.class == 0 {
		return false
	}
	if !w.serverToo && n.id.Namespace() == 0 && n.id.IntID() == id.Server {
		return false
	}
	if w.seen[n.Node] {
		n.Again = true
		return false
	}
	w.seen[n.Node] = true
	return true
}

func (w *walk) one(ctx context.Context, n *found, depth int) error {
	n.Depth, n.Class = depth, strings.TrimPrefix(n.class.String(), "NodeClass")
	if n.class == 0 {
		n.Class = ""
	}
	if n.browsed != ua.StatusOK {
		n.Status = n.browsed
	}
	if err := w.visit(&n.Browsed); err != nil {
		return err
	}
	children := n.children
	n.children = nil // visited: a large tree is not kept
	return w.level(ctx, children, depth+1)
}

// variables fills in type and value of those nodes that have one.
func (w *walk) variables(ctx context.Context, nodes []*found) error {
	var variables []*found
	var ids []*ua.NodeID
	for _, n := range nodes {
		if n.class == ua.NodeClassVariable && n.id != nil {
			variables, ids = append(variables, n), append(ids, n.id)
		}
	}
	types, err := w.attributes(ctx, ids, ua.AttributeIDDataType)
	if err != nil {
		return err
	}
	values, err := w.attributes(ctx, ids, ua.AttributeIDValue)
	if err != nil {
		return err
	}
	typeIDs := make([]*ua.NodeID, len(ids))
	for i := range types {
		typeIDs[i], _ = types[i].Value.(*ua.NodeID)
	}
	names, err := w.types.names(ctx, w.Conn, typeIDs)
	if err != nil {
		return err
	}
	for i, n := range variables {
		n.Value, n.Status, n.Type = values[i].Value, values[i].Status, names[i]
		if strings.HasSuffix(values[i].Type, "[]") {
			n.Type += values[i].Type[strings.IndexByte(values[i].Type, '['):]
		}
	}
	return nil
}

// childrenOf browses nodes, together as far as the server's continuation points last.
func (w *walk) childrenOf(ctx context.Context, nodes []*found) error {
	if err := w.browse(ctx, nodes); err != nil || len(nodes) < 2 {
		return err
	}
	for i, n := range nodes {
		if n.browsed != ua.StatusBadNoContinuationPoints {
			continue
		}
		n.browsed, n.children = ua.StatusOK, nil
		if err := w.browse(ctx, nodes[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// browse browses nodes, and goes on where the server gave a part only.
func (w *walk) browse(ctx context.Context, nodes []*found) error {
	reference := uint32(id.HierarchicalReferences)
	return inBatches(len(nodes), mostNodes, func(from, to int) error {
		req := &ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, RequestedMaxReferencesPerNode: mostReferences}
		for _, n := range nodes[from:to] {
			req.NodesToBrowse = append(req.NodesToBrowse, &ua.BrowseDescription{
				NodeID: n.id, BrowseDirection: ua.BrowseDirectionForward, ReferenceTypeID: ua.NewNumericNodeID(0, reference),
				IncludeSubtypes: true, ResultMask: uint32(ua.BrowseResultMaskAll),
			})
		}
		r, err := call[*ua.BrowseResponse](ctx, w.Conn, w.timeout, req)
		if err == nil {
			err = counts("Browse", len(r.Results), to-from)
		}
		if err != nil {
			return err
		}
		return w.collect(ctx, nodes[from:to], r.Results)
	})
}

// collect takes the references of results, and those that BrowseNext gives.
func (w *walk) collect(ctx context.Context, nodes []*found, results []*ua.BrowseResult) error {
	for len(results) > 0 {
		var more []*found
		var points [][]byte
		for i, r := range results {
			if r == nil {
				continue
			}
			for _, ref := range r.References {
				w.add(nodes[i], ref)
			}
			if IsBad(r.StatusCode) {
				nodes[i].browsed = r.StatusCode
			}
			if len(r.ContinuationPoint) > 0 {
				more, points = append(more, nodes[i]), append(points, r.ContinuationPoint)
			}
		}
		nodes, results = more, nil
		err := inBatches(len(points), mostNodes, func(from, to int) error {
			r, err := call[*ua.BrowseNextResponse](ctx, w.Conn, w.timeout, &ua.BrowseNextRequest{ContinuationPoints: points[from:to]})
			if err == nil {
				err = counts("BrowseNext", len(r.Results), to-from)
			}
			if err == nil {
				results = append(results, r.Results...)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) add(n *found, ref *ua.ReferenceDescription) {
	if ref == nil || ref.NodeID == nil || ref.NodeID.NodeID == nil {
		return
	}
	property := ref.ReferenceTypeID != nil && ref.ReferenceTypeID.Namespace() == 0 && ref.ReferenceTypeID.IntID() == id.HasProperty
	if property && !w.options.All {
		return
	}
	child := &found{class: ref.NodeClass}
	if ref.BrowseName != nil {
		child.Name = printable(ref.BrowseName.Name)
	}
	if ref.NodeID.HasServerIndex() && ref.NodeID.ServerIndex != 0 {
		child.Node = ref.NodeID.String()
	} else {
		child.id = ua.NewNodeIDFromExpandedNodeID(ref.NodeID)
		child.Node = child.id.String()
	}
	n.children = append(n.children, child)
}
