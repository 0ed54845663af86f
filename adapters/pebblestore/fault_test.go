package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// failing injects errno into the n-th operation that it selects, or into all from there on.
type failing struct {
	selects func(errorfs.Op) bool
	n       int64
	forEver bool
	errno   syscall.Errno
	seen    atomic.Int64
	hit     atomic.Pointer[errorfs.Op] // the first operation that failed
}

func (f *failing) String() string { return "failing" }

func (f *failing) MaybeError(op errorfs.Op) error {
	if !f.selects(op) {
		return nil
	}
	if at := f.seen.Add(1); at == f.n || (f.forEver && at > f.n) {
		f.hit.CompareAndSwap(nil, &op)
		return pathError(op, f.errno)
	}
	return nil
}

// fired says whether the run came as far as the fault.
func (f *failing) fired() bool { return f.seen.Load() >= f.n }

// hitLog says whether the fault hit a write or a sync of the write-ahead log.
func (f *failing) hitLog() bool {
	hit := f.hit.Load()
	return hit != nil && isLog(*hit)
}

// changes says whether op changes the disk.
func changes(op errorfs.Op) bool {
	return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose && op.Kind != errorfs.OpLock
}

// TestFailNth fails the first, second, third… operation that changes the disk, once and for ever, with a full and with
// a broken disk, until a run is over before its fault. Whatever fails: no call hangs, after the first failed append all
// fail, the store says that it takes no more writes, and what was acknowledged is there after a power failure.
func TestFailNth(t *testing.T) {
	t.Parallel()
	jobs := script(t, 8, 300)
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
		for _, forEver := range []bool{false, true} {
			n := int64(1)
			for ; ; n++ {
				f := &failing{selects: changes, n: n, forEver: forEver, errno: errno}
				failRun(t, f, jobs, fmt.Sprintf("%s from operation %d on, for ever: %t", errno, n, forEver))
				if !f.fired() {
					break
				}
			}
			require.Greater(t, n, int64(30), "the script reaches more operations")
		}
	}
}

// failRun makes a store, appends, opens it again and appends, on a disk with one fault.
func failRun(t *testing.T, f *failing, jobs []job, what string) {
	t.Helper()
	disk := vfs.NewCrashableMem()
	m := newModel()
	half := len(jobs) / 2
	for _, part := range [][]job{jobs[:half], jobs[half:]} {
		fatal := make(chan error, 2)
		s, err := pebblestore.Open("store", pebblestore.Options{
			FS: errorfs.Wrap(disk, f), LockWait: -1, Project: countEntries, OnFatal: func(err error) { fatal <- err },
		})
		if err != nil {
			require.True(t, f.fired(), "%s: %v", what, err)
			require.NotEqual(t, fault.Internal, fault.ClassOf(err), "%s: %v", what, err)
			break
		}
		err = m.run(s, part)
		if err == nil {
			require.False(t, f.hitLog(), "%s: nobody heard of it", what)
			if err := s.Close(); err != nil {
				require.True(t, f.fired(), "%s: %v", what, err)
				break
			}
			require.False(t, f.hitLog(), "%s: nobody heard of it", what)
			continue
		}
		require.True(t, f.fired(), "%s: %v", what, err)
		require.ErrorIs(t, err, record.ErrReadOnly, what)
		require.ErrorIs(t, err, f.errno, what)
		if f.hitLog() {
			require.ErrorIs(t, <-fatal, f.errno, what)
		}
		for _, j := range part {
			require.ErrorIs(t, appendOnly(s, j), record.ErrReadOnly, what)
		}
		require.ErrorIs(t, s.Ready(), record.ErrReadOnly, what)
		err = s.Close()
		require.LessOrEqual(t, len(fatal), 1, "OnFatal is called once")
		if f.hitLog() {
			require.ErrorIs(t, err, record.ErrReadOnly, what)
		}
		break
	}
	// All or nothing of what was not synced: where a directory could not be synced, Pebble needs its names in order.
	for _, percent := range []int{0, 100} {
		requireReopens(t, crash(disk, percent, uint64(f.n)), m, m, what)
	}
}

// isLog says whether op writes or syncs the write-ahead log.
func isLog(op errorfs.Op) bool {
	return (op.Kind == errorfs.OpFileWrite || isLogSync(op)) && strings.HasSuffix(op.Path, ".log")
}

func appendOnly(s record.Store, j job) error {
	_, err := s.Append(context.Background(), j.entries[0].Thread, j.expect, j.entries...)
	return err
}

// background says whether op belongs to Pebble's work behind the appends: tables, not the log.
func background(op errorfs.Op) bool {
	return changes(op) && strings.HasSuffix(op.Path, ".sst")
}

// manifest says whether op writes the manifest.
func manifest(op errorfs.Op) bool {
	return changes(op) && strings.HasPrefix(path.Base(op.Path), "MANIFEST")
}

// large returns appends that are larger together than what is kept in memory, so that Pebble has to flush.
func large(t testing.TB) []job {
	w := recordtest.NewWriter(1)
	jobs := []job{{entries: w.Start(t, 1)}}
	body := `{"text":"` + strings.Repeat("x", 3<<20) + `"}`
	for range 7 {
		expect := w.Head
		jobs = append(jobs, job{expect: expect, entries: []record.Entry{w.Seal(t, record.MessageAccepted, body)}})
	}
	return jobs
}

// TestFullDiskBehindTheScenes fills the disk for the tables while the log can still be written. The first failed flush
// latches the store, all who wait and who come fail at once, reading goes on, nothing is fatal, and opening the store
// with space again has everything.
func TestFullDiskBehindTheScenes(t *testing.T) {
	t.Parallel()
	jobs := large(t)
	disk := vfs.NewCrashableMem()
	f := &failing{selects: background, n: 1, forEver: true, errno: syscall.ENOSPC}
	s, err := pebblestore.Open("store", pebblestore.Options{
		FS: errorfs.Wrap(disk, f), Project: countEntries, OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
	})
	require.NoError(t, err)
	m := newModel()
	for _, j := range jobs {
		if err = m.run(s, []job{j}); err != nil {
			break
		}
	}
	// Either an append met the latch, or all were in memory before the flush failed.
	if err == nil {
		require.Eventually(t, func() bool { return s.Ready() != nil }, patience, moment)
		err = s.Ready()
	}
	require.ErrorIs(t, err, record.ErrReadOnly)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, fault.Unavailable, fault.ClassOf(err))
	require.ErrorIs(t, appendOnly(s, jobs[0]), record.ErrReadOnly)
	requireReads(t, s, m)
	require.NoError(t, s.Close())

	reopened := openStore(t, "store", pebblestore.Options{FS: disk, Project: countEntries})
	requireSurvived(t, reopened, m, m)
	for i, j := range jobs[len(jobs)-3:] {
		require.NoError(t, appendOnly(reopened, j), "append %d again, whether or not it was acknowledged", i)
	}
}

// requireReads checks that a latched store can be read; appends that were under way may still come to their end.
func requireReads(t *testing.T, s *pebblestore.Store, m *model) {
	t.Helper()
	for id, th := range m.threads {
		got, err := stored(s, id)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(got), th.acked, "reading goes on")
		for i, e := range got {
			require.Equal(t, th.attempted[i].Hash, e.Hash)
		}
	}
}

// TestBrokenManifestIsFatal fails the manifest, which nothing can be written without.
func TestBrokenManifestIsFatal(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	armed := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if manifest(op) {
			return pathError(op, syscall.EIO)
		}
		return nil
	})}
	fatal := make(chan error, 1)
	s, err := pebblestore.Open("store", pebblestore.Options{
		FS: errorfs.Wrap(disk, armed), Project: countEntries, OnFatal: func(err error) { fatal <- err },
	})
	require.NoError(t, err)
	armed.On()
	m := newModel()
	err = m.run(s, large(t))
	require.ErrorIs(t, <-fatal, syscall.EIO)
	if err != nil {
		require.ErrorIs(t, err, record.ErrReadOnly)
	}
	require.ErrorIs(t, s.Ready(), syscall.EIO)
	requireReads(t, s, m)
	require.ErrorIs(t, s.Close(), record.ErrReadOnly)
	requireReopens(t, crash(disk, 0, 0), m, m, "reopened")
}

// TestFailedSyncFailsAllWaiters breaks the disk under 32 threads: none gets an acknowledgement for what the failed sync
// should have covered, none hangs, and no later sync makes up for it.
func TestFailedSyncFailsAllWaiters(t *testing.T) {
	disk := vfs.NewCrashableMem()
	f := &failing{selects: isLogSync, n: 40, errno: syscall.EIO} // once: the next sync would succeed
	s, err := pebblestore.Open("store", pebblestore.Options{FS: errorfs.Wrap(disk, f), Project: countEntries})
	require.NoError(t, err)
	m := newModel()
	failed := make(chan error, 32)
	for i := range cap(failed) {
		go func() {
			w := recordtest.NewWriter(i + 1)
			next, expect := w.Start(t, 1), record.Head{}
			var err error
			for range 1000 { // far more than 40 syncs
				if err = m.append(context.Background(), s, expect, next...); err != nil {
					break
				}
				expect = w.Head
				next = w.More(t, 1)
			}
			failed <- err
		}()
	}
	for range cap(failed) {
		require.ErrorIs(t, <-failed, record.ErrReadOnly)
	}
	synced := f.seen.Load()
	require.ErrorIs(t, appendOnly(s, script(t, 1, 1)[0]), record.ErrReadOnly)
	require.Equal(t, synced, f.seen.Load(), "nothing is synced again")
	requireReopens(t, crash(disk, 0, 0), m, m, "reopened")
}

// TestDiskLow refuses new work while little space is left, and takes it again when there is more.
func TestDiskLow(t *testing.T) {
	disk := vfs.NewMem()
	s := openStore(t, "store", pebblestore.Options{FS: disk})
	require.NoError(t, s.Ready(), "a file system that does not know its space")
	disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: pebblestore.DefaultMinFree - 1, TotalBytes: 1 << 40})
	err := s.Ready()
	require.ErrorIs(t, err, pebblestore.ErrDiskLow)
	require.Equal(t, fault.StorageFull, fault.ClassOf(err))
	require.Equal(t, "disk-low", fault.Find(err).Code)
	require.NotEmpty(t, fault.HintOf(err))
	require.NoError(t, appendOnly(s, script(t, 1, 1)[0]), "running turns may still write")
	disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: pebblestore.DefaultMinFree, TotalBytes: 1 << 40})
	require.NoError(t, s.Ready())
	require.NoError(t, openStore(t, t.TempDir(), pebblestore.Options{MinFree: 1}).Ready(), "a real disk")
}

// hangingDisk lets syncs of the log wait.
type hangingDisk struct {
	mu      sync.Mutex
	until   chan struct{} // nil: nothing waits
	waiting bool          // a sync has met until
}

func (d *hangingDisk) String() string { return "hanging" }

func (d *hangingDisk) MaybeError(op errorfs.Op) error {
	if isLogSync(op) {
		d.mu.Lock()
		until := d.until
		d.waiting = until != nil
		d.mu.Unlock()
		if until != nil {
			<-until
		}
	}
	return nil
}

func (d *hangingDisk) waits() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

// hang makes syncs wait until the returned function is called.
func (d *hangingDisk) hang() (resume func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	until := make(chan struct{})
	d.until = until
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.until = nil
		close(until)
	})
}

// TestNothingIsSeenBeforeItsSync reads while an append waits for its sync: nobody sees it before it is durable. The
// append gives up when its context ends, and becomes durable all the same when the disk comes back.
func TestNothingIsSeenBeforeItsSync(t *testing.T) {
	d := new(hangingDisk)
	disk := vfs.NewCrashableMem()
	s := openStore(t, "store", pebblestore.Options{FS: errorfs.Wrap(disk, d), Project: countEntries})
	w := recordtest.NewWriter(1)
	first := w.Start(t, 2)
	_, err := s.Append(t.Context(), w.ID, record.Head{}, first...)
	require.NoError(t, err)
	before := w.Head
	next := w.More(t, 1)
	other := recordtest.NewWriter(2)

	resume := d.hang()
	defer resume()
	short, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	_, err = s.Append(short, w.ID, before, next...)
	require.ErrorIs(t, err, pebblestore.ErrTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Append(short, other.ID, record.Head{}, other.Start(t, 1)...)
	require.ErrorIs(t, err, pebblestore.ErrTimeout)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Append(canceled, w.ID, before, next...)
	require.ErrorIs(t, err, pebblestore.ErrCanceled)

	_, err = s.Head(short, w.ID)
	require.ErrorIs(t, err, pebblestore.ErrTimeout, "nobody knows the head")
	got, err := stored(s, w.ID)
	require.NoError(t, err)
	require.Len(t, got, 2)
	p, err := s.Projection(t.Context(), w.ID)
	require.NoError(t, err)
	require.Equal(t, "2 message.accepted", string(p.Data))
	_, err = stored(s, other.ID)
	require.ErrorIs(t, err, record.ErrNotFound)
	for id, err := range s.Threads(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, w.ID, id)
	}

	resume()
	head, err := s.Append(t.Context(), w.ID, before, next...) // the same bytes again: waits for the turn, and finds them
	require.NoError(t, err)
	require.Equal(t, w.Head, head)
	got, err = stored(s, w.ID)
	require.NoError(t, err)
	require.Len(t, got, 3)
}

// TestCloseWaits closes a store while an append waits for its sync.
func TestCloseWaits(t *testing.T) {
	d := new(hangingDisk)
	disk := vfs.NewCrashableMem()
	s, err := pebblestore.Open("store", pebblestore.Options{FS: errorfs.Wrap(disk, d), Project: countEntries})
	require.NoError(t, err)
	resume := d.hang()
	j := script(t, 1, 1)[0]
	appended, closed := make(chan error, 1), make(chan error, 1)
	go func() { appended <- appendOnly(s, j) }()
	require.Eventually(t, func() bool { return d.waits() }, patience, moment)
	go func() { closed <- s.Close() }()
	require.Eventually(t, func() bool {
		_, err := s.Head(t.Context(), j.entries[0].Thread)
		return errors.Is(err, pebblestore.ErrClosed)
	}, patience, moment)
	require.Empty(t, closed)
	resume()
	require.NoError(t, <-appended)
	require.NoError(t, <-closed)
	require.ErrorIs(t, appendOnly(s, j), pebblestore.ErrClosed)
	m := newModel()
	m.attempt(j.entries)
	m.ack(j.entries)
	requireReopens(t, crash(disk, 0, 0), m, m, "reopened")
}
