package address

import (
	"strings"

	"edged/uaserver/wire"
)

// Propertied is an optional ability of a NodeManager: properties of its variables that are made when somebody looks,
// and take no memory while nobody does. Each is a variable of type PropertyType, whose id is a text: that of its owner,
// PropertyMark, and a name of its own.
type Propertied interface {
	Properties(owner *Node) []*Node
}

// PropertyMark is what stands in the id of a property behind that of its owner.
const PropertyMark = ".$"

var (
	idHasProperty  = wire.NumericID(0, 46)
	idPropertyType = wire.NumericID(0, 68)
)

// findProperty finds a property that its owner's manager makes; nil if there is none of that id.
func (v *view) findProperty(id wire.NodeID) *Node {
	at := strings.LastIndex(id.Str, PropertyMark)
	if at < 0 || int(id.NS) >= len(v.texts) {
		return nil
	}
	owner := v.texts[id.NS].find(id.Str[:at])
	if owner == nil {
		return nil
	}
	p, ok := owner.Manager.(Propertied)
	if !ok {
		return nil
	}
	for _, n := range p.Properties(owner) {
		if n.ID.Str == id.Str {
			v.belong(n, owner)
			return n
		}
	}
	return nil
}

// belong gives a property that was made just now its references.
func (v *view) belong(n, owner *Node) {
	kind, ok := v.kindOf(idHasProperty)
	definition := v.find(idPropertyType)
	if !ok || definition == nil {
		return // no such namespace 0 is ever loaded
	}
	n.links.Store(&links{
		all:        []link{{definition, kindHasTypeDefinition, false}, {owner, kind, true}},
		definition: definition,
	})
}

// linksOf returns the references of n with those to the properties that its manager makes; nil if n is in no space.
func (v *view) linksOf(n *Node) *links {
	l := n.links.Load()
	p, ok := n.Manager.(Propertied)
	if !ok || l == nil {
		return l
	}
	made := p.Properties(n)
	kind, ok := v.kindOf(idHasProperty)
	if len(made) == 0 || !ok {
		return l
	}
	all := append(make([]link, 0, len(l.all)+len(made)), l.all...)
	for _, m := range made {
		v.belong(m, n)
		all = append(all, link{m, kind, false})
	}
	return &links{all: all, definition: l.definition}
}
