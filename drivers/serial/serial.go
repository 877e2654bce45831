// Package serial is the driver of instruments that speak lines and frames of their own: scales, meters, receivers,
// readers and controllers.
// It hides how what an instrument says is cut into messages, and how messages become readings.
//
// What an instrument says is described, not programmed: Frame cuts the bytes into messages, a Message tells one from the
// others and may be asked for, and a Tag takes its value out of a message. What silence does not end is framed by the
// bytes alone, so that it makes no difference how reads cut them. Nothing of it allocates once it runs, but for texts
// that change: patterns are searched by a matcher of our own (see pattern).
//
// An instrument that talks unasked has its line for itself. The bus listens to it whenever it has nothing else to do.
package serial

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"edged/drivers/tag"
)

// Profiles are the descriptions of instruments that ship: a file NAME.yaml each, with the keys of a device in the site
// file.
//
//go:embed profiles/*.yaml
var Profiles embed.FS

// Config is one instrument as the site file describes it. Texts that stand for bytes are escaped as unescape reads them.
type Config struct {
	Name     string
	Address  string        // what {address} stands for
	Poll     time.Duration // of messages that give none; 0: 1 s
	Stale    time.Duration // of an instrument that talks unasked: it is gone when it was silent for so long; 0: never
	Frame    Frame
	Ignore   string // regular expression of what is said and of no interest
	Messages []Message
	Tags     []Tag
}

// Message is one kind of what the instrument says.
type Message struct {
	Name    string
	Send    string        // asks for it; empty: it comes unasked
	Unasked bool          // it comes unasked too
	Poll    time.Duration // how often it is asked for; 0: the instrument's
	Timeout time.Duration // of its answer; 0: the line's

	// What tells it from others, and its fields: at most one of Pattern, Scan and Split.
	Begins  string // its first bytes; ? is any one
	Pattern string // regular expression; its groups are the fields, by number or name
	Scan    string // scanf-like pattern; its conversions are the fields, by number
	Split   string // separator; what it separates are the fields, from 1

	// Regular expressions of answers without the values.
	None    string // it has no value: its tags are BadOutOfRange
	Busy    string // it asks for patience
	Refused string // it refuses
}

// Tag is one tag as the site file describes it. Texts are as written there; empty is not given.
type Tag struct {
	Ref     tag.Ref // set before New; the checks do without it
	Name    string
	Message string // its message; empty: the only one
	// Where it stands: one of these.
	Field   string // number or name of a field; several, separated by commas, are joined
	Columns string // characters of the message's body, from 1: 5-12, or 5-
	At      string // bytes of the whole frame, from 0: 3, or 3.4 for a bit
	Pattern string // regular expression that is searched in the message; its first group, or else all of it

	Counts   bool     // how many messages came, not what they said
	Type     string   // as tag.ParseType, or time; default: float64, uint8 with At, bool with a bit, uint32 with Counts
	Format   string   // of a text that is no plain number: hex, degrees_minutes, or the layout of a time; bcd of bytes
	Sign     string   // number or name of a field that makes it negative when it is S, W or -
	Order    string   // of bytes: ABCD (default), DCBA, BADC or CDAB, of as many letters as there are bytes; A is the highest
	Scale    string   // decimal
	Offset   string   // decimal
	Decimals string   // places that the value is rounded to
	Sentinel []string // texts or numbers that mean that there is no value
	Values   []Text   // texts and the values that they stand for

	Access    tag.Access
	HasRange  bool
	Low, High float64 // limits of a write
	Hold      time.Duration

	// Of a tag that is written.
	Send    string // {value}, {value:%07.2f}, {address} and {checksum} are filled in
	Done    string // regular expression of the answer that it is done; empty: the instrument says nothing
	Busy    string // of one that asks for patience
	Refused string // of one that refuses
	Timeout time.Duration
}

// Text is a text of an instrument and the value that it stands for.
type Text struct{ Text, Value string }

// What a description may hold.
const (
	maxMessages = 200
	maxFields   = 64
	maxText     = 4096 // bytes of a text value
	defaultPoll = time.Second
)

// FieldError is what is wrong with one key of the site file.
type FieldError struct {
	Field string // the key: "frame.end", "pattern", ...
	Msg   string // what is wrong and the way out
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Msg }

func wrong(field, format string, args ...any) *FieldError {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Talks reports whether the instrument talks unasked.
func (c *Config) Talks() bool {
	return slices.ContainsFunc(c.Messages, func(m Message) bool { return m.unasked() })
}

func (m *Message) unasked() bool { return m.Unasked || m.Send == "" }

// Check reports what is wrong with the device's own keys; CheckMessage and Tag.Check are for the others.
func (c *Config) Check() []*FieldError {
	_, errs := c.Frame.ready()
	if _, err := c.pattern(c.Ignore); err != nil {
		errs = append(errs, wrong("ignore", "%v", err))
	}
	if strings.ContainsFunc(c.Address, func(r rune) bool { return r < ' ' || r > '~' }) {
		errs = append(errs, wrong("address", "%q holds a character that is not of ASCII", c.Address))
	}
	writes := slices.ContainsFunc(c.Tags, func(t Tag) bool { return t.Send != "" })
	if len(c.Messages) == 0 && !writes {
		errs = append(errs, wrong("messages", "there is none: what does the instrument say?"))
	}
	if len(c.Messages) > maxMessages {
		errs = append(errs, wrong("messages", "there are %d: at most %d", len(c.Messages), maxMessages))
	}
	return errs
}

// CheckMessage reports what is wrong with one of the messages.
func (c *Config) CheckMessage(i int) []*FieldError {
	_, errs := c.message(&c.Messages[i])
	return errs
}

// pattern compiles a regular expression in which {address} stands for the instrument's; nil of an empty text.
func (c *Config) pattern(text string) (*pattern, error) {
	if text == "" {
		return nil, nil
	}
	return newPattern(strings.ReplaceAll(text, "{address}", quoteMeta(c.Address)))
}
