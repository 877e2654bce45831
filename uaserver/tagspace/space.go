// Package tagspace is the node manager of field tags: the one place that knows both a tag and its node.
// It hides how readings become the values of nodes, and how writes and reads of nodes reach devices.
package tagspace

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	slots   []slot    // by Ref-1
	devices []string  // names, by number in the Token of state nodes
	born    tag.Time  // SourceTimestamp of what the site says of a tag
	refresh refreshes
}

// slot is one tag.
type slot struct {
	def    *tag.Def // nil: no such tag
	series *address.Series

	mu sync.Mutex // held from comparing a reading with the last one to appending it
}

// New adds the nodes of the tags and devices to the address space. Every tag starts as BadWaitingForInitialData.
func New(cfg Config) (*Space, error) {
	if cfg.Table == nil || cfg.Address == nil {
		return nil, errors.New("tagspace: a table of tags and an address space are needed")
	}
	if cfg.Refresh <= 0 {
		cfg.Refresh = 5 * time.Second
	}
	s := &Space{cfg: cfg, slots: make([]slot, cfg.Table.Slots()), born: tag.Now()}
	s.refresh.init()
	parts := []part{s.root()}
	for _, group := range byDevice(&cfg) {
		p := s.device(group.Device, uint32(len(s.devices)), group.tags)
		s.devices = append(s.devices, group.Name)
		block := address.NewBlock(cfg.Account) // what is polled together changes together
		for i, t := range group.tags {
			sl := &s.slots[t.ref-1]
			sl.def, sl.series = t.def, block.New(p.tags[i])
			sl.series.Append(tag.Sample{Ref: t.ref, Status: tag.BadWaitingForInitialData, At: s.born})
		}
		parts = append(parts, p)
	}
	if err := cfg.Address.Apply(change(parts)); err != nil {
		return nil, fmt.Errorf("tagspace: %w", err)
	}
	return s, nil
}

// Join tells who carries out writes. It is called once, before clients are served; until then writes are answered
// with BadNoCommunication.
func (s *Space) Join(field tag.Field) { s.field = field }

// Close ends the readings that are under way, and waits for them.
func (s *Space) Close() { s.refresh.close() }

// slot returns a tag's slot, or nil.
func (s *Space) slot(ref tag.Ref) *slot {
	if ref == 0 || int(ref) > len(s.slots) || s.slots[ref-1].def == nil {
		return nil
	}
	return &s.slots[ref-1]
}

// Publish implements tag.Sink. A reading with another value or status than the last one is a change, whose
// SourceTimestamp is when the device first answered so (Part 4, 7.11.3); an equal one verifies the last.
func (s *Space) Publish(batch []tag.Sample) {
	for i := range batch {
		if sl := s.slot(batch[i].Ref); sl != nil {
			sl.publish(batch[i])
		}
	}
}

// publish is called by the bus of the tag's device, and by Write for tags that cannot be read.
func (sl *slot) publish(v tag.Sample) {
	if v.Status.IsBad() {
		v.Value = tag.Value{} // nobody is to take it for a reading
	}
	sl.mu.Lock()
	defer sl.mu.Unlock()
	last, _, ok := sl.series.Last()
	if ok && last.Status == v.Status && last.Value.Equal(v.Value) {
		sl.series.Verify(v.At)
		return
	}
	sl.series.Append(v)
}

// Last is the newest reading of a tag and when it was verified; false if there is no such tag.
func (s *Space) Last(ref tag.Ref) (v tag.Sample, verified tag.Time, ok bool) {
	sl := s.slot(ref)
	if sl == nil {
		return v, 0, false
	}
	return sl.series.Last()
}

// Series implements address.NodeManager: properties and state nodes have none, they are sampled by reading.
func (s *Space) Series(n *address.Node) *address.Series {
	if sl := s.slot(n.Ref); sl != nil && n.Token == 0 {
		return sl.series
	}
	return nil
}

// Read implements address.NodeManager. It answers from memory, with the time of the last verification as
// ServerTimestamp; Stale tells whether that is too long ago. What lives in the gateway is verified by being read.
func (s *Space) Read(_ context.Context, items []address.ReadItem) {
	now := tag.Now()
	for i := range items {
		it := &items[i]
		if it.Result.Status.IsBad() {
			continue
		}
		switch sl := s.slot(it.Node.Ref); {
		case it.Node.Ref == 0:
			s.readState(it, now)
		case sl == nil:
			it.Result.Status, it.Result.Server = tag.BadNodeIDUnknown, now
		case it.Node.Token != 0:
			s.readProperty(it, sl, now)
		default:
			last, verified, _ := sl.series.Last()
			it.Result.Value, it.Result.Status = last.Value, last.Status
			it.Result.Source, it.Result.Server = last.At, verified
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
