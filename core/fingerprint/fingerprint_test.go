package fingerprint_test

import (
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fingerprint"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

const vectors = "../../testdata/requests"

// The vectors are frozen; docs/formats/fingerprint.md says how a line is read.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(vectors, "fingerprints.tsv"))
	require.NoError(t, err)
	seen := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		body, err := os.ReadFile(filepath.Join(vectors, f[1]))
		require.NoError(t, err)
		epoch := thread.EpochStarted{Builder: f[2], Method: f[3], URL: f[4]}
		for _, h := range f[5:] {
			name, value, ok := strings.Cut(h, ": ")
			require.True(t, ok)
			epoch.Headers = append(epoch.Headers, [2]string{name, value})
		}
		got := fingerprint.Of(epoch, sha256.Sum256(body)).String()
		require.Equal(t, f[0], got, "%s", line)
		require.Empty(t, seen[got], "two vectors have one fingerprint")
		seen[got] = line
	}
	require.Len(t, seen, 10)
}

// A script that shares nothing with our code computes the same.
func TestVectorsBySecondProgram(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(vectors, "fingerprints.tsv"))
	require.NoError(t, err)
	script := exec.Command("sh", "../../scripts/fingerprint-vectors.sh", vectors)
	script.Stderr = os.Stderr
	got, err := script.Output()
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// Of is For and then Of, however often the epoch is used; what does not name the request does not change it.
func TestEpoch(t *testing.T) {
	epoch := thread.EpochStarted{Builder: "b/0", Method: "POST", URL: "https://x/", Headers: [][2]string{{"a", "1"}}}
	other := epoch
	other.Reason, other.Account, other.MaxTokens, other.System = "repair", "x:y", 7, []string{"s"}
	one, two := record.Digest{1}, record.Digest{2}
	of := fingerprint.For(epoch)
	require.Equal(t, fingerprint.Of(epoch, one), of.Of(one))
	require.NotEqual(t, of.Of(one), of.Of(two))
	require.Equal(t, fingerprint.Of(epoch, one), of.Of(one))
	require.Equal(t, of.Of(two), fingerprint.Of(other, two))
}
