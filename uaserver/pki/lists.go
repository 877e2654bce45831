package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Folders of the data folder's pki.
const (
	OwnFolder      = "own"
	TrustedFolder  = "trusted"
	IssuersFolder  = "issuers"
	RejectedFolder = "rejected"
	UsersFolder    = "users" // of users' certificates; it has the last three in it
)

const (
	maxFiles   = 10_000          // read from a folder
	maxFile    = 64 * 1024       // bytes of a certificate's file
	maxList    = 4 << 20         // bytes of a revocation list
	settled    = 2 * time.Second // a file changed less than this ago may change again under the same time stamp
	lookEvery  = time.Second     // how often the files are looked at, beside the folders: a file may be written over in its place
	slowLook   = 5 * time.Millisecond
	lookFactor = 10               // a look that took longer than slowLook is not repeated before so many times as long has passed
	mostLook   = 10 * time.Second // but no longer than this: a machine that was busy must not hide a revocation
)

// lists are the certificates and revocation lists of the folders trusted and issuers, as they were at the last look.
type lists struct {
	trusted, issuers string
	log              *slog.Logger

	files   map[string]*file // by path
	changed [2]time.Time     // of the folders
	looked  time.Time        // zero: never
	took    time.Duration    // the last look
	changes uint64           // looks that found other files than the one before

	trust       map[Thumbprint]*x509.Certificate // what lies in trusted
	authorities map[string][]*x509.Certificate   // of both folders, by raw subject
	revocations map[string][]*revocation         // of both folders, by the issuer's raw name
}

// file is one file of a folder, taken apart when it was last changed.
type file struct {
	size     int64
	at, read time.Time // last change; when it was read
	trusted  bool      // in which folder
	cert     *x509.Certificate
	list     *revocation
}

// refresh looks at the folders again if they may have changed. A change in the grain of the file system's clock would not
// be seen, so that neither a folder nor a file is believed settled before that has passed.
func (l *lists) refresh(now time.Time) error {
	var changed [2]time.Time
	for i, dir := range []string{l.trusted, l.issuers} {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		changed[i] = info.ModTime()
	}
	if since := now.Sub(l.looked); !l.looked.IsZero() && since >= 0 {
		same := changed == l.changed && l.looked.Sub(changed[0]) > settled && l.looked.Sub(changed[1]) > settled
		if same && since < lookEvery || l.took > slowLook && since < min(lookFactor*l.took, mostLook) {
			return nil
		}
	}
	files := make(map[string]*file, len(l.files))
	for i, dir := range []string{l.trusted, l.issuers} {
		if err := l.look(dir, i == 0, now, files); err != nil {
			return err
		}
	}
	if !maps.Equal(l.files, files) {
		l.changes++
	}
	l.files, l.changed, l.looked, l.took = files, changed, now, time.Since(now)
	l.index()
	return nil
}

// look reads what is new or changed in a folder, and keeps the rest as it was.
func (l *lists) look(dir string, trusted bool, now time.Time, files map[string]*file) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	n := 0
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if n++; n > maxFiles {
			break
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			continue // it was moved away meanwhile
		}
		was := l.files[path]
		if was != nil && was.size == info.Size() && was.at.Equal(info.ModTime()) && was.read.Sub(was.at) > settled {
			files[path] = was
			continue
		}
		f := &file{size: info.Size(), at: info.ModTime(), read: now, trusted: trusted}
		if f.cert, f.list, err = readFile(path, info); err != nil && (was == nil || was.size != f.size || !was.at.Equal(f.at)) {
			l.log.Warn("certificates: file is left out", "file", path, "error", err)
		}
		if f.list != nil && (was == nil || was.list == nil) {
			if ok, why := f.list.current(now); !ok {
				l.log.Warn("revocation list is not current: clients of its issuer are refused until it is renewed", "file", path, "reason", why)
			}
		}
		files[path] = f
	}
	return nil
}

// index makes the maps of what was read.
func (l *lists) index() {
	l.trust = map[Thumbprint]*x509.Certificate{}
	l.authorities, l.revocations = map[string][]*x509.Certificate{}, map[string][]*revocation{}
	for _, f := range l.files {
		switch {
		case f.cert != nil:
			if f.trusted {
				l.trust[ThumbprintOf(f.cert.Raw)] = f.cert
			}
			if f.cert.IsCA {
				name := string(f.cert.RawSubject)
				l.authorities[name] = append(l.authorities[name], f.cert)
			}
		case f.list != nil:
			name := string(f.list.RawIssuer)
			l.revocations[name] = append(l.revocations[name], f.list)
		}
	}
}

// complete cuts the chain behind the first trusted certificate, and goes on with issuers from the folders as far as there
// are any. known says that one of the chain is trusted; whether each link holds is for checkSignatures.
func (l *lists) complete(chain []*x509.Certificate) (_ []*x509.Certificate, known bool) {
	chain = linked(chain)
	for i, c := range chain {
		if l.trust[ThumbprintOf(c.Raw)] != nil {
			chain, known = chain[:i+1], true
			break
		}
	}
	chain = append([]*x509.Certificate(nil), chain...)
	for len(chain) < maxChain {
		last := chain[len(chain)-1]
		if selfIssued(last) {
			break
		}
		next := l.issuerOf(last)
		if next == nil {
			break
		}
		chain = append(chain, next)
		known = known || l.trust[ThumbprintOf(next.Raw)] != nil
	}
	return chain, known
}

// issuerOf finds who signed a certificate, a trusted one rather than another.
func (l *lists) issuerOf(c *x509.Certificate) (found *x509.Certificate) {
	for _, a := range l.authorities[string(c.RawIssuer)] {
		if a.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) != nil {
			continue
		}
		if l.trust[ThumbprintOf(a.Raw)] != nil {
			return a
		}
		found = a
	}
	return found
}

// readFile reads a certificate or a revocation list, as DER or PEM.
func readFile(path string, info os.FileInfo) (*x509.Certificate, *revocation, error) {
	if !info.Mode().IsRegular() || info.Size() > maxList {
		return nil, nil, fmt.Errorf("not a file of at most %d bytes", maxList)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	if block, _ := pem.Decode(b); block != nil {
		b = block.Bytes
	}
	if len(b) <= maxFile {
		cert, err := x509.ParseCertificate(b)
		if err == nil {
			return cert, nil, nil
		}
	}
	list, err := x509.ParseRevocationList(b)
	if err != nil {
		return nil, nil, errors.New("neither a certificate nor a revocation list, as DER or PEM")
	}
	return nil, newRevocation(filepath.Base(path), list), nil
}

// revocation is a revocation list (RFC 5280, 5).
type revocation struct {
	*x509.RevocationList // without its entries
	file                 string
	serials              map[string]struct{} // of the certificates that it revokes
	partial              bool                // it does not tell of all certificates of its issuer

	mu     sync.Mutex // guards signer
	signer []byte     // public key that was found to have signed it
}

func newRevocation(file string, list *x509.RevocationList) *revocation {
	r := &revocation{RevocationList: list, file: file, serials: make(map[string]struct{}, len(list.RevokedCertificateEntries))}
	for i := range list.RevokedCertificateEntries {
		r.serials[string(list.RevokedCertificateEntries[i].SerialNumber.Bytes())] = struct{}{}
	}
	// Each of them in the file costs some hundred bytes in memory.
	//lint:ignore SA1019 the parser fills the old field too
	list.RevokedCertificateEntries, list.RevokedCertificates = nil, nil
	for _, e := range list.Extensions {
		// Delta lists, lists of some reasons or distribution points: all of these extensions are critical.
		r.partial = r.partial || e.Critical && !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 35})
	}
	return r
}

// signedBy reports whether the list is its issuer's.
func (r *revocation) signedBy(issuer *x509.Certificate) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.signer != nil && bytes.Equal(r.signer, issuer.RawSubjectPublicKeyInfo) {
		return true
	}
	if weak(r.SignatureAlgorithm) || r.CheckSignatureFrom(issuer) != nil {
		return false
	}
	r.signer = issuer.RawSubjectPublicKeyInfo
	return true
}

func (r *revocation) holds(c *x509.Certificate) bool {
	_, ok := r.serials[string(c.SerialNumber.Bytes())]
	return ok
}

// current reports whether the list tells of every certificate today, or why not.
func (r *revocation) current(now time.Time) (bool, string) {
	switch {
	case r.partial:
		return false, r.file + " is a partial list"
	case atLeast(now).Before(r.ThisUpdate):
		return false, fmt.Sprintf("%s is of %v, and this clock says %v", r.file, r.ThisUpdate.UTC(), now.UTC())
	case !r.NextUpdate.IsZero() && now.After(r.NextUpdate):
		return false, fmt.Sprintf("%s ended at %v, and this clock says %v", r.file, r.NextUpdate.UTC(), now.UTC())
	}
	return true, ""
}
