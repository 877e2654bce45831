package main

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The words of server.security.
const (
	policyNone                = "None"
	policyBasic256Sha256      = "Basic256Sha256"
	policyAes128Sha256RsaOaep = "Aes128_Sha256_RsaOaep"
	policyAes256Sha256RsaPss  = "Aes256_Sha256_RsaPss"

	modeNone           = "None"
	modeSign           = "Sign"
	modeSignAndEncrypt = "SignAndEncrypt"

	queueAsked = "asked"
	queueAuto  = "auto"

	anonymousNone  = "none"
	anonymousRead  = "read"
	anonymousWrite = "write"
)

// securePolicies are the policies that sign and encrypt; together they are the default.
var securePolicies = []string{policyBasic256Sha256, policyAes128Sha256RsaOaep, policyAes256Sha256RsaPss}

// deprecatedPolicies are for old clients. They stand on SHA-1, and Basic128Rsa15 on an encryption that is easily made an
// oracle of as well.
var deprecatedPolicies = []string{"Basic256", "Basic128Rsa15"}

func (r *siteReader) server(n *node) {
	s := &r.site.Server
	r.section(n, "server", []key{
		{"listen", func(v *node) { s.Listen = r.listenAddress(v, "server: listen") }},
		{"name", func(v *node) { s.Name = r.text(v, "server: name", maxName) }},
		{"application_uri", func(v *node) { s.ApplicationURI = r.applicationURI(v) }},
		{"security", r.security},
		{"reverse", func(v *node) { s.Reverse = r.reverse(v) }},
		{"limits", r.limits},
		{"queue", func(v *node) { s.Queue = r.choice(v, "server: queue", queueAsked, queueAuto) }},
		{"raise_events", func(v *node) { s.RaiseEvents = r.boolean(v, "server: raise_events") }},
	})
}

// note keeps a remark that is no mistake.
func (r *siteReader) note(text string) { r.site.Notes = append(r.site.Notes, text) }

func (r *siteReader) applicationURI(n *node) string {
	s := r.text(n, "server: application_uri", maxName)
	u, err := url.Parse(s)
	if s != "" && (err != nil || u.Scheme == "" || strings.ContainsAny(s, " ")) {
		r.fault(n, "server: application_uri is %q: it is a URI such as urn:edged:boiler-house", clip(s))
	}
	return s
}

func (r *siteReader) security(n *node) {
	s := &r.site.Server.Security
	r.section(n, "server.security", []key{
		{"policies", func(v *node) { s.Policies = r.policies(v) }},
		{"modes", func(v *node) { s.Modes = r.modes(v) }},
		{"anonymous", func(v *node) {
			s.Anonymous = r.choice(v, "server.security: anonymous", anonymousNone, anonymousRead, anonymousWrite)
		}},
		{"trust_all", func(v *node) { s.TrustAll = r.boolean(v, "server.security: trust_all") }},
		{"key_size", func(v *node) { s.KeySize = r.keySize(v) }},
		{"users", func(v *node) { s.Users = r.users(v) }},
		{"roles", r.roles},
	})
	if v := n.get("key_size"); v != nil {
		r.checkKeySize(v)
	}
}

// keySizes are the sizes of an RSA key that the gateway's certificate may have, in bits.
var keySizes = []string{"2048", "3072", "4096"}

func (r *siteReader) keySize(n *node) int {
	size, _ := strconv.Atoi(r.choice(n, "server.security: key_size", keySizes...))
	return size
}

// checkKeySize finds a key that is too large for a deprecated policy (Part 7).
func (r *siteReader) checkKeySize(n *node) {
	s := &r.site.Server.Security
	for _, p := range s.Policies {
		if slices.Contains(deprecatedPolicies, p) && s.KeySize > 2048 {
			r.fault(n, "server.security: key_size is %d with the policy %s, which takes 2048 at most: remove one of them", s.KeySize, p)
		}
	}
}

func (r *siteReader) policies(n *node) []string {
	var out []string
	for _, v := range r.list(n, "server.security: policies") {
		p := r.choice(v, "server.security: policy", slices.Concat(securePolicies, []string{policyNone}, deprecatedPolicies)...)
		if slices.Contains(deprecatedPolicies, p) {
			r.note(fmt.Sprintf("server.security: policy %s is deprecated, because SHA-1 can be broken: offer it no longer than its last client needs it", p))
		}
		if p != "" && slices.Contains(out, p) {
			r.fault(v, "server.security: policy %s is named twice: remove one", p)
			continue
		}
		out = append(out, p)
	}
	if n.kind == listNode && len(n.items) == 0 {
		r.fault(n, "server.security: policies is empty: name some of %s and %s", strings.Join(securePolicies, ", "), policyNone)
	}
	return out
}

func (r *siteReader) modes(n *node) []string {
	var out []string
	for _, v := range r.list(n, "server.security: modes") {
		if v.kind == scalarNode && v.text == modeNone {
			r.fault(v, "server.security: mode None comes with the policy None: name the policy instead")
			continue
		}
		m := r.choice(v, "server.security: mode", modeSign, modeSignAndEncrypt)
		if m != "" && slices.Contains(out, m) {
			r.fault(v, "server.security: mode %s is named twice: remove one", m)
			continue
		}
		out = append(out, m)
	}
	if n.kind == listNode && len(n.items) == 0 {
		r.fault(n, "server.security: modes is empty: name %s or %s", modeSign, modeSignAndEncrypt)
	}
	return out
}

func (r *siteReader) limits(n *node) {
	l := &r.site.Server.Limits
	count := func(name string, to *int, low, high int) key {
		return key{name, func(v *node) { *to = r.integer(v, "server.limits: "+name, low, high) }}
	}
	r.section(n, "server.limits", []key{
		count("sessions", &l.Sessions, 1, 100_000),
		count("connections", &l.Connections, 4, 100_000),
		count("subscriptions", &l.Subscriptions, 1, 1_000_000),
		count("monitored_items", &l.MonitoredItems, 1, 100_000_000),
		count("queue", &l.Queue, 1, 1_000_000),
		{"min_publishing", func(v *node) {
			l.MinPublishing = r.duration(v, "server.limits: min_publishing", time.Millisecond, time.Hour)
		}},
		{"memory", func(v *node) { l.Memory = r.memory(v) }},
	})
	at := n
	if v := n.get("connections"); v != nil {
		at = v
	}
	// Three more than sessions, so that a full server still answers discovery and a client that comes back.
	if n.kind == mapNode && l.Connections < l.Sessions+3 {
		r.fault(at, "server.limits: connections is %d with sessions %d: it must be at least sessions + 3", l.Connections, l.Sessions)
	}
}

// memory reads a size in bytes, or auto, which is 0.
func (r *siteReader) memory(n *node) int64 {
	if s, ok := r.sketching(); ok {
		defer s.also("auto")
	}
	if n.kind == scalarNode && n.text == "auto" {
		return 0
	}
	return r.size(n, "server.limits: memory", 8<<20, 1<<40)
}

// size reads bytes such as 64MiB in [low, high].
func (d *document) size(n *node, what string, low, high int64) int64 {
	if s, ok := d.sketching(); ok {
		s.size(low, high)
		return low
	}
	s, ok := d.scalar(n, what, "64MiB")
	if !ok {
		return low
	}
	v, ok := parseSize(s)
	switch {
	case !ok:
		d.fault(n, "%s is %q: it is a size such as 64MiB or 1GiB", what, clip(s))
	case v < low || v > high:
		d.fault(n, "%s is %s: it may be %s to %s", what, clip(s), sizeText(low), sizeText(high))
	default:
		return v
	}
	return low
}

var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// parseSize reads a number and a unit of bytes.
func parseSize(s string) (int64, bool) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(v) || v < 0 || v*u.bytes > 1<<62 {
			return 0, false
		}
		return int64(v * u.bytes), true
	}
	return 0, false
}

func sizeText(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

func (r *siteReader) web(n *node) {
	r.section(n, "web", []key{{"listen", func(v *node) {
		if s, ok := r.sketching(); ok {
			defer s.also("none")
		}
		if v.kind == scalarNode && v.text == "none" {
			r.site.Web.Listen = ""
			return
		}
		r.site.Web.Listen = r.listenAddress(v, "web: listen")
	}}})
}
