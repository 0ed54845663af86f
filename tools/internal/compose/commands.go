package compose

import (
	"context"
	"errors"
	"fmt"

	"condensate.dev/cnd/adapters/httpapi"
	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// commands are the loop as clients reach it: what would change an imported thread is refused before the loop sees it,
// since such a thread is nobody's to continue and not in trouble either.
type commands struct {
	*loop.Host
	store    *pebblestore.Store
	troubles *troubles
}

var _ httpapi.Host = commands{}

// Submit implements [httpapi.Host].
func (c commands) Submit(ctx context.Context, id record.ThreadID, m loop.Message) (loop.Receipt, error) {
	if err := c.own(ctx, id); err != nil {
		return loop.Receipt{}, err
	}
	return c.Host.Submit(ctx, id, m)
}

// Interrupt implements [httpapi.Host].
func (c commands) Interrupt(ctx context.Context, id record.ThreadID, by, command string) (loop.Receipt, error) {
	if err := c.own(ctx, id); err != nil {
		return loop.Receipt{}, err
	}
	return c.Host.Interrupt(ctx, id, by, command)
}

// Resume implements [httpapi.Host].
func (c commands) Resume(ctx context.Context, id record.ThreadID) (loop.Receipt, error) {
	if err := c.own(ctx, id); err != nil {
		return loop.Receipt{}, err
	}
	return c.Host.Resume(ctx, id)
}

// Answer implements [httpapi.Host].
func (c commands) Answer(ctx context.Context, id record.ThreadID, a thread.ApprovalAnswered) (loop.Receipt, error) {
	if err := c.own(ctx, id); err != nil {
		return loop.Receipt{}, err
	}
	return c.Host.Answer(ctx, id, a)
}

// own is an error for a thread that was imported, or that is not what was signed of it. One that is not there is left to
// the loop.
func (c commands) own(ctx context.Context, id record.ThreadID) error {
	if err := c.troubles.find(id); errors.Is(err, notes.ErrOtherHead) {
		return err
	}
	_, foreign, err := c.store.ForeignHead(ctx, id)
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if foreign {
		err = fault.WithHint(pebblestore.ErrForeign, fmt.Sprintf("cnd-runtime thread show %s", id))
	}
	return err
}
