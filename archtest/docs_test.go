package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../" + name)
	require.NoError(t, err)
	return string(text)
}

// TestEnvironmentIsDocumented wants every environment name that the sources know to stand in docs/CLI.md, and every one
// that stands there to be known.
func TestEnvironmentIsDocumented(t *testing.T) {
	name := regexp.MustCompile(`\b(?:CONDENSATE_[A-Z_]+[A-Z]|ANTHROPIC_API_KEY)\b`)
	doc := read(t, "docs/CLI.md")
	known := map[string]string{}
	for _, s := range sources(t) {
		if s.isTest() || (s.layer() != "tools" && s.layer() != "adapters" && s.layer() != "client") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, _ := strconv.Unquote(lit.Value); name.FindString(text) == text && text != "" {
					known[text] = s.at(n)
				}
			}
			return true
		})
	}
	require.NotEmpty(t, known)
	for env, at := range known {
		if !strings.Contains(doc, "`"+env+"`") {
			t.Errorf("%s: %s does not stand in docs/CLI.md", at, env)
		}
	}
	for _, env := range name.FindAllString(doc, -1) {
		if known[env] == "" {
			t.Errorf("docs/CLI.md names %s, which no tool reads", env)
		}
	}
}

// TestPortsAreDocumented wants every exported interface of core in the table of ports of docs/ARCHITECTURE.md.
func TestPortsAreDocumented(t *testing.T) {
	doc := read(t, "docs/ARCHITECTURE.md")
	found := 0
	for _, s := range sources(t) {
		if s.isTest() || s.layer() != "core" || strings.HasSuffix(s.dir(), "test") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			if _, ok := spec.Type.(*ast.InterfaceType); ok {
				found++
				port := path.Base(s.dir()) + "." + spec.Name.Name
				if !strings.Contains(doc, "`"+port+"`") {
					t.Errorf("%s: the port %s does not stand in docs/ARCHITECTURE.md", s.at(n), port)
				}
			}
			return true
		})
	}
	require.Greater(t, found, 5)
}

// TestLinks wants every relative link of the documents to lead to a file.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	for _, doc := range []string{"README.md", "docs/ARCHITECTURE.md", "docs/CLI.md", "docs/API.md", "docs/formats/record.md", "docs/formats/fingerprint.md"} {
		for _, m := range link.FindAllStringSubmatch(read(t, doc), -1) {
			if _, err := os.Stat("../" + path.Join(path.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
			}
		}
	}
}

// TestMakeTargets wants every `make` target that the documents and the CI script name to exist.
func TestMakeTargets(t *testing.T) {
	makefile := read(t, "Makefile")
	call := regexp.MustCompile("(?m)(?:`|^|\\$ )make ([a-z-]+)")
	for _, doc := range []string{"README.md", ".ci/run", "docs/ARCHITECTURE.md", "docs/CLI.md"} {
		for _, m := range call.FindAllStringSubmatch(read(t, doc), -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).MatchString(makefile) {
				t.Errorf("%s names make %s, which the Makefile does not have", doc, m[1])
			}
		}
	}
}
