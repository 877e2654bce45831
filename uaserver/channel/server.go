package channel

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/pki"
)

// Server accepts connections and runs their channels.
type Server struct {
	cfg     Config
	handler Handler
	linger  time.Duration // for a peer to take the Error message before its connection is closed
	keys    chan struct{} // a place for each private key operation at a time
	refused chan struct{} // a place for each connection that is being told that there is no room
	ids     atomic.Uint32 // last SecureChannelId

	refusals refusals

	mu        sync.Mutex // guards all below
	closing   bool
	listeners map[net.Listener]struct{}
	channels  map[*Channel]struct{}
	byAddress map[netip.Addr]int
	number    uint64 // connections so far
	shared    map[[sha256.Size]byte]*shared
	running   sync.WaitGroup
}

// New returns a Server that gives requests to h.
func New(cfg Config, h Handler) *Server {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	s := &Server{cfg: cfg, handler: h, linger: linger,
		keys:      make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)),
		refused:   make(chan struct{}, maxRefused),
		shared:    map[[sha256.Size]byte]*shared{},
		listeners: map[net.Listener]struct{}{}, channels: map[*Channel]struct{}{}, byAddress: map[netip.Addr]int{}}
	for _, p := range cfg.Policies {
		if policies[p.URI] == nil || !s.offers(p.URI, s.own()) {
			cfg.Log.Error("security policy is not offered: it is unknown, there is no certificate or trust list, or the certificate's key is too large for it", "policy", p.URI)
		}
	}
	var first [4]byte
	rand.Read(first[:])
	s.ids.Store(binary.LittleEndian.Uint32(first[:]))
	return s
}

// Serve accepts connections from l until Shutdown, which closes l and makes Serve return nil, or until l fails. Nothing
// that a peer does or leaves undone delays it.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		l.Close()
		return nil
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		l.Close()
	}()
	var pause time.Duration
	for {
		conn, err := l.Accept()
		if err != nil {
			if s.isClosing() {
				return nil
			}
			if ne, ok := err.(net.Error); !ok || !ne.Timeout() && !temporary(err) {
				return fmt.Errorf("accept on %v: %w", l.Addr(), err)
			}
			// Out of descriptors: connections that end give some back.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.cfg.Log.Error("accept", "listener", l.Addr(), "error", err, "again in", pause)
			time.Sleep(pause)
			continue
		}
		pause = 0
		if c := s.admit(conn); c != nil {
			go s.run(c)
		}
	}
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// ServeConn runs one connection and returns when it has ended. It closes conn.
func (s *Server) ServeConn(conn net.Conn) {
	if c := s.admit(conn); c != nil {
		s.run(c)
	}
}

func (s *Server) run(c *Channel) {
	defer s.running.Done()
	defer s.leave(c)
	c.run()
}

// admit makes room for a connection, or refuses it. Where a bound is reached, the oldest connection on which no session
// was activated gives way: honest clients activate one soon.
func (s *Server) admit(conn net.Conn) *Channel {
	c := &Channel{s: s, conn: conn, addr: addressOf(conn), began: time.Now(), policy: policies[ua.SecurityPolicyURINone]}
	c.in.account, c.out.account = s.cfg.Account, s.cfg.Account
	c.attach()
	old, ok := s.enter(c)
	for _, o := range old {
		s.refusals.log(o.log(), o.addr, faultf(ua.StatusBadTCPServerTooBusy, "dropped: it has no session, and there are too many connections"))
		o.abort()
	}
	if !ok {
		return nil
	}
	return c
}

// enter counts a connection, and stops counting those that give way to it. One that finds no room is refused.
func (s *Server) enter(c *Channel) (old []*Channel, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.cfg.Limits
	if s.closing {
		c.conn.Close()
		return nil, false
	}
	s.running.Add(1)
	if s.byAddress[c.addr] >= l.PerAddress && !s.giveWay(c.addr, &old) || len(s.channels) >= l.Connections && !s.giveWay(netip.Addr{}, &old) {
		go c.refuse()
		return old, false
	}
	s.number++
	c.number = s.number
	s.channels[c] = struct{}{}
	s.byAddress[c.addr]++
	return old, true
}

// giveWay moves a connection without a session to old, of one address if addr is valid: the oldest of the address that has
// most of them, so that no peer drives out others by coming again and again. s.mu is held.
func (s *Server) giveWay(addr netip.Addr, old *[]*Channel) bool {
	var oldest *Channel
	most, of := 0, map[netip.Addr]int{}
	for c := range s.channels {
		if !c.trusted.Load() && (!addr.IsValid() || c.addr == addr) {
			of[c.addr]++
			most = max(most, of[c.addr])
		}
	}
	for c := range s.channels {
		if !c.trusted.Load() && of[c.addr] == most && (oldest == nil || c.number < oldest.number) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	s.forget(oldest)
	oldest.gone.Store(true)
	*old = append(*old, oldest)
	return true
}

// forget stops counting a connection. s.mu is held.
func (s *Server) forget(c *Channel) {
	if _, ok := s.channels[c]; !ok {
		return
	}
	delete(s.channels, c)
	if s.byAddress[c.addr]--; s.byAddress[c.addr] <= 0 {
		delete(s.byAddress, c.addr)
	}
}

func (s *Server) leave(c *Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(c)
	if c.certificate == nil {
		return
	}
	sum := sha256.Sum256(c.certificate)
	if e := s.shared[sum]; e.users == 1 {
		delete(s.shared, sum)
	} else {
		e.users--
	}
}

// shared is a certificate that channels hold: about a kilobyte, which a client with many connections has once.
type shared struct {
	der   []byte
	users int
}

// share returns a copy of a certificate for one channel, which gives it back when it leaves.
func (s *Server) share(der []byte) []byte {
	if der == nil {
		return nil
	}
	sum := sha256.Sum256(der)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.shared[sum]
	if e == nil {
		e = &shared{der: bytes.Clone(der)}
		s.shared[sum] = e
	}
	e.users++
	return e.der
}

// maxRefused is how many connections at a time are told that there is no room. More are closed without a word.
const maxRefused = 16

// refuse tells a client that there is no room, and closes.
func (c *Channel) refuse() {
	defer c.s.running.Done()
	f := faultf(ua.StatusBadTCPServerTooBusy, "there are too many connections, and all have sessions")
	c.s.refusals.log(c.log(), c.addr, f)
	select {
	case c.s.refused <- struct{}{}:
		c.end(f)
		c.finish(true)
		<-c.s.refused
	default:
		c.conn.Close()
	}
}

// Connections is how many connections there are.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.channels)
}

// Shutdown closes listeners, lets waiting replies go out, closes all connections and waits for their goroutines. When ctx
// ends first, what still waits to be sent is given up, and ctx's error is returned without waiting for Handlers.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	for l := range s.listeners {
		l.Close()
	}
	open := slices.Collect(maps.Keys(s.channels))
	s.mu.Unlock()
	for _, c := range open {
		c.Close(ua.StatusBadServerHalted)
	}
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	for _, c := range open {
		c.abort()
	}
	return ctx.Err()
}

// CheckTrust asks Config.Trust about the certificates of all channels again, which they are asked about at each renewal
// anyway, and ends the channels of those that are refused now. It returns them.
func (s *Server) CheckTrust() (ended []*Channel) {
	if s.cfg.Trust == nil {
		return nil
	}
	var secured []*Channel
	s.mu.Lock()
	for c := range s.channels {
		if c.opened && c.certificate != nil {
			secured = append(secured, c)
		}
	}
	s.mu.Unlock()
	for _, c := range secured {
		chain, err := pki.Parse(slices.Concat(c.certificate, c.issuers))
		if err == nil {
			err = s.cfg.Trust.Check(chain, c.policy.strength, time.Now())
		}
		if err == nil || c.closing.Load() {
			continue
		}
		f := untrusted(err)
		c.log().Warn("channel ended: its client's certificate is taken no more", "channel", c.id, "code", codeName(f.code), "reason", f.Error())
		c.end(f)
		ended = append(ended, c)
	}
	return ended
}

// private runs a private key operation beside the read goroutine.
func (c *Channel) private(f func() error) error {
	return aside(func() error { return c.inTurn(f) })
}

// inTurn runs a private key operation in its turn. The caller is beside the read goroutine.
func (c *Channel) inTurn(f func() error) error {
	if err := c.turnOf(); err != nil {
		return err
	}
	defer c.s.turnEnds()
	return guard(f)
}

// turnOf waits until there is a place for a private key operation; no more of them run at a time than leaves a core to
// those who are connected. A channel that ended meanwhile gets ErrClosed: the operations of a storm's peers, which have
// given way to others long since, keep nobody waiting.
func (c *Channel) turnOf() error {
	c.s.keys <- struct{}{}
	if c.gone.Load() || c.closing.Load() {
		c.s.turnEnds()
		return ErrClosed
	}
	return nil
}

func (s *Server) turnEnds() { <-s.keys }

// aside runs f, which works on certificates or with RSA, beside the read goroutine, whose stack so stays small.
func aside(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- guard(f) }()
	return <-done
}

// nextID gives the next SecureChannelId. The first is random, so that a client of an earlier process finds nobody else's.
func (s *Server) nextID() uint32 {
	for {
		if id := s.ids.Add(1); id != 0 {
			return id
		}
	}
}

// own is the gateway's certificate as it is now; nil: there is none.
func (s *Server) own() *pki.Own {
	if s.cfg.Certificate == nil {
		return nil
	}
	return s.cfg.Certificate()
}

// offers reports whether a policy is accepted with the gateway's certificate own.
func (s *Server) offers(uri string, own *pki.Own) bool {
	if uri == ua.SecurityPolicyURINone {
		return true
	}
	return Fits(uri, own) && s.cfg.Trust != nil && slices.ContainsFunc(s.cfg.Policies, func(p Policy) bool { return p.URI == uri })
}

// Fits reports whether a policy can be used with a certificate of the gateway: it limits the size of the key (Part 7).
func Fits(policyURI string, own *pki.Own) bool {
	p := policies[policyURI]
	if p == nil || p.nonce == 0 {
		return p != nil
	}
	return own != nil && own.Key().N.BitLen() <= p.strength.MaxBits
}

// offersMode reports whether a mode is accepted with a policy. None goes with policy None, and with no other.
func (s *Server) offersMode(uri string, mode ua.MessageSecurityMode) bool {
	if uri == ua.SecurityPolicyURINone || mode == ua.MessageSecurityModeNone {
		return uri == ua.SecurityPolicyURINone && mode == ua.MessageSecurityModeNone
	}
	return slices.ContainsFunc(s.cfg.Policies, func(p Policy) bool { return p.URI == uri && slices.Contains(p.Modes, mode) })
}

// addressOf is the peer's IP address, without the port.
func addressOf(conn net.Conn) netip.Addr {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

func remoteOf(conn net.Conn) string {
	if a := conn.RemoteAddr(); a != nil {
		return a.String()
	}
	return "unknown"
}

// temporary reports errors of accept that pass: too many open files, and a connection that was gone before it was taken.
func temporary(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EINTR)
}
