package wire

import "github.com/gopcua/opcua/ua"

// A view is a request of a hot service over the buffer that it came in: nothing is allocated, and ids and texts alias the
// buffer. Reading one checks the whole body, so that no service executes half of a malformed request: the caller looks
// at the Reader's Err once, before the first Next, and Next cannot fail. All of them begin behind the RequestHeader.
//
// Read and Write (items.go) are walked once only: their callers gather all items, and then look at Err.

// list is the array of a view. It stands at its first element.
type list struct {
	items Reader
	left  int
}

// list begins an array whose elements take at least size bytes each. The caller passes over them, and calls end.
func (r *Reader) list(size int) list {
	n := max(r.Count(size), 0)
	return list{items: *r, left: n}
}

// end closes the array: after an error nothing is to be had from it. It returns how many elements there are.
func (l *list) end(r *Reader) int {
	if r.err != nil {
		l.left = 0
	}
	return l.left
}

func (l *list) next() bool {
	if l.left == 0 {
		return false
	}
	l.left--
	return true
}

// The least sizes of the views' elements on the wire.
const (
	readValueIDSize = 2 + 4 + 4 + 6
	writeValueSize  = 2 + 4 + 4 + 1
	ackSize         = 8
	parametersSize  = 4 + 8 + 3 + 4 + 1
	createItemSize  = readValueIDSize + 4 + parametersSize
	modifyItemSize  = 4 + parametersSize
	browseItemSize  = 2 + 4 + 2 + 1 + 4 + 4
	callItemSize    = 2 + 2 + 4
)

// ViewDescription is the view that a Browse is restricted to (Part 4, 7.45); a null ID is the whole address space.
type ViewDescription struct {
	ID        NodeID
	Timestamp uint64 // a DateTime as it came: 0 is "the current one"
	Version   uint32
}

// BrowseDescription is one node to browse from (Part 4, 5.9.2).
type BrowseDescription struct {
	Node          NodeID
	Direction     ua.BrowseDirection
	ReferenceType NodeID // null: all
	Subtypes      bool   // IncludeSubtypes
	ClassMask     uint32 // NodeClassMask; 0: all
	ResultMask    uint32
}

// BrowseRequest is a view of Browse (Part 4, 5.9.2).
type BrowseRequest struct {
	View          ViewDescription
	MaxReferences uint32 // RequestedMaxReferencesPerNode; 0: no limit
	N             int    // NodesToBrowse
	list
}

// BrowseRequest reads a BrowseRequest and checks it whole.
func (r *Reader) BrowseRequest() (v BrowseRequest) {
	v.View.ID = r.NodeID()
	v.View.Timestamp = r.Uint64()
	v.View.Version = r.Uint32()
	v.MaxReferences = r.Uint32()
	v.list = r.list(browseItemSize)
	for i := 0; i < v.left && r.err == nil; i++ {
		r.NodeID()
		r.take(4)
		r.NodeID()
		r.take(1 + 4 + 4)
	}
	v.N = v.end(r)
	return v
}

// Next is the next node to browse; false: there is none.
func (v *BrowseRequest) Next() (d BrowseDescription, ok bool) {
	if !v.next() {
		return d, false
	}
	r := &v.items
	d.Node = r.NodeID()
	d.Direction = ua.BrowseDirection(r.Uint32())
	d.ReferenceType = r.NodeID()
	d.Subtypes = r.Bool()
	d.ClassMask = r.Uint32()
	d.ResultMask = r.Uint32()
	return d, true
}

// BrowseNextRequest is a view of BrowseNext (Part 4, 5.9.3).
type BrowseNextRequest struct {
	Release bool // ReleaseContinuationPoints
	N       int  // ContinuationPoints
	list
}

// BrowseNextRequest reads a BrowseNextRequest and checks it whole.
func (r *Reader) BrowseNextRequest() (v BrowseNextRequest) {
	v.Release = r.Bool()
	v.list = r.list(4)
	for i := 0; i < v.left && r.err == nil; i++ {
		r.ByteString()
	}
	v.N = v.end(r)
	return v
}

// Next is the next continuation point, which aliases the buffer; false: there is none.
func (v *BrowseNextRequest) Next() (point []byte, ok bool) {
	if !v.next() {
		return nil, false
	}
	return v.items.ByteString(), true
}
