// Package uaserver is the client side: an OPC UA server that answers the services from memory and never waits for a
// device in a connection's goroutine. It hides how channels, sessions and subscriptions, which live apart, are joined.
package uaserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/channel"
	"edged/uaserver/event"
	"edged/uaserver/pki"
	"edged/uaserver/session"
	"edged/uaserver/subscription"
	"edged/uaserver/wire"
)

// Config is what a Server is made of. Space and Policies have to be given, and
// Certificate unless None is the only policy.
type Config struct {
	Name           string // of the application, for people
	ApplicationURI string // equal to the one in Certificate
	Build          Build
	Hosts          []string // host names and addresses for endpoints, when a client's own cannot be used; the first is used
	Policies       []channel.Policy
	Certificate    func() *pki.Own // the own certificate as it is now
	Trust          pki.Trust
	Anonymous      address.Rights // of a client without a user, its role with them; 0: none is let in
	Users          Users          // nil: there are none
	UserTrust      UserTrust      // of certificates that users log in with; nil: those that Users name are taken, and no others
	Space          *address.Space // its namespace 0 gets live values from the Server
	History        bool           // there are nodes with history
	Limits         Limits
	Channel        channel.Limits
	Subscription   subscription.Config
	Account        tag.Account // bytes of connections; nil: no limit
	Log            *slog.Logger
}

// Build is the BuildInfo of ServerStatus (Part 5, 12.4).
type Build struct {
	ProductURI   string
	Manufacturer string
	Product      string
	Version      string
	Number       string
	Date         time.Time
}

// Limits are the bounds of a Server. A zero field takes its default.
type Limits struct {
	Sessions             int           // 100
	MinSession           time.Duration // shortest session time-out, 10 s
	MaxSession           time.Duration // longest, 1 h
	Nodes                int           // operations in one Read, Write, Browse, Translate or Register, 10,000
	MonitoredItems       int           // operations in one call of a MonitoredItem service, 10,000
	Methods              int           // methods in one Call, 100
	HistoryNodes         int           // nodes in one HistoryRead, 1,000
	References           int           // references in one result of Browse, 1,000
	Continuations        int           // continuation points a session, 50
	HistoryContinuations int           // continuation points of HistoryRead a session, 1,000
	Registered           int           // registered nodes a session, 10,000
	Waiting              int           // requests of one session that may wait for devices at once, 16
	WaitingAll           int           // and of all sessions, 256
	Request              time.Duration // longest time that a request waits for devices, 30 s
	Message              uint32        // bytes of a request, 16 MiB; published as MaxRequestMessageSize
}

func (l *Limits) defaults() {
	or(&l.Sessions, 100)
	or(&l.MinSession, 10*time.Second)
	or(&l.MaxSession, time.Hour)
	or(&l.Nodes, 10_000)
	or(&l.MonitoredItems, 10_000)
	or(&l.Methods, 100)
	or(&l.HistoryNodes, 1000)
	or(&l.HistoryContinuations, 1000)
	or(&l.References, 1000)
	or(&l.Continuations, 50)
	or(&l.Registered, 10_000)
	or(&l.Waiting, 16)
	or(&l.WaitingAll, 256)
	or(&l.Request, 30*time.Second)
	or(&l.Message, 16<<20)
}

func or[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// ErrStopped is what Serve returns after Shutdown.
var ErrStopped = errors.New("uaserver: stopped")

// Server answers OPC UA clients. Its methods are safe for concurrent use.
type Server struct {
	cfg       Config
	space     *address.Space
	sessions  *session.Set
	engine    *subscription.Engine
	events    *event.Hub
	auditor   *auditor
	channels  *channel.Server
	status    *status
	endpoints []endpoint
	log       *slog.Logger

	ctx     context.Context // of requests that wait for devices; ends with Shutdown
	cancel  context.CancelFunc
	waiting sync.WaitGroup // requests in their own goroutines
	nWait   atomic.Int64
	turns   chan struct{} // of those that read history

	requests []atomic.Uint64 // by index into services
	unknown  atomic.Uint64   // requests of services that are not in the table
	panics   atomic.Uint64
	rejected rejections
	talk     chatter // of sessions that begin and end
	refusals chatter // of sessions that were not let in
	writes   chatter // of what was written
	door     *session.Door
	access   atomic.Pointer[access]
	stopping atomic.Bool
	port     atomic.Int32 // of the newest TCP listener

	mu    sync.Mutex                     // guards all below
	bound map[*channel.Channel][]*client // sessions by the channel that they are bound to
}

// access is who may log in. It is immutable, and replaced by Authorize.
type access struct {
	anonymous address.Rights
	users     Users     // nil: there are none
	nobody    *identity // who is anonymous
}

func newAccess(anonymous address.Rights, users Users) *access {
	return &access{anonymous, users, &identity{by: byNobody, rights: anonymous &^ address.MayAudit}}
}

// rejections are counters of ServerDiagnosticsSummary (Part 5, 12.9).
type rejections struct {
	sessions, securitySessions atomic.Uint64
	requests, securityRequests atomic.Uint64
}

// client is what the server joins to a session.
type client struct {
	*session.Session
	pub    *subscription.Client
	rights atomic.Uint32            // address.Rights since the last ActivateSession
	who    atomic.Pointer[identity] // nil: not activated
	writes chatter

	entering sync.Mutex  // held while an ActivateSession binds it to user and channel
	checking atomic.Bool // a password is being checked
	browse   continuations
	history  historyPoints
	aliases  aliases
	wait     waiting
	counts   counts
	about    unique.Handle[string] // its ClientDescription, ServerUri and EndpointUrl, encoded (Part 5, 12.11): the same for many
	own      *pki.Own              // the server's certificate that it was made with
	ch       *channel.Channel      // that it is bound to; guarded by Server.mu
}

// userName is the session's user as the log names him.
func (c *client) userName() string {
	if who := c.who.Load(); who != nil {
		return who.String()
	}
	return ""
}

// may are the rights of the session's user.
func (c *client) may() address.Rights { return address.Rights(c.rights.Load()) }

// check tells what is missing.
func (c *Config) check() error {
	if c.Space == nil || len(c.Policies) == 0 {
		return errors.New("uaserver: an address space and at least one policy are needed")
	}
	for _, p := range c.Policies {
		if p.URI != ua.SecurityPolicyURINone && (c.Certificate == nil || c.Certificate() == nil || c.Trust == nil) {
			return fmt.Errorf("uaserver: policy %s needs a certificate, and somebody who says whom to trust", p.URI)
		}
	}
	return nil
}

// New makes a Server. It takes over the live variables of namespace 0.
func New(cfg Config) (*Server, error) {
	cfg.Limits.defaults()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	or(&cfg.Subscription.Subscriptions, 1000)
	or(&cfg.Subscription.Items, 500_000)
	or(&cfg.Subscription.Queue, 10_000)
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, space: cfg.Space, log: cfg.Log, door: session.NewDoor(), bound: map[*channel.Channel][]*client{}}
	s.turns = make(chan struct{}, historyTurns)
	s.access.Store(newAccess(cfg.Anonymous, cfg.Users))
	s.requests = make([]atomic.Uint64, len(services))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.endpoints = endpointsOf(&cfg)
	s.sessions = session.New(session.Limits{
		Sessions: cfg.Limits.Sessions, MinTimeout: cfg.Limits.MinSession, MaxTimeout: cfg.Limits.MaxSession,
		Activation: activation,
	}, s.sessionEnded)
	sc := s.subscriptionConfig()
	s.events = event.New(s.space, cmp.Or(sc.Queues, sc.Account), s.log)
	sc.Events, s.auditor = s.events, &auditor{hub: s.events}
	s.engine = subscription.New(sc)
	s.channels = channel.New(channel.Config{
		Certificate: cfg.Certificate, Trust: cfg.Trust, Policies: cfg.Policies, Limits: cfg.Channel,
		Account: cfg.Account, Log: cfg.Log,
	}, handler{s})
	var err error
	if s.status, err = newStatus(s); err != nil {
		s.cancel()
		s.engine.Close()
		s.events.Close()
		return nil, err
	}
	if w, ok := cfg.Trust.(changing); ok {
		s.waiting.Go(func() { s.watchTrust(w, s.checkTrust) })
	}
	if w, ok := cfg.UserTrust.(changing); ok {
		s.waiting.Go(func() { s.watchTrust(w, s.checkUserTrust) })
	}
	return s, nil
}

// changing is a Trust that tells when it may refuse whom it took before.
type changing interface{ Changes() uint64 }

// trustEvery is how often a Trust is asked whether it has changed.
const trustEvery = time.Second

// watchTrust calls check whenever t has changed, until the Server stops.
func (s *Server) watchTrust(t changing, check func()) {
	every := time.NewTicker(trustEvery)
	defer every.Stop()
	seen := t.Changes()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-every.C:
		}
		if now := t.Changes(); now != seen {
			seen = now
			check()
		}
	}
}

// checkTrust ends channels and sessions of clients whose certificates are taken no more.
func (s *Server) checkTrust() {
	for _, ch := range s.channels.CheckTrust() {
		s.mu.Lock()
		clients := slices.Clone(s.bound[ch])
		s.mu.Unlock()
		for _, c := range clients {
			s.sessions.Distrust(c.Session)
		}
	}
}

// Serve accepts connections until Shutdown, and then returns ErrStopped. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	if tcp, ok := l.Addr().(*net.TCPAddr); ok {
		s.port.Store(int32(tcp.Port))
	}
	err := s.channels.Serve(l)
	if s.stopping.Load() {
		return ErrStopped
	}
	return err
}

// ServeConn serves one connection, until it ends.
func (s *Server) ServeConn(c net.Conn) { s.channels.ServeConn(c) }

// Shutdown stops the server: ServerStatus says Shutdown with the reason and the seconds that are left, so that
// subscribers hear of it; after that time, or when ctx ends, sessions and connections are closed. It returns when all
// of the server's goroutines have ended.
func (s *Server) Shutdown(ctx context.Context, reason string, after time.Duration) {
	if !s.stopping.CompareAndSwap(false, true) {
		return
	}
	s.status.shutdown(reason, after)
	if after > 0 {
		timer := time.NewTimer(after)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	s.cancel()
	s.sessions.Stop()
	s.waiting.Wait()
	s.engine.Close()
	s.auditor.stop()
	s.events.Close()
	s.channels.Shutdown(ctx)
}

// Closed tells that a channel ended. Its sessions live on, for a client that comes back; the Publish requests that
// came through it do not.
func (h handler) Closed(ch *channel.Channel) { h.s.unbound(ch) }

// unbound takes the sessions off a channel that has ended. It may be called twice.
func (s *Server) unbound(ch *channel.Channel) {
	s.mu.Lock()
	clients := s.bound[ch]
	delete(s.bound, ch)
	s.mu.Unlock()
	for _, c := range clients {
		c.pub.Detach(sender{ch, c})
		c.Leave(ch.ID())
	}
}

// bind notes that a session is bound to a channel, and no longer to the one before.
func (s *Server) bind(c *client, ch *channel.Channel) {
	s.mu.Lock()
	old := c.ch
	if old == ch {
		s.mu.Unlock()
		return
	}
	s.unbind(c)
	c.ch = ch
	s.bound[ch] = append(s.bound[ch], c)
	ch.Trusted()
	s.mu.Unlock()
	if old != nil {
		c.pub.Detach(sender{old, c})
	}
}

// unbind is called with s.mu held.
func (s *Server) unbind(c *client) {
	if c.ch == nil {
		return
	}
	rest := slices.DeleteFunc(s.bound[c.ch], func(o *client) bool { return o == c })
	if len(rest) == 0 {
		delete(s.bound, c.ch)
		c.ch.Untrusted()
	} else {
		s.bound[c.ch] = rest
	}
	c.ch = nil
}

// sessionEnded is called once a session, when nobody can find it any more.
func (s *Server) sessionEnded(se *session.Session, why session.Reason, deleteSubscriptions bool) {
	c := se.Joined.(*client)
	c.wait.cancelAll()
	c.pub.Close(deleteSubscriptions)
	s.mu.Lock()
	s.unbind(c)
	s.mu.Unlock()
	if se.Activated() { // of others nobody was told that they began
		s.talk.say(s.log, "session ended", "session", se.Peer.Name, "client", se.Peer.ApplicationName, "user", c.userName(),
			"from", se.Peer.Address, "why", why.String())
	}
}

// Stats is what a Server counts, for metrics.
type Stats struct {
	Requests map[string]uint64 // by service name
	Sessions session.Counts
	Panics   uint64 // requests that ended in a panic; each closed its connection
	Waiting  int    // requests that wait for devices
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	st := Stats{
		Requests: make(map[string]uint64, len(services)+1), Sessions: s.sessions.Counts(),
		Panics: s.panics.Load(), Waiting: int(s.nWait.Load()),
	}
	for i := range services {
		st.Requests[services[i].name] = s.requests[i].Load()
	}
	st.Requests["unsupported"] = s.unknown.Load()
	return st
}

// subscriptionConfig fills in what the engine needs of the server.
func (s *Server) subscriptionConfig() subscription.Config {
	cfg := s.cfg.Subscription
	cfg.Space, cfg.Log = s.space, s.log
	if cfg.EURange == nil {
		cfg.EURange = s.euRange
	}
	return cfg
}

// euRange finds the range of an analog variable, which percent deadbands refer to (Part 8, 7.2).
func (s *Server) euRange(n *address.Node) (low, high float64, ok bool) {
	s.space.References(n, func(kind *address.Node, inverse bool, target *address.Node) bool {
		if inverse || target.BrowseNS != 0 || target.BrowseName != "EURange" || kind.ID != wire.NumericID(0, id.HasProperty) {
			return true
		}
		items := []address.ReadItem{{Node: target, Attribute: ua.AttributeIDValue}}
		s.space.Read(context.Background(), address.MayRead, items)
		r := wire.NewReader(items[0].Result.Value.Bytes())
		if r.Uint8() != 22 { // an ExtensionObject
			return true
		}
		x := r.Extension()
		if r.Err() == nil && x.Is(id.Range_Encoding_DefaultBinary) {
			b := wire.NewReader(x.Body)
			low, high = b.Float64(), b.Float64()
			ok = b.Err() == nil && low < high
		}
		return !ok
	})
	return low, high, ok
}

// Events is where events are raised that clients of the server watch.
func (s *Server) Events() *event.Hub { return s.events }

// Engine is the subscription engine, for its figures.
func (s *Server) Engine() *subscription.Engine { return s.engine }

// State is ServerStatus.State.
func (s *Server) State() ua.ServerState { return s.status.state() }
