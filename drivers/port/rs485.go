package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// RS485 has the kernel drive the direction of a two-wire line: it raises RTS while it sends. Off by default: adapters
// with a direction of their own do not need it, and some are upset by it.
type RS485 struct {
	On       bool
	Inverted bool          // RTS is low while sending
	Before   time.Duration // between RTS and the first bit, whole milliseconds
	After    time.Duration // between the last bit and RTS
}

// maxDelay is the longest that Linux takes for each delay (RS485_MAX_RTS_DELAY).
const maxDelay = 100 * time.Millisecond

// setMode reads the value of the url's key.
func (r *RS485) setMode(v string) error {
	switch v {
	case "on":
		r.On = true
	case "inverted":
		r.On, r.Inverted = true, true
	case "off":
	default:
		return fmt.Errorf("%q is not one of on, inverted, off", v)
	}
	return nil
}

// Linux: struct serial_rs485 and its flags, and the call that sets it.
const (
	tiocsrs485     = 0x542F
	rs485Size      = 32
	rs485Enabled   = 1 << 0
	rs485RTSOnSend = 1 << 1
	rs485RTSAfter  = 1 << 2
)

// encode is the kernel's struct: flags, delay before, delay after, and five words that are zero.
func (r RS485) encode() (b [rs485Size]byte) {
	flags := uint32(rs485Enabled | rs485RTSOnSend)
	if r.Inverted {
		flags = rs485Enabled | rs485RTSAfter
	}
	binary.NativeEndian.PutUint32(b[0:], flags)
	binary.NativeEndian.PutUint32(b[4:], uint32(r.Before/time.Millisecond))
	binary.NativeEndian.PutUint32(b[8:], uint32(r.After/time.Millisecond))
	return b
}

// apply switches the mode on. There is no way to ask for it and not get it: a line that cannot do it is an error.
func (r RS485) apply(file syscall.Conn, path string) error {
	if !r.On {
		return nil
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	b := r.encode()
	var errno syscall.Errno
	if err := raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, tiocsrs485, uintptr(unsafe.Pointer(&b)))
	}); err != nil {
		return err
	}
	switch {
	case errno == 0:
		return nil
	case errors.Is(errno, syscall.ENOTTY), errors.Is(errno, syscall.EINVAL), errors.Is(errno, syscall.EOPNOTSUPP):
		return fmt.Errorf("serial line %s: its driver does not drive the direction of RS-485: remove rs485=on if the adapter does so by itself: %w", path, errno)
	}
	return fmt.Errorf("serial line %s: RS-485 cannot be switched on: %w", path, errno)
}
