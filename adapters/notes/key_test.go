package notes

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Any key can be read back, also one whose base64 holds the '+' that separates the parts of a key.
func TestEveryKeyCanBeReadBack(t *testing.T) {
	plus := 0
	for seed := range uint64(50) {
		path := filepath.Join(t.TempDir(), "record.key")
		made, err := LoadOrCreateKey(path, rand.NewChaCha8([32]byte{byte(seed)}))
		require.NoError(t, err)
		read, err := LoadKey(path)
		require.NoError(t, err)
		require.Equal(t, made.VerifierKey(), read.VerifierKey())
		if strings.Count(made.VerifierKey(), "+") > 2 {
			plus++
		}
	}
	require.NotZero(t, plus, "no key of the sample has a '+' in its base64")
}
