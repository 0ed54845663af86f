package supervise

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
)

// child is a daemon of a test: a script that gets --ready-fd 3 --lifeline-fd 4 as its arguments.
func child(t *testing.T, script string) Daemon {
	stderr, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { stderr.Close() })
	return Daemon{
		Name: "child", Path: "/bin/sh", Args: []string{"-c", script, "child"}, Env: append(os.Environ(), "DIR="+t.TempDir()), Stderr: stderr,
	}
}

// keep runs Keep in the background and returns its events and its end.
func keep(ctx context.Context, d Daemon, kill <-chan struct{}) (<-chan Event, <-chan error) {
	events, ended := make(chan Event, 16), make(chan error, 1)
	go func() { ended <- Keep(ctx, d, kill, func(e Event) { events <- e }) }()
	return events, ended
}

const serving = `[ "$*" = "--ready-fd 3 --lifeline-fd 4" ] || exit 64; echo >&3; exec 3>&-; `

// A daemon that was killed is started again, and stopped in the end.
func TestKeepRestarts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := keep(ctx, child(t, serving+`exec cat <&4`), nil)
	first := <-events
	require.Equal(t, Ready, first.State)
	group, err := syscall.Getpgid(first.PID)
	require.NoError(t, err)
	require.Equal(t, first.PID, group, "Ctrl-C at the terminal must not reach it")
	require.NoError(t, syscall.Kill(first.PID, syscall.SIGKILL))
	died := <-events
	require.Equal(t, Event{Daemon: "child", State: Died, PID: first.PID, Why: "signal: killed", Delay: MinBackoff}, died)
	second := <-events
	require.Equal(t, Ready, second.State)
	require.NotEqual(t, first.PID, second.PID)

	require.NoError(t, syscall.Kill(second.PID, syscall.SIGKILL))
	require.Equal(t, 2*MinBackoff, (<-events).Delay, "it died young: the pause doubles")
	third := <-events
	cancel()
	require.NoError(t, <-ended)
	require.ErrorIs(t, syscall.Kill(third.PID, 0), syscall.ESRCH)
}

// An end that a restart does not change is handed on with its class.
func TestKeepGivesUp(t *testing.T) {
	for code, class := range permanent {
		events, ended := keep(t.Context(), child(t, `exit `+strconv.Itoa(code)), nil)
		err := <-ended
		require.Equal(t, class, fault.ClassOf(err), "code %d", code)
		require.ErrorContains(t, err, "child ended with code "+strconv.Itoa(code))
		require.Empty(t, events)
	}
	_, ended := keep(t.Context(), Daemon{Name: "none", Path: "/nonexistent"}, nil)
	require.Equal(t, fault.Config, fault.ClassOf(<-ended))
}

// SIGTERM lets a daemon drain; closing kill does not wait for it.
func TestKeepStops(t *testing.T) {
	for _, killed := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		kill := make(chan struct{})
		d := child(t, `trap 'echo drained >&2; [ -n "$DRAINS" ] && exit 0' TERM; `+serving+`while :; do read line <&4; done`)
		if !killed {
			d.Env = append(d.Env, "DRAINS=1")
		}
		events, ended := keep(ctx, d, kill)
		require.Equal(t, Ready, (<-events).State)
		cancel()
		if killed {
			close(kill)
		}
		require.NoError(t, <-ended)
		log, err := os.ReadFile(d.Stderr.Name())
		require.NoError(t, err)
		if !killed {
			require.Contains(t, string(log), "drained\n")
		}
	}
}
