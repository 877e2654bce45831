// Package tagspace is the node manager of field tags: the one place that knows both a tag and its node.
// It hides how readings become the values of nodes, and how writes and reads of nodes reach devices.
package tagspace

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// Config is what a Space is made of. Table and Address have to be given.
type Config struct {
	Table   *tag.Table
	Address *address.Space
	Devices []Device // devices in the order of the site; those that are only in Table follow
	// State tells how a device is. It is called when somebody reads a device's state nodes; nil: there are none.
	State func(device string) DeviceState
	// Permissions tells who may do what with the node of a device, a folder or a tag; nil: the rights of each client do.
	Permissions func(name string) address.Permissions
	// Log keeps the history of tags that have it; nil: none is read.
	Log Log
	// Account is charged with the queues that clients have the values keep; nil: no limit.
	Account tag.Account
	// Refresh bounds one reading of tags at a reader's wish; 0: 5 s.
	Refresh time.Duration
}

// Device is what a device's object shows of it.
type Device struct {
	Name        string
	Description string
}

// Space is the plant as clients see it. It implements tag.Sink and address.NodeManager, and is safe for concurrent use.
type Space struct {
	cfg     Config
	field   tag.Field // set once, by Join
	born    tag.Time  // SourceTimestamp of what the site says of a tag
	refresh refreshes
	now     atomic.Pointer[view]

	properties [len(properties)]address.Attributes // read only

	mu      sync.Mutex // guards all below, and who replaces now; held for a whole Apply
	table   *tag.Table
	devices []Device
	permit  permit
	blocks  map[string]*address.Block // by device
	numbers map[string]uint32         // of devices, for good
}

// view is the tags and devices as they are applied. It is immutable, and replaced by Apply as a whole.
type view struct {
	table   *tag.Table
	cells   []*cell    // by Ref-1, of removed tags too
	devices []string   // names, by number in the Token of state nodes; empty: gone
	changed []tag.Time // when the references below each of them changed last
}

// slot is one tag: what the site says of it, and its values, which outlive that.
type slot struct {
	def *tag.Tag // nil: no such tag
	*cell
}

// cell is the values of all tags that ever have one name.
type cell struct {
	series address.Series // shut while no tag has the name: readings come from a device on its way out
}

// New adds the nodes of the tags and devices to the address space. Every tag starts as BadWaitingForInitialData.
func New(cfg Config) (*Space, error) {
	if cfg.Table == nil || cfg.Address == nil {
		return nil, errors.New("tagspace: a table of tags and an address space are needed")
	}
	if cfg.Refresh <= 0 {
		cfg.Refresh = 5 * time.Second
	}
	s := &Space{cfg: cfg, born: tag.Now(), blocks: map[string]*address.Block{}, numbers: map[string]uint32{}}
	s.permit = cfg.Permissions
	s.cfg.Table, s.cfg.Devices, s.cfg.Permissions = nil, nil, nil // as of now alone
	s.refresh.init()
	s.properties = s.propertyAttributes()
	s.now.Store(&view{table: &tag.Table{}, devices: []string{devicesID.Str}, changed: []tag.Time{s.born}}) // rootNumber
	root := s.root()
	if err := s.apply(address.Change{Add: root.nodes, References: root.refs}, cfg.Table, cfg.Devices, cfg.Permissions); err != nil {
		return nil, err
	}
	return s, nil
}

// Join tells who carries out writes. It is called once, before clients are served; until then writes are answered
// with BadNoCommunication.
func (s *Space) Join(field tag.Field) { s.field = field }

// Close ends the readings that are under way, and waits for them.
func (s *Space) Close() { s.refresh.close() }

// slot returns a tag's slot; its def is nil if there is no such tag.
func (s *Space) slot(ref tag.Ref) slot { return s.now.Load().slot(ref) }

func (v *view) slot(ref tag.Ref) slot {
	def := v.table.Tag(ref)
	if def == nil {
		return slot{}
	}
	return slot{def, v.cells[ref-1]}
}

// Publish implements tag.Sink. A reading with another value or status than the last one is a change, whose
// SourceTimestamp is when the device first answered so (Part 4, 7.11.3); an equal one verifies the last.
func (s *Space) Publish(batch []tag.Sample) {
	v := s.now.Load()
	for i := range batch {
		if sl := v.slot(batch[i].Ref); sl.def != nil {
			sl.publish(&batch[i])
		}
	}
}

// publish is called by the bus of the tag's device, and by Write for tags that cannot be read. It keeps nothing of v.
func (sl slot) publish(v *tag.Sample) {
	if v.Status.IsBad() && !v.Value.IsNull() {
		v = &tag.Sample{Ref: v.Ref, Status: v.Status, At: v.At} // nobody is to take its value for a reading
	}
	sl.series.Publish(v)
}

// Last is the newest reading of a tag and when it was verified; false if there is no such tag.
func (s *Space) Last(ref tag.Ref) (v tag.Sample, verified tag.Time, ok bool) {
	sl := s.slot(ref)
	if sl.def == nil {
		return v, 0, false
	}
	return sl.series.Last()
}

// Series implements address.NodeManager: properties and state nodes have none, they are sampled by reading.
func (s *Space) Series(n *address.Node) *address.Series {
	cells := s.now.Load().cells
	if n.Ref == 0 || n.Token != 0 || int(n.Ref) > len(cells) || cells[n.Ref-1] == nil {
		return nil
	}
	return &cells[n.Ref-1].series // also of a tag that went a moment ago: it may return
}

// Read implements address.NodeManager. It answers from memory, with the time of the last verification as
// ServerTimestamp; Stale tells whether that is too long ago. What lives in the gateway is verified by being read.
func (s *Space) Read(_ context.Context, items []address.ReadItem) {
	now, v := tag.Now(), s.now.Load()
	for i := range items {
		it := &items[i]
		if it.Result.Status.IsBad() {
			continue
		}
		switch sl := v.slot(it.Node.Ref); {
		case it.Node.Ref == 0:
			s.readState(it, now)
		case sl.def == nil:
			it.Result.Status, it.Result.Server = tag.BadNodeIDUnknown, now
		case it.Node.Token != 0:
			s.readProperty(it, sl, now)
		default:
			sl.series.Value(&it.Result)
			if sl.def.Memory {
				it.Result.Server = now
			}
		}
		if it.Range != "" && !it.Result.Status.IsBad() {
			cut(it)
		}
	}
}

// cut applies an item's IndexRange.
func cut(it *address.ReadItem) {
	r, err := address.ParseRange(it.Range)
	if err != nil {
		it.Result.Value, it.Result.Status = tag.Value{}, tag.BadIndexRangeInvalid
		return
	}
	v, status := address.ApplyRange(it.Result.Value, r)
	it.Result.Value = v
	if status.IsBad() {
		it.Result.Status = status
	}
}
