package main

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/adapters/guard"
	"condensate.dev/cnd/adapters/simprovider"
	toolcli "condensate.dev/cnd/tools/internal/cli"
	"condensate.dev/cnd/tools/internal/lifecycle"
)

// TestMain makes the test binary also the programs that the scripts start, guards included.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guard.Word {
		os.Exit(guard.Main(os.Args[2:]))
	}
	testscript.Main(m, map[string]func(){
		"cnd-runtime": main,
		"cnd-sim":     func() { toolcli.Main(simCommand()) },
	})
}

// simCommand stands for cnd-sim, which is another tool and so cannot be imported.
func simCommand() *cli.Command {
	return &cli.Command{
		Name:  "cnd-sim",
		Flags: []cli.Flag{&cli.StringFlag{Name: "addr"}, lifecycle.ReadyFlag(), lifecycle.LifelineFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			ctx = lifecycle.Lifeline(ctx, c)
			l, err := lifecycle.Listen(c.String("addr"), "")
			if err != nil {
				return err
			}
			p := simprovider.New(simprovider.Options{ChunkDelay: time.Millisecond})
			defer p.Close()
			return lifecycle.Serve(ctx, l, p, slog.New(slog.DiscardHandler), func() error { return lifecycle.Ready(c) }, p.Close)
		},
	}
}
