package uaserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"edged/uaserver/channel"
)

const (
	helloWait  = 2 * time.Minute // for a client's Hello, at most as long as Part 6, 7.1.3 allows; then another connection is made
	dialLimit  = 10 * time.Second
	firstPause = time.Second      // before a client that could not be reached is tried again; doubled each time
	lastPause  = 30 * time.Second // the longest
	steady     = 5 * time.Second  // a connection that lasted so long was wanted: many clients hold one for some time, and then close it
	dialEvery  = 100 * time.Millisecond
)

// ClientAddress is where a client listens for servers that connect to it, as host and port of its URL; opc.tcp alone is
// spoken. The error says how the URL is written.
func ClientAddress(client string) (string, error) {
	u, err := url.Parse(client)
	if err != nil || !strings.EqualFold(u.Scheme, "opc.tcp") || !plainHost(u.Hostname()) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("it is the URL of a client, such as opc.tcp://scada:4843")
	}
	if p, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || p == 0 {
		return "", errors.New("it needs the port that the client listens on, such as opc.tcp://scada:4843")
	}
	return net.JoinHostPort(u.Hostname(), u.Port()), nil
}

// ReverseConnect makes connections to clients that listen for this server (Part 6, 7.1.3), for a gateway behind a firewall
// that lets none in. At each client one is kept ready for its next Hello. It returns when ctx has ended; connections on
// which a client has said Hello live on until Shutdown. An error is a URL that is none.
func (s *Server) ReverseConnect(ctx context.Context, clients []string) error {
	all := make([]*reverse, len(clients))
	for i, client := range clients {
		addr, err := ClientAddress(client)
		if err != nil {
			return fmt.Errorf("%s: %w", client, err)
		}
		all[i] = &reverse{s: s, client: client, dial: func(ctx context.Context) (net.Conn, error) {
			d := net.Dialer{Timeout: dialLimit}
			return d.DialContext(ctx, "tcp", addr)
		}}
	}
	var running sync.WaitGroup
	for _, r := range all {
		running.Go(func() { r.run(ctx) })
	}
	running.Wait()
	return nil
}

// reverse keeps a connection ready at one client. Owned by its goroutine.
type reverse struct {
	s      *Server
	client string
	dial   func(context.Context) (net.Conn, error)
	known  bool // how it is was told
	failed bool // as it was told
}

// run makes one connection after the other until ctx ends.
func (r *reverse) run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		heard, err := r.once(ctx)
		took := time.Since(began)
		if ctx.Err() != nil {
			return
		}
		wait := pause/2 + rand.N(pause) // spread, so that a plant's gateways do not come all at once
		switch {
		case heard || errors.Is(err, channel.ErrNoHello):
			// The next is made ready at once, however fast the client takes them.
			pause, wait = firstPause, max(0, dialEvery-took)
		case took >= steady:
			pause = firstPause
		default:
			r.tell(true, err)
			pause = min(2*pause, lastPause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// once makes a connection, and returns when the client has said Hello on it, or why it has not.
func (r *reverse) once(ctx context.Context) (heard bool, _ error) {
	conn, err := r.dial(ctx)
	if err != nil {
		return false, err
	}
	hello, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- r.s.channels.ServeReverse(conn, channel.Reverse{
			ServerURI: r.s.cfg.ApplicationURI, EndpointURL: r.s.ownURL(), Wait: helloWait, Heard: func() { close(hello) },
		})
	}()
	lasts := time.NewTimer(steady)
	defer lasts.Stop()
	for {
		select {
		case <-hello:
			r.tell(false, nil)
			return true, nil
		case err := <-ended:
			select {
			case <-hello: // and it has ended already
				return true, nil
			default:
				return false, err
			}
		case <-lasts.C:
			r.tell(false, nil)
		case <-ctx.Done():
			conn.Close()
			<-ended
			return false, ctx.Err()
		}
	}
}

// tell logs how the client is, when that has changed.
func (r *reverse) tell(failed bool, err error) {
	if r.known && r.failed == failed {
		if failed {
			r.s.log.Debug("reverse connect: client is still not reached", "client", r.client, "error", err)
		}
		return
	}
	r.known, r.failed = true, failed
	if failed {
		r.s.log.Warn("reverse connect: client is not reached, or does not want this server: trying again", "client", r.client, "error", err)
		return
	}
	r.s.log.Info("reverse connect: a connection is ready at the client", "client", r.client)
}

// ownURL is the URL of this server where no client has named one: a configured host, and the port that is listened on.
func (s *Server) ownURL() string {
	host := "localhost"
	if len(s.cfg.Hosts) > 0 {
		host = s.cfg.Hosts[0]
	} else if h, err := os.Hostname(); err == nil {
		host = h
	}
	port := defaultPort
	if p := s.port.Load(); p != 0 {
		port = strconv.Itoa(int(p))
	}
	return "opc.tcp://" + net.JoinHostPort(host, port)
}
