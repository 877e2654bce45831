package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/charmbracelet/x/term"

	"edged/uaserver/pki"
	"edged/uaserver/session"
)

// usersCommand is what a person does with the users of a gateway, which takes a changed file at once.
type usersCommand struct {
	Add    usersAdd    `cmd:"" help:"Add a user, with a password or a certificate."`
	Remove usersRemove `cmd:"" help:"Remove a user, whose sessions end within 2 s."`
	List   usersList   `cmd:"" help:"List the users with their roles."`
	Passwd usersPasswd `cmd:"" help:"Set a user's password."`
}

// usersFlags say whose users they are.
type usersFlags struct {
	Config string `required:"" placeholder:"FILE" help:"Site file of the gateway."`
}

// open reads the users of the site.
func (f *usersFlags) open() (path string, users []userEntry, err error) {
	s, err := loadSite(f.Config)
	if err != nil {
		return "", nil, err
	}
	if path = s.usersFile(); path == "" {
		return "", nil, fmt.Errorf("%s says `users: %s`: name a file there, such as %s", f.Config, noUsers, defaultUsers)
	}
	book, err := readUsers(path)
	return path, book.users, err
}

// find is the place of a user, or -1.
func find(users []userEntry, name string) int {
	return slices.IndexFunc(users, func(u userEntry) bool { return u.Name == name })
}

// secretFlags say where a password comes from.
type secretFlags struct {
	PasswordFile string `placeholder:"FILE" help:"File whose first line is the password, - for standard input (default: ask for it)."`
}

// hash asks for a password and returns its hash.
func (f *secretFlags) hash(p *program) (string, error) {
	password, err := f.read(p)
	if err != nil {
		return "", err
	}
	defer clear(password)
	hash, err := session.HashPassword(password)
	return string(hash), err
}

// asks reports whether somebody is there to be asked.
func (f *secretFlags) asks() bool { return f.PasswordFile == "" && term.IsTerminal(os.Stdin.Fd()) }

// readOnce reads a password that somebody knows, which therefore is not asked for twice.
func (f *secretFlags) readOnce(p *program) ([]byte, error) {
	switch {
	case f.asks():
		return askSecret(p, "Password: ")
	case f.PasswordFile == "-", f.PasswordFile == "":
		return firstLine(os.Stdin)
	}
	file, err := os.Open(f.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", f.PasswordFile, errors.Unwrap(err))
	}
	defer file.Close()
	return firstLine(file)
}

func askSecret(p *program, prompt string) ([]byte, error) {
	fmt.Fprint(p.stderr, prompt)
	b, err := term.ReadPassword(os.Stdin.Fd())
	fmt.Fprintln(p.stderr)
	return b, err
}

// read reads a new password; who types it does so twice.
func (f *secretFlags) read(p *program) ([]byte, error) {
	first, err := f.readOnce(p)
	if err != nil || !f.asks() {
		return first, err
	}
	again, err := askSecret(p, "Again: ")
	if err == nil && !bytes.Equal(first, again) {
		err = errors.New("the two passwords differ: try again")
	}
	return first, err
}

// firstLine reads a password. One more byte than counts is enough to see that it is too long.
func firstLine(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, 4096))
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), err
}

type usersAdd struct {
	usersFlags
	secretFlags
	Name        string   `arg:"" help:"Name of the user."`
	Role        []string `default:"observer" enum:"observer,operator,engineer,admin" help:"Role: observer, operator, engineer or admin; may be given several times."`
	Certificate string   `placeholder:"FILE" xor:"certificate" help:"Certificate (DER or PEM) that the user logs in with instead of a password."`
	Trusted     bool     `xor:"certificate" help:"The user logs in with any certificate that has this name as its common name and is trusted: see edged certs trust --user."`
}

// Run adds a user.
func (c *usersAdd) Run(p *program) error {
	path, users, err := c.open()
	if err != nil {
		return err
	}
	switch {
	case c.Name == "" || len(c.Name) > maxName || strings.ContainsFunc(c.Name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return usageError{fmt.Errorf("%q is no name of a user: it has 1 to %d printable bytes", clip(c.Name), maxName)}
	case find(users, c.Name) >= 0:
		return fmt.Errorf("user %s is there already: `edged users passwd` sets the password, `edged users remove` removes it", c.Name)
	case len(users) == maxUsers:
		return fmt.Errorf("%s has %d users already: at most that many", path, maxUsers)
	}
	u := userEntry{Name: c.Name, Roles: c.Role}
	if c.Trusted {
		u.Certificate = anyTrusted
	} else if c.Certificate != "" {
		print, err := certificateIn(c.Certificate)
		if err != nil {
			return err
		}
		u.Certificate = print.String()
		if i := slices.IndexFunc(users, func(o userEntry) bool { return strings.EqualFold(o.Certificate, u.Certificate) }); i >= 0 {
			return fmt.Errorf("user %s has this certificate already: a certificate is one user's", users[i].Name)
		}
	} else if u.Password, err = c.hash(p); err != nil {
		return err
	}
	return writeUsers(path, append(users, u))
}

// certificateIn is the thumbprint of the certificate in a file.
func certificateIn(path string) (print pki.Thumbprint, err error) {
	text, err := readBounded(path)
	if err != nil {
		return print, err
	}
	if block, _ := pem.Decode(text); block != nil {
		text = block.Bytes
	}
	chain, err := pki.Parse(text)
	if err != nil {
		return print, fmt.Errorf("%s: %w", path, err)
	}
	return pki.ThumbprintOf(chain[0].Raw), nil
}

type usersRemove struct {
	usersFlags
	Name string `arg:"" help:"Name of the user."`
}

// Run removes a user.
func (c *usersRemove) Run(*program) error {
	path, users, err := c.open()
	if err != nil {
		return err
	}
	i := find(users, c.Name)
	if i < 0 {
		return noUser(path, c.Name)
	}
	return writeUsers(path, slices.Delete(users, i, i+1))
}

func noUser(path, name string) error {
	return fmt.Errorf("%s has no user %s: `edged users list` names them", path, clip(name))
}

type usersPasswd struct {
	usersFlags
	secretFlags
	Name string `arg:"" help:"Name of the user."`
}

// Run sets a password.
func (c *usersPasswd) Run(p *program) error {
	path, users, err := c.open()
	if err != nil {
		return err
	}
	i := find(users, c.Name)
	if i < 0 {
		return noUser(path, c.Name)
	}
	if users[i].Password, err = c.hash(p); err != nil {
		return err
	}
	return writeUsers(path, users)
}

type usersList struct {
	usersFlags
	JSON bool `name:"json" help:"One JSON object a line instead of text."`
}

// Run lists the users. Hashes of passwords are not shown.
func (c *usersList) Run(p *program) error {
	_, users, err := c.open()
	if err != nil {
		return err
	}
	if c.JSON {
		e := json.NewEncoder(p.stdout)
		for _, u := range users {
			if err := e.Encode(u); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\troles\tlogs in with")
	for _, u := range users {
		with := "password"
		if u.Certificate != "" {
			if with = "certificate " + u.Certificate; u.Certificate == anyTrusted {
				with = "any trusted certificate of this name"
			}
			if u.Password != "" {
				with = "password, " + with
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", u.Name, strings.Join(u.Roles, ", "), with)
	}
	return w.Flush()
}
