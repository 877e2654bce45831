package address

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// The namespaces of every Space, by index.
const (
	NamespaceUA          = 0 // http://opcfoundation.org/UA/
	NamespaceApplication = 1 // the server's own, named by its ApplicationUri
	NamespacePlant       = 2 // the tags
)

// The URIs of the fixed namespaces.
const (
	URIOfUA    = "http://opcfoundation.org/UA/"
	URIOfPlant = "urn:edged:plant"
)

// Space is the address space. Whoever reads it takes no lock: a change builds a new view and swaps it in, and nodes
// that were found stay readable. It is safe for concurrent use.
type Space struct {
	mu   sync.Mutex // held by whoever changes the space
	now  atomic.Pointer[view]
	born tag.Time // SourceTimestamp of static values

	granted atomic.Pointer[RoleRights] // nil: not known
}

// view is one immutable state of the maps. The references of a node hang on the node itself.
type view struct {
	serial     uint64 // counts changes
	namespaces []string
	core       []uint16         // namespace 0: 1 + index in coreNodes, by numeric id
	coreNodes  []Node           // as generated
	numbers    map[uint64]*Node // all other numeric ids, by namespace<<32 | number
	texts      []*byText        // string ids, by namespace
	others     map[wire.NodeID]*Node
	kinds      []*Node  // the reference types, by Node.kind
	subtypes   []bitset // by Node.kind: the kinds of it and its subtypes
	count      int
}

// New returns a Space that holds namespace 0 and knows the three fixed namespaces.
func New(applicationURI string) (*Space, error) {
	s := &Space{born: tag.Now()}
	v := &view{namespaces: []string{URIOfUA, applicationURI, URIOfPlant}}
	if err := loadCore(v); err != nil {
		return nil, err
	}
	v.subtypes = subtypeSets(v.kinds, func(n *Node) *links { return n.links.Load() })
	s.now.Store(v)
	if n := v.find(idNamespaceArray); n != nil {
		n.Manager = namespaceArray{s}
	}
	return s, nil
}

// Find returns the node, or nil. It neither locks nor allocates.
func (s *Space) Find(id wire.NodeID) *Node { return s.now.Load().find(id) }

func (v *view) find(id wire.NodeID) *Node {
	if n := v.stored(id); n != nil || id.Type != wire.Text {
		return n
	}
	return v.findProperty(id)
}

// stored finds a node that is kept, not made when somebody looks.
func (v *view) stored(id wire.NodeID) *Node {
	switch id.Type {
	case wire.Numeric:
		if id.NS == 0 && uint64(id.Num) < uint64(len(v.core)) {
			if i := v.core[id.Num]; i != 0 {
				return &v.coreNodes[i-1]
			}
		}
		return v.numbers[uint64(id.NS)<<32|uint64(id.Num)]
	case wire.Text:
		if int(id.NS) < len(v.texts) {
			return v.texts[id.NS].find(id.Str)
		}
		return nil
	}
	return v.others[id]
}

// current is the node that has the id of n now, for readers that keep a node while the space changes; nil if n was
// removed. A property that was made for its reader is as current as it was.
func (v *view) current(n *Node) *Node {
	if n == nil {
		return nil
	}
	if now := v.stored(n.ID); now != nil || !strings.Contains(n.ID.Str, PropertyMark) {
		return now
	}
	return n
}

// Len is the number of nodes.
func (s *Space) Len() int { return s.now.Load().count }

// Serial counts the changes of the space; what was derived from it is current as long as the number is the same.
func (s *Space) Serial() uint64 { return s.now.Load().serial }

// Namespaces is the NamespaceArray. It is read only.
func (s *Space) Namespaces() []string { return s.now.Load().namespaces }

// AddNamespace returns the index of a namespace and adds it at the end if it is new.
func (s *Space) AddNamespace(uri string) (uint16, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.now.Load()
	if i := slices.Index(v.namespaces, uri); i >= 0 {
		return uint16(i), nil
	}
	if len(v.namespaces) > 0xFFFF {
		return 0, fmt.Errorf("namespace %s: all 65536 indexes are taken", uri)
	}
	next := *v
	next.serial++
	next.namespaces = append(slices.Clone(v.namespaces), uri)
	s.now.Store(&next)
	return uint16(len(v.namespaces)), nil
}

// Manage lets m supply the value of a variable. It is called before the space is served: a Node's manager is read
// without a lock.
func (s *Space) Manage(id wire.NodeID, m NodeManager) error {
	n := s.Find(id)
	switch {
	case n == nil:
		return fmt.Errorf("node %s: unknown, so it cannot be managed", id)
	case n.Class != ua.NodeClassVariable && n.Class != ua.NodeClassMethod:
		return fmt.Errorf("node %s: has nothing to manage; only a variable or a method has", id)
	}
	own := *n.Attributes // others may have the same
	own.Manager, n.Attributes = m, &own
	return nil
}

// IsSubtype reports whether sub is super or a type below it. Unknown ids are nobody's subtype.
func (s *Space) IsSubtype(sub, super wire.NodeID) bool {
	n := s.Find(sub)
	for depth := 0; n != nil && depth < maxTypeDepth; depth++ {
		if n.ID == super {
			return true
		}
		n = n.superType()
	}
	return false
}

// maxTypeDepth ends the walk up a type tree that a faulty change made a ring; the standard's trees are ten deep.
const maxTypeDepth = 64

// TypeDefinition is the type of an object or a variable, or nil.
func (n *Node) TypeDefinition() *Node {
	if l := n.links.Load(); l != nil {
		return l.definition
	}
	return nil
}

// namespaceArray serves Server.NamespaceArray (Part 5, 6.3.1), which grows with AddNamespace.
type namespaceArray struct{ s *Space }

func (m namespaceArray) Read(_ context.Context, items []ReadItem) {
	now := tag.Now()
	for i := range items {
		it := &items[i]
		if it.Result.Status.IsBad() {
			continue
		}
		it.Result.Value, it.Result.Status = rangeOf(tag.OfSlice(m.s.Namespaces()), it.Range)
		it.Result.Source, it.Result.Server = m.s.born, now
	}
}

func (namespaceArray) Write(_ context.Context, items []WriteItem) {
	for i := range items {
		if !items[i].Status.IsBad() {
			items[i].Status = tag.BadNotWritable
		}
	}
}

func (namespaceArray) Series(*Node) *Series { return nil }
