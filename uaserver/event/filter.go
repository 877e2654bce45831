package event

import (
	"errors"
	"strconv"
	"strings"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// What a filter has at most: a client's screen has a few dozen columns, and a condition a dozen terms. They bound what one
// event costs with one filter.
const (
	MaxSelect  = 256 // select clauses
	MaxWhere   = 100 // elements of the where clause
	maxNesting = 32  // of the elements
	maxPath    = 16  // names in a browse path
)

// Filter is an EventFilter (Part 4, 7.22.3), planned once. It is immutable.
type Filter struct {
	space *address.Space
	list  []operand // select clauses
	where []element // none: every event passes
	order []int     // elements that the first one needs, each behind those that it needs itself
	body  string    // as the client sent it
}

// operand is what an element, or a select clause, refers to.
type operand struct {
	kind    operandKind
	status  ua.StatusCode // of a select clause; a bad one is a null field
	index   int           // of an element
	value   tag.Value     // literal
	typ     wire.NodeID   // of the events that have the field
	any     bool          // typ is BaseEventType
	base    base
	path    string
	part    address.Range
	ranged  bool
	literal bool
}

type operandKind uint8

const (
	literalOperand operandKind = iota
	elementOperand
	fieldOperand
)

// Result is what became of a filter: Status Good, BadEventFilterInvalid or BadMonitoredItemFilterInvalid.
type Result struct {
	Status ua.StatusCode
	Select []ua.StatusCode
	Where  []ElementResult
}

// ElementResult is a ContentFilterElementResult (Part 4, 7.7.2).
type ElementResult struct {
	Status   ua.StatusCode
	Operands []ua.StatusCode
}

// Body is the encoded EventFilterResult (Part 4, 7.22.3); nil: nothing is wrong with the filter.
func (r *Result) Body() []byte {
	wrong := false
	for _, st := range r.Select {
		wrong = wrong || st != ua.StatusGood
	}
	for i := range r.Where {
		wrong = wrong || r.Where[i].Status != ua.StatusGood
	}
	if !wrong {
		return nil
	}
	dst := appendStatuses(nil, r.Select)
	dst = wire.AppendNull(dst) // SelectClauseDiagnosticInfos
	dst = wire.AppendUint32(dst, uint32(len(r.Where)))
	for i := range r.Where {
		dst = wire.AppendUint32(dst, uint32(r.Where[i].Status))
		dst = wire.AppendNull(appendStatuses(dst, r.Where[i].Operands))
	}
	return wire.AppendNull(dst)
}

func appendStatuses(dst []byte, list []ua.StatusCode) []byte {
	dst = wire.AppendUint32(dst, uint32(len(list)))
	for _, st := range list {
		dst = wire.AppendUint32(dst, uint32(st))
	}
	return dst
}

var errTooMany = errors.New("event: too many clauses")

// Parse plans the body of an EventFilter. A select clause that no event can have is a field that is always null, and its
// result says why; a filter none of whose clauses is good, or whose where clause is not, is refused. The filter is nil
// then.
func Parse(space *address.Space, body []byte) (*Filter, Result) {
	f := &Filter{space: space, body: string(body)}
	var res Result
	p := parser{space: space, r: wire.NewReader([]byte(f.body))}
	n := max(p.r.Count(14), 0)
	if n > MaxSelect {
		p.r.Fail(errTooMany)
	}
	good := false
	for i := 0; i < n && p.r.Err() == nil; i++ {
		o := p.simple(&p.r)
		good = good || o.status == ua.StatusGood
		f.list = append(f.list, o)
		res.Select = append(res.Select, o.status)
	}
	n = max(p.r.Count(8), 0)
	if n > MaxWhere {
		p.r.Fail(errTooMany)
	}
	for i := 0; i < n && p.r.Err() == nil; i++ {
		e, r := p.element(n)
		f.where = append(f.where, e)
		res.Where = append(res.Where, r)
	}
	if p.r.Err() != nil {
		if errors.Is(p.r.Err(), errTooMany) {
			return nil, Result{Status: ua.StatusBadEventFilterInvalid}
		}
		return nil, Result{Status: ua.StatusBadMonitoredItemFilterInvalid}
	}
	f.plan(&res)
	for i := range res.Where {
		if res.Where[i].Status != ua.StatusGood {
			good = false
		}
	}
	if !good {
		res.Status = ua.StatusBadEventFilterInvalid
		return nil, res
	}
	return f, res
}

// Equal reports whether two filters are the same, byte for byte.
func (f *Filter) Equal(o *Filter) bool { return f.body == o.body }

// plan orders the elements that the first one needs, and refuses loops.
func (f *Filter) plan(res *Result) {
	if len(f.where) == 0 {
		return
	}
	const (
		unseen = iota
		open
		done
	)
	state := make([]uint8, len(f.where))
	var visit func(i, depth int) bool
	visit = func(i, depth int) bool {
		if state[i] == done {
			return true
		}
		if state[i] == open || depth > maxNesting {
			res.Where[i].Status = ua.StatusBadFilterElementInvalid
			return false
		}
		state[i] = open
		for k := range f.where[i].operands {
			if o := &f.where[i].operands[k]; o.kind == elementOperand && o.index < len(f.where) && !visit(o.index, depth+1) {
				return false
			}
		}
		state[i] = done
		f.order = append(f.order, i)
		return true
	}
	visit(0, 1)
}

// parser reads a filter.
type parser struct {
	space *address.Space
	r     wire.Reader
}

// simple reads a SimpleAttributeOperand (Part 4, 7.7.4.5), and finds out whether any event can have it.
func (p *parser) simple(r *wire.Reader) operand {
	o := operand{kind: fieldOperand, typ: r.NodeID().Clone()}
	n := max(r.Count(6), 0)
	if n > maxPath {
		r.Fail(errTooMany)
		return o
	}
	path := make([]address.RelativePathElement, 0, n)
	var text strings.Builder
	for i := 0; i < n && r.Err() == nil; i++ {
		ns, name := r.QualifiedName()
		path = append(path, address.RelativePathElement{TargetNS: ns, TargetName: strings.Clone(name)})
		if i > 0 {
			text.WriteByte('/')
		}
		if ns != 0 {
			text.WriteString(strconv.Itoa(int(ns)) + ":")
		}
		text.WriteString(name)
	}
	attribute := ua.AttributeID(r.Uint32())
	part := strings.Clone(r.String())
	if r.Err() != nil {
		return o
	}
	o.path, o.base = text.String(), bases[text.String()]
	if o.typ.IsNull() { // of any event (as many clients have it)
		o.typ = baseEventType
	}
	o.any = o.typ == baseEventType
	o.status = p.check(&o, path, attribute)
	if part != "" && o.status == ua.StatusGood {
		var err error
		if o.part, err = address.ParseRange(part); err != nil {
			o.status = ua.StatusBadIndexRangeInvalid
		}
		o.ranged = true
	}
	return o
}

// check is the result of a select clause (Part 4, 7.22.3).
func (p *parser) check(o *operand, path []address.RelativePathElement, attribute ua.AttributeID) ua.StatusCode {
	typ := p.space.Find(o.typ)
	if typ == nil || typ.Class != ua.NodeClassObjectType || !p.space.IsSubtype(o.typ, baseEventType) {
		return ua.StatusBadTypeDefinitionInvalid
	}
	for i := range path {
		if path[i].TargetName == "" {
			return ua.StatusBadBrowseNameInvalid
		}
	}
	if len(path) == 0 { // the event itself: an instance of a condition has a NodeId, any other has none
		if attribute != ua.AttributeIDNodeID {
			return ua.StatusBadAttributeIDInvalid
		}
		return ua.StatusGood
	}
	n := p.declared(typ, path)
	switch {
	case n == nil:
		return ua.StatusBadNodeIDUnknown
	case n.Class == ua.NodeClassVariable && attribute != ua.AttributeIDValue,
		n.Class != ua.NodeClassVariable && attribute != ua.AttributeIDNodeID:
		return ua.StatusBadAttributeIDInvalid
	}
	return ua.StatusGood
}

var (
	hasSubtype   = wire.NumericID(0, id.HasSubtype)
	hierarchical = wire.NumericID(0, id.HierarchicalReferences)
)

// maxTypes ends the search of a field among the types of events.
const maxTypes = 4096

// declared finds what a path leads to in the event type, the types above it or those below.
func (p *parser) declared(typ *address.Node, path []address.RelativePathElement) *address.Node {
	for t := typ; t != nil; t = p.super(t) {
		if n := p.follow(t, path); n != nil {
			return n
		}
	}
	types := []*address.Node{typ}
	for i := 0; i < len(types) && i < maxTypes; i++ {
		if n := p.follow(types[i], path); n != nil {
			return n
		}
		p.space.References(types[i], func(kind *address.Node, inverse bool, target *address.Node) bool {
			if !inverse && kind.ID == hasSubtype {
				types = append(types, target)
			}
			return true
		})
	}
	return nil
}

func (p *parser) super(typ *address.Node) (super *address.Node) {
	p.space.References(typ, func(kind *address.Node, inverse bool, target *address.Node) bool {
		if inverse && kind.ID == hasSubtype {
			super = target
		}
		return super == nil
	})
	return super
}

// follow is the node that a path leads to from one type, or nil.
func (p *parser) follow(n *address.Node, path []address.RelativePathElement) *address.Node {
	for i := range path {
		var next *address.Node
		p.space.References(n, func(kind *address.Node, inverse bool, target *address.Node) bool {
			if !inverse && target.BrowseName == path[i].TargetName && target.BrowseNS == path[i].TargetNS &&
				target.Class != ua.NodeClassObjectType && p.space.IsSubtype(kind.ID, hierarchical) {
				next = target
			}
			return next == nil
		})
		if n = next; n == nil {
			return nil
		}
	}
	return n
}

// Field values.

// of is the value of a field operand for an event.
func (o *operand) of(f *Filter, e *Event) tag.Value {
	if o.status != ua.StatusGood || !o.any && !f.space.IsSubtype(e.Type, o.typ) {
		return tag.Value{}
	}
	v := e.value(o.base, o.path)
	if o.ranged {
		part, st := address.ApplyRange(v, o.part)
		if st != tag.Good {
			return tag.Value{}
		}
		v = part
	}
	return v
}

// Append appends the EventFields of an event (Part 4, 7.25.3): an array of Variants, one a select clause.
func (f *Filter) Append(dst []byte, e *Event) []byte {
	dst = wire.AppendUint32(dst, uint32(len(f.list)))
	for i := range f.list {
		dst = wire.AppendVariant(dst, f.list[i].of(f, e))
	}
	return dst
}

// appendRefused is what stands for an event that does not fit a message.
func (f *Filter) appendRefused(dst []byte) []byte {
	dst = wire.AppendUint32(dst, uint32(len(f.list)))
	for range f.list {
		dst = wire.AppendVariant(dst, tag.Of(tag.Status(ua.StatusBadEncodingLimitsExceeded)))
	}
	return dst
}
