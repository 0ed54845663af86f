package guard

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/command"
)

// TestSinkLimit: what is over the limit is counted and dropped, and whoever prints is not held up.
func TestSinkLimit(t *testing.T) {
	name := filepath.Join(t.TempDir(), "output")
	told := 0
	s, err := newSink(name, 10, func() { told++ })
	require.NoError(t, err)
	writer := dup(t, s.write)
	s.drain()
	_, err = io.WriteString(writer, strings.Repeat("0123456789abcdef", 1<<16)) // more than a pipe holds
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	kept, dropped := s.close(time.Minute)
	require.EqualValues(t, 10, kept)
	require.EqualValues(t, 16<<16-10, dropped)
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(content))
	require.Equal(t, 1, told)
}

// TestSinkHeldOpen: a process that escaped with the pipe does not hold up the status.
func TestSinkHeldOpen(t *testing.T) {
	s, err := newSink(filepath.Join(t.TempDir(), "output"), 10, func() {})
	require.NoError(t, err)
	writer := dup(t, s.write)
	s.drain()
	s.close(time.Millisecond)
	<-s.drained
	_, err = io.WriteString(writer, "late")
	require.Error(t, err)
	require.NoError(t, writer.Close())
}

func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	copied, err := os.OpenFile("/dev/fd/"+strconv.Itoa(int(f.Fd())), os.O_WRONLY, 0)
	require.NoError(t, err)
	return copied
}

func TestDescendants(t *testing.T) {
	list := []process{
		{pid: 9, parent: 8, group: 9}, {pid: 8, parent: 5, group: 5}, {pid: 5, parent: 1, group: 5},
		{pid: 6, parent: 5, group: 6}, {pid: 7, parent: 1, group: 6}, {pid: 10, parent: 7, group: 10}, {pid: 1},
	}
	require.ElementsMatch(t, []int{6, 8, 9}, descendants(list, 5, 0))
	require.ElementsMatch(t, []int{6, 7, 8, 9, 10}, descendants(list, 5, 6), "the group's orphans and their children too")
	require.Empty(t, descendants(list, 10, 0))
}

// TestPrune removes outputs from the oldest on, only of calls that ended, and never what keeps a call from starting
// again.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	thread := filepath.Join(dir, "thr_01arz3ndektsv4rrffq69g5fav")
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, id := range []string{"9.0", "10.0", "11.0", "12.0", "13.0"} {
		call := filepath.Join(thread, id)
		require.NoError(t, os.MkdirAll(call, 0o700))
		for _, name := range []string{startedFile, statusFile, outputFile} {
			require.NoError(t, os.WriteFile(filepath.Join(call, name), make([]byte, 100), 0o600))
		}
		at := base.Add(time.Duration(i) * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(call, outputFile), at, at))
	}
	require.NoError(t, os.Remove(filepath.Join(thread, "9.0", statusFile)), "the oldest still runs")
	require.NoError(t, prune(dir, 250))
	for id, want := range map[string]bool{"9.0": true, "10.0": false, "11.0": false, "12.0": true, "13.0": true} {
		require.Equal(t, want, exists(filepath.Join(thread, id, outputFile)), id)
		require.True(t, exists(filepath.Join(thread, id, startedFile)), id)
	}
	require.NoError(t, prune(filepath.Join(dir, "none"), 0))
}

// TestStatusAtOnce: guard and runtime may find out at the same time how a call ended.
func TestStatusAtOnce(t *testing.T) {
	c := &call{dir: t.TempDir()}
	failed := make(chan error, 32)
	for range cap(failed) {
		go func() { failed <- c.write(status{State: command.Killed}) }()
	}
	for range cap(failed) {
		require.NoError(t, <-failed)
	}
	files, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
}

// TestStatusFile: a status that cannot be read is an error, not a verdict.
func TestStatusFile(t *testing.T) {
	c := &call{dir: t.TempDir()}
	for _, text := range []string{"", "{", `{"v":1,"state":"exited"}`} {
		require.NoError(t, os.WriteFile(c.path(statusFile), []byte(text), 0o600))
		_, err := c.settle()
		require.Error(t, err, text)
	}
	require.NoError(t, os.WriteFile(c.path(statusFile), []byte(`{"v":0,"state":"vanished"}`), 0o600))
	s, err := c.settle()
	require.NoError(t, err)
	require.Equal(t, command.Killed, s.State, "an unknown state is the careful one")
}

// TestClaimWaits starts a command while somebody in this process looks into its call: that is no living guard.
func TestClaimWaits(t *testing.T) {
	g, err := New(t.TempDir())
	require.NoError(t, err)
	c, err := g.call("thr_01arz3ndektsv4rrffq69g5fav", "1.0")
	require.NoError(t, err)
	require.NoError(t, g.makeFolders(c))
	over, err := g.turn(t.Context(), c)
	require.NoError(t, err)
	locked, err := c.tryLock()
	require.NoError(t, err)
	require.True(t, locked)

	claimed := make(chan error, 1)
	go func() {
		_, err := g.claim(t.Context(), "thr_01arz3ndektsv4rrffq69g5fav", "1.0")
		claimed <- err
	}()
	select {
	case err := <-claimed:
		require.Fail(t, "it did not wait", "%v", err)
	case <-time.After(20 * time.Millisecond):
	}
	c.unlock()
	over()
	require.NoError(t, <-claimed)
	require.True(t, g.isRunning(c))

	canceled, cancel := context.WithCancel(t.Context())
	over, err = g.turn(canceled, c)
	require.NoError(t, err)
	cancel()
	_, err = g.turn(canceled, c)
	require.ErrorIs(t, err, context.Canceled)
	over()
	require.Empty(t, g.turns)
}
