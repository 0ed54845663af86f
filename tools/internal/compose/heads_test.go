package compose

import (
	"bytes"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/config"
)

// deaf is a follower that hears nothing.
type deaf struct{ loop.Follower }

func (deaf) Appended(record.ThreadID, []record.Entry) {}

func digest(seq record.Seq) record.Digest { return record.Digest{1, byte(seq), byte(seq >> 8)} }

func known(_ record.ThreadID, seq record.Seq) (record.Digest, error) { return digest(seq), nil }

// A head is signed at a turn's end and every 256 entries, over the newest place of those in one append.
func TestSigning(t *testing.T) {
	dir := t.TempDir()
	key, err := notes.LoadOrCreateKey(filepath.Join(dir, "record.key"), rand.Reader)
	require.NoError(t, err)
	heads, err := notes.OpenHeads(filepath.Join(dir, "heads.jsonl"), key, known, func(err error) { t.Error(err) })
	require.NoError(t, err)
	defer heads.Close()
	const id = record.ThreadID("thr_00000000000000000000000001")
	signed := func() record.Seq {
		require.NoError(t, heads.Flush())
		newest, err := heads.Newest(id)
		require.NoError(t, err)
		if newest == nil {
			return 0
		}
		return newest.Seq
	}
	entry := func(seq record.Seq, kind record.Kind) record.Entry {
		return record.Entry{Thread: id, Seq: seq, Kind: kind, Hash: digest(seq)}
	}
	s := signing{deaf{}, heads}
	s.Appended(id, []record.Entry{entry(3, record.RequestPrepared), entry(4, record.AnswerFinished)})
	require.Equal(t, record.Seq(0), signed())
	s.Appended(id, []record.Entry{entry(5, record.TurnFinished), entry(6, record.MessagePlaced)})
	require.Equal(t, record.Seq(5), signed())
	s.Appended(id, []record.Entry{entry(254, record.ToolFinished)})
	require.Equal(t, record.Seq(5), signed())
	s.Appended(id, []record.Entry{entry(255, record.ToolFinished)})
	require.Equal(t, record.Seq(255), signed())
}

// A store that was changed while no runtime had it, with its hashes made right again, is not signed over, not at the
// start and not for an export, and its thread takes no command.
func TestChangedStoreIsNotSigned(t *testing.T) {
	dir := t.TempDir()
	dirs := config.Dirs{Config: filepath.Join(dir, "config"), Data: filepath.Join(dir, "data")}
	const id = record.ThreadID("thr_00000000000000000000000001")
	history := func(cwd string, entries int) {
		require.NoError(t, os.RemoveAll(filepath.Join(dirs.Data, config.StoreFolder)))
		store, err := pebblestore.Open(filepath.Join(dirs.Data, config.StoreFolder), pebblestore.Options{Project: project})
		require.NoError(t, err)
		fill(t, store, id, record.ThreadCreated, thread.Created{Cwd: cwd, Engine: engineLoop})
		for range entries - 1 {
			fill(t, store, id, record.EngineStarted, thread.EngineStarted{Reason: thread.EngineCreated})
		}
		require.NoError(t, store.Close())
	}
	run := func() (log string, exported, refused error) {
		settings := DefaultSettings()
		settings.MinFreeMiB = 1
		var text bytes.Buffer
		r, err := Open(Parts{Settings: settings, Dirs: dirs, Version: "test", Log: slog.New(slog.NewTextHandler(&text, nil))})
		require.NoError(t, err)
		r.Start(t.Context())
		r.recovering.Wait()
		require.NoError(t, r.heads.Flush())
		exported = records{r.store, r.heads}.export(t.Context(), id, io.Discard)
		refused = commands{r.host, r.store, r.troubles}.own(t.Context(), id)
		require.NoError(t, r.Stop(t.Context()))
		require.NoError(t, r.Close())
		return text.String(), exported, refused
	}
	history(dir, 3)
	log, err, refused := run()
	require.NoError(t, err)
	require.NoError(t, refused)
	require.NotContains(t, log, "ERROR")
	signed, err := os.ReadFile(filepath.Join(dirs.Data, config.HeadsFile))
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(signed, []byte("\n")))

	for _, entries := range []int{2, 3, 4} {
		history(dir+"/elsewhere", entries)
		log, err, refused = run()
		require.ErrorIs(t, err, notes.ErrOtherHead, "%d entries", entries)
		require.ErrorIs(t, refused, notes.ErrOtherHead, "%d entries", entries)
		require.Contains(t, log, "thread in trouble", "%d entries", entries)
		after, err := os.ReadFile(filepath.Join(dirs.Data, config.HeadsFile))
		require.NoError(t, err)
		require.Equal(t, string(signed), string(after), "%d entries", entries)
	}
	history(dir, 4)
	log, err, refused = run()
	require.NoError(t, refused)
	require.NoError(t, err, "a longer history of the same beginning")
	require.NotContains(t, log, "ERROR")
}
