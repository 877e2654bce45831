package subscription

import (
	"testing"
	"time"

	"edged/drivers/tag"
)

// TestServerTimestamp of Part 4, 7.11.4: when the server received a value, or last knew it to be accurate.
func TestServerTimestamp(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*ItemRequest)
	}{
		{"a cursor", func(*ItemRequest) {}},
		{"a queue of its own", func(r *ItemRequest) { r.Oldest = false }},
		{"a sampled one", func(r *ItemRequest) { r.Sampling = 50 }},
	} {
		bubble(t, row.name, func(t *testing.T) {
			r := newRig(t, Config{})
			v := r.variable(0)
			v.set(1)
			changed := time.Now()
			time.Sleep(time.Hour)
			v.series.Verify(tag.Now())
			verified := time.Now()
			time.Sleep(time.Second)
			c := r.client()
			sub := c.subscribe(Parameters{Publishing: 100})
			item := plainItem(v, 5)
			row.change(&item)
			c.monitor(sub, item)
			c.publish(2)
			sleep(ms(100))
			first := c.one()
			if got := first.items()[0].Value; !got.SourceTimestamp.Equal(changed) || !got.ServerTimestamp.Equal(verified) {
				t.Errorf("initial value: changed %v, known %v; want %v and %v", got.SourceTimestamp, got.ServerTimestamp, changed, verified)
			}
			v.set(2)
			received := time.Now()
			sleep(ms(100))
			second := c.one()
			if got := second.items()[0].Value; !got.ServerTimestamp.Equal(received) {
				t.Errorf("a change: %v, want %v", got.ServerTimestamp, received)
			}
		})
	}
}
