package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/sim"
)

// The plant of the loss test.
const (
	lossDevices  = 10
	lossCounters = 100 // a device, two registers each
	lossQueue    = 20
)

// told is what the devices said: for each counter its values as they changed, in the order in which they were sent.
type told struct {
	mu     sync.Mutex // guards values
	values [lossDevices * lossCounters][]uint32
}

// answer notes the counters of one answer. It is called by the device's own goroutine.
func (w *told) answer(a *sim.Answer) {
	var device int
	if _, err := fmt.Sscanf(a.Device.Name(), "d%d", &device); err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range lossCounters {
		high, ok := a.Register(2 * i)
		low, ok2 := a.Register(2*i + 1)
		if !ok || !ok2 {
			continue
		}
		v, of := uint32(high)<<16|uint32(low), &w.values[device*lossCounters+i]
		if n := len(*of); n == 0 || (*of)[n-1] != v {
			*of = append(*of, v)
		}
	}
}

// lossPlant starts the devices, and makes the site that polls them.
func lossPlant(t *testing.T, w *told) (plant *sim.Plant, siteText string) {
	t.Helper()
	var cfg sim.Config
	for i := range lossDevices {
		cfg.Lines = append(cfg.Lines, sim.LineConfig{Name: fmt.Sprintf("l%d", i), URL: "tcp://127.0.0.1:0"})
		cfg.Devices = append(cfg.Devices, sim.DeviceConfig{
			Name: fmt.Sprintf("d%d", i), Line: fmt.Sprintf("l%d", i), Unit: 1,
			Points: []sim.PointConfig{{
				Address: "holding:0", Type: "uint32", Repeat: lossCounters, Wave: sim.Wave{Kind: "counter", Every: 100 * time.Millisecond},
			}},
		})
	}
	plant, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	plant.OnAnswer = w.answer
	if err := plant.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plant.Close() })
	var b strings.Builder
	b.WriteString("buses:\n")
	for i := range lossDevices {
		fmt.Fprintf(&b, "- {name: l%d, url: %q, timeout: 5s}\n", i, plant.Line(fmt.Sprintf("l%d", i)).URL())
	}
	b.WriteString("devices:\n")
	for i := range lossDevices {
		fmt.Fprintf(&b, "- {name: d%d, bus: l%d, unit: 1, poll: 100ms, tags: [{name: \"c{n}\", repeat: %d, address: \"holding:0\", type: uint32}]}\n",
			i, i, lossCounters)
	}
	return plant, b.String()
}

// received is what the client heard: for each counter its values, in order, with what was wrong about them.
type received struct {
	mu       sync.Mutex // guards all below
	values   [lossDevices * lossCounters][]uint32
	overflow int // notifications with the Overflow bit (Part 4, 7.39.1)
	bad      map[ua.StatusCode]int
}

func (r *received) hear(item int, v *ua.DataValue) {
	const overflow = 0x480 // InfoType DataValue, Overflow
	r.mu.Lock()
	defer r.mu.Unlock()
	if v.Status&overflow == overflow {
		r.overflow++
	}
	n, ok := v.Value.Value().(uint32)
	if !ok || v.Status&0xFFFF0000 != 0 {
		r.bad[v.Status]++
		return
	}
	r.values[item] = append(r.values[item], n)
}

// TestNothingIsLost polls 1,000 counters on 10 devices every 100 ms; one client has an item on each, queue 20, publishing
// every second. Every change that a device told arrives, in order. EDGED_LONG=1 runs it for 60 s against a process of its
// own and reports the processor time of that.
func TestNothingIsLost(t *testing.T) {
	length, long := 5*time.Second, os.Getenv("EDGED_LONG") != ""
	if long {
		length = time.Minute
	}
	w := &told{}
	_, text := lossPlant(t, w)
	endpoint, end := "", func() {}
	if long {
		endpoint, end = lossProcess(t, text, length)
	} else {
		g, _ := startSite(t, siteHead+text)
		endpoint = endpointUp(t, g)
	}
	c := connect(t, endpoint, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	var nodes []*ua.NodeID
	for i := range lossDevices * lossCounters {
		nodes = append(nodes, tagID(fmt.Sprintf("d%d.c%d", i/lossCounters, i%lossCounters)))
	}
	eventually(t, "a reading of every counter", func() bool { return allGood(t, c, nodes) })
	r := &received{bad: map[ua.StatusCode]int{}}
	subscribe(t, c, time.Second, lossQueue, nodes, r.hear)
	time.Sleep(length)
	compare(t, w, r, length)
	end()
}

// allGood reports whether every node has a good value.
func allGood(t *testing.T, c *opcua.Client, nodes []*ua.NodeID) bool {
	t.Helper()
	req := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnNeither}
	for _, n := range nodes {
		req.NodesToRead = append(req.NodesToRead, &ua.ReadValueID{NodeID: n, AttributeID: ua.AttributeIDValue})
	}
	resp, err := c.Read(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range resp.Results {
		if v.Status != ua.StatusOK {
			return false
		}
	}
	return true
}

// compare holds what was heard against what was told.
func compare(t *testing.T, w *told, r *received, length time.Duration) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	changes, wrong := 0, 0
	for i := range r.values {
		got, want := r.values[i], w.values[i]
		start := 0
		for len(got) > 0 && start < len(want) && want[start] != got[0] {
			start++
		}
		for j, v := range got {
			if start+j >= len(want) || want[start+j] != v {
				wrong++
				if wrong <= 5 {
					t.Errorf("item %d: change %d is %d; told were %v", i, j, v, want[min(start+j, len(want)):min(start+j+3, len(want))])
				}
				break
			}
		}
		// What was told in the last two publishing intervals may be on its way.
		if missing := len(want) - start - len(got); missing > 2*10+5 {
			t.Errorf("item %d: %d changes, of which %d are missing at the end", i, len(want)-start, missing)
		}
		changes += len(got)
	}
	if r.overflow > 0 || len(r.bad) > 0 || wrong > 0 {
		t.Errorf("%d items with a gap, %d notifications with Overflow, bad ones %v", wrong, r.overflow, r.bad)
	}
	// Each counter steps ten times a second; a scan that comes late sees two steps as one change.
	if least := lossDevices * lossCounters * int(length/time.Second-2) * 5; changes < least {
		t.Errorf("%d changes in %v, want at least %d", changes, length, least)
	}
	if !t.Failed() {
		t.Logf("%d changes of %d counters in %v, each in order, none missing", changes, len(r.values), length)
	}
}

// lossProcess runs the site in a process of its own; end ends it and reports the processor time that it took.
func lossProcess(t *testing.T, text string, length time.Duration) (endpoint string, end func()) {
	t.Helper()
	address := freePort(t)
	file := t.TempDir() + "/site.yaml"
	head := strings.Replace(siteHead, "127.0.0.1:0", address, 1)
	if err := os.WriteFile(file, []byte(head+text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, book, _ := process(t, "run", "--config", file)
	endpoint = "opc.tcp://" + address
	eventually(t, "the gateway", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := opcua.GetEndpoints(ctx, endpoint)
		return err == nil
	})
	return endpoint, func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, book)
		}
		used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		rss := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
		t.Logf("the gateway took %v of processor time in about %v (%.1f %% of a core) and %d MiB at most",
			used.Round(10*time.Millisecond), length, 100*used.Seconds()/length.Seconds(), rss>>10)
	}
}
