package main

import (
	"context"
	"fmt"
	"strconv"

	urfave "github.com/urfave/cli/v3"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/replay"
	"condensate.dev/cnd/tools/internal/cli"
	"condensate.dev/cnd/tools/internal/terminal"
)

// requestLine is a line of requests --json.
type requestLine struct {
	V    int    `json:"v"`
	Type string `json:"type"`
	replay.Request
}

// requests lists the requests, or writes the body of one.
func requests(ctx context.Context, c *urfave.Command) error {
	args, err := cli.Args(c, 1, 2)
	if err != nil {
		return err
	}
	seq, chosen := c.Uint64("seq"), c.IsSet("seq")
	if len(args) == 2 {
		if chosen {
			return cli.Usagef("SEQ is given twice")
		}
		if seq, err = strconv.ParseUint(args[1], 10, 53); err != nil {
			return cli.Usagef("%q is not the number of an entry", args[1])
		}
		chosen = true
	}
	return read(ctx, c, args[0], func(ctx context.Context, _ *urfave.Command, in *input, out output) error {
		if chosen {
			if err := replay.Body(ctx, in, record.Seq(seq), out); err != nil {
				return fmt.Errorf("request %d of %s: %w", seq, in.name, err)
			}
			return nil
		}
		return listRequests(ctx, in, out)
	})
}

func listRequests(ctx context.Context, in *input, out output) error {
	first := true
	for r, err := range replay.Requests(ctx, in) {
		if err != nil {
			return fmt.Errorf("requests of %s: %w", in.name, err)
		}
		if out.json {
			if err := out.document(requestLine{Type: "request", Request: r}); err != nil {
				return err
			}
			continue
		}
		if first {
			fmt.Fprintf(out, "%7s  %-19s  %5s  %7s  %9s  %8s  %s\n", "SEQ", "TIME", "EPOCH", "ATTEMPT", "BYTES", "MESSAGES", "FINGERPRINT")
			first = false
		}
		if r.Erased {
			fmt.Fprintf(out, "%7d  %-19s  erased\n", r.Seq, r.Time.Format("2006-01-02 15:04:05"))
			continue
		}
		fmt.Fprintf(out, "%7d  %-19s  %5d  %7d  %9d  %8d  %s\n", r.Seq, r.Time.Format("2006-01-02 15:04:05"),
			r.Epoch, r.Attempt, r.BodyBytes, r.Messages, terminal.Clean(r.Fingerprint))
	}
	return nil
}
