// Package command is the port through which programs are started on behalf of a thread.
//
// A command belongs to one call of one thread and is started at most once: whoever dies in between, what is known of
// it afterwards is a [Status] that never claims more than what happened. Everything that a command started ends with
// it, and with the program that asked for it.
package command

import (
	"context"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// Limits of a command.
const (
	// DefaultTimeout is how long a command may run when its Timeout is 0.
	DefaultTimeout = 2 * time.Minute
	// MaxTimeout is the longest timeout; a longer one is cut to it.
	MaxTimeout = 10 * time.Minute
	// MaxKept is how much output is kept of one command, in bytes. What comes after it is counted and dropped; the
	// command goes on.
	MaxKept = 64 << 20
)

// Errors of a Runner.
var (
	// ErrStarted: the call was started before, by this process or by one that is gone. It is not started again.
	ErrStarted = fault.New(fault.Conflict, "call-already-started", "the call was started before")
	// ErrRunning: the call still runs although everything was tried to end it.
	ErrRunning = fault.New(fault.Unavailable, "call-still-running", "the call still runs")
	// ErrInvalid: the command cannot be written down for a runner.
	ErrInvalid = fault.New(fault.Invalid, "invalid-command", "not a command")
)

// Command is a program to run for a call.
type Command struct {
	Thread  record.ThreadID
	Call    string        // "<request seq>.<index>"; with Thread it names the call for ever
	Dir     string        // absolute working folder; the command does not start without it
	Args    []string      // absolute path of the program, then its arguments
	Env     []string      // the whole environment, "name=value"; nothing is inherited
	Timeout time.Duration // 0 is DefaultTimeout
}

// State says how far a command came. The zero value is the careful one: it may have done anything.
type State uint8

// The states.
const (
	Killed       State = iota // it started and was ended before it was done, or nobody saw its end; Cause says why
	Exited                    // it started and ended by itself; Code says how
	NeverStarted              // it certainly did nothing; Problem says why, if anything was wrong
)

var stateNames = [...]string{Killed: "killed", Exited: "exited", NeverStarted: "never-started"}

// String returns the name of s as it stands in JSON.
func (s State) String() string { return stateNames[s] }

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; an unknown name is Killed, the careful state.
func (s *State) UnmarshalText(text []byte) error {
	*s = Killed
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
		}
	}
	return nil
}

// Causes of a killed command.
const (
	CauseTimeout   = "timeout"   // it ran into its timeout
	CauseAbandoned = "abandoned" // the program that asked for it canceled it or died
	CauseLost      = "lost"      // its guard was killed; nobody saw how it ended
)

// Status is what is known of a command when nothing of it runs any more.
type Status struct {
	State   State
	Code    int           // of an exited command; 128 and the number of the signal when one ended it
	Cause   string        // of a killed command
	Problem string        // why it never started; one sentence
	Output  string        // file with what it printed, stdout and stderr as they came; "" when it never started
	Kept    int64         // bytes in that file
	Dropped int64         // bytes printed beyond MaxKept
	Left    int           // processes that could not be ended, for example of another user; 0 is the normal case
	Elapsed time.Duration // from its start to its end; 0 when nobody saw it
}

// Runner starts commands and ends everything that they started. It is safe for concurrent use.
type Runner interface {
	// Run starts the command and returns when nothing of it runs any more. A canceled context ends it. output gets
	// what it prints as it comes, up to MaxKept bytes, from the calling goroutine. A call that was started before is
	// refused with an error wrapping ErrStarted; after any error of Run the command did not start.
	Run(ctx context.Context, c Command, output func([]byte)) (Status, error)

	// Recover says what became of a call that another process may have started. It waits, for a bounded time, until
	// nothing of the call runs any more, and ends what does not end by itself. An error wraps ErrRunning or says why
	// the status could not be read.
	Recover(ctx context.Context, thread record.ThreadID, call string) (Status, error)
}
