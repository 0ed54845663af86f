package compose

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/config"
)

// A thread that does not fold, and one whose summary is damaged, are shown as broken, with a reason, and hide nobody.
func TestBrokenThreads(t *testing.T) {
	dir := t.TempDir()
	dirs := config.Dirs{Config: filepath.Join(dir, "config"), Data: filepath.Join(dir, "data")}
	ids := make([]record.ThreadID, 3)
	for i := range ids {
		ids[i] = record.ThreadID(fmt.Sprintf("thr_%026d", i+1))
	}
	unknown, damaged, good := ids[0], ids[1], ids[2]
	store, err := pebblestore.Open(filepath.Join(dirs.Data, config.StoreFolder), pebblestore.Options{
		Project: func(prev []byte, e record.Entry) ([]byte, error) {
			if e.Thread == damaged {
				return []byte("{"), nil
			}
			return project(prev, e)
		},
	})
	require.NoError(t, err)
	for _, id := range ids {
		fill(t, store, id, record.ThreadCreated, thread.Created{Cwd: dir, Engine: engineLoop})
	}
	fill(t, store, unknown, record.EngineStarted, thread.EngineStarted{Reason: thread.EngineCreated})
	fill(t, store, unknown, record.TurnStarted, thread.TurnStarted{Turn: "trn_00000000000000000000000001"})
	fill(t, store, unknown, "turn.teleported", struct{}{})
	require.NoError(t, store.Close())

	settings := DefaultSettings()
	settings.MinFreeMiB = 1
	r, err := Open(Parts{Settings: settings, Dirs: dirs, Version: "test", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() {
		require.NoError(t, r.Stop(t.Context()))
		require.NoError(t, r.Close())
	}()
	r.Start(t.Context())
	r.recovering.Wait()
	list := threads{r.store, r.troubles}
	got := map[record.ThreadID]thread.Summary{}
	for s, err := range list.Summaries(t.Context(), "") {
		require.NoError(t, err)
		got[s.ID] = s
		one, err := list.Summary(t.Context(), s.ID)
		require.NoError(t, err)
		require.Equal(t, s, one)
	}
	require.Len(t, got, 3)
	require.Equal(t, thread.StateIdle, got[good].State)
	require.Nil(t, got[good].Trouble)
	require.Equal(t, thread.StateBroken, got[unknown].State)
	require.Equal(t, "unknown-kind", got[unknown].Trouble.Code)
	require.Contains(t, got[unknown].Trouble.Message, "turn.teleported")
	require.Equal(t, thread.StateBroken, got[damaged].State)
	require.Equal(t, "cnd-runtime reindex", got[damaged].Trouble.Hint)

	_, err = r.reindex(t.Context())
	require.NoError(t, err)
	s, err := list.Summary(t.Context(), damaged)
	require.NoError(t, err)
	require.Equal(t, thread.StateIdle, s.State)
}

// fill appends one entry to a thread.
func fill(t *testing.T, store record.Store, id record.ThreadID, kind record.Kind, body any) {
	t.Helper()
	head, err := store.Head(t.Context(), id)
	if !errors.Is(err, record.ErrNotFound) {
		require.NoError(t, err)
	}
	e, err := record.Seal(id, head, record.Salt{}, record.Draft{Gen: 1, Time: time.Unix(0, 0), Kind: kind, Body: thread.Encode(body)})
	require.NoError(t, err)
	_, err = store.Append(t.Context(), id, head, e)
	require.NoError(t, err)
}

// Trouble that may pass is not remembered; any other ends when the record grows again.
func TestTroubles(t *testing.T) {
	const id = record.ThreadID("thr_00000000000000000000000001")
	was := thread.Summary{ID: id, State: thread.StateWorking, Waiting: &thread.TurnWaiting{}}
	tr := newTroubles(slog.New(slog.DiscardHandler))
	tr.report(id, fault.New(fault.StorageFull, "disk-low", "full"))
	require.Equal(t, was, tr.mark(was))
	tr.report(id, fault.New(fault.Corrupt, "torn", "torn apart"))
	marked := tr.mark(was)
	require.Equal(t, thread.StateBroken, marked.State)
	require.Nil(t, marked.Waiting)
	require.Equal(t, &thread.Error{Class: "corrupt", Code: "torn", Message: "torn apart"}, marked.Trouble)
	watched{deaf{}, tr}.Appended(id, nil)
	require.Equal(t, was, tr.mark(was))
}
