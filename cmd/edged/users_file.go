package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"

	"edged/uaserver"
	"edged/uaserver/pki"
	"edged/uaserver/session"
)

// maxUsers bounds the users of a file: it is read again whenever it changes.
const maxUsers = 10_000

// userEntry is one user of the file.
type userEntry struct {
	Name        string   `yaml:"name" json:"name"`
	Roles       []string `yaml:"roles,flow" json:"roles"`
	Password    string   `yaml:"password,omitempty" json:"-"`                        // bcrypt hash
	Certificate string   `yaml:"certificate,omitempty" json:"certificate,omitempty"` // thumbprint, or anyTrusted
}

// anyTrusted in the place of a thumbprint says that a user logs in with any certificate that has his name as its common
// name and is trusted by the folders of users.
const anyTrusted = "trusted"

// userBook is the users of a file as it was read. It is immutable.
type userBook struct {
	users   []userEntry
	byName  map[string]*userEntry
	byPrint map[pki.Thumbprint]*userEntry
	trusted map[string]*userEntry // by name, those of anyTrusted
}

// readUsers reads a file of users. One that is not there has none; one with mistakes is a fileError.
func readUsers(path string) (*userBook, error) {
	book := &userBook{byName: map[string]*userEntry{}, byPrint: map[pki.Thumbprint]*userEntry{}, trusted: map[string]*userEntry{}}
	text, err := readBounded(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return book, nil
	case errors.Is(err, fs.ErrPermission):
		return book, fmt.Errorf("%s cannot be read: give it to the gateway's user", path)
	case err != nil:
		return book, err
	}
	r := userReader{document: document{file: path}, book: book}
	if root := r.parse(text); root != nil {
		r.section(root, "the users", []key{{"users", r.users}})
	}
	if err := r.err(); err != nil {
		return &userBook{}, err
	}
	for i := range book.users {
		u := &book.users[i]
		if u.Password != "" {
			book.byName[u.Name] = u
		}
		if u.Certificate == anyTrusted {
			book.trusted[u.Name] = u
		} else if print, ok := thumbprintOf(u.Certificate); ok {
			book.byPrint[print] = u
		}
	}
	return book, nil
}

// userReader reads a file of users.
type userReader struct {
	document
	book *userBook
}

func (r *userReader) users(n *node) {
	if n.kind != listNode {
		r.fault(n, "users is %s here: it is a list of users; `edged users add` makes it", n.kind)
		return
	}
	if len(n.items) > maxUsers {
		r.fault(n, "users has %d entries: at most %d", len(n.items), maxUsers)
		return
	}
	names, prints := map[string]bool{}, map[string]bool{}
	for _, item := range n.items {
		u := r.user(item)
		print := strings.ToLower(u.Certificate)
		switch {
		case names[u.Name] && u.Name != "":
			r.fault(item, "user %s stands here a second time: remove one", clip(u.Name))
		case print != "" && print != anyTrusted && prints[print]:
			r.fault(item, "user %s: another user has this certificate: remove one", clip(u.Name))
		}
		names[u.Name], prints[print] = true, true
		r.book.users = append(r.book.users, u)
	}
}

func (r *userReader) user(n *node) (u userEntry) {
	r.section(n, "a user", []key{
		{"name", func(v *node) { u.Name = r.text(v, "a user: name", maxName) }},
		{"roles", func(v *node) {
			var words []string
			for _, one := range roleNames {
				words = append(words, one.name)
			}
			for _, one := range r.list(v, "a user: roles") {
				u.Roles = append(u.Roles, r.choice(one, "a user: role", words...))
			}
		}},
		{"password", func(v *node) {
			u.Password = r.text(v, "a user: password", maxName)
			if session.CheckHash([]byte(u.Password)) != nil {
				r.fault(v, "a user: password is not a bcrypt hash: set it with `edged users passwd`")
			}
		}},
		{"certificate", func(v *node) {
			u.Certificate = r.text(v, "a user: certificate", maxName)
			if _, ok := thumbprintOf(u.Certificate); !ok && u.Certificate != anyTrusted {
				r.fault(v, "a user: certificate is %q: it is a thumbprint of 40 hexadecimal digits, or %s", clip(u.Certificate), anyTrusted)
			}
		}},
	})
	r.need(n, "a user", "name")
	if n.kind == mapNode && u.Password == "" && u.Certificate == "" && len(r.mistakes) == 0 {
		r.fault(n, "user %s has neither password nor certificate: set one with `edged users passwd`", clip(u.Name))
	}
	return u
}

// thumbprintOf reads a thumbprint as certificates are named by; colons and spaces do not matter.
func thumbprintOf(text string) (print pki.Thumbprint, ok bool) {
	b, err := hex.DecodeString(strings.NewReplacer(":", "", " ", "").Replace(text))
	if err != nil || len(b) != len(print) {
		return print, false
	}
	return pki.Thumbprint(b), true
}

// writeUsers writes a file of users, whole or not at all. It is the owner's alone to read.
func writeUsers(path string, users []userEntry) error {
	text, err := yaml.Marshal(struct {
		Users []userEntry `yaml:"users"`
	}{users})
	if err != nil {
		return err
	}
	text = append([]byte("# Users of the gateway, made by `edged users`. Passwords are bcrypt hashes.\n"), bytes.TrimSpace(text)...)
	f, err := os.CreateTemp(filepath.Dir(path), ".users-*") // of mode 0600
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	return nil
}

// userFile is a file of users that is read again when it has changed. It implements uaserver.Users.
type userFile struct {
	path string
	log  *slog.Logger

	mu   sync.Mutex // guards all below
	seen fs.FileInfo
	told string // why it was not taken
	book *userBook
}

func newUserFile(path string, log *slog.Logger) *userFile {
	return &userFile{path: path, log: log, book: &userBook{}}
}

// current is the file as it is now, or as it was before somebody made a mistake in it.
func (u *userFile) current() *userBook {
	u.mu.Lock()
	defer u.mu.Unlock()
	now, _ := os.Stat(u.path)
	same := now == nil && u.seen == nil || now != nil && u.seen != nil && os.SameFile(now, u.seen) &&
		now.Size() == u.seen.Size() && now.ModTime().Equal(u.seen.ModTime())
	if same {
		return u.book
	}
	u.seen = now
	book, err := readUsers(u.path)
	if err != nil {
		if u.told != err.Error() {
			u.told = err.Error()
			u.log.Error("the file of users is not taken; those of before stay", "error", err)
		}
		return u.book
	}
	u.told, u.book = "", book
	return book
}

// Offers implements uaserver.Users.
func (u *userFile) Offers() (passwords, certificates bool) {
	b := u.current()
	return len(b.byName) > 0, len(b.byPrint)+len(b.trusted) > 0
}

// ByName implements uaserver.Users.
func (u *userFile) ByName(name string) (uaserver.User, bool) { return asUser(u.current().byName[name]) }

// ByCertificate implements uaserver.Users.
func (u *userFile) ByCertificate(print pki.Thumbprint) (uaserver.User, bool) {
	return asUser(u.current().byPrint[print])
}

// ByCommonName implements uaserver.Users.
func (u *userFile) ByCommonName(name string) (uaserver.User, bool) {
	return asUser(u.current().trusted[name])
}

// usersEvery is how often the file of users is looked at, and its sessions with it where it has changed. A look costs one
// call of the system.
const usersEvery = time.Second

// checkUsers has who was removed lose his sessions, and who was given other roles have them, until ctx ends.
func (g *gateway) checkUsers(ctx context.Context) {
	every := time.NewTicker(usersEvery)
	defer every.Stop()
	var seen *userBook
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if u := g.users.Load(); u != nil {
			if book := u.current(); book != seen {
				seen = book
				g.server.CheckUsers()
			}
		}
	}
}

func asUser(e *userEntry) (uaserver.User, bool) {
	if e == nil {
		return uaserver.User{}, false
	}
	u := uaserver.User{Name: e.Name, Rights: rightsOf(e.Roles)}
	if e.Password != "" {
		u.Password = []byte(e.Password)
	}
	return u, true
}
