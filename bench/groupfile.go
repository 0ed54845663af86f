package main

import (
	"os"
	"sync"
	"sync/atomic"
)

// groupFileSize is how much of the file is written before it begins again at its front, in bytes.
const groupFileSize = 64 << 20

// groupFile is the least that durable appends need: one file, filled with zeros beforehand so that a sync does not have
// to note a new length, and groups of appends that share a sync. There is no timer: the first append of a group writes
// and syncs it as soon as the group before is done, and who comes until then belongs to it.
type groupFile struct {
	file *os.File

	writing sync.Mutex // held while a group is written and synced
	at      int64      // guarded by writing

	mu   sync.Mutex // guards what follows
	next *group     // the group that still takes appends; nil when there is none

	began, ended atomic.Uint64 // syncs
}

// group is the appends that share a sync.
type group struct {
	bytes []byte
	done  chan struct{} // closed after the sync
	err   error         // set before
}

func openGroupFile(name string) (*groupFile, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < groupFileSize; at += int64(len(zeros)) {
		if _, err := file.WriteAt(zeros, at); err != nil {
			return nil, err
		}
	}
	return &groupFile{file: file}, file.Sync()
}

func (f *groupFile) append(line []byte) error {
	f.mu.Lock()
	first := f.next == nil
	if first {
		f.next = &group{done: make(chan struct{})}
	}
	g := f.next
	g.bytes = append(g.bytes, line...)
	f.mu.Unlock()
	if !first {
		<-g.done
		return g.err
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	f.mu.Lock()
	f.next = nil
	f.mu.Unlock()
	g.err = f.write(g.bytes)
	close(g.done)
	return g.err
}

func (f *groupFile) write(b []byte) error {
	if f.at+int64(len(b)) > groupFileSize {
		f.at = 0
	}
	n, err := f.file.WriteAt(b, f.at)
	f.at += int64(n)
	if err != nil {
		return err
	}
	number := f.began.Add(1)
	if err := datasync(f.file); err != nil {
		return err
	}
	f.ended.Store(number)
	return nil
}

func (f *groupFile) begun() uint64     { return f.began.Load() }
func (f *groupFile) completed() uint64 { return f.ended.Load() }

// Close closes the file.
func (f *groupFile) Close() error { return f.file.Close() }
