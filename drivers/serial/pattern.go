package serial

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxProgram bounds a pattern's program: with the longest frame, what the search remembers stays below 4 MiB.
const maxProgram = 500

// pattern is a regular expression over bytes, each taken for the character of its number. It finds what the regexp
// package finds, leftmost and by preference, and its searches do not allocate: package regexp makes a slice for the
// places of the groups each time, and at 1,000 lines/s that is work for the collector.
type pattern struct {
	prog     *syntax.Prog
	prefix   []byte // every match begins with it
	anchored bool   // a match begins at the text's beginning only
	names    []string
	text     string
}

// newPattern compiles a regular expression of the syntax of package regexp. A match needs not span all of a text.
func newPattern(text string) (*pattern, error) {
	if _, err := regexp.Compile(text); err != nil {
		return nil, fmt.Errorf("%q is no regular expression: %w", text, err)
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	names := re.CapNames()
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	if len(prog.Inst) > maxProgram {
		return nil, fmt.Errorf("%q is too large: repetitions such as {1,200} make it so", text)
	}
	p := &pattern{prog: prog, names: names, text: text, anchored: prog.StartCond()&syntax.EmptyBeginText != 0}
	prefix, _ := prog.Prefix()
	for _, r := range prefix {
		if r > 0xFF {
			return nil, fmt.Errorf("%q holds %q, which is no single byte: write the bytes of the line as \\xHH", text, r)
		}
		p.prefix = append(p.prefix, byte(r))
	}
	return p, nil
}

// groups is how many groups there are, with the whole match, which is group 0.
func (p *pattern) groups() int { return len(p.names) }

// group is the number of a group by its name.
func (p *pattern) group(name string) (int, bool) {
	for i, n := range p.names {
		if i > 0 && n == name {
			return i, true
		}
	}
	return 0, false
}

// matcher is the memory of searches. Owned by one goroutine.
type matcher struct {
	visited []uint32 // a bit a place in the program and the text: from there nothing matches
	jobs    []try
	caps    []int // begin and end of each group; -1: it is not there
}

// try is a place to go on from, or a group's bound to restore.
type try struct {
	pc, pos int
	restore bool // caps[pc] = pos
}

// find searches the first match. The groups are in m.caps.
func (m *matcher) find(p *pattern, in []byte) bool {
	words := (len(p.prog.Inst)*(len(in)+1) + 31) / 32
	if cap(m.visited) < words {
		m.visited = make([]uint32, words)
	}
	m.visited = m.visited[:words]
	clear(m.visited)
	if n := 2 * len(p.names); cap(m.caps) < n {
		m.caps = make([]int, n)
	}
	m.caps = m.caps[:2*len(p.names)]
	for at := 0; at <= len(in); at++ {
		if len(p.prefix) > 0 {
			i := bytes.Index(in[at:], p.prefix)
			if i < 0 {
				return false
			}
			at += i
		}
		if m.from(p, in, at) {
			return true
		}
		if p.anchored {
			return false
		}
	}
	return false
}

// from searches a match that begins at a place.
func (m *matcher) from(p *pattern, in []byte, start int) bool {
	for i := range m.caps {
		m.caps[i] = -1
	}
	m.caps[0] = start
	m.jobs = append(m.jobs[:0], try{pc: p.prog.Start, pos: start})
	for len(m.jobs) > 0 {
		j := m.jobs[len(m.jobs)-1]
		m.jobs = m.jobs[:len(m.jobs)-1]
		if j.restore {
			m.caps[j.pc] = j.pos
			continue
		}
		if m.run(p, in, j.pc, j.pos) {
			return true
		}
	}
	return false
}

// run follows the program from one place until it matches or fails, and notes the places to go on from.
func (m *matcher) run(p *pattern, in []byte, pc, pos int) bool {
	for {
		bit := pc*(len(in)+1) + pos
		if m.visited[bit/32]&(1<<(bit%32)) != 0 {
			return false
		}
		m.visited[bit/32] |= 1 << (bit % 32)
		i := &p.prog.Inst[pc]
		switch i.Op {
		case syntax.InstMatch:
			m.caps[1] = pos
			return true
		case syntax.InstFail:
			return false
		case syntax.InstAlt, syntax.InstAltMatch:
			m.jobs = append(m.jobs, try{pc: int(i.Arg), pos: pos})
		case syntax.InstCapture:
			if n := int(i.Arg); n > 1 && n < len(m.caps) {
				m.jobs = append(m.jobs, try{pc: n, pos: m.caps[n], restore: true})
				m.caps[n] = pos
			}
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(i.Arg)&^around(in, pos) != 0 {
				return false
			}
		case syntax.InstNop:
		default:
			if pos == len(in) || !i.MatchRune(rune(in[pos])) {
				return false
			}
			pos++
		}
		pc = int(i.Out)
	}
}

// around tells which conditions without width hold at a place.
func around(in []byte, pos int) syntax.EmptyOp {
	before, after := rune(-1), rune(-1)
	if pos > 0 {
		before = rune(in[pos-1])
	}
	if pos < len(in) {
		after = rune(in[pos])
	}
	return syntax.EmptyOpContext(before, after)
}

// scanPattern turns a scanf-like pattern into a regular expression: %d a whole number, %f a number, %x hexadecimal
// digits, %s a word, %c a character, each with a width as in %8f, %*s is passed over, %% is a percent sign, and a space
// is any number of them. All but %c pass over spaces before.
func scanPattern(text string) (string, error) {
	out := "^"
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == ' ':
			out += `\s*`
		case c != '%':
			out += regexp.QuoteMeta(text[i : i+1])
		default:
			end := i + 1
			for end < len(text) && (text[end] == '*' || text[end] >= '0' && text[end] <= '9') {
				end++
			}
			if end == len(text) {
				return "", fmt.Errorf("%q ends with a single %%: write two for one", text)
			}
			part, err := conversion(text[i+1:end], text[end])
			if err != nil {
				return "", fmt.Errorf("%q: %w", text, err)
			}
			out += part
			i = end
		}
	}
	return out, nil
}

// conversion is one conversion of a scanf-like pattern.
func conversion(flags string, kind byte) (string, error) {
	open := "("
	if rest, skip := strings.CutPrefix(flags, "*"); skip {
		open, flags = "(?:", rest
	}
	if strings.Contains(flags, "*") || len(flags) > 3 || strings.HasPrefix(flags, "0") {
		return "", fmt.Errorf("%%%s%c is not known: a conversion is %%*8f at most", flags, kind)
	}
	body := ""
	switch kind {
	case '%':
		return "%", nil
	case 'd':
		body = `[-+]? *[0-9]+`
	case 'f':
		body = `[-+]? *(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?`
	case 'x':
		body = `[0-9A-Fa-f]+`
	case 's':
		body = `\S+`
	case 'c':
		body = `(?s:.)`
	default:
		return "", fmt.Errorf("%%%c is not known: use %%d, %%f, %%x, %%s, %%c or %%%%", kind)
	}
	switch {
	case kind == 'c' && flags != "":
		return open + body + "{" + flags + "})", nil
	case kind == 'c':
		return open + body + ")", nil
	case flags != "" && (kind == 's' || kind == 'x'):
		return `\s*` + open + strings.TrimSuffix(body, "+") + "{1," + flags + "})", nil
	case flags != "": // digits, points and signs of a field of that width
		return open + `[-+0-9.eE ]{1,` + flags + "})", nil
	}
	return `\s*` + open + body + ")", nil
}
