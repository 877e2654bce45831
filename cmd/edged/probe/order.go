package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"edged/drivers/modbus"
)

// Order is how the bytes of a value that is longer than a register lie in its registers.
type Order uint8

// The orders, by the place of the most significant byte A.
const (
	ABCD Order = iota
	CDAB
	BADC
	DCBA
)

// Orders are all of them.
var Orders = []Order{ABCD, CDAB, BADC, DCBA}

var orderNames = [...][2]string{{"ABCD", "ABCDEFGH"}, {"CDAB", "GHEFCDAB"}, {"BADC", "BADCFEHG"}, {"DCBA", "HGFEDCBA"}}

// String is the order of four bytes.
func (o Order) String() string { return orderNames[o][0] }

// join makes a number of its registers.
func (o Order) join(regs []uint16) (v uint64) {
	for i := range regs {
		r := regs[i]
		if o == CDAB || o == DCBA {
			r = regs[len(regs)-1-i]
		}
		if o == BADC || o == DCBA {
			r = bits.ReverseBytes16(r)
		}
		v = v<<16 | uint64(r)
	}
	return v
}

// Kind is what a value seems to be.
type Kind uint8

// The kinds.
const (
	Uint16 Kind = iota
	Int16
	Uint32
	Float32
	Float64
	Text
	Bit
)

var kindNames = [...]string{"uint16", "int16", "uint32", "float32", "float64", "string", "bool"}

// Field is one value that was made out, or a row of like ones.
type Field struct {
	Table modbus.Table
	At    int
	Width int // registers
	Count int // values
	Kind  Kind
	Order Order
	Low   bool // of a text: the low byte of each register comes first
	Looks []string
	Moves bool
	Rate  float64 // change a second, of a number that moves
}

// Type is the type as a site file has it.
func (f *Field) Type() string {
	if f.Kind == Text {
		return fmt.Sprintf("string(%d)", 2*f.Width)
	}
	return kindNames[f.Kind]
}

// OrderName is the order as a site file has it, or "" where there is none, or where it is the default.
func (f *Field) OrderName() string {
	switch {
	case f.Kind == Text && f.Low:
		return orderNames[BADC][0]
	case f.Kind == Text, f.Width < 2, f.Order == ABCD:
		return ""
	}
	return orderNames[f.Order][f.Width/4]
}

// Look is the registers, or the bits, of every run at one moment.
type Look struct {
	At   time.Time
	Regs [][]uint16 // by run
}

// Watch reads every run of a table once more. What cannot be read now is left out, as nil.
func (u *Unit) Watch(ctx context.Context, t *Table) (Look, error) {
	l := Look{At: time.Now(), Regs: make([][]uint16, len(t.Runs))}
	for i, r := range t.Runs {
		u.line.cfg.Progress(fmt.Sprintf("unit %d: values of %v", u.ID, r))
		for at := r.start; at < r.end; at += t.Good {
			n := min(t.Good, r.end-at)
			data, v, _, err := u.read(ctx, t.Table, at, n)
			if err != nil {
				return l, err
			}
			if v != Answered {
				l.Regs[i] = nil
				break
			}
			for j := range n {
				if t.Table.Bits() {
					l.Regs[i] = append(l.Regs[i], uint16(data[j/8]>>(j%8)&1))
				} else {
					l.Regs[i] = append(l.Regs[i], binary.BigEndian.Uint16(data[2*j:]))
				}
			}
		}
	}
	return l, nil
}

// series are the looks at one run that are whole.
func series(looks []Look, run, n int) (regs [][]uint16, times []time.Time) {
	for _, l := range looks {
		if run < len(l.Regs) && len(l.Regs[run]) == n {
			regs, times = append(regs, l.Regs[run]), append(times, l.At)
		}
	}
	return regs, times
}

// Guess is what the values of a device say of their order.
type Guess struct {
	Order   Order
	Decided bool
	// Margin is how many bits longer the shortest description of the registers is in the second best order.
	Margin float64
	// For are values that speak for the order, as each order reads them.
	For []Evidence
}

// Evidence is one value in every order.
type Evidence struct {
	Address string
	Type    string
	Values  [4]string // by Order
}

// Text shows the value in every order.
func (e Evidence) Text() string {
	parts := make([]string, len(Orders))
	for _, o := range Orders {
		parts[o] = o.String() + " " + e.Values[o]
	}
	return e.Address + " as " + e.Type + ": " + strings.Join(parts, ", ")
}

// Registers are the runs of one table with what was read of them.
type Registers struct {
	Table *Table
	Looks []Look
}

// decided is how many bits an order must be better than every other. With 7, a row of 10 registers of noise has an order
// in 12 of 100 cases.
const decided = 10

// mostEvidence is how many values are shown for an order.
const mostEvidence = 5

// Orderly finds the order in which the registers have the shortest description, and the values in it.
//
// Each type has a cost in bits: what it takes to write the value down, if small integers, decimal fractions of few
// digits with everyday exponents, and readable text are the likely ones, and if values move by little between two looks.
// Registers that are read with a wrong type or order look like noise and cost all their bits. The cheapest split of a
// run into values is found for each order; one device has one order.
func Orderly(tables []Registers) (Guess, []Field) {
	var total [4]float64
	var fields [4][]Field
	for _, r := range tables {
		if r.Table.Table.Bits() {
			continue
		}
		for i, run := range r.Table.Runs {
			regs, times := series(r.Looks, i, run.len())
			if len(regs) == 0 {
				continue
			}
			for _, o := range Orders {
				f, cost := split(regs, o)
				total[o] += cost
				for j := range f {
					f[j].Table, f[j].At = run.table, f[j].At+run.start
					f[j].show(regs, times, run.start)
				}
				fields[o] = append(fields[o], f...)
			}
		}
	}
	g := Guess{Margin: math.Inf(1)}
	for _, o := range Orders {
		if total[o] < total[g.Order] {
			g.Order = o
		}
	}
	for _, o := range Orders {
		if o != g.Order {
			g.Margin = min(g.Margin, total[o]-total[g.Order])
		}
	}
	g.Decided = g.Margin >= decided
	best := fields[g.Order]
	if !g.Decided {
		for i := range best {
			if best[i].Width > 1 && best[i].Kind != Text {
				return g, words(tables, best)
			}
		}
		return g, best
	}
	g.For = evidence(tables, best)
	return g, best
}

// words are the fields with those taken apart that depend on an order which is not decided.
func words(tables []Registers, fields []Field) []Field {
	var out []Field
	for _, f := range fields {
		if f.Kind == Text || f.Width == 1 {
			out = append(out, f)
			continue
		}
		for i := range f.Width {
			w := Field{Table: f.Table, At: f.At + i, Width: 1, Count: 1}
			for _, r := range tables {
				for j, run := range r.Table.Runs {
					if run.table == f.Table && run.start <= w.At && w.At < run.end {
						regs, times := series(r.Looks, j, run.len())
						w.show(regs, times, run.start)
					}
				}
			}
			out = append(out, w)
		}
	}
	return out
}

// evidence are the values of several registers that differ most between the orders.
func evidence(tables []Registers, fields []Field) []Evidence {
	type weighed struct {
		Evidence
		gain float64
	}
	var all []weighed
	for _, f := range fields {
		if f.Width < 2 || f.Kind == Text {
			continue
		}
		for _, r := range tables {
			for i, run := range r.Table.Runs {
				if run.table != f.Table || f.At < run.start || f.At >= run.end {
					continue
				}
				regs, _ := series(r.Looks, i, run.len())
				e := weighed{Evidence: Evidence{Address: fmt.Sprintf("%s:%d", f.Table, f.At), Type: kindNames[f.Kind]}, gain: math.Inf(1)}
				own := cost(regs, f.At-run.start, f.Kind, f.Order)
				for _, o := range Orders {
					e.Values[o] = text(f.Kind, o.join(regs[len(regs)-1][f.At-run.start:][:f.Width]))
					if o != f.Order {
						e.gain = min(e.gain, cost(regs, f.At-run.start, f.Kind, o)-own)
					}
				}
				if e.gain > 1 {
					all = append(all, e)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b weighed) int { return int(b.gain - a.gain) })
	var out []Evidence
	for _, e := range all[:min(len(all), mostEvidence)] {
		out = append(out, e.Evidence)
	}
	return out
}

// The kinds that split tries at each register, with their widths and what choosing them costs.
var tried = []struct {
	kind  Kind
	width int
	prior float64
}{{Uint16, 1, 1}, {Float32, 2, 2}, {Uint32, 2, 4}, {Float64, 4, 3}}

const (
	another   = 1.5 // bits for a value of another kind than the one before
	likewise  = 0.4
	kinds     = int(Bit)
	leastText = 3  // registers of a text
	mostText  = 32 // registers
)

// split finds the cheapest values of a run, by the cheapest way to each register and kind.
func split(regs [][]uint16, o Order) ([]Field, float64) {
	n := len(regs[0])
	type step struct {
		cost  float64
		from  int // register where the field begins
		kind  Kind
		low   bool
		prior Kind // of the field before
	}
	best := make([][kinds]step, n+1)
	for i := range best {
		for k := range best[i] {
			best[i][k].cost = math.Inf(1)
		}
	}
	best[0][Uint16].cost = 0
	reach := func(from, to int, kind Kind, low bool, c float64) {
		for k := range kinds {
			change := another
			if Kind(k) == kind {
				change = likewise
			}
			if at := best[from][k].cost + c + change; at < best[to][kind].cost {
				best[to][kind] = step{at, from, kind, low, Kind(k)}
			}
		}
	}
	for i := range n {
		for _, t := range tried {
			if i+t.width <= n {
				reach(i, i+t.width, t.kind, false, t.prior+cost(regs, i, t.kind, o))
			}
		}
		for _, low := range []bool{false, true} {
			for w := leastText; w <= mostText && i+w <= n; w++ {
				c := textCost(regs, i, w, low)
				if math.IsInf(c, 1) {
					break
				}
				reach(i, i+w, Text, low, c)
			}
		}
	}
	last := Uint16
	for k := range kinds {
		if best[n][k].cost < best[n][last].cost {
			last = Kind(k)
		}
	}
	total := best[n][last].cost
	var fields []Field
	for at, k := n, last; at > 0; {
		s := best[at][k]
		f := Field{At: s.from, Width: at - s.from, Count: 1, Kind: s.kind, Order: o, Low: s.low}
		fields = append(fields, f)
		at, k = s.from, s.prior
	}
	slices.Reverse(fields)
	return fields, total
}

// cost is how many bits the looks at one value take.
func cost(regs [][]uint16, at int, kind Kind, o Order) float64 {
	width := map[Kind]int{Uint16: 1, Uint32: 2, Float32: 2, Float64: 4}[kind]
	if kind == Uint16 {
		o = ABCD // a register by itself is as the standard has it
	}
	v := o.join(regs[0][at:][:width])
	var c float64
	switch kind {
	case Uint16:
		c = min(magnitude(v, 16), 1+magnitude(uint64(magnitude16(v)), 16))
	case Uint32:
		if c = magnitude(v, 32); v < 1<<16 {
			c = magnitude(v, 16)
		}
	case Float32:
		c = floatCost(float64(math.Float32frombits(uint32(v))), 32, v)
	case Float64:
		c = floatCost(math.Float64frombits(v), 64, v)
	}
	rising, carried := 0, false
	for i, before := 1, v; i < len(regs); i++ {
		w := o.join(regs[i][at:][:width])
		step := moved(v, w, kind)
		if i > 1 && v != w {
			step = min(step, 1+straight(before, v, w, kind))
		}
		c += step
		if w > v && w-v < 1<<15 {
			rising++
			carried = carried || w>>16 != v>>16
		}
		before, v = v, w
	}
	if kind == Uint32 && rising > 0 && rising == len(regs)-1 && v < 1<<31 {
		c -= 4 // what only counts up is seldom as short as a register
		if carried {
			c -= 22 // two registers by themselves rise like this by chance once in many millions
		}
	}
	return c
}

func magnitude16(v uint64) int {
	n := int(int16(v))
	if n < 0 {
		return -n
	}
	return n
}

// magnitude is the cost of a whole number: small ones are likely.
func magnitude(v uint64, most int) float64 {
	return min(1+2*math.Log2(float64(v)+1), float64(most)+1)
}

// moved is the cost of the next look at a value, which is likely to be near.
func moved(v, w uint64, kind Kind) float64 {
	if v == w {
		return 0.2
	}
	return distance(rank(w, kind)-rank(v, kind), kind)
}

// straight is the cost of a look that is near to where the two before it point.
func straight(u, v, w uint64, kind Kind) float64 {
	return distance(rank(w, kind)-2*rank(v, kind)+rank(u, kind), kind)
}

// distance is the cost of having moved so far, in steps of the kind's smallest.
func distance(d int64, kind Kind) float64 {
	most := 34.0
	switch kind {
	case Uint16:
		d, most = int64(int16(d)), 18
	case Uint32:
		d = int64(int32(d))
	case Float64:
		most = 66
	}
	return min(3+1.2*math.Log2(math.Abs(float64(d))+1), most)
}

// rank orders the bits of a value as its values: of floats, near ones have near ranks.
func rank(v uint64, kind Kind) int64 {
	switch kind {
	case Float32:
		return int64(rank32(uint32(v)))
	case Float64:
		return int64(rank64(v))
	}
	return int64(v)
}

// rank32 orders the bits of floats as their values, so that near values have near ranks.
func rank32(b uint32) uint32 {
	if b>>31 == 1 {
		return ^b
	}
	return b | 1<<31
}

func rank64(b uint64) uint64 {
	if b>>63 == 1 {
		return ^b
	}
	return b | 1<<63
}

// floatCost is the cost of a float: everyday sizes with few decimal digits are likely.
func floatCost(f float64, size int, raw uint64) float64 {
	switch {
	case raw == 0: // as likely as the zeros of so many registers
		return float64(size) / 8
	case math.IsNaN(f), math.IsInf(f, 0), math.Abs(f) < 1e-20, math.Abs(f) > 1e20:
		return float64(size) // nothing that anybody measures
	}
	mantissa, exponent := 23.0, 8.0
	if size == 64 {
		mantissa, exponent = 52, 11
	}
	digits, _, _ := strings.Cut(strconv.FormatFloat(math.Abs(f), 'e', -1, size), "e")
	significant := mantissa - float64(min(bits.TrailingZeros64(raw), int(mantissa))) // halves and eighths have few bits
	fraction := min(mantissa, 3.33*float64(len(strings.Replace(digits, ".", "", 1))), 3+significant)
	if size := math.Abs(f); size < 1e-3 || size >= 1e7 {
		return 1 + exponent + 4 + fraction
	}
	return 1 + 4 + fraction
}

// textCost is the cost of w registers as text; infinite for what is none, and for what does not begin with some.
func textCost(regs [][]uint16, at, w int, low bool) float64 {
	c, zero, letters, before := 9.0, false, 0, byte(' ')
	for _, r := range regs[0][at : at+w] {
		pair := [2]byte{byte(r >> 8), byte(r)}
		if low {
			pair[0], pair[1] = pair[1], pair[0]
		}
		for _, b := range pair {
			switch {
			case b == 0:
				zero = true
				c++
			case zero, b < ' ', b > '~':
				return math.Inf(1)
			case b == ' ', b >= '0' && b <= '9', b >= 'A' && b <= 'Z', b >= 'a' && b <= 'z':
				letters++
				c += 5.5
			default:
				c += 7
			}
			c += unlikely(before, b)
			before = b
		}
	}
	if 2*letters < 2*w-2 || letters < 4 {
		c += 100
	}
	for i := 1; i < len(regs); i++ {
		if !slices.Equal(regs[i][at:at+w], regs[0][at:at+w]) {
			return c + 100 // a text that changes at once is hardly one
		}
	}
	return c + 0.2*float64(len(regs)-1)
}

// unlikely is the extra cost of two characters that seldom follow each other: it tells which byte of a register is first.
func unlikely(a, b byte) float64 {
	lower := func(c byte) bool { return c >= 'a' && c <= 'z' }
	switch {
	case lower(a) && b >= 'A' && b <= 'Z':
		return 4
	case lower(a) && b >= '0' && b <= '9', a == ' ' && b == 0:
		return 1
	}
	return 0
}

// show fills in what was seen of the field.
func (f *Field) show(regs [][]uint16, times []time.Time, start int) {
	at := f.At - start
	values := make([]float64, len(regs))
	for i := range regs {
		words := regs[i][at:][:f.Width]
		if f.Kind == Text {
			f.Looks = append(f.Looks, textOf(words, f.Low))
			continue
		}
		v := f.Order.join(words)
		if f.Kind == Uint16 {
			v = uint64(words[0])
		}
		values[i] = number(f.Kind, v)
		f.Looks = append(f.Looks, text(f.Kind, v))
		f.Moves = f.Moves || i > 0 && !slices.Equal(words, regs[0][at:][:f.Width])
	}
	if f.Kind == Uint16 && !f.Moves && len(regs) > 0 && regs[0][at] >= 0xFC00 && regs[0][at] < 0xFFFF {
		f.Kind = Int16
		for i := range f.Looks {
			f.Looks[i] = strconv.Itoa(int(int16(regs[i][at])))
		}
	}
	if n := len(values); f.Moves && n > 1 {
		if took := times[n-1].Sub(times[0]).Seconds(); took > 0 {
			f.Rate = (values[n-1] - values[0]) / took
		}
	}
}

func number(kind Kind, v uint64) float64 {
	switch kind {
	case Float32:
		return float64(math.Float32frombits(uint32(v)))
	case Float64:
		return math.Float64frombits(v)
	}
	return float64(v)
}

func text(kind Kind, v uint64) string {
	switch kind {
	case Float32:
		return strconv.FormatFloat(float64(math.Float32frombits(uint32(v))), 'g', -1, 32)
	case Float64:
		return strconv.FormatFloat(math.Float64frombits(v), 'g', -1, 64)
	}
	return strconv.FormatUint(v, 10)
}

func textOf(words []uint16, low bool) string {
	var b []byte
	for _, w := range words {
		if low {
			w = bits.ReverseBytes16(w)
		}
		b = append(b, byte(w>>8), byte(w))
	}
	return strconv.Quote(strings.TrimRight(string(b), "\x00 "))
}
