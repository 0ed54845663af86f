package memstore_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

func TestStore(t *testing.T) {
	recordtest.TestStore(t, func(t *testing.T) record.Store { return memstore.New() })
}

// TestOnAppend shows the two ways to fail: refused, and applied although it was reported failed.
func TestOnAppend(t *testing.T) {
	broken := errors.New("disk on fire")
	w := recordtest.NewWriter(1)
	start := w.Start(t, 2)
	s := memstore.New()

	s.OnAppend(func(thread record.ThreadID, entries []record.Entry) memstore.Outcome {
		require.Equal(t, w.ID, thread)
		require.Len(t, entries, 2)
		return memstore.Outcome{Err: broken}
	})
	_, err := s.Append(t.Context(), w.ID, record.Head{}, start...)
	require.ErrorIs(t, err, broken)
	_, err = s.Head(t.Context(), w.ID)
	require.ErrorIs(t, err, record.ErrNotFound)

	s.OnAppend(func(record.ThreadID, []record.Entry) memstore.Outcome {
		return memstore.Outcome{Err: broken, Applied: true}
	})
	_, err = s.Append(t.Context(), w.ID, record.Head{}, start...)
	require.ErrorIs(t, err, broken)
	head, err := s.Head(t.Context(), w.ID)
	require.NoError(t, err)
	require.Equal(t, w.Head, head)
	head, err = s.Append(t.Context(), w.ID, record.Head{}, start...)
	require.NoError(t, err, "a retry writes nothing and so cannot fail")
	require.Equal(t, w.Head, head)

	s.OnAppend(nil)
	_, err = s.Append(t.Context(), w.ID, head, w.More(t, 1)...)
	require.NoError(t, err)
}
