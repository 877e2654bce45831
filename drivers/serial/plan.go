package serial

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"edged/drivers/tag"
)

func quoteMeta(s string) string { return regexp.QuoteMeta(s) }

// message is a Message made ready.
type message struct {
	name                string
	send                *template // nil: it cannot be asked for
	unasked             bool
	poll, timeout       time.Duration
	begins              []byte
	wild                bool // ? in begins is any byte
	pattern             *pattern
	split               []byte
	none, busy, refused *pattern
	fields              []*field
}

// groups is how many fields the message has; -1: as many as it is split into.
func (m *message) groups() int {
	switch {
	case m.split != nil:
		return -1
	case m.pattern != nil:
		return m.pattern.groups() - 1
	}
	return 0
}

// fieldNumber reads the number or name of a field.
func (m *message) fieldNumber(text string) (int, error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.Atoi(text); err == nil {
		most := m.groups()
		if most < 0 {
			most = maxFields
		}
		if n < 1 || n > most {
			return 0, fmt.Errorf("message %s has no field %d: it has %d", m.name, n, most)
		}
		return n, nil
	}
	if m.pattern != nil {
		if n, ok := m.pattern.group(text); ok {
			return n, nil
		}
	}
	return 0, fmt.Errorf("message %s has no field %q: name it in the pattern as (?P<%s>...), or give a number", m.name, text, text)
}

// message makes one ready, without its fields.
func (c *Config) message(from *Message) (*message, []*FieldError) {
	m := &message{name: from.Name, unasked: from.unasked(), poll: from.Poll, timeout: from.Timeout}
	var errs []*FieldError
	note := func(key string, err error) {
		if err != nil {
			errs = append(errs, wrong(key, "%v", err))
		}
	}
	if m.poll == 0 {
		if m.poll = c.Poll; m.poll == 0 {
			m.poll = defaultPoll
		}
	}
	var err error
	if from.Send != "" {
		m.send, err = c.template(from.Send)
		note("send", err)
		if err == nil && m.send.hasValue() {
			note("send", fmt.Errorf("{value} is for tags that are written"))
		}
	} else if from.Poll != 0 {
		note("poll", fmt.Errorf("nothing asks for the message: give send, or remove poll"))
	}
	begins := strings.ReplaceAll(from.Begins, "{address}", c.Address)
	m.begins, err = unescape(begins)
	m.wild = !strings.HasPrefix(begins, "hex:") && strings.Contains(begins, "?")
	note("begins", err)
	ways := 0
	if from.Pattern != "" {
		ways++
		m.pattern, err = c.pattern(from.Pattern)
		note("pattern", err)
	}
	if from.Scan != "" {
		ways++
		expr, err := scanPattern(strings.ReplaceAll(from.Scan, "{address}", strings.ReplaceAll(c.Address, "%", "%%")))
		if err == nil {
			m.pattern, err = newPattern(expr)
		}
		note("scan", err)
	}
	if from.Split != "" {
		ways++
		m.split, err = unescape(from.Split)
		note("split", err)
	}
	if ways > 1 {
		note("pattern", fmt.Errorf("message %s has more than one of pattern, scan and split: give one", from.Name))
	}
	for _, p := range []struct {
		key, text string
		to        **pattern
	}{{"none", from.None, &m.none}, {"busy", from.Busy, &m.busy}, {"refused", from.Refused, &m.refused}} {
		*p.to, err = c.pattern(p.text)
		note(p.key, err)
	}
	return m, errs
}

// starts reports whether a frame begins as the message does: its body, or all of it.
func (m *message) starts(s *said) bool {
	if len(m.begins) == 0 {
		return true
	}
	return begins(s.body, m.begins, m.wild) || begins(s.whole, m.begins, m.wild)
}

func begins(b, with []byte, wild bool) bool {
	if len(b) < len(with) {
		return false
	}
	for i, c := range with {
		if b[i] != c && !(wild && c == '?') {
			return false
		}
	}
	return true
}

// Where a tag's value stands.
const (
	nowhere uint8 = iota
	inField
	inColumns
	inBytes
	inPattern
	inCount
)

// How a text is read.
const (
	asNumber uint8 = iota
	asHex
	asDegrees
	asTime
	asBCD
)

// field is a Tag made ready.
type field struct {
	ref      tag.Ref
	name     string
	message  *message // nil: it is only written
	place    uint8
	fields   []int  // joined
	from, to int    // of columns, from 0; to 0: the end
	at       int    // of bytes
	bit      int    // -1: none
	order    string // of bytes; empty: the highest first
	pattern  *pattern
	group    int
	sign     int // field; 0: none
	format   uint8
	layout   layout

	kind     tag.Kind
	size     int // of a text; 0: maxText
	scaling  scaling
	sentinel [][]byte
	numbers  []float64 // sentinels that are numbers
	values   []mapped

	access    tag.Access
	hasRange  bool
	low, high float64
	write     *order // nil: it is not written

	// Owned by the lane.
	last  tag.Value // of a text: one that comes again is not made again
	count uint32
}

// mapped is a text and the value that it stands for.
type mapped struct {
	text  []byte
	value tag.Value
}

// order is how a tag is written.
type order struct {
	send                *template
	done, busy, refused *pattern
	timeout             time.Duration
}

// Shape is what others see of a tag's type, on an instrument. It is zero for a tag that Check refuses.
func (t *Tag) Shape(c *Config) (kind tag.Kind) {
	f, errs := t.ready(c, c.plain())
	if len(errs) > 0 {
		return tag.Null
	}
	return f.kind
}

// Check reports everything that is wrong with the tag's keys.
func (t *Tag) Check(c *Config) []*FieldError {
	_, errs := t.ready(c, c.plain())
	return errs
}

// Poll is how often the tag is asked for; 0 of one that comes unasked or is only written.
func (t *Tag) Poll(c *Config) time.Duration {
	if f, errs := t.ready(c, c.plain()); len(errs) == 0 && f.message != nil && f.message.send != nil {
		return f.message.poll
	}
	return 0
}

// plain makes the messages that have no mistake ready.
func (c *Config) plain() []*message {
	var out []*message
	for i := range c.Messages {
		m, _ := c.message(&c.Messages[i])
		out = append(out, m)
	}
	return out
}

// Definition is where a value stands, for people.
type Definition string

// Definition implements tag.Definer.
func (d Definition) Definition(uint32) string { return string(d) }

// Definition tells people how the value comes about.
func (t *Tag) Definition() tag.Definer {
	var parts []string
	for _, p := range []struct{ name, text string }{{"message ", t.Message}, {"field ", t.Field}, {"columns ", t.Columns},
		{"byte ", t.At}, {"", t.Pattern}, {"* ", t.Scale}, {"+ ", t.Offset}} {
		if p.text != "" {
			parts = append(parts, p.name+p.text)
		}
	}
	if t.Counts {
		parts = append(parts, "counted")
	}
	if t.Send != "" {
		parts = append(parts, "sends "+t.Send)
	}
	return Definition(strings.Join(parts, " "))
}

// plan makes everything ready.
func (c *Config) plan() (*cut, []*message, []*field, error) {
	if errs := c.Check(); len(errs) > 0 {
		return nil, nil, nil, errs[0]
	}
	frame, _ := c.Frame.ready()
	var messages []*message
	for i := range c.Messages {
		m, errs := c.message(&c.Messages[i])
		if len(errs) > 0 {
			return nil, nil, nil, fmt.Errorf("message %s: %w", m.name, errs[0])
		}
		messages = append(messages, m)
	}
	var fields []*field
	for i := range c.Tags {
		f, errs := c.Tags[i].ready(c, messages)
		if len(errs) > 0 {
			return nil, nil, nil, fmt.Errorf("tag %s: %w", c.Tags[i].Name, errs[0])
		}
		if f.message != nil {
			f.message.fields = append(f.message.fields, f)
		}
		fields = append(fields, f)
	}
	return frame, messages, fields, nil
}

// periods are the scan classes of the messages that are asked for, with the messages' numbers.
func periods(messages []*message) (scans []time.Duration, requests [][]int) {
	for _, m := range messages {
		if m.send != nil && len(m.fields) > 0 && !slices.Contains(scans, m.poll) {
			scans = append(scans, m.poll)
		}
	}
	slices.Sort(scans)
	for _, p := range scans {
		var numbers []int
		for i, m := range messages {
			if m.send != nil && len(m.fields) > 0 && m.poll == p {
				numbers = append(numbers, i)
			}
		}
		requests = append(requests, numbers)
	}
	return scans, requests
}
