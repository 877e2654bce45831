package port

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Alarm waits for moments more exactly than Go's timers, which the runtime's poller rounds up to whole milliseconds: a
// descriptor of the kernel's timer wakes the poller within some 50 us (median; a timer of Go's: 700 us). On a serial
// line each exchange waits several times, for less than 2 ms each. It is used by one goroutine; Close may come from any.
type Alarm struct {
	file *os.File
	buf  [8]byte
	spec unix.ItimerSpec
}

// NewAlarm makes an alarm.
func NewAlarm() (*Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &Alarm{file: os.NewFile(uintptr(fd), "alarm")}, nil
}

// Wait returns at the moment, or with an error when the alarm is closed.
func (a *Alarm) Wait(until time.Time) error {
	d := time.Until(until)
	if d <= 0 {
		return nil
	}
	raw, err := a.file.SyscallConn()
	if err != nil {
		return err
	}
	a.spec.Value = unix.NsecToTimespec(int64(d))
	set := raw.Control(func(fd uintptr) { err = unix.TimerfdSettime(int(fd), 0, &a.spec, nil) })
	if set != nil {
		return set
	}
	if err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	_, err = a.file.Read(a.buf[:])
	return err
}

// Close ends a Wait.
func (a *Alarm) Close() error { return a.file.Close() }
