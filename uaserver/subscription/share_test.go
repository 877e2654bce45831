package subscription

import (
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// TestShare: what one client takes of the accounts leaves the others something.
func TestShare(t *testing.T) {
	bubble(t, "B10 of a client that never acknowledges the oldest messages go, not those of others", func(t *testing.T) {
		budget := &tag.Budget{Limit: 20_000}
		r := newRig(t, Config{Account: budget, Held: 1000, Requests: 1000})
		v := r.variable(0)
		greedy, good := r.client(), r.client()
		old := greedy.subscribe(Parameters{})
		greedy.monitor(old, plainItem(v, 10))
		greedy.publish(400)
		for i := range 300 {
			v.set(int64(i))
			sleep(ms(100))
		}
		if n := budget.Used(); n > 11_000 {
			t.Fatalf("one client keeps %d of 20000 bytes", n)
		}
		// Its own oldest go, of whichever Subscription.
		greedy.DeleteItems(old, []uint32{1}, make([]ua.StatusCode, 1))
		newer := greedy.subscribe(Parameters{})
		greedy.monitor(newer, plainItem(v, 10))
		sub := good.subscribe(Parameters{})
		good.monitor(sub, plainItem(v, 10))
		good.publish(20)
		for i := range 10 {
			v.set(int64(i))
			sleep(ms(100))
		}
		for n := uint32(1); n <= 10; n++ {
			if code := good.Republish(sub, n, func([]byte) {}); code != ua.StatusGood {
				t.Errorf("message %d of the other client: %v", n, code)
			}
		}
		if code := greedy.Republish(newer, 10, func([]byte) {}); code != ua.StatusGood {
			t.Errorf("its own newest message: %v", code)
		}
		if code := greedy.Republish(old, 1, func([]byte) {}); code != ua.StatusBadMessageNotAvailable {
			t.Errorf("its own oldest message: %v", code)
		}
		greedy.Client.mu.Lock()
		kept := 0
		for _, s := range greedy.subs.list {
			for i := range s.held {
				kept += s.held[i].charged
			}
		}
		if kept != greedy.kept || kept == 0 {
			t.Errorf("%d bytes are kept, counted are %d", kept, greedy.kept)
		}
		greedy.Client.mu.Unlock()
		greedy.DeleteSubscriptions([]uint32{old, newer}, make([]ua.StatusCode, 2), func() {})
		if greedy.kept != 0 || greedy.queues != 0 {
			t.Errorf("%d and %d bytes stay counted", greedy.kept, greedy.queues)
		}
	})
	bubble(t, "a client that asks for queues without end leaves the next one what it needs", func(t *testing.T) {
		queues := &tag.Budget{Limit: 1000 * address.SlotBytes}
		r := newRig(t, Config{Queues: queues})
		r.block = address.NewBlock(queues)
		greedy, good := r.client(), r.client()
		sub := greedy.subscribe(Parameters{})
		var all []ItemResult
		var sum uint32
		for i := range 20 {
			item := plainItem(r.variable(0), 10_000)
			item.Oldest = i%2 == 0
			got := greedy.monitor(sub, item)[0]
			sum += got.Queue
			all = append(all, got)
		}
		if sum < 400 || sum > 520 {
			t.Errorf("one client has %d of 1000 places", sum)
		}
		if got := good.monitor(good.subscribe(Parameters{}), plainItem(r.variable(0), 200))[0]; got.Queue != 200 {
			t.Errorf("the next client was granted %d of 200", got.Queue)
		}
		// What a client has it keeps when it asks for it again.
		results := make([]ItemResult, 1)
		for _, i := range []int{0, 1} {
			greedy.ModifyItems(sub, ua.TimestampsToReturnBoth, []ModifyRequest{{ID: all[i].ID, Queue: all[i].Queue, Oldest: i == 0}}, results, func() {})
			if results[0].Queue != all[i].Queue {
				t.Errorf("item %d: granted %d, and %d when it is modified", i, all[i].Queue, results[0].Queue)
			}
		}
		var ids []uint32
		for i := range all {
			ids = append(ids, all[i].ID)
		}
		greedy.DeleteItems(sub, ids, make([]ua.StatusCode, len(ids)))
		if greedy.queues != 0 {
			t.Errorf("%d bytes stay counted", greedy.queues)
		}
	})
}
