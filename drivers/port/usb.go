package port

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// USB names a serial adapter by what it says of itself, since its device has another name each time it is plugged in.
type USB struct {
	Vendor, Product string // four hexadecimal digits each
	Serial          string // empty: any
	Interface       int    // of an adapter with several lines, from 0
	one             bool   // Interface is given
}

const usbPrefix = "usb:"

// String is the name as the url has it.
func (u USB) String() string {
	s := usbPrefix + u.Vendor + ":" + u.Product
	if u.Serial != "" {
		s += ":" + u.Serial
	}
	if u.one {
		s += " interface " + strconv.Itoa(u.Interface)
	}
	return s
}

// usbOpaque makes rtu://usb:... and rtu:///usb:... the same as rtu:usb:..., since url.Parse would take the colons for a
// port.
func usbOpaque(text string) string {
	scheme, rest, ok := strings.Cut(text, ":")
	if name := strings.TrimLeft(rest, "/"); ok && strings.HasPrefix(name, usbPrefix) {
		return scheme + ":" + name
	}
	return text
}

// parseUSB reads VENDOR:PRODUCT[:SERIAL].
func parseUSB(text string) (USB, error) {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) < 2 || !hex4(parts[0]) || !hex4(parts[1]) {
		return USB{}, fmt.Errorf("write usb:VENDOR:PRODUCT or usb:VENDOR:PRODUCT:SERIAL, with four hexadecimal digits each, such as usb:0403:6001 (lsusb shows them)")
	}
	u := USB{Vendor: strings.ToLower(parts[0]), Product: strings.ToLower(parts[1])}
	if len(parts) == 3 {
		serial, err := url.PathUnescape(parts[2])
		if err != nil || serial == "" {
			return USB{}, fmt.Errorf("the serial number %q is empty or wrongly escaped: leave it out, or write %%25 for %%", parts[2])
		}
		u.Serial = serial
	}
	return u, nil
}

func hex4(s string) bool {
	_, err := strconv.ParseUint(s, 16, 16)
	return err == nil && len(s) == 4
}

// roots are where the system tells of its devices and has them.
type roots struct{ sys, dev string }

var system = roots{"/sys", "/dev"}

// adapter is a serial line of a USB adapter that is plugged in.
type adapter struct {
	USB
	path string
}

// find is the path of the one line that is meant.
func (r roots) find(u USB) (string, error) {
	all := r.adapters()
	var found []adapter
	for _, a := range all {
		if a.Vendor == u.Vendor && a.Product == u.Product && (u.Serial == "" || a.Serial == u.Serial) &&
			(!u.one || a.Interface == u.Interface) {
			found = append(found, a)
		}
	}
	switch {
	case len(found) == 1:
		return found[0].path, nil
	case len(found) > 1:
		return "", fmt.Errorf("serial adapter %s could be any of %s: add the serial number, or &interface=N for one with several lines", u, list(found))
	case len(all) == 0:
		return "", fmt.Errorf("serial adapter %s is not plugged in, and neither is any other", u)
	}
	return "", fmt.Errorf("serial adapter %s is not plugged in: there are %s", u, list(all))
}

func list(all []adapter) string {
	var s []string
	for _, a := range all {
		s = append(s, fmt.Sprintf("%s (%s)", a.USB, a.path))
	}
	return strings.Join(s, ", ")
}

// adapters lists the serial lines of all USB adapters. A terminal's device link leads into the folder of its interface,
// and some folder above that is the adapter's, which has its numbers.
func (r roots) adapters() []adapter {
	entries, err := os.ReadDir(filepath.Join(r.sys, "class", "tty"))
	if err != nil {
		return nil
	}
	var out []adapter
	for _, e := range entries {
		dir, err := filepath.EvalSymlinks(filepath.Join(r.sys, "class", "tty", e.Name(), "device"))
		if err != nil {
			continue // a console or a pseudo terminal
		}
		a := adapter{path: filepath.Join(r.dev, e.Name())}
		for ; len(dir) > len(r.sys); dir = filepath.Dir(dir) {
			if n, err := strconv.ParseInt(attribute(dir, "bInterfaceNumber"), 16, 32); err == nil && !a.one {
				a.Interface, a.one = int(n), true
			}
			if a.Vendor = attribute(dir, "idVendor"); a.Vendor != "" {
				a.Product, a.Serial = attribute(dir, "idProduct"), attribute(dir, "serial")
				out = append(out, a)
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b adapter) int { return strings.Compare(a.path, b.path) })
	return out
}

// attribute reads one file of sysfs; empty if there is none.
func attribute(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
