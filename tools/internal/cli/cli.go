// Package cli gives every cnd-* tool the same manners: shared flags, streams, error lines and exit codes (docs/CLI.md).
//
// A tool's main is one line, cli.Main(command()). The command's actions return classified errors (core/fault); Run
// prints them on stderr as "tool: error: …" and "tool: hint: …", or with --json as one JSON line, and turns their
// class into the exit code. stdout carries records and data only. This is the one package that calls os.Exit.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/tools/internal/config"
)

// ErrUsage is returned for a command line that the tool does not understand.
var ErrUsage = fault.New(fault.Usage, "usage", "wrong usage")

// Usagef returns an error that wraps [ErrUsage] and says what is wrong with the command line.
func Usagef(format string, args ...any) error {
	return usage{fmt.Sprintf(format, args...)}
}

// usage keeps the sentence free of the sentinel's own text.
type usage struct{ text string }

func (u usage) Error() string { return u.text }
func (u usage) Unwrap() error { return ErrUsage }

// Main runs the tool on the process's arguments and streams and exits with its code. The first SIGINT or SIGTERM
// cancels the context; from then on a second one has its default effect and ends the process.
func Main(command *cli.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, command, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// Exit ends a process that is not a command line, as a guard is, with its code.
func Exit(code int) { os.Exit(code) }

// Run runs the tool and returns its exit code. The command is changed: shared flags and manners are added to its tree.
func Run(ctx context.Context, root *cli.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.Reader, root.Writer, root.ErrWriter = stdin, stdout, stderr
	root.Flags = append(root.Flags, sharedFlags()...)
	root.Version = Version()
	root.HideHelpCommand = true
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // exiting is Main's, once
	teach(root)

	err := root.Run(ctx, args)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", errCanceled, err)
	}
	err = ofStreams(err)
	code := ExitCode(fault.ClassOf(err))
	report(stderr, root.Name, err, code, root.Bool("json"))
	return code
}

var (
	errNoSpace = fault.New(fault.StorageFull, "disk-full", "no space to write to")
	errIO      = fault.New(fault.Corrupt, "io-error", "a device failed")
)

// ofStreams classifies what the disks behind the tool's streams and files do. An error that has a class keeps it.
func ofStreams(err error) error {
	var classified *fault.Error
	switch {
	case errors.As(err, &classified):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", err, errNoSpace)
	case errors.Is(err, syscall.EIO):
		return fmt.Errorf("%w: %w", err, errIO)
	}
	return err
}

var errCanceled = fault.New(fault.Canceled, "canceled", "stopped by a signal")

// Version is the version of this build: the module's version, else "devel".
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func sharedFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "read settings from `FILE`", Sources: cli.EnvVars("CONDENSATE_CONFIG")},
		&cli.StringFlag{Name: "log-level", Value: "info", Usage: "log from this `LEVEL` on: debug, info, warn or error",
			Sources: cli.EnvVars("CONDENSATE_LOG_LEVEL")},
		&cli.StringFlag{Name: "log-format", Value: "text", Usage: "log as text or json", Sources: cli.EnvVars("CONDENSATE_LOG_FORMAT")},
		&cli.BoolFlag{Name: "json", Usage: "write reports and errors as JSON", Sources: cli.EnvVars("CONDENSATE_JSON")},
	}
}

// checkShared refuses values of the shared flags that no tool takes, whether the command at hand uses them or not.
func checkShared(c *cli.Command) error {
	if level := c.String("log-level"); !slices.Contains([]string{"debug", "info", "warn", "error"}, strings.ToLower(level)) {
		return Usagef("--log-level %q is not debug, info, warn or error", level)
	}
	if format := c.String("log-format"); format != "text" && format != "json" {
		return Usagef("--log-format %q is not text or json", format)
	}
	if path := c.String("config"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("--config: %w: %w", err, config.ErrConfig)
		}
	}
	return nil
}

// teach walks the tree: usage errors are returned instead of printing help on stdout, shared flags are checked before a
// command acts, and a command that only groups others says so when it is run alone.
func teach(c *cli.Command) {
	c.HideHelpCommand = true
	c.OnUsageError = func(_ context.Context, _ *cli.Command, err error, _ bool) error {
		return fault.WithHint(Usagef("%s", err), c.FullName()+" --help")
	}
	if c.Action == nil {
		c.Action = func(_ context.Context, c *cli.Command) error {
			hint := c.FullName() + " --help"
			if name := c.Args().First(); name != "" {
				return fault.WithHint(Usagef("no command %q", name), hint)
			}
			return fault.WithHint(Usagef("a command is needed"), hint)
		}
	}
	act := c.Action
	c.Action = func(ctx context.Context, c *cli.Command) error {
		if err := checkShared(c); err != nil {
			return err
		}
		return act(ctx, c)
	}
	for _, sub := range c.Commands {
		teach(sub)
	}
}

// Args returns the positional arguments of c if there are between least and most of them (most < 0: no upper bound).
func Args(c *cli.Command, least, most int) ([]string, error) {
	args := c.Args().Slice()
	if len(args) < least || (most >= 0 && len(args) > most) {
		return nil, fault.WithHint(Usagef("%s takes %s, not %d", c.FullName(), c.ArgsUsage, len(args)), c.FullName()+" --help")
	}
	return args, nil
}

// report prints err for people, or for programs as the last line of stderr.
func report(w io.Writer, tool string, err error, code int, asJSON bool) {
	f := fault.Find(err)
	hint := fault.HintOf(err)
	if !asJSON {
		fmt.Fprintf(w, "%s: error: %s\n", tool, err)
		if hint != "" {
			fmt.Fprintf(w, "%s: hint: %s\n", tool, hint)
		}
		return
	}
	type body struct {
		Class    string `json:"class"`
		Code     string `json:"code"`
		ExitCode int    `json:"exit_code"`
		Message  string `json:"message"`
		Hint     string `json:"hint,omitempty"`
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(struct {
		Error body `json:"error"`
	}{body{f.Class.String(), f.Code, code, err.Error(), hint}})
}
