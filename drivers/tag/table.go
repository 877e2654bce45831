package tag

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Table is an immutable snapshot of all tags, by Ref and by full name.
type Table struct {
	tags   []Tag  // by Ref-1; a removed slot keeps its name and has live false
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

// NewTable gives a slot to each definition, in order, starting with 1.
func NewTable(defs []Def) (*Table, error) {
	t, _, err := (&Table{}).Apply(defs)
	return t, err
}

// Apply returns the table for a new set of definitions and what differs. A name keeps its slot for good: when it is
// removed and comes back it has the same Ref. Two definitions of one full name are an error.
func (t *Table) Apply(next []Def) (*Table, Diff, error) {
	n := &Table{tags: slices.Clone(t.tags), live: make([]bool, len(t.tags)), byName: t.byName, n: len(next)}
	if len(t.tags) == 0 {
		n.tags, n.live = make([]Tag, 0, len(next)), make([]bool, 0, len(next))
	}
	var diff Diff
	if err := n.merge(t, next, &diff); err != nil {
		return nil, Diff{}, err
	}
	if len(n.tags) > len(t.tags) {
		n.byName = make([]Ref, len(n.tags))
		for i := copy(n.byName, t.byName); i < len(n.tags); i++ {
			n.byName[i] = Ref(i + 1)
		}
		slices.SortFunc(n.byName, func(a, b Ref) int { return strings.Compare(n.tags[a-1].full, n.tags[b-1].full) })
	}
	for i := 1; i < len(n.byName); i++ {
		if full := n.tags[n.byName[i]-1].full; n.tags[n.byName[i-1]-1].full == full {
			return nil, Diff{}, twice(full)
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
	s := sharing{defs: map[Def]*Def{}}
	for i := range next {
		d := s.tag(&next[i])
		ref := t.slot(d.full)
		switch {
		case ref == 0:
			n.tags, n.live = append(n.tags, d), append(n.live, true)
			diff.Added = append(diff.Added, Ref(len(n.tags)))
			continue
		case n.live[ref-1]:
			return twice(d.full)
		case !t.live[ref-1]:
			diff.Added = append(diff.Added, ref)
		case !n.tags[ref-1].Same(&d):
			diff.Changed = append(diff.Changed, ref)
		}
		d.full = n.tags[ref-1].full // others hold it
		n.tags[ref-1], n.live[ref-1] = d, true
	}
	return nil
}

func twice(full string) error { return fmt.Errorf("tag %s is defined twice", full) }

// sharing makes tags of definitions, with one Def for those that differ in name and place alone.
type sharing struct {
	defs map[Def]*Def
	last *Def // which is that of the next tag too where a site repeats one
}

func (s *sharing) tag(d *Def) Tag {
	t := Tag{full: d.FullName(), place: d.Place}
	rest := *d
	rest.Name, rest.Place = "", 0
	if s.last == nil || *s.last != rest {
		same := s.defs[rest]
		if same == nil {
			same = new(Def)
			*same = rest
			s.defs[rest] = same
		}
		s.last = same
	}
	t.Def = s.last
	return t
}

// slot is the slot of a full name, live or not; 0 if it never had one.
func (t *Table) slot(fullName string) Ref {
	i, ok := slices.BinarySearchFunc(t.byName, fullName, func(ref Ref, name string) int {
		return strings.Compare(t.tags[ref-1].full, name)
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

// Tag returns a tag, or nil if ref has none. It is read only.
func (t *Table) Tag(ref Ref) *Tag {
	if ref == 0 || int(ref) > len(t.tags) || !t.live[ref-1] {
		return nil
	}
	return &t.tags[ref-1]
}

// Removed is a tag as it was before it was removed, or nil. It is read only.
func (t *Table) Removed(ref Ref) *Tag {
	if ref == 0 || int(ref) > len(t.tags) || t.live[ref-1] {
		return nil
	}
	return &t.tags[ref-1]
}

// Slots is the highest Ref that was ever given; refs index slices of this length by Ref-1.
func (t *Table) Slots() int { return len(t.tags) }

// Len is the number of tags.
func (t *Table) Len() int { return t.n }

// All yields the tags by Ref.
func (t *Table) All() iter.Seq2[Ref, *Tag] {
	return func(yield func(Ref, *Tag) bool) {
		for i := range t.tags {
			if t.live[i] && !yield(Ref(i+1), &t.tags[i]) {
				return
			}
		}
	}
}
