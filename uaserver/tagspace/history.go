package tagspace

import (
	"context"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// Log is where the history of tags is kept: store.Store is one. Read appends samples to dst, at most limit, and returns the
// key of what follows.
type Log interface {
	Read(ref tag.Ref, from, to time.Time, after []byte, limit int, dst []tag.Sample) ([]tag.Sample, []byte, error)
	// Oldest is a time before which there is no history; zero: there is none at all. It asks no disk.
	Oldest() tag.Time
}

// keeps reports whether a tag has history that is read.
func (s *Space) keeps(def *tag.Def) bool { return def.History && s.cfg.Log != nil }

// ReadHistory implements address.Historian.
func (s *Space) ReadHistory(_ context.Context, q address.HistoryQuery) (page address.HistoryPage, err error) {
	from, to := q.From.Time(), q.To.Time()
	if q.To == 0 {
		to = time.Time{} // the beginning
	}
	page.Samples, page.Next, err = s.cfg.Log.Read(q.Node.Ref, from, to, q.After, q.Limit, q.Room)
	return page, err
}

// historyID is the HistoricalDataConfiguration of all tags that have history: they are recorded alike. Values are recorded
// when they change, so between two of them the earlier one holds: whatever its type, a tag is Stepped.
var historyID = wire.TextID(plant, "$history")

const historyDefinition = "Changes of value and status, as they were read; a number that moved by no more than the tag's deadband is no change. " +
	"A Bad status without a value begins a time of which nothing could be read or recorded."

// history adds that object (Part 11, 5.2.2) with its AggregateConfiguration (Part 13, 4.2.1.2).
func (p *part) history(s *Space) {
	aggregate := wire.TextID(plant, historyID.Str+".AggregateConfiguration")
	object := func(node wire.NodeID, name string, definition uint32) {
		p.nodes = append(p.nodes, &address.Node{ID: node, BrowseName: name, Attributes: &address.Attributes{Class: ua.NodeClassObject}})
		p.link(node, id.HasTypeDefinition, wire.NumericID(0, definition))
	}
	object(historyID, "HA Configuration", id.HistoricalDataConfigurationType)
	object(aggregate, "AggregateConfiguration", id.AggregateConfigurationType)
	p.link(historyID, id.HasComponent, aggregate)
	for _, v := range []struct {
		of       wire.NodeID
		name     string
		dataType uint32
		value    tag.Value // null: when history begins
	}{
		{historyID, "Stepped", id.Boolean, tag.Of(true)},
		{historyID, "Definition", id.String, tag.Of(historyDefinition)},
		{historyID, "StartOfArchive", id.UtcTime, tag.Value{}},
		{historyID, "StartOfOnlineArchive", id.UtcTime, tag.Value{}},
		{aggregate, "TreatUncertainAsBad", id.Boolean, tag.Of(false)},
		{aggregate, "PercentDataBad", id.Byte, tag.Of(uint8(100))},
		{aggregate, "PercentDataGood", id.Byte, tag.Of(uint8(100))},
		{aggregate, "UseSlopedExtrapolation", id.Boolean, tag.Of(false)},
	} {
		n := &address.Node{
			ID: wire.TextID(plant, v.of.Str+"."+v.name), BrowseName: v.name, Attributes: &address.Attributes{
				Class: ua.NodeClassVariable, DataType: wire.NumericID(0, v.dataType), Rank: -1, Access: ua.AccessLevelTypeCurrentRead, Value: v.value,
			},
		}
		if v.value.IsNull() {
			n.Manager = beginning{s}
		}
		p.node(n, v.of, id.HasProperty, id.PropertyType)
	}
}

// beginning tells when history begins.
type beginning struct{ s *Space }

// Read implements address.NodeManager.
func (b beginning) Read(_ context.Context, items []address.ReadItem) {
	now := tag.Now()
	at := b.s.cfg.Log.Oldest()
	for i := range items {
		it := &items[i]
		if it.Result.Status.IsBad() {
			continue
		}
		it.Result = wire.DataValue{Value: tag.Of(at), Source: now, Server: now}
		if it.Range != "" {
			it.Result.Status, it.Result.Value = tag.BadIndexRangeNoData, tag.Value{}
		}
	}
}

// Write implements address.NodeManager.
func (beginning) Write(_ context.Context, items []address.WriteItem) {
	for i := range items {
		items[i].Status = tag.BadNotWritable
	}
}

// Series implements address.NodeManager.
func (beginning) Series(*address.Node) *address.Series { return nil }
