package compose

import (
	"crypto/rand"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
)

// deaf is a follower that hears nothing.
type deaf struct{ loop.Follower }

func (deaf) Appended(record.ThreadID, []record.Entry) {}

// A head is signed at a turn's end and every 256 entries, over the newest place of those in one append.
func TestSigning(t *testing.T) {
	dir := t.TempDir()
	key, err := notes.LoadOrCreateKey(filepath.Join(dir, "record.key"), rand.Reader)
	require.NoError(t, err)
	heads, err := notes.OpenHeads(filepath.Join(dir, "heads.jsonl"), key, func(err error) { t.Error(err) })
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
		return record.Entry{Thread: id, Seq: seq, Kind: kind, Hash: record.Digest{1, byte(seq), byte(seq >> 8)}}
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
