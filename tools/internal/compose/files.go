package compose

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"condensate.dev/cnd/internal/durable"
	"condensate.dev/cnd/tools/internal/config"
)

// createOnce returns the content of the file at path. When there is none it makes one with what content returns:
// mode 0600, complete and synced before it has its name, and never over a file that another process made meanwhile.
// A file that other users can read is refused: what it holds is no secret any more.
func createOnce(path string, content func() ([]byte, error)) ([]byte, error) {
	text, err := readSecret(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	fresh, err := content()
	if err != nil {
		return nil, err
	}
	err = place(path, fresh, os.Link)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readSecret(path)
}

func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, other users may read it; make it 0600 or remove it: %w", path, mode, config.ErrConfig)
	}
	return os.ReadFile(path)
}

// replaceFile makes content the content of the file at path, durably and as one step; mode 0600.
func replaceFile(path string, content []byte) error { return place(path, content, os.Rename) }

// place writes content to a new file beside path, syncs it and gives it its name with move.
func place(path string, content []byte, move func(from, to string) error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after a rename there is nothing left to remove
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := move(f.Name(), path); err != nil {
		return err
	}
	return durable.SyncFolder(dir)
}

// linkFree returns where the folders, which exist and are absolute, really are.
func linkFree(dirs ...string) ([]string, error) {
	real := make([]string, len(dirs))
	for i, dir := range dirs {
		var err error
		if real[i], err = filepath.EvalSymlinks(dir); err != nil {
			return nil, err
		}
	}
	return real, nil
}
