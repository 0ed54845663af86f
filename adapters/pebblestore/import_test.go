package pebblestore_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// origin is the store that a record comes from.
type origin struct {
	*memstore.Store
	signer recordtest.Signer
}

func newOrigin() origin { return origin{memstore.New(), recordtest.NewSigner("origin", 1)} }

func (o origin) append(t testing.TB, expect record.Head, entries ...record.Entry) {
	t.Helper()
	_, err := o.Append(t.Context(), entries[0].Thread, expect, entries...)
	require.NoError(t, err)
}

// export returns the record of a thread as a file, with the head signed.
func (o origin) export(t testing.TB, id record.ThreadID) []byte {
	t.Helper()
	at, err := o.Head(t.Context(), id)
	require.NoError(t, err)
	head, err := record.SignHead(o.signer, id, at, record.Digest{})
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, record.WriteExport(t.Context(), &b, o, id, head))
	return b.Bytes()
}

// importFile reads a file into s as the runtime does.
func importFile(s *pebblestore.Store, o origin, file []byte) error {
	ctx := context.Background()
	m, err := s.BeginImport()
	if err != nil {
		return err
	}
	report, err := record.VerifyExport(bytes.NewReader(file), record.VerifyOptions{Opener: o.signer, Key: o.signer.VerifierKey(), KeepBlobs: true},
		func(e record.Entry) error { return m.Add(ctx, e) })
	if err != nil {
		return errors.Join(err, m.Abort())
	}
	return m.Commit(ctx, *report.Signed)
}

// family makes a thread with a blob and a fork of it, each of more than one chunk.
func (o origin) family(t testing.TB) (parent, fork *recordtest.Writer, blob record.Blob) {
	parent = recordtest.NewWriter(1)
	blob = record.NewBlob([]byte(strings.Repeat("blob ", 1000)))
	all := append(parent.Start(t, 2), parent.Seal(t, record.ToolFinished, recordtest.Listing(blob), blob))
	for range 3 {
		all = append(all, parent.Seal(t, record.MessageAccepted, `{"text":"`+strings.Repeat("x", 400<<10)+`"}`))
	}
	o.append(t, record.Head{}, all...)
	fork, forked := parent.Fork(t, 2)
	own := []record.Entry{forked}
	for range 3 {
		own = append(own, fork.Seal(t, record.MessageAccepted, `{"text":"`+strings.Repeat("y", 400<<10)+`"}`))
	}
	o.append(t, all[len(all)-1].Head(), own...)
	return parent, fork, blob
}

// forked makes a thread of 10 entries and a fork of it after the entry at, of n entries.
func (o origin) forked(t testing.TB, at, n int) record.ThreadID {
	parent := recordtest.NewWriter(1)
	o.append(t, record.Head{}, parent.Start(t, at+1)...)
	place := parent.Head
	fork, first := parent.Fork(t, 2)
	o.append(t, place, append([]record.Entry{first}, fork.More(t, n-1)...)...)
	o.append(t, place, parent.More(t, 9-at)...)
	return fork.ID
}

func TestImport(t *testing.T) {
	o := newOrigin()
	parent, fork, blob := o.family(t)
	disk := vfs.NewCrashableMem()
	s := openStore(t, "store", pebblestore.Options{FS: disk, Project: countEntries})
	file := o.export(t, fork.ID)
	require.NoError(t, importFile(s, o, file))
	requireImported(t, s, o, fork.ID)
	requireImported(t, s, o, parent.ID)
	data, err := s.Blob(t.Context(), blob.Digest)
	require.NoError(t, err)
	require.Equal(t, blob.Data, data)

	head, foreign, err := s.ForeignHead(t.Context(), fork.ID)
	require.NoError(t, err)
	require.True(t, foreign)
	require.Equal(t, fork.Head, head.Place())
	head, foreign, err = s.ForeignHead(t.Context(), parent.ID)
	require.NoError(t, err)
	require.True(t, foreign, "an ancestor is read-only, too")
	require.Empty(t, head.Note)

	require.NoError(t, importFile(s, o, file), "again")
	require.NoError(t, importFile(s, o, o.export(t, parent.ID)), "the ancestor by itself")
	head, _, err = s.ForeignHead(t.Context(), parent.ID)
	require.NoError(t, err)
	require.Equal(t, parent.Head, head.Place())

	before := fork.Head
	_, err = s.Append(t.Context(), fork.ID, before, fork.More(t, 1)...)
	require.ErrorIs(t, err, record.ErrReadOnly)
	require.ErrorIs(t, err, pebblestore.ErrForeign)

	reopened := openStore(t, "store", pebblestore.Options{FS: crash(disk, 0, 0), Project: countEntries})
	requireImported(t, reopened, o, fork.ID)
	_, err = reopened.Append(t.Context(), fork.ID, before, recordtest.NewWriter(2).Start(t, 1)...)
	require.Error(t, err)
	var exported bytes.Buffer
	signed, _, err := reopened.ForeignHead(t.Context(), fork.ID)
	require.NoError(t, err)
	require.NoError(t, record.WriteExport(t.Context(), &exported, reopened, fork.ID, signed))
	require.Equal(t, string(file), exported.String(), "what came in goes out, byte for byte")
}

// requireImported checks that s holds the thread as its origin does.
func requireImported(t *testing.T, s *pebblestore.Store, o origin, id record.ThreadID) {
	t.Helper()
	want, err := stored(o, id)
	require.NoError(t, err)
	got, err := stored(s, id)
	require.NoError(t, err)
	require.Len(t, got, len(want))
	var projection []byte
	for i := range want {
		require.True(t, bytes.Equal(want[i].Line, got[i].Line), "entry %d", i)
		projection, _ = countEntries(projection, want[i])
	}
	p, err := s.Projection(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, string(projection), string(p.Data))
	require.True(t, p.Foreign)
	_, err = record.VerifyThread(t.Context(), s, id, record.VerifyOptions{Unsigned: true}, nil)
	require.NoError(t, err)
}

// TestImportGoesOn imports a record, then a longer one of the same thread, then the shorter one again.
func TestImportGoesOn(t *testing.T) {
	o := newOrigin()
	w := recordtest.NewWriter(1)
	o.append(t, record.Head{}, w.Start(t, 5)...)
	short := o.export(t, w.ID)
	s := openStore(t, "store", pebblestore.Options{FS: vfs.NewMem(), Project: countEntries})
	require.NoError(t, importFile(s, o, short))
	before := w.Head
	o.append(t, before, w.More(t, 5)...)
	require.NoError(t, importFile(s, o, o.export(t, w.ID)))
	requireImported(t, s, o, w.ID)
	require.NoError(t, importFile(s, o, short))
	requireImported(t, s, o, w.ID)
	head, _, err := s.ForeignHead(t.Context(), w.ID)
	require.NoError(t, err)
	require.Equal(t, w.Head, head.Place(), "the newest head stays")
}

// TestImportConflicts imports records that contradict what the store holds.
func TestImportConflicts(t *testing.T) {
	o := newOrigin()
	w := recordtest.NewWriter(1)
	first := w.Start(t, 3)
	o.append(t, record.Head{}, first...)
	other := newOrigin()
	v := recordtest.NewWriter(1)
	theirs := []record.Entry{v.Seal(t, record.ThreadCreated, `{"cwd":"/elsewhere"}`)}
	other.append(t, record.Head{}, append(theirs, v.More(t, 5)...)...)

	t.Run("an imported thread", func(t *testing.T) {
		s := openStore(t, "store", pebblestore.Options{FS: vfs.NewMem(), Project: countEntries})
		require.NoError(t, importFile(s, o, o.export(t, w.ID)))
		require.ErrorIs(t, importFile(s, other, other.export(t, w.ID)), record.ErrConflict)
		requireImported(t, s, o, w.ID)
	})
	t.Run("a thread of its own", func(t *testing.T) {
		s := openStore(t, "store", pebblestore.Options{FS: vfs.NewMem(), Project: countEntries})
		_, err := s.Append(t.Context(), w.ID, record.Head{}, first...)
		require.NoError(t, err)
		require.ErrorIs(t, importFile(s, other, other.export(t, w.ID)), record.ErrConflict)
		require.NoError(t, importFile(s, o, o.export(t, w.ID)), "all the same")
		_, foreign, err := s.ForeignHead(t.Context(), w.ID)
		require.NoError(t, err)
		require.False(t, foreign, "it stays its own")
		before := w.Head
		more := w.More(t, 1)
		o.append(t, before, more...)
		require.ErrorIs(t, importFile(s, o, o.export(t, w.ID)), record.ErrConflict, "a longer one")
		_, err = s.Append(t.Context(), w.ID, before, more...)
		require.NoError(t, err)
	})
	t.Run("another fork of that name", func(t *testing.T) {
		for _, at := range []int{1, 4, 8} { // the stored one begins at 4 and ends at 6
			mine, theirs := newOrigin(), newOrigin()
			s := openStore(t, "store", pebblestore.Options{FS: vfs.NewMem(), Project: countEntries})
			fork := mine.forked(t, 3, 3)
			require.NoError(t, importFile(s, mine, mine.export(t, fork)))
			fork = theirs.forked(t, at, 9)
			require.ErrorIs(t, importFile(s, theirs, theirs.export(t, fork)), record.ErrConflict, "forked at %d", at)
			requireImported(t, s, mine, fork)
		}
	})
	t.Run("a thread that is being made", func(t *testing.T) {
		s := openStore(t, "store", pebblestore.Options{FS: vfs.NewMem(), Project: countEntries})
		m, err := s.BeginImport()
		require.NoError(t, err)
		require.NoError(t, m.Add(t.Context(), first[0]))
		ctx, cancel := context.WithTimeout(t.Context(), moment)
		defer cancel()
		_, err = s.Append(ctx, w.ID, record.Head{}, first...)
		require.ErrorIs(t, err, pebblestore.ErrTimeout)
		require.NoError(t, m.Abort())
		_, err = s.Append(t.Context(), w.ID, record.Head{}, first...)
		require.NoError(t, err)
	})
}

// TestImportRefuses gives Commit and Add what does not fit.
func TestImportRefuses(t *testing.T) {
	o := newOrigin()
	parent, fork, _ := o.family(t)
	all, err := stored(o, parent.ID)
	require.NoError(t, err)
	own, err := stored(o, fork.ID)
	require.NoError(t, err)
	plain := recordtest.NewWriter(1)
	twice := plain.Start(t, 2)
	aside, first := plain.Fork(t, 2)
	_, back := aside.Fork(t, 1)
	twice = append(twice, first, back)
	head := func(id record.ThreadID, at record.Head) record.SignedHead {
		h, err := record.SignHead(o.signer, id, at, record.Digest{})
		require.NoError(t, err)
		return h
	}
	for name, c := range map[string]struct {
		entries []record.Entry
		head    record.SignedHead
		want    error
	}{
		"nothing":          {nil, head(parent.ID, parent.Head), record.ErrInvalidEntry},
		"another place":    {all[:2], head(parent.ID, parent.Head), record.ErrHead},
		"another thread":   {all[:2], head(fork.ID, all[1].Head()), record.ErrHead},
		"a gap":            {[]record.Entry{all[0], all[2]}, head(parent.ID, all[2].Head()), record.ErrInvalidEntry},
		"no beginning":     {all[1:2], head(parent.ID, all[1].Head()), record.ErrInvalidEntry},
		"a missing blob":   {all[:3], head(parent.ID, all[2].Head()), record.ErrNoBlob},
		"half of a family": {own, head(fork.ID, fork.Head), record.ErrInvalidEntry},
		"twice":            {twice, head(parent.ID, back.Head()), record.ErrInvalidEntry},
		"another family":   {append(recordtest.NewWriter(7).Start(t, 2), own...), head(fork.ID, fork.Head), record.ErrInvalidEntry},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, "store", pebblestore.Options{FS: vfs.NewMem(), Project: countEntries})
			require.ErrorIs(t, s.ImportThread(t.Context(), sequence(c.entries), c.head), c.want)
			requireEmpty(t, s)
		})
	}
}

func sequence(entries []record.Entry) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// requireEmpty checks that no thread can be seen and no entry is left behind.
func requireEmpty(t *testing.T, s *pebblestore.Store) {
	t.Helper()
	for id, err := range s.Threads(t.Context()) {
		require.NoError(t, err)
		t.Fatalf("thread %s", id)
	}
	for i := range 10 {
		_, err := s.Head(t.Context(), recordtest.ThreadID(i))
		require.ErrorIs(t, err, record.ErrNotFound)
	}
}

// TestImportLeavesSpace imports into a disk with little space, and into one that fills up meanwhile: that is refused
// before the disk is full, and the store takes what running turns write.
func TestImportLeavesSpace(t *testing.T) {
	o := newOrigin()
	_, fork, _ := o.family(t)
	file := o.export(t, fork.ID)
	disk := vfs.NewMem()
	free := func(n uint64) { disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: n, TotalBytes: 1 << 40}) }
	s := openStore(t, "store", pebblestore.Options{FS: disk, Project: countEntries})
	free(pebblestore.DefaultMinFree - 1)
	_, err := s.BeginImport()
	require.ErrorIs(t, err, pebblestore.ErrDiskLow)

	free(pebblestore.DefaultMinFree)
	m, err := s.BeginImport()
	require.NoError(t, err)
	_, err = record.VerifyExport(bytes.NewReader(file), record.VerifyOptions{Opener: o.signer, KeepBlobs: true}, func(e record.Entry) error {
		free(pebblestore.DefaultMinFree - 1)
		return m.Add(t.Context(), e)
	})
	require.ErrorIs(t, err, pebblestore.ErrDiskLow)
	require.NoError(t, m.Abort())
	requireEmpty(t, s)
	_, err = s.Append(t.Context(), recordtest.ThreadID(9), record.Head{}, recordtest.NewWriter(9).Start(t, 1)...)
	require.NoError(t, err)

	free(pebblestore.DefaultMinFree)
	require.NoError(t, importFile(s, o, file))
}

// TestInterruptedImport fails every operation of the disk in turn, and cuts the power after every entry: what was
// imported in part cannot be seen, is swept from the files, and can be imported again.
func TestInterruptedImport(t *testing.T) {
	t.Parallel()
	o := newOrigin()
	_, fork, _ := o.family(t)
	file := o.export(t, fork.ID)
	t.Run("power", func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		s := openStore(t, "store", pebblestore.Options{FS: disk, Project: countEntries})
		m, err := s.BeginImport()
		require.NoError(t, err)
		n := 0
		report, err := record.VerifyExport(bytes.NewReader(file), record.VerifyOptions{Opener: o.signer, Key: o.signer.VerifierKey(), KeepBlobs: true},
			func(e record.Entry) error {
				if err := m.Add(t.Context(), e); err != nil {
					return err
				}
				if n++; n%2 == 0 {
					requireSwept(t, crash(disk, 50*(n%3), uint64(n)), o, fork.ID, file)
				}
				return nil
			})
		require.NoError(t, err)
		require.Positive(t, n)
		require.NoError(t, m.Commit(t.Context(), *report.Signed))
		requireImported(t, openStore(t, "store", pebblestore.Options{FS: crash(disk, 0, 0), Project: countEntries}), o, fork.ID)
	})
	t.Run("disk", func(t *testing.T) {
		for n := int64(1); ; n++ {
			disk := vfs.NewCrashableMem()
			f := &failing{selects: isLogSync, n: 1 + n, errno: syscall.EIO}
			s, err := pebblestore.Open("store", pebblestore.Options{FS: errorfs.Wrap(disk, f), Project: countEntries})
			require.NoError(t, err)
			if err = importFile(s, o, file); err == nil {
				require.Greater(t, n, int64(2), "the import is written in chunks")
				_ = s.Close() // which is where the fault is now
				break
			}
			require.ErrorIs(t, err, record.ErrReadOnly, "sync %d", n)
			requireSwept(t, crash(disk, 100, 0), o, fork.ID, file)
		}
	})
	t.Run("abort", func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		s := openStore(t, "store", pebblestore.Options{FS: disk, Project: countEntries})
		cut := file[:len(file)-10]
		require.ErrorIs(t, importFile(s, o, cut), record.ErrDamaged)
		requireEmpty(t, s)
		require.NoError(t, importFile(s, o, file))
		requireImported(t, s, o, fork.ID)
	})
}

// requireSwept opens what an interrupted import left, and imports the file again.
func requireSwept(t *testing.T, disk *vfs.MemFS, o origin, id record.ThreadID, file []byte) {
	t.Helper()
	s, err := pebblestore.Open("store", pebblestore.Options{FS: disk, Project: countEntries})
	require.NoError(t, err)
	if _, err := s.Head(t.Context(), id); err == nil {
		requireImported(t, s, o, id) // all of it was written, only nobody heard
	} else {
		requireEmpty(t, s)
		require.NoError(t, s.Close())
		db := openPebble(t, disk)
		it, err := db.NewIter(nil)
		require.NoError(t, err)
		for ok := it.First(); ok; ok = it.Next() {
			require.False(t, bytes.HasPrefix(it.Key(), []byte("t/")) || bytes.HasPrefix(it.Key(), []byte("i/")), "%q is left", it.Key())
		}
		require.NoError(t, it.Close())
		require.NoError(t, db.Close())
		s, err = pebblestore.Open("store", pebblestore.Options{FS: disk, Project: countEntries})
		require.NoError(t, err)
		require.NoError(t, importFile(s, o, file))
		requireImported(t, s, o, id)
	}
	require.NoError(t, s.Close())
}
