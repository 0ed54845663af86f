package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

const (
	// lockRetry is the pause between two tries to lock the store.
	lockRetry = 50 * time.Millisecond
	// memTableSize is how much is kept in memory before it is flushed to a table, in bytes; twice it bounds the
	// write-ahead log that opening has to read.
	memTableSize = 16 << 20
	// cacheSize bounds the cache of table blocks, in bytes.
	cacheSize = 16 << 20
	// folderMode keeps other users of the machine out of the records.
	folderMode = 0o700
)

// step brings a store to the next schema: it adds to b what has to change. Entries are never rewritten.
type step func(db *pebble.DB, b *pebble.Batch) error

// steps[i] leads from schema i+1 to i+2; the newest schema is len(steps)+1.
var steps []step

// Open opens the store in dir and, unless Options.ReadOnly, makes it when there is none. It waits Options.LockWait
// for another process to let go. When the disk fails, the lock may stay with the process, which should end. Failures:
// ErrLocked, ErrNewer, ErrOlder, ErrNoStore, record.ErrDamaged, ErrDiskLow, ErrIO.
func Open(dir string, o Options) (*Store, error) {
	s, err := open(dir, o, steps)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, classify(err))
	}
	return s, nil
}

func open(dir string, o Options, steps []step) (*Store, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MinFree == 0 {
		o.MinFree = DefaultMinFree
	}
	if o.LockWait == 0 {
		o.LockWait = DefaultLockWait
	}
	if !o.ReadOnly {
		if err := makeFolder(o.FS, dir); err != nil {
			return nil, err
		}
	}
	lock, err := lockFolder(o.FS, dir, o.LockWait)
	if err != nil {
		return nil, err
	}
	s := &Store{
		lock: lock, fs: o.FS, dir: dir, project: o.Project, minFree: o.MinFree, readOnly: o.ReadOnly,
		queue: make(chan *write, maxWaiting), health: newHealth(o.Logger, o.OnFatal),
	}
	done := make(chan error, 1)
	go s.health.guard(func() (err error) {
		if s.db, err = pebble.Open(dir, s.pebbleOptions()); err != nil {
			return err
		}
		if err = s.prepare(steps); err != nil {
			return errors.Join(err, s.db.Close())
		}
		return nil
	}, func(err error) { done <- err })
	select {
	case err = <-done:
	case <-s.health.failed: // Pebble waits for ever for a flush that cannot succeed
		go func() {
			if <-done == nil {
				s.abandon()
			}
		}()
		return nil, s.health.cause()
	}
	if cause := s.health.cause(); cause != nil {
		if err == nil {
			s.abandon()
		}
		return nil, cause
	}
	if err != nil {
		if errors.Is(err, pebble.ErrDBDoesNotExist) {
			err = fmt.Errorf("%w: %w", ErrNoStore, err)
		}
		if strings.Contains(err.Error(), "unknown format major version") {
			err = newer(err)
		}
		return nil, errors.Join(err, lock.Close())
	}
	go s.commitAll()
	return s, nil
}

// abandon closes a store that failed while it was opened. Where it cannot be closed, the lock stays with the process.
func (s *Store) abandon() {
	if err := s.Close(); err != nil {
		s.health.log.LogAttrs(context.Background(), slog.LevelError, "store stays locked", slog.Any("err", err))
	}
}

// prepare checks the layout of the opened store, brings it up to date and removes what an interrupted import left.
func (s *Store) prepare(steps []step) error {
	schema, err := readSchema(s.db)
	if err != nil {
		return err
	}
	newest := uint64(len(steps)) + 1
	switch {
	case schema > newest:
		return newer(fmt.Errorf("schema %d, this program knows %d", schema, newest))
	case s.readOnly && schema == 0:
		return ErrNoStore
	case s.readOnly && schema < newest:
		return fault.WithHint(fmt.Errorf("schema %d, want %d: %w", schema, newest, ErrOlder), "start cnd-runtime serve once")
	case s.readOnly:
		return nil
	case schema == 0:
		if err := s.db.Set([]byte(schemaKey), strconv.AppendUint(nil, newest, 10), pebble.Sync); err != nil {
			return err
		}
	case schema < newest:
		if err := s.migrate(schema, steps); err != nil {
			return fmt.Errorf("migrate from schema %d to %d: %w", schema, newest, err)
		}
	}
	return s.sweepImports()
}

// readSchema returns the schema of db, 0 when it is empty.
func readSchema(db *pebble.DB) (uint64, error) {
	v, found, err := get(db, []byte(schemaKey))
	if err != nil {
		return 0, err
	}
	if !found {
		it, err := db.NewIter(nil)
		if err != nil {
			return 0, err
		}
		empty := !it.First()
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return 0, err
		}
		if !empty {
			return 0, fmt.Errorf("no %s: %w", schemaKey, record.ErrDamaged)
		}
		return 0, nil
	}
	schema, err := strconv.ParseUint(string(v), 10, 32)
	if err != nil || schema == 0 {
		return 0, fmt.Errorf("%s is %.20q: %w", schemaKey, v, record.ErrDamaged)
	}
	return schema, nil
}

// migrate runs the steps from schema on, each as one batch, after keeping the store as it was in a folder beside it.
func (s *Store) migrate(schema uint64, steps []step) error {
	backup := fmt.Sprintf("%s.schema-%d", s.dir, schema)
	if err := s.fs.RemoveAll(backup); err != nil { // from a migration that did not end
		return err
	}
	if err := s.db.Checkpoint(backup); err != nil {
		return fmt.Errorf("keep a copy in %s: %w", backup, err)
	}
	for ; schema <= uint64(len(steps)); schema++ {
		b := s.db.NewBatch()
		if err := steps[schema-1](s.db, b); err != nil {
			return errors.Join(err, b.Close())
		}
		if err := b.Set([]byte(schemaKey), strconv.AppendUint(nil, schema+1, 10), nil); err != nil {
			return errors.Join(err, b.Close())
		}
		if err := s.db.Apply(b, pebble.Sync); err != nil {
			return err
		}
	}
	return nil
}

func newer(err error) error {
	return fault.WithHint(fmt.Errorf("%w: %w", ErrNewer, err), "run the version of cnd-runtime that last used this folder")
}

func (s *Store) pebbleOptions() *pebble.Options {
	return &pebble.Options{
		FS:            failstop{s.fs, s.health},
		Lock:          s.lock,
		ReadOnly:      s.readOnly,
		Logger:        logger{s.health},
		EventListener: s.health.listener(),
		// The format is pinned: it tells a torn end of the log from damage before it, and a newer Pebble does not
		// make the store unreadable for an older program by itself.
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		MemTableSize:                memTableSize,
		MemTableStopWritesThreshold: 4,
		CacheSize:                   cacheSize,
	}
}

// makeFolder makes dir and its parents and syncs every folder that got a new name.
func makeFolder(fsys vfs.FS, dir string) error {
	var missing []string
	for d := dir; ; d = fsys.PathDir(d) {
		if _, err := fsys.Stat(d); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, d)
	}
	for _, d := range slices.Backward(missing) {
		if err := fsys.MkdirAll(d, folderMode); err != nil {
			return err
		}
		parent, err := fsys.OpenDir(fsys.PathDir(d))
		if err != nil {
			return err
		}
		if err := errors.Join(parent.Sync(), parent.Close()); err != nil {
			return err
		}
	}
	return nil
}

// lockFolder locks dir against other processes, trying for as long as wait.
func lockFolder(fsys vfs.FS, dir string, wait time.Duration) (*pebble.Lock, error) {
	for until := time.Now().Add(wait); ; time.Sleep(lockRetry) {
		lock, err := pebble.LockDirectory(dir, fsys)
		switch {
		case err == nil:
			return lock, nil
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%w: %w", ErrNoStore, err)
		case !isHeld(err):
			return nil, err
		case !time.Now().Before(until):
			return nil, fault.WithHint(ErrLocked, "two runtimes share this folder: stop the other one, or set CONDENSATE_DATA_DIR")
		}
	}
}

// isHeld says whether err means that somebody has the lock: fcntl answers EAGAIN or a bare EACCES to another process,
// Pebble a text without a sentinel to this one.
func isHeld(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || err == syscall.EACCES || strings.Contains(err.Error(), "lock held by current process") //nolint:errorlint // a wrapped EACCES is a missing permission
}
