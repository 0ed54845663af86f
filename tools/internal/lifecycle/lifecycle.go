// Package lifecycle holds what every daemon does at its edges: say that it is ready, serve until told to stop, drain
// within a bound.
//
// Daemons run in the foreground, write no pid file and never fork. They are ready when they say so: one newline on the
// file descriptor given by --ready-fd (skarnet.org, s6 notifywhenup) after the socket listens.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/core/fault"
	toolcli "condensate.dev/cnd/tools/internal/cli"
)

// ShutdownGrace bounds draining after the first SIGTERM; a supervisor must wait longer before it kills.
const ShutdownGrace = 20 * time.Second

// Timeouts of a daemon's HTTP server. Answers that stream have no write timeout of the server's: they set their own.
const (
	ReadHeaderTimeout = 10 * time.Second
	IdleTimeout       = 2 * time.Minute
	// MaxHeaderBytes is the largest request header, in bytes.
	MaxHeaderBytes = 64 << 10
)

// ReadyFlag is the --ready-fd flag of every daemon.
func ReadyFlag() cli.Flag {
	return &cli.IntFlag{Name: "ready-fd", Value: -1, HideDefault: true, Usage: "write a newline to file descriptor `N` when ready"}
}

// Ready tells the supervisor that asked with --ready-fd that the daemon serves; without the flag it does nothing.
func Ready(c *cli.Command) error {
	fd := c.Int("ready-fd")
	if fd < 0 {
		return nil
	}
	f := os.NewFile(uintptr(fd), "ready-fd")
	if f == nil {
		return toolcli.Usagef("--ready-fd %d is not an open file descriptor", fd)
	}
	if _, err := f.WriteString("\n"); err != nil {
		return toolcli.Usagef("--ready-fd %d: %s", fd, err)
	}
	return f.Close()
}

var errInUse = fault.New(fault.Unavailable, "address-in-use", "cannot listen there")

// Listen listens on addr, host:port. Another process that listens there may go away, so the error, whose hint is the
// caller's, is worth a retry.
func Listen(addr, hint string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fault.WithHint(fmt.Errorf("listen on %s: %w: %w", addr, err, errInUse), hint)
	}
	return l, nil
}

// Serve answers requests on l with h until ctx is done, then stops accepting, waits for the requests in flight for at
// most ShutdownGrace and closes what is left. It returns nil after an orderly stop. It calls ready once the server
// runs and stopping once when draining begins (to end streams that would not end by themselves); both may be nil. What the
// server itself has to say, such as a panic of h, goes to log.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger, ready func() error, stopping func()) error {
	server := &http.Server{
		Handler:           h,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: ReadHeaderTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	if stopping != nil {
		server.RegisterOnShutdown(stopping)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	if ready != nil {
		if err := ready(); err != nil {
			return errors.Join(err, server.Close())
		}
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), ShutdownGrace)
	defer cancel()
	err := server.Shutdown(grace)
	if err != nil {
		err = errors.Join(fmt.Errorf("drain %s: %w", l.Addr(), err), server.Close())
	}
	<-served
	return err
}
