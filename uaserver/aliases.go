package uaserver

import (
	"sync"
	"sync/atomic"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// aliasBase is the first number of the ids that RegisterNodes gives, in namespace 1. No node has such an id.
const aliasBase = 0x8000_0000

func isAlias(n *wire.NodeID) bool {
	return n.Num >= aliasBase && n.NS == address.NamespaceApplication && n.Type == wire.Numeric
}

// aliases are the numbers that a session has for nodes (Part 4, 5.9.5): found by index, with no text compared.
type aliases struct {
	mu    sync.Mutex // held by whoever changes the table
	table atomic.Pointer[aliasTable]
}

// aliasTable is immutable.
type aliasTable struct {
	serial uint64          // of the address space, when the nodes were found
	ids    []wire.NodeID   // by alias - aliasBase; null: free
	nodes  []*address.Node // likewise; nil: unknown at that serial
}

// find returns the node of an alias, or nil. After a change of the space the nodes are looked up anew.
func (a *aliases) find(space *address.Space, num uint32) *address.Node {
	t := a.table.Load()
	if t != nil && t.serial != space.Serial() {
		a.mu.Lock()
		t = a.table.Load().renew(space)
		a.table.Store(t)
		a.mu.Unlock()
	}
	if t == nil || uint64(num-aliasBase) >= uint64(len(t.nodes)) {
		return nil
	}
	return t.nodes[num-aliasBase]
}

func (t *aliasTable) renew(space *address.Space) *aliasTable {
	next := &aliasTable{serial: space.Serial(), ids: t.ids, nodes: make([]*address.Node, len(t.ids))}
	for i, n := range t.ids {
		if !n.IsNull() {
			next.nodes[i] = space.Find(n)
		}
	}
	return next
}

// clone returns a copy that may be changed before it is stored.
func (a *aliases) clone(space *address.Space) *aliasTable {
	t := a.table.Load()
	if t == nil {
		return &aliasTable{serial: space.Serial()}
	}
	return &aliasTable{
		serial: t.serial, ids: append([]wire.NodeID(nil), t.ids...), nodes: append([]*address.Node(nil), t.nodes...),
	}
}

// registerNodes answers RegisterNodes (Part 4, 5.9.5). A known node with a text for an id gets a number; every other id
// is given back as it is, since the service does not check ids. Beyond Limits.Registered there are no more numbers.
func (s *Server) registerNodes(c *call, req *ua.RegisterNodesRequest) (ua.Response, ua.StatusCode) {
	if code := operations(len(req.NodesToRegister), s.cfg.Limits.Nodes); code != ua.StatusGood {
		return nil, code
	}
	a := &c.client.aliases
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.clone(s.space)
	out := make([]*ua.NodeID, len(req.NodesToRegister))
	for i, n := range req.NodesToRegister {
		out[i] = n
		own := wire.FromUA(n)
		node := s.space.Find(own)
		if own.Type == wire.Numeric || node == nil || len(t.ids) >= s.cfg.Limits.Registered {
			continue
		}
		out[i] = wire.ToUA(wire.NumericID(address.NamespaceApplication, aliasBase+uint32(len(t.ids))))
		t.ids = append(t.ids, node.ID)
		t.nodes = append(t.nodes, node)
	}
	a.table.Store(t)
	return &ua.RegisterNodesResponse{RegisteredNodeIDs: out}, ua.StatusGood
}

// unregisterNodes answers UnregisterNodes (Part 4, 5.9.6). Ids that were never registered are passed over.
func (s *Server) unregisterNodes(c *call, req *ua.UnregisterNodesRequest) (ua.Response, ua.StatusCode) {
	if code := operations(len(req.NodesToUnregister), s.cfg.Limits.Nodes); code != ua.StatusGood {
		return nil, code
	}
	a := &c.client.aliases
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.clone(s.space)
	for _, n := range req.NodesToUnregister {
		own := wire.FromUA(n)
		if i := own.Num - aliasBase; isAlias(&own) && uint64(i) < uint64(len(t.ids)) {
			t.ids[i], t.nodes[i] = wire.NodeID{}, nil
		}
	}
	for len(t.ids) > 0 && t.ids[len(t.ids)-1].IsNull() { // so that a client that cleans up may begin anew
		t.ids, t.nodes = t.ids[:len(t.ids)-1], t.nodes[:len(t.nodes)-1]
	}
	a.table.Store(t)
	return &ua.UnregisterNodesResponse{}, ua.StatusGood
}
