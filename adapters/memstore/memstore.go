// Package memstore keeps threads in memory: the store of tests and simulations. It can be told to refuse an append,
// or to apply it and report a failure, which is all that a caller can see of a broken disk.
package memstore

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"condensate.dev/cnd/core/record"
)

var _ record.Store = (*Store)(nil)

// Store is a record.Store in memory. The zero Store is empty and ready to use.
type Store struct {
	mu      sync.RWMutex // guards all fields
	threads map[record.ThreadID]log
	blobs   map[record.Digest][]byte
	decide  func(record.ThreadID, []record.Entry) Outcome
}

// log holds the own entries of one thread; it only grows.
type log []record.Entry

// Outcome is what becomes of one append. The zero Outcome lets it succeed.
type Outcome struct {
	Err     error // what Append returns; nil for success
	Applied bool  // the entries are durable although Append returns Err
}

// New returns an empty store.
func New() *Store { return &Store{} }

// OnAppend has decide called before each append that would write something; nil ends that. It must not call the store.
func (s *Store) OnAppend(decide func(thread record.ThreadID, entries []record.Entry) Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide = decide
}

// Append implements record.Store.
func (s *Store) Append(ctx context.Context, thread record.ThreadID, expect record.Head, entries ...record.Entry) (record.Head, error) {
	if err := ctx.Err(); err != nil {
		return record.Head{}, fmt.Errorf("append to %s: %w", thread, err)
	}
	needed, err := record.CheckAppend(thread, expect, entries)
	if err != nil {
		return record.Head{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	head := entries[len(entries)-1].Head()
	own := s.threads[thread]
	if own.holds(entries) {
		return head, nil
	}
	if err := s.mayFollow(own, expect, entries[0]); err != nil {
		return record.Head{}, fmt.Errorf("append to %s after seq %d: %w", thread, expect.Seq, err)
	}
	for _, d := range needed {
		if _, ok := s.blobs[d]; !ok {
			return record.Head{}, fmt.Errorf("append to %s: blob %s: %w", thread, d, record.ErrNoBlob)
		}
	}
	var o Outcome
	if s.decide != nil {
		o = s.decide(thread, entries)
	}
	if o.Err != nil && !o.Applied {
		return record.Head{}, o.Err
	}
	s.apply(thread, entries)
	if o.Err != nil {
		return record.Head{}, o.Err
	}
	return head, nil
}

// mayFollow says whether first, which follows expect, may be the thread's next entry.
func (s *Store) mayFollow(own log, expect record.Head, first record.Entry) error {
	switch {
	case len(own) > 0 && (own.head() != expect || first.Kind == record.ThreadForked):
		return fmt.Errorf("its head is seq %d: %w", own.head().Seq, record.ErrConflict)
	case len(own) > 0:
		return nil
	case first.Kind == record.ThreadForked:
		parent, at, err := record.ForkOf(first)
		if err != nil {
			return err
		}
		from, ok := s.threads[parent]
		if !ok {
			return fmt.Errorf("parent %s: %w", parent, record.ErrNotFound)
		}
		if e, ok := from.at(at.Seq); !ok || e.Hash != at.Hash {
			return fmt.Errorf("parent %s has no such entry: %w", parent, record.ErrConflict)
		}
		return nil
	case expect != record.Head{}:
		return fmt.Errorf("it has no entries: %w", record.ErrConflict)
	}
	return nil
}

func (s *Store) apply(thread record.ThreadID, entries []record.Entry) {
	if s.threads == nil {
		s.threads = make(map[record.ThreadID]log)
		s.blobs = make(map[record.Digest][]byte)
	}
	own := s.threads[thread]
	for _, e := range entries {
		for _, b := range e.Blobs {
			if _, ok := s.blobs[b.Digest]; !ok {
				s.blobs[b.Digest] = append([]byte{}, b.Data...)
			}
		}
		own = append(own, e.Clone())
	}
	s.threads[thread] = own
}

// Entries implements record.Store.
func (s *Store) Entries(ctx context.Context, thread record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		s.mu.RLock()
		own := s.threads[thread]
		s.mu.RUnlock()
		if len(own) == 0 {
			yield(record.Entry{}, fmt.Errorf("thread %s: %w", thread, record.ErrNotFound))
			return
		}
		if first := own[0].Seq; from > first {
			own = own[min(uint64(len(own)), uint64(from-first)):]
		}
		for _, e := range own {
			if err := ctx.Err(); err != nil {
				yield(record.Entry{}, fmt.Errorf("read %s: %w", thread, err))
				return
			}
			if !yield(e.Clone(), nil) {
				return
			}
		}
	}
}

// Head implements record.Store.
func (s *Store) Head(ctx context.Context, thread record.ThreadID) (record.Head, error) {
	if err := ctx.Err(); err != nil {
		return record.Head{}, fmt.Errorf("head of %s: %w", thread, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	own := s.threads[thread]
	if len(own) == 0 {
		return record.Head{}, fmt.Errorf("thread %s: %w", thread, record.ErrNotFound)
	}
	return own.head(), nil
}

// Blob implements record.Store.
func (s *Store) Blob(ctx context.Context, d record.Digest) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("blob %s: %w", d, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	data, ok := s.blobs[d]
	if !ok {
		return nil, fmt.Errorf("blob %s: %w", d, record.ErrNoBlob)
	}
	return append([]byte{}, data...), nil
}

func (l log) head() record.Head { return l[len(l)-1].Head() }

// at returns the entry with that seq.
func (l log) at(seq record.Seq) (record.Entry, bool) {
	if len(l) == 0 || seq < l[0].Seq || seq > l[len(l)-1].Seq {
		return record.Entry{}, false
	}
	return l[seq-l[0].Seq], true
}

// holds says whether all entries are there already.
func (l log) holds(entries []record.Entry) bool {
	for _, e := range entries {
		if own, ok := l.at(e.Seq); !ok || own.Hash != e.Hash {
			return false
		}
	}
	return true
}
