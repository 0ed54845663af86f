package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
	"condensate.dev/cnd/tools/internal/config"
)

// TestImported reads imported threads out of a store: the one that was exported has the head that it came with, its
// ancestor has none.
func TestImported(t *testing.T) {
	dirs := config.Dirs{Data: t.TempDir()}
	store, err := pebblestore.Open(filepath.Join(dirs.Data, config.StoreFolder), pebblestore.Options{})
	require.NoError(t, err)
	parent := recordtest.NewWriter(1)
	entries := parent.Start(t, 3)
	fork, forked := parent.Fork(t, 2)
	signed, err := record.SignHead(recordtest.NewSigner("origin", 1), fork.ID, fork.Head, record.Digest{})
	require.NoError(t, err)
	all := func(yield func(record.Entry, error) bool) {
		for e := range slices.Values(append(entries, forked)) {
			if !yield(e, nil) {
				return
			}
		}
	}
	require.NoError(t, store.ImportThread(t.Context(), all, signed))
	require.NoError(t, store.Close())

	in, err := copyOut(t.Context(), dirs, fork.ID)
	require.NoError(t, err)
	require.Equal(t, &signed, in.head)
	require.NoError(t, in.Close())
	in, err = copyOut(t.Context(), dirs, parent.ID)
	require.NoError(t, err)
	require.Nil(t, in.head)
	require.NoError(t, in.Close())
}
