package fault

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every class has a name of its own and is found by it.
func TestClassNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Classes() {
		require.NotEmpty(t, c.String())
		require.False(t, seen[c.String()], "two classes are called %s", c)
		seen[c.String()] = true
		got, ok := ParseClass(c.String())
		require.True(t, ok)
		require.Equal(t, c, got)
	}
	_, ok := ParseClass("nope")
	require.False(t, ok)
}

// Class, code and hint travel through wrapping; an error that nobody classified is internal.
func TestFind(t *testing.T) {
	sentinel := New(NotFound, "no-such-thing", "no such thing")
	err := WithHint(fmt.Errorf("show x: %w", sentinel), "list the things")
	require.Equal(t, NotFound, ClassOf(err))
	require.Equal(t, "no-such-thing", Find(err).Code)
	require.Equal(t, "list the things", HintOf(err))
	require.Equal(t, "show x: no such thing", err.Error())
	require.ErrorIs(t, err, sentinel)

	plain := errors.New("boom")
	require.Equal(t, Internal, ClassOf(plain))
	require.Equal(t, "", HintOf(plain))
}
