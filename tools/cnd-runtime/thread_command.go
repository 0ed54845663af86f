package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	toolcli "condensate.dev/cnd/tools/internal/cli"
)

func interruptCommand() *cli.Command {
	return &cli.Command{
		Name: "interrupt", Usage: "stop the running turn; what the agent said so far stays", ArgsUsage: "THREAD",
		Flags: []cli.Flag{&cli.StringFlag{Name: "id", Usage: "use the command id `ID`: the same command again changes nothing"}},
		Action: simple(1, func(ctx context.Context, c *cli.Command, api *client.Client, id record.ThreadID, _ []string) (loop.Receipt, error) {
			return api.Interrupt(ctx, id, c.String("id"))
		}),
	}
}

func resumeCommand() *cli.Command {
	return &cli.Command{
		Name: "resume", Usage: "make a turn go on that waits or was lost in a crash", ArgsUsage: "THREAD",
		Action: simple(1, func(ctx context.Context, _ *cli.Command, api *client.Client, id record.ThreadID, _ []string) (loop.Receipt, error) {
			return api.Resume(ctx, id)
		}),
	}
}

func approveCommand() *cli.Command {
	return &cli.Command{
		Name: "approve", Usage: "let a tool call run that waits for approval", ArgsUsage: "THREAD [CALL]",
		Action: simple(2, func(ctx context.Context, _ *cli.Command, api *client.Client, id record.ThreadID, args []string) (loop.Receipt, error) {
			return answer(ctx, api, id, args, thread.VerdictAllow, "")
		}),
	}
}

func denyCommand() *cli.Command {
	return &cli.Command{
		Name: "deny", Usage: "refuse a tool call that waits for approval", ArgsUsage: "THREAD [CALL]",
		Flags: []cli.Flag{&cli.StringFlag{Name: "reason", Usage: "tell the agent the `REASON`"}},
		Action: simple(2, func(ctx context.Context, c *cli.Command, api *client.Client, id record.ThreadID, args []string) (loop.Receipt, error) {
			return answer(ctx, api, id, args, thread.VerdictDeny, c.String("reason"))
		}),
	}
}

// act does something to a thread; args are the arguments after it.
type act func(ctx context.Context, c *cli.Command, api *client.Client, id record.ThreadID, args []string) (loop.Receipt, error)

// simple is the action of a command on a thread that prints its receipt.
func simple(most int, do act) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		args, err := toolcli.Args(c, 1, most)
		if err != nil {
			return err
		}
		api, id, err := onThread(ctx, args)
		if err != nil {
			return err
		}
		receipt, err := do(ctx, c, api, id, args[1:])
		if err != nil {
			return fmt.Errorf("%s %s: %w", c.Name, id, err)
		}
		return report(c, receipt, fmt.Sprintf("%s %d", receipt.State, receipt.Seq))
	}
}

var errNothingAsked = fault.New(fault.Conflict, "nothing-asked", "no call of the thread waits for approval")

// answer answers the call that args name, or the one that waits.
func answer(ctx context.Context, api *client.Client, id record.ThreadID, args []string, verdict, reason string) (loop.Receipt, error) {
	if len(args) == 1 {
		return api.Answer(ctx, id, args[0], verdict, reason)
	}
	s, err := api.Thread(ctx, id)
	if err != nil {
		return loop.Receipt{}, err
	}
	if s.Waiting == nil || s.Waiting.Reason != thread.WaitApproval {
		return loop.Receipt{}, errNothingAsked
	}
	return api.Answer(ctx, id, s.Waiting.Call, verdict, reason)
}
