package store

import (
	"encoding/binary"

	"edged/drivers/tag"
)

// Reason is why history has a gap.
type Reason uint8

// The reasons.
const (
	Restart   Reason = 1 + iota // the gateway did not run
	DiskFull                    // there was no space for history
	DiskSlow                    // the disk took nothing for so long that the backlog was full, or it failed
	ClockSet                    // the clock was set: forward, so that no reading has a time in between, or back, so that the time is there twice
	Damaged                     // a part of a file cannot be read any more
	NotStored                   // history was switched off
)

// reasons are their names and the status that a reading has by which a gap is told.
var reasons = [...]struct {
	name   string
	status tag.Status
}{
	{"unknown", badDataLost},
	Restart:   {"restart", tag.BadShutdown},
	DiskFull:  {"disk full", tag.BadResourceUnavailable},
	DiskSlow:  {"disk too slow", badDataLost},
	ClockSet:  {"clock set", badInvalidTimestamp},
	Damaged:   {"file damaged", badDataUnavailable},
	NotStored: {"not stored", tag.BadOutOfService},
}

const (
	badInvalidTimestamp tag.Status = 0x80230000
	badDataLost         tag.Status = 0x809D0000
	badDataUnavailable  tag.Status = 0x809E0000
)

// String is the reason for a person.
func (r Reason) String() string { return reasons[r.known()].name }

// Status is what a reading in history has where a gap of the reason begins; its value is null.
func (r Reason) Status() tag.Status { return reasons[r.known()].status }

func (r Reason) known() Reason {
	if int(r) >= len(reasons) {
		return 0
	}
	return r
}

// Gap is a time of which history has no readings, of no tag, though there may have been some.
type Gap struct {
	From, To tag.Time // To is zero while it lasts
	Reason   Reason
	slots    uint32 // tags that there were then
}

func (g Gap) append(dst []byte) []byte {
	dst = binary.AppendVarint(dst, int64(g.From))
	dst = binary.AppendVarint(dst, int64(g.To))
	dst = append(dst, byte(g.Reason))
	return binary.AppendUvarint(dst, uint64(g.slots))
}

func (f *fields) gap() Gap {
	return Gap{tag.Time(f.varint()), tag.Time(f.varint()), Reason(f.byte()), uint32(f.uvarint())}
}
