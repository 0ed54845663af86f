package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/core/fault"
	toolcli "condensate.dev/cnd/tools/internal/cli"
	"condensate.dev/cnd/tools/internal/compose"
	"condensate.dev/cnd/tools/internal/config"
	"condensate.dev/cnd/tools/internal/lifecycle"
	"condensate.dev/cnd/tools/internal/logging"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "serve the API and run threads, in the foreground, until SIGTERM",
		Flags: append(addrFlags(),
			&cli.IntFlag{Name: "min-free", HideDefault: true, Usage: "start no new turn with less than `MIB` of free disk space (default: 512)",
				Sources: cli.EnvVars(compose.EnvMinFree)},
			lifecycle.ReadyFlag(), lifecycle.LifelineFlag()),
		Action: serve,
	}
}

// addrFlags say where the runtime and the simulator listen.
func addrFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "addr", Usage: "listen on `HOST:PORT`; port 0 picks a free one (default: " + compose.DefaultAddr + ")",
			Sources: cli.EnvVars(compose.EnvAddr)},
		&cli.StringFlag{Name: "sim-addr", Usage: "the simulator is at `HOST:PORT` (default: " + compose.DefaultSimAddr + ")",
			Sources: cli.EnvVars(compose.EnvSimAddr)},
	}
}

func serve(ctx context.Context, c *cli.Command) error {
	if err := protect(); err != nil {
		return err
	}
	credential := compose.TakeCredential()
	if _, err := toolcli.Args(c, 0, 0); err != nil {
		return err
	}
	log, err := logging.New(c, c.Root().ErrWriter)
	if err != nil {
		return err
	}
	dirs, settings, err := serveSettings(c)
	if err != nil {
		return err
	}
	ctx, fatal := context.WithCancelCause(lifecycle.Lifeline(ctx, c))
	defer fatal(nil)
	r, err := compose.Open(compose.Parts{
		Settings: settings, Dirs: dirs, Credential: credential, Version: toolcli.Version(), Log: log,
		Fatal: func(err error) { fatal(fmt.Errorf("%w: %w", errRecordBroken, err)) },
	})
	if err != nil {
		return err
	}
	err = serveRuntime(ctx, c, r, settings.Addr, dirs, log)
	if errors.Is(context.Cause(ctx), errRecordBroken) {
		return context.Cause(ctx) // the store stays as it is until the process has ended
	}
	return errors.Join(err, r.Close())
}

var errRecordBroken = fault.New(fault.Unavailable, "record-broken", "the record cannot be written; start again to verify it")

// serveSettings joins flags, environment and configuration file. Its error names all problems.
func serveSettings(c *cli.Command) (config.Dirs, compose.Settings, error) {
	dirs, err := config.FindDirs()
	if err != nil {
		return dirs, compose.Settings{}, err
	}
	settings, err := compose.LoadSettings(dirs, c.String("config"))
	for flag, into := range map[string]*string{"addr": &settings.Addr, "sim-addr": &settings.SimAddr} {
		if c.IsSet(flag) {
			*into = c.String(flag)
		}
	}
	if c.IsSet("min-free") {
		settings.MinFreeMiB = c.Int("min-free")
	}
	problems := []error{err, settings.Check()}
	if level := os.Getenv(compose.EnvIsolation); level != "" && level != compose.IsolationNone {
		problems = append(problems, fmt.Errorf("%s=%q: only %s exists: %w", compose.EnvIsolation, level, compose.IsolationNone, config.ErrConfig))
	}
	return dirs, settings, errors.Join(problems...)
}

// serveRuntime listens, recovers and answers until ctx is done, then drains.
func serveRuntime(ctx context.Context, c *cli.Command, r *compose.Runtime, addr string, dirs config.Dirs, log *slog.Logger) error {
	l, err := lifecycle.Listen(addr, "does another runtime run? --addr or "+compose.EnvAddr+" picks another address")
	if err != nil {
		return err
	}
	addr = l.Addr().String()
	log.WarnContext(ctx, "isolation is none: agents run as this user and can reach everything that this user can")

	stopped := make(chan error, 1)
	ready := func() error {
		if err := compose.Publish(dirs.Data, addr); err != nil {
			return err
		}
		r.Start(ctx)
		log.InfoContext(ctx, "runtime ready", slog.String(logging.KeyAddr, addr), slog.Int(logging.KeyPID, os.Getpid()))
		return lifecycle.Ready(c)
	}
	stopping := func() {
		log.InfoContext(ctx, "stopping")
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), lifecycle.ShutdownGrace)
		defer cancel()
		stopped <- r.Stop(grace)
	}
	err = lifecycle.Serve(ctx, l, r.Handler(addr), log, ready, stopping)
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errRecordBroken) {
		err = errors.Join(err, <-stopped)
	}
	return errors.Join(err, compose.Withdraw(dirs.Data))
}
