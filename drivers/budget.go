package drivers

import (
	"cmp"
	"slices"
	"time"

	"edged/drivers/tag"
)

// Exchange is what one request takes on its line.
type Exchange struct {
	Takes   time.Duration // answered at once: characters both ways, and the silences between frames
	Fails   time.Duration // not answered: until the time-out, and the silence behind it
	Assumed bool          // Takes is what is usual, since no line's bit time tells
}

// Priced is a Driver that knows what its requests take, without asking its device.
type Priced interface {
	Driver
	// Exchange is what a request takes, by its number.
	Exchange(request int) Exchange
	// Reads lists the tags that a request reads.
	Reads(request int) []tag.Ref
}

// Budget is how the time of a line is spent if every device answers at once, and what it means when one does not.
type Budget struct {
	Requests int           // all requests of the line's devices
	Load     float64       // share of its time that the busiest lane needs; above 1: over-booked
	Cycle    time.Duration // each request of the busiest lane once
	Wait     time.Duration // the longest that a write waits for the line: the exchange in flight
	Assumed  bool          // bit times do not tell: the exchange of a TCP device is taken for AssumedExchange

	// The same with the dearest device silent, once its back-off has grown, and in its first time-outs.
	LoadSilent  float64
	CycleSilent time.Duration
	WaitSilent  time.Duration

	Devices []DeviceBudget // in the order of the line
	Loads   []Load         // of the busiest lane, the heaviest first
}

// DeviceBudget is one device's part of a Budget.
type DeviceBudget struct {
	Device string
	Load   float64       // share of its lane's time
	Silent float64       // share that it costs the others when it is silent and its back-off has grown
	First  time.Duration // what it costs them when it falls silent
}

// Load is one request's part of a Budget.
type Load struct {
	Device string
	Tags   []tag.Ref
	Period time.Duration
	Share  float64
}

// AssumedExchange is what an exchange over a network is taken to take: no bit time tells.
const AssumedExchange = 5 * time.Millisecond

// price is one request as a budget counts it.
type price struct {
	Exchange
	period time.Duration
	tags   []tag.Ref
}

// prices are the requests of a driver, or nil of one that does not know what they take.
func prices(d Driver) []price {
	p, ok := d.(Priced)
	if !ok {
		return nil
	}
	var out []price
	for scan, period := range d.Scans() {
		for _, request := range d.Requests(scan) {
			out = append(out, price{p.Exchange(request), max(period, minPeriod), p.Reads(request)})
		}
	}
	return out
}

// share of a lane's time.
func (p *price) share() float64 { return float64(p.Takes) / float64(p.period) }

// silentShare is what a silent device costs its line in the long run: one time-out a back-off.
func silentShare(fails time.Duration) float64 {
	if fails <= 0 {
		return 0
	}
	return float64(fails) / float64(fails+min(max(mostBackoff, patience*fails), farBackoff))
}

// BudgetOf computes the budget of a bus and its devices, before they run. Devices that do not know what their requests
// take are left out.
func BudgetOf(bus *BusConfig, devices []DeviceConfig) Budget {
	lanes := make([][]*device, max(1, len(bus.Links)))
	n := 0
	for i := range devices {
		if devices[i].Bus == bus.Name && devices[i].Driver != nil {
			lanes[n%len(lanes)] = append(lanes[n%len(lanes)], &device{cfg: devices[i], prices: prices(devices[i].Driver)})
			n++
		}
	}
	return budgetOf(lanes, bus.Retries)
}

// budgetOf adds up the lanes of a bus.
func budgetOf(lanes [][]*device, retries int) (b Budget) {
	for _, devices := range lanes {
		l := laneBudget(devices, retries)
		b.Requests += l.Requests
		b.Devices = append(b.Devices, l.Devices...)
		b.Assumed = b.Assumed || l.Assumed
		b.Wait, b.WaitSilent = max(b.Wait, l.Wait), max(b.WaitSilent, l.WaitSilent)
		b.LoadSilent, b.CycleSilent = max(b.LoadSilent, l.LoadSilent), max(b.CycleSilent, l.CycleSilent)
		if b.Loads == nil || l.Load > b.Load {
			b.Load, b.Cycle, b.Loads = l.Load, l.Cycle, l.Loads
		}
	}
	return b
}

func laneBudget(devices []*device, retries int) (b Budget) {
	for _, d := range devices {
		own, fails := DeviceBudget{Device: d.cfg.Name}, time.Duration(0)
		for i := range d.prices {
			p := &d.prices[i]
			b.Requests++
			b.Cycle += p.Takes
			b.Wait, b.WaitSilent, fails = max(b.Wait, p.Takes), max(b.WaitSilent, p.Fails), max(fails, p.Fails)
			b.Assumed = b.Assumed || p.Assumed
			own.Load += p.share()
			b.Loads = append(b.Loads, Load{d.cfg.Name, p.tags, p.period, p.share()})
		}
		own.Silent, own.First = silentShare(fails), time.Duration(retries+1)*fails
		b.Load += own.Load
		b.Devices = append(b.Devices, own)
	}
	for i := range b.Devices {
		d := &b.Devices[i]
		b.LoadSilent = max(b.LoadSilent, b.Load-d.Load+d.Silent)
		b.CycleSilent = max(b.CycleSilent, b.Cycle+d.First)
	}
	slices.SortStableFunc(b.Loads, func(x, y Load) int { return cmp.Compare(y.Share, x.Share) })
	return b
}

// mostBlamed is how many requests an over-booked line is blamed on at most.
const mostBlamed = 5

// Blame lists the requests that an over-booked line would have to lose, the heaviest first; nil for a line that has time
// for all.
func (b *Budget) Blame() []Load {
	over, n := b.Load-1, 0
	for over > 0 && n < min(len(b.Loads), mostBlamed) {
		over -= b.Loads[n].Share
		n++
	}
	return b.Loads[:n]
}
