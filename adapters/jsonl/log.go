package jsonl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/internal/durable"
)

// Errors of logs.
var (
	// ErrExists: a file is there already.
	ErrExists = fault.New(fault.Conflict, "file-exists", "file exists already")
	// ErrLocked: another process appends to the file.
	ErrLocked = fault.New(fault.Conflict, "file-locked", "another process appends to the file")
	// ErrFinished: the file is an export that ends with a signed head.
	ErrFinished = fault.New(fault.Conflict, "export-finished", "file ends with a signed head")
)

// file is what Log needs of an *os.File.
type file interface {
	Write(b []byte) (int, error)
	Sync() error
	Close() error
}

// Log is a file of lines that is appended to. After a failed write or sync it appends nothing more: opening the file
// again finds out what is there. It is safe for concurrent use.
type Log struct {
	mu     sync.Mutex // guards what follows
	f      file
	thread record.ThreadID // of the last entry
	head   record.Head
	blobs  map[record.Digest]bool // blobs with a line
	err    error                  // sticky
}

// Create makes a new, empty file, mode 0600.
func Create(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create %s: %w", path, ErrExists)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(lock(f), durable.SyncFolder(filepath.Dir(path))); err != nil {
		return nil, errors.Join(fmt.Errorf("create %s: %w", path, err), f.Close())
	}
	return &Log{f: f, blobs: make(map[record.Digest]bool)}, nil
}

// OpenLog opens a file for append. What a cut-short write left at the end is trimmed: a line without newline, and blob
// lines without their entry. Any other damage is the error of [record.VerifyExport], and the file stays as it is.
func OpenLog(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w", path, ErrNoFile)
	}
	if err != nil {
		return nil, err
	}
	l := &Log{f: f, blobs: make(map[record.Digest]bool)}
	if err := l.load(f); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s for append: %w", path, err), f.Close())
	}
	return l, nil
}

func (l *Log) load(f *os.File) error {
	if err := lock(f); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	whole, err := wholeUnits(io.NewSectionReader(f, 0, info.Size()))
	if err != nil {
		return err
	}
	if whole > 0 {
		r, err := record.VerifyExport(io.NewSectionReader(f, 0, whole), record.VerifyOptions{Unsigned: true}, func(e record.Entry) error {
			for _, d := range record.ListedBlobs(e.Body) {
				l.blobs[d] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
		if r.Signed != nil {
			return ErrFinished
		}
		l.thread, l.head = r.Thread, r.Head
	}
	if whole == info.Size() {
		return nil
	}
	return errors.Join(f.Truncate(whole), f.Sync())
}

// wholeUnits returns how many bytes of r come before what a cut-short write may have left.
func wholeUnits(r io.Reader) (int64, error) {
	lines := record.NewLineReader(r)
	var whole int64
	for {
		line, err := lines.Next()
		switch {
		case err == io.EOF || errors.Is(err, record.ErrTorn):
			return whole, nil
		case err != nil:
			return 0, err
		case !record.IsBlobLine(line):
			whole = lines.Offset()
		}
	}
}

// Head returns the thread and the place of the last entry; both are zero in an empty file.
func (l *Log) Head() (record.ThreadID, record.Head) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.thread, l.head
}

// Append writes entries of one thread, which follow the last one, and their blobs in one piece, and syncs. Entries
// that do not follow are refused with an error wrapping [record.ErrInvalidEntry] or [record.ErrNoBlob]; after any
// other error the log takes no more.
func (l *Log) Append(entries ...record.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	lines, fresh, err := l.lines(entries)
	if err != nil {
		return err
	}
	if _, err := l.f.Write(lines); err != nil {
		l.err = fmt.Errorf("append: %w", err)
		return l.err
	}
	if err := l.f.Sync(); err != nil {
		l.err = fmt.Errorf("sync: %w", err)
		return l.err
	}
	for _, d := range fresh {
		l.blobs[d] = true
	}
	last := entries[len(entries)-1]
	l.thread, l.head = last.Thread, last.Head()
	return nil
}

// lines returns what entries add to the file, and the blobs that get their line with it.
func (l *Log) lines(entries []record.Entry) (lines []byte, fresh []record.Digest, err error) {
	if len(entries) == 0 {
		return nil, nil, fmt.Errorf("append: no entries: %w", record.ErrInvalidEntry)
	}
	first := entries[0]
	if (l.head == record.Head{}) != (first.Kind == record.ThreadCreated) || first.Kind != record.ThreadForked && l.thread != "" && first.Thread != l.thread {
		return nil, nil, fmt.Errorf("append %s of %s after %s: %w", first.Kind, first.Thread, l.thread, record.ErrInvalidEntry)
	}
	needed, err := record.CheckAppend(first.Thread, l.head, entries)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range needed {
		if !l.blobs[d] {
			return nil, nil, fmt.Errorf("append: blob %s: %w", d, record.ErrNoBlob)
		}
	}
	written := make(map[record.Digest]bool)
	for _, e := range entries {
		for _, b := range e.Blobs {
			if !l.blobs[b.Digest] && !written[b.Digest] {
				lines = append(b.AppendLine(lines), '\n')
				written[b.Digest] = true
				fresh = append(fresh, b.Digest)
			}
		}
		lines = append(append(lines, e.Line...), '\n')
	}
	return lines, fresh, nil
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}

// lock takes the file for this process until it is closed.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}
