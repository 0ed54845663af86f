package pebblestore

import (
	"context"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"condensate.dev/cnd/core/record"
)

// Projected is the projection of one thread, as Options.Project made it, and what the projection cannot know.
type Projected struct {
	Thread record.ThreadID
	Data   []byte
	// Foreign says that the thread was imported and is read-only.
	Foreign bool
}

// Projection returns the projection of a thread, or an error wrapping record.ErrNotFound.
func (s *Store) Projection(ctx context.Context, id record.ThreadID) (Projected, error) {
	m, err := s.existing(ctx, id)
	if err != nil {
		return Projected{}, fmt.Errorf("projection of %s: %w", id, err)
	}
	return m.projected(id), nil
}

// Projections yields the projections of all threads, in ascending order of their ids. After an error it ends.
func (s *Store) Projections(ctx context.Context) iter.Seq2[Projected, error] {
	return func(yield func(Projected, error) bool) {
		err := s.scan(ctx, headPrefix, func(id record.ThreadID, m *mark) (bool, error) {
			return yield(m.projected(id), nil), nil
		})
		if err != nil {
			yield(Projected{}, fmt.Errorf("list projections: %w", err))
		}
	}
}

func (m *mark) projected(id record.ThreadID) Projected {
	return Projected{Thread: id, Data: append([]byte(nil), m.projection...), Foreign: m.foreign}
}

// Reindex makes all projections anew from the entries, thread by thread. Appends to a thread wait for its turn.
func (s *Store) Reindex(ctx context.Context) error {
	for id, err := range s.Threads(ctx) {
		if err == nil {
			err = s.reindex(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("reindex %s: %w", id, err)
		}
	}
	return nil
}

func (s *Store) reindex(ctx context.Context, id record.ThreadID) error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.gate.enter(); err != nil {
		return err
	}
	timeout, stop := deadline(ctx)
	defer stop()
	st := s.threads.make(id)
	if err := s.takeTurn(ctx, timeout, st); err != nil {
		s.gate.leave()
		return err
	}
	leave := func() { st.release(); s.gate.leave() }
	next, err := s.recompute(ctx, id, st)
	if err != nil {
		leave()
		return err
	}
	return s.commit(ctx, timeout, sizeOf(id, nil, nil, next), func(b *pebble.Batch) { putMark(b, id, next) }, func(applied bool) {
		if applied {
			st.ack(next)
		}
		leave()
	})
}

// recompute returns the mark of a thread with the projection that its entries give.
func (s *Store) recompute(ctx context.Context, id record.ThreadID, st *state) (*mark, error) {
	now, err := s.load(id, st)
	if err != nil {
		return nil, err
	}
	next := &mark{head: now.head, foreign: now.foreign}
	var failed error
	err = s.entries(ctx, id, 0, now.head, func(e record.Entry) bool {
		next.projection, failed = s.projected(next.projection, e)
		return failed == nil
	})
	if err == nil {
		err = failed
	}
	return next, err
}
