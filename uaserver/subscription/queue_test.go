package subscription

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

func TestQueue(t *testing.T) {
	bubble(t, "B1 every change, in order, up to the revised size", func(t *testing.T) {
		r := newRig(t, Config{Queue: 5000})
		v := r.variable(100)
		v.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 1000})
		rows := []struct{ ask, want uint32 }{{0, 1}, {1, 1}, {10, 10}, {math.MaxUint32, 5000}}
		for _, row := range rows {
			if got := c.monitor(sub, plainItem(v, row.ask))[0]; got.Queue != row.want || got.Sampling != 100 {
				t.Fatalf("asked for %d, got %+v", row.ask, got)
			}
		}
		c.publish(100)
		var got []received
		for i := range 50 {
			if i > 0 {
				v.set(int64(i))
			}
			sleep(ms(100))
		}
		got = append(got, c.take()...)
		byItem := map[uint32][]int64{}
		for i := range got {
			for _, n := range got[i].items() {
				byItem[n.ClientHandle] = append(byItem[n.ClientHandle], n.Value.Value.Value().(int64))
			}
		}
		for _, h := range []uint32{3, 4} {
			for i, n := range byItem[h] {
				if n != int64(i) {
					t.Fatalf("item %d got %v", h, byItem[h])
				}
			}
			if len(byItem[h]) < 49 {
				t.Fatalf("item %d got %d of 50", h, len(byItem[h]))
			}
		}
		if len(byItem[1]) != 5 || !slices.Equal(byItem[1], byItem[2]) {
			t.Fatalf("queues of one got %v and %v", byItem[1], byItem[2])
		}
		if len(flagged(got...)) != 0 {
			t.Fatal("Overflow although nothing was lost")
		}
	})
	bubble(t, "the account has no room: a shorter queue is granted, and told", func(t *testing.T) {
		r := newRig(t, Config{Account: &tag.Budget{Limit: ownBytes + 10*entryBytes}})
		r.block = address.NewBlock(&tag.Budget{Limit: 400})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		plain := plainItem(v, 1000)
		newest := plainItem(v, 1000)
		newest.Oldest = false
		d := r.client() // each may have half of what is left
		got := append(c.monitor(sub, plain), d.monitor(d.subscribe(Parameters{}), newest)...)
		if got[0].Queue < 5 || got[0].Queue > 11 || got[1].Queue < 5 || got[1].Queue > 11 {
			t.Fatalf("granted %d and %d", got[0].Queue, got[1].Queue)
		}
		for i := range 100 {
			v.set(int64(i))
		}
		c.publish(1)
		d.publish(1)
		sleep(ms(100))
		m, of := c.one(), d.one()
		if n := len(m.items()) + len(of.items()); n != int(got[0].Queue+got[1].Queue) {
			t.Fatalf("%d notifications, want %d and %d", n, got[0].Queue, got[1].Queue)
		}
	})
	bubble(t, "texts in an item's own queue are on the account", func(t *testing.T) {
		for _, oldest := range []bool{true, false} {
			budget := &tag.Budget{Limit: ownBytes + 9*entryBytes + 2500}
			r := newRig(t, Config{Account: budget})
			v := r.variable(0)
			c := r.client()
			sub := c.subscribe(Parameters{})
			item := plainItem(v, 10)
			item.Oldest, item.Range = oldest, "0:999"
			if got := c.monitor(sub, item)[0]; got.Queue != 10 {
				t.Fatalf("%+v", got)
			}
			for i := range 6 {
				v.series.Append(tag.Sample{Value: tag.Of(strings.Repeat(string(rune('a'+i)), 1000)), At: tag.Now()})
			}
			v.series.Append(tag.Sample{Value: tag.Of("end"), At: tag.Now()})
			c.publish(1)
			sleep(ms(100))
			m := c.one()
			var got string
			for _, n := range m.items() {
				text, _ := n.Value.Value.Value().(string)
				got += text[:1]
			}
			if want := map[bool]string{true: "efe", false: "afe"}[oldest]; got != want {
				t.Fatalf("oldest %v: got %q, want %q", oldest, got, want)
			}
			if st := r.engine.Stats(); st.Exhausted != 4 || st.Overflowed != 0 || len(flagged(m)) != 1 {
				t.Fatalf("%+v, Overflow on %v", st, flagged(m))
			}
			// A longer queue would not have held them: the advice does not blame its size.
			if a := c.advised(); a.Kind != "values" || a.Lost != 4 || !strings.HasSuffix(a.Text, "publish more often, or raise limits.memory") {
				t.Fatalf("advice %+v", a)
			}
			c.Close(true)
			if n := budget.Used(); n != 0 {
				t.Fatalf("%d bytes stay charged", n)
			}
		}
	})
}

// TestOverflow is Part 4, 5.13.1.5 with figure 17: which entries stay, and which of them has the Overflow bit.
func TestOverflow(t *testing.T) {
	rows := []struct {
		queue  uint32
		oldest bool
		n      int // changes between two messages
		want   []int64
		flag   []int
	}{
		{1, true, 1, []int64{0}, nil},
		{1, true, 5, []int64{4}, nil},
		{1, false, 5, []int64{4}, nil},
		{2, true, 2, []int64{0, 1}, nil},
		{2, true, 3, []int64{1, 2}, []int{0}},
		{2, true, 9, []int64{7, 8}, []int{0}},
		{2, false, 2, []int64{0, 1}, nil},
		{2, false, 3, []int64{0, 2}, []int{1}},
		{2, false, 9, []int64{0, 8}, []int{1}},
		{3, true, 3, []int64{0, 1, 2}, nil},
		{3, true, 4, []int64{1, 2, 3}, []int{0}},
		{3, false, 4, []int64{0, 1, 3}, []int{2}},
		{3, false, 8, []int64{0, 1, 7}, []int{2}},
		{10, true, 10, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, nil},
		{10, true, 11, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, []int{0}},
		{10, false, 10, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, nil},
		{10, false, 12, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 11}, []int{9}},
		{10, false, 2000, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 1999}, []int{9}},
	}
	for _, row := range rows {
		for _, ownQueue := range []bool{false, true} { // a deadband that lets everything through
			bubble(t, fmt.Sprintf("queue %d oldest %v changes %d own %v", row.queue, row.oldest, row.n, ownQueue), func(t *testing.T) {
				r := newRig(t, Config{})
				v := r.variable(0)
				c := r.client()
				sub := c.subscribe(Parameters{})
				item := plainItem(v, row.queue)
				item.Oldest = row.oldest
				if ownQueue {
					dataFilter(&item, ua.DataChangeTriggerStatusValue, ua.DeadbandTypeAbsolute, 0.5)
				}
				c.monitor(sub, item)
				c.publish(2)
				for range 2 { // the second message begins anew
					for i := range row.n {
						v.set(int64(i))
						if i%100 == 99 {
							time.Sleep(time.Microsecond) // lets the walker in, long before the tick
						}
					}
					sleep(ms(100))
					m := c.one()
					c.wantValues([]received{m}, row.want...)
					if f := flagged(m); !slices.Equal(f, row.flag) {
						t.Fatalf("Overflow on %v, want %v", f, row.flag)
					}
					v.set(-5)
					sleep(ms(100))
					c.take()
					c.publish(2)
				}
				if st := r.engine.Stats(); row.queue == 1 && (st.Overflowed != 0 || row.n > 1 != (st.Overwritten > 0)) {
					t.Fatalf("a queue of one counts as %+v", st)
				}
			})
		}
	}
}

// taker takes the DataValues of what it is sent.
type taker struct{ got []wire.DataValue }

func (k *taker) Respond(_ uint32, r *Response) bool {
	const head = 4 + 8 + 4 + 4 + 1 + 4
	if r.status != ua.StatusGood || len(r.message) <= head {
		return true
	}
	n := binary.LittleEndian.Uint32(r.message[head:])
	rd := wire.NewReader(r.message[head+4:])
	for range n {
		rd.Uint32()
		k.got = append(k.got, rd.DataValue())
	}
	if rd.Err() != nil {
		k.got = nil
	}
	return true
}

// TestOverflowOfOtherKinds is the table of TestOverflow for the values that no tag of a device has, and for those whose
// texts are on the account.
func TestOverflowOfOtherKinds(t *testing.T) {
	kinds := map[string]func(i int) tag.Value{
		"DateTime":     func(i int) tag.Value { return tag.Of(tag.Time(1e18 + i)) },
		"StatusCode":   func(i int) tag.Value { return tag.Of(tag.Status(i) << 16) },
		"ByteString[]": func(i int) tag.Value { return tag.OfSlice([][]byte{{1}, make([]byte, i)}) },
		"DateTime[]":   func(i int) tag.Value { return tag.OfSlice([]tag.Time{1, tag.Time(i)}) },
		"StatusCode[]": func(i int) tag.Value { return tag.OfSlice([]tag.Status{1 << 16, tag.Status(i) << 16}) },
		"LocalizedText": func(i int) tag.Value {
			return tag.OfRaw(wire.AppendLocalizedText([]byte{21}, "", strings.Repeat("x", i)))
		},
		"String": func(i int) tag.Value { return tag.Of(strings.Repeat("x", i)) },
	}
	for name, value := range kinds {
		for _, queue := range []int{1, 2, 3, 10} {
			for _, oldest := range []bool{true, false} {
				bubble(t, fmt.Sprintf("%s, queue %d, oldest %v", name, queue, oldest), func(t *testing.T) {
					r := newRig(t, Config{})
					v := r.variable(0)
					c := r.client()
					item := plainItem(v, uint32(queue))
					item.Oldest = oldest
					c.monitor(c.subscribe(Parameters{}), item)
					const n = 12
					for i := range n {
						v.series.Append(tag.Sample{Value: value(i), At: tag.Now()})
					}
					k := &taker{}
					c.Publish(Request{Sender: k}, nil)
					sleep(ms(100))
					if len(k.got) != queue {
						t.Fatalf("%d notifications", len(k.got))
					}
					for i, got := range k.got {
						at, flag := n-queue+i, i == 0
						if !oldest && queue > 1 {
							if at, flag = i, false; i == queue-1 {
								at, flag = n-1, true
							}
						}
						if flag = flag && queue > 1; !got.Value.Equal(value(at)) || flag != (got.Status == overflow) {
							t.Errorf("entry %d is %v %v, want %v, Overflow %v", i, got.Value, got.Status, value(at), flag)
						}
					}
				})
			}
		}
	}
}
