package jsonl_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/jsonl"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// batches returns appends of one thread: messages, and every third time a blob.
func batches(t *testing.T, n int) (all [][]record.Entry) {
	w := recordtest.NewWriter(1)
	all = append(all, w.Start(t, 1))
	for i := range n - 1 {
		batch := w.More(t, 1+i%2)
		if i%3 == 0 {
			b := record.NewBlob([]byte{byte(i)})
			batch = append(batch, w.Seal(t, record.ToolFinished, recordtest.Listing(b), b))
		}
		all = append(all, batch)
	}
	return all
}

// write makes a file with the batches and returns its bytes, and after each entry how long the file was.
func write(t *testing.T, path string, all [][]record.Entry) (text []byte, ends map[int]record.Entry) {
	t.Helper()
	l, err := jsonl.Create(path)
	require.NoError(t, err)
	for _, batch := range all {
		require.NoError(t, l.Append(batch...))
	}
	require.NoError(t, l.Close())
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	ends = make(map[int]record.Entry)
	for _, batch := range all {
		for _, e := range batch {
			ends[bytes.Index(text, e.Line)+len(e.Line)+1] = e
		}
	}
	return text, ends
}

// before returns the last entry that lies wholly before length.
func before(ends map[int]record.Entry, length int) (last record.Entry) {
	at := -1
	for end, e := range ends {
		if end <= length && end > at {
			at, last = end, e
		}
	}
	return last
}

// TestEveryByteTorn cuts a file at every length: exactly the entries that lie wholly before the cut are there, and the
// file takes more.
func TestEveryByteTorn(t *testing.T) {
	dir := t.TempDir()
	all := batches(t, 6)
	text, ends := write(t, filepath.Join(dir, "whole"), all)
	path := filepath.Join(dir, "torn")
	for length := range len(text) + 1 {
		require.NoError(t, os.WriteFile(path, text[:length], 0o600))
		l, err := jsonl.OpenLog(path)
		require.NoError(t, err, length)
		want := before(ends, length)
		thread, head := l.Head()
		require.Equal(t, want.Head(), head, length)
		require.Equal(t, want.Thread, thread, length)
		if length%31 == 0 { // each append syncs
			w := recordtest.Writer{ID: recordtest.ThreadID(1), Head: head}
			kind := record.NoteInjected
			if (head == record.Head{}) {
				kind = record.ThreadCreated
			}
			require.NoError(t, l.Append(w.Seal(t, kind, `{"after":"a crash"}`)))
			require.Equal(t, w.Head, verified(t, path))
		}
		require.NoError(t, l.Close())
	}
}

// verified returns the head of a file that must verify.
func verified(t *testing.T, path string) record.Head {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r, err := record.VerifyExport(f, record.VerifyOptions{Unsigned: true}, nil)
	require.NoError(t, err)
	return r.Head
}

// TestEveryByteGarbage has zeros, dice or old bytes in place of the tail from every place in the last batch on: the
// file opens with exactly the entries before, or is refused and left alone. Never an entry more, never one less.
func TestEveryByteGarbage(t *testing.T) {
	dir := t.TempDir()
	all := batches(t, 3)
	text, ends := write(t, filepath.Join(dir, "whole"), all)
	path := filepath.Join(dir, "garbage")
	last := bytes.Index(text, all[len(all)-1][0].Line)
	opened, refused := 0, 0
	for from := last; from < len(text); from++ {
		for seed := range 5 {
			bad := bytes.Clone(text)
			tail := bad[from:]
			switch seed {
			case 0:
				clear(tail)
			case 1: // what a recycled piece of disk held
				copy(tail, text[:len(tail)])
			default:
				rand.NewChaCha8([32]byte{byte(seed), byte(from), byte(from >> 8)}).Read(tail) //nolint:errcheck // it never fails
			}
			if bytes.Equal(bad, text) {
				continue
			}
			require.NoError(t, os.WriteFile(path, bad, 0o600))
			l, err := jsonl.OpenLog(path)
			if err != nil {
				refused++
				require.Contains(t, []fault.Class{fault.Corrupt, fault.Invalid}, fault.ClassOf(err), err)
				after, err := os.ReadFile(path)
				require.NoError(t, err)
				require.True(t, bytes.Equal(bad, after), "a refused file was changed")
				continue
			}
			opened++
			_, head := l.Head()
			require.Equal(t, before(ends, from).Head(), head, "from %d, seed %d", from, seed)
			require.NoError(t, l.Close())
		}
	}
	require.Positive(t, opened)
	require.Positive(t, refused)
}

// TestDamageIsRefused shows that nothing but a cut-short end is mended.
func TestDamageIsRefused(t *testing.T) {
	dir := t.TempDir()
	all := batches(t, 4)
	text, _ := write(t, filepath.Join(dir, "whole"), all)
	path := filepath.Join(dir, "damaged")
	lines := bytes.SplitAfter(text, []byte("\n"))
	for name, bad := range map[string][]byte{
		"a flipped bit": bytes.Replace(text, []byte("entry 1 of"), []byte("entry 3 of"), 1),
		"a lost line":   bytes.Join(append(lines[:2:2], lines[3:]...), nil),
		"a blank line":  append(bytes.Clone(text), '\n'),
		"a foreign one": append(bytes.Clone(text), "{}\n"...),
		"other version": bytes.Replace(text, []byte(`{"v":0`), []byte(`{"v":1`), 1),
		"no end":        append(bytes.Clone(text), bytes.Repeat([]byte("x"), record.MaxLine)...),
	} {
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		_, err := jsonl.OpenLog(path)
		require.Error(t, err, name)
		require.Contains(t, []fault.Class{fault.Corrupt, fault.Invalid}, fault.ClassOf(err), name)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(bad, after), name)
	}
}

// TestLogRefuses shows what a log does not take, and that it takes more after that.
func TestLogRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := jsonl.Create(path)
	require.NoError(t, err)
	defer l.Close()
	w := recordtest.NewWriter(1)
	start := w.Start(t, 2)
	require.ErrorIs(t, l.Append(), record.ErrInvalidEntry)
	require.ErrorIs(t, l.Append(start[1]), record.ErrInvalidEntry)
	require.NoError(t, l.Append(start...))
	require.ErrorIs(t, l.Append(start...), record.ErrInvalidEntry)
	require.ErrorIs(t, l.Append((&recordtest.Writer{ID: recordtest.ThreadID(2), Head: w.Head}).More(t, 1)...), record.ErrInvalidEntry)
	b := record.NewBlob([]byte("b"))
	bare := (&recordtest.Writer{ID: w.ID, Head: w.Head}).Seal(t, record.ToolFinished, recordtest.Listing(b), b)
	bare.Blobs = nil
	require.ErrorIs(t, l.Append(bare), record.ErrNoBlob)

	require.NoError(t, l.Append(w.Seal(t, record.ToolFinished, recordtest.Listing(b), b), w.Seal(t, record.ToolFinished, recordtest.Listing(b), b)))
	again := w.Seal(t, record.ToolFinished, recordtest.Listing(b), b)
	again.Blobs = nil
	require.NoError(t, l.Append(again), "the file has the blob")
	f, forked := w.Fork(t, 2)
	require.NoError(t, l.Append(forked))
	require.NoError(t, l.Append(f.More(t, 1)...))
	require.Equal(t, f.Head, verified(t, path))
}

// TestLogOpen shows who may open a log.
func TestLogOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	_, err := jsonl.OpenLog(path)
	require.ErrorIs(t, err, jsonl.ErrNoFile)
	l, err := jsonl.Create(path)
	require.NoError(t, err)
	_, err = jsonl.Create(path)
	require.ErrorIs(t, err, jsonl.ErrExists)
	_, err = jsonl.OpenLog(path)
	require.ErrorIs(t, err, jsonl.ErrLocked)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, l.Close())
	l, err = jsonl.OpenLog(path)
	require.NoError(t, err, "an empty file is a log")
	require.NoError(t, l.Close())

	for golden, export := range goldenRecords(t) {
		require.NoError(t, os.WriteFile(path, export, 0o600))
		_, err = jsonl.OpenLog(path)
		require.ErrorIs(t, err, jsonl.ErrFinished, golden)
	}
}
