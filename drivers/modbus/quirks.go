package modbus

import "time"

// Quirks are what a device does otherwise than the standard has it. The zero Quirks are none.
type Quirks struct {
	PauseBetween  time.Duration // silence before each request to the device
	PauseConnect  time.Duration // between a connect and the first request
	CloseAfter    bool          // the connection is closed after each poll
	Reconnect     bool          // the connection is made anew after a request that was not answered
	OneRequest    bool          // one request a tag
	BitsFromZero  bool          // reads of coils and discrete inputs begin at 0
	HighBitFirst  bool          // the first coil of each byte is its most significant bit
	HighBitZero   bool          // bit 0 of a register is the most significant one
	StringBytes   string        // "": two characters a register; "high", "low": one, in this byte
	StringSwapped bool          // texts without an order of their own are BADC
	StringFill    string        // "": texts end with NUL; "space": they are filled with spaces
	Writes        string        // function codes of writes: "auto", "single", "multiple" or "both"
	NoMask        bool          // bits of registers are written by reading and writing, not by function 22
	Busy          []int         // exception codes that ask for patience, as 5 and 6 do
	NoIdentity    bool          // the device is not asked what it is
	AnyID         bool          // answers have no or other transaction ids
	AnyUnit       bool          // answers name another unit
	AnyCount      bool          // answers to reads have another byte count than they have bytes
	AnyAnswer     bool          // answers to writes do not repeat what was written
	Echo          bool          // the request comes back before the answer
	CRCSwapped    bool          // the check sum's high byte comes first
}

// The values of Quirks.StringBytes, Quirks.StringFill and Writes.
const (
	bytesHigh      = "high"
	bytesLow       = "low"
	fillSpace      = "space"
	writesSingle   = "single"
	writesMultiple = "multiple"
	writesBoth     = "both"
)

// busy reports whether an exception code asks for patience.
func (q *Quirks) busy(code byte) bool {
	for _, b := range q.Busy {
		if byte(b) == code {
			return true
		}
	}
	return false
}
