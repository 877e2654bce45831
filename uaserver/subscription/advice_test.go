package subscription

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
)

// logged is an engine's log, a line each.
type logged struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines are those since the last call.
func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(l.text.String())
	l.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// advised is the only advice to the client.
func (c *tester) advised() Advice {
	c.Helper()
	c.Client.mu.Lock()
	defer c.Client.mu.Unlock()
	all := c.Client.advice(nil)
	if len(all) != 1 {
		c.Fatalf("%d pieces of advice, want one: %v", len(all), all)
	}
	return all[0]
}

// TestAdvice: each kind of loss has its sentence, with the numbers that end it.
func TestAdvice(t *testing.T) {
	fives := func(c *tester, v *variable, seconds int) { // 5 changes a second
		for i := range seconds {
			for k := range 5 {
				v.set(int64(10*i + k))
				time.Sleep(ms(200))
			}
		}
	}
	rows := []struct {
		kind string
		cfg  Config
		p    Parameters
		item func(i *ItemRequest)
		do   func(c *tester, v *variable, sub uint32)
		lost uint64
		want string
	}{
		{"queue_of_one", Config{}, Parameters{Publishing: 1000}, func(i *ItemRequest) { i.Queue = 1 },
			func(c *tester, v *variable, _ uint32) { c.publish(9); fives(c, v, 3) }, 12,
			"client scada-2, queue 1, publishes every 1 s, boiler.temperature changes 5/s: queue 6 holds it"},
		{"queue", Config{}, Parameters{Publishing: 1000}, func(i *ItemRequest) { i.Queue = 3 },
			func(c *tester, v *variable, _ uint32) { c.publish(9); fives(c, v, 3) }, 6,
			"client scada-2, queue 3, publishes every 1 s, boiler.temperature changes 5/s: queue 6 holds it"},
		{"queue", Config{}, Parameters{Publishing: 1000}, func(i *ItemRequest) { i.Queue, i.Oldest = 3, false },
			func(c *tester, v *variable, _ uint32) { c.publish(9); fives(c, v, 3) }, 6,
			"client scada-2, queue 3, publishes every 1 s, boiler.temperature changes 5/s: queue 6 holds it"},
		{"queue", Config{Queue: 4}, Parameters{Publishing: 1000}, func(i *ItemRequest) { i.Queue = 100 },
			func(c *tester, v *variable, _ uint32) { c.publish(9); fives(c, v, 3) }, 3,
			"queue 6 holds it, but limits.queue is 4: publish more often"},
		{"queue", Config{}, Parameters{Publishing: 1000}, func(i *ItemRequest) { i.Queue = 3 },
			func(c *tester, v *variable, sub uint32) {
				c.publish(9)
				c.SetPublishing([]uint32{sub}, false, make([]ua.StatusCode, 1))
				fives(c, v, 4)
				c.SetPublishing([]uint32{sub}, true, make([]ua.StatusCode, 1))
				sleep(time.Second)
			}, 17,
			"client scada-2, queue 3, switched publishing off for 5 s: queue 21 for boiler.temperature holds so long"},
		{"requests", Config{}, Parameters{Publishing: 1000, Lifetime: 100}, func(i *ItemRequest) { i.Queue = 6 },
			func(c *tester, v *variable, _ uint32) {
				c.publish(1)
				fives(c, v, 4)
				sleep(ms(100))
				c.publish(1)
				sleep(time.Second)
			}, 9,
			"client scada-2, subscription ID publishes every 1 s and had no Publish request for 2.15 s: keep at least 2 waiting for " +
				"1 subscriptions; queue 16 for boiler.temperature, now 6, rides out such a gap"},
		{"acknowledgements", Config{Held: 10}, Parameters{}, func(i *ItemRequest) { i.Queue = 6 },
			func(c *tester, v *variable, _ uint32) { c.publish(20); fives(c, v, 3) }, 5,
			"client scada-2, subscription ID: 10 messages are not acknowledged, of at most 10 that are kept for Republish: " +
				"acknowledge each with the next Publish request"},
		{"memory", Config{Account: &tag.Budget{Limit: 700}}, Parameters{}, func(i *ItemRequest) { i.Queue = 6 },
			func(c *tester, v *variable, _ uint32) { c.publish(20); fives(c, v, 3) }, 13,
			"client scada-2, subscription ID: no memory is left to keep messages for Republish, of which 2 are not acknowledged: " +
				"acknowledge each with the next Publish request, or raise limits.memory"},
		{"lifetime", Config{}, Parameters{Publishing: 1000, KeepAlive: 1, Lifetime: 3}, func(i *ItemRequest) { i.Queue = 100 },
			func(c *tester, v *variable, _ uint32) { fives(c, v, 3); sleep(time.Second) }, 15,
			"client scada-2, subscription ID ended after 3 s without a Publish request, with 15 notifications waiting: " +
				"ask for a longer lifetime, or come back sooner"},
	}
	for _, row := range rows {
		bubble(t, row.kind, func(t *testing.T) {
			var log logged
			row.cfg.Log = log.logger()
			r := newRig(t, row.cfg)
			v := r.variable(0)
			v.node.ID.Type, v.node.ID.Str = 1, "boiler.temperature"
			c := r.client()
			c.SetName("scada-2")
			sub := c.subscribe(row.p)
			item := plainItem(v, 1)
			row.item(&item)
			c.monitor(sub, item)
			sleep(ms(50)) // no change at a tick
			row.do(c, v, sub)
			got := c.advised()
			want := strings.ReplaceAll(row.want, "ID", fmt.Sprint(sub))
			if got.Kind != row.kind || got.Lost != row.lost || !strings.HasSuffix(got.Text, want) {
				t.Fatalf("%s, %d lost: %s\nwant %s, %d: %s", got.Kind, got.Lost, got.Text, row.kind, row.lost, want)
			}
			var told int
			for _, line := range log.lines() {
				if strings.Contains(line, "kind="+row.kind) && strings.Contains(line, "client=scada-2") && strings.Contains(line, "advice=") {
					told++
				}
			}
			if told != 1 {
				t.Errorf("%d lines in the log, want one", told)
			}
		})
	}
}

// TestLossIsToldAsAState: a loss that goes on is one line, however long; its end is one more.
func TestLossIsToldAsAState(t *testing.T) {
	bubble(t, "begins, goes on, ends, begins again", func(t *testing.T) {
		var log logged
		r := newRig(t, Config{Log: log.logger(), Shards: 1})
		c := r.client()
		sub := c.subscribe(Parameters{Publishing: 1000, Lifetime: 10_000})
		var reqs []ItemRequest
		for range 500 { // H5: many items do not flood the log
			reqs = append(reqs, plainItem(r.variable(0), 2))
		}
		c.monitor(sub, reqs...)
		c.publish(100)
		lose := func(seconds int) {
			for i := range seconds {
				for _, v := range r.vars {
					v.set(1, 2, 3, int64(i))
				}
				sleep(time.Second)
				c.publish(len(c.take()), Ack{sub, uint32(i + 1)})
			}
		}
		lose(120)
		if got := log.lines(); len(got) != 1 {
			t.Fatalf("two minutes of losses: %d lines\n%s", len(got), strings.Join(got, "\n"))
		}
		sleep(59 * time.Second)
		if got := log.lines(); len(got) != 0 {
			t.Fatalf("not over yet: %s", got)
		}
		sleep(3 * time.Second)
		got := log.lines()
		if len(got) != 1 || !strings.Contains(got[0], "no notification was lost for a minute") || !strings.Contains(got[0], "lost=120000") {
			t.Fatalf("over: %s", got)
		}
		lose(2)
		if got := log.lines(); len(got) != 1 {
			t.Fatalf("again: %s", got)
		}
	})
	bubble(t, "H5 many clients do not flood the log", func(t *testing.T) {
		var log logged
		r := newRig(t, Config{Log: log.logger(), Shards: 1})
		v := r.variable(0)
		for range 100 {
			c := r.client()
			c.monitor(c.subscribe(Parameters{Lifetime: 100_000, Publishing: 1000}), plainItem(v, 2))
			c.publish(100)
		}
		for range 70 {
			v.set(1, 2, 3)
			sleep(time.Second)
		}
		got := log.lines()
		if len(got) != tellLines+1 || !strings.Contains(got[tellLines], "lines=80") {
			t.Fatalf("%d lines, the last: %s", len(got), got[len(got)-1])
		}
	})
}

// TestSamplingOnly: an item that only samples keeps the last values for what triggers it; that older ones give way is
// counted, and nobody is advised against it (Part 4, 5.13.1.6).
func TestSamplingOnly(t *testing.T) {
	for _, oldest := range []bool{true, false} { // a cursor, and a queue of its own
		bubble(t, fmt.Sprintf("oldest %v", oldest), func(t *testing.T) {
			r := newRig(t, Config{})
			v := r.variable(0)
			c := r.client()
			item := plainItem(v, 3)
			item.Oldest, item.Mode = oldest, ua.MonitoringModeSampling
			sub := c.subscribe(Parameters{Publishing: 1000, KeepAlive: 1000, Lifetime: 3000})
			c.monitor(sub, item)
			c.publish(2)
			for i := range 100 {
				v.set(int64(i))
				time.Sleep(ms(200))
			}
			report := r.engine.Report(10)
			if report.Overflowed != 97 && report.Overflowed != 98 || report.Waiting != 3 {
				t.Errorf("%v", &report.Counts)
			}
			if len(report.Advice) != 0 || report.Short != 0 {
				t.Errorf("advice %v, %d items too short, for an item that does not report", report.Advice, report.Short)
			}
		})
	}
}
