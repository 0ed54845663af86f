// Package jsonl keeps records as files of lines: exports that are read, and files that are appended to.
//
// # Layout
//
// One entry, blob or head per line, as docs/formats/record.md says: a blob line stands directly before the entry that
// first lists it. A blob line and its entry are one unit: what stands after the last complete unit of a file that is
// appended to is a write that was cut short.
package jsonl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"sync"
	"syscall"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// Errors of files.
var (
	// ErrNoFile: there is no such file.
	ErrNoFile = fault.New(fault.NotFound, "no-such-file", "no such file")
	// ErrFolder: it is a folder.
	ErrFolder = fault.New(fault.NotFound, "no-such-file", "a folder, not a file")
	// ErrSpoolFull: there is no space to keep the input while it is read.
	ErrSpoolFull = fault.New(fault.StorageFull, "disk-full", "no space to keep the input while it is read")
)

// File is an export, or another file of lines, that can be read any number of times. It holds what was there when it
// was opened. It is safe for concurrent use.
type File struct {
	f    *os.File
	size int64

	mu      sync.Mutex // guards what follows
	blobs   map[record.Digest]place
	scanned int64 // blob lines before this offset are in blobs
}

// place is where a line stands, without its newline.
type place struct {
	offset int64
	length int
}

// Open opens the file at path. What is no regular file, such as a pipe, is spooled.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w", path, ErrNoFile)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, errors.Join(err, f.Close())
	case info.IsDir():
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, ErrFolder), f.Close())
	case !info.Mode().IsRegular():
		defer f.Close()
		return Spool(f, "")
	}
	return newFile(f, info.Size()), nil
}

// Spool copies r to a temporary file in dir ("" for the system's), which nobody else can read or find, so that it can
// be read again.
func Spool(r io.Reader, dir string) (*File, error) {
	f, err := os.CreateTemp(dir, "cnd-spool-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	size, err := io.Copy(f, r)
	if err = errors.Join(os.Remove(f.Name()), err); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%v: %w", err, ErrSpoolFull)
		}
		return nil, errors.Join(fmt.Errorf("spool: %w", err), f.Close())
	}
	return newFile(f, size), nil
}

func newFile(f *os.File, size int64) *File {
	return &File{f: f, size: size, blobs: make(map[record.Digest]place)}
}

// Close closes the file; readers of it fail from then on.
func (f *File) Close() error { return f.f.Close() }

// Reader returns a reader of the whole file, for [record.VerifyExport].
func (f *File) Reader() io.Reader { return io.NewSectionReader(f.f, 0, f.size) }

// Entries yields the entries from seq on, inherited ones first. Each line is checked by itself, not against the
// others: [record.VerifyExport] does that.
func (f *File) Entries(ctx context.Context, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		lines := record.NewLineReader(f.Reader())
		for n := 1; ; n++ {
			line, err := lines.Next()
			if err == io.EOF {
				return
			}
			if err == nil {
				err = ctx.Err()
			}
			var e record.Entry
			if err == nil && !record.IsBlobLine(line) && !record.IsHeadLine(line) {
				e, err = record.Parse(line)
			}
			switch {
			case err != nil:
				yield(record.Entry{}, fmt.Errorf("line %d: %w", n, damage(err, n == 1)))
				return
			case e.Line == nil || e.Seq < from:
			case !yield(e.Clone(), nil):
				return
			}
		}
	}
}

// damage says of a line that is not what the format allows whose fault that is: the first one makes the file no record,
// a later one was a line of a record once. Any other error stays what it is.
func damage(err error, first bool) error {
	class := fault.ClassOf(err)
	switch {
	case class != fault.Invalid && class != fault.TooLarge:
		return err
	case first:
		return fmt.Errorf("%w: %w", record.ErrNotRecord, err)
	}
	return fmt.Errorf("%w: %w", record.ErrDamaged, err)
}

// Blob returns the content of a blob line, wherever it stands; a missing one is an error wrapping [record.ErrNoBlob].
func (f *File) Blob(ctx context.Context, d record.Digest) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := f.find(d)
	if err != nil {
		return nil, err
	}
	line := make([]byte, p.length)
	if _, err := f.f.ReadAt(line, p.offset); err != nil {
		return nil, fmt.Errorf("blob %s: %w", d, err)
	}
	b, err := record.ParseBlobLine(line, nil)
	if err != nil {
		return nil, fmt.Errorf("blob line at byte %d: %w", p.offset, damage(err, false))
	}
	return b.Data, nil
}

// find returns where the blob's line stands. It reads no further than it must: blobs stand before the entries that
// use them, so a record that is replayed in order is read once.
func (f *File) find(d record.Digest) (place, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, ok := f.blobs[d]; ok {
		return p, nil
	}
	base := f.scanned
	lines := record.NewLineReader(io.NewSectionReader(f.f, base, f.size-base))
	for {
		at := base + lines.Offset()
		line, err := lines.Next()
		if err == io.EOF {
			return place{}, fmt.Errorf("blob %s: %w", d, record.ErrNoBlob)
		}
		if err != nil {
			return place{}, fmt.Errorf("line at byte %d: %w", at, damage(err, at == 0))
		}
		f.scanned = base + lines.Offset()
		digest, ok := record.BlobLineDigest(line)
		if !ok {
			continue
		}
		if _, twice := f.blobs[digest]; !twice {
			f.blobs[digest] = place{offset: at, length: len(line)}
		}
		if digest == d {
			return f.blobs[d], nil
		}
	}
}
