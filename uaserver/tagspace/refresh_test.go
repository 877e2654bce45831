package tagspace

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

func TestStale(t *testing.T) {
	p := newPlant(t)
	now := tag.Now()
	for _, row := range []struct {
		tag  string
		ago  time.Duration
		age  time.Duration
		want bool
	}{
		{"boiler.temperature", 900 * time.Millisecond, 0, false},
		{"boiler.temperature", 1100 * time.Millisecond, 0, true},
		{"boiler.temperature", 1100 * time.Millisecond, 2 * time.Second, false},
		{"boiler.temperature", 3 * time.Second, 2 * time.Second, true},
		{"boiler.reset", time.Hour, 0, false},
		{"scratch.m0", time.Hour, 0, false},
		{"boiler.$errors", time.Hour, 0, false},
	} {
		it := address.ReadItem{Node: p.node(t, row.tag), MaxAge: row.age}
		it.Result.Server = now.Add(-row.ago)
		if got := p.Stale(&it, now); got != row.want {
			t.Errorf("%s verified %v ago, maxAge %v: stale %v", row.tag, row.ago, row.age, got)
		}
	}
}

func TestRefreshIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t)
		ref := p.ref(t, "boiler.temperature")
		p.field.values[ref] = tag.Of(float32(30))
		p.field.values[p.ref(t, "boiler.code")] = tag.Of(int16(3))
		p.field.block = make(chan struct{})
		time.Sleep(2 * time.Second) // so that the initial values are stale
		item := func(name string) address.ReadItem {
			it := address.ReadItem{Node: p.node(t, name), Attribute: ua.AttributeIDValue}
			it.Result.Server = tag.Now().Add(-2 * time.Second)
			return it
		}
		var readers sync.WaitGroup
		for range 20 {
			readers.Go(func() {
				p.Refresh(context.Background(), []address.ReadItem{item("boiler.temperature"), item("scratch.m0")})
			})
		}
		readers.Go(func() {
			p.Refresh(context.Background(), []address.ReadItem{item("boiler.temperature"), item("boiler.code"), {}})
		})
		synctest.Wait()
		close(p.field.block)
		readers.Wait()
		if p.field.readings > 2 {
			t.Errorf("%d readings for 21 readers of two tags", p.field.readings)
		}
		if v := p.read(t, "boiler.temperature", ""); !v.Value.Equal(tag.Of(float32(30))) {
			t.Errorf("after the readings: %+v", v)
		}
		if v := p.read(t, "boiler.code", ""); !v.Value.Equal(tag.Of(int16(3))) {
			t.Errorf("after the readings: %+v", v)
		}
	})
}

func TestRefreshEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t)
		p.field.block = make(chan struct{}) // a device that never answers
		time.Sleep(2 * time.Second)
		it := address.ReadItem{Node: p.node(t, "boiler.temperature"), Attribute: ua.AttributeIDValue}
		it.Result.Server = tag.Now().Add(-2 * time.Second)
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		began := time.Now()
		p.Refresh(ctx, []address.ReadItem{it})
		if d := time.Since(began); d != time.Second {
			t.Errorf("the reader waited %v", d)
		}
		p.Refresh(context.Background(), []address.ReadItem{it})
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("the reading ended after %v", d)
		}
		p.Close()
		p.Refresh(context.Background(), []address.ReadItem{it}) // returns at once
	})
}
