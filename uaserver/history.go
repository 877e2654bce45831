package uaserver

import (
	"context"
	"errors"
	"sync"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// Statuses of HistoryRead that neither package ua nor package tag has a name for.
const (
	goodNoData              = tag.Status(0x00A50000)
	uncertainSubNormal      = tag.Status(0x40A40000) // UncertainDataSubNormal
	badNoData               = tag.Status(0x809B0000)
	badBoundNotFound        = tag.Status(0x80D70000)
	badTimestampUnsupported = tag.Status(0x80A10000)
	badHistoryInvalid       = tag.Status(0x80710000) // BadHistoryOperationInvalid
	badHistoryUnsupported   = tag.Status(0x80720000) // BadHistoryOperationUnsupported
	badPointInvalid         = tag.Status(0x804A0000) // BadContinuationPointInvalid
	badNoPoints             = tag.Status(0x804B0000) // BadNoContinuationPoints

	// interpolated are the info bits of a value that stands for one between two (Part 4, 7.39.1, and Part 11, 6.3.2).
	interpolated = tag.Status(0x0402)
)

// historyPoint is one HistoryRead of a node that is not at its end. It is a place, and holds nothing of the history.
type historyPoint struct {
	id      [pointSize]byte
	request uint64
	query   historyItem
}

// historyPoints are those of one session.
type historyPoints struct {
	mu     sync.Mutex     // guards all below
	points []historyPoint // oldest first
	serial uint64         // of the newest request
}

func (p *historyPoints) begin() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serial++
	return p.serial
}

// keep stores where a read goes on. The points of earlier requests give way to a new one (Part 4, 7.9); one request alone
// cannot have more than limit.
func (p *historyPoints) keep(q *historyItem, request uint64, limit int) (id [pointSize]byte, ok bool) {
	copy(id[:], randomBytes(pointSize))
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.points) >= limit {
		if len(p.points) == 0 || p.points[0].request == request {
			return id, false
		}
		clear(p.points[:1])
		p.points = append(p.points[:0], p.points[1:]...)
	}
	p.points = append(p.points, historyPoint{id, request, *q})
	return id, true
}

// take removes a point.
func (p *historyPoints) take(id []byte) (q historyItem, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.points {
		if string(p.points[i].id[:]) == string(id) {
			q = p.points[i].query
			p.points = append(p.points[:i], p.points[i+1:]...)
			return q, true
		}
	}
	return q, false
}

// drop removes the points of a request whose answer did not reach the client.
func (p *historyPoints) drop(request uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.points[:0]
	for _, one := range p.points {
		if one.request != request {
			kept = append(kept, one)
		}
	}
	clear(p.points[len(kept):])
	p.points = kept
}

// historyItem is one node of a HistoryRead, and how far it was read.
type historyItem struct {
	status  tag.Status // other than Good: it is refused
	node    *address.Node
	history address.Historian
	part    address.Range // IndexRange
	ranged  bool

	raw rawRead
	at  *atTimeRead // nil: raw
}

// historyReading is one HistoryRead in the making, and the Body of its answer.
type historyReading struct {
	s       *Server
	client  *client
	handle  uint32
	request uint64 // serial, in client.history
	release bool
	room    int // bytes of results
	items   []historyItem
	count   int    // results
	results []byte // encoded HistoryReadResults
}

// maxPage is how many samples are read at once: 320 KB of them, and more than an hour of one tag at 1 s, which is what
// lies together on the disk.
const maxPage = 8 << 10

// historyTurns is how many clients' reads of history are carried out at once: they have one disk, and each of them up to
// 2 MB in hand.
const historyTurns = 4

// pages are rooms for one page of samples each.
var pages = sync.Pool{New: func() any { return new([]tag.Sample) }}

// historyRead answers HistoryRead (Part 4, 5.11.3, and Part 11, 6.4). It runs in a goroutine of its own: it may wait for
// a disk.
func (s *Server) historyRead(c *call, req *ua.HistoryReadRequest) (ua.Response, ua.StatusCode) {
	h, code := s.beginHistory(c, req)
	if code != ua.StatusGood {
		return nil, code
	}
	if h.release {
		for i := range h.items {
			h.refuse(h.items[i].status)
		}
		c.reply(h)
		return nil, ua.StatusGood
	}
	ok := s.apart(c, func(context.Context) {}, func(ctx context.Context, c *call) func() {
		code := h.read(ctx)
		return func() { h.answer(c, code) }
	})
	if !ok {
		return nil, statusBadServerTooBusy
	}
	return nil, ua.StatusGood
}

// beginHistory checks the request, and finds its nodes.
func (s *Server) beginHistory(c *call, req *ua.HistoryReadRequest) (*historyReading, ua.StatusCode) {
	if code := operations(len(req.NodesToRead), s.cfg.Limits.HistoryNodes); code != ua.StatusGood {
		return nil, code
	}
	if req.TimestampsToReturn >= ua.TimestampsToReturnNeither { // which leaves nothing to tell values apart by (Part 11, 6.4.2)
		return nil, ua.StatusBadTimestampsToReturnInvalid
	}
	h := &historyReading{
		s: s, client: c.client, handle: c.header.Handle, request: c.client.history.begin(), release: req.ReleaseContinuationPoints,
		room: c.room(), items: make([]historyItem, len(req.NodesToRead)),
	}
	var details any
	if req.HistoryReadDetails != nil {
		details = req.HistoryReadDetails.Value
	}
	if details == nil && !h.release {
		return nil, ua.StatusCode(badHistoryInvalid)
	}
	for i, n := range req.NodesToRead {
		it := &h.items[i]
		switch {
		case len(n.ContinuationPoint) > 0:
			var ok bool
			if *it, ok = c.client.history.take(n.ContinuationPoint); !ok {
				it.status = badPointInvalid
			} else if !h.release {
				it.status = h.findAgain(it)
			}
		case h.release:
			it.status = badPointInvalid
		default:
			h.plan(c, it, n, details, req.TimestampsToReturn)
		}
	}
	return h, ua.StatusGood
}

// plan decides what is read of one node.
func (h *historyReading) plan(c *call, it *historyItem, n *ua.HistoryReadValueID, details any, stamps ua.TimestampsToReturn) {
	node := wire.FromUA(n.NodeID)
	it.node = c.node(&node)
	switch d := details.(type) {
	case *ua.ReadRawModifiedDetails:
		if it.status = h.findVariable(it, n, stamps); it.status != tag.Good {
			return
		}
		it.status = it.raw.plan(d)
	case *ua.ReadAtTimeDetails:
		if it.status = h.findVariable(it, n, stamps); it.status != tag.Good {
			return
		}
		it.at = planAtTime(d)
	default: // ReadEventDetails, ReadProcessedDetails and what is not known
		if it.status = badHistoryUnsupported; it.node == nil {
			it.status = tag.BadNodeIDUnknown
		}
	}
}

// findVariable checks that a node has a history of values which the client may read.
func (h *historyReading) findVariable(it *historyItem, n *ua.HistoryReadValueID, stamps ua.TimestampsToReturn) tag.Status {
	may := h.client.may()
	switch {
	case it.node == nil || !it.node.Shows(may.Roles()):
		return tag.BadNodeIDUnknown
	case it.node.Class != ua.NodeClassVariable || it.node.Access&ua.AccessLevelTypeHistoryRead == 0:
		return badHistoryUnsupported
	case it.node.UserAccess(may)&ua.AccessLevelTypeHistoryRead == 0:
		return tag.BadUserAccessDenied
	}
	var ok bool
	if it.history, ok = it.node.Manager.(address.Historian); !ok {
		return badHistoryUnsupported
	}
	if n.DataEncoding != nil && n.DataEncoding.Name != "" {
		v := wire.ReadValueID{Attribute: ua.AttributeIDValue, Encoding: n.DataEncoding.Name, EncodingNS: n.DataEncoding.NamespaceIndex}
		if st := checkEncoding(&v); st != tag.Good {
			return st
		}
	}
	if stamps == ua.TimestampsToReturnServer { // when a value was last verified is not recorded (Part 11, 6.4.2)
		return badTimestampUnsupported
	}
	if it.ranged = n.IndexRange != ""; it.ranged {
		var err error
		if it.part, err = address.ParseRange(n.IndexRange); err != nil || len(n.IndexRange) > maxHistoryRange {
			return tag.BadIndexRangeInvalid
		}
	}
	return tag.Good
}

// findAgain looks at a node that a continuation is of: since then its tag may have gone, or the user's rights.
func (h *historyReading) findAgain(it *historyItem) tag.Status {
	it.node = h.s.space.Find(it.node.ID)
	switch may := h.client.may(); {
	case it.node == nil:
		return tag.BadNodeIDUnknown
	case it.node.Access&ua.AccessLevelTypeHistoryRead == 0:
		return badHistoryUnsupported
	case it.node.UserAccess(may)&ua.AccessLevelTypeHistoryRead == 0:
		return tag.BadUserAccessDenied
	}
	return tag.Good
}

// maxHistoryRange is how long an IndexRange is at most: longer ones are of no value.
const maxHistoryRange = 255

// read reads all nodes when it is its turn. The room that is left is divided among those that come, each of which gets one sample at least.
func (h *historyReading) read(ctx context.Context) ua.StatusCode {
	select {
	case h.s.turns <- struct{}{}:
		defer func() { <-h.s.turns }()
	case <-ctx.Done():
		return h.ended(ctx)
	}
	room := pages.Get().(*[]tag.Sample)
	page := *room
	defer func() {
		clear(page[:cap(page)]) // texts and arrays are not held
		*room = page[:0]
		if cap(page) <= 4*maxPage {
			pages.Put(room)
		}
	}()
	h.results = make([]byte, 0, min(h.room, 64<<10))
	for i := range h.items {
		it := &h.items[i]
		if it.status != tag.Good {
			h.refuse(it.status)
			continue
		}
		if ctx.Err() != nil {
			return h.ended(ctx)
		}
		share := (h.room - len(h.results)) / (len(h.items) - i)
		page = h.readItem(ctx, it, share, page)
	}
	return ua.StatusGood
}

// ended is why there is no time left.
func (h *historyReading) ended(ctx context.Context) ua.StatusCode {
	if errors.Is(context.Cause(ctx), errCancelled) {
		return ua.StatusBadRequestCancelledByClient
	}
	return ua.StatusBadTimeout
}

// readItem adds the result of one node.
func (h *historyReading) readItem(ctx context.Context, it *historyItem, room int, page []tag.Sample) []tag.Sample {
	begin := len(h.results)
	h.results = append(h.results, 0, 0, 0, 0, 0, 0, 0, 0) // StatusCode, and no ContinuationPoint
	wire.AppendNull(h.results[:begin+4])
	w := historyWriter{dst: h.results, part: it.part, ranged: it.ranged, page: page}
	var body, count int
	w.dst, body = wire.BeginExtension(w.dst, id.HistoryData_Encoding_DefaultBinary)
	count = len(w.dst)
	w.dst = append(w.dst, 0, 0, 0, 0)
	w.most = max(1, room)
	var more bool
	var err error
	if it.at != nil {
		more, err = it.at.read(ctx, it, &w)
	} else {
		more, err = it.raw.read(ctx, it, &w)
	}
	page = w.page[:0]
	if err != nil {
		h.results = w.dst[:begin]
		h.refuse(historyStatus(err))
		return page
	}
	wire.AppendUint32(w.dst[:count], uint32(w.n))
	w.dst = wire.EndExtension(w.dst, body)
	switch {
	case more:
		point, ok := h.client.history.keep(it, h.request, h.s.cfg.Limits.HistoryContinuations)
		if !ok {
			h.results = w.dst[:begin]
			h.refuse(badNoPoints)
			return page
		}
		// The place of the point was left empty: what is behind it moves.
		w.dst = append(w.dst, point[:]...)
		copy(w.dst[begin+8+pointSize:], w.dst[begin+8:len(w.dst)-pointSize])
		copy(w.dst[begin+8:], point[:])
		wire.AppendUint32(w.dst[:begin+4], pointSize)
	case w.n == 0:
		wire.AppendUint32(w.dst[:begin], uint32(goodNoData))
	}
	h.results = w.dst
	h.count++
	return page
}

// historyStatus is the status of a node whose history cannot be read.
func historyStatus(err error) tag.Status {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return tag.BadTimeout
	}
	return tag.BadResourceUnavailable
}

// refuse adds a result without values.
func (h *historyReading) refuse(st tag.Status) {
	h.count++
	h.results = wire.AppendUint32(h.results, uint32(st))
	h.results = wire.AppendNull(h.results)
	h.results = wire.AppendExtension(h.results, &wire.Extension{Encoding: wire.NoBody})
}

// answer sends what was read. What the client cannot take it cannot continue either.
func (h *historyReading) answer(c *call, code ua.StatusCode) {
	if code == ua.StatusGood {
		err := c.send(h)
		if err == nil {
			return
		}
		h.client.history.drop(h.request)
		c.unsent(err)
		return
	}
	h.client.history.drop(h.request)
	c.fault(code)
}

// AppendTo appends the HistoryReadResponse.
func (h *historyReading) AppendTo(dst []byte) []byte {
	dst = wire.AppendResponseHeader(dst, id.HistoryReadResponse_Encoding_DefaultBinary, h.handle, ua.StatusGood, tag.Now())
	dst = wire.AppendUint32(dst, uint32(h.count))
	dst = append(dst, h.results...)
	return wire.AppendNull(dst) // no diagnostics
}

// historyWriter appends samples as DataValues.
type historyWriter struct {
	dst    []byte
	part   address.Range
	ranged bool
	n      int // DataValues
	most   int // bytes of them, about: one is always taken
	used   int
	page   []tag.Sample
}

// full reports whether a sample of that many bytes has no room any more.
func (w *historyWriter) full(size int) bool { return w.n > 0 && w.used+size > w.most }

// put appends a sample.
func (w *historyWriter) put(v *tag.Sample) {
	at := len(w.dst)
	d := wire.DataValue{Value: v.Value, Status: v.Status, Source: v.At}
	if w.ranged && !v.Status.IsBad() {
		value, status := address.ApplyRange(v.Value, w.part)
		if d.Value = value; status.IsBad() {
			d.Value, d.Status = tag.Value{}, status
		}
	}
	w.dst = wire.AppendDataValue(w.dst, &d)
	w.used += len(w.dst) - at
	w.n++
}

// sizeOf is how many bytes a sample's DataValue has at most.
func sizeOf(v *tag.Sample) int { return 22 + v.Value.Size() }
