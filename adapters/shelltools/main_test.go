package shelltools

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"condensate.dev/cnd/adapters/guard"
	"condensate.dev/cnd/core/command"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guard.Word {
		syscall.Exit(guard.Main(os.Args[2:])) // os.Exit of a race build waits for a second
	}
	if len(os.Args) > 1 && os.Args[1] == writeOnce {
		syscall.Exit(playWrite(os.Args[2]))
	}
	syscall.Umask(0o022)
	goleak.VerifyTestMain(m)
}

// writeOnce is the first argument of a test binary that writes the file "f" in the folder of its second.
const writeOnce = "write-once"

func playWrite(dir string) int {
	tools, ctx := New(Options{}), context.Background()
	c := loop.Call{Thread: "thr_01arz3ndektsv4rrffq69g5fav", ID: "1.0", Cwd: dir, Name: nameWrite, Input: json.RawMessage(`{"path":"f","content":"new"}`)}
	p, _ := tools.Plan(ctx, c)
	if o := tools.Run(ctx, c, p, nil); o.Result == nil || o.Result.IsError {
		return 70
	}
	return 0
}

// bench is a thread's folder with tools that work in it.
type bench struct {
	*testing.T
	tools *Tools
	cwd   string
	calls int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	cwd, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	g, err := guard.New(filepath.Join(t.TempDir(), "calls"))
	require.NoError(t, err)
	return &bench{T: t, tools: New(Options{Commands: g}), cwd: cwd}
}

// withCommands replaces the guard.
func (b *bench) withCommands(r command.Runner) *bench {
	b.tools = New(Options{Commands: r})
	return b
}

func (b *bench) call(name string, input any) loop.Call {
	b.Helper()
	text, ok := input.(string)
	if !ok {
		raw, err := json.Marshal(input)
		require.NoError(b, err)
		text = string(raw)
	}
	b.calls++
	return loop.Call{
		Thread: "thr_01arz3ndektsv4rrffq69g5fav", ID: "7." + string(rune('a'+b.calls)), Cwd: b.cwd, Name: name, Input: json.RawMessage(text),
	}
}

func (b *bench) plan(c loop.Call) loop.Plan {
	b.Helper()
	p, err := b.tools.Plan(b.Context(), c)
	require.NoError(b, err)
	return p
}

func (b *bench) run(c loop.Call, p loop.Plan) loop.Outcome {
	b.Helper()
	o := b.tools.Run(b.Context(), c, p, func(string) {})
	requireOne(b, o)
	return o
}

// do plans and runs a call and returns its result, also one of the plan.
func (b *bench) do(name string, input any) *loop.Result {
	b.Helper()
	c := b.call(name, input)
	p := b.plan(c)
	if p.Refused != nil {
		return p.Refused
	}
	o := b.run(c, p)
	require.NotNil(b, o.Result)
	return o.Result
}

// text does a call that must succeed and returns its text.
func (b *bench) text(name string, input any) string {
	b.Helper()
	r := b.do(name, input)
	require.False(b, r.IsError, textOf(r))
	return textOf(r)
}

// failure does a call that must fail and returns its text.
func (b *bench) failure(name string, input any) string {
	b.Helper()
	r := b.do(name, input)
	require.True(b, r.IsError, textOf(r))
	return textOf(r)
}

func textOf(r *loop.Result) string {
	var text strings.Builder
	for _, block := range r.Content {
		text.WriteString(block.Text)
	}
	return text.String()
}

func (b *bench) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(b.cwd, name)
}

func (b *bench) put(name, content string) string {
	b.Helper()
	path := b.path(name)
	require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(b, os.WriteFile(path, []byte(content), 0o644))
	return path
}

func (b *bench) content(name string) string {
	b.Helper()
	content, err := os.ReadFile(b.path(name))
	require.NoError(b, err)
	return string(content)
}

func (b *bench) link(target, name string) {
	b.Helper()
	require.NoError(b, os.Symlink(target, b.path(name)))
}

// outside returns a folder that is not the thread's.
func (b *bench) outside() string {
	b.Helper()
	dir, err := filepath.EvalSymlinks(b.TempDir())
	require.NoError(b, err)
	return dir
}

func requireOne(t require.TestingT, o loop.Outcome) {
	n := 0
	for _, set := range []bool{o.Result != nil, o.NotDone, o.Unknown != nil} {
		if set {
			n++
		}
	}
	require.Equal(t, 1, n, "exactly one field of an outcome is set")
	if o.Result != nil {
		require.NotEmpty(t, o.Result.Content)
		total := 0
		for _, block := range o.Result.Content {
			total += len(block.Text)
			require.True(t, block.Type == thread.BlockImage || block.Text != "", "an empty text poisons a history")
		}
		require.LessOrEqual(t, total, record.InlineLimit)
	}
}

// fakeCommands is a runner made of functions.
type fakeCommands struct {
	run     func(ctx context.Context, c command.Command, output func([]byte)) (command.Status, error)
	recover func() (command.Status, error)
}

func (f fakeCommands) Run(ctx context.Context, c command.Command, output func([]byte)) (command.Status, error) {
	return f.run(ctx, c, output)
}

func (f fakeCommands) Recover(context.Context, record.ThreadID, string) (command.Status, error) {
	return f.recover()
}
