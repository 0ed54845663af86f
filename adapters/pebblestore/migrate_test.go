package pebblestore

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestMigrate brings a store of schema 1 to a made-up schema 3, over a step that fails at first.
func TestMigrate(t *testing.T) {
	disk := vfs.NewMem()
	s, err := Open("store", Options{FS: disk})
	require.NoError(t, err)
	w := recordtest.NewWriter(1)
	all := w.Start(t, 5)
	_, err = s.Append(t.Context(), w.ID, record.Head{}, all...)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	set := func(value string) step {
		return func(db *pebble.DB, b *pebble.Batch) error {
			old, _, err := get(db, []byte("made-up"))
			if err != nil {
				return err
			}
			return b.Set([]byte("made-up"), append(old, value...), nil)
		}
	}
	broken := errors.New("step is broken")
	fails := func(*pebble.DB, *pebble.Batch) error { return broken }
	_, err = open("store", Options{FS: disk, ReadOnly: true}, []step{set("a"), set("b")})
	require.ErrorIs(t, err, ErrOlder)
	require.Equal(t, fault.Config, fault.ClassOf(err))
	_, err = open("store", Options{FS: disk}, []step{set("a"), fails})
	require.ErrorIs(t, err, broken)
	s, err = open("store", Options{FS: disk}, []step{set("a"), set("b")})
	require.NoError(t, err)
	made, _, err := get(s.db, []byte("made-up"))
	require.NoError(t, err)
	require.Equal(t, "ab", string(made), "each step ran once")
	n, err := readSchema(s.db)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.NoError(t, s.Close())

	_, err = Open("store", Options{FS: disk})
	require.ErrorIs(t, err, ErrNewer, "the program before the migration")
	s, err = open("store", Options{FS: disk}, []step{set("a"), set("b")})
	require.NoError(t, err)
	requireLines(t, s, all)
	require.NoError(t, s.Close())
	s, err = Open("store.schema-1", Options{FS: disk})
	require.NoError(t, err, "the store as it was")
	requireLines(t, s, all)
	require.NoError(t, s.Close())
}

func requireLines(t *testing.T, s *Store, want []record.Entry) {
	t.Helper()
	i := 0
	for e, err := range s.Entries(t.Context(), want[0].Thread, 0) {
		require.NoError(t, err)
		require.Equal(t, string(want[i].Line), string(e.Line))
		i++
	}
	require.Len(t, want, i)
}
