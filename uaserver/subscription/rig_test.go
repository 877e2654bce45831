package subscription

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
	"go.uber.org/goleak"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an engine with variables and clients, without sockets.
type rig struct {
	*testing.T
	engine *Engine
	block  *address.Block
	vars   []*variable
}

// variable is a node; it is its own NodeManager and, through live, a value that is read.
type variable struct {
	node   address.Node
	series *address.Series // nil: sampled by reading
	gate   chan struct{}   // readings wait for it; nil: they do not
	mu     sync.Mutex      // guards all below
	live   wire.DataValue
	broken bool // reading it panics
	reads  int
}

func (v *variable) Series(*address.Node) *address.Series       { return v.series }
func (v *variable) Write(context.Context, []address.WriteItem) {}
func (v *variable) Read(_ context.Context, items []address.ReadItem) {
	if v.gate != nil {
		<-v.gate
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.broken {
		panic("as told")
	}
	for i := range items {
		v.reads++
		items[i].Result = v.live
	}
}

// space reads Values from their variables; other attributes are the ones that every node has.
type space struct{}

func (space) Read(ctx context.Context, rights address.Rights, items []address.ReadItem) {
	for i := range items {
		it := &items[i]
		switch {
		case it.Attribute == ua.AttributeIDDisplayName:
			it.Result = wire.DataValue{Value: tag.Of(it.Node.BrowseName), Server: tag.Now()}
		case it.Attribute != ua.AttributeIDValue:
			it.Result = wire.DataValue{Status: tag.Status(ua.StatusBadAttributeIDInvalid)}
		case it.Node.Access&ua.AccessLevelTypeCurrentRead == 0:
			it.Result = wire.DataValue{Status: tag.BadNotReadable, Server: tag.Now()}
		case rights&address.MayRead == 0:
			it.Result = wire.DataValue{Status: tag.BadUserAccessDenied, Server: tag.Now()}
		default:
			it.Node.Manager.Read(ctx, items[i:i+1])
		}
	}
}

// newRig starts an engine. Its ledger is checked when the test ends.
func newRig(t *testing.T, cfg Config) *rig {
	cfg.Space = space{}
	if cfg.Shards == 0 {
		cfg.Shards = 2
	}
	budget := &tag.Budget{}
	if cfg.Account == nil {
		cfg.Account = budget
	}
	slots := &tag.Budget{}
	r := &rig{T: t, engine: New(cfg), block: address.NewBlock(slots)}
	t.Cleanup(func() {
		if n := r.engine.Stats().Unaccounted; n != 0 {
			t.Errorf("the ledger is off by %d", n)
		}
		r.engine.Close()
		if st := r.engine.Stats(); st.Unaccounted != 0 || st.Items != 0 || st.Subscriptions != 0 || int(st.Messages.Held) != 0 {
			t.Errorf("after Close: %+v", st)
		}
		if budget.Used() != 0 || slots.Used() != 0 {
			t.Errorf("after Close %d and %d bytes stay charged", budget.Used(), slots.Used())
		}
	})
	return r
}

// newRigFor makes variables for an engine.
func newRigFor(e *Engine) *rig { return &rig{engine: e, block: address.NewBlock(nil)} }

const sizeOfItem = unsafe.Sizeof(item{})

// variable makes a variable with a Series. min is its MinimumSamplingInterval in milliseconds.
func (r *rig) variable(min float64) *variable {
	v := r.live()
	v.node.MinSampling = min
	v.series = r.block.New(&v.node)
	return v
}

// live makes a variable that is sampled by reading.
func (r *rig) live() *variable {
	v := &variable{}
	v.node = address.Node{
		ID: wire.NumericID(2, uint32(len(r.vars))), BrowseName: "v", Attributes: &address.Attributes{
			Class: ua.NodeClassVariable, Access: ua.AccessLevelTypeCurrentRead, DataType: wire.NumericID(0, id.Int64), Manager: v,
		},
	}
	r.vars = append(r.vars, v)
	return v
}

// set appends values to the variable's Series.
func (v *variable) set(values ...int64) {
	for _, n := range values {
		v.series.Append(tag.Sample{Value: tag.Of(n), At: tag.Now()})
	}
}

// received is one answer to a Publish request.
type received struct {
	request uint32
	bytes   int
	after   time.Duration // since the client was made
	status  ua.StatusCode
	resp    *ua.PublishResponse
}

// tester is a client and the far end of its connection.
type tester struct {
	*rig
	*Client
	start time.Time

	mu      sync.Mutex // guards all below
	gone    bool       // the connection is
	order   []string   // what was sent, in order
	got     []received
	next    uint32
	handles uint32
}

func (r *rig) client() *tester {
	return &tester{rig: r, Client: r.engine.NewClient(), start: time.Now()}
}

// Respond decodes an answer with gopcua's decoder, which knows nothing of our encoder.
func (c *tester) Respond(request uint32, r *Response) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	b := r.AppendTo(nil)
	_, m, err := ua.DecodeService(b)
	if err != nil {
		c.Errorf("an answer cannot be decoded: %v", err)
		return true
	}
	got := received{request: request, bytes: len(b), after: time.Since(c.start), status: r.Status()}
	switch m := m.(type) {
	case *ua.PublishResponse:
		got.resp = m
		if m.ResponseHeader.RequestHandle != request+1000 {
			c.Errorf("request %d was answered with handle %d", request, m.ResponseHeader.RequestHandle)
		}
	case *ua.ServiceFault:
		if m.ResponseHeader.ServiceResult != r.Status() || m.ResponseHeader.RequestHandle != request+1000 {
			c.Errorf("fault %v", m.ResponseHeader)
		}
	default:
		c.Errorf("answered with %T", m)
	}
	c.got = append(c.got, got)
	c.order = append(c.order, "publish")
	return true
}

// deaf takes answers and forgets them.
type deaf struct{}

func (deaf) Respond(uint32, *Response) bool { return true }

// subscribe makes a Subscription with the defaults of a test: 100 ms, keep-alive 10, lifetime 30.
func (c *tester) subscribe(p Parameters) uint32 {
	c.Helper()
	if p.Publishing == 0 {
		p.Publishing = 100
	}
	if p.KeepAlive == 0 {
		p.KeepAlive = 10
	}
	var sub uint32
	if code := c.CreateSubscription(p, true, func(id uint32, _ Parameters) { sub = id }); code != ua.StatusGood {
		c.Fatalf("CreateSubscription: %v", code)
	}
	return sub
}

// plainItem is a request for every change of a variable, discarding the oldest.
func plainItem(v *variable, queue uint32) ItemRequest {
	return ItemRequest{Node: &v.node, Attribute: ua.AttributeIDValue, Mode: ua.MonitoringModeReporting, Queue: queue, Oldest: true}
}

// monitor makes items with the client handles 1, 2, 3 and so on.
func (c *tester) monitor(sub uint32, reqs ...ItemRequest) []ItemResult {
	c.Helper()
	results := make([]ItemResult, len(reqs))
	for i := range reqs {
		c.handles++
		reqs[i].Handle = c.handles
	}
	code := c.CreateItems(c.Context(), sub, ua.TimestampsToReturnBoth, everyRight, reqs, results, func() {
		c.mu.Lock()
		c.order = append(c.order, "created")
		c.mu.Unlock()
	})
	if code != ua.StatusGood {
		c.Fatalf("CreateItems: %v", code)
	}
	return results
}

const everyRight = address.MayBrowse | address.MayRead | address.MayWrite | address.MayCall

// publish sends n Publish requests; the first carries the acknowledgements.
func (c *tester) publish(n int, acks ...Ack) {
	for range n {
		c.mu.Lock()
		c.next++
		request := c.next
		c.mu.Unlock()
		c.Publish(Request{Sender: c, ID: request, Handle: request + 1000}, acks)
		acks = nil
	}
}

// take returns what was answered since the last call.
func (c *tester) take() []received {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.got
	c.got = nil
	return got
}

// one is the only answer since the last call.
func (c *tester) one() received {
	c.Helper()
	got := c.take()
	if len(got) != 1 {
		c.Fatalf("%d answers, want one", len(got))
	}
	return got[0]
}

// items are the notifications in a message.
func (m *received) items() []*ua.MonitoredItemNotification {
	if m.resp == nil {
		return nil
	}
	var out []*ua.MonitoredItemNotification
	for _, x := range m.resp.NotificationMessage.NotificationData {
		if d, ok := x.Value.(*ua.DataChangeNotification); ok {
			out = append(out, d.MonitoredItems...)
		}
	}
	return out
}

// values are the numbers in messages, in order.
func values(got ...received) (out []int64) {
	for i := range got {
		for _, n := range got[i].items() {
			v, _ := n.Value.Value.Value().(int64)
			out = append(out, v)
		}
	}
	return out
}

// flagged are the indexes of the notifications with the Overflow bit.
func flagged(got ...received) (out []int) {
	k := 0
	for i := range got {
		for _, n := range got[i].items() {
			if n.Value.Status&0x480 == 0x480 {
				out = append(out, k)
			}
			k++
		}
	}
	return out
}

// sequences are the sequence numbers of messages.
func sequences(got []received) (out []uint32) {
	for i := range got {
		if m := got[i].resp; m != nil {
			out = append(out, m.NotificationMessage.SequenceNumber)
		}
	}
	return out
}

func (c *tester) wantValues(got []received, want ...int64) {
	c.Helper()
	if v := values(got...); !slices.Equal(v, want) {
		c.Fatalf("got %v, want %v", v, want)
	}
}

// bubble runs a test with the time of testing/synctest.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// sleep lets time pass, and all that is due happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }
