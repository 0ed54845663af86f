package pebblestore

import (
	"fmt"
	"runtime"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failstop is the file system that Pebble gets. Where a folder cannot be synced, Pebble panics, also in goroutines of
// its own, where nobody can recover; here it ends like every other fatal error (see logger.Fatalf). It is only used in
// goroutines that may end: Pebble's and those of health.guard.
type failstop struct {
	vfs.FS
	health *health
}

// OpenDir implements [vfs.FS].
func (f failstop) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return failstopDir{File: dir, name: name, health: f.health}, nil
}

// Unwrap implements [vfs.FS].
func (f failstop) Unwrap() vfs.FS { return f.FS }

type failstopDir struct {
	vfs.File
	name   string
	health *health
}

// Sync implements [vfs.File].
func (d failstopDir) Sync() error {
	if err := d.File.Sync(); err != nil {
		d.health.die(fmt.Errorf("sync folder %s: %w", d.name, err))
		runtime.Goexit()
	}
	return nil
}
