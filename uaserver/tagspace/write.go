package tagspace

import (
	"context"
	"slices"
	"sync"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// badIndexRangeDataMismatch says that a value is not as long as the range that it is written to (Part 4, 7.39).
const badIndexRangeDataMismatch = tag.Status(0x80EA0000)

// batch is the commands of one Write.
type batch struct {
	cmds []tag.Command
	item []int // by command
	kept bool  // some are to tags that cannot be read
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// Waits reports whether a write to the node, or a call of it, waits for a device, and so must not be made in a connection's goroutine.
func (s *Space) Waits(n *address.Node) bool {
	if n.Class == ua.NodeClassMethod {
		return true
	}
	sl := s.slot(n.Ref)
	return sl.def != nil && (!sl.def.Memory || sl.def.Retain)
}

// Write implements address.NodeManager. The device is the truth: a write never changes a node by itself, the
// confirming reading does. Only what was written to a tag that cannot be read is kept here.
func (s *Space) Write(ctx context.Context, items []address.WriteItem) {
	b := s.batch(items)
	if s.field != nil && len(b.cmds) > 0 {
		s.field.Execute(ctx, b.cmds)
	}
	s.settle(items, b)
}

// Submit implements address.Submitter: what one client sends to one device is carried out in the order of arrival, as
// long as the field side keeps it.
func (s *Space) Submit(ctx context.Context, items []address.WriteItem) (wait func()) {
	b := s.batch(items)
	carryOut := func() {}
	if len(b.cmds) > 0 {
		switch field := s.field.(type) {
		case nil:
		case tag.Submitter:
			carryOut = field.Submit(ctx, b.cmds)
		default:
			carryOut = func() { field.Execute(ctx, b.cmds) }
		}
	}
	return func() {
		carryOut()
		s.settle(items, b)
	}
}

// batch makes commands of the items that may be written.
func (s *Space) batch(items []address.WriteItem) *batch {
	b, v, n := batches.Get().(*batch), s.now.Load(), 0
	b.cmds = slices.Grow(b.cmds, len(items))[:len(items)] // which settle has cleared
	b.item = slices.Grow(b.item, len(items))[:len(items)]
	for i := range items {
		it := &items[i]
		if it.Status.IsBad() {
			continue
		}
		sl := v.slot(it.Node.Ref)
		if it.Status = sl.command(&b.cmds[n], it); it.Status != tag.Good {
			b.cmds[n] = tag.Command{}
			continue
		}
		b.kept = b.kept || sl.def.Access&tag.Readable == 0
		b.item[n] = i
		n++
	}
	b.cmds, b.item = b.cmds[:n], b.item[:n]
	return b
}

// settle tells the items what became of their commands, and gives the batch back.
func (s *Space) settle(items []address.WriteItem, b *batch) {
	for j, i := range b.item {
		if s.field == nil {
			b.cmds[j].Status = tag.BadNoCommunication
		}
		items[i].Status = b.cmds[j].Status
	}
	if b.kept {
		s.keep(b.cmds)
	}
	clear(b.cmds) // values are not to be kept alive
	b.cmds, b.item, b.kept = b.cmds[:0], b.item[:0], false
	batches.Put(b)
}

// keep keeps what was written to tags that cannot be read.
func (s *Space) keep(cmds []tag.Command) {
	for i := range cmds {
		cmd := &cmds[i]
		if sl := s.slot(cmd.Ref); sl.def != nil && sl.def.Access&tag.Readable == 0 && cmd.Status.IsGood() {
			sl.written(cmd)
		}
	}
}

// command checks an item and makes a command of it in cmd, which is zero. The type has been checked.
func (sl slot) command(cmd *tag.Command, it *address.WriteItem) tag.Status {
	if sl.def == nil {
		return tag.BadNotWritable
	}
	def, v := sl.def, &it.Value
	cmd.Ref, cmd.Value = it.Node.Ref, v.Value
	if v.Server != 0 { // the server's own to set (Part 4, 5.10.4.2)
		return tag.BadWriteNotSupported
	}
	if def.Memory {
		cmd.At, cmd.Put = v.Source, v.Status
	} else if v.Source != 0 || v.Status != tag.Good {
		return tag.BadWriteNotSupported
	}
	if v.Value.IsNull() { // only a memory tag with a bad status comes here
		return tag.Good
	}
	if status := place(cmd, def, it.Range); status != tag.Good {
		return status
	}
	if def.HasRange && !within(cmd.Value, def.Low, def.High) || multiState(def) && !named(def, cmd.Value) {
		return tag.BadOutOfRange
	}
	return tag.Good
}

// place finds the elements that a command replaces. Without a range an array is written as a whole.
func place(cmd *tag.Command, def *tag.Tag, text string) tag.Status {
	if text == "" {
		if def.Len > 0 && cmd.Value.Len() != def.Len {
			return tag.BadTypeMismatch
		}
		return tag.Good
	}
	r, err := address.ParseRange(text)
	switch {
	case err != nil:
		return tag.BadIndexRangeInvalid
	case cutsText(def, &r) && !def.Memory:
		return tag.BadWriteNotSupported // devices take such a value as a whole
	case cutsText(def, &r):
		cmd.Edit = replacing(cmd.Value, r)
		return tag.Good
	case def.Len == 0 || r.Dims > 1 || uint64(r.High) >= uint64(def.Len):
		return tag.BadIndexRangeNoData
	case !cmd.Value.IsArray():
		return tag.BadTypeMismatch // also one element is an array (Part 4, 7.27)
	case uint64(cmd.Value.Len()) != uint64(r.High-r.Low)+1:
		return badIndexRangeDataMismatch
	}
	cmd.Part, cmd.From = true, int(r.Low)
	return tag.Good
}

// cutsText reports whether a range names characters or bytes, of a tag or of the elements of one.
func cutsText(def *tag.Tag, r *address.Range) bool {
	text := def.Kind == tag.String || def.Kind == tag.ByteString
	return text && (def.Len == 0 && r.Dims == 1 || def.Len > 0 && r.Dims == 2)
}

// replacing puts part into the value that is there when the write is carried out.
func replacing(part tag.Value, r address.Range) func(old tag.Value) (tag.Value, tag.Status) {
	return func(old tag.Value) (tag.Value, tag.Status) { return address.ReplaceRange(old, part, r) }
}

// named reports whether a discrete value is one of those that have a text (Part 8, 5.3.3.4).
func named(def *tag.Tag, v tag.Value) bool {
	n, ok := v.Int()
	if ok {
		_, ok = def.States.Text(n)
	}
	return ok
}

// within reports whether a number, or every element of an array of numbers, lies in a range. What is no number does.
func within(v tag.Value, low, high float64) bool {
	if !v.IsArray() {
		f, ok := v.Float()
		return !ok || f >= low && f <= high
	}
	switch v.Kind() {
	case tag.Int8:
		return allWithin[int8](v, low, high)
	case tag.Uint8:
		return allWithin[uint8](v, low, high)
	case tag.Int16:
		return allWithin[int16](v, low, high)
	case tag.Uint16:
		return allWithin[uint16](v, low, high)
	case tag.Int32:
		return allWithin[int32](v, low, high)
	case tag.Uint32:
		return allWithin[uint32](v, low, high)
	case tag.Int64:
		return allWithin[int64](v, low, high)
	case tag.Uint64:
		return allWithin[uint64](v, low, high)
	case tag.Float32:
		return allWithin[float32](v, low, high)
	case tag.Float64:
		return allWithin[float64](v, low, high)
	}
	return true
}

// number is the element types that have a range.
type number interface {
	int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64
	tag.Element
}

func allWithin[T number](v tag.Value, low, high float64) bool {
	s, _ := tag.Slice[T](v)
	for _, e := range s {
		if f := float64(e); !(f >= low && f <= high) { // a NaN is in no range
			return false
		}
	}
	return true
}

// written keeps what was written to a tag that cannot be read.
func (sl slot) written(cmd *tag.Command) {
	v := cmd.Value
	if cmd.Part {
		last, _, _ := sl.series.Last()
		whole, status := address.ReplaceRange(last.Value, v, address.Range{
			Dims: 1, Low: uint32(cmd.From), High: uint32(cmd.From + v.Len() - 1),
		})
		if status != tag.Good {
			return // the rest of the array was never written, so there is no value to show
		}
		v = whole
	}
	sl.publish(&tag.Sample{Ref: cmd.Ref, Value: v, At: tag.Now()})
}
