package guard_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"condensate.dev/cnd/adapters/guard"
	"condensate.dev/cnd/core/command"
)

// escapes is a script whose descendants try all ways out that a shell knows. It prints "pid N" for each.
const escapes = `
trap "" TERM HUP INT
setsid sh -c 'trap "" TERM HUP; echo pid $$; while :; do sleep 1; done' &
nohup sh -c 'echo pid $$; exec sleep 1000' 2>/dev/null &
( ( setsid sh -c 'sh -c "trap \"\" TERM; echo pid \$\$; while :; do sleep 1; done" & exit 0' ) & )
env -i setsid sh -c 'echo pid $$; kill -STOP $$; sleep 1000' &
echo pid $$
while :; do sleep 1; done
`

const escapers = 5

// TestNothingStays: what a command leaves in the background ends with it, whatever way it came to its end.
func TestNothingStays(t *testing.T) {
	for _, end := range []string{"exit 0", "exit 3", "kill -9 $$", "sleep 1000"} {
		g, _ := open(t)
		c := shell(`sleep 1000 & setsid sleep 1000 & trap "" TERM HUP; ( setsid sleep 1000 & ) & echo ready; ` + end)
		c.Timeout = 300 * time.Millisecond
		status, err := g.Run(t.Context(), c, discard)
		require.NoError(t, err)
		require.Zero(t, status.Left)
		require.Equal(t, "ready\n", content(t, status))
		require.Empty(t, withMark(t), end)
	}
}

// TestKilledRuntime kills a runtime with SIGKILL: everything that it started is gone within two seconds, and the next
// runtime finds out what happened.
func TestKilledRuntime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "calls")
	runtime, pids := startRuntime(t, dir, escapes, escapers)
	killed := time.Now()
	require.NoError(t, runtime.Process.Kill())
	_ = runtime.Wait()
	requireGone(t, pids, killed.Add(2*time.Second))

	g, err := guard.New(dir)
	require.NoError(t, err)
	status, err := g.Recover(t.Context(), testThread, testCall)
	require.NoError(t, err)
	require.Equal(t, command.Killed, status.State)
	require.Equal(t, command.CauseAbandoned, status.Cause)
	require.Zero(t, status.Left)
	require.Equal(t, escapers, strings.Count(content(t, status), "pid "))
}

// TestKilledAnywhere kills runtimes at random moments of a call. Whatever the moment: what recovery says is true, the
// effect happens at most once, and a call that did nothing may be started again.
func TestKilledAnywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	states := map[command.State]int{}
	for range 40 {
		g, dir := open(t)
		marker := filepath.Join(t.TempDir(), "effect")
		script := "echo x >>" + marker + "; sleep 0.01"
		runtime := exec.Command(os.Args[0], fakeRuntime, dir, script, string(testThread))
		require.NoError(t, runtime.Start())
		<-time.After(time.Duration(r.IntN(100)) * time.Millisecond)
		_ = runtime.Process.Kill()
		_ = runtime.Wait()

		status, err := g.Recover(t.Context(), testThread, testCall)
		require.NoError(t, err)
		states[status.State]++
		effects, _ := os.ReadFile(marker)
		require.True(t, status.State != command.NeverStarted || len(effects) == 0, "%+v", status)
		require.True(t, status.State != command.Exited || len(effects) == 2, "%+v", status)
		_, err = g.Run(t.Context(), shell(script), discard)
		if status.State == command.NeverStarted {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, command.ErrStarted)
		}
		effects, _ = os.ReadFile(marker)
		require.LessOrEqual(t, len(effects), 2)
	}
	t.Log(states)
}

// TestRecoverWaits shows that Recover and Sweep return only when nothing runs any more.
func TestRecoverWaits(t *testing.T) {
	for name, wait := range map[string]func(*testing.T, *guard.Guard){
		"recover": func(t *testing.T, g *guard.Guard) {
			_, err := g.Recover(t.Context(), testThread, testCall)
			require.NoError(t, err)
		},
		"sweep": func(t *testing.T, g *guard.Guard) { require.NoError(t, g.Sweep(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "calls")
			runtime, pids := startRuntime(t, dir, escapes, escapers)
			require.NoError(t, runtime.Process.Kill())
			g, err := guard.New(dir)
			require.NoError(t, err)
			wait(t, g)
			for _, pid := range pids {
				require.False(t, alive(pid), "process %d", pid)
			}
			_ = runtime.Wait()
		})
	}
}

// TestSweepLeavesOwn sweeps while the same Guard runs a command, as a runtime does that serves already.
func TestSweepLeavesOwn(t *testing.T) {
	g, _ := open(t)
	release := filepath.Join(t.TempDir(), "release")
	require.NoError(t, syscall.Mkfifo(release, 0o600))
	output, seen := waitFor("ready")
	swept := make(chan error, 1)
	go func() {
		<-seen
		swept <- g.Sweep(t.Context())
		_ = os.WriteFile(release, nil, 0)
	}()
	status, err := g.Run(t.Context(), shell("echo ready; cat "+release+"; echo undisturbed"), output)
	require.NoError(t, err)
	require.Equal(t, command.Exited, status.State, "%+v", status)
	require.Equal(t, "ready\nundisturbed\n", content(t, status))
	require.NoError(t, <-swept)
}

// TestKilledGuard kills guard and runtime at once, as "killall" may do: the kernel ends the command, and the next
// runtime ends the rest.
func TestKilledGuard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "calls")
	script := strings.ReplaceAll(escapes, "env -i ", "") // the one way that is left: without the mark
	runtime, pids := startRuntime(t, dir, script, escapers)
	require.NoError(t, runtime.Process.Signal(syscall.SIGSTOP)) // it does not see the guard die
	require.NoError(t, syscall.Kill(guardOf(t, dir), syscall.SIGKILL))
	require.NoError(t, runtime.Process.Kill())
	_ = runtime.Wait()

	g, err := guard.New(dir)
	require.NoError(t, err)
	require.NoError(t, g.Sweep(t.Context()))
	requireGone(t, pids, time.Now().Add(2*time.Second))
	status, err := g.Recover(t.Context(), testThread, testCall)
	require.NoError(t, err)
	require.Equal(t, command.Killed, status.State)
	require.Equal(t, command.CauseLost, status.Cause)
	require.Equal(t, escapers, strings.Count(content(t, status), "pid "))
	_, err = g.Run(t.Context(), shell("true"), discard)
	require.ErrorIs(t, err, command.ErrStarted)
}

// TestLostGuard kills the guard under a living runtime.
func TestLostGuard(t *testing.T) {
	g, dir := open(t)
	output, seen := waitFor("ready")
	go func() {
		<-seen
		_ = syscall.Kill(guardOf(t, dir), syscall.SIGKILL)
	}()
	status, err := g.Run(t.Context(), shell("setsid sleep 1000 & echo ready; sleep 1000"), output)
	require.NoError(t, err)
	require.Equal(t, command.Killed, status.State)
	require.Equal(t, command.CauseLost, status.Cause)
	require.Empty(t, withMark(t))
}

// TestHungGuard stops the guard: the next runtime does not wait for ever.
func TestHungGuard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "calls")
	runtime, pids := startRuntime(t, dir, "echo pid $$; exec sleep 1000", 1)
	require.NoError(t, syscall.Kill(guardOf(t, dir), syscall.SIGSTOP))
	require.NoError(t, runtime.Process.Kill())
	_ = runtime.Wait()
	g, err := guard.New(dir)
	require.NoError(t, err)
	status, err := g.Recover(t.Context(), testThread, testCall)
	require.NoError(t, err)
	require.Equal(t, command.CauseLost, status.Cause)
	requireGone(t, pids, time.Now().Add(time.Second))
}

// TestGuardHearsNoTerminal sends a guard what a terminal and a careless person send.
func TestGuardHearsNoTerminal(t *testing.T) {
	g, dir := open(t)
	output, seen := waitFor("ready")
	release := filepath.Join(t.TempDir(), "release")
	require.NoError(t, syscall.Mkfifo(release, 0o600))
	go func() {
		<-seen
		session, err := unix.Getsid(guardOf(t, dir))
		require.NoError(t, err)
		require.Equal(t, guardOf(t, dir), session, "a terminal does not reach it")
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGPIPE} {
			_ = syscall.Kill(guardOf(t, dir), sig)
		}
		_ = os.WriteFile(release, nil, 0)
	}()
	status, err := g.Run(t.Context(), shell("echo ready; cat "+release+"; echo undisturbed"), output)
	require.NoError(t, err)
	require.Equal(t, command.Exited, status.State)
	require.Equal(t, "ready\nundisturbed\n", content(t, status))
}

// TestCrowd ends many processes at once.
func TestCrowd(t *testing.T) {
	g, _ := open(t)
	script := `trap "" TERM; i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done; echo ready; wait`
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	output, seen := waitFor("ready")
	var canceled time.Time
	go func() {
		<-seen
		canceled = time.Now()
		cancel()
	}()
	status, err := g.Run(ctx, shell(script), output)
	require.NoError(t, err)
	require.Equal(t, command.Killed, status.State)
	require.Zero(t, status.Left)
	require.Less(t, time.Since(canceled), 2*time.Second)
	require.Empty(t, withMark(t))
}

// TestNoOrder plays a runtime that dies while it starts a guard: nothing starts, now or later.
func TestNoOrder(t *testing.T) {
	for name, order := range map[string]string{
		"none": "", "half": `{"v":0,"args":["/bin/sh","-c","echo effect`, "no line end": `{"v":0,"args":["/bin/true"],"dir":"/"}`,
		"other version": `{"v":9,"args":["/bin/true"],"dir":"/"}` + "\n", "no program": `{"v":0}` + "\n", "no order": "hello\n",
	} {
		t.Run(name, func(t *testing.T) {
			g, dir := open(t)
			call := filepath.Join(dir, string(testThread), testCall)
			require.NoError(t, os.MkdirAll(call, 0o700))
			lock, err := os.Create(filepath.Join(call, "lock"))
			require.NoError(t, err)
			defer lock.Close()
			process := exec.Command(os.Args[0], guard.Word, call)
			process.Stdin, process.ExtraFiles = strings.NewReader(order), []*os.File{lock}
			require.Error(t, process.Run())
			require.Equal(t, 70, process.ProcessState.ExitCode())
			status, err := g.Recover(t.Context(), testThread, testCall)
			require.NoError(t, err)
			require.Equal(t, command.Status{State: command.NeverStarted}, status)
			require.NoFileExists(t, filepath.Join(call, "started"))
		})
	}
	for _, args := range [][]string{nil, {"relative"}, {"/a", "/b"}} {
		process := exec.Command(os.Args[0], append([]string{guard.Word}, args...)...)
		require.Error(t, process.Run())
		require.Equal(t, 64, process.ProcessState.ExitCode())
	}
}

// TestClean shows what a command does not inherit: variables, open files, the command line of its guard.
func TestClean(t *testing.T) {
	t.Setenv("CANARY_API_KEY", "sk-canary")
	leak, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer leak.Close()
	_, err = unix.FcntlInt(leak.Fd(), unix.F_SETFD, 0) // as if this process had inherited it from its own parent
	require.NoError(t, err)
	g, _ := open(t)
	status, err := g.Run(t.Context(), shell(`env; ls -l /proc/self/fd; cat /proc/$PPID/environ; tr "\0" " " </proc/$PPID/cmdline`), discard)
	require.NoError(t, err)
	text := content(t, status)
	require.NotContains(t, text, "canary")
	require.Contains(t, text, guard.Mark+"="+string(testThread)+"/"+testCall+"\n")
	require.Contains(t, text, "cnd-guard guard /")
	require.NotContains(t, text, "lock")
	require.Equal(t, 4, strings.Count(text, " -> "), "stdin, stdout, stderr and the folder that ls reads:\n%s", text)
}

// startRuntime starts a fake runtime and returns when its script has printed n process ids.
func startRuntime(t *testing.T, dir, script string, n int) (*exec.Cmd, []int) {
	t.Helper()
	runtime := exec.Command(os.Args[0], fakeRuntime, dir, script, string(testThread))
	runtime.Stderr = io.Discard
	stdout, err := runtime.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, runtime.Start())
	t.Cleanup(func() { _ = runtime.Process.Kill(); _ = runtime.Wait() })
	var pids []int
	lines := bufio.NewScanner(stdout)
	for len(pids) < n && lines.Scan() {
		if pid, err := strconv.Atoi(strings.TrimPrefix(lines.Text(), "pid ")); err == nil {
			pids = append(pids, pid)
		}
	}
	require.Len(t, pids, n)
	for _, pid := range pids {
		require.True(t, alive(pid), "process %d has not started", pid)
	}
	return runtime, pids
}

func guardOf(t *testing.T, dir string) int {
	text, err := os.ReadFile(filepath.Join(dir, string(testThread), testCall, "lock"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	return pid
}

func requireGone(t *testing.T, pids []int, deadline time.Time) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !alive(pid) }, time.Until(deadline), 5*time.Millisecond, "process %d", pid)
	}
}

// alive says whether the process runs; one that only waits for its parent to look does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	state := stat[bytes.LastIndexByte(stat, ')')+2]
	return state != 'Z' && state != 'X'
}

// withMark returns the processes that carry the mark of the test call.
func withMark(t *testing.T) (found []string) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, name := range all {
		if environ, err := os.ReadFile(name); err == nil && bytes.Contains(environ, []byte(guard.Mark+"="+string(testThread))) {
			found = append(found, name)
		}
	}
	return found
}
