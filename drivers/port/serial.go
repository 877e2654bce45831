package port

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.bug.st/serial"
	"golang.org/x/sys/unix"
)

var parities = map[string]serial.Parity{
	"none": serial.NoParity, "odd": serial.OddParity, "even": serial.EvenParity,
	"mark": serial.MarkParity, "space": serial.SpaceParity,
}

var stops = map[int]serial.StopBits{1: serial.OneStopBit, 2: serial.TwoStopBits}

// serialPort is a serial line. The library opens it and sets its mode; bytes go through a descriptor of our own, which
// has deadlines (the library's Read tells a time-out by no byte and no error, and its Write has none), and on which an
// flock keeps others out: TIOCEXCL, which the library sets, does not stop root.
type serialPort struct {
	*os.File
	path   string
	line   serial.Port
	alarm  *Alarm
	closed atomic.Bool
}

func openSerial(ctx context.Context, path string, mode Mode, direction RS485) (Port, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	file, err := lockDevice(path)
	if err != nil {
		return nil, err
	}
	p, err := serial.Open(path, &serial.Mode{
		BaudRate: mode.Baud, DataBits: mode.Data, Parity: parities[mode.Parity], StopBits: stops[mode.Stop]})
	if err != nil {
		file.Close()
		return nil, openError(path, mode, err)
	}
	if err := direction.apply(file, path); err != nil {
		p.Close()
		file.Close()
		return nil, err
	}
	alarm, err := NewAlarm()
	if err != nil {
		p.Close()
		file.Close()
		return nil, fmt.Errorf("serial line %s: %w", path, err)
	}
	return &serialPort{File: file, path: path, line: p, alarm: alarm}, nil
}

// lockDevice opens the device for nobody else.
func lockDevice(path string) (*os.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, openError(path, Mode{}, err)
	}
	if st.Mode()&os.ModeCharDevice == 0 {
		return nil, fmt.Errorf("%s is not a serial device: give the path of one%s", path, knownLines())
	}
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, openError(path, Mode{}, err)
	}
	// Others keep a line for themselves by flock, by TIOCEXCL, which stops everybody but root, or by a file of its name.
	exclusive, err := unix.IoctlGetInt(fd, tiocgexcl)
	if err == nil && exclusive != 0 || syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil || lockFile(lockDir, path) != 0 {
		syscall.Close(fd)
		return nil, openError(path, Mode{}, syscall.EBUSY)
	}
	return os.NewFile(uintptr(fd), path), nil
}

const (
	tiocgexcl = 0x80045440 // of Linux: whether TIOCEXCL is in force
	lockDir   = "/run/lock"
)

// lockFile is the process that keeps the line by a file as terminal programs have them (LCK..ttyS1), or 0. A file whose
// process is gone keeps nothing.
func lockFile(dir, path string) int {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	b, err := os.ReadFile(filepath.Join(dir, "LCK.."+filepath.Base(path)))
	if err != nil || strings.HasPrefix(path, "/dev/pts/") {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 || pid == os.Getpid() || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return 0
	}
	return pid
}

// holder names a program that has the line open, as far as this one may know: " (minicom, process 4711)".
func holder(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || to != real {
			continue
		}
		pid := strings.Split(link, "/")[2]
		if pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		name, _ := os.ReadFile("/proc/" + pid + "/comm")
		return fmt.Sprintf(" (%s, process %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}

// openError says what helps.
func openError(path string, mode Mode, err error) error {
	var pe *serial.PortError
	code := serial.PortErrorCode(-1)
	if errors.As(err, &pe) {
		code = pe.Code()
	}
	switch {
	case errors.Is(err, os.ErrNotExist), code == serial.PortNotFound:
		return fmt.Errorf("serial line %s does not exist: plug the adapter in or correct the path%s", path, knownLines())
	case errors.Is(err, os.ErrPermission), code == serial.PermissionDenied:
		return permissionError(path)
	case errors.Is(err, syscall.EBUSY), code == serial.PortBusy:
		return fmt.Errorf("serial line %s is in use by another program%s: stop it (fuser %s names it) or give each its own line", path, holder(path), path)
	case code == serial.InvalidSpeed:
		return fmt.Errorf("serial line %s cannot run at %d baud: choose a rate that its adapter supports", path, mode.Baud)
	}
	return fmt.Errorf("serial line %s cannot be opened with %d baud: %w", path, mode.Baud, err)
}

// permissionError names the user, the group that owns the device, and the remedy.
func permissionError(path string) error {
	me := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		me = u.Username
	}
	st, err := os.Stat(path)
	sys, ok := (*syscall.Stat_t)(nil), false
	if err == nil {
		sys, ok = st.Sys().(*syscall.Stat_t)
	}
	if !ok {
		return fmt.Errorf("user %s may not open serial line %s: give it read and write permission", me, path)
	}
	group := strconv.FormatUint(uint64(sys.Gid), 10)
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	if st.Mode().Perm()&0o060 != 0o060 {
		return fmt.Errorf("user %s may not open serial line %s (mode %v, group %s): chmod g+rw %s, and put the user into group %s",
			me, path, st.Mode().Perm(), group, path, group)
	}
	return fmt.Errorf("user %s may not open serial line %s, which belongs to group %s: usermod -aG %s %s, then start again",
		me, path, group, group, me)
}

// knownLines lists the serial lines that are there, the names that survive re-plugging first.
func knownLines() string {
	var found []string
	for _, pattern := range []string{"/dev/serial/by-id/*", "/dev/ttyUSB*", "/dev/ttyACM*", "/dev/ttyAMA*"} {
		names, _ := filepath.Glob(pattern)
		found = append(found, names...)
	}
	if len(found) == 0 {
		return ""
	}
	return " (there are " + strings.Join(found, ", ") + ")"
}

func (p *serialPort) Read(b []byte) (int, error) {
	n, err := p.File.Read(b)
	return n, p.failed(err)
}

func (p *serialPort) Write(b []byte) (int, error) {
	n, err := p.File.Write(b)
	return n, p.failed(err)
}

// failed tells a line that was closed by us from one that vanished.
func (p *serialPort) failed(err error) error {
	var pe *serial.PortError
	switch {
	case err == nil, IsTimeout(err):
		return err
	case p.closed.Load():
		return net.ErrClosed
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO),
		errors.As(err, &pe) && pe.Code() == serial.PortClosed:
		return fmt.Errorf("serial line %s has vanished: %w", p.path, io.EOF)
	}
	return fmt.Errorf("serial line %s: %w", p.path, err)
}

// WaitUntil implements Waiter.
func (p *serialPort) WaitUntil(t time.Time) error {
	if err := p.alarm.Wait(t); err != nil {
		return net.ErrClosed
	}
	return nil
}

func (p *serialPort) Discard() error { return p.failed(p.line.ResetInputBuffer()) }

func (p *serialPort) Drain() error {
	for {
		if err := p.line.Drain(); !errors.Is(err, syscall.EINTR) {
			return p.failed(err)
		}
	}
}

func (p *serialPort) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	return errors.Join(p.alarm.Close(), p.line.Close(), p.File.Close())
}
