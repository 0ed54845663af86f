package pebblestore

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failstop is the file system that Pebble gets. When the write-ahead log or a folder cannot be written or synced, the
// store dies, and the call that failed never returns: in some places Pebble answers such an error with a panic in a
// goroutine of its own, or one that unlocks a mutex twice, and nobody can recover from either. Only Pebble's goroutines
// and those of health.guard may use it.
type failstop struct {
	vfs.FS
	health *health
}

// stop never returns.
func (f failstop) stop(act, name string, err error) {
	f.health.die(fmt.Errorf("%s %s: %w", act, name, err))
	select {}
}

// Unwrap implements [vfs.FS].
func (f failstop) Unwrap() vfs.FS { return f.FS }

// OpenDir implements [vfs.FS].
func (f failstop) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return failstopFile{File: dir, fs: f, name: name}, nil
}

// Create implements [vfs.FS].
func (f failstop) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.log(name, file, err)
}

// ReuseForWrite implements [vfs.FS].
func (f failstop) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, c)
	return f.log(newname, file, err)
}

// log wraps file if it is a write-ahead log.
func (f failstop) log(name string, file vfs.File, err error) (vfs.File, error) {
	if !strings.HasSuffix(name, ".log") {
		return file, err
	}
	if err != nil {
		f.stop("make", name, err)
	}
	return failstopFile{File: file, fs: f, name: name}, nil
}

// failstopFile is a log or a folder.
type failstopFile struct {
	vfs.File
	fs   failstop
	name string
}

// Write implements [vfs.File].
func (f failstopFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.check("write", err)
}

// Sync implements [vfs.File].
func (f failstopFile) Sync() error { return f.check("sync", f.File.Sync()) }

// SyncData implements [vfs.File].
func (f failstopFile) SyncData() error { return f.check("sync", f.File.SyncData()) }

// SyncTo implements [vfs.File].
func (f failstopFile) SyncTo(length int64) (all bool, err error) {
	all, err = f.File.SyncTo(length)
	return all, f.check("sync", err)
}

// Stat implements [vfs.File].
func (f failstopFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	return info, f.check("stat", err)
}

// Close implements [vfs.File].
func (f failstopFile) Close() error { return f.check("close", f.File.Close()) }

func (f failstopFile) check(act string, err error) error {
	if err != nil {
		f.fs.stop(act, f.name, err)
	}
	return nil
}
