package bench

import (
	"fmt"
	"sync"
	"time"

	"edged/drivers/sim"
	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// plant is a Modbus device on TCP that the gateway polls, with a counter for each node. It runs in the bench's process,
// so that what it answered is known: that, not the gateway, tells what there was to deliver.
type plant struct {
	sim    *sim.Plant
	groups []plantGroup
	index  map[wire.NodeID]int // of a node in told

	mu    sync.Mutex // guards all below
	told  []history
	marks []uint32 // the number that each node was told last when mark was called last
}

// plantGroup is a row of equal counters.
type plantGroup struct {
	group
	first int // index of the first in told
	at    int // its register
	width int // registers of each
}

// history is the numbers that one counter was answered with, as they changed.
type history []uint32

// The device is polled this often in a step of its counters, at most once in leastPoll.
const (
	polls     = 10
	leastPoll = 5 * time.Millisecond
)

// widths are how many registers a value takes.
var widths = map[tag.Kind]int{tag.Int16: 1, tag.Uint16: 1, tag.Int32: 2, tag.Uint32: 2, tag.Int64: 4, tag.Uint64: 4}

// poll is how often the gateway asks: once and no more, where values are to stand still.
func (b *bench) poll(still bool) time.Duration {
	if still {
		return time.Hour
	}
	return max(leastPoll, b.load.watch.pause/polls)
}

// newPlant starts the device.
func (b *bench) newPlant() (*plant, error) {
	p := &plant{index: map[wire.NodeID]int{}}
	for i := range b.nodes {
		p.index[b.nodes[i].id] = i
	}
	cfg := sim.Config{
		Lines:   []sim.LineConfig{{Name: ownDevice, URL: "tcp://127.0.0.1:0"}},
		Devices: []sim.DeviceConfig{{Name: ownDevice, Line: ownDevice, Unit: 1}},
	}
	at, n := 0, 0
	for _, g := range b.groups() {
		width := widths[g.kind]
		p.groups = append(p.groups, plantGroup{g, n, at, width})
		cfg.Devices[0].Points = append(cfg.Devices[0].Points, sim.PointConfig{
			Address: fmt.Sprintf("holding:%d", at), Type: g.typeName(), Repeat: g.count,
			Wave: sim.Wave{Kind: "counter", Every: b.load.watch.pause},
		})
		at, n = at+width*g.count, n+g.count
	}
	if at > 1<<16 {
		return nil, usage("%d values need %d registers, and a Modbus device has %d", n, at, 1<<16)
	}
	p.told = make([]history, n)
	var err error
	if p.sim, err = sim.New(cfg); err != nil {
		return nil, err
	}
	p.sim.OnAnswer = p.answer
	return p, p.sim.Start()
}

// answer notes what an answer tells of the counters.
func (p *plant) answer(a *sim.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.groups {
		first := max(0, (a.Address-g.at+g.width-1)/g.width)
		for i := first; i < g.count; i++ {
			low, ok := a.Register(g.at + i*g.width + g.width - 1)
			if !ok {
				break
			}
			number := uint32(low)
			if g.width > 1 {
				high, ok := a.Register(g.at + i*g.width + g.width - 2)
				if !ok {
					continue
				}
				number |= uint32(high) << 16
			}
			h := &p.told[g.first+i]
			if n := len(*h); n == 0 || (*h)[n-1] != number {
				*h = append(*h, number)
			}
		}
	}
}

// mark remembers how far the counters were told.
func (p *plant) mark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marks = p.marks[:0]
	for _, h := range p.told {
		n := uint32(0)
		if len(h) > 0 {
			n = h[len(h)-1]
		}
		p.marks = append(p.marks, n)
	}
}

// judge compares each item with what its counter was told from the item's first number to its last. An item that has not
// come to the mark is behind.
func (p *plant) judge(k *crew, r *watched) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.received, r.lost = 0, 0
	for _, s := range k.subs {
		for i := range s.items {
			it := &s.items[i]
			at := p.index[s.nodes[i].id]
			n := uint64(between(p.told[at], it.first, it.last))
			r.expected += n
			r.received += uint64(it.count)
			r.lost += max(n, uint64(it.count)) - uint64(it.count)
			if it.last < p.marks[at] {
				r.behind++
			}
		}
	}
	for _, h := range p.told {
		r.writes = max(r.writes, uint64(len(h)))
	}
}

func (p *plant) close() { p.sim.Close() }
