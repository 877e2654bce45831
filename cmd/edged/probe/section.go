package probe

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"edged/drivers/modbus"
)

// Section is what was learnt, as the part of a site file.
type Section struct {
	Bus     string
	URL     string
	Devices []*Device
	// Part: it was ended before all was known.
	Part bool
	// Exchange is how long one on the line takes beside the device's own time.
	Exchange func(t modbus.Table, count int) time.Duration
}

const (
	// A row of at least this many still registers that hold the same, and of bits, becomes one entry with repeat.
	leastRow = 4
	// Above this many entries a device's values of one type become rows all the same.
	mostEntries = 300
	mostHoles   = 64
	leastPoll   = time.Second
)

// Text is the section in YAML: what is measured is said so, and what is guessed too.
func (s *Section) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Learnt by edged probe from %s. Names are placeholders; types and orders are guesses from the values shown.\n", oneLine(s.URL))
	if s.Part {
		b.WriteString("# It was interrupted: there may be more than this.\n")
	}
	timeout := leastTimeout
	var longest time.Duration
	for _, d := range s.Devices {
		timeout, longest = max(timeout, d.Timeout()), max(longest, d.Longest)
	}
	b.WriteString("buses:\n")
	fmt.Fprintf(&b, "  - {name: %s, url: %s, timeout: %v} # the longest answer took %s\n", s.Bus, strconv.Quote(s.URL), timeout, Short(longest))
	b.WriteString("devices:\n")
	for _, d := range s.Devices {
		s.device(&b, d)
	}
	return b.String()
}

func (s *Section) device(b *strings.Builder, d *Device) {
	fields := rows(d.Fields)
	if len(fields) == 0 {
		fmt.Fprintf(b, "  # unit %d has no value that could be read\n", d.Unit)
		return
	}
	fmt.Fprintf(b, "  - name: unit%d", d.Unit)
	if id := d.Identity; id.Manufacturer+id.Model+id.SoftwareRevision != "" {
		fmt.Fprintf(b, " # %s", oneLine(strings.TrimSpace(strings.Join([]string{id.Manufacturer, id.Model, id.SoftwareRevision}, " "))))
	}
	fmt.Fprintf(b, "\n    bus: %s\n    unit: %d\n", s.Bus, d.Unit)
	poll, cycle := s.poll(d)
	fmt.Fprintf(b, "    poll: %v # reading all of it takes about %s\n", poll, Short(cycle))
	registers, bits := d.limits()
	if registers.n > 0 {
		fmt.Fprintf(b, "    max_registers: %d # %s\n", registers.n, registers.why)
	}
	if bits.n > 0 {
		fmt.Fprintf(b, "    max_bits: %d # %s\n", bits.n, bits.why)
	}
	if holes := d.holes(); len(holes) > 0 {
		fmt.Fprintf(b, "    holes: [%s] # they were refused\n", strings.Join(holes, ", "))
	}
	if d.Silent == Broken {
		b.WriteString("    quirks: {identification: never} # the connection ended when it was asked what it is (43/14)\n")
	}
	switch {
	case len(d.Guess.For) > 0:
		fmt.Fprintf(b, "    # The order is likely %v:\n", d.Guess.Order)
		for _, e := range d.Guess.For {
			fmt.Fprintf(b, "    #   %s\n", oneLine(e.Text()))
		}
	case !d.Guess.Decided && d.registers():
		b.WriteString("    # The values do not tell the order of longer ones: compare with the device's display or manual.\n")
	}
	b.WriteString("    tags:\n")
	for i := range fields {
		fields[i].write(b)
	}
}

func (d *Device) registers() bool {
	for i := range d.Fields {
		if d.Fields[i].Kind != Bit {
			return true
		}
	}
	return false
}

type limit struct {
	n   int
	why string
}

// limits are the longest reads that all tables bear, where they are shorter than the standard's.
func (d *Device) limits() (registers, bits limit) {
	for _, t := range d.Tables {
		to := &registers
		if t.Table.Bits() {
			to = &bits
		}
		if t.Bad > 0 && (to.n == 0 || t.Good < to.n) {
			*to = limit{t.Good, fmt.Sprintf("a read of %d of %s was refused", t.Bad, t.Table)}
		}
	}
	return registers, bits
}

// holes are those of the tables, as far as they were looked at.
func (d *Device) holes() []string {
	var out []string
	for _, t := range d.Tables {
		for _, h := range t.Holes() {
			if len(out) < mostHoles && t.refused(h) {
				out = append(out, strconv.Quote(h.String()))
			}
		}
	}
	return out
}

// refused reports whether each address of a hole was tried.
func (t *Table) refused(h span) bool {
	for at := h.start; at < h.end; at++ {
		if t.state[at] != missing {
			return false
		}
	}
	return true
}

// poll is a period that leaves the line two thirds of its time.
func (s *Section) poll(d *Device) (poll, cycle time.Duration) {
	for _, t := range d.Tables {
		n := most(t.Table)
		if t.Bad > 0 {
			n = t.Good
		}
		for _, r := range t.Runs {
			for at := r.start; at < r.end; at += n {
				cycle += d.Median
				if s.Exchange != nil {
					cycle += s.Exchange(t.Table, min(n, r.end-at))
				}
			}
		}
	}
	return nice(max(leastPoll, 3*cycle*time.Duration(len(s.Devices)))), cycle
}

// rows puts fields together that are told in one entry.
func rows(fields []Field) []Field {
	out := joined(fields, func(f *Field) bool { return f.Kind == Bit || !f.Moves && (f.Kind == Uint16 && f.Looks[0] == "0") }, leastRow)
	if len(out) > mostEntries {
		out = joined(fields, func(f *Field) bool { return f.Kind != Text }, leastRow)
	}
	return out
}

// joined makes one field of those that follow each other, are alike, and may be joined.
func joined(fields []Field, may func(*Field) bool, least int) []Field {
	var out []Field
	for i := 0; i < len(fields); {
		f := fields[i]
		n := 1
		for i+n < len(fields) && f.follows(&fields[i+n], n) && may(&f) && may(&fields[i+n]) {
			n++
		}
		if n < least {
			n = 1
		}
		for j := i + 1; j < i+n; j++ {
			f.Moves = f.Moves || fields[j].Moves
		}
		if f.Count = n; n > 1 {
			f.Looks = nil
			for j := i; j < i+n; j++ {
				f.Looks = append(f.Looks, fields[j].Looks[len(fields[j].Looks)-1])
			}
		}
		out = append(out, f)
		i += n
	}
	return out
}

// follows reports whether o is what n values of the kind of f reach to.
func (f *Field) follows(o *Field, n int) bool {
	return o.Table == f.Table && o.Kind == f.Kind && o.Order == f.Order && o.Width == f.Width && o.At == f.At+n*f.Width
}

// Name is the placeholder for the name of a tag.
func (f *Field) Name() string {
	if f.Count > 1 {
		return fmt.Sprintf("%s%d_{n}", f.Table, f.At)
	}
	return fmt.Sprintf("%s%d", f.Table, f.At)
}

func (f *Field) write(b *strings.Builder) {
	fmt.Fprintf(b, "      - {name: %s, address: \"%s:%d\"", strconv.Quote(f.Name()), f.Table, f.At)
	if f.Kind != Bit {
		fmt.Fprintf(b, ", type: %s", f.Type())
	}
	if o := f.OrderName(); o != "" {
		fmt.Fprintf(b, ", order: %s", o)
	}
	if f.Count > 1 {
		fmt.Fprintf(b, ", repeat: %d", f.Count)
	}
	fmt.Fprintf(b, "} # %s\n", oneLine(f.Seen()))
}

// shownValues is how many values of a row are shown.
const shownValues = 8

// Seen says what the field held.
func (f *Field) Seen() string {
	if f.Count > 1 {
		text := strings.Join(f.Looks[:min(len(f.Looks), shownValues)], " ")
		if len(f.Looks) > shownValues {
			text += " ..."
		}
		if f.Moves {
			text += "; moves"
		}
		return text
	}
	text := f.Looks[len(f.Looks)-1]
	if !f.Moves {
		return text
	}
	text = strings.Join(f.Looks, ", ")
	if f.Rate != 0 {
		text += fmt.Sprintf("; %+.3g a second", f.Rate)
	}
	return text
}

// oneLine is text that ends no comment of a file and moves no cursor.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xFEFF {
			return '?'
		}
		return r
	}, s)
}
