package uaserver

import (
	"context"
	"sort"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// atTimeRead is how far the values of a node at given times were read (Part 11, 6.4.5).
//
// History is of changes, so a value holds until the next one (Stepped of the node's HistoricalDataConfiguration): what was
// recorded at the very time is returned as it is; of any other time the value before, Good and Interpolated. Where that is
// Bad, the value that was the last before it is UncertainDataSubNormal, or, with simple bounds, there is none: BadNoData
// (Part 13, 3.1.8 and 3.1.9). So is a time before all values; one that is yet to come is UncertainDataSubNormal.
type atTimeRead struct {
	times  []tag.Time
	next   int
	simple bool // UseSimpleBounds
}

func planAtTime(d *ua.ReadAtTimeDetails) *atTimeRead {
	r := &atTimeRead{times: make([]tag.Time, len(d.ReqTimes)), simple: d.UseSimpleBounds}
	for i, at := range d.ReqTimes {
		r.times[i] = tag.TimeOf(at)
	}
	return r
}

// read appends one value for each time, in their order, until the answer is full, and reports whether there are more.
func (r *atTimeRead) read(ctx context.Context, it *historyItem, w *historyWriter) (more bool, err error) {
	l := lookup{it: it, room: w.page[:0]}
	defer func() { w.page = l.room }()
	now := tag.Now()
	for r.next < len(r.times) {
		v, err := l.at(ctx, r.times[r.next], r.simple, now)
		if err != nil {
			return false, err
		}
		if w.full(sizeOf(&v)) {
			return true, nil
		}
		w.put(&v)
		r.next++
	}
	return false, nil
}

// lookup finds values by time. Times that follow each other are mostly found without another read.
type lookup struct {
	it   *historyItem
	room []tag.Sample

	window   []tag.Sample // oldest first: the last one before from, if there is one, and all to to
	from, to tag.Time     // to is not included
	good     tag.Sample   // the last one before the window that is not bad
	looked   bool         // good was looked for
}

// window is how many samples are read at once.
const lookupWindow = 512

func (l *lookup) at(ctx context.Context, at tag.Time, simple bool, now tag.Time) (tag.Sample, error) {
	if l.window == nil && l.to == 0 || at < l.from || at >= l.to {
		if err := l.load(ctx, at); err != nil {
			return tag.Sample{}, err
		}
	}
	i := sort.Search(len(l.window), func(i int) bool { return l.window[i].At > at }) - 1
	none := tag.Sample{Status: badNoData, At: at}
	switch {
	case i < 0:
		return none, nil
	case l.window[i].At == at:
		return l.window[i], nil
	case l.window[i].Status.IsBad() && simple:
		return none, nil
	}
	v := l.window[i]
	for j := i; v.Status.IsBad() && j >= 0; j-- {
		v = l.window[j]
	}
	if v.Status.IsBad() {
		if err := l.before(ctx); err != nil {
			return tag.Sample{}, err
		}
		if v = l.good; v.At == 0 {
			return none, nil
		}
	}
	status := interpolated
	if !v.Status.IsGood() || l.window[i].Status.IsBad() || at > now {
		status |= uncertainSubNormal
	}
	return tag.Sample{Ref: v.Ref, Status: status, Value: v.Value, At: at}, nil
}

// load reads what is around a time.
func (l *lookup) load(ctx context.Context, at tag.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	page, err := l.it.history.ReadHistory(ctx, address.HistoryQuery{Node: l.it.node, From: at, Limit: 1, Room: l.room[:0]})
	if err != nil {
		return err
	}
	samples := page.Samples
	if len(samples) > 0 && samples[0].At == at { // it comes again
		samples = samples[:0]
	}
	page, err = l.it.history.ReadHistory(ctx, address.HistoryQuery{Node: l.it.node, From: at, To: tag.MaxTime, Limit: lookupWindow, Room: samples})
	if err != nil {
		return err
	}
	l.room, l.window = page.Samples, page.Samples
	l.from, l.to = at, tag.MaxTime
	if n := len(l.window); page.Next != nil && n > 0 {
		l.to = max(at+1, l.window[n-1].At) // of that time there may be more
	}
	l.good, l.looked = tag.Sample{}, false
	return nil
}

// before looks for the last value before the window that is not bad.
func (l *lookup) before(ctx context.Context) error {
	if l.looked {
		return nil
	}
	q := address.HistoryQuery{Node: l.it.node, From: l.window[0].At, Limit: 64}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		page, err := l.it.history.ReadHistory(ctx, q)
		if err != nil {
			return err
		}
		for _, v := range page.Samples {
			if !v.Status.IsBad() {
				l.good, l.looked = v, true
				return nil
			}
		}
		if q.After, q.Room = page.Next, page.Samples[:0]; page.Next == nil {
			l.looked = true
			return nil
		}
	}
}
