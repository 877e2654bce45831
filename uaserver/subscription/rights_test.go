package subscription

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// TestRightsChange is 5.13.2.1: an item whose Value may be read no more says so and nothing else, and one that may be read
// again has its Value again; whatever queue it has.
func TestRightsChange(t *testing.T) {
	bubble(t, "5.13.2.1", func(t *testing.T) {
		r := newRig(t, Config{})
		vars := []*variable{r.variable(0), r.variable(0), r.variable(0), r.variable(0), r.live()}
		move := func(n int64) {
			for _, v := range vars {
				if v.series != nil {
					v.set(n)
				}
				v.mu.Lock()
				v.live = wire.DataValue{Value: tag.Of(n), Source: tag.Now(), Server: tag.Now()}
				v.mu.Unlock()
			}
		}
		move(1)
		c := r.client()
		sub := c.subscribe(Parameters{})
		reqs := make([]ItemRequest, len(vars))
		for i, v := range vars {
			reqs[i] = plainItem(v, 1)
		}
		reqs[1].Queue, reqs[2].Sampling = 10, 500
		reqs[3].Queue, reqs[3].Oldest = 10, false
		c.monitor(sub, reqs...)
		all := func(what string, want int64, code ua.StatusCode) {
			t.Helper()
			last := map[uint32]*ua.DataValue{}
			for range 20 {
				c.publish(1)
				sleep(ms(100))
				for _, m := range c.take() {
					for _, it := range m.items() {
						last[it.ClientHandle] = it.Value
						if v, ok := it.Value.Value.Value().(int64); code != ua.StatusGood && ok && v != 0 {
							t.Errorf("%s: item %d tells %d", what, it.ClientHandle, v)
						}
					}
				}
			}
			for handle := uint32(1); handle <= uint32(len(vars)); handle++ {
				switch v := last[handle]; {
				case want == 0 && v == nil:
				case v == nil:
					t.Errorf("%s: nothing of item %d", what, handle)
				case code != ua.StatusGood && v.Status != code, code == ua.StatusGood && v.Value.Value() != want:
					t.Errorf("%s: item %d has %v, %v", what, handle, v.Value.Value(), v.Status)
				}
			}
		}
		all("at first", 1, ua.StatusGood)
		move(2)
		c.SetRights(address.MayBrowse)
		move(3)
		all("may read no more", 3, ua.StatusBadUserAccessDenied)
		move(4)
		all("nor later", 0, ua.StatusBadUserAccessDenied)
		c.SetRights(address.MayBrowse)
		all("nor when it is said again", 0, ua.StatusBadUserAccessDenied)
		c.SetRights(everyRight)
		all("may read again", 4, ua.StatusGood)
		move(5)
		all("and goes on", 5, ua.StatusGood)
	})
	bubble(t, "5.13.2.1 there is no memory to say so", func(t *testing.T) {
		var told strings.Builder
		account := &tag.Budget{}
		r := newRig(t, Config{Account: account, Log: logTo(&told)})
		v := r.variable(0)
		v.set(1)
		c := r.client()
		sub := c.subscribe(Parameters{})
		c.monitor(sub, plainItem(v, 1))
		account.Limit = account.Used() + 1
		c.SetRights(address.MayBrowse)
		v.set(2)
		c.publish(1)
		sleep(time.Second)
		if got := values(c.take()...); len(got) != 0 || !strings.Contains(told.String(), "disabled") {
			t.Errorf("got %v, log %q", got, told.String())
		}
		account.Limit = 0
	})
}

func logTo(w *strings.Builder) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
