package drivers

import (
	"sync"
	"time"

	"edged/drivers/tag"
)

// State is how a device is.
type State uint8

// The states; their numbers are those of the device's $state node.
const (
	Offline  State = 0 // does not answer, or its line is down
	Online   State = 1
	Degraded State = 2 // answers, but some of its requests fail
)

// String is the state in words.
func (s State) String() string { return [...]string{"offline", "online", "degraded"}[s] }

// DeviceStats is a snapshot of what a device did since start or since its counters were reset.
type DeviceStats struct {
	Name      string
	Bus       string // empty for a device without a line
	State     State
	Disabled  bool
	Requests  uint64
	Errors    uint64
	Faults    [faultKinds]uint64 // Errors by kind
	Samples   uint64
	Overruns  uint64        // scans left out because the one before had not ended
	LastError string        // with the raw code
	Latency   time.Duration // of the last answered request
	LastGood  tag.Time      // when the device last answered
	Identity  Identity      // as the device last told it
	Lost      time.Duration // of its line's time, waiting for answers that did not come or were none
}

// FaultNames are the names of the entries of DeviceStats.Faults.
func FaultNames() []string { return faultNames[:] }

// pollBounds are the upper bounds of the buckets of poll durations, in seconds as Prometheus has them.
var pollBounds = [...]time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second,
	2 * time.Second, 5 * time.Second,
}

// PollBounds are the upper bounds of the buckets of BusStats.Polls; the last bucket has none.
func PollBounds() []time.Duration { return pollBounds[:] }

// BusStats is a snapshot of what a bus did since start.
type BusStats struct {
	Name        string
	Up          bool
	LastError   string
	Polls       [len(pollBounds) + 1]uint64 // exchanges by duration
	PollTime    time.Duration               // sum of all exchanges
	Opened      uint64                      // how often a link was opened
	Commands    uint64
	Overruns    uint64
	Uptime      time.Duration // since Run
	Utilization float64       // share of the last 10 to 20 s that its busiest lane was in an exchange, 0 to 1

	// As Budget predicts it, and as it was in the last 10 to 20 s.
	Predicted Budget
	Cycle     time.Duration // each request of the slowest lane once; 0: there was none
	Wait      time.Duration // the longest that a write waited for the line
}

// deviceStats counts for one device.
type deviceStats struct {
	mu sync.Mutex // guards s
	s  DeviceStats
}

func (d *deviceStats) snapshot() DeviceStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.s
}

func (d *deviceStats) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.s = DeviceStats{Name: d.s.Name, Bus: d.s.Bus, State: d.s.State, Disabled: d.s.Disabled, LastGood: d.s.LastGood,
		Identity: d.s.Identity}
}

// answered counts an exchange that the device answered well.
func (d *deviceStats) answered(took time.Duration, samples int) {
	d.mu.Lock()
	d.s.Requests++
	d.s.Samples += uint64(samples)
	d.s.Latency = took
	d.s.LastGood = tag.Now()
	d.mu.Unlock()
}

// failed counts an exchange that went wrong.
func (d *deviceStats) failed(kind FaultKind, err error) {
	d.mu.Lock()
	d.s.Requests++
	d.s.Errors++
	d.s.Faults[kind]++
	d.s.LastError = err.Error()
	if kind == Refused || kind == Busy {
		d.s.LastGood = tag.Now()
	}
	d.mu.Unlock()
}

// misheard counts what an instrument said and is no reading.
func (d *deviceStats) misheard(f *Fault, n int) {
	d.mu.Lock()
	d.s.Errors += uint64(n)
	d.s.Faults[f.Kind] += uint64(n)
	d.s.LastError = f.Error()
	d.mu.Unlock()
}

// heard counts messages that came unasked.
func (d *deviceStats) heard(messages, samples int) {
	d.mu.Lock()
	d.s.Requests += uint64(messages)
	d.s.Samples += uint64(samples)
	d.s.LastGood = tag.Now()
	d.mu.Unlock()
}

func (d *deviceStats) lost(took time.Duration) {
	d.mu.Lock()
	d.s.Lost += took
	d.mu.Unlock()
}

func (d *deviceStats) overrun(n uint64) {
	d.mu.Lock()
	d.s.Overruns += n
	d.mu.Unlock()
}

// setState reports whether the state changed.
func (d *deviceStats) setState(s State) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.s.State
	d.s.State = s
	return was != s
}

// identify notes what the device says of itself.
func (d *deviceStats) identify(id Identity) {
	d.mu.Lock()
	d.s.Identity = id
	d.mu.Unlock()
}

// executed counts commands of a device without a line.
func (d *deviceStats) executed(n int) {
	d.mu.Lock()
	d.s.Requests += uint64(n)
	d.s.LastGood = tag.Now()
	d.mu.Unlock()
}
