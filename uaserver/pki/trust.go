package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
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
	maxRejected = 64              // files in dir/rejected; the oldest goes first
	maxTrusted  = 10_000          // certificates read from dir/trusted
	maxFile     = 64 * 1024       // bytes of one of them
	settled     = 2 * time.Second // a folder changed less than this ago may change again under the same time stamp
	rejectEvery = time.Second     // one more rejected file, beyond a burst of maxRejected: a flood does not wear out the flash
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

func (trustAll) Check(chain []*x509.Certificate, now time.Time) error {
	if _, err := checkSignatures(linked(chain)); err != nil {
		return err
	}
	if err := checkTime(chain[:1], now); err != nil {
		return err
	}
	return checkUse(chain[0])
}

// Folder trusts what lies in dir/trusted: certificates of clients, and of those who issued them, as DER or PEM. What it
// refuses it keeps in dir/rejected, whence a person can move it to trusted; no restart is needed.
type Folder struct {
	trusted  string
	rejected string
	log      *slog.Logger

	mu      sync.Mutex // guards changed to unread
	changed time.Time  // of the folder, when it was read
	read    time.Time
	certs   map[Thumbprint]*x509.Certificate
	unread  map[string]bool // files that could not be read, told once

	rejecting sync.Mutex // guards the rejected folder, keep and keepFrom; held while a file is written, which trusted clients do not wait for
	keep      int        // files that may still be written to rejected in this burst
	keepFrom  time.Time  // since when keep was counted
}

// OpenFolder makes the folders in dir that are missing. A log of nil is slog.Default.
func OpenFolder(dir string, log *slog.Logger) (*Folder, error) {
	if log == nil {
		log = slog.Default()
	}
	f := &Folder{trusted: filepath.Join(dir, "trusted"), rejected: filepath.Join(dir, "rejected"), log: log,
		unread: map[string]bool{}, keep: maxRejected, keepFrom: time.Now()}
	for _, d := range []string{f.trusted, f.rejected} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
	}
	return f, nil
}

// Check trusts a certificate that is in the folder, or whose issuer is. The steps are those of Part 4, 6.1.3, in its order.
func (f *Folder) Check(chain []*x509.Certificate, now time.Time) error {
	chain, known := f.lookup(chain)
	full, err := checkSignatures(chain)
	if err != nil {
		return err
	}
	if !known {
		f.reject(chain[0])
		code, why := ua.StatusBadCertificateUntrusted, "is not trusted"
		if !full {
			code, why = ua.StatusBadCertificateChainIncomplete, "is not trusted, nor is its issuer known"
		}
		return refuse(code, "certificate %v (%s) %s: to trust it, move it from %s to %s", ThumbprintOf(chain[0].Raw), chain[0].Subject, why, f.rejected, f.trusted)
	}
	if err := checkTime(chain, now); err != nil {
		return err
	}
	return checkUse(chain[0])
}

// lookup is complete on the folder as it is now.
func (f *Folder) lookup(chain []*x509.Certificate) (_ []*x509.Certificate, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(); err != nil {
		// The last list that could be read stays in force: a failing disk must not lock out who was trusted.
		f.log.Error("trusted certificates: folder cannot be read", "error", err)
	}
	return f.complete(chain)
}

// complete cuts the chain behind the first certificate that is in the folder, and where the client left issuers out, takes
// them from there. known says that the chain ends in a certificate of the folder; whether each link holds is for
// checkSignatures.
func (f *Folder) complete(chain []*x509.Certificate) (_ []*x509.Certificate, known bool) {
	chain = slices.Clip(linked(chain))
	for i, c := range chain {
		if _, ok := f.certs[ThumbprintOf(c.Raw)]; ok {
			return chain[:i+1], true
		}
	}
	last := chain[len(chain)-1]
	if selfIssued(last) {
		return chain, false
	}
	for _, t := range f.certs {
		if bytes.Equal(t.RawSubject, last.RawIssuer) && last.CheckSignatureFrom(t) == nil {
			return append(chain, t), true
		}
	}
	return chain, false
}

// load reads the folder again if it has changed. A change within the grain of the file system's clock would not be seen,
// so a folder is not believed settled before that has passed.
func (f *Folder) load() error {
	info, err := os.Stat(f.trusted)
	if err != nil {
		return err
	}
	if f.certs != nil && info.ModTime().Equal(f.changed) && f.read.Sub(f.changed) > settled {
		return nil
	}
	files, err := os.ReadDir(f.trusted)
	if err != nil {
		return err
	}
	certs := map[Thumbprint]*x509.Certificate{}
	unread := map[string]bool{}
	now := time.Now()
	for _, e := range files {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || len(certs) >= maxTrusted {
			continue
		}
		cert, err := readCertificate(filepath.Join(f.trusted, e.Name()))
		if err != nil {
			if !f.unread[e.Name()] {
				f.log.Warn("trusted certificates: file is left out", "file", e.Name(), "error", err)
			}
			unread[e.Name()] = true
			continue
		}
		certs[ThumbprintOf(cert.Raw)] = cert
	}
	f.certs, f.unread, f.changed, f.read = certs, unread, info.ModTime(), now
	return nil
}

func readCertificate(path string) (*x509.Certificate, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("not a file of at most %d bytes", maxFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(b); block != nil {
		b = block.Bytes
	}
	return x509.ParseCertificate(b)
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
