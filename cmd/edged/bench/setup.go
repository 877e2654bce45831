package bench

import (
	"math"
	"sync"
	"time"
)

// setup is what the sessions and their items cost to make.
type setup struct{ sessions, items gauge }

// gauge measures n equal things as they are made.
type gauge struct {
	n     int
	probe *probe

	start, stop, early, late sample
	earlyN, lateN            int
	begun, ended             time.Time

	mu    sync.Mutex // guards all below, and early and late
	made  int
	marks int
}

func (g *gauge) begin() {
	g.start.process(g.probe.pid)
	g.begun = time.Now()
}

// done counts some that were made. After the first and before the last tenth it looks at the cost.
func (g *gauge) done(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made += n
	if g.marks == 0 && g.made >= g.n/10 {
		g.marks = 1
		g.early.process(g.probe.pid)
		g.earlyN = g.made
	}
	if g.marks == 1 && g.made >= g.n-g.n/10 {
		g.marks = 2
		g.late.process(g.probe.pid)
		g.lateN = g.made
	}
}

func (g *gauge) end() {
	g.ended = time.Now()
	g.stop.process(g.probe.pid)
}

// rate is how many were made a second.
func (g *gauge) rate() float64 { return float64(g.made) / g.ended.Sub(g.begun).Seconds() }

// cpu is the server's CPU time of each, in microseconds; early and late are those of the first and of the last tenth.
func (g *gauge) cpu() float64 { return (g.stop.cpu - g.start.cpu) * 1e6 / float64(g.made) }

func (g *gauge) earlyCPU() float64 { return (g.early.cpu - g.start.cpu) * 1e6 / float64(g.earlyN) }

func (g *gauge) lateCPU() float64 {
	if g.made == g.lateN {
		return math.NaN()
	}
	return (g.stop.cpu - g.late.cpu) * 1e6 / float64(g.made-g.lateN)
}

// client is the bench's own CPU time of each.
func (g *gauge) client() float64 { return (g.stop.client - g.start.client) * 1e6 / float64(g.made) }

// memory is what each added to the server's, in KiB.
func (g *gauge) memory() float64 { return (g.stop.rss - g.start.rss) / 1024 / float64(g.made) }
