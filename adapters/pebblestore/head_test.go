package pebblestore_test

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestHeadDecides asks for the head after an append timed out: there is no answer until the disk has given one, and the
// answer is the last word. Another thread's head, and one whose append is still awaited, are told at once.
func TestHeadDecides(t *testing.T) {
	d := new(hangingDisk)
	s := openStore(t, "store", pebblestore.Options{FS: errorfs.Wrap(vfs.NewCrashableMem(), d)})
	w, other := recordtest.NewWriter(1), recordtest.NewWriter(2)
	for _, w := range []*recordtest.Writer{w, other} {
		_, err := s.Append(t.Context(), w.ID, record.Head{}, w.Start(t, 1)...)
		require.NoError(t, err)
	}
	before, awaited := w.Head, other.Head
	next, last := w.More(t, 1), other.More(t, 1)

	resume := d.hang()
	defer resume()
	appended := make(chan error, 1)
	go func() {
		_, err := s.Append(t.Context(), other.ID, awaited, last...)
		appended <- err
	}()
	require.Eventually(t, d.waits, patience, moment)
	short, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	_, err := s.Append(short, w.ID, before, next...)
	require.ErrorIs(t, err, pebblestore.ErrTimeout)
	head, err := s.Head(t.Context(), other.ID)
	require.NoError(t, err)
	require.Equal(t, awaited, head)

	_, err = s.Head(short, w.ID)
	require.ErrorIs(t, err, pebblestore.ErrTimeout)
	told := make(chan record.Head, 1)
	go func() {
		head, err := s.Head(t.Context(), w.ID)
		if err != nil {
			t.Error(err)
		}
		told <- head
	}()
	require.Never(t, func() bool { return len(told) > 0 }, moment, moment/4)
	resume()
	require.Equal(t, w.Head, <-told, "the append that timed out came through")
	require.NoError(t, <-appended)
	head, err = s.Head(t.Context(), w.ID)
	require.NoError(t, err)
	require.Equal(t, w.Head, head)
}
