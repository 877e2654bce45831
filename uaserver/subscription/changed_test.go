package subscription

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// TestSemanticsChanged: each item is told once, with the value that is there or the next one that it gets, whatever its
// queue lost (Part 4, 7.39.1). "!" stands behind a value that tells, "^" behind one with the Overflow bit.
func TestSemanticsChanged(t *testing.T) {
	item := func(change func(r *ItemRequest)) func(v *variable, queue uint32) ItemRequest {
		return func(v *variable, queue uint32) ItemRequest {
			r := plainItem(v, queue)
			change(&r)
			return r
		}
	}
	deadband := item(func(r *ItemRequest) { dataFilter(r, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 5) })
	newest := item(func(r *ItemRequest) { r.Oldest = false })
	status := item(func(r *ItemRequest) { dataFilter(r, ua.DataChangeTriggerStatus, ua.DeadbandTypeNone, 0) })
	const told = 0 // stands for the change; other numbers are values
	for _, row := range []struct {
		name  string
		item  func(v *variable, queue uint32) ItemRequest
		queue uint32
		steps []int64
		want  []string
	}{
		{"plain", plainItem, 10, []int64{1, told, 2, 2}, []string{"1", "1!", "2"}},
		{"plain, alone", plainItem, 10, []int64{told}, []string{"9!"}},
		{"twice between two messages", plainItem, 10, []int64{told, 1, told, 2}, []string{"9!", "1", "1!", "2"}},
		{"a queue of one", plainItem, 1, []int64{told}, []string{"9!"}},
		{"a queue of one, overwritten", plainItem, 1, []int64{told, 1, 2}, []string{"2!"}},
		{"lost to a queue of two", plainItem, 2, []int64{told, 1, 2, 3}, []string{"2!^", "3"}},
		{"deadband", deadband, 10, []int64{10, told, 11, 20}, []string{"10!", "20"}},
		{"deadband, lost", deadband, 2, []int64{told, 20, 30, 40}, []string{"30!^", "40"}},
		{"deadband, a queue of one", deadband, 1, []int64{told, 20, 30}, []string{"30!"}},
		{"discard newest", newest, 2, []int64{1, told, 3}, []string{"1", "3!^"}},
		{"only status", status, 10, []int64{1, told, 2}, []string{"1!"}},
	} {
		bubble(t, row.name, func(t *testing.T) {
			r := newRig(t, Config{})
			v := r.variable(0)
			v.set(8)
			v.series.Tell(address.SemanticsChanged) // before the item was there
			v.set(9)
			v.series.Tell(address.SemanticsChanged)
			c := r.client()
			sub := c.subscribe(Parameters{Lifetime: 10_000})
			c.monitor(sub, row.item(v, row.queue))
			c.publish(20)
			sleep(ms(110))
			said := func() (out []string) {
				for _, got := range c.take() {
					for _, n := range got.items() {
						text := fmt.Sprint(n.Value.Value.Value())
						if tag.Status(n.Value.Status)&address.Changed == address.SemanticsChanged {
							text += "!"
						}
						if tag.Status(n.Value.Status)&overflow == overflow {
							text += "^"
						}
						out = append(out, text)
					}
				}
				return out
			}
			if got := said(); !slices.Equal(got, []string{"9"}) {
				t.Errorf("initial value %v", got)
			}
			for _, n := range row.steps {
				if n == told {
					v.series.Tell(address.SemanticsChanged)
					continue
				}
				v.series.Publish(&tag.Sample{Value: tag.Of(n), At: tag.Now()})
			}
			sleep(ms(110))
			if got := said(); !slices.Equal(got, row.want) {
				t.Errorf("got %v, want %v", got, row.want)
			}
			sleep(ms(110))
			if got := said(); len(got) > 0 {
				t.Errorf("afterwards %v", got)
			}
			if last, _, _ := v.series.Last(); last.Status != tag.Good {
				t.Errorf("a read shows %v", last.Status)
			}
		})
	}
}

// TestSemanticsChangedAtTheEndOfAMessage: where an item's notification has no room any more in a message, what it lost and
// what it is told of go with the next one.
func TestSemanticsChangedAtTheEndOfAMessage(t *testing.T) {
	bubble(t, "full", func(t *testing.T) {
		const limit = 8192
		r := newRig(t, Config{})
		c := r.client()
		sub := c.subscribe(Parameters{Lifetime: 10_000})
		var reqs []ItemRequest
		for range 1000 {
			v := r.variable(0)
			v.set(1)
			reqs = append(reqs, plainItem(v, 1+uint32(len(reqs)%2)))
		}
		c.monitor(sub, reqs...)
		for i := range 40 {
			c.Publish(Request{Sender: c, ID: uint32(i), Handle: uint32(i) + 1000, Message: limit}, nil)
		}
		sleep(ms(110))
		c.take()
		for _, v := range r.vars {
			v.series.Tell(address.SemanticsChanged)
			v.set(2, 3, 4)
		}
		sleep(ms(110))
		told, flags, messages := 0, 0, 0
		for _, m := range c.take() {
			messages++
			for _, n := range m.items() {
				if tag.Status(n.Value.Status)&address.Changed == address.SemanticsChanged {
					told++
				}
				if tag.Status(n.Value.Status)&overflow == overflow {
					flags++
				}
			}
		}
		if told != 1000 || flags != 500 || messages < 3 {
			t.Errorf("%d items are told, %d of their loss, in %d messages", told, flags, messages)
		}
		if n := r.engine.Stats(); n.Unaccounted != 0 {
			t.Errorf("the ledger is off by %d", n.Unaccounted)
		}
	})
}
