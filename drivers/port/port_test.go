package port

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	usb := func(scheme string, u USB) Address { return Address{Scheme: scheme, USB: u, Mode: DefaultMode} }
	line := func(path string, m Mode) Address { return Address{Scheme: "rtu", Path: path, Mode: m} }
	for _, row := range []struct {
		url  string
		want Address
		err  string // part of the refusal
	}{
		{"tcp://10.0.0.5:502", Address{Scheme: "tcp", Host: "10.0.0.5:502"}, ""},
		{"tcp://10.0.0.5", Address{Scheme: "tcp", Host: "10.0.0.5:502"}, ""},
		{"tcp://[::1]:1502/", Address{Scheme: "tcp", Host: "[::1]:1502"}, ""},
		{"rtuovertcp://moxa:4001", Address{Scheme: "rtuovertcp", Host: "moxa:4001"}, ""},
		{"rtu:///dev/ttyS1", line("/dev/ttyS1", DefaultMode), ""},
		{"rtu:///dev/ttyS1?baud=9600&data=8&parity=none&stop=2", line("/dev/ttyS1", Mode{9600, 8, "none", 2}), ""},
		{"rtu:///dev/ttyS1?data=7", Address{}, "RTU needs 8 data bits"},
		{"ascii:///dev/ttyS1?baud=9600", Address{Scheme: "ascii", Path: "/dev/ttyS1", Mode: Mode{9600, 7, "even", 1}}, ""},
		{"ascii:///dev/ttyS1?data=6", Address{}, "7 or 8 data bits"},
		{"tcp+tls://10.0.0.5", Address{Scheme: "tcp+tls", Host: "10.0.0.5:802"}, ""},
		{"tcp+tls://plc:1802?ca=/etc/ca.pem&cert=/c.pem&key=/k.pem", Address{Scheme: "tcp+tls", Host: "plc:1802", TLS: TLS{"/etc/ca.pem", "/c.pem", "/k.pem"}}, ""},
		{"tcp+tls://plc?cert=/c.pem", Address{}, "give both cert and key"},
		{"tcp+tls://plc?ca=", Address{}, "no file name"},
		{"rtu:usb:0403:6001", usb("rtu", USB{Vendor: "0403", Product: "6001"}), ""},
		{"ascii:usb:0403:6001", Address{Scheme: "ascii", USB: USB{Vendor: "0403", Product: "6001"}, Mode: Mode{19200, 7, "even", 1}}, ""},
		{"rtu://usb:1A86:7523:AB%3A1?parity=none", Address{Scheme: "rtu", USB: USB{Vendor: "1a86", Product: "7523", Serial: "AB:1"}, Mode: Mode{19200, 8, "none", 1}}, ""},
		{"rtu:///usb:0403:6011:FT1?interface=2", usb("rtu", USB{Vendor: "0403", Product: "6011", Serial: "FT1", Interface: 2, one: true}), ""},
		{"rtu:usb:0403", Address{}, "usb:VENDOR:PRODUCT"},
		{"rtu:usb:403:6001", Address{}, "four hexadecimal digits"},
		{"rtu:usb:0403:6001:", Address{}, "serial number"},
		{"rtu:usb:0403:6001?interface=x", Address{}, "interface"},
		{"rtu:///dev/ttyS1?interface=1", Address{}, "key interface is not known"},
		{"rtu:ttyS1", Address{}, "three slashes"},
		{"rtu:///dev/ttyS1?rs485=on&rs485_before=1ms&rs485_after=2ms", Address{Scheme: "rtu", Path: "/dev/ttyS1", Mode: DefaultMode,
			RS485: RS485{On: true, Before: time.Millisecond, After: 2 * time.Millisecond}}, ""},
		{"rtu:///dev/ttyS1?rs485=inverted", Address{Scheme: "rtu", Path: "/dev/ttyS1", Mode: DefaultMode, RS485: RS485{On: true, Inverted: true}}, ""},
		{"rtu:///dev/ttyS1?rs485=off", line("/dev/ttyS1", DefaultMode), ""},
		{"rtu:///dev/ttyS1?rs485=yes", Address{}, "on, inverted, off"},
		{"rtu:///dev/ttyS1?rs485_after=2ms", Address{}, "for rs485=on"},
		{"rtu:///dev/ttyS1?rs485=on&rs485_after=2s", Address{}, "0ms to 100ms"},
		{"rtu:///dev/ttyS1?rs485=on&rs485_after=1500us", Address{}, "whole milliseconds"},
		{"rtu:///dev/serial/by-id/usb-FTDI-if00?parity=odd", line("/dev/serial/by-id/usb-FTDI-if00", Mode{19200, 8, "odd", 1}), ""},
		{"10.0.0.5:502", Address{}, "not a url"},
		{"/dev/ttyS1", Address{}, "no scheme"},
		{"udp://h:1", Address{}, "scheme udp is not known"},
		{"tcp://:502", Address{}, "HOST:PORT"},
		{"tcp://h:0", Address{}, "port 0"},
		{"tcp://h:70000", Address{}, "port 70000"},
		{"tcp://h:502/x", Address{}, "HOST:PORT"},
		{"tcp://u@h:502", Address{}, "no user"},
		{"tcp://h:502?timeout=1s", Address{}, "key timeout is not known: a tcp url takes none"},
		{"rtuovertcp://h", Address{}, "no port"},
		{"rtu://dev/ttyS1", Address{}, "three slashes"},
		{"rtu:///", Address{}, "three slashes"},
		{"rtu:///dev/ttyS1?speed=9600", Address{}, "key speed is not known: a rtu url takes baud, data, parity, rs485, rs485_after, rs485_before, stop"},
		{"rtu:///dev/ttyS1?baud=fast", Address{}, "baud"},
		{"rtu:///dev/ttyS1?baud=9600&baud=19200", Address{}, "given twice"},
		{"rtu:///dev/ttyS1?data=9", Address{}, "data"},
		{"rtu:///dev/ttyS1?parity=E", Address{}, "none, odd, even"},
		{"rtu:///dev/ttyS1?stop=3", Address{}, "stop"},
		{"tcp://" + strings.Repeat("h", 2000), Address{}, "longer than"},
	} {
		a, err := Parse(row.url)
		if a != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%.60q: %+v, %v; want %+v, %q", row.url, a, err, row.want, row.err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("rtu:///dev/ttyS1?baud=9600&data=7&parity=none&stop=2")
	f.Add("tcp://[::1]:502")
	f.Add("tcp+tls://h?ca=/a&cert=/b&key=/c")
	f.Add("rtu://usb:0403:6011:A%20B?interface=2&rs485=on&rs485_after=2ms")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := Parse(text)
		if err != nil {
			return
		}
		if a.Serial() == (a.Host != "") || a.Key() == "" || a.Serial() && a.Mode.Chars(1) <= 0 {
			t.Fatalf("%q: %+v", text, a)
		}
	})
}

func TestModeTimes(t *testing.T) {
	m := Mode{9600, 8, "even", 1}
	if m.Bits() != 11 || m.Chars(96) != 110*time.Millisecond || m.String() != "9600 8E1" {
		t.Errorf("%d bits, 96 characters take %v, %s", m.Bits(), m.Chars(96), m)
	}
	if (Mode{}).Chars(5) != 0 {
		t.Error("a stream without a line has characters that take time")
	}
}

// pair is a Port and its other end.
func pair(t *testing.T, kind string) (Port, io.ReadWriteCloser) {
	t.Helper()
	switch kind {
	case "pipe":
		a, b := net.Pipe()
		return FromConn(a), b
	case "tcp":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		p, err := Address{Scheme: "tcp", Host: l.Addr().String()}.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return p, c
	case "tls":
		a := newAuthority(t)
		a.issue(t, "device", []string{"127.0.0.1"})
		l := a.server(t, "device", false)
		defer l.Close()
		accepted := make(chan net.Conn, 1)
		go func() {
			c, err := l.Accept()
			if err == nil {
				err = c.(*tls.Conn).Handshake()
			}
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		p, err := Address{Scheme: "tcp+tls", Host: l.Addr().String(), TLS: TLS{CA: a.path("ca")}}.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p, <-accepted
	}
	master, path := newPTY(t)
	p, err := Address{Scheme: "rtu", Path: path, Mode: DefaultMode}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p, master
}

// newPTY is a pseudo terminal's master, and the path of its other end.
func newPTY(t *testing.T) (*os.File, string) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Skip("no pseudo terminal is to be had: ", err)
	}
	path := slave.Name()
	slave.Close()
	return master, path
}

func TestPorts(t *testing.T) {
	for _, kind := range []string{"tcp", "tls", "pipe", "pty"} {
		t.Run(kind, func(t *testing.T) {
			p, other := pair(t, kind)
			defer other.Close()
			defer p.Close()
			buf := make([]byte, 16)

			t.Run("E1 a time-out is an error, and no busy loop", func(t *testing.T) {
				before := cpu()
				p.SetDeadline(time.Now().Add(80 * time.Millisecond))
				n, err := p.Read(buf)
				if n != 0 || !IsTimeout(err) {
					t.Errorf("%d, %v", n, err)
				}
				if used := cpu() - before; used > 60*time.Millisecond {
					t.Errorf("a silent device cost %v of CPU", used)
				}
				if n, err := p.Read(buf); n != 0 || !IsTimeout(err) {
					t.Errorf("with the deadline behind: %d, %v", n, err)
				}
			})
			t.Run("both ways", func(t *testing.T) {
				p.SetDeadline(time.Now().Add(5 * time.Second))
				go other.Write([]byte("ping"))
				if n, err := io.ReadFull(p, buf[:4]); err != nil || string(buf[:n]) != "ping" {
					t.Fatalf("%q, %v", buf[:n], err)
				}
				got := make(chan string)
				go func() {
					b := make([]byte, 4)
					io.ReadFull(other, b)
					got <- string(b)
				}()
				if n, err := p.Write([]byte("pong")); n != 4 || err != nil {
					t.Fatalf("%d, %v", n, err)
				}
				if err := p.Drain(); err != nil {
					t.Error(err)
				}
				if s := <-got; s != "pong" {
					t.Errorf("%q", s)
				}
			})
			t.Run("discard", func(t *testing.T) {
				done := make(chan struct{})
				go func() { other.Write([]byte("junk")); close(done) }()
				if kind != "pipe" {
					<-done
				}
				waitFor(t, func() bool {
					if err := p.Discard(); err != nil {
						t.Fatal(err)
					}
					select {
					case <-done:
						return true
					default:
						return false
					}
				})
				time.Sleep(5 * time.Millisecond) // the last byte may still be on its way through the kernel
				p.Discard()
				p.SetDeadline(time.Now().Add(20 * time.Millisecond))
				if n, err := p.Read(buf); n != 0 || !IsTimeout(err) {
					t.Errorf("%q is left, %v", buf[:n], err)
				}
			})
			t.Run("Close ends a Read", func(t *testing.T) {
				p.SetDeadline(time.Time{})
				ended := make(chan error)
				go func() { _, err := p.Read(make([]byte, 1)); ended <- err }()
				time.Sleep(10 * time.Millisecond)
				p.Close()
				if err := <-ended; err == nil || IsTimeout(err) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// waitFor tries until ok, for a bounded time.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatal("waited in vain")
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestPeerThatGoes(t *testing.T) {
	for _, kind := range []string{"tcp", "tls", "pipe", "pty"} {
		t.Run(kind, func(t *testing.T) {
			p, other := pair(t, kind)
			defer p.Close()
			other.Close()
			p.SetDeadline(time.Now().Add(5 * time.Second))
			if n, err := p.Read(make([]byte, 4)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("E2 %d, %v; want io.EOF", n, err)
			}
			if kind == "pty" {
				return
			}
			waitFor(t, func() bool { return errors.Is(p.Discard(), io.EOF) })
		})
	}
}

func TestE3SignalsAreNoErrors(t *testing.T) {
	p, other := pair(t, "pty")
	defer other.Close()
	defer p.Close()
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				syscall.Kill(syscall.Getpid(), syscall.SIGURG)
				time.Sleep(time.Millisecond)
			}
		}
	}()
	defer close(stop)
	for range 20 {
		p.SetDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := p.Read(make([]byte, 4)); !IsTimeout(err) {
			t.Fatal(err)
		}
	}
}

func TestSerialWriteEndsAtItsDeadline(t *testing.T) {
	p, other := pair(t, "pty")
	defer other.Close()
	defer p.Close()
	p.SetDeadline(time.Now().Add(100 * time.Millisecond))
	began := time.Now()
	if _, err := p.Write(make([]byte, 64<<10)); !IsTimeout(err) { // more than a terminal holds
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if _, err := p.Write([]byte{1}); !IsTimeout(err) {
		t.Errorf("with the deadline behind: %v", err)
	}
}

func TestE5OpeningSays(t *testing.T) {
	open := func(path string) error {
		p, err := Address{Scheme: "rtu", Path: path, Mode: DefaultMode}.Open(t.Context())
		if err == nil {
			p.Close()
		}
		return err
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/dev/ttyNone": "does not exist: plug the adapter in or correct the path",
		file:           "is not a serial device",
		"/dev/null":    "cannot be opened",
	} {
		if err := open(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	t.Run("opened twice", func(t *testing.T) {
		master, path := newPTY(t)
		defer master.Close()
		first, err := Address{Scheme: "rtu", Path: path, Mode: DefaultMode}.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		if err := open(path); err == nil || !strings.Contains(err.Error(), "in use by another program") {
			t.Errorf("%v", err)
		}
		first.Close()
		if err := open(path); err != nil {
			t.Errorf("after the first was closed: %v", err)
		}
	})
	t.Run("permission", func(t *testing.T) {
		master, path := newPTY(t)
		defer master.Close()
		err := permissionError(path)
		for _, want := range []string{"user ", path, "group "} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not name the %s", err, want)
			}
		}
		if os.Getuid() == 0 {
			t.Skip("root may open anything")
		}
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		if err := open(path); err == nil || !strings.Contains(err.Error(), "may not open") {
			t.Errorf("%v", err)
		}
	})
	t.Run("ended context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := (Address{Scheme: "rtu", Path: "/dev/null"}).Open(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

func TestDialingSays(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := l.Addr().String()
	l.Close()
	if _, err := (Address{Scheme: "tcp", Host: host}).Open(t.Context()); err == nil || !strings.Contains(err.Error(), host+" refuses the connection") {
		t.Errorf("%v", err)
	}
	for err, want := range map[error]string{
		&net.DNSError{Err: "no such host", Name: "plc"}: "cannot find host",
		syscall.EHOSTUNREACH:                            "cannot be reached",
		os.ErrDeadlineExceeded:                          "does not answer",
		errors.New("odd"):                               "cannot connect",
	} {
		if got := dialError("plc:502", err); !strings.Contains(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
