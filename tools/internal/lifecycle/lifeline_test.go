package lifecycle

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v3"
)

// The context ends with the lifeline; without one it is the one that was given.
func TestLifeline(t *testing.T) {
	ours, supervisors, err := os.Pipe()
	require.NoError(t, err)
	run := func(args ...string) (ctx context.Context) {
		c := &cli.Command{Flags: []cli.Flag{ReadyFlag(), LifelineFlag()}, Action: func(_ context.Context, c *cli.Command) error {
			ctx = Lifeline(t.Context(), c)
			return nil
		}}
		require.NoError(t, c.Run(t.Context(), append([]string{"x"}, args...)))
		return ctx
	}
	require.Equal(t, t.Context(), run())

	defer ours.Close()
	fd, err := syscall.Dup(int(ours.Fd())) // the daemon's own
	require.NoError(t, err)
	ctx := run("--lifeline-fd", strconv.Itoa(fd))
	require.NoError(t, ctx.Err())
	require.NoError(t, supervisors.Close())
	<-ctx.Done()
	require.NoError(t, t.Context().Err())
}
