package address

import (
	"context"

	"edged/drivers/tag"
)

// Historian is an optional ability of a NodeManager: it keeps what its variables with Historizing set were.
type Historian interface {
	// ReadHistory reads one page. It may wait for a disk; who asks has checked that the node is the manager's, and that the
	// user may read it. A node without any history is no error, and a time of which nothing could be recorded is a
	// sample with a bad status, and no value, where it begins.
	ReadHistory(ctx context.Context, q HistoryQuery) (HistoryPage, error)
}

// HistoryQuery asks for samples of a variable: from From, that time included, to To, that one not. Where From is after To,
// time runs backward. Both the same are the samples of that time.
type HistoryQuery struct {
	Node     *Node
	From, To tag.Time
	After    []byte       // Next of the page before; nil: from the beginning
	Limit    int          // samples, at most
	Room     []tag.Sample // samples are appended to it
}

// HistoryPage is what a query gave.
type HistoryPage struct {
	Samples []tag.Sample
	Next    []byte // the key of what follows, which holds nothing of the Historian's; nil: there is no more
}
