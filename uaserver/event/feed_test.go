package event

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

const everyRight = address.MayBrowse | address.MayRead | address.MayAudit

// rig is a Hub whose memory is checked at the end.
type rig struct {
	*testing.T
	hub    *Hub
	budget *tag.Budget
	filter *Filter
}

func newRig(t *testing.T, limit int64) *rig {
	space := newSpace(t)
	f, res := Parse(space, encode(t, []*ua.SimpleAttributeOperand{field("Severity")}))
	if f == nil {
		t.Fatal(res)
	}
	budget := &tag.Budget{Limit: limit}
	r := &rig{t, New(space, budget, nil), budget, f}
	t.Cleanup(func() {
		r.hub.Close()
		if n := budget.Used(); n != 0 {
			t.Errorf("%d bytes stay charged", n)
		}
	})
	return r
}

func (r *rig) watch(rights address.Rights, queue int, newest bool) *Tap {
	tap := r.hub.Watch(&address.Node{ID: serverID}, rights, r.filter, queue, newest)
	if tap == nil {
		r.Fatal("not watched")
	}
	r.Cleanup(tap.Close) // before the Hub's
	return tap
}

// raise raises events with those severities.
func (r *rig) raise(from, to int) {
	for i := from; i <= to; i++ {
		r.hub.Raise(&Event{Type: Type(id.BaseEventType), Severity: uint16(i)})
	}
	r.hub.Settle()
}

// take takes so many events, and tells their severities; 0 is the overflow event.
func take(t *Tap, most int) (got []int, lost uint64) {
	bodies, lost := t.Peek(nil, most)
	if over, first := t.Overflow(); over && first {
		t.Told()
		got = append(got, 0)
	}
	for _, b := range bodies {
		r := wire.NewReader(b)
		r.Uint32()
		got = append(got, int(r.Variant().Bits()))
	}
	t.Advance(len(bodies))
	if over, _ := t.Overflow(); over {
		if n, _, _ := t.Waiting(); n == 0 {
			t.Told()
			got = append(got, 0)
		}
	}
	return got, lost
}

// TestQueues is Part 4, 7.21 and 5.13.1.5: what queues of events keep, by size and policy, and where the overflow event
// stands.
func TestQueues(t *testing.T) {
	for _, row := range []struct {
		queue, raised int
		newest        bool
		want          []int // 0: the overflow event
		lost          uint64
	}{
		{1, 1, false, []int{1}, 0}, {1, 1, true, []int{1}, 0},
		{1, 2, false, []int{0, 2}, 1}, {1, 3, true, []int{3, 0}, 2},
		{2, 2, false, []int{1, 2}, 0}, {2, 3, false, []int{0, 2, 3}, 1}, {2, 9, false, []int{0, 8, 9}, 7},
		{2, 3, true, []int{1, 3, 0}, 1}, {2, 9, true, []int{1, 9, 0}, 7},
		{5, 5, false, []int{1, 2, 3, 4, 5}, 0}, {5, 100, false, []int{0, 96, 97, 98, 99, 100}, 95},
		{5, 5, true, []int{1, 2, 3, 4, 5}, 0}, {5, 100, true, []int{1, 2, 3, 4, 100, 0}, 95},
	} {
		for _, beside := range []int{0, 50} { // another item with a longer queue
			t.Run(fmt.Sprintf("queue %d of %d, newest %v, beside %d", row.queue, row.raised, row.newest, beside), func(t *testing.T) {
				r := newRig(t, 0)
				tap := r.watch(everyRight, row.queue, row.newest)
				if beside > 0 {
					r.watch(everyRight, beside, false)
				}
				r.raise(1, row.raised)
				n, lost, over := tap.Waiting()
				if n != min(row.queue, row.raised) || lost != row.lost || over != (row.lost > 0) {
					t.Errorf("%d wait, %d lost, overflow %v", n, lost, over)
				}
				if got, lost := take(tap, 1000); !slices.Equal(got, row.want) || lost != row.lost {
					t.Errorf("got %v, lost %d; want %v", got, lost, row.want)
				}
				r.raise(501, 501)
				if got, _ := take(tap, 1000); !slices.Equal(got, []int{501}) {
					t.Errorf("afterwards %v", got)
				}
			})
		}
	}
}

// TestQueueInParts is a queue that is taken in parts while more comes.
func TestQueueInParts(t *testing.T) {
	for _, row := range []struct {
		newest      bool
		want, after []int
	}{
		{false, []int{0, 7, 8}, []int{0, 11, 12, 13, 14}},
		{true, []int{1, 2}, []int{3, 10, 11, 14, 0}},
	} {
		r := newRig(t, 0)
		tap := r.watch(everyRight, 4, row.newest)
		r.raise(1, 10)
		got, lost := take(tap, 2)
		if !slices.Equal(got, row.want) || lost != 6 {
			t.Errorf("newest %v: first %v, lost %d", row.newest, got, lost)
		}
		r.raise(11, 14)
		if got, lost = take(tap, 10); !slices.Equal(got, row.after) || lost != 2 {
			t.Errorf("newest %v: then %v, lost %d", row.newest, got, lost)
		}
	}
}

// TestResize is ModifyMonitoredItems with a shorter queue and another policy.
func TestResize(t *testing.T) {
	for _, row := range []struct {
		was    bool
		queue  int
		newest bool
		want   []int
		lost   uint64
	}{
		{false, 2, false, []int{0, 3, 4}, 2}, {false, 2, true, []int{1, 4, 0}, 2}, {true, 2, true, []int{1, 4, 0}, 2},
		{true, 3, false, []int{0, 2, 3, 4}, 1}, {false, 8, true, []int{1, 2, 3, 4}, 0},
	} {
		r := newRig(t, 0)
		tap := r.watch(everyRight, 4, row.was)
		r.raise(1, 4)
		lost := tap.Resize(row.queue, row.newest)
		if got, more := take(tap, 10); !slices.Equal(got, row.want) || lost+more != row.lost {
			t.Errorf("%+v: got %v, lost %d", row, got, lost+more)
		}
	}
	r := newRig(t, 0)
	tap := r.watch(everyRight, 4, true)
	r.raise(1, 9) // 1, 2, 3 and 9 are kept
	if got, _ := take(tap, 1); !slices.Equal(got, []int{1}) {
		t.Fatal(got)
	}
	tap.Resize(2, false)
	if got, _ := take(tap, 10); !slices.Equal(got, []int{0, 3, 9}) {
		t.Errorf("what was kept of the first: %v", got)
	}
}

// TestMemory is an account that has not room for what the queues ask for: the oldest go, and it is told.
func TestMemory(t *testing.T) {
	for _, newest := range []bool{false, true} {
		r := newRig(t, 8000)
		tap := r.watch(everyRight, 1000, newest)
		r.raise(1, 900)
		got, lost := take(tap, 1000)
		if len(got) < 20 || uint64(len(got)-1)+lost != 900 || r.budget.Used() > 8000 {
			t.Errorf("newest %v: %d came, %d lost", newest, len(got), lost)
		}
	}
}

// TestShown is who is told of what.
func TestShown(t *testing.T) {
	r := newRig(t, 0)
	admin := r.watch(everyRight, 10, false)
	observer := r.watch(everyRight&^address.MayAudit, 10, false)
	exposed := r.watch(everyRight|address.Exposed, 10, false)
	r.hub.Raise(&Event{Type: Type(id.AuditCreateSessionEventType), Severity: 1, Audit: true})
	hidden := &address.Node{ID: wire.TextID(2, "x"), Attributes: &address.Attributes{Permissions: address.Permissions{Browse: address.Nobody}}}
	r.hub.Raise(&Event{Type: Type(id.BaseEventType), Severity: 2, Source: hidden})
	r.raise(3, 3)
	for i, row := range []struct {
		tap  *Tap
		want []int
	}{{admin, []int{1, 3}}, {observer, []int{3}}, {exposed, []int{3}}} {
		if got, _ := take(row.tap, 10); !slices.Equal(got, row.want) {
			t.Errorf("%d: %v", i, got)
		}
	}
}

// TestNotifiers is the hierarchy that an event climbs (Part 3, 4.7).
func TestNotifiers(t *testing.T) {
	r := newRig(t, 0)
	object := func(name string, notifier uint8) *address.Node {
		return &address.Node{ID: wire.TextID(2, name), BrowseName: name, Attributes: &address.Attributes{Class: ua.NodeClassObject, EventNotifier: notifier}}
	}
	boiler, part, burner := object("boiler", 1), object("boiler.part", 0), object("burner", 1)
	link := func(from wire.NodeID, kind uint32, to *address.Node) address.Reference {
		return address.Reference{Source: from, Type: wire.NumericID(0, kind), Target: to.ID}
	}
	err := r.hub.space.Add([]*address.Node{boiler, part, burner}, []address.Reference{
		link(serverID, id.HasNotifier, boiler), link(serverID, id.HasNotifier, burner), link(boiler.ID, id.HasComponent, part),
		link(part.ID, id.HasComponent, boiler), // a ring ends
	})
	if err != nil {
		t.Fatal(err)
	}
	taps := map[string]*Tap{"server": r.watch(everyRight, 10, false)}
	for _, n := range []*address.Node{boiler, part, burner} {
		taps[n.BrowseName] = r.hub.Watch(n, everyRight, r.filter, 10, false)
		defer taps[n.BrowseName].Close()
	}
	r.hub.Raise(&Event{Type: Type(id.BaseEventType), Severity: 1, Source: part})
	r.hub.Raise(&Event{Type: Type(id.BaseEventType), Severity: 2, Source: burner})
	r.raise(3, 3)
	for name, want := range map[string][]int{"server": {1, 2, 3}, "boiler": {1}, "burner": {2}, "boiler.part": nil} {
		if got, _ := take(taps[name], 10); !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if n := r.hub.Stats().Feeds; n != 4 {
		t.Errorf("%d feeds", n)
	}
}

// TestInterned is many items with one filter: one evaluation, one encoding.
func TestInterned(t *testing.T) {
	r := newRig(t, 0)
	var taps []*Tap
	for range 750 {
		taps = append(taps, r.watch(everyRight, 100, false))
	}
	r.raise(1, 10)
	if n := r.hub.Stats().Feeds; n != 1 {
		t.Fatalf("%d feeds", n)
	}
	first, _ := taps[0].Peek(nil, 1)
	last, _ := taps[749].Peek(nil, 1)
	if &first[0][0] != &last[0][0] {
		t.Error("an event was encoded twice")
	}
}

// TestTooFast is more events than the Hub holds: who raises does not wait, and everybody is told.
func TestTooFast(t *testing.T) {
	r := newRig(t, 0)
	tap := r.watch(everyRight, 10, false)
	tap.feed.mu.Lock() // the Hub stands still
	for range 3 * maxPending {
		r.hub.Raise(&Event{Type: Type(id.BaseEventType), Severity: 1})
	}
	tap.feed.mu.Unlock()
	r.hub.Settle()
	if st := r.hub.Stats(); st.Lost < maxPending/2 || st.Raised+st.Lost != 3*maxPending {
		t.Errorf("%+v", st)
	}
	if over, _ := tap.Overflow(); !over {
		if _, lost, _ := tap.Waiting(); lost == 0 {
			t.Error("nobody is told")
		}
	}
}

// BenchmarkRaise is one event for 750 items with one filter of seven fields.
func BenchmarkRaise(b *testing.B) {
	space := newSpace(b)
	var list []*ua.SimpleAttributeOperand
	for _, n := range []string{"EventId", "EventType", "SourceNode", "SourceName", "Time", "Message", "Severity"} {
		list = append(list, field(n))
	}
	f, _ := Parse(space, encode(b, list))
	h := New(space, nil, nil)
	defer h.Close()
	for range 750 {
		defer h.Watch(&address.Node{ID: serverID}, everyRight, f, 10000, false).Close()
	}
	for b.Loop() {
		h.RaiseAll([]*Event{{Type: Type(id.BaseEventType), Severity: 100, Message: "something happened"}})
	}
	h.Settle()
}
