package chat

import (
	"context"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
)

// Pauses between attempts to reach a runtime that is away.
const (
	MinPause = 100 * time.Millisecond
	MaxPause = 2 * time.Second
)

// command is something that the person said, on its way to the runtime. It can be repeated: do carries ids by which
// the runtime knows it again.
type command struct {
	what string // for people: "message", "answer"
	do   func(ctx context.Context) (loop.Receipt, error)
	// refused, if set, is called by the chat when the runtime refused it.
	refused func(err error)
}

// delivery is what became of a command.
type delivery struct {
	command
	receipt loop.Receipt
	err     error // the runtime refused it
}

// deliver takes commands in order, one at a time, and repeats each until the runtime has answered it. It ends with ctx.
func deliver(ctx context.Context, commands <-chan command, done chan<- delivery) {
	for {
		select {
		case c := <-commands:
			receipt, err := persist(ctx, c)
			select {
			case done <- delivery{c, receipt, err}:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// persist repeats c while the runtime is away.
func persist(ctx context.Context, c command) (loop.Receipt, error) {
	for pause := MinPause; ; pause = min(2*pause, MaxPause) {
		receipt, err := c.do(ctx)
		if err == nil || fault.ClassOf(err) != fault.Unavailable || !wait(ctx, pause) {
			return receipt, err
		}
	}
}

// wait returns false when ctx was done before d had passed.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
