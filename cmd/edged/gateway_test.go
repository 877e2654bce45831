package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
	"go.uber.org/goleak"

	"edged/drivers/sim"
	"edged/drivers/tag"
	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

// asProgram makes the test's own binary the program, for tests that need a process of it.
const asProgram = "EDGED_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	if addr := os.Getenv(asSubscriber); addr != "" {
		subscriber(addr)
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for something that is to happen; the machine may be busy.
const patience = 30 * time.Second

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen within %v", what, patience)
		}
	}
}

// logBook is a log that can be read while it is written.
type logBook struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// count is in how many lines the text stands.
func (b *logBook) count(text string) int { return strings.Count(b.String(), text) }

// startSite runs a gateway in this process until the test ends.
func startSite(t *testing.T, text string) (*gateway, *logBook) {
	t.Helper()
	s, err := parseSite("site.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	book := &logBook{}
	g, err := newGateway(s, t.TempDir(), newLog(book, "text", "info"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("log:\n%s", book)
		}
	})
	return g, book
}

// siteHead is the server section of test sites: any free port, nothing to prove.
const siteHead = "server: {listen: \"127.0.0.1:0\", security: {policies: [None, Basic256Sha256, Aes256_Sha256_RsaPss], anonymous: write, trust_all: true}}\nweb: {listen: none}\n"

// endpointUp is the URL of a gateway's endpoint once it listens.
func endpointUp(t *testing.T, g *gateway) string {
	t.Helper()
	select {
	case <-g.opcua.up:
	case <-time.After(patience):
		t.Fatal("the gateway does not listen")
	}
	return g.endpoint()
}

// identity is the certificate and key of the tests' client.
var identity = sync.OnceValues(func() ([]byte, *rsa.PrivateKey) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	der, err := pki.Make(key, pki.Identity{ApplicationURI: "urn:edged:test:client", Name: "test client", Hosts: []string{"localhost"}}, time.Now())
	if err != nil {
		panic(err)
	}
	return der, key
})

// connect opens a session by the endpoint of a policy and mode.
func connect(t *testing.T, url string, policy string, mode ua.MessageSecurityMode) *opcua.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	endpoints, err := opcua.GetEndpoints(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	ep, err := opcua.SelectEndpoint(endpoints, policy, mode)
	if err != nil || ep == nil {
		t.Fatalf("no endpoint with %s %v: %v", policy, mode, err)
	}
	options := []opcua.Option{
		opcua.SecurityFromEndpoint(ep, ua.UserTokenTypeAnonymous), opcua.AutoReconnect(false), opcua.RequestTimeout(patience),
	}
	if mode != ua.MessageSecurityModeNone {
		der, key := identity()
		options = append(options, opcua.Certificate(der), opcua.PrivateKey(key))
	}
	c, err := opcua.NewClient(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	uatest.AwaitPublishLoop(t, c)
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func tagID(name string) *ua.NodeID { return ua.NewStringNodeID(2, name) }

// readTag reads a tag's value.
func readTag(t *testing.T, c *opcua.Client, name string) *ua.DataValue {
	t.Helper()
	r, err := c.Read(t.Context(), &ua.ReadRequest{
		TimestampsToReturn: ua.TimestampsToReturnBoth,
		NodesToRead:        []*ua.ReadValueID{{NodeID: tagID(name), AttributeID: ua.AttributeIDValue}},
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r.Results[0]
}

// writeTag writes a tag's value and returns the status.
func writeTag(t *testing.T, c *opcua.Client, name string, value any) ua.StatusCode {
	t.Helper()
	r, err := c.Write(t.Context(), &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{
		NodeID: tagID(name), AttributeID: ua.AttributeIDValue,
		Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(value)},
	}}})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r.Results[0]
}

// listen makes a Subscription; hear has each value of its items, by client handle, until the test ends.
func listen(t *testing.T, c *opcua.Client, p *opcua.SubscriptionParameters, hear func(item int, v *ua.DataValue)) *opcua.Subscription {
	t.Helper()
	heard := make(chan *opcua.PublishNotificationData, 16)
	sub, err := c.Subscribe(t.Context(), p, heard)
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case n := <-heard:
				if change, ok := n.Value.(*ua.DataChangeNotification); ok {
					for _, item := range change.MonitoredItems {
						hear(int(item.ClientHandle), item.Value)
					}
				}
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	return sub
}

// subscribe monitors nodes and calls hear with each notification, item by its number in nodes, until the test ends.
func subscribe(t *testing.T, c *opcua.Client, every time.Duration, queue uint32, nodes []*ua.NodeID, hear func(item int, v *ua.DataValue)) {
	t.Helper()
	sub := listen(t, c, &opcua.SubscriptionParameters{Interval: every}, hear)
	items := make([]*ua.MonitoredItemCreateRequest, len(nodes))
	for i, n := range nodes {
		items[i] = opcua.NewMonitoredItemCreateRequestWithDefaults(n, ua.AttributeIDValue, uint32(i))
		items[i].RequestedParameters.QueueSize = queue
		items[i].RequestedParameters.SamplingInterval = 0 // every change that is read (Part 4, 7.21)
	}
	r, err := sub.Monitor(t.Context(), ua.TimestampsToReturnBoth, items...)
	if err != nil {
		t.Fatal(err)
	}
	for i, result := range r.Results {
		if result.StatusCode != ua.StatusOK || result.RevisedQueueSize != queue {
			t.Fatalf("item %v: %v, queue %d", nodes[i], result.StatusCode, result.RevisedQueueSize)
		}
	}
}

// TestDemo runs `edged demo` and does with it what a first user does.
func TestDemo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out, in := io.Pipe()
	book := &logBook{}
	status := make(chan int, 1)
	go func() {
		status <- execute(ctx, []string{"demo", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--data", t.TempDir()}, in, book)
		in.Close()
	}()
	endpoint, web := greeting(t, out)

	for _, mode := range []struct {
		policy string
		mode   ua.MessageSecurityMode
	}{
		{ua.SecurityPolicyURINone, ua.MessageSecurityModeNone},
		{ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSign},
		{ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSignAndEncrypt},
		{ua.SecurityPolicyURIAes128Sha256RsaOaep, ua.MessageSecurityModeSignAndEncrypt},
		{ua.SecurityPolicyURIAes256Sha256RsaPss, ua.MessageSecurityModeSignAndEncrypt},
	} {
		t.Run(mode.policy+" "+mode.mode.String(), func(t *testing.T) {
			c := connect(t, endpoint, mode.policy, mode.mode)
			firstLook(t, c)
			firstWrites(t, c)
			firstSubscription(t, c)
		})
	}
	t.Run("web", func(t *testing.T) { firstPage(t, web) })
	t.Run("shutdown", func(t *testing.T) { clientsHearOfTheEnd(t, endpoint, cancel) })
	select {
	case s := <-status:
		if s != exitDone {
			t.Errorf("exit status %d, want 0\n%s", s, book)
		}
	case <-time.After(patience):
		t.Fatalf("the demo does not end\n%s", book)
	}
}

// greeting reads the two addresses that the demo prints, and all that follows.
func greeting(t *testing.T, out io.Reader) (endpoint, web string) {
	t.Helper()
	lines := bufio.NewScanner(out)
	for web == "" && lines.Scan() {
		switch f := strings.Fields(lines.Text()); {
		case len(f) == 3 && f[0] == "OPC":
			endpoint = f[2]
		case len(f) == 3 && f[0] == "web":
			web = f[2]
		}
	}
	if endpoint == "" || web == "" {
		t.Fatalf("the demo printed no addresses: %v", lines.Err())
	}
	go func() {
		for lines.Scan() {
		}
	}()
	return endpoint, web
}

func firstLook(t *testing.T, c *opcua.Client) {
	refs, err := c.Node(tagID("Devices")).References(t.Context(), id.Organizes, ua.BrowseDirectionForward, ua.NodeClassObject, true)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range refs {
		names = append(names, r.BrowseName.Name)
	}
	if got := strings.Join(names, " "); got != "boiler burner scratch" {
		t.Errorf("Devices organizes %q", got)
	}
	refs, err = c.Node(tagID("boiler")).References(t.Context(), id.HasComponent, ua.BrowseDirectionForward, ua.NodeClassVariable, true)
	if err != nil || len(refs) < 6 {
		t.Errorf("boiler has %d variables: %v", len(refs), err)
	}
	for _, name := range []string{"boiler.temperature", "boiler.level", "boiler.alarm", "boiler.running", "burner.pressure", "burner.flame", "scratch.m999"} {
		eventually(t, name+" Good", func() bool { return readTag(t, c, name).Status == ua.StatusOK })
	}
	before := readTag(t, c, "boiler.temperature")
	eventually(t, "a moving temperature", func() bool {
		return readTag(t, c, "boiler.temperature").Value.Value() != before.Value.Value()
	})
	if v, ok := before.Value.Value().(float32); !ok || v < 20 || v > 90 || before.SourceTimestamp.IsZero() || before.ServerTimestamp.IsZero() {
		t.Errorf("temperature is %v", before.Value)
	}
	if v := readTag(t, c, "boiler.$state"); v.Value == nil || v.Value.Value() != int32(1) {
		t.Errorf("boiler.$state is %v, want 1 (online)", v.Value)
	}
	if v := readTag(t, c, "boiler.nothing"); v.Status != ua.StatusBadNodeIDUnknown {
		t.Errorf("an unknown tag has status %v", v.Status)
	}
}

func firstWrites(t *testing.T, c *opcua.Client) {
	for _, row := range []struct {
		name  string
		value any
		want  ua.StatusCode
	}{
		{"boiler.setpoint", 71.3, ua.StatusOK},
		{"boiler.setpoint", 120.1, ua.StatusBadOutOfRange},
		{"boiler.setpoint", "hot", ua.StatusBadTypeMismatch},
		{"boiler.temperature", float32(1), ua.StatusBadNotWritable},
		{"boiler.running", false, ua.StatusOK},
		{"boiler.running", true, ua.StatusOK},
		{"burner.modulation", uint16(77), ua.StatusOK},
		{"scratch.m5", 1.5, ua.StatusOK},
		{"scratch.m5", float32(1.5), ua.StatusBadTypeMismatch},
	} {
		if got := writeTag(t, c, row.name, row.value); got != row.want {
			t.Errorf("writing %v to %s: %v, want %v", row.value, row.name, got, row.want)
		}
	}
	for name, want := range map[string]any{"boiler.setpoint": 71.3, "boiler.running": true, "burner.modulation": uint16(77), "scratch.m5": 1.5} {
		if v := readTag(t, c, name); v.Value == nil || v.Value.Value() != want {
			t.Errorf("%s reads back %v, want %v", name, v.Value, want)
		}
	}
}

func firstSubscription(t *testing.T, c *opcua.Client) {
	values := make(chan uint32, 1000)
	subscribe(t, c, 200*time.Millisecond, 20, []*ua.NodeID{tagID("boiler.counter")}, func(_ int, v *ua.DataValue) {
		if v.Status != ua.StatusOK {
			return
		}
		if n, ok := v.Value.Value().(uint32); ok {
			values <- n
		}
	})
	last := uint32(0)
	for i := range 8 {
		select {
		case v := <-values:
			if i > 0 && v <= last {
				t.Errorf("counter %d came after %d", v, last)
			}
			last = v
		case <-time.After(patience):
			t.Fatalf("no notification after the first %d", i)
		}
	}
}

func firstPage(t *testing.T, web string) {
	client := http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	for path, want := range map[string]string{
		"/": "boiler.temperature", "/readyz": "ready", "/healthz": "ok", "/metrics": `edged_samples_total{device="boiler"}`,
		"/api/tags?filter=setpoint": `"unit":"°C"`,
	} {
		r, err := client.Get(web + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: status %d, %v; it lacks %q", path, r.StatusCode, err, want)
		}
	}
}

// clientsHearOfTheEnd ends the gateway under a client that watches ServerStatus (Part 5, 12.10).
func clientsHearOfTheEnd(t *testing.T, endpoint string, end func()) {
	c := connect(t, endpoint, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	states := make(chan int32, 100)
	subscribe(t, c, 50*time.Millisecond, 10, []*ua.NodeID{ua.NewNumericNodeID(0, id.Server_ServerStatus_State)}, func(_ int, v *ua.DataValue) {
		if n, ok := v.Value.Value().(int32); ok {
			states <- n
		}
	})
	for _, want := range []ua.ServerState{ua.ServerStateRunning, ua.ServerStateShutdown} {
		select {
		case got := <-states:
			if got != int32(want) {
				t.Errorf("state %d, want %v", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("state %v was not told", want)
		}
		if want == ua.ServerStateRunning {
			end()
			continue
		}
		r, err := c.Node(ua.NewNumericNodeID(0, id.Server_ServerStatus_SecondsTillShutdown)).Value(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := r.Value().(uint32); !ok || n > uint32(shutdownNotice/time.Second) {
			t.Errorf("SecondsTillShutdown is %v", r.Value())
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestPortInUse starts a gateway whose ports another program holds.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	var held []net.Listener
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	g, book := startSite(t, fmt.Sprintf("server: {listen: %q, security: {policies: [None], anonymous: read}}\nweb: {listen: %q}\n"+
		"devices: [{name: d, driver: memory, tags: [{name: t, value: 7}]}]\n", held[0].Addr(), held[1].Addr()))
	eventually(t, "the complaint about both ports", func() bool { return book.count("is in use by another program") == 2 })
	if err := g.Ready(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a gateway without its port is ready: %v", err)
	}
	eventually(t, "a working field side", func() bool {
		v, _, _ := g.Last(1)
		return v.Status == tag.Good
	})
	time.Sleep(4 * firstRetry) // several more tries
	if n := book.count("is in use by another program"); n != 2 {
		t.Errorf("two ports in use were told %d times", n)
	}
	for _, l := range held {
		l.Close()
	}
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	if v := readTag(t, c, "d.t"); v.Value == nil || v.Value.Value() != float64(7) {
		t.Errorf("d.t is %v", v.Value)
	}
	<-g.page.up
	if err := g.Ready(); err != nil {
		t.Error(err)
	}
}

// TestMissingHardware starts a gateway whose host is dead and whose serial adapter is not plugged in; later the host comes.
func TestMissingHardware(t *testing.T) {
	t.Parallel()
	address := freePort(t)
	g, book := startSite(t, siteHead+fmt.Sprintf(`
buses:
- {name: dead, url: "tcp://%s", timeout: 200ms}
- {name: missing, url: "rtu:///dev/edged-no-such-line"}
devices:
- {name: a, bus: dead, unit: 1, poll: 50ms, tags: [{name: t, address: "holding:0", access: readwrite}]}
- {name: b, bus: missing, unit: 1, poll: 50ms, tags: [{name: t, address: "holding:0"}]}
- {name: c, driver: memory, tags: [{name: t}]}
`, address))
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	for _, name := range []string{"a.t", "b.t"} {
		eventually(t, name+" without its line", func() bool {
			s := readTag(t, c, name).Status
			return s == ua.StatusBadNoCommunication || s == ua.StatusBadWaitingForInitialData
		})
	}
	if s := readTag(t, c, "c.t").Status; s != ua.StatusOK {
		t.Errorf("a memory tag beside dead lines has status %v", s)
	}
	if s := writeTag(t, c, "a.t", uint16(1)); s != ua.StatusBadNoCommunication {
		t.Errorf("a write to a dead host: %v, want BadNoCommunication", s)
	}
	eventually(t, "a word about each line", func() bool { return book.count("edged-no-such-line") >= 1 && book.count(address) >= 1 })
	if lines := strings.Count(book.String(), "\n"); lines > 12 {
		t.Errorf("%d lines of log about two dead lines:\n%s", lines, book)
	}
	plant, err := sim.New(sim.Config{
		Lines:   []sim.LineConfig{{Name: "l", URL: "tcp://" + address}},
		Devices: []sim.DeviceConfig{{Name: "a", Line: "l", Unit: 1, Points: []sim.PointConfig{{Address: "holding:0", Value: 42}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := plant.Start(); err != nil {
		t.Fatal(err)
	}
	defer plant.Close()
	eventually(t, "the host's return", func() bool {
		v := readTag(t, c, "a.t")
		return v.Status == ua.StatusOK && v.Value.Value() == uint16(42)
	})
}

// process starts the program with args in a process of its own.
func process(t *testing.T, args ...string) (*exec.Cmd, *logBook, io.Reader) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	book := &logBook{}
	cmd.Stderr = book
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return cmd, book, out
}

func TestSignals(t *testing.T) {
	t.Parallel()
	t.Run("SIGTERM ends cleanly", func(t *testing.T) {
		cmd, book, out := process(t, "demo", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--data", t.TempDir())
		greeting(t, out)
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || book.count("gateway ended") != 1 {
			t.Errorf("exit: %v\n%s", err, book)
		}
	})
	t.Run("a second SIGTERM ends at once", func(t *testing.T) {
		cmd, book, out := process(t, "demo", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--data", t.TempDir())
		endpoint, _ := greeting(t, out)
		connect(t, endpoint, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone) // makes the gateway wait for its client
		cmd.Process.Signal(syscall.SIGTERM)
		eventually(t, "the first signal", func() bool { return book.count("shutting down") == 1 })
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGTERM {
			t.Errorf("ended with %v\n%s", cmd.ProcessState, book)
		}
	})
}

// TestEndWithoutPort ends a gateway that never got its port.
func TestEndWithoutPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := parseSite("site.yaml", []byte(fmt.Sprintf("server: {listen: %q}\nweb: {listen: none}\n%s", l.Addr(), oneDevice)))
	if err != nil {
		t.Fatal(err)
	}
	book := &logBook{}
	g, err := newGateway(s, t.TempDir(), newLog(book, "text", "info"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.run(ctx)
	}()
	eventually(t, "the complaint", func() bool { return book.count("is in use by another program") == 1 })
	if book.count("nobody can log in") != 1 {
		t.Errorf("a site that lets nobody in starts without a word:\n%s", book)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatalf("the gateway does not end\n%s", book)
	}
}
