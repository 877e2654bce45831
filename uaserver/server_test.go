package uaserver

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"go.uber.org/goleak"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/channel"
	"edged/uaserver/pki"
	"edged/uaserver/tagspace"
	"edged/uaserver/uatest"
)

// ownDir is where the certificate of all tests lies; it is made once, since RSA keys take long.
var ownDir string

func TestMain(m *testing.M) {
	var err error
	if ownDir, err = os.MkdirTemp("", "uaserver"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(ownDir)
		os.Exit(code)
	}))
}

const appURI = "urn:edged:test"

var (
	none   = channel.Policy{URI: ua.SecurityPolicyURINone, Modes: []ua.MessageSecurityMode{ua.MessageSecurityModeNone}}
	secure = channel.Policy{URI: ua.SecurityPolicyURIBasic256Sha256, Modes: []ua.MessageSecurityMode{
		ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt,
	}}
)

var testDefs = append([]tag.Def{
	{Device: "boiler", Name: "temperature", Kind: tag.Float32, Access: tag.Readable, Unit: "°C", HasRange: true, Low: 0, High: 150},
	{Device: "boiler", Name: "counter", Kind: tag.Uint32, Access: tag.Readable},
	{Device: "boiler", Name: "setpoint", Kind: tag.Float64, Access: tag.Readable | tag.Writable, HasRange: true, Low: 0, High: 120},
	{Device: "boiler", Name: "code", Kind: tag.Int16, Access: tag.Readable | tag.Writable},
	{Device: "boiler", Name: "curve", Kind: tag.Int16, Len: 5, Access: tag.Readable | tag.Writable},
	{Device: "dead", Name: "level", Kind: tag.Uint16, Access: tag.Readable},
}, append(scratchDefs(500), modelDefs...)...)

func scratchDefs(n int) []tag.Def {
	defs := make([]tag.Def, n)
	for i := range defs {
		defs[i] = tag.Def{Device: "scratch", Name: "m" + string(rune('0'+i/100)) + string(rune('0'+i/10%10)) + string(rune('0'+i%10)),
			Kind: tag.Float64, Access: tag.Readable | tag.Writable, Memory: true}
	}
	return defs
}

// testField is a field side in memory: it writes what it is told, and reads what was last written.
type testField struct {
	sink  tag.Sink
	table *tag.Table

	mu       sync.Mutex
	values   map[tag.Ref]tag.Value
	log      []tag.Command
	queued   []tag.Value // submitted, in order
	readings int
	block    chan struct{} // commands of devices wait for it
	refuse   tag.Status    // of all commands, unless Good
}

func (f *testField) Execute(ctx context.Context, cmds []tag.Command) {
	f.mu.Lock()
	block, refuse := f.block, f.refuse
	f.mu.Unlock()
	for i := range cmds {
		c := &cmds[i]
		if c.Status = refuse; refuse != tag.Good {
			continue
		}
		def := f.table.Tag(c.Ref)
		if block != nil && !def.Memory {
			select {
			case <-block:
			case <-ctx.Done():
				c.Status = tag.BadTimeout
				continue
			}
		}
		v := tag.Sample{Ref: c.Ref, Value: c.Value, Status: c.Put, At: c.At}
		if v.At == 0 {
			v.At = tag.Now()
		}
		f.mu.Lock()
		f.log = append(f.log, *c)
		if c.Part {
			old, _ := tag.Slice[int16](f.values[c.Ref])
			part, _ := tag.Slice[int16](c.Value)
			whole := append(make([]int16, 0, def.Len), old...)
			whole = append(whole, make([]int16, def.Len-len(whole))...)
			copy(whole[c.From:], part)
			v.Value = tag.OfSlice(whole)
		}
		f.values[c.Ref] = v.Value
		f.mu.Unlock()
		f.sink.Publish([]tag.Sample{v})
	}
}

// Submit implements tag.Submitter.
func (f *testField) Submit(ctx context.Context, cmds []tag.Command) (wait func()) {
	f.mu.Lock()
	for i := range cmds {
		f.queued = append(f.queued, cmds[i].Value)
	}
	f.mu.Unlock()
	return func() { f.Execute(ctx, cmds) }
}

func (f *testField) Refresh(ctx context.Context, refs []tag.Ref) tag.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readings++
	for _, ref := range refs {
		s := tag.Sample{Ref: ref, Value: f.values[ref], At: tag.Now()}
		if f.table.Tag(ref).Device == "dead" {
			s.Status = tag.BadNoCommunication
		}
		f.sink.Publish([]tag.Sample{s})
	}
	return tag.Good
}

func (f *testField) Operate(context.Context, string, tag.Op) tag.Status { return tag.BadNotSupported }

// commands returns what was executed so far, and forgets it.
func (f *testField) commands() []tag.Command {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log
	f.log = nil
	return log
}

// fixture is a server with a plant, on a loopback port.
type fixture struct {
	past *testLog
	*Server
	tags  *tagspace.Space
	field *testField
	table *tag.Table
	addr  string
	own   *pki.Own
}

var ownOnce = sync.OnceValues(func() (*pki.Own, error) {
	return pki.Open(ownDir, pki.Identity{ApplicationURI: appURI, Name: "test", Hosts: []string{"localhost", "127.0.0.1"}},
		slog.New(slog.DiscardHandler))
})

func start(t testing.TB, change func(*Config)) *fixture {
	t.Helper()
	return startWith(t, testDefs, change)
}

func startWith(t testing.TB, defs []tag.Def, change func(*Config)) *fixture {
	t.Helper()
	own, err := ownOnce()
	if err != nil {
		t.Fatal(err)
	}
	space, err := address.New(appURI)
	if err != nil {
		t.Fatal(err)
	}
	table, err := tag.NewTable(defs)
	if err != nil {
		t.Fatal(err)
	}
	past := &testLog{samples: map[tag.Ref][]tag.Sample{}}
	tags, err := tagspace.New(tagspace.Config{
		Table: table, Address: space, Log: past, State: func(string) tagspace.DeviceState { return tagspace.DeviceState{State: 1} },
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{tags: tags, table: table, own: own, past: past}
	f.field = &testField{sink: tags, table: table, values: map[tag.Ref]tag.Value{}}
	tags.Join(f.field)
	cfg := Config{
		Name: "Test", ApplicationURI: appURI, Build: Build{ProductURI: "urn:edged", Product: "edged", Version: "0"},
		Policies: []channel.Policy{none, secure}, Certificate: own.Itself, Trust: pki.TrustAll(slog.New(slog.DiscardHandler)),
		Anonymous: address.MayBrowse | address.MayRead | address.MayWrite, Space: space, History: true,
	}
	if change != nil {
		change(&cfg)
	}
	if f.Server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- f.Serve(l) }()
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		f.Shutdown(ctx, "end of test", 0)
		if err := <-done; err != ErrStopped {
			t.Errorf("Serve ended with %v", err)
		}
		f.tags.Close()
		if n := f.panics.Load(); n != 0 {
			t.Errorf("%d requests panicked", n)
		}
	})
	f.publishAll()
	return f
}

// publishAll gives each tag that a device answers for a fresh value.
func (f *fixture) publishAll() {
	for ref, def := range f.table.All() {
		s := tag.Sample{Ref: ref, At: tag.Now(), Value: tag.FromBits(def.Kind, 0)}
		switch {
		case def.Device == "dead":
			s.Status, s.Value = tag.BadNoCommunication, tag.Value{}
		case def.Len > 0:
			s.Value = tag.OfSlice([]int16{1, 2, 3, 4, 5})
		}
		f.field.mu.Lock()
		f.field.values[ref] = s.Value
		f.field.mu.Unlock()
		f.tags.Publish([]tag.Sample{s})
	}
}

func (f *fixture) ref(t testing.TB, name string) tag.Ref {
	t.Helper()
	ref, ok := f.table.Lookup(name)
	if !ok {
		t.Fatalf("no tag %s", name)
	}
	return ref
}

// peer is one connection of a client that speaks the wire, with its session.
type peer struct {
	*uatest.Client
	t      testing.TB
	token  *ua.NodeID
	nonce  []byte // the server's
	number uint32
}

// dial opens a channel. change may alter the options.
func (f *fixture) dial(t testing.TB, change func(*uatest.Options)) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	o := uatest.Options{URL: "opc.tcp://" + f.addr}
	if change != nil {
		change(&o)
	}
	c, err := uatest.Connect(conn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &peer{Client: c, t: t, token: ua.NewTwoByteNodeID(0)}
}

// secured makes options for Basic256Sha256.
func (f *fixture) secured(t testing.TB) func(*uatest.Options) {
	return func(o *uatest.Options) {
		o.Policy, o.Mode = ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSignAndEncrypt
		o.Identity, o.Server = uatest.ClientIdentity(t), f.own.DER()
	}
}

// header is a request header with the session's token.
func (p *peer) header() *ua.RequestHeader {
	p.number++
	return &ua.RequestHeader{
		AuthenticationToken: p.token, Timestamp: time.Now(), RequestHandle: 1000 + p.number,
		AdditionalHeader: ua.NewExtensionObject(nil),
	}
}

// call sends a request and returns the response with its status.
func (p *peer) call(req ua.Request) (ua.Response, ua.StatusCode) {
	p.t.Helper()
	req.SetHeader(p.header())
	v, err := p.Call(p.number, req)
	if err != nil {
		p.t.Fatalf("%T: %v", req, err)
	}
	resp := v.(ua.Response)
	if h := resp.Header(); h.RequestHandle != 1000+p.number {
		p.t.Fatalf("%T: answered handle %d instead of %d", req, h.RequestHandle, 1000+p.number)
	}
	return resp, resp.Header().ServiceResult
}

// must sends a request that has to succeed.
func must[R ua.Response](p *peer, req ua.Request) R {
	p.t.Helper()
	resp, code := p.call(req)
	if code != ua.StatusGood {
		p.t.Fatalf("%T: %v", req, code)
	}
	return resp.(R)
}

func createRequest() *ua.CreateSessionRequest {
	return &ua.CreateSessionRequest{
		ClientDescription: &ua.ApplicationDescription{
			ApplicationURI: "urn:test:client", ApplicationName: ua.NewLocalizedText("test"), ApplicationType: ua.ApplicationTypeClient,
		},
		EndpointURL: "opc.tcp://somewhere:1234/else", SessionName: "test", ClientNonce: make([]byte, 32), RequestedSessionTimeout: 60000,
	}
}

func activateRequest(token any) *ua.ActivateSessionRequest {
	return &ua.ActivateSessionRequest{
		ClientSignature: &ua.SignatureData{}, UserTokenSignature: &ua.SignatureData{}, UserIdentityToken: ua.NewExtensionObject(token),
	}
}

func anonymous() *ua.AnonymousIdentityToken {
	return &ua.AnonymousIdentityToken{PolicyID: anonymousPolicy}
}

// create makes a session on a channel without security.
func (p *peer) create() *ua.CreateSessionResponse {
	p.t.Helper()
	resp := must[*ua.CreateSessionResponse](p, createRequest())
	p.token, p.nonce = resp.AuthenticationToken, resp.ServerNonce
	return resp
}

// login makes and activates a session on a channel without security.
func (f *fixture) login(t testing.TB) *peer {
	t.Helper()
	p := f.dial(t, nil)
	p.create()
	must[*ua.ActivateSessionResponse](p, activateRequest(anonymous()))
	return p
}

// plantID is the id of a tag.
func plantID(name string) *ua.NodeID { return ua.NewStringNodeID(address.NamespacePlant, name) }

func (p *peer) read(req *ua.ReadRequest) []*ua.DataValue {
	p.t.Helper()
	return must[*ua.ReadResponse](p, req).Results
}

func value(n *ua.NodeID) *ua.ReadValueID {
	return &ua.ReadValueID{NodeID: n, AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}}
}

func TestTableIsWhole(t *testing.T) {
	names := map[string]bool{}
	for i := range services {
		sv := &services[i]
		if sv.run == nil || sv.name == "" || sv.request == 0 || names[sv.name] || byRequest[sv.request] != i {
			t.Errorf("row %d: %+v", i, sv)
		}
		names[sv.name] = true
	}
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	space, err := address.New(appURI)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no space", Config{Policies: []channel.Policy{none}}, "address space"},
		{"no policy", Config{Space: space}, "policy"},
		{"no certificate", Config{Space: space, Policies: []channel.Policy{secure}}, "certificate"},
	} {
		if _, err := New(row.cfg); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

func TestUnsupportedKeepsTheLink(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	for _, req := range []ua.Request{
		&ua.AddNodesRequest{}, &ua.QueryFirstRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, Filter: &ua.ContentFilter{}},
		&ua.FindServersOnNetworkRequest{},
	} {
		if _, code := p.call(req); code != ua.StatusBadServiceUnsupported {
			t.Errorf("A16 %T: %v", req, code)
		}
	}
	p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})
	st := f.Stats()
	if st.Requests["unsupported"] != 3 || st.Requests["Read"] != 1 || st.Requests["CreateSession"] != 1 || st.Sessions.Current != 1 {
		t.Errorf("stats %+v", st)
	}
}

func TestMalformedKeepsTheLink(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	for _, req := range []ua.Request{
		&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}},
		&ua.WriteRequest{NodesToWrite: []*ua.WriteValue{
			{NodeID: plantID("boiler.code"), AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{EncodingMask: 1, Value: ua.MustVariant(int16(1))}},
			{NodeID: plantID("boiler.code"), AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{EncodingMask: 1, Value: ua.MustVariant(int16(2))}},
		}},
		&ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, NodesToBrowse: []*ua.BrowseDescription{browseOf(ua.NewTwoByteNodeID(85))}},
		&ua.RegisterNodesRequest{NodesToRegister: []*ua.NodeID{plantID("boiler.code")}},
	} {
		req.SetHeader(p.header())
		body, err := uatest.Encode(req)
		if err != nil {
			t.Fatal(err)
		}
		for _, cut := range []int{1, 5, 9} {
			p.number++
			if err := p.Send(p.number, body[:len(body)-cut]); err != nil {
				t.Fatal(err)
			}
			m, err := p.Receive()
			if err != nil {
				t.Fatal(err)
			}
			v, err := uatest.Decode(m.Body)
			if fault, ok := v.(*ua.ServiceFault); err != nil || !ok || fault.ResponseHeader.ServiceResult != ua.StatusBadDecodingError {
				t.Errorf("C11 %T cut by %d: %T %v", req, cut, v, err)
			}
		}
	}
	if n := len(f.field.commands()); n != 0 {
		t.Errorf("%d commands of malformed writes reached the field", n)
	}
	p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})
}

func TestPanicClosesItsConnectionAlone(t *testing.T) {
	f := start(t, func(c *Config) {
		n := c.Space.Find(idOf("boiler.counter"))
		n.Manager = panics{n.Manager}
	})
	bad, good := f.login(t), f.login(t)
	req := &ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.counter"))}}
	req.SetHeader(bad.header())
	if _, err := bad.Call(1, req); err == nil {
		t.Error("the connection lives on")
	}
	good.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})
	if !f.panics.CompareAndSwap(1, 0) {
		t.Error("the panic was not counted")
	}
}

type panics struct{ address.NodeManager }

func (panics) Read(context.Context, []address.ReadItem) { panic("as told") }

func TestShutdown(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	status := func() (state int32, left uint32, reason string) {
		v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{
			value(ua.NewNumericNodeID(0, 2259)), value(ua.NewNumericNodeID(0, 2992)), value(ua.NewNumericNodeID(0, 2993)), value(ua.NewNumericNodeID(0, 2256)),
		}})
		whole := v[3].Value.Value().(*ua.ExtensionObject).Value.(*ua.ServerStatusDataType)
		state, left, reason = v[0].Value.Value().(int32), v[1].Value.Value().(uint32), v[2].Value.Value().(*ua.LocalizedText).Text
		if int32(whole.State) != state || whole.ShutdownReason.Text != reason {
			t.Errorf("the structure says %+v", whole)
		}
		return state, left, reason
	}
	if s, left, _ := status(); s != int32(ua.ServerStateRunning) || left != 0 {
		t.Errorf("state %d, %d s left", s, left)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Shutdown(context.Background(), "maintenance", 300*time.Millisecond)
	}()
	for f.State() == ua.ServerStateRunning {
		time.Sleep(time.Millisecond)
	}
	if s, left, reason := status(); s != int32(ua.ServerStateShutdown) || left != 1 || reason != "maintenance" {
		t.Errorf("state %d, %d s left, %q", s, left, reason)
	}
	if _, code := p.call(createRequest()); code != ua.StatusBadShutdown {
		t.Errorf("a new session while the server stops: %v", code)
	}
	<-done
	if _, err := p.Receive(); err == nil {
		t.Error("the connection is open")
	}
	f.Shutdown(context.Background(), "again", 0) // returns at once
}

func writeOf(name string, v any) *ua.WriteRequest {
	return &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{
		NodeID: plantID(name), AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(v)},
	}}}
}
