package subscription

import (
	"encoding/binary"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// piece is how many samples are taken from a Series at a time, so that a message's bytes are looked at in between.
const piece = 64

// fill appends the notifications of a message: DataChangeNotification and EventNotificationList, of which the first one
// may fill the message alone; they take turns to be it.
func (s *Subscription) fill(dst []byte, limit int) ([]byte, int) {
	for i := range s.blocks {
		s.blocks[i].now = s.blocks[i].block.Changes()
	}
	f := filler{s: s, room: s.room, limit: limit}
	if s.evented == 0 {
		var full bool
		dst, full = f.data(dst)
		s.more = full && s.waits()
	} else {
		dst = f.both(dst)
		s.more = s.waits()
	}
	if !s.more {
		s.settle()
	}
	s.oldest = f.oldest
	return dst, f.n
}

// data appends the DataChangeNotification of a message (Part 4, 7.25.2), and reports whether the message is full.
func (f *filler) data(dst []byte) (_ []byte, full bool) {
	s, before := f.s, f.n
	dst, body := openExtension(dst, id.DataChangeNotification_Encoding_DefaultBinary)
	count := len(dst)
	dst = wire.AppendUint32(dst, 0)
	n := len(s.items)
	if int(s.resume) >= n {
		s.resume = 0
	}
	slot := int(s.resume)
	for range n {
		it := &s.items[slot]
		if it.flags&reports != 0 && !(it.flags&owned != 0 && s.owns[it.cursor].how == evented) {
			if it.flags&owned != 0 {
				dst, full = f.own(dst, it)
			} else if it.series.Head() != it.cursor {
				dst, full = f.plain(dst, it, uint32(slot))
			}
			if it.flags&triggered != 0 && !s.hasNews(it) {
				it.flags &^= triggered
			}
			if full {
				break
			}
		}
		if slot++; slot == n {
			slot = 0
		}
	}
	s.resume = int32(slot)
	binary.LittleEndian.PutUint32(dst[count:], uint32(f.n-before))
	dst = wire.AppendNull(dst) // DiagnosticInfos
	return closeExtension(dst, body), full
}

// filler is the state of one message being filled.
type filler struct {
	s      *Subscription
	n      int // notifications in it
	room   int
	limit  int
	oldest tag.Time // change, but for initial values
	bodies [][]byte // of events
	buf    [piece]tag.Sample
}

// plain appends what an item's cursor has not passed, and reports whether the message is full.
func (f *filler) plain(dst []byte, it *item, slot uint32) ([]byte, bool) {
	set := &f.s.settings.list[it.set].settings
	for {
		if f.n >= f.room {
			return dst, true
		}
		cursor, flags := it.cursor, it.flags
		got, lost := it.series.Take(&it.cursor, int(set.queue), min(piece, f.room-f.n), f.buf[:0])
		if len(got) == 0 {
			return dst, false
		}
		if lost > 0 && set.queue > 1 {
			it.flags |= gapped
		}
		n := 0
		server := got[0].At
		if it.flags&fresh != 0 {
			server = knownAt(it.series, &got[0])
			got[0].Status &^= address.Changed // nothing was sent before
		}
		for n < len(got) {
			if it.flags&gapped != 0 {
				got[n].Status |= overflow
			}
			var fits bool
			if dst, fits = f.add(dst, it.handle, &got[n], server, set.times); !fits {
				break
			}
			it.flags &^= gapped
			if n++; n < len(got) {
				server = got[n].At
			}
		}
		if n == 0 { // all is taken again, with what was lost
			it.cursor, it.flags = cursor, flags
			return dst, true
		}
		it.cursor -= uint64(len(got) - n) // what did not fit is taken again
		f.s.lost(slot, lost, int(set.queue))
		f.change(it, got[0].At)
		switch {
		case n < len(got):
			return dst, true
		case n < piece && f.n < f.room && it.series.Head() == it.cursor:
			return dst, false
		}
	}
}

// knownAt is the ServerTimestamp of a sample that may be of any age, as an initial value is: when the Series was last
// verified, if it is still the last one. Any other sample has the time when it came, which is when the server knew it
// to be accurate (Part 4, 7.11.4).
func knownAt(s *address.Series, v *tag.Sample) tag.Time {
	last, verified, ok := s.Last()
	if !ok || last.At != v.At {
		return v.At
	}
	return max(v.At, verified)
}

// own appends what an item's own queue has.
func (f *filler) own(dst []byte, it *item) ([]byte, bool) {
	o := f.s.owns[it.cursor]
	set := &f.s.settings.list[it.set].settings
	for o.count > 0 {
		if f.n >= f.room {
			return dst, true
		}
		v := o.at(0)
		var fits bool
		if dst, fits = f.add(dst, it.handle, &v.Sample, v.server, set.times); !fits {
			return dst, true
		}
		f.change(it, v.At)
		o.Sent++
		o.pop()
	}
	o.recent = 0
	return dst, false
}

// add appends a notification if the message's bytes allow it. A value that would fill more than a message alone is
// replaced by BadEncodingLimitsExceeded: the client hears why it is missing.
func (f *filler) add(dst []byte, handle uint32, v *tag.Sample, server tag.Time, times uint8) ([]byte, bool) {
	at := len(dst)
	dst = appendNotification(dst, handle, v, server, times)
	if len(dst) > f.limit {
		if f.n > 0 {
			return dst[:at], false
		}
		x := tag.Sample{Status: tag.Status(ua.StatusBadEncodingLimitsExceeded) | v.Status&(overflow|address.Changed), At: v.At}
		dst = appendNotification(dst[:at], handle, &x, server, times)
	}
	f.n++
	return dst, true
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
