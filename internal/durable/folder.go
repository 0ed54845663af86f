// Package durable makes names durable: a file that was made, renamed or removed is so after a power failure only when
// its folder was synced too (fsync(2), "does not necessarily ensure that the entry in the directory ... has reached
// disk").
package durable

import (
	"errors"
	"os"
)

// SyncFolder makes the names in the folder durable.
func SyncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
