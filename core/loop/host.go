package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
)

const (
	// CloseGrace is how long Close lets running model requests and tools go on before it cancels them.
	CloseGrace = 10 * time.Second
	// IdleAfter is how long a thread without work stays in memory.
	IdleAfter = time.Minute
	// recoverers is how many threads Recover reads at a time.
	recoverers = 8
)

// Options are the settings of a host.
type Options struct {
	// Version of the program; stands in engine.started.
	Version string
	// Grace replaces [CloseGrace] when it is not 0.
	Grace time.Duration
	// Report hears of trouble with a thread, answered to a caller or not: a record that does not fold, a store that
	// refuses. Nil drops it. It must not block.
	Report func(thread record.ThreadID, err error)

	open openBuilder // nil: builder.Open
}

type openBuilder func(context.Context, builder.Source, record.Entry, io.Writer) (wire.Builder, error)

func (o *Options) builder() openBuilder {
	if o.open != nil {
		return o.open
	}
	return builder.Open
}

// ErrClosed: the host takes no more commands.
var ErrClosed = fault.New(fault.Unavailable, "shutting-down", "the runtime is shutting down")

// Host runs the threads of one store. All methods are safe for concurrent use; each answers after what it reports is
// durable. An unknown thread is an error wrapping record.ErrNotFound, a closed host one wrapping [ErrClosed]. When a
// context ends first, the command may or may not have been carried out: the same command again tells.
type Host struct {
	ports   Ports
	options Options

	effects context.Context // of all effects; canceled after the grace
	cancel  context.CancelFunc
	closing chan struct{} // closed by Close
	running sync.WaitGroup

	mu     sync.Mutex                 // guards the rest, and the users of actors
	actors map[record.ThreadID]*actor // threads in memory
	gens   map[record.ThreadID]uint64 // generations that this host started, of threads that left memory
	closed bool
}

// NewHost returns a host over ports. It starts nothing.
func NewHost(p Ports, o Options) *Host {
	h := &Host{ports: p, options: o, closing: make(chan struct{}), actors: make(map[record.ThreadID]*actor)}
	h.gens = make(map[record.ThreadID]uint64)
	h.effects, h.cancel = context.WithCancel(context.Background())
	if h.ports.Ready == nil {
		h.ports.Ready = func() error { return nil }
	}
	return h
}

// Create makes a thread. The same id again with the same [thread.Created] is answered as before, with another one it
// is an error wrapping [ErrThreadExists].
func (h *Host) Create(ctx context.Context, n NewThread) (record.ThreadID, error) {
	if n.ID == "" {
		id, err := record.NewID(record.PrefixThread, h.ports.Now(), h.ports.Entropy)
		if err != nil {
			return "", err
		}
		n.ID = record.ThreadID(id)
	}
	n, err := n.checked()
	if err != nil {
		return "", fmt.Errorf("create thread: %w", err)
	}
	_, err = h.command(ctx, n.ID, true, create(n, h.ports.Ready))
	return n.ID, err
}

// Submit gives the thread a message, exactly once by its id; the modes are those of package thread.
func (h *Host) Submit(ctx context.Context, id record.ThreadID, m Message) (Receipt, error) {
	if m.ID == "" {
		made, err := record.NewID(record.PrefixMessage, h.ports.Now(), h.ports.Entropy)
		if err != nil {
			return Receipt{}, err
		}
		m.ID = made
	}
	body, blobs, err := m.accepted()
	if err != nil {
		return Receipt{}, fmt.Errorf("submit to %s: %w", id, err)
	}
	return h.command(ctx, id, false, submit(body, blobs, h.ports.Ready))
}

// Interrupt stops the running turn, exactly once by the command's id; without a running turn it is an error wrapping
// [ErrNotRunning].
func (h *Host) Interrupt(ctx context.Context, id record.ThreadID, by, command string) (Receipt, error) {
	if command == "" || len(command) > MaxCommandID {
		return Receipt{}, fmt.Errorf("interrupt %s: id of %d bytes, 1 to %d allowed: %w", id, len(command), MaxCommandID, ErrInvalidCommand)
	}
	return h.command(ctx, id, false, interrupt(cmp.Or(by, "owner"), command))
}

// Resume makes a lost or waiting turn go on at once. A turn that works is answered as a duplicate.
func (h *Host) Resume(ctx context.Context, id record.ThreadID) (Receipt, error) {
	return h.command(ctx, id, false, resume)
}

// Answer answers an approval. The first answer wins: the same verdict again is a duplicate, another one an error
// wrapping [ErrAnswered].
func (h *Host) Answer(ctx context.Context, id record.ThreadID, a thread.ApprovalAnswered) (Receipt, error) {
	a.By = cmp.Or(a.By, "owner")
	if err := checkAnswer(a); err != nil {
		return Receipt{}, fmt.Errorf("answer to %s: %w", id, err)
	}
	return h.command(ctx, id, false, answer(a))
}

// Recover is called once, at boot, with every thread of the store that may have something to do: it goes on with the
// turns that a dead runtime left open. It returns when each is read and told so, not when the turns are over. One bad
// thread never stalls another; the error joins those of all bad threads.
func (h *Host) Recover(ctx context.Context, threads []record.ThreadID) error {
	var group sync.WaitGroup
	errs := make([]error, len(threads))
	slots := make(chan struct{}, recoverers)
	for i, id := range threads {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			_, errs[i] = h.command(ctx, id, false, func(*State) ([]Draft, Receipt, error) { return nil, Receipt{}, nil })
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// Close stops the host: no new work starts, running requests and tools get the grace, then they are canceled. Turns
// stay resumable. It returns when nothing runs any more, or with the context's error.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.closing)
	}
	h.mu.Unlock()
	grace := time.AfterFunc(cmp.Or(h.options.Grace, CloseGrace), h.cancel)
	defer grace.Stop()
	done := make(chan struct{})
	go func() {
		h.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		h.cancel()
		return nil
	case <-ctx.Done():
		h.cancel()
		return fmt.Errorf("close: %w", ctx.Err())
	}
}

// command hands a command to the thread's goroutine and waits for the answer.
func (h *Host) command(ctx context.Context, id record.ThreadID, fresh bool, c command) (Receipt, error) {
	a, err := h.enter(id)
	if err != nil {
		return Receipt{}, fmt.Errorf("thread %s: %w", id, err)
	}
	defer h.leave(a)
	r := request{decide: c, fresh: fresh, reply: make(chan reply, 1)}
	select {
	case a.mailbox <- r:
	case <-ctx.Done():
		return Receipt{}, fmt.Errorf("thread %s: %w", id, ctx.Err())
	}
	select {
	case got := <-r.reply:
		return got.receipt, got.err
	case <-ctx.Done():
		return Receipt{}, fmt.Errorf("thread %s: %w", id, ctx.Err())
	}
}

// enter returns the thread's actor, started if need be; it stays until leave.
func (h *Host) enter(id record.ThreadID) (*actor, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	a := h.actors[id]
	if a == nil {
		a = newActor(h, id)
		a.machine.live.Gen = h.gens[id]
		h.actors[id] = a
		h.running.Go(a.run)
	}
	a.users++
	return a, nil
}

func (h *Host) leave(a *actor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.users--; a.users > 0 {
		return
	}
	select {
	case a.left <- struct{}{}:
	default: // told already
	}
}

// retire takes the actor out of memory unless somebody uses it.
func (h *Host) retire(a *actor) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.users > 0 {
		return false
	}
	delete(h.actors, a.id)
	h.gens[a.id] = a.machine.live.Gen
	return true
}
