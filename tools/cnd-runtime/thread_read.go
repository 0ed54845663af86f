package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/cnd-runtime/transcript"
	toolcli "condensate.dev/cnd/tools/internal/cli"
	"condensate.dev/cnd/tools/internal/terminal"
)

func listCommand() *cli.Command {
	return &cli.Command{
		Name: "list", Usage: "print all threads, oldest first; with --json one line each",
		Action: list,
	}
}

func list(ctx context.Context, c *cli.Command) error {
	if _, err := toolcli.Args(c, 0, 0); err != nil {
		return err
	}
	api, err := connect()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(c.Root().Writer, 0, 0, 2, ' ', 0)
	for s, err := range api.Threads(ctx) {
		if err != nil {
			return err
		}
		if c.Bool("json") {
			if err := printJSON(c.Root().Writer, summaryLine{line: line{Type: "thread"}, Summary: s}); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(table, "%s\t%s\t%d turns\t%s\t%s\n", s.ID, state(s), s.Turns, s.Updated[:min(19, len(s.Updated))], terminal.Clean(title(s))); err != nil {
			return err
		}
	}
	return table.Flush()
}

// summaryLine is a thread in the output of list --json and show --json.
type summaryLine struct {
	line
	thread.Summary
	// Call is what waits for approval, whole; show --json has it.
	Call *thread.Block `json:"call,omitempty"`
}

// state says how a thread is, and what it waits for.
func state(s thread.Summary) string {
	if s.Waiting != nil {
		return s.State + ":" + s.Waiting.Reason
	}
	return s.State
}

// title is what a list says of a thread; of a broken one, why it is.
func title(s thread.Summary) string {
	switch {
	case s.Trouble != nil:
		return s.Trouble.Message
	case s.Title != "":
		return s.Title
	}
	return s.Cwd
}

func showCommand() *cli.Command {
	return &cli.Command{
		Name: "show", Usage: "print the state of a thread and what was said in it", ArgsUsage: "THREAD",
		Action: show,
	}
}

func show(ctx context.Context, c *cli.Command) error {
	args, err := toolcli.Args(c, 1, 1)
	if err != nil {
		return err
	}
	api, id, err := onThread(ctx, args)
	if err != nil {
		return err
	}
	s, err := api.Thread(ctx, id)
	if err != nil {
		return fmt.Errorf("show %s: %w", id, err)
	}
	out := c.Root().Writer
	if c.Bool("json") {
		asked, err := waitingCall(ctx, api, s)
		if err != nil {
			return fmt.Errorf("show %s: %w", id, err)
		}
		return printJSON(out, summaryLine{line: line{Type: "thread"}, Summary: s, Call: asked})
	}
	if err := printSummary(out, s); err != nil {
		return err
	}
	p := transcript.New(out)
	for e, err := range api.Entries(ctx, id, 0) {
		if err != nil {
			return fmt.Errorf("show %s: %w", id, err)
		}
		p.Entry(e)
	}
	p.End()
	return p.Err()
}

// waitingCall returns the call of s that waits for approval, as it stands in the record; nil when none does.
func waitingCall(ctx context.Context, api *client.Client, s thread.Summary) (*thread.Block, error) {
	if s.Waiting == nil || s.Waiting.Reason != thread.WaitApproval {
		return nil, nil
	}
	text, _, _ := strings.Cut(s.Waiting.Call, ".")
	request, err := strconv.ParseUint(text, 10, 53)
	if err != nil {
		return nil, nil
	}
	for e, err := range api.Entries(ctx, s.ID, record.Seq(request)) {
		if err != nil {
			return nil, err
		}
		if e.Kind != record.AnswerFinished {
			continue
		}
		answer, err := thread.Decode[thread.AnswerFinished](e)
		if err != nil {
			return nil, nil // erased, or strange: show has the rest
		}
		for _, b := range answer.View {
			if b.Type == thread.BlockToolCall && b.Call == s.Waiting.Call {
				return &b, nil
			}
		}
		return nil, nil
	}
	return nil, nil
}
