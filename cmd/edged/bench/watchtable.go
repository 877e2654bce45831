package bench

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"
)

// setupColumns are what sessions and items cost to make. A session is counted with its connection, its channel and its
// Subscriptions; early and late are the first and the last tenth.
var setupColumns = []column[*setup]{
	{name: "sessions", of: func(u *setup) float64 { return float64(u.sessions.made) }},
	{name: "sessions/s", of: func(u *setup) float64 { return u.sessions.rate() }},
	{name: "cpu_us/session", decimals: 1, of: func(u *setup) float64 { return u.sessions.cpu() }},
	{name: "early", decimals: 1, of: func(u *setup) float64 { return u.sessions.earlyCPU() }},
	{name: "late", decimals: 1, of: func(u *setup) float64 { return u.sessions.lateCPU() }},
	{name: "client_us/session", decimals: 1, of: func(u *setup) float64 { return u.sessions.client() }},
	{name: "KiB/session", decimals: 2, of: func(u *setup) float64 { return u.sessions.memory() }},
	{name: "items", of: func(u *setup) float64 { return float64(u.items.made) }},
	{name: "items/s", of: func(u *setup) float64 { return u.items.rate() }},
	{name: "cpu_us/item", decimals: 3, of: func(u *setup) float64 { return u.items.cpu() }},
	{name: "early_item", decimals: 3, of: func(u *setup) float64 { return u.items.earlyCPU() }},
	{name: "late_item", decimals: 3, of: func(u *setup) float64 { return u.items.lateCPU() }},
	{name: "KiB/item", decimals: 3, of: func(u *setup) float64 { return u.items.memory() }},
}

func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func delayMillis(q float64) func(*watched) float64 {
	return func(r *watched) float64 { return millis(r.window.delay.quantile(q)) }
}

func average(total time.Duration, n uint64) float64 {
	if n == 0 {
		return math.NaN()
	}
	return millis(total) / float64(n)
}

// back is a column about the way from the client to the server.
func back(f func(r *watched) float64) func(r *watched) float64 {
	return func(r *watched) float64 { return orNaN(f(r), r.twoWay) }
}

// per divides by the notifications that were counted while the cost was measured.
func per(f func(r *watched) float64) func(r *watched) float64 {
	return func(r *watched) float64 { return f(r) / float64(r.counted) }
}

// watchColumns are what notifications cost, and what became of them. Delays are from the SourceTimestamp to the arrival.
var watchColumns = []column[*watched]{
	{name: "writes/s", decimals: 2, optional: true, of: func(r *watched) float64 { return orNaN(float64(r.writes)/r.seconds, r.writes > 0) }},
	{name: "expected", of: func(r *watched) float64 { return float64(r.expected) }},
	{name: "received", of: func(r *watched) float64 { return float64(r.received) }},
	{name: "received_%", decimals: 3, of: func(r *watched) float64 { return float64(r.received) * 100 / float64(r.expected) }},
	{name: "notif/s", of: func(r *watched) float64 { return float64(r.counted) / r.seconds }},
	{name: "overwritten", of: func(r *watched) float64 { return float64(r.lost) }},
	{name: "behind", of: func(r *watched) float64 { return float64(r.behind) }},
	{name: "overflow", of: func(r *watched) float64 { return float64(r.overflow) }},
	{name: "ledger", of: (*watched).ledger},
	{name: "unaccounted", of: func(r *watched) float64 { return r.final.unaccounted }},
	{name: "errors", total: true, of: func(r *watched) float64 { return float64(r.errors) }},
	{name: "drain_s", decimals: 2, of: func(r *watched) float64 { return r.drain.Seconds() }},
	{name: "avg_ms", decimals: 1, of: func(r *watched) float64 { return average(r.window.total, r.window.delay.sum) }},
	{name: "p50_ms", decimals: 1, of: delayMillis(0.5)},
	{name: "p90_ms", decimals: 1, of: delayMillis(0.9)},
	{name: "p99_ms", decimals: 1, of: delayMillis(0.99)},
	{name: "p99.9_ms", decimals: 1, of: delayMillis(0.999)},
	{name: "max_ms", decimals: 1, of: func(r *watched) float64 { return millis(r.window.delay.max) }},
	{name: "back", optional: true, of: back(func(r *watched) float64 { return float64(r.writes) })},
	{name: "back_avg_ms", decimals: 1, optional: true, of: back(func(r *watched) float64 { return average(r.backSum, r.back.sum) })},
	{name: "back_p50_ms", decimals: 1, optional: true, of: back(func(r *watched) float64 { return millis(r.back.quantile(0.5)) })},
	{name: "back_p99_ms", decimals: 1, optional: true, of: back(func(r *watched) float64 { return millis(r.back.quantile(0.99)) })},
	{name: "back_max_ms", decimals: 1, optional: true, of: back(func(r *watched) float64 { return millis(r.back.max) })},
	{name: "cpu_us/notif", decimals: 4, of: per(func(r *watched) float64 { return (r.after.cpu - r.before.cpu) * 1e6 })},
	{name: "client_us/notif", decimals: 4, of: per(func(r *watched) float64 { return (r.after.client - r.before.client) * 1e6 })},
	{name: "alloc_B/notif", decimals: 3, of: per(func(r *watched) float64 { return max(0, r.after.alloc-r.before.alloc) })},
	{name: "alloc_MB/s", decimals: 2, of: func(r *watched) float64 { return max(0, r.after.alloc-r.before.alloc) / 1e6 / r.seconds }},
	{name: "rss_MiB", decimals: 1, of: func(r *watched) float64 { return r.after.rss / (1 << 20) }},
	{name: "gc", of: func(r *watched) float64 { return r.after.gc - r.before.gc }},
	{name: "gc_pause_ms", decimals: 2, of: func(r *watched) float64 { return (r.after.pause - r.before.pause) * 1e3 }},
}

// watchRounds runs all rounds of a workload of subscriptions. A round that misses its gate is an error.
func (b *bench) watchRounds(ctx context.Context) error {
	made := &table[*setup]{out: b.cfg.Out, json: b.cfg.JSON, heading: b.heading(), facts: append(b.facts(), fact{"part", "set-up"}), columns: setupColumns}
	t := &table[*watched]{out: b.cfg.Out, json: b.cfg.JSON, facts: b.facts(), columns: watchColumns}
	missed := ""
	for i := range b.cfg.Rounds {
		u, r, err := b.watchRound(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		made.row("set-up", u)
		t.row(strconv.Itoa(i+1), r)
		if reason := b.load.watch.judge(r); reason != "" && missed == "" {
			missed = fmt.Sprintf("round %d: %s", i+1, reason)
		}
	}
	verdict := "PASS"
	if missed != "" {
		verdict = "FAIL"
	}
	t.end(verdict, b.load.gate)
	if missed != "" {
		return fmt.Errorf("%s: %s", b.load.name, missed)
	}
	return nil
}
