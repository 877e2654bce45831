package pki

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Entry is one file of the folders, for people.
type Entry struct {
	Folder string // TrustedFolder, IssuersFolder or RejectedFolder, or one of those in UsersFolder
	File   string // its name in the folder
	At     time.Time
	Cert   *x509.Certificate    // nil: it is a revocation list, or cannot be read
	List   *x509.RevocationList // without its entries
	Listed int                  // certificates that List revokes
	Err    error                // why it cannot be read
}

// Thumbprint names the certificate; zero for what is none.
func (e *Entry) Thumbprint() Thumbprint {
	if e.Cert == nil {
		return Thumbprint{}
	}
	return ThumbprintOf(e.Cert.Raw)
}

// OfUsers is the folder of that name for the certificates of users.
func OfUsers(folder string) string { return filepath.Join(UsersFolder, folder) }

// Entries lists the folders trusted, issuers and rejected in dir, and those of users, the newest file of each first. A
// folder that is not there is empty.
func Entries(dir string) ([]Entry, error) {
	var all []Entry
	for _, folder := range []string{
		TrustedFolder, IssuersFolder, RejectedFolder, OfUsers(TrustedFolder), OfUsers(IssuersFolder), OfUsers(RejectedFolder),
	} {
		files, err := os.ReadDir(filepath.Join(dir, folder))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
		first := len(all)
		for _, f := range files {
			path := filepath.Join(dir, folder, f.Name())
			info, err := os.Stat(path)
			if err != nil || info.IsDir() || strings.HasPrefix(f.Name(), ".") {
				continue
			}
			e := Entry{Folder: folder, File: f.Name(), At: info.ModTime()}
			var list *revocation
			if e.Cert, list, e.Err = readFile(path, info); list != nil {
				e.List, e.Listed = list.RevocationList, len(list.serials)
			}
			all = append(all, e)
		}
		slices.SortStableFunc(all[first:], func(a, b Entry) int { return b.At.Compare(a.At) })
	}
	return all, nil
}

// minPrefix is the least part of a thumbprint that names a certificate: shorter ones are slips of the pen.
const minPrefix = 4 // hexadecimal digits

// Move moves the certificate whose thumbprint begins with prefix, in hexadecimal with or without colons and spaces, from
// one folder of dir to another, and returns it. A gateway that runs sees it at the next connection.
func Move(dir, prefix, from, to string) (Entry, error) {
	digits := strings.ToLower(strings.NewReplacer(":", "", " ", "", "-", "").Replace(prefix))
	if _, err := hex.DecodeString(digits + strings.Repeat("0", len(digits)%2)); err != nil || len(digits) < minPrefix {
		return Entry{}, fmt.Errorf("%q is no thumbprint: give its first %d hexadecimal digits or more, as `edged certs list` shows them", prefix, minPrefix)
	}
	all, err := Entries(dir)
	if err != nil {
		return Entry{}, err
	}
	var found []Entry
	there := false
	for i := range all {
		if e := &all[i]; e.Cert != nil && strings.HasPrefix(e.Thumbprint().String(), digits) {
			if e.Folder == from {
				found = append(found, *e)
			}
			there = there || e.Folder == to
		}
	}
	switch {
	case len(found) == 0 && there:
		return Entry{}, fmt.Errorf("certificate %s is in %s already", prefix, to)
	case len(found) == 0:
		return Entry{}, fmt.Errorf("no certificate in %s begins with %s: `edged certs list` shows those that there are; a client's is kept there when it was refused", filepath.Join(dir, from), prefix)
	}
	for _, e := range found[1:] {
		if e.Thumbprint() != found[0].Thumbprint() {
			return Entry{}, fmt.Errorf("%s begins the thumbprints of several certificates (%v and %v): give more digits", prefix, found[0].Thumbprint(), e.Thumbprint())
		}
	}
	// The name says what it is, whatever it was called before; a second file of the same certificate goes with it.
	target := filepath.Join(dir, to, found[0].Thumbprint().String()+".der")
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return Entry{}, fmt.Errorf("certificates: %w", err)
	}
	if err := writeFile(target, found[0].Cert.Raw, 0o600); err != nil {
		return Entry{}, fmt.Errorf("certificates: %w", err)
	}
	for _, e := range found {
		if err := os.Remove(filepath.Join(dir, from, e.File)); err != nil {
			return Entry{}, fmt.Errorf("certificates: %w", err)
		}
	}
	return Entry{Folder: to, File: filepath.Base(target), At: found[0].At, Cert: found[0].Cert}, nil
}

// Add copies a certificate from a file, DER or PEM, to a folder of dir.
func Add(dir, file, to string) (Entry, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Entry{}, err
	}
	cert, _, err := readFile(file, info)
	if err == nil && cert == nil {
		err = errors.New("a revocation list is no certificate: copy it to " + filepath.Join(dir, IssuersFolder))
	}
	if err != nil {
		return Entry{}, fmt.Errorf("%s: %w", file, err)
	}
	target := filepath.Join(dir, to, ThumbprintOf(cert.Raw).String()+".der")
	err = os.MkdirAll(filepath.Dir(target), 0o700)
	if err == nil {
		err = writeFile(target, cert.Raw, 0o600)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("certificates: %w", err)
	}
	return Entry{Folder: to, File: filepath.Base(target), At: time.Now(), Cert: cert}, nil
}

// Load loads the own certificate from dir/own, and makes nothing: it is an error if there is none.
func Load(dir string) (*Own, error) {
	return load(filepath.Join(dir, OwnFolder))
}

// load is Load of the own folder itself.
func load(dir string) (*Own, error) {
	for _, name := range []string{certFile, keyFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("own certificate: %w", err)
		}
	}
	return openOwn(dir, Identity{}, slog.Default())
}

// Renew makes a new own certificate in dir/own, which a gateway that runs takes within seconds. The old one stays beside it,
// named after its thumbprint. With bits, the key is made anew too; 0 keeps it, or makes one where there is none.
func Renew(dir string, id Identity, bits int) (*Own, error) {
	if id.ApplicationURI == "" {
		return nil, errors.New("own certificate: no application URI is configured")
	}
	if bits != 0 && (bits < MinKeyBits || bits > MaxKeyBits) {
		return nil, fmt.Errorf("own certificate: a key of %d bits: use %d to %d", bits, MinKeyBits, MaxKeyBits)
	}
	dir = filepath.Join(dir, OwnFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	path, keyPath := filepath.Join(dir, certFile), filepath.Join(dir, keyFile)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	var key *rsa.PrivateKey
	if bits == 0 {
		if key, err = openKey(keyPath, path, id.KeyBits); err != nil {
			return nil, err
		}
	}
	if old != nil {
		if block, _ := pem.Decode(old); block != nil {
			old = block.Bytes
		}
		// Out of the way before the key changes: where the power goes in between, the next start finds a key without a
		// certificate, and makes one.
		if err := os.Rename(path, filepath.Join(dir, "certificate-"+ThumbprintOf(old).String()[:8]+".der")); err != nil {
			return nil, fmt.Errorf("own certificate: %w", err)
		}
	}
	if key == nil {
		if key, err = makeKey(keyPath, bits); err != nil {
			return nil, err
		}
	}
	der, err := Make(key, id, time.Now())
	if err == nil {
		err = writeFile(path, der, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(bytes.Clone(der))
	if err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	return NewOwn(cert, key), nil
}
