// Package pebblestore keeps records in a Pebble store: one folder, one process, every append one synced batch.
//
// # Key layout, schema 1
//
//	t/ thread / uint64be(seq) -> entry line, without its newline
//	b/ digest                 -> blob, as it is (digest: 32 bytes)
//	h/ thread                 -> uint64be(seq), hash of the newest entry, then the projection of the thread's own
//	                             entries; without it the thread does not exist
//	f/ thread                 -> the thread was imported and is read-only; its signed head, or nothing for an ancestor
//	i/ thread                 -> an import was under way: entries after the head are left over from it
//	meta/schema               -> decimal number of this layout
//
// # What a caller may rely on
//
// An append is part of one synced Pebble batch with entries, blobs, head and projection, and acknowledged after the
// write-ahead log was synced past its last byte. Appends that wait at the same time share batch and sync. Readers see
// acknowledged entries only. What is read is checked: line, chain and blob digests; damage is record.ErrDamaged.
//
// # When the disk fails
//
// The first error of Pebble's background work (a flush that meets ENOSPC or EIO) latches the store: waiting and later
// appends fail with record.ErrReadOnly, reading goes on, opening the store again is the way back. An error of the
// write-ahead log or the manifest also calls Options.OnFatal once: the process must end and verify after reopening,
// because after a failed sync nobody knows what the disk holds. Nothing is retried. No append waits longer than its
// context or [AppendTimeout].
package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// Limits of a store.
const (
	// AppendTimeout bounds an append whose context has no deadline; beyond it the caller gets ErrTimeout.
	AppendTimeout = 30 * time.Second
	// CloseTimeout bounds how long Close waits for readers and appends; beyond it Close fails and the store stays open.
	CloseTimeout = 10 * time.Second
	// DefaultLockWait is how long Open tries to lock a store that another process has open.
	DefaultLockWait = 10 * time.Second
	// DefaultMinFree is the free disk space below which Ready refuses, in bytes.
	DefaultMinFree = 512 << 20
)

// Errors of a store beside those of package record.
var (
	// ErrLocked: another process has the store open.
	ErrLocked = fault.New(fault.Conflict, "store-locked", "another process has this store open")
	// ErrNewer: a newer program wrote the store.
	ErrNewer = fault.New(fault.Config, "store-newer", "the store was written by a newer version of this program")
	// ErrOlder: the store must be migrated, which opening it read-only cannot do.
	ErrOlder = fault.New(fault.Config, "store-older", "the store has an older layout and must be opened for writing once")
	// ErrNoStore: the folder holds no store and the store was to be opened read-only.
	ErrNoStore = fault.New(fault.NotFound, "no-store", "no store in this folder")
	// ErrDiskLow: less than Options.MinFree is left.
	ErrDiskLow = fault.New(fault.StorageFull, "disk-low", "too little disk space for new work")
	// ErrTimeout: the disk did not answer in time; the entries may or may not become durable.
	ErrTimeout = fault.New(fault.Unavailable, "store-timeout", "the disk did not answer in time")
	// ErrClosed: Close was called.
	ErrClosed = fault.New(fault.Unavailable, "store-closed", "the store is closed")
	// ErrCanceled: the caller's context ended; after the entries were handed to the disk they may become durable.
	ErrCanceled = fault.New(fault.Canceled, "canceled", "the caller stopped waiting")
	// ErrForeign: the thread was imported, so nothing is appended to it here.
	ErrForeign = fault.New(fault.Conflict, "thread-imported", "the thread was imported and is read-only")
	// ErrIO: the operating system refused; the cause is part of the text.
	ErrIO = fault.New(fault.Unavailable, "store-io", "the store's files cannot be used")
)

// Options configure a store. The zero value is usable.
type Options struct {
	// Project returns the projection of a thread after e, given the one before it (nil at the thread's first own
	// entry). It must be pure and keep neither argument. Without it there are no projections.
	Project func(prev []byte, e record.Entry) ([]byte, error)
	// ReadOnly opens an existing store without changing it. Appends fail with record.ErrReadOnly.
	ReadOnly bool
	// LockWait is how long Open tries when another process has the store open: 0 means DefaultLockWait, a negative
	// value one try.
	LockWait time.Duration
	// MinFree is the free disk space below which Ready fails, in bytes. 0 means DefaultMinFree.
	MinFree uint64
	// OnFatal is called at most once, in a goroutine of its own, when the write-ahead log or the manifest could not be
	// written. The process must end then; until it does, every append fails.
	OnFatal func(error)
	// Logger gets what Pebble has to say. Default: nobody.
	Logger *slog.Logger
	// FS is where the files are. Default: the operating system's file system.
	FS vfs.FS
}

// Store is an open store. All methods are safe for concurrent use.
type Store struct {
	db       *pebble.DB
	lock     *pebble.Lock
	fs       vfs.FS
	dir      string
	project  func(prev []byte, e record.Entry) ([]byte, error)
	minFree  uint64
	readOnly bool
	health   *health
	queue    chan *write // closed when the last user left
	gate     gate
	threads  threads

	closeOnce sync.Once
	closeErr  error // guarded by closeOnce
}

var _ record.Store = (*Store)(nil)

// Ready says whether the store should be given new work: nil, ErrDiskLow, or the error that latched the store.
func (s *Store) Ready() error {
	if err := s.writable(); err != nil {
		return err
	}
	usage, err := s.fs.GetDiskUsage(s.dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil // a file system in memory
	}
	if err != nil {
		return fmt.Errorf("free space of %s: %v: %w", s.dir, err, ErrIO)
	}
	if usage.AvailBytes < s.minFree {
		err := fmt.Errorf("%d MiB free in %s, %d MiB needed: %w", usage.AvailBytes>>20, s.dir, s.minFree>>20, ErrDiskLow)
		return fault.WithHint(err, "free disk space, or lower --min-free; running turns go on by themselves")
	}
	return nil
}

// writable returns why the store takes no writes, or nil.
func (s *Store) writable() error {
	if s.readOnly {
		return fmt.Errorf("opened read-only: %w", record.ErrReadOnly)
	}
	return s.health.failure()
}

// Close waits for readers and writers, at most CloseTimeout, and closes the store. In a store that died it closes
// nothing: the files and the lock stay with the process until it ends, because Pebble may still be writing. Closing
// again returns the same.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		if err := s.close(); err != nil {
			s.closeErr = fmt.Errorf("close store %s: %w", s.dir, err)
		}
	})
	return s.closeErr
}

func (s *Store) close() error {
	drained := s.gate.shut()
	if s.health.isDead() {
		return s.health.failure()
	}
	timeout := time.NewTimer(CloseTimeout)
	defer timeout.Stop()
	select {
	case <-drained:
	case <-s.health.dead:
		return s.health.failure()
	case <-timeout.C:
		return fmt.Errorf("still in use after %s: %w", CloseTimeout, ErrTimeout)
	}
	close(s.queue)
	done := make(chan error, 1)
	go s.health.guard(func() error { return errors.Join(s.db.Close(), s.lock.Close()) }, func(err error) { done <- err })
	select {
	case err := <-done:
		if err != nil {
			return classify(err)
		}
		return nil
	case <-s.health.dead:
		return s.health.failure()
	case <-timeout.C:
		return fmt.Errorf("still writing after %s: %w", CloseTimeout, ErrTimeout)
	}
}
