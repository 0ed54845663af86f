package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// maxWaiting is how many writes may wait for the committer; further ones wait to be taken in.
	maxWaiting = 1024
	// maxGathered bounds the batch that the committer gathers, in bytes. A larger write is a batch of its own.
	maxGathered = 1 << 20
	// batchHeader is what an empty batch of Pebble holds, in bytes.
	batchHeader = 12
)

// write is one change of the store on its way to the disk: all or nothing, and nothing else depends on it.
type write struct {
	size int                   // about the bytes that fill adds
	fill func(b *pebble.Batch) // adds the change to a batch
	over func(applied bool)    // called once, before done gets the outcome
	done chan error            // has room for one
}

// commit writes what fill adds to a batch and returns when it is durable, or earlier when the context, the timeout or
// the store does not let it wait: it may become durable then all the same. over is called once, when it is durable or
// never will be, by whoever knows. The write is made in another goroutine, because Pebble cannot be interrupted and
// may never return from a disk that hangs or is full.
func (s *Store) commit(ctx context.Context, timeout <-chan time.Time, size int, fill func(*pebble.Batch), over func(applied bool)) error {
	w := &write{size: size, fill: fill, over: over, done: make(chan error, 1)}
	select {
	case s.queue <- w:
	default:
		if err := s.enqueue(ctx, timeout, w); err != nil {
			over(false)
			return err
		}
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return contextError(ctx)
	case <-timeout:
		return fmt.Errorf("no answer within %s: %w", AppendTimeout, ErrTimeout)
	case <-s.health.failed:
		return s.health.failure()
	}
}

func (s *Store) enqueue(ctx context.Context, timeout <-chan time.Time, w *write) error {
	select {
	case s.queue <- w:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	case <-timeout:
		return fmt.Errorf("earlier writes take over %s: %w", AppendTimeout, ErrTimeout)
	case <-s.health.failed:
		return s.health.failure()
	}
}

// commitAll is the committer, the only goroutine that writes: it makes writes durable until the queue is closed. Writes
// that wait at the same time share a batch and its sync.
func (s *Store) commitAll() {
	var group []*write
	for w := range s.queue {
		// The writers that the last sync woke are about to come with their next write. Without letting them run, the
		// first one would ride this sync alone and the others wait for the one after it.
		runtime.Gosched()
		group = append(group[:0], w)
		for size := w.size; size < maxGathered; {
			select {
			case w, ok := <-s.queue:
				if ok {
					group = append(group, w)
					size += w.size
					continue
				}
			default:
			}
			break
		}
		s.commitGroup(group)
	}
}

func (s *Store) commitGroup(group []*write) {
	s.health.guard(func() error {
		size := batchHeader
		for _, w := range group {
			size += w.size
		}
		batch := s.db.NewBatchWithSize(size)
		for _, w := range group {
			w.fill(batch)
		}
		if err := s.db.Apply(batch, pebble.Sync); err != nil {
			return classify(err)
		}
		return batch.Close()
	}, func(err error) {
		for _, w := range group {
			w.over(err == nil)
			w.done <- err
		}
	})
}

// deadline returns the channel that ends a write whose context does not.
func deadline(ctx context.Context) (timeout <-chan time.Time, stop func()) {
	if _, ok := ctx.Deadline(); ok {
		return nil, func() {}
	}
	t := time.NewTimer(AppendTimeout)
	return t.C, func() { t.Stop() }
}

// contextError classifies the end of ctx: a deadline is the disk's fault, the rest is the caller's wish.
func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
	}
	return fmt.Errorf("%w: %w", ErrCanceled, ctx.Err())
}
