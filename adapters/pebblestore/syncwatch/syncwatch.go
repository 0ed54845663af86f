// Package syncwatch is a file system that watches the write-ahead log of a Pebble store from below: how often it was
// synced, and which of its bytes a completed sync covers. Tests and benchmarks use it to prove that nothing was
// acknowledged before its sync; what it says rests on no counter of the store's own.
package syncwatch

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS passes everything on to the file system below it.
type FS struct {
	vfs.FS
	keep bool

	started   atomic.Uint64
	completed atomic.Uint64

	mu   sync.Mutex // guards logs
	logs []*log
}

// New watches fs. With keep it also keeps all bytes that are written to logs, for Synced.
func New(fs vfs.FS, keep bool) *FS { return &FS{FS: fs, keep: keep} }

// Started returns the number of the newest sync that began. Syncs are numbered from 1.
func (f *FS) Started() uint64 { return f.started.Load() }

// Completed returns the highest number of a sync that ended without an error. An append that began when Started was n
// and was acknowledged when Completed is not over n was acknowledged before its sync.
func (f *FS) Completed() uint64 { return f.completed.Load() }

// Log is what was written to one write-ahead log.
type Log struct {
	Name    string
	Content []byte // what a completed sync covers; empty unless the content is kept
}

// Synced returns the logs in the order of their making.
func (f *FS) Synced() []Log {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Log
	for _, l := range f.logs {
		l.mu.Lock()
		all = append(all, Log{Name: l.name, Content: l.content[:l.synced:l.synced]})
		l.mu.Unlock()
	}
	return all
}

// Unwrap implements [vfs.FS].
func (f *FS) Unwrap() vfs.FS { return f.FS }

// Create implements [vfs.FS].
func (f *FS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.watch(name, file, err)
}

// ReuseForWrite implements [vfs.FS].
func (f *FS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, c)
	return f.watch(newname, file, err)
}

func (f *FS) watch(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil || !isLog(name) {
		return file, err
	}
	l := &log{File: file, fs: f, name: name}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs = append(f.logs, l)
	return l, nil
}

func isLog(name string) bool { return len(name) > 4 && name[len(name)-4:] == ".log" }

// log is one write-ahead log. Pebble writes and syncs it from one goroutine.
type log struct {
	vfs.File
	fs   *FS
	name string

	mu      sync.Mutex // guards what follows
	content []byte
	synced  int
}

// Write implements [vfs.File].
func (l *log) Write(p []byte) (int, error) {
	n, err := l.File.Write(p)
	if l.fs.keep {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.content = append(l.content, p[:n]...)
	}
	return n, err
}

// Sync implements [vfs.File].
func (l *log) Sync() error { return l.sync(l.File.Sync) }

// SyncData implements [vfs.File].
func (l *log) SyncData() error { return l.sync(l.File.SyncData) }

func (l *log) sync(call func() error) error {
	number := l.fs.started.Add(1)
	l.mu.Lock()
	written := len(l.content)
	l.mu.Unlock()
	if err := call(); err != nil {
		return err
	}
	l.mu.Lock()
	l.synced = max(l.synced, written)
	l.mu.Unlock()
	for {
		done := l.fs.completed.Load()
		if done >= number || l.fs.completed.CompareAndSwap(done, number) {
			return nil
		}
	}
}
