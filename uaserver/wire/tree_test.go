package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const uaImport = "github.com/gopcua/opcua/ua"

// TestNobodyDecodesWithGopcua walks the tree: gopcua's decoders panic at a negative length, allocate what a count says
// and recurse without end, so that no product code may hand them bytes. A method named Decode is refused wherever ua is
// imported, unless it belongs to an imported package (pem.Decode).
func TestNobodyDecodesWithGopcua(t *testing.T) {
	seen := 0
	for _, root := range []string{"../../uaserver", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return fs.SkipAll // the room is not made yet
			}
			if d.IsDir() && (d.Name() == "gen" || d.Name() == "uatest") { // no product code imports them
				return fs.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			seen++
			for _, at := range gopcuaDecodes(t, path) {
				t.Errorf("%s: decodes with gopcua; use wire.Reader", at)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 10 {
		t.Errorf("only %d files were looked at", seen)
	}
}

// gopcuaDecodes lists where a file calls Decode or DecodeService of ua, or of something that may be ua's.
func gopcuaDecodes(t *testing.T, path string) (at []string) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Logf("%s is not read: %v", path, err)
		return nil
	}
	imports, hasUA := map[string]bool{}, false
	for _, i := range file.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		name := p[strings.LastIndex(p, "/")+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		if p == uaImport {
			hasUA = true
		} else {
			imports[name] = true
		}
	}
	if !hasUA {
		return nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "Decode" && s.Sel.Name != "DecodeService" {
			return true
		}
		if x, ok := s.X.(*ast.Ident); !ok || !imports[x.Name] {
			at = append(at, set.Position(s.Pos()).String())
		}
		return true
	})
	return at
}
