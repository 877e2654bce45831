package address

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// Write writes attributes; each item gets its Status. Only the Value of a variable whose manager takes it can be
// written. A value of another type than the node's is BadTypeMismatch: nothing is converted, but a ByteString that is
// written to an array of Byte, whose value becomes that array in the item (Part 4, 5.10.4.2).
//
// Status of an item: BadNodeIdUnknown (its Node is nil), BadAttributeIdInvalid, BadNotWritable, BadUserAccessDenied,
// BadTypeMismatch, BadIndexRangeInvalid, or what the manager says, BadWriteNotSupported among it.
func (s *Space) Write(ctx context.Context, rights Rights, items []WriteItem) {
	s.writeRuns(rights, items, func(m NodeManager, run []WriteItem) { m.Write(ctx, run) })
}

// Submitter is a NodeManager whose writes may wait for devices.
type Submitter interface {
	// Submit takes the items behind those that were submitted before, without waiting, and is done with their ranges
	// when it returns. wait, called once, returns when each item has its Status.
	Submit(ctx context.Context, items []WriteItem) (wait func())
}

// Submit is Write in two steps, for items whose values go to devices: when it returns their place in the order of all
// writes is taken, and wait, called once, returns when each item has its Status.
func (s *Space) Submit(ctx context.Context, rights Rights, items []WriteItem) (wait func()) {
	var waits []func()
	s.writeRuns(rights, items, func(m NodeManager, run []WriteItem) {
		if sm, ok := m.(Submitter); ok {
			waits = append(waits, sm.Submit(ctx, run))
			return
		}
		m.Write(ctx, run)
	})
	return func() {
		for _, w := range waits {
			w()
		}
	}
}

// writeRuns checks the items, and calls write for each run of neighbours of one manager.
func (s *Space) writeRuns(rights Rights, items []WriteItem, write func(m NodeManager, run []WriteItem)) {
	v := s.now.Load()
	var manager NodeManager
	from, to := 0, 0 // the run that manager is still to write
	for i := range items {
		it := &items[i]
		if it.Status = v.writable(it, rights); it.Status != tag.Good {
			continue
		}
		if it.Node.Manager != manager || to == from {
			if to > from {
				write(manager, items[from:to])
			}
			manager, from = it.Node.Manager, i
		}
		to = i + 1
	}
	if to > from {
		write(manager, items[from:to])
	}
}

// writable checks one item. What nobody may do comes before what this user may not.
func (v *view) writable(it *WriteItem, rights Rights) tag.Status {
	n := it.Node
	switch {
	case n == nil:
		return tag.BadNodeIDUnknown
	case !n.has(it.Attribute):
		return badAttributeIDInvalid
	case it.Attribute != ua.AttributeIDValue || n.Class != ua.NodeClassVariable:
		return tag.BadNotWritable
	case n.Access&ua.AccessLevelTypeCurrentWrite == 0 || n.Manager == nil:
		return tag.BadNotWritable
	case rights.On(n)&MayWrite == 0:
		return tag.BadUserAccessDenied
	}
	if it.Range == "" && n.takes(it.Value.Value) {
		return tag.Good
	}
	r, err := ParseRange(it.Range)
	if err != nil {
		return tag.BadIndexRangeInvalid
	}
	return v.accept(n, r, &it.Value)
}

// takes reports whether a value is a scalar of just the built-in type that a scalar variable is of, as nearly every one
// is; accept says the same of it, and more of others.
func (n *Node) takes(v tag.Value) bool {
	k := v.Kind()
	return k != tag.Null && k <= tag.StatusCode && n.Rank == -1 && !v.IsArray() &&
		n.DataType.Num == uint32(k) && n.DataType.NS == 0 && n.DataType.Type == wire.Numeric
}

// accept checks a value against the node's DataType, ValueRank and ArrayDimensions (Part 3, 5.6.2).
func (v *view) accept(n *Node, r Range, d *wire.DataValue) tag.Status {
	kinds := v.builtins(n.DataType)
	s := shapeOf(d.Value)
	if s.kind == uint8(tag.Null) {
		// A null says nothing of a type; it goes with a bad status, and wherever any type does.
		if d.Status.IsBad() || kinds == anyBuiltin {
			return tag.Good
		}
		return tag.BadTypeMismatch
	}
	if s.kind == uint8(tag.ByteString) && s.dims == 0 && kinds == 1<<tag.Uint8 && n.Rank != -1 {
		d.Value = tag.OfSlice(d.Value.Bytes())
		s = shapeOf(d.Value)
	}
	if kinds&(1<<s.kind) == 0 || d.Value.Kind() == tag.String && !isText(d.Value) {
		return tag.BadTypeMismatch
	}
	if r.Dims != 0 {
		return n.acceptPart(r, s)
	}
	if !rankTakes(n.Rank, s.dims) {
		return tag.BadTypeMismatch
	}
	if s.dims > 0 && s.dims == len(n.Dims()) && !n.fits(d.Value) {
		return tag.BadTypeMismatch
	}
	return tag.Good
}

// isText reports whether Strings are UTF-8 (Part 6, 5.2.2.4). Others cannot be read by clients that are strict, which would
// lose all that comes in one message with them.
func isText(v tag.Value) bool {
	if !v.IsArray() {
		return utf8.ValidString(v.Text())
	}
	list, _ := v.Any().([]string)
	return !slices.ContainsFunc(list, func(s string) bool { return !utf8.ValidString(s) })
}

// fits compares the lengths of an array or a matrix with ArrayDimensions, whose zeros are lengths that may vary.
func (n *Node) fits(v tag.Value) bool {
	if v.IsArray() {
		return n.Dims()[0] == 0 || uint64(v.Len()) <= uint64(n.Dims()[0])
	}
	a, ok := parseEncoded(v)
	for i := range a.nDims {
		ok = ok && (n.Dims()[i] == 0 || a.dims[i] <= n.Dims()[i])
	}
	return ok
}

// acceptPart checks the form of a part. Its length and its place are the manager's to compare with what is there.
func (n *Node) acceptPart(r Range, part shape) tag.Status {
	text := part.kind == uint8(tag.String) || part.kind == uint8(tag.ByteString)
	switch {
	case n.Rank == -1 && !text: // a scalar has parts only if it is text
		return tag.BadIndexRangeNoData
	case part.dims == 0 && (n.Rank > 0 || !text):
		return tag.BadTypeMismatch // also one element is an array (Part 4, 5.10.4.2)
	case part.dims > r.Dims, n.Rank > 0 && part.dims != int(n.Rank):
		return tag.BadTypeMismatch
	}
	return tag.Good
}

// rankTakes compares a number of dimensions, 0 for a scalar, with a ValueRank.
func rankTakes(rank int32, dims int) bool {
	switch rank {
	case -3: // scalar or one dimension
		return dims <= 1
	case -2: // any
		return true
	case -1:
		return dims == 0
	case 0: // one or more dimensions
		return dims >= 1
	}
	return int(rank) == dims
}

// shape is the built-in type and the number of dimensions of a value.
type shape struct {
	kind uint8
	dims int
}

func shapeOf(v tag.Value) shape {
	if v.Kind() != tag.Raw {
		if v.IsArray() {
			return shape{uint8(v.Kind()), 1}
		}
		return shape{uint8(v.Kind()), 0}
	}
	b := v.Bytes()
	if len(b) == 0 {
		return shape{}
	}
	s := shape{kind: b[0] & 0x3F}
	switch {
	case b[0]&0xC0 == 0x80:
		s.dims = 1
	case b[0]&0xC0 == 0xC0:
		s.dims = matrixDims(b)
	}
	return s
}

// matrixDims counts the dimensions of an encoded matrix; their number stands behind the elements (Part 6, 5.2.2.16).
func matrixDims(b []byte) int {
	r := wire.NewReader(b[1:])
	for n := r.Count(1); n > 0; n-- {
		if !skipElement(&r, b[0]&0x3F) {
			return 0
		}
	}
	return max(r.Count(4), 0)
}

// anyBuiltin is the set of all built-in types.
const anyBuiltin = 1<<26 - 2

// builtins is the set of built-in types, as bits, that a value of the data type may have. A data type that the space
// does not know, as none given, takes any.
func (v *view) builtins(id wire.NodeID) uint32 {
	for depth := 0; depth < maxTypeDepth; depth++ {
		if id.Type == wire.Numeric && id.NS == 0 {
			if set := builtinSet(id.Num); set != 0 {
				return set
			}
		}
		n := v.find(id)
		if n == nil {
			break
		}
		super := n.superType()
		if super == nil {
			break
		}
		id = super.ID
	}
	return anyBuiltin
}

// builtinSet is the set of a data type at the root of the tree, or 0 (Part 3, 8; Part 6, 5.1.2).
func builtinSet(num uint32) uint32 {
	const (
		signed   = 1<<tag.Int8 | 1<<tag.Int16 | 1<<tag.Int32 | 1<<tag.Int64
		unsigned = 1<<tag.Uint8 | 1<<tag.Uint16 | 1<<tag.Uint32 | 1<<tag.Uint64
	)
	switch {
	case num >= 1 && num <= 23 || num == 25:
		return 1 << num
	case num == 24: // BaseDataType
		return anyBuiltin
	case num == 26: // Number, with Decimal, which travels as a structure
		return signed | unsigned | 1<<tag.Float32 | 1<<tag.Float64 | 1<<22
	case num == 27: // Integer
		return signed
	case num == 28: // UInteger
		return unsigned
	case num == 29: // Enumeration
		return 1 << tag.Int32
	case num == 50: // Decimal
		return 1 << 22
	}
	return 0
}
