// Package modbus is the driver of Modbus devices over TCP and serial lines.
// It hides which requests read which tags, how frames are told from noise, and how registers become values.
package modbus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"edged/drivers/tag"
)

// Config is one device as the site file describes it.
type Config struct {
	Name         string        // of the device, for messages
	Unit         int           // 0 to 255; on a serial line 0 is a broadcast, which is written alone
	MaxRegisters int           // how far one read may reach, in registers; 0: 125
	MaxBits      int           // how far one read of coils or discrete inputs may reach; 0: 2000
	Gaps         int           // how many unused registers or bits one read may bridge
	Holes        []string      // address ranges that are never touched: "holding:12-19"
	Together     [][]string    // names of tags that one request must read
	Poll         time.Duration // period of tags that give none; 0: 1 s
	Writes       string        // as Quirks.Writes; not both
	Quirks       Quirks
	Tags         []Tag
}

// The most that one request carries (Application Protocol, 6.1 to 6.16).
const (
	mostReadRegisters  = 125
	mostReadBits       = 2000
	mostWriteRegisters = 123
	mostBothRegisters  = 121
	mostWriteBits      = 1968
	defaultPoll        = time.Second
)

// FieldError is what is wrong with one key of the site file.
type FieldError struct {
	Field string // the key of the device or tag: "holes", "address", "type", "order", ...
	Index int    // which entry of a list; -1: the key itself
	Msg   string // what is wrong and the way out
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Msg }

func wrong(field string, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Index: -1, Msg: fmt.Sprintf(format, args...)}
}

// Check reports what is wrong with the device's own keys; Tag.Check is for its tags'.
func (c *Config) Check() []*FieldError {
	var errs []*FieldError
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			errs = append(errs, wrong(field, format, args...))
		}
	}
	check(c.Unit >= 0 && c.Unit <= 255, "unit", "%d is not from 0 to 255", c.Unit)
	check(c.MaxRegisters >= 0 && c.MaxRegisters <= mostReadRegisters, "max_registers",
		"%d is not from 1 to %d", c.MaxRegisters, mostReadRegisters)
	check(c.MaxBits >= 0 && c.MaxBits <= mostReadBits, "max_bits", "%d is not from 1 to %d", c.MaxBits, mostReadBits)
	check(c.Gaps >= 0 && c.Gaps <= mostReadBits, "gaps", "%d is not from 0 to %d", c.Gaps, mostReadBits)
	check(c.Poll >= 0, "poll", "%v is negative", c.Poll)
	words := []string{"", "auto", writesSingle, writesMultiple, writesBoth}
	check(slices.Contains(words, c.Writes), "writes", "%q is not one of auto, single, multiple, both", c.Writes)
	q := &c.Quirks
	check(slices.Contains(words, q.Writes), "quirks.writes", "%q is not one of auto, single, multiple, both", q.Writes)
	check(c.Writes == "" || q.Writes == "", "quirks.writes", "writes stands beside quirks too: remove one")
	check(slices.Contains([]string{"", bytesHigh, bytesLow}, q.StringBytes), "quirks.string_bytes", "%q is not high or low", q.StringBytes)
	check(q.StringFill == "" || q.StringFill == fillSpace, "quirks.string_fill", "%q is not nul or space", q.StringFill)
	check(q.PauseBetween >= 0 && q.PauseConnect >= 0, "quirks", "a pause is negative")
	for i, code := range q.Busy {
		if code < 1 || code > 255 {
			errs = append(errs, &FieldError{Field: "quirks.busy_codes", Index: i, Msg: fmt.Sprintf("%d is no exception code, which are 1 to 255", code)})
		}
	}
	for i, text := range c.Holes {
		if _, err := parseSpan(text); err != nil {
			errs = append(errs, &FieldError{Field: "holes", Index: i, Msg: err.Error()})
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return append(errs, c.checkTogether()...)
}

// CheckLine reports what the line does not do for the device: unit 0 is a broadcast where there is no MBAP header
// (Serial Line, 2.2), and nobody answers to one.
// With several lanes on one connection an answer is told by its transaction id alone.
func (c *Config) CheckLine(framing Framing, lanes int) []*FieldError {
	if lanes > 1 && (c.Quirks.AnyID || c.Quirks.Echo) {
		key := "quirks.transaction_ids"
		if c.Quirks.Echo {
			key = "quirks.echo"
		}
		return []*FieldError{wrong(key, "the pipeline of its bus is %d, and answers of this device cannot be told by their transaction ids: give it a bus with pipeline 1", lanes)}
	}
	if c.Unit != 0 || framing == TCP {
		return nil
	}
	for i := range c.Tags {
		if c.Tags[i].Access != tag.Writable { // none is readable
			return []*FieldError{wrong("unit", "unit 0 is everybody on a serial line, and nobody answers: give access write to its tags, or a unit from 1")}
		}
	}
	return nil
}

// checkTogether reports groups that no request can read, and tags that no request may or can.
func (c *Config) checkTogether() []*FieldError {
	var errs []*FieldError
	l := c.limits()
	fields := map[string]*field{}
	for i := range c.Tags {
		t := &c.Tags[i]
		f, bad := t.field(c)
		if len(bad) > 0 {
			return nil // told by Tag.Check
		}
		fields[t.Name] = f
		if h, in := l.hole(f.table, f.start, f.end()); in {
			errs = append(errs, wrong("holes", "%s at %s lies in the hole %s", t.Name, t.Address, h))
		}
		if l.fromZero && f.table.Bits() && f.end() > l.bits {
			errs = append(errs, wrong("quirks.bits_from_zero", "%s at %s lies beyond what one read from 0 reaches, which is %d", t.Name, t.Address, l.bits))
		}
		if f.count > l.most(f.table) {
			errs = append(errs, wrong("max_registers", "%s needs %d in one read, and %d are allowed", t.Name, f.count, l.most(f.table)))
		}
	}
	for i, group := range c.Together {
		if msg := c.checkGroup(group, fields, l); msg != "" {
			errs = append(errs, &FieldError{Field: "together", Index: i, Msg: msg})
		}
	}
	return errs
}

func (c *Config) checkGroup(group []string, fields map[string]*field, l limits) string {
	var u unit
	seen := map[string]bool{}
	for _, name := range group {
		f := fields[name]
		switch {
		case f == nil:
			return fmt.Sprintf("%s is no tag of this device", name)
		case f.access&tag.Readable == 0:
			return fmt.Sprintf("%s is not readable", name)
		case seen[name]:
			return fmt.Sprintf("%s is named twice", name)
		case f.group() != nil:
			return fmt.Sprintf("%s is in another group too: make one group of the two", name)
		case len(u.fields) > 0 && f.table != u.table:
			return fmt.Sprintf("%s is in another table than %s", name, group[0])
		case len(u.fields) > 0 && c.poll(name) != c.poll(group[0]):
			return fmt.Sprintf("%s is polled with another period than %s", name, group[0])
		}
		seen[name] = true
		u.add(f)
	}
	if n := u.end - u.start; n > l.most(u.table) {
		return fmt.Sprintf("%s span %d, and one read reaches %d", strings.Join(group, ", "), n, l.most(u.table))
	}
	if h, in := l.hole(u.table, u.start, u.end); in {
		return fmt.Sprintf("the hole %s lies between %s", h, strings.Join(group, ", "))
	}
	for _, f := range u.fields {
		f.join(&u)
	}
	return ""
}

// poll is the period of a tag.
func (c *Config) poll(name string) time.Duration {
	for i := range c.Tags {
		if c.Tags[i].Name == name {
			return c.period(&c.Tags[i])
		}
	}
	return 0
}

func (c *Config) period(t *Tag) time.Duration {
	switch {
	case t.Poll > 0:
		return t.Poll
	case c.Poll > 0:
		return c.Poll
	}
	return defaultPoll
}

func (c *Config) limits() limits {
	l := limits{registers: mostReadRegisters, bits: mostReadBits, gaps: c.Gaps,
		single: c.Quirks.OneRequest, fromZero: c.Quirks.BitsFromZero}
	if c.MaxRegisters > 0 {
		l.registers = c.MaxRegisters
	}
	if c.MaxBits > 0 {
		l.bits = c.MaxBits
	}
	for _, text := range c.Holes {
		if s, err := parseSpan(text); err == nil {
			l.holes = append(l.holes, s)
		}
	}
	return l
}
