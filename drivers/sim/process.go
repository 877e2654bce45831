package sim

import (
	"fmt"
	"math"
	"time"

	"edged/drivers/tag"
)

// process is a second-order system that follows a set point: y" + 2 damping omega y' + omega^2 (y - gain u - offset) = 0. Its
// course since the set point last changed is a formula, so that it costs nothing while nobody looks.
type process struct {
	bank         Bank
	address      uint32 // of the set point
	gain, offset float64
	omega        float64 // 2 pi / period, per second
	damping      float64

	// Guarded by the device's mu.
	since time.Duration // when the set point changed last
	goal  float64       // gain u + offset
	e, v  float64       // distance from the goal, and speed per second, at since
}

func newProcess(c *Wave) (*process, error) {
	bank, address, err := parseAddress(c.Of)
	if err != nil {
		return nil, fmt.Errorf("of: %w", err)
	}
	p := &process{bank: bank, address: address, gain: c.Gain, offset: c.Offset, damping: c.Damping}
	if p.gain == 0 {
		p.gain = 1
	}
	if p.damping == 0 {
		p.damping = 0.7
	}
	period := c.Period
	if period == 0 {
		period = 10 * time.Second
	}
	if p.damping < 0 || period < 0 {
		return nil, fmt.Errorf("damping %v, period %v: give numbers above 0", c.Damping, c.Period)
	}
	p.omega = 2 * math.Pi / period.Seconds()
	p.goal = c.Min
	return p, nil
}

// at is the process's value, and its speed per second.
func (p *process) at(elapsed time.Duration) (y, v float64) {
	t := max(0, (elapsed - p.since).Seconds())
	decay := p.damping * p.omega
	switch d := p.damping*p.damping - 1; {
	case d < 0: // swings
		w := p.omega * math.Sqrt(-d)
		a, b := p.e, (p.v+decay*p.e)/w
		sin, cos := math.Sincos(w * t)
		f := math.Exp(-decay * t)
		e := f * (a*cos + b*sin)
		return p.goal + e, f*w*(b*cos-a*sin) - decay*e
	case d == 0:
		b := p.v + p.omega*p.e
		f := math.Exp(-p.omega * t)
		return p.goal + f*(p.e+b*t), f * (b - p.omega*(p.e+b*t))
	default: // creeps
		r := p.omega * math.Sqrt(d)
		s1, s2 := r-decay, -r-decay
		a := (p.v - s2*p.e) / (s1 - s2)
		f1, f2 := a*math.Exp(s1*t), (p.e-a)*math.Exp(s2*t)
		return p.goal + f1 + f2, s1*f1 + s2*f2
	}
}

// follow notes the set point as it is now.
func (p *process) follow(d *Device, elapsed time.Duration) {
	b := d.banks[p.bank]
	i := b.find(p.address)
	if i == len(b) || b[i].start > p.address {
		return
	}
	u, ok := b[i].value(int(p.address-b[i].start)/b[i].width, elapsed).Float()
	goal := p.gain*u + p.offset
	if !ok || goal == p.goal {
		return
	}
	y, v := p.at(elapsed)
	p.since, p.goal, p.e, p.v = elapsed, goal, y-goal, v
}

// wrote has the processes of the device follow what was written. d.mu is held.
func (d *Device) wrote() {
	elapsed := d.plant.elapsed()
	for _, p := range d.processes {
		p.follow(d, elapsed)
	}
}

// clamp keeps a value within what its kind holds.
func clamp(kind tag.Kind, v float64) float64 {
	l := kindLimits[kind]
	return min(max(v, l[0]), l[1])
}
