package subscription

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

func TestKeepAlive(t *testing.T) {
	bubble(t, "5.14.1 keep-alive: at the first tick, then at each keep-alive count", func(t *testing.T) {
		r := newRig(t, Config{})
		c := r.client()
		c.subscribe(Parameters{Publishing: 100, KeepAlive: 3, Lifetime: 100})
		c.publish(5)
		sleep(ms(1000))
		var at []time.Duration
		for _, m := range c.take() {
			if m.status != ua.StatusGood || len(m.items()) != 0 || m.resp.NotificationMessage.SequenceNumber != 1 {
				t.Fatalf("not a keep-alive that shows 1: %+v", m.resp)
			}
			at = append(at, m.after)
		}
		if want := []time.Duration{ms(100), ms(400), ms(700), ms(1000)}; !slices.Equal(at, want) {
			t.Fatalf("keep-alives at %v, want %v", at, want)
		}
	})
	bubble(t, "5.14.1 keep-alive count of one", func(t *testing.T) {
		c := newRig(t, Config{}).client()
		c.subscribe(Parameters{Publishing: 100, KeepAlive: 1, Lifetime: 100})
		c.publish(20)
		sleep(ms(1000))
		if got := c.take(); len(got) != 10 {
			t.Fatalf("%d keep-alives in 10 intervals", len(got))
		}
	})
}

func TestSequenceNumbers(t *testing.T) {
	bubble(t, "B6 sequence numbers", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 100, KeepAlive: 2, Lifetime: 100})
		c.monitor(sub, plainItem(v, 10))
		c.publish(10)
		for i := range 3 {
			sleep(ms(100)) // data
			v.set(int64(i + 1))
			sleep(ms(100)) // data
			sleep(ms(300)) // a keep-alive after two intervals
		}
		var data, keepAlives []uint32
		for _, m := range c.take() {
			n := m.resp.NotificationMessage.SequenceNumber
			if len(m.items()) > 0 {
				data = append(data, n)
				if !slices.Contains(m.resp.AvailableSequenceNumbers, n) {
					t.Errorf("message %d is not among the available %v", n, m.resp.AvailableSequenceNumbers)
				}
			} else {
				keepAlives = append(keepAlives, n)
				if int(n) != len(data)+1 {
					t.Errorf("keep-alive shows %d after %d messages", n, len(data))
				}
			}
		}
		if !slices.Equal(data, []uint32{1, 2, 3, 4}) || len(keepAlives) < 3 {
			t.Fatalf("messages %v, keep-alives %v", data, keepAlives)
		}
		c.publish(1, Ack{sub, 2}, Ack{sub, 77}, Ack{sub + 1, 1}, Ack{sub, 2})
		v.set(9)
		sleep(ms(1000))
		got := c.take()
		var results []ua.StatusCode
		for _, m := range got {
			if len(m.resp.Results) > 0 {
				results = m.resp.Results
			}
		}
		want := []ua.StatusCode{ua.StatusGood, ua.StatusBadSequenceNumberUnknown, ua.StatusBadSubscriptionIDInvalid, ua.StatusBadSequenceNumberUnknown}
		if !slices.Equal(results, want) {
			t.Fatalf("acknowledgement results %v, want %v", results, want)
		}
	})
	bubble(t, "B6 numbers wrap to one", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 1))
		c.mu.Lock()
		c.Client.mu.Lock()
		c.subs.find(sub).sequence = math.MaxUint32 - 1
		c.Client.mu.Unlock()
		c.mu.Unlock()
		c.publish(3)
		for i := range 3 {
			sleep(ms(100))
			v.set(int64(i))
		}
		if got := sequences(c.take()); !slices.Equal(got, []uint32{math.MaxUint32, 1, 2}) {
			t.Fatalf("numbers %v", got)
		}
	})
	bubble(t, "B20 order with many requests outstanding", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 50})
		c.monitor(sub, plainItem(v, 100))
		c.publish(10)
		var all []received
		var want []int64
		for i := range 100 {
			v.set(int64(i))
			want = append(want, int64(i))
			sleep(ms(20))
			got := c.take()
			all = append(all, got...)
			c.publish(len(got))
		}
		sleep(ms(50))
		all = append(all, c.take()...)
		c.wantValues(all, want...)
		for i, n := range sequences(all) {
			if n != uint32(i+1) {
				t.Fatalf("numbers %v", sequences(all))
			}
		}
	})
}

func TestMessages(t *testing.T) {
	bubble(t, "5.14.1 late: the first Publish request is used at once", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(1)
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 5))
		sleep(ms(250))
		v.set(2)
		c.publish(1)
		m := c.one()
		if m.after != ms(250) {
			t.Fatalf("after %v", m.after)
		}
		c.wantValues([]received{m}, 1, 2)
	})
	bubble(t, "5.14.2 priority among late Subscriptions, then the longest waiting", func(t *testing.T) {
		r := newRig(t, Config{})
		c := r.client()
		names := map[uint32]string{}
		for _, s := range []struct {
			name     string
			ms       float64
			priority uint8
		}{{"low", 100, 1}, {"early", 110, 7}, {"tardy", 120, 7}, {"high", 130, 9}} {
			names[c.subscribe(Parameters{Publishing: s.ms, Priority: s.priority, Lifetime: 1000})] = s.name
		}
		sleep(ms(200))
		c.publish(4)
		var order []string
		for _, m := range c.take() {
			order = append(order, names[m.resp.SubscriptionID])
		}
		if want := []string{"high", "early", "tardy", "low"}; !slices.Equal(order, want) {
			t.Fatalf("served %v, want %v", order, want)
		}
	})
	bubble(t, "5.14.2 MaxNotificationsPerPublish and MoreNotifications", func(t *testing.T) {
		r := newRig(t, Config{})
		c := r.client()
		sub := c.subscribe(Parameters{Notifications: 4})
		var reqs []ItemRequest
		for i := range 5 {
			v := r.variable(0)
			v.set(int64(i * 10))
			reqs = append(reqs, plainItem(v, 10))
		}
		c.monitor(sub, reqs...)
		r.vars[0].set(1, 2, 3, 4, 5)
		c.publish(2)
		sleep(ms(100))
		got := c.take()
		if len(got) != 2 || !got[0].resp.MoreNotifications || !got[1].resp.MoreNotifications {
			t.Fatalf("%d messages at the tick", len(got))
		}
		c.publish(1)
		got = append(got, c.take()...) // at once, not at the next tick
		if len(got) != 3 || got[2].resp.MoreNotifications {
			t.Fatalf("%d messages after one more request", len(got))
		}
		c.wantValues(got, 0, 1, 2, 3, 4, 5, 10, 20, 30, 40)
	})
	bubble(t, "A4 a message fits what the client takes", func(t *testing.T) {
		for _, ownQueue := range []bool{false, true} {
			r := newRig(t, Config{})
			v := r.variable(0)
			c := r.client()
			sub := c.subscribe(Parameters{})
			item := plainItem(v, 100)
			if item.Oldest = !ownQueue; ownQueue { // discard newest has a queue of its own
				item.Queue = 101
			}
			c.monitor(sub, item)
			const limit = 8192
			for i := range 100 {
				text := strings.Repeat("x", 1000)
				if i == 50 {
					text = strings.Repeat("x", 10_000)
				}
				v.series.Append(tag.Sample{Value: tag.Of(fmt.Sprint(i, text)), At: tag.Now() + tag.Time(i)})
			}
			for i := range 30 {
				c.Publish(Request{Sender: c, ID: uint32(i), Handle: uint32(i) + 1000, Message: limit}, nil)
			}
			sleep(ms(100))
			n, last := 0, time.Time{}
			for _, m := range c.take() {
				if m.bytes > limit || len(m.items()) == 0 {
					t.Fatalf("own %v: a response of %d bytes with %d notifications", ownQueue, m.bytes, len(m.items()))
				}
				for _, x := range m.items() {
					if tooLong := x.Value.Status == ua.StatusBadEncodingLimitsExceeded; tooLong != (n == 50) || tooLong == x.Value.Has(ua.DataValueValue) {
						t.Fatalf("own %v: notification %d is %v", ownQueue, n, x.Value.Status)
					}
					if !x.Value.SourceTimestamp.After(last) {
						t.Fatal("out of order")
					}
					last = x.Value.SourceTimestamp
					n++
				}
			}
			if n != 100 {
				t.Fatalf("own %v: %d notifications of 100", ownQueue, n)
			}
		}
	})
	bubble(t, "5.14.4 publishing disabled", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(1)
		c := r.client()
		sub := c.subscribe(Parameters{KeepAlive: 2})
		c.monitor(sub, plainItem(v, 3))
		results := make([]ua.StatusCode, 2)
		c.SetPublishing([]uint32{sub, 1}, false, results)
		if results[0] != ua.StatusGood || results[1] != ua.StatusBadSubscriptionIDInvalid {
			t.Fatalf("results %v", results)
		}
		c.publish(10)
		sleep(ms(500))
		for _, m := range c.take() {
			if len(m.items()) > 0 {
				t.Fatal("a disabled Subscription reports")
			}
		}
		v.set(2, 3, 4)
		c.SetPublishing([]uint32{sub}, true, results[:1])
		sleep(ms(100))
		got := c.take()
		c.wantValues(got, 2, 3, 4)
		if f := flagged(got...); !slices.Equal(f, []int{0}) {
			t.Fatalf("Overflow on %v", f)
		}
	})
}
