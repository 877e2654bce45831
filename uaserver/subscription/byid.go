package subscription

import "slices"

// byID is the Subscriptions of one client, in the order of their ids. Most clients have one or a few: a map of one costs
// 190 bytes, this 8.
type byID struct{ list []*Subscription }

// place is where the Subscription with that id is, or would be.
func (b *byID) place(id uint32) int {
	low, high := 0, len(b.list)
	for low < high {
		if mid := int(uint(low+high) / 2); b.list[mid].id < id {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// find is the Subscription with that id, or nil.
func (b *byID) find(id uint32) *Subscription {
	if i := b.place(id); i < len(b.list) && b.list[i].id == id {
		return b.list[i]
	}
	return nil
}

func (b *byID) add(s *Subscription) { b.list = slices.Insert(b.list, b.place(s.id), s) }

func (b *byID) remove(s *Subscription) {
	if b.find(s.id) == s {
		i := b.place(s.id)
		b.list = slices.Delete(b.list, i, i+1)
	}
}
