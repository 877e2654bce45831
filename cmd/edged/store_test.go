package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

const storeSite = siteHead + `
store: {commit: 1s, history: ["d.h*"]}
devices:
  - name: d
    driver: memory
    tags:
      - {name: kept, type: uint32, access: readwrite, retain: true, history: true}
      - {name: free, type: uint32, access: readwrite}
      - {name: h, type: uint32, access: readwrite, deadband: 10}
`

// runData runs a gateway on a data folder until the function that is returned is called.
func runData(t *testing.T, text, data string) (*gateway, *logBook, func()) {
	t.Helper()
	s, err := parseSite("site.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	book := &logBook{}
	g, err := newGateway(s, data, newLog(book, "text", "info"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.run(ctx)
	}()
	stop := func() {
		cancel()
		<-ended
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("log:\n%s", book)
		}
	})
	return g, book, stop
}

// run executes a command line of the program and returns what it printed.
func run(t *testing.T, status int, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	if got := execute(context.Background(), args, &out, &errs); got != status {
		t.Fatalf("edged %s: status %d, want %d\n%s%s", strings.Join(args, " "), got, status, &out, &errs)
	}
	return out.String() + errs.String()
}

// A retained tag and history are there after a restart; a tag that is not retained begins anew.
func TestStoreOverARestart(t *testing.T) {
	data := t.TempDir()
	g, _, stop := runData(t, storeSite, data)
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	for i := range uint32(5) {
		for _, name := range []string{"d.kept", "d.free", "d.h"} {
			if status := writeTag(t, c, name, 1+i*4); status != ua.StatusOK {
				t.Fatalf("%s: %v", name, status)
			}
		}
	}
	// What was answered Good is on the disk: another process would find it now.
	if got := run(t, exitDone, "history", "--data", data, "--csv", "d.kept"); !strings.Contains(got, ",17,Good") {
		t.Errorf("a retained write is not on the disk:\n%s", got)
	}
	checkStoreNodes(t, c)
	backup := filepath.Join(t.TempDir(), "store.tar")
	run(t, exitDone, "store", "backup", "--data", data, backup)
	if info, err := os.Stat(backup); err != nil || info.Size() < 1024 {
		t.Errorf("backup: %v, %v", info, err)
	}
	run(t, exitFailed, "store", "compact", data) // it is open
	stop()

	g, _, stop = runData(t, storeSite, data)
	c = connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	if v := readTag(t, c, "d.kept"); v.Value.Value() != uint32(17) || v.Status != ua.StatusOK {
		t.Errorf("the retained tag is %v, %v", v.Value, v.Status)
	}
	if v := readTag(t, c, "d.free"); v.Value.Value() != uint32(0) {
		t.Errorf("the other tag is %v", v.Value)
	}
	stop()
	run(t, exitDone, "store", "check", data)
	run(t, exitDone, "store", "compact", data)
	if names := run(t, exitDone, "history", "--data", data); names != "d.h\nd.kept\n" {
		t.Errorf("names %q", names)
	}
	got := run(t, exitDone, "history", "--data", data, "--csv", "ns=2;s=d.h")
	for _, want := range []string{",0,Good", ",13,Good", "BadShutdown"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, ",9,Good") {
		t.Errorf("a change within the deadband is there:\n%s", got)
	}
	if back := run(t, exitDone, "history", "--data", data, "--json", "--from", "now", "--to", "1h", "--count", "1", "d.kept"); !strings.Contains(back, `"value":17`) {
		t.Errorf("backward: %s", back)
	}
	run(t, exitFailed, "history", "--data", data, "d.nothing")
	run(t, exitUsage, "history", "--data", data, "--from", "soon", "d.h")
	run(t, exitUsage, "history", "d.h")
}

func checkStoreNodes(t *testing.T, c *opcua.Client) {
	t.Helper()
	r, err := c.Read(context.Background(), &ua.ReadRequest{NodesToRead: []*ua.ReadValueID{
		{NodeID: ua.NewStringNodeID(1, "store.edged_store_up"), AttributeID: ua.AttributeIDValue},
		{NodeID: ua.NewStringNodeID(1, "store.edged_store_commits_total"), AttributeID: ua.AttributeIDValue},
		{NodeID: ua.NewStringNodeID(1, "store.fault"), AttributeID: ua.AttributeIDValue},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if up := r.Results[0].Value.Value(); up != 1.0 {
		t.Errorf("the store is up: %v", up)
	}
	if n, _ := r.Results[1].Value.Value().(float64); n < 1 {
		t.Errorf("%v commits", n)
	}
	if fault := r.Results[2].Value.Value(); fault != "" {
		t.Errorf("fault %q", fault)
	}
}

// A tag of a device that does not answer after a restart has its last value, uncertain.
func TestLastValuesComeBackUncertain(t *testing.T) {
	r := &recorder{restored: map[tag.Ref]bool{}}
	var got []tag.Sample
	r.tags = sinkFunc(func(batch []tag.Sample) { got = append(got, batch...) })
	dir := t.TempDir()
	site, err := parseSite("site.yaml", []byte(siteHead+
		"buses: [{name: l, url: \"tcp://127.0.0.1:1\"}]\ndevices: [{name: d, bus: l, tags: [{name: t, address: \"holding:0\"}]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := tag.NewTable(site.Tags)
	if err != nil {
		t.Fatal(err)
	}
	log := newLog(&logBook{}, "text", "info")
	at := tag.TimeOf(time.Now().Add(-time.Hour))
	first := openRecorder(site, dir, table, log)
	first.tags = r.tags
	first.Publish([]tag.Sample{{Ref: 1, Value: tag.Of(uint16(7)), At: at}, {Ref: 1, Status: tag.BadNoCommunication, At: at + 1}})
	if err := first.close(context.Background()); err != nil {
		t.Fatal(err)
	}
	second := openRecorder(site, dir, table, log)
	defer second.close(context.Background())
	second.tags, got = r.tags, nil
	if second.bringBack(table, &field{}, false, nil); len(got) != 0 {
		t.Fatalf("a reload without new tags published %v", got)
	}
	second.bringBack(table, &field{}, true, nil)
	if len(got) != 1 || got[0].Status != tag.UncertainNoCommunicationLastUsableValue || got[0].Value.Bits() != 7 || got[0].At != at {
		t.Fatalf("came back as %v", got)
	}
	got = nil
	second.Publish([]tag.Sample{{Ref: 1, Status: tag.BadNoCommunication, At: at}})
	if len(got) != 0 {
		t.Errorf("a device that has not answered yet takes the last value away: %v", got)
	}
	second.Publish([]tag.Sample{{Ref: 1, Value: tag.Of(uint16(8)), At: at}, {Ref: 1, Status: tag.BadNoCommunication, At: at}})
	if len(got) != 2 {
		t.Errorf("%v", got)
	}
}

type sinkFunc func([]tag.Sample)

func (f sinkFunc) Publish(batch []tag.Sample) { f(batch) }

// Field report F1: a store that cannot be opened stops neither polling nor OPC UA.
func TestGatewayWithoutItsStore(t *testing.T) {
	data := t.TempDir()
	if err := os.MkdirAll(filepath.Join(data, storeFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, storeFolder, "format"), []byte("edged store 99 4121d015\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, book, _ := runData(t, storeSite, data)
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	if status := writeTag(t, c, "d.free", uint32(3)); status != ua.StatusOK {
		t.Error(status)
	}
	if status := writeTag(t, c, "d.kept", uint32(3)); status != ua.StatusBadResourceUnavailable {
		t.Errorf("a write that is not kept is answered with %v", status)
	}
	if book.count("was written by a newer edged") != 1 {
		t.Error("the log does not tell why")
	}
}
