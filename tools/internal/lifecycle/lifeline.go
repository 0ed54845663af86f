package lifecycle

import (
	"context"
	"io"
	"os"
	"syscall"

	"github.com/urfave/cli/v3"
)

// LifelineFlag is the --lifeline-fd flag of the daemons that a supervisor of ours starts.
func LifelineFlag() cli.Flag {
	return &cli.IntFlag{Name: "lifeline-fd", Value: -1, HideDefault: true, Usage: "stop, as after SIGTERM, when file descriptor `N` ends", Hidden: true}
}

// Lifeline returns a context that also ends when the pipe given by --lifeline-fd does: its other side is held by the
// supervisor, so even one that was killed leaves no daemon behind. Without the flag it returns ctx. It also keeps this
// descriptor and that of --ready-fd from the daemon's own children.
func Lifeline(ctx context.Context, c *cli.Command) context.Context {
	for _, flag := range []string{"ready-fd", "lifeline-fd"} {
		if fd := c.Int(flag); fd >= 0 {
			syscall.CloseOnExec(fd)
		}
	}
	fd := c.Int("lifeline-fd")
	if fd < 0 {
		return ctx
	}
	f := os.NewFile(uintptr(fd), "lifeline-fd")
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		io.Copy(io.Discard, f) // ends at end-of-file, and at once when there is no such descriptor
	}()
	return ctx
}
