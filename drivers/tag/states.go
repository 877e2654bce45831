package tag

import (
	"iter"
	"strconv"
	"strings"
)

// States are the texts of a discrete tag's values. They are one text inside, so that definitions can be compared; the
// empty States are none.
type States string

// With returns the states with one more at the end. Its text holds no line break.
func (s States) With(value int64, text string) States {
	return s + States(strconv.FormatInt(value, 10)+" "+text+"\n")
}

// All yields values and texts in the order in which they were given.
func (s States) All() iter.Seq2[int64, string] {
	return func(yield func(int64, string) bool) {
		for line := range strings.Lines(string(s)) {
			number, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			value, _ := strconv.ParseInt(number, 10, 64) // With wrote it
			if !yield(value, text) {
				return
			}
		}
	}
}

// Text is the text of a value, and false if it has none.
func (s States) Text(value int64) (text string, ok bool) {
	for v, t := range s.All() {
		if v == value {
			return t, true
		}
	}
	return "", false
}

// Int is a Bool or an integer as a number that States know; false for anything else, and for what Int64 cannot hold.
func (v Value) Int() (int64, bool) {
	switch {
	case v.array:
		return 0, false
	case v.kind == Bool, v.kind >= Int8 && v.kind <= Int64:
		return int64(v.bits), true
	case v.kind == Uint64:
		return int64(v.bits), v.bits>>63 == 0
	}
	return 0, false
}
