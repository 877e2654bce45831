package address

import "hash/maphash"

// byText finds the nodes of a namespace by the texts of their ids. A map has the id too, which the node has already, and
// takes 35 bytes a node, where this takes 12 to 24. It is immutable once it is in a view.
type byText struct {
	nodes []*Node // an open hash table, with linear probing; its length is a power of two
	marks []uint8 // of the hashes, so that few other nodes are looked at; 0: the place is free
	n     int
}

var textSeed = maphash.MakeSeed()

// place is where the search for a text begins, and its mark.
func (t *byText) place(text string) (at uint64, mark uint8) {
	h := maphash.String(textSeed, text)
	return h & uint64(len(t.nodes)-1), uint8(h>>56) | 1
}

// find returns the node of a text, or nil.
func (t *byText) find(text string) *Node {
	if t == nil || t.n == 0 {
		return nil
	}
	at, mark := t.place(text)
	for ; t.marks[at] != 0; at = (at + 1) & uint64(len(t.nodes)-1) {
		if t.marks[at] == mark && t.nodes[at].ID.Str == text {
			return t.nodes[at]
		}
	}
	return nil
}

// grow makes room for so many nodes more. Four of five places are taken at most.
func (t *byText) grow(more int) {
	size := max(8, len(t.nodes))
	for size/5*4 < t.n+more {
		size *= 2
	}
	if size == len(t.nodes) {
		return
	}
	was := t.nodes
	t.nodes, t.marks = make([]*Node, size), make([]uint8, size)
	for _, n := range was {
		if n != nil {
			t.put(n)
		}
	}
}

// put enters a node whose text is not there. There has to be room for it.
func (t *byText) put(n *Node) {
	at, mark := t.place(n.ID.Str)
	for t.marks[at] != 0 {
		at = (at + 1) & uint64(len(t.nodes)-1)
	}
	t.nodes[at], t.marks[at] = n, mark
}

// add enters a node whose text is not there.
func (t *byText) add(n *Node) {
	t.grow(1)
	t.put(n)
	t.n++
}

// remove takes a text out, if it is there. Those behind it move up, so that no search ends before them.
func (t *byText) remove(text string) {
	if t.find(text) == nil {
		return
	}
	mask := uint64(len(t.nodes) - 1)
	gap, _ := t.place(text)
	for t.marks[gap] == 0 || t.nodes[gap].ID.Str != text {
		gap = (gap + 1) & mask
	}
	for at := (gap + 1) & mask; t.marks[at] != 0; at = (at + 1) & mask {
		first, _ := t.place(t.nodes[at].ID.Str)
		if (at-first)&mask < (at-gap)&mask {
			continue // its search begins behind the gap
		}
		t.nodes[gap], t.marks[gap] = t.nodes[at], t.marks[at]
		gap = at
	}
	t.nodes[gap], t.marks[gap] = nil, 0
	t.n--
}

// clone returns a copy.
func (t *byText) clone() *byText {
	c := &byText{}
	if t != nil {
		*c = byText{append([]*Node(nil), t.nodes...), append([]uint8(nil), t.marks...), t.n}
	}
	return c
}
