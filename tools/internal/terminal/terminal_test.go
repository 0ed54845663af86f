package terminal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What could command a terminal is replaced; anything else stays.
func TestClean(t *testing.T) {
	require.Equal(t, "a\tb\nü⏎", Clean("a\tb\nü⏎"))
	for _, r := range "\x00\x1b\r\x7f\u009b\u2028\u2029\u202a\u202e\u2066\u2069" {
		require.Equal(t, "a\ufffdb", Clean("a"+string(r)+"b"), "%U", r)
	}
}
