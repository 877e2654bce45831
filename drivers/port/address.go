package port

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Address says where a stream is, as the url of a bus in the site file says it: tcp://host:502,
// rtuovertcp://host:4001, rtu:///dev/ttyS1?baud=19200&data=8&parity=even&stop=1.
type Address struct {
	Scheme string // tcp, rtuovertcp, rtu
	Host   string // host:port; empty for a serial line
	Path   string // device of a serial line; empty for a connection
	Mode   Mode   // of a serial line
}

// Mode is how the characters of a serial line look.
type Mode struct {
	Baud   int    // bits a second
	Data   int    // bits a character, 5 to 8
	Parity string // none, odd, even, mark, space
	Stop   int    // stop bits, 1 or 2
}

// DefaultMode is what Modbus over Serial Line, 2.2 and 2.5.1, asks of every device.
var DefaultMode = Mode{Baud: 19200, Data: 8, Parity: "even", Stop: 1}

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
	// defaultModbusPort is IANA's (Modbus Messaging on TCP/IP, 4.1).
	defaultModbusPort = "502"
)

// Parse reads the url of a bus. A key that it does not know is an error, as is a value out of range.
func Parse(text string) (Address, error) {
	if len(text) > maxURL {
		return Address{}, fmt.Errorf("the url is longer than %d characters", maxURL)
	}
	u, err := url.Parse(text)
	if err != nil {
		return Address{}, fmt.Errorf("%q is not a url such as tcp://10.0.0.5:502 or rtu:///dev/ttyS1?baud=19200", text)
	}
	if u.User != nil || u.Fragment != "" {
		return Address{}, fmt.Errorf("%q: a bus url has no user and no fragment", text)
	}
	switch u.Scheme {
	case "tcp", "rtuovertcp":
		return parseHost(u, text)
	case "rtu":
		return parseSerial(u, text)
	case "":
		return Address{}, fmt.Errorf("%q has no scheme: write tcp://HOST:PORT, rtuovertcp://HOST:PORT or rtu:///dev/NAME", text)
	}
	return Address{}, fmt.Errorf("%q: scheme %s is not known: use tcp, rtuovertcp or rtu", text, u.Scheme)
}

func parseHost(u *url.URL, text string) (Address, error) {
	host, number := u.Hostname(), u.Port()
	if host == "" || strings.Trim(u.Path, "/") != "" {
		return Address{}, fmt.Errorf("%q: write %s://HOST:PORT", text, u.Scheme)
	}
	if err := unknownKeys(u, nil); err != nil {
		return Address{}, err
	}
	if number == "" {
		if u.Scheme != "tcp" {
			return Address{}, fmt.Errorf("%q has no port: write %s://%s:PORT", text, u.Scheme, host)
		}
		number = defaultModbusPort
	}
	if n, err := strconv.Atoi(number); err != nil || n < 1 || n > 65535 {
		return Address{}, fmt.Errorf("%q: port %s is not between 1 and 65535", text, number)
	}
	return Address{Scheme: u.Scheme, Host: net.JoinHostPort(host, number)}, nil
}

func parseSerial(u *url.URL, text string) (Address, error) {
	if u.Host != "" || len(u.Path) < 2 {
		return Address{}, fmt.Errorf("%q: write rtu:///dev/NAME, with three slashes", text)
	}
	a := Address{Scheme: u.Scheme, Path: u.Path, Mode: DefaultMode}
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
	}
	if err := unknownKeys(u, keys); err != nil {
		return Address{}, err
	}
	for key, values := range u.Query() {
		if len(values) != 1 {
			return Address{}, fmt.Errorf("%q: %s is given twice", text, key)
		}
		if err := keys[key](values[0]); err != nil {
			return Address{}, fmt.Errorf("%q: %s: %w", text, key, err)
		}
	}
	return a, nil
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

// Serial reports whether the address is a serial line.
func (a Address) Serial() bool { return a.Path != "" }

// Key names the hardware: two buses of one key would talk at the same time on one line.
func (a Address) Key() string {
	if a.Serial() {
		return a.Path
	}
	return a.Host
}

// String names the stream for messages.
func (a Address) String() string {
	if a.Serial() {
		return a.Path + " " + a.Mode.String()
	}
	return a.Host
}

// Open opens the stream.
func (a Address) Open(ctx context.Context) (Port, error) {
	if a.Serial() {
		return openSerial(ctx, a.Path, a.Mode)
	}
	return dial(ctx, a.Host)
}
