package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/config"
)

// command returns the tree of commands.
func command() *cli.Command {
	return &cli.Command{
		Name:  "cnd-runtime",
		Usage: "keep threads of agents, durably and provably",
		Commands: []*cli.Command{
			serveCommand(),
			{Name: "thread", Usage: "make, steer and read threads", Commands: []*cli.Command{
				newCommand(), sendCommand(), followCommand(), listCommand(), showCommand(),
				interruptCommand(), resumeCommand(), approveCommand(), denyCommand(),
			}},
			exportCommand(), importCommand(), reindexCommand(),
			chatCommand(), upCommand(),
		},
	}
}

// connect returns a client of the runtime that the environment names.
func connect() (*client.Client, error) {
	dirs, err := config.FindDirs()
	if err != nil {
		return nil, err
	}
	return client.Open(dirs.Config, dirs.Data), nil
}

var (
	errAmbiguous = fault.New(fault.Usage, "ambiguous-thread", "more than one thread has an id that starts so")
	errNoThread  = fault.New(fault.NotFound, "no-such-thread", "no such thread")
)

// resolve returns the thread that name means: a whole id, the start of one, or "last" for the newest thread.
func resolve(ctx context.Context, c *client.Client, name string) (record.ThreadID, error) {
	if record.ValidID(record.PrefixThread, name) {
		return record.ThreadID(name), nil
	}
	if name != "last" && !strings.HasPrefix(name, record.PrefixThread) {
		return "", fault.WithHint(fmt.Errorf("thread %q: %w", name, errNoThread), "cnd-runtime thread list")
	}
	var found []record.ThreadID
	for s, err := range c.Threads(ctx) {
		if err != nil {
			return "", err
		}
		if name == "last" {
			found = []record.ThreadID{s.ID}
		} else if strings.HasPrefix(string(s.ID), name) {
			found = append(found, s.ID)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fault.WithHint(fmt.Errorf("thread %q: %w", name, errNoThread), "cnd-runtime thread list")
	default:
		return "", fault.WithHint(fmt.Errorf("thread %q: %d threads: %w", name, len(found), errAmbiguous), "cnd-runtime thread list")
	}
}

// onThread connects and resolves the first argument of c.
func onThread(ctx context.Context, args []string) (*client.Client, record.ThreadID, error) {
	c, err := connect()
	if err != nil {
		return nil, "", err
	}
	id, err := resolve(ctx, c, args[0])
	return c, id, err
}

// report prints v as one JSON document with --json, else the text for people, on stdout.
func report(c *cli.Command, v any, text string) error {
	out := c.Root().Writer
	if c.Bool("json") {
		return printJSON(out, v)
	}
	_, err := io.WriteString(out, text+"\n")
	return err
}

func printJSON(w io.Writer, v any) error {
	_, err := w.Write(append(thread.Encode(v), '\n'))
	return err
}

// line is how a stream says what a JSON object is.
type line struct {
	V    int    `json:"v"`
	Type string `json:"type"`
}

// readAll reads text of at most limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fault.New(fault.TooLarge, "input-too-large", fmt.Sprintf("the input is over %d bytes", limit))
	}
	return text, err
}
