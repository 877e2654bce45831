package client

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// Reading is one attribute of one node.
type Reading struct {
	Node      *ua.NodeID
	Attribute ua.AttributeID
	Value     any    // nil: none
	Type      string // of the value: a built-in type, with [] behind it for arrays
	Unit      string // engineering unit, where the node has one
	Status    ua.StatusCode
	Source    time.Time // when the device gave it; zero: not told
	Server    time.Time // when the server knew it
}

// attributeNames are the attributes by their numbers (Part 6, A.1).
var attributeNames = []string{
	"", "NodeId", "NodeClass", "BrowseName", "DisplayName", "Description", "WriteMask", "UserWriteMask", "IsAbstract", "Symmetric",
	"InverseName", "ContainsNoLoops", "EventNotifier", "Value", "DataType", "ValueRank", "ArrayDimensions", "AccessLevel",
	"UserAccessLevel", "MinimumSamplingInterval", "Historizing", "Executable", "UserExecutable", "DataTypeDefinition",
	"RolePermissions", "UserRolePermissions", "AccessRestrictions", "AccessLevelEx",
}

// AttributeName is the standard's name of an attribute.
func AttributeName(a ua.AttributeID) string {
	if a > 0 && int(a) < len(attributeNames) {
		return attributeNames[a]
	}
	return strconv.Itoa(int(a))
}

// Attributes reads the name or number of an attribute, or all. The error is a Mistake.
func Attributes(text string) ([]ua.AttributeID, error) {
	if strings.EqualFold(text, "all") {
		all := make([]ua.AttributeID, 0, len(attributeNames)-1)
		for i := range attributeNames[1:] {
			all = append(all, ua.AttributeID(i+1))
		}
		return all, nil
	}
	if n, err := strconv.ParseUint(text, 10, 32); err == nil && n > 0 {
		return []ua.AttributeID{ua.AttributeID(n)}, nil
	}
	if i := slices.IndexFunc(attributeNames, func(name string) bool { return strings.EqualFold(name, text) }); i > 0 {
		return []ua.AttributeID{ua.AttributeID(i)}, nil
	}
	return nil, mistake("--attribute %s: it is all or one of %s", text, strings.Join(attributeNames[1:], ", "))
}

// Read reads attributes of nodes: for each node all of them. Values come with their engineering unit.
func (c *Conn) Read(ctx context.Context, nodes []*ua.NodeID, attributes []ua.AttributeID) ([]Reading, error) {
	ids := make([]*ua.ReadValueID, 0, len(nodes)*len(attributes))
	for _, n := range nodes {
		for _, a := range attributes {
			ids = append(ids, &ua.ReadValueID{NodeID: n, AttributeID: a, DataEncoding: &ua.QualifiedName{}})
		}
	}
	out, err := c.read(ctx, ids)
	if err != nil {
		return nil, c.trouble(err)
	}
	if slices.Contains(attributes, ua.AttributeIDValue) {
		units := c.units(ctx, nodes)
		for i := range out {
			if out[i].Attribute == ua.AttributeIDValue {
				out[i].Unit = units[i/len(attributes)]
			}
		}
	}
	return out, nil
}

// attributes reads one attribute of each node.
func (c *Conn) attributes(ctx context.Context, nodes []*ua.NodeID, a ua.AttributeID) ([]Reading, error) {
	ids := make([]*ua.ReadValueID, len(nodes))
	for i, n := range nodes {
		ids[i] = &ua.ReadValueID{NodeID: n, AttributeID: a, DataEncoding: &ua.QualifiedName{}}
	}
	return c.read(ctx, ids)
}

func (c *Conn) read(ctx context.Context, ids []*ua.ReadValueID) ([]Reading, error) {
	out := make([]Reading, 0, len(ids))
	err := inBatches(len(ids), mostNodes, func(from, to int) error {
		req := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth, NodesToRead: ids[from:to]}
		r, err := call[*ua.ReadResponse](ctx, c, c.timeout, req)
		if err == nil {
			err = counts("Read", len(r.Results), to-from)
		}
		if err != nil {
			return err
		}
		for i, v := range r.Results {
			out = append(out, reading(ids[from+i], v))
		}
		return nil
	})
	return out, err
}

func reading(asked *ua.ReadValueID, v *ua.DataValue) Reading {
	r := Reading{Node: asked.NodeID, Attribute: asked.AttributeID}
	if v == nil {
		r.Status = ua.StatusBadUnexpectedError
		return r
	}
	r.Status, r.Source, r.Server = v.Status, v.SourceTimestamp, v.ServerTimestamp
	if v.Value != nil && v.Has(ua.DataValueValue) {
		r.Value, r.Type = v.Value.Value(), variantType(v.Value)
	}
	return r
}

func variantType(v *ua.Variant) string {
	if v.Type() == ua.TypeIDNull {
		return ""
	}
	return TypeName(v.Type()) + strings.Repeat("[]", ranks(v))
}

// ranks is how many dimensions a value has.
func ranks(v *ua.Variant) int {
	if !v.Has(ua.VariantArrayValues) {
		return 0
	}
	return max(1, len(v.ArrayDimensions()))
}

// units are the engineering units of nodes: the text of the property EngineeringUnits (Part 8, 5.6.4.3). A node without
// it, or a server that cannot say, gives "".
func (c *Conn) units(ctx context.Context, nodes []*ua.NodeID) []string {
	out := make([]string, len(nodes))
	property := &ua.RelativePath{Elements: []*ua.RelativePathElement{{
		ReferenceTypeID: ua.NewNumericNodeID(0, id.HasProperty), IncludeSubtypes: true,
		TargetName: &ua.QualifiedName{Name: "EngineeringUnits"},
	}}}
	var where []int
	var ids []*ua.NodeID
	err := inBatches(len(nodes), mostNodes, func(from, to int) error {
		var paths []*ua.BrowsePath
		for _, n := range nodes[from:to] {
			paths = append(paths, &ua.BrowsePath{StartingNode: n, RelativePath: property})
		}
		r, err := call[*ua.TranslateBrowsePathsToNodeIDsResponse](ctx, c, c.timeout, &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: paths})
		if err == nil {
			err = counts("TranslateBrowsePathsToNodeIds", len(r.Results), to-from)
		}
		if err != nil {
			return err
		}
		for i, result := range r.Results {
			if result != nil && result.StatusCode == ua.StatusOK && len(result.Targets) > 0 && result.Targets[0].TargetID != nil {
				where, ids = append(where, from+i), append(ids, ua.NewNodeIDFromExpandedNodeID(result.Targets[0].TargetID))
			}
		}
		return nil
	})
	if err != nil {
		return out
	}
	values, err := c.attributes(ctx, ids, ua.AttributeIDValue)
	if err != nil {
		return out
	}
	for i, v := range values {
		if o, ok := v.Value.(*ua.ExtensionObject); ok && o != nil {
			if eu, ok := o.Value.(*ua.EUInformation); ok && eu.DisplayName != nil {
				out[where[i]] = printable(eu.DisplayName.Text)
			}
		}
	}
	return out
}
