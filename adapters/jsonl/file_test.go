package jsonl_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/jsonl"
	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
	"condensate.dev/cnd/core/wire/builder"
)

var _ builder.Source = (*jsonl.File)(nil)

// goldenRecords are complete exports.
func goldenRecords(t *testing.T) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../../testdata/records/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	all := make(map[string][]byte)
	for _, p := range paths {
		all[p], err = os.ReadFile(p)
		require.NoError(t, err)
	}
	return all
}

// read returns the lines of the entries from seq on.
func read(t *testing.T, f *jsonl.File, from record.Seq) (lines []string) {
	t.Helper()
	for e, err := range f.Entries(t.Context(), from) {
		require.NoError(t, err)
		lines = append(lines, string(e.Line))
	}
	return lines
}

// entryLines returns the lines of an export that are entries.
func entryLines(export []byte) (lines []string) {
	for line := range strings.Lines(string(export)) {
		if strings.HasPrefix(line, `{"v":0,"thread":`) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// TestFile reads every golden record, from a file and from a pipe, again and again and from every place.
func TestFile(t *testing.T) {
	for path, export := range goldenRecords(t) {
		opened, err := jsonl.Open(path)
		require.NoError(t, err)
		spooled, err := jsonl.Spool(iotest.OneByteReader(bytes.NewReader(export)), t.TempDir())
		require.NoError(t, err)
		for _, f := range []*jsonl.File{opened, spooled} {
			for range 2 {
				r, err := record.VerifyExport(f.Reader(), record.VerifyOptions{Opener: notes.Opener{}}, nil)
				require.NoError(t, err)
				require.Equal(t, int64(len(entryLines(export))), r.Entries)
			}
			want := entryLines(export)
			for from := range len(want) + 1 {
				require.Equal(t, want[from:], append([]string{}, read(t, f, record.Seq(from))...))
			}
			for range f.Entries(t.Context(), 0) {
				break
			}
			require.NoError(t, f.Close())
		}
	}
}

// TestFileBlobs reads blobs in any order, before and after the entries that use them.
func TestFileBlobs(t *testing.T) {
	var blobs []record.Blob
	var out bytes.Buffer
	w := recordtest.NewWriter(1)
	out.Write(append(w.Start(t, 1)[0].Line, '\n'))
	for i := range 20 {
		b := record.NewBlob(bytes.Repeat([]byte{byte(i)}, i*5000))
		blobs = append(blobs, b)
		out.Write(append(b.AppendLine(nil), '\n'))
		out.Write(append(w.Seal(t, record.ToolFinished, recordtest.Listing(b), b).Line, '\n'))
	}
	f, err := jsonl.Spool(&out, "")
	require.NoError(t, err)
	defer f.Close()
	for _, i := range []int{0, 7, 3, 19, 19, 0, 12} {
		data, err := f.Blob(t.Context(), blobs[i].Digest)
		require.NoError(t, err)
		require.True(t, bytes.Equal(blobs[i].Data, data))
	}
	var wait sync.WaitGroup
	for _, b := range blobs {
		wait.Go(func() {
			data, err := f.Blob(context.Background(), b.Digest)
			if err != nil || !bytes.Equal(data, b.Data) {
				t.Errorf("blob of %d bytes: %v", len(b.Data), err)
			}
		})
	}
	wait.Wait()
	_, err = f.Blob(t.Context(), record.NewBlob([]byte("absent")).Digest)
	require.ErrorIs(t, err, record.ErrNoBlob)
}

func TestFileErrors(t *testing.T) {
	_, err := jsonl.Open(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, jsonl.ErrNoFile)
	_, err = jsonl.Open(t.TempDir())
	require.ErrorIs(t, err, jsonl.ErrFolder)
	_, err = jsonl.Spool(strings.NewReader("x"), filepath.Join(t.TempDir(), "absent"))
	require.Error(t, err)
	broken := errors.New("broken pipe")
	dir := t.TempDir()
	_, err = jsonl.Spool(io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken)), dir)
	require.ErrorIs(t, err, broken)
	_, err = jsonl.Spool(iotest.ErrReader(syscall.ENOSPC), dir)
	require.ErrorIs(t, err, jsonl.ErrSpoolFull)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)

	w := recordtest.NewWriter(1)
	all := w.Start(t, 3)
	b := record.NewBlob([]byte("data"))
	text := string(all[0].Line) + "\n" + strings.Replace(string(b.AppendLine(nil)), "ZGF", "ZGG", 1) + "\n" + string(all[1].Line[1:]) + "\n"
	f, err := jsonl.Spool(strings.NewReader(text), dir)
	require.NoError(t, err)
	defer f.Close()
	var got []error
	for _, err := range f.Entries(t.Context(), 0) {
		got = append(got, err)
	}
	require.Len(t, got, 2)
	require.ErrorIs(t, got[1], record.ErrInvalidEntry)
	require.ErrorContains(t, got[1], "line 3")
	_, err = f.Blob(t.Context(), b.Digest)
	require.ErrorIs(t, err, record.ErrInvalidEntry)

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range f.Entries(canceled, 0) {
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err = f.Blob(canceled, b.Digest)
	require.ErrorIs(t, err, context.Canceled)
}

// TestSpoolIsPrivate shows that what is spooled has no name and cannot be read by others.
func TestSpoolIsPrivate(t *testing.T) {
	dir := t.TempDir()
	r, w := io.Pipe()
	spooled := make(chan error, 1)
	go func() {
		f, err := jsonl.Spool(r, dir)
		if err == nil {
			err = f.Close()
		}
		spooled <- err
	}()
	_, err := w.Write([]byte("secret")) // it is read, so the file is there
	require.NoError(t, err)
	for _, name := range names(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	require.NoError(t, w.Close())
	require.NoError(t, <-spooled)
	require.Empty(t, names(t, dir))
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestOpenPipe shows that what can be read only once is spooled.
func TestOpenPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	export := goldenRecords(t)["../../testdata/records/turn.jsonl"]
	go os.WriteFile(path, export, 0o600) //nolint:errcheck // the reader sees it
	f, err := jsonl.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, entryLines(export), read(t, f, 0))
	require.Equal(t, entryLines(export), read(t, f, 0))
}
