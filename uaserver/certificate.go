package uaserver

import (
	"context"
	"fmt"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/pki"
	"edged/uaserver/wire"
)

// certificateNodes is the NodeManager of what is told of the own certificate (field report C9).
type certificateNodes struct{ own func() *pki.Own }

// describeCertificate adds, below VendorServerInfo (Part 5, 6.3.1), for how many days the own certificate is valid: below 0
// once it has ended.
func describeCertificate(space *address.Space, own func() *pki.Own) error {
	object := wire.TextID(address.NamespaceApplication, "certificate")
	days := &address.Node{
		ID: wire.TextID(address.NamespaceApplication, "certificate.daysLeft"), BrowseName: "daysLeft",
		Attributes: &address.Attributes{
			Class: ua.NodeClassVariable, BrowseNS: address.NamespaceApplication, DataType: wire.NumericID(0, id.Int32), Rank: -1,
			Access: ua.AccessLevelTypeCurrentRead, Manager: certificateNodes{own},
		},
	}
	link := func(from wire.NodeID, kind uint32, to wire.NodeID) address.Reference {
		return address.Reference{Source: from, Type: wire.NumericID(0, kind), Target: to}
	}
	err := space.Add([]*address.Node{
		{ID: object, BrowseName: "certificate", Attributes: &address.Attributes{Class: ua.NodeClassObject, BrowseNS: address.NamespaceApplication}},
		days,
	}, []address.Reference{
		link(wire.NumericID(0, id.Server_VendorServerInfo), id.HasComponent, object),
		link(object, id.HasTypeDefinition, wire.NumericID(0, id.BaseObjectType)),
		link(object, id.HasComponent, days.ID),
		link(days.ID, id.HasTypeDefinition, wire.NumericID(0, id.BaseDataVariableType)),
	})
	if err != nil {
		return fmt.Errorf("uaserver: nodes of the own certificate: %w", err)
	}
	return nil
}

// Read implements address.NodeManager.
func (c certificateNodes) Read(_ context.Context, items []address.ReadItem) {
	now := tag.Now()
	for i := range items {
		r := &items[i].Result
		switch {
		case r.Status.IsBad():
		case items[i].Range != "": // of a number there are no parts (Part 4, 7.27)
			r.Status, r.Server = tag.BadIndexRangeNoData, now
		default:
			r.Value, r.Source, r.Server = tag.Of(int32(c.own().DaysLeft(time.Now()))), now, now
		}
	}
}

// Write implements address.NodeManager: nothing of a certificate can be written.
func (certificateNodes) Write(_ context.Context, items []address.WriteItem) {
	for i := range items {
		items[i].Status = tag.BadNotWritable
	}
}

// Series implements address.NodeManager.
func (certificateNodes) Series(*address.Node) *address.Series { return nil }
