package tagspace

import (
	"fmt"
	"slices"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// Apply goes over to other tags and devices, while clients read, write, browse and are notified. Only the nodes that
// differ are touched, all of them in one change of the address space; ids depend on names alone, so none moves. An
// error has changed nothing.
//
// The values of a tag keep their Series for good, and so do the MonitoredItems on it. When the tag goes they get one
// BadNodeIdUnknown; when a tag of its name is there again, or its type changed, BadWaitingForInitialData and then its
// readings. Where the type changed, since the tag went too, they are told so with StructureChanged; where what a value
// means did, with SemanticsChanged, of a tag that stays with the value that is there (Part 4, 7.39.1; Part 8, 5.2). Other
// changes of a tag are no event. What a device still publishes for a tag that went, or in a tag's old type, is passed
// over.
//
// table is what Table.Apply made of the one before.
func (s *Space) Apply(table *tag.Table, devices []Device) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apply(address.Change{}, table, devices, s.permit)
}

// Permit goes over to other Permissions of all nodes (see Config), as Apply does. Sessions and MonitoredItems follow when
// they are told.
func (s *Space) Permit(permissions func(name string) address.Permissions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apply(address.Change{}, s.table, s.devices, permissions)
}

// apply adds what differs to a change and carries it out. Call it with mu held, or before others know the Space.
func (s *Space) apply(c address.Change, table *tag.Table, devices []Device, permit permit) error {
	was := s.now.Load()
	before := map[string]*group{}
	if s.table != nil {
		groups := byDevice(s.table, s.devices)
		for i := range groups {
			before[groups[i].Name] = &groups[i]
		}
	}
	e := edit{
		space: s, change: c, permit: permit, again: s.table == table, nodes: map[tag.Ref]*address.Node{},
		next: &view{table: table, cells: make([]*cell, table.Slots()), devices: slices.Clone(was.devices), changed: slices.Clone(was.changed)},
		now:  tag.Now(),
	}
	copy(e.next.cells, was.cells)
	for _, g := range byDevice(table, devices) {
		e.device(before[g.Name], &g)
		delete(before, g.Name)
	}
	for _, g := range before {
		e.remove(g)
	}
	s.now.Store(e.next) // new nodes find their values
	if err := s.cfg.Address.Apply(e.change); err != nil {
		s.now.Store(was)
		return fmt.Errorf("tagspace: %w", err)
	}
	e.tell()
	s.table, s.devices, s.permit = table, devices, permit
	return nil
}

// edit is a change of the plant in the making.
type edit struct {
	space  *Space
	change address.Change
	permit permit // from now on
	again  bool   // the table is the same: it is about permissions
	next   *view
	now    tag.Time
	nodes  map[tag.Ref]*address.Node // tags whose values are there, and that have another node now
	gone   []tag.Ref
	reborn []reborn
	turned []tag.Ref // tags whose values mean something else
}

// reborn is a tag that returned, or is of another type.
type reborn struct {
	ref     tag.Ref
	changed tag.Status // a bit of address.Changed, or 0
}

// device makes what differs between a device as it was, if it was there, and as it shall be.
func (e *edit) device(was, g *group) {
	number := e.number(g.Name)
	if was != nil && was.same(g) && !e.again {
		return
	}
	after := e.space.device(g.Device, number, g.tags, e.permit)
	var old part
	if was != nil {
		old = e.space.device(was.Device, number, was.tags, e.space.permit)
		if !e.again {
			e.removeTags(was)
		}
	}
	replaced, moved := diff(&e.change, &old, &after)
	if moved {
		e.next.changed[number] = e.now
	}
	if was == nil {
		e.next.changed[rootNumber] = e.now
	}
	e.tags(g, &after, replaced)
}

// tags gives new tags a cell, and notes what becomes of those that have one.
func (e *edit) tags(g *group, p *part, replaced map[wire.NodeID]bool) {
	block := e.space.block(g.Name)
	fresh := 0
	for _, t := range g.tags {
		if e.next.cells[t.ref-1] == nil {
			fresh++
		}
	}
	cells := make([]cell, fresh)
	for i, t := range g.tags {
		n := p.tags[i]
		if e.next.cells[t.ref-1] == nil {
			c := &cells[0]
			e.next.cells[t.ref-1], cells = c, cells[1:]
			c.series.Init(block, n)
			c.series.Open(t.def.Kind, tag.Sample{Ref: t.ref, Status: tag.BadWaitingForInitialData, At: e.now})
			continue
		}
		was := e.space.slot(t.ref)
		if was.def == nil || replaced[n.ID] {
			e.nodes[t.ref] = n
		}
		returned := was.def == nil
		if returned {
			was.def = e.space.table.Removed(t.ref)
		}
		changed := differs(was.def, t.def)
		switch {
		case returned || changed == address.StructureChanged:
			e.reborn = append(e.reborn, reborn{t.ref, changed})
		case changed == address.SemanticsChanged:
			e.turned = append(e.turned, t.ref)
		}
	}
}

// differs is what readers of a tag have to be told of its next definition, or 0.
func differs(was, next *tag.Tag) tag.Status {
	switch {
	case was == nil:
		return 0
	case was.Kind != next.Kind || was.Len != next.Len:
		return address.StructureChanged
	case !sameMeaning(was, next):
		return address.SemanticsChanged
	}
	return 0
}

// remove takes a device out.
func (e *edit) remove(g *group) {
	number := e.number(g.Name)
	e.next.devices[number], e.next.changed[rootNumber] = "", e.now
	old := e.space.device(g.Device, number, g.tags, e.space.permit)
	diff(&e.change, &old, &part{})
	e.removeTags(g)
}

// removeTags notes the tags of a device as it was that are not among those of the next table.
func (e *edit) removeTags(g *group) {
	for _, t := range g.tags {
		if e.next.table.Tag(t.ref) == nil {
			e.gone = append(e.gone, t.ref)
		}
	}
}

// number is what a device is called in the Token of its state nodes, for good.
func (e *edit) number(name string) uint32 {
	n, ok := e.space.numbers[name]
	if !ok {
		n = uint32(len(e.space.numbers)) + 1 // behind rootNumber
		e.space.numbers[name] = n
	}
	for int(n) >= len(e.next.devices) {
		e.next.devices, e.next.changed = append(e.next.devices, ""), append(e.next.changed, e.now)
	}
	e.next.devices[n] = name
	return n
}

// tell has the values follow what became of their tags.
func (e *edit) tell() {
	for ref, n := range e.nodes {
		e.next.cells[ref-1].series.Bind(n)
	}
	for _, ref := range e.gone {
		e.next.cells[ref-1].series.Shut(tag.Sample{Ref: ref, Status: tag.BadNodeIDUnknown, At: e.now})
	}
	for _, r := range e.reborn {
		sl := e.next.slot(r.ref)
		sl.series.Open(sl.def.Kind, tag.Sample{Ref: r.ref, Status: tag.BadWaitingForInitialData | r.changed, At: e.now})
	}
	for _, ref := range e.turned {
		e.next.cells[ref-1].series.Tell(address.SemanticsChanged)
	}
}

// same reports whether a device shows the same as another.
func (g *group) same(o *group) bool {
	return g.Device == o.Device && slices.EqualFunc(g.tags, o.tags, func(a, b entry) bool { return a.ref == b.ref && a.def.Same(b.def) })
}

// block is what the values of a device's tags belong to, because what is polled together changes together.
func (s *Space) block(device string) *address.Block {
	b := s.blocks[device]
	if b == nil {
		b = address.NewBlock(s.cfg.Account)
		s.blocks[device] = b
	}
	return b
}

// diff adds what makes one part of another to a change. It returns the ids of nodes that were there and are replaced,
// and whether there are other nodes or references than before.
func diff(c *address.Change, was, next *part) (replaced map[wire.NodeID]bool, moves bool) {
	if len(was.nodes) == 0 {
		c.Add, c.References = append(c.Add, next.nodes...), append(c.References, next.refs...)
		return nil, true
	}
	old := make(map[wire.NodeID]*address.Node, len(was.nodes))
	for _, n := range was.nodes {
		old[n.ID] = n
	}
	replaced = map[wire.NodeID]bool{}
	moved := map[wire.NodeID]bool{} // nodes whose references begin anew: those replaced, added and removed
	for _, n := range next.nodes {
		before := old[n.ID]
		delete(old, n.ID)
		if before != nil && before.Same(n) {
			continue
		}
		if moved[n.ID] = true; before != nil {
			replaced[n.ID] = true
			c.Remove = append(c.Remove, n.ID)
		}
		c.Add = append(c.Add, n)
	}
	for _, n := range was.nodes {
		if old[n.ID] != nil {
			moved[n.ID] = true
			c.Remove = append(c.Remove, n.ID)
		}
	}
	refs := make(map[address.Reference]bool, len(was.refs))
	for _, r := range was.refs {
		refs[r] = true
	}
	for _, r := range next.refs {
		moves = moves || !refs[r]
		if !refs[r] || moved[r.Source] || moved[r.Target] {
			c.References = append(c.References, r)
		}
		delete(refs, r)
	}
	moves = moves || len(refs) > 0
	for _, r := range was.refs {
		if refs[r] && !moved[r.Source] && !moved[r.Target] {
			c.Drop = append(c.Drop, r)
		}
	}
	return replaced, moves
}
