package shelltools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"condensate.dev/cnd/core/command"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

type bashInput struct {
	Command   string `json:"command"`
	TimeoutMS int64  `json:"timeout_ms"`
}

func (i bashInput) check() error {
	switch {
	case i.Command == "":
		return errors.New("command is missing")
	case strings.ContainsRune(i.Command, 0):
		return errors.New("the command holds a NUL character")
	case len(i.Command) > MaxCommand:
		return fmt.Errorf("the command has %d bytes; the limit is %d; write it into a file and run that", len(i.Command), MaxCommand)
	case i.TimeoutMS < 0:
		return errors.New("timeout_ms must be positive")
	}
	return nil
}

func (i bashInput) timeout() time.Duration {
	if i.TimeoutMS == 0 {
		return command.DefaultTimeout
	}
	return time.Duration(min(i.TimeoutMS, command.MaxTimeout.Milliseconds())) * time.Millisecond
}

// bash runs a command under the guard.
type bash struct{ tools *Tools }

func (t bash) plan(c loop.Call) (loop.Plan, error) {
	if _, err := decode[bashInput](c.Input); err != nil {
		return loop.Plan{}, err
	}
	_, err := openFolder(c.Cwd)
	return loop.Plan{Replay: thread.ReplayUnsafe, Writes: true}, err
}

func (t bash) run(ctx context.Context, c loop.Call, _ loop.Plan, progress func(string)) (loop.Outcome, error) {
	input, err := decode[bashInput](c.Input)
	if err != nil {
		return loop.Outcome{}, err
	}
	f, err := openFolder(c.Cwd)
	if err != nil {
		return loop.Outcome{}, err
	}
	live := stream{out: progress}
	status, err := t.tools.commands.Run(ctx, command.Command{
		Thread: c.Thread, Call: c.ID, Dir: f.path, Timeout: input.timeout(),
		Args: []string{t.tools.shell, "-c", input.Command}, Env: append(t.tools.env[:len(t.tools.env):len(t.tools.env)], "PWD="+f.path),
	}, live.write)
	live.flush()
	switch {
	case errors.Is(err, command.ErrStarted): // by somebody else, and nobody says how that went
		return loop.Outcome{Unknown: &thread.ToolUnknown{Cause: thread.CauseCrash}}, nil
	case ctx.Err() != nil && (err != nil || status.State == command.NeverStarted):
		return loop.Outcome{}, errStopped
	case err != nil:
		return loop.Outcome{}, fmt.Errorf("the command was not started: %w", err)
	}
	cause := thread.CauseCrash
	if ctx.Err() != nil {
		cause = thread.CauseInterrupt
	}
	return outcome(status, input, cause), nil
}

func (t bash) recover(ctx context.Context, c loop.Call, _ thread.ToolStarted) loop.Outcome {
	// It takes a bounded time, and giving up half-way would record that nobody knows.
	status, err := t.tools.commands.Recover(context.WithoutCancel(ctx), c.Thread, c.ID)
	if err != nil {
		return loop.Outcome{Unknown: &thread.ToolUnknown{Cause: thread.CauseCrash}}
	}
	if status.State == command.NeverStarted {
		return loop.Outcome{NotDone: true}
	}
	input, _ := decode[bashInput](c.Input) // it was good when the call started
	return outcome(status, input, thread.CauseCrash)
}

// outcome says what a command that started came to. Cause is why it would have been ended from outside.
func outcome(s command.Status, input bashInput, cause string) loop.Outcome {
	notes := ""
	switch {
	case s.State == command.NeverStarted:
		return loop.Outcome{Result: failure(errors.New("the command was not started: " + s.Problem))}
	case s.State == command.Exited && s.Code != 0:
		notes = fmt.Sprintf("[exit code %d]\n", s.Code)
	case s.Cause == command.CauseTimeout:
		notes = fmt.Sprintf("[stopped: it ran longer than %v]\n", input.timeout())
	}
	if s.Left > 0 {
		notes += fmt.Sprintf("[%d of its processes could not be ended and still run]\n", s.Left)
	}
	text, cut := printed(s, &notes)
	if s.State == command.Killed && s.Cause != command.CauseTimeout {
		return loop.Outcome{Unknown: &thread.ToolUnknown{Cause: cause, Partial: text + notes}}
	}
	if text == "" && notes == "" {
		notes = "(no output)"
	}
	r := textResult(text + notes)
	r.IsError = s.State != command.Exited || s.Code != 0
	r.Elapsed = s.Elapsed
	if s.State == command.Exited {
		r.ExitCode = &s.Code
	}
	if r.CutBytes = cut; cut > 0 {
		r.Spool = s.Output
	}
	return loop.Outcome{Result: &r}
}

// printed returns the command's output as far as it fits beside the notes, and how many bytes are left out.
func printed(s command.Status, notes *string) (text string, cut int64) {
	file, err := os.Open(s.Output)
	if err == nil {
		defer file.Close()
		text, cut, err = excerpt(file, s.Kept, MaxOutput-bashRoom)
	}
	if err != nil {
		*notes += "[its output is not there any more]\n"
		return "", s.Kept + s.Dropped
	}
	if s.Dropped > 0 {
		*notes += fmt.Sprintf("[%d bytes after that were not kept]\n", s.Dropped)
	}
	if cut += s.Dropped; cut > 0 {
		*notes += fmt.Sprintf("[the output is in %s]\n", s.Output)
	}
	if text != "" && text[len(text)-1] != '\n' && *notes != "" {
		text += "\n"
	}
	return text, cut
}

// bashRoom is what bash keeps free for the notes after the output, in bytes.
const bashRoom = 8 << 10
