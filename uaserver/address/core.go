package address

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"unsafe"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

//go:generate go run edged/uaserver/address/gen core.bin

// core is namespace 0 of the OPC Foundation's NodeSet 1.05.02 in the form that gen writes (its licence: NOTICE). Texts
// and values of nodes are parts of it, so that they take no heap.
//
// The form, all numbers little-endian or as varints: seven counts (nodes, highest id, references, reference types,
// bytes of the node records, bytes of the references, bytes of the texts); the reference types' ids; the nodes, sorted
// by id; for each node its forward references (index of the type, index of the target); the texts and encoded values.
//
//go:embed core.bin
var core string

// Flags of a node record; gen has the same.
const (
	hasDisplayName = 1 << iota
	hasDescription
	hasInverseName
	isAbstract
	isSymmetric
	hasValue
	isLive
	notExecutable
)

var errCore = errors.New("namespace 0: core.bin is not what its generator writes; run go generate")

// coreReader walks core.bin. A short or wrong file sets bad.
type coreReader struct {
	s     string
	texts string
	bad   bool
}

func (r *coreReader) byte() byte {
	if len(r.s) == 0 {
		r.bad = true
		return 0
	}
	b := r.s[0]
	r.s = r.s[1:]
	return b
}

func (r *coreReader) uvarint() uint64 {
	v := uint64(0)
	for shift := 0; shift < 64; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7F) << shift
		if b < 0x80 {
			return v
		}
	}
	r.bad = true
	return 0
}

// index reads a number below n.
func (r *coreReader) index(n int) int {
	v := r.uvarint()
	if v >= uint64(n) {
		r.bad = true
		return 0
	}
	return int(v)
}

func (r *coreReader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *coreReader) text() string {
	at, n := r.uvarint(), r.uvarint()
	if at > uint64(len(r.texts)) || n > uint64(len(r.texts))-at {
		r.bad = true
		return ""
	}
	return r.texts[at : at+n]
}

// loadCore fills v with namespace 0. Its nodes, and its references, are one slice each.
func loadCore(v *view) error {
	const counts = 7
	var c [counts]int
	if len(core) < 4*counts {
		return errCore
	}
	head := []byte(core[:4*counts])
	for i := range c {
		c[i] = int(binary.LittleEndian.Uint32(head[4*i:]))
	}
	nodes, last, references, kinds, records, edges, texts := c[0], c[1], c[2], c[3], c[4], c[5], c[6]
	if len(core) != 4*(counts+kinds)+records+edges+texts {
		return errCore
	}
	body := core[4*(counts+kinds):]
	v.coreNodes = make([]Node, nodes)
	attributes := make([]Attributes, nodes) // each its own: those of the server's state are changed before it is served
	v.core = make([]uint16, last+1)
	v.count = nodes
	r := coreReader{s: body[:records], texts: body[records+edges:]}
	at := 0
	for i := range v.coreNodes {
		if at += r.index(len(v.core) - at); r.bad {
			return errCore
		}
		v.coreNodes[i].ID = wire.NumericID(0, uint32(at))
		v.core[at] = uint16(i + 1)
		v.coreNodes[i].Attributes = &attributes[i]
		r.node(&v.coreNodes[i])
	}
	v.kinds = make([]*Node, kinds)
	for i := range v.kinds {
		n := v.find(wire.NumericID(0, binary.LittleEndian.Uint32([]byte(core[4*(counts+i):][:4]))))
		if n == nil || n.Class != ua.NodeClassReferenceType {
			return errCore
		}
		n.kind = uint16(i)
		v.kinds[i] = n
	}
	if r.bad || !v.linkCore(body[records:records+edges], references) {
		return errCore
	}
	return nil
}

// node reads a record behind its id.
func (r *coreReader) node(n *Node) {
	n.Class = ua.NodeClass(1) << (r.byte() & 7)
	flags := r.byte()
	n.BrowseName = r.text()
	var more More
	if flags&hasDisplayName != 0 {
		more.DisplayName = r.text()
	}
	if flags&hasDescription != 0 {
		more.Description = r.text()
	}
	if flags&hasInverseName != 0 {
		more.InverseName = r.text()
	}
	n.Abstract, n.Symmetric = flags&isAbstract != 0, flags&isSymmetric != 0
	switch n.Class {
	case ua.NodeClassObject:
		n.EventNotifier = r.byte()
	case ua.NodeClassMethod:
		n.Executable = flags&notExecutable == 0
	case ua.NodeClassVariable, ua.NodeClassVariableType:
		n.DataType = wire.NumericID(0, uint32(r.uvarint()))
		n.Rank = int32(r.varint())
		if d := r.index(8); d > 0 {
			more.Dims = make([]uint32, d)
			for i := range more.Dims {
				more.Dims[i] = uint32(r.uvarint())
			}
		}
		n.Access = ua.AccessLevelType(r.byte())
		n.MinSampling = float64(r.uvarint())
	}
	if flags&hasValue != 0 {
		n.Value = coreValue(r.text())
	}
	n.live = flags&isLive != 0
	if !more.same(&nothingMore) {
		n.More = &more
	}
}

// coreValue makes a Value of an encoded Variant; texts and bytes stay where they are.
func coreValue(s string) tag.Value {
	b := unsafe.Slice(unsafe.StringData(s), len(s)) // read only, as all of a Value is
	if len(b) == 0 {
		return tag.Value{}
	}
	rd := wire.NewReader(b[1:])
	switch b[0] {
	case byte(tag.String):
		return tag.Of(rd.String())
	case byte(tag.ByteString):
		return tag.OfBytes(rd.ByteString())
	}
	rd = wire.NewReader(b)
	if v := rd.Variant(); v.Kind() != tag.Raw {
		return v
	}
	return tag.OfRaw(b)
}

// linkCore sets the references of all nodes of namespace 0: of each the forward ones, then the inverse ones.
func (v *view) linkCore(edges string, references int) bool {
	forward, inverse := make([]int32, len(v.coreNodes)), make([]int32, len(v.coreNodes))
	each := func(visit func(source, kind, target int)) bool {
		r := coreReader{s: edges}
		for i := range v.coreNodes {
			for n := r.uvarint(); n > 0 && !r.bad; n-- {
				kind, target := r.index(len(v.kinds)), r.index(len(v.coreNodes))
				visit(i, kind, target)
			}
		}
		return !r.bad && r.s == ""
	}
	if total := 0; !each(func(source, _, target int) {
		forward[source]++
		inverse[target]++
		total++
	}) || total != references {
		return false
	}
	slab := make([]link, 2*references)
	lists := make([]links, len(v.coreNodes))
	at := int32(0)
	for i := range lists {
		from, both := at, forward[i]+inverse[i]
		lists[i].all = slab[from : from+both : from+both]
		v.coreNodes[i].links.Store(&lists[i])
		forward[i], inverse[i] = from, from+forward[i]
		at += both
	}
	return each(func(source, kind, target int) {
		slab[forward[source]] = link{&v.coreNodes[target], uint16(kind), false}
		forward[source]++
		slab[inverse[target]] = link{&v.coreNodes[source], uint16(kind), true}
		inverse[target]++
		if kind == kindHasTypeDefinition {
			lists[source].definition = &v.coreNodes[target]
		}
	})
}
