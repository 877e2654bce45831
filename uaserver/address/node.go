// Package address holds what clients walk: nodes, their references, browse paths and types, namespace 0 included.
// It hides how nodes are stored; their values come from NodeManagers.
package address

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// Node is one node of the address space (Part 3, 5). Everything but its references is set before the node is added to
// a Space, or before the Space is served, and is read only afterwards.
type Node struct {
	ID         wire.NodeID
	BrowseName string
	*Attributes
	// Ref is the tag behind a variable; 0: none.
	Ref tag.Ref
	// Token is the manager's own number for the node.
	Token uint32

	links atomic.Pointer[links] // its references; replaced by a Space as a whole
}

// Attributes are what a hundred thousand nodes may have in common, and then have once.
type Attributes struct {
	Class    ua.NodeClass
	BrowseNS uint16

	Abstract      bool  // types
	Symmetric     bool  // reference types
	Executable    bool  // methods
	EventNotifier uint8 // objects and views
	Historizing   bool
	Audit         bool               // its Value concerns security: it is read with MayAudit alone
	Access        ua.AccessLevelType // of anybody; a user's is this masked by his Rights

	live bool   // its Value, while null, is not an empty one but one that nobody supplies
	kind uint16 // of a reference type: its index in view.kinds
	Rank int32  // ValueRank: -1 scalar, 1 one dimension
	// Permissions are who may do what with it; zero: whoever may with nodes in general.
	Permissions Permissions
	More        *More // nil: nothing of it

	DataType    wire.NodeID // of variables and variable types
	MinSampling float64     // MinimumSamplingInterval in milliseconds; -1 not known, 0 continuous

	// Value is the value of a variable or variable type without a manager, and the DataTypeDefinition of a data type
	// (an encoded StructureDefinition or EnumDefinition).
	Value tag.Value
	// Manager supplies values; nil: Value. Managers are compared, so their types are comparable.
	Manager NodeManager
}

// More is what few nodes have, apart from the Attributes of all others.
type More struct {
	DisplayName string // empty: the BrowseName
	Description string
	InverseName string   // of reference types
	Dims        []uint32 // ArrayDimensions
}

var nothingMore More // read only

// more is a.More, or nothing of it.
func (a *Attributes) more() *More {
	if a.More == nil {
		return &nothingMore
	}
	return a.More
}

// DisplayName is the text of the DisplayName.
func (n *Node) DisplayName() string {
	if text := n.more().DisplayName; text != "" {
		return text
	}
	return n.BrowseName
}

// Description is the text of the Description, empty if there is none.
func (a *Attributes) Description() string { return a.more().Description }

// Dims is the ArrayDimensions, empty if they are not given. It is read only.
func (a *Attributes) Dims() []uint32 { return a.more().Dims }

// Same reports whether a node shows the same as another, their references aside.
func (n *Node) Same(o *Node) bool {
	return n.ID == o.ID && n.BrowseName == o.BrowseName && n.Ref == o.Ref && n.Token == o.Token &&
		(n.Attributes == o.Attributes || n.Attributes.same(o.Attributes))
}

func (a *Attributes) same(o *Attributes) bool {
	return a.more().same(o.more()) &&
		a.Class == o.Class && a.BrowseNS == o.BrowseNS && a.Abstract == o.Abstract && a.Symmetric == o.Symmetric &&
		a.Executable == o.Executable && a.EventNotifier == o.EventNotifier && a.Historizing == o.Historizing && a.Audit == o.Audit &&
		a.Access == o.Access && a.Rank == o.Rank && a.Permissions == o.Permissions && a.DataType == o.DataType &&
		a.MinSampling == o.MinSampling && a.Value.Equal(o.Value) && a.Manager == o.Manager
}

func (m *More) same(o *More) bool {
	return m.DisplayName == o.DisplayName && m.Description == o.Description && m.InverseName == o.InverseName &&
		slices.Equal(m.Dims, o.Dims)
}

// ReadItem is one attribute to read; it carries its result.
type ReadItem struct {
	Node      *Node
	Attribute ua.AttributeID
	Range     string        // IndexRange, "" is all
	MaxAge    time.Duration // of the call
	Result    wire.DataValue
}

// WriteItem is one attribute to write; it carries its result.
type WriteItem struct {
	Node      *Node
	Attribute ua.AttributeID
	Range     string // IndexRange, "" is all
	Value     wire.DataValue
	Status    tag.Status
}

// NodeManager supplies the values of nodes. It sees Value attributes alone, of its own nodes; class, access and rights
// have been checked. An item with a bad status has been answered and is left alone.
type NodeManager interface {
	// Read sets each item's Result, and applies its Range.
	Read(ctx context.Context, items []ReadItem)
	// Write sets each item's Status.
	Write(ctx context.Context, items []WriteItem)
	// Series is where a node's samples are kept; nil: it is sampled by reading.
	Series(n *Node) *Series
}
