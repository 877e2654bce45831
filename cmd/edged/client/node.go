package client

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// plantNamespace is the namespace of bare names: the index that an edged gateway gives its tags.
const plantNamespace = 2

// nodeForms is what a node may look like, for messages.
const nodeForms = "write ns=2;s=boiler.temperature, i=2258, nsu=URI;s=NAME, or boiler.temperature alone for namespace 2"

// identifiers are the letters of numeric, string, GUID and opaque identifiers (Part 6, 5.3.1.10).
const identifiers = "isgb"

// nodeText is a node as it was written: its namespace may be known only to the server.
type nodeText struct {
	uri  string // "" where ns is the index
	ns   uint16
	kind byte // i, s, g, b
	id   string
}

// splitNode takes the namespace off a node's text.
func splitNode(text string) (nodeText, error) {
	var n nodeText
	rest := text
	switch {
	case strings.HasPrefix(rest, "ns="):
		number, after, ok := strings.Cut(rest[3:], ";")
		ns, err := strconv.ParseUint(number, 10, 16)
		if !ok || err != nil {
			return n, mistake("node %q: after ns= stands a number up to 65535 and a semicolon: %s", text, nodeForms)
		}
		n.ns, rest = uint16(ns), after
	case strings.HasPrefix(rest, "nsu="):
		uri, after, ok := strings.Cut(rest[4:], ";")
		if !ok || uri == "" {
			return n, mistake("node %q: after nsu= stands a URI and a semicolon: %s", text, nodeForms)
		}
		// A semicolon and the percent sign itself are escaped in the URI (Part 6, 5.1.12).
		n.uri, rest = strings.NewReplacer("%3B", ";", "%3b", ";", "%25", "%").Replace(uri), after
	case len(rest) < 2 || rest[1] != '=' || strings.IndexByte(identifiers, rest[0]) < 0:
		n.ns, n.kind, n.id = plantNamespace, 's', rest
		return n, nil
	}
	if len(rest) < 2 || rest[1] != '=' || strings.IndexByte(identifiers, rest[0]) < 0 {
		return n, mistake("node %q: the identifier begins with i=, s=, g= or b=: %s", text, nodeForms)
	}
	n.kind, n.id = rest[0], rest[2:]
	return n, nil
}

// parseNode reads a node. Namespaces given as URI are looked up in uris.
func parseNode(text string, uris []string) (*ua.NodeID, error) {
	n, err := splitNode(text)
	if err != nil {
		return nil, err
	}
	if n.id == "" {
		return nil, mistake("node %q has no identifier: %s", text, nodeForms)
	}
	if n.uri != "" {
		i := slices.Index(uris, n.uri)
		if i < 0 {
			return nil, mistake("node %q: the server has no namespace %s; it has %s", text, n.uri, strings.Join(uris, ", "))
		}
		n.ns = uint16(i)
	}
	switch n.kind {
	case 'i':
		v, err := strconv.ParseUint(n.id, 10, 32)
		if err != nil {
			return nil, mistake("node %q: after i= stands a number up to 4294967295: %s", text, nodeForms)
		}
		return ua.NewNumericNodeID(n.ns, uint32(v)), nil
	case 'g':
		if !isGUID(n.id) {
			return nil, mistake("node %q: after g= stands a GUID such as 09087e75-8e5e-499b-954f-f2a9603db28a", text)
		}
		return ua.NewGUIDNodeID(n.ns, n.id), nil
	case 'b':
		b, err := base64.StdEncoding.DecodeString(n.id)
		if err != nil {
			return nil, mistake("node %q: after b= stand bytes in base 64", text)
		}
		return ua.NewByteStringNodeID(n.ns, b), nil
	}
	return ua.NewStringNodeID(n.ns, n.id), nil
}

// isGUID reports whether s has the form of Part 6, 5.1.3.
func isGUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range []byte(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || (!dash && strings.IndexByte("0123456789abcdefABCDEF", c) < 0) {
			return false
		}
	}
	return true
}

// Nodes reads nodes as they are written on the command line. The error is a Mistake.
func (c *Conn) Nodes(texts []string) ([]*ua.NodeID, error) {
	out := make([]*ua.NodeID, len(texts))
	for i, text := range texts {
		n, err := parseNode(text, c.client.Namespaces())
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

// CheckNodes reports the first node whose text no server could understand, before any is asked.
func CheckNodes(texts []string) error {
	for _, text := range texts {
		n, err := splitNode(text)
		if err == nil && n.uri == "" {
			_, err = parseNode(text, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Assignment is NODE=VALUE of a command line.
type Assignment struct{ Node, Value string }

// SplitAssignment cuts NODE=VALUE. The node ends at the first equals sign behind its identifier's letter; in base 64 at
// the first one that leaves whole bytes before it. The error is a Mistake.
func SplitAssignment(text string) (Assignment, error) {
	const form = "write NODE=VALUE, such as boiler.setpoint=71.5 or ns=2;s=boiler.setpoint=71.5"
	n, err := splitNode(text)
	if err != nil {
		return Assignment{}, err
	}
	head := len(text) - len(n.id)
	for i := 0; i < len(n.id); i++ {
		if n.id[i] != '=' {
			continue
		}
		if n.kind == 'b' {
			if _, err := base64.StdEncoding.DecodeString(n.id[:i]); err != nil {
				continue
			}
		}
		if i == 0 {
			break
		}
		return Assignment{text[:head+i], text[head+i+1:]}, nil
	}
	return Assignment{}, mistake("%q has no value or no node: %s", text, form)
}

// typeNames caches the names of data types.
type typeNames struct{ known map[string]string }

// names gives the name of each data type, as its browse name says. Owned by the command's goroutine.
func (t *typeNames) names(ctx context.Context, c *Conn, types []*ua.NodeID) ([]string, error) {
	var ask []*ua.NodeID
	for _, n := range types {
		if n == nil {
			continue
		}
		key := n.String()
		if _, ok := t.known[key]; ok {
			continue
		}
		if name, ok := builtinName(n); ok {
			t.known[key] = name
			continue
		}
		t.known[key] = key // asked once
		ask = append(ask, n)
	}
	values, err := c.attributes(ctx, ask, ua.AttributeIDBrowseName)
	if err != nil {
		return nil, err
	}
	for i, v := range values {
		if q, ok := v.Value.(*ua.QualifiedName); ok && q != nil && q.Name != "" {
			t.known[ask[i].String()] = oneLine(q.Name)
		}
	}
	out := make([]string, len(types))
	for i, n := range types {
		if n != nil {
			out[i] = t.known[n.String()]
		}
	}
	return out, nil
}

// builtinName is the name of a data type that is built in (Part 6, 5.1.2), but for abstract ones.
func builtinName(n *ua.NodeID) (string, bool) {
	if n.Namespace() != 0 || n.IntID() == 0 || n.IntID() > uint32(ua.TypeIDDiagnosticInfo) {
		return "", false
	}
	return TypeName(ua.TypeID(n.IntID())), true
}

var rootFolder = ua.NewNumericNodeID(0, id.ObjectsFolder)
