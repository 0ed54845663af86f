package pebblestore

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"condensate.dev/cnd/core/record"
)

// sweepImports removes the entries that interrupted imports left after the heads of their threads. Blobs that came
// with them stay: another thread may use them.
func (s *Store) sweepImports() error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte(importPrefix), UpperBound: prefixEnd(importPrefix)})
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	for valid := it.First(); valid; valid = it.Next() {
		id := record.ThreadID(it.Key()[len(importPrefix):])
		m, err := s.readMark(id)
		if err != nil {
			return errors.Join(err, it.Close())
		}
		mustFinish(b.DeleteRange(entryKey(id, m.head.Next()), entriesEnd(id), nil))
		mustFinish(b.Delete(key(importPrefix, id), nil))
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return err
	}
	if b.Empty() {
		return nil
	}
	return s.db.Apply(b, pebble.Sync)
}
