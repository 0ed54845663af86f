package archtest

import (
	"slices"
	"strings"
	"testing"
)

// doesIO are the packages of the standard library that core may not use: core decides, adapters touch the world.
var doesIO = []string{"os", "os/exec", "os/signal", "io/ioutil", "net", "net/http", "log", "log/slog", "syscall", "math/rand", "math/rand/v2", "crypto/rand", "plugin", "unsafe", "testing"}

// technologies says which packages may import a third-party module; a prefix ending in "/" covers all below it.
var technologies = map[string][]string{
	"github.com/urfave/cli/v3":         {"tools/"},
	"github.com/coder/websocket":       {"client", "adapters/httpapi", "adapters/follow"},
	"github.com/cockroachdb/pebble/v2": {"adapters/pebblestore", "bench"},
	"golang.org/x/mod":                 {"adapters/notes"},
	"golang.org/x/sys":                 {"adapters/guard", "adapters/shelltools", "adapters/pebblestore", "adapters/notes", "adapters/jsonl", "tools/cnd-runtime"},
	"golang.org/x/term":                {"tools/cnd-runtime"},
	"github.com/bmatcuk/doublestar/v4": {"adapters/shelltools"},
}

// testOnly are the modules that only tests import.
var testOnly = []string{"github.com/stretchr/testify", "github.com/rogpeppe/go-internal", "go.uber.org/goleak"}

// TestImports keeps the direction core <- adapters <- tools and one technology per adapter.
func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		for imported, at := range s.imports() {
			if why := violation(s, imported); why != "" {
				t.Errorf("%s imports %s: %s", s.at(at), imported, why)
			}
		}
	}
}

func violation(s source, imported string) string {
	ours, isOurs := strings.CutPrefix(imported, module+"/")
	switch {
	case isOurs:
		return violationInside(s, ours)
	case !strings.Contains(strings.SplitN(imported, "/", 2)[0], "."):
		return violationStd(s, imported)
	default:
		return violationThirdParty(s, imported)
	}
}

func violationStd(s source, imported string) string {
	conformance := strings.HasSuffix(s.dir(), "test") // recordtest and its like are made of tests
	if s.layer() == "core" && !s.isTest() && slices.Contains(doesIO, imported) && !(conformance && imported == "testing") {
		return "core does no I/O and has no clock or dice; declare a port"
	}
	return ""
}

func violationInside(s source, ours string) string {
	target, _, _ := strings.Cut(ours, "/")
	if strings.HasPrefix(ours, "core/") && strings.HasSuffix(ours, "test") && !s.isTest() {
		return "only tests use conformance suites"
	}
	allowed := map[string][]string{
		"core":     {"core"},
		"adapters": {"core", "internal"},
		"client":   {"core"},
		"internal": {},
		"tools":    {"core", "adapters", "client", "internal", "tools"},
		"bench":    {"core", "adapters"},
		"e2e":      {"core", "client", "e2e"},
		"archtest": {},
	}[s.layer()]
	switch {
	case ours == "core/fault" && s.layer() == "internal":
		return ""
	case s.isTest() && slices.Contains([]string{"core", "adapters", "client", "internal"}, target) && s.layer() != "core":
		return "" // a test may bring a real neighbour
	case s.isTest() && s.layer() == "core" && ours == "adapters/memstore":
		return "" // the second implementation of the store, which injects failures
	case !slices.Contains(allowed, target):
		return s.layer() + " may not know " + target
	case target == "adapters" && s.layer() == "adapters" && !samePackageTree(s.dir(), ours):
		return "an adapter does not know another one"
	case target == "tools" && !strings.HasPrefix(ours, "tools/internal") && !samePackageTree(s.dir(), ours):
		return "a tool does not know another one"
	}
	return ""
}

// samePackageTree says whether both packages stand under the same second-level folder.
func samePackageTree(dir, ours string) bool {
	second := func(p string) string {
		parts := strings.SplitN(p, "/", 3)
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return second(dir) == second(ours)
}

func violationThirdParty(s source, imported string) string {
	for _, m := range testOnly {
		if within(imported, m) {
			if s.isTest() {
				return ""
			}
			return "only tests use it"
		}
	}
	if s.layer() == "core" {
		return "core uses the standard library only"
	}
	for m, users := range technologies {
		if !within(imported, m) {
			continue
		}
		for _, u := range users {
			if s.dir() == u || strings.HasPrefix(s.dir()+"/", strings.TrimSuffix(u, "/")+"/") {
				return ""
			}
		}
		return "this technology belongs to " + strings.Join(users, ", ")
	}
	return "no package has this technology yet; add it to the list with a reason in docs/decisions"
}

func within(imported, module string) bool {
	return imported == module || strings.HasPrefix(imported, module+"/")
}

// TestCalls keeps three calls in their place: exiting, the wall clock in core, and waiting by sleeping in tests.
func TestCalls(t *testing.T) {
	for _, s := range sources(t) {
		for _, at := range s.calls("os", "Exit") {
			isMain := s.isTest() && strings.HasSuffix(s.path, "main_test.go") // TestMain of a re-exec'd test binary
			if s.dir() != "tools/internal/cli" && !isMain {
				t.Errorf("%s calls os.Exit: only tools/internal/cli does, and TestMain in a main_test.go", s.at(at))
			}
		}
		for _, name := range []string{"Now", "Since", "Until"} {
			for _, at := range s.calls("time", name) {
				if s.layer() == "core" && !s.isTest() {
					t.Errorf("%s calls time.%s: core is given the time", s.at(at), name)
				}
			}
		}
		if s.isTest() && len(s.imports()) > 0 && s.imports()["testing/synctest"] == nil {
			for _, at := range s.calls("time", "Sleep") {
				t.Errorf("%s sleeps to wait: use a signal or testing/synctest", s.at(at))
			}
		}
	}
}

// TestPackageDocs wants every package to say what it is for.
func TestPackageDocs(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.isTest() && s.layer() != "archtest" {
			continue
		}
		documented[s.dir()] = documented[s.dir()] || s.file.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}
