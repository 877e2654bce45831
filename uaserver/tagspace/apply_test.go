package tagspace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/subscription"
	"edged/uaserver/wire"
)

// apply goes over to other definitions, which become the plant's.
func (p *plantT) apply(t testing.TB, defs []tag.Def, devices ...Device) {
	t.Helper()
	table, _, err := p.table.Apply(defs)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(table, devices); err != nil {
		t.Fatal(err)
	}
	p.table, p.field.table = table, table
}

// everything lists all nodes of the plant with what they show and their references, sorted.
func (p *plantT) everything() []string {
	var out []string
	seen := map[wire.NodeID]bool{}
	var walk func(n *address.Node)
	walk = func(n *address.Node) {
		if seen[n.ID] || n.ID.NS != plant {
			return
		}
		seen[n.ID] = true
		out = append(out, fmt.Sprintf("%v %s %q %v %v %v %v %v", n.ID, n.BrowseName, n.Description(), n.DataType, n.Rank, n.Dims(), n.Access, n.MinSampling))
		p.space.References(n, func(kind *address.Node, inverse bool, target *address.Node) bool {
			out = append(out, fmt.Sprintf("%v %s %v %v", n.ID, kind.BrowseName, inverse, target.ID))
			walk(target)
			return true
		})
	}
	walk(p.space.Find(devicesID))
	slices.Sort(out)
	return out
}

// with returns the definitions of the tests with some of them changed; a nil change removes the tag.
func with(changes map[string]func(*tag.Def)) []tag.Def {
	var out []tag.Def
	for _, d := range defs {
		if change, ok := changes[d.FullName()]; ok {
			if change == nil {
				continue
			}
			change(&d)
		}
		out = append(out, d)
	}
	return out
}

var scratchDevice = Device{Name: "scratch", Description: "memory"}

func TestApplyTouchesOnlyWhatDiffers(t *testing.T) {
	for _, row := range []struct {
		name     string
		defs     []tag.Def
		devices  []Device
		replaced []string // ids of nodes that are others than before
		gone     []string
		added    []string
	}{
		{"nothing", defs, []Device{scratchDevice}, nil, nil, nil},
		{"another order", []tag.Def{defs[9], defs[8], defs[7], defs[6], defs[5], defs[4], defs[3], defs[2], defs[1], defs[0]},
			[]Device{scratchDevice}, nil, nil, nil},
		{"A14 a device on top", append([]tag.Def{{Device: "new", Name: "x", Kind: tag.Int16, Access: tag.Readable}}, defs...),
			[]Device{{Name: "new"}, scratchDevice}, nil, nil, []string{"new", "new.x", "new.$state"}},
		{"a tag", append(slices.Clone(defs), tag.Def{Device: "boiler", Name: "zone.1.flow", Kind: tag.Int16}),
			[]Device{scratchDevice}, nil, nil, []string{"boiler.zone.1.flow"}},
		{"a tag in a new folder", append(slices.Clone(defs), tag.Def{Device: "boiler", Name: "a.b.c", Kind: tag.Int16}),
			[]Device{scratchDevice}, nil, nil, []string{"boiler.a", "boiler.a.b", "boiler.a.b.c"}},
		{"a poll period", with(map[string]func(*tag.Def){"boiler.temperature": func(d *tag.Def) { d.Poll *= 2 }}),
			[]Device{scratchDevice}, []string{"boiler.temperature"}, nil, nil},
		{"a range", with(map[string]func(*tag.Def){"boiler.temperature": func(d *tag.Def) { d.High = 200 }}),
			[]Device{scratchDevice}, nil, nil, nil},
		{"a type definition", with(map[string]func(*tag.Def){"boiler.temperature": func(d *tag.Def) { d.HasRange = false }}),
			[]Device{scratchDevice}, nil, nil, nil},
		{"a type", with(map[string]func(*tag.Def){"boiler.code": func(d *tag.Def) { d.Kind = tag.Float64 }}),
			[]Device{scratchDevice}, []string{"boiler.code"}, nil, nil},
		{"the last tag of a folder", with(map[string]func(*tag.Def){"boiler.zone.1.level": nil}),
			[]Device{scratchDevice}, nil, []string{"boiler.zone.1", "boiler.zone.1.level"}, nil},
		{"a description of a device", defs, []Device{{Name: "scratch", Description: "of clients"}},
			[]string{"scratch"}, nil, nil},
		{"a device goes", defs[:9], nil, nil, []string{"scratch", "scratch.m0", "scratch.$state", "scratch.$id.Model"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPlant(t)
			before := map[string]*address.Node{}
			for _, d := range defs {
				for _, name := range []string{d.FullName(), d.Device, d.Device + ".$state", "boiler.zone", "boiler.zone.1"} {
					before[name] = p.node(t, name)
				}
			}
			p.apply(t, row.defs, row.devices...)
			for name, n := range before {
				now := p.space.Find(n.ID)
				switch {
				case slices.Contains(row.gone, name):
					if now != nil {
						t.Errorf("%s is still there", name)
					}
				case now == nil:
					t.Errorf("%s is gone", name)
				case (now != n) != slices.Contains(row.replaced, name):
					t.Errorf("%s: replaced %v", name, now != n)
				}
			}
			for _, name := range row.added {
				p.node(t, name)
			}
			fresh := newPlantOf(t, row.defs)
			fresh.apply(t, row.defs, row.devices...)
			if got, want := p.everything(), fresh.everything(); !slices.Equal(got, want) {
				t.Errorf("the plant is\n%q\nwant\n%q", got, want)
			}
			p.apply(t, defs, scratchDevice)
			if got, want := p.everything(), newPlant(t).everything(); !slices.Equal(got, want) {
				t.Errorf("back again the plant is\n%q\nwant\n%q", got, want)
			}
		})
	}
}

// TestAnyApplyEndsWhereANewPlantBegins makes random changes.
func TestAnyApplyEndsWhereANewPlantBegins(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	p := newPlant(t)
	for range 60 {
		var next []tag.Def
		for _, d := range defs {
			if rnd.IntN(3) == 0 {
				continue
			}
			if rnd.IntN(4) == 0 {
				d.Kind, d.Len = []tag.Kind{tag.Bool, tag.Int16, tag.Float64, tag.String}[rnd.IntN(4)], rnd.IntN(3)
			}
			if rnd.IntN(4) == 0 {
				d.HasRange, d.Unit = rnd.IntN(2) == 0, []string{"", "bar"}[rnd.IntN(2)]
			}
			next = append(next, d)
		}
		rnd.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		p.apply(t, next, scratchDevice)
		if got, want := p.everything(), newPlantOf(t, next).everything(); !slices.Equal(got, want) {
			t.Fatalf("the plant is\n%q\nwant\n%q", got, want)
		}
	}
}

// heard are the statuses and values that a reader of a Series gets from its cursor on.
func heard(s *address.Series, cursor *uint64) []string {
	got, lost := s.Take(cursor, 100, 100, nil)
	var out []string
	for _, v := range got {
		text := v.Status.String()
		if v.Status.IsGood() {
			text = v.Value.String()
		}
		if v.Status&address.SemanticsChanged != 0 {
			text += " semantics"
		}
		if v.Status&address.StructureChanged != 0 {
			text += " structure"
		}
		out = append(out, text)
	}
	if lost > 0 {
		out = append(out, fmt.Sprintf("%d lost", lost))
	}
	return out
}

func TestItemsOfChangedTags(t *testing.T) {
	const wait, gone = "BadWaitingForInitialData", "BadNodeIdUnknown"
	without := with(map[string]func(*tag.Def){"boiler.code": nil})
	other := with(map[string]func(*tag.Def){"boiler.code": func(d *tag.Def) { d.Kind = tag.Float64 }})
	otherwise := with(map[string]func(*tag.Def){"boiler.code": func(d *tag.Def) { d.Description, d.Poll = "x", 5 }})
	unit := with(map[string]func(*tag.Def){"boiler.code": func(d *tag.Def) { d.Unit = "bar" }})
	ranged := with(map[string]func(*tag.Def){"boiler.code": func(d *tag.Def) { d.Unit, d.HasRange, d.Low, d.High = "bar", true, 0, 5 }})
	array := with(map[string]func(*tag.Def){"boiler.code": func(d *tag.Def) { d.Len = 3 }})
	for _, row := range []struct {
		name  string
		steps [][]tag.Def
		want  []string // behind the reading 1; each step ends with a reading, which counts up
	}{
		{"H4 untouched", [][]tag.Def{defs[:9], defs}, []string{"2", "3"}},
		{"H4 removed and returned", [][]tag.Def{without, defs}, []string{gone, wait, "3"}},
		{"removed twice", [][]tag.Def{without, without, defs, without, defs}, []string{gone, wait, "4", gone, wait, "6"}},
		{"P4 7.39.1 returned with another type", [][]tag.Def{without, other}, []string{gone, wait + " structure"}},
		{"P4 7.39.1 another type and back", [][]tag.Def{other, defs}, []string{wait + " structure", wait + " structure", "3"}},
		{"P4 7.39.1 an array", [][]tag.Def{array}, []string{wait + " structure", "2"}},
		{"P8 5.3 a unit, and back", [][]tag.Def{unit, defs}, []string{"1 semantics", "2", "2 semantics", "3"}},
		{"P8 5.3 a range", [][]tag.Def{unit, ranged, ranged}, []string{"1 semantics", "2", "2 semantics", "3", "4"}},
		{"P8 5.3 returned with a unit", [][]tag.Def{without, unit}, []string{gone, wait + " semantics", "3"}},
		{"returned as it was", [][]tag.Def{unit, without, without, unit}, []string{"1 semantics", "2", gone, wait, "5"}},
		{"all else", [][]tag.Def{otherwise, defs}, []string{"2", "3"}},
		{"with its device", [][]tag.Def{defs[9:], defs}, []string{gone, wait, "3"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPlant(t)
			ref, n := p.ref(t, "boiler.code"), p.node(t, "boiler.code")
			publish := func(i int16) { p.Publish([]tag.Sample{{Ref: ref, Value: tag.Of(i), At: tag.Now()}}) }
			publish(1)
			series := p.Series(n)
			cursor := series.Head()
			series.Reserve(100)
			for i, step := range row.steps {
				p.apply(t, step, scratchDevice)
				publish(int16(i + 2)) // of a device that may be on its way out
				if now := p.space.Find(n.ID); now != nil {
					if p.Series(now) != series || series.Node() != now || now.Ref != ref {
						t.Errorf("step %d: the items are bound to another Series", i)
					}
				} else if p.Series(n) != series {
					t.Errorf("step %d: an item that comes a moment late does not revive", i)
				}
			}
			if got := heard(series, &cursor); !slices.Equal(got, row.want) {
				t.Errorf("an item heard %v, want %v", got, row.want)
			}
		})
	}
}

func TestReadsAndWritesOfWhatWent(t *testing.T) {
	p := newPlant(t)
	code, state, m0 := p.node(t, "boiler.code"), p.node(t, "boiler.$state"), p.node(t, "scratch.m0")
	unit := p.node(t, "boiler.temperature.$EngineeringUnits")
	p.apply(t, defs[9:], scratchDevice)
	read := []address.ReadItem{{Node: code}, {Node: state}, {Node: unit}, {Node: m0}}
	p.Read(context.Background(), read)
	attributes := []address.ReadItem{{Node: code, Attribute: ua.AttributeIDDisplayName}}
	p.space.Read(context.Background(), address.MayRead|address.MayBrowse, attributes)
	if got := attributes[0].Result.Status; got != tag.BadNodeIDUnknown {
		t.Errorf("the name of a node that went: %v", got)
	}
	for i, want := range []tag.Status{tag.BadNodeIDUnknown, tag.BadNodeIDUnknown, tag.BadNodeIDUnknown, tag.BadWaitingForInitialData} {
		if got := read[i].Result.Status; got != want {
			t.Errorf("read %v: %v, want %v", read[i].Node.ID, got, want)
		}
	}
	write := []address.WriteItem{{Node: code, Value: wire.DataValue{Value: tag.Of(int16(1))}}, {Node: m0, Value: wire.DataValue{Value: tag.Of(1.5)}}}
	p.Write(context.Background(), write)
	if !write[0].Status.IsBad() || write[1].Status != tag.Good {
		t.Errorf("writes: %v, %v", write[0].Status, write[1].Status)
	}
	if _, _, ok := p.Last(code.Ref); ok {
		t.Error("a tag that went has a last reading")
	}
	p.apply(t, defs, scratchDevice)
	if v := p.read(t, "boiler.$state", ""); v.Status != tag.Good {
		t.Errorf("the state of a device that returned: %v", v.Status)
	}
	p.apply(t, with(map[string]func(*tag.Def){"boiler.code": func(d *tag.Def) { d.Description = "other" }}), scratchDevice)
	kept := []address.ReadItem{{Node: code, Attribute: ua.AttributeIDDescription}}
	p.space.Read(context.Background(), address.MayRead|address.MayBrowse, kept)
	if v := kept[0].Result; v.Status != tag.Good || !strings.HasSuffix(string(v.Value.Bytes()), "other") {
		t.Errorf("the description of a node whose reader kept the one before: %v", v)
	}
}

func TestNodeVersions(t *testing.T) {
	p := newPlant(t)
	versions := func() (out [3]string) {
		for i, name := range []string{"Devices", "boiler", "scratch"} {
			if v := p.space.Find(wire.TextID(plant, name+".$NodeVersion")); v != nil {
				out[i] = p.read(t, name+".$NodeVersion", "").Value.Text()
			}
		}
		return out
	}
	for _, row := range []struct {
		name    string
		defs    []tag.Def
		changed [3]bool // Devices, boiler, scratch
	}{
		{"nothing", defs, [3]bool{}},
		{"a description", with(map[string]func(*tag.Def){"boiler.code": func(d *tag.Def) { d.Description = "x" }}), [3]bool{}},
		{"a tag less", defs[1:], [3]bool{false, true, false}},
		{"a tag more", defs, [3]bool{false, true, false}},
		{"a device less", defs[9:], [3]bool{true, true, false}},
		{"a device more", defs, [3]bool{true, true, false}},
	} {
		before := versions()
		time.Sleep(time.Microsecond)
		p.apply(t, row.defs, scratchDevice)
		after := versions()
		for i := range after {
			if (after[i] != before[i]) != row.changed[i] {
				t.Errorf("%s: version %d went from %q to %q", row.name, i, before[i], after[i])
			}
		}
	}
}

func TestAnApplyThatFailsChangesNothing(t *testing.T) {
	p := newPlant(t)
	foreign := &address.Node{ID: wire.TextID(plant, "pump"), BrowseName: "pump", Attributes: &address.Attributes{Class: ua.NodeClassObject}}
	if err := p.space.Add([]*address.Node{foreign}, nil); err != nil {
		t.Fatal(err)
	}
	before := p.everything()
	next := append(slices.Clone(defs[1:]), tag.Def{Device: "pump", Name: "x", Kind: tag.Int16, Access: tag.Readable})
	table, _, err := p.table.Apply(next)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Apply(table, []Device{scratchDevice}); err == nil {
			t.Fatal("two nodes of one id")
		}
	}
	if got := p.everything(); !slices.Equal(got, before) {
		t.Errorf("the plant is\n%q\nwas\n%q", got, before)
	}
	p.Publish([]tag.Sample{{Ref: p.ref(t, "boiler.temperature"), Value: tag.Of(float32(3)), At: 1}})
	if v := p.read(t, "boiler.temperature", ""); v.Status != tag.Good {
		t.Errorf("a tag of the plant as it was: %v", v.Status)
	}
	if err := p.space.Remove(foreign.ID); err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(table, []Device{scratchDevice}); err != nil {
		t.Errorf("the same change afterwards: %v", err)
	}
	if v := p.read(t, "pump.$state", ""); v.Status != tag.Good {
		t.Errorf("the state of the new device: %v", v.Status)
	}
}

func TestApplyWhileEverybodyWorks(t *testing.T) {
	p := newPlant(t)
	temperature, code := p.ref(t, "boiler.temperature"), p.ref(t, "boiler.code")
	n := p.node(t, "boiler.temperature")
	series := p.Series(n)
	cursor := series.Head()
	series.Reserve(1 << 16)
	stop := make(chan struct{})
	var all sync.WaitGroup
	work := func(do func(i int)) {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					do(i)
				}
			}
		})
	}
	published := 0
	work(func(i int) {
		if i < 1<<15 {
			published++
			p.Publish([]tag.Sample{{Ref: temperature, Value: tag.Of(float32(i)), At: tag.Now()}, {Ref: code, Value: tag.Of(int16(i)), At: tag.Now()}})
		}
	})
	work(func(i int) {
		items := []address.ReadItem{{Node: p.space.Find(n.ID), Attribute: ua.AttributeIDValue},
			{Node: p.space.Find(wire.TextID(plant, "boiler.code")), Attribute: ua.AttributeIDValue},
			{Node: p.space.Find(wire.TextID(plant, "boiler.code.$EURange")), Attribute: ua.AttributeIDValue}}
		p.space.Read(context.Background(), address.MayRead, items)
		if i > 0 && items[0].Result.Status == tag.BadNodeIDUnknown {
			t.Error("a tag that stays was gone for a moment")
		}
	})
	work(func(int) {
		if node := p.space.Find(wire.TextID(plant, "boiler.code")); node != nil {
			items := []address.WriteItem{{Node: node, Attribute: ua.AttributeIDValue, Value: wire.DataValue{Value: tag.Of(int16(1))}}}
			p.space.Write(context.Background(), address.MayRead|address.MayWrite, items)
		}
	})
	work(func(int) { p.everything() })
	next := [][]tag.Def{
		with(map[string]func(*tag.Def){"boiler.code": nil}),
		append(slices.Clone(defs), tag.Def{Device: "pump", Name: "x", Kind: tag.Int16}),
		with(map[string]func(*tag.Def){"boiler.temperature": func(d *tag.Def) { d.Poll++ }, "boiler.code": func(d *tag.Def) { d.HasRange, d.High = true, 9 }}),
		defs,
	}
	for i := range 100 {
		table, _, err := p.table.Apply(next[i%len(next)])
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Apply(table, []Device{scratchDevice}); err != nil {
			t.Fatal(err)
		}
		p.field.mu.Lock()
		p.table = table
		p.field.mu.Unlock()
	}
	close(stop)
	all.Wait()
	got, lost := series.Take(&cursor, 1<<16, 1<<16, nil)
	if len(got) != published || lost != 0 {
		t.Errorf("H4 a tag that stays: %d of %d readings, %d lost", len(got), published, lost)
	}
}

// BenchmarkApply adds a tag to a plant of 600 and takes it away again, with so many MonitoredItems on the others.
func BenchmarkApply(b *testing.B) {
	for _, items := range []int{10, 450_000} {
		b.Run(fmt.Sprintf("items=%d", items), func(b *testing.B) {
			var many []tag.Def
			for i := range 600 {
				many = append(many, tag.Def{Device: fmt.Sprintf("d%d", i/100), Name: fmt.Sprintf("t%d", i), Kind: tag.Float64, Access: tag.Readable})
			}
			p := newPlantOf(b, many)
			p.apply(b, many)
			engine := subscription.New(subscription.Config{Space: p.space, Subscriptions: 1000})
			b.Cleanup(engine.Close)
			client := engine.NewClient()
			for left := items; left > 0; left -= 600 {
				var sub uint32
				client.CreateSubscription(subscription.Parameters{Publishing: 3_600_000, KeepAlive: 1, Lifetime: 1000}, true,
					func(id uint32, _ subscription.Parameters) { sub = id })
				reqs := make([]subscription.ItemRequest, min(600, left))
				for i := range reqs {
					reqs[i] = subscription.ItemRequest{Node: p.node(b, many[i].FullName()), Attribute: ua.AttributeIDValue,
						Mode: ua.MonitoringModeReporting, Queue: 10, Oldest: true}
				}
				client.CreateItems(context.Background(), sub, ua.TimestampsToReturnBoth, address.MayRead|address.MayBrowse, reqs,
					make([]subscription.ItemResult, len(reqs)), func() {})
			}
			if got := engine.Stats().Items; got != items {
				b.Fatalf("%d items", got)
			}
			more := append(slices.Clone(many), tag.Def{Device: "d0", Name: "new", Kind: tag.Float64})
			for b.Loop() {
				p.apply(b, more)
				p.apply(b, many)
			}
		})
	}
}
