package subscription

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// The model is Part 4, 5.13.1 written as a push: every change goes into a queue an item, as the standard tells it. The
// engine pulls; each message must hold what the model's queues hold at that moment.

type modelEntry struct {
	value    int64
	overflow bool
}

type modelItem struct {
	id, handle uint32
	v          int
	queue      int
	oldest     bool
	filtered   bool // has a deadband that lets everything through
	mode       ua.MonitoringMode
	entries    []modelEntry
	reports    []*modelItem // items that it triggers
	due        bool         // it was triggered since it last reported
	ledger     *Counts      // the model's, of all items
}

// lost counts what a queue of that size gave up.
func (m *modelItem) lost(n, queue int) {
	if queue == 1 {
		m.ledger.Overwritten += uint64(n)
	} else {
		m.ledger.Overflowed += uint64(n)
	}
}

func (m *modelItem) push(value int64) {
	if m.mode == ua.MonitoringModeDisabled {
		return
	}
	for _, x := range m.reports {
		x.due = x.due || x.mode == ua.MonitoringModeSampling
	}
	m.ledger.New++
	if len(m.entries) == m.queue {
		m.lost(1, m.queue)
	}
	e := modelEntry{value: value}
	switch n := len(m.entries); {
	case n < m.queue:
		m.entries = append(m.entries, e)
	case m.queue == 1:
		m.entries[0] = e
	case m.oldest:
		m.entries = append(m.entries[1:], e)
		m.entries[0].overflow = true
	default:
		e.overflow = true
		m.entries[n-1] = e
	}
}

// resize is what ModifyMonitoredItems does to the queue.
func (m *modelItem) resize(queue int, oldest bool) {
	if n := len(m.entries); n > queue {
		m.lost(n-queue, queue)
		if oldest || queue == 1 {
			m.entries = m.entries[n-queue:]
		} else {
			m.entries[queue-1] = m.entries[n-1]
			m.entries = m.entries[:queue]
		}
		if queue > 1 {
			i := 0
			if !oldest {
				i = queue - 1
			}
			m.entries[i].overflow = true
		}
		if queue == 1 {
			m.entries[0].overflow = false // of a queue of one there is no Overflow
		}
	}
	m.queue, m.oldest = queue, oldest
}

// modelSub is one Subscription as the model and its client see it.
type modelSub struct {
	id       uint32
	room     int
	items    []*modelItem
	sequence uint32
	kept     map[uint32]string // unacknowledged messages, by number
	missed   []uint32          // sent into a broken connection
}

// model is a client that knows what it has to get.
type model struct {
	*tester
	rnd  *rand.Rand
	subs []*modelSub
	last []int64 // of each variable
	cut  bool
	// ledger is what happened to all values; what waits is in the items.
	ledger Counts
	told   map[uint32]int // StatusChangeNotifications to come: of Subscriptions that were transferred
	turn   atomic.Int64   // orders the test's steps and Respond, which never run at once, for the race detector
}

// Respond compares a message with the model, at the moment when it is sent.
func (m *model) Respond(_ uint32, r *Response) bool {
	m.turn.Add(1)
	defer m.turn.Add(1)
	if r.status != ua.StatusGood {
		return !m.cut
	}
	_, got, err := ua.DecodeService(r.AppendTo(nil))
	if err != nil {
		m.Errorf("not decoded: %v", err)
		return true
	}
	p := got.(*ua.PublishResponse)
	i := slices.IndexFunc(m.subs, func(s *modelSub) bool { return s.id == p.SubscriptionID })
	if i < 0 {
		m.Errorf("a message of an unknown Subscription")
		return true
	}
	s := m.subs[i]
	x := received{resp: p}
	if code := x.statusChange(); code != 0 {
		if m.told[s.id]--; code != ua.StatusGoodSubscriptionTransferred || m.told[s.id] < 0 {
			m.Errorf("a session is told %v of %d", code, s.id)
		}
		return !m.cut
	}
	if len(p.NotificationMessage.NotificationData) == 0 {
		if p.NotificationMessage.SequenceNumber != s.sequence+1 {
			m.Errorf("keep-alive shows %d after %d", p.NotificationMessage.SequenceNumber, s.sequence)
		}
		return !m.cut
	}
	s.sequence++
	if p.NotificationMessage.SequenceNumber != s.sequence {
		m.Errorf("message %d after %d", p.NotificationMessage.SequenceNumber, s.sequence-1)
	}
	m.compare(s, x.items(), p.MoreNotifications)
	s.kept[s.sequence] = string(r.message)
	if m.cut {
		s.missed = append(s.missed, s.sequence)
	}
	return !m.cut
}

func (m *model) compare(s *modelSub, got []*ua.MonitoredItemNotification, more bool) {
	byHandle := map[uint32][]modelEntry{}
	for _, n := range got {
		v, _ := n.Value.Value.Value().(int64)
		byHandle[n.ClientHandle] = append(byHandle[n.ClientHandle], modelEntry{v, n.Value.Status == 0x480})
	}
	waiting, triggered := 0, 0
	for _, it := range s.items {
		have := byHandle[it.handle]
		delete(byHandle, it.handle)
		if it.mode != ua.MonitoringModeReporting && !it.due {
			if len(have) > 0 {
				m.Errorf("item %d reports in mode %v", it.handle, it.mode)
			}
			continue
		}
		if len(have) > len(it.entries) || !slices.Equal(have, it.entries[:len(have)]) {
			m.Errorf("item %d (queue %d, oldest %v): got %v, the model has %v", it.handle, it.queue, it.oldest, have, it.entries)
			return
		}
		it.entries = it.entries[len(have):]
		m.ledger.Sent += uint64(len(have))
		if it.mode == ua.MonitoringModeReporting {
			waiting += len(it.entries)
			continue
		}
		// A trigger is looked for at the publishing interval: what it found is sent then, or none of it.
		triggered += len(it.entries)
		it.due = len(it.entries) > 0
	}
	if len(byHandle) > 0 {
		m.Errorf("notifications of unknown items: %v", byHandle)
	}
	if waiting > 0 && !more || more && (waiting+triggered == 0 || len(got) != s.room) || len(got) > s.room {
		m.Errorf("%d notifications with room for %d, %d wait, more is %v", len(got), s.room, waiting, more)
	}
}

func (m *model) subscribe() {
	s := &modelSub{room: 1 + m.rnd.IntN(30), kept: map[uint32]string{}}
	if m.rnd.IntN(2) == 0 {
		s.room = 1 << 30
	}
	p := Parameters{Publishing: float64(50 + m.rnd.IntN(100)), KeepAlive: uint32(1 + m.rnd.IntN(5)), Lifetime: 100_000,
		Notifications: uint32(s.room), Priority: uint8(m.rnd.IntN(3))}
	m.CreateSubscription(p, true, func(id uint32, _ Parameters) { s.id = id })
	m.subs = append(m.subs, s)
}

func (m *model) create(s *modelSub) {
	m.handles++
	it := &modelItem{ledger: &m.ledger, handle: m.handles, v: m.rnd.IntN(len(m.vars)), queue: 1 + m.rnd.IntN(12), oldest: m.rnd.IntN(3) > 0,
		filtered: m.rnd.IntN(4) == 0, mode: ua.MonitoringMode(m.rnd.IntN(3))}
	req := plainItem(m.vars[it.v], uint32(it.queue))
	req.Handle, req.Oldest, req.Mode = it.handle, it.oldest, it.mode
	if it.filtered {
		dataFilter(&req, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 0.5)
	}
	results := make([]ItemResult, 1)
	m.CreateItems(m.Context(), s.id, ua.TimestampsToReturnBoth, everyRight, []ItemRequest{req}, results, func() {})
	if results[0].Status != ua.StatusGood {
		m.Fatalf("%+v", results[0])
	}
	it.id = results[0].ID
	it.push(m.last[it.v])
	s.items = append(s.items, it)
}

func (m *model) modify(s *modelSub, it *modelItem) {
	queue, oldest := 1+m.rnd.IntN(12), m.rnd.IntN(3) > 0
	if queue == 1 {
		oldest = true
	}
	req := ModifyRequest{ID: it.id, Handle: it.handle, Queue: uint32(queue), Oldest: oldest}
	if it.filtered {
		var x ItemRequest
		dataFilter(&x, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 0.5)
		req.FilterType, req.Filter = x.FilterType, x.Filter
	}
	m.ModifyItems(s.id, ua.TimestampsToReturnBoth, []ModifyRequest{req}, make([]ItemResult, 1), func() { it.resize(queue, oldest) })
}

func (m *model) setMode(s *modelSub, it *modelItem) {
	mode := ua.MonitoringMode(m.rnd.IntN(3))
	m.SetMode(s.id, mode, []uint32{it.id}, make([]ua.StatusCode, 1))
	was := it.mode
	it.mode = mode
	switch {
	case mode == ua.MonitoringModeDisabled:
		m.ledger.Disabled += uint64(len(it.entries))
		it.entries, it.due = nil, false
	case was == ua.MonitoringModeDisabled:
		it.push(m.last[it.v])
	}
}

// again is what ResendData and sendInitialValues do to the queues: what was sent last comes once more.
func (s *modelSub) again(last []int64) {
	for _, it := range s.items {
		if it.mode == ua.MonitoringModeReporting && len(it.entries) == 0 {
			it.entries = append(it.entries, modelEntry{value: last[it.v]})
			it.ledger.New++
		}
	}
}

// transfer opens another session, which takes everything over. The old one has ended before, or ends afterwards.
func (m *model) transfer() {
	old, initial, ended := m.Client, m.rnd.IntN(2) == 0, m.rnd.IntN(2) == 0
	c := m.rig.engine.NewClient()
	c.SetOwner(signed)
	c.SetRights(everyRight)
	ids := make([]uint32, len(m.subs))
	for i, s := range m.subs {
		ids[i] = s.id
	}
	if ended {
		old.Close(false)
	} else {
		for _, id := range ids {
			m.told[id]++
		}
	}
	results := make([]TransferResult, len(ids))
	code := c.Transfer(ids, initial, results, func() {
		for _, s := range m.subs {
			if initial {
				s.again(m.last)
			}
		}
	})
	if code != ua.StatusGood {
		m.Fatalf("TransferSubscriptions: %v", code)
	}
	for i, s := range m.subs {
		kept := slices.Sorted(maps.Keys(s.kept))
		if results[i].Status != ua.StatusGood || !slices.Equal(results[i].Available, kept) {
			m.Errorf("transferred: %+v, the model keeps %v", results[i], kept)
		}
	}
	m.Client = c
	if !ended {
		old.Close(m.rnd.IntN(2) == 0)
		clear(m.told)
	}
}

// link adds or removes a triggering link.
func (m *model) link(s *modelSub, it *modelItem) {
	x := s.items[m.rnd.IntN(len(s.items))]
	at, result := slices.Index(it.reports, x), make([]ua.StatusCode, 1)
	if at >= 0 {
		m.SetTriggering(s.id, it.id, []uint32{x.id}, nil, result, nil)
		it.reports = slices.Delete(it.reports, at, at+1)
	} else {
		m.SetTriggering(s.id, it.id, nil, []uint32{x.id}, nil, result)
		it.reports = append(it.reports, x)
	}
	if result[0] != ua.StatusGood {
		m.Errorf("SetTriggering: %v", result[0])
	}
}

// forget takes a deleted item out of the links.
func (s *modelSub) forget(gone *modelItem) {
	s.items = slices.DeleteFunc(s.items, func(x *modelItem) bool { return x == gone })
	for _, it := range s.items {
		it.reports = slices.DeleteFunc(it.reports, func(x *modelItem) bool { return x == gone })
	}
}

// acknowledge sends a Publish request with acknowledgements of some of the messages that arrived, and one that is
// unknown.
func (m *model) acknowledge(s *modelSub) {
	var acks []Ack
	for n := range s.kept {
		if m.rnd.IntN(2) == 0 && !slices.Contains(s.missed, n) {
			acks = append(acks, Ack{s.id, n})
			delete(s.kept, n)
		}
	}
	m.next++
	m.Publish(Request{Sender: m, ID: m.next}, append(acks, Ack{s.id, s.sequence + 1000}))
}

// reconnect ends a cut of the link: what was sent into it is there for Republish.
func (m *model) reconnect() {
	m.cut = false
	for _, s := range m.subs {
		for _, n := range s.missed {
			code := m.Republish(s.id, n, func(message []byte) {
				if string(message) != s.kept[n] {
					m.Errorf("message %d differs when it is republished", n)
				}
			})
			if code != ua.StatusGood {
				m.Errorf("message %d was lost with the link: %v", n, code)
			}
		}
		s.missed = nil
	}
}

func (m *model) step() {
	defer m.turn.Add(1)
	s := m.subs[m.rnd.IntN(len(m.subs))]
	var it *modelItem
	if len(s.items) > 0 {
		it = s.items[m.rnd.IntN(len(s.items))]
	}
	switch k := m.rnd.IntN(23); {
	case k < 8:
		v := m.rnd.IntN(len(m.vars))
		for range 1 + m.rnd.IntN(15) {
			m.last[v]++
			m.vars[v].series.Append(tag.Sample{Value: tag.Of(m.last[v]), At: tag.Now()})
			for _, s := range m.subs {
				for _, it := range s.items {
					if it.v == v {
						it.push(m.last[v])
					}
				}
			}
		}
	case k < 12:
		m.turn.Add(1)
		sleep(ms(1 + m.rnd.IntN(120)))
	case k < 14:
		m.next++
		m.Publish(Request{Sender: m, ID: m.next}, nil)
	case k < 15:
		m.acknowledge(s)
	case k < 16:
		m.create(s)
	case k < 17 && it != nil:
		m.modify(s, it)
	case k < 18 && it != nil:
		m.setMode(s, it)
	case k == 18 && it != nil && m.rnd.IntN(3) == 0:
		m.DeleteItems(s.id, []uint32{it.id}, make([]ua.StatusCode, 1))
		m.ledger.Deleted += uint64(len(it.entries))
		s.forget(it)
	case k == 20 && m.rnd.IntN(3) == 0:
		m.transfer()
	case k == 21 && m.rnd.IntN(3) == 0:
		s.again(m.last)
		m.Resend(s.id)
	case k == 22 && it != nil:
		m.link(s, it)
	case k == 19 && m.cut:
		m.reconnect()
	case k == 19 && m.rnd.IntN(4) == 0:
		m.cut = true
	}
}

// TestModel runs random histories. A failure names the seed.
func TestModel(t *testing.T) {
	runs := uint64(100)
	switch {
	case os.Getenv("EDGED_LONG") != "":
		runs = 5000
	case testing.Short():
		runs = 50
	}
	for seed := range runs {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runModel(t, seed) })
		})
	}
}

// audit compares the engine's ledger with the model's.
func (m *model) audit() {
	want := m.ledger
	want.Queued = want.New
	for _, s := range m.subs {
		for _, it := range s.items {
			want.Waiting += uint64(len(it.entries))
		}
	}
	if st := m.rig.engine.Stats(); st.Counts != want || st.Unaccounted != 0 {
		m.Errorf("the ledger has\n%v, off by %d; the model has\n%v", &st.Counts, st.Unaccounted, &want)
	}
}

func runModel(t *testing.T, seed uint64) {
	r := newRig(t, Config{Requests: 1 << 20})
	m := &model{tester: r.owned(signed), rnd: rand.New(rand.NewPCG(seed, 2)), told: map[uint32]int{}}
	for range 3 {
		r.variable(0).set(0)
	}
	m.last = make([]int64, 3)
	for range 1 + m.rnd.IntN(3) {
		m.subscribe()
	}
	for range 400 {
		m.turn.Add(1)
		m.step()
		synctest.Wait() // what is due happens before the next step, and not beside it
		m.turn.Add(1)
		m.audit()
		if t.Failed() {
			return
		}
	}
	m.cut = false
	for range 200 { // room for all that waits
		m.next++
		m.Publish(Request{Sender: m, ID: m.next}, nil)
	}
	m.turn.Add(1)
	sleep(5 * time.Second)
	m.turn.Add(1)
	for _, s := range m.subs {
		for _, it := range s.items {
			if it.mode == ua.MonitoringModeReporting && len(it.entries) > 0 {
				t.Errorf("item %d never reported %v", it.handle, it.entries)
			}
		}
	}
}
