//go:build !linux

package port

import (
	"net"
	"sync"
	"time"
)

// Alarm waits for moments as exactly as timers do. It is used by one goroutine; Close may come from any.
type Alarm struct {
	once   sync.Once
	closed chan struct{}
}

// NewAlarm makes an alarm.
func NewAlarm() (*Alarm, error) { return &Alarm{closed: make(chan struct{})}, nil }

// Wait returns at the moment, or with an error when the alarm is closed.
func (a *Alarm) Wait(until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-a.closed:
		return net.ErrClosed
	}
}

// Close ends a Wait.
func (a *Alarm) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}
