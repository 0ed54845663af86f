package compose

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
)

// Of many that make the file at once, one wins and all get its content; nothing else is left in the folder.
func TestCreateOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "key")
	got := make([]string, 16)
	var group sync.WaitGroup
	for i := range got {
		group.Go(func() {
			text, err := createOnce(path, newKey)
			if err == nil {
				got[i] = string(text)
			}
		})
	}
	group.Wait()
	for _, text := range got {
		require.Len(t, text, 65)
		require.Equal(t, got[0], text)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// A key that others may have read is refused, and a failure to make one leaves nothing.
func TestCreateOnceRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte("x\n"), 0o600))
	require.NoError(t, os.Chmod(path, 0o604))
	_, err := createOnce(path, newKey)
	require.Equal(t, fault.Config, fault.ClassOf(err))

	broken := errors.New("no dice")
	other := filepath.Join(t.TempDir(), "key")
	_, err = createOnce(other, func() ([]byte, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
	require.NoFileExists(t, other)
}

// A key may have been written by hand, with or without a line end; an empty one is refused.
func TestAPIKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	made, err := apiKey(path)
	require.NoError(t, err)
	require.Len(t, made, 64)
	for text, want := range map[string]string{"sesame": "sesame", " sesame\r\n": "sesame", "": "", "\n": ""} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		key, err := apiKey(path)
		require.Equal(t, want, key)
		require.Equal(t, want == "", err != nil)
		if err != nil {
			require.Equal(t, fault.Config, fault.ClassOf(err))
		}
	}
}

// The address is there while its process serves; what another process wrote is not taken away.
func TestAddress(t *testing.T) {
	data := t.TempDir()
	require.NoError(t, Withdraw(data))
	require.NoError(t, Publish(data, "127.0.0.1:1"))
	require.NoError(t, Publish(data, "127.0.0.1:2"))
	text, err := os.ReadFile(filepath.Join(data, "runtime.json"))
	require.NoError(t, err)
	require.Regexp(t, `^\{"addr":"127.0.0.1:2","pid":[0-9]+\}\n$`, string(text))
	require.NoError(t, Withdraw(data))
	require.NoFileExists(t, filepath.Join(data, "runtime.json"))

	require.NoError(t, os.WriteFile(filepath.Join(data, "runtime.json"), []byte(`{"addr":"127.0.0.1:3","pid":1}`), 0o600))
	require.NoError(t, Withdraw(data))
	require.FileExists(t, filepath.Join(data, "runtime.json"))
}

// Rules about folders are about where they really are.
func TestLinkFree(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "link")))
	got, err := linkFree(filepath.Join(dir, "link"), dir)
	require.NoError(t, err)
	require.Equal(t, []string{dir, dir}, got)
	_, err = linkFree(filepath.Join(dir, "gone"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
