package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/tools/cnd-runtime/chat"
	"condensate.dev/cnd/tools/cnd-runtime/transcript"
	toolcli "condensate.dev/cnd/tools/internal/cli"
)

func chatCommand() *cli.Command {
	return &cli.Command{
		Name: "chat", Usage: "talk to a thread, or to a new one, line by line", ArgsUsage: "[THREAD]",
		Flags:  chatFlags(),
		Action: runChat,
	}
}

// chatFlags say what a chat's new thread is like.
func chatFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "cwd", Usage: "a new thread works in `DIR`; default: the current folder"},
		&cli.StringSliceFlag{Name: "allow", Usage: "`TOOL` that needs no approval in a new thread; may be repeated"},
		&cli.StringFlag{Name: "model", Usage: "`MODEL` of a new thread; default: the configured one"},
	}
}

func runChat(ctx context.Context, c *cli.Command) error {
	args, err := toolcli.Args(c, 0, 1)
	if err != nil {
		return err
	}
	api, err := connect()
	if err != nil {
		return err
	}
	var id record.ThreadID
	if len(args) == 1 {
		if id, err = resolve(ctx, api, args[0]); err == nil {
			_, err = api.Thread(ctx, id)
		}
	} else {
		id, err = chatThread(ctx, c, api)
	}
	if err != nil {
		return err
	}
	return talk(ctx, c, api, id)
}

// chatThread makes the thread of a chat that names none.
func chatThread(ctx context.Context, c *cli.Command, api *client.Client) (record.ThreadID, error) {
	cwd, err := filepath.Abs(c.String("cwd"))
	if err != nil {
		return "", err
	}
	return api.NewThread(ctx, client.NewThread{Cwd: cwd, Allow: c.StringSlice("allow"), Model: c.String("model")})
}

// talk chats on the process's streams. Ctrl-C is the chat's from here on.
func talk(ctx context.Context, c *cli.Command, api *client.Client, id record.ThreadID) error {
	root := c.Root()
	transcript.New(root.Writer).Note("thread %s", id)
	signal.Reset(os.Interrupt)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	return chat.Run(ctx, chat.Options{
		Client: api, Thread: id, In: root.Reader, Out: root.Writer, Interactive: isTerminal(root.Reader),
		Interrupts: interrupts, NewID: client.NewMessageID,
	})
}

// isTerminal says whether a stream of the process is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
