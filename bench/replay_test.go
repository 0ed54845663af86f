package main

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Verifying a record takes no more memory when it is long.
func TestReplayIsFlat(t *testing.T) {
	const limit = 16 << 20 // bytes of heap, in a record of more than twice as many
	path := filepath.Join(t.TempDir(), "long.jsonl")
	f, err := os.Create(path)
	require.NoError(t, err)
	out := bufio.NewWriter(f)
	require.NoError(t, writeThread(out, 2500))
	require.NoError(t, out.Flush())
	info, err := f.Stat()
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Greater(t, info.Size(), int64(2*limit))

	var most uint64
	entries := 0
	_, _, err = verifyFile(path, func() {
		if entries++; entries%500 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	})
	require.NoError(t, err)
	require.Less(t, most, uint64(limit))
}
