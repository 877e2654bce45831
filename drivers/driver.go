// Package drivers is the field side: buses that own their lines, the devices on them, and the fleet of all of them.
// It hides when a device is asked and in what order; what a device says is its driver's own.
package drivers

import (
	"context"
	"errors"
	"time"

	"edged/drivers/tag"
)

// Link is one connection to a line: what a bus opens, closes and backs off from. A bus has one a lane, shared by the
// devices of the line.
type Link interface {
	// Open connects. An error says in one sentence what is wrong and what helps.
	Open(ctx context.Context) error
	Close() error
}

// Driver is one device, planned when it is made. One call is one exchange on the wire, so that a command never waits
// for more than the exchange in flight. A bus calls a Driver from one goroutine a lane.
//
// Poll, Refresh and Write return a *Fault where the device failed and the link works, and any other error where the
// link is unusable and has to be opened again.
type Driver interface {
	// Tags are all tags of the device.
	Tags() []tag.Ref
	// Scans are the periods of the scan classes, by number.
	Scans() []time.Duration
	// Requests lists the requests of a scan class, by number; scan is an index into Scans.
	Requests(scan int) []int
	// Poll makes one request and appends its readings. A failed read is readings with a bad status, with a *Fault.
	// With any other error nothing is appended.
	Poll(ctx context.Context, lane, request int, dst []tag.Sample) ([]tag.Sample, error)
	// Refresh reads refs[0], with what else of refs the same exchange brings, and appends their readings, as Poll does.
	Refresh(ctx context.Context, lane int, refs []tag.Ref, dst []tag.Sample) ([]tag.Sample, error)
	// Write carries out the commands and sets their statuses: done, refused, sent and unanswered. It leaves the status
	// of a command that was not sent.
	Write(ctx context.Context, lane int, cmds []tag.Command) error
}

// Immediate is a device without a line: whoever asks carries its commands out at once.
type Immediate interface {
	Tags() []tag.Ref
	// Execute sets the statuses, and publishes what changed before it returns.
	Execute(cmds []tag.Command, sink tag.Sink)
	// Refresh publishes what the tags hold.
	Refresh(refs []tag.Ref, sink tag.Sink)
	// Run publishes what all tags hold, then what changes by itself, until ctx ends.
	Run(ctx context.Context, sink tag.Sink)
}

// Keeper is an Immediate whose writes are done when they are kept, such as on a disk. Keep is called after Execute, may
// wait, and changes the status of what could not be kept.
type Keeper interface {
	Keep(ctx context.Context, cmds []tag.Command)
}

// Listener is a Driver of an instrument that may talk unasked. It has its line for itself, and the bus listens whenever it
// has nothing else to do.
type Listener interface {
	// Talks reports whether the instrument talks unasked: nobody listens to one that does not.
	Talks() bool
	// Listen hears what the instrument says until ctx ends, which is no error. It returns a *Fault where the instrument was
	// silent for too long and the link works, and any other error where the link has to be opened again.
	Listen(ctx context.Context, ear Ear) error
}

// Ear is what a Listener tells what it hears.
type Ear interface {
	// Heard takes readings, in order. messages is how many whole messages brought them: with 0 they are bad ones.
	Heard(batch []tag.Sample, messages int)
	// Misheard takes what was said and is no reading: n times since the last call; f tells of one of them.
	Misheard(f *Fault, n int)
}

// Identity is what a device says of itself. What it does not say is empty.
type Identity struct {
	Manufacturer, Model, SoftwareRevision string
}

// Identifier is a Driver whose device can tell what it is. The bus asks when the device answers on a link that was
// opened, or after it was silent.
type Identifier interface {
	// Identify makes one exchange. more: it has to be called again for the rest. ErrSkipped: the device does not tell, and
	// was not asked; another error is as Poll's, and no fault of the device.
	Identify(ctx context.Context, lane int) (id Identity, more bool, err error)
}

// ErrUnsent is wrapped by the error of a link that broke before anything of the request was sent: even a write may be
// tried again.
var ErrUnsent = errors.New("nothing was sent")

// ErrHalfOpen is wrapped by the error of a link through which nothing came for long: the other end may have gone without
// a word, or only the devices that were asked. The link is opened anew at once, and if that succeeds the line is not
// down.
var ErrHalfOpen = errors.New("nothing came for long")

// ErrReplanned is wrapped by what Poll returns when the device refused the request as a whole and other requests have
// taken its place: nothing was read, and Requests tells them. With ErrSkipped the device was not asked.
var ErrReplanned = errors.New("the request was replaced")

// ErrSkipped is returned by Poll and Identify for what the device has refused lately, and by Refresh for what cannot be
// asked for: it was not asked, and nothing was read.
var ErrSkipped = errors.New("not asked again yet")

// FaultKind tells what a device did wrong.
type FaultKind uint8

// The kinds of faults, and of Link for the errors of a link in statistics.
const (
	Mute    FaultKind = iota // no answer in time, or its gateway says that it is absent
	Garbled                  // an answer that is none: wrong unit, function, count, checksum
	Busy                     // it asks for patience (exceptions 5 and 6)
	Refused                  // it answered with another exception
	LinkLost
	faultKinds
)

var faultNames = [faultKinds]string{"mute", "garbled", "busy", "refused", "link"}

// String is the kind's name in metrics.
func (k FaultKind) String() string { return faultNames[k] }

// Outcome tells of a write that failed whether it has happened.
type Outcome uint8

// The outcomes.
const (
	NotDone Outcome = iota // refused, or never sent
	Unknown                // sent, and nothing tells whether it was carried out
	Done                   // carried out: what failed came after it
)

// outcomeTexts are what the log says of a write that failed.
var outcomeTexts = [...]string{
	NotDone: "write failed: it has not happened",
	Unknown: "write was sent and not confirmed: it may have happened",
	Done:    "write was carried out, and could not be verified",
}

// Fault is the failure of one device on a link that works.
type Fault struct {
	Kind    FaultKind
	Outcome Outcome // of a write
	Err     error   // names the device and the request, with the raw code
}

func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }
