package sim

import (
	"encoding/binary"

	"edged/drivers/tag"
)

// Answer is one answer of a device, as it was before anything went wrong with its frame.
type Answer struct {
	Device   *Device
	At       tag.Time // when it was computed
	Function byte
	Bank     Bank
	Address  int // first
	Count    int // registers or bits
	// Data is what was read, or written: registers big-endian, bits eight a byte from the lowest on.
	Data  []byte
	Code  byte      // exception code; 0 is none
	Fault FaultKind // what went wrong with it; empty for nothing. Mute answers are not told.
}

// Register is the register at an address, if the answer to a read holds it.
func (a *Answer) Register(address int) (uint16, bool) {
	i := 2 * (address - a.Address)
	if a.Code != 0 || a.Bank < Input || i < 0 || i+2 > len(a.Data) {
		return 0, false
	}
	return binary.BigEndian.Uint16(a.Data[i:]), true
}

// Bit is the bit at an address, if the answer to a read holds it.
func (a *Answer) Bit(address int) (on, held bool) {
	i := address - a.Address
	if a.Code != 0 || a.Bank > Discrete || i < 0 || i >= a.Count || i/8 >= len(a.Data) {
		return false, false
	}
	return a.Data[i/8]>>(i%8)&1 != 0, true
}

// Write is one write that a device carried out.
type Write struct {
	At       tag.Time
	Function byte
	Bank     Bank
	Address  int
	Values   []uint16 // registers, or bits as 0 and 1; after a mask write: the register that it made
}

// maxWrites bounds the log of writes: older ones are dropped and counted.
const maxWrites = 4096

// Writes is what was written to the device, oldest first, and how many older ones are no longer kept.
func (d *Device) Writes() (writes []Write, dropped int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Write(nil), d.writes...), d.dropped
}

// logWrite remembers a write. d.mu is held.
func (d *Device) logWrite(r *request, bank Bank, at, end uint32, now tag.Time) {
	w := Write{At: now, Function: r.function, Bank: bank, Address: int(at), Values: make([]uint16, 0, end-at)}
	for ; at < end; at++ {
		w.Values = append(w.Values, *d.banks[bank].cell(at))
	}
	if len(d.writes) == maxWrites {
		n := copy(d.writes, d.writes[maxWrites/4:])
		d.writes = d.writes[:n]
		d.dropped += maxWrites / 4
	}
	d.writes = append(d.writes, w)
}
