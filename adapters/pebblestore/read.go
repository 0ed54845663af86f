package pebblestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"condensate.dev/cnd/core/record"
)

// Entries implements [record.Store].
func (s *Store) Entries(ctx context.Context, id record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	m, unknown := s.existing(ctx, id)
	return func(yield func(record.Entry, error) bool) {
		err := unknown
		if err == nil {
			err = s.entries(ctx, id, from, m.head, func(e record.Entry) bool { return yield(e, nil) })
		}
		if err != nil {
			yield(record.Entry{}, fmt.Errorf("entries of %s from seq %d: %w", id, from, err))
		}
	}
}

// entries calls each with the thread's own entries from seq on up to head, until each returns false.
func (s *Store) entries(ctx context.Context, id record.ThreadID, from record.Seq, head record.Head, each func(record.Entry) bool) error {
	if from > head.Seq {
		return nil
	}
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	it, err := s.db.NewIterWithContext(ctx, &pebble.IterOptions{
		LowerBound: entryKey(id, from), UpperBound: entryKey(id, head.Seq+1),
	})
	if err != nil {
		return classify(err)
	}
	defer it.Close()
	var last record.Head
	for valid := it.First(); valid; valid = it.Next() {
		if ctx.Err() != nil {
			return contextError(ctx)
		}
		if s.gate.closing() {
			return ErrClosed
		}
		line, err := it.ValueAndErr()
		if err != nil {
			return classify(err)
		}
		e, err := parseStored(id, it.Key(), line)
		if err != nil {
			return err
		}
		switch {
		case last.Hash.IsZero() && e.Seq != from && e.Kind != record.ThreadForked:
			return fmt.Errorf("no entry %d of %s before entry %d: %w", from, id, e.Seq, record.ErrDamaged)
		case !last.Hash.IsZero() && (e.Seq != last.Next() || e.Prev != last.Hash):
			return fmt.Errorf("entry %d of %s does not follow entry %d: %w", e.Seq, id, last.Seq, record.ErrDamaged)
		}
		last = e.Head()
		if !each(e) {
			return nil
		}
	}
	if err := it.Error(); err != nil {
		return classify(err)
	}
	if last != head {
		return fmt.Errorf("entries of %s end at seq %d, the head is at %d: %w", id, last.Seq, head.Seq, record.ErrDamaged)
	}
	return nil
}

// parseStored reads a copy of line, which must be the entry that its key names.
func parseStored(id record.ThreadID, k, line []byte) (record.Entry, error) {
	e, err := record.Parse(bytes.Clone(line))
	if err != nil {
		return record.Entry{}, fmt.Errorf("entry at key %q: %w: %w", k, record.ErrDamaged, err)
	}
	if e.Thread != id || !bytes.Equal(k, entryKey(e.Thread, e.Seq)) {
		return record.Entry{}, fmt.Errorf("entry %d of %s at key %q: %w", e.Seq, e.Thread, k, record.ErrDamaged)
	}
	return e, nil
}

// Head implements [record.Store]. Like an append it waits no longer than its context or AppendTimeout.
func (s *Store) Head(ctx context.Context, id record.ThreadID) (record.Head, error) {
	err := s.decided(ctx, id)
	var m *mark
	if err == nil {
		m, err = s.existing(ctx, id)
	}
	if err != nil {
		return record.Head{}, fmt.Errorf("head of %s: %w", id, err)
	}
	return m.head, nil
}

// decided returns when no append to the thread that failed for its caller can become durable any more.
func (s *Store) decided(ctx context.Context, id record.ThreadID) error {
	st := s.threads.find(id)
	if st == nil || !st.doubted.Load() {
		return nil
	}
	timeout, stop := deadline(ctx)
	defer stop()
	if err := s.takeTurn(ctx, timeout, st); err != nil { // which such an append keeps
		return err
	}
	st.doubted.Store(false)
	st.release()
	return nil
}

// existing returns what is acknowledged of a thread, or record.ErrNotFound.
func (s *Store) existing(ctx context.Context, id record.ThreadID) (*mark, error) {
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	m, err := s.acked(id)
	if err != nil {
		return nil, err
	}
	if !m.exists() {
		return nil, record.ErrNotFound
	}
	return m, nil
}

// Blob implements [record.Store].
func (s *Store) Blob(ctx context.Context, d record.Digest) ([]byte, error) {
	data, err := s.blob(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", d, err)
	}
	return data, nil
}

func (s *Store) blob(ctx context.Context, d record.Digest) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	data, found, err := get(s.db, blobKey(d))
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, record.ErrNoBlob
	case sha256.Sum256(data) != d:
		return nil, fmt.Errorf("%d bytes that hash to something else: %w", len(data), record.ErrDamaged)
	}
	return data, nil
}

func (s *Store) hasBlob(d record.Digest) (bool, error) {
	_, closer, err := s.db.Get(blobKey(d))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, classify(err)
	}
	return true, closer.Close()
}

// Threads yields the ids of all threads, in ascending order. After an error it ends.
func (s *Store) Threads(ctx context.Context) iter.Seq2[record.ThreadID, error] {
	return func(yield func(record.ThreadID, error) bool) {
		err := s.scan(ctx, headPrefix, func(id record.ThreadID, _ *mark) (bool, error) { return yield(id, nil), nil })
		if err != nil {
			yield("", fmt.Errorf("list threads: %w", err))
		}
	}
}

// scan calls each with every existing thread that has a key with prefix, until each returns false.
func (s *Store) scan(ctx context.Context, prefix string, each func(record.ThreadID, *mark) (bool, error)) error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	it, err := s.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: []byte(prefix), UpperBound: prefixEnd(prefix)})
	if err != nil {
		return classify(err)
	}
	defer it.Close()
	for valid := it.First(); valid; valid = it.Next() {
		if ctx.Err() != nil {
			return contextError(ctx)
		}
		if s.gate.closing() {
			return ErrClosed
		}
		id := record.ThreadID(it.Key()[len(prefix):])
		m, err := s.acked(id)
		if err != nil {
			return err
		}
		if !m.exists() {
			continue // its first append is under way
		}
		if more, err := each(id, m); err != nil || !more {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return classify(err)
	}
	return nil
}

// get returns a copy of the value at k.
func get(r pebble.Reader, k []byte) (v []byte, found bool, err error) {
	v, closer, err := r.Get(k)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, classify(err)
	}
	v = bytes.Clone(v)
	if err := closer.Close(); err != nil {
		return nil, false, classify(err)
	}
	return v, true, nil
}
