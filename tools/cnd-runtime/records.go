package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/core/fault"
	toolcli "condensate.dev/cnd/tools/internal/cli"
)

func exportCommand() *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "print a thread's record, ending with a signed head; cnd-replay verify - proves it", ArgsUsage: "THREAD",
		Flags:  []cli.Flag{&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE`, which appears only when it is complete"}},
		Action: export,
	}
}

func export(ctx context.Context, c *cli.Command) error {
	args, err := toolcli.Args(c, 1, 1)
	if err != nil {
		return err
	}
	api, id, err := onThread(ctx, args)
	if err != nil {
		return err
	}
	path := c.String("output")
	if path == "" || path == "-" {
		err = api.Export(ctx, id, c.Root().Writer)
	} else {
		err = replace(path, func(w io.Writer) error { return api.Export(ctx, id, w) })
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", id, err)
	}
	return nil
}

// replace makes what write writes the content of the file at path, all of it or nothing.
func replace(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return missing(err)
	}
	defer os.Remove(f.Name()) // after the rename there is nothing to remove
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func importCommand() *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "keep the record in an export, read-only, after it was verified", ArgsUsage: "FILE|-",
		Action: importRecord,
	}
}

var errFolder = fault.New(fault.NotFound, "no-such-file", "a folder, not a file")

func importRecord(ctx context.Context, c *cli.Command) error {
	args, err := toolcli.Args(c, 1, 1)
	if err != nil {
		return err
	}
	in := c.Root().Reader
	if args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return missing(err)
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return fmt.Errorf("%s: %w", args[0], errFolder)
		}
		in = f
	}
	api, err := connect()
	if err != nil {
		return err
	}
	imported, err := api.Import(ctx, in)
	if err != nil {
		return fmt.Errorf("import %s: %w", args[0], err)
	}
	return report(c, imported, fmt.Sprintf("%s %d %s", imported.ID, imported.Seq, imported.Hash))
}

func reindexCommand() *cli.Command {
	return &cli.Command{
		Name: "reindex", Usage: "make lists and states anew from the records",
		Action: func(ctx context.Context, c *cli.Command) error {
			if _, err := toolcli.Args(c, 0, 0); err != nil {
				return err
			}
			api, err := connect()
			if err != nil {
				return err
			}
			threads, err := api.Reindex(ctx)
			if err != nil {
				return err
			}
			return report(c, struct {
				Threads int `json:"threads"`
			}{threads}, fmt.Sprintf("%d threads", threads))
		},
	}
}
