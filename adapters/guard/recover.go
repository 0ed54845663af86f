package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"condensate.dev/cnd/core/command"
	"condensate.dev/cnd/core/record"
)

// Recover implements [command.Runner].
func (g *Guard) Recover(ctx context.Context, thread record.ThreadID, id string) (command.Status, error) {
	c, err := g.call(thread, id)
	if err != nil {
		return command.Status{}, err
	}
	over, err := g.turn(ctx, c)
	if err != nil {
		return command.Status{}, err
	}
	defer over()
	status, err := c.recover(ctx)
	if err != nil {
		return command.Status{}, fmt.Errorf("recover call %s of %s: %w", id, thread, err)
	}
	return status, nil
}

func (c *call) recover(ctx context.Context) (command.Status, error) {
	if !exists(c.path(lockFile)) {
		return command.Status{State: command.NeverStarted}, nil
	}
	locked, err := c.awaitLock(ctx, HangGrace)
	if err == nil && !locked {
		// The lock is held, so the process that wrote its id into it lives and the id is still its own.
		if pid := c.guardID(); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		locked, err = c.awaitLock(ctx, time.Second)
	}
	switch {
	case err != nil:
		return command.Status{}, err
	case !locked:
		return command.Status{}, command.ErrRunning
	}
	defer c.unlock()
	return c.settle()
}

// Sweep waits until no command of a dead runtime runs any more and ends what does not end by itself. A runtime calls
// it at its start, when no other one can run on the same folder; what this Guard runs by then is left alone. The error
// joins those of all calls.
func (g *Guard) Sweep(ctx context.Context) error {
	var problems []error
	err := eachCall(g.dir, func(_, thread, id string) {
		if err := g.sweep(ctx, record.ThreadID(thread), id); err != nil {
			problems = append(problems, fmt.Errorf("sweep call %s of %s: %w", id, thread, err))
		}
	})
	return errors.Join(append(problems, err)...)
}

func (g *Guard) sweep(ctx context.Context, thread record.ThreadID, id string) error {
	c, err := g.call(thread, id)
	if err != nil || exists(c.path(statusFile)) {
		return err // with a status, nothing runs any more
	}
	over, err := g.turn(ctx, c)
	if err != nil {
		return err
	}
	defer over()
	if g.isRunning(c) {
		return nil
	}
	_, err = c.recover(ctx)
	return err
}

// eachCall calls f for every call's folder below dir, in order of their names.
func eachCall(dir string, f func(dir, thread, id string)) error {
	threads, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, thread := range threads {
		if !record.ValidID(record.PrefixThread, thread.Name()) {
			continue
		}
		calls, err := os.ReadDir(filepath.Join(dir, thread.Name()))
		if err != nil {
			return err
		}
		for _, c := range calls {
			if callForm.MatchString(c.Name()) {
				f(filepath.Join(dir, thread.Name(), c.Name()), thread.Name(), c.Name())
			}
		}
	}
	return nil
}
