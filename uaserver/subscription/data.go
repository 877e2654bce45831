package subscription

import (
	"encoding/binary"

	"github.com/gopcua/opcua/id"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// piece is how many samples are taken from a Series at a time, so that a message's bytes are looked at in between.
const piece = 64

// fill appends the DataChangeNotification of a message (Part 4, 7.25.2).
func (s *Subscription) fill(dst []byte, limit int) ([]byte, int) {
	for i := range s.blocks {
		s.blocks[i].now = s.blocks[i].block.Changes()
	}
	dst, body := openExtension(dst, id.DataChangeNotification_Encoding_DefaultBinary)
	count := len(dst)
	dst = wire.AppendUint32(dst, 0)
	f := filler{s: s, room: s.room, limit: limit}
	full := false
	n := len(s.items)
	if s.resume >= n {
		s.resume = 0
	}
	slot := s.resume
	for range n {
		it := &s.items[slot]
		if it.flags&reporting != 0 {
			if it.flags&owned != 0 {
				dst, full = f.own(dst, it)
			} else if it.series.Head() != it.cursor {
				dst, full = f.plain(dst, it, uint32(slot))
			}
			if full {
				break
			}
		}
		if slot++; slot == n {
			slot = 0
		}
	}
	s.resume = slot
	s.more = full && s.waits()
	if !s.more {
		s.settle()
	}
	s.oldest = f.oldest
	binary.LittleEndian.PutUint32(dst[count:], uint32(f.n))
	dst = wire.AppendNull(dst) // DiagnosticInfos
	return closeExtension(dst, body), f.n
}

// filler is the state of one message being filled.
type filler struct {
	s      *Subscription
	n      int // notifications in it
	room   int
	limit  int
	oldest tag.Time // change, but for initial values
	buf    [piece]tag.Sample
}

// plain appends what an item's cursor has not passed, and reports whether the message is full.
func (f *filler) plain(dst []byte, it *item, slot uint32) ([]byte, bool) {
	set := &f.s.settings.list[it.set]
	for {
		if f.n >= f.room || len(dst) >= f.limit {
			return dst, true
		}
		got, lost := it.series.Take(&it.cursor, int(set.queue), min(piece, f.room-f.n), f.buf[:0])
		if len(got) == 0 {
			return dst, false
		}
		if (lost > 0 || it.flags&gapped != 0) && set.queue > 1 {
			got[0].Status |= overflow
		}
		it.flags &^= gapped
		f.s.takenFrom(slot, uint64(len(got)), lost, int(set.queue))
		for i := range got {
			dst = appendNotification(dst, it.handle, &got[i], got[i].At, set.times)
		}
		f.n += len(got)
		f.change(it, got[0].At)
		if len(got) < piece && f.n < f.room && it.series.Head() == it.cursor {
			return dst, false
		}
	}
}

// own appends what an item's own queue has.
func (f *filler) own(dst []byte, it *item) ([]byte, bool) {
	o := f.s.owns[it.cursor]
	set := &f.s.settings.list[it.set]
	for o.count > 0 {
		if f.n >= f.room || len(dst) >= f.limit {
			return dst, true
		}
		v := o.pop()
		dst = appendNotification(dst, it.handle, &v.Sample, v.server, set.times)
		f.n++
		f.change(it, v.At)
	}
	return dst, false
}

// change notes when an item's oldest change in the message was. Its initial value may be of any age.
func (f *filler) change(it *item, at tag.Time) {
	if it.flags&fresh != 0 {
		it.flags &^= fresh
		return
	}
	if f.oldest == 0 || at < f.oldest && at != 0 {
		f.oldest = at
	}
}
