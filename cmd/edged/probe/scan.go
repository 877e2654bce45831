package probe

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"edged/drivers/modbus"
	"edged/drivers/port"
)

// Found is a unit that answers.
type Found struct {
	Unit   int           `json:"unit"`
	Mode   string        `json:"mode,omitempty"` // of a serial line: 19200 8E1
	Answer string        `json:"answer"`         // answered, exception 2, garbled answer
	Took   time.Duration `json:"-"`
	Millis float64       `json:"ms"`

	mode port.Mode
}

// Text is the line that tells of it.
func (f Found) Text() string {
	s := fmt.Sprintf("unit %d: %s after %s", f.Unit, f.Answer, Short(f.Took))
	if f.Mode != "" {
		s += " at " + f.Mode
	}
	return s
}

// Scanned is what a scan has found.
type Scanned struct {
	Units []Found
	Mode  port.Mode // of a serial line on which units were found
	// Any: every unit that was tried gave the same answer: the device does not look at the number.
	Any bool
	// Garbled are the settings at which something came that was no answer.
	Garbled []port.Mode
}

// strangers are units far apart: a line on which they all answer alike is one device that does not look at the number.
var strangers = []int{1, 2, 97, 143, 246}

// Units asks each unit for one register and tells of those that answer, with values or with an exception. What was
// found before an error is returned with it.
func (l *Line) Units(ctx context.Context, units []int, tell func(Found)) (s Scanned, err error) {
	s.Mode = l.cfg.Address.Mode
	if !l.cfg.Address.Serial() && len(units) > len(strangers) {
		same, err := l.alike(ctx)
		if err != nil {
			return s, err
		}
		if same {
			s.Any, units = true, strangers[:1]
		}
	}
	for i, id := range units {
		l.cfg.Progress(fmt.Sprintf("unit %d, %d of %d, %d found", id, i+1, len(units), len(s.Units)))
		f, v, _, err := l.ask(ctx, id)
		if err != nil {
			return s, err
		}
		if v == Garbled && !slices.Contains(s.Garbled, s.Mode) {
			s.Garbled = append(s.Garbled, s.Mode)
		}
		if f == nil {
			continue
		}
		s.Units = append(s.Units, *f)
		tell(*f)
	}
	return s, nil
}

// ask asks one unit, once; one whose answer is garbled is asked again. f is nil for one that is not there.
func (l *Line) ask(ctx context.Context, id int) (f *Found, v Verdict, data []byte, err error) {
	u, err := l.Unit(id)
	if err != nil {
		return nil, Mute, nil, err
	}
	for range retries + 1 {
		began := time.Now()
		var code byte
		data, v, code, err = u.once(ctx, modbus.Holding, 0, 1)
		took := time.Since(began)
		switch {
		case err != nil:
			return nil, v, nil, err
		case v == Garbled, v == Broken:
			continue
		case v == Mute, v == Refused && (code == noPath || code == noTarget):
			return nil, Mute, nil, nil
		}
		f = &Found{Unit: id, Answer: v.String(), Took: took, Millis: millis(took), mode: l.cfg.Address.Mode}
		if v == Refused {
			f.Answer = fmt.Sprintf("exception %d", code)
		}
		if l.cfg.Address.Serial() {
			f.Mode = f.mode.String()
		}
		return f, v, append(data, code), nil
	}
	return nil, v, nil, nil
}

// alike reports whether units that are hardly all there give the same answer.
func (l *Line) alike(ctx context.Context) (bool, error) {
	var first []byte
	for i, id := range strangers {
		l.cfg.Progress(fmt.Sprintf("unit %d, to see whether the device looks at the number", id))
		f, _, data, err := l.ask(ctx, id)
		if f == nil || err != nil {
			return false, err
		}
		if i == 0 {
			first = bytes.Clone(data)
		}
		if !bytes.Equal(first, data) {
			return false, nil
		}
	}
	return true, nil
}

// The settings that serial lines have, the likely ones first: Serial Line, 2.2 and 2.5.1, asks for 19200 8E1, and most
// devices come with 9600 8N1. Two stop bits are found by one.
var (
	bauds    = []int{19200, 9600, 38400, 115200, 57600, 4800, 2400, 1200}
	parities = []string{"even", "none", "odd"}
)

// Modes are the settings to try: of what the url names, only that.
func Modes(a port.Address, baud, parity bool) []port.Mode {
	bauds, parities := bauds, parities
	if baud {
		bauds = []int{a.Mode.Baud}
	}
	if parity {
		parities = []string{a.Mode.Parity}
	}
	var modes []port.Mode
	for _, b := range bauds {
		for _, p := range parities {
			m := a.Mode
			m.Baud, m.Parity = b, p
			modes = append(modes, m)
		}
	}
	return modes
}

// quickUnits are those that devices come with: they are asked at every setting before all units are at the one where
// something answered.
var quickUnits = []int{1, 2, 3, 4, 5, 10, 100, 247}

// ScanModes looks for units at each setting of a serial line, and then for all units at the first setting at which one
// answered.
func ScanModes(ctx context.Context, cfg Config, modes []port.Mode, units []int, tell func(Found)) (Scanned, error) {
	quick := units
	if len(modes) > 1 && len(units) > len(quickUnits) {
		quick = quickUnits
	}
	progress := cfg.Progress
	if progress == nil {
		progress = func(string) {}
	}
	var all Scanned
	for i, m := range modes {
		c := cfg
		c.Address.Mode = m
		c.Progress = func(text string) { progress(fmt.Sprintf("%s (%d of %d settings): %s", m, i+1, len(modes), text)) }
		line := NewLine(c)
		s, err := line.Units(ctx, quick, tell)
		if err == nil && len(s.Units) > 0 && len(quick) < len(units) {
			rest := slices.DeleteFunc(slices.Clone(units), func(id int) bool { return slices.Contains(quick, id) })
			var more Scanned
			more, err = line.Units(ctx, rest, tell)
			s.Units = append(s.Units, more.Units...)
			slices.SortFunc(s.Units, func(a, b Found) int { return a.Unit - b.Unit })
		}
		line.Close()
		all.Garbled = append(all.Garbled, s.Garbled...)
		if len(s.Units) > 0 || err != nil {
			all.Units, all.Mode = s.Units, s.Mode
			return all, err
		}
	}
	return all, nil
}

// ScanTime is how long a scan takes at most while nothing answers.
func ScanTime(a port.Address, timeout time.Duration, modes []port.Mode, units int) time.Duration {
	if len(modes) == 0 {
		return time.Duration(units) * timeout
	}
	quick := units
	if len(modes) > 1 {
		quick = min(units, len(quickUnits))
	}
	var d time.Duration
	for i, m := range modes {
		c := a
		c.Mode = m
		one := timeout + modbus.NewLink(modbus.Links(c)).LineTime(modbus.Holding, 1)
		d += time.Duration(quick) * one
		if i == 0 && quick < units {
			d += time.Duration(units-quick) * one
		}
	}
	return d
}

func millis(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / 1e6 }

// Short is a time as people like to read it.
func Short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
