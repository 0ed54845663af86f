package shelltools

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/loop"
)

// TestPlannedPaths shows what the policy gets to see: where a name leads, not what it looks like.
func TestPlannedPaths(t *testing.T) {
	b := newBench(t)
	outside := b.outside()
	b.put("dir/file", "x")
	b.put(filepath.Join(outside, "secret"), "s")
	b.link("dir/file", "inner")
	b.link(outside, "door")
	b.link(filepath.Join(outside, "secret"), "key")
	b.link("door", "door2")
	for name, want := range map[string]string{
		"dir/file":                   b.path("dir/file"),
		"dir/../dir/./file":          b.path("dir/file"),
		"inner":                      b.path("dir/file"),
		b.path("inner"):              b.path("dir/file"),
		"new":                        b.path("new"),
		"new/deep/er":                b.path("new/deep/er"),
		"key":                        filepath.Join(outside, "secret"),
		"door/secret":                filepath.Join(outside, "secret"),
		"door2/new/x":                filepath.Join(outside, "new/x"),
		"../" + filepath.Base(b.cwd): b.cwd,
		"../x":                       filepath.Join(filepath.Dir(b.cwd), "x"),
		"/etc/../etc/hostname":       "/etc/hostname",
	} {
		p := b.plan(b.call("write", map[string]string{"path": name, "content": ""}))
		require.Nil(t, p.Refused, name)
		require.Equal(t, []string{want}, p.Paths, name)
	}
	b.link("nowhere", "dangling")
	b.link("loop", "loop")
	require.Contains(t, b.failure("write", map[string]string{"path": "dangling", "content": ""}), "does not exist")
	require.Contains(t, b.failure("write", map[string]string{"path": "dangling/x", "content": ""}), "does not exist")
	require.True(t, b.do("read", readInput{Path: "loop"}).IsError)
	if os.Mkdir(b.path("\xff"), 0o755) == nil { // no name for a record, which an approval would have to find again
		b.link("\xff", "alias")
		require.Contains(t, b.failure("read", readInput{Path: "alias/x"}), "not UTF-8")
	}

	b.link(b.cwd, filepath.Join(outside, "alias"))
	b.cwd = filepath.Join(outside, "alias") // a folder that is itself named through a link
	require.Equal(t, []string{filepath.Join(filepath.Dir(b.plan(b.call("read", readInput{Path: "new"})).Paths[0]), "new")},
		b.plan(b.call("read", readInput{Path: "new"})).Paths)
	require.Contains(t, b.text("read", readInput{Path: "dir/file"}), "x")
}

// TestOutside: a path that the policy allowed works outside of the thread's folder too.
func TestOutside(t *testing.T) {
	b := newBench(t)
	outside := b.outside()
	b.put(filepath.Join(outside, "file"), "there\n")
	require.Contains(t, b.text("read", readInput{Path: filepath.Join(outside, "file")}), "there")
	require.Equal(t, outside+"/file:1:there\n", b.text("grep", grepInput{Pattern: "here", Path: outside}))
	require.Equal(t, outside+"/file\n", b.text("glob", globInput{Pattern: outside + "/**"}))
	require.Equal(t, outside+"/new/deep/er: made, with 1 bytes", b.text("write", map[string]string{"path": outside + "/new/deep/er", "content": "x"}))
	require.Equal(t, "x", b.content(outside+"/new/deep/er"))
	require.Contains(t, b.text("glob", globInput{Pattern: "/*"}), "/etc/\n")
}

// TestSwapped replaces what a planned path goes through by a link, before the call runs: the planned path is touched
// or none.
func TestSwapped(t *testing.T) {
	for name, swap := range map[string]func(b *bench, outside string){
		"the file": func(b *bench, outside string) {
			require.NoError(b, os.Remove(b.path("dir/file")))
			b.link(outside+"/file", "dir/file")
		},
		"its folder": func(b *bench, outside string) {
			require.NoError(b, os.RemoveAll(b.path("dir")))
			b.link(outside, "dir")
		},
		"to another file of the thread": func(b *bench, outside string) {
			require.NoError(b, os.Remove(b.path("dir/file")))
			b.put("protected", "secret")
			b.link("../protected", "dir/file")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			outside := b.outside()
			b.put("dir/file", "old")
			b.put(outside+"/file", "secret")
			calls := []loop.Call{
				b.call("read", readInput{Path: "dir/file"}),
				b.call("grep", grepInput{Pattern: "secret", Path: "dir/file"}),
				b.call("write", map[string]string{"path": "dir/file", "content": "new"}),
				b.call("edit", editInput{Path: "dir/file", Old: "old", New: "new"}),
			}
			plans := make([]loop.Plan, len(calls))
			for i, c := range calls {
				plans[i] = b.plan(c)
				require.Nil(t, plans[i].Refused)
			}
			swap(b, outside)
			for i, c := range calls {
				r := b.run(c, plans[i]).Result
				require.True(t, r.IsError)
				require.Equal(t, errMoved.Error(), textOf(r))
			}
			require.Equal(t, "secret", b.content(outside+"/file"))
		})
	}
}
