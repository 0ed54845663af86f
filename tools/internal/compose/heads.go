package compose

import (
	"context"

	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
)

// signEvery is after how many entries of a thread its head is signed although no turn ended.
const signEvery = 256

// signing is a follower that also has heads signed: at each turn's end and every signEvery entries. The signature
// follows the acknowledgement within a second and never holds it up.
type signing struct {
	loop.Follower
	heads *notes.Heads
}

// Appended implements [loop.Follower].
func (s signing) Appended(id record.ThreadID, entries []record.Entry) {
	s.Follower.Appended(id, entries)
	for i := len(entries) - 1; i >= 0; i-- {
		if e := entries[i]; e.Kind == record.TurnFinished || (e.Seq+1)%signEvery == 0 {
			s.heads.Add(id, e.Head())
			return
		}
	}
}

// hashAt is how heads see what the store holds.
func hashAt(store record.Store) notes.HashAt {
	return func(id record.ThreadID, seq record.Seq) (record.Digest, error) {
		for e, err := range store.Entries(context.Background(), id, seq) {
			return e.Hash, err
		}
		return record.Digest{}, nil
	}
}
