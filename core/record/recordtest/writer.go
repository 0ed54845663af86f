package recordtest

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"condensate.dev/cnd/core/record"
)

// Writer seals the entries of one thread, each after the one before, with fixed times and salts: the same calls give
// the same bytes.
type Writer struct {
	ID   record.ThreadID
	Head record.Head // of the newest entry that was sealed
	Gen  uint64      // of the entries to come
}

// ThreadID returns the n-th of the ids that tests use; they are neighbours in the order of bytes.
func ThreadID(n int) record.ThreadID { return record.ThreadID(fmt.Sprintf("thr_%026d", n)) }

// NewWriter returns a writer of the n-th thread.
func NewWriter(n int) *Writer { return &Writer{ID: ThreadID(n)} }

// Seal returns the next entry.
func (w *Writer) Seal(t testing.TB, kind record.Kind, body string, blobs ...record.Blob) record.Entry {
	t.Helper()
	e, err := w.Try(kind, body, blobs...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Try is Seal for entries that may be refused.
func (w *Writer) Try(kind record.Kind, body string, blobs ...record.Blob) (record.Entry, error) {
	seq := w.Head.Next()
	var salt record.Salt
	binary.BigEndian.PutUint64(salt[:], uint64(seq))
	copy(salt[8:], w.ID[len(w.ID)-8:])
	e, err := record.Seal(w.ID, w.Head, salt, record.Draft{
		Gen: w.Gen, Time: time.UnixMicro(1_796_000_000_000_000 + int64(seq)*1_000_003), Kind: kind, Body: []byte(body), Blobs: blobs,
	})
	if err == nil {
		w.Head = e.Head()
	}
	return e, err
}

// Start returns n entries that begin the thread: thread.created and messages.
func (w *Writer) Start(t testing.TB, n int) []record.Entry {
	t.Helper()
	return append([]record.Entry{w.Seal(t, record.ThreadCreated, `{"cwd":"/work","engine":"loop"}`)}, w.More(t, n-1)...)
}

// More returns the next n entries, all messages.
func (w *Writer) More(t testing.TB, n int) []record.Entry {
	t.Helper()
	entries := make([]record.Entry, n)
	for i := range entries {
		entries[i] = w.Seal(t, record.MessageAccepted, fmt.Sprintf(`{"id":"msg_%026d","text":"entry %d of %s"}`, w.Head.Next(), w.Head.Next(), w.ID))
	}
	return entries
}

// Fork returns a writer of the n-th thread, which forks off at the newest entry of w, and the fork's first entry.
func (w *Writer) Fork(t testing.TB, n int) (*Writer, record.Entry) {
	t.Helper()
	f := &Writer{ID: ThreadID(n), Head: w.Head, Gen: w.Gen}
	body := fmt.Sprintf(`{"parent":"%s","seq":%d,"hash":"%s"}`, w.ID, w.Head.Seq, w.Head.Hash)
	return f, f.Seal(t, record.ThreadForked, body)
}

// Listing returns a body that lists the blobs.
func Listing(blobs ...record.Blob) string {
	list := ""
	for i, b := range blobs {
		if i > 0 {
			list += ","
		}
		list += `"` + b.Ref() + `"`
	}
	return `{"blobs":[` + list + `]}`
}
