package address

import (
	"context"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// CallItem is one method to call; it carries its results (Part 4, 5.12.2).
type CallItem struct {
	Object      *Node
	Method      *Node // of the object, or of its type; Space.Call makes it the object's own
	Inputs      []tag.Value
	Status      tag.Status
	InputStatus []tag.Status // InputArgumentResults, with BadInvalidArgument: one an input; nil otherwise
	Outputs     []tag.Value
}

// Caller is a NodeManager that carries out the methods which it is the Manager of.
type Caller interface {
	// Call sets each item's Status, and its Outputs. That the object has the method, that the user may call it, and that
	// the inputs fit its InputArguments has been checked; who calls is in ctx (InvokerOf). It may wait until ctx ends
	// where the manager says that it does (Waits).
	Call(ctx context.Context, calls []CallItem)
}

// Invoker is who calls a method.
type Invoker struct {
	User    string // empty: anonymous
	Rights  Rights // with his Roles
	Session uint32 // numeric part of the SessionId
}

type invokerKey struct{}

// WithInvoker is a context that says who calls.
func WithInvoker(ctx context.Context, i Invoker) context.Context {
	return context.WithValue(ctx, invokerKey{}, i)
}

// InvokerOf is who calls; nobody with no rights, if the context does not say.
func InvokerOf(ctx context.Context) Invoker {
	i, _ := ctx.Value(invokerKey{}).(Invoker)
	return i
}

// Statuses of Call that package tag has no name for.
const (
	badMethodInvalid    = tag.Status(0x80750000)
	badNotExecutable    = tag.Status(0x81110000)
	badArgumentsMissing = tag.Status(0x80760000)
	badTooManyArguments = tag.Status(0x80E50000)
	badInvalidArgument  = tag.Status(0x80AB0000)
	badNodeIDInvalid    = tag.Status(0x80330000)
	badNotImplemented   = tag.Status(0x80400000)
)

var idHasComponent = wire.NumericID(0, id.HasComponent)

// Call calls methods, a run of neighbours of one manager at a time.
//
// Status of an item (Part 4, 5.12.2.4): BadNodeIdUnknown (its Object is nil), BadNodeIdInvalid (that is neither Object nor
// ObjectType), BadMethodInvalid, BadNotExecutable, BadUserAccessDenied, BadArgumentsMissing, BadTooManyArguments,
// BadInvalidArgument, BadNotImplemented (it has no Caller), or what the manager says.
func (s *Space) Call(ctx context.Context, rights Rights, calls []CallItem) {
	var manager NodeManager
	from, to := 0, 0 // the run that manager is still to carry out
	run := func() {
		if to > from {
			manager.(Caller).Call(ctx, calls[from:to])
		}
	}
	for i := range calls {
		it := &calls[i]
		if it.Status = s.callable(it, rights); it.Status != tag.Good {
			run()
			from, to = i+1, i+1
			continue
		}
		if it.Method.Manager != manager || to == from {
			run()
			manager, from = it.Method.Manager, i
		}
		to = i + 1
	}
	run()
}

// callable checks one item. What nobody may do comes before what this user may not.
func (s *Space) callable(it *CallItem, rights Rights) tag.Status {
	switch {
	case it.Object == nil:
		return tag.BadNodeIDUnknown
	case it.Object.Class != ua.NodeClassObject && it.Object.Class != ua.NodeClassObjectType:
		return badNodeIDInvalid
	case it.Method == nil || it.Method.Class != ua.NodeClassMethod:
		return badMethodInvalid
	}
	if it.Method = s.methodOf(it.Object, it.Method); it.Method == nil {
		return badMethodInvalid
	}
	if !it.Method.Executable {
		return badNotExecutable
	}
	if rights.On(it.Method)&MayCall == 0 {
		return tag.BadUserAccessDenied
	}
	if _, ok := it.Method.Manager.(Caller); !ok {
		return badNotImplemented
	}
	return s.checkInputs(it)
}

// methodOf is the object's own method: the one that was named, or the one of the same name as the one of the object's
// type (or its supertypes) that was named; nil: there is none.
func (s *Space) methodOf(object, method *Node) (own *Node) {
	if s.component(object, func(n *Node) bool { return n == method }) != nil {
		return method
	}
	if object.Class != ua.NodeClassObject {
		return nil
	}
	var typ *Node
	if l := s.now.Load().linksOf(object); l != nil {
		typ = l.definition
	}
	for depth := 0; typ != nil && depth < maxTypeDepth; depth++ {
		if s.component(typ, func(n *Node) bool { return n == method }) != nil {
			return s.component(object, func(n *Node) bool { return n.BrowseNS == method.BrowseNS && n.BrowseName == method.BrowseName })
		}
		typ = typ.superType()
	}
	return nil
}

// component finds a method among the components of a node.
func (s *Space) component(of *Node, is func(*Node) bool) (found *Node) {
	s.References(of, func(kind *Node, inverse bool, target *Node) bool {
		if !inverse && target.Class == ua.NodeClassMethod && is(target) && s.IsSubtype(kind.ID, idHasComponent) {
			found = target
		}
		return found == nil
	})
	return found
}

// checkInputs compares the inputs with the method's InputArguments. A ByteString that is given for an array of Byte
// becomes that array, as in a Write.
func (s *Space) checkInputs(it *CallItem) tag.Status {
	types := s.inputArguments(it.Method)
	switch {
	case len(it.Inputs) < len(types):
		return badArgumentsMissing
	case len(it.Inputs) > len(types):
		return badTooManyArguments
	}
	v := s.now.Load()
	for i := range types {
		d := wire.DataValue{Value: it.Inputs[i]}
		st := v.accept(&types[i], Range{}, &d)
		it.Inputs[i] = d.Value
		if st == tag.Good {
			continue
		}
		if it.InputStatus == nil {
			it.InputStatus = make([]tag.Status, len(types))
		}
		it.InputStatus[i] = st
	}
	if it.InputStatus != nil {
		return badInvalidArgument
	}
	return tag.Good
}

// inputArguments are the types of a method's inputs, as variables of such a type would have them (Part 3, 8.6).
func (s *Space) inputArguments(method *Node) (types []Node) {
	s.References(method, func(kind *Node, inverse bool, target *Node) bool {
		if inverse || kind.ID != idHasProperty || target.BrowseNS != NamespaceUA || target.BrowseName != "InputArguments" {
			return true
		}
		types = argumentsIn(target.Value)
		return false
	})
	return types
}

// argumentsIn reads an array of Arguments. It was made by us: what cannot be read is none.
func argumentsIn(v tag.Value) (types []Node) {
	r := wire.NewReader(v.Bytes())
	if r.Uint8() != 0x80|22 { // an array of ExtensionObjects
		return nil
	}
	for range max(r.Count(1), 0) {
		x := r.Extension()
		if r.Err() != nil || !x.Is(id.Argument_Encoding_DefaultBinary) {
			return nil
		}
		b := wire.NewReader(x.Body)
		_ = b.String() // its name
		a := &Attributes{Class: ua.NodeClassVariable, DataType: b.NodeID(), Rank: b.Int32()}
		if n := max(b.Count(4), 0); n > 0 {
			a.More = &More{Dims: make([]uint32, n)}
			for i := range a.More.Dims {
				a.More.Dims[i] = b.Uint32()
			}
		}
		if b.Err() != nil {
			return nil
		}
		a.DataType = a.DataType.Clone()
		types = append(types, Node{Attributes: a})
	}
	return types
}
