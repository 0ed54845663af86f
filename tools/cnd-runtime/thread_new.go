package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/cnd-runtime/turn"
	toolcli "condensate.dev/cnd/tools/internal/cli"
)

func newCommand() *cli.Command {
	return &cli.Command{
		Name: "new", Usage: "make a thread, give it its first message and print its id", ArgsUsage: "[MESSAGE|-]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "cwd", Usage: "the thread works in `DIR`; default: the current folder"},
			&cli.StringFlag{Name: "title", Usage: "`TITLE` for lists"},
			&cli.StringSliceFlag{Name: "allow", Usage: "`TOOL` that needs no approval in this thread, for example bash; may be repeated"},
			&cli.StringFlag{Name: "resume", Usage: "after a crash go on by itself (auto) or wait for thread resume (ask)", Value: "auto"},
			&cli.StringFlag{Name: "id", Usage: "use the thread id `ID`: the same command again makes no second thread"},
			&cli.StringFlag{Name: "model", Usage: "`MODEL` to use; default: the configured one"},
			&cli.StringFlag{Name: "account", Usage: "`ACCOUNT` to use, as provider:name; default: the configured one"},
		},
		Action: newThread,
	}
}

func newThread(ctx context.Context, c *cli.Command) error {
	args, err := toolcli.Args(c, 0, 1)
	if err != nil {
		return err
	}
	cwd, err := filepath.Abs(c.String("cwd")) // "" is the current folder
	if err != nil {
		return err
	}
	n := client.NewThread{
		ID: record.ThreadID(c.String("id")), Title: c.String("title"), Cwd: cwd, Model: c.String("model"),
		Account: c.String("account"), Allow: c.StringSlice("allow"),
	}
	if c.IsSet("resume") {
		n.Resume = c.String("resume")
	}
	var first []client.Content
	if len(args) == 1 {
		if first, err = content(c, args[0], nil); err != nil {
			return err
		}
	}
	api, err := connect()
	if err != nil {
		return err
	}
	id, err := api.NewThread(ctx, n)
	if err != nil {
		return err
	}
	if first != nil {
		if _, err := api.Send(ctx, id, client.Message{Content: first}); err != nil {
			return fault.WithHint(fmt.Errorf("thread %s is made, its first message is not accepted: %w", id, err),
				fmt.Sprintf("cnd-runtime thread send %s TEXT", id))
		}
	}
	return report(c, struct {
		ID record.ThreadID `json:"id"`
	}{id}, string(id))
}

func sendCommand() *cli.Command {
	return &cli.Command{
		Name: "send", Usage: "give a thread a message; it is durable when the command ends", ArgsUsage: "THREAD TEXT|-",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "mode", Value: thread.ModeQueue, Usage: "queue: a turn of its own; steer: joins the running turn; start-if-idle: skipped when busy; reject: refused when busy"},
			&cli.StringFlag{Name: "id", Usage: "use the message id `ID`: the same command again is accepted once"},
			&cli.StringSliceFlag{Name: "image", Usage: "add the image in `FILE` (png, jpeg, gif, webp); may be repeated"},
			&cli.BoolFlag{Name: "follow", Usage: "then print what happens until the thread waits for a person"},
		},
		Action: send,
	}
}

func send(ctx context.Context, c *cli.Command) error {
	args, err := toolcli.Args(c, 2, 2)
	if err != nil {
		return err
	}
	m := client.Message{ID: c.String("id"), Mode: c.String("mode")}
	if m.Content, err = content(c, args[1], c.StringSlice("image")); err != nil {
		return err
	}
	if m.ID == "" {
		m.ID = client.NewMessageID()
	}
	api, id, err := onThread(ctx, args)
	if err != nil {
		return err
	}
	receipt, err := api.Send(ctx, id, m)
	if err != nil {
		return fmt.Errorf("send to %s: %w", id, err)
	}
	if c.Bool("follow") && receipt.State != loop.ReceiptSkipped {
		// The turn that takes the message ends after it, or runs already.
		return view{id: id, next: receipt.Seq, from: receipt.Seq, deltas: !c.Bool("json"), until: &turn.State{Open: true}}.print(ctx, c, api)
	}
	return report(c, struct {
		ID    string     `json:"id"`
		Seq   record.Seq `json:"seq"`
		State string     `json:"state"`
	}{m.ID, receipt.Seq, receipt.State}, fmt.Sprintf("%s %s %d", m.ID, receipt.State, receipt.Seq))
}

// maxText is the longest text of a message, in bytes.
const maxText = loop.MaxText

// content makes the content of a message: the text, or stdin for "-", and the images in files.
func content(c *cli.Command, text string, images []string) ([]client.Content, error) {
	if text == "-" {
		in, err := readAll(c.Root().Reader, maxText)
		if err != nil {
			return nil, fmt.Errorf("read the message: %w", err)
		}
		text = string(in)
	}
	blocks := client.Text(text)
	for _, path := range images {
		f, err := os.Open(path)
		if err != nil {
			return nil, missing(err)
		}
		data, err := readAll(f, record.MaxBlob)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", path, err)
		}
		kind, _, _ := strings.Cut(http.DetectContentType(data), ";")
		blocks = append(blocks, client.Image(kind, data))
	}
	return blocks, nil
}

var errNoFile = fault.New(fault.NotFound, "no-such-file", "cannot be opened")

// missing classifies the error of opening a file that the command line names.
func missing(err error) error { return fmt.Errorf("%w: %w", err, errNoFile) }
