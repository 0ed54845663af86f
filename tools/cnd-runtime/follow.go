package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/tools/cnd-runtime/transcript"
	"condensate.dev/cnd/tools/cnd-runtime/turn"
	toolcli "condensate.dev/cnd/tools/internal/cli"
)

func followCommand() *cli.Command {
	return &cli.Command{
		Name: "follow", Usage: "print what happens in a thread, from its start or after an entry, until interrupted", ArgsUsage: "THREAD",
		Flags: []cli.Flag{
			&cli.Int64Flag{Name: "after", Value: -1, HideDefault: true, Usage: "start after the entry `SEQ`"},
			&cli.BoolFlag{Name: "deltas", Usage: "also print what streams before it is recorded"},
			&cli.BoolFlag{Name: "until-idle", Usage: "end when the thread waits for a person"},
		},
		Action: follow,
	}
}

func follow(ctx context.Context, c *cli.Command) error {
	args, err := toolcli.Args(c, 1, 1)
	if err != nil {
		return err
	}
	after := c.Int64("after")
	if after < -1 || after >= 1<<53 {
		return toolcli.Usagef("--after %d is not the seq of an entry", after)
	}
	api, id, err := onThread(ctx, args)
	if err != nil {
		return err
	}
	v := view{id: id, from: record.Seq(after + 1), deltas: c.Bool("deltas")}
	if c.Bool("until-idle") {
		if err := reached(ctx, api, id, after); err != nil {
			return fmt.Errorf("follow %s: %w", id, err)
		}
		v.until = &turn.State{} // which is folded from the start
	} else {
		v.next = v.from
	}
	return v.print(ctx, c, api)
}

var errBeyond = fault.New(fault.Conflict, "after-beyond-head", "the thread has no entry of that seq yet")

// reached is an error unless the thread has the entry after, as the runtime's own check is when it is asked for what
// follows that entry.
func reached(ctx context.Context, api *client.Client, id record.ThreadID, after int64) error {
	if after < 0 {
		return nil
	}
	s, err := api.Thread(ctx, id)
	if err == nil && record.Seq(after) > s.Seq {
		err = fmt.Errorf("after %d, the newest entry is %d: %w", after, s.Seq, errBeyond)
	}
	return err
}

// view is what a follow prints.
type view struct {
	id     record.ThreadID
	next   record.Seq // first entry to ask for
	from   record.Seq // first entry to print
	deltas bool
	until  *turn.State // state before next; print ends when it needs a person. Nil: never
}

// print prints the view, over lost connections, until it ends or ctx does.
func (v view) print(ctx context.Context, c *cli.Command, api *client.Client) error {
	root := c.Root()
	show := transcript.New(root.Writer)
	defer show.End()
	o := client.FollowOptions{From: v.next, Deltas: v.deltas, Reconnect: true, Lost: func(err error) {
		fmt.Fprintf(root.ErrWriter, "%s: waiting for the runtime: %s\n", root.Name, err)
	}}
	live := false
	for e, err := range api.Follow(ctx, v.id, o) {
		if err != nil {
			return fmt.Errorf("follow %s: %w", v.id, err)
		}
		isEntry := e.Type == client.EventEntry
		live = live || e.Type == client.EventHeartbeat
		switch {
		case e.Type == client.EventHeartbeat, isEntry && e.Seq < v.from:
		case c.Bool("json"):
			if _, err := root.Writer.Write(append(e.JSON, '\n')); err != nil {
				return err
			}
		default:
			if show.Event(e); show.Err() != nil {
				return show.Err()
			}
		}
		if v.until != nil && isEntry {
			v.until.Apply(e.Entry)
		}
		if v.until != nil && live && v.until.NeedsPerson() {
			return nil
		}
	}
	return nil
}
