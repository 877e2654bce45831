// Package modbus is the driver of Modbus devices over TCP and serial lines.
// It hides which requests read which tags, how frames are told from noise, and how registers become values.
package modbus

import (
	"time"

	"edged/drivers/tag"
)

// Config is one device as the site file describes it.
type Config struct {
	Name         string        // of the device, for messages
	Unit         int           // 0 to 255
	MaxRegisters int           // how far one read may reach, in registers; 0: 125
	MaxBits      int           // how far one read of coils or discrete inputs may reach; 0: 2000
	Gaps         int           // how many unused registers or bits one read may bridge
	Holes        []string      // address ranges that are never touched: "holding:12-19"
	Together     [][]string    // names of tags that one request must read
	Poll         time.Duration // period of tags that give none; 0: 1 s
	Writes       string        // function codes of writes: "" or "auto", "single" (5, 6), "multiple" (15, 16)
	Tags         []Tag
}

// Tag is one tag as the site file describes it. Texts are as written there; empty is not given.
type Tag struct {
	Ref       tag.Ref // set before New; the checks do without it
	Name      string
	Address   string   // "holding:20", "coil:3", "holding:30.4", "40021"
	Type      string   // "int16", "float32", "string(8)", "uint16[4]"; default: bool for bits, uint16 for registers
	Order     string   // "ABCD"; default: as the standard has it
	Scale     string   // decimal
	Offset    string   // decimal
	Decimals  string   // whole number
	Sentinel  []string // decimal or 0x raw values that mean "not available"
	NaN       string   // "good" takes NaN as a value
	Access    tag.Access
	HasRange  bool
	Low, High float64 // limits of a write, in engineering units
	Poll      time.Duration
	Hold      time.Duration
	Verify    bool // reads back what was written
}

// FieldError is what is wrong with one key of the site file.
type FieldError struct {
	Field string // the key: "address", "type", "order", ...
	Msg   string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Msg }
