package pebblestore

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
)

func TestFirst(t *testing.T) {
	s, err := Open("store", Options{FS: vfs.NewMem(), Project: func(p []byte, e record.Entry) ([]byte, error) { return append(append([]byte(nil), p...), 'x'), nil }})
	require.NoError(t, err)
	id := record.ThreadID("thr_00000000000000000000000001")
	e, err := record.Seal(id, record.Head{}, record.Salt{1}, record.Draft{Time: time.Unix(1, 0), Kind: record.ThreadCreated, Body: []byte(`{"a":1}`)})
	require.NoError(t, err)
	h, err := s.Append(context.Background(), id, record.Head{}, e)
	require.NoError(t, err)
	require.Equal(t, e.Head(), h)
	h, err = s.Append(context.Background(), id, record.Head{}, e)
	require.NoError(t, err)
	n := 0
	for g, err := range s.Entries(context.Background(), id, 0) {
		require.NoError(t, err)
		require.Equal(t, e.Line, g.Line)
		n++
	}
	require.Equal(t, 1, n)
	p, err := s.Projection(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, "x", string(p.Data))
	require.NoError(t, s.Close())
}
