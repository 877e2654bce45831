package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// How long to wait before a port is tried again: the double of the last time, between these.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// listening is one socket that the gateway listens on, for as long as it runs.
type listening struct {
	what    string // OPC UA or web page, for messages
	address string // as in the site file
	serve   func(net.Listener) error
	log     *slog.Logger

	up    chan struct{} // closed when the socket listens for the first time
	addr  atomic.Pointer[net.Addr]
	fault atomic.Pointer[error] // why it does not listen; nil while it does
}

func newListening(what, address string, log *slog.Logger, serve func(net.Listener) error) *listening {
	l := &listening{what: what, address: address, serve: serve, log: log, up: make(chan struct{})}
	waiting := fmt.Errorf("%s does not listen on %s yet", what, address)
	l.fault.Store(&waiting)
	return l
}

// run listens and serves until ctx ends. A port that cannot be had is told once, and tried again until it can: what
// holds it may be the last instance on its way out, and the field side works meanwhile.
func (l *listening) run(ctx context.Context) {
	var config net.ListenConfig
	told, first, pause := "", true, firstRetry
	for ctx.Err() == nil {
		socket, err := config.Listen(ctx, "tcp", l.address)
		if err == nil {
			l.log.Info(l.what+" listens", "address", socket.Addr().String())
			told, pause = "", firstRetry
			l.listens(socket.Addr(), first)
			first = false
			err = l.serve(socket)
			socket.Close() // Serve has closed it, but for an error
			if ctx.Err() != nil || err == nil {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		err = l.failure(err)
		l.fault.Store(&err)
		if text := err.Error(); text != told {
			l.log.Error(text)
			told = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastRetry)
	}
}

func (l *listening) listens(addr net.Addr, first bool) {
	l.addr.Store(&addr)
	l.fault.Store(nil)
	if first {
		close(l.up)
	}
}

// failure names the port and the way out.
func (l *listening) failure(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s: %s is in use by another program: stop it (ss -ltnp names it) or choose another port; trying again", l.what, l.address)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: this user may not listen on %s: choose a port above 1023 or give the right to (CAP_NET_BIND_SERVICE); trying again", l.what, l.address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s: no interface of this machine has the address %s: choose one that `ip address` lists, or 0.0.0.0; trying again", l.what, l.address)
	}
	return fmt.Errorf("%s: cannot listen on %s: %w; trying again", l.what, l.address, err)
}

// err is why it does not listen now, or nil.
func (l *listening) err() error {
	if e := l.fault.Load(); e != nil {
		return *e
	}
	return nil
}

// place is the address that others can use: the one listened on, with this machine's name for a wildcard.
func (l *listening) place() string {
	address := l.address
	if a := l.addr.Load(); a != nil {
		address = (*a).String()
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = hostName()
	}
	return net.JoinHostPort(host, port)
}
