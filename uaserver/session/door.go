package session

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// Errors of Door.Try. A client is told of ErrWrong and ErrLocked alike.
var (
	ErrWrong  = errors.New("wrong user name or password")
	ErrLocked = errors.New("locked out after wrong passwords")
	ErrBusy   = errors.New("too many log-ins wait for their check; try again")
)

const (
	// MaxPassword is the longest password in bytes: bcrypt looks at no more.
	MaxPassword = 72
	// cost is bcrypt's: some 50 ms on a PC, 300 ms on a small board.
	cost = bcrypt.DefaultCost

	maxChecks   = 64 // log-ins that wait for their check at once
	maxOfOrigin = 16 // of them from one origin, so that nobody takes all places

	lockFirst  = 10 * time.Second // the first lock-out; each further failure doubles it
	lockLast   = 15 * time.Minute // the longest
	forget     = 30 * time.Minute // without a failure, after which an origin's failures are forgotten
	maxOrigins = 4096             // whose failures are kept
)

// nobody is the hash of a password that there is not: the check of an unknown user costs what any other does.
var nobody = []byte("$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy")

// HashPassword makes the bcrypt hash of a password of 1 to MaxPassword bytes.
func HashPassword(password []byte) ([]byte, error) {
	switch n := len(password); {
	case n == 0:
		return nil, errors.New("the password is empty: choose one")
	case n > MaxPassword:
		return nil, fmt.Errorf("the password has %d bytes: at most %d count", n, MaxPassword)
	}
	return bcrypt.GenerateFromPassword(password, cost)
}

// CheckHash reports what is wrong with a bcrypt hash, as far as its form tells.
func CheckHash(hash []byte) error {
	_, err := bcrypt.Cost(hash)
	return err
}

// Origin is where log-ins come from, as far as their failures are counted together.
type Origin struct {
	Name  string // a certificate or an address
	Limit int    // failures, after which it is locked out
}

// Attempt is a log-in with user name and password.
type Attempt struct {
	User     string
	Hash     []byte // bcrypt, of the user's password; nil: there is no such user, or he has none
	Password []byte // nil: the secret could not be read
	From     []Origin
}

// Door checks passwords, one at a time, and locks origins out for a growing time when their log-ins fail. What it tells
// and how long that takes does not depend on why a log-in fails.
type Door struct {
	one chan struct{} // held by the check at hand
	key [32]byte      // of the sums in known

	mu      sync.Mutex // guards all below
	waiting int
	from    map[string]int // how many of them, by origin
	failed  map[string]*failures
	known   map[string][sha256.Size]byte // of the password that was right last, by user; with its hash, so that a new one is checked anew
}

// failures are those of one origin.
type failures struct {
	count int
	last  time.Time
	until time.Time // locked out
	user  string    // whom all of them were for
	mixed bool      // they were for several
}

// NewDoor makes a Door.
func NewDoor() *Door {
	d := &Door{one: make(chan struct{}, 1), from: map[string]int{}, failed: map[string]*failures{}, known: map[string][sha256.Size]byte{}}
	rand.Read(d.key[:])
	return d
}

// Try checks an attempt. It waits for the checks before it, until ctx ends. The error is ErrWrong, ErrLocked or ErrBusy.
func (d *Door) Try(ctx context.Context, a *Attempt) error {
	sum := d.sum(a)
	d.mu.Lock()
	if d.locked(a) {
		d.mu.Unlock()
		return ErrLocked
	}
	if d.isKnown(a, sum) {
		d.succeeded(a, sum)
		d.mu.Unlock()
		return nil
	}
	ok := d.enter(a)
	d.mu.Unlock()
	if !ok {
		return ErrBusy
	}
	defer d.leave(a)
	select {
	case d.one <- struct{}{}:
	case <-ctx.Done():
		return ErrBusy
	}
	defer func() { <-d.one }()
	d.mu.Lock()
	locked := d.locked(a) // by those that waited before
	d.mu.Unlock()
	if locked {
		return ErrLocked
	}
	right := matches(a)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !right {
		d.fail(a)
		return ErrWrong
	}
	d.succeeded(a, sum)
	return nil
}

// matches costs the same whatever fails.
func matches(a *Attempt) bool {
	hash, fit := a.Hash, a.Hash != nil && a.Password != nil && len(a.Password) <= MaxPassword
	if hash == nil {
		hash = nobody
	}
	return bcrypt.CompareHashAndPassword(hash, a.Password[:min(len(a.Password), MaxPassword)]) == nil && fit
}

// sum stands for a password and its hash. Its key is this process's own, so that it is of no use elsewhere.
func (d *Door) sum(a *Attempt) (sum [sha256.Size]byte) {
	m := hmac.New(sha256.New, d.key[:])
	m.Write(a.Hash)
	m.Write([]byte{0})
	m.Write(a.Password)
	m.Sum(sum[:0])
	return sum
}

// isKnown reports whether the password was found right before. A gateway that restarts has all its clients log in at
// once, each with the same few passwords. It is called with mu held.
func (d *Door) isKnown(a *Attempt, sum [sha256.Size]byte) bool {
	known, ok := d.known[a.User]
	return ok && a.Hash != nil && a.Password != nil && hmac.Equal(known[:], sum[:])
}

// locked is called with mu held.
func (d *Door) locked(a *Attempt) bool {
	now := time.Now()
	for _, o := range a.From {
		if f := d.failed[o.Name]; f != nil && now.Before(f.until) {
			return true
		}
	}
	return false
}

// enter counts an attempt in, or refuses it. It is called with mu held.
func (d *Door) enter(a *Attempt) bool {
	if d.waiting >= maxChecks {
		return false
	}
	for _, o := range a.From {
		if d.from[o.Name] >= maxOfOrigin {
			return false
		}
	}
	d.waiting++
	for _, o := range a.From {
		d.from[o.Name]++
	}
	return true
}

func (d *Door) leave(a *Attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting--
	for _, o := range a.From {
		if d.from[o.Name]--; d.from[o.Name] == 0 {
			delete(d.from, o.Name)
		}
	}
}

// fail counts a failure of each origin. It is called with mu held.
func (d *Door) fail(a *Attempt) {
	now := time.Now()
	for _, o := range a.From {
		f := d.failed[o.Name]
		if f == nil || now.Sub(f.last) >= forget {
			d.makeRoom()
			f = &failures{user: a.User}
			d.failed[o.Name] = f
		}
		f.mixed = f.mixed || f.user != a.User
		f.count++
		f.last = now
		if over := f.count - o.Limit; over >= 0 {
			f.until = now.Add(min(lockLast, lockFirst<<min(over, 16)))
		}
	}
}

// makeRoom forgets the origin whose last failure is the oldest, where there are too many. It is called with mu held.
func (d *Door) makeRoom() {
	if len(d.failed) < maxOrigins {
		return
	}
	oldest := ""
	for name, f := range d.failed {
		if oldest == "" || f.last.Before(d.failed[oldest].last) {
			oldest = name
		}
	}
	delete(d.failed, oldest)
}

// succeeded forgets failures that were mistypings of this user, so that a rare one costs nothing; who tries out the
// passwords of others does not get rid of his failures by logging in as himself. It is called with mu held.
func (d *Door) succeeded(a *Attempt, sum [sha256.Size]byte) {
	d.known[a.User] = sum // one a user of the file
	for _, o := range a.From {
		if f := d.failed[o.Name]; f != nil && !f.mixed && f.user == a.User {
			delete(d.failed, o.Name)
		}
	}
}
