package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"
)

const (
	maxRejected = 64          // files in dir/rejected; the oldest goes first
	rejectEvery = time.Second // one more rejected file, beyond a burst of maxRejected: a flood does not wear out the flash
)

type trustAll struct{}

// TrustAll trusts every certificate that is valid in itself. It warns about that once, here. A log of nil is slog.Default.
func TrustAll(log *slog.Logger) Trust {
	if log == nil {
		log = slog.Default()
	}
	log.Warn("trust_all: any client with a valid certificate is trusted; keep this to tests, and put clients' certificates in the trusted folder")
	return trustAll{}
}

func (trustAll) Check(chain []*x509.Certificate, need Strength, now time.Time) error {
	chain = linked(chain)
	if _, err := checkSignatures(chain); err != nil {
		return err
	}
	if err := need.check(chain); err != nil {
		return err
	}
	if err := checkTime(chain[:1], now); err != nil {
		return err
	}
	return checkUse(chain[:1])
}

// Folder trusts what lies in dir/trusted: certificates of clients, and of those who issued them, as DER or PEM. What lies
// in dir/issuers completes chains and is not trusted by itself. Both may hold revocation lists. What it refuses as not
// trusted it keeps in dir/rejected, whence a person can move it to trusted; no restart is needed.
type Folder struct {
	trusted  string
	rejected string
	way      string // the command that trusts what was rejected
	log      *slog.Logger

	mu    sync.Mutex // guards lists and bare
	lists lists
	bare  map[Thumbprint]bool // issuers without a revocation list, told once

	rejecting sync.Mutex // guards the rejected folder, keep and keepFrom; held while a file is written, which trusted clients do not wait for
	keep      int        // files that may still be written to rejected in this burst
	keepFrom  time.Time  // since when keep was counted
}

// OpenFolder makes the folders in dir that are missing. A log of nil is slog.Default.
func OpenFolder(dir string, log *slog.Logger) (*Folder, error) {
	if log == nil {
		log = slog.Default()
	}
	f := &Folder{way: "edged certs trust", trusted: filepath.Join(dir, TrustedFolder), rejected: filepath.Join(dir, RejectedFolder), log: log,
		bare: map[Thumbprint]bool{}, keep: maxRejected, keepFrom: time.Now()}
	f.lists = lists{trusted: f.trusted, issuers: filepath.Join(dir, IssuersFolder), log: log}
	for _, d := range []string{f.trusted, f.lists.issuers, f.rejected} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
	}
	return f, nil
}

// OpenUsers is OpenFolder for the certificates of users, which lie apart, in dir/users.
func OpenUsers(dir string, log *slog.Logger) (*Folder, error) {
	f, err := OpenFolder(filepath.Join(dir, UsersFolder), log)
	if err != nil {
		return nil, err
	}
	f.way = "edged certs trust --user"
	return f, nil
}

// CheckNamed is Check of a certificate that is trusted already, because somebody has named it: its validity, its usage, and
// what the revocation lists say of it.
func (f *Folder) CheckNamed(chain []*x509.Certificate, need Strength, now time.Time) error {
	chain, _, revoked := f.lookup(chain)
	if _, err := checkSignatures(chain); err != nil {
		return err
	}
	return f.checkRest(chain, revoked, need, now)
}

// checkRest is the steps beside signatures and trust.
func (f *Folder) checkRest(chain []*x509.Certificate, revoked [][]*revocation, need Strength, now time.Time) error {
	if err := need.check(chain); err != nil {
		return err
	}
	if err := checkTime(chain, now); err != nil {
		return err
	}
	if err := checkUse(chain); err != nil {
		return err
	}
	return f.checkRevocation(chain, revoked, now)
}

// Changes looks at the folders and counts how often other files were found there than before: where it has grown, who was
// trusted may be so no more.
func (f *Folder) Changes() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.lists.refresh(time.Now()); err != nil {
		f.log.Error("trusted certificates: folder cannot be read", "error", err)
	}
	return f.lists.changes
}

// Check trusts a certificate that is in the folder, or whose issuer is. The steps are those of Part 4, 6.1.3, in its
// order; a host name is the client's to check, and the application URI is compared when a session is created. A
// certificate that is trusted by itself needs no complete chain, but where its issuers are at hand they are checked.
func (f *Folder) Check(chain []*x509.Certificate, need Strength, now time.Time) error {
	chain, known, revoked := f.lookup(chain)
	full, err := checkSignatures(chain)
	if err != nil {
		return err
	}
	if err := need.check(chain); err != nil {
		return err
	}
	if !known {
		f.reject(chain[0])
		code, why := ua.StatusBadCertificateUntrusted, "is not trusted"
		if !full {
			code, why = ua.StatusBadCertificateChainIncomplete, "is not trusted, nor is its issuer known"
		}
		return refuse(code, "certificate %v (%s) %s: to trust it, say `%s %.8s`, or move it from %s to %s", ThumbprintOf(chain[0].Raw), chain[0].Subject, why, f.way, ThumbprintOf(chain[0].Raw).String(), f.rejected, f.trusted)
	}
	return f.checkRest(chain, revoked, need, now)
}

// lookup is what the folders say now: the chain completed, whether one of it is trusted, and the revocation lists of each
// one's issuer.
func (f *Folder) lookup(chain []*x509.Certificate) (_ []*x509.Certificate, known bool, revoked [][]*revocation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.lists.refresh(time.Now()); err != nil {
		// The last lists that could be read stay in force: a failing disk must not lock out who was trusted.
		f.log.Error("trusted certificates: folder cannot be read", "error", err)
	}
	chain, known = f.lists.complete(chain)
	for _, c := range chain {
		revoked = append(revoked, f.lists.revocations[string(c.RawIssuer)])
	}
	return chain, known, revoked
}

// checkRevocation is the last two steps: find revocation lists, and look into them. An issuer without any list is let
// pass, with a word in the log: many plants' authorities publish none. Where there is one, it has to be current.
func (f *Folder) checkRevocation(chain []*x509.Certificate, revoked [][]*revocation, now time.Time) error {
	for i, c := range chain[:len(chain)-1] {
		issuer := chain[i+1]
		gone, unknown := ua.StatusBadCertificateRevoked, ua.StatusBadCertificateRevocationUnknown
		if i > 0 {
			gone, unknown = ua.StatusBadCertificateIssuerRevoked, ua.StatusBadCertificateIssuerRevocationUnknown
		}
		if len(revoked[i]) == 0 {
			f.tellBare(issuer)
			continue
		}
		current, why := false, "none is signed by this issuer"
		for _, r := range revoked[i] {
			if !r.signedBy(issuer) {
				continue
			}
			if r.holds(c) {
				return refuse(gone, "certificate %v (%s) was revoked by its issuer (%s): the client needs a new one", ThumbprintOf(c.Raw), c.Subject, r.file)
			}
			ok, because := r.current(now)
			if ok {
				current = true
			} else {
				why = because
			}
		}
		if !current {
			return refuse(unknown, "certificate %v (%s): whether it was revoked is not known: %s: put a current revocation list of %s into %s", ThumbprintOf(c.Raw), c.Subject, why, issuer.Subject, f.lists.issuers)
		}
	}
	return nil
}

// tellBare logs once that an issuer has no revocation list.
func (f *Folder) tellBare(issuer *x509.Certificate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	print := ThumbprintOf(issuer.Raw)
	if f.bare[print] || len(f.bare) >= maxFiles {
		return
	}
	f.bare[print] = true
	f.log.Warn("issuer has no revocation list: what it revoked is not known", "issuer", issuer.Subject, "thumbprint", print, "folder", f.lists.issuers)
}

// reject keeps a refused certificate for a person to look at, the newest maxRejected of them.
func (f *Folder) reject(c *x509.Certificate) {
	f.rejecting.Lock()
	defer f.rejecting.Unlock()
	path := filepath.Join(f.rejected, ThumbprintOf(c.Raw).String()+".der")
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	now := time.Now()
	if n := int(now.Sub(f.keepFrom) / rejectEvery); n > 0 {
		f.keep, f.keepFrom = min(maxRejected, f.keep+n), now
	}
	if f.keep == 0 {
		return
	}
	f.keep--
	if err := writeFile(path, c.Raw, 0o600); err != nil {
		f.log.Error("rejected certificate could not be kept", "file", path, "error", err)
		return
	}
	if err := f.trim(); err != nil {
		f.log.Error("rejected certificates: folder cannot be trimmed", "error", err)
	}
}

// trim removes the oldest rejected certificates beyond maxRejected.
func (f *Folder) trim() error {
	entries, err := os.ReadDir(f.rejected)
	if err != nil {
		return err
	}
	type file struct {
		name string
		at   time.Time
	}
	var files []file
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".der") {
			files = append(files, file{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return a.at.Compare(b.at) })
	for _, old := range files[:max(0, len(files)-maxRejected)] {
		if err := os.Remove(filepath.Join(f.rejected, old.name)); err != nil {
			return err
		}
	}
	return nil
}
