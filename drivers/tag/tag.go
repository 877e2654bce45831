// Package tag is the vocabulary of the gateway: what a reading, a command and a tag are.
// It hides how a value is stored, and imports the standard library alone, so that every room can speak it.
package tag

import (
	"context"
	"time"
)

// Ref is a slot given to a tag's name for good: it is never reused for another name in a process. Zero is no tag.
type Ref uint32

// Sample is one reading of one tag.
type Sample struct {
	Ref    Ref
	Status Status
	Value  Value
	At     Time // when the device answered
}

// Sink takes what was read, in the order in which it was read. Publish never blocks and keeps nothing of the batch.
type Sink interface {
	Publish(batch []Sample)
}

// Command is one write to one tag. Whoever executes it sets Status.
type Command struct {
	Ref    Ref
	Value  Value
	Status Status // of the write
	At     Time   // SourceTimestamp to store, for memory tags alone; zero: now
	Put    Status // status to store, for memory tags alone
	From   int    // first array element that Value replaces
	Part   bool   // Value replaces only the elements From and on of the tag's array
	// Edit makes the value of the one that is there, for memory tags alone: Value is what it puts in. Nil: Value is the
	// value.
	Edit func(old Value) (Value, Status)
}

// Op is an operation on a device.
type Op uint8

// The operations.
const (
	Poll Op = iota
	Enable
	Disable
	ResetCounters
)

// Field is what the client side may ask of the field side.
type Field interface {
	// Execute carries out the commands and sets their statuses. When it returns, nobody else holds cmds.
	Execute(ctx context.Context, cmds []Command)
	// Refresh reads the tags from their devices. It returns after the readings were published.
	Refresh(ctx context.Context, refs []Ref) Status
	// Operate applies op to a device.
	Operate(ctx context.Context, device string, op Op) Status
}

// Submitter is a Field that carries commands out in the order in which they came, whoever waits for them.
type Submitter interface {
	// Submit queues the commands behind those submitted before, and does not wait for a device. Where the queue of a
	// line is full they get BadResourceUnavailable. wait, called once, returns when their statuses are set and nobody
	// else holds cmds; what has not begun when ctx ends is never carried out.
	Submit(ctx context.Context, cmds []Command) (wait func())
}

// Account holds the bytes that one purpose may use. Take reports whether n more fit, and counts them if so.
// It is safe for concurrent use.
type Account interface {
	Take(n int) bool
	Give(n int)
}

// Pulse is how a working loop says that it works.
type Pulse func()

// Access tells what may be done with a tag.
type Access uint8

// The access of a tag.
const (
	Readable Access = 1 << iota
	Writable
)

// Def is a tag as a site describes it: what every room may know of it. How it is read from its device is its driver's
// own.
type Def struct {
	Device      string
	Name        string // within the device; a dot makes a folder
	Unit        string
	Description string
	How         Definer // how the value comes about; nil: nothing is said of it
	States      States  // texts of a discrete value
	Low, High   float64 // EURange, and the limits of a write
	Instrument  Span    // what the instrument can give; zero is not known
	Poll        time.Duration
	Len         int    // elements of an array; 0 is a scalar
	Place       uint32 // in the device, for How
	Kind        Kind
	Access      Access
	Decimals    uint8 // 1 + places behind the point that are worth showing; 0 is not known
	HasRange    bool
	Deadband    float64 // of history alone: a number that moved by no more is no change
	Memory      bool    // lives in the gateway: takes a written status and SourceTimestamp
	History     bool
	Retain      bool // of memory: its value outlives the process, and a Good write of it is on the disk
}

// Definer tells people how the values of tags come about: address and scaling. One does for all tags that differ in
// their place alone. Definers are compared, so their types are comparable.
type Definer interface {
	Definition(place uint32) string
}

// Tag is a tag of a Table. A site may have a hundred thousand of them, most of which differ in name and place alone:
// the rest is there once.
type Tag struct {
	*Def  // of all such tags, so without Name and Place; read only
	full  string
	place uint32
}

// Name is the tag's name within its device.
func (t *Tag) Name() string { return t.full[len(t.Device)+1:] }

// FullName is the name that is unique in the site: device, dot, name.
func (t *Tag) FullName() string { return t.full }

// Definition tells people how the value comes about; empty if nothing is known.
func (t *Tag) Definition() string {
	if t.How == nil {
		return ""
	}
	return t.How.Definition(t.place)
}

// Same reports whether two tags have the same name and definition.
func (t *Tag) Same(o *Tag) bool {
	return t.full == o.full && t.place == o.place && (t.Def == o.Def || *t.Def == *o.Def)
}

// Span is a range of numbers. The zero Span is none.
type Span struct{ Low, High float64 }

// FullName is the name that is unique in the site: device, dot, name.
func (d *Def) FullName() string { return d.Device + "." + d.Name }
