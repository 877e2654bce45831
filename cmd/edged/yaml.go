package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// What a file may hold. The parser under us recurses with the depth of its input and its memory is some fifty times the
// text's, so both are checked before it runs.
const (
	maxFileBytes = 8 << 20
	maxDepth     = 20   // of brackets, and of dashes on one line
	maxColumn    = 2000 // of the first word of a line: block nesting costs at least a column a level
	maxMistakes  = 100
)

// mistake is one thing that is wrong in a file.
type mistake struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Col  int    `json:"col"`
	Text string `json:"message"`
}

// Error is FILE:LINE:COL: message.
func (m mistake) Error() string { return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Col, m.Text) }

// fileError is every mistake of one file, in the order of their lines.
type fileError []mistake

// Error is a line a mistake.
func (e fileError) Error() string {
	lines := make([]string, len(e))
	for i, m := range e {
		lines[i] = m.Error()
	}
	return strings.Join(lines, "\n")
}

type nodeKind uint8

const (
	nullNode nodeKind = iota
	scalarNode
	mapNode
	listNode
)

func (k nodeKind) String() string {
	return [...]string{"nothing", "a single value", "a map of keys", "a list"}[k]
}

// node is one value of a file with its place.
type node struct {
	line, col int
	file      *string // where it is another one than the document's
	kind      nodeKind
	text      string // of a scalar, without its quotes
	quoted    bool
	pairs     []pair
	items     []*node
}

// before reports whether n stands before o in the file.
func (n *node) before(o *node) bool { return n.line < o.line || n.line == o.line && n.col < o.col }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

type pair struct{ key, value *node }

// document collects the mistakes of one file while it is read.
type document struct {
	file     string
	mistakes fileError
	more     int     // mistakes beyond maxMistakes
	sketch   *schema // not nil: nothing is read, and readers note here what they would accept
}

// fault notes a mistake at n.
func (d *document) fault(n *node, format string, args ...any) {
	told := len(d.mistakes)
	d.at(n.line, n.col, format, args...)
	if n.file != nil && told < len(d.mistakes) {
		d.mistakes[told].File = *n.file
	}
}

func (d *document) at(line, col int, format string, args ...any) {
	if len(d.mistakes) == maxMistakes {
		d.more++
		return
	}
	d.mistakes = append(d.mistakes, mistake{d.file, line, col, fmt.Sprintf(format, args...)})
}

// err is all mistakes so far, sorted, or nil.
func (d *document) err() error {
	if len(d.mistakes) == 0 {
		return nil
	}
	slices.SortStableFunc(d.mistakes, func(a, b mistake) int {
		if a.File != b.File && (a.File == d.file) != (b.File == d.file) {
			return b2i(a.File != d.file) - b2i(b.File != d.file) // those of other files last
		}
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Col - b.Col
	})
	if d.more > 0 {
		last := d.mistakes[len(d.mistakes)-1]
		d.mistakes = append(d.mistakes, mistake{d.file, last.Line, last.Col,
			fmt.Sprintf("and %d more mistakes; mend these first", d.more)})
		d.more = 0
	}
	return d.mistakes
}

// readBounded reads a file of at most maxFileBytes.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; name the file with --config", path, errors.Unwrap(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d MiB: use repeat for tags that follow each other", path, maxFileBytes>>20)
	}
	return text, nil
}

// parse turns the text of one YAML document into nodes. Nil: nothing could be read, and the mistakes say why.
func (d *document) parse(text []byte) *node {
	if i := slices.Index(text, 0); i >= 0 {
		d.at(1, 1, "is not a text file (byte %d is zero): write it as UTF-8 text", i)
		return nil
	}
	tokens, file := d.tokens(string(text)), (*ast.File)(nil)
	if tokens == nil {
		return nil
	}
	if err := guard(func() (err error) {
		file, err = parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
		return err
	}); err != nil {
		d.syntax(err)
		return nil
	}
	var body *node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			n := place(doc.Body)
			d.fault(n, "a second document begins here: a file holds one; remove the --- line before it")
			return nil
		}
		body = d.convert(doc.Body, 0)
	}
	if body == nil {
		d.at(1, 1, "is empty: begin with the devices; `edged demo --print` shows a whole file")
	}
	return body
}

// guard runs a step of the library's parser. It has been seen to panic on broken input; a wrong file is a message.
func guard(step func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be read as YAML (%v)", r)
		}
	}()
	return step()
}

// tokens cuts the text into tokens and refuses what could make the parser's work unbounded.
func (d *document) tokens(text string) token.Tokens {
	var tokens token.Tokens
	if err := guard(func() error { tokens = lexer.Tokenize(text); return nil }); err != nil {
		d.at(1, 1, "%v: check quotes and indentation", err)
		return nil
	}
	if len(tokens) == 0 {
		d.at(1, 1, "is empty: begin with the devices; `edged demo --print` shows a whole file")
		return nil
	}
	depth, dashes, line, before := 0, 0, 0, len(d.mistakes)
	for _, t := range tokens {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
			if t.Position.Column > maxColumn {
				d.at(line, t.Position.Column, "is indented further than %d columns", maxColumn)
				return nil
			}
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
			if depth == 0 {
				dashes++
			}
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			d.at(line, t.Position.Column, "anchors (&), aliases (*) and merges (<<) are not accepted: write the value out, or use repeat")
		case token.TagType:
			d.at(line, t.Position.Column, "the YAML tag %s is not accepted: write the value alone", clip(t.Value))
		}
		if depth > maxDepth || dashes > maxDepth {
			d.at(line, t.Position.Column, "is nested deeper than %d levels", maxDepth)
			return nil
		}
	}
	if len(d.mistakes) > before {
		return nil
	}
	return tokens
}

// syntax notes what the library's parser has to say.
func (d *document) syntax(err error) {
	var placed interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if errors.As(err, &placed) && placed.GetToken() != nil {
		p := placed.GetToken().Position
		d.at(p.Line, max(p.Column, 1), "is not valid YAML: %s", placed.GetMessage())
		return
	}
	d.at(1, 1, "is not valid YAML: %v", err)
}

// place is a node that only knows where it stands.
func place(n ast.Node) *node {
	t := n.GetToken()
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return place(n.Values[0].Key)
		}
		t = n.Start
	case *ast.MappingValueNode:
		return place(n.Key)
	case *ast.SequenceNode:
		t = n.Start
	case *ast.LiteralNode:
		t = n.Start
	}
	return &node{line: t.Position.Line, col: t.Position.Column}
}

// convert copies the library's tree into nodes.
func (d *document) convert(n ast.Node, depth int) *node {
	out := place(n)
	if depth > 2*maxDepth {
		d.fault(out, "is nested deeper than %d levels", 2*maxDepth)
		return out
	}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.MappingNode:
		out.kind = mapNode
		for _, v := range n.Values {
			out.pairs = append(out.pairs, d.pair(v, depth))
		}
	case *ast.MappingValueNode:
		out.kind, out.pairs = mapNode, []pair{d.pair(n, depth)}
	case *ast.SequenceNode:
		out.kind = listNode
		for _, v := range n.Values {
			out.items = append(out.items, d.convert(v, depth+1))
		}
	case *ast.StringNode:
		t := n.Token.Type
		out.kind, out.text = scalarNode, n.Value
		out.quoted = t == token.SingleQuoteType || t == token.DoubleQuoteType
	case *ast.LiteralNode:
		out.kind, out.text, out.quoted = scalarNode, n.Value.Value, true
	default:
		out.kind, out.text = scalarNode, n.GetToken().Value
	}
	return out
}

func (d *document) pair(v *ast.MappingValueNode, depth int) pair {
	key := d.convert(v.Key, depth+1)
	if key.kind != scalarNode {
		d.fault(key, "a key is %s here: keys are single words", key.kind)
	}
	value := d.convert(v.Value, depth+1)
	if value.kind == nullNode {
		value.line, value.col = key.line, key.col
	}
	return pair{key, value}
}

// clip shortens text from a file so that a message stays one line.
func clip(s string) string {
	const most = 60
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
