// Package guard runs commands so that nothing of them outlives the runtime, and so that a runtime that was killed finds
// out afterwards what became of them.
//
// A command is never a child of the runtime. The runtime starts a guard, which is the same binary under another name
// ([Main]), in a session of its own, and holds a pipe to it. The guard starts the command and waits for the first of:
// the command ends, its timeout passes, the pipe is at its end because the runtime canceled or died (SIGKILL
// included). Then it ends every process that descends from the command: SIGTERM, after [TermGrace] SIGKILL, until none
// is left. A command is over when its main process ends: what it left in the background ends too.
//
// # Layout
//
//	<dir>/<thread>/<call>/lock         held with flock by the guard as long as it lives; holds its process id
//	<dir>/<thread>/<call>/started      made with O_EXCL and synced before the command starts: it never starts twice
//	<dir>/<thread>/<call>/output       what the command printed, stdout and stderr as they came
//	<dir>/<thread>/<call>/status.json  how it ended; written to a temporary file, synced, renamed
//
// No started and the lock free: the command did nothing and never will. No status.json, started there and the lock
// free: the guard itself was killed.
//
// # What can escape
//
// On Linux the guard is the subreaper of all that it starts, so a process cannot leave by a new session, a double fork
// or an ignored signal. When the guard itself is killed, the kernel kills the command's main process, and the rest is
// found by a variable in its environment ([Mark]). On macOS, where there is neither subreaper nor /proc, the process
// group and the tree of children are ended, but a process that has both left the group and lost its parent escapes.
// Nowhere can the guard end processes of another user (sudo) or what a service was asked to do (docker run).
package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"condensate.dev/cnd/core/command"
	"condensate.dev/cnd/core/record"
)

// How long ending takes. Together they stay under the 2 s in which a thread's processes must be gone.
const (
	// LingerGrace is how long what a command left in the background may go on after the command ended by itself, so
	// that the end of a pipeline is not cut off.
	LingerGrace = 100 * time.Millisecond
	// TermGrace is the time between SIGTERM and SIGKILL.
	TermGrace = 800 * time.Millisecond
	// KillGrace is how long SIGKILL is repeated before what is left is counted and left alone.
	KillGrace = 500 * time.Millisecond
	// DrainGrace is how long output is awaited after everything is gone; only an escaped process makes it wait.
	DrainGrace = 100 * time.Millisecond
	// HangGrace is how long a canceled or orphaned guard may take in all. Then it is killed, and the rest is ended
	// without it.
	HangGrace = 3 * time.Second
)

// Word is the first argument of a program that must call [Main] at once with the arguments after it.
const Word = "guard"

// Mark is the name of the variable that every command has in its environment; its value is "<thread>/<call>".
const Mark = "CONDENSATE_CALL"

// processName is the guard's own name in lists of processes, so that "killall cnd-runtime" does not kill guards.
const processName = "cnd-guard"

// Guard is the runtime's side. It implements [command.Runner].
type Guard struct {
	dir  string
	self string
	runs atomic.Uint64

	mu      sync.Mutex               // guards what follows
	turns   map[string]chan struct{} // by the call's folder; see turn
	running map[string]bool          // folders of the calls that this Guard runs
}

var _ command.Runner = (*Guard)(nil)

// New returns a Guard that keeps its calls in dir, which is made when the first command runs.
func New(dir string) (*Guard, error) {
	self, err := executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start guards from: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	return &Guard{dir: dir, self: self, turns: make(map[string]chan struct{}), running: make(map[string]bool)}, nil
}

// order is the line that a guard reads from its standard input before it starts anything. It goes through the pipe
// because arguments and files can be read by others.
type order struct {
	Version   int      `json:"v"`
	Args      []string `json:"args"`
	Dir       string   `json:"dir"`
	Env       []string `json:"env"`
	TimeoutMS int64    `json:"timeout_ms"`
	Kept      int64    `json:"kept"` // most bytes of output to keep
}

func newOrder(c command.Command) ([]byte, error) {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = command.DefaultTimeout
	}
	o := order{
		Args: c.Args, Dir: c.Dir, TimeoutMS: min(timeout, command.MaxTimeout).Milliseconds(), Kept: command.MaxKept,
		Env: append(append([]string{}, c.Env...), Mark+"="+mark(c.Thread, c.Call)),
	}
	line, err := json.Marshal(o)
	switch {
	case err != nil:
		return nil, err
	case len(line) >= maxOrder:
		return nil, fmt.Errorf("command of %d bytes, limit %d: %w", len(line), maxOrder, command.ErrInvalid)
	}
	return append(line, '\n'), nil
}

// Run implements [command.Runner].
func (g *Guard) Run(ctx context.Context, c command.Command, output func([]byte)) (command.Status, error) {
	if err := ctx.Err(); err != nil {
		return command.Status{}, err
	}
	line, err := newOrder(c)
	if err != nil {
		return command.Status{}, fmt.Errorf("run call %s of %s: %w", c.Call, c.Thread, err)
	}
	if g.runs.Add(1)%pruneEvery == 0 {
		_ = prune(g.dir, MaxOutputs) // a full disk is reported by what needs it
	}
	call, err := g.claim(ctx, c.Thread, c.Call)
	if err != nil {
		return command.Status{}, fmt.Errorf("run call %s of %s: %w", c.Call, c.Thread, err)
	}
	defer g.ended(call)
	defer call.unlock()
	var complaint complaint
	guard := exec.Cmd{
		Path: g.self, Args: []string{processName, Word, call.dir}, Dir: "/", Env: []string{},
		Stderr: &complaint, ExtraFiles: []*os.File{call.lock}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	stdin, err := guard.StdinPipe()
	if err != nil {
		return command.Status{}, err
	}
	stdout, err := guard.StdoutPipe()
	if err != nil {
		return command.Status{}, err
	}
	if err := guard.Start(); err != nil {
		return command.Status{}, fmt.Errorf("start the guard of call %s of %s: %w", c.Call, c.Thread, err)
	}
	call.unlock() // from here on the guard alone holds the lock
	stop := abandonWhenDone(ctx, stdin, guard.Process)
	_, _ = stdin.Write(line) // a guard that is gone shows in its status
	call.follow(stdout, output)
	stop()
	_ = guard.Wait()

	status, err := call.settle()
	if err != nil { // it may have started: claim nothing
		return command.Status{Cause: command.CauseLost, Problem: err.Error()}, nil
	}
	if status.State == command.NeverStarted && status.Problem == "" && ctx.Err() == nil {
		status.Problem = "the guard ended before it started the command: " + complaint.String()
	}
	return status, nil
}

// abandonWhenDone closes the pipe to the guard when ctx is done, and kills a guard that does not react. The returned
// function closes the pipe and ends the watch.
func abandonWhenDone(ctx context.Context, pipe io.Closer, guard *os.Process) (stop func()) {
	over := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-over:
			_ = pipe.Close()
			return
		case <-ctx.Done():
			_ = pipe.Close()
		}
		hang := time.NewTimer(HangGrace)
		defer hang.Stop()
		select {
		case <-over:
		case <-hang.C:
			_ = guard.Kill()
		}
	}()
	return func() {
		close(over)
		<-watched
	}
}

// follow passes on what the command prints until the guard closes ticks. The output file is the buffer between them:
// a slow reader never holds up the command.
func (c *call) follow(ticks io.Reader, output func([]byte)) {
	var read int64
	chunk := make([]byte, 32<<10)
	tick := make([]byte, 512)
	for {
		_, over := ticks.Read(tick)
		read = c.pass(read, chunk, output)
		if over != nil {
			return
		}
	}
}

func (c *call) pass(from int64, chunk []byte, output func([]byte)) int64 {
	f, err := os.Open(c.path(outputFile))
	if err != nil {
		return from // nothing was printed yet
	}
	defer f.Close()
	for {
		n, err := f.ReadAt(chunk, from)
		if n > 0 {
			output(chunk[:n])
			from += int64(n)
		}
		if err != nil {
			return from
		}
	}
}

// complaint keeps the beginning of what a guard prints on stderr, which is nothing unless it fails.
type complaint struct{ bytes.Buffer }

const maxComplaint = 4 << 10 // bytes

func (c *complaint) Write(p []byte) (int, error) {
	c.Buffer.Write(p[:min(len(p), maxComplaint-c.Len())])
	return len(p), nil
}

func mark(thread record.ThreadID, call string) string { return string(thread) + "/" + call }
