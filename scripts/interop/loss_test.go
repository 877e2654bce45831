//go:build interop

package interop

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"edged/drivers/sim"
)

// The plant whose losses are judged. Everything is ten times as fast as in a plant of steel.
const (
	judgedDevices  = 3
	judgedCounters = 20
	judgedStep     = 50 * time.Millisecond   // of a counter, and the poll
	judgedPublish  = 500 * time.Millisecond  // 10 values of each
	judgedQueue    = 20                      // holds two intervals
	longCut        = 1800 * time.Millisecond // with what comes on top of it, more than the queues hold
)

// judge holds what the devices said against what the client heard.
type judge struct {
	mu   sync.Mutex                                // guards all below
	told [judgedDevices * judgedCounters][]uint32  // what each counter was, as the devices said it, in order
	item [judgedDevices * judgedCounters]heardItem // what the client heard of it
	said []string                                  // all that is no notification
	bad  []string                                  // what must not be

	overflow int // values that are missing before an Overflow bit
	outage   int // values that a device said, and whose answer did not arrive: a bad status stands in their place
	mixed    int // Overflow bits in an outage, as a machine that is too busy makes them: of those the values cannot be told apart
	again    int // values that came a second time, by Republish
	values   int
}

// heardItem is where the client is with one counter.
type heardItem struct {
	at     int    // index into told behind the last value; -1: none yet
	heard  []bool // by index into told
	good   bool   // the last notification was
	outage bool   // a bad status came since the last value
}

// answer notes the counters of one answer. It is called by the device's own goroutine.
func (j *judge) answer(a *sim.Answer) {
	var device int
	if _, err := fmt.Sscanf(a.Device.Name(), "d%d", &device); err != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range judgedCounters {
		high, ok := a.Register(2 * i)
		low, ok2 := a.Register(2*i + 1)
		if !ok || !ok2 {
			continue
		}
		v, of := uint32(high)<<16|uint32(low), &j.told[device*judgedCounters+i]
		if n := len(*of); n == 0 || (*of)[n-1] != v {
			*of = append(*of, v)
		}
	}
}

// hear judges one line of the client.
func (j *judge) hear(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var n int
	var value string
	var status uint32
	if _, err := fmt.Sscanf(line, "%d %s %d", &n, &value, &status); err != nil {
		j.said = append(j.said, line)
		return
	}
	it, told := &j.item[n], j.told[n]
	overflow := status&0x480 == 0x480 // InfoType DataValue, Overflow (Part 4, 7.39.1)
	if it.good = status>>30 == 0; !it.good {
		it.outage = true
		if overflow {
			j.mixed++
		}
		return
	}
	v, err := strconv.ParseUint(value, 10, 32)
	at := max(it.at, 0)
	for at < len(told) && told[at] != uint32(v) {
		at++
	}
	if at == len(told) && it.again(told, uint32(v)) {
		j.again++ // a message that came before its link broke, and once more when the client asked what it had missed
		return
	}
	switch {
	case err != nil || at == len(told):
		j.bad = append(j.bad, fmt.Sprintf("counter %d: %s comes behind %d of %d values, or never was", n, value, it.at, len(told)))
		return
	case it.at < 0: // the first
	case overflow && it.outage:
		j.mixed++
	case overflow && at == it.at:
		j.bad = append(j.bad, fmt.Sprintf("counter %d: %s has Overflow, and nothing is missing", n, value))
	case overflow:
		j.overflow += at - it.at
	case it.outage:
		j.outage += at - it.at
	case at > it.at:
		j.bad = append(j.bad, fmt.Sprintf("counter %d: %d values are missing before %s, and nothing says so", n, at-it.at, value))
	}
	it.heard = append(it.heard, make([]bool, at+1-len(it.heard))...)
	it.heard[at] = true
	it.at, it.outage = at+1, false
	j.values++
}

// again reports whether a value was heard before.
func (it *heardItem) again(told []uint32, v uint32) bool {
	for i, heard := range it.heard {
		if heard && told[i] == v {
			return true
		}
	}
	return false
}

// fresh reports whether the client has the newest values of all counters, or nearly so.
func (j *judge) fresh() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.item {
		if !j.item[i].good || len(j.told[i])-j.item[i].at > 2*int(judgedPublish/judgedStep) {
			return false
		}
	}
	return true
}

func (j *judge) has(line string) func() bool {
	return func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, s := range j.said {
			if s == line {
				return true
			}
		}
		return false
	}
}

// link is a wire between the client and the gateway that can be cut, or hold back what it is given.
type link struct {
	listener net.Listener
	to       string
	gate     sync.RWMutex // held by who stalls it; each piece passes under a read lock

	mu    sync.Mutex // guards all below
	cut   bool
	conns map[net.Conn]struct{}
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{listener: l, to: to, conns: map[net.Conn]struct{}{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { k.join(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		k.setCut(true)
		all.Wait()
	})
	return k
}

// join carries one connection until either end closes it.
func (k *link) join(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", k.to)
	if err != nil {
		return
	}
	defer s.Close()
	k.mu.Lock()
	cut := k.cut
	if !cut {
		k.conns[c], k.conns[s] = struct{}{}, struct{}{}
	}
	k.mu.Unlock()
	if cut {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { k.carry(s, c) })
	k.carry(c, s)
	both.Wait()
	k.mu.Lock()
	delete(k.conns, c)
	delete(k.conns, s)
	k.mu.Unlock()
}

func (k *link) carry(to, from net.Conn) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		k.gate.RLock()
		k.gate.RUnlock()
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}

// setCut breaks every connection, and each new one until it is mended.
func (k *link) setCut(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
	if cut {
		for c := range k.conns {
			c.Close()
		}
	}
}

// watcher is node-opcua's client with a voice.
type watcher struct {
	in   io.WriteCloser
	done chan struct{}
}

func watchLosses(t *testing.T, j *judge, endpoint string, nodes []string) *watcher {
	t.Helper()
	args := append([]string{"loss.mjs", "--endpoint", endpoint, "--pki", certificates, "--publishing",
		fmt.Sprint(judgedPublish.Milliseconds()), "--queue", fmt.Sprint(judgedQueue)}, nodes...)
	cmd := exec.Command(tool(t, "node", "install Node.js 20 (apt-get install nodejs)"), args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &watcher{in, make(chan struct{})}
	go func() {
		defer close(w.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			j.hear(lines.Text())
		}
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() // it has ended, or the test has failed
		<-w.done
	})
	return w
}

// until waits for what must come.
func until(t *testing.T, j *judge, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			j.mu.Lock()
			defer j.mu.Unlock()
			t.Fatalf("not within %v: %s; the client said %q, wrong is %q", patience, what, j.said, j.bad)
		}
	}
}

// metric is the sum of the metrics with that beginning.
func metric(t *testing.T, web, name string) (sum int) {
	t.Helper()
	r, err := http.Get("http://" + web + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	found := false
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum, found = sum+int(v), true
		}
	}
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	return sum
}

// TestLossFromOutside judges losses by what the devices said and what node-opcua's client heard, over a random run of
// faults: links that are cut or stall, a client that is slow, devices that are mute or gone. Each value that is missing is
// told by an Overflow bit, or by a bad status where the field was at fault; and the ledger counts as many. Faults of the
// field and of the client take turns: a bad status that overflows is counted by the ledger, and not to be seen from outside.
//
// EDGED_LONG=1 runs six minutes, which is an hour of a plant that is ten times as slow.
func TestLossFromOutside(t *testing.T) {
	if _, err := os.Stat("node_modules/node-opcua-client"); err != nil {
		t.Fatal("node-opcua-client is missing: run scripts/setup.sh")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 5))
	j := &judge{}
	for i := range j.item {
		j.item[i].at = -1
	}
	plant := judgedPlant(t, j)
	web := "127.0.0.1:" + freePort(t)
	endpoint := gateway(t, "run", "--config", judgedSite(t, plant, web), "--data", t.TempDir())
	wire := newLink(t, strings.TrimPrefix(endpoint, "opc.tcp://"))
	var nodes []string
	for i := range judgedDevices * judgedCounters {
		nodes = append(nodes, fmt.Sprintf("ns=2;s=d%d.c%d", i/judgedCounters, i%judgedCounters))
	}
	client := watchLosses(t, j, "opc.tcp://"+wire.listener.Addr().String(), nodes)
	until(t, j, "the items", j.has("ready"))
	until(t, j, "all counters", j.fresh)

	faults := []func(d time.Duration){
		func(d time.Duration) { wire.setCut(true); time.Sleep(d + longCut); wire.setCut(false) },
		func(d time.Duration) { wire.gate.Lock(); time.Sleep(d); wire.gate.Unlock() },
		func(d time.Duration) { fmt.Fprintf(client.in, "slow %d\n", d.Milliseconds()); time.Sleep(d) },
		func(d time.Duration) {
			lift := plant.Device(fmt.Sprintf("d%d", rnd.IntN(judgedDevices))).Fault(sim.Fault{Kind: sim.Mute})
			time.Sleep(d)
			lift()
		},
		func(d time.Duration) {
			line := plant.Line(fmt.Sprintf("l%d", rnd.IntN(judgedDevices)))
			line.Down()
			time.Sleep(d)
			if err := line.Up(); err != nil {
				t.Error(err)
			}
		},
	}
	rounds, end := 0, time.Now()
	if os.Getenv("EDGED_LONG") != "" {
		end = end.Add(6 * time.Minute)
	}
	for order := rnd.Perm(len(faults)); len(order) > 0 || time.Now().Before(end); rounds++ {
		if len(order) == 0 {
			order = rnd.Perm(len(faults))
		}
		d := 200*time.Millisecond + time.Duration(rnd.Int64N(int64(2500*time.Millisecond)))
		faults[order[0]](d)
		order = order[1:]
		time.Sleep(2 * judgedPublish)
		until(t, j, fmt.Sprintf("all counters after fault %d of %v", rounds, d), j.fresh)
		time.Sleep(2 * judgedPublish) // what waited in queues is on its way
	}
	const lost = `edged_notifications_discarded_total{reason="overflow"}`
	before := metric(t, web, lost)
	fmt.Fprintln(client.in, "end")
	<-client.done
	after := metric(t, web, lost)
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, text := range j.bad[:min(len(j.bad), 10)] {
		t.Error(text)
	}
	if j.overflow == 0 {
		t.Error("nothing was lost, though a link was cut for longer than the queues hold: nothing was judged")
	}
	if j.mixed == 0 && j.overflow < before || j.overflow > after {
		t.Errorf("%d values are missing before an Overflow bit, the ledger has %d to %d", j.overflow, before, after)
	}
	if most := metric(t, web, "edged_messages_republished_total") * len(j.item) * judgedQueue; j.again > most {
		t.Errorf("%d values came again, and no more than %d were asked for again", j.again, most)
	}
	if n := metric(t, web, "edged_unaccounted"); n != 0 {
		t.Errorf("unaccounted: %d", n)
	}
	if !t.Failed() {
		t.Logf("%d faults, %d values in order; %d lost by the client, each told by an Overflow bit and counted; %d lost in the field, %d came again, %d mixed",
			rounds, j.values, j.overflow, j.outage, j.again, j.mixed)
	}
}

// judgedPlant starts the devices.
func judgedPlant(t *testing.T, j *judge) *sim.Plant {
	t.Helper()
	var cfg sim.Config
	for i := range judgedDevices {
		cfg.Lines = append(cfg.Lines, sim.LineConfig{Name: fmt.Sprintf("l%d", i), URL: "tcp://127.0.0.1:0"})
		cfg.Devices = append(cfg.Devices, sim.DeviceConfig{
			Name: fmt.Sprintf("d%d", i), Line: fmt.Sprintf("l%d", i), Unit: 1,
			Points: []sim.PointConfig{{
				Address: "holding:0", Type: "uint32", Repeat: judgedCounters, Wave: sim.Wave{Kind: "counter", Every: judgedStep},
			}},
		})
	}
	plant, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	plant.OnAnswer = j.answer
	if err := plant.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plant.Close() })
	return plant
}

// judgedSite writes the site that polls them. Nothing is asked for twice, so that each answer that is lost is an outage.
func judgedSite(t *testing.T, plant *sim.Plant, web string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "server: {listen: LISTEN, security: {policies: [None], anonymous: read, trust_all: true}}\nweb: {listen: %q}\nbuses:\n", web)
	for i := range judgedDevices {
		fmt.Fprintf(&b, "- {name: l%d, url: %q, timeout: 300ms, retries: 0}\n", i, plant.Line(fmt.Sprintf("l%d", i)).URL())
	}
	b.WriteString("devices:\n")
	for i := range judgedDevices {
		fmt.Fprintf(&b, "- {name: d%d, bus: l%d, unit: 1, poll: %v, tags: [{name: \"c{n}\", repeat: %d, address: \"holding:0\", type: uint32}]}\n",
			i, i, judgedStep, judgedCounters)
	}
	path := filepath.Join(t.TempDir(), "site.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
