package address

import (
	"math"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/wire"
)

// RelativePathElement is one step of a browse path (Part 4, 7.31).
type RelativePathElement struct {
	ReferenceType wire.NodeID // null: any
	Inverse       bool
	Subtypes      bool   // of ReferenceType
	TargetNS      uint16 // namespace of the BrowseName
	TargetName    string // BrowseName; empty, in the last step alone: every target
}

// Target is a node that a path leads to.
type Target struct {
	Node      *Node
	Remaining uint32 // index of the first step not taken; math.MaxUint32: the whole path was (Part 4, 5.8.4.2)
}

// maxTargets bounds what one path may lead to: a walk whose every step fans out must end.
const maxTargets = 10_000

// Translate follows a path from start (Part 4, 5.8.4). Status: BadNodeIdUnknown, BadNothingToDo (no step),
// BadBrowseNameInvalid (a step without a name before the last), BadReferenceTypeIdInvalid, BadNoMatch,
// BadTooManyMatches, or Good.
func (s *Space) Translate(start wire.NodeID, path []RelativePathElement) ([]Target, ua.StatusCode) {
	v := s.now.Load()
	from := v.find(start)
	if from == nil {
		return nil, ua.StatusBadNodeIDUnknown
	}
	if len(path) == 0 {
		return nil, ua.StatusBadNothingToDo
	}
	at := []*Node{from}
	for i := range path {
		step := &path[i]
		if step.TargetName == "" && i < len(path)-1 {
			return nil, ua.StatusBadBrowseNameInvalid
		}
		var status ua.StatusCode
		if at, status = v.step(at, step); status != ua.StatusOK {
			return nil, status
		}
	}
	targets := make([]Target, len(at))
	for i, n := range at {
		targets[i] = Target{Node: n, Remaining: math.MaxUint32}
	}
	return targets, ua.StatusOK
}

// step returns the distinct nodes that one step leads to from any of at.
func (v *view) step(at []*Node, step *RelativePathElement) ([]*Node, ua.StatusCode) {
	d := BrowseDescription{Direction: ua.BrowseDirectionForward, ReferenceType: step.ReferenceType, Subtypes: step.Subtypes}
	if step.Inverse {
		d.Direction = ua.BrowseDirectionInverse
	}
	f, status := v.filter(&d)
	if status != ua.StatusOK {
		return nil, status
	}
	var next []*Node
	seen := make(map[*Node]bool)
	for _, n := range at {
		l := v.linksOf(n)
		if l == nil {
			continue
		}
		for i := range l.all {
			e := &l.all[i]
			if !f.passes(e) || seen[e.target] {
				continue
			}
			if step.TargetName != "" && (e.target.BrowseName != step.TargetName || e.target.BrowseNS != step.TargetNS) {
				continue
			}
			if len(next) == maxTargets {
				return nil, ua.StatusBadTooManyMatches
			}
			seen[e.target] = true
			next = append(next, e.target)
		}
	}
	if len(next) == 0 {
		return nil, ua.StatusBadNoMatch
	}
	return next, ua.StatusOK
}
