package sim

import (
	"slices"
	"sync"
	"time"

	"edged/drivers/tag"
)

// Device is one simulated device. Its methods are safe for concurrent use.
type Device struct {
	name     string
	unit     byte
	plant    *Plant
	delay    time.Duration
	maxRegs  int // of one request
	maxBits  int
	allowed  [functionCodes]bool
	identity []string
	quirks   Quirks

	mu        sync.Mutex // guards last: a request sees all of another or nothing of it
	banks     [4]bank
	processes []*process
	rules     []*rule
	writes    []Write
	dropped   int // writes older than those kept
	asked     uint64
}

func newDevice(p *Plant, c *DeviceConfig) *Device {
	d := &Device{name: c.Name, unit: byte(c.Unit), plant: p, delay: c.Delay, maxRegs: c.MaxRegisters, maxBits: c.MaxBits,
		identity: slices.Clone(c.Identity), quirks: c.Quirks}
	if d.maxRegs == 0 {
		d.maxRegs = maxReadRegisters
	}
	if d.maxBits == 0 {
		d.maxBits = maxReadBits
	}
	for f := range d.allowed {
		d.allowed[f] = functions[f].parse != nil && (len(c.Functions) == 0 || slices.Contains(c.Functions, f))
	}
	for i := range c.Points {
		pt, _, _ := newPoint(&c.Points[i]) // Problems has checked it
		d.banks[pt.bank] = append(d.banks[pt.bank], pt)
		if pt.wave.process != nil {
			d.processes = append(d.processes, pt.wave.process)
		}
	}
	for _, b := range d.banks {
		slices.SortFunc(b, func(x, y point) int { return int(x.start) - int(y.start) })
	}
	for _, p := range d.processes {
		p.follow(d, 0)
	}
	for _, f := range c.Faults {
		d.rules = append(d.rules, &rule{Fault: f})
	}
	return d
}

// Name is the device's name.
func (d *Device) Name() string { return d.name }

// Unit is the device's unit id.
func (d *Device) Unit() int { return int(d.unit) }

// Requests is how many requests reached the device, muted ones too.
func (d *Device) Requests() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// Value is the value that begins at an address, and null where none does.
func (d *Device) Value(bank Bank, address int) tag.Value {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, at := d.banks[bank], uint32(address)
	if i := b.find(at); i < len(b) && b[i].start <= at && int(at-b[i].start)%b[i].width == 0 {
		return b[i].value(int(at-b[i].start)/b[i].width, d.plant.elapsed())
	}
	return tag.Value{}
}

// Set stores registers, or bits as 0 and 1, from an address on, as if the process had changed them: points with a wave
// and addresses that do not exist are left out. It is not in the write log.
func (d *Device) Set(bank Bank, address int, cells ...uint16) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.banks[bank]
	for n, v := range cells {
		at := uint32(address + n)
		if i := b.find(at); i < len(b) && b[i].start <= at && b[i].cells != nil {
			b[i].cells[at-b[i].start] = v
		}
	}
	d.wrote()
}

// elapsed is the time that the waves have run.
func (p *Plant) elapsed() time.Duration { return time.Since(p.epoch) }
