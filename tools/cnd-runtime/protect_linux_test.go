package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The processes that hold a credential protect themselves before they do anything else.
func TestProtect(t *testing.T) {
	defer unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	for _, name := range []string{"serve", "up"} {
		require.NoError(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
		c := command()
		c.Writer, c.ErrWriter = io.Discard, io.Discard
		require.Error(t, c.Run(t.Context(), []string{c.Name, name, "too much"}))
		dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		require.NoError(t, err)
		require.Zero(t, dumpable, name)
	}
}
