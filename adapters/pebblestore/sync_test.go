package pebblestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	walrecord "github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/adapters/pebblestore/syncwatch"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestAckedMeansSynced reads, after every acknowledgement, the bytes of the log that a completed sync covers, from
// below the store: the whole append is in them. It goes on over several logs.
func TestAckedMeansSynced(t *testing.T) {
	watched := syncwatch.New(vfs.Default, true)
	s := openStore(t, t.TempDir(), pebblestore.Options{FS: watched})
	for i, j := range script(t, 40, 2000) {
		require.NoError(t, appendOnly(s, j))
		requireSynced(t, watched, j.entries, fmt.Sprintf("append %d", i))
	}
	w := recordtest.NewWriter(4)
	_, err := s.Append(t.Context(), w.ID, record.Head{}, w.Start(t, 1)...)
	require.NoError(t, err)
	for i := range 5 { // each is larger than the first log
		expect := w.Head
		e := w.Seal(t, record.MessageAccepted, `{"text":"`+strings.Repeat("x", 2<<20)+`"}`)
		_, err := s.Append(t.Context(), w.ID, expect, e)
		require.NoError(t, err)
		requireSynced(t, watched, []record.Entry{e}, fmt.Sprintf("large append %d", i))
	}
	require.Greater(t, len(watched.Synced()), 1, "one log")
}

// requireSynced checks that all lines are in batches that the synced part of some log holds.
func requireSynced(t *testing.T, watched *syncwatch.FS, entries []record.Entry, what string) {
	t.Helper()
	missing := make(map[string]bool)
	for _, e := range entries {
		missing[string(e.Line)] = true
	}
	for _, log := range watched.Synced() {
		batches(t, log.Name, log.Content, func(value []byte) { delete(missing, string(value)) })
	}
	require.Empty(t, missing, what)
}

// batches calls each with the values that the batches of a log set.
func batches(t *testing.T, name string, content []byte, each func(value []byte)) {
	t.Helper()
	var number uint64
	_, err := fmt.Sscanf(filepath.Base(name), "%d.log", &number)
	require.NoError(t, err)
	log := numbered(walrecord.NewReader, content, number)
	for {
		r, err := log.Next()
		if err != nil {
			return // the end of what is synced
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return
		}
		var batch pebble.Batch
		require.NoError(t, batch.SetRepr(b))
		reader := batch.Reader()
		for {
			_, _, value, ok, err := reader.Next()
			require.NoError(t, err)
			if !ok {
				break
			}
			each(value)
		}
	}
}

// numbered calls newReader, whose number is of a type that Pebble does not export.
func numbered[N ~uint64](newReader func(io.Reader, N) *walrecord.Reader, content []byte, number uint64) *walrecord.Reader {
	return newReader(bytes.NewReader(content), N(number))
}

// TestGroupCommit lets 64 threads append at once, some of which stop waiting at random and one of which never waits.
// Everybody who waits gets an answer, a thread's order is kept, and syncs are shared.
func TestGroupCommit(t *testing.T) {
	const writers, rounds = 64, 30
	watched := syncwatch.New(vfs.Default, false)
	s := openStore(t, t.TempDir(), pebblestore.Options{FS: watched, Project: countEntries})
	m := newModel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	before := watched.Completed()
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for i := range writers {
		wg.Go(func() { errs[i] = impatient(ctx, t, s, m, i, rounds) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	requireSurvived(t, s, m, m)
	require.Equal(t, writers*rounds, m.acked())
	syncs := watched.Completed() - before
	require.Less(t, syncs, uint64(writers*rounds/2), "appends share syncs")
	t.Logf("%d appends, %d syncs", writers*rounds, syncs)
}

// impatient appends n entries to a thread of its own. Some calls are canceled at a random moment and made again with
// the same bytes until they are acknowledged; writer 0 hands over every append with a context that ends at once.
func impatient(ctx context.Context, t *testing.T, s record.Store, m *model, i, n int) error {
	rng := rand.New(rand.NewPCG(uint64(i), 64))
	w := recordtest.NewWriter(i + 1)
	next, expect := w.Start(t, 1), record.Head{}
	for range n {
		m.attempt(next)
		for {
			attempt, cancel := context.WithCancel(ctx)
			if i == 0 || rng.IntN(4) == 0 {
				go cancel()
			}
			head, err := s.Append(attempt, w.ID, expect, next...)
			cancel()
			if err == nil {
				if head != w.Head {
					return fmt.Errorf("head of %s is %v, want %v", w.ID, head, w.Head)
				}
				break
			}
			if !errors.Is(err, context.Canceled) || ctx.Err() != nil {
				return err
			}
		}
		m.ack(next)
		expect = w.Head
		next = w.More(t, 1)
	}
	return nil
}

// TestSyncNumbers compares, as the benchmark does, the syncs that had begun before an append with those that were
// completed when it was acknowledged.
func TestSyncNumbers(t *testing.T) {
	watched := syncwatch.New(vfs.Default, false)
	s := openStore(t, t.TempDir(), pebblestore.Options{FS: watched})
	for _, j := range script(t, 60, 200) {
		begun := watched.Started()
		require.NoError(t, appendOnly(s, j))
		require.Greater(t, watched.Completed(), begun)
	}
}
