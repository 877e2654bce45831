package uaserver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/uatest"
	"edged/uaserver/wire"
)

// transfer takes one Subscription over.
func (p *peer) transfer(sub uint32, initial bool) *ua.TransferResult {
	p.t.Helper()
	return must[*ua.TransferSubscriptionsResponse](p, &ua.TransferSubscriptionsRequest{SubscriptionIDs: []uint32{sub}, SendInitialValues: initial}).Results[0]
}

// TestTransferOnTheWire is 5.14.7 between sessions of one application over signed channels, of users, and of neither.
func TestTransferOnTheWire(t *testing.T) {
	anna := func(t *testing.T, f *fixture) *peer {
		p, code := f.try(t, "anna", "open sesame", nil)
		if code != ua.StatusGood {
			t.Fatal(code)
		}
		return p
	}
	signed := func(t *testing.T, f *fixture) *peer { p, _ := f.loginSecurely(t); return p }
	unsigned := func(t *testing.T, f *fixture) *peer { return f.login(t) }
	for _, row := range []struct {
		name     string
		from, to func(t *testing.T, f *fixture) *peer
		want     ua.StatusCode
	}{
		{"anonymous, over None", unsigned, unsigned, ua.StatusBadUserAccessDenied},
		{"anonymous, signed to None", signed, unsigned, ua.StatusBadUserAccessDenied},
		{"anonymous, signed, same application", signed, signed, ua.StatusGood},
		{"a user's, over None", anna, anna, ua.StatusGood},
		{"a user's by nobody", anna, signed, ua.StatusBadUserAccessDenied},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := start(t, func(c *Config) { c.Users = plantUsers(t) })
			a, b := row.from(t, f), row.to(t, f)
			sub := a.subscribe("boiler.counter", 3000)
			a.post(publishRequest())
			if v := values(a.published()); !slices.Equal(v, []uint32{0}) {
				t.Fatalf("initial value %v", v)
			}
			waits := a.post(publishRequest())
			r := b.transfer(sub, true)
			if r.StatusCode != row.want {
				t.Fatalf("%v, want %v", r.StatusCode, row.want)
			}
			if row.want != ua.StatusGood {
				return
			}
			if !slices.Equal(r.AvailableSequenceNumbers, []uint32{1}) {
				t.Errorf("available: %v", r.AvailableSequenceNumbers)
			}
			id, resp := a.receive()
			x, ok := resp.(*ua.PublishResponse)
			if !ok || id != waits || x.SubscriptionID != sub {
				t.Fatalf("the old session is told %T", resp)
			}
			change, ok := x.NotificationMessage.NotificationData[0].Value.(*ua.StatusChangeNotification)
			if !ok || change.Status != ua.StatusGoodSubscriptionTransferred {
				t.Errorf("the old session is told %+v", x.NotificationMessage.NotificationData[0].Value)
			}
			b.post(publishRequest(&ua.SubscriptionAcknowledgement{SubscriptionID: sub, SequenceNumber: 1}))
			m := b.published()
			if v := values(m); !slices.Equal(v, []uint32{0}) || m.NotificationMessage.SequenceNumber != 2 || m.Results[0] != ua.StatusGood {
				t.Errorf("the new session has %v of message %d, %v", v, m.NotificationMessage.SequenceNumber, m.Results)
			}
			if r := b.transfer(sub, true); r.StatusCode != ua.StatusBadNothingToDo {
				t.Errorf("its own: %v", r.StatusCode)
			}
		})
	}
}

// TestSubscriptionOutlivesSession: closed with DeleteSubscriptions false, or timed out, a session leaves its
// Subscriptions to the next one.
func TestSubscriptionOutlivesSession(t *testing.T) {
	end := map[string]func(t *testing.T, f *fixture, p *peer){
		"closed": func(_ *testing.T, _ *fixture, p *peer) { must[*ua.CloseSessionResponse](p, &ua.CloseSessionRequest{}) },
		"timed out": func(t *testing.T, f *fixture, p *peer) {
			p.Close()
			waitFor(t, "the session to end", func() bool { return f.Stats().Sessions.TimedOut == 1 })
		},
	}
	for name, end := range end {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(c *Config) {
				if name != "closed" {
					c.Limits.MinSession, c.Limits.MaxSession = 100*time.Millisecond, 100*time.Millisecond
				}
			})
			a, _ := f.loginSecurely(t)
			sub := a.subscribe("boiler.counter", 3000)
			end(t, f, a)
			f.count(t, 1, 50)
			b, _ := f.loginSecurely(t)
			if r := b.transfer(sub, false); r.StatusCode != ua.StatusGood {
				t.Fatal(r.StatusCode)
			}
			b.post(publishRequest())
			want := make([]uint32, 51)
			for i := range want {
				want[i] = uint32(i)
			}
			if v := values(b.published()); !slices.Equal(v, want) {
				t.Errorf("%v", v)
			}
		})
	}
}

// TestTransferKeepsRights: what is read for a Subscription is read with the rights of the session that has it.
func TestTransferKeepsRights(t *testing.T) {
	f := start(t, nil)
	a, _ := f.loginSecurely(t)
	sub := a.subscription()
	must[*ua.CreateMonitoredItemsResponse](a, createItems(sub, itemRequest(ua.NewNumericNodeID(0, 2259), 1, 10), // ServerState
		itemRequest(ua.NewNumericNodeID(0, 2258), 2, 1))) // CurrentTime
	b, _ := f.loginSecurely(t)
	if r := b.transfer(sub, true); r.StatusCode != ua.StatusGood {
		t.Fatal(r.StatusCode)
	}
	for n := 0; n < 3; {
		b.post(publishRequest())
		for _, c := range changes(b.published()) {
			if c.Value.Status != ua.StatusGood {
				t.Fatalf("item %d: %v", c.ClientHandle, c.Value.Status)
			}
			if c.ClientHandle == 2 {
				n++
			}
		}
	}
}

// callOne calls one method.
func (p *peer) callOne(object, method *ua.NodeID, args ...any) *ua.CallMethodResult {
	p.t.Helper()
	return p.callMany(callOf(object, method, args...))[0]
}

func (p *peer) callMany(calls ...*ua.CallMethodRequest) []*ua.CallMethodResult {
	p.t.Helper()
	return must[*ua.CallResponse](p, &ua.CallRequest{MethodsToCall: calls}).Results
}

func callOf(object, method *ua.NodeID, args ...any) *ua.CallMethodRequest {
	c := &ua.CallMethodRequest{ObjectID: object, MethodID: method, InputArguments: []*ua.Variant{}}
	for _, a := range args {
		c.InputArguments = append(c.InputArguments, ua.MustVariant(a))
	}
	return c
}

func n0(num uint32) *ua.NodeID { return ua.NewNumericNodeID(0, num) }

func TestCall(t *testing.T) {
	f := start(t, func(c *Config) {
		c.Anonymous = c.Anonymous.With(address.Anonymous) // without MayCall: the server's methods are everybody's
		c.Limits.Methods = 5
	})
	p, other := f.login(t), f.login(t)
	sub := p.subscription()
	made := must[*ua.CreateMonitoredItemsResponse](p, createItems(sub, itemRequest(plantID("boiler.counter"), 7, 1), itemRequest(plantID("boiler.code"), 8, 1)))
	server, items, resend := n0(2253), n0(11492), n0(12873)
	for _, row := range []struct {
		name           string
		object, method *ua.NodeID
		args           []any
		want           ua.StatusCode
		inputs         []ua.StatusCode
	}{
		{"no such object", n0(999999), items, []any{sub}, ua.StatusBadNodeIDUnknown, nil},
		{"object is a variable", n0(2258), items, []any{sub}, ua.StatusBadNodeIDInvalid, nil},
		{"no such method", server, n0(999999), []any{sub}, ua.StatusBadMethodInvalid, nil},
		{"method is an object", server, server, []any{sub}, ua.StatusBadMethodInvalid, nil},
		{"method of another object", n0(85), items, []any{sub}, ua.StatusBadMethodInvalid, nil},
		{"method of the type by the type, which nobody may call", n0(2004), n0(11489), []any{sub}, ua.StatusBadUserAccessDenied, nil},
		{"method of the type that the object has not", server, n0(12746), []any{sub}, ua.StatusBadMethodInvalid, nil},
		{"no arguments", server, items, nil, ua.StatusBadArgumentsMissing, nil},
		{"too many arguments", server, items, []any{sub, sub}, ua.StatusBadTooManyArguments, nil},
		{"another type", server, items, []any{"1"}, ua.StatusBadInvalidArgument, []ua.StatusCode{ua.StatusBadTypeMismatch}},
		{"an array", server, items, []any{[]uint32{sub}}, ua.StatusBadInvalidArgument, []ua.StatusCode{ua.StatusBadTypeMismatch}},
		{"GetMonitoredItems of nothing", server, items, []any{sub + 1}, ua.StatusBadSubscriptionIDInvalid, nil},
		{"ResendData of nothing", server, resend, []any{sub + 1}, ua.StatusBadSubscriptionIDInvalid, nil},
		{"GetMonitoredItems", server, items, []any{sub}, ua.StatusGood, nil},
		{"GetMonitoredItems by the type's id", server, n0(11489), []any{sub}, ua.StatusGood, nil},
		{"ResendData", server, resend, []any{sub}, ua.StatusGood, nil},
	} {
		r := p.callOne(row.object, row.method, row.args...)
		if r.StatusCode != row.want || !slices.Equal(r.InputArgumentResults, row.inputs) {
			t.Errorf("%s: %v %v, want %v %v", row.name, r.StatusCode, r.InputArgumentResults, row.want, row.inputs)
		}
		if row.want == ua.StatusGood && row.method != resend {
			ids, handles := r.OutputArguments[0].Value(), r.OutputArguments[1].Value()
			if fmt.Sprint(ids, handles) != fmt.Sprint([]uint32{made.Results[0].MonitoredItemID, made.Results[1].MonitoredItemID}, []uint32{7, 8}) {
				t.Errorf("%s: %v, %v", row.name, ids, handles)
			}
		}
	}
	for _, method := range []*ua.NodeID{items, resend} {
		if r := other.callOne(server, method, sub); r.StatusCode != ua.StatusBadUserAccessDenied {
			t.Errorf("of another session: %v", r.StatusCode)
		}
		got := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{
			{NodeID: method, AttributeID: ua.AttributeIDExecutable, DataEncoding: &ua.QualifiedName{}},
			{NodeID: method, AttributeID: ua.AttributeIDUserExecutable, DataEncoding: &ua.QualifiedName{}},
		}})
		if got[0].Value.Value() != true || got[1].Value.Value() != true {
			t.Errorf("%v is executable: %v, %v", method, got[0].Value, got[1].Value)
		}
	}
	// The results of a call with several are in its order.
	many := p.callMany(callOf(server, items, sub), callOf(server, items), callOf(server, resend, sub), callOf(n0(999999), items), callOf(server, items, sub))
	for i, want := range []ua.StatusCode{ua.StatusGood, ua.StatusBadArgumentsMissing, ua.StatusGood, ua.StatusBadNodeIDUnknown, ua.StatusGood} {
		if many[i].StatusCode != want {
			t.Errorf("call %d: %v, want %v", i, many[i].StatusCode, want)
		}
	}
	for n, want := range map[int]ua.StatusCode{0: ua.StatusBadNothingToDo, 6: ua.StatusBadTooManyOperations} {
		if _, code := p.call(&ua.CallRequest{MethodsToCall: slices.Repeat([]*ua.CallMethodRequest{callOf(server, items, sub)}, n)}); code != want {
			t.Errorf("%d methods: %v, want %v", n, code, want)
		}
	}
}

// TestResendData on the wire: the values come once more.
func TestResendData(t *testing.T) {
	f := start(t, func(c *Config) { c.Anonymous = c.Anonymous.With(address.Anonymous) })
	p := f.login(t)
	sub := p.subscribe("boiler.counter", 3000)
	for range 3 {
		p.post(publishRequest())
		if v := values(p.published()); !slices.Equal(v, []uint32{0}) {
			t.Fatalf("%v", v)
		}
		if r := p.callOne(n0(2253), n0(12873), sub); r.StatusCode != ua.StatusGood {
			t.Fatal(r.StatusCode)
		}
	}
}

// TestItemsThatDoNotFit: a client that takes short messages alone is told so.
func TestItemsThatDoNotFit(t *testing.T) {
	f := start(t, func(c *Config) { c.Anonymous = c.Anonymous.With(address.Anonymous) })
	p := f.dial(t, nil)
	req := createRequest()
	req.MaxResponseMessageSize = 9000
	resp := must[*ua.CreateSessionResponse](p, req)
	p.token, p.nonce = resp.AuthenticationToken, resp.ServerNonce
	must[*ua.ActivateSessionResponse](p, activateRequest(anonymous()))
	sub := p.subscription()
	for range 8 {
		must[*ua.CreateMonitoredItemsResponse](p, createItems(sub, slices.Repeat([]*ua.MonitoredItemCreateRequest{itemRequest(plantID("boiler.counter"), 1, 1)}, 100)...))
	}
	if r := p.callMany(callOf(n0(2253), n0(11492), sub), callOf(n0(2253), n0(11492), sub)); r[0].StatusCode != ua.StatusGood ||
		r[1].StatusCode != ua.StatusBadResponseTooLarge || len(r[0].OutputArguments) != 2 {
		t.Errorf("%v, %v", r[0].StatusCode, r[1].StatusCode)
	}
}

// gauge is a NodeManager with methods that wait for a device, as those of devices do.
type gauge struct {
	status
	block chan struct{}
	calls []string
}

func (g *gauge) Waits(*address.Node) bool                        { return true }
func (g *gauge) Stale(*address.ReadItem, tag.Time) bool          { return false }
func (g *gauge) Refresh(_ context.Context, _ []address.ReadItem) {}
func (g *gauge) Call(ctx context.Context, calls []address.CallItem) {
	for i := range calls {
		who := address.InvokerOf(ctx)
		g.calls = append(g.calls, fmt.Sprint(who.User, " ", who.Rights.Roles(), " ", who.Session > 0, " ", calls[i].Method.BrowseName, " ", len(calls[i].Inputs)))
		select {
		case <-g.block:
			calls[i].Outputs = calls[i].Inputs
		case <-ctx.Done():
			calls[i].Status = tag.BadTimeout
		}
	}
}

// addGauge adds an object with methods to a space.
func addGauge(t *testing.T, s *address.Space, g *gauge) {
	t.Helper()
	id := func(name string) wire.NodeID { return wire.TextID(1, name) }
	method := func(name string, executable bool) *address.Node {
		return &address.Node{ID: id("gauge." + name), BrowseName: name, Attributes: &address.Attributes{
			Class: ua.NodeClassMethod, BrowseNS: 1, Executable: executable, Manager: g,
		}}
	}
	object := &address.Node{ID: id("gauge"), BrowseName: "gauge", Attributes: &address.Attributes{Class: ua.NodeClassObject, BrowseNS: 1}}
	refs := []address.Reference{
		{Source: wire.NumericID(0, 85), Type: wire.NumericID(0, 35), Target: object.ID},
		{Source: object.ID, Type: wire.NumericID(0, 40), Target: wire.NumericID(0, 58)},
		{Source: object.ID, Type: wire.NumericID(0, 47), Target: id("gauge.tare")},
		{Source: object.ID, Type: wire.NumericID(0, 47), Target: id("gauge.off")},
	}
	if err := s.Add([]*address.Node{object, method("tare", true), method("off", false)}, refs); err != nil {
		t.Fatal(err)
	}
}

// TestDeviceMethods: the seam by which devices have methods. One that waits keeps nobody waiting, and hears who calls.
func TestDeviceMethods(t *testing.T) {
	g := &gauge{block: make(chan struct{})}
	var log lines
	f := start(t, func(c *Config) {
		c.Users = plantUsers(t)
		addGauge(t, c.Space, g)
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	p, code := f.try(t, "boss", "admin's", nil)
	if code != ua.StatusGood {
		t.Fatal(code)
	}
	object := ua.NewStringNodeID(1, "gauge")
	waits := p.post(&ua.CallRequest{MethodsToCall: []*ua.CallMethodRequest{callOf(object, ua.NewStringNodeID(1, "gauge.tare"))}})
	if v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(n0(2259))}}); v[0].Status != ua.StatusGood {
		t.Errorf("a Read meanwhile: %v", v[0].Status)
	}
	close(g.block)
	if id, resp := p.receive(); id != waits || resp.(*ua.CallResponse).Results[0].StatusCode != ua.StatusGood {
		t.Errorf("answer %d: %+v", id, resp)
	}
	if want := fmt.Sprint("boss ", address.Admin, " true tare 0"); len(g.calls) != 1 || g.calls[0] != want {
		t.Errorf("called %q, want %q", g.calls, want)
	}
	if r := p.callOne(object, ua.NewStringNodeID(1, "gauge.off")); r.StatusCode != ua.StatusBadNotExecutable {
		t.Errorf("not executable: %v", r.StatusCode)
	}
	anna, _ := f.try(t, "anna", "open sesame", nil)
	if r := anna.callOne(object, ua.NewStringNodeID(1, "gauge.tare")); r.StatusCode != ua.StatusBadUserAccessDenied {
		t.Errorf("a user who may not call: %v", r.StatusCode)
	}
	waitFor(t, "the log", func() bool { return len(log.with("msg=call")) == 3 })
	// An answer goes out before its call is told, so that the lines of two calls may change places.
	told := strings.ReplaceAll(strings.Join(log.with("msg=call"), "\n"), `"`, "")
	for _, want := range []string{"gauge.tare status=Good user=boss", "gauge.off status=0x81110000 user=boss", "gauge.tare status=BadUserAccessDenied user=anna"} {
		if !strings.Contains(told, want) {
			t.Errorf("the log says %q, want %q in it", told, want)
		}
	}
}

// patient gives a connection the time that a loaded machine takes for much.
func (p *peer) patient() { p.Conn.SetDeadline(time.Now().Add(3 * time.Minute)) }

// TestCutLink cuts a link for two seconds while 20 tags change 1,000 times a second each, with queues that hold it. The
// client comes back with its session, and with a new one to which it transfers: it has every change, in order.
func TestCutLink(t *testing.T) {
	const tags, perSecond, queue = 20, 1000, 5000
	for _, transfers := range []bool{false, true} {
		t.Run(fmt.Sprint("transfer ", transfers), func(t *testing.T) {
			t.Parallel()
			f := start(t, nil)
			a, own := f.loginSecurely(t)
			a.patient()
			sub := a.subscription()
			var items []*ua.MonitoredItemCreateRequest
			for i := range tags {
				items = append(items, itemRequest(plantID(fmt.Sprintf("scratch.m%03d", i)), uint32(i), queue))
			}
			for i, r := range must[*ua.CreateMonitoredItemsResponse](a, createItems(sub, items...)).Results {
				if r.StatusCode != ua.StatusGood || r.RevisedQueueSize != queue {
					t.Fatalf("item %d: %+v", i, r)
				}
			}
			got := make([][]float64, tags)
			last := uint32(0) // sequence number
			take := func(m *ua.NotificationMessage) {
				for _, x := range m.NotificationData {
					d, ok := x.Value.(*ua.DataChangeNotification)
					if !ok {
						continue
					}
					last++
					if m.SequenceNumber != last {
						t.Fatalf("message %d, want %d", m.SequenceNumber, last)
					}
					for _, c := range d.MonitoredItems {
						if c.Value.Status != ua.StatusGood {
							t.Fatalf("item %d: %v", c.ClientHandle, c.Value.Status)
						}
						got[c.ClientHandle] = append(got[c.ClientHandle], c.Value.Value.Value().(float64))
					}
				}
			}
			const total = 3 * perSecond // of each tag: one second before the cut, two in it
			refs := make([]tag.Ref, tags)
			for i := range refs {
				refs[i] = f.ref(t, fmt.Sprintf("scratch.m%03d", i))
			}
			halfway, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				start := time.Now()
				for n := 1; n <= total; n++ {
					for i := range refs {
						f.tags.Publish([]tag.Sample{{Ref: refs[i], Value: tag.Of(float64(n)), At: tag.Now()}})
					}
					if n == total/3 {
						close(halfway)
					}
					time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / perSecond)))
				}
			}()
			for cut := false; !cut; {
				a.post(publishRequest())
				take(a.published().NotificationMessage)
				select {
				case <-halfway:
					cut = true
				default:
				}
			}
			a.post(publishRequest()) // an answer that nobody reads
			a.post(publishRequest())
			a.Close()
			<-done

			b := f.dial(t, func(o *uatest.Options) { f.secured(t)(o); o.Identity = own })
			b.patient()
			var available []uint32
			if transfers {
				req := createRequest()
				req.ClientCertificate = own.DER
				resp := must[*ua.CreateSessionResponse](b, req)
				b.token, b.nonce = resp.AuthenticationToken, resp.ServerNonce
			} else {
				b.token, b.nonce = a.token, a.nonce
			}
			if code := b.signed(t, own, f.own.DER(), b.nonce); code != ua.StatusGood {
				t.Fatal(code)
			}
			if transfers {
				r := b.transfer(sub, false)
				if available = r.AvailableSequenceNumbers; r.StatusCode != ua.StatusGood {
					t.Fatal(r.StatusCode)
				}
			}
			// What was sent into the cut link is there for Republish.
			for {
				resp, code := b.call(&ua.RepublishRequest{SubscriptionID: sub, RetransmitSequenceNumber: last + 1})
				if code == ua.StatusBadMessageNotAvailable {
					break
				}
				if code != ua.StatusGood || transfers && !slices.Contains(available, last+1) {
					t.Fatalf("Republish %d: %v", last+1, code)
				}
				take(resp.(*ua.RepublishResponse).NotificationMessage)
			}
			for slices.ContainsFunc(got, func(v []float64) bool { return len(v) == 0 || v[len(v)-1] != total }) {
				b.post(publishRequest())
				take(b.published().NotificationMessage)
			}
			for i, v := range got {
				if len(v) != total+1 {
					t.Fatalf("tag %d: %d values, want %d", i, len(v), total+1)
				}
				for n := range v {
					if v[n] != float64(n) {
						t.Fatalf("tag %d: value %v where %d should be", i, v[n], n)
					}
				}
			}
			st := f.engine.Stats()
			if st.Unaccounted != 0 || st.Overflowed != 0 || st.Overwritten != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
