package main

import (
	"context"
	"sync"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/cmd/edged/dashboard"
	"edged/drivers/tag"
	"edged/store"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// storeMetrics are what the web page, the metrics and the nodes tell of the store.
var storeMetrics = []struct {
	name, description string
	counter           bool
	value             func(s *store.Stats) float64
}{
	{"store_up", "1 while the disk takes what is to be kept.", false, func(s *store.Stats) float64 { return truth(s.Fault == nil) }},
	{"store_full", "1 while history is stopped for lack of space.", false, func(s *store.Stats) float64 { return truth(s.Full) }},
	{"store_samples_total", "Samples recorded in history.", true, func(s *store.Stats) float64 { return float64(s.Samples) }},
	{"store_dropped_total", "Samples that history lacks because the disk was full or too slow.", true, func(s *store.Stats) float64 { return float64(s.Dropped) }},
	{"store_commits_total", "Commits.", true, func(s *store.Stats) float64 { return float64(s.Commits) }},
	{"store_commit_errors_total", "Commits that failed.", true, func(s *store.Stats) float64 { return float64(s.CommitErrors) }},
	{"store_commit_seconds", "Time of the last commit.", false, func(s *store.Stats) float64 { return s.CommitTime.Seconds() }},
	{"store_backlog_bytes", "Bytes of history that are in memory and the log alone.", false, func(s *store.Stats) float64 { return float64(s.Backlog) }},
	{"store_size_bytes", "Size of the history files.", false, func(s *store.Stats) float64 { return float64(s.Size) }},
	{"store_files", "History files.", false, func(s *store.Stats) float64 { return float64(s.Files) }},
	{"store_free_bytes", "Bytes that the disk has left.", false, func(s *store.Stats) float64 { return float64(s.Free) }},
	{"store_durable_subscriptions", "Durable subscriptions.", false, func(s *store.Stats) float64 { return float64(s.Durable) }},
	{"store_written_bytes_total", "Bytes written since the store was begun.", true, func(s *store.Stats) float64 { return float64(s.Written) }},
	{"store_history_bytes_total", "Bytes written since the start: batches of history.", true, func(s *store.Stats) float64 { return float64(s.WrittenFor["history"]) }},
	{"store_fold_bytes_total", "Bytes written since the start: history files.", true, func(s *store.Stats) float64 { return float64(s.WrittenFor["fold"]) }},
	{"store_last_bytes_total", "Bytes written since the start: last values and retained tags.", true, func(s *store.Stats) float64 { return float64(s.WrittenFor["last"]) }},
	{"store_durable_bytes_total", "Bytes written since the start: durable subscriptions.", true, func(s *store.Stats) float64 { return float64(s.WrittenFor["durable"]) }},
	{"store_names_bytes_total", "Bytes written since the start: names of tags.", true, func(s *store.Stats) float64 { return float64(s.WrittenFor["names"]) }},
	{"store_written_bytes_per_day", "Bytes written in the last 24 hours of running; in the first, at the present rate.", false, func(s *store.Stats) float64 { return float64(s.Day) }},
	{"store_endurance_bytes", "Bytes that the disk is rated to take: a thousand times its size.", false, func(s *store.Stats) float64 { return float64(s.Endurance) }},
	{"store_life_years", "How long the disk lasts at this rate; 0 is not known yet.", false, func(s *store.Stats) float64 { return s.Years }},
}

// Store implements dashboard.Source.
func (g *gateway) Store() []dashboard.Metric {
	st := g.recorder.stats()
	out := make([]dashboard.Metric, len(storeMetrics))
	for i, m := range storeMetrics {
		out[i] = dashboard.Metric{Name: m.name, Help: m.description, Counter: m.counter, Value: m.value(&st)}
	}
	return out
}

// storeNodes is the NodeManager of the store's object, whose variables are named as the metrics are; the last is the text
// of what is wrong.
type storeNodes struct {
	stats func() store.Stats

	mu   sync.Mutex // guards the fields below
	snap store.Stats
	at   time.Time // of snap
}

// addStoreNodes adds the object below VendorServerInfo (Part 5, 6.3.1).
func addStoreNodes(space *address.Space, stats func() store.Stats) error {
	n := &storeNodes{stats: stats}
	object := wire.TextID(address.NamespaceApplication, "store")
	c := address.Change{Add: []*address.Node{{ID: object, BrowseName: "store", Attributes: &address.Attributes{
		Class: ua.NodeClassObject, BrowseNS: address.NamespaceApplication,
	}}}}
	c = linked(c, wire.NumericID(0, id.Server_VendorServerInfo), object, id.BaseObjectType)
	add := func(token int, name, description string, kind uint32) {
		v := &address.Node{
			ID: wire.TextID(address.NamespaceApplication, "store."+name), BrowseName: name, Token: uint32(token),
			Attributes: &address.Attributes{
				Class: ua.NodeClassVariable, BrowseNS: address.NamespaceApplication, More: &address.More{Description: description},
				DataType: wire.NumericID(0, kind), Rank: -1, Access: ua.AccessLevelTypeCurrentRead, Manager: n,
			},
		}
		c.Add = append(c.Add, v)
		c = linked(c, object, v.ID, id.BaseDataVariableType)
	}
	for i, m := range storeMetrics {
		add(i+1, "edged_"+m.name, m.description, id.Double)
	}
	add(len(storeMetrics)+1, "fault", "Why nothing is kept, or why history has a gap now; empty: all is well.", id.String)
	return space.Apply(c)
}

// Read implements address.NodeManager.
func (n *storeNodes) Read(_ context.Context, items []address.ReadItem) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) >= snapLife {
		n.snap, n.at = n.stats(), time.Now()
	}
	now := tag.Now()
	for i := range items {
		r, token := &items[i].Result, int(items[i].Node.Token)
		if r.Status.IsBad() {
			continue
		}
		r.Source, r.Server = now, now
		switch {
		case items[i].Range != "": // of a number there are no parts (Part 4, 7.27)
			r.Status = tag.BadIndexRangeNoData
		case token > len(storeMetrics):
			r.Value = tag.Of(storeFault(&n.snap))
		default:
			r.Value = tag.Of(storeMetrics[token-1].value(&n.snap))
		}
	}
}

// storeFault is what is wrong, for a person.
func storeFault(s *store.Stats) string {
	switch {
	case s.Fault != nil:
		return s.Fault.Error()
	case s.Gap != 0:
		return "history has a gap: " + s.Gap.String()
	}
	return ""
}

// Write implements address.NodeManager: nothing of the store can be written.
func (n *storeNodes) Write(_ context.Context, items []address.WriteItem) {
	for i := range items {
		items[i].Status = tag.BadNotWritable
	}
}

// Series implements address.NodeManager.
func (n *storeNodes) Series(*address.Node) *address.Series { return nil }
