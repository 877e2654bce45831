package port

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// plugged makes a serial line of a USB adapter in a system on paper.
func (r roots) plugged(t *testing.T, name, place, vendor, product, serial, iface, device string) {
	t.Helper()
	usb := filepath.Join(r.sys, "devices", "usb1", place)
	at := filepath.Join(usb, place+":1."+iface)
	files := map[string]string{filepath.Join(usb, "idVendor"): vendor, filepath.Join(usb, "idProduct"): product,
		filepath.Join(usb, "serial"): serial, filepath.Join(at, "bInterfaceNumber"): "0" + iface}
	if serial == "" {
		delete(files, filepath.Join(usb, "serial"))
	}
	line := filepath.Join(at, name)
	for _, dir := range []string{line, filepath.Join(r.sys, "class", "tty", name), r.dev} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(line, filepath.Join(r.sys, "class", "tty", name, "device")); err != nil {
		t.Fatal(err)
	}
	if device != "" {
		if err := os.Symlink(device, filepath.Join(r.dev, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func (r roots) unplugged(t *testing.T, name, place string) {
	t.Helper()
	for _, path := range []string{filepath.Join(r.sys, "class", "tty", name), filepath.Join(r.sys, "devices", "usb1", place), filepath.Join(r.dev, name)} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

func paperSystem(t *testing.T) roots {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return roots{filepath.Join(dir, "sys"), filepath.Join(dir, "dev")}
}

func TestFindUSBAdapter(t *testing.T) {
	r := paperSystem(t)
	if _, err := r.find(USB{Vendor: "0403", Product: "6001"}); err == nil || !strings.Contains(err.Error(), "neither is any other") {
		t.Errorf("nothing plugged in: %v", err)
	}
	r.plugged(t, "ttyUSB0", "1-1", "0403", "6001", "A1", "0", "")
	r.plugged(t, "ttyUSB1", "1-2", "0403", "6001", "B2", "0", "")
	r.plugged(t, "ttyACM0", "1-3", "2341", "0043", "", "0", "")
	r.plugged(t, "ttyUSB2", "1-4", "0403", "6011", "Q", "0", "")
	r.plugged(t, "ttyUSB3", "1-4", "0403", "6011", "Q", "1", "")
	if err := os.MkdirAll(filepath.Join(r.sys, "class", "tty", "console"), 0o755); err != nil { // no device behind it
		t.Fatal(err)
	}
	for _, row := range []struct{ url, want, err string }{
		{"rtu:usb:0403:6001:A1", "ttyUSB0", ""},
		{"rtu:usb:0403:6001:B2", "ttyUSB1", ""},
		{"rtu:usb:2341:0043", "ttyACM0", ""},
		{"rtu:usb:0403:6011?interface=1", "ttyUSB3", ""},
		{"rtu:usb:0403:6001", "", "add the serial number"},
		{"rtu:usb:0403:6011:Q", "", "interface=N"},
		{"rtu:usb:1a86:7523", "", "is not plugged in: there are usb:2341:0043 interface 0"},
		{"rtu:usb:0403:6001:C3", "", "ttyUSB1"},
	} {
		a, err := Parse(row.url)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.find(a.USB)
		if row.err != "" {
			if err == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("%s: %v", row.url, err)
			}
		} else if err != nil || got != filepath.Join(r.dev, row.want) {
			t.Errorf("%s: %s, %v", row.url, got, err)
		}
	}
}

func TestE2AdapterThatComesBackUnderAnotherName(t *testing.T) {
	defer func(r roots) { system = r }(system)
	system = paperSystem(t)
	a, err := Parse("rtu:usb:0403:6001:A1")
	if err != nil {
		t.Fatal(err)
	}
	first, path := newPTY(t)
	system.plugged(t, "ttyUSB0", "1-1", "0403", "6001", "A1", "0", path)
	p, err := a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	system.unplugged(t, "ttyUSB0", "1-1")
	first.Close()
	p.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := p.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "has vanished") {
		t.Fatalf("a line that vanished: %v", err)
	}
	p.Close()
	if _, err := a.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "not plugged in") {
		t.Fatalf("while it is away: %v", err)
	}
	second, path := newPTY(t)
	defer second.Close()
	system.plugged(t, "ttyUSB1", "1-2", "0403", "6001", "A1", "0", path)
	again, err := a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	go second.Write([]byte("x"))
	again.SetDeadline(time.Now().Add(5 * time.Second))
	if n, err := again.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
