package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// commandHelp lists what Command takes.
const commandHelp = `fault DEVICE KIND [code=N] [for=TIME] [function=N] [skip=N] [times=N] [chance=P], heal DEVICE, set DEVICE ADDRESS NUMBER..., ` +
	`down LINE, up LINE, drop LINE, status`

// Command carries out one command of a person who runs the plant, and says what it did.
func (p *Plant) Command(text string) (string, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return "", nil
	}
	verb, args := words[0], words[1:]
	if verb == "status" {
		return p.status(), nil
	}
	if len(args) == 0 {
		return "", fmt.Errorf("%q: give one of: %s", text, commandHelp)
	}
	switch verb {
	case "fault", "heal", "set":
		d := p.Device(args[0])
		if d == nil {
			return "", fmt.Errorf("%s: no device is named %s", verb, args[0])
		}
		return d.command(verb, args[1:])
	case "down", "up", "drop":
		l := p.Line(args[0])
		switch {
		case l == nil:
			return "", fmt.Errorf("%s: no line is named %s", verb, args[0])
		case verb == "down":
			l.Down()
		case verb == "drop":
			l.Drop()
		default:
			if err := l.Up(); err != nil {
				return "", err
			}
		}
		return verb + " " + args[0], nil
	}
	return "", fmt.Errorf("%q: give one of: %s", text, commandHelp)
}

// status is a line for each device.
func (p *Plant) status() string {
	var b strings.Builder
	for _, d := range p.devices {
		d.mu.Lock()
		fmt.Fprintf(&b, "%s: %d requests, %d faults in force\n", d.name, d.asked, len(d.rules))
		d.mu.Unlock()
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (d *Device) command(verb string, args []string) (string, error) {
	switch verb {
	case "heal":
		d.Heal()
		return d.name + " is well", nil
	case "set":
		return d.setCommand(args)
	}
	f, err := parseFault(args)
	if err != nil {
		return "", fmt.Errorf("fault %s: %w", d.name, err)
	}
	d.Fault(f)
	return fmt.Sprintf("%s: %s is in force", d.name, f.Kind), nil
}

// parseFault reads a kind and KEY=VALUE pairs.
func parseFault(args []string) (f Fault, err error) {
	if len(args) == 0 {
		return f, fmt.Errorf("which kind? one of %v", faultKinds)
	}
	f.Kind = FaultKind(args[0])
	numbers := map[string]*int{"code": &f.Code, "function": &f.Function, "skip": &f.Skip, "times": &f.Times}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch n := numbers[key]; {
		case n != nil:
			*n, err = strconv.Atoi(value)
		case key == "for":
			f.For, err = time.ParseDuration(value)
		case key == "chance":
			f.Chance, err = strconv.ParseFloat(value, 64)
		default:
			err = fmt.Errorf("give code=, for=, function=, skip=, times= or chance=")
		}
		if err != nil {
			return f, fmt.Errorf("%s: %w", arg, err)
		}
	}
	return f, f.check()
}

func (d *Device) setCommand(args []string) (string, error) {
	if len(args) < 2 {
		return "", fmt.Errorf("set %s: give an address and numbers: set %s holding:10 650", d.name, d.name)
	}
	bank, address, err := parseAddress(args[0])
	if err != nil {
		return "", err
	}
	var cells []uint16
	for _, arg := range args[1:] {
		n, err := strconv.ParseInt(arg, 0, 32)
		if err != nil || n < -1<<15 || n > 1<<16-1 {
			return "", fmt.Errorf("set %s: %s is no register: give numbers from -32768 to 65535", d.name, arg)
		}
		cells = append(cells, uint16(n))
	}
	d.Set(bank, int(address), cells...)
	return fmt.Sprintf("%s %s is %s", d.name, args[0], strings.Join(slices.Clone(args[1:]), " ")), nil
}
