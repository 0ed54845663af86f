package main

import (
	"bufio"
	"context"
	"errors"

	urfave "github.com/urfave/cli/v3"

	"condensate.dev/cnd/tools/internal/cli"
)

// thing is what every command takes.
const thing = "THREAD|FILE|-"

func command() *urfave.Command {
	return &urfave.Command{
		Name:  "cnd-replay",
		Usage: "prove a thread: verify its record and rebuild its requests byte for byte",
		Description: "THREAD is a thread id: it is read through the runtime when one is up, else from the data folder.\n" +
			"FILE is an export; - is one on stdin.",
		Commands: []*urfave.Command{
			{
				Name: "verify", ArgsUsage: thing,
				Usage: "check chain, sums, heads and every request",
				Flags: []urfave.Flag{
					&urfave.BoolFlag{Name: "unsigned", Usage: "accept an export that does not end with a signed head",
						Sources: urfave.EnvVars("CONDENSATE_REPLAY_UNSIGNED")},
					&urfave.StringFlag{Name: "key", Usage: "the verifier `KEY` that must have signed, instead of the thread's own",
						Sources: urfave.EnvVars("CONDENSATE_REPLAY_KEY")},
				},
				Action: one(verify),
			},
			{
				Name: "show", ArgsUsage: thing,
				Usage:  "print the conversation; with --json every entry as a line",
				Action: one(show),
			},
			{
				Name: "requests", ArgsUsage: thing + " [SEQ]",
				Usage: "list the requests, or write the exact bytes of one to stdout",
				Flags: []urfave.Flag{
					&urfave.Uint64Flag{Name: "seq", Usage: "write the body of the request at entry `SEQ`",
						Sources: urfave.EnvVars("CONDENSATE_REPLAY_SEQ")},
				},
				Action: requests,
			},
			{
				Name: "cache", ArgsUsage: thing,
				Usage:  "per request: tokens expected and reported from the provider's prompt cache",
				Action: one(cache),
			},
			{
				Name: "diff", ArgsUsage: "A B",
				Usage:  "find the first entry and the first request byte in which two threads differ",
				Action: diff,
			},
		},
	}
}

// output is where a command writes its report.
type output struct {
	*bufio.Writer
	json bool
}

func newOutput(c *urfave.Command) output {
	return output{bufio.NewWriter(c.Root().Writer), c.Root().Bool("json")}
}

// one makes the action of a command that reads one thing.
func one(run func(context.Context, *urfave.Command, *input, output) error) urfave.ActionFunc {
	return func(ctx context.Context, c *urfave.Command) error {
		args, err := cli.Args(c, 1, 1)
		if err != nil {
			return err
		}
		return read(ctx, c, args[0], run)
	}
}

// read opens the thing that name names, runs the command on it and writes what it reports.
func read(ctx context.Context, c *urfave.Command, name string, run func(context.Context, *urfave.Command, *input, output) error) error {
	in, err := open(ctx, name, c.Root().Reader)
	if err != nil {
		return err
	}
	defer in.Close()
	out := newOutput(c)
	return errors.Join(run(ctx, c, in, out), out.Flush())
}
