// Package shelltools gives the built-in loop its tools: read, write, edit, glob, grep and bash.
//
// A call has two steps. Plan looks at the input and the names of the files only, and says which link-free paths the
// call touches; whatever depends on a file's content is left to Run, so that a call cannot learn anything that the
// policy would have refused. Run touches exactly the planned paths or fails: a symbolic link that appeared in
// between is not followed (place.go), a file that changed in between is not overwritten (effect.go). Commands run
// under a [command.Runner].
//
// What is wrong with a call is told to the model as an error result. Results hold valid UTF-8, never more text than
// [MaxOutput], and never none.
package shelltools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"condensate.dev/cnd/core/command"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

// Tools implements [loop.Tools].
type Tools struct {
	commands command.Runner
	env      []string // environment of every command
	shell    string   // absolute path of the program behind bash
	closed   []string // folders that glob and grep leave out
	writing  sync.Mutex
}

var _ loop.Tools = (*Tools)(nil)

// Options are what Tools are made of.
type Options struct {
	Commands command.Runner
	// Closed are link-free folders that glob and grep leave out of what they find in a folder above. To name a path in
	// one is the policy's matter.
	Closed []string
}

// New returns tools whose commands see the variables of this process that [inherited] lists, and nothing else of it.
func New(o Options) *Tools {
	return &Tools{commands: o.Commands, env: environment(), shell: shell(), closed: o.Closed}
}

// tool is one tool. What is wrong with a call is an error whose text is for the model.
type tool interface {
	// plan must not look into files.
	plan(c loop.Call) (loop.Plan, error)
	run(ctx context.Context, c loop.Call, p loop.Plan, progress func(string)) (loop.Outcome, error)
	recover(ctx context.Context, c loop.Call, started thread.ToolStarted) loop.Outcome
}

func (t *Tools) tool(name string) tool {
	switch name {
	case nameRead:
		return safe[readInput]{tools: t, do: read}
	case nameGlob:
		return safe[globInput]{tools: t, do: glob}
	case nameGrep:
		return safe[grepInput]{tools: t, do: grep}
	case nameWrite:
		return change[writeInput]{tools: t}
	case nameEdit:
		return change[editInput]{tools: t}
	case nameBash:
		return bash{tools: t}
	default:
		return nil
	}
}

// Plan implements [loop.Tools]. It has no faults: every problem is the call's.
func (t *Tools) Plan(_ context.Context, c loop.Call) (loop.Plan, error) {
	tool := t.tool(c.Name)
	if tool == nil {
		return refused(fmt.Errorf("there is no tool %.80q; the tools are %s", c.Name, strings.Join(names, ", "))), nil
	}
	p, err := tool.plan(c)
	if err != nil {
		return refused(err), nil
	}
	return p, nil
}

func refused(err error) loop.Plan {
	return loop.Plan{Replay: thread.ReplaySafe, Refused: failure(err)}
}

// Run implements [loop.Tools].
func (t *Tools) Run(ctx context.Context, c loop.Call, p loop.Plan, progress func(text string)) loop.Outcome {
	begun := time.Now()
	o, err := t.tool(c.Name).run(ctx, c, p, progress)
	if err != nil {
		o = loop.Outcome{Result: failure(err)}
	}
	if o.Result != nil && o.Result.Elapsed == 0 {
		o.Result.Elapsed = time.Since(begun)
	}
	return o
}

// Recover implements [loop.Tools].
func (t *Tools) Recover(ctx context.Context, c loop.Call, started thread.ToolStarted) loop.Outcome {
	tool := t.tool(c.Name)
	if tool == nil { // started by a program that had more tools
		return loop.Outcome{Unknown: &thread.ToolUnknown{Cause: thread.CauseCrash}}
	}
	return tool.recover(ctx, c, started)
}

// named is an input that names one file or folder, "" for the thread's folder.
type named interface{ name() string }

// checked is an input with rules beyond its types.
type checked interface{ check() error }

// parse reads the input of a call strictly and resolves the path that it names.
func parse[I named](c loop.Call) (input I, f folder, path string, err error) {
	if input, err = decode[I](c.Input); err != nil {
		return input, f, "", err
	}
	if f, err = openFolder(c.Cwd); err != nil {
		return input, f, "", err
	}
	path, err = f.resolve(input.name())
	return input, f, path, err
}

func decode[I any](text json.RawMessage) (input I, err error) {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	err = d.Decode(&input)
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("there is something after the object")
	}
	if err != nil {
		return input, fmt.Errorf("the input does not fit the tool's schema: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if c, ok := any(input).(checked); ok {
		return input, c.check()
	}
	return input, nil
}

// replan parses the call again and makes sure that it still names the planned path.
func replan[I named](c loop.Call, p loop.Plan) (input I, f folder, path string, err error) {
	input, f, path, err = parse[I](c)
	if err == nil && (len(p.Paths) != 1 || p.Paths[0] != path) {
		err = errMoved
	}
	return input, f, path, err
}

// safe is a tool that changes nothing and may run again after a crash.
type safe[I named] struct {
	tools *Tools
	do    func(ctx context.Context, f folder, path string, input I) (loop.Result, error)
}

func (s safe[I]) plan(c loop.Call) (loop.Plan, error) {
	_, _, path, err := parse[I](c)
	return loop.Plan{Replay: thread.ReplaySafe, Paths: []string{path}}, err
}

func (s safe[I]) run(ctx context.Context, c loop.Call, p loop.Plan, _ func(string)) (loop.Outcome, error) {
	input, f, path, err := replan[I](c, p)
	if err != nil {
		return loop.Outcome{}, err
	}
	f.closed = s.tools.closed
	r, err := s.do(ctx, f, path, input)
	if ctx.Err() != nil {
		err = errStopped
	}
	return loop.Outcome{Result: &r}, err
}

func (s safe[I]) recover(context.Context, loop.Call, thread.ToolStarted) loop.Outcome {
	return loop.Outcome{NotDone: true}
}
