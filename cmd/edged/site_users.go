package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"edged/uaserver/address"
)

// defaultUsers is the file of users, beside the site file.
const defaultUsers = "users.yaml"

// maxPath bounds the name of a file, in bytes.
const maxPath = 4096

// noUsers in the place of a file's name says that nobody logs in as a user.
const noUsers = "none"

// roleNames are the roles that users are given, with their bit and what they may do with nodes that no pattern concerns.
var roleNames = []struct {
	name   string
	role   address.Roles
	rights address.Rights
}{
	{"observer", address.Observer, mayLook},
	{"operator", address.Operator, mayLook | address.MayWrite},
	{"engineer", address.Engineer, mayLook | address.MayWrite | address.MayCall},
	{"admin", address.Admin, mayLook | address.MayWrite | address.MayCall | address.MayAudit},
}

const mayLook = address.MayBrowse | address.MayRead

// rolePatterns are the nodes with which a role may do something, by patterns of their names; nil: those of Browse, and of
// Browse all.
type rolePatterns struct{ Browse, Read, Write []string }

// rightsOf are the rights of somebody with roles of these names. Unknown ones give none.
func rightsOf(roles []string) (rights address.Rights) {
	for _, r := range roleNames {
		for _, name := range roles {
			if name == r.name {
				rights |= r.rights.With(r.role)
			}
		}
	}
	return rights
}

func (r *siteReader) users(n *node) string {
	if s, ok := r.sketching(); ok {
		defer s.also(noUsers)
		return r.text(n, "", maxPath)
	}
	s := r.text(n, "server.security: users", maxPath)
	if n.kind == scalarNode && n.text == "" {
		r.fault(n, "server.security: users is empty: name a file such as %s, or write %s", defaultUsers, noUsers)
	}
	return s
}

func (r *siteReader) roles(n *node) {
	var keys []key
	for _, role := range roleNames {
		keys = append(keys, key{role.name, func(v *node) { r.role(v, role.name) }})
	}
	r.section(n, "server.security.roles", keys)
}

func (r *siteReader) role(n *node, name string) {
	what := "server.security.roles." + name
	var p rolePatterns
	list := func(key string, to *[]string) func(v *node) {
		return func(v *node) {
			if _, ok := r.sketching(); !ok {
				*to = []string{} // an empty list is no node
			}
			for _, one := range r.list(v, what+": "+key) {
				text := r.text(one, what+": "+key, maxName)
				if *to != nil {
					*to = append(*to, text)
					r.patterns = append(r.patterns, pattern{one, what + ": " + key, text})
				}
			}
		}
	}
	r.section(n, what, []key{{"browse", list("browse", &p.Browse)}, {"read", list("read", &p.Read)}, {"write", list("write", &p.Write)}})
	if p.Browse == nil && p.Read == nil && p.Write == nil {
		return
	}
	s := &r.site.Server.Security
	if s.Roles == nil {
		s.Roles = map[string]rolePatterns{}
	}
	s.Roles[name] = p
}

// pattern is a pattern of the file with its place.
type pattern struct {
	at   *node
	what string
	text string
}

// checkPatterns finds patterns that concern nothing, when the tags are known: a misspelt one would give or take a right
// that nobody sees.
func (r *siteReader) checkPatterns() {
	for _, p := range r.patterns {
		used := false
		for i := range r.site.Tags {
			if used = covers(p.text, r.site.Tags[i].Device+"."+r.site.Tags[i].Name); used {
				break
			}
		}
		if !used && p.text != "" {
			r.fault(p.at, "%s: %q is the name of no device, folder or tag: write names such as boiler.setpoint, with * for any text", p.what, clip(p.text))
		}
	}
}

// permissions tells who may do what with the nodes of devices and tags; nil: the site has no patterns, so that the rights
// of each client are the same everywhere.
func (s *site) permissions() func(name string) address.Permissions {
	sec := s.Server.Security
	if len(sec.Roles) == 0 {
		return nil
	}
	anonymous := s.anonymous()
	return func(name string) (p address.Permissions) {
		p = address.Permissions{Browse: address.Nobody, Read: address.Nobody, Write: address.Nobody, Call: address.Nobody}
		for _, r := range roleNames {
			own := sec.Roles[r.name]
			if shows(own.Browse, name) {
				p.Browse |= r.role
			}
			inside := own.Browse == nil || anyCovers(own.Browse, name)
			if inside && own.Read == nil || anyCovers(own.Read, name) {
				p.Read |= r.role
			}
			if inside && own.Write == nil && r.rights&address.MayWrite != 0 || anyCovers(own.Write, name) {
				p.Write |= r.role
			}
			if inside && r.rights&address.MayCall != 0 {
				p.Call |= r.role
			}
		}
		for _, one := range []struct {
			right address.Rights
			to    *address.Roles
		}{{address.MayBrowse, &p.Browse}, {address.MayRead, &p.Read}, {address.MayWrite, &p.Write}, {address.MayCall, &p.Call}} {
			if anonymous&one.right != 0 {
				*one.to |= address.Anonymous
			}
		}
		return p
	}
}

func anyCovers(patterns []string, name string) bool {
	for _, p := range patterns {
		if covers(p, name) {
			return true
		}
	}
	return false
}

// shows reports whether a node is seen by who may browse what the patterns cover: also the devices and folders on the way.
func shows(patterns []string, name string) bool {
	if patterns == nil || anyCovers(patterns, name) {
		return true
	}
	for _, p := range patterns {
		if leads(p, name+".") {
			return true
		}
	}
	return false
}

// covers reports whether a pattern is of a name, or of a device or folder that it is in. A * is any text, a ? any character.
func covers(pattern, name string) bool {
	for i := 0; i <= len(name); i++ {
		if (i == len(name) || name[i] == '.') && matches(pattern, name[:i]) {
			return true
		}
	}
	return false
}

// matches reports whether a pattern is of all of a text. After a * it tries again at the next place, and never further back,
// so that it ends soon whatever the pattern is.
func matches(pattern, text string) bool {
	p, t, star, from := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			from++
			p, t = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// leads reports whether a pattern may be of a text that begins so.
func leads(pattern, begin string) bool {
	for i := range len(begin) {
		switch {
		case i >= len(pattern):
			return false
		case pattern[i] == '*':
			return true
		case pattern[i] != '?' && pattern[i] != begin[i]:
			return false
		}
	}
	return len(pattern) > len(begin)
}

// usersFile is the path of the site's file of users; "": it has none.
func (s *site) usersFile() string {
	name := s.Server.Security.Users
	switch {
	case name == noUsers:
		return ""
	case filepath.IsAbs(name):
		return name
	}
	return filepath.Join(filepath.Dir(s.File), name)
}

// checkUsers reads the file of users. Its mistakes are the site's.
func (r *siteReader) checkUsers() {
	count := 0
	if path := r.site.usersFile(); path != "" {
		book, err := readUsers(path)
		if file, ok := err.(fileError); ok {
			r.mistakes = append(r.mistakes, file...)
			return
		} else if err != nil {
			r.note(fmt.Sprintf("users cannot log in: %v", err))
		}
		count = len(book.users)
	}
	if r.site.Server.Security.Anonymous == anonymousNone && count == 0 {
		r.note("nobody can log in, because server.security.anonymous is none and there are no users: " +
			"add one with `edged users add NAME --role ROLE --config FILE`, or set it to read or write")
	}
}
