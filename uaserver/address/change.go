package address

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/wire"
)

// Change is a set of changes that readers see at once: the way to reload a plant without a moment in which half of it
// is there. Removals come first, so that an id may be removed and added anew.
type Change struct {
	Remove     []wire.NodeID // with every reference to and from them
	Drop       []Reference   // references to remove
	Add        []*Node
	References []Reference // each once, forward
}

// Add adds nodes and references; see Apply.
func (s *Space) Add(nodes []*Node, refs []Reference) error {
	return s.Apply(Change{Add: nodes, References: refs})
}

// AddReference adds one reference; see Apply.
func (s *Space) AddReference(r Reference) error { return s.Apply(Change{References: []Reference{r}}) }

// Remove removes nodes with every reference to and from them; see Apply.
func (s *Space) Remove(ids ...wire.NodeID) error { return s.Apply(Change{Remove: ids}) }

// Apply carries out a change, or nothing of it: an error names the first node or reference that does not fit (known
// already, unknown, nameless, of no class). A node belongs to one Space, and an object or a variable gets its
// HasTypeDefinition in the Change that adds it. The cost is that of copying the maps of the namespaces touched:
// changes are to be collected, not made one by one.
func (s *Space) Apply(c Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := edit{old: s.now.Load(), touched: make(map[*Node]*links), removed: make(map[*Node]bool),
		returning: make(map[wire.NodeID]*Node), places: make(map[place]int)}
	e.next = *e.old
	e.next.serial++
	if err := e.apply(&c); err != nil {
		return err
	}
	e.commit(s, c.Add)
	return nil
}

// edit is a change in the making. Nothing of it is visible before commit.
type edit struct {
	old     *view
	next    view
	owned   ownedMaps
	touched map[*Node]*links // new references, by node
	removed map[*Node]bool
	types   bool // the reference types or their tree changed
	// returning are the nodes that were removed and whose ids are added anew, by id. In the lists of others the references
	// to them keep their places, so that a node that changed is where it was for whoever browses.
	returning map[wire.NodeID]*Node
	places    map[place]int // of those references, in the lists of touched
}

// place is a reference to a node that returns.
type place struct {
	of *Node // whose list it is in
	link
}

// ownedMaps tells which of the next view's maps are copies already.
type ownedMaps struct {
	core, numbers, texts, others, kinds bool
	text                                map[uint16]bool
}

func (e *edit) apply(c *Change) error {
	for _, id := range c.Remove {
		if err := e.removeNode(id); err != nil {
			return err
		}
	}
	for _, n := range c.Add {
		if old := e.old.stored(n.ID); old != nil && e.removed[old] {
			e.returning[n.ID] = old
		}
	}
	e.sweep()
	for _, r := range c.Drop {
		if err := e.dropReference(r); err != nil {
			return err
		}
	}
	e.mark()
	for _, n := range c.Add {
		if err := e.addNode(n); err != nil {
			return err
		}
	}
	for _, r := range c.References {
		if err := e.addReference(r); err != nil {
			return err
		}
	}
	e.close()
	return nil
}

// commit makes the change visible: first the new nodes, which nobody can have found yet, last the references of those
// that are walked already.
func (e *edit) commit(s *Space, added []*Node) {
	shared := make(map[pairOfLinks]*links)
	for _, n := range added {
		l := share(shared, e.linksOf(n))
		e.touched[n] = l
		n.links.Store(l)
	}
	if e.types {
		e.next.subtypes = subtypeSets(e.next.kinds, func(n *Node) *links {
			if l := e.touched[n]; l != nil {
				return l
			}
			return n.links.Load()
		})
	}
	next := e.next
	s.now.Store(&next)
	for n, l := range e.touched {
		if !e.removed[n] {
			n.links.Store(l)
		}
	}
}

// pairOfLinks is the references of a node that has two, as most have: to their type and to their parent.
type pairOfLinks [2]link

// share returns links like l that another node has already, or l. The variables of one folder have the same: their
// references cost nothing but a pointer.
func share(shared map[pairOfLinks]*links, l *links) *links {
	if len(l.all) != 2 {
		l.all = slices.Clone(l.all) // without the room for more that it grew with
		return l
	}
	key := pairOfLinks(l.all)
	if same := shared[key]; same != nil {
		return same
	}
	shared[key] = l
	return l
}

// linksOf returns the references of n for changing.
func (e *edit) linksOf(n *Node) *links {
	if l := e.touched[n]; l != nil {
		return l
	}
	l := &links{}
	if was := n.links.Load(); was != nil {
		l.all, l.definition = slices.Clone(was.all), was.definition
	}
	e.touched[n] = l
	return l
}

func (e *edit) removeNode(id wire.NodeID) error {
	n := e.next.stored(id)
	if n == nil {
		return fmt.Errorf("node %s: unknown, so it cannot be removed", id)
	}
	if n.Class == ua.NodeClassReferenceType {
		return fmt.Errorf("node %s: a reference type stays, references may be of it", id)
	}
	e.unmap(id)
	e.next.count--
	e.removed[n] = true
	return nil
}

// sweep takes the references to removed nodes out of all others.
func (e *edit) sweep() {
	for n := range e.removed {
		l := n.links.Load()
		if l == nil {
			continue
		}
		for i := range l.all {
			other := l.all[i].target
			if e.removed[other] || e.touched[other] != nil {
				continue
			}
			o := e.linksOf(other)
			o.all = slices.DeleteFunc(o.all, func(k link) bool { return e.removed[k.target] && e.returning[k.target.ID] != k.target })
		}
	}
}

// mark notes where the references to nodes that return are.
func (e *edit) mark() {
	if len(e.returning) == 0 {
		return
	}
	for n, l := range e.touched {
		for i, k := range l.all {
			if e.removed[k.target] {
				e.places[place{n, k}] = i
			}
		}
	}
}

// put adds a reference to the list of a node: in the place of the one to the node that had the target's id before, if
// there was one.
func (e *edit) put(n *Node, l *links, k link) {
	if old := e.returning[k.target.ID]; old != nil {
		at := place{n, link{old, k.kind, k.inverse}}
		if i, ok := e.places[at]; ok {
			delete(e.places, at)
			l.all[i] = k
			return
		}
	}
	l.all = append(l.all, k)
}

// close takes out the references to nodes that returned without them.
func (e *edit) close() {
	left := map[*Node]bool{}
	for at := range e.places {
		left[at.of] = true
	}
	for n := range left {
		l := e.touched[n]
		l.all = slices.DeleteFunc(l.all, func(k link) bool { return e.removed[k.target] })
	}
}

func (e *edit) addNode(n *Node) error {
	switch {
	case n.ID.IsNull():
		return fmt.Errorf("node %q: has no id", n.BrowseName)
	case int(n.ID.NS) >= len(e.next.namespaces):
		return fmt.Errorf("node %s: namespace %d is not in the NamespaceArray", n.ID, n.ID.NS)
	case n.Attributes == nil:
		return fmt.Errorf("node %s: has no attributes", n.ID)
	case n.BrowseName == "":
		return fmt.Errorf("node %s: has no BrowseName", n.ID)
	case bits.OnesCount32(uint32(n.Class)) != 1 || uint32(n.Class) > everyClass:
		return fmt.Errorf("node %s: node class %d is none of the eight", n.ID, n.Class)
	case e.next.find(n.ID) != nil:
		return fmt.Errorf("node %s: is there already", n.ID)
	case n.links.Load() != nil:
		return fmt.Errorf("node %s: was added once before; make a new Node", n.ID)
	}
	e.enter(n)
	e.next.count++
	if n.Class == ua.NodeClassReferenceType {
		if len(e.next.kinds) > 0xFFFF {
			return fmt.Errorf("node %s: one reference type too many", n.ID)
		}
		if !e.owned.kinds {
			e.next.kinds, e.owned.kinds = slices.Clone(e.next.kinds), true
		}
		own := *n.Attributes
		own.kind = uint16(len(e.next.kinds))
		n.Attributes = &own
		e.next.kinds = append(e.next.kinds, n)
		e.types = true
	}
	return nil
}

// ends finds what a reference names.
func (e *edit) ends(r Reference) (source, target *Node, kind uint16, err error) {
	if source = e.next.stored(r.Source); source == nil {
		return nil, nil, 0, fmt.Errorf("reference %s to %s: its source is unknown", r.Source, r.Target)
	}
	if target = e.next.stored(r.Target); target == nil {
		return nil, nil, 0, fmt.Errorf("reference %s to %s: its target is unknown", r.Source, r.Target)
	}
	kind, ok := e.next.kindOf(r.Type)
	if !ok {
		return nil, nil, 0, fmt.Errorf("reference %s to %s: %s is no reference type", r.Source, r.Target, r.Type)
	}
	return source, target, kind, nil
}

func (e *edit) addReference(r Reference) error {
	source, target, kind, err := e.ends(r)
	if err != nil {
		return err
	}
	from, to := e.linksOf(source), &links{}
	if kind != kindHasTypeDefinition {
		to = e.linksOf(target)
	}
	// The shorter list of the two tells whether the reference is there: a folder of many thousands is not searched.
	list, same := from.all, link{target, kind, false}
	if len(to.all) < len(list) && kind != kindHasTypeDefinition {
		list, same = to.all, link{source, kind, true}
	}
	if slices.Contains(list, same) {
		return fmt.Errorf("reference %s to %s: is there already", r.Source, r.Target)
	}
	if kind == kindHasTypeDefinition {
		if from.definition != nil {
			return fmt.Errorf("node %s: has a type definition already", r.Source)
		}
		from.definition = target
	}
	e.put(source, from, link{target, kind, false})
	if kind != kindHasTypeDefinition { // no list of all instances: nobody walks it, and each change would copy it
		e.put(target, to, link{source, kind, true})
	}
	e.types = e.types || kind == kindHasSubtype && source.Class == ua.NodeClassReferenceType
	return nil
}

func (e *edit) dropReference(r Reference) error {
	source, target, kind, err := e.ends(r)
	if err != nil {
		return err
	}
	from, to := e.linksOf(source), e.linksOf(target)
	i := slices.Index(from.all, link{target, kind, false})
	if i < 0 {
		return fmt.Errorf("reference %s to %s: is not there", r.Source, r.Target)
	}
	from.all = slices.Delete(from.all, i, i+1)
	if j := slices.Index(to.all, link{source, kind, true}); j >= 0 { // a type does not list its instances
		to.all = slices.Delete(to.all, j, j+1)
	}
	if kind == kindHasTypeDefinition {
		from.definition = nil
	}
	e.types = e.types || kind == kindHasSubtype && source.Class == ua.NodeClassReferenceType
	return nil
}

// enter puts a node into the next view's maps.
func (e *edit) enter(n *Node) {
	v := &e.next
	switch n.ID.Type {
	case wire.Numeric:
		e.ownNumbers()
		v.numbers[uint64(n.ID.NS)<<32|uint64(n.ID.Num)] = n
	case wire.Text:
		e.ownText(n.ID.NS)
		v.texts[n.ID.NS].add(n)
	default:
		e.ownOthers()
		v.others[n.ID] = n
	}
}

// unmap takes an id out of the next view's maps.
func (e *edit) unmap(id wire.NodeID) {
	v := &e.next
	switch id.Type {
	case wire.Numeric:
		if id.NS == 0 && uint64(id.Num) < uint64(len(v.core)) && v.core[id.Num] != 0 {
			if !e.owned.core {
				v.core, e.owned.core = slices.Clone(v.core), true
			}
			v.core[id.Num] = 0
			return
		}
		e.ownNumbers()
		delete(v.numbers, uint64(id.NS)<<32|uint64(id.Num))
	case wire.Text:
		e.ownText(id.NS)
		v.texts[id.NS].remove(id.Str)
	default:
		e.ownOthers()
		delete(v.others, id)
	}
}

func (e *edit) ownNumbers() {
	if !e.owned.numbers {
		e.next.numbers, e.owned.numbers = cloneMap(e.next.numbers), true
	}
}

func (e *edit) ownOthers() {
	if !e.owned.others {
		e.next.others, e.owned.others = cloneMap(e.next.others), true
	}
}

func (e *edit) ownText(ns uint16) {
	v := &e.next
	if !e.owned.texts {
		v.texts, e.owned.texts = slices.Clone(v.texts), true
		e.owned.text = make(map[uint16]bool)
	}
	for int(ns) >= len(v.texts) {
		v.texts = append(v.texts, nil)
	}
	if !e.owned.text[ns] {
		v.texts[ns], e.owned.text[ns] = v.texts[ns].clone(), true
	}
}

func cloneMap[K comparable](m map[K]*Node) map[K]*Node {
	if m == nil {
		return make(map[K]*Node)
	}
	return maps.Clone(m)
}
