// Package sim is a simulated plant: Modbus devices with waveforms and faults, on TCP sockets and on serial lines.
// It hides registers, framing and misbehaviour behind names, so that a test says what a device does and reads what it said.
package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Plant is a set of lines and the devices on them. Its values are functions of the time since New, computed when they
// are asked for, so that a test can tell what a register held at any moment.
type Plant struct {
	// OnAnswer hears each answer just before it is sent; it is set before Start. The answer is valid until it returns.
	// The lines call it at the same time.
	OnAnswer func(*Answer)

	epoch       time.Time
	lines       []*Line
	devices     []*Device
	instruments []*Instrument
	done        chan struct{}  // closed by Close
	wg          sync.WaitGroup // every goroutine of the plant

	mu     sync.Mutex // guards last
	closed bool
}

// New makes the plant that cfg describes. It opens nothing. The error tells every mistake in cfg.
func New(cfg Config) (*Plant, error) {
	var errs []error
	for _, p := range cfg.Problems() {
		errs = append(errs, fmt.Errorf("%s: %s", p.Path, p.Text))
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	p := &Plant{epoch: time.Now(), done: make(chan struct{})}
	byName := make(map[string]*Line, len(cfg.Lines))
	for i := range cfg.Lines {
		l := newLine(p, &cfg.Lines[i])
		byName[l.name] = l
		p.lines = append(p.lines, l)
	}
	for i := range cfg.Devices {
		c := &cfg.Devices[i]
		d := newDevice(p, c)
		p.devices = append(p.devices, d)
		byName[c.Line].units[c.Unit] = d
	}
	for i := range cfg.Instruments {
		n := newInstrument(p, &cfg.Instruments[i])
		p.instruments = append(p.instruments, n)
		byName[n.cfg.Line].instrument = n
	}
	return p, nil
}

// Instrument finds an instrument by its name, or returns nil.
func (p *Plant) Instrument(name string) *Instrument {
	for _, i := range p.instruments {
		if i.cfg.Name == name {
			return i
		}
	}
	return nil
}

// Start opens every line and returns; the devices answer until Close.
func (p *Plant) Start() error {
	for _, l := range p.lines {
		if err := l.Up(); err != nil {
			p.Close()
			return err
		}
	}
	return nil
}

// Run opens every line and serves until ctx is done. An end by ctx is no error.
func (p *Plant) Run(ctx context.Context) error {
	if err := p.Start(); err != nil {
		return err
	}
	<-ctx.Done()
	p.Close()
	return nil
}

// Close ends every connection, removes what Start made, and returns when no goroutine of the plant is left.
func (p *Plant) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.done)
	}
	p.mu.Unlock()
	for _, l := range p.lines {
		l.Down()
	}
	p.wg.Wait()
	return nil
}

// Line finds a line by its name, or returns nil.
func (p *Plant) Line(name string) *Line {
	for _, l := range p.lines {
		if l.name == name {
			return l
		}
	}
	return nil
}

// Lines lists the lines as configured.
func (p *Plant) Lines() []*Line { return p.lines }

// Device finds a device by its name, or returns nil.
func (p *Plant) Device(name string) *Device {
	for _, d := range p.devices {
		if d.name == name {
			return d
		}
	}
	return nil
}

// Devices lists the devices as configured.
func (p *Plant) Devices() []*Device { return p.devices }

// Epoch is when the waves began: a counter that steps each 100 ms holds 10 one second after it.
func (p *Plant) Epoch() time.Time { return p.epoch }

// join starts f in a goroutine that Close waits for. It reports false when the plant is closed.
func (p *Plant) join(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.wg.Go(f)
	return true
}

// pause waits for d, or until the plant is closed, which it reports as false.
func (p *Plant) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.done:
		return false
	}
}

// isTimeout reports whether err is the end of a read deadline.
func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
