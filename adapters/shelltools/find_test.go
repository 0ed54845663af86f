package shelltools

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (b *bench) tree() {
	b.Helper()
	for _, name := range []string{"main.go", "a/b/c.go", "a/b/c.ts", "a/x.go", "z/README.md", "node_modules/m/i.go", ".git/config", "a/.git/HEAD", ".env"} {
		b.put(name, "package "+name+"\n")
	}
	b.link("main.go", "alias.go")
	b.link("a", "folder")
}

func TestGlob(t *testing.T) {
	b := newBench(t)
	b.tree()
	for _, c := range []struct{ pattern, path, want string }{
		{"**/*.go", "", "a/b/c.go a/x.go alias.go main.go"},
		{"*", "", ".env a/ alias.go folder main.go z/"},
		{"./*.go", "", "alias.go main.go"},
		{"*.go", "a", "a/x.go"},
		{"a/{b,}/*.{ts,go}", "", "a/b/c.go a/b/c.ts"},
		{"a/**", "", "a/b/c.go a/b/c.ts a/x.go"},
		{"**/c.*", "folder", "a/b/c.go a/b/c.ts"},
		{"node_modules/**", "", "node_modules/m/i.go"},
		{"**/.git/*", "", ".git/config a/.git/HEAD"},
		{"**/[a-c].go", "", "a/b/c.go"},
		{b.cwd + "/a/*.go", "", "a/x.go"},
		{`a/\x.go`, "", "a/x.go"},
		{"nothing*", "", "(no file matches)"},
	} {
		got := b.text("glob", globInput{Pattern: c.pattern, Path: c.path})
		require.Equal(t, c.want, strings.ReplaceAll(strings.TrimSuffix(got, "\n"), "\n", " ")+"", "%+v", c)
	}
	require.Contains(t, b.failure("glob", globInput{Pattern: "*", Path: "main.go"}), "not a directory")
	require.Contains(t, b.failure("glob", globInput{Pattern: "*", Path: "gone"}), "no such file")

	for i := range MaxFound + 5 {
		b.put(fmt.Sprintf("many/%04d", i), "")
	}
	lines := strings.Split(b.text("glob", globInput{Pattern: "many/*"}), "\n")
	require.Equal(t, "[there are more; narrow the pattern]", lines[MaxFound])
	require.Equal(t, "many/0999", lines[MaxFound-1])
}

// TestClosed: glob and grep over a folder do not show what is in a closed one below it.
func TestClosed(t *testing.T) {
	b := newBench(t)
	b.put("open/key", "secret\n")
	b.put("config/own/key", "secret\n")
	b.tools.closed = []string{b.path("Config/own")}
	require.Equal(t, "open/key\n", b.text("glob", globInput{Pattern: "**/key"}))
	require.Equal(t, "open/key\n", b.text("glob", globInput{Pattern: b.cwd + "/**/key"}))
	require.Equal(t, "open/key:1:secret\n", b.text("grep", grepInput{Pattern: "secret"}))
	require.Contains(t, b.text("grep", grepInput{Pattern: "secret", Path: "config"}), "no line matches")
}

func TestGrep(t *testing.T) {
	b := newBench(t)
	b.tree()
	b.put("text", "one\nTwo\r\nthree\nfour\nfive two\nsix\n")
	b.put("bin", "two\x00two")
	b.put("latin", "tw\xf6 two\n")
	b.put("wide", strings.Repeat("x", MaxMatchLine)+" two\n")
	require.NoError(t, syscall.Mkfifo(b.path("pipe"), 0o600))
	for _, c := range []struct {
		input grepInput
		want  string
	}{
		{grepInput{Pattern: "two"}, "latin:1:tw\uFFFD two\ntext:5:five two\nwide:1:" + strings.Repeat("x", MaxMatchLine) + " [… 4 bytes left out]\n"},
		{grepInput{Pattern: "^two$", IgnoreCase: true}, "text:2:Two\n"},
		{grepInput{Pattern: "T|six$", Path: "text"}, "text:2:Two\ntext:6:six\n"},
		{grepInput{Pattern: `\Athree\z`}, "text:3:three\n"},
		{grepInput{Pattern: "three", Context: 1}, "text-2-Two\ntext:3:three\ntext-4-four\n"},
		{grepInput{Pattern: "one|six", Path: "text", Context: 1}, "text:1:one\ntext-2-Two\n--\ntext-5-five two\ntext:6:six\n"},
		{grepInput{Pattern: "one|three", Path: "text", Context: 1}, "text:1:one\ntext-2-Two\ntext:3:three\ntext-4-four\n"},
		{grepInput{Pattern: "package", Glob: "*.go", Mode: "files"}, "a/b/c.go\na/x.go\nmain.go\n"},
		{grepInput{Pattern: "package", Glob: "a/*.go", Mode: "files"}, "a/x.go\n"},
		{grepInput{Pattern: "package", Path: "a", Glob: "**/*.{go,ts}", Mode: "files"}, "a/b/c.go\na/b/c.ts\na/x.go\n"},
		{grepInput{Pattern: "package", Glob: ".git/*", Mode: "count"}, ".git/config:1\n"},
		{grepInput{Pattern: "e", Path: "text", Mode: "count"}, "text:3\n"},
		{grepInput{Pattern: "absent"}, "(no line matches)\n"},
		{grepInput{Pattern: "^$", Path: "text"}, "(no line matches)\n"},
	} {
		require.Equal(t, c.want, b.text("grep", c.input), "%+v", c.input)
	}
	require.Contains(t, b.failure("grep", grepInput{Pattern: "x", Path: "gone"}), "no such file")
	require.Contains(t, b.failure("grep", grepInput{Pattern: "x", Path: "pipe"}), "neither a file nor a folder")
}

func TestGrepMuch(t *testing.T) {
	b := newBench(t)
	b.put("many", strings.Repeat("hit\n", MaxMatches+1))
	b.put("large", strings.Repeat("hit\n", MaxSearched/4+1))
	text := b.text("grep", grepInput{Pattern: "hit"})
	require.Equal(t, MaxMatches, strings.Count(text, "many:"))
	require.True(t, strings.HasSuffix(text, "[there are more; narrow the pattern, the path or the glob]\n[1 files over 16777216 bytes were left out]\n"), text[len(text)-200:])
	b.put("wide", strings.Repeat(strings.Repeat("w", 300)+"\n", 1500))
	require.LessOrEqual(t, len(b.text("grep", grepInput{Pattern: "w", Glob: "wide"})), MaxOutput)
}

func TestSearchStops(t *testing.T) {
	b := newBench(t)
	b.tree()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for tool, input := range map[string]any{"glob": globInput{Pattern: "**"}, "grep": grepInput{Pattern: "x"}, "read": readInput{Path: "main.go"}} {
		c := b.call(tool, input)
		r := b.tools.Run(ctx, c, b.plan(c), nil).Result
		require.True(t, r.IsError)
		require.Equal(t, errStopped.Error(), textOf(r))
	}
}

// TestCostlyPatterns: the worst patterns that are let in still cost little.
func TestCostlyPatterns(t *testing.T) {
	deep := strings.Repeat("a/", 100) + "c"
	wide := strings.Repeat("a", 255)
	begun := time.Now()
	for _, text := range []string{
		strings.Repeat("**/a/", 40) + "b",
		strings.Repeat("*a", 100) + "b",
		strings.Repeat("**/", 200) + "b",
		strings.Repeat("{a,aa}", MaxBraces) + "b",
		"{a,aa,aaa,aaaa,aaaaa}{a,aa,aaa,aaaa}{a,aa,aaa,aaaa}{*a,**,a*a*}b",
		strings.Repeat("*/", 100) + "b",
	} {
		p, err := newPattern(text)
		require.NoError(t, err)
		require.False(t, p.matches(deep))
		require.False(t, p.matches(wide))
		p.reaches(deep)
	}
	require.Less(t, time.Since(begun), 2*time.Second)
}
