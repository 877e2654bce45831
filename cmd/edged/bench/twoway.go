package bench

import (
	"fmt"
	"time"

	"edged/drivers/tag"
)

// The texts of two-way: so many change at either side in a step, some at each tick.
const (
	twoWayObjects = 20_000
	twoWaySubs    = 41
)

// plan sets how many nodes there are, by Config's Count or Scale.
func (w *watching) plan(c *Config) {
	n := c.Count
	if n == 0 {
		n = int(twoWayObjects*min(1, c.Scale) + 0.5)
	}
	n = max(1, n/ticks) * ticks
	w.objects = n
	w.subscriptions = min(twoWaySubs, 2*n)
	w.items = (2*n + w.subscriptions - 1) / w.subscriptions
	c.Sessions, c.Count = 1, n
	if c.Warmup > 0 {
		c.Warmup = max(c.Warmup, 2*w.pause) // by then every text moves
	}
}

// groups are the nodes: those that the server changes, in ticks, and those that the client does.
func (w *watching) groups() []group {
	var out []group
	every := w.pause / ticks
	for i := range ticks {
		out = append(out, group{
			kind: tag.String, count: w.objects / ticks, label: fmt.Sprintf("first%d", i),
			wave: fmt.Sprintf("{kind: text, every: %v, phase: %v}", w.pause, time.Duration(i)*every),
		})
	}
	return append(out, group{kind: tag.String, count: w.objects, label: "last"})
}
