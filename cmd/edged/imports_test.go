package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport is who may import whom: the packages of ours that each one's product code may import. A package that is
// not listed fails the test: whoever makes a room says here what it may know.
var mayImport = map[string][]string{
	"drivers/tag":           {},
	"uaserver/pki":          {},
	"drivers/port":          {"drivers/tag"},
	"uaserver/wire":         {"drivers/tag"},
	"drivers":               {"drivers/tag"},
	"store":                 {"drivers/tag"},
	"drivers/modbus":        {"drivers", "drivers/port", "drivers/tag"},
	"drivers/serial":        {"drivers", "drivers/port", "drivers/tag"},
	"drivers/memory":        {"drivers", "drivers/port", "drivers/tag"},
	"drivers/sim":           {"drivers/port", "drivers/tag"},
	"uaserver/channel":      {"uaserver/wire", "uaserver/pki", "drivers/tag"},
	"uaserver/session":      {"uaserver/pki", "drivers/tag"},
	"uaserver/address":      {"uaserver/wire", "drivers/tag"},
	"uaserver/event":        {"uaserver/address", "uaserver/wire", "drivers/tag"},
	"uaserver/subscription": {"uaserver/address", "uaserver/event", "uaserver/wire", "drivers/tag"},
	"uaserver/tagspace":     {"uaserver/address", "uaserver/event", "uaserver/subscription", "uaserver/wire", "drivers/tag"},
	"uaserver":              {"uaserver/wire", "uaserver/channel", "uaserver/pki", "uaserver/session", "uaserver/address", "uaserver/event", "uaserver/subscription", "drivers/tag"},
	"uaserver/wire/gen":     {everything},
	"uaserver/address/gen":  {everything},
	"uaserver/uatest":       {everything},
	"scripts/interop":       {},
}

// nobodyImports are the programs, generators and test helpers: what product code must not know.
var nobodyImports = []string{topRoom, "uaserver/wire/gen", "uaserver/address/gen", "uaserver/uatest"}

const everything = "*"

// topRoom is the room that joins all others: it and what is below it may import everything.
const topRoom = "cmd/edged"

// onlyIn is where a library of others may be imported: a folder with all below it. With tests, test files may too.
var onlyIn = []struct {
	library string // import path, or its beginning
	rooms   []string
	tests   bool
}{
	{"go.etcd.io/bbolt", []string{"store"}, false},
	{"go.bug.st/serial", []string{"drivers/port"}, false},
	{"github.com/goburrow/modbus", []string{"drivers/modbus"}, true},
	{"github.com/gopcua/opcua/schema", []string{"uaserver/wire/gen", "uaserver/address/gen"}, false},
	{"github.com/gopcua/opcua/ua", []string{"uaserver", topRoom}, true},
	{"github.com/gopcua/opcua/id", []string{"uaserver", topRoom}, true},
	{"github.com/gopcua/opcua/uapolicy", []string{"uaserver", topRoom}, true},
	{"github.com/gopcua/opcua", []string{topRoom}, true},
	{"github.com/prometheus/", []string{"cmd/edged/dashboard"}, false},
	{"github.com/alecthomas/kong", []string{topRoom}, false},
	{"github.com/goccy/go-yaml", []string{topRoom}, true},
	{"github.com/charmbracelet/", []string{topRoom}, false},
	{"github.com/fsnotify/fsnotify", []string{topRoom}, false},
}

// testOnly are libraries that no product code imports.
var testOnly = []string{"go.uber.org/goleak", "github.com/google/go-cmp", "pgregory.net/rapid", "github.com/simonvetter/modbus"}

const module = "edged"

// imported is one import of one file.
type imported struct {
	room string // folder of the file, from the module's root
	file string
	test bool
	path string
}

// allImports reads the import clauses of every Go file of the module, whatever its build tags.
func allImports(t *testing.T) []imported {
	t.Helper()
	root := filepath.Join("..", "..")
	var out []imported
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := e.Name(); e.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		} else if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		room := filepath.ToSlash(filepath.Dir(rel))
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			out = append(out, imported{room, rel, strings.HasSuffix(rel, "_test.go"), p})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatal("no Go file was found: the test runs in cmd/edged of the module")
	}
	return out
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, i := range allImports(t) {
		allowed, listed := mayImport[i.room]
		if within(i.room, topRoom) {
			allowed, listed = []string{everything}, true
		}
		if !listed {
			t.Errorf("%s: the package %s is not in the table: add it with what it may import", i.file, i.room)
			continue
		}
		theirs, ours := strings.CutPrefix(i.path, module+"/")
		if !ours || i.test || theirs == i.room {
			continue
		}
		if slices.Contains(allowed, everything) {
			allowed = nil
		} else if !slices.Contains(allowed, theirs) {
			t.Errorf("%s: %s may not import %s", i.file, i.room, theirs)
		}
		for _, closed := range nobodyImports {
			if within(theirs, closed) && !within(i.room, closed) {
				t.Errorf("%s: nobody outside of it imports %s", i.file, theirs)
			}
		}
	}
}

func TestLibrariesStayInTheirRooms(t *testing.T) {
	for _, i := range allImports(t) {
		for _, rule := range onlyIn {
			if i.path != strings.TrimSuffix(rule.library, "/") && !strings.HasPrefix(i.path, strings.TrimSuffix(rule.library, "/")+"/") {
				continue
			}
			in := slices.ContainsFunc(rule.rooms, func(room string) bool { return within(i.room, room) })
			if !in && (!i.test || !rule.tests) {
				t.Errorf("%s: %s is for %s alone", i.file, i.path, strings.Join(rule.rooms, ", "))
			}
			break // the first rule that fits is the narrowest
		}
		for _, library := range testOnly {
			if within(i.path, library) && !i.test && !strings.HasSuffix(i.room, "test") {
				t.Errorf("%s: %s is for tests alone", i.file, i.path)
			}
		}
	}
}

// TestPackagesExist keeps the table honest the other way: a room that is gone leaves it.
func TestPackagesExist(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range allImports(t) {
		seen[i.room] = true
	}
	for room := range mayImport {
		if _, err := os.Stat(filepath.Join("..", "..", room)); err != nil && !seen[room] {
			t.Errorf("the table lists %s, which has no Go file", room)
		}
	}
}

// within reports whether a path is folder or below it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}
