package guard_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"condensate.dev/cnd/adapters/guard"
	"condensate.dev/cnd/core/command"
	"condensate.dev/cnd/core/fault"
)

func open(t *testing.T) (*guard.Guard, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "calls")
	g, err := guard.New(dir)
	require.NoError(t, err)
	return g, dir
}

func content(t *testing.T, s command.Status) string {
	t.Helper()
	text, err := os.ReadFile(s.Output)
	require.NoError(t, err)
	require.EqualValues(t, len(text), s.Kept)
	return string(text)
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name, script, output string
		code                 int
	}{
		{"both streams in their order", "echo one; echo two >&2; echo three", "one\ntwo\nthree\n", 0},
		{"no output", "true", "", 0},
		{"exit code", "echo no; exit 7", "no\n", 7},
		{"ended by a signal", "kill -9 $$", "", 137},
		{"default signal actions", "kill -INT $$; echo deaf", "", 130},
		{"nothing to read", "cat; echo end", "end\n", 0},
		{"no terminal", "( : </dev/tty ) 2>/dev/null && echo terminal || echo none", "none\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, _ := open(t)
			var live bytes.Buffer
			status, err := g.Run(t.Context(), shell(c.script), func(p []byte) { live.Write(p) })
			require.NoError(t, err)
			require.Equal(t, command.Exited, status.State, "%+v", status)
			require.Equal(t, c.code, status.Code)
			require.Equal(t, c.output, content(t, status))
			require.Equal(t, c.output, live.String(), "live output is the same")
			require.Zero(t, status.Left)

			again, err := g.Recover(t.Context(), testThread, testCall)
			require.NoError(t, err)
			require.Equal(t, status, again, "a later process finds the same")
		})
	}
}

// TestStartedOnce is the last line of defence: whatever became of the first start, there is no second one.
func TestStartedOnce(t *testing.T) {
	t.Run("after it exited", func(t *testing.T) {
		g, dir := open(t)
		marker := filepath.Join(t.TempDir(), "effect")
		script := "echo x >>" + marker
		_, err := g.Run(t.Context(), shell(script), discard)
		require.NoError(t, err)
		other, err := guard.New(dir)
		require.NoError(t, err)
		_, err = other.Run(t.Context(), shell(script), discard)
		require.ErrorIs(t, err, command.ErrStarted)
		require.Equal(t, fault.Conflict, fault.ClassOf(err))
		effects, err := os.ReadFile(marker)
		require.NoError(t, err)
		require.Equal(t, "x\n", string(effects))
	})
	t.Run("while it runs", func(t *testing.T) {
		g, _ := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		output, seen := waitFor("ready")
		over := make(chan error, 1)
		go func() {
			_, err := g.Run(ctx, shell("echo ready; sleep 60"), output)
			over <- err
		}()
		<-seen
		_, err := g.Run(t.Context(), shell("true"), discard)
		require.ErrorIs(t, err, command.ErrStarted)
		cancel()
		require.NoError(t, <-over)
	})
	t.Run("at the same time", func(t *testing.T) {
		_, dir := open(t)
		marker := filepath.Join(t.TempDir(), "effect")
		var starts atomic.Int32
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				g, err := guard.New(dir)
				if err == nil {
					_, err = g.Run(t.Context(), shell("echo x >>"+marker), discard)
				}
				if err == nil {
					starts.Add(1)
				} else if !errors.Is(err, command.ErrStarted) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, starts.Load())
		effects, err := os.ReadFile(marker)
		require.NoError(t, err)
		require.Equal(t, "x\n", string(effects))
	})
	t.Run("only the sign of the start is left", func(t *testing.T) {
		g, dir := open(t)
		call := filepath.Join(dir, string(testThread), testCall)
		require.NoError(t, os.MkdirAll(call, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(call, "started"), nil, 0o600))
		_, err := g.Run(t.Context(), shell("true"), discard)
		require.ErrorIs(t, err, command.ErrStarted)
	})
	t.Run("only the lock is held", func(t *testing.T) {
		g, dir := open(t)
		call := filepath.Join(dir, string(testThread), testCall)
		require.NoError(t, os.MkdirAll(call, 0o700))
		lock, err := os.Create(filepath.Join(call, "lock"))
		require.NoError(t, err)
		defer lock.Close()
		require.NoError(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
		_, err = g.Run(t.Context(), shell("true"), discard)
		require.ErrorIs(t, err, command.ErrStarted)
	})
	t.Run("a start that came to nothing is none", func(t *testing.T) {
		g, dir := open(t)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, string(testThread), testCall), 0o700))
		status, err := g.Recover(t.Context(), testThread, testCall)
		require.NoError(t, err)
		require.Equal(t, command.NeverStarted, status.State)
		status, err = g.Run(t.Context(), shell("true"), discard)
		require.NoError(t, err)
		require.Equal(t, command.Exited, status.State)
	})
}

func TestCancel(t *testing.T) {
	g, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	output, seen := waitFor("ready")
	go func() {
		<-seen
		cancel()
	}()
	begun := time.Now()
	status, err := g.Run(ctx, shell(`trap "" TERM; echo ready; while :; do sleep 1; done`), output)
	require.NoError(t, err)
	require.Equal(t, command.Killed, status.State)
	require.Equal(t, command.CauseAbandoned, status.Cause)
	require.Equal(t, "ready\n", content(t, status))
	require.Less(t, time.Since(begun), 2*time.Second)

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	c := shell("true")
	c.Call = "13.0"
	_, err = g.Run(canceled, c, discard)
	require.ErrorIs(t, err, context.Canceled)
	status, err = g.Recover(t.Context(), testThread, "13.0")
	require.NoError(t, err)
	require.Equal(t, command.NeverStarted, status.State)
}

func TestTermComesFirst(t *testing.T) {
	g, _ := open(t)
	c := shell(`exec 2>/dev/null; trap "echo cleaned; exit 3" TERM; echo ready; while :; do sleep 0.05; done`)
	c.Timeout = 300 * time.Millisecond
	status, err := g.Run(t.Context(), c, discard)
	require.NoError(t, err)
	require.Equal(t, command.Killed, status.State)
	require.Equal(t, command.CauseTimeout, status.Cause)
	require.Equal(t, "ready\ncleaned\n", content(t, status))
	require.GreaterOrEqual(t, status.Elapsed, c.Timeout)
	require.Less(t, status.Elapsed, c.Timeout+guard.TermGrace)
}

// TestBackground shows that a child that keeps the pipe open neither holds up the result nor lives on.
func TestBackground(t *testing.T) {
	g, _ := open(t)
	begun := time.Now()
	status, err := g.Run(t.Context(), shell(`sleep 100 & trap "" HUP; (sleep 0.02; echo late) & echo done`), discard)
	require.NoError(t, err)
	require.Equal(t, command.Exited, status.State)
	require.Equal(t, "done\nlate\n", content(t, status), "the end of a pipeline is not cut off")
	require.Less(t, time.Since(begun), 2*time.Second)
}

func TestNotACommand(t *testing.T) {
	g, _ := open(t)
	missing := shell("true")
	missing.Dir = filepath.Join(t.TempDir(), "gone")
	status, err := g.Run(t.Context(), missing, discard)
	require.NoError(t, err)
	require.Equal(t, command.NeverStarted, status.State)
	require.Contains(t, status.Problem, "gone: no such file or directory")

	program := shell("true")
	program.Call, program.Args = "13.0", []string{"/no/such/program"}
	status, err = g.Run(t.Context(), program, discard)
	require.NoError(t, err)
	require.Equal(t, command.NeverStarted, status.State)
	require.Contains(t, status.Problem, "/no/such/program")

	for _, call := range []string{"", "..", "a/b", "../12.0", strings.Repeat("1", 65), "12.0\x00"} {
		bad := shell("true")
		bad.Call = call
		_, err := g.Run(t.Context(), bad, discard)
		require.ErrorIs(t, err, command.ErrInvalid, "call %q", call)
		_, err = g.Recover(t.Context(), testThread, call)
		require.ErrorIs(t, err, command.ErrInvalid, "call %q", call)
	}
	huge := shell(strings.Repeat("x", 4<<20))
	_, err = g.Run(t.Context(), huge, discard)
	require.ErrorIs(t, err, command.ErrInvalid)
}
