// Package session keeps the sessions of clients: tokens, nonces, their binding to channels, their time-outs.
// It hides when a session ends; what a session may do and what belongs to it is joined to it by its owner.
package session

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// NonceSize is the length of a server nonce in bytes; Part 4, 5.6.2 asks for 32 at least.
const NonceSize = 32

// tokenSize is the length of an AuthenticationToken in bytes: too long to be guessed (Part 4, 7.36).
const tokenSize = 32

// Errors of Create and Activate. The service gives each of them its status code.
var (
	ErrFull    = errors.New("session: no free session; raise limits.sessions or close some")
	ErrEnded   = errors.New("session: the server is stopping, or the session has ended")
	ErrChannel = errors.New("session: first activated from another channel than it was made on")
)

// Reason is why a session ended.
type Reason uint8

// The reasons.
const (
	Closed     Reason = iota // CloseSession
	TimedOut                 // no request within its time-out
	Evicted                  // never activated, when another client needed the place
	Replaced                 // its connection was gone, and another client needed the place
	Shutdown                 // the server stops
	Revoked                  // its user may no longer log in
	Distrusted               // its client's certificate is taken no more
)

var reasonNames = [...]string{"closed", "timed out", "never activated", "replaced", "shutdown", "its user may no longer log in", "its client's certificate is taken no more"}

// String is the reason as a log shows it.
func (r Reason) String() string { return reasonNames[r] }

// grace is how long a session whose connection is gone waits for its client, before one of another client may take its
// place: a cut link and a restart of a network switch are shorter.
const grace = 30 * time.Second

// Limits are the bounds of a Set.
type Limits struct {
	Sessions   int           // at once; at least 1
	MinTimeout time.Duration // a revised time-out is never shorter
	MaxTimeout time.Duration // nor longer
	Activation time.Duration // how long a session may live without being activated
}

// End tells the owner of a Set that a session ended. It is called once a session, with no lock held.
type End func(s *Session, why Reason, deleteSubscriptions bool)

// Set is all sessions of a server.
type Set struct {
	limits Limits
	end    End
	epoch  time.Time // of the monotonic times in Session.last

	mu      sync.RWMutex // guards all below
	byToken map[string]*Session
	byID    map[uint32]*Session
	serial  uint64 // of the newest session
	stopped bool
	counts  Counts
	ending  sync.WaitGroup // calls of end that Stop has to wait for; added to with mu held
}

// Counts are what a Set counted since it was made (Part 5, 12.9).
type Counts struct {
	Current  int    // sessions alive
	Total    uint64 // sessions ever made
	TimedOut uint64 // ended by time-out, evicted, or replaced
	Refused  uint64 // for want of a free session
}

// New makes an empty Set. end may be nil.
func New(limits Limits, end End) *Set {
	limits.Sessions = max(limits.Sessions, 1)
	if end == nil {
		end = func(*Session, Reason, bool) {}
	}
	return &Set{
		limits: limits, end: end, epoch: time.Now(),
		byToken: map[string]*Session{}, byID: map[uint32]*Session{},
	}
}

// Peer is what a client says of itself when it makes a session.
type Peer struct {
	Name            string // of the session
	ApplicationURI  string
	ApplicationName string
	EndpointURL     string
	Address         string // where it connected from
	Certificate     []byte // DER; nil on a channel without security
	MaxResponse     uint32 // bytes; 0: no limit
}

// Session is one session. Its exported fields are set before Create returns and are read only.
type Session struct {
	ID          uint32 // numeric part of the SessionId
	Token       string // opaque part of the AuthenticationToken
	Timeout     time.Duration
	Peer        Peer // without its Certificate, of which only the thumbprint is kept
	Joined      any  // what the owner of the Set joins to it
	Created     time.Time
	thumbprint  [sha256.Size]byte
	hasIdentity bool // thumbprint is that of a certificate
	set         *Set
	serial      uint64 // order of creation
	channel     atomic.Uint32
	active      atomic.Bool
	last        atomic.Int64 // when a request came, in ns since set.epoch
	left        atomic.Int64 // when its channel ended, likewise; 0: it is bound to one

	mu      sync.Mutex // guards all below
	nonce   []byte
	locales []string
	timer   *time.Timer
	ended   bool
}

// Create makes a session on a channel. asked is the time-out that the client wants, revised within the Limits. join
// returns what is joined to it and is called before anybody can find the session; it may be nil.
// The error is ErrFull or ErrEnded.
func (t *Set) Create(channel uint32, asked time.Duration, peer Peer, join func(*Session) any) (*Session, error) {
	s := &Session{
		Token: random(tokenSize), Timeout: max(t.limits.MinTimeout, min(asked, t.limits.MaxTimeout)),
		Peer: peer, Created: time.Now(), set: t, nonce: []byte(random(NonceSize)),
	}
	if s.hasIdentity = peer.Certificate != nil; s.hasIdentity {
		s.thumbprint = sha256.Sum256(peer.Certificate)
	}
	s.Peer.Certificate = nil
	s.channel.Store(channel)
	s.touch()
	victim, err := t.enter(s, join)
	switch {
	case victim == nil:
	case victim.active.Load():
		t.end(victim, Replaced, false)
	default:
		t.end(victim, Evicted, true)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// enter adds s. When there is no place, another one gives way.
func (t *Set) enter(s *Session, join func(*Session) any) (victim *Session, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return nil, ErrEnded
	}
	if len(t.byToken) >= t.limits.Sessions {
		if victim = t.givesWay(s); victim == nil || !t.remove(victim) {
			t.counts.Refused++
			return nil, ErrFull
		}
		t.counts.TimedOut++
	}
	for s.ID == 0 || t.byID[s.ID] != nil {
		s.ID = binary.LittleEndian.Uint32([]byte(random(4)))
	}
	t.serial++
	s.serial = t.serial
	if join != nil {
		s.Joined = join(s)
	}
	t.byToken[s.Token] = s
	t.byID[s.ID] = s
	t.counts.Total++
	s.mu.Lock()
	s.timer = time.AfterFunc(s.patience(), s.expire)
	s.mu.Unlock()
	return victim, nil
}

// givesWay finds the session whose place s may take, or nil: the oldest that was never activated (Part 4, 5.7.2.1), or the
// one that has been without a connection for longest. The latter goes first while few are not activated: clients
// that are about to log in do not displace each other, and who cannot log in cannot displace many. A client that comes
// again and again without closing its sessions displaces its own. It is called with t.mu held.
func (t *Set) givesWay(s *Session) *Session {
	var waiting, own, left *Session
	inactive, now := 0, int64(time.Since(t.epoch))
	for _, o := range t.byToken {
		at := o.left.Load()
		switch {
		case !o.active.Load():
			inactive++
			if waiting == nil || o.serial < waiting.serial {
				waiting = o
			}
		case at == 0:
		case o.Peer.ApplicationURI == s.Peer.ApplicationURI && o.hasIdentity == s.hasIdentity && o.thumbprint == s.thumbprint:
			if own == nil || at < own.left.Load() {
				own = o
			}
		case now-at >= int64(grace) && (left == nil || at < left.left.Load()):
			left = o
		}
	}
	if inactive > t.limits.Sessions/10 {
		return waiting
	}
	return cmp.Or(own, left, waiting)
}

// remove takes s out of the maps, and reports whether it was there. It is called with t.mu held.
func (t *Set) remove(s *Session) bool {
	if t.byToken[s.Token] != s {
		return false
	}
	delete(t.byToken, s.Token)
	delete(t.byID, s.ID)
	s.mu.Lock()
	s.ended = true
	s.timer.Stop()
	s.mu.Unlock()
	return true
}

// Find returns the session of a token and notes that a request came for it, or nil.
func (t *Set) Find(token string) *Session {
	t.mu.RLock()
	s := t.byToken[token]
	t.mu.RUnlock()
	if s != nil {
		s.touch()
	}
	return s
}

// All returns the sessions in order of creation.
func (t *Set) All() []*Session {
	t.mu.RLock()
	all := make([]*Session, 0, len(t.byToken))
	for _, s := range t.byToken {
		all = append(all, s)
	}
	t.mu.RUnlock()
	slices.SortFunc(all, func(a, b *Session) int { return int(int64(a.serial - b.serial)) })
	return all
}

// Counts returns what was counted so far.
func (t *Set) Counts() Counts {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c := t.counts
	c.Current = len(t.byToken)
	return c
}

// Close ends a session at its client's wish.
func (t *Set) Close(s *Session, deleteSubscriptions bool) { t.close(s, Closed, deleteSubscriptions) }

// Revoke ends a session, with its subscriptions, because its user may no longer log in.
func (t *Set) Revoke(s *Session) { t.close(s, Revoked, true) }

// Distrust ends a session, with its subscriptions, because its client's certificate is taken no more.
func (t *Set) Distrust(s *Session) { t.close(s, Distrusted, true) }

func (t *Set) close(s *Session, why Reason, deleteSubscriptions bool) {
	t.mu.Lock()
	found := t.remove(s)
	if found {
		t.ending.Add(1)
	}
	t.mu.Unlock()
	if found {
		t.end(s, why, deleteSubscriptions)
		t.ending.Done()
	}
}

// Stop ends all sessions and refuses new ones. It returns when every End has returned.
func (t *Set) Stop() {
	t.mu.Lock()
	t.stopped = true // from here on no session is added
	t.mu.Unlock()
	for _, s := range t.All() {
		t.mu.Lock()
		found := t.remove(s)
		t.mu.Unlock()
		if found {
			t.end(s, Shutdown, true)
		}
	}
	t.ending.Wait()
}

// touch notes that the client is there.
func (s *Session) touch() { s.last.Store(int64(time.Since(s.set.epoch))) }

// LastContact is when the client's last request came.
func (s *Session) LastContact() time.Time { return s.set.epoch.Add(time.Duration(s.last.Load())) }

// patience is how long the session lives without a request.
func (s *Session) patience() time.Duration {
	if a := s.set.limits.Activation; a > 0 && !s.active.Load() {
		return min(a, s.Timeout)
	}
	return s.Timeout
}

// expire runs when the session's timer fires: the session ends if nothing came since, or the timer is set again. So a
// request costs one store, and no timer is moved for it.
func (s *Session) expire() {
	left := s.patience() - (time.Since(s.set.epoch) - time.Duration(s.last.Load()))
	if !s.active.Load() { // requests do not prolong a session that is not activated
		left = s.patience() - time.Since(s.Created)
	}
	if left > 0 {
		s.mu.Lock()
		if !s.ended {
			s.timer.Reset(left)
		}
		s.mu.Unlock()
		return
	}
	t := s.set
	t.mu.Lock()
	found := !t.stopped && t.remove(s)
	if found {
		t.counts.TimedOut++
		t.ending.Add(1)
	}
	t.mu.Unlock()
	if found {
		t.end(s, TimedOut, false)
		t.ending.Done()
	}
}

// Activated reports whether ActivateSession has succeeded once.
func (s *Session) Activated() bool { return s.active.Load() }

// Channel is the channel that the session is bound to.
func (s *Session) Channel() uint32 { return s.channel.Load() }

// Leave notes that a channel has ended. A session that is bound to it lives on and waits for its client, until its
// time-out or until its place is needed.
func (s *Session) Leave(channel uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channel.Load() == channel {
		s.left.Store(int64(time.Since(s.set.epoch)) | 1) // never 0
	}
}

// SameClient reports whether a channel's client certificate (nil: none) is the one that the session was made with
// (Part 4, 5.6.3: a session moves only to a channel of the same client).
func (s *Session) SameClient(certificate []byte) bool {
	if certificate == nil || !s.hasIdentity {
		return certificate == nil && !s.hasIdentity
	}
	return sha256.Sum256(certificate) == s.thumbprint
}

// Nonce is the server nonce that the next client signature covers.
func (s *Session) Nonce() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nonce
}

// Activate binds the session to a channel and returns a new nonce. The first activation comes on the channel that the
// session was made on (Part 4, 5.6.3.1). The error is ErrChannel or ErrEnded.
func (s *Session) Activate(channel uint32, locales []string) (nonce []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, ErrEnded
	}
	if !s.active.Load() && s.channel.Load() != channel {
		return nil, ErrChannel
	}
	if locales != nil {
		s.locales = locales
	}
	s.nonce = []byte(random(NonceSize))
	s.channel.Store(channel)
	s.left.Store(0)
	if s.active.CompareAndSwap(false, true) {
		s.touch()
		s.timer.Reset(s.Timeout)
	}
	return s.nonce, nil
}

// Locales are the client's locale ids, best first.
func (s *Session) Locales() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locales
}

// random returns n random bytes. crypto/rand.Read never fails; it ends the process instead.
func random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return string(b)
}
