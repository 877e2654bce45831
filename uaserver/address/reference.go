package address

import (
	"github.com/gopcua/opcua/ua"

	"edged/uaserver/wire"
)

// Reference is one reference, named by its ends. It is given once, in its forward direction; a Space derives the other.
type Reference struct {
	Source, Type, Target wire.NodeID
}

// The ids of namespace 0 that the walks themselves need.
var (
	idHasSubtype        = wire.NumericID(0, 45)
	idHasTypeDefinition = wire.NumericID(0, 40)
	idNamespaceArray    = wire.NumericID(0, 2255)
)

// link is one end of a reference.
type link struct {
	target  *Node
	kind    uint16 // Node.kind of the reference type
	inverse bool
}

// links are the references of one node, in the order in which they were added. They are immutable: a walk that holds
// them goes on undisturbed by changes.
type links struct {
	all        []link
	definition *Node // target of HasTypeDefinition
}

// bitset is a set of small numbers.
type bitset []uint64

func (b bitset) has(i uint16) bool {
	w := int(i >> 6)
	return w < len(b) && b[w]>>(i&63)&1 != 0
}

func (b bitset) add(i uint16) { b[i>>6] |= 1 << (i & 63) }

// subtypeSets computes for every reference type the set of it and its subtypes.
func subtypeSets(kinds []*Node, of func(*Node) *links) []bitset {
	sets := make([]bitset, len(kinds))
	words := (len(kinds) + 63) / 64
	flat := make([]uint64, words*len(kinds))
	for i := range sets {
		sets[i] = flat[i*words : (i+1)*words]
	}
	for i, n := range kinds {
		for depth := 0; n != nil && depth < maxTypeDepth; depth++ {
			sets[n.kind].add(uint16(i))
			n = superIn(of(n))
		}
	}
	return sets
}

// superType is the type that n is a direct subtype of, or nil.
func (n *Node) superType() *Node { return superIn(n.links.Load()) }

func superIn(l *links) *Node {
	if l == nil {
		return nil
	}
	for i := range l.all {
		if e := &l.all[i]; e.inverse && e.kind == kindHasSubtype {
			return e.target
		}
	}
	return nil
}

// kindHasSubtype and kindHasTypeDefinition are the kinds that loadCore gives to these two before all others.
const (
	kindHasSubtype        = 0
	kindHasTypeDefinition = 1
)

// kindOf finds a reference type.
func (v *view) kindOf(id wire.NodeID) (uint16, bool) {
	n := v.find(id)
	if n == nil || n.Class != ua.NodeClassReferenceType {
		return 0, false
	}
	return n.kind, true
}

// References calls yield for each reference of n until yield returns false: its type, its direction and its other end.
func (s *Space) References(n *Node, yield func(kind *Node, inverse bool, target *Node) bool) {
	l := s.now.Load().linksOf(n)
	if l == nil {
		return // in no space
	}
	v := s.now.Load() // after the list, so that it knows every reference type in it
	for i := range l.all {
		if e := &l.all[i]; !yield(v.kinds[e.kind], e.inverse, e.target) {
			return
		}
	}
}
