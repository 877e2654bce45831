package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/uatest"
)

// fortress is a gateway in a process of its own, looked at from outside.
type fortress struct {
	*exec.Cmd
	book      *logBook
	addr, web string
	endpoints []*ua.EndpointDescription
}

// fortressDevices are tags that clients write, and tags that move by themselves.
const fortressDevices = `
- {name: scratch, driver: memory, tags: [{name: "m{n}", repeat: 1000, type: float64, access: readwrite}]}
- {name: moving, driver: memory, tags: [
    {name: "c{n}", repeat: 100, type: uint32, wave: {kind: counter, every: 50ms}},
    {name: "text{n}", repeat: 300, type: "string(4000)", access: readwrite, value: ""}]}
`

// fortified starts a gateway for a siege; limits are the site's, as YAML.
func fortified(t *testing.T, limits string) *fortress {
	t.Helper()
	return fortifiedWith(t, limits, "devices:\n")
}

// fortifiedWith adds the devices of the siege to those with which the rest of a site ends.
func fortifiedWith(t *testing.T, limits, rest string) *fortress {
	t.Helper()
	addr, web := freePort(t), freePort(t)
	text := fmt.Sprintf("server: {listen: %q, security: {policies: [None, Basic256Sha256], anonymous: write, trust_all: true}, limits: {%s}}\nweb: {listen: %q}\n",
		addr, limits, web) + rest + fortressDevices
	file := t.TempDir() + "/site.yaml"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fortress{addr: addr, web: web}
	f.Cmd, f.book, _ = process(t, "run", "--config", file)
	eventually(t, "the gateway", func() (up bool) {
		if f.ProcessState != nil {
			t.Fatalf("the gateway ended\n%s", f.book)
		}
		var err error
		f.endpoints, err = uatest.Endpoints(addr)
		return err == nil
	})
	t.Cleanup(func() {
		f.Process.Signal(syscall.SIGCONT)
		f.Process.Signal(syscall.SIGTERM)
		if err := f.Wait(); err != nil {
			t.Errorf("the gateway's end: %v", err)
		}
		if n := f.book.count("panic"); n > 0 {
			t.Errorf("%d panics", n)
		}
		if t.Failed() {
			b := f.book.String()
			t.Logf("log:\n%s", b[max(0, len(b)-8000):])
		}
	})
	return f
}

// dial opens a channel, secured with Basic256Sha256, SignAndEncrypt or not at all. change may alter the options.
func (f *fortress) dial(t *testing.T, secured bool, change func(*uatest.Options)) (*uatest.Client, error) {
	t.Helper()
	var o uatest.Options
	if secured {
		o = f.secured(t)
	}
	if change != nil {
		change(&o)
	}
	return uatest.Dial(f.addr, o)
}

// secured are the options for a channel with Basic256Sha256, SignAndEncrypt.
func (f *fortress) secured(t *testing.T) uatest.Options {
	o := uatest.Options{Policy: ua.SecurityPolicyURIBasic256Sha256, Mode: ua.MessageSecurityModeSignAndEncrypt, Identity: besieger(t)}
	for _, e := range f.endpoints {
		if e.SecurityPolicyURI == o.Policy {
			o.Server = e.ServerCertificate
		}
	}
	return o
}

var theBesieger struct {
	sync.Mutex // guards id
	id         *uatest.Identity
}

// besieger is the identity of all clients of sieges.
func besieger(t *testing.T) *uatest.Identity {
	theBesieger.Lock()
	defer theBesieger.Unlock()
	if theBesieger.id == nil {
		theBesieger.id = uatest.ClientIdentity(t)
	}
	return theBesieger.id
}

// login makes a client with a session.
func (f *fortress) login(t *testing.T, secured bool, timeout time.Duration) *uatest.Client {
	t.Helper()
	c, err := f.dial(t, secured, nil)
	if err == nil {
		err = c.Login(timeout)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// readOne reads a value.
func readOne(c *uatest.Client, id uint32, name string) (any, error) {
	r, err := uatest.Ask[*ua.ReadResponse](c, id, &ua.ReadRequest{NodesToRead: []*ua.ReadValueID{
		{NodeID: tagID(name), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}}}})
	if err != nil {
		return nil, err
	}
	if v := r.Results[0]; v.Value != nil && v.Status == ua.StatusOK {
		return v.Value.Value(), nil
	}
	return nil, fmt.Errorf("%s: %v", name, r.Results[0].Status)
}

// metrics are what the gateway says of itself, names with labels.
func (f *fortress) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + f.web + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		name, text, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(text, 64); ok && err == nil {
			out[name] = v
		}
	}
	return out
}

// collected are the metrics right after a garbage collection: asking for them again and again makes one.
func (f *fortress) collected(t *testing.T) map[string]float64 {
	t.Helper()
	const cycles = "go_gc_duration_seconds_count"
	m := f.metrics(t)
	for first := m[cycles]; m[cycles] < first+3; {
		m = f.metrics(t)
	}
	return m
}

// resident is the memory of the process that is in RAM, in bytes.
func (f *fortress) resident(t *testing.T) int64 { return f.status(t, "VmRSS:") }

// peak is the most that resident was.
func (f *fortress) peak(t *testing.T) int64 { return f.status(t, "VmHWM:") }

func (f *fortress) status(t *testing.T, key string) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.Process.Pid))
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	_, rest, _ := strings.Cut(string(b), key)
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// connection is a TCP connection to the gateway that ends with the test.
func (f *fortress) connection(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// long reports whether sieges have their full size.
func long() bool { return os.Getenv("EDGED_LONG") != "" }

// pick is the full size of a siege with EDGED_LONG, else a smaller one.
func pick[T any](full, ordinary T) T {
	if long() {
		return full
	}
	return ordinary
}

// TestStormAtTheGate: many peers send nothing, a byte a second, half a message or the begin of a secured open, while all
// sessions are taken. The next honest client is served within a second, and one whose connection hangs finds its session.
func TestStormAtTheGate(t *testing.T) {
	peers := pick(2000, 400)
	f := fortified(t, "sessions: 20, connections: 30")
	var first []*uatest.Client
	for range 19 {
		first = append(first, f.login(t, false, time.Hour))
	}
	bystander := f.login(t, true, time.Hour)
	hello, err := uatest.New(nil, uatest.Options{URL: "opc.tcp://" + f.addr})
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := uatest.New(nil, f.secured(t))
	if err != nil {
		t.Fatal(err)
	}
	open := append(sealed.HelloMessage(), foreignOpen(t, sealed)...)
	for _, row := range []struct {
		name string
		send []byte // at once
		drip []byte // a byte of it a second
	}{
		{"nothing", nil, nil},
		{"one byte a second", nil, hello.HelloMessage()},
		{"half a message", hello.HelloMessage()[:20], nil},
		{"a whole hello", hello.HelloMessage(), nil},
		{"half a secured open", open[:len(open)-100], nil},
		{"a secured open", open, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			stop := make(chan struct{})
			ended := make(chan struct{})
			conns := make([]net.Conn, peers)
			for i := range conns {
				conns[i] = f.connection(t)
				conns[i].Write(row.send)
			}
			go func() {
				defer close(ended)
				for _, b := range row.drip {
					for _, c := range conns {
						c.Write([]byte{b})
					}
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
					}
				}
			}()
			for _, secured := range []bool{false, true} {
				begun := time.Now()
				c, err := f.dial(t, secured, nil)
				if err != nil {
					t.Fatalf("the next, honest client: %v", err)
				}
				if err := c.Resume(first[0]); err != nil && !secured {
					t.Fatalf("a client that comes back to its session: %v", err)
				} else if !secured {
					first[0].Close()
					first[0] = c
				}
				if _, err := uatest.Ask[*ua.GetEndpointsResponse](c, 9, &ua.GetEndpointsRequest{EndpointURL: c.Options.URL}); err != nil {
					t.Fatal(err)
				}
				took := time.Since(begun)
				if t.Logf("served within %v (secured %v)", took, secured); took > time.Second {
					t.Errorf("an honest client waited %v", took)
				}
				if secured {
					c.Close()
				}
			}
			if _, err := readOne(bystander, 7, "scratch.m1"); err != nil {
				t.Errorf("a bystander: %v", err)
			}
			close(stop)
			<-ended
			for _, c := range conns {
				c.Close()
			}
		})
	}
	first[1].Close()
}

// foreignOpen is an OpenSecureChannel request whose certificate is in order and whose secret part is noise: to find out
// costs the gateway a private key operation.
func foreignOpen(t *testing.T, c *uatest.Client) []byte {
	t.Helper()
	b, err := c.OpenChunk(1, bytes.Repeat([]byte{7}, 100))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		b[len(b)-1-i] ^= byte(i)
	}
	return b
}

// TestUnfinishedChunks: 40 peers without a session, and 40 with one, never finish their chunks. The first cost less than
// 16 MiB together, the second no more than their account has.
func TestUnfinishedChunks(t *testing.T) {
	f := fortified(t, "sessions: 60, memory: 64MiB")
	before := f.resident(t)
	for range 40 {
		c, err := f.dial(t, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		for {
			b, err := c.Chunk("MSGC", 5, make([]byte, 8000))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Conn.Write(b); err != nil {
				t.Fatal(err)
			}
			if c.Seq >= 8 { // the limit before login is 64 KiB
				break
			}
		}
	}
	honest := f.login(t, true, time.Minute)
	if cost := f.peak(t) - before; cost > 16<<20 && !raceEnabled {
		t.Errorf("40 peers that never finish their chunks cost %d KiB", cost>>10)
	} else {
		t.Logf("40 peers that never finish their chunks cost %d KiB", cost>>10)
	}
	for range 40 {
		c := f.login(t, false, time.Minute)
		c.Conn.SetDeadline(time.Now().Add(patience))
		body := make([]byte, c.Ack[3]-1<<16)
		chunks, err := c.Chunks(6, body)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range chunks[:len(chunks)-1] {
			if _, err := c.Conn.Write(b); err != nil {
				break // refused: the account is empty
			}
		}
	}
	if _, err := readOne(honest, 3, "scratch.m1"); err != nil {
		t.Errorf("a bystander: %v", err)
	}
	m := f.metrics(t)
	used, limit := m[`edged_memory_bytes{account="connections"}`], m[`edged_memory_limit_bytes{account="connections"}`]
	if used > limit || limit == 0 {
		t.Errorf("the account of connections holds %v of %v bytes", used, limit)
	}
	t.Logf("40 with sessions hold %.0f KiB of %.0f, at most %d KiB of RAM were added", used/1024, limit/1024, (f.peak(t)-before)>>10)
}

// TestVanishingClients: clients connect, subscribe and vanish, again and again. What they took is given back.
func TestVanishingClients(t *testing.T) {
	t.Parallel()
	rounds := pick(2000, 60) // half of them secured
	f := fortified(t, "sessions: 1000, connections: 1010, subscriptions: 1000")
	vanish := func(i int) {
		c := f.login(t, i%4 < 2, 10*time.Second)
		sub, err := uatest.Ask[*ua.CreateSubscriptionResponse](c, 3, &ua.CreateSubscriptionRequest{
			RequestedPublishingInterval: 50, RequestedLifetimeCount: 30, RequestedMaxKeepAliveCount: 10, PublishingEnabled: true})
		if err != nil {
			t.Fatal(err)
		}
		req := &ua.CreateMonitoredItemsRequest{SubscriptionID: sub.SubscriptionID}
		for n := range 50 {
			req.ItemsToCreate = append(req.ItemsToCreate, monitor(fmt.Sprintf("moving.c%d", n), uint32(n), 10))
		}
		if _, err := uatest.Ask[*ua.CreateMonitoredItemsResponse](c, 4, req); err != nil {
			t.Fatal(err)
		}
		for n := range uint32(3) {
			if err := sendPublish(c, 10+n); err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			c.Conn.(*net.TCPConn).SetLinger(0) // a reset
		}
		c.Close()
	}
	gone := func() bool {
		m := f.metrics(t)
		return m["edged_sessions"] == 0 && m["edged_subscriptions"] == 0 && m["edged_monitored_items"] == 0
	}
	for i := range 20 {
		vanish(i) // what is made once
	}
	eventually(t, "the end of the first sessions", gone)
	before := f.collected(t)
	for i := range rounds {
		vanish(i)
	}
	eventually(t, "the end of the sessions", gone)
	var after map[string]float64
	// What is left over from one collection to the next differs a little.
	enough := func(name string, slack float64) bool { return after[name] <= before[name]+slack }
	eventually(t, "goroutines, descriptors and heap as before", func() bool {
		after = f.collected(t)
		return enough("go_goroutines", 2) && enough("process_open_fds", 2) && enough("go_memstats_heap_alloc_bytes", 1<<20)
	})
	for _, name := range []string{"go_goroutines", "process_open_fds", "go_memstats_heap_alloc_bytes", "process_resident_memory_bytes"} {
		t.Logf("%s: %.0f before, %.0f after %d rounds", name, before[name], after[name], rounds)
	}
}

// monitor asks for every change of a tag.
func monitor(name string, handle, queue uint32) *ua.MonitoredItemCreateRequest {
	return &ua.MonitoredItemCreateRequest{
		ItemToMonitor:  &ua.ReadValueID{NodeID: tagID(name), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}},
		MonitoringMode: ua.MonitoringModeReporting,
		RequestedParameters: &ua.MonitoringParameters{
			ClientHandle: handle, QueueSize: queue, DiscardOldest: true, Filter: ua.NewExtensionObject(nil),
		},
	}
}

// sendPublish sends a Publish and waits for nothing.
func sendPublish(c *uatest.Client, id uint32, acks ...*ua.SubscriptionAcknowledgement) error {
	body, err := uatest.Encode(&ua.PublishRequest{
		RequestHeader: &ua.RequestHeader{
			AuthenticationToken: c.Session, Timestamp: time.Now(), RequestHandle: id, AdditionalHeader: ua.NewExtensionObject(nil),
		},
		SubscriptionAcknowledgements: acks,
	})
	if err != nil {
		return err
	}
	return c.Send(id, body)
}

// TestCorpus sends what fuzzers found worth keeping to the port, each file over a connection of its own, those of
// EDGED_CORPUS (a folder) too, if it is set. Nothing ends the gateway, and its memory goes back to where it was.
func TestCorpus(t *testing.T) {
	f := fortified(t, "")
	messages := ownCorpus(t)
	if dir := os.Getenv("EDGED_CORPUS"); dir != "" {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(dir + "/" + file.Name())
			if err != nil {
				t.Fatal(err)
			}
			messages = append(messages, b)
		}
	}
	bystander := f.login(t, true, time.Hour)
	send := func() {
		for _, b := range messages {
			conn, err := net.Dial("tcp", f.addr)
			if err != nil {
				t.Fatal(err)
			}
			conn.Write(b) // which fails where the gateway has heard enough
			conn.(*net.TCPConn).CloseWrite()
			conn.SetReadDeadline(time.Now().Add(patience))
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}
	send()
	before := f.collected(t)
	for range pick(20, 3) {
		send()
	}
	if _, err := readOne(bystander, 3, "scratch.m1"); err != nil {
		t.Errorf("a bystander: %v", err)
	}
	var after map[string]float64
	eventually(t, "memory, goroutines and descriptors as before", func() bool {
		after = f.collected(t)
		return after["go_goroutines"] <= before["go_goroutines"]+2 && after["process_open_fds"] <= before["process_open_fds"]+2 &&
			after["go_memstats_heap_alloc_bytes"] <= before["go_memstats_heap_alloc_bytes"]+1<<20 &&
			after[`edged_memory_bytes{account="connections"}`] <= before[`edged_memory_bytes{account="connections"}`]
	})
	t.Logf("%d messages, heap %.0f before and %.0f bytes after", len(messages), before["go_memstats_heap_alloc_bytes"], after["go_memstats_heap_alloc_bytes"])
}

// ownCorpus is what was found for whole conversations.
func ownCorpus(t *testing.T) (all [][]byte) {
	t.Helper()
	const dir = "../../uaserver/channel/testdata/fuzz/FuzzServeConn/"
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(dir + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(b), "[]byte(")
		text, _, _ = strings.Cut(text, ")\n")
		s, err := strconv.Unquote(text)
		if err != nil {
			t.Fatalf("%s: %v", file.Name(), err)
		}
		all = append(all, []byte(s))
	}
	return all
}
