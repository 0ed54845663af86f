package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// Sizes of an actor's channels.
const (
	mailboxSize = 64  // commands that wait; the next caller waits to put its own in
	eventsSize  = 256 // deltas that wait; the effect that streams waits to put the next one in
)

// actor runs the machine of one thread: its goroutine is the only one that touches it.
type actor struct {
	id      record.ThreadID
	host    *Host
	users   int           // callers in Host.command; guarded by host.mu
	left    chan struct{} // told when users becomes 0
	mailbox chan request
	events  chan event
	machine *machine
	loaded  bool
}

// request is a command with the place for its answer.
type request struct {
	decide command
	fresh  bool // the thread may not exist yet
	reply  chan reply
}

type reply struct {
	receipt Receipt
	err     error
}

// event is what an effect tells: a delta or its completion.
type event struct {
	delta Delta
	done  *Completion
}

func newActor(h *Host, id record.ThreadID) *actor {
	a := &actor{
		id: id, host: h, left: make(chan struct{}, 1),
		mailbox: make(chan request, mailboxSize), events: make(chan event, eventsSize),
	}
	a.machine = newMachine(id, &h.ports, &h.options, a.launch)
	return a
}

// launch performs an effect beside the actor.
func (a *actor) launch(f *Flight) context.CancelFunc {
	ctx, cancel := context.WithCancel(a.host.effects)
	a.host.running.Go(func() {
		c := f.Perform(ctx, &a.host.ports, func(d Delta) { a.events <- event{delta: d} })
		a.events <- event{done: &c}
	})
	return cancel
}

// run is the actor's goroutine. It ends when the thread has been idle for a while and nobody uses it.
func (a *actor) run() {
	ctx := context.Background()
	closing := a.host.closing
	timer := time.NewTimer(IdleAfter)
	defer timer.Stop()
	for {
		expired := false
		select {
		case r := <-a.mailbox:
			r.reply <- a.answer(ctx, r)
		case e := <-a.events:
			a.hear(ctx, e)
		case <-timer.C:
			expired = true
		case <-closing:
			closing, a.machine.live.Closing = nil, true
		case <-a.left:
		}
		wake := a.advance(ctx)
		if a.over(expired) && a.host.retire(a) {
			return
		}
		timer.Reset(a.pause(wake))
	}
}

// over says whether the actor has nothing more to do. What could not be made durable before the grace of a closing
// host ended is left to the next runtime.
func (a *actor) over(expired bool) bool {
	m := a.machine
	if len(m.live.Running) == 0 && (!a.loaded || a.host.effects.Err() != nil) {
		return true
	}
	return m.idle() && (expired || m.live.Closing || m.stopped != nil)
}

// answer carries out a command, on the record of the thread as it is in memory or, the first time, in the store.
func (a *actor) answer(ctx context.Context, r request) (answer reply) {
	defer a.guard(&answer.err)
	m := a.machine
	if !a.loaded {
		err := m.load(ctx)
		if errors.Is(err, record.ErrNotFound) && r.fresh {
			err = nil
		}
		if err != nil {
			if !errors.Is(err, record.ErrNotFound) {
				m.report(err)
			}
			return reply{err: err}
		}
	}
	answer.receipt, answer.err = m.do(ctx, r.decide)
	a.loaded = a.loaded || !m.state.Head.Hash.IsZero()
	return answer
}

// hear takes what an effect tells.
func (a *actor) hear(ctx context.Context, e event) {
	defer a.guard(nil)
	if e.done == nil {
		a.host.ports.Follower.Streamed(a.id, e.delta)
		return
	}
	a.machine.complete(ctx, *e.done)
}

func (a *actor) advance(ctx context.Context) (wake time.Time) {
	if !a.loaded {
		return time.Time{}
	}
	defer func() {
		if a.machine.stopped != nil {
			wake = a.machine.again()
		}
	}()
	defer a.guard(nil)
	return a.machine.advance(ctx)
}

// guard keeps a fault of ours in its thread: the thread stops, is reported, and is read anew, the first time by itself,
// later by the next command.
func (a *actor) guard(err *error) {
	r := recover()
	if r == nil {
		return
	}
	failure := fmt.Errorf("thread %s: %v: %w", a.id, r, errPanicked)
	a.machine.stop(failure)
	if err != nil {
		*err = failure
	}
}

var errPanicked = fault.New(fault.Internal, "internal", "internal error")

// pause says how long to wait when nothing happens.
func (a *actor) pause(wake time.Time) time.Duration {
	if wake.IsZero() {
		return IdleAfter
	}
	return max(0, wake.Sub(a.host.ports.Now()))
}
