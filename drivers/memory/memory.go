// Package memory is the driver of tags that live in the gateway: set points, counters, load tests.
// It hides how a value is kept, and how one moves by itself.
package memory

import (
	"time"

	"edged/drivers/tag"
)

// Tag is one tag as the site file describes it.
type Tag struct {
	Ref       tag.Ref // set before New; the checks do without it
	Name      string
	Type      string // "float64", "string", "uint16[4]"; default float64
	Value     any    // initial value: bool, an integer, float64, string or []any; nil is zero
	Access    tag.Access
	HasRange  bool
	Low, High float64 // limits of a write
	Wave      *Wave
}

// Wave is how a tag moves by itself.
type Wave struct {
	Kind   string        // counter, sine, square, random, text
	Every  time.Duration // between two values; 0: 1 s
	Period time.Duration // of sine and square; 0: 60 s
	Min    float64
	Max    float64 // of sine, square and random; a counter begins again at Min after it, 0 is the type's own
}

// FieldError is what is wrong with one key of the site file.
type FieldError struct {
	Field string // the key: "type", "value", "wave.kind", ...
	Msg   string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Msg }
