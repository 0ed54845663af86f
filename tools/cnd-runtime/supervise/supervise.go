// Package supervise keeps a child daemon running: it starts it, waits until it says that it is ready, starts it again
// when it dies and stops it in the end.
//
// A child runs in a process group of its own, so that Ctrl-C at the terminal reaches the supervisor alone. It gets two
// pipes: --ready-fd, on which it writes a newline when it serves, and --lifeline-fd, whose end tells it that the
// supervisor is gone, however it went.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"condensate.dev/cnd/core/fault"
)

// Limits of restarting and stopping.
const (
	// MinBackoff is the pause before the first restart; it doubles with each death up to MaxBackoff and starts over
	// after a child that stayed up for Stable.
	MinBackoff = 100 * time.Millisecond
	MaxBackoff = 5 * time.Second
	Stable     = 10 * time.Second
	// StopGrace is how long a child may drain after SIGTERM before it is killed; longer than lifecycle.ShutdownGrace.
	StopGrace = 25 * time.Second
)

// codeRefused is the code of the fault for a child that ended in a way that a restart does not change.
const codeRefused = "child-refused"

// permanent are the exit codes of a child that would end the same way again, with the class that they stand for.
var permanent = map[int]fault.Class{64: fault.Usage, 73: fault.Conflict, 74: fault.Corrupt, 78: fault.Config}

// Daemon is a program to keep running.
type Daemon struct {
	Name   string // for people
	Path   string
	Args   []string // without the flags for the two pipes
	Env    []string // the whole environment
	Stderr *os.File // where its log goes; a file, so that no writer of ours stands between
}

// States of an [Event].
const (
	Ready = "ready" // it serves
	Died  = "died"  // it ended and starts again after Delay
)

// Event tells what happened to a daemon.
type Event struct {
	Daemon string
	State  string
	PID    int
	Why    string        // how it died: "signal: killed", "exit status 75"
	Delay  time.Duration // until it is started again
}

// Keep keeps d running until ctx is done, then stops it: SIGTERM, and SIGKILL after [StopGrace] or as soon as kill is
// closed. It returns nil after that, and an error with the child's own class when restarting is of no use. on hears of
// each change, from one goroutine.
func Keep(ctx context.Context, d Daemon, kill <-chan struct{}, on func(Event)) error {
	delay := MinBackoff
	for {
		began := time.Now()
		p, err := start(d)
		if err != nil {
			return fmt.Errorf("start %s: %w", d.Name, fault.New(fault.Config, codeRefused, err.Error()))
		}
		err = p.watch(ctx, kill, func() { on(Event{Daemon: d.Name, State: Ready, PID: p.cmd.Process.Pid}) })
		if ctx.Err() != nil {
			return nil
		}
		code := p.cmd.ProcessState.ExitCode()
		if class, ok := permanent[code]; ok {
			return fault.New(class, codeRefused, fmt.Sprintf("%s ended with code %d; its log %s says why", d.Name, code, d.Stderr.Name()))
		}
		if time.Since(began) >= Stable {
			delay = MinBackoff
		}
		on(Event{Daemon: d.Name, State: Died, PID: p.cmd.Process.Pid, Why: why(err), Delay: delay})
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
		delay = min(2*delay, MaxBackoff)
	}
}

// process is a started child.
type process struct {
	cmd      *exec.Cmd
	lifeline *os.File      // our side; its end tells the child that we are gone
	ready    chan struct{} // closed when the child said that it serves
	ended    chan error    // gets what Wait returned, once
}

func start(d Daemon) (*process, error) {
	readyOurs, readyTheirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	lifelineTheirs, lifelineOurs, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, readyOurs.Close(), readyTheirs.Close())
	}
	cmd := exec.Command(d.Path, append(d.Args[:len(d.Args):len(d.Args)], "--ready-fd", "3", "--lifeline-fd", "4")...)
	cmd.Env = d.Env
	cmd.Stderr = d.Stderr
	cmd.ExtraFiles = []*os.File{readyTheirs, lifelineTheirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	readyTheirs.Close()
	lifelineTheirs.Close()
	if err != nil {
		return nil, errors.Join(err, readyOurs.Close(), lifelineOurs.Close())
	}
	p := &process{cmd: cmd, lifeline: lifelineOurs, ready: make(chan struct{}), ended: make(chan error, 1)}
	go func() {
		defer readyOurs.Close()
		if _, err := io.ReadFull(readyOurs, make([]byte, 1)); err == nil {
			close(p.ready)
		}
	}()
	go func() { p.ended <- cmd.Wait() }()
	return p, nil
}

// watch waits until the child has ended, by itself or because ctx is done, and returns what Wait did.
func (p *process) watch(ctx context.Context, kill <-chan struct{}, ready func()) error {
	defer p.lifeline.Close()
	announced := p.ready
	for {
		select {
		case <-announced:
			ready()
			announced = nil
		case err := <-p.ended:
			return err
		case <-ctx.Done():
			return p.stop(kill)
		}
	}
}

func (p *process) stop(kill <-chan struct{}) error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	grace := time.NewTimer(StopGrace)
	defer grace.Stop()
	select {
	case err := <-p.ended:
		return err
	case <-grace.C:
	case <-kill:
	}
	p.cmd.Process.Kill()
	return <-p.ended
}

func why(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
