package pebblestore_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	m := newModel()
	jobs := script(t, 9, 100)
	for i := range 3 {
		s, err := pebblestore.Open(dir, pebblestore.Options{Project: countEntries})
		require.NoError(t, err)
		requireSurvived(t, s, m, m)
		require.NoError(t, m.run(s, jobs[3*i:3*i+3]))
		require.NoError(t, s.Close())
	}
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "records are private")

	s := openStore(t, dir, pebblestore.Options{ReadOnly: true, Project: countEntries})
	requireSurvived(t, s, m, m)
	require.ErrorIs(t, appendOnly(s, jobs[8]), record.ErrReadOnly)
	require.ErrorIs(t, s.Ready(), record.ErrReadOnly)
	require.ErrorIs(t, s.Reindex(t.Context()), record.ErrReadOnly)
	_, err = s.BeginImport()
	require.ErrorIs(t, err, record.ErrReadOnly)
}

// TestReadOnlyChangesNothing opens what another version, or a crash, left: no byte of it may change.
func TestReadOnlyChangesNothing(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s := openStore(t, "store", pebblestore.Options{FS: disk, Project: countEntries})
	m := newModel()
	require.NoError(t, m.run(s, script(t, 9, 100)))
	crashed := crash(disk, 0, 0)
	before := contents(t, crashed)
	require.NotEmpty(t, before)
	read := openStore(t, "store", pebblestore.Options{FS: crashed, ReadOnly: true, Project: countEntries})
	requireSurvived(t, read, m, m)
	require.Equal(t, before, contents(t, crashed))
}

// contents returns all files of a store but the one that is locked.
func contents(t *testing.T, disk vfs.FS) map[string]string {
	names, err := disk.List("store")
	require.NoError(t, err)
	all := make(map[string]string)
	for _, name := range names {
		if name != "LOCK" {
			all[name] = string(readAll(t, disk, "store/"+name))
		}
	}
	return all
}

func TestNoStore(t *testing.T) {
	empty := t.TempDir()
	for _, dir := range []string{filepath.Join(empty, "absent"), empty} {
		_, err := pebblestore.Open(dir, pebblestore.Options{ReadOnly: true})
		require.ErrorIs(t, err, pebblestore.ErrNoStore)
		require.Equal(t, fault.NotFound, fault.ClassOf(err))
	}
	_, err := os.Stat(filepath.Join(empty, "absent"))
	require.ErrorIs(t, err, os.ErrNotExist, "nothing is made")
}

func TestLocked(t *testing.T) {
	for name, options := range map[string]pebblestore.Options{"disk": {}, "memory": {FS: vfs.NewMem()}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			s, err := pebblestore.Open(dir, options)
			require.NoError(t, err)
			for _, readOnly := range []bool{false, true} {
				options.ReadOnly, options.LockWait = readOnly, -1
				_, err = pebblestore.Open(dir, options)
				require.ErrorIs(t, err, pebblestore.ErrLocked)
				require.Equal(t, fault.Conflict, fault.ClassOf(err))
				require.Equal(t, "store-locked", fault.Find(err).Code)
				require.NotEmpty(t, fault.HintOf(err))
			}
			options.ReadOnly, options.LockWait = false, patience
			opened := make(chan error, 1)
			go func() {
				s, err := pebblestore.Open(dir, options)
				if err == nil {
					err = s.Close()
				}
				opened <- err
			}()
			require.Never(t, func() bool { return len(opened) > 0 }, 3*moment, moment)
			require.NoError(t, s.Close())
			require.NoError(t, <-opened, "it waits until the other one lets go")
		})
	}
}

func TestLockWaitEnds(t *testing.T) {
	dir := t.TempDir()
	openStore(t, dir, pebblestore.Options{})
	start := time.Now()
	_, err := pebblestore.Open(dir, pebblestore.Options{LockWait: 5 * moment})
	require.ErrorIs(t, err, pebblestore.ErrLocked)
	require.GreaterOrEqual(t, time.Since(start), 5*moment)
}

// TestForeignFolders opens stores that this program did not make, or not like this.
func TestForeignFolders(t *testing.T) {
	cases := map[string]struct {
		keys     map[string]string
		readOnly bool
		want     *fault.Error
		class    fault.Class
	}{
		"newer schema":            {keys: map[string]string{"meta/schema": "2"}, want: pebblestore.ErrNewer, class: fault.Config},
		"newer schema, read-only": {keys: map[string]string{"meta/schema": "2"}, readOnly: true, want: pebblestore.ErrNewer, class: fault.Config},
		"no schema":               {keys: map[string]string{"t/x": "y"}, want: record.ErrDamaged, class: fault.Corrupt},
		"no number":               {keys: map[string]string{"meta/schema": "one"}, want: record.ErrDamaged, class: fault.Corrupt},
		"zero":                    {keys: map[string]string{"meta/schema": "0"}, want: record.ErrDamaged, class: fault.Corrupt},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			db := openPebble(t, disk)
			for k, v := range c.keys {
				require.NoError(t, db.Set([]byte(k), []byte(v), pebble.Sync))
			}
			require.NoError(t, db.Close())
			for range 2 { // the refusal lets go of the lock
				_, err := pebblestore.Open("store", pebblestore.Options{FS: disk, ReadOnly: c.readOnly, LockWait: -1})
				require.ErrorIs(t, err, c.want)
				require.Equal(t, c.class, fault.ClassOf(err))
			}
			db = openPebble(t, disk)
			for k, v := range c.keys {
				got, closer, err := db.Get([]byte(k))
				require.NoError(t, err)
				require.Equal(t, v, string(got), "nothing is lost")
				require.NoError(t, closer.Close())
			}
			require.NoError(t, db.Close())
		})
	}
}

// TestNewerPebble opens a store whose files are of a format that this Pebble does not know.
func TestNewerPebble(t *testing.T) {
	disk := vfs.NewMem()
	s, err := pebblestore.Open("store", pebblestore.Options{FS: disk})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	names, err := disk.List("store")
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasPrefix(name, "marker.format-version.") {
			require.NoError(t, disk.Rename("store/"+name, "store/marker.format-version.000099.999"))
		}
	}
	_, err = pebblestore.Open("store", pebblestore.Options{FS: disk})
	require.ErrorIs(t, err, pebblestore.ErrNewer)
	require.Equal(t, fault.Config, fault.ClassOf(err))
	require.NotEmpty(t, fault.HintOf(err))
}

func TestNoPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may do everything")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o500))
	_, err := pebblestore.Open(filepath.Join(dir, "store"), pebblestore.Options{})
	require.Equal(t, fault.Config, fault.ClassOf(err), "%v", err)
}

// openPebble opens the files of a store without this package.
func openPebble(t testing.TB, disk vfs.FS) *pebble.DB {
	db, err := pebble.Open("store", &pebble.Options{FS: disk, FormatMajorVersion: pebble.FormatTableFormatV6, Logger: silent{}})
	require.NoError(t, err)
	return db
}

type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(format) }

// TestClose leaves nothing behind, and every call after it says so.
func TestClose(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{Project: countEntries, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	m := newModel()
	jobs := script(t, 4, 100)
	require.NoError(t, m.run(s, jobs[:3]))
	id := jobs[0].entries[0].Thread
	abandoned := s.Entries(t.Context(), id, 0)
	for range abandoned {
		break
	}
	require.NoError(t, s.Close())

	ctx := context.Background()
	require.ErrorIs(t, appendOnly(s, jobs[3]), pebblestore.ErrClosed)
	_, err = s.Head(ctx, id)
	require.ErrorIs(t, err, pebblestore.ErrClosed)
	_, err = s.Blob(ctx, record.Digest{})
	require.ErrorIs(t, err, pebblestore.ErrClosed)
	_, err = s.BeginImport()
	require.ErrorIs(t, err, pebblestore.ErrClosed)
	for _, err := range s.Threads(ctx) {
		require.ErrorIs(t, err, pebblestore.ErrClosed)
	}
	for _, err := range abandoned {
		require.ErrorIs(t, err, pebblestore.ErrClosed)
	}
}

// TestCloseEndsLoops closes a store in the middle of a loop: the loop ends with an error and then the store closes.
func TestCloseEndsLoops(t *testing.T) {
	s, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	jobs := script(t, 12, 10)
	require.NoError(t, newModel().run(s, jobs))
	closed := make(chan error, 1)
	var last error
	for _, err := range s.Entries(t.Context(), jobs[0].entries[0].Thread, 0) {
		if last = err; last == nil {
			go func(c chan<- error) { c <- s.Close() }(closed)
			require.Eventually(t, func() bool {
				_, err := s.Head(t.Context(), jobs[0].entries[0].Thread)
				return err != nil
			}, patience, moment)
		}
	}
	require.ErrorIs(t, last, pebblestore.ErrClosed)
	require.NoError(t, <-closed)
}
