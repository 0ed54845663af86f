package shelltools

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

func writing(path, content string) map[string]string {
	return map[string]string{"path": path, "content": content}
}

func TestWrite(t *testing.T) {
	b := newBench(t)
	require.Equal(t, "a/b/new: made, with 4 bytes", b.text("write", writing("a/b/new", "text")))
	require.Equal(t, "text", b.content("a/b/new"))
	require.Equal(t, "a/b/new: replaced, now with 0 bytes", b.text("write", writing("a/b/new", "")))
	require.Empty(t, b.content("a/b/new"))
	require.Equal(t, os.FileMode(0o644), mode(t, b.path("a/b/new")), "as the umask has it")

	require.NoError(t, os.Chmod(b.put("script", "#!/bin/sh"), 0o751))
	b.text("write", writing("script", "#!/bin/bash"))
	require.Equal(t, os.FileMode(0o751), mode(t, b.path("script")))

	b.put("real", "old")
	b.link("real", "alias")
	b.text("write", writing("alias", "new"))
	require.Equal(t, "new", b.content("real"), "the link stays a link")

	require.NoError(t, os.Chmod(b.put("locked", "x"), 0o444))
	require.Equal(t, "locked: is read-only", b.failure("write", writing("locked", "y")))
	require.Contains(t, b.failure("write", writing("a", "x")), "is a folder")
	require.Contains(t, b.failure("write", writing("real/x", "x")), "not a directory")
	require.Equal(t, []string{"a", "alias", "locked", "real", "script"}, b.list(), "no temporary file is left")
}

func TestEdit(t *testing.T) {
	b := newBench(t)
	b.put("f", "one\ntwo\ntwo\n\xff\n")
	require.Equal(t, "f: changed at line 1", b.text("edit", editInput{Path: "f", Old: "one", New: "1"}))
	require.Contains(t, b.failure("edit", editInput{Path: "f", Old: "two", New: "2"}), "more than once")
	require.Contains(t, b.failure("edit", editInput{Path: "f", Old: "three", New: "3"}), "not in the file")
	require.Equal(t, "f: changed at 2 places", b.text("edit", editInput{Path: "f", Old: "two", New: "2", All: true}))
	require.Equal(t, "1\n2\n2\n\xff\n", b.content("f"), "what is not UTF-8 stays as it is")
	require.Contains(t, b.failure("edit", editInput{Path: "missing", Old: "a", New: "b"}), "no such file")
	b.put("overlap", "aaa")
	require.Contains(t, b.failure("edit", editInput{Path: "overlap", Old: "aa", New: "b"}), "more than once")
	b.put("windows", "a\r\nb\r\nc\r\n")
	b.text("edit", editInput{Path: "windows", Old: "a\nb", New: "a\nx\nb"})
	require.Equal(t, "a\r\nx\r\nb\r\nc\r\n", b.content("windows"))
	b.put("big", strings.Repeat("x", MaxFile)+"y")
	require.Contains(t, b.failure("edit", editInput{Path: "big", Old: "y", New: "z"}), "the limit is")
}

// TestEditAnyText checks replaceText against its definition on random texts of few letters, where matches are many.
func TestEditAnyText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(most int) string {
		var s strings.Builder
		for range r.IntN(most + 1) {
			s.WriteString([]string{"a", "b", "\n", "é", "\xff", "\r\n"}[r.IntN(6)])
		}
		return s.String()
	}
	changed := 0
	for range 200_000 {
		now, old, new, all := text(12), text(3), text(3), r.IntN(2) == 0
		input := editInput{Path: "f", Old: old, New: new, All: all}
		if input.check() != nil {
			continue
		}
		next, times, err := replaceText(now, old, new, all)
		windows := strings.Count(now, "\n") == strings.Count(now, "\r\n")
		if windows && strings.Contains(now, "\n") {
			old, new = crlf(old), crlf(new)
		}
		var at []int // every place where old begins, overlapping ones too
		for i := range now {
			if strings.HasPrefix(now[i:], old) {
				at = append(at, i)
			}
		}
		switch {
		case len(at) == 0 || len(at) > 1 && !all:
			require.Error(t, err, "%q in %q", old, now)
		case !all:
			require.NoError(t, err)
			require.Equal(t, 1, times)
			require.Equal(t, now[:at[0]]+new+now[at[0]+len(old):], next)
			changed++
		default:
			require.NoError(t, err)
			require.Equal(t, len(next)-len(now), times*(len(new)-len(old)))
			require.Equal(t, strings.Join(strings.Split(now, old), new), next)
			changed++
		}
	}
	require.Greater(t, changed, 10_000)
}

func crlf(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// TestPlanKeepsSecrets: what a file holds decides nothing that the model sees before the policy has decided.
func TestPlanKeepsSecrets(t *testing.T) {
	b := newBench(t)
	b.put("secret", "key=1")
	hit := b.plan(b.call("edit", editInput{Path: "secret", Old: "key=1", New: "x"}))
	miss := b.plan(b.call("edit", editInput{Path: "secret", Old: "key=2", New: "x"}))
	none := b.plan(b.call("read", readInput{Path: "not/there"}))
	require.Nil(t, hit.Refused)
	require.Nil(t, miss.Refused)
	require.Nil(t, none.Refused)
	require.NotNil(t, hit.Effect)
	require.Nil(t, miss.Effect)
}

// TestChangedSincePlanned: between the check of a call and its run an approval may take hours.
func TestChangedSincePlanned(t *testing.T) {
	for name, change := range map[string]func(*bench){
		"changed": func(b *bench) { b.put("f", "theirs old") },
		"removed": func(b *bench) { require.NoError(b, os.Remove(b.path("f"))) },
	} {
		b := newBench(t)
		b.put("f", "old")
		for _, c := range []loop.Call{b.call("write", writing("f", "new")), b.call("edit", editInput{Path: "f", Old: "old", New: "new"})} {
			b.put("f", "old")
			p := b.plan(c)
			change(b)
			before := b.list()
			r := b.run(c, p).Result
			require.True(t, r.IsError, name)
			require.Equal(t, before, b.list(), name)
			if name == "changed" {
				require.Equal(t, errChanged.Error(), textOf(r))
				require.Equal(t, "theirs old", b.content("f"))
			}
		}
	}
	t.Run("made", func(t *testing.T) {
		b := newBench(t)
		c := b.call("write", writing("f", "new"))
		p := b.plan(c)
		b.put("f", "theirs")
		require.Equal(t, errChanged.Error(), textOf(b.run(c, p).Result))
		require.Equal(t, "theirs", b.content("f"))
	})
	t.Run("became possible", func(t *testing.T) {
		b := newBench(t)
		b.put("f", "nothing")
		c := b.call("edit", editInput{Path: "f", Old: "old", New: "new"})
		p := b.plan(c)
		b.put("f", "old")
		require.Equal(t, errChanged.Error(), textOf(b.run(c, p).Result), "the record holds no effect to recover by")
		require.Equal(t, "old", b.content("f"))
	})
	t.Run("changed in the last moment", func(t *testing.T) {
		b := newBench(t)
		c, p, n := b.staged("write", writing("f", "new"))
		b.put("f", "theirs")
		require.ErrorIs(t, p.publish(tempName(c), n.before), errChanged)
		require.Equal(t, "theirs", b.content("f"))
	})
	t.Run("canceled", func(t *testing.T) {
		b := newBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		c := b.call("write", writing("f", "new"))
		p := b.plan(c)
		cancel()
		require.Equal(t, errStopped.Error(), textOf(b.tools.Run(ctx, c, p, nil).Result))
		require.Empty(t, b.list())
	})
}

// TestSideBySide: of several calls that were planned on the same content, one takes effect.
func TestSideBySide(t *testing.T) {
	b := newBench(t)
	for range 30 {
		b.put("f", "old")
		var done atomic.Int32
		var calls sync.WaitGroup
		for i := range 6 {
			c := b.call("edit", editInput{Path: "f", Old: "old", New: strconv.Itoa(i)})
			c.ID = strconv.Itoa(i) + ".0"
			p := b.plan(c)
			calls.Go(func() {
				if o := b.tools.Run(b.Context(), c, p, nil); !o.Result.IsError {
					done.Add(1)
				}
			})
		}
		calls.Wait()
		require.EqualValues(t, 1, done.Load())
	}
}

// staged plans a change of f, whose content is "old", and stops where its temporary file is written.
func (b *bench) staged(tool string, input any) (loop.Call, place, version) {
	b.Helper()
	b.put("f", "old")
	c := b.call(tool, input)
	p := b.plan(c)
	require.NotNil(b, p.Effect)
	f, err := openFolder(b.cwd)
	require.NoError(b, err)
	at, err := f.open(p.Paths[0], true)
	require.NoError(b, err)
	b.Cleanup(at.close)
	require.NoError(b, at.stage(tempName(c), []byte("new")))
	return c, at, version{before: p.Effect.Before, after: p.Effect.After}
}

// TestRecoverChange stops a change at each of its steps and asks a new program what became of it.
func TestRecoverChange(t *testing.T) {
	for tool, input := range map[string]any{
		"write": writing("f", "new"), "edit": editInput{Path: "f", Old: "old", New: "new"},
	} {
		for _, step := range []struct {
			name string
			stop func(b *bench, c loop.Call, at place, n version)
			want string // "done", "not done" or "unknown"
		}{
			{"before the temporary file", func(b *bench, c loop.Call, at place, _ version) { _ = at.dir.Remove(tempName(c)) }, "not done"},
			{"half a temporary file", func(b *bench, c loop.Call, _ place, _ version) { b.put(tempName(c), "n") }, "not done"},
			{"after the temporary file", func(*bench, loop.Call, place, version) {}, "not done"},
			{"after the rename", func(b *bench, c loop.Call, at place, n version) {
				require.NoError(b, at.publish(tempName(c), n.before))
			}, "done"},
			{"changed by others since", func(b *bench, _ loop.Call, _ place, _ version) { b.put("f", "theirs") }, "unknown"},
			{"removed by others since", func(b *bench, _ loop.Call, _ place, _ version) { require.NoError(b, os.Remove(b.path("f"))) }, "unknown"},
			{"its folder is a link now", func(b *bench, _ loop.Call, _ place, _ version) {
				require.NoError(b, os.Remove(b.path("f")))
				b.link("/etc/hostname", "f")
			}, "unknown"},
		} {
			t.Run(tool+" "+step.name, func(t *testing.T) {
				b := newBench(t)
				c, at, n := b.staged(tool, input)
				step.stop(b, c, at, n)
				effect := thread.FileEffect{Path: b.path("f"), Before: n.before, After: n.after}
				requireVerdict(t, step.want, newBench(t).tools.Recover(t.Context(), c, thread.ToolStarted{Effect: &effect}))
				require.Empty(t, must(filepath.Glob(b.path(".cnd-*"))), "no temporary file is left")
			})
		}
	}
	b := newBench(t)
	made := b.call("write", writing("deep/f", "new"))
	effect := b.plan(made).Effect
	require.Equal(t, absent, effect.Before)
	requireVerdict(t, "not done", b.tools.Recover(t.Context(), made, thread.ToolStarted{Effect: effect}))
	b.run(made, b.plan(made))
	requireVerdict(t, "done", b.tools.Recover(t.Context(), made, thread.ToolStarted{Effect: effect}))
	requireVerdict(t, "not done", b.tools.Recover(t.Context(), made, thread.ToolStarted{}))
	made.Cwd = "/no/such/folder"
	requireVerdict(t, "unknown", b.tools.Recover(t.Context(), made, thread.ToolStarted{Effect: effect}))
}

func requireVerdict(t *testing.T, want string, o loop.Outcome) {
	t.Helper()
	requireOne(t, o)
	require.Equal(t, want == "done", o.Result != nil && !o.Result.IsError)
	require.Equal(t, want == "not done", o.NotDone)
	require.Equal(t, want == "unknown", o.Unknown != nil)
}

func (b *bench) list() (found []string) {
	b.Helper()
	entries, err := os.ReadDir(b.cwd)
	require.NoError(b, err)
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	return must(os.Stat(path)).Mode()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
