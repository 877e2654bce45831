package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"edged/drivers"
	"edged/drivers/modbus"
	"edged/drivers/tag"
)

// What a line that is over-booked is worth.
const (
	overbookRefuse = "refuse"
	overbookWarn   = "warn"
)

// budget computes how the time of a bus is spent. The drivers are made for it and thrown away.
func (s *site) budget(b *busSettings) drivers.Budget {
	links := newLinks(b)
	var devices []drivers.DeviceConfig
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Bus != b.Name || d.Modbus == nil {
			continue
		}
		if driver, err := modbus.New(*d.Modbus, links.modbus...); err == nil { // an error is told by whoever makes it to use it
			devices = append(devices, drivers.DeviceConfig{Name: d.Name, Bus: d.Bus, Driver: driver})
		}
	}
	return drivers.BudgetOf(&drivers.BusConfig{Name: b.Name, Links: links.all(), Retries: b.Retries}, devices)
}

// checkBudgets reports serial lines that have no time for all of their tags, even if every device answered at once.
// What an exchange over a network takes is not known beforehand: check tells what it comes to.
func (r *siteReader) checkBudgets(buses *node) {
	for i := range r.site.Buses {
		b := &r.site.Buses[i]
		if !b.Address.Serial() {
			continue
		}
		budget := r.site.budget(b)
		text := overbooked(b.Name, &budget, r.site.Tags)
		switch {
		case text == "":
		case b.Overbook == overbookWarn:
			r.note(text)
		default:
			r.fault(buses.items[r.busItems[b.Name]], "%s; or have what is too much left out with overbook: warn", text)
		}
	}
}

// overbooked says that a line has no time for its tags and names those to blame; "" if it has.
func overbooked(bus string, b *drivers.Budget, tags []tag.Def) string {
	if b.Load <= 1 {
		return ""
	}
	var blamed []string
	for _, l := range b.Blame() {
		blamed = append(blamed, fmt.Sprintf("%s every %v (%s)", span(l.Tags, tags), l.Period, percent(l.Share)))
	}
	return fmt.Sprintf("bus %s: its tags need %s of the line's time: poll less often, or on another line, %s",
		bus, percent(b.Load), strings.Join(blamed, ", "))
}

// span names the tags of one request.
func span(refs []tag.Ref, tags []tag.Def) string {
	name := func(ref tag.Ref) string {
		if i := int(ref) - 1; i >= 0 && i < len(tags) {
			return tags[i].FullName()
		}
		return "?"
	}
	switch len(refs) {
	case 0:
		return "a request without tags"
	case 1:
		return name(refs[0])
	}
	return name(refs[0]) + " to " + name(refs[len(refs)-1])
}

func percent(share float64) string {
	if share < 0.0995 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// checkedBus is what check says of one line: how its time is spent when every device answers at once, and in brackets
// with one device silent. Times are in milliseconds, loads are shares of the line's time.
type checkedBus struct {
	Bus         string          `json:"bus"`
	Requests    int             `json:"requests"`
	Load        float64         `json:"load"`
	LoadSilent  float64         `json:"loadSilent"`
	Cycle       float64         `json:"cycle"`
	CycleSilent float64         `json:"cycleSilent"`
	Wait        float64         `json:"writeWait"`
	WaitSilent  float64         `json:"writeWaitSilent"`
	Assumed     bool            `json:"assumed"` // an exchange is taken for 5 ms: no bit time tells
	Devices     []checkedDevice `json:"devices"`
	Blame       []string        `json:"blame,omitempty"` // tags that are too much for the line
}

// checkedDevice is one device's part of its line.
type checkedDevice struct {
	Device string  `json:"device"`
	Load   float64 `json:"load"`
	Silent float64 `json:"silent"` // share that it costs the others in the long run when it is silent
	First  float64 `json:"first"`  // milliseconds that it costs them when it falls silent
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func newCheckedBus(name string, b *drivers.Budget, tags []tag.Def) checkedBus {
	c := checkedBus{
		Bus: name, Requests: b.Requests, Load: b.Load, LoadSilent: b.LoadSilent, Cycle: milliseconds(b.Cycle),
		CycleSilent: milliseconds(b.CycleSilent), Wait: milliseconds(b.Wait), WaitSilent: milliseconds(b.WaitSilent), Assumed: b.Assumed,
		Devices: []checkedDevice{},
	}
	for _, d := range b.Devices {
		c.Devices = append(c.Devices, checkedDevice{d.Device, d.Load, d.Silent, milliseconds(d.First)})
	}
	for _, l := range b.Blame() {
		c.Blame = append(c.Blame, span(l.Tags, tags))
	}
	return c
}

// printBudgets says of each line how its time is spent.
func (c *checkCommand) printBudgets(p *program, s *site) error {
	for i := range s.Buses {
		b := s.budget(&s.Buses[i])
		name := s.Buses[i].Name
		if c.JSON {
			if err := json.NewEncoder(p.stdout).Encode(newCheckedBus(name, &b, s.Tags)); err != nil {
				return err
			}
			continue
		}
		if s.Buses[i].Address.Instruments() {
			fmt.Fprintf(p.stdout, "bus %s: of instruments: how long their answers are is not known beforehand\n", name)
			continue
		}
		if b.Requests == 0 {
			fmt.Fprintf(p.stdout, "bus %s: nothing is polled\n", name)
			continue
		}
		basis := ""
		if b.Assumed {
			basis = fmt.Sprintf(", if an exchange takes %v", drivers.AssumedExchange)
		}
		fmt.Fprintf(p.stdout, "bus %s: %s, %s of the line's time%s (%s with one device silent); cycle %v (%v); a write waits %v (%v) at most\n",
			name, counted(b.Requests, "request", "requests"), percent(b.Load), basis, percent(b.LoadSilent),
			rounded(b.Cycle), rounded(b.CycleSilent), rounded(b.Wait), rounded(b.WaitSilent))
		if text := overbooked(name, &b, s.Tags); text != "" && b.Assumed {
			fmt.Fprintf(p.stdout, "note: %s\n", text)
		}
	}
	return nil
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
