package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/core/fault"
)

// Every class has an exit code, and none is one that shells or panics use.
func TestExitCodesAreTotal(t *testing.T) {
	for _, c := range fault.Classes() {
		code, ok := exitByClass[c]
		require.True(t, ok, "class %s has no exit code", c)
		require.GreaterOrEqual(t, code, 64, "class %s", c)
	}
	require.Len(t, exitByClass, len(fault.Classes()))
}

type result struct {
	code           int
	stdout, stderr string
}

func run(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := &cli.Command{
		Name: "cnd-x",
		Commands: []*cli.Command{{
			Name: "do", ArgsUsage: "THING",
			Flags: []cli.Flag{&cli.IntFlag{Name: "n"}},
			Action: func(_ context.Context, c *cli.Command) error {
				args, err := Args(c, 1, 1)
				if err != nil {
					return err
				}
				if args[0] == "fail" {
					err := fmt.Errorf("do %s: %w", args[0], fault.New(fault.Conflict, "busy", "it is busy"))
					return fault.WithHint(err, "cnd-x wait")
				}
				if args[0] == "full" {
					return &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
				}
				if args[0] == "torn" {
					return &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EIO}
				}
				if args[0] == "bug" {
					return exitCoder{errors.New("child broke")}
				}
				fmt.Fprintln(c.Root().Writer, args[0])
				return nil
			},
		}},
	}
	code := Run(context.Background(), root, append([]string{"cnd-x"}, args...), strings.NewReader(""), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// exitCoder is an error with an ExitCode method, as *exec.ExitError is: its code must not become ours.
type exitCoder struct{ error }

func (exitCoder) ExitCode() int { return 7 }

// Failures leave stdout empty, name the tool, and exit with the code of their class.
func TestErrorsGoToStderr(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 64, "cnd-x: error: a command is needed\ncnd-x: hint: cnd-x --help\n"},
		{[]string{"nope"}, 64, "cnd-x: error: no command \"nope\"\ncnd-x: hint: cnd-x --help\n"},
		{[]string{"--nope"}, 64, "cnd-x: error: flag provided but not defined: -nope\ncnd-x: hint: cnd-x --help\n"},
		{[]string{"do", "--nope"}, 64, "cnd-x: error: flag provided but not defined: -nope\ncnd-x: hint: cnd-x do --help\n"},
		{[]string{"do"}, 64, "cnd-x: error: cnd-x do takes THING, not 0\ncnd-x: hint: cnd-x do --help\n"},
		{[]string{"do", "--log-level", "loud", "x"}, 64, "cnd-x: error: --log-level \"loud\" is not debug, info, warn or error\n"},
		{[]string{"--log-format", "xml", "do", "x"}, 64, "cnd-x: error: --log-format \"xml\" is not text or json\n"},
		{[]string{"do", "x", "--config", "nosuch"}, 78, "cnd-x: error: --config: stat nosuch: no such file or directory: bad configuration\n"},
		{[]string{"do", "full"}, 75, "cnd-x: error: write /dev/stdout: no space left on device: no space to write to\n"},
		{[]string{"do", "torn"}, 74, "cnd-x: error: write /dev/stdout: input/output error: a device failed\n"},
		{[]string{"do", "fail"}, 73, "cnd-x: error: do fail: it is busy\ncnd-x: hint: cnd-x wait\n"},
		{[]string{"do", "bug"}, 70, "cnd-x: error: child broke\n"},
	} {
		got := run(t, tc.args...)
		require.Equal(t, result{tc.code, "", tc.want}, got, "%q", tc.args)
	}
}

// With --json the last line of stderr is the error as data, wherever the flag stands.
func TestErrorsAsJSON(t *testing.T) {
	want := `{"error":{"class":"conflict","code":"busy","exit_code":73,"message":"do fail: it is busy","hint":"cnd-x wait"}}` + "\n"
	require.Equal(t, result{73, "", want}, run(t, "--json", "do", "fail"))
	require.Equal(t, result{73, "", want}, run(t, "do", "--json", "fail"))
}

// A canceled context is 130, whatever the action wrapped around it.
func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stderr bytes.Buffer
	root := &cli.Command{Name: "cnd-x", Action: func(ctx context.Context, _ *cli.Command) error {
		return fmt.Errorf("wait: %w", ctx.Err())
	}}
	require.Equal(t, 130, Run(ctx, root, []string{"cnd-x"}, nil, &bytes.Buffer{}, &stderr))
}

// The documented table of exit codes is the one in the code.
func TestExitCodesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/CLI.md")
	require.NoError(t, err)
	for class, code := range exitByClass {
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| %d \\|.*`%s`", code, class))
		require.Regexp(t, row, string(doc), "class %s, code %d", class, code)
	}
}
