package guard_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDurable watches the system calls of runtime and guard: the sign of the start is on disk before the command
// starts, the output before the status, and the status before anybody is told.
func TestDurable(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	dir := filepath.Join(t.TempDir(), "calls")
	log := filepath.Join(t.TempDir(), "log")
	traced := exec.Command(strace, "-f", "-y", "-s", "200", "-o", log,
		"-e", "trace=fsync,execve,rename,renameat,renameat2,mkdir,mkdirat,exit_group", "-e", "signal=none",
		os.Args[0], fakeRuntime, dir, "exit 0", string(testThread))
	if out, err := traced.CombinedOutput(); err != nil {
		t.Skipf("strace does not work here: %v: %s", err, out)
	}
	text, err := os.ReadFile(log)
	require.NoError(t, err)

	thread := filepath.Join(dir, string(testThread))
	call := filepath.Join(thread, testCall)
	requireOrder(t, string(text),
		`"`+dir+`", 0700) = 0`, "fsync(~<"+filepath.Dir(dir)+">",
		`"`+thread+`", 0700) = 0`, "fsync(~<"+dir+">",
		`"`+call+`", 0700) = 0`, "fsync(~<"+thread+">",
		"execve(~"+`"cnd-guard"`,
		"fsync(~<"+call+"/started>", "fsync(~<"+call+">",
		`execve("/bin/sh"`,
		"fsync(~<"+call+"/output>",
		"fsync(~<"+call+"/status.json.tmp-", "rename~status.json", "fsync(~<"+call+">",
		"exit_group(0)",
	)
}

// requireOrder finds a line for each of wants, in that order. "~" in a want stands for anything.
func requireOrder(t *testing.T, text string, wants ...string) {
	t.Helper()
	lines := strings.Split(text, "\n")
	for _, want := range wants {
		found := false
		for !found && len(lines) > 0 {
			first, second, _ := strings.Cut(want, "~")
			_, rest, ok := strings.Cut(lines[0], first)
			found = ok && strings.Contains(rest, second)
			lines = lines[1:]
		}
		require.True(t, found, "%s\nis missing, or out of its place, in\n%s", want, text)
	}
}
