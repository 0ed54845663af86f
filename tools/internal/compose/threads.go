package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"condensate.dev/cnd/adapters/httpapi"
	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

var errProjection = fault.New(fault.Corrupt, "projection-damaged", "a projection cannot be read")

// project keeps a thread's summary beside its entries: it is the store's Options.Project.
func project(prev []byte, e record.Entry) ([]byte, error) {
	var s thread.Summary
	if prev != nil {
		if err := json.Unmarshal(prev, &s); err != nil {
			return nil, fmt.Errorf("summary of %s before entry %d: %v: %w", e.Thread, e.Seq, err, errProjection)
		}
	}
	return json.Marshal(thread.Summarize(s, e))
}

// threads lists threads by their projections. One that cannot be read, or whose thread is in trouble, is shown as
// broken.
type threads struct {
	store    *pebblestore.Store
	troubles *troubles
}

var _ httpapi.Threads = threads{}

// Summaries implements [httpapi.Threads].
func (t threads) Summaries(ctx context.Context, after record.ThreadID) iter.Seq2[thread.Summary, error] {
	return func(yield func(thread.Summary, error) bool) {
		for p, err := range t.store.Projections(ctx) {
			if err == nil && p.Thread <= after {
				continue
			}
			if err != nil {
				yield(thread.Summary{}, err)
				return
			}
			if !yield(t.shown(p), nil) {
				return
			}
		}
	}
}

// Summary implements [httpapi.Threads].
func (t threads) Summary(ctx context.Context, id record.ThreadID) (thread.Summary, error) {
	p, err := t.store.Projection(ctx, id)
	if err != nil {
		return thread.Summary{}, err
	}
	return t.shown(p), nil
}

func (t threads) shown(p pebblestore.Projected) thread.Summary {
	s, err := summary(p)
	if err != nil {
		return broken(thread.Summary{ID: p.Thread}, err)
	}
	return t.troubles.mark(s)
}

func summary(p pebblestore.Projected) (thread.Summary, error) {
	var s thread.Summary
	if err := json.Unmarshal(p.Data, &s); err != nil {
		err = fmt.Errorf("summary of %s: %v: %w", p.Thread, err, errProjection)
		return s, fault.WithHint(err, "cnd-runtime reindex")
	}
	if p.Foreign {
		s.State, s.Waiting = thread.StateForeign, nil
	}
	return s, nil
}
