package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/sim"
	"edged/drivers/tag"
)

// historyPlant is one simulated device with a counter, and the site that records it.
func historyPlant(t *testing.T) (site string, told func() []uint32) {
	t.Helper()
	plant, err := sim.New(sim.Config{
		Lines: []sim.LineConfig{{Name: "l", URL: "tcp://127.0.0.1:0"}},
		Devices: []sim.DeviceConfig{{Name: "d", Line: "l", Unit: 1, Points: []sim.PointConfig{{
			Address: "holding:0", Type: "uint32", Wave: sim.Wave{Kind: "counter", Every: 20 * time.Millisecond},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var values []uint32
	plant.OnAnswer = func(a *sim.Answer) {
		high, ok := a.Register(0)
		low, ok2 := a.Register(1)
		mu.Lock()
		defer mu.Unlock()
		if v := uint32(high)<<16 | uint32(low); ok && ok2 && (len(values) == 0 || values[len(values)-1] != v) {
			values = append(values, v)
		}
	}
	if err := plant.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plant.Close() })
	site = siteHead + fmt.Sprintf("store: {commit: 100ms}\nbuses: [{name: l, url: %q, timeout: 5s}]\ndevices:\n"+
		"- {name: d, bus: l, unit: 1, poll: 20ms, tags: [{name: c, address: \"holding:0\", type: uint32, history: true}]}\n", plant.Line("l").URL())
	return site, func() []uint32 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(values)
	}
}

// readRaw reads all raw values of a tag, in answers of number values.
func readRaw(t *testing.T, c *opcua.Client, name string, from, to time.Time, number uint32) (out []*ua.DataValue) {
	t.Helper()
	n := &ua.HistoryReadValueID{NodeID: tagID(name), DataEncoding: &ua.QualifiedName{}}
	for {
		r, err := c.HistoryReadRawModified(context.Background(), []*ua.HistoryReadValueID{n}, &ua.ReadRawModifiedDetails{StartTime: from, EndTime: to, NumValuesPerNode: number})
		if err != nil {
			t.Fatal(err)
		}
		if code := r.Results[0].StatusCode; code != ua.StatusOK && code != ua.StatusGoodNoData {
			t.Fatalf("history of %s: %v", name, code)
		}
		if d, ok := r.Results[0].HistoryData.Value.(*ua.HistoryData); ok {
			out = append(out, d.DataValues...)
		}
		if n.ContinuationPoint = r.Results[0].ContinuationPoint; len(n.ContinuationPoint) == 0 {
			return out
		}
	}
}

// TestHistoryOfAPlant: what a client reads raw, and at given times, is what the device said, sample by sample, over a
// restart, which is a Bad value.
func TestHistoryOfAPlant(t *testing.T) {
	site, told := historyPlant(t)
	data, began := t.TempDir(), time.Now().Add(-time.Second)
	_, _, stop := runData(t, site, data)
	eventually(t, "30 values", func() bool { return len(told()) > 30 })
	stop()
	first := len(told())
	g, _, _ := runData(t, site, data)
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	eventually(t, "30 more", func() bool { return len(told()) > first+30 })
	end := time.Now()
	got := readRaw(t, c, "d.c", began, end, 7)
	if back := readRaw(t, c, "d.c", end, began, 0); len(back) < len(got) || back[len(back)-1].SourceTimestamp != got[0].SourceTimestamp {
		t.Errorf("backward: %d values, forward %d", len(back), len(got))
	}
	want, gaps, at, afresh := told(), 0, 0, false
	d := &ua.ReadAtTimeDetails{}
	for i, v := range got {
		if i > 0 && v.SourceTimestamp.Before(got[i-1].SourceTimestamp) {
			t.Fatalf("value %d goes back in time", i)
		}
		d.ReqTimes = append(d.ReqTimes, v.SourceTimestamp)
		n, good := uint32(0), v.Value != nil
		if good {
			n, good = v.Value.Value().(uint32)
		}
		if !good {
			gaps++
			afresh = true
			continue
		}
		if afresh && at > 0 && want[at-1] == n { // behind a gap the value is recorded anew
			afresh = false
			continue
		}
		afresh = false
		// What was answered while the gateway ended may not have been taken any more: nothing else is missing.
		for at < len(want) && want[at] != n && at >= first-1 && at <= first+1 {
			at++
		}
		if at >= len(want) || want[at] != n {
			t.Fatalf("value %d is %d, and the device said %v", i, n, want[max(0, at-2):min(len(want), at+3)])
		}
		at++
	}
	if gaps == 0 || at < len(want)-5 {
		t.Errorf("%d gaps; %d values of %d", gaps, at, len(want))
	}
	r, err := c.HistoryReadAtTime(context.Background(), []*ua.HistoryReadValueID{{NodeID: tagID("d.c"), DataEncoding: &ua.QualifiedName{}}}, d)
	if err != nil {
		t.Fatal(err)
	}
	same := r.Results[0].HistoryData.Value.(*ua.HistoryData).DataValues
	for i := range got {
		if !same[i].SourceTimestamp.Equal(got[i].SourceTimestamp) || (same[i].Value == nil) != (got[i].Value == nil) ||
			got[i].Value != nil && same[i].Value.Value() != got[i].Value.Value() {
			t.Fatalf("at time %v: %v, raw %v", d.ReqTimes[i], same[i].Value, got[i].Value)
		}
	}
}

// TestLastValuesAfterAKill: field report F: kill -9 takes no retained write that was answered Good, and a tag of a device
// that has not answered again has its last value, Uncertain.
func TestLastValuesAfterAKill(t *testing.T) {
	site, told := historyPlant(t)
	data, file := t.TempDir(), writeFile(t, "site.yaml", site+"- {name: m, driver: memory, tags: [{name: kept, type: uint32, access: readwrite, retain: true}]}\n")
	cmd, book, _ := process(t, "run", "--config", file, "--data", data)
	c := connect(t, listensAt(t, book), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	for i := range uint32(10) {
		if status := writeTag(t, c, "m.kept", i); status != ua.StatusOK {
			t.Fatal(status)
		}
	}
	eventually(t, "values", func() bool { return len(told()) > 20 })
	began := time.Now().Add(-time.Minute)
	before := readRaw(t, c, "d.c", began, time.Now().Add(-500*time.Millisecond), 0)
	cmd.Process.Kill()
	cmd.Wait()

	silent := strings.Replace(site, "tcp://127.0.0.1:", "tcp://127.0.0.2:", 1) // where nobody answers
	file = writeFile(t, "silent.yaml", silent+"- {name: m, driver: memory, tags: [{name: kept, type: uint32, access: readwrite, retain: true}]}\n")
	_, book, _ = process(t, "run", "--config", file, "--data", data)
	c = connect(t, listensAt(t, book), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	if v := readTag(t, c, "m.kept"); v.Value.Value() != uint32(9) || v.Status != ua.StatusOK {
		t.Errorf("the retained tag is %v, %v", v.Value, v.Status)
	}
	v := readTag(t, c, "d.c")
	if v.Status != ua.StatusCode(tag.UncertainNoCommunicationLastUsableValue) || v.Value == nil || v.SourceTimestamp.After(time.Now()) {
		t.Errorf("the device's tag is %v, %v", v.Value, v.Status)
	}
	after := readRaw(t, c, "d.c", began, time.Now(), 0)
	if len(after) < len(before) {
		t.Fatalf("%d values of %d are left", len(after), len(before))
	}
	for i := range before {
		if !after[i].SourceTimestamp.Equal(before[i].SourceTimestamp) {
			t.Fatalf("value %d is another", i)
		}
	}
	if last := after[len(after)-1]; last.Status&0x80000000 == 0 {
		t.Errorf("the gap that the kill made is %v", last.Status)
	}
}

// listensAt is the URL of a gateway in another process, once it listens.
func listensAt(t *testing.T, book *logBook) (url string) {
	t.Helper()
	eventually(t, "the endpoint", func() bool {
		_, rest, ok := strings.Cut(book.String(), "OPC UA listens address=")
		address, _, ended := strings.Cut(rest, "\n")
		url = "opc.tcp://" + strings.TrimSpace(address)
		return ok && ended
	})
	return url
}
