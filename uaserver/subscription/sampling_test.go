package subscription

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

func TestSampling(t *testing.T) {
	bubble(t, "B4 intervals are revised, and every item reports", func(t *testing.T) {
		r := newRig(t, Config{})
		polled, memory, live := r.variable(100), r.variable(0), r.live()
		polled.set(1)
		memory.set(1)
		live.live = wire.DataValue{Value: tag.Of(int64(1)), Source: tag.Now(), Server: tag.Now()}
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 250})
		rows := []struct {
			v    *variable
			ask  float64
			want float64
		}{
			{polled, 0, 100}, {polled, -1, 250}, {polled, 0.001, 100}, {polled, 1e12, 3_600_000}, {polled, math.NaN(), 250},
			{polled, math.Inf(1), 3_600_000}, {polled, math.Inf(-1), 250}, {polled, 500, 500},
			{memory, 0, 0}, {memory, -1, 250}, {memory, 0.001, 0.001}, {memory, 1e12, 3_600_000}, {memory, 20, 20},
			{live, 0, 100}, {live, -1, 250}, {live, 0.001, 100}, {live, 1e12, 3_600_000}, {live, math.NaN(), 250},
		}
		var reqs []ItemRequest
		for _, row := range rows {
			for _, queue := range []uint32{1, 5} {
				item := plainItem(row.v, queue)
				item.Sampling = row.ask
				reqs = append(reqs, item)
			}
		}
		for i, got := range c.monitor(sub, reqs...) {
			if want := rows[i/2].want; got.Status != ua.StatusGood || got.Sampling != want {
				t.Errorf("asked for %v: %+v, want %v", rows[i/2].ask, got, want)
			}
		}
		c.publish(1)
		sleep(ms(250))
		if m := c.one(); len(m.items()) != len(reqs) {
			t.Fatalf("%d of %d items report", len(m.items()), len(reqs))
		}
	})
	bubble(t, "5.13.1.2 slower than the changes: one sample an interval, the last of a burst arrives", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 1000})
		item := plainItem(v, 10)
		item.Sampling = 200
		c.monitor(sub, item)
		c.publish(5)
		sleep(ms(30))
		for i := range 20 { // a change each 50 ms, until 980 ms
			v.set(int64(i + 1))
			time.Sleep(ms(50))
		}
		sleep(ms(1000))
		got := c.take()
		c.wantValues(got, 0, 4, 8, 12, 16, 20)
		if len(flagged(got...)) != 0 {
			t.Fatal("sampled out is no Overflow")
		}
	})
	bubble(t, "slower than publishing", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 100})
		item := plainItem(v, 1)
		item.Sampling = 450
		c.monitor(sub, item)
		c.publish(50)
		for i := range 20 {
			time.Sleep(ms(95))
			v.set(int64(i + 1))
		}
		var at []time.Duration
		for _, m := range c.take() {
			if len(m.items()) > 0 {
				at = append(at, m.after)
			}
		}
		if want := []time.Duration{ms(100), ms(500), ms(900), ms(1400), ms(1800)}; !slices.Equal(at, want) {
			t.Fatalf("reported at %v, want %v", at, want)
		}
	})
	bubble(t, "5.14.3 publishing becomes faster than sampling", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		v.set(0)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 1000})
		item := plainItem(v, 1)
		item.Sampling = -1
		c.monitor(sub, item)
		c.publish(100)
		sleep(ms(1010))
		c.wantValues(c.take(), 0)
		c.ModifySubscription(sub, Parameters{Publishing: 100, KeepAlive: 10})
		for i := range 40 {
			v.set(int64(i + 1))
			sleep(ms(100))
		}
		if got := values(c.take()...); len(got) < 4 || len(got) > 5 {
			t.Fatalf("sampled each second for 4 s: %v", got)
		}
	})
	bubble(t, "a value that is read, at the sampling interval and no faster", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.live()
		read := func(n int64) {
			v.mu.Lock()
			v.live = wire.DataValue{Value: tag.Of(n), Source: tag.Now(), Server: tag.Now()}
			v.mu.Unlock()
		}
		read(1)
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 500})
		c.monitor(sub, plainItem(v, 10))
		c.publish(10)
		for i := range 5 {
			sleep(ms(250))
			read(int64(i + 2))
		}
		sleep(ms(250))
		c.wantValues(c.take(), 1, 2, 3, 4, 5, 6)
		if v.reads < 15 || v.reads > 17 {
			t.Fatalf("read %d times in 1.5 s", v.reads)
		}
	})
	bubble(t, "G2 more items than are read at once; the memory for a reading does not grow with them", func(t *testing.T) {
		r := newRig(t, Config{Shards: 1})
		v := r.live()
		v.live = wire.DataValue{Value: tag.Of(int64(1)), Source: tag.Now(), Server: tag.Now()}
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 500})
		item := plainItem(v, 10)
		item.Sampling = 100
		c.monitor(sub, slices.Repeat([]ItemRequest{item}, 2*maxReads+10)...)
		c.publish(3)
		sleep(ms(500))
		c.take()
		v.mu.Lock()
		v.live = wire.DataValue{Value: tag.Of(int64(2)), Source: tag.Now(), Server: tag.Now()}
		v.mu.Unlock()
		sleep(ms(500))
		n := 0
		for _, m := range c.take() {
			n += len(m.items())
		}
		if n != 2*maxReads+10 {
			t.Fatalf("%d items reported the change", n)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if most := cap(r.engine.shards[0].reads); most > 2*maxReads {
			t.Fatalf("the shard keeps room for %d readings", most)
		}
	})
	bubble(t, "who supplies a value panics", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.live()
		v.live = wire.DataValue{Value: tag.Of(int64(1)), Server: tag.Now()}
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 10))
		c.publish(10)
		sleep(ms(100))
		c.wantValues(c.take(), 1)
		v.mu.Lock()
		v.broken = true
		v.mu.Unlock()
		sleep(ms(200))
		if m := c.one(); len(m.items()) != 1 || m.items()[0].Value.Status != ua.StatusBadInternalError {
			t.Fatalf("%+v", m.resp)
		}
	})
	bubble(t, "5.13.2 other attributes report once", func(t *testing.T) {
		r := newRig(t, Config{})
		v := r.variable(0)
		c := r.client()
		sub := c.subscribe(Parameters{})
		item := plainItem(v, 3)
		item.Attribute = ua.AttributeIDDisplayName
		if got := c.monitor(sub, item)[0]; got.Status != ua.StatusGood || got.Sampling != 1000 {
			t.Fatalf("%+v", got)
		}
		c.publish(50)
		sleep(ms(5000))
		n := 0
		for _, m := range c.take() {
			for _, i := range m.items() {
				n++
				if i.Value.Value.Value() != "v" || i.Value.Has(ua.DataValueSourceTimestamp) || !i.Value.Has(ua.DataValueServerTimestamp) {
					t.Fatalf("reported %+v", i.Value)
				}
			}
		}
		if n != 1 {
			t.Fatalf("reported %d times", n)
		}
	})
}
