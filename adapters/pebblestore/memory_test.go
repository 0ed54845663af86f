package pebblestore_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestMemory verifies a thread of 60,000 entries: the memory stays flat, however long the thread is.
func TestMemory(t *testing.T) {
	const entries, batch, limit = 60_000, 2_000, 64 << 20
	dir := t.TempDir()
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	require.NoError(t, err)
	w := recordtest.NewWriter(1)
	next := w.Start(t, batch)
	for n, expect := batch, (record.Head{}); n <= entries; n += batch {
		_, err := s.Append(t.Context(), w.ID, expect, next...)
		require.NoError(t, err)
		expect = w.Head
		next = w.More(t, batch)
	}
	next = nil
	require.NoError(t, s.Close())

	s = openStore(t, dir, pebblestore.Options{ReadOnly: true})
	before, most := heap(), uint64(0)
	n := 0
	report, err := record.VerifyThread(t.Context(), s, w.ID, record.VerifyOptions{Unsigned: true}, func(record.Entry) error {
		if n++; n%(entries/16) == 0 {
			most = max(most, heap())
		}
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, entries, report.Entries)
	t.Logf("heap before %d KiB, at most %d KiB", before>>10, most>>10)
	require.Less(t, most, before+limit)
}

// heap returns how much is in use after a collection, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
