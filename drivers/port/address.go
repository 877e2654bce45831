package port

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Address says where a stream is, as the url of a bus in the site file says it: tcp://host:502,
// tcp+tls://host:802?ca=FILE&cert=FILE&key=FILE, rtuovertcp://host:4001, rtu:///dev/ttyS1?baud=19200&parity=even,
// ascii:///dev/ttyS1, rtu:usb:0403:6001:SERIAL?rs485=on, and for instruments serial:///dev/ttyS1?baud=9600 and
// serial+tcp://host:4001.
type Address struct {
	Scheme string // tcp, tcp+tls, rtuovertcp, rtu, ascii, serial, serial+tcp
	Host   string // host:port; empty for a serial line
	TLS    TLS    // of tcp+tls
	Path   string // device of a serial line; empty for a connection, and for an adapter that is looked for
	USB    USB    // adapter of a serial line that is looked for
	Mode   Mode   // of a serial line
	RS485  RS485  // of a serial line
}

// TLS is how a connection is secured. Its files are PEM, and are read each time the stream is opened.
type TLS struct {
	CA   string // certificates of who may have signed the device's; empty: those that the system trusts
	Cert string // our certificate, with Key; empty: none
	Key  string
}

// Mode is how the characters of a serial line look.
type Mode struct {
	Baud   int    // bits a second
	Data   int    // bits a character, 5 to 8
	Parity string // none, odd, even, mark, space
	Stop   int    // stop bits, 1 or 2
}

// Beside makes relative names of files those of a folder.
func (t *TLS) Beside(dir string) {
	for _, name := range []*string{&t.CA, &t.Cert, &t.Key} {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(dir, *name)
		}
	}
}

// defaultASCII is what Serial Line, 2.5.2, asks of devices that talk ASCII.
var defaultASCII = Mode{Baud: 19200, Data: 7, Parity: "even", Stop: 1}

// DefaultMode is what Modbus over Serial Line, 2.2 and 2.5.1, asks of every device.
var DefaultMode = Mode{Baud: 19200, Data: 8, Parity: "even", Stop: 1}

// defaultInstrument is how most instruments leave their makers.
var defaultInstrument = Mode{Baud: 9600, Data: 8, Parity: "none", Stop: 1}

// Bits is the length of one character on the line: start, data, parity and stop bits.
func (m Mode) Bits() int {
	n := 1 + m.Data + m.Stop
	if m.Parity != "none" {
		n++
	}
	return n
}

// Chars is how long n characters take on the line.
func (m Mode) Chars(n int) time.Duration {
	if m.Baud <= 0 {
		return 0
	}
	return time.Duration(n*m.Bits()) * time.Second / time.Duration(m.Baud)
}

// String is the mode as people write it: 19200 8E1.
func (m Mode) String() string {
	return fmt.Sprintf("%d %d%s%d", m.Baud, m.Data, strings.ToUpper(m.Parity[:1]), m.Stop)
}

const (
	maxURL = 1024
	// IANA's ports (Messaging on TCP/IP, 4.1; Modbus/TCP Security, 5).
	defaultModbusPort = "502"
	defaultTLSPort    = "802"
)

// Schemes are those that Parse knows.
const schemes = "tcp, tcp+tls, rtuovertcp, rtu, ascii, serial or serial+tcp"

// Parse reads the url of a bus. A key that it does not know is an error, as is a value out of range.
func Parse(text string) (Address, error) {
	if len(text) > maxURL {
		return Address{}, fmt.Errorf("the url is longer than %d characters", maxURL)
	}
	u, err := url.Parse(usbOpaque(text))
	if err != nil {
		return Address{}, fmt.Errorf("%q is not a url such as tcp://10.0.0.5:502 or rtu:///dev/ttyS1?baud=19200", text)
	}
	if u.User != nil || u.Fragment != "" {
		return Address{}, fmt.Errorf("%q: a bus url has no user and no fragment", text)
	}
	switch u.Scheme {
	case "tcp", "tcp+tls", "rtuovertcp", "serial+tcp":
		return parseHost(u, text)
	case "rtu", "ascii", "serial":
		return parseSerial(u, text)
	case "":
		return Address{}, fmt.Errorf("%q has no scheme: write tcp://HOST:PORT, rtuovertcp://HOST:PORT or rtu:///dev/NAME", text)
	}
	return Address{}, fmt.Errorf("%q: scheme %s is not known: use %s", text, u.Scheme, schemes)
}

func parseHost(u *url.URL, text string) (Address, error) {
	host, number := u.Hostname(), u.Port()
	if host == "" || strings.Trim(u.Path, "/") != "" {
		return Address{}, fmt.Errorf("%q: write %s://HOST:PORT", text, u.Scheme)
	}
	a := Address{Scheme: u.Scheme}
	keys := map[string]func(string) error{}
	if u.Scheme == "tcp+tls" {
		keys["ca"], keys["cert"], keys["key"] = file(&a.TLS.CA), file(&a.TLS.Cert), file(&a.TLS.Key)
	}
	if err := readKeys(u, text, keys); err != nil {
		return Address{}, err
	}
	if (a.TLS.Cert == "") != (a.TLS.Key == "") {
		return Address{}, fmt.Errorf("%q: a certificate needs its key: give both cert and key, or neither", text)
	}
	switch {
	case number != "":
	case u.Scheme == "tcp":
		number = defaultModbusPort
	case u.Scheme == "tcp+tls":
		number = defaultTLSPort
	default:
		return Address{}, fmt.Errorf("%q has no port: write %s://%s:PORT", text, u.Scheme, host)
	}
	if n, err := strconv.Atoi(number); err != nil || n < 1 || n > 65535 {
		return Address{}, fmt.Errorf("%q: port %s is not between 1 and 65535", text, number)
	}
	a.Host = net.JoinHostPort(host, number)
	return a, nil
}

func parseSerial(u *url.URL, text string) (Address, error) {
	a := Address{Scheme: u.Scheme, Path: u.Path, Mode: DefaultMode}
	switch u.Scheme {
	case "ascii":
		a.Mode = defaultASCII
	case "serial":
		a.Mode = defaultInstrument
	}
	adapter, usb := strings.CutPrefix(u.Opaque, usbPrefix)
	switch {
	case usb:
		var err error
		if a.USB, err = parseUSB(adapter); err != nil {
			return Address{}, fmt.Errorf("%q: %w", text, err)
		}
	case u.Opaque != "" || u.Host != "" || len(u.Path) < 2:
		return Address{}, fmt.Errorf("%q: write %s:///dev/NAME, with three slashes, or %s:usb:VENDOR:PRODUCT", text, u.Scheme, u.Scheme)
	}
	keys := map[string]func(string) error{
		"baud": func(v string) error { return number(v, 50, 4_000_000, &a.Mode.Baud) },
		"data": func(v string) error { return number(v, 5, 8, &a.Mode.Data) },
		"stop": func(v string) error { return number(v, 1, 2, &a.Mode.Stop) },
		"parity": func(v string) error {
			if _, ok := parities[v]; !ok {
				return fmt.Errorf("%q is not one of none, odd, even, mark, space", v)
			}
			a.Mode.Parity = v
			return nil
		},
		"rs485":        a.RS485.setMode,
		"rs485_before": delay(&a.RS485.Before),
		"rs485_after":  delay(&a.RS485.After),
	}
	if usb {
		keys["interface"] = func(v string) error { a.USB.one = true; return number(v, 0, 255, &a.USB.Interface) }
	}
	if err := readKeys(u, text, keys); err != nil {
		return Address{}, err
	}
	if !a.RS485.On && a.RS485 != (RS485{}) {
		return Address{}, fmt.Errorf("%q: rs485_before and rs485_after are for rs485=on", text)
	}
	if a.Scheme == "ascii" && a.Mode.Data < 7 {
		return Address{}, fmt.Errorf("%q: ASCII needs 7 or 8 data bits", text)
	}
	if a.Scheme == "rtu" && a.Mode.Data < 8 {
		return Address{}, fmt.Errorf("%q: RTU needs 8 data bits: %d lose a part of each byte", text, a.Mode.Data)
	}
	return a, nil
}

// readKeys reads the part of a url behind the question mark.
func readKeys(u *url.URL, text string, keys map[string]func(string) error) error {
	if err := unknownKeys(u, keys); err != nil {
		return err
	}
	query := u.Query()
	for _, key := range slices.Sorted(maps.Keys(query)) {
		values := query[key]
		if len(values) != 1 {
			return fmt.Errorf("%q: %s is given twice", text, key)
		}
		if err := keys[key](values[0]); err != nil {
			return fmt.Errorf("%q: %s: %w", text, key, err)
		}
	}
	return nil
}

// file reads the name of a file.
func file(to *string) func(string) error {
	return func(v string) error {
		if v == "" || strings.ContainsRune(v, 0) {
			return fmt.Errorf("%q is no file name", v)
		}
		*to = v
		return nil
	}
}

// delay reads a time span.
func delay(to *time.Duration) func(string) error {
	return func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 || d > maxDelay {
			return fmt.Errorf("%q is not a time from 0ms to %v, in whole milliseconds", v, maxDelay)
		}
		if *to = d.Truncate(time.Millisecond); *to != d {
			return fmt.Errorf("%q: the line's driver counts whole milliseconds", v)
		}
		return nil
	}
}

func number(text string, low, high int, to *int) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return fmt.Errorf("%q is not a whole number between %d and %d", text, low, high)
	}
	*to = n
	return nil
}

// unknownKeys refuses a query key that is not among the known ones.
func unknownKeys(u *url.URL, known map[string]func(string) error) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fmt.Errorf("%q: the part after ? is not KEY=VALUE&KEY=VALUE: %w", u, err)
	}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		if _, ok := known[key]; ok {
			continue
		}
		if len(known) == 0 {
			return fmt.Errorf("%q: key %s is not known: a %s url takes none", u, key, u.Scheme)
		}
		names := slices.Sorted(maps.Keys(known))
		return fmt.Errorf("%q: key %s is not known: a %s url takes %s", u, key, u.Scheme, strings.Join(names, ", "))
	}
	return nil
}

// Instruments reports whether the line carries instruments that speak lines and frames of their own.
func (a Address) Instruments() bool { return a.Scheme == "serial" || a.Scheme == "serial+tcp" }

// Serial reports whether the address is a serial line.
func (a Address) Serial() bool { return a.Path != "" || a.USB != (USB{}) }

// Key names the hardware: two buses of one key would talk at the same time on one line.
func (a Address) Key() string {
	switch {
	case a.Path != "":
		return a.Path
	case a.Serial():
		return a.USB.String()
	}
	return a.Host
}

// String names the stream for messages.
func (a Address) String() string {
	if a.Serial() {
		return a.Key() + " " + a.Mode.String()
	}
	return a.Host
}

// Open opens the stream.
func (a Address) Open(ctx context.Context) (Port, error) {
	switch {
	case a.USB != (USB{}):
		path, err := system.find(a.USB)
		if err != nil {
			return nil, err
		}
		return openSerial(ctx, path, a.Mode, a.RS485)
	case a.Serial():
		return openSerial(ctx, a.Path, a.Mode, a.RS485)
	case a.Scheme == "tcp+tls":
		return dialTLS(ctx, a.Host, a.TLS)
	}
	return dial(ctx, a.Host)
}
