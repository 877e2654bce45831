package uaserver

import (
	"context"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// rawRead is how far the raw values of a node were read (Part 11, 6.4.3). Where from is after to, time runs backward.
type rawRead struct {
	from, to tag.Time // to is not included
	open     bool     // to was not given: number is all that is wanted
	bounds   bool     // values that bound the time are wanted
	number   int      // values of one answer, or of all where open; 0: as many as there are

	key   []byte   // of what follows
	last  tag.Time // of the value that was returned last; 0: none was
	begun bool     // the first bound is done
	ended bool     // there are no more values
	done  bool     // and no bound either
}

// plan is what the time bounds mean (Part 11, 6.4.3.2): two of start, end and number have to be given.
func (r *rawRead) plan(d *ua.ReadRawModifiedDetails) tag.Status {
	start, end, number := tag.TimeOf(d.StartTime), tag.TimeOf(d.EndTime), int(min(d.NumValuesPerNode, 1<<30))
	*r = rawRead{from: start, to: end, bounds: d.ReturnBounds, number: number}
	switch {
	case d.IsReadModified: // nothing in the history is ever modified, so that there is no such history
		return badHistoryUnsupported
	case start != 0 && end != 0:
		return tag.Good
	case number == 0 || start == 0 && end == 0:
		return badHistoryInvalid
	case end == 0:
		r.to = tag.MaxTime
	default: // back from the end
		r.from, r.to = end, 0
	}
	r.open = true
	return tag.Good
}

func (r *rawRead) backward() bool { return r.from > r.to }

// read appends values until the answer is full, and reports whether there are more.
func (r *rawRead) read(ctx context.Context, it *historyItem, w *historyWriter) (more bool, err error) {
	left := r.number
	if left == 0 {
		left = 1 << 30
	}
	if r.bounds && !r.begun && r.from != r.to {
		v, err := r.bound(ctx, it, w, r.from, !r.backward())
		if err != nil {
			return false, err
		}
		if v.At != r.from || v.Status == badBoundNotFound { // one at the very time is among the values
			w.put(&v)
			r.last = v.At
			left--
		}
	}
	r.begun = true
	for !r.ended && left > 0 && !w.full(22) {
		n, err := r.page(ctx, it, w, left)
		if err != nil {
			return false, err
		}
		if n == 0 && !r.ended {
			break
		}
		left -= n
	}
	r.done = r.ended && (!r.bounds || r.from == r.to)
	if r.ended && !r.done && left > 0 && !w.full(22) {
		if err := r.endBound(ctx, it, w); err != nil {
			return false, err
		}
		r.done = true
	}
	if r.open && r.number > 0 {
		if r.number = left; left == 0 {
			return false, nil
		}
	}
	return !r.done, nil
}

// page appends one page, and returns how many values it had.
func (r *rawRead) page(ctx context.Context, it *historyItem, w *historyWriter, left int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	size := 22
	if w.n > 0 {
		size = max(1, w.used/w.n)
	}
	q := address.HistoryQuery{
		Node: it.node, From: r.from, To: r.to, After: r.key, Limit: max(1, min(maxPage, left, (w.most-w.used)/size)), Room: w.page[:0],
	}
	page, err := it.history.ReadHistory(ctx, q)
	if err != nil {
		return 0, err
	}
	w.page = page.Samples
	n := 0
	for i := range page.Samples {
		v := &page.Samples[i]
		if w.full(sizeOf(v)) {
			break
		}
		w.put(v)
		r.last = v.At
		n++
	}
	if n < len(page.Samples) { // values are larger than those before: their key is that of a shorter page
		if n == 0 {
			return 0, nil
		}
		q.Limit, q.Room = n, w.page[:0]
		if page, err = it.history.ReadHistory(ctx, q); err != nil {
			return 0, err
		}
	}
	r.key, r.ended = page.Next, page.Next == nil
	return n, nil
}

// bound is the value at a time, or the nearest one before or behind; BadBoundNotFound where there is none.
func (r *rawRead) bound(ctx context.Context, it *historyItem, w *historyWriter, at tag.Time, before bool) (tag.Sample, error) {
	q := address.HistoryQuery{Node: it.node, From: at, To: tag.MaxTime, Limit: 1, Room: w.page[:0]}
	if before {
		q.To = 0
	}
	page, err := it.history.ReadHistory(ctx, q)
	if err != nil {
		return tag.Sample{}, err
	}
	w.page = page.Samples
	if len(page.Samples) == 0 {
		return tag.Sample{Status: badBoundNotFound, At: at}, nil
	}
	return page.Samples[0], nil
}

// endBound appends the value that bounds the end. Where no end was given there is none, a second beyond the last value
// (Part 11, 6.4.3.2).
func (r *rawRead) endBound(ctx context.Context, it *historyItem, w *historyWriter) error {
	if r.open {
		at := r.last
		if at == 0 {
			at = r.from
		}
		beyond := time.Second
		if r.backward() {
			beyond = -beyond
		}
		w.put(&tag.Sample{Status: badBoundNotFound, At: at.Add(beyond)})
		return nil
	}
	v, err := r.bound(ctx, it, w, r.to, r.backward())
	if err == nil {
		w.put(&v)
	}
	return err
}
