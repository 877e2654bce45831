package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Port is the device's end of a pseudo terminal. The other end has a path that a gateway opens as its serial port.
type Port struct {
	master *os.File
	slave  *os.File // held open, so that the terminal and its settings outlive a gateway that closes it
	link   string

	once sync.Once
}

// OpenRTU makes a pseudo terminal in raw mode without echo, and a symbolic link to its other end at link. A link that is
// there already is replaced, any other file is not. The folder of the link is made if it is missing.
func OpenRTU(link string) (*Port, error) {
	if at, err := os.Lstat(link); err == nil && at.Mode()&os.ModeSymlink == 0 {
		return nil, fmt.Errorf("%s exists and is no link: remove it or choose another path", link)
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return nil, err
	}
	p := &Port{link: link}
	err := p.open()
	if err == nil {
		err = p.prepare()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// open makes the two ends. Unlike creack/pty it leaves them non-blocking, or a read would know no deadline.
func (p *Port) open() error {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open("/dev/ptmx", flags, 0)
	if err != nil {
		return fmt.Errorf("no pseudo terminal is to be had: /dev/ptmx: %w", err)
	}
	p.master = os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock a pseudo terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("name a pseudo terminal: %w", err)
	}
	path := fmt.Sprintf("/dev/pts/%d", n)
	if fd, err = unix.Open(path, flags, 0); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	p.slave = os.NewFile(uintptr(fd), path)
	return makeRaw(fd)
}

// prepare puts the link in place, by a rename, so that it is never missing between two terminals.
func (p *Port) prepare() error {
	next := fmt.Sprintf("%s.%d", p.link, os.Getpid())
	os.Remove(next)
	if err := os.Symlink(p.slave.Name(), next); err != nil {
		return err
	}
	return os.Rename(next, p.link)
}

// makeRaw switches off everything that a terminal does to bytes.
func makeRaw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("settings of a pseudo terminal: %w", err)
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return fmt.Errorf("set a pseudo terminal raw: %w", err)
	}
	return nil
}

// Path is the link that a gateway opens.
func (p *Port) Path() string { return p.link }

// Read reads what the gateway wrote.
func (p *Port) Read(b []byte) (int, error) { return p.master.Read(b) }

// Write writes what the gateway reads.
func (p *Port) Write(b []byte) (int, error) { return p.master.Write(b) }

// SetReadDeadline bounds Read.
func (p *Port) SetReadDeadline(t time.Time) error { return p.master.SetReadDeadline(t) }

// Close ends the terminal and removes the link, if it still leads to it.
func (p *Port) Close() error {
	p.once.Do(func() {
		if p.slave != nil {
			if to, err := os.Readlink(p.link); err == nil && to == p.slave.Name() {
				os.Remove(p.link)
			}
			p.slave.Close()
		}
		if p.master != nil {
			p.master.Close()
		}
	})
	return nil
}
