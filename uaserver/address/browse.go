package address

import (
	"github.com/gopcua/opcua/ua"

	"edged/uaserver/wire"
)

// BrowseDescription says what to follow from which node (Part 4, 5.8.2.2).
type BrowseDescription struct {
	Node          wire.NodeID
	Direction     ua.BrowseDirection
	ReferenceType wire.NodeID // null: all
	Subtypes      bool        // of ReferenceType
	Classes       uint32      // NodeClass bits; 0: all
	Results       uint32      // ua.BrowseResultMask bits: the fields wanted
	Roles         Roles       // of the client; nodes that do not show to it are left out
}

// Position is where a browse goes on. The zero Position is the begin of a walk as an argument, and its end as a
// result. It holds on to the references as they were when the walk began, so that a change of the space makes it
// neither repeat nor skip.
type Position struct {
	list   *links
	next   int
	serial uint64
}

// Done reports whether nothing is left to browse.
func (p Position) Done() bool { return p.list == nil }

// Browse appends up to max encoded ReferenceDescriptions (Part 4, 7.30) to dst; max <= 0 is no limit. It returns their
// number and where to go on with the same description, and does not look beyond max but for whether anything follows.
// Status: BadNodeIdUnknown, BadReferenceTypeIdInvalid, BadBrowseDirectionInvalid (Part 4, 5.8.2.4), or Good.
func (s *Space) Browse(dst []byte, d *BrowseDescription, from Position, max int) (out []byte, count int, next Position, status ua.StatusCode) {
	v := s.now.Load()
	f, status := v.filter(d)
	if status != ua.StatusOK {
		return dst, 0, Position{}, status
	}
	if from.list == nil {
		n := v.find(d.Node)
		if n == nil || !n.Shows(d.Roles) {
			return dst, 0, Position{}, ua.StatusBadNodeIDUnknown
		}
		from = Position{list: v.linksOf(n), serial: v.serial}
		v = s.now.Load() // one that knows every reference type in the list: a change shows its view before its lists
	}
	stale := from.serial != v.serial
	all := from.list.all
	var current link
	for i := from.next; i < len(all); i++ {
		e := &all[i]
		if stale {
			if current = *e; !v.refresh(&current) {
				continue
			}
			e = &current
		}
		if !f.passes(e) || !e.target.Shows(d.Roles) {
			continue
		}
		if max > 0 && count == max {
			from.next = i
			return dst, count, from, ua.StatusOK
		}
		dst = v.appendReference(dst, e, d.Results)
		count++
	}
	return dst, count, Position{}, ua.StatusOK
}

// refresh points a link of an earlier view to the node that has its target's id now, and reports whether there is one.
func (v *view) refresh(e *link) bool {
	e.target = v.find(e.target.ID)
	return e.target != nil
}

// linkFilter is a BrowseDescription made ready.
type linkFilter struct {
	kinds            bitset // nil: exactly kind, or any
	kind             uint16
	any              bool
	forward, inverse bool
	classes          uint32
}

func (v *view) filter(d *BrowseDescription) (f linkFilter, status ua.StatusCode) {
	switch d.Direction {
	case ua.BrowseDirectionForward:
		f.forward = true
	case ua.BrowseDirectionInverse:
		f.inverse = true
	case ua.BrowseDirectionBoth:
		f.forward, f.inverse = true, true
	default:
		return f, ua.StatusBadBrowseDirectionInvalid
	}
	f.classes = d.Classes
	if d.ReferenceType.IsNull() {
		f.any = true
		return f, ua.StatusOK
	}
	kind, ok := v.kindOf(d.ReferenceType)
	if !ok {
		return f, ua.StatusBadReferenceTypeIDInvalid
	}
	f.kind = kind
	if d.Subtypes {
		f.kinds = v.subtypes[kind]
	}
	return f, ua.StatusOK
}

func (f *linkFilter) passes(e *link) bool {
	if e.inverse && !f.inverse || !e.inverse && !f.forward {
		return false
	}
	if f.classes != 0 && f.classes&uint32(e.target.Class) == 0 {
		return false
	}
	return f.any || e.kind == f.kind || f.kinds.has(e.kind)
}

// appendReference appends a ReferenceDescription with the fields that mask asks for; the others are null.
func (v *view) appendReference(dst []byte, e *link, mask uint32) []byte {
	n := e.target
	if mask&uint32(ua.BrowseResultMaskReferenceTypeID) != 0 {
		dst = wire.AppendNodeID(dst, v.kinds[e.kind].ID)
	} else {
		dst = append(dst, 0, 0)
	}
	dst = wire.AppendBool(dst, !e.inverse && mask&uint32(ua.BrowseResultMaskIsForward) != 0)
	dst = wire.AppendExpandedID(dst, n.ID)
	if mask&uint32(ua.BrowseResultMaskBrowseName) != 0 {
		dst = wire.AppendQualifiedName(dst, n.BrowseNS, n.BrowseName)
	} else {
		dst = wire.AppendNull(append(dst, 0, 0))
	}
	if mask&uint32(ua.BrowseResultMaskDisplayName) != 0 {
		dst = wire.AppendLocalizedText(dst, "", n.DisplayName())
	} else {
		dst = append(dst, 0)
	}
	class := uint32(0)
	if mask&uint32(ua.BrowseResultMaskNodeClass) != 0 {
		class = uint32(n.Class)
	}
	dst = wire.AppendUint32(dst, class)
	if mask&uint32(ua.BrowseResultMaskTypeDefinition) != 0 {
		if def := n.TypeDefinition(); def != nil {
			return wire.AppendExpandedID(dst, def.ID)
		}
	}
	return append(dst, 0, 0)
}
