package main

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
)

// TestEarlyAcknowledgement lets a contender acknowledge without a sync of its own: the benchmark must not accept that.
func TestEarlyAcknowledgement(t *testing.T) {
	for name, c := range map[string]struct {
		every uint64 // a sync for every so many appends
		fails bool
	}{"a sync for each": {1, false}, "a sync for every second": {2, true}, "no sync": {1 << 60, true}} {
		t.Run(name, func(t *testing.T) {
			var appends, syncs atomic.Uint64
			liar := &contender{
				name: "liar", syncs: syncs.Load, begun: syncs.Load,
				append: func(record.Entry) error {
					if appends.Add(1)%c.every == 0 {
						syncs.Add(1)
					}
					return nil
				},
			}
			_, err := liar.burst(1, 1)
			require.Equal(t, c.fails, err != nil, "%v", err)
		})
	}
}

// TestContenders runs a short burst of each, so that the benchmark does not rot.
func TestContenders(t *testing.T) {
	all, err := openContenders(t.TempDir())
	require.NoError(t, err)
	for i, c := range all {
		for _, threads := range []int{1, 8} {
			b, err := c.burst(100*i+threads, threads)
			require.NoError(t, err)
			require.Positive(t, b.perSecond)
			require.Positive(t, b.p99)
		}
		require.NoError(t, c.close())
	}
}

// TestGroupFile appends from many goroutines: everything is in the file, and groups share syncs.
func TestGroupFile(t *testing.T) {
	f, err := openGroupFile(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	const writers, each = 16, 20
	done := make(chan error, writers)
	for i := range writers {
		go func() {
			for range each {
				if err := f.append([]byte{'a' + byte(i)}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range writers {
		require.NoError(t, <-done)
	}
	content := make([]byte, writers*each+1)
	_, err = f.file.ReadAt(content, 0)
	require.NoError(t, err)
	count := make(map[byte]int)
	for _, c := range content {
		count[c]++
	}
	for i := range writers {
		require.Equal(t, each, count['a'+byte(i)])
	}
	require.Equal(t, 1, count[0], "nothing else")
	require.LessOrEqual(t, f.completed(), uint64(writers*each))
	require.NoError(t, f.Close())
}
