// Package archtest keeps the architecture: who may import whom, what core may not do, what every package documents.
//
// It parses the sources itself instead of asking the go command: the test cache tracks the files that a test opens, so
// a violation is found although nothing else changed.
package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "condensate.dev/cnd"

// source is one Go file of the module.
type source struct {
	path string // relative to the root, with slashes
	file *ast.File
	fset *token.FileSet
}

func (s source) dir() string   { return path.Dir(s.path) }
func (s source) isTest() bool  { return strings.HasSuffix(s.path, "_test.go") }
func (s source) layer() string { l, _, _ := strings.Cut(s.path, "/"); return l }

func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// imports yields each imported path with the node that imports it.
func (s source) imports() map[string]ast.Node {
	m := map[string]ast.Node{}
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		m[p] = spec
	}
	return m
}

// sources parses every Go file of the module, other modules below it left out.
func sources(t *testing.T) []source {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	var all []source
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == "internal/devtools" || rel == "bin" || d.Name() == "node_modules" || d.Name() == "testdata" || (rel != "." && strings.HasPrefix(d.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{rel, f, fset})
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(all), 20, "the walk found too few files to be right")
	return all
}

// calls yields each call of pkg.name in the file, where pkg is the import path.
func (s source) calls(pkg, name string) []ast.Node {
	local := ""
	for p, n := range s.imports() {
		if p == pkg {
			local = path.Base(p)
			if spec := n.(*ast.ImportSpec); spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	if local == "" {
		return nil
	}
	var found []ast.Node
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == local {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}
