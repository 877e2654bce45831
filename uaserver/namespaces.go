package uaserver

import (
	"fmt"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// describeNamespaces adds a NamespaceMetadata object for each namespace of the space but the standard's own, which has
// one (Part 5, 6.3.13 and 6.3.14). None of their ids is the same in every server.
func describeNamespaces(space *address.Space, version string) error {
	for i, uri := range space.Namespaces() {
		if i == address.NamespaceUA {
			continue
		}
		nodes, refs := namespaceMetadata(uint16(i), uri, version)
		if err := space.Add(nodes, refs); err != nil {
			return fmt.Errorf("uaserver: metadata of namespace %s: %w", uri, err)
		}
	}
	return nil
}

// namespaceMetadata makes the nodes. Their ids are texts in the server's own namespace.
func namespaceMetadata(index uint16, uri, version string) (nodes []*address.Node, refs []address.Reference) {
	object := wire.TextID(address.NamespaceApplication, "namespaces/"+uri)
	link := func(from wire.NodeID, kind uint32, to wire.NodeID) {
		refs = append(refs, address.Reference{Source: from, Type: wire.NumericID(0, kind), Target: to})
	}
	nodes = append(nodes, &address.Node{
		ID: object, BrowseName: uri, Attributes: &address.Attributes{Class: ua.NodeClassObject, BrowseNS: index},
	})
	link(wire.NumericID(0, id.Server_Namespaces), id.HasComponent, object)
	link(object, id.HasTypeDefinition, wire.NumericID(0, id.NamespaceMetadataType))
	for _, p := range []struct {
		name     string
		dataType uint32
		rank     int32
		value    tag.Value
	}{
		{"NamespaceUri", id.String, -1, tag.Of(uri)},
		{"NamespaceVersion", id.String, -1, tag.Of(version)},
		{"NamespacePublicationDate", id.DateTime, -1, tag.Of(tag.Time(0))}, // not known
		{"IsNamespaceSubset", id.Boolean, -1, tag.Of(false)},
		{"StaticNodeIdTypes", id.IDType, 1, tag.OfSlice([]int32{})},
		{"StaticNumericNodeIdRange", id.NumericRange, 1, tag.OfSlice([]string{})},
		{"StaticStringNodeIdPattern", id.String, -1, tag.Of("")},
	} {
		n := &address.Node{
			ID: wire.TextID(address.NamespaceApplication, object.Str+"/"+p.name), BrowseName: p.name, Attributes: &address.Attributes{
				Class: ua.NodeClassVariable, DataType: wire.NumericID(0, p.dataType), Rank: p.rank,
				Access: ua.AccessLevelTypeCurrentRead, Value: p.value,
			},
		}
		nodes = append(nodes, n)
		link(object, id.HasProperty, n.ID)
		link(n.ID, id.HasTypeDefinition, wire.NumericID(0, id.PropertyType))
	}
	return nodes, refs
}
