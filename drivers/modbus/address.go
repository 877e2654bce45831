package modbus

import (
	"fmt"
	"strconv"
	"strings"
)

// Table is one of a device's four tables (Application Protocol, 4.3).
type Table uint8

// The tables.
const (
	Coils Table = iota
	Discrete
	Input
	Holding
)

var tableNames = [...]string{"coil", "discrete", "input", "holding"}

// String is the table's name in an address.
func (t Table) String() string { return tableNames[t] }

// Bits reports whether the table holds bits, not registers.
func (t Table) Bits() bool { return t == Coils || t == Discrete }

// Writable reports whether the protocol can write the table.
func (t Table) Writable() bool { return t == Coils || t == Holding }

// Address is where a value begins.
type Address struct {
	Table  Table
	Number int // zero-based, as on the wire
	Bit    int // of a register, 0 is the least significant; -1: the whole register
}

// String is the address in the zero-based notation.
func (a Address) String() string {
	s := a.Table.String() + ":" + strconv.Itoa(a.Number)
	if a.Bit >= 0 {
		s += "." + strconv.Itoa(a.Bit)
	}
	return s
}

const (
	lastAddress  = 65535
	registerBits = 16
)

const notations = `write coil:N, discrete:N, input:N or holding:N with N from 0, or the five- or six-digit form from 1 (40001 is holding:0)`

// ParseAddress reads both notations: "holding:20" with a zero-based number, and Modicon's one-based five or six digits,
// of which the first names the table. What could be meant in two ways is refused.
func ParseAddress(text string) (Address, error) {
	name, rest, colon := strings.Cut(text, ":")
	if !colon {
		return parseModicon(text)
	}
	for t, n := range tableNames {
		if n == name {
			return parseNumber(text, Table(t), rest, 0)
		}
	}
	return Address{}, fmt.Errorf("%q: table %q is not known: %s", text, name, notations)
}

var modiconTables = map[byte]Table{'0': Coils, '1': Discrete, '3': Input, '4': Holding}

func parseModicon(text string) (Address, error) {
	digits, _, _ := strings.Cut(text, ".")
	if _, err := strconv.ParseUint(digits, 10, 32); err != nil {
		return Address{}, fmt.Errorf("%q is not an address: %s", text, notations)
	}
	if len(digits) != 5 && len(digits) != 6 {
		return Address{}, fmt.Errorf("%q is ambiguous: with %d digits it names no table; %s", text, len(digits), notations)
	}
	table, ok := modiconTables[digits[0]]
	if !ok {
		return Address{}, fmt.Errorf("%q: a first digit of %c names no table (0 coil, 1 discrete, 3 input, 4 holding)", text, digits[0])
	}
	return parseNumber(text, table, text[1:], 1)
}

// parseNumber reads NUMBER or NUMBER.BIT; base is the number of the first entry.
func parseNumber(text string, table Table, rest string, base int) (Address, error) {
	a := Address{Table: table, Bit: -1}
	digits, bit, hasBit := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || int(n) < base || int(n) > lastAddress+base {
		return Address{}, fmt.Errorf("%q: %q is not a number from %d to %d", text, digits, base, lastAddress+base)
	}
	a.Number = int(n) - base
	if !hasBit {
		return a, nil
	}
	if table.Bits() {
		return Address{}, fmt.Errorf("%q: a %s is one bit already", text, table)
	}
	b, err := strconv.ParseUint(bit, 10, 8)
	if err != nil || b >= registerBits {
		return Address{}, fmt.Errorf("%q: bit %q is not from 0 (least significant) to 15", text, bit)
	}
	a.Bit = int(b)
	return a, nil
}

// span is a range of addresses of one table.
type span struct {
	table      Table
	start, end int // end is beyond the last
}

func (s span) overlaps(table Table, start, end int) bool {
	return s.table == table && start < s.end && s.start < end
}

// parseSpan reads "holding:12" or "holding:12-19".
func parseSpan(text string) (span, error) {
	first, last, ranged := strings.Cut(text, "-")
	a, err := ParseAddress(first)
	if err != nil {
		return span{}, err
	}
	if a.Bit >= 0 {
		return span{}, fmt.Errorf("%q: a range is of whole registers", text)
	}
	s := span{table: a.Table, start: a.Number, end: a.Number + 1}
	if !ranged {
		return s, nil
	}
	n, err := strconv.ParseUint(last, 10, 32)
	if err != nil || int(n) < a.Number || n > lastAddress {
		return span{}, fmt.Errorf("%q: write TABLE:FIRST-LAST, both zero-based", text)
	}
	s.end = int(n) + 1
	return s, nil
}
