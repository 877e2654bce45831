package uaserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// slow is a NodeManager whose values come from devices: it may have to be waited for.
type slow interface {
	// Stale reports whether an item was answered with a value that is older than its reader wants it.
	Stale(it *address.ReadItem, now tag.Time) bool
	// Refresh reads the stale items' values from their devices, until ctx ends. The items are read again afterwards.
	Refresh(ctx context.Context, items []address.ReadItem)
	// Waits reports whether a write to the node, or a call of the method that it is, waits for a device.
	Waits(n *address.Node) bool
}

// freshness is how old a value may be whatever maxAge says: a younger one is never stale.
const freshness = time.Second

// node finds a node by the id that a client uses: its own, or an alias of RegisterNodes.
func (c *call) node(n *wire.NodeID) *address.Node {
	if c.client != nil && isAlias(n) {
		return c.client.aliases.find(c.s.space, n.Num)
	}
	return c.s.space.Find(*n)
}

// realID is the id of the node that an alias stands for; any other id is itself.
func (c *call) realID(n wire.NodeID) wire.NodeID {
	if isAlias(&n) {
		if node := c.node(&n); node != nil {
			return node.ID
		}
	}
	return n
}

// reading is one Read in the making, and the Body of its answer.
type reading struct {
	handle uint32
	stamps ua.TimestampsToReturn
	at     tag.Time // when the answer was made
	most   int      // bytes that the client takes; 0: no matter
	items  []address.ReadItem
	faults []itemFault
}

// itemFault is an item that must not be read.
type itemFault struct {
	item   int
	status tag.Status
}

var readings = sync.Pool{New: func() any { return new(reading) }}

func (r *reading) free() {
	clear(r.items) // texts in it alias a connection's buffer, nodes may be removed
	r.items, r.faults, r.most = r.items[:0], r.faults[:0], 0
	readings.Put(r)
}

// read answers Read (Part 4, 5.11.2). What memory holds is answered at once; when values are older than the client
// takes them, their devices are asked first.
func (s *Server) read(c *call) {
	r, code := s.beginRead(c)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	r.most = c.most()
	if managers := r.stale(); managers != nil && s.readSlowly(c, r, managers) {
		return
	}
	c.reply(r)
	r.free()
}

// beginRead reads what memory holds. The reading aliases the connection's buffer.
func (s *Server) beginRead(c *call) (*reading, ua.StatusCode) {
	req := c.body.ReadRequest()
	if code := s.checkRead(c, &req); code != ua.StatusGood {
		return nil, code
	}
	r := readings.Get().(*reading)
	r.handle, r.stamps = c.header.Handle, req.Timestamps
	r.gather(c, &req)
	if err := c.body.Err(); err != nil {
		r.free()
		return nil, decodingStatus(err)
	}
	s.space.Read(s.ctx, c.client.may(), r.items)
	r.settle()
	return r, ua.StatusGood
}

// gather makes items of what a client wants to read.
func (r *reading) gather(c *call, req *wire.ReadRequest) {
	r.items = slices.Grow(r.items, req.N)[:req.N] // which free has cleared
	age := fromMillis(req.MaxAge)
	var v wire.ReadValueID
	for i := 0; req.Next(&v); i++ {
		if v.Encoding != "" || v.EncodingNS != 0 {
			if st := checkEncoding(&v); st != tag.Good {
				r.faults = append(r.faults, itemFault{i, st})
			}
		}
		it := &r.items[i]
		it.Node, it.Attribute, it.Range, it.MaxAge = c.node(&v.Node), v.Attribute, v.Range, age
	}
}

func (s *Server) checkRead(c *call, req *wire.ReadRequest) ua.StatusCode {
	switch {
	case c.body.Err() != nil:
		return decodingStatus(c.body.Err())
	case !(req.MaxAge >= 0): // a NaN neither
		return ua.StatusBadMaxAgeInvalid
	case req.Timestamps > ua.TimestampsToReturnNeither:
		return ua.StatusBadTimestampsToReturnInvalid
	}
	return operations(req.N, s.cfg.Limits.Nodes)
}

// operations compares the number of operations in a call with a limit.
func operations(n, limit int) ua.StatusCode {
	switch {
	case n == 0:
		return ua.StatusBadNothingToDo
	case n > limit:
		return ua.StatusBadTooManyOperations
	}
	return ua.StatusGood
}

// checkEncoding checks a DataEncoding (Part 4, 5.11.2.2): it goes with a Value alone, and only the default is there. The
// default is taken for any Value, though the standard has encodings of structures alone: it changes nothing there, and
// clients name it before they know the type.
func checkEncoding(v *wire.ReadValueID) tag.Status {
	switch {
	case v.Attribute != ua.AttributeIDValue:
		return tag.Status(ua.StatusBadDataEncodingInvalid)
	case v.EncodingNS == 0 && v.Encoding == "Default Binary":
		return tag.Good
	case v.EncodingNS == 0 && (v.Encoding == "Default XML" || v.Encoding == "Default JSON"):
		return tag.Status(ua.StatusBadDataEncodingUnsupported)
	}
	return tag.Status(ua.StatusBadDataEncodingInvalid)
}

// stale returns the managers that have to ask devices; nil: none.
func (r *reading) stale() (managers []slow) {
	now := r.at
	for i := range r.items {
		it := &r.items[i]
		if it.Node == nil || it.Attribute != ua.AttributeIDValue || now.Sub(it.Result.Server) <= max(it.MaxAge, freshness) {
			continue
		}
		m, ok := it.Node.Manager.(slow)
		if !ok || !m.Stale(it, now) {
			continue
		}
		known := false
		for _, k := range managers {
			known = known || k == m
		}
		if !known {
			managers = append(managers, m)
		}
	}
	return managers
}

// readSlowly reads again after the devices were asked, and then owns the reading. When they do not answer in time, or
// too many requests wait for devices already (false), what is known is the answer; its ServerTimestamp tells how old it
// is.
func (s *Server) readSlowly(c *call, r *reading, managers []slow) bool {
	return s.apart(c, func(context.Context) {
		for i := range r.items {
			r.items[i].Range = strings.Clone(r.items[i].Range)
		}
	}, func(ctx context.Context, c *call) func() {
		for _, m := range managers {
			m.Refresh(ctx, r.items)
		}
		if errors.Is(context.Cause(ctx), errCancelled) {
			return func() {
				c.fault(ua.StatusBadRequestCancelledByClient)
				r.free()
			}
		}
		s.space.Read(ctx, c.client.may(), r.items)
		r.settle()
		return func() {
			c.reply(r)
			r.free()
		}
	})
}

// settle notes the time of the answer, and gives the items that must not be read their status.
func (r *reading) settle() {
	r.at = tag.Now()
	for _, f := range r.faults {
		r.items[f.item].Result = wire.DataValue{Status: f.status, Server: r.at}
	}
}

// AppendTo appends the ReadResponse.
//
// One that the client does not take anyhow is not made to its end: few bytes ask for many, of arrays above all.
func (r *reading) AppendTo(dst []byte) []byte {
	begin := len(dst)
	now := r.at
	dst = wire.AppendResponseHeader(dst, id.ReadResponse_Encoding_DefaultBinary, r.handle, ua.StatusGood, now)
	dst = wire.AppendUint32(dst, uint32(len(r.items)))
	source := r.stamps == ua.TimestampsToReturnSource || r.stamps == ua.TimestampsToReturnBoth
	server := r.stamps == ua.TimestampsToReturnServer || r.stamps == ua.TimestampsToReturnBoth
	for i := range r.items {
		it := &r.items[i]
		v := &it.Result
		if v.Status.IsBad() {
			v.Value = tag.Value{} // Part 4, 7.11.1
		}
		if v.Server == 0 {
			v.Server = now
		}
		switch {
		case !source || it.Attribute != ua.AttributeIDValue: // only a Value has one (Part 4, 7.11.3)
			v.Source = 0
		case v.Source == 0:
			v.Source = v.Server
		}
		if !server {
			v.Server = 0
		}
		dst = wire.AppendDataValue(dst, v)
		if r.most > 0 && len(dst)-begin > r.most {
			break
		}
	}
	return wire.AppendNull(dst) // no diagnostics
}

// writing is one Write in the making, and the Body of its answer.
type writing struct {
	handle uint32
	items  []address.WriteItem
}

var writings = sync.Pool{New: func() any { return new(writing) }}

func (w *writing) free() {
	clear(w.items)
	w.items = w.items[:0]
	writings.Put(w)
}

// write answers Write (Part 4, 5.11.4). The whole request was read before any of it is carried out. A write that waits
// for a device does so in its own goroutine, and takes its place in the device's queue before the next request is read:
// writes that a client has in flight at once do not overtake each other.
func (s *Server) write(c *call) {
	w, waits, code := s.beginWrite(c)
	if code != ua.StatusGood {
		c.fault(code)
		return
	}
	if !c.fits(len(w.items), 4) {
		c.fault(ua.StatusBadResponseTooLarge)
		w.free()
		return
	}
	if !waits {
		notes, audits := s.noteWrites(c, w), s.auditWrites(c, w)
		s.space.Write(s.ctx, c.client.may(), w.items)
		s.tellWrites(c, w, audits)
		c.reply(w)
		s.logWrites(c, w, notes)
		w.free()
		return
	}
	var wait func()
	var notes []written
	var audits []audited
	ok := s.apart(c, func(ctx context.Context) {
		notes, audits = s.noteWrites(c, w), s.auditWrites(c, w)
		wait = s.space.Submit(ctx, c.client.may(), w.items)
	}, func(_ context.Context, c *call) func() {
		wait()
		return func() {
			s.tellWrites(c, w, audits)
			c.reply(w) // also of a cancelled request: what was written stays written, and the client is told
			s.logWrites(c, w, notes)
			w.free()
		}
	})
	if !ok {
		c.fault(statusBadServerTooBusy)
		w.free()
	}
}

// beginWrite reads the request, and tells whether carrying it out waits for a device. The items alias the connection's
// buffer.
func (s *Server) beginWrite(c *call) (w *writing, waits bool, code ua.StatusCode) {
	req := c.body.WriteRequest()
	if err := c.body.Err(); err != nil {
		return nil, false, decodingStatus(err)
	}
	if code := operations(req.N, s.cfg.Limits.Nodes); code != ua.StatusGood {
		return nil, false, code
	}
	w = writings.Get().(*writing)
	w.handle = c.header.Handle
	waits = w.gather(c, &req)
	if err := c.body.Err(); err != nil {
		w.free()
		return nil, false, decodingStatus(err)
	}
	return w, waits, ua.StatusGood
}

// gather makes items of what a client wants to write, and tells whether any of them waits for a device.
func (w *writing) gather(c *call, req *wire.WriteRequest) (waits bool) {
	w.items = slices.Grow(w.items, req.N)[:req.N] // which free has cleared
	var v wire.WriteValue
	var manager address.NodeManager // of the item before
	var m slow                      // nil: manager is not
	for i := range w.items {
		it := &w.items[i]
		if !req.Next(&v, &it.Value) {
			break
		}
		n := c.node(&v.Node)
		if !waits && n != nil {
			if n.Manager != manager {
				manager = n.Manager
				m, _ = manager.(slow)
			}
			waits = m != nil && m.Waits(n)
		}
		it.Node, it.Attribute, it.Range = n, v.Attribute, v.Range
	}
	return waits
}

// AppendTo appends the WriteResponse.
func (w *writing) AppendTo(dst []byte) []byte {
	dst = wire.AppendResponseHeader(dst, id.WriteResponse_Encoding_DefaultBinary, w.handle, ua.StatusGood, tag.Now())
	dst = wire.AppendUint32(dst, uint32(len(w.items)))
	for i := range w.items {
		dst = wire.AppendUint32(dst, uint32(w.items[i].Status))
	}
	return wire.AppendNull(dst) // no diagnostics
}
