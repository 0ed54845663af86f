package main

import (
	"context"
	"fmt"

	urfave "github.com/urfave/cli/v3"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/replay"
	"condensate.dev/cnd/tools/internal/cli"
)

// comparison is the report of diff.
type comparison struct {
	V    int    `json:"v"`
	Type string `json:"type"`
	Same bool   `json:"same"` // no entry and no request differs
	replay.Divergence
}

// diff compares two threads. That they differ is no failure: it is what was asked.
func diff(ctx context.Context, c *urfave.Command) error {
	args, err := cli.Args(c, 2, 2)
	if err != nil {
		return err
	}
	if args[0] == "-" && args[1] == "-" {
		return cli.Usagef("only one of A and B can be stdin")
	}
	return read(ctx, c, args[0], func(ctx context.Context, c *urfave.Command, a *input, out output) error {
		b, err := open(ctx, args[1], c.Root().Reader)
		if err != nil {
			return err
		}
		defer b.Close()
		d, err := replay.Diff(ctx, a, b)
		if err != nil {
			return fmt.Errorf("diff %s %s: %w", a.name, b.name, err)
		}
		if out.json {
			return out.document(comparison{Type: "comparison", Same: d.Entry == nil && d.Request == nil, Divergence: d})
		}
		writeEntryDiff(out, d.Entry)
		writeRequestDiff(out, d.Request)
		return nil
	})
}

func writeEntryDiff(out output, e *replay.EntryDivergence) {
	if e == nil {
		fmt.Fprintln(out, "entries: same kinds and bodies")
		return
	}
	fmt.Fprintf(out, "entries: differ from entry %d on\n", e.Seq)
	side := func(name string, kind record.Kind, text string) {
		if kind == "" {
			fmt.Fprintf(out, "  %s: has ended\n", name)
			return
		}
		fmt.Fprintf(out, "  %s: %s %s\n", name, kind, oneLine(text, 160))
	}
	side("A", e.KindA, e.A)
	side("B", e.KindB, e.B)
}

func writeRequestDiff(out output, r *replay.RequestDivergence) {
	switch {
	case r == nil:
		fmt.Fprintln(out, "requests: same bytes")
	case r.OnlyIn != "":
		fmt.Fprintf(out, "requests: same bytes up to number %d, which only one of them has\n", r.N)
	default:
		fmt.Fprintf(out, "requests: number %d (entry %d of A, entry %d of B) differs from byte %d on\n", r.N, r.SeqA, r.SeqB, r.Offset)
		fmt.Fprintf(out, "  A: %s\n  B: %s\n", oneLine(r.A, 160), oneLine(r.B, 160))
	}
}
