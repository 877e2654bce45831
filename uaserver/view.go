package uaserver

import (
	"sync"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// pointSize is the length of a ContinuationPoint in bytes: random, so that nobody guesses another's.
const pointSize = 16

// continuations are the paused browses of one session.
type continuations struct {
	mu     sync.Mutex // guards all below
	points []point    // oldest first
	serial uint64     // of the newest request
}

// point is one paused browse.
type point struct {
	id      [pointSize]byte
	request uint64 // that it is from
	from    address.BrowseDescription
	at      address.Position
	max     int // references a result
}

// begin counts a request.
func (c *continuations) begin() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	return c.serial
}

// keep stores a paused browse. The points of earlier requests give way to a new one (Part 4, 7.9); one request alone
// cannot have more than limit.
func (c *continuations) keep(p point, limit int) bool {
	copy(p.id[:], randomBytes(pointSize))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.points) >= limit {
		if len(c.points) == 0 || c.points[0].request == p.request {
			return false
		}
		c.points = append(c.points[:0], c.points[1:]...)
	}
	c.points = append(c.points, p)
	return true
}

// last is the id of the point that was kept last.
func (c *continuations) last() [pointSize]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.points[len(c.points)-1].id
}

// take removes a point and returns it.
func (c *continuations) take(id []byte) (p point, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.points {
		if string(c.points[i].id[:]) == string(id) {
			p = c.points[i]
			c.points = append(c.points[:i], c.points[i+1:]...)
			return p, true
		}
	}
	return p, false
}

// drop removes the points of a request whose answer did not reach the client.
func (c *continuations) drop(request uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.points[:0]
	for _, p := range c.points {
		if p.request != request {
			kept = append(kept, p)
		}
	}
	clear(c.points[len(kept):])
	c.points = kept
}

// browsing is the answer of one Browse or BrowseNext.
type browsing struct {
	s       *Server
	client  *client
	typ     uint32 // of the response
	handle  uint32
	request uint64 // serial of the request in client.browse
	room    int    // bytes of results, beyond which the rest is left to BrowseNext
	d       address.BrowseDescription
	n       int    // results
	results []byte // encoded BrowseResults
	refs    []byte // encoded references of one result
}

var browsings = sync.Pool{New: func() any { return new(browsing) }}

// maxPooled is how large a buffer may be that is kept for later, in bytes.
const maxPooled = 256 << 10

func newBrowsing(c *call, typ uint32, room int) *browsing {
	b := browsings.Get().(*browsing)
	b.s, b.client, b.typ, b.handle, b.request = c.s, c.client, typ, c.header.Handle, c.client.browse.begin()
	b.room = room
	return b
}

func (b *browsing) free() {
	if cap(b.results) > maxPooled {
		b.results = nil
	}
	if cap(b.refs) > maxPooled {
		b.refs = nil
	}
	*b = browsing{results: b.results[:0], refs: b.refs[:0]}
	browsings.Put(b)
}

// AppendTo appends the response: BrowseResponse and BrowseNextResponse have the same fields.
func (b *browsing) AppendTo(dst []byte) []byte {
	dst = wire.AppendResponseHeader(dst, b.typ, b.handle, ua.StatusGood, tag.Now())
	dst = wire.AppendUint32(dst, uint32(b.n))
	dst = append(dst, b.results...)
	return wire.AppendNull(dst) // no diagnostics
}

// refuse adds a result without references: a refusal, or the end of a point that was released.
func (b *browsing) refuse(code ua.StatusCode) {
	b.n++
	b.results = wire.AppendUint32(b.results, uint32(code))
	b.results = wire.AppendNull(b.results)
	b.results = wire.AppendUint32(b.results, 0)
}

// follow adds the result of browsing b.d from a position on. When the answer is full one reference is enough: the
// client goes on from there (Part 4, 5.9.2: a server may return fewer).
func (b *browsing) follow(from address.Position, max int) {
	d := &b.d
	most := max
	if len(b.results) >= b.room {
		most = 1
	}
	refs, count, next, code := b.s.space.Browse(b.refs[:0], d, from, most)
	if len(b.results)+len(refs) > b.room && count > 1 && code == ua.StatusGood {
		// Entries are much of a size: what is left of the room tells how many fit.
		most = count * (b.room - len(b.results)) / len(refs)
		refs, count, next, code = b.s.space.Browse(refs[:0], d, from, min(most+1, count)) // most may be 0, which is no limit
	}
	b.refs = refs
	if code != ua.StatusGood {
		b.refuse(code)
		return
	}
	if !next.Done() {
		p := point{request: b.request, from: *d, at: next, max: max}
		p.from.Node, p.from.ReferenceType = d.Node.Clone(), d.ReferenceType.Clone()
		if !b.client.browse.keep(p, b.s.cfg.Limits.Continuations) {
			b.refuse(ua.StatusBadNoContinuationPoints)
			return
		}
	}
	b.n++
	b.results = wire.AppendUint32(b.results, uint32(ua.StatusGood))
	if next.Done() {
		b.results = wire.AppendNull(b.results)
	} else {
		id := b.client.browse.last()
		b.results = wire.AppendByteString(b.results, id[:])
	}
	b.results = wire.AppendUint32(b.results, uint32(count))
	b.results = append(b.results, refs...)
}

// send answers. What the client cannot take it cannot continue either.
func (b *browsing) send(c *call) {
	err := c.send(b)
	if err != nil {
		b.client.browse.drop(b.request)
	}
	c.unsent(err)
	b.free()
}

// browse answers Browse (Part 4, 5.9.2).
func (s *Server) browse(c *call) {
	b, code := s.beginBrowse(c, c.room())
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	b.send(c)
}

// beginBrowse makes an answer of about room bytes.
func (s *Server) beginBrowse(c *call, room int) (*browsing, ua.StatusCode) {
	req := c.body.BrowseRequest()
	if code := s.checkBrowse(c, &req); code != ua.StatusGood {
		return nil, code
	}
	most := s.cfg.Limits.References
	if m := req.MaxReferences; m > 0 && uint64(m) < uint64(most) {
		most = int(m)
	}
	b := newBrowsing(c, id.BrowseResponse_Encoding_DefaultBinary, room)
	for v, ok := req.Next(); ok; v, ok = req.Next() {
		b.d = address.BrowseDescription{
			Node: c.realID(v.Node), Direction: v.Direction, ReferenceType: v.ReferenceType, Subtypes: v.Subtypes,
			Classes: v.ClassMask, Results: v.ResultMask, Roles: c.client.may().Roles(),
		}
		b.follow(address.Position{}, most)
	}
	return b, ua.StatusGood
}

func (s *Server) checkBrowse(c *call, req *wire.BrowseRequest) ua.StatusCode {
	if err := c.body.Err(); err != nil {
		return decodingStatus(err)
	}
	if code := operations(req.N, s.cfg.Limits.Nodes); code != ua.StatusGood {
		return code
	}
	switch {
	case !req.View.ID.IsNull(): // there are no views
		return ua.StatusBadViewIDUnknown
	case req.View.Timestamp != 0 && req.View.Version != 0: // at most one of them (Part 4, 7.45)
		return ua.StatusBadViewParameterMismatch
	case c.client.may()&address.MayBrowse == 0:
		return ua.StatusBadUserAccessDenied
	}
	return ua.StatusGood
}

// browseNext answers BrowseNext (Part 4, 5.9.3). A release has one result a point as well, though the standard wants an
// empty list: node-opcua's client hangs without it, and who follows the standard does not look.
func (s *Server) browseNext(c *call) {
	req := c.body.BrowseNextRequest()
	if err := c.body.Err(); err != nil {
		c.fault(decodingStatus(err))
		return
	}
	if code := operations(req.N, s.cfg.Limits.Nodes); code != ua.StatusGood {
		c.fault(code)
		return
	}
	b := newBrowsing(c, id.BrowseNextResponse_Encoding_DefaultBinary, c.room())
	for cp, ok := req.Next(); ok; cp, ok = req.Next() {
		p, known := c.client.browse.take(cp)
		switch {
		case !known:
			b.refuse(ua.StatusBadContinuationPointInvalid)
		case req.Release:
			b.refuse(ua.StatusGood)
		default:
			b.d = p.from
			b.follow(p.at, p.max)
		}
	}
	b.send(c)
}

// translate answers TranslateBrowsePathsToNodeIds (Part 4, 5.9.4).
func (s *Server) translate(c *call, req *ua.TranslateBrowsePathsToNodeIDsRequest) (ua.Response, ua.StatusCode) {
	if code := operations(len(req.BrowsePaths), s.cfg.Limits.Nodes); code != ua.StatusGood {
		return nil, code
	}
	if c.client.may()&address.MayBrowse == 0 {
		return nil, ua.StatusBadUserAccessDenied
	}
	resp := &ua.TranslateBrowsePathsToNodeIDsResponse{Results: make([]*ua.BrowsePathResult, len(req.BrowsePaths))}
	for i, p := range req.BrowsePaths {
		resp.Results[i] = s.translateOne(c, p)
	}
	return resp, ua.StatusGood
}

func (s *Server) translateOne(c *call, p *ua.BrowsePath) *ua.BrowsePathResult {
	if p.RelativePath == nil || len(p.RelativePath.Elements) == 0 {
		return &ua.BrowsePathResult{StatusCode: ua.StatusBadNothingToDo}
	}
	path := make([]address.RelativePathElement, len(p.RelativePath.Elements))
	for i, e := range p.RelativePath.Elements {
		path[i] = address.RelativePathElement{
			ReferenceType: wire.FromUA(e.ReferenceTypeID), Inverse: e.IsInverse, Subtypes: e.IncludeSubtypes,
		}
		if e.TargetName != nil {
			path[i].TargetNS, path[i].TargetName = e.TargetName.NamespaceIndex, e.TargetName.Name
		}
	}
	start, roles := c.realID(wire.FromUA(p.StartingNode)), c.client.may().Roles()
	if n := s.space.Find(start); n != nil && !n.Shows(roles) {
		return &ua.BrowsePathResult{StatusCode: ua.StatusBadNodeIDUnknown}
	}
	targets, code := s.space.Translate(start, path)
	if code != ua.StatusGood {
		return &ua.BrowsePathResult{StatusCode: code}
	}
	result := &ua.BrowsePathResult{StatusCode: ua.StatusBadNoMatch}
	for _, t := range targets {
		if t.Node.Shows(roles) {
			result.StatusCode = ua.StatusGood
			result.Targets = append(result.Targets, &ua.BrowsePathTarget{
				TargetID: &ua.ExpandedNodeID{NodeID: wire.ToUA(t.Node.ID)}, RemainingPathIndex: t.Remaining,
			})
		}
	}
	return result
}
