package event

import (
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// element is one ContentFilterElement (Part 4, 7.7.1).
type element struct {
	op       ua.FilterOperator
	operands []operand
	target   tag.Kind    // of a Cast
	typ      wire.NodeID // of an OfType
}

// arity is how many operands each operator has (Part 4, 7.7.3); those that an event filter may not have are not there.
var arity = map[ua.FilterOperator]struct{ least, most int }{
	ua.FilterOperatorEquals:             {2, 2},
	ua.FilterOperatorIsNull:             {1, 1},
	ua.FilterOperatorGreaterThan:        {2, 2},
	ua.FilterOperatorLessThan:           {2, 2},
	ua.FilterOperatorGreaterThanOrEqual: {2, 2},
	ua.FilterOperatorLessThanOrEqual:    {2, 2},
	ua.FilterOperatorLike:               {2, 2},
	ua.FilterOperatorNot:                {1, 1},
	ua.FilterOperatorBetween:            {3, 3},
	ua.FilterOperatorInList:             {2, maxOperands},
	ua.FilterOperatorAnd:                {2, 2},
	ua.FilterOperatorOr:                 {2, 2},
	ua.FilterOperatorCast:               {2, 2},
	ua.FilterOperatorOfType:             {1, 1},
	ua.FilterOperatorBitwiseAnd:         {2, 2},
	ua.FilterOperatorBitwiseOr:          {2, 2},
}

// maxOperands bounds the list of an InList.
const maxOperands = 256

// element reads a ContentFilterElement of a where clause that has so many of them.
func (p *parser) element(of int) (element, ElementResult) {
	e := element{op: ua.FilterOperator(p.r.Uint32())}
	n := max(p.r.Count(3), 0)
	if n > maxOperands {
		p.r.Fail(errTooMany)
		return e, ElementResult{}
	}
	res := ElementResult{Operands: make([]ua.StatusCode, n)}
	for i := 0; i < n && p.r.Err() == nil; i++ {
		x := p.r.Extension()
		if p.r.Err() != nil {
			break
		}
		o, status := p.operand(&x, of)
		e.operands = append(e.operands, o)
		if res.Operands[i] = status; status != ua.StatusGood {
			res.Status = status
		}
	}
	if p.r.Err() != nil {
		return e, res
	}
	if st := e.check(p); st != ua.StatusGood {
		res.Status = st
	}
	return e, res
}

// operand reads one FilterOperand. AttributeOperands are for queries.
func (p *parser) operand(x *wire.Extension, of int) (o operand, status ua.StatusCode) {
	if x.Encoding != wire.BinaryBody {
		return o, ua.StatusBadFilterOperandInvalid
	}
	r := wire.NewReader(x.Body)
	switch {
	case x.Is(id.LiteralOperand_Encoding_DefaultBinary):
		o.value, o.literal = r.Variant(), true
		if r.Err() != nil {
			return o, ua.StatusBadFilterLiteralInvalid
		}
		return o, ua.StatusGood
	case x.Is(id.ElementOperand_Encoding_DefaultBinary):
		i := r.Uint32()
		if r.Err() != nil || i >= uint32(of) {
			return o, ua.StatusBadFilterOperandInvalid
		}
		o.kind, o.index = elementOperand, int(i)
		return o, ua.StatusGood
	case x.Is(id.SimpleAttributeOperand_Encoding_DefaultBinary):
		o = p.simple(&r)
		if r.Err() != nil {
			return o, ua.StatusBadFilterOperandInvalid
		}
		return o, o.status
	}
	return o, ua.StatusBadFilterOperandInvalid
}

// check is what is wrong with an element beside its operands.
func (e *element) check(p *parser) ua.StatusCode {
	n, ok := arity[e.op]
	switch {
	case e.op == ua.FilterOperatorInView, e.op == ua.FilterOperatorRelatedTo:
		return ua.StatusBadFilterOperatorUnsupported
	case !ok:
		return ua.StatusBadFilterOperatorInvalid
	case len(e.operands) < n.least || len(e.operands) > n.most:
		return ua.StatusBadFilterOperandCountMismatch
	}
	switch e.op {
	case ua.FilterOperatorOfType:
		t, ok := nodeOf(&e.operands[0])
		if !ok {
			return ua.StatusBadFilterOperandInvalid
		}
		if n := p.space.Find(t); n == nil || n.Class != ua.NodeClassObjectType {
			return ua.StatusBadFilterOperandInvalid
		}
		e.typ = t
	case ua.FilterOperatorCast:
		t, ok := nodeOf(&e.operands[1])
		if e.target = p.builtin(t); !ok || e.target == tag.Null {
			return ua.StatusBadFilterOperandInvalid
		}
	}
	return ua.StatusGood
}

// nodeOf is the node that a literal names.
func nodeOf(o *operand) (n wire.NodeID, ok bool) {
	if !o.literal {
		return n, false
	}
	v, ok := convert(o.value, kindNodeID, true)
	if !ok {
		return n, false
	}
	return nodeIn(v)
}

// builtin is the built-in type of the values of a data type; Null: there is none.
func (p *parser) builtin(typ wire.NodeID) tag.Kind {
	n := p.space.Find(typ)
	for depth := 0; n != nil && n.Class == ua.NodeClassDataType && depth < maxNesting; depth++ {
		switch num := n.ID.Num; {
		case n.ID.NS != 0 || n.ID.Type != wire.Numeric:
		case num == id.Enumeration:
			return tag.Int32
		case num >= 1 && num <= 21 && num != 16:
			return tag.Kind(num)
		}
		n = p.super(n)
	}
	return tag.Null
}

// Passes reports whether the where clause is TRUE for an event (Part 4, 7.7.1).
func (f *Filter) Passes(e *Event) bool {
	if len(f.where) == 0 {
		return true
	}
	values := make([]tag.Value, len(f.where))
	for _, i := range f.order {
		values[i] = f.evaluate(&f.where[i], e, values)
	}
	return truth(values[0]) == yes
}

// logic is TRUE, FALSE or NULL.
type logic uint8

const (
	null logic = iota
	no
	yes
)

// truth is a value as a Boolean.
func truth(v tag.Value) logic {
	b, ok := convert(v, tag.Bool, false)
	switch {
	case !ok:
		return null
	case b.Bool():
		return yes
	}
	return no
}

func (l logic) value() tag.Value {
	if l == null {
		return tag.Value{}
	}
	return tag.Of(l == yes)
}

func isTrue(b bool) tag.Value { return tag.Of(b) }

// evaluate is the value of an element whose elements have theirs (Part 4, tables 122 and 123).
func (f *Filter) evaluate(el *element, e *Event, values []tag.Value) tag.Value {
	at := func(i int) tag.Value {
		o := &el.operands[i]
		switch o.kind {
		case elementOperand:
			return values[o.index]
		case fieldOperand:
			return o.of(f, e)
		}
		return o.value
	}
	switch el.op {
	case ua.FilterOperatorEquals:
		return isTrue(equal(at(0), at(1)))
	case ua.FilterOperatorIsNull:
		return isTrue(at(0).IsNull())
	case ua.FilterOperatorGreaterThan:
		c, ok := compare(at(0), at(1))
		return isTrue(ok && c > 0)
	case ua.FilterOperatorLessThan:
		c, ok := compare(at(0), at(1))
		return isTrue(ok && c < 0)
	case ua.FilterOperatorGreaterThanOrEqual:
		c, ok := compare(at(0), at(1))
		return isTrue(ok && c >= 0)
	case ua.FilterOperatorLessThanOrEqual:
		c, ok := compare(at(0), at(1))
		return isTrue(ok && c <= 0)
	case ua.FilterOperatorBetween:
		v := at(0)
		low, ok1 := compare(v, at(1))
		high, ok2 := compare(v, at(2))
		return isTrue(ok1 && ok2 && low >= 0 && high <= 0)
	case ua.FilterOperatorInList:
		v := at(0)
		for i := 1; i < len(el.operands); i++ {
			if equal(v, at(i)) {
				return isTrue(true)
			}
		}
		return isTrue(false)
	case ua.FilterOperatorLike:
		text, ok1 := convert(at(0), tag.String, false)
		pattern, ok2 := convert(at(1), tag.String, false)
		return isTrue(ok1 && ok2 && like(text.Text(), pattern.Text()))
	case ua.FilterOperatorNot:
		switch truth(at(0)) {
		case yes:
			return no.value()
		case no:
			return yes.value()
		}
		return tag.Value{}
	case ua.FilterOperatorAnd:
		return and(truth(at(0)), truth(at(1))).value()
	case ua.FilterOperatorOr:
		return or(truth(at(0)), truth(at(1))).value()
	case ua.FilterOperatorCast:
		v, ok := convert(at(0), el.target, true)
		if !ok {
			return tag.Value{}
		}
		return v
	case ua.FilterOperatorOfType:
		return isTrue(f.space.IsSubtype(e.Type, el.typ))
	case ua.FilterOperatorBitwiseAnd:
		return bitwise(at(0), at(1), func(a, b uint64) uint64 { return a & b })
	case ua.FilterOperatorBitwiseOr:
		return bitwise(at(0), at(1), func(a, b uint64) uint64 { return a | b })
	}
	return tag.Value{}
}

// and and or are those of three values (Part 4, tables 127 and 128).
func and(a, b logic) logic {
	switch {
	case a == no || b == no:
		return no
	case a == yes && b == yes:
		return yes
	}
	return null
}

func or(a, b logic) logic {
	switch {
	case a == yes || b == yes:
		return yes
	case a == no && b == no:
		return no
	}
	return null
}

// bitwise is the operation on two integers, as the larger of their types; NULL of anything else.
func bitwise(a, b tag.Value, op func(a, b uint64) uint64) tag.Value {
	if !integer(a) || !integer(b) {
		return tag.Value{}
	}
	k := a.Kind()
	if width(b.Kind()) > width(k) || width(b.Kind()) == width(k) && rank(b.Kind()) < rank(k) {
		k = b.Kind()
	}
	mask := ^uint64(0) >> (64 - width(k))
	out := op(a.Bits()&mask, b.Bits()&mask) & mask
	if signed(k) { // Bits are sign-extended
		shift := 64 - width(k)
		out = uint64(int64(out<<shift) >> shift)
	}
	return tag.FromBits(k, out)
}

func integer(v tag.Value) bool {
	return !v.IsArray() && v.Kind() >= tag.Int8 && v.Kind() <= tag.Uint64
}

func signed(k tag.Kind) bool {
	return k == tag.Int8 || k == tag.Int16 || k == tag.Int32 || k == tag.Int64
}

// width is the bits of an integer's type.
func width(k tag.Kind) int { return 8 << ((k - tag.Int8) / 2) }
