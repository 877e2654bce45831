package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

// schema is the part of JSON Schema (draft 7) that describes files here. It is filled by the readers of the files
// themselves: while document.sketch is set, a reader notes what it would accept instead of reading.
type schema struct {
	Dialect     string     `json:"$schema,omitempty"`
	Title       string     `json:"title,omitempty"`
	Description string     `json:"description,omitempty"`
	Type        any        `json:"type,omitempty"` // a word or a list of them
	Enum        []any      `json:"enum,omitempty"`
	Default     any        `json:"default,omitempty"`
	Examples    []any      `json:"examples,omitempty"`
	Pattern     string     `json:"pattern,omitempty"`
	MinLength   int        `json:"minLength,omitempty"`
	MaxLength   int        `json:"maxLength,omitempty"`
	Minimum     *float64   `json:"minimum,omitempty"`
	Maximum     *float64   `json:"maximum,omitempty"`
	Items       *schema    `json:"items,omitempty"`
	MinItems    int        `json:"minItems,omitempty"`
	MaxItems    int        `json:"maxItems,omitempty"`
	Properties  properties `json:"properties,omitempty"`
	Patterns    properties `json:"patternProperties,omitempty"` // by the form of the key
	Required    []string   `json:"required,omitempty"`
	Closed      *bool      `json:"additionalProperties,omitempty"` // false: no other keys
	AnyOf       []*schema  `json:"anyOf,omitempty"`
	If          *schema    `json:"if,omitempty"`
	Then        *schema    `json:"then,omitempty"`
	Else        *schema    `json:"else,omitempty"`
	Not         *schema    `json:"not,omitempty"`
}

// properties are the keys of a map in the order in which the reader knows them.
type properties []property

type property struct {
	name  string
	value *schema
}

// MarshalJSON keeps the order.
func (p properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, one := range p {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(one.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(one.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// property is the schema of a key, or nil.
func (s *schema) property(name string) *schema {
	for _, p := range s.Properties {
		if p.name == name {
			return p.value
		}
	}
	return nil
}

// The words of JSON Schema for types.
const (
	typeText    = "string"
	typeNumber  = "number"
	typeInteger = "integer"
	typeBoolean = "boolean"
	typeList    = "array"
	typeMap     = "object"
)

// sketching reports whether a schema is being made, and where the next one goes.
func (d *document) sketching() (*schema, bool) { return d.sketch, d.sketch != nil }

// within runs read with s as the place of what it notes.
func (d *document) within(s *schema, read func()) {
	outer := d.sketch
	d.sketch = s
	read()
	d.sketch = outer
}

// object notes a map with the keys of a section.
func (s *schema) object(d *document, keys []key) {
	no := false
	s.Type, s.Closed = typeMap, &no
	for _, k := range keys {
		p := &schema{}
		d.within(p, func() { k.read(&node{}) })
		s.Properties = append(s.Properties, property{k.name, p})
	}
}

// keyed notes a map whose keys are of a form, and not known by name.
func (s *schema) keyed(form string, value *schema) {
	no := false
	s.Type, s.Closed, s.Patterns = typeMap, &no, properties{{form, value}}
}

// scalar notes a single value whose form its own reader checks. What YAML takes for a number may be meant as text.
func (s *schema) scalar() { s.Type = []string{typeText, typeNumber} }

func (s *schema) text(most int) {
	s.scalar()
	s.MaxLength = most
}

// word notes a text that is one of a few words. Words that YAML takes for something else stand as that.
func (s *schema) word(words ...string) {
	s.Type = nil
	for _, w := range words {
		s.Enum = append(s.Enum, plainScalar(&node{text: w}))
	}
}

func (s *schema) between(low, high float64) { s.Minimum, s.Maximum = &low, &high }

// durationForm is what time.ParseDuration takes, but for a sign.
const durationForm = `^([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`

// span notes a time span. Zero needs no unit.
func (s *schema) span(low, high time.Duration) {
	s.Type, s.Pattern = typeText, durationForm
	if low <= 0 {
		s.Type = []string{typeText, typeInteger}
		s.between(0, 0)
		s.Pattern = strings.TrimSuffix(durationForm, "$") + "$|^0$"
	}
	s.Description = "Time span from " + low.String() + " to " + high.String() + "."
}

// size notes a number of bytes.
func (s *schema) size(low, high int64) {
	var units []string
	for _, u := range sizeUnits {
		units = append(units, u.name)
	}
	s.Type, s.Pattern = typeText, `^[0-9]*\.?[0-9]+(e[0-9]+)? *(`+strings.Join(units, "|")+`)$`
	s.Description = "Size from " + sizeText(low) + " to " + sizeText(high) + "."
}

// oneOrMore notes a list, or a single value that stands for a list of one, and returns the place of the value.
func (s *schema) oneOrMore() *schema {
	item := &schema{}
	s.AnyOf = []*schema{item, {Type: typeList, Items: item}}
	return item
}

// excluding notes a text without some characters.
func (s *schema) excluding(banned string) {
	s.Pattern = `^[^` + regexp.QuoteMeta(banned) + `]+$`
}

// also notes one more word beside what else is accepted.
func (s *schema) also(word string) {
	rest := *s
	*s = schema{Description: rest.Description, AnyOf: []*schema{{Enum: []any{word}}, &rest}}
	rest.Description = ""
}

// refuse notes a key that this version does not have: an editor says so where it stands.
func (s *schema) refuse() {
	s.Not, s.Description = &schema{}, "Not available in this version."
}
