package pebblestore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

func TestProjections(t *testing.T) {
	s := openStore(t, t.TempDir(), pebblestore.Options{Project: countEntries})
	m := newModel()
	require.NoError(t, m.run(s, script(t, 9, 50)))
	want := make(map[record.ThreadID]string)
	for id, th := range m.threads {
		want[id] = fmt.Sprintf("%d %s", th.acked, th.attempted[th.acked-1].Kind)
	}
	requireProjections(t, s, want)
	_, err := s.Projection(t.Context(), recordtest.ThreadID(8))
	require.ErrorIs(t, err, record.ErrNotFound)
}

func requireProjections(t *testing.T, s *pebblestore.Store, want map[record.ThreadID]string) {
	t.Helper()
	got := make(map[record.ThreadID]string)
	for p, err := range s.Projections(t.Context()) {
		require.NoError(t, err)
		require.False(t, p.Foreign)
		got[p.Thread] = string(p.Data)
	}
	require.Equal(t, want, got)
}

// TestReindex makes projections anew after what they are has changed, while appends go on.
func TestReindex(t *testing.T) {
	disk := vfs.NewMem()
	s, err := pebblestore.Open("store", pebblestore.Options{FS: disk, Project: countEntries})
	require.NoError(t, err)
	m := newModel()
	jobs := script(t, 12, 50)
	require.NoError(t, m.run(s, jobs[:9]))
	require.NoError(t, s.Close())

	lastSeq := func(_ []byte, e record.Entry) ([]byte, error) { return fmt.Appendf(nil, "at %d", e.Seq), nil }
	s = openStore(t, "store", pebblestore.Options{FS: disk, Project: lastSeq})
	done := make(chan error, 1)
	go func() { done <- m.run(s, jobs[9:]) }()
	require.NoError(t, s.Reindex(t.Context()))
	require.NoError(t, <-done)
	want := make(map[record.ThreadID]string)
	for id, th := range m.threads {
		want[id] = fmt.Sprintf("at %d", th.attempted[th.acked-1].Seq)
		got, err := stored(s, id)
		require.NoError(t, err)
		require.Len(t, got, th.acked)
	}
	requireProjections(t, s, want)
}

// TestProjectFails refuses an append whose projection cannot be made.
func TestProjectFails(t *testing.T) {
	broken := errors.New("cannot project")
	s := openStore(t, "store", pebblestore.Options{FS: vfs.NewMem(), Project: func([]byte, record.Entry) ([]byte, error) {
		return nil, broken
	}})
	require.ErrorIs(t, appendOnly(s, script(t, 1, 1)[0]), broken)
	requireEmpty(t, s)
}
