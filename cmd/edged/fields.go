package main

import (
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// key is one key that a section of a file knows.
type key struct {
	name string
	read func(v *node)
}

// later is a key that the contract of the file names and that this version does not carry out: it is refused, so that
// nobody relies on it.
func (d *document) later(name string) key {
	return key{name, func(v *node) {
		if s, ok := d.sketching(); ok {
			s.refuse()
			return
		}
		d.fault(v, "%s is not available in this version: remove it", name)
	}}
}

// section reads a map by the table of the keys that it may hold. Every unknown and every repeated key is a mistake.
func (d *document) section(n *node, what string, keys []key) {
	if s, ok := d.sketching(); ok {
		s.object(d, keys)
		return
	}
	if n.kind != mapNode {
		d.fault(n, "%s is %s here: it is a map of keys such as %s", what, n.kind, keys[0].name)
		return
	}
	seen := make(map[string]int, len(n.pairs))
	for _, p := range n.pairs {
		name := p.key.text
		if line, twice := seen[name]; twice {
			d.fault(p.key, "%s: %s stands here a second time, the first is on line %d: remove one", what, clip(name), line)
			continue
		}
		seen[name] = p.key.line
		i := 0
		for i < len(keys) && keys[i].name != name {
			i++
		}
		if i == len(keys) {
			d.fault(p.key, "%s: unknown key %q; %s", what, clip(name), suggestion(name, keys))
			continue
		}
		keys[i].read(p.value)
	}
}

// need notes a mistake for each key that is missing in n. One that was misspelt has been told.
func (d *document) need(n *node, what string, names ...string) {
	if s, ok := d.sketching(); ok {
		s.Required = names
		return
	}
	if n.kind != mapNode {
		return
	}
	for _, name := range names {
		if n.get(name) != nil {
			continue
		}
		if !slices.ContainsFunc(n.pairs, func(p pair) bool { return nearest(p.key.text, names) == name }) {
			d.fault(n, "%s: %s is missing: add it", what, name)
		}
	}
}

// get is the value of a key, or nil.
func (n *node) get(name string) *node {
	for _, p := range n.pairs {
		if p.key.text == name {
			return p.value
		}
	}
	return nil
}

// suggestion names the known key that is nearest to what was written, or all of them.
func suggestion(name string, keys []key) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	if best := nearest(name, names); best != "" {
		return "did you mean " + best + "?"
	}
	return "known are " + strings.Join(names, ", ")
}

// nearest is the name with the fewest edits, or "" when none is near.
func nearest(name string, names []string) string {
	best, least := "", 1+min(len(name), 40)/3
	for _, n := range names {
		if e := edits(strings.ToLower(name), strings.ToLower(n)); e <= least && (best == "" || e < least) {
			best, least = n, e
		}
	}
	return best
}

// edits is how many letters must be inserted, removed, replaced or swapped to turn a into b; at most 40 letters count.
func edits(a, b string) int {
	a, b = a[:min(len(a), 40)], b[:min(len(b), 40)]
	older, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j]+cost, prev[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
		older, prev, row = prev, row, older
	}
	return prev[len(b)]
}

// scalar is the text of a single value.
func (d *document) scalar(n *node, what, example string) (string, bool) {
	if s, ok := d.sketching(); ok {
		s.scalar()
		return "", false
	}
	if n.kind != scalarNode {
		d.fault(n, "%s is %s here: it is a single value such as %s", what, n.kind, example)
		return "", false
	}
	return n.text, true
}

// text reads a text without control characters, of at most most bytes.
func (d *document) text(n *node, what string, most int) string {
	if s, ok := d.sketching(); ok {
		s.text(most)
		return ""
	}
	s, ok := d.scalar(n, what, `"text"`)
	switch {
	case !ok:
		return ""
	case len(s) > most:
		d.fault(n, "%s has %d bytes: at most %d", what, len(s), most)
		return ""
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		d.fault(n, "%s holds a character that cannot be printed: remove it", what)
		return ""
	}
	return s
}

// integer reads a whole number in [low, high].
func (d *document) integer(n *node, what string, low, high int) int {
	if s, ok := d.sketching(); ok {
		s.Type = typeInteger
		s.between(float64(low), float64(high))
		return low
	}
	s, ok := d.scalar(n, what, strconv.Itoa(max(low, 1)))
	if !ok {
		return low
	}
	v, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 0, 64)
	if err != nil || n.quoted {
		d.fault(n, "%s is %q: it is a whole number from %d to %d", what, clip(s), low, high)
		return low
	}
	if v < int64(low) || v > int64(high) {
		d.fault(n, "%s is %d: it may be %d to %d", what, v, low, high)
		return low
	}
	return int(v)
}

// number reads a finite number.
func (d *document) number(n *node, what string) float64 {
	if s, ok := d.sketching(); ok {
		s.Type = typeNumber
		return 0
	}
	s, ok := d.scalar(n, what, "0.5")
	if !ok {
		return 0
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil || n.quoted || math.IsInf(v, 0) || math.IsNaN(v) {
		d.fault(n, "%s is %q: it is a finite number", what, clip(s))
		return 0
	}
	return v
}

// boolean reads true or false.
func (d *document) boolean(n *node, what string) bool {
	if s, ok := d.sketching(); ok {
		s.Type = typeBoolean
		return false
	}
	s, ok := d.scalar(n, what, "true")
	if !ok {
		return false
	}
	if n.quoted || (s != "true" && s != "false") {
		d.fault(n, "%s is %q: it is true or false", what, clip(s))
	}
	return s == "true"
}

// choice reads one of a few words.
func (d *document) choice(n *node, what string, words ...string) string {
	if s, ok := d.sketching(); ok {
		s.word(words...)
		return ""
	}
	s, ok := d.scalar(n, what, words[0])
	if !ok {
		return ""
	}
	for _, w := range words {
		if s == w {
			return w
		}
	}
	hint := "it is one of " + strings.Join(words, ", ")
	if near := nearest(s, words); near != "" {
		hint = "did you mean " + near + "?"
	}
	d.fault(n, "%s is %q: %s", what, clip(s), hint)
	return ""
}

// duration reads a time span such as 100ms or 1m30s in [low, high].
func (d *document) duration(n *node, what string, low, high time.Duration) time.Duration {
	if s, ok := d.sketching(); ok {
		s.span(low, high)
		return low
	}
	s, ok := d.scalar(n, what, "100ms")
	if !ok {
		return low
	}
	v, err := time.ParseDuration(s)
	switch {
	case err != nil && isNumber(s):
		d.fault(n, "%s is %s without a unit: write %sms or %ss", what, clip(s), clip(s), clip(s))
	case err != nil:
		d.fault(n, "%s is %q: it is a time span such as 100ms, 5s or 1m30s", what, clip(s))
	case v < low || v > high:
		d.fault(n, "%s is %s: it may be %s to %s", what, v, low, high)
	default:
		return v
	}
	return low
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// listenAddress reads HOST:PORT to listen on.
func (d *document) listenAddress(n *node, what string) string {
	if s, ok := d.sketching(); ok {
		s.Type, s.Pattern = typeText, `^[^ \t/\\@?#]*:[0-9]+$`
		return ""
	}
	s, ok := d.scalar(n, what, "0.0.0.0:4840")
	if !ok {
		return ""
	}
	if why := badListenAddress(s); why != "" {
		d.fault(n, "%s is %q: %s", what, clip(s), why)
		return ""
	}
	return s
}

// badListenAddress says what is wrong with an address to listen on, or "".
func badListenAddress(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "it is HOST:PORT, such as 0.0.0.0:4840 or [::]:4840"
	}
	if p, err := strconv.Atoi(port); err != nil || p < 0 || p > 65535 {
		return "the port is a number from 0 to 65535 (0: any free one)"
	}
	if strings.ContainsAny(host, " \t/\\@?#") {
		return "the host is a name or an address of this machine"
	}
	return ""
}

// list is the values of a list; a single value stands for a list of one.
func (d *document) list(n *node, what string) []*node {
	if s, ok := d.sketching(); ok {
		d.sketch = s.oneOrMore() // until the key that is read has been
		return []*node{n}
	}
	switch n.kind {
	case listNode:
		return n.items
	case scalarNode:
		return []*node{n}
	}
	d.fault(n, "%s is %s here: it is a list such as [a, b]", what, n.kind)
	return nil
}

// plain reads a value whose type is not known yet: bool, int64, uint64, float64, string, or []any of these; nil if it
// is none of them.
func (d *document) plain(n *node, what string) any {
	if s, ok := d.sketching(); ok {
		s.Type = []string{typeBoolean, typeNumber, typeText, typeList}
		return nil
	}
	switch n.kind {
	case listNode:
		list := make([]any, 0, len(n.items))
		for _, v := range n.items {
			list = append(list, d.plain(v, what))
		}
		return list
	case scalarNode:
		return plainScalar(n)
	}
	d.fault(n, "%s is %s here: it is a single value or a list of them", what, n.kind)
	return nil
}

func plainScalar(n *node) any {
	if n.quoted {
		return n.text
	}
	s := strings.ReplaceAll(n.text, "_", "")
	if s == "true" || s == "false" {
		return s == "true"
	}
	if v, err := strconv.ParseInt(s, 0, 64); err == nil {
		return v
	}
	if v, err := strconv.ParseUint(s, 0, 64); err == nil {
		return v
	}
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		return v
	}
	return n.text
}
