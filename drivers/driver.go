// Package drivers is the field side: buses that own their lines, the devices on them, and the fleet of all of them.
// It hides when a device is asked and in what order; what a device says is its driver's own.
package drivers

import (
	"context"

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
type Driver interface {
	// Requests lists the requests of a scan class, by number; scan is an index into the device's scan periods.
	Requests(scan int) []int
	// Poll makes one request and appends its readings. A failed read is readings with a bad status; an error means that
	// the link is unusable and has to be opened again.
	Poll(ctx context.Context, lane, request int, dst []tag.Sample) ([]tag.Sample, error)
	// Refresh reads just these tags and appends their readings.
	Refresh(ctx context.Context, lane int, refs []tag.Ref, dst []tag.Sample) ([]tag.Sample, error)
	// Write carries out the commands and sets their statuses: done, refused, sent and unanswered, never sent.
	Write(ctx context.Context, lane int, cmds []tag.Command) error
}

// Listener is a Driver of an instrument that talks unasked. The bus still writes through the link.
type Listener interface {
	Listen(ctx context.Context, sink tag.Sink) error
}
