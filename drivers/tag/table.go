package tag

import (
	"fmt"
	"iter"
)

// Table is an immutable snapshot of all tags, by Ref and by full name.
type Table struct {
	defs   []Def          // by Ref-1; a removed slot keeps its name and has live false
	live   []bool         // by Ref-1
	byName map[string]Ref // of every name that ever had a slot
	n      int
}

// Diff is what Apply changed.
type Diff struct {
	Added   []Ref // new, or returned to their old slot
	Removed []Ref
	Changed []Ref // kept their slot with another definition
}

// NewTable gives a slot to each definition, in order, starting with 1.
func NewTable(defs []Def) (*Table, error) {
	t, _, err := (&Table{}).Apply(defs)
	return t, err
}

// Apply returns the table for a new set of definitions and what differs. A name keeps its slot for good: when it is
// removed and comes back it has the same Ref. Two definitions of one full name are an error.
func (t *Table) Apply(next []Def) (*Table, Diff, error) {
	n := &Table{
		defs:   append([]Def(nil), t.defs...),
		live:   make([]bool, len(t.defs), len(t.defs)+len(next)),
		byName: make(map[string]Ref, len(t.byName)+len(next)),
	}
	for name, ref := range t.byName {
		n.byName[name] = ref
	}
	var diff Diff
	for _, d := range next {
		name := d.FullName()
		ref, known := n.byName[name]
		switch {
		case !known:
			n.defs = append(n.defs, d)
			n.live = append(n.live, true)
			ref = Ref(len(n.defs))
			n.byName[name] = ref
			diff.Added = append(diff.Added, ref)
		case n.live[ref-1]:
			return nil, Diff{}, fmt.Errorf("tag %s is defined twice", name)
		default:
			switch {
			case !t.live[ref-1]:
				diff.Added = append(diff.Added, ref)
			case n.defs[ref-1] != d:
				diff.Changed = append(diff.Changed, ref)
			}
			n.defs[ref-1] = d
			n.live[ref-1] = true
		}
		n.n++
	}
	for i, was := range t.live {
		if was && !n.live[i] {
			diff.Removed = append(diff.Removed, Ref(i+1))
		}
	}
	return n, diff, nil
}

// Lookup finds a tag by its full name.
func (t *Table) Lookup(fullName string) (Ref, bool) {
	ref, ok := t.byName[fullName]
	return ref, ok && t.live[ref-1]
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
