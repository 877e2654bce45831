package main

import (
	"math"
	"strconv"
	"strings"

	"edged/drivers/tag"
)

// What the states of a tag may be.
const (
	maxStates    = 256
	maxStateText = 100 // bytes
)

// readStates notes the states of a discrete tag; checkType reads them when the type is known.
func (t *tagReader) readStates(n *node) {
	what := t.what + ": states"
	if s, ok := t.sketching(); ok {
		text := &schema{}
		t.within(text, func() { t.text(n, what, maxStateText) })
		s.keyed(`^(true|false|[-+]?(0[xX][0-9a-fA-F_]+|[0-9_]+))$`, text)
		return
	}
	switch {
	case n.kind != mapNode:
		t.fault(n, "%s is %s here: it is a map of values and their texts, such as {0: off, 1: heating}", what, n.kind)
	case len(n.pairs) == 0:
		t.fault(n, "%s is empty: give each value its text, such as {0: off, 1: heating}", what)
	case len(n.pairs) > maxStates:
		t.fault(n, "%s has %d values: at most %d", what, len(n.pairs), maxStates)
	default:
		t.states = n.pairs
	}
}

// checkType reports whether the keys of a tag whose type is known now fit it, and reads its states.
func (t *tagReader) checkType(n *node) bool {
	before := len(t.mistakes) + t.more
	for _, key := range []string{"unit", "range", "deadband"} {
		if v := n.get(key); v != nil && !t.def.Kind.Number() {
			t.fault(v, "%s: %s is of a number, and this is %s: remove it", t.what, key, tag.Type{Kind: t.def.Kind, Len: t.def.Len})
		}
	}
	low, high, discrete := discreteLimits(t.def.Kind)
	switch {
	case t.def.Instrument != tag.Span{} && (!t.def.Kind.Number() || t.states != nil):
		t.fault(n.get("instrument_range"), "%s: instrument_range is of a number without states: remove it", t.what)
	case t.states == nil:
	case !discrete || t.def.Len > 0:
		t.fault(n.get("states"), "%s: states are of a single bool or integer without scale, and this is %s: remove them",
			t.what, tag.Type{Kind: t.def.Kind, Len: t.def.Len})
	case t.def.Unit != "" && t.def.Kind.Number():
		t.fault(n.get("unit"), "%s: a value with states has no unit: remove one of them", t.what)
	default:
		t.eachState(low, high)
	}
	return before == len(t.mistakes)+t.more
}

// eachState reads the states of a tag that may be low to high.
func (t *tagReader) eachState(low, high int64) {
	seen := map[int64]int{}
	for _, p := range t.states {
		value, why := stateValue(t.def.Kind, p.key, low, high)
		if why != "" {
			t.fault(p.key, "%s: states: %q %s", t.what, clip(p.key.text), why)
			continue
		}
		if line, twice := seen[value]; twice {
			t.fault(p.key, "%s: states: %s stands here a second time, the first is on line %d: remove one", t.what, clip(p.key.text), line)
			continue
		}
		seen[value] = p.key.line
		text := t.text(p.value, t.what+": states: "+clip(p.key.text), maxStateText)
		t.def.States = t.def.States.With(value, text)
	}
	if t.def.Kind == tag.Bool && len(seen) == 1 {
		for _, value := range []int64{0, 1} {
			if _, ok := seen[value]; !ok {
				t.fault(t.states[0].key, "%s: states: %t has no text: give one to false and to true", t.what, value == 1)
			}
		}
	}
}

// stateValue reads the value of a state, or says what is wrong with it.
func stateValue(kind tag.Kind, key *node, low, high int64) (value int64, why string) {
	if kind == tag.Bool {
		switch key.text {
		case "false":
			return 0, ""
		case "true":
			return 1, ""
		}
		return 0, "is no value of a bool: it is false or true"
	}
	value, err := strconv.ParseInt(strings.ReplaceAll(key.text, "_", ""), 0, 64)
	if err != nil || value < low || value > high {
		return 0, "is no value of the tag: it is a whole number from " + strconv.FormatInt(low, 10) + " to " + strconv.FormatInt(high, 10)
	}
	return value, ""
}

// discreteLimits are the least and the greatest value of a kind that may have states; false if it may not.
func discreteLimits(kind tag.Kind) (low, high int64, ok bool) {
	switch kind {
	case tag.Bool:
		return 0, 1, true
	case tag.Int8:
		return math.MinInt8, math.MaxInt8, true
	case tag.Uint8:
		return 0, math.MaxUint8, true
	case tag.Int16:
		return math.MinInt16, math.MaxInt16, true
	case tag.Uint16:
		return 0, math.MaxUint16, true
	case tag.Int32:
		return math.MinInt32, math.MaxInt32, true
	case tag.Uint32:
		return 0, math.MaxUint32, true
	case tag.Int64:
		return math.MinInt64, math.MaxInt64, true
	case tag.Uint64:
		return 0, math.MaxInt64, true // Part 3, 8.40 has Int64 for the value of a text
	}
	return 0, 0, false
}
