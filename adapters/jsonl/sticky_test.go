package jsonl

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// brokenFile fails from its n-th operation on, once or for ever, after writing half.
type brokenFile struct {
	after  int
	once   bool
	err    error
	writes int // whole ones
	syncs  int
}

func (b *brokenFile) step() error {
	b.after--
	if b.after == -1 || b.after < -1 && !b.once {
		return b.err
	}
	return nil
}

func (b *brokenFile) Write(p []byte) (int, error) {
	if err := b.step(); err != nil {
		return len(p) / 2, err
	}
	b.writes++
	return len(p), nil
}

func (b *brokenFile) Sync() error {
	if err := b.step(); err != nil {
		return err
	}
	b.syncs++
	return nil
}

func (b *brokenFile) Close() error { return nil }

// TestFailedAppendIsFinal fails every write and sync, once and for ever: nothing is acknowledged from then on, and
// what was acknowledged before had its sync.
func TestFailedAppendIsFinal(t *testing.T) {
	for _, once := range []bool{true, false} {
		for after := 0; ; after++ {
			f := &brokenFile{after: after, once: once, err: errors.New("no space left")}
			l := &Log{f: f, blobs: make(map[record.Digest]bool)}
			w := recordtest.NewWriter(1)
			acknowledged, failed := 0, false
			for range 5 {
				kind := record.NoteInjected
				if acknowledged == 0 {
					kind, w = record.ThreadCreated, recordtest.NewWriter(1)
				}
				err := l.Append(w.Seal(t, kind, `{}`))
				if failed {
					require.ErrorIs(t, err, f.err, "an append after a failed one")
				}
				if err != nil {
					require.ErrorIs(t, err, f.err)
					failed = true
					continue
				}
				acknowledged++
				require.Equal(t, acknowledged, f.syncs)
			}
			if !failed {
				require.Equal(t, 5, acknowledged)
				break
			}
		}
	}
}
