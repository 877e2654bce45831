package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/sim"
)

// startFile runs a gateway of a site file that is followed, until the test ends.
func startFile(t *testing.T, path string) (g *gateway, book *logBook, hangup chan<- os.Signal) {
	t.Helper()
	s, err := loadSite(path)
	if err != nil {
		t.Fatal(err)
	}
	book = &logBook{}
	if g, err = newGateway(s, t.TempDir(), newLog(book, "text", "info")); err != nil {
		t.Fatal(err)
	}
	signals := make(chan os.Signal, 1)
	g.hangup = signals
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
	return g, book, signals
}

// reloadText goes over to the site of a text.
func reloadText(t *testing.T, g *gateway, text string) {
	t.Helper()
	s, err := parseSite("site.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.reload(s); err != nil {
		t.Fatal(err)
	}
}

func save(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// simulated starts a plant of one Modbus TCP device whose registers count, each by its own step, and returns its url.
func simulated(t *testing.T, counters int, every time.Duration) string {
	t.Helper()
	plant, err := sim.New(sim.Config{
		Lines: []sim.LineConfig{{Name: "l", URL: "tcp://127.0.0.1:0"}},
		Devices: []sim.DeviceConfig{{Name: "d", Line: "l", Unit: 1, Points: []sim.PointConfig{{
			Address: "holding:0", Type: "uint32", Repeat: counters, Wave: sim.Wave{Kind: "counter", Every: every},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := plant.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plant.Close() })
	return plant.Line("l").URL()
}

// listener collects what one item hears.
type listener struct {
	mu    sync.Mutex // guards heard
	heard map[int][]*ua.DataValue
}

func (l *listener) hear(item int, v *ua.DataValue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heard == nil {
		l.heard = map[int][]*ua.DataValue{}
	}
	l.heard[item] = append(l.heard[item], v)
}

func (l *listener) of(item int) []*ua.DataValue {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.heard[item])
}

// last is what an item heard last; nil before the first.
func (l *listener) last(item int) *ua.DataValue {
	if all := l.of(item); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// story is the statuses that an item heard, each change of them once.
func (l *listener) story(item int) (out []ua.StatusCode) {
	for _, v := range l.of(item) {
		if len(out) == 0 || out[len(out)-1] != v.Status {
			out = append(out, v.Status)
		}
	}
	return out
}

// countsOn checks that an item heard each number once and in order, nothing bad among them.
func (l *listener) countsOn(t *testing.T, item, least int) {
	t.Helper()
	all := l.of(item)
	for i, v := range all {
		if v.Status != ua.StatusOK {
			t.Errorf("item %d: %v at notification %d", item, v.Status, i)
			return
		}
		if i > 0 && v.Value.Value().(uint32) != all[i-1].Value.Value().(uint32)+1 {
			t.Errorf("item %d: %v behind %v", item, v.Value.Value(), all[i-1].Value.Value())
			return
		}
	}
	if len(all) < least {
		t.Errorf("item %d: %d notifications, want at least %d", item, len(all), least)
	}
}

// TestH4ReloadsLeaveOthersAlone has 10,000 changes a second on device a while device b is edited and reloaded 100 times.
func TestH4ReloadsLeaveOthersAlone(t *testing.T) {
	url := simulated(t, 20, 50*time.Millisecond)
	edits := []string{
		`tags: [{name: "c{n}", repeat: 10, address: "holding:0", type: uint32}]`,
		`poll: 20ms, tags: [{name: "c{n}", repeat: 10, address: "holding:0", type: uint32}]`,
		`poll: 20ms, tags: [{name: "c{n}", repeat: 20, address: "holding:0", type: uint32, unit: bar}]`,
		`unit: 1, gaps: 4, tags: [{name: c0, address: "holding:0", type: float32}]`,
	}
	text := func(i int) string {
		return siteHead + fmt.Sprintf("buses: [{name: line, url: %q, timeout: 5s, retries: %d}]\n", url, 1+i/25%2) +
			"devices:\n- {name: b, bus: line, unit: 1, " + strings.Replace(edits[i%len(edits)], "unit: 1, ", "", 1) + "}\n" +
			`- {name: a, driver: memory, tags: [{name: "c{n}", repeat: 100, type: uint32, wave: {kind: counter, every: 10ms}}]}` + "\n"
	}
	g, _ := startSite(t, text(0))
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	var nodes []*ua.NodeID
	for i := range 100 {
		nodes = append(nodes, tagID(fmt.Sprintf("a.c%d", i)))
	}
	var l listener
	subscribe(t, c, 100*time.Millisecond, 1000, nodes, l.hear)
	eventually(t, "the first values", func() bool { return len(l.of(99)) > 0 })
	for i := range 100 {
		reloadText(t, g, text(i+1))
		time.Sleep(10 * time.Millisecond)
	}
	n := len(l.of(0))
	eventually(t, "values after the last reload", func() bool { return len(l.of(0)) > n+20 })
	for i := range nodes {
		l.countsOn(t, i, 80)
	}
	if got := g.config.Load().number; got != 101 {
		t.Errorf("generation %d after 100 reloads", got)
	}
	for _, d := range g.Devices() {
		if d.Name == "a" && d.State != "online" {
			t.Errorf("%+v", d)
		}
	}
}

// TestH4ChangeOfAScanRate changes the rate of one tag while a client counts on another of the same device.
func TestH4ChangeOfAScanRate(t *testing.T) {
	url := simulated(t, 2, 200*time.Millisecond)
	text := func(poll string) string {
		return siteHead + fmt.Sprintf("buses: [{name: line, url: %q, timeout: 5s}]\n", url) +
			"devices:\n- {name: d, bus: line, unit: 1, poll: 50ms, tags: [" +
			`{name: counted, address: "holding:0", type: uint32}, {name: edited, address: "holding:2", type: uint32, poll: ` + poll + `}]}` + "\n"
	}
	g, _ := startSite(t, text("1s"))
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	eventually(t, "the device", func() bool { return readTag(t, c, "d.counted").Status == ua.StatusOK })
	eventually(t, "the device", func() bool { return readTag(t, c, "d.edited").Status == ua.StatusOK })
	var l listener
	subscribe(t, c, 50*time.Millisecond, 100, []*ua.NodeID{tagID("d.counted"), tagID("d.edited")}, l.hear)
	for _, poll := range []string{"40ms", "700ms", "30ms", "50ms", "20ms"} {
		n := len(l.of(0))
		reloadText(t, g, text(poll))
		eventually(t, "values", func() bool { return len(l.of(0)) > n+2 })
	}
	l.countsOn(t, 0, 10)
	if got := l.story(1); len(got) != 1 || got[0] != ua.StatusOK {
		t.Errorf("the tag whose rate was changed: %v", got)
	}
	n, err := c.Node(tagID("d.edited")).Attribute(t.Context(), ua.AttributeIDMinimumSamplingInterval)
	if err != nil || n.Value() != 20.0 {
		t.Errorf("MinimumSamplingInterval %v, %v", n, err)
	}
}

// TestH4ATagThatReturns has a tag go and come back under a client's item.
func TestH4ATagThatReturns(t *testing.T) {
	text := func(tags string) string {
		return siteHead + "devices: [{name: d, driver: memory, tags: [" + tags + "]}]\n"
	}
	both := text("{name: stays, type: uint32, access: readwrite}, {name: goes, type: uint32, value: 7, access: readwrite}")
	g, _ := startSite(t, both)
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	var l listener
	subscribe(t, c, 50*time.Millisecond, 10, []*ua.NodeID{tagID("d.goes"), tagID("d.stays")}, l.hear)
	last := func(status ua.StatusCode, value any) func() bool {
		return func() bool {
			v := l.last(0)
			return v != nil && v.Status == status && (value == nil || v.Value.Value() == value)
		}
	}
	eventually(t, "the first value", last(ua.StatusOK, uint32(7)))
	if code := writeTag(t, c, "d.stays", uint32(3)); code != ua.StatusOK {
		t.Fatal(code)
	}
	reloadText(t, g, text("{name: stays, type: uint32, access: readwrite}"))
	eventually(t, "word that the tag went", last(ua.StatusBadNodeIDUnknown, nil))
	if v := readTag(t, c, "d.goes"); v.Status != ua.StatusBadNodeIDUnknown {
		t.Errorf("a read of what went: %v", v.Status)
	}
	if code := writeTag(t, c, "d.goes", uint32(1)); code != ua.StatusBadNodeIDUnknown {
		t.Errorf("a write to what went: %v", code)
	}
	reloadText(t, g, both)
	eventually(t, "the return", last(ua.StatusOK, uint32(7)))
	if code := writeTag(t, c, "d.goes", uint32(8)); code != ua.StatusOK {
		t.Errorf("a write to what returned: %v", code)
	}
	eventually(t, "the value written", last(ua.StatusOK, uint32(8)))
	want := []ua.StatusCode{ua.StatusOK, ua.StatusBadNodeIDUnknown, ua.StatusBadWaitingForInitialData, ua.StatusOK}
	if got := l.story(0); !slices.Equal(got, want) {
		t.Errorf("the item heard %v, want %v", got, want)
	}
	gone := 0
	for _, v := range l.of(0) {
		if v.Status == ua.StatusBadNodeIDUnknown {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("%d times BadNodeIdUnknown", gone)
	}
	if v := readTag(t, c, "d.stays"); v.Value.Value() != uint32(3) || len(l.of(1)) > 2 {
		t.Errorf("the tag beside it: %v, %d notifications", v.Value.Value(), len(l.of(1)))
	}
}

// TestReloadTellsWhatAValueMeans: a client that watches is told once that a unit, a range or a type is another (Part 4,
// 7.39.1; Part 8, 5.3), and nothing of other tags.
func TestReloadTellsWhatAValueMeans(t *testing.T) {
	text := func(unit, high, kind string) string {
		return siteHead + "devices: [{name: d, driver: memory, tags: [{name: unit, type: uint32, value: 5, unit: " + unit +
			"}, {name: range, type: uint32, value: 5, range: [0, " + high + "]}, {name: type, type: " + kind +
			", value: 5}, {name: other, type: uint32, value: 5}]}]\n"
	}
	g, _ := startSite(t, text("bar", "10", "uint32"))
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	var l listener
	subscribe(t, c, 50*time.Millisecond, 10, []*ua.NodeID{tagID("d.unit"), tagID("d.range"), tagID("d.type"), tagID("d.other")}, l.hear)
	eventually(t, "the first values", func() bool { return l.last(0) != nil && l.last(1) != nil && l.last(2) != nil && l.last(3) != nil })
	reloadText(t, g, text("mbar", "20", "int16"))
	last := func() bool { v := l.last(2); return v.Status == ua.StatusOK && v.Value.Value() == int16(5) }
	eventually(t, "the value of another type", last)
	reloadText(t, g, text("mbar", "20", "uint16"))
	eventually(t, "the value of a third type", func() bool { v := l.last(2); return v.Status == ua.StatusOK && v.Value.Value() == uint16(5) })

	const semantics, structure = ua.StatusCode(1 << 14), ua.StatusCode(1 << 15)
	waits := ua.StatusBadWaitingForInitialData | structure
	for item, want := range [][]ua.StatusCode{
		{ua.StatusOK, semantics}, {ua.StatusOK, semantics},
		{ua.StatusOK, waits, ua.StatusOK, waits, ua.StatusOK}, {ua.StatusOK},
	} {
		var got []ua.StatusCode
		for _, v := range l.of(item) {
			got = append(got, v.Status)
			if v.Status&(1<<31) == 0 && item != 2 && v.Value.Value() != uint32(5) {
				t.Errorf("item %d: the value has become %v", item, v.Value.Value())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("item %d heard %v, want %v", item, got, want)
		}
	}
	if v := readTag(t, c, "d.unit"); v.Status != ua.StatusOK {
		t.Errorf("a read: %v", v.Status)
	}
}

// savers are ways in which programs save a file.
var savers = []struct {
	name string
	save func(t *testing.T, path, text string)
}{
	{"in place", save},
	{"by rename", func(t *testing.T, path, text string) {
		save(t, path+".new", text)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}},
	{"with a backup", func(t *testing.T, path, text string) {
		if err := os.Rename(path, path+"~"); err != nil {
			t.Fatal(err)
		}
		save(t, path, text)
	}},
	{"in pieces", func(t *testing.T, path, text string) {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for piece := range slices.Chunk([]byte(text), 64) {
			f.Write(piece)
			time.Sleep(2 * time.Millisecond)
		}
	}},
}

// TestSavedFilesAreRead saves good files and a bad one.
func TestSavedFilesAreRead(t *testing.T) {
	t.Parallel()
	text := func(value int) string {
		return siteHead + fmt.Sprintf("devices: [{name: d, driver: memory, tags: [{name: t%d, type: uint32}, {name: x, type: uint32}]}]\n", value)
	}
	path := writeFile(t, "site.yaml", text(0))
	g, book, hangup := startFile(t, path)
	endpointUp(t, g)
	generation := func(n int) func() bool { return func() bool { return g.config.Load().number == n } }
	n := 1
	for _, s := range savers {
		n++
		s.save(t, path, text(n))
		eventually(t, "a reload of a file saved "+s.name, generation(n))
		if _, ok := g.Table().Lookup(fmt.Sprintf("d.t%d", n)); !ok {
			t.Errorf("%s: the new tag is not there", s.name)
		}
	}
	if got := book.count("1 added, 1 removed, 0 changed"); got != len(savers) {
		t.Errorf("%d lines of %d", got, len(savers))
	}
	wrong := strings.NewReplacer("uint32}, {", "uint33}, {", "type: uint32}]", "tipe: uint32}]").Replace(text(9)) +
		"buses: [{name: line, url: \"tcp://h:99999\"}]\n"
	for range 2 { // the second time nothing differs
		save(t, path, wrong)
		eventually(t, "word of the mistakes", func() bool { return book.count("mistakes=3") == 1 })
	}
	for _, place := range []string{"site.yaml:3:", "site.yaml:4:"} {
		if book.count(place) == 0 {
			t.Errorf("no mistake at %s", place)
		}
	}
	if state := g.siteState(); state.Generation != n || state.Failed.IsZero() || strings.Count(state.Failure, "\n") != 2 {
		t.Errorf("after a bad file: %+v", state)
	}
	hangup <- syscall.SIGHUP // who asks gets an answer each time
	eventually(t, "word of the mistakes again", func() bool { return book.count("mistakes=3") == 2 })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "word that the file is gone", func() bool { return book.count("no such file") == 1 })
	save(t, path, text(n))
	eventually(t, "the good file", func() bool { return g.siteState().Failed.IsZero() })
	hangup <- syscall.SIGHUP
	eventually(t, "word that nothing differs", func() bool { return book.count("nothing else in the site file differs") == 2 })
	if !generation(n)() {
		t.Errorf("generation %d, want %d", g.config.Load().number, n)
	}
}

// TestAFileBehindALinkIsRead turns a link to the folder around, as container platforms do.
func TestAFileBehindALinkIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := func(i int) string {
		return siteHead + fmt.Sprintf("devices: [{name: d, driver: memory, tags: [{name: t%d}]}]\n", i)
	}
	for i := range 2 {
		folder := filepath.Join(dir, fmt.Sprintf("data%d", i))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		save(t, filepath.Join(folder, "site.yaml"), text(i))
	}
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("data0", "now")
	link(filepath.Join("now", "site.yaml"), "site.yaml")
	g, _, _ := startFile(t, filepath.Join(dir, "site.yaml"))
	endpointUp(t, g)
	time.Sleep(10 * time.Millisecond)
	link("data1", "next")
	if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "now")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a reload", func() bool { return g.config.Load().number == 2 })
}

// TestH4AFileWithThreeMistakes leaves everything running.
func TestH4AFileWithThreeMistakes(t *testing.T) {
	good := siteHead + `devices: [{name: d, driver: memory, tags: [{name: c, type: uint32, wave: {kind: counter, every: 10ms}}]}]` + "\n"
	path := writeFile(t, "site.yaml", good)
	g, book, _ := startFile(t, path)
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	var l listener
	subscribe(t, c, 50*time.Millisecond, 1000, []*ua.NodeID{tagID("d.c")}, l.hear)
	eventually(t, "the first values", func() bool { return len(l.of(0)) > 10 })
	save(t, path, siteHead+"devices:\n- {name: d, driver: memory, tags: [{name: c, type: uint99}]}\n- {name: d, driver: memory, tags: [{name: c}]}\n- {nome: e, driver: memory, tags: [{name: c}]}\n")
	eventually(t, "word of the mistakes", func() bool { return book.count("the site file was not taken") == 1 })
	n := len(l.of(0))
	eventually(t, "values", func() bool { return len(l.of(0)) > n+10 })
	l.countsOn(t, 0, 20)
	for _, want := range []string{path + ":4:", path + ":5:", path + ":6:"} {
		if book.count(want) == 0 {
			t.Errorf("the log names no mistake at %s", want)
		}
	}
	if g.config.Load().number != 1 {
		t.Error("a file with mistakes was taken")
	}
}

// TestSIGHUP sends the signal to a process.
func TestSIGHUP(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "site.yaml", siteHead+"devices: [{name: d, driver: memory, tags: [{name: a}]}]\n")
	cmd, book, _ := process(t, "run", "--config", path, "--data", t.TempDir())
	eventually(t, "the start", func() bool { return book.count("OPC UA listens") == 1 })
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "word of the signal", func() bool { return book.count("nothing else in the site file differs") == 1 })
	save(t, path, strings.Replace(siteHead, "web: {listen: none}", "web: {listen: \"127.0.0.1:0\"}", 1)+
		"devices: [{name: d, driver: memory, tags: [{name: a}, {name: b}]}]\n")
	cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, "the reload", func() bool { return book.count("site file applied") == 1 })
	if book.count("take effect with a restart") == 0 || book.count("web.listen") == 0 {
		t.Errorf("nobody said that web.listen needs a restart:\n%s", book)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v\n%s", err, book)
	}
}

// TestD20ReloadsLeaveNothingBehind reloads 20 times, with a changed bus each time.
func TestD20ReloadsLeaveNothingBehind(t *testing.T) {
	url := simulated(t, 10, 100*time.Millisecond)
	text := func(i int) string {
		return siteHead + fmt.Sprintf("buses: [{name: line, url: %q, timeout: %ds}]\n", url, 1+i%2) +
			`devices: [{name: d, bus: line, unit: 1, poll: 20ms, tags: [{name: "c{n}", repeat: 10, address: "holding:0", type: uint32}]}, ` +
			fmt.Sprintf(`{name: m%d, driver: memory, tags: [{name: x, wave: {kind: counter}}]}]`, i%3) + "\n"
	}
	g, _ := startSite(t, text(0))
	endpointUp(t, g)
	online := func() bool { d := g.Devices()[0]; return d.State == "online" && g.fleet.Buses()[0].Up }
	eventually(t, "the device", online)
	quiet := func() (goroutines, files int) {
		for last, same := -1, 0; same < 10; time.Sleep(20 * time.Millisecond) { // ends of connections take a moment
			goroutines, files = runtime.NumGoroutine(), openFiles(t)
			if now := goroutines<<16 | files; now == last {
				same++
			} else {
				last, same = now, 0
			}
		}
		return goroutines, files
	}
	goroutines, files := quiet()
	for i := range 20 {
		reloadText(t, g, text(i+1))
		eventually(t, "the device", online)
	}
	reloadText(t, g, text(0))
	eventually(t, "the device", online)
	if g2, f2 := quiet(); g2 != goroutines || f2 != files {
		t.Errorf("%d goroutines and %d files, before the reloads %d and %d", g2, f2, goroutines, files)
	}
}

// openFiles counts the process's files and sockets; 0 where the system does not tell.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(all)
}

// TestA14NodeIDs saves all ids, adds a device on top of the file, reloads and restarts.
func TestA14NodeIDs(t *testing.T) {
	rest := `- {name: b, driver: memory, tags: [{name: "x{n}", repeat: 3, unit: bar, range: [0, 1]}, {name: f.g.h, type: "int16[3]"}]}` + "\n" +
		`- {name: a, driver: memory, tags: [{name: z, type: bool}]}` + "\n"
	text := func(top string) string { return siteHead + "devices:\n" + top + rest }
	top := `- {name: aa, driver: memory, tags: [{name: "x{n}", repeat: 3}, {name: f.g}]}` + "\n"
	g, _ := startSite(t, text(""))
	before := nodeIDs(t, connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone))
	if len(before) < 20 {
		t.Fatalf("%d nodes", len(before))
	}
	check := func(what string, g *gateway) map[string]string {
		after := nodeIDs(t, connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone))
		for id, name := range before {
			if after[id] != name {
				t.Errorf("%s: %s is %q, was %q", what, id, after[id], name)
			}
		}
		return after
	}
	reloadText(t, g, text(top))
	reloaded := check("reloaded", g)
	again, _ := startSite(t, text(top))
	if restarted := check("restarted", again); !maps.Equal(reloaded, restarted) {
		t.Errorf("a reload leads to other nodes than a restart:\n%v\n%v", reloaded, restarted)
	}
	reloadText(t, g, text(""))
	if back := nodeIDs(t, connect(t, g.endpoint(), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)); !maps.Equal(back, before) {
		t.Errorf("back again there is %v, was %v", back, before)
	}
}

// nodeIDs are the nodes below Objects/Devices: browse names by id.
func nodeIDs(t *testing.T, c *opcua.Client) map[string]string {
	t.Helper()
	out := map[string]string{}
	todo := []*ua.NodeID{tagID("Devices")}
	for len(todo) > 0 {
		refs, err := c.Node(todo[0]).ReferencedNodes(t.Context(), id.HierarchicalReferences, ua.BrowseDirectionForward, ua.NodeClassAll, true)
		if err != nil {
			t.Fatal(err)
		}
		todo = todo[1:]
		for _, n := range refs {
			if _, ok := out[n.ID.String()]; ok {
				continue
			}
			name, err := n.BrowseName(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			out[n.ID.String()] = name.Name
			todo = append(todo, n.ID)
		}
	}
	return out
}

func TestKeysThatNeedARestart(t *testing.T) {
	base := "devices: [{name: d, driver: memory, tags: [{name: a}]}]\n"
	for _, row := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"buses: [{name: l, url: \"tcp://h\"}]\n", nil},
		{"server: {listen: \"0.0.0.0:4841\"}\n", []string{"server.listen"}},
		{"server: {name: x, application_uri: \"urn:x\"}\n", []string{"server.name", "server.application_uri"}},
		{"server: {security: {policies: [None], modes: [Sign], anonymous: read, trust_all: true, users: none, roles: {operator: {write: d}}}}\n",
			[]string{"server.security.policies", "server.security.modes", "server.security.trust_all"}},
		{"server: {limits: {sessions: 9, connections: 99, subscriptions: 9, monitored_items: 9, queue: 9, min_publishing: 90ms, memory: 9MiB}}\n",
			[]string{"server.limits.sessions", "server.limits.connections", "server.limits.subscriptions", "server.limits.monitored_items",
				"server.limits.queue", "server.limits.min_publishing", "server.limits.memory"}},
		{"server: {queue: auto}\n", []string{"server.queue"}},
		{"web: {listen: none}\n", []string{"web.listen"}},
	} {
		running, err := parseSite("site.yaml", []byte(base))
		if err != nil {
			t.Fatal(err)
		}
		next, err := parseSite("site.yaml", []byte(row.text+base))
		if err != nil {
			t.Fatal(err)
		}
		if got := restartKeys(running, next); !slices.Equal(got, row.want) {
			t.Errorf("%q: %v, want %v", row.text, got, row.want)
		}
	}
}
