package shelltools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/command"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

func TestBash(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		command, want string
		code          int
	}{
		{"echo out; echo err >&2", "out\nerr\n", 0},
		{"true", "(no output)", 0},
		{"pwd; echo $PWD", b.cwd + "\n" + b.cwd + "\n", 0},
		{"printf half; exit 3", "half\n[exit code 3]\n", 3},
		{"exit 3", "[exit code 3]\n", 3},
		{"printf 'caf\\xe9\\n'", "caf\uFFFD\n", 0},
		{"[[ a == a ]] && echo bash", "bash\n", 0},
		{"kill -9 $$", "[exit code 137]\n", 137},
		{"no_such_program_here 2>/dev/null", "[exit code 127]\n", 127},
	} {
		r := b.do("bash", bashInput{Command: c.command})
		require.Equal(t, c.want, textOf(r), c.command)
		require.Equal(t, c.code, *r.ExitCode, c.command)
		require.Equal(t, c.code != 0, r.IsError, c.command)
		require.Zero(t, r.CutBytes)
		require.Empty(t, r.Spool)
	}
}

// TestBashStreams shows that output comes while the command runs, in whole characters.
func TestBashStreams(t *testing.T) {
	b := newBench(t)
	gate := b.path("gate")
	c := b.call("bash", bashInput{Command: "mkfifo gate; printf 'ready \\xe2\\x82'; cat gate; printf '\\xac end'"})
	var live []string
	o := b.tools.Run(t.Context(), c, b.plan(c), func(text string) {
		require.True(t, utf8.ValidString(text))
		live = append(live, text)
		if text == "ready " {
			require.NoError(t, os.WriteFile(gate, nil, 0))
		}
	})
	require.Equal(t, "ready € end", textOf(o.Result))
	require.Equal(t, "ready € end", strings.Join(live, ""))
	require.Equal(t, "ready ", live[0])
}

// TestBashMuch: what does not fit is cut out of the middle, counted, and kept in a file.
func TestBashMuch(t *testing.T) {
	b := newBench(t)
	r := b.do("bash", bashInput{Command: `echo first; head -c 1000000 /dev/zero | tr "\0" "x"; echo; echo last; exit 1`})
	text := textOf(r)
	require.LessOrEqual(t, len(text), MaxOutput)
	require.Greater(t, len(text), MaxOutput*9/10)
	require.True(t, strings.HasPrefix(text, "first\nxxx"))
	require.Contains(t, text, "xxx\nlast\n[exit code 1]\n[the output is in "+r.Spool+"]\n")
	kept, err := os.ReadFile(r.Spool)
	require.NoError(t, err)
	require.Len(t, kept, 1_000_000+len("first\n\nlast\n"))
	require.Equal(t, int64(len(kept)), r.CutBytes+int64(strings.Count(text, "x")-strings.Count(r.Spool, "x")-1)+int64(len("first\n\nlast\n")), "every byte is shown or counted")
}

func TestBashTimeout(t *testing.T) {
	b := newBench(t)
	r := b.do("bash", bashInput{Command: "echo begun; sleep 100", TimeoutMS: 200})
	require.True(t, r.IsError)
	require.Nil(t, r.ExitCode)
	require.Equal(t, "begun\n[stopped: it ran longer than 200ms]\n", textOf(r))
	require.Equal(t, command.DefaultTimeout, bashInput{}.timeout())
	require.Equal(t, command.MaxTimeout, bashInput{TimeoutMS: 1 << 60}.timeout())
}

func TestBashInterrupted(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := b.call("bash", bashInput{Command: "echo begun; sleep 100"})
	p := b.plan(c)
	o := b.tools.Run(ctx, c, p, func(string) { cancel() })
	requireOne(t, o)
	require.Equal(t, thread.ToolUnknown{Cause: thread.CauseInterrupt, Partial: "begun\n"}, *o.Unknown)
	require.Equal(t, thread.ToolUnknown{Cause: thread.CauseCrash, Partial: "begun\n"}, *b.tools.Recover(t.Context(), c, thread.ToolStarted{}).Unknown)
	require.Equal(t, thread.CauseCrash, b.run(c, p).Unknown.Cause, "a second start is refused")

	early := b.call("bash", bashInput{Command: "echo x >effect"})
	o = b.tools.Run(ctx, early, b.plan(early), func(string) {})
	require.Equal(t, errStopped.Error(), textOf(o.Result))
	require.NoFileExists(t, b.path("effect"))
}

// TestBashEnvironment: commands see what is listed and nothing else of the runtime.
func TestBashEnvironment(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "GITHUB_TOKEN", "CONDENSATE_CONFIG_DIR", "SSH_AUTH_SOCK", "LD_PRELOAD_X", "BASH_ENV"} {
		t.Setenv(name, "canary")
	}
	t.Setenv("TZ", "Europe/Berlin")
	b := newBench(t)
	text := b.text("bash", bashInput{Command: "env"})
	require.NotContains(t, text, "canary")
	require.Contains(t, text, "TZ=Europe/Berlin\n")
	require.Contains(t, text, "PATH="+os.Getenv("PATH")+"\n")
	allowed := append([]string{"PATH", "PWD", "OLDPWD", "SHLVL", "_", guardMark}, inherited...)
	for _, pair := range fixed {
		name, _, _ := strings.Cut(pair, "=")
		allowed = append(allowed, name)
	}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "=")
		require.Contains(t, allowed, name)
	}
}

const guardMark = "CONDENSATE_CALL"

// TestBashStatus goes through everything that a runner may say, live and after a crash.
func TestBashStatus(t *testing.T) {
	output := filepath.Join(t.TempDir(), "output")
	require.NoError(t, os.WriteFile(output, []byte("seen"), 0o600))
	status := func(s command.Status) command.Status {
		s.Output, s.Kept = output, 4
		return s
	}
	code := func(o loop.Outcome) int { return *o.Result.ExitCode }
	for _, c := range []struct {
		name            string
		status          command.Status
		err             error
		live, recovered func(t *testing.T, o loop.Outcome)
	}{
		{"exited", status(command.Status{State: command.Exited, Code: 2, Elapsed: time.Second}), nil,
			func(t *testing.T, o loop.Outcome) {
				require.Equal(t, 2, code(o))
				require.Equal(t, time.Second, o.Result.Elapsed)
			},
			func(t *testing.T, o loop.Outcome) {
				require.Equal(t, 2, code(o))
				require.Equal(t, "seen\n[exit code 2]\n", textOf(o.Result))
			}},
		{"left", status(command.Status{State: command.Exited, Left: 3, Dropped: 7}), nil,
			func(t *testing.T, o loop.Outcome) {
				require.Equal(t, "seen\n[3 of its processes could not be ended and still run]\n[7 bytes after that were not kept]\n[the output is in "+output+"]\n", textOf(o.Result))
				require.EqualValues(t, 7, o.Result.CutBytes)
				require.Equal(t, output, o.Result.Spool)
			}, nil},
		{"output pruned", command.Status{State: command.Exited, Output: "/gone", Kept: 9}, nil, nil,
			func(t *testing.T, o loop.Outcome) {
				require.False(t, o.Result.IsError)
				require.Equal(t, "[its output is not there any more]\n", textOf(o.Result))
			}},
		{"timeout", status(command.Status{Cause: command.CauseTimeout}), nil,
			func(t *testing.T, o loop.Outcome) { require.True(t, o.Result.IsError) },
			func(t *testing.T, o loop.Outcome) {
				require.Equal(t, "seen\n[stopped: it ran longer than 2m0s]\n", textOf(o.Result))
			}},
		{"lost", status(command.Status{Cause: command.CauseLost}), nil,
			func(t *testing.T, o loop.Outcome) {
				require.Equal(t, thread.ToolUnknown{Cause: "crash", Partial: "seen"}, *o.Unknown)
			},
			func(t *testing.T, o loop.Outcome) {
				require.Equal(t, thread.ToolUnknown{Cause: "crash", Partial: "seen"}, *o.Unknown)
			}},
		{"abandoned", status(command.Status{Cause: command.CauseAbandoned}), nil, nil,
			func(t *testing.T, o loop.Outcome) {
				require.Equal(t, thread.ToolUnknown{Cause: "crash", Partial: "seen"}, *o.Unknown)
			}},
		{"the zero status claims nothing", command.Status{}, nil,
			func(t *testing.T, o loop.Outcome) { require.NotNil(t, o.Unknown) }, nil},
		{"never started", command.Status{State: command.NeverStarted, Problem: "no fork"}, nil,
			func(t *testing.T, o loop.Outcome) {
				require.Equal(t, "the command was not started: no fork", textOf(o.Result))
			},
			func(t *testing.T, o loop.Outcome) { require.True(t, o.NotDone) }},
		{"fault", command.Status{}, errors.New("disk on fire"),
			func(t *testing.T, o loop.Outcome) {
				require.Equal(t, "the command was not started: disk on fire", textOf(o.Result))
			},
			func(t *testing.T, o loop.Outcome) { require.NotNil(t, o.Unknown) }},
		{"started before", command.Status{}, fmt.Errorf("run: %w", command.ErrStarted),
			func(t *testing.T, o loop.Outcome) { require.Equal(t, "crash", o.Unknown.Cause) }, nil},
		{"still runs", command.Status{}, fmt.Errorf("recover: %w", command.ErrRunning), nil,
			func(t *testing.T, o loop.Outcome) { require.Equal(t, "crash", o.Unknown.Cause) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t).withCommands(fakeCommands{
				run:     func(context.Context, command.Command, func([]byte)) (command.Status, error) { return c.status, c.err },
				recover: func() (command.Status, error) { return c.status, c.err },
			})
			call := b.call("bash", bashInput{Command: "x"})
			if c.live != nil {
				c.live(t, b.run(call, b.plan(call)))
			}
			if c.recovered != nil {
				o := b.tools.Recover(t.Context(), call, thread.ToolStarted{})
				requireOne(t, o)
				c.recovered(t, o)
			}
		})
	}
}
