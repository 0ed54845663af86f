package pebblestore

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// TestDeadline: a write ends with its context or, when that has no end, with a timeout of the store's own, also when
// nobody takes it in.
func TestDeadline(t *testing.T) {
	timeout, stop := deadline(t.Context())
	require.NotNil(t, timeout)
	stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	timeout, stop = deadline(ctx)
	require.Nil(t, timeout)
	stop()

	s, err := Open("store", Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	passed := make(chan time.Time)
	close(passed)
	busy, release := make(chan struct{}), make(chan struct{})
	over := make(chan bool, maxWaiting+1)
	write := func(fill func(*pebble.Batch)) error {
		return s.commit(t.Context(), passed, 1, fill, func(applied bool) { over <- applied })
	}
	nothing := func(*pebble.Batch) {}
	require.ErrorIs(t, write(func(*pebble.Batch) { close(busy); <-release }), ErrTimeout)
	<-busy
	for range maxWaiting {
		require.ErrorIs(t, write(nothing), ErrTimeout)
	}
	require.Empty(t, over, "all of them may still become durable")
	require.ErrorIs(t, write(nothing), ErrTimeout)
	require.False(t, <-over, "it was never taken in")
	st := s.threads.make("thr_00000000000000000000000001")
	require.NoError(t, s.takeTurn(t.Context(), passed, st))
	require.ErrorIs(t, s.takeTurn(t.Context(), passed, st), ErrTimeout)
	close(release)
	for range 1 + maxWaiting {
		require.True(t, <-over, "what was handed over becomes durable all the same")
	}
	require.NoError(t, s.Close())
}
