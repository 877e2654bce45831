package tag

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Table is an immutable snapshot of all tags, by Ref and by full name.
type Table struct {
	defs   []Def  // by Ref-1; a removed slot keeps its name and has live false
	live   []bool // by Ref-1
	byName []Ref  // of every name that ever had a slot, in the order of the full names
	n      int
}

// Diff is what Apply changed.
type Diff struct {
	Added   []Ref // new, or returned to their old slot
	Removed []Ref
	Changed []Ref // kept their slot with another definition
}

// NewTable gives a slot to each definition, in order, starting with 1. It keeps defs.
func NewTable(defs []Def) (*Table, error) {
	t, _, err := (&Table{}).Apply(defs)
	return t, err
}

// Apply returns the table for a new set of definitions and what differs. A name keeps its slot for good: when it is
// removed and comes back it has the same Ref. Two definitions of one full name are an error. The new table may keep
// next, which is read only from now on.
func (t *Table) Apply(next []Def) (*Table, Diff, error) {
	n := &Table{byName: slices.Clone(t.byName), n: len(next)}
	var diff Diff
	if len(t.defs) == 0 {
		n.defs, n.live = next, slices.Repeat([]bool{true}, len(next))
		for i := range next {
			diff.Added = append(diff.Added, Ref(i+1))
		}
	} else if err := n.merge(t, next, &diff); err != nil {
		return nil, Diff{}, err
	}
	for i := len(t.defs); i < len(n.defs); i++ {
		n.byName = append(n.byName, Ref(i+1))
	}
	slices.SortFunc(n.byName, func(a, b Ref) int { return n.defs[a-1].compare(&n.defs[b-1]) })
	for i := 1; i < len(n.byName); i++ {
		if d := &n.defs[n.byName[i]-1]; n.defs[n.byName[i-1]-1].compare(d) == 0 {
			return nil, Diff{}, twice(d)
		}
	}
	for i, was := range t.live {
		if was && !n.live[i] {
			diff.Removed = append(diff.Removed, Ref(i+1))
		}
	}
	return n, diff, nil
}

// merge gives the definitions their old slots, or new ones behind those of t.
func (n *Table) merge(t *Table, next []Def, diff *Diff) error {
	n.defs = slices.Clone(t.defs)
	n.live = make([]bool, len(t.defs), len(t.defs)+len(next))
	for i := range next {
		d := &next[i]
		ref := t.slot(d.FullName())
		switch {
		case ref == 0:
			n.defs = append(n.defs, *d)
			n.live = append(n.live, true)
			diff.Added = append(diff.Added, Ref(len(n.defs)))
			continue
		case n.live[ref-1]:
			return twice(d)
		case !t.live[ref-1]:
			diff.Added = append(diff.Added, ref)
		case n.defs[ref-1] != *d:
			diff.Changed = append(diff.Changed, ref)
		}
		n.defs[ref-1], n.live[ref-1] = *d, true
	}
	return nil
}

func twice(d *Def) error { return fmt.Errorf("tag %s is defined twice", d.FullName()) }

// compare orders definitions by their full names.
func (d *Def) compare(o *Def) int {
	if d.Device == o.Device {
		return strings.Compare(d.Name, o.Name)
	}
	return d.compareName(o.FullName())
}

// compareName compares the full name with another, without making it.
func (d *Def) compareName(full string) int {
	device := full[:min(len(full), len(d.Device))]
	if c := strings.Compare(d.Device, device); c != 0 || len(full) == len(device) {
		return cmp.Or(c, 1)
	}
	if c := cmp.Compare('.', full[len(device)]); c != 0 {
		return c
	}
	return strings.Compare(d.Name, full[len(device)+1:])
}

// slot is the slot of a full name, live or not; 0 if it never had one.
func (t *Table) slot(fullName string) Ref {
	i, ok := slices.BinarySearchFunc(t.byName, fullName, func(ref Ref, name string) int {
		return t.defs[ref-1].compareName(name)
	})
	if !ok {
		return 0
	}
	return t.byName[i]
}

// Lookup finds a tag by its full name.
func (t *Table) Lookup(fullName string) (Ref, bool) {
	ref := t.slot(fullName)
	return ref, ref != 0 && t.live[ref-1]
}

// Def returns a tag's definition, or nil if ref has none. It is read only.
func (t *Table) Def(ref Ref) *Def {
	if ref == 0 || int(ref) > len(t.defs) || !t.live[ref-1] {
		return nil
	}
	return &t.defs[ref-1]
}

// Slots is the highest Ref that was ever given; refs index slices of this length by Ref-1.
func (t *Table) Slots() int { return len(t.defs) }

// Len is the number of tags.
func (t *Table) Len() int { return t.n }

// All yields the tags by Ref.
func (t *Table) All() iter.Seq2[Ref, *Def] {
	return func(yield func(Ref, *Def) bool) {
		for i := range t.defs {
			if t.live[i] && !yield(Ref(i+1), &t.defs[i]) {
				return
			}
		}
	}
}
