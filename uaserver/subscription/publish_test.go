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

func TestPublish(t *testing.T) {
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
		c.subs[sub].sequence = math.MaxUint32 - 1
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
	bubble(t, "B9 too many Publish requests: the oldest is answered", func(t *testing.T) {
		r := newRig(t, Config{Requests: 128})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{KeepAlive: 1000, Lifetime: 10000})
		c.monitor(sub, plainItem(v, 10))
		c.publish(300)
		got := c.take()
		if len(got) != 172 {
			t.Fatalf("%d answers, want 172", len(got))
		}
		for i, m := range got {
			if m.request != uint32(i+1) || m.status != ua.StatusBadTooManyPublishRequests {
				t.Fatalf("answer %d: request %d, %v", i, m.request, m.status)
			}
		}
		sleep(ms(150))
		c.take()
		v.set(7)
		sleep(ms(100))
		if m := c.one(); m.request != 174 {
			t.Fatalf("request %d was used, want the oldest", m.request)
		} else {
			c.wantValues([]received{m}, 7)
		}
		c.DeleteSubscriptions([]uint32{sub}, make([]ua.StatusCode, 1), func() {})
		if n := len(c.take()); n != 126 {
			t.Fatalf("%d of the waiting requests were answered", n)
		}
	})
	bubble(t, "7.33 TimeoutHint", func(t *testing.T) {
		c := newRig(t, Config{}).client()
		c.subscribe(Parameters{Publishing: 100_000, Lifetime: 1000})
		c.Publish(Request{Sender: c, ID: 1, Handle: 1001, Timeout: 3 * time.Second}, nil)
		c.Publish(Request{Sender: c, ID: 2, Handle: 1002}, nil)
		c.Publish(Request{Sender: c, ID: 3, Handle: 1003, Timeout: time.Second}, nil)
		sleep(ms(3000))
		got := c.take()
		if len(got) != 2 || got[0].request != 3 || got[0].after != time.Second || got[1].request != 1 || got[1].after != 3*time.Second {
			t.Fatalf("timed out: %+v", got)
		}
		for _, m := range got {
			if m.status != ua.StatusBadTimeout {
				t.Fatalf("status %v", m.status)
			}
		}
	})
	bubble(t, "5.7.5 Cancel", func(t *testing.T) {
		c := newRig(t, Config{}).client()
		c.subscribe(Parameters{Publishing: 100_000})
		c.publish(3)
		if n := c.Cancel(1002); n != 1 {
			t.Fatalf("cancelled %d", n)
		}
		if m := c.one(); m.request != 2 || m.status != ua.StatusBadRequestCancelledByClient {
			t.Fatalf("%+v", m)
		}
	})
	bubble(t, "B15 the last Subscription is deleted", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(1)
		c := r.client()
		c.publish(1)
		if m := c.one(); m.status != ua.StatusBadNoSubscription {
			t.Fatalf("without any: %v", m.status)
		}
		a, b := c.subscribe(Parameters{}), c.subscribe(Parameters{})
		c.publish(5)
		results := make([]ua.StatusCode, 3)
		c.DeleteSubscriptions([]uint32{a, a, 12345}, results, func() {})
		if want := []ua.StatusCode{ua.StatusGood, ua.StatusBadSubscriptionIDInvalid, ua.StatusBadSubscriptionIDInvalid}; !slices.Equal(results, want) {
			t.Fatalf("results %v", results)
		}
		if got := c.take(); len(got) != 0 {
			t.Fatalf("%d answers while one Subscription lives", len(got))
		}
		replied := false
		c.DeleteSubscriptions([]uint32{b}, results[:1], func() { replied = len(c.got) == 0 })
		got := c.take()
		if len(got) != 5 || !replied {
			t.Fatalf("%d answers, the response first: %v", len(got), replied)
		}
		for _, m := range got {
			if m.status != ua.StatusBadNoSubscription {
				t.Fatalf("status %v", m.status)
			}
		}
		sleep(70 * time.Second)
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 1))
		c.publish(1)
		sleep(ms(100))
		c.wantValues(c.take(), 1)
	})
	bubble(t, "B15 the session is closed", func(t *testing.T) {
		for _, deleted := range []bool{true, false} {
			r := newRig(t, Config{})
			c := r.client()
			c.subscribe(Parameters{Publishing: 1000, KeepAlive: 5, Lifetime: 20})
			c.publish(5)
			c.Close(deleted)
			got := c.take()
			if len(got) != 5 || got[4].status != ua.StatusBadSessionClosed {
				t.Fatalf("answers %+v", got)
			}
			if n := r.engine.Stats().Subscriptions; n == 0 != deleted {
				t.Fatalf("delete %v leaves %d", deleted, n)
			}
			sleep(19900 * time.Millisecond)
			if n := r.engine.Stats().Subscriptions; n == 0 != deleted {
				t.Fatalf("delete %v leaves %d before the lifetime is over", deleted, n)
			}
			sleep(200 * time.Millisecond)
			if n := r.engine.Stats().Subscriptions; n != 0 {
				t.Fatal("it lives on after its lifetime")
			}
			c.publish(1)
			if m := c.one(); m.status != ua.StatusBadSessionClosed {
				t.Fatalf("status %v", m.status)
			}
		}
	})
	bubble(t, "B14 lifetime", func(t *testing.T) {
		r := newRig(t, Config{})
		c := r.client()
		dies := c.subscribe(Parameters{Publishing: 100, KeepAlive: 3, Lifetime: 10})
		other := c.subscribe(Parameters{Publishing: 100, KeepAlive: 3, Lifetime: 100})
		sleep(ms(950))
		if n := r.engine.Stats().Subscriptions; n != 2 {
			t.Fatal("dead before its lifetime is over")
		}
		sleep(ms(100))
		if n := r.engine.Stats().Subscriptions; n != 1 {
			t.Fatal("alive after its lifetime")
		}
		c.publish(1)
		m := c.one()
		x, ok := m.resp.NotificationMessage.NotificationData[0].Value.(*ua.StatusChangeNotification)
		if !ok || x.Status != ua.StatusBadTimeout || m.resp.SubscriptionID != dies || m.resp.NotificationMessage.SequenceNumber != 1 {
			t.Fatalf("told %+v", m.resp)
		}
		if _, code := c.ModifySubscription(dies, Parameters{}); code != ua.StatusBadSubscriptionIDInvalid {
			t.Fatalf("a dead Subscription answers %v", code)
		}
		sleep(ms(10000))
		c.publish(1)
		if m := c.one(); m.status != ua.StatusBadNoSubscription {
			t.Fatalf("with none alive: %v (%d)", m.status, other)
		}
	})
	bubble(t, "5.14.1.1 each service of the Subscription renews its lifetime", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 100, KeepAlive: 3, Lifetime: 10})
		item := c.monitor(sub, plainItem(v, 1))[0].ID
		services := []func(){
			func() { c.ModifySubscription(sub, Parameters{Publishing: 100, KeepAlive: 3, Lifetime: 10}) },
			func() { c.SetPublishing([]uint32{sub}, true, make([]ua.StatusCode, 1)) },
			func() { c.Republish(sub, 1, nil) },
			func() { c.monitor(sub, plainItem(v, 1)) },
			func() { c.ModifyItems(sub, 0, []ModifyRequest{{ID: item}}, make([]ItemResult, 1), func() {}) },
			func() { c.SetMode(sub, ua.MonitoringModeReporting, []uint32{item}, make([]ua.StatusCode, 1)) },
			func() { c.DeleteItems(sub, []uint32{item}, make([]ua.StatusCode, 1)) },
		}
		for _, call := range services {
			sleep(ms(900))
			call()
		}
		sleep(ms(900))
		if r.engine.Stats().Subscriptions != 1 {
			t.Fatal("it died although it was used")
		}
	})
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
	bubble(t, "a lost channel's Publish requests are given up, the Subscription serves the next channel", func(t *testing.T) {
		for _, told := range []bool{true, false} {
			r := newRig(t, Config{})
			v := r.variable(0)
			v.set(1)
			c := r.client()
			sub := c.subscribe(Parameters{})
			c.monitor(sub, plainItem(v, 10))
			c.publish(3)
			c.mu.Lock()
			c.gone = true
			c.mu.Unlock()
			if told {
				c.Detach(c)
			}
			other := &tester{rig: r, Client: c.Client, start: time.Now()}
			other.publish(1)
			sleep(ms(100))
			other.wantValues(other.take(), 1)
			v.set(2)
			sleep(ms(100))
			other.publish(1)
			other.wantValues(other.take(), 2)
			if n := r.engine.Stats().Requests; n != 0 {
				t.Fatalf("%d requests stay", n)
			}
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

func TestRepublish(t *testing.T) {
	republish := func(c *tester, sub, n uint32) (values []int64, code ua.StatusCode) {
		code = c.Republish(sub, n, func(message []byte) {
			m := new(ua.NotificationMessage)
			if _, err := ua.Decode(message, m); err != nil || m.SequenceNumber != n {
				c.Fatalf("republished %d: %v", m.SequenceNumber, err)
			}
			for _, i := range m.NotificationData[0].Value.(*ua.DataChangeNotification).MonitoredItems {
				values = append(values, i.Value.Value.Value().(int64))
			}
		})
		return values, code
	}
	bubble(t, "B10 republish", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 1))
		c.publish(3)
		for i := range 3 {
			v.set(int64(10 + i))
			sleep(ms(100))
		}
		c.publish(1, Ack{sub, 2})
		for n, want := range map[uint32]int64{1: 10, 3: 12} {
			if got, code := republish(c, sub, n); code != ua.StatusGood || len(got) != 1 || got[0] != want {
				t.Fatalf("message %d: %v, %v", n, got, code)
			}
		}
		for _, n := range []uint32{0, 2, 4} {
			if _, code := republish(c, sub, n); code != ua.StatusBadMessageNotAvailable {
				t.Fatalf("message %d: %v", n, code)
			}
		}
		if _, code := republish(c, sub+1, 1); code != ua.StatusBadSubscriptionIDInvalid {
			t.Fatalf("a foreign id: %v", code)
		}
		if st := r.engine.Stats(); st.Republished != 2 || st.Acknowledged != 1 || st.Held != 2 {
			t.Fatalf("%+v", st)
		}
	})
	bubble(t, "B10 a client that never acknowledges", func(t *testing.T) {
		r := newRig(t, Config{Held: 20})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 10})
		c.monitor(sub, plainItem(v, 1))
		time.Sleep(ms(5)) // between two ticks
		for i := range 10_000 {
			v.set(int64(i))
			c.Publish(Request{Sender: deaf{}}, nil)
			time.Sleep(ms(10))
		}
		st := r.engine.Stats()
		if st.Held != 20 || st.Evicted != 10_000-20 || st.HeldBytes > 20*512 {
			t.Fatalf("%+v", st)
		}
		if _, code := republish(c, sub, 9981); code != ua.StatusGood {
			t.Fatalf("the newest 20 are there: %v", code)
		}
		if _, code := republish(c, sub, 9980); code != ua.StatusBadMessageNotAvailable {
			t.Fatalf("older ones are not: %v", code)
		}
	})
	bubble(t, "B10 the account bounds what is kept", func(t *testing.T) {
		budget := &tag.Budget{Limit: 1000}
		r := newRig(t, Config{Account: budget})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 1))
		for i := range 50 {
			v.set(int64(i))
			c.publish(1)
			sleep(ms(100))
		}
		if got := c.take(); len(values(got...)) != 50 {
			t.Fatalf("%d values", len(values(got...)))
		}
		if st := r.engine.Stats(); st.Held == 0 || st.Held > 10 || budget.Used() > 1000 || st.Messages != 50 {
			t.Fatalf("%+v with %d bytes", st, budget.Used())
		}
	})
}

func TestRevise(t *testing.T) {
	const big = math.MaxUint32
	rows := []struct {
		publishing          float64
		lifetime, keepAlive uint32
		want                Parameters
	}{
		{100, 30, 10, Parameters{Publishing: 100, Lifetime: 30, KeepAlive: 10}},
		{100, 5, 10, Parameters{Publishing: 100, Lifetime: 30, KeepAlive: 10}},
		{0, 0, 0, Parameters{Publishing: 10, Lifetime: 30, KeepAlive: 10}},
		{0.2, 100, 10, Parameters{Publishing: 10, Lifetime: 100, KeepAlive: 10}},
		{-5, 100, 10, Parameters{Publishing: 10, Lifetime: 100, KeepAlive: 10}},
		{math.NaN(), 100, 10, Parameters{Publishing: 10, Lifetime: 100, KeepAlive: 10}},
		{math.Inf(-1), 100, 10, Parameters{Publishing: 10, Lifetime: 100, KeepAlive: 10}},
		{math.Inf(1), 100, 10, Parameters{Publishing: 3_600_000, Lifetime: 24, KeepAlive: 1}},
		{1e18, 3, 1, Parameters{Publishing: 3_600_000, Lifetime: 3, KeepAlive: 1}},
		{1000, big, big, Parameters{Publishing: 1000, Lifetime: 86400, KeepAlive: 3600}},
		{10, big, big, Parameters{Publishing: 10, Lifetime: 8_640_000, KeepAlive: 360_000}},
		{250.5, 30, 10, Parameters{Publishing: 250.5, Lifetime: 30, KeepAlive: 10}},
	}
	e := &Engine{}
	e.cfg.defaults()
	for _, row := range rows {
		p := Parameters{Publishing: row.publishing, Lifetime: row.lifetime, KeepAlive: row.keepAlive}
		if e.revise(&p); p != row.want {
			t.Errorf("%v, %d, %d becomes %+v, want %+v", row.publishing, row.lifetime, row.keepAlive, p, row.want)
		}
	}
}

func TestLimits(t *testing.T) {
	bubble(t, "BadTooManySubscriptions", func(t *testing.T) {
		c := newRig(t, Config{Subscriptions: 2}).client()
		a := c.subscribe(Parameters{})
		c.subscribe(Parameters{})
		create := func() ua.StatusCode {
			return c.CreateSubscription(Parameters{}, true, func(uint32, Parameters) {})
		}
		if code := create(); code != ua.StatusBadTooManySubscriptions {
			t.Fatalf("the third: %v", code)
		}
		c.DeleteSubscriptions([]uint32{a}, make([]ua.StatusCode, 1), func() {})
		if code := create(); code != ua.StatusGood {
			t.Fatalf("after a deletion: %v", code)
		}
	})
	bubble(t, "BadTooManyMonitoredItems", func(t *testing.T) {
		r := newRig(t, Config{Items: 3})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		var got []ua.StatusCode
		results := c.monitor(sub, plainItem(v, 1), plainItem(v, 1), plainItem(v, 1), plainItem(v, 1))
		for _, x := range results {
			got = append(got, x.Status)
		}
		if want := []ua.StatusCode{0, 0, 0, ua.StatusBadTooManyMonitoredItems}; !slices.Equal(got, want) {
			t.Fatalf("%v", got)
		}
		c.DeleteItems(sub, []uint32{results[1].ID}, make([]ua.StatusCode, 1))
		if x := c.monitor(sub, plainItem(v, 1))[0]; x.Status != ua.StatusGood || x.ID == results[1].ID {
			t.Fatalf("after a deletion: %+v; a deleted item's id must not come back at once", x)
		}
	})
	bubble(t, "B13 ids cannot be guessed", func(t *testing.T) {
		seen := map[string]bool{}
		for range 8 {
			c := newRig(t, Config{}).client()
			seen[fmt.Sprint(c.subscribe(Parameters{})>>8)] = true
		}
		if len(seen) < 7 {
			t.Fatalf("ids of eight engines: %v", seen)
		}
	})
	bubble(t, "a foreign Subscription is out of reach", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		owner, other := r.client(), r.client()
		sub := owner.subscribe(Parameters{})
		item := owner.monitor(sub, plainItem(v, 1))[0].ID
		bad := ua.StatusBadSubscriptionIDInvalid
		results := make([]ua.StatusCode, 1)
		if other.DeleteSubscriptions([]uint32{sub}, results, func() {}); results[0] != bad {
			t.Errorf("delete: %v", results[0])
		}
		if _, code := other.ModifySubscription(sub, Parameters{}); code != bad {
			t.Errorf("modify: %v", code)
		}
		if code := other.DeleteItems(sub, []uint32{item}, results); code != bad {
			t.Errorf("delete items: %v", code)
		}
		if code := other.CreateItems(t.Context(), sub, 0, everyRight, []ItemRequest{plainItem(v, 1)}, make([]ItemResult, 1), nil); code != bad {
			t.Errorf("create items: %v", code)
		}
		if code := other.Republish(sub, 1, nil); code != bad {
			t.Errorf("republish: %v", code)
		}
	})
}
