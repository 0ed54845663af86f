package pebblestore_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestFullDisk fills a real file system. The process that appends refuses or ends, and so does the next one, which
// finds no space at all. What was acknowledged can be read, and with more space the store goes on.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=40m"); err != nil {
		t.Skipf("no file system to fill (%v): TestFailNth and TestFullDiskBehindTheScenes do it from below", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	store := filepath.Join(dir, "store")
	all := &acks{newest: make(map[record.ThreadID]record.Head)}

	p := start(t, "fill", 1, store)
	require.NoError(t, p.stdin.Close())
	all.note(t, p.rest())
	require.Greater(t, all.n, 50)
	require.NotZero(t, p.cmd.ProcessState.ExitCode())

	read, err := pebblestore.Open(store, pebblestore.Options{ReadOnly: true})
	require.NoError(t, err, "reading needs no space")
	all.requireAll(t, read, 0)
	require.NoError(t, read.Close())

	p = start(t, "fill", 2, store)
	require.NoError(t, p.stdin.Close())
	all.note(t, p.rest())
	require.NotZero(t, p.cmd.ProcessState.ExitCode())

	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=400m"))
	s := openStore(t, store, pebblestore.Options{MinFree: 1 << 20})
	all.requireAll(t, s, 0)
	require.NoError(t, s.Ready())
	w := recordtest.NewWriter(3)
	_, err = s.Append(t.Context(), w.ID, record.Head{}, w.Start(t, 2)...)
	require.NoError(t, err)
}
