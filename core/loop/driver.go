package loop

import (
	"context"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// CloseGrace is how long Close lets running model requests and tools go on before it cancels them.
const CloseGrace = 10 * time.Second

// Options are the settings of a host.
type Options struct {
	// Version of the program; stands in engine.started.
	Version string
	// Grace replaces [CloseGrace] when it is not 0.
	Grace time.Duration
	// Report hears of a thread that cannot go on (its record does not fold, its store fails), with the error; nil
	// drops it. It must not block.
	Report func(thread record.ThreadID, err error)
}

// Host runs the threads of one store. All methods are safe for concurrent use; each answers after what it reports is
// durable. An unknown thread is an error wrapping record.ErrNotFound, a closed host one of class unavailable.
type Host struct {
	ports   Ports
	options Options
}

var errClosed = fault.New(fault.Unavailable, "shutting-down", "the runtime is shutting down")

// NewHost returns a host over ports. It starts nothing.
func NewHost(p Ports, o Options) *Host { return &Host{ports: p, options: o} }

// Create makes a thread. The same id again with the same content is answered as before, with another content it is
// an error of class conflict.
func (h *Host) Create(ctx context.Context, n NewThread) (record.ThreadID, error) {
	return "", errClosed
}

// Submit gives the thread a message; see the modes in package thread.
func (h *Host) Submit(ctx context.Context, id record.ThreadID, m Message) (Receipt, error) {
	return Receipt{}, errClosed
}

// Interrupt stops the running turn. It is idempotent by command id; without a running turn it is an error of class
// conflict, code not-running.
func (h *Host) Interrupt(ctx context.Context, id record.ThreadID, by, command string) (Receipt, error) {
	return Receipt{}, errClosed
}

// Resume makes a lost or waiting turn go on at once. A turn that works already is answered as a duplicate.
func (h *Host) Resume(ctx context.Context, id record.ThreadID) (Receipt, error) {
	return Receipt{}, errClosed
}

// Answer answers an approval. The first answer wins: the same verdict again is a duplicate, another one is an error of
// class conflict, code already-answered.
func (h *Host) Answer(ctx context.Context, id record.ThreadID, a thread.ApprovalAnswered) (Receipt, error) {
	return Receipt{}, errClosed
}

// Recover is called once, at boot, with every thread of the store: it continues the turns that a dead runtime left
// open. One bad thread never stalls another; the error joins those of all bad threads.
func (h *Host) Recover(ctx context.Context, threads []record.ThreadID) error { return nil }

// Close stops the host: no new work, running requests and tools get the grace, then they are cancelled. Turns stay
// resumable.
func (h *Host) Close(ctx context.Context) error { return nil }
